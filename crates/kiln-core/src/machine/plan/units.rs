//! What systemd is told about one unit.
//!
//! What `systemctl is-enabled` answers decides. It has more answers than there are wishes: a unit without `[Install]` is
//! `static` whatever one does, generated and transient units and aliases cannot be enabled, and `enabled-runtime` and
//! `masked-runtime` end with the boot.

use super::{Found, Machine, UnitStep, present, unit_path};
use crate::machine::wish::UnitWish;

/// A link to `/dev/null` in `/etc`.
pub(super) const MASKED: &str = "masked";
const NOT_FOUND: &str = "not-found";

/// What systemd is told about a unit, and when.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Steps {
    /// Before its files are written.
    pub before: Vec<UnitStep>,
    /// After that.
    pub after: Vec<UnitStep>,
}

impl Steps {
    pub(super) fn is_empty(&self) -> bool {
        self.before.is_empty() && self.after.is_empty()
    }
}

impl UnitStep {
    /// The unit it is about.
    pub fn unit(&self) -> &String {
        let (UnitStep::Enable(unit)
        | UnitStep::Disable(unit)
        | UnitStep::Mask(unit)
        | UnitStep::Unmask(unit)
        | UnitStep::Preset(unit)) = self;
        unit
    }
}

/// What systemd says of a unit.
pub(super) fn state<'a>(found: &'a Found, name: &str) -> &'a str {
    found.units.get(name).map_or(NOT_FOUND, String::as_str)
}

/// What happens to the file of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OwnFile {
    Stays,
    Written,
    Goes,
}

/// What is done about a unit that the config speaks of, or spoke of.
pub(super) fn plan_unit(name: &str, before: Option<&Machine>, wanted: &Machine, found: &Found) -> Steps {
    let before = before.and_then(|before| before.units.get(name));
    let wanted = wanted.units.get(name);
    steps(name, before, wanted, state(found, name), own_file(name, before, wanted, found))
}

/// Whether systemd has a unit otherwise than it is wanted, whatever its file.
pub(super) fn differs(name: &str, unit: &UnitWish, found: &Found) -> bool {
    !steps(name, Some(unit), Some(unit), state(found, name), OwnFile::Stays).is_empty()
}

fn steps(name: &str, before: Option<&UnitWish>, wanted: Option<&UnitWish>, mut state: &str, file: OwnFile) -> Steps {
    let mut steps = Steps::default();
    let unit = || name.to_owned();
    let (enabled, masked) = (wanted.and_then(|unit| unit.enabled), wanted.is_some_and(|unit| unit.masked));
    if masked {
        if state != MASKED {
            steps.after.push(UnitStep::Mask(unit()));
        }
        return steps;
    }
    let was_masked = before.is_some_and(|unit| unit.masked);
    if state == MASKED {
        // A mask of somebody else stays, unless the config needs the unit.
        if !(was_masked || enabled == Some(true) || file == OwnFile::Written) {
            return steps;
        }
        steps.after.push(UnitStep::Unmask(unit()));
        state = "disabled";
    }
    if file == OwnFile::Goes && matches!(state, "enabled" | "enabled-runtime" | "linked") {
        // Without its file systemd would not know what to disable. Another one may lie below `/usr`.
        steps.before.push(UnitStep::Disable(unit()));
        match enabled {
            Some(true) => steps.after.push(UnitStep::Enable(unit())),
            Some(false) => {}
            None => steps.after.push(UnitStep::Preset(unit())),
        }
        return steps;
    }
    let had = before.and_then(|unit| unit.enabled);
    // What is-enabled cannot tell is done when the config changes.
    let changed = before.is_some() && had != enabled;
    let enable = match enabled {
        Some(true) => match state {
            _ if file == OwnFile::Written => Some(UnitStep::Enable(unit())),
            "disabled" | "enabled-runtime" | "linked" | "linked-runtime" => Some(UnitStep::Enable(unit())),
            "indirect" if changed => Some(UnitStep::Enable(unit())),
            _ => None,
        },
        Some(false) => match state {
            "enabled" => Some(UnitStep::Disable(unit())),
            "indirect" if changed => Some(UnitStep::Disable(unit())),
            _ => None,
        },
        None => match state {
            "enabled" | "disabled" | "enabled-runtime" | "indirect" if had.is_some() => Some(UnitStep::Preset(unit())),
            _ => None,
        },
    };
    steps.after.extend(enable);
    steps
}

fn own_file(name: &str, before: Option<&UnitWish>, wanted: Option<&UnitWish>, found: &Found) -> OwnFile {
    let there = present(found, &unit_path(name));
    match (wanted.and_then(|unit| unit.contents.as_ref()), there) {
        (Some(contents), Some(there)) if there.bytes == contents.as_bytes() => OwnFile::Stays,
        (Some(_), _) => OwnFile::Written,
        (None, Some(_)) if before.is_some_and(|unit| unit.contents.is_some() && !unit.masked) => OwnFile::Goes,
        (None, _) => OwnFile::Stays,
    }
}
