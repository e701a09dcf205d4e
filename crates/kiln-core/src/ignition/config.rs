//! One Ignition config, read and ready to be asked.
//!
//! A [`Config`] exists only if Ignition could read the text: known spec version, every field of the right type. Whether
//! Ignition would also accept it is a question for [`super::validate`]. Its keys are in the spec's letter case and it
//! has no nulls in known fields; keys nobody knows are still in it.

use std::borrow::Cow;
use std::io::Read;

use super::conform::{WRONG_TYPE, conform};
use super::schema::{self, Object, Type};
use super::version::VersionError;
use super::{SpecVersion, files};
use crate::diagnostic::{Code, Diagnostic, Severity};
use crate::document::json::{MAX_BYTES, parse_json};
use crate::document::{Node, Value};
use crate::source::{FileId, Location, SourceFile, Span};

const VERSION: Code = Code(404);
const BUTANE: Code = Code(405);

/// An Ignition config that has the right shape.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The config, conforming to the table of its version.
    pub root: Node,
    /// Its spec version.
    pub version: SpecVersion,
}

/// Why there is no typed form of a config.
#[derive(Debug, thiserror::Error)]
pub enum TypedError {
    /// The `ignition-config` crate knows 3.x only.
    #[error("spec {0} has no typed form; convert the config to 3.x first")]
    SpecTwo(SpecVersion),
    /// The crate refuses what Ignition reads.
    #[error("the typed form cannot be built")]
    Refused(#[from] ignition_config::Error),
}

/// Why bytes are no text that could hold a config.
#[derive(Debug, thiserror::Error)]
pub enum ReadConfigError {
    /// Begins like gzip and breaks off or is damaged.
    #[error("the gzip data is damaged")]
    Gzip(#[source] std::io::Error),
    /// Too much to read.
    #[error("the text has more than {MAX_BYTES} bytes")]
    TooLarge,
}

impl Config {
    /// Reads a config from JSON text. The findings tell what Ignition would refuse to read, or read with a warning.
    pub fn parse(file: FileId, source: &SourceFile) -> (Option<Config>, Vec<Diagnostic>) {
        if let Some(at) = butane_variant(&source.text) {
            return (None, vec![butane(Location { file, span: at })]);
        }
        let (root, mut findings) = parse_json(file, source);
        if source.text.trim().is_empty() {
            findings = findings.into_iter().map(|finding| finding.help(smallest_config())).collect();
        }
        let Some(root) = root else { return (None, findings) };
        let (config, more) = Config::from_node(root);
        findings.extend(more);
        (config, findings)
    }

    /// Takes a config that was read as part of another document, such as `spec.config` of a MachineConfig.
    pub fn from_node(root: Node) -> (Option<Config>, Vec<Diagnostic>) {
        let version = match read_version(&root) {
            Ok(version) => version,
            Err(finding) => return (None, vec![*finding]),
        };
        let (root, findings) = conform(root, version);
        let readable = findings.iter().all(|finding| finding.severity < Severity::Error);
        (readable.then_some(Config { root, version }), findings)
    }

    /// The same config in the structs of the `ignition-config` crate.
    pub fn typed(&self) -> Result<ignition_config::Config, TypedError> {
        if self.version.is_v2() {
            return Err(TypedError::SpecTwo(self.version));
        }
        let mut json = with_zero_values(&self.root, schema::root(self.version)).to_json();
        json["ignition"]["version"] = self.version.to_string().into();
        let (config, _unknown_keys) = ignition_config::Config::parse_slice(json.to_string().as_bytes())?;
        Ok(config)
    }

    /// The files it writes, in the order written.
    pub fn files(&self) -> Vec<files::ConfigFile> {
        files::files(self)
    }

    /// The directories it makes, in the order written.
    pub fn directories(&self) -> Vec<files::ConfigDirectory> {
        files::directories(self)
    }

    /// The links it makes, in the order written.
    pub fn links(&self) -> Vec<files::ConfigLink> {
        files::links(self)
    }
}

/// Undoes gzip if the bytes begin like gzip; gives anything else back as it is. Never more than [`MAX_BYTES`].
pub fn unpack_gzip(bytes: &[u8]) -> Result<Cow<'_, [u8]>, ReadConfigError> {
    let limited = |bytes: Cow<'_, [u8]>| if bytes.len() > MAX_BYTES { Err(ReadConfigError::TooLarge) } else { Ok(()) };
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return limited(Cow::Borrowed(bytes)).map(|()| Cow::Borrowed(bytes));
    }
    let mut unpacked = Vec::new();
    let mut decoder = flate2::read::MultiGzDecoder::new(bytes).take(MAX_BYTES as u64 + 1);
    decoder.read_to_end(&mut unpacked).map_err(ReadConfigError::Gzip)?;
    limited(Cow::Borrowed(&unpacked))?;
    Ok(Cow::Owned(unpacked))
}

fn smallest_config() -> String {
    format!("write {{\"ignition\": {{\"version\": \"{}\"}}}}", SpecVersion::V3_2)
}

/// The spec version of a config, found as Ignition finds it: letter case does not count, the last one wins.
fn read_version(root: &Node) -> Result<SpecVersion, Box<Diagnostic>> {
    if !matches!(root.value, Value::Mapping(_) | Value::Null) {
        return Err(Diagnostic::new(
            WRONG_TYPE,
            root.at,
            format!("the config must be an object, but it is {}", root.kind_name()),
        )
        .cause("an Ignition config is a JSON object that begins with the key `ignition`")
        .help(smallest_config())
        .into());
    }
    let named = |name: &'static str| {
        move |entry: &&crate::document::Entry| entry.key.value.eq_ignore_ascii_case(name) && !entry.value.is_null()
    };
    let sections: Vec<_> = root.entries().iter().filter(named("ignition")).collect();
    if sections.is_empty()
        && let Some(variant) = root.entries().iter().find(|entry| &*entry.key.value == "variant")
    {
        return Err(butane(variant.key.at).into());
    }
    if sections.is_empty()
        && let Some(one) = root.entries().iter().find(|entry| &*entry.key.value == "ignitionVersion")
    {
        return Err(Diagnostic::new(VERSION, one.key.at, "the config is written in spec 1")
            .cause("spec 1 was given up in 2016; no Ignition of today reads it")
            .help("write the config anew in spec 3, with `\"ignition\": {\"version\": \"3.2.0\"}`")
            .into());
    }
    let version = sections.iter().flat_map(|section| section.value.entries()).rfind(named("version"));
    let Some(version) = version else {
        let at = sections.last().map_or(root.at, |section| section.value.at);
        return Err(Diagnostic::new(VERSION, at, "the config has no `ignition.version`")
            .cause("Ignition decides by the version how to read a config and refuses one without it")
            .help(format!("add \"ignition\": {{\"version\": \"{}\"}}", SpecVersion::V3_2))
            .into());
    };
    let at = version.value.at;
    let Some(text) = version.value.as_str() else {
        let found = version.value.kind_name();
        return Err(Diagnostic::new(WRONG_TYPE, at, format!("`ignition.version` must be a string, but it is {found}"))
            .cause("Ignition refuses a config in which a field has another type than the spec says")
            .help("write the version in quotes: \"3.2.0\"")
            .into());
    };
    text.parse().map_err(|error| Box::new(version_finding(at, &error)))
}

fn version_finding(at: Location, error: &VersionError) -> Diagnostic {
    let finding = Diagnostic::new(VERSION, at, format!("`ignition.version`: {error}"));
    let newest = SpecVersion::NEWEST;
    match error {
        VersionError::Malformed(_) => finding
            .cause("Ignition compares the whole version, with all three numbers")
            .help("write one of 3.0.0, 3.1.0, 3.2.0, 3.3.0, 3.4.0, 3.5.0, 3.6.0"),
        VersionError::Experimental(text) => finding
            .cause("an experimental spec is read only by the very releases of Ignition that were developing it, and may change between them")
            .help(format!("use the released version that has the fields you need, at most {newest}, instead of {text}")),
        VersionError::Unknown(_) => finding
            .cause(format!("the released specs are 2.0.0 to 2.4.0 and 3.0.0 to {newest}; Ignition refuses every other version"))
            .help("write one of 3.0.0, 3.1.0, 3.2.0, 3.3.0, 3.4.0, 3.5.0, 3.6.0"),
    }
}

/// The place of `variant:` if this is YAML for Butane rather than JSON.
fn butane_variant(text: &str) -> Option<Span> {
    if text.trim_start().starts_with(['{', '[']) {
        return None;
    }
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        if line.starts_with("variant:") {
            return Some(Span::new(start as u32, start as u32 + 7));
        }
        start += line.len();
    }
    None
}

fn butane(at: Location) -> Diagnostic {
    Diagnostic::new(BUTANE, at, "this is a Butane config, not an Ignition config")
        .cause("Butane configs are YAML with `variant` and `version`; Ignition releases before 2.27 cannot read them")
        .help("translate it first: `butane --strict FILE > config.ign`")
}

/// Fields the typed structs cannot leave out get the value Go gives them.
fn with_zero_values(node: &Node, object: &'static Object) -> Node {
    let mut entries = node.entries().to_vec();
    for entry in &mut entries {
        match object.field(&entry.key.value).map(|field| field.holds) {
            Some(Type::Object(inner)) => entry.value = with_zero_values(&entry.value, inner),
            Some(Type::Objects(inner)) => {
                let items = entry.value.items().iter().map(|item| with_zero_values(item, inner)).collect();
                entry.value.value = Value::Sequence(items);
            }
            _ => {}
        }
    }
    for field in object.fields.iter().filter(|field| field.zero_if_missing && node.get(field.name).is_none()) {
        let value = match field.holds {
            Type::Strings => Value::Sequence(Vec::new()),
            _ => Value::String("".into()),
        };
        let key = crate::source::Sourced::new(field.name.into(), node.at);
        entries.push(crate::document::Entry { key, value: Node { at: node.at, value } });
    }
    Node { at: node.at, value: Value::Mapping(entries) }
}

#[cfg(test)]
mod tests;
