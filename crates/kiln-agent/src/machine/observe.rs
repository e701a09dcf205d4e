//! What a machine has, of what configs speak of.
//!
//! Something at a path that is no plain file (a link, a folder, a pipe), and a file too large to be one of ours, is told with a mode
//! no config has, so that it counts as different. What systemd, the kernel and rpm-ostree cannot tell is left empty.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use kiln_core::machine::config::split_kernel_arguments;
use kiln_core::machine::wish::{FileWish, Found, Machine};
use serde_json::Value;

use super::place::{Place, read_place};
use super::{Root, program};
use crate::AgentError;

/// What is said of units on a machine without systemd.
pub const UNKNOWN: &str = "unknown";
/// How long a question may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Where a unit lies that is masked.
const NOWHERE: &str = "/dev/null";
/// Types of files as the kernel writes them into modes.
const NO_FILE: u32 = 0o170_000;

/// Looks at everything these configs speak of.
pub async fn observe(root: &Root, machines: &[&Machine]) -> Result<Found, AgentError> {
    let paths: BTreeSet<String> = machines.iter().flat_map(|machine| machine.paths()).collect();
    let units: BTreeSet<String> = machines.iter().flat_map(|machine| machine.unit_names()).collect();
    let image = machines.iter().any(|machine| machine.system.os_image_url.is_some());
    Ok(Found {
        files: paths.into_iter().map(|path| (path.clone(), observe_file(&root.at(&path)))).collect(),
        units: observe_units(root, &units).await?,
        kernel_arguments: observe_kernel_arguments(root),
        os_image: if image { observe_os_image(root).await } else { None },
    })
}

/// A file as it is; none where there is nothing, or the link of a masked unit.
pub fn observe_file(path: &Path) -> Option<FileWish> {
    let strange = |bytes: Vec<u8>| FileWish { bytes, mode: NO_FILE, user: None, group: None };
    match read_place(path) {
        Ok(Place::Nothing) => None,
        Ok(Place::Link(to)) if to == Path::new(NOWHERE) => None,
        Ok(Place::File { bytes, mode, user, group }) => {
            Some(FileWish { bytes, mode, user: Some(user.to_string()), group: Some(group.to_string()) })
        }
        Ok(Place::Link(_) | Place::Folder { .. }) => Some(strange(Vec::new())),
        Err(error) => {
            tracing::warn!(%error, "cannot be compared");
            Some(strange(Vec::new()))
        }
    }
}

/// What `systemctl is-enabled` says of units.
pub async fn observe_units(root: &Root, names: &BTreeSet<String>) -> Result<BTreeMap<String, String>, AgentError> {
    if names.is_empty() {
        return Ok(BTreeMap::new());
    }
    if program::find(root, "systemctl").is_none() {
        return Ok(names.iter().map(|name| (name.clone(), UNKNOWN.to_owned())).collect());
    }
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    let answers = ask(root, &all).await?;
    if answers.len() == all.len() {
        return Ok(names.iter().cloned().zip(answers).collect());
    }
    // Before version 254 systemctl stops at the first unit it does not know, and says nothing about that one.
    let mut states = BTreeMap::new();
    for name in names {
        let answer = ask(root, &[name]).await?.into_iter().next();
        states.insert(name.clone(), answer.unwrap_or_else(|| "not-found".to_owned()));
    }
    Ok(states)
}

async fn ask(root: &Root, names: &[&str]) -> Result<Vec<String>, AgentError> {
    let arguments = [&["is-enabled", "--"], names].concat();
    let ran = program::run(root, "systemctl", &arguments, PATIENCE).await?;
    Ok(ran.output.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect())
}

/// The arguments the kernel runs with.
fn observe_kernel_arguments(root: &Root) -> Vec<String> {
    const LONGEST: u64 = 64 << 10;
    let mut bytes = Vec::new();
    let read = fs::File::open(root.at("/proc/cmdline")).and_then(|file| file.take(LONGEST).read_to_end(&mut bytes));
    if let Err(error) = read {
        tracing::warn!(%error, "the kernel's arguments cannot be read");
    }
    split_kernel_arguments(String::from_utf8_lossy(&bytes).trim_end())
}

/// The image of the deployment that runs, as MachineConfigs write it.
pub async fn observe_os_image(root: &Root) -> Option<String> {
    program::find(root, "rpm-ostree")?;
    match program::succeed(root, "rpm-ostree", &["status", "--json"], PATIENCE).await {
        Ok(ran) => booted_image(&ran.output),
        Err(error) => {
            tracing::warn!(%error, "the OS image is not known");
            None
        }
    }
}

fn booted_image(status: &str) -> Option<String> {
    let status: Value = serde_json::from_str(status).ok()?;
    let booted = status["deployments"].as_array()?.iter().find(|deployment| deployment["booted"] == true)?;
    Some(plain_image(booted["container-image-reference"].as_str()?).to_owned())
}

/// Without ostree's word on how the image is verified and fetched.
fn plain_image(reference: &str) -> &str {
    let rest = ["ostree-unverified-registry:", "ostree-unverified-image:", "ostree-image-signed:"]
        .iter()
        .find_map(|prefix| reference.strip_prefix(prefix));
    let remote = || {
        let rest = ["ostree-remote-registry:", "ostree-remote-image:"].iter();
        rest.into_iter().find_map(|prefix| reference.strip_prefix(prefix))?.split_once(':').map(|(_, rest)| rest)
    };
    let image = rest.or_else(remote).unwrap_or(reference);
    ["docker://", "registry:"].iter().find_map(|transport| image.strip_prefix(transport)).unwrap_or(image)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_that_runs_is_told_without_ostrees_prefixes() {
        for (reference, expected) in [
            ("ostree-unverified-registry:quay.io/x/os@sha256:00", "quay.io/x/os@sha256:00"),
            ("ostree-unverified-image:docker://quay.io/x/os:1", "quay.io/x/os:1"),
            ("ostree-image-signed:registry:quay.io/x/os:1", "quay.io/x/os:1"),
            ("ostree-remote-registry:fedora:quay.io/x/os:1", "quay.io/x/os:1"),
            ("ostree-remote-image:fedora:docker://quay.io/x/os:1", "quay.io/x/os:1"),
            ("quay.io/x/os:1", "quay.io/x/os:1"),
        ] {
            let deployments = serde_json::json!({"deployments": [
                {"booted": false, "container-image-reference": "other"},
                {"booted": true, "container-image-reference": reference},
            ]});
            assert_eq!(booted_image(&deployments.to_string()).as_deref(), Some(expected));
        }
        assert_eq!(booted_image(r#"{"deployments": [{"booted": true}]}"#), None);
        assert_eq!(booted_image("{"), None);
    }
}
