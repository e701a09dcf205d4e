//! Conversion between spec versions: from 2.0 to 2.4 and 3.0 to 3.6, to 2.2 and 3.0 to 3.6, with a list of everything
//! lost.
//!
//! Upwards within spec 3 nothing is lost; what a newer version would read differently is rewritten so that the
//! config keeps its meaning. Downwards every field the older version does not know is taken out and reported, and
//! where the rest would then do something else the report is an error. The result is not validated here.
//!
//! What surprises: before 3.6 Ignition ignores the setuid, setgid and sticky bits of a mode, so raising such a config
//! must clear them; spec 2 overwrites files by default and spec 3 does not.

use super::{Config, SpecVersion};
use crate::diagnostic::{Code, Diagnostic};
use crate::document::{Node, Value};
use crate::source::Location;

mod features;
mod from_spec2;
mod to_spec2;

/// What a conversion gives.
#[derive(Debug, Clone)]
pub struct Converted {
    /// The config in the wanted version. When `lost` holds an error it must not be used: it would do something else.
    pub config: Config,
    /// Every field lost (warnings), every meaning that cannot be kept (errors), every rewrite worth knowing (notes).
    pub lost: Vec<Diagnostic>,
}

/// Converts `config` to spec version `to`.
pub fn convert(config: &Config, to: SpecVersion) -> Converted {
    let mut lost = Vec::new();
    let mut root = config.root.clone();
    match (config.version, to) {
        (from, to) if from == to => return Converted { config: config.clone(), lost },
        (from, to) if to.is_v2() && (to != SpecVersion::V2_2 || from.is_v2() && from > to) => {
            lost.push(refused(
                root.at,
                format!("spec {from} cannot be converted to {to}"),
                "of the spec 2 family only 2.2.0 is written, the version old machine-config-servers speak",
                "convert to 2.2.0, or to 3.0.0 and newer",
            ));
            return Converted { config: config.clone(), lost };
        }
        (from, to) if from.is_v2() && to.is_v2() => {}
        (from, to) if from.is_v2() => {
            from_spec2::translate(&mut root, &mut lost);
            // Proxies and request headers of 2.4 are those of 3.1.
            features::lower(&mut root, SpecVersion::V3_1, to, &mut lost);
        }
        (from, SpecVersion::V2_2) => {
            features::lower(&mut root, from, SpecVersion::V3_0, &mut lost);
            to_spec2::translate(&mut root, &mut lost);
        }
        (from, to) => features::lower(&mut root, from, to, &mut lost),
    }
    if config.version < SpecVersion::V3_6 && to >= SpecVersion::V3_6 {
        features::clear_special_bits(&mut root, &mut lost);
    }
    set_version(&mut root, to);
    Converted { config: Config { root, version: to }, lost }
}

fn set_version(root: &mut Node, to: SpecVersion) {
    let at = root.path(&["ignition", "version"]).map_or(root.at, |version| version.at);
    let version = Node::made(to.to_string(), at);
    match root.get_mut("ignition") {
        Some(ignition) => ignition.set("version", version),
        None => {
            let mut ignition = Node { at, value: Value::Mapping(Vec::new()) };
            ignition.set("version", version);
            root.set("ignition", ignition);
        }
    }
}

/// A field that had to go.
fn dropped(at: Location, what: &str, to: SpecVersion, consequence: &str) -> Diagnostic {
    Diagnostic::new(Code(460), at, format!("`{what}` is lost: spec {to} does not have it"))
        .cause(consequence.to_owned())
}

/// A meaning that cannot be kept.
fn refused(at: Location, message: String, cause: &str, help: &str) -> Diagnostic {
    Diagnostic::new(Code(461), at, message).cause(cause).help(help)
}

#[cfg(test)]
mod tests;
