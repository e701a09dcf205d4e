//! A pool's config as it is sent: prepared once for each spec version, with a gap for a host's own files.
//!
//! A payload has hundreds of kilobytes and a host adds a few. The text is cut once, in front of the bracket that closes
//! `storage.files`; a host's config is then the part before the cut, the host's files and the part behind it, and nobody
//! parses anything. The same in gzip: the first part is deflated once and ends on a byte, the rest is deflated for each
//! host, and the checksums are added up. It is one member, because not every client reads several.
//!
//! Pure. In the version it was written in a payload leaves as the bytes that came in, except when it was written in a way
//! only Go reads (a key twice, say). What is lost in an older version is told by [`Rendered::lost`]; what would do something else is
//! refused.

use std::collections::HashSet;
use std::sync::OnceLock;

use axum::body::Bytes;
use flate2::{Compress, Compression, FlushCompress, Status};
use kiln_core::diagnostic::{Diagnostic, Severity};
use kiln_core::ignition::convert::convert;
use kiln_core::ignition::merge::merge;
use kiln_core::ignition::{Config, SpecVersion, unpack_gzip};
use kiln_core::source::SourceMap;
use serde_json::Value;

/// The largest config that is served, unpacked.
pub const MOST_BYTES: usize = 16 << 20;

/// Why a config cannot be served. The words are for the log: they name no contents.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// Not gzip, not text, or too large.
    #[error("the payload cannot be unpacked")]
    Unpack,
    /// Not an Ignition config.
    #[error("the payload is no Ignition config: {0}")]
    NoConfig(String),
    /// The older spec version would do something else.
    #[error("the config cannot be written in spec {0}: {1}")]
    Version(SpecVersion, String),
}

/// A config that was read, with what must be known to add files to it. It has secrets in it.
pub struct Source {
    /// As it came, in gzip.
    packed: Bytes,
    /// The version it was written in.
    pub version: SpecVersion,
    /// Everything it puts at a path.
    paths: HashSet<Box<str>>,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source")
            .field("version", &self.version)
            .field("bytes", &self.packed.len())
            .finish_non_exhaustive()
    }
}

impl Source {
    /// Reads a config, packed or not.
    pub fn parse(packed: Bytes) -> Result<Source, Unusable> {
        let (_, config, _) = unpack(&packed)?;
        let paths = paths(&config);
        Ok(Source { packed, version: config.version, paths })
    }

    /// Whether it writes one of these paths itself.
    pub fn has_any(&self, paths: &[Box<str>]) -> bool {
        paths.iter().any(|path| self.paths.contains(path))
    }

    /// The config in a spec version.
    pub fn render(&self, version: SpecVersion) -> Result<Rendered, Unusable> {
        let (text, config, exact) = unpack(&self.packed)?;
        if config.version == version && exact {
            return Ok(Rendered::cut(text, &config, 0));
        }
        let (text, lost) = render(&config, version)?;
        let (config, _) = read(&text)?;
        Ok(Rendered::cut(text, &config, lost))
    }

    /// The config with a host's files in place of its own, and a config of the host's laid over it.
    pub fn compose(&self, files: &[Value], over: Option<&[u8]>, version: SpecVersion) -> Result<Bytes, Unusable> {
        let (_, config, _) = unpack(&self.packed)?;
        let mut json = config.root.to_json();
        add_files(&mut json, files);
        let (mut config, _) = read(&json.to_string())?;
        if let Some(over) = over {
            let (_, over, _) = unpack(over)?;
            config = merge(&config, &over).config;
        }
        Ok(Bytes::from(render(&config, version)?.0))
    }
}

/// Puts files into a config; what it has at the same path goes.
fn add_files(config: &mut Value, files: &[Value]) {
    let storage = &mut config["storage"];
    if storage.is_null() {
        *storage = Value::Object(serde_json::Map::new());
    }
    let ours: HashSet<&str> = files.iter().filter_map(|file| file["path"].as_str()).collect();
    for list in ["files", "links", "directories"] {
        if let Some(items) = storage[list].as_array_mut() {
            items.retain(|item| item["path"].as_str().is_none_or(|path| !ours.contains(path)));
        }
    }
    match storage["files"].as_array_mut() {
        Some(items) => items.extend_from_slice(files),
        None => storage["files"] = files.to_vec().into(),
    }
    // Reading an absent key has left nulls.
    if let Some(entries) = storage.as_object_mut() {
        entries.retain(|_, value| !value.is_null());
    }
}

/// One version of a config, cut where files are added. It has secrets in it.
pub struct Rendered {
    text: Bytes,
    /// Where files are added, and whether there are some before.
    gap: Option<Gap>,
    /// How many fields were lost because this version does not have them.
    pub lost: usize,
    packed: OnceLock<PackedHead>,
}

#[derive(Debug, Clone, Copy)]
struct Gap {
    at: usize,
    first: bool,
}

/// The part in front of the gap, deflated.
struct PackedHead {
    deflated: Bytes,
    checksum: crc32fast::Hasher,
}

impl std::fmt::Debug for Rendered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rendered").field("bytes", &self.text.len()).field("lost", &self.lost).finish_non_exhaustive()
    }
}

impl Rendered {
    fn cut(text: String, config: &Config, lost: usize) -> Rendered {
        let files = config.root.path(&["storage", "files"]).filter(|files| text_is_list(&text, files));
        let gap = files.map(|files| Gap { at: files.at.span.end as usize - 1, first: files.items().is_empty() });
        Rendered { text: Bytes::from(text), gap, lost, packed: OnceLock::new() }
    }

    /// Whether files can be added.
    pub fn takes_files(&self) -> bool {
        self.gap.is_some()
    }

    /// The body: as it is, or with a host's files (items of a JSON list, without brackets). None when there is no gap.
    pub fn body(&self, files: Option<&Bytes>) -> Option<Vec<Bytes>> {
        let files = files.filter(|files| !files.is_empty());
        let Some(files) = files else { return Some(vec![self.text.clone()]) };
        let gap = self.gap?;
        let comma = if gap.first { Bytes::new() } else { Bytes::from_static(b",") };
        let parts = [self.text.slice(..gap.at), comma, files.clone(), self.text.slice(gap.at..)];
        Some(parts.into_iter().filter(|part| !part.is_empty()).collect())
    }

    /// The same in gzip.
    pub fn packed_body(&self, files: Option<&Bytes>) -> Option<Vec<Bytes>> {
        let at = self.gap.map_or(self.text.len(), |gap| gap.at);
        let head = self.packed.get_or_init(|| {
            let bytes = self.text.slice(..at);
            let mut checksum = crc32fast::Hasher::new();
            checksum.update(&bytes);
            PackedHead { deflated: Bytes::from(deflate(&bytes, FlushCompress::Sync)), checksum }
        });
        let mut rest = Vec::new();
        if let Some(files) = files.filter(|files| !files.is_empty()) {
            if !self.gap?.first {
                rest.push(b',');
            }
            rest.extend_from_slice(files);
        }
        rest.extend_from_slice(&self.text[at..]);
        let mut checksum = head.checksum.clone();
        checksum.update(&rest);
        let mut end = deflate(&rest, FlushCompress::Finish);
        end.extend_from_slice(&checksum.finalize().to_le_bytes());
        // The length modulo 2^32, as the format has it.
        end.extend_from_slice(&((at + rest.len()) as u32).to_le_bytes());
        Some(vec![Bytes::from_static(GZIP_HEADER), head.deflated.clone(), Bytes::from(end)])
    }
}

/// Deflate, no name, no time, unknown system.
const GZIP_HEADER: &[u8] = &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];

/// Whole bodies in gzip.
pub fn pack(body: &[u8]) -> Vec<Bytes> {
    let mut checksum = crc32fast::Hasher::new();
    checksum.update(body);
    let mut end = deflate(body, FlushCompress::Finish);
    end.extend_from_slice(&checksum.finalize().to_le_bytes());
    end.extend_from_slice(&(body.len() as u32).to_le_bytes());
    vec![Bytes::from_static(GZIP_HEADER), Bytes::from(end)]
}

/// Raw deflate without a window before it; with `Sync` it ends on a byte and may be continued by another.
fn deflate(bytes: &[u8], flush: FlushCompress) -> Vec<u8> {
    let mut compress = Compress::new(Compression::new(6), false);
    let mut packed = Vec::with_capacity(bytes.len() / 2 + 64);
    loop {
        let read = compress.total_in() as usize;
        packed.reserve(4096);
        let room = packed.capacity() - packed.len();
        let before = packed.len();
        // It fails only for a wrong order of calls.
        let Ok(status) = compress.compress_vec(&bytes[read..], &mut packed, flush) else { return packed };
        let all_read = compress.total_in() as usize == bytes.len();
        let had_room = packed.len() - before < room;
        if status == Status::StreamEnd || (flush == FlushCompress::Sync && all_read && had_room) {
            return packed;
        }
    }
}

/// The text, the config, and whether the text can be sent as it is.
fn unpack(packed: &[u8]) -> Result<(String, Config, bool), Unusable> {
    let bytes = unpack_gzip(packed).map_err(|_| Unusable::Unpack)?;
    if bytes.len() > MOST_BYTES {
        return Err(Unusable::Unpack);
    }
    let text = String::from_utf8(bytes.into_owned()).map_err(|_| Unusable::Unpack)?;
    let (config, exact) = read(&text)?;
    Ok((text, config, exact))
}

/// A config, and whether everybody reads its text as Go does.
fn read(text: &str) -> Result<(Config, bool), Unusable> {
    let mut sources = SourceMap::default();
    let file = sources.add("payload", text);
    let (config, findings) = Config::parse(file, sources.file(file));
    let config = config.ok_or_else(|| Unusable::NoConfig(codes(&findings)))?;
    Ok((config, findings.is_empty()))
}

/// Text in a spec version and how much was lost.
fn render(config: &Config, version: SpecVersion) -> Result<(String, usize), Unusable> {
    let converted = convert(config, version);
    let (errors, rest): (Vec<Diagnostic>, Vec<Diagnostic>) =
        converted.lost.into_iter().partition(|finding| finding.severity == Severity::Error);
    if !errors.is_empty() {
        return Err(Unusable::Version(version, codes(&errors)));
    }
    let lost = rest.iter().filter(|finding| finding.severity == Severity::Warning).count();
    Ok((converted.config.root.to_json().to_string(), lost))
}

/// Codes say enough; messages could repeat what is in the config.
fn codes(findings: &[Diagnostic]) -> String {
    let mut codes: Vec<String> = findings.iter().map(|finding| finding.code.to_string()).collect();
    codes.dedup();
    codes.truncate(5);
    codes.join(", ")
}

fn paths(config: &Config) -> HashSet<Box<str>> {
    ["files", "directories", "links"]
        .iter()
        .filter_map(|list| config.root.path(&["storage", list]))
        .flat_map(|list| list.items())
        .filter_map(|item| Some(item.get("path")?.as_str()?.into()))
        .collect()
}

/// Whether the place of a list in the text is that list: a list laid over another has parts from elsewhere.
fn text_is_list(text: &str, list: &kiln_core::document::Node) -> bool {
    let span = list.at.span;
    let inside = text.as_bytes().get(span.start as usize..span.end as usize);
    inside.is_some_and(|bytes| bytes.len() >= 2 && bytes.starts_with(b"[") && bytes.ends_with(b"]"))
}

#[cfg(test)]
mod tests;
