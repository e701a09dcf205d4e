//! Reading one Ignition config from a file or standard input, and writing one.

use std::io::Read as _;
use std::path::Path;

use anyhow::Context as _;
use kiln_core::diagnostic::Diagnostic;
use kiln_core::document::Node;
use kiln_core::document::json::MAX_BYTES;
use kiln_core::ignition::{Config, unpack_gzip};
use kiln_core::source::SourceMap;

use super::super::output::Failure;

/// Reads a config; gzip is unpacked, `-` is standard input. None when the findings say why it cannot be read.
pub fn read_config(
    path: &Path,
    sources: &mut SourceMap,
    findings: &mut Vec<Diagnostic>,
) -> Result<Option<Config>, Failure> {
    let name = if path.as_os_str() == "-" { "<stdin>".to_owned() } else { path.display().to_string() };
    let packed = read_bytes(path)?;
    let bytes = unpack_gzip(&packed).with_context(|| format!("cannot read `{name}`")).map_err(Failure::Refused)?;
    let text = std::str::from_utf8(&bytes)
        .map_err(|_| Failure::refused(anyhow::anyhow!("`{name}` is not text (UTF-8), so it is no Ignition config")))?;
    let file = sources.add(name, text);
    let (config, found) = Config::parse(file, sources.file(file));
    findings.extend(found);
    if let Some(config) = &config {
        hide_secrets(&config.root, sources);
    }
    Ok(config)
}

/// Keeps tokens and password hashes out of the lines that reports quote; the config itself still has them.
pub fn hide_secrets(node: &Node, sources: &mut SourceMap) {
    for item in node.items() {
        hide_secrets(item, sources);
    }
    for entry in node.entries() {
        match &*entry.key.value {
            "passwordHash" => sources.redact(entry.value.at),
            "httpHeaders" => {
                let values = entry.value.items().iter().filter_map(|header| header.get("value"));
                values.for_each(|value| sources.redact(value.at));
            }
            _ => hide_secrets(&entry.value, sources),
        }
    }
}

/// Reads a whole file, or standard input for `-`, up to the size the JSON reader takes.
pub fn read_bytes(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let limit = MAX_BYTES as u64 + 1;
    let read = if path.as_os_str() == "-" {
        std::io::stdin().lock().take(limit).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes))
    };
    read.with_context(|| format!("cannot read `{}`", path.display())).map_err(Failure::Refused)?;
    if bytes.len() > MAX_BYTES {
        let reason = anyhow::anyhow!("`{}` has more than {MAX_BYTES} bytes; Kiln reads no more", path.display());
        return Err(Failure::refused(reason));
    }
    Ok(bytes)
}

/// The text of a config, indented, as it is printed.
pub fn render_config(config: &Config) -> String {
    format!("{:#}\n", config.root.to_json())
}
