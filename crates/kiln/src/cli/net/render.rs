//! `kiln net render`: network documents to a folder of keyfiles.
//!
//! One output folder is one machine. Either everything is written or, when anything is refused, nothing.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Context;
use kiln_core::diagnostic::{Code, Diagnostic, Severity};
use kiln_core::document::{Node, yaml};
use kiln_core::keyfile::ConnectionFile;
use kiln_core::nmstate::{self, NetworkDocument, Wrapping};
use kiln_core::source::{Location, SourceMap, Span};

use super::super::check::ReportFormat;
use super::super::{Outcome, output, output::Failure, report};
use super::keyfile_dir::write_keyfiles;

/// Codes that speak about a whole machine and mean nothing for a policy, which may be a part of its network.
const WHOLE_MACHINE: [Code; 2] = [Code(0223), Code(0224)];

/// Reads, renders, reports, writes.
pub fn run(args: &super::RenderArgs) -> Result<Outcome, Failure> {
    let Some(files) = render_files(&args.files)? else {
        output::complain(&format!("nothing was written to {}\n", args.out.display()));
        return Ok(Outcome::Refused);
    };
    let paths = write_keyfiles(&args.out, &files)?;
    output::print(&paths.iter().map(|path| format!("wrote {}\n", path.display())).collect::<String>())?;
    Ok(Outcome::Done)
}

/// Reads and renders the documents of one machine and prints what was found. None when anything is refused.
pub fn render_files(paths: &[PathBuf]) -> Result<Option<Vec<ConnectionFile>>, Failure> {
    let mut sources = SourceMap::default();
    let mut job = Job::default();
    for path in paths {
        read(path, &mut sources, &mut job)?;
    }
    report::print(&sources, &job.findings, ReportFormat::Human)?;
    Ok((report::count(&job.findings, Severity::Error) == 0).then_some(job.files))
}

#[derive(Default)]
struct Job {
    files: Vec<ConnectionFile>,
    findings: Vec<Diagnostic>,
}

fn read(path: &Path, sources: &mut SourceMap, job: &mut Job) -> Result<(), Failure> {
    let text = read_text(path)?;
    let file = sources.add(path.display().to_string(), text);
    let (documents, findings) = yaml::parse_yaml(file, sources.file(file));
    let unreadable = findings.iter().any(|finding| finding.severity == Severity::Error);
    job.findings.extend(findings);
    let networks: Vec<NetworkDocument<'_>> = documents.iter().filter_map(nmstate::find_network).collect();
    if networks.is_empty() && !unreadable {
        job.findings.push(no_network(path, &documents, Location { file, span: Span::default() }));
    }
    networks.iter().for_each(|network| render(network, job));
    Ok(())
}

/// The text of a file, within bounds.
pub fn read_text(path: &Path) -> Result<String, Failure> {
    const LIMIT: usize = yaml::MAX_FILE_BYTES;
    let mut bytes = Vec::new();
    // Whatever its size was said to be: a device has none and never ends.
    File::open(path)
        .and_then(|file| file.take(LIMIT as u64 + 1).read_to_end(&mut bytes))
        .with_context(|| format!("cannot read `{}`", path.display()))
        .map_err(Failure::Refused)?;
    if bytes.len() > LIMIT {
        let reason = anyhow::anyhow!("`{}` has more than {LIMIT} bytes; Kiln reads no more", path.display());
        return Err(Failure::refused(reason));
    }
    String::from_utf8(bytes).map_err(|_| Failure::refused(anyhow::anyhow!("`{}` is not text (UTF-8)", path.display())))
}

fn no_network(path: &Path, documents: &[Node], at: Location) -> Diagnostic {
    let kinds: Vec<&str> = documents.iter().filter_map(|document| document.get("kind")?.as_str()).collect();
    let found = if kinds.is_empty() { "nothing".to_owned() } else { kinds.join(", ") };
    Diagnostic::new(Code(0250), at, format!("no network document in {} (found: {found})", path.display()))
        .cause("rendered are bare nmstate documents, NMStateConfigs and NodeNetworkConfigurationPolicies")
        .help("give a file that has one of these, or use `kiln plan` for a folder of manifests")
}

fn render(network: &NetworkDocument<'_>, job: &mut Job) {
    let rendered = nmstate::render_for_nics(network.document, &network.nics);
    let (files, unbound) = nmstate::bind_to_macs(&rendered.files, &network.nics);
    let findings = rendered.diagnostics.into_iter().chain(unbound);
    let partial = network.wrapping == Wrapping::Policy;
    job.findings.extend(findings.filter(|finding| !(partial && WHOLE_MACHINE.contains(&finding.code))));
    for file in files {
        if job.files.iter().any(|other| other.name == file.name) {
            let message = format!("{} comes out of two documents", file.name);
            let finding = Diagnostic::new(Code(0251), network.document.at, message)
                .cause("one folder of keyfiles is the network of one machine")
                .help("render each machine into its own folder, or say everything about an interface in one document");
            job.findings.push(finding);
        }
        job.files.push(file);
    }
}
