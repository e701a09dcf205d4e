//! What must change on a running machine so that it is the one its config describes.
//!
//! [`plan_machine`] compares three things: what the config before wanted, what it wants now, and what the machine has. Files and
//! units are written where the machine differs; removed is only what the config before had brought. [`drifted`] says what
//! somebody else has changed since.
//!
//! Total and deterministic. Once a change is carried out and what was wanted has become what was before, the plan is empty.
//!
//! Not here: which of NetworkManager's profiles really differ, see [`crate::change`]: it also has the lines about them.

use std::collections::{BTreeMap, BTreeSet};

use super::rules::{combine, needs_of};
use super::unit::{UNITS, drop_in_path, is_unit_name, unit_path};
use super::wish::{FileWish, Found, KernelArguments, Machine, MachineChange, ProfileWish, UnitStep};
use super::{Action, MachineError, Needs, Rules, System};
use crate::keyfile::{ConnectionFile, Keyfile};
use crate::payload::PROFILES;

mod units;

/// What units and drop-ins are written with.
const UNIT_MODE: u32 = 0o644;

/// Plans the way from what a machine has to what its config wants.
///
/// `before` is what was applied last; none on a machine that nothing was applied to yet. Then nothing is removed, and what
/// only an installation changes is taken as it is. `found` has the paths and units of both.
pub fn plan_machine(
    before: Option<&Machine>,
    wanted: &Machine,
    found: &Found,
    rules: &Rules,
) -> Result<MachineChange, MachineError> {
    let fixed = before.map(|before| irreconcilable(before, wanted)).unwrap_or_default();
    if !fixed.is_empty() {
        return Err(MachineError::Irreconcilable(fixed));
    }
    let mut change = MachineChange { profiles: plan_profiles(before, wanted)?, ..MachineChange::default() };
    let mut taken = Vec::new();
    let mut touched = BTreeSet::new();
    let (mut goes, mut comes) = (Vec::new(), Vec::new());
    for (path, Part { wish, unit }) in differing(before, wanted, found) {
        change.lines.push(match (&wish, present(found, &path)) {
            (None, _) => format!("- {path}"),
            (Some(_), None) => format!("+ {path}"),
            (Some(_), Some(_)) => format!("{path} changes"),
        });
        change.daemon_reload |= path.starts_with(UNITS);
        match unit {
            Some(unit) => _ = touched.insert(unit),
            None => taken.extend(rules.of_file(&path)),
        }
        let list = if wish.is_none() { &mut goes } else { &mut comes };
        list.push((path, wish));
    }
    // What goes makes room for what comes, the innermost first: a folder's place may become a file's.
    change.writes = goes.into_iter().rev().chain(comes).collect();
    for name in before.map(Machine::unit_names).unwrap_or_default().union(&wanted.unit_names()) {
        let steps = units::plan_unit(name, before, wanted, found);
        if !steps.is_empty() {
            touched.insert(name.clone());
        }
        change.units_before.extend(steps.before);
        change.units.extend(steps.after);
    }
    taken.extend(touched.iter().flat_map(|unit| rules.of_unit(unit)));
    change.kernel_arguments = plan_kernel_arguments(before, wanted, found);
    change.os_image = plan_os_image(before, wanted, found);
    if change.kernel_arguments.is_some() || change.os_image.is_some() {
        taken.push(Action::Reboot);
    }
    change.actions = combine(taken);
    refuse_strange_names(&change)?;
    let network = if change.profiles.is_some() { Needs::Service } else { Needs::Nothing };
    change.needs = needs_of(&change.actions).max(network);
    let lines = told(&change);
    change.lines.extend(lines);
    Ok(change)
}

/// What of an applied config is no longer so on the machine, a line for people each, without contents.
pub fn drifted(applied: &Machine, found: &Found) -> Vec<String> {
    let files = parts(applied).into_iter().filter_map(|(path, part)| {
        let wish = part.wish?;
        Some(match (difference(present(found, &path), &wish)?, present(found, &path)) {
            (Difference::Gone, _) => format!("{path} is gone"),
            (Difference::Bytes, _) => format!("{path} has other contents"),
            (Difference::Mode, there) => {
                let mode = there.map_or(0, |there| there.mode);
                format!("{path} has mode {mode:04o}, not {:04o}", wish.mode)
            }
            (Difference::Owner, _) => format!("{path} has another owner"),
        })
    });
    let units = applied.units.iter().filter(|(name, unit)| units::differs(name, unit, found));
    let units = units.map(|(name, unit)| {
        let wanted = match unit.enabled {
            _ if unit.masked => "masked",
            Some(true) => "enabled",
            Some(false) => "disabled",
            None => "unmasked",
        };
        format!("unit {name} is {}, not {wanted}", units::state(found, name))
    });
    files.chain(units).collect()
}

/// A file the machine shall have, or shall not; and the unit it is of.
struct Part {
    wish: Option<FileWish>,
    unit: Option<String>,
}

/// Every file of a config: its own, units and drop-ins.
fn parts(machine: &Machine) -> BTreeMap<String, Part> {
    let mut parts = BTreeMap::new();
    for (path, wish) in &machine.files {
        parts.insert(path.clone(), Part { wish: Some(wish.clone()), unit: None });
    }
    for (name, unit) in &machine.units {
        let written = |text: &str| {
            let wish = FileWish { bytes: text.as_bytes().to_vec(), mode: UNIT_MODE, user: None, group: None };
            Part { wish: Some(wish), unit: Some(name.clone()) }
        };
        if let Some(contents) = unit.contents.as_ref().filter(|_| !unit.masked) {
            parts.insert(unit_path(name), written(contents));
        }
        parts.extend(unit.drop_ins.iter().map(|(of, contents)| (drop_in_path(name, of), written(contents))));
    }
    parts
}

/// The files that are not as the config wants them.
fn differing(before: Option<&Machine>, wanted: &Machine, found: &Found) -> BTreeMap<String, Part> {
    let (had, wants) = (before.map(parts).unwrap_or_default(), parts(wanted));
    let mut differing = BTreeMap::new();
    for (name, unit) in &wanted.units {
        // systemd does not put its link over a file.
        let path = unit_path(name);
        if unit.masked && units::state(found, name) != units::MASKED && present(found, &path).is_some() {
            differing.insert(path, Part { wish: None, unit: Some(name.clone()) });
        }
    }
    for (path, part) in &had {
        let kept = wants.contains_key(path) || wanted.left.contains(path) || is_profile(wanted, path);
        if !kept && present(found, path).is_some() {
            differing.insert(path.clone(), Part { wish: None, unit: part.unit.clone() });
        }
    }
    for (path, part) in wants {
        let Some(wish) = &part.wish else { continue };
        let earlier = had.get(&path).and_then(|part| part.wish.as_ref());
        if difference(present(found, &path), wish).is_some()
            || earlier.is_some_and(|earlier| renamed_owner(earlier, wish))
        {
            differing.insert(path, part);
        }
    }
    differing
}

enum Difference {
    Gone,
    Bytes,
    Mode,
    Owner,
}

fn difference(found: Option<&FileWish>, wish: &FileWish) -> Option<Difference> {
    let FileWish { bytes, mode, user, group } = wish;
    let Some(found) = found else { return Some(Difference::Gone) };
    if found.bytes != *bytes {
        Some(Difference::Bytes)
    } else if found.mode != *mode {
        Some(Difference::Mode)
    } else {
        let other =
            is_other(user.as_deref(), found.user.as_deref()) || is_other(group.as_deref(), found.group.as_deref());
        other.then_some(Difference::Owner)
    }
}

/// Whether a number is not the one that is wanted. Names are known to the machine alone, except root's.
fn is_other(wanted: Option<&str>, found: Option<&str>) -> bool {
    let number = |text: &str| if text == "root" { Some(0) } else { text.parse::<u64>().ok() };
    matches!((wanted.and_then(number), found.and_then(number)), (Some(wanted), Some(found)) if wanted != found)
}

/// Whether the config names another owner than it did.
fn renamed_owner(before: &FileWish, wanted: &FileWish) -> bool {
    let renamed = |before: &Option<String>, wanted: &Option<String>| {
        wanted.as_ref().is_some_and(|name| name.parse::<u64>().is_err()) && before != wanted
    };
    renamed(&before.user, &wanted.user) || renamed(&before.group, &wanted.group)
}

fn present<'a>(found: &'a Found, path: &str) -> Option<&'a FileWish> {
    found.files.get(path)?.as_ref()
}

fn is_profile(machine: &Machine, path: &str) -> bool {
    path.strip_prefix(PROFILES).is_some_and(|name| machine.profiles.contains_key(name))
}

/// All profiles, when the config has other ones than before.
fn plan_profiles(before: Option<&Machine>, wanted: &Machine) -> Result<Option<ProfileWish>, MachineError> {
    let had = before.map(|before| &before.profiles);
    if had.map_or(wanted.profiles.is_empty(), |had| *had == wanted.profiles) {
        return Ok(None);
    }
    let mut files = Vec::new();
    for (name, text) in &wanted.profiles {
        let keyfile = Keyfile::parse(text).map_err(|error| {
            MachineError::Unfit(vec![format!("the profile `{name}` is no keyfile: line {}", error.line)])
        })?;
        files.push(ConnectionFile::new(name, keyfile));
    }
    // What has become an ordinary file is written as such.
    let stays =
        |name: &str| wanted.profiles.contains_key(name) || wanted.files.contains_key(&format!("{PROFILES}{name}"));
    let gone = had.into_iter().flat_map(BTreeMap::keys).filter(|name| !stays(name)).cloned().collect();
    Ok(Some(ProfileWish { files, gone }))
}

fn plan_kernel_arguments(before: Option<&Machine>, wanted: &Machine, found: &Found) -> Option<KernelArguments> {
    let runs = |argument: &&String| found.kernel_arguments.contains(argument);
    let no_more =
        before.map_or(&[][..], |before| &before.kernel_arguments).iter().chain(&wanted.kernel_arguments_absent);
    let no_more = no_more.filter(|argument| !wanted.kernel_arguments.contains(argument));
    let change = KernelArguments {
        remove: once(no_more.filter(runs)),
        append: once(wanted.kernel_arguments.iter().filter(|argument| !runs(argument))),
    };
    (change != KernelArguments::default()).then_some(change)
}

fn once<'a>(arguments: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    arguments.filter(|argument| seen.insert(*argument)).cloned().collect()
}

/// The image to boot next. On a machine that cannot tell what it runs, only a change of the config counts.
fn plan_os_image(before: Option<&Machine>, wanted: &Machine, found: &Found) -> Option<String> {
    let image = wanted.system.os_image_url.as_ref()?;
    let other = match (&found.os_image, before) {
        (Some(runs), _) => runs != image,
        (None, Some(before)) => before.system.os_image_url.as_ref() != Some(image),
        (None, None) => false,
    };
    other.then(|| image.clone())
}

/// What differs and only an installation changes.
fn irreconcilable(before: &Machine, wanted: &Machine) -> Vec<String> {
    let sections: BTreeSet<&String> = before.fixed.keys().chain(wanted.fixed.keys()).collect();
    let sections = sections.into_iter().filter(|section| before.fixed.get(*section) != wanted.fixed.get(*section));
    let System { os_image_url: _, extensions: had, kernel_type: had_kernel, fips: had_fips } = &before.system;
    let System { os_image_url: _, extensions, kernel_type, fips } = &wanted.system;
    let set = |extensions: &[String]| extensions.iter().cloned().collect::<BTreeSet<_>>();
    let kernel = |kernel: &Option<String>| kernel.clone().filter(|kernel| !kernel.is_empty() && kernel != "default");
    let system = [
        (set(had) != set(extensions), "extensions"),
        (kernel(had_kernel) != kernel(kernel_type), "the kernel type"),
        (had_fips != fips, "FIPS mode"),
    ];
    let system = system.into_iter().filter(|(differs, _)| *differs).map(|(_, what)| what.to_owned());
    sections.cloned().chain(system).collect()
}

/// Rules and stored configs come from elsewhere; their names end up in command lines.
fn refuse_strange_names(change: &MachineChange) -> Result<(), MachineError> {
    let services = change.actions.iter().filter_map(|action| match action {
        Action::Reload(name) | Action::Restart(name) => Some(name),
        Action::None | Action::DaemonReload | Action::Drain | Action::Reboot => None,
    });
    let units = change.units_before.iter().chain(&change.units).map(UnitStep::unit);
    let strange = services.chain(units).filter(|name| !is_unit_name(name));
    let mistakes: Vec<String> = strange.map(|name| format!("`{}` is no name of a unit", name.escape_debug())).collect();
    if mistakes.is_empty() { Ok(()) } else { Err(MachineError::Unfit(mistakes)) }
}

/// The lines about everything that is no file.
fn told(change: &MachineChange) -> Vec<String> {
    // A unit that leaves its targets first is told of by what becomes of it, or by its file that goes.
    let units = change.units.iter().map(|step| match step {
        UnitStep::Enable(name) => format!("unit {name} is enabled"),
        UnitStep::Disable(name) => format!("unit {name} is disabled"),
        UnitStep::Mask(name) => format!("unit {name} is masked"),
        UnitStep::Unmask(name) => format!("unit {name} is unmasked"),
        UnitStep::Preset(name) => format!("unit {name} is as the presets have it"),
    });
    let KernelArguments { remove, append } = change.kernel_arguments.clone().unwrap_or_default();
    let removed = remove.into_iter().map(|argument| format!("kernel argument {argument} is removed"));
    let added = append.into_iter().map(|argument| format!("kernel argument {argument} is added"));
    let image = change.os_image.iter().map(|image| format!("the OS image becomes {image}"));
    units.chain(removed).chain(added).chain(image).collect()
}

#[cfg(test)]
mod tests;
