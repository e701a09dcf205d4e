//! Taking down what the initramfs brought up, so that the real root's NetworkManager finds bare cards.
//!
//! With the `ip` program, as coreos-teardown-initramfs does it: a link that can be deleted is deleted, any other is
//! taken down and loses its addresses. What cannot be done is told and does not stop a boot.

use std::fs;
use std::process::{Command, Stdio};

use crate::root::Root;

/// Takes every link down but the loopback, and flushes the routes.
pub fn take_down(root: &Root) -> Vec<String> {
    let names = fs::read_dir(root.at("/sys/class/net")).into_iter().flatten().flatten();
    let mut names: Vec<String> = names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.retain(|name| name != "lo" && name != "bonding_masters");
    names.sort();
    let mut said = Vec::new();
    for name in names {
        // Taking a bond away takes its VLANs along.
        if !root.at("/sys/class/net").join(&name).exists() {
            continue;
        }
        if ip(&["link", "delete", &name]) {
            said.push(format!("{name} is deleted"));
        } else if ip(&["link", "set", &name, "down"]) && ip(&["addr", "flush", "dev", &name]) {
            said.push(format!("{name} is taken down"));
        } else {
            said.push(format!("{name} stays as it is: `ip` cannot take it down"));
        }
    }
    ip(&["route", "flush", "table", "main"]);
    ip(&["route", "flush", "cache"]);
    said
}

fn ip(arguments: &[&str]) -> bool {
    let mut command = Command::new("ip");
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
