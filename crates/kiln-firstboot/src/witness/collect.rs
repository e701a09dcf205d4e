//! One report: what this machine looks like at this point of its boot.

use kiln_core::beacon::{Handover, Interface, Point, Profile, Report};
use kiln_core::boot::folder::Folder;
use kiln_core::boot::handover::Policy;
use kiln_core::network::choice::{Choice, Nic, choose};

use super::ignition_log;
use super::interfaces::{Seen, observe};
use crate::folder::{ETC_CONNECTIONS, RUN_CONNECTIONS, read_bounded, read_folder};
use crate::propagate::{DECIDED, foresee};
use crate::root::Root;

/// Names that are none.
const NO_NAMES: [&str; 4] = ["", "(none)", "localhost", "localhost.localdomain"];

/// Looks around. What cannot be seen is left out.
pub fn collect(root: &Root, point: Point, policy: Policy) -> Report {
    let Seen { interfaces, nics, default_routes } = observe(root);
    let text = |path: &str| {
        let bytes = read_bounded(&root.at(path), 4096).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    };
    let uptime = text("/proc/uptime").and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    let in_initramfs = point.is_in_initramfs();
    let (path, folder) = if in_initramfs { (RUN_CONNECTIONS, Folder::Run) } else { (ETC_CONNECTIONS, Folder::Etc) };
    let propagation = match point {
        Point::Network | Point::IgnitionFailed => None,
        Point::Leaving => foresee(root, policy).ok(),
        Point::RealRoot | Point::KubeletKey => decided(root),
    };
    Report {
        point,
        boot_id: text("/proc/sys/kernel/random/boot_id").unwrap_or_default(),
        uptime_ms: uptime.map_or(0, |seconds| (seconds * 1000.0).round() as u64),
        hostname: text("/proc/sys/kernel/hostname").filter(|name| !NO_NAMES.contains(&name.as_str())),
        profiles: profiles(root, path, folder, &nics, &interfaces),
        interfaces,
        default_routes,
        propagation,
        ignition_error: in_initramfs.then(|| ignition_log::read_error(root)).flatten(),
        kubelet_key: None,
        kept: false,
    }
}

/// What `propagate` decided in the initramfs of this boot.
fn decided(root: &Root) -> Option<Handover> {
    serde_json::from_slice(&read_bounded(&root.at(DECIDED), 1 << 20).ok()?).ok()
}

/// The profiles of a folder, and what NetworkManager makes of each.
fn profiles(root: &Root, path: &str, folder: Folder, nics: &[Nic], interfaces: &[Interface]) -> Vec<Profile> {
    let files = read_folder(&root.at(path)).unwrap_or_default();
    let loaded: Vec<_> = files.iter().map(|file| file.load(folder)).collect();
    let usable: Vec<_> = loaded.iter().filter_map(|file| file.as_ref().ok().cloned()).collect();
    let choices = choose(&usable, nics);
    let told = files.iter().zip(&loaded).map(|(file, loaded)| {
        let (chosen_for, why) = match loaded {
            Err(reason) => (None, reason.to_string()),
            Ok(_) => explain(&file.name, &choices, interfaces),
        };
        Profile { path: format!("{path}/{}", file.name), chosen_for, why }
    });
    told.collect()
}

fn explain(file: &str, choices: &[Choice], interfaces: &[Interface]) -> (Option<String>, String) {
    let chosen = choices.iter().find(|choice| choice.profile.as_ref().is_some_and(|profile| profile.file == file));
    if let Some(choice) = chosen {
        let name = choice.nic.to_string();
        let state = match interfaces.iter().find(|interface| interface.name == name) {
            None => ", but there is no such interface",
            Some(interface) if !interface.up => ", but it has no carrier",
            Some(interface) if interface.addresses.is_empty() => "; it is up without an address",
            Some(_) => "",
        };
        return (Some(name), format!("{}{state}", choice.reason));
    }
    let passed_over = choices.iter().find(|choice| choice.others.iter().any(|other| other == file));
    let why = match passed_over {
        Some(choice) => format!("passed over; {choice}"),
        None => "no interface fits it".to_owned(),
    };
    (None, why)
}
