//! A pure model of nm-initrd-generator: which profiles a kernel command line becomes in the initramfs.
//!
//! [`generate`] gives the files the program of NetworkManager 1.42 writes, byte for byte except for UUIDs: the
//! program draws random ones, the model derives them from the profile's name. It also lists every argument the
//! program drops, bends or chokes on while still ending successfully ([`Dropped`]), because that is how a machine
//! loses its network without a message. `tests/oracle_initrd.rs` compares the model with the program itself.
//!
//! Not here: what only the machine knows. `ip=ibft` and `rd.iscsi.ibft` read firmware tables and are modelled as on a
//! machine that has none; `/etc/NetworkManager/system-connections` is taken to be absent, as it is in CoreOS
//! initramfs images (where it exists, `rd.neednet` alone makes no profile). `ifname=` is udev's, not this program's.
//!
//! Surprises: the method of `ip=` is never refused, `vlan=` without a name crashes the program, one `é` anywhere on the
//! line, even in an argument for somebody else, makes it write nothing, and a profile
//! NetworkManager's own check refuses is skipped while profiles that depend on it (the ports of a bond) stay.

mod bond;
mod devices;
mod finding;
mod ip;
mod profile;
mod reader;
mod render;
mod scan;
mod verify;

pub use finding::{Dropped, Effect, diagnose};

use crate::keyfile::ConnectionFile;

use super::kargs::Kargs;
use profile::Profile;
use reader::Reader;

/// Where the program writes profiles.
pub const CONNECTIONS_DIRECTORY: &str = "/run/NetworkManager/system-connections";
/// Where the program writes the hostname an `ip=` gave.
pub const HOSTNAME_FILE: &str = "/run/NetworkManager/initrd/hostname";

/// What the program writes into every profile it makes.
const ORIGIN: &str = "nm-initrd-generator";

/// A configuration file below `/run` that is no profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFile {
    /// The absolute path.
    pub path: String,
    /// The whole text.
    pub text: String,
}

/// What the program leaves behind.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Generated {
    /// The profiles, sorted by file name.
    pub files: Vec<ConnectionFile>,
    /// The hostname, written with a line feed to [`HOSTNAME_FILE`].
    pub hostname: Option<String>,
    /// Other configuration.
    pub run_files: Vec<RunFile>,
    /// Arguments that do not do what they seem to say.
    pub dropped: Vec<Dropped>,
}

/// Runs the model.
pub fn generate(arguments: &Kargs) -> Generated {
    if arguments.words().is_empty() {
        return Generated::default();
    }
    if let Some(argument) = arguments.words().iter().find(|word| !word.is_ascii()) {
        // In every locale: the program never sets one, so its option parser takes the arguments for ASCII.
        let reason =
            "it has a character that is not ASCII, and the program gives up before it reads anything".to_owned();
        let dropped = Dropped { argument: argument.clone(), effect: Effect::Fatal, reason, meant: None };
        return Generated { dropped: vec![dropped], ..Generated::default() };
    }
    let (reader, outcome) = Reader::read(arguments.words());
    let Reader { profiles, hostname, carrier_timeout, mut dropped, argument, .. } = reader;
    if outcome.is_err() {
        if !dropped.iter().any(|dropped| dropped.effect == Effect::Fatal) {
            let reason = "an earlier argument named an interface that makes no sense".to_owned();
            dropped.push(Dropped { argument, effect: Effect::Fatal, reason, meant: None });
        }
        return Generated { dropped, ..Generated::default() };
    }
    let mut files: Vec<ConnectionFile> =
        profiles.into_iter().filter_map(|profile| write(profile, &mut dropped)).collect();
    files.sort_by(|one, other| one.name.cmp(&other.name));
    Generated { files, hostname, run_files: vec![carrier_file(carrier_timeout)], dropped }
}

fn write(mut profile: Profile, dropped: &mut Vec<Dropped>) -> Option<ConnectionFile> {
    let refusal = verify::normalise(&mut profile).err();
    let file = render::file(&profile);
    let reason = match (&refusal, &file) {
        (Some(rule), _) => format!("profile `{}` is not written: {rule}", profile.shown_name()),
        (None, None) => "its profile has no name to be written under".to_owned(),
        (None, Some(_)) => return file,
    };
    let argument = profile.arguments.join(" ");
    dropped.push(Dropped { argument, effect: Effect::ProfileLost, reason, meant: None });
    None
}

fn carrier_file(seconds: i64) -> RunFile {
    // The default must not outlive the initramfs; a value somebody asked for may.
    let (origin, milliseconds, until) = match seconds {
        0 => ("default initrd carrier timeout", 10_000, "\n[.config]\nenable=env:initrd\n"),
        _ => ("from \"rd.net.timeout.carrier\"", seconds * 1000, ""),
    };
    RunFile {
        path: "/run/NetworkManager/conf.d/15-carrier-timeout.conf".to_owned(),
        text: format!(
            "# Created by nm-initrd-generator ({origin})\n\n[device-15-carrier-timeout]\nmatch-device=*\ncarrier-wait-timeout={milliseconds}\n{until}"
        ),
    }
}

/// Whether CoreOS takes profiles for "nothing special was asked for" and therefore does not copy them into the real root.
///
/// Its test: apart from `lo.nmconnection`, UUIDs and device timeouts, they are what `ip=auto` together with the
/// command line's own `BOOTIF` and `rd.bootif` gives.
pub fn is_default(files: &[ConnectionFile], arguments: &Kargs) -> bool {
    // Most sets were not made by the program at all, which is quickly seen.
    let made_here = |file: &ConnectionFile| {
        file.name == "lo.nmconnection"
            || file.keyfile.get("user", "org.freedesktop.NetworkManager.origin").as_deref() == Some(ORIGIN)
    };
    if !files.iter().all(made_here) {
        return false;
    }
    let boot_interface =
        arguments.arguments().iter().filter(|argument| matches!(argument.key.as_str(), "BOOTIF" | "rd.bootif"));
    let fresh = boot_interface.fold("ip=auto".to_owned(), |line, argument| match &argument.value {
        Some(value) => format!("{line} {}={value}", argument.key),
        None => format!("{line} {}", argument.key),
    });
    comparable(files) == comparable(&generate(&Kargs::parse(&fresh)).files)
}

fn comparable(files: &[ConnectionFile]) -> Vec<(&str, String)> {
    let differs_anyway = |line: &&str| line.starts_with("uuid=") || line.starts_with("wait-device-timeout=");
    let mut texts: Vec<(&str, String)> = files
        .iter()
        .filter(|file| file.name != "lo.nmconnection")
        .map(|file| {
            (
                file.name.as_str(),
                file.keyfile.render().lines().filter(|line| !differs_anyway(line)).collect::<Vec<_>>().join("\n"),
            )
        })
        .collect();
    texts.sort();
    texts
}

#[cfg(test)]
mod tests;
