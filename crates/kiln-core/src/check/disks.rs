//! Root device hints (rule R18): whether their form can match any disk at all.
//!
//! A hint that matches nothing becomes a disk called `/dev/not-found-by-hints`, and the user reads only that the
//! requested disk is not among the host's valid disks.

use super::Rule;
use super::context::Context;
use super::duplicates::repeated;
use super::words::nearest;
use crate::diagnostic::{Code, Diagnostic};

pub(super) const RULES: &[Rule] = &[disk_hints, one_disk_in_two_machines];

/// Hints that name one disk of all there are.
const UNIQUE: [&str; 3] = ["serialNumber", "wwn", "wwnWithExtension"];

fn one_disk_in_two_machines(context: &Context, findings: &mut Vec<Diagnostic>) {
    let hints = context.world.hosts.iter().flat_map(|host| host.disk_hints.iter().map(move |hint| (host, hint)));
    let unique = hints.filter(|(_, (hint, value))| UNIQUE.contains(&hint.as_str()) && !value.is_empty());
    let unique = unique.map(|(host, (hint, value))| ((hint.as_str(), value.to_ascii_lowercase()), (host, value)));
    repeated(unique, |(hint, _), (first, first_value), (second, value)| {
        findings.push(
            Diagnostic::new(
                Code(329),
                value.at,
                format!(
                    "hosts `{}` and `{}` both look for the disk with `{hint}: {}`",
                    first.meta.id.name, second.meta.id.name, value.value
                ),
            )
            .cause("the number is of one disk, which is in one machine; the other host finds no disk to install to")
            .help(format!(
                "write the number of the disk in host `{}`, as its BareMetalHost lists it under \
                `status.hardware.storage`, or a hint by place:\nspec:\n  rootDeviceHints:\n    deviceName: \
                /dev/disk/by-path/…",
                second.meta.id.name
            ))
            .related(first_value.at, format!("host `{}`", first.meta.id.name)),
        );
    });
}

const HINTS: &[&str] = &[
    "deviceName",
    "hctl",
    "model",
    "vendor",
    "serialNumber",
    "minSizeGigabytes",
    "wwn",
    "wwnWithExtension",
    "wwnVendorExtension",
    "rotational",
];

fn disk_hints(context: &Context, findings: &mut Vec<Diagnostic>) {
    for host in &context.world.hosts {
        for (hint, value) in &host.disk_hints {
            let Some((reason, edit)) = refusal(hint, value) else { continue };
            findings.push(
                Diagnostic::new(
                    Code(327),
                    value.at,
                    format!(
                        "root device hint `{hint}: {}` of host `{}` can match no disk: {reason}",
                        value.value, host.meta.id.name
                    ),
                )
                .cause(
                    "a hint that matches nothing becomes the disk `/dev/not-found-by-hints`; all the user sees is \
                    `Requested installation disk is not part of the host's valid disks`",
                )
                .help(edit),
            );
        }
        if let (Some(at), true) = (host.disk_hints_at, host.disk_hints.is_empty()) {
            findings.push(
                Diagnostic::new(Code(327), at, format!("host `{}` has empty root device hints", host.meta.id.name))
                    .severity(crate::diagnostic::Severity::Note)
                    .cause("without a hint the installer takes the first eligible disk")
                    .help(
                        "name the disk, or remove `rootDeviceHints`:\nspec:\n  rootDeviceHints:\n    deviceName: \
                        /dev/disk/by-path/…",
                    ),
            );
        }
    }
}

fn refusal(hint: &str, value: &str) -> Option<(String, String)> {
    let say = |reason: &str, edit: &str| Some((reason.to_owned(), edit.to_owned()));
    match hint {
        "deviceName" if !value.starts_with("/dev/") => say(
            "a device name begins with `/dev/`",
            &format!("write:\nspec:\n  rootDeviceHints:\n    deviceName: /dev/{}", value.trim_start_matches('/')),
        ),
        "hctl" if !is_hctl(value) => say(
            "it is not four numbers joined by colons",
            "write, for example:\nspec:\n  rootDeviceHints:\n    hctl: \"0:0:0:0\"",
        ),
        "minSizeGigabytes" if value.parse::<u32>().is_err() => say(
            "it is not a whole number of gigabytes",
            "write, for example:\nspec:\n  rootDeviceHints:\n    minSizeGigabytes: 120",
        ),
        "rotational" if !matches!(value, "true" | "false") => {
            say("it is neither true nor false", "write:\nspec:\n  rootDeviceHints:\n    rotational: false")
        }
        _ if HINTS.contains(&hint) => None,
        _ => Some((
            "there is no such hint".to_owned(),
            match nearest(hint, HINTS.iter().copied()) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => format!("use one of {}", HINTS.join(", ")),
            },
        )),
    }
}

fn is_hctl(value: &str) -> bool {
    let parts: Vec<&str> = value.split(':').collect();
    parts.len() == 4 && parts.iter().all(|part| part.parse::<u32>().is_ok())
}
