//! What a config puts on the disk: files with their decoded contents, directories and links.
//!
//! Specs 2 and 3 give the same structs; an `append: true` file of spec 2 is a file without contents and one appended part.

use std::io::Read;

use super::{Config, data_url};
use crate::document::Node;
use crate::document::json::MAX_BYTES;
use crate::source::{Location, Sourced};

/// A file of a config.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfigFile {
    /// Absolute path, as written; empty if there is none.
    pub path: Sourced<String>,
    /// Where the whole entry stands.
    pub at: Location,
    /// Permission bits; Ignition takes 0644 when nothing is written.
    pub mode: Option<Sourced<i64>>,
    /// What the file shall contain.
    pub contents: Contents,
    /// Where the contents stand.
    pub contents_at: Option<Location>,
    /// What is added behind the contents.
    pub append: Vec<Contents>,
    /// Whether a file already there is replaced.
    pub overwrite: Option<Sourced<bool>>,
    /// Owner.
    pub user: Option<Owner>,
    /// Group.
    pub group: Option<Owner>,
    /// Spec 2 only: the file system, `root` being the machine's own.
    pub filesystem: Option<Sourced<String>>,
}

/// A directory of a config.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfigDirectory {
    /// Absolute path, as written; empty if there is none.
    pub path: Sourced<String>,
    /// Where the whole entry stands.
    pub at: Location,
    /// Permission bits; Ignition takes 0755 when nothing is written.
    pub mode: Option<Sourced<i64>>,
}

/// A link of a config.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfigLink {
    /// Absolute path, as written; empty if there is none.
    pub path: Sourced<String>,
    /// Where the whole entry stands.
    pub at: Location,
    /// What it points to.
    pub target: Option<Sourced<String>>,
    /// A hard link instead of a symbolic one.
    pub hard: bool,
}

/// Owner or group of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    /// By number.
    Id(i64),
    /// By name.
    Name(String),
}

/// Contents of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Contents {
    /// Nothing is said: a file already there stays as it is.
    Absent,
    /// The bytes, decoded and decompressed.
    Inline(Vec<u8>),
    /// To be fetched from this URL at boot.
    Remote(String),
    /// Written in the config, but it does not decode; the text says why.
    Unreadable(String),
}

pub(super) fn files(config: &Config) -> Vec<ConfigFile> {
    let appends = |item: &Node| item.get("append").and_then(Node::as_bool) == Some(true);
    entries(config, "files")
        .iter()
        .map(|item| {
            let written = contents(item.get("contents"));
            let (contents, append) = match item.get("append") {
                Some(parts) if !config.version.is_v2() => {
                    (written, parts.items().iter().map(|part| contents(Some(part))).collect())
                }
                _ if config.version.is_v2() && appends(item) => (Contents::Absent, vec![written]),
                _ => (written, Vec::new()),
            };
            ConfigFile {
                path: path(item),
                at: item.at,
                mode: integer(item.get("mode")),
                contents,
                contents_at: item.get("contents").map(|contents| contents.at),
                append,
                overwrite: item.get("overwrite").and_then(|node| Some(Sourced::new(node.as_bool()?, node.at))),
                user: owner(item.get("user")),
                group: owner(item.get("group")),
                filesystem: text(item.get("filesystem")),
            }
        })
        .collect()
}

pub(super) fn directories(config: &Config) -> Vec<ConfigDirectory> {
    let directory = |item: &Node| ConfigDirectory { path: path(item), at: item.at, mode: integer(item.get("mode")) };
    entries(config, "directories").iter().map(directory).collect()
}

pub(super) fn links(config: &Config) -> Vec<ConfigLink> {
    let link = |item: &Node| ConfigLink {
        path: path(item),
        at: item.at,
        target: text(item.get("target")),
        hard: item.get("hard").and_then(Node::as_bool) == Some(true),
    };
    entries(config, "links").iter().map(link).collect()
}

/// Decodes a `contents` object; also used for anything else that has a source and a compression.
pub(super) fn contents(resource: Option<&Node>) -> Contents {
    let Some(source) = resource.and_then(|resource| resource.get("source")).and_then(Node::as_str) else {
        return Contents::Absent;
    };
    if source.is_empty() {
        return Contents::Inline(Vec::new());
    }
    if !data_url::is_data_url(source) {
        return Contents::Remote(source.to_owned());
    }
    let bytes = match data_url::decode(source) {
        Ok(bytes) => bytes,
        Err(error) => return Contents::Unreadable(error.to_string()),
    };
    match resource.and_then(|resource| resource.get("compression")).and_then(Node::as_str) {
        Some("gzip") => decompress(&bytes),
        _ => Contents::Inline(bytes),
    }
}

/// Bounded: a few bytes of gzip can stand for gigabytes.
fn decompress(bytes: &[u8]) -> Contents {
    let mut plain = Vec::new();
    match flate2::read::MultiGzDecoder::new(bytes).take(MAX_BYTES as u64 + 1).read_to_end(&mut plain) {
        Ok(_) if plain.len() > MAX_BYTES => {
            Contents::Unreadable(format!("it decompresses to more than {MAX_BYTES} bytes"))
        }
        Ok(_) => Contents::Inline(plain),
        Err(error) => Contents::Unreadable(format!("it is not valid gzip: {error}")),
    }
}

fn entries<'a>(config: &'a Config, list: &str) -> &'a [Node] {
    config.root.path(&["storage", list]).map_or(&[], Node::items)
}

fn path(item: &Node) -> Sourced<String> {
    text(item.get("path")).unwrap_or_else(|| Sourced::new(String::new(), item.at))
}

fn text(node: Option<&Node>) -> Option<Sourced<String>> {
    node.and_then(|node| Some(Sourced::new(node.as_str()?.to_owned(), node.at)))
}

/// The type check has refused everything that does not fit 64 bits.
fn integer(node: Option<&Node>) -> Option<Sourced<i64>> {
    node.and_then(|node| Some(Sourced::new(i64::try_from(node.as_integer()?).ok()?, node.at)))
}

fn owner(node: Option<&Node>) -> Option<Owner> {
    let node = node?;
    let by_id = integer(node.get("id")).map(|id| Owner::Id(id.value));
    by_id.or_else(|| text(node.get("name")).filter(|name| !name.value.is_empty()).map(|name| Owner::Name(name.value)))
}
