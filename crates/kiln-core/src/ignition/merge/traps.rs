//! What a merge inherits although nobody meant it, and what the machine will fetch besides.
//!
//! A resource (`source` with `compression`, `verification` and `httpHeaders`) is merged field by field like
//! everything else, so a child that replaces only the `source` keeps the rest of the parent's resource.

use crate::diagnostic::{Code, Diagnostic};
use crate::document::Node;
use crate::ignition::{Config, data_url};

const FIELD_BY_FIELD: &str = "Ignition merges a resource field by field";

/// Reports what `child` inherits from `parent` when it replaces the source of a resource.
pub(super) fn inherited(parent: &Node, child: &Node, found: &mut Vec<Diagnostic>) {
    let (Some(old), Some(source)) = (text(parent, "source"), child.get("source")) else { return };
    let Some(new) = source.as_str().filter(|new| *new != old) else { return };
    let (old, shown) = ((old, shorten(old)), shorten(new));
    if let Some(compression) = parent.get("compression").filter(|_| unset(child, "compression"))
        && compression.as_str().is_some_and(|name| !name.is_empty())
        && !is_gzip_data(new)
    {
        let message = format!("`{shown}` will be unpacked as gzip although nothing here says so");
        found.push(
            Diagnostic::new(Code(450), source.at, message)
                .cause(format!(
                    "{FIELD_BY_FIELD}: a child that sets `source` without `compression` inherits the parent's"
                ))
                .help("add `\"compression\": \"\"` beside this `source`")
                .related(compression.at, "the compression it inherits"),
        );
    }
    if let Some(hash) = parent.path(&["verification", "hash"]).filter(|hash| !hash.is_null())
        && child.path(&["verification", "hash"]).is_none_or(Node::is_null)
    {
        let message = format!("`{shown}` will be checked against the hash of `{}`", old.1);
        found.push(
            Diagnostic::new(Code(451), source.at, message)
                .cause(format!(
                    "{FIELD_BY_FIELD}: a child that sets `source` without `verification` inherits the parent's hash, \
                     and the boot stops when the contents differ"
                ))
                .help("add `\"verification\": { \"hash\": \"sha512-…\" }` of the new contents beside this `source`")
                .related(hash.at, "the hash it inherits"),
        );
    }
    if let Some(header) = kept_header(parent, child).filter(|_| host(old.0) != host(new)) {
        let name = text(header, "name").unwrap_or_default();
        let message = format!("the header `{name}` meant for `{}` will be sent to `{shown}`", old.1);
        let remove = format!("\"httpHeaders\": [{{ \"name\": \"{name}\", \"value\": null }}]");
        found.push(
            Diagnostic::new(Code(452), source.at, message)
                .cause(format!("{FIELD_BY_FIELD}: the parent's headers stay when a child replaces only `source`"))
                .help(format!("add `{remove}` beside this `source` to take the header away"))
                .related(header.at, "the header it inherits"),
        );
    }
}

/// What the machine will fetch besides this config; nothing of it can be seen from here.
pub fn references(config: &Config) -> Vec<Diagnostic> {
    let Some(references) = config.root.path(&["ignition", "config"]) else { return Vec::new() };
    let mut found = Vec::new();
    if let Some(source) = references.path(&["replace", "source"]).filter(|source| !source.is_null()) {
        let shown = shorten(source.as_str().unwrap_or_default());
        let message = format!("the machine will drop this whole config and use `{shown}` instead");
        found.push(
            Diagnostic::new(Code(453), source.at, message)
                .cause("`ignition.config.replace` discards everything else, files and units included"),
        );
    }
    for reference in references.get("merge").map(Node::items).unwrap_or_default() {
        let Some(source) = reference.get("source").filter(|source| !source.is_null()) else { continue };
        let shown = shorten(source.as_str().unwrap_or_default());
        let message = format!("the machine will lay `{shown}` over this config; it may add to it or change it");
        found.push(
            Diagnostic::new(Code(454), source.at, message)
                .cause("`ignition.config.merge` is fetched on the machine, and what it holds wins"),
        );
    }
    found
}

/// A header of the parent that the child neither replaces nor takes away.
fn kept_header<'a>(parent: &'a Node, child: &Node) -> Option<&'a Node> {
    let theirs = child.get("httpHeaders").map(Node::items).unwrap_or_default();
    parent.get("httpHeaders")?.items().iter().find(|header| {
        let name = text(header, "name");
        text(header, "value").is_some() && !theirs.iter().any(|other| text(other, "name") == name)
    })
}

fn text<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.get(key).and_then(Node::as_str)
}

fn unset(node: &Node, key: &str) -> bool {
    node.get(key).is_none_or(Node::is_null)
}

/// Whether an inline source already is gzip.
fn is_gzip_data(source: &str) -> bool {
    data_url::decode(source).is_ok_and(|bytes| bytes.starts_with(&[0x1f, 0x8b]))
}

/// Scheme and host of a URL, which decide who receives a header.
fn host(source: &str) -> &str {
    let start = source.find("://").map_or(0, |at| at + 3);
    source[start..].find('/').map_or(source, |end| &source[..start + end])
}

/// A source short enough for a message: inline data is cut off.
pub(in crate::ignition) fn shorten(source: &str) -> String {
    const LONGEST: usize = 60;
    match source.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &source[..end]),
        None => source.to_owned(),
    }
}
