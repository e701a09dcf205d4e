//! What each version of spec 3 brought, and how a config is lowered to a version that lacks it.
//!
//! One table; a test holds it against the field tables of [`crate::ignition::schema`].

use super::{dropped, refused};
use crate::diagnostic::{Code, Diagnostic};
use crate::document::{Node, Value};
use crate::ignition::SpecVersion;
use crate::ignition::merge::shorten;
use crate::source::Location;

/// What becomes of a config that loses a field.
#[derive(Debug, Clone, Copy)]
enum Loss {
    /// The rest still does what it says; this does not happen any more.
    Tolerable(&'static str),
    /// The rest would do something else: the config is refused.
    Fatal(&'static str),
}

/// A field that came with a version. `path` leaves list positions out.
pub(super) struct Feature {
    pub(super) since: SpecVersion,
    pub(super) path: &'static str,
    loss: Loss,
}

const fn feature(since: SpecVersion, path: &'static str, loss: Loss) -> Feature {
    Feature { since, path, loss }
}

const HEADERS: Loss = Loss::Fatal("the server would be asked without its headers and refuse");
const COMPRESSION: Loss = Loss::Fatal("the machine would read the packed bytes as if they were plain");

/// Every field that is not in 3.0.
pub(super) const FEATURES: &[Feature] = &[
    feature(SpecVersion::V3_1, "ignition.proxy", Loss::Tolerable("the machine will fetch without a proxy")),
    feature(SpecVersion::V3_1, "ignition.config.merge.compression", COMPRESSION),
    feature(SpecVersion::V3_1, "ignition.config.merge.httpHeaders", HEADERS),
    feature(SpecVersion::V3_1, "ignition.config.replace.compression", COMPRESSION),
    feature(SpecVersion::V3_1, "ignition.config.replace.httpHeaders", HEADERS),
    feature(SpecVersion::V3_1, "ignition.security.tls.certificateAuthorities.compression", COMPRESSION),
    feature(SpecVersion::V3_1, "ignition.security.tls.certificateAuthorities.httpHeaders", HEADERS),
    feature(SpecVersion::V3_1, "storage.files.contents.httpHeaders", HEADERS),
    feature(SpecVersion::V3_1, "storage.files.append.httpHeaders", HEADERS),
    feature(
        SpecVersion::V3_1,
        "storage.filesystems.mountOptions",
        Loss::Tolerable("Ignition will mount the filesystem without these options"),
    ),
    feature(SpecVersion::V3_2, "storage.luks", Loss::Fatal("the data would be written to an unencrypted disk")),
    feature(
        SpecVersion::V3_2,
        "storage.disks.partitions.resize",
        Loss::Tolerable("an existing partition of another size will stop the boot instead of being resized"),
    ),
    feature(SpecVersion::V3_2, "passwd.users.shouldExist", Loss::Fatal("the user would be created instead of removed")),
    feature(
        SpecVersion::V3_2,
        "passwd.groups.shouldExist",
        Loss::Fatal("the group would be created instead of removed"),
    ),
    feature(
        SpecVersion::V3_3,
        "kernelArguments",
        Loss::Tolerable("the kernel command line will stay as it is in the image"),
    ),
    feature(SpecVersion::V3_4, "storage.luks.discard", Loss::Tolerable("discards will not reach the disk")),
    feature(
        SpecVersion::V3_4,
        "storage.luks.openOptions",
        Loss::Tolerable("the volume will be opened without these options"),
    ),
    feature(
        SpecVersion::V3_4,
        "storage.luks.clevis.tang.advertisement",
        Loss::Tolerable("the Tang server must be reachable while the machine is installed"),
    ),
    feature(SpecVersion::V3_5, "storage.luks.cex", Loss::Fatal("the volume would not be bound to its CEX domain")),
];

/// Takes out what spec `to` does not know.
pub(super) fn lower(root: &mut Node, from: SpecVersion, to: SpecVersion, lost: &mut Vec<Diagnostic>) {
    let gone: Vec<&Feature> = FEATURES.iter().filter(|feature| feature.since > to && feature.since <= from).collect();
    lower_fields(root, "", &gone, to, lost);
    lower_values(root, Step { from, to }, lost);
}

fn lower_fields(node: &mut Node, path: &str, gone: &[&Feature], to: SpecVersion, lost: &mut Vec<Diagnostic>) {
    for item in node.items_mut() {
        lower_fields(item, path, gone, to, lost);
    }
    let Value::Mapping(entries) = &mut node.value else { return };
    entries.retain_mut(|entry| {
        let path = if path.is_empty() { entry.key.value.to_string() } else { format!("{path}.{}", entry.key.value) };
        let Some(feature) = gone.iter().find(|feature| feature.path == path) else {
            lower_fields(&mut entry.value, &path, gone, to, lost);
            return true;
        };
        // "Should exist" is what every entry says anyway; only "should not" is lost.
        let nothing = match (path.ends_with(".shouldExist"), entry.value.as_bool()) {
            (true, Some(exists)) => exists,
            _ => says_nothing(&entry.value),
        };
        if !nothing {
            lost.push(match feature.loss {
                Loss::Tolerable(consequence) => dropped(entry.key.at, &path, to, consequence),
                Loss::Fatal(consequence) => refused(
                    entry.key.at,
                    format!("`{path}` cannot be converted: spec {to} does not have it"),
                    consequence,
                    &format!("keep spec {} or newer, or take `{path}` out yourself", feature.since),
                ),
            });
        }
        false
    });
}

/// Whether leaving the value out changes nothing: `null`, `false`, `{}`, `[]` and `""`.
fn says_nothing(node: &Node) -> bool {
    match &node.value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Sequence(items) => items.is_empty(),
        Value::Mapping(entries) => entries.iter().all(|entry| says_nothing(&entry.value)),
        _ => false,
    }
}

/// A conversion from one version to another.
#[derive(Debug, Clone, Copy)]
struct Step {
    from: SpecVersion,
    to: SpecVersion,
}

impl Step {
    /// Whether it loses what came with `since`.
    fn loses(self, since: SpecVersion) -> bool {
        self.from >= since && self.to < since
    }
}

/// Values that an older version refuses or ignores although it knows the field.
fn lower_values(node: &mut Node, step: Step, lost: &mut Vec<Diagnostic>) {
    for item in node.items_mut() {
        lower_values(item, step, lost);
    }
    let Value::Mapping(entries) = &mut node.value else { return };
    let to = step.to;
    entries.retain_mut(|entry| {
        lower_values(&mut entry.value, step, lost);
        let at = entry.value.at;
        match (&*entry.key.value, &entry.value.value) {
            ("hash", Value::String(hash)) if step.loses(SpecVersion::V3_1) && hash.starts_with("sha256-") => {
                lost.push(dropped(at, hash, to, "the contents will not be checked; a sha512 hash would be kept"));
                false
            }
            ("source" | "url", Value::String(source)) => {
                lost.extend(scheme_refusal(source, at, step));
                true
            }
            ("format", Value::String(format)) if step.loses(SpecVersion::V3_3) && &**format == "none" => {
                lost.push(refused(
                    at,
                    format!("the filesystem format `none` cannot be converted: spec {to} does not have it"),
                    "an older Ignition refuses the whole config",
                    "keep spec 3.3.0 or newer, or take the filesystem out yourself",
                ));
                true
            }
            ("mode", Value::Integer(mode)) if step.loses(SpecVersion::V3_6) && mode & SPECIAL_BITS != 0 => {
                let consequence = "the setuid, setgid and sticky bits are ignored before spec 3.6.0";
                lost.push(dropped(at, &format!("mode {mode:04o}"), to, consequence));
                entry.value.value = Value::Integer(mode & !SPECIAL_BITS);
                true
            }
            _ => true,
        }
    });
}

const SPECIAL_BITS: i128 = 0o7000;

fn scheme_refusal(source: &str, at: Location, step: Step) -> Option<Diagnostic> {
    let (since, scheme) = match source.split_once(':')?.0 {
        "gs" => (SpecVersion::V3_2, "gs://"),
        "arn" => (SpecVersion::V3_4, "arn:"),
        _ => return None,
    };
    step.loses(since).then(|| {
        refused(
            at,
            format!("`{}` cannot be converted: spec {} does not know {scheme} sources", shorten(source), step.to),
            "an older Ignition refuses the whole config",
            &format!("keep spec {since} or newer, or serve it over https"),
        )
    })
}

/// Before 3.6 these bits had no effect; raising the config must not give them one.
pub(super) fn clear_special_bits(root: &mut Node, notes: &mut Vec<Diagnostic>) {
    let Some(storage) = root.get_mut("storage") else { return };
    for list in ["files", "directories"] {
        for item in storage.get_mut(list).map(Node::items_mut).unwrap_or_default() {
            let Some(mode) = item.get_mut("mode") else { continue };
            let Value::Integer(bits) = mode.value else { continue };
            if bits & SPECIAL_BITS != 0 {
                mode.value = Value::Integer(bits & !SPECIAL_BITS);
                notes.push(
                    Diagnostic::new(
                        Code(462),
                        mode.at,
                        format!("mode {bits:04o} became {:04o} to keep its meaning", bits & !SPECIAL_BITS),
                    )
                    .cause("Ignition ignores setuid, setgid and sticky bits before spec 3.6.0 and honours them since")
                    .help(format!("set `mode` to {bits} in the converted config if you want the bits to count")),
                );
            }
        }
    }
}
