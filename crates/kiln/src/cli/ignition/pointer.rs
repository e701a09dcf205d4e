//! `kiln ignition pointer`: a config that makes a machine fetch its real one.
//!
//! Header values come from files, so that no token is ever seen in a process list or a shell history.

use std::path::Path;

use anyhow::anyhow;
use kiln_core::diagnostic::{Code, Diagnostic, Severity};
use kiln_core::ignition::pointer::{Header, PointerRequest, Reference, looks_secret, render_pointer};
use kiln_core::ignition::validate::validate;
use kiln_core::ignition::{Config, SpecVersion};
use kiln_core::source::SourceMap;

use super::super::check::ReportFormat;
use super::super::{Outcome, output, output::Failure, report};
use super::read::{hide_secrets, read_bytes};

/// Builds the pointer, checks it as any config, prints it.
pub fn run(args: &super::PointerArgs) -> Result<Outcome, Failure> {
    let version: SpecVersion = args.spec.parse().map_err(Failure::refused)?;
    let Some(source) = &args.source else { return super::user_data::run(args) };
    let mut findings = Vec::new();
    let headers = args.headers.iter().map(|header| read_header(header, &mut findings)).collect::<Result<_, _>>()?;
    let request = PointerRequest {
        source: source.clone(),
        reference: if args.replace { Reference::Replace } else { Reference::Merge },
        authorities: args.ca.as_deref().map(read_bytes).transpose()?,
        headers,
        verification: args.verification.clone(),
        proxy: None,
        version,
    };
    let mut sources = SourceMap::default();
    let text = match render_pointer(&request) {
        Ok(text) => text,
        Err(refusal) => {
            findings.push(*refusal);
            String::new()
        }
    };
    if !text.is_empty() {
        let file = sources.add("<pointer>", text.as_str());
        let (config, found) = Config::parse(file, sources.file(file));
        findings.extend(found);
        if let Some(config) = config {
            hide_secrets(&config.root, &mut sources);
            findings.extend(validate(&config));
        }
    }
    report::print(&sources, &findings, ReportFormat::Human)?;
    if report::count(&findings, Severity::Error) > 0 {
        return Ok(Outcome::Refused);
    }
    output::print(&text)?;
    Ok(Outcome::Done)
}

/// Reads `Name: value`, or `Name: @FILE` with the value in the file.
fn read_header(text: &str, findings: &mut Vec<Diagnostic>) -> Result<Header, Failure> {
    let (name, value) = text
        .split_once(':')
        .map(|(name, value)| (name.trim(), value.trim()))
        .filter(|(name, value)| !name.is_empty() && !value.is_empty())
        .ok_or_else(|| Failure::refused(anyhow!("a header is written `Name: value` or `Name: @FILE`")))?;
    if let Some(path) = value.strip_prefix('@') {
        let bytes = read_bytes(Path::new(path))?;
        let value = String::from_utf8(bytes)
            .map_err(|_| Failure::refused(anyhow!("`{path}` is not text, so it cannot be the value of `{name}`")))?;
        return Ok(Header { name: name.to_owned(), value: value.trim().to_owned() });
    }
    let header = Header { name: name.to_owned(), value: value.to_owned() };
    if looks_secret(&header) {
        findings.push(
            Diagnostic::new(Code(470), None, format!("the value of `{name}` is visible to every user of this machine"))
                .cause("arguments stand in the process list and in the shell's history")
                .help(format!("write the value to a file of your own and give `--header \"{name}: @FILE\"`")),
        );
    }
    Ok(header)
}
