//! `kiln net capture`: the profiles of a configured machine as clean keyfiles or as one nmstate document.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::Context;
use kiln_core::diagnostic::{Code, Diagnostic, Severity};
use kiln_core::keyfile::{ConnectionFile, Keyfile, LONGEST_TEXT};
use kiln_core::nmstate::{self, Captured};
use kiln_core::source::SourceMap;

use super::super::check::ReportFormat;
use super::super::{Outcome, output, output::Failure, report};
use super::CaptureOutput;
use super::keyfile_dir::write_keyfiles;

/// Where NetworkManager keeps profiles; what stands later shadows what stands before.
const FOLDERS: [&str; 2] = ["etc/NetworkManager/system-connections", "run/NetworkManager/system-connections"];

/// Reads, captures, prints.
pub fn run(args: &super::CaptureArgs) -> Result<Outcome, Failure> {
    let mut findings = Vec::new();
    let mut files: Vec<ConnectionFile> = Vec::new();
    for folder in FOLDERS {
        for file in read_folder(&args.root.join(folder), &mut findings)? {
            let uuid = |file: &ConnectionFile| file.keyfile.get("connection", "uuid").map(|uuid| uuid.into_owned());
            files.retain(|other| uuid(other).is_none() || uuid(other) != uuid(&file));
            files.push(file);
        }
    }
    if files.is_empty() && findings.is_empty() {
        let reason =
            format!("no NetworkManager profiles below `{}` (looked in {})", args.root.display(), FOLDERS.join(", "));
        return Err(Failure::refused(anyhow::anyhow!(reason)));
    }
    let captured = nmstate::capture(&files);
    findings.extend(captured.diagnostics.iter().filter(|finding| concerns(finding, args.output)).cloned());
    report::print(&SourceMap::default(), &findings, ReportFormat::Human)?;
    print(&captured, args)?;
    let refused = report::count(&findings, Severity::Error) > 0;
    Ok(if refused { Outcome::Refused } else { Outcome::Done })
}

/// What nmstate cannot say does not matter to somebody who asked for keyfiles.
fn concerns(finding: &Diagnostic, output: CaptureOutput) -> bool {
    output == CaptureOutput::Nmstate || matches!(finding.code, Code(0241 | 0243))
}

fn print(captured: &Captured, args: &super::CaptureArgs) -> Result<(), Failure> {
    match (args.output, &args.out) {
        (CaptureOutput::Nmstate, None) => output::print(&captured.document)?,
        (CaptureOutput::Nmstate, Some(_)) => {
            return Err(Failure::refused(anyhow::anyhow!(
                "`--out` takes keyfiles: add `-o keyfiles`, or redirect the output to a file"
            )));
        }
        (CaptureOutput::Keyfiles, Some(folder)) => {
            let paths = write_keyfiles(folder, &captured.keyfiles)?;
            output::print(&paths.iter().map(|path| format!("wrote {}\n", path.display())).collect::<String>())?;
        }
        (CaptureOutput::Keyfiles, None) => {
            let texts = captured.keyfiles.iter().map(|file| format!("# {}\n{}", file.name, file.keyfile.render()));
            output::print(&texts.collect::<Vec<_>>().join("\n"))?;
        }
    }
    Ok(())
}

/// Every profile of a folder that NetworkManager would read; a folder that does not exist has none.
fn read_folder(folder: &Path, findings: &mut Vec<Diagnostic>) -> Result<Vec<ConnectionFile>, Failure> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries
            .with_context(|| format!("cannot read the folder `{}`", folder.display()))
            .map_err(Failure::Refused)?,
    };
    let mut paths = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>()?;
    paths.sort();
    let mut files = Vec::new();
    for path in paths.iter().filter(|path| path.is_file()) {
        match read_profile(path, findings) {
            Ok(file) => files.extend(file),
            Err(reason) => findings.push(unreadable(path, &reason)),
        }
    }
    Ok(files)
}

fn read_profile(path: &Path, findings: &mut Vec<Diagnostic>) -> Result<Option<ConnectionFile>, String> {
    let mode = fs::metadata(path).map_err(|error| error.to_string())?.permissions().mode() & 0o7777;
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut file = ConnectionFile { name, mode, keyfile: Keyfile::default() };
    if let Some(reason) = file.ignored() {
        findings.push(skipped(path, &reason));
        return Ok(None);
    }
    // One byte more than a keyfile may have: the parser then says so.
    let mut bytes = Vec::new();
    let opened = File::open(path).map_err(|error| error.to_string())?;
    opened.take(LONGEST_TEXT as u64 + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    file.keyfile = Keyfile::parse_bytes(&bytes).map_err(|error| error.to_string())?;
    Ok(Some(file))
}

fn skipped(path: &Path, reason: &impl std::fmt::Display) -> Diagnostic {
    Diagnostic::new(Code(0241), None, format!("{} is not captured: {reason}", path.display()))
        .cause("NetworkManager does not read the file either")
        .help("nothing to do, unless the file was meant to be used")
}

fn unreadable(path: &Path, reason: &str) -> Diagnostic {
    Diagnostic::new(Code(0243), None, format!("{} cannot be read: {reason}", path.display()))
        .cause("profiles belong to root, and NetworkManager ignores a file that is not a keyfile")
        .help("run the capture as root, or repair or remove the file")
}
