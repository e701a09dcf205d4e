//! Reading one Ignition config from a file or standard input, and writing one.

use std::borrow::Cow;
use std::io::Read as _;
use std::path::Path;

use anyhow::Context as _;
use kiln_core::diagnostic::{Code, Diagnostic};
use kiln_core::document::Node;
use kiln_core::document::json::{MAX_BYTES, parse_json};
use kiln_core::ignition::{Config, unpack_gzip};
use kiln_core::source::{Location, SourceMap, Span};

use super::super::output::Failure;

/// Reads a config; gzip is unpacked, `-` is standard input. None when the findings say why it cannot be read.
pub fn read_config(
    path: &Path,
    sources: &mut SourceMap,
    findings: &mut Vec<Diagnostic>,
) -> Result<Option<Config>, Failure> {
    parse_config(path, &read_bytes(path)?, sources, findings)
}

/// The config in bytes that were read from a path.
pub fn parse_config(
    path: &Path,
    packed: &[u8],
    sources: &mut SourceMap,
    findings: &mut Vec<Diagnostic>,
) -> Result<Option<Config>, Failure> {
    let name = if path.as_os_str() == "-" { "<stdin>".to_owned() } else { path.display().to_string() };
    let bytes = unpack_gzip(packed).with_context(|| format!("cannot read `{name}`")).map_err(Failure::Refused)?;
    if bytes.contains(&0) {
        return Err(Failure::refused(anyhow::anyhow!("`{name}` is not text (UTF-8), so it is no Ignition config")));
    }
    let text = String::from_utf8_lossy(&bytes);
    let file = sources.add(name, text.as_ref());
    if let (Cow::Owned(_), Some(at)) = (&text, text.find(char::REPLACEMENT_CHARACTER)) {
        findings.push(replaced_bytes(Location { file, span: Span::new(at as u32, at as u32 + 3) }));
    }
    let (config, found) = Config::parse(file, sources.file(file));
    findings.extend(found);
    if let (Some(root), _) = parse_json(file, sources.file(file)) {
        hide_secrets(&root, sources);
    }
    Ok(config)
}

/// Go's JSON reader goes on with U+FFFD in place of bytes that are not UTF-8, and so does Kiln, but not in silence.
fn replaced_bytes(at: Location) -> Diagnostic {
    Diagnostic::new(Code(0403), at, "the text contains bytes that are not UTF-8")
        .cause("Ignition's JSON reader replaces them by U+FFFD, so the machine gets another text than was written")
        .help("save the file as UTF-8; put binary contents into a base64 `data:` URL")
}

/// Keeps tokens and password hashes out of the lines that reports quote; the config itself still has them.
pub fn hide_secrets(node: &Node, sources: &mut SourceMap) {
    for item in node.items() {
        hide_secrets(item, sources);
    }
    for entry in node.entries() {
        match &*entry.key.value.to_ascii_lowercase() {
            "passwordhash" => sources.redact(entry.value.at),
            "httpheaders" => {
                let fields = entry.value.items().iter().flat_map(Node::entries);
                let values = fields.filter(|field| field.key.value.eq_ignore_ascii_case("value"));
                values.for_each(|field| sources.redact(field.value.at));
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
