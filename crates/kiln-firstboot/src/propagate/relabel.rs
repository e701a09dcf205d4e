//! SELinux labels of what was written: with the programs the initramfs has, or not at all.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::folder::read_bounded;
use crate::root::Root;

/// Sets the labels the real root's policy gives these paths. A label that is missing is mended by a relabel, a boot that
/// stops is not: nothing here fails.
pub fn relabel<'p>(root: &Root, paths: impl Iterator<Item = &'p str>) {
    let paths: Vec<&str> = paths.collect();
    let Some(policy) = policy(root) else { return };
    if let Some(program) = program(root, "coreos-relabel") {
        let _ = Command::new(program).args(paths).stdin(Stdio::null()).stdout(Stdio::null()).status();
    } else if let Some(program) = program(root, "setfiles") {
        let contexts = root.real(&format!("/etc/selinux/{policy}/contexts/files/file_contexts"));
        let mut command = Command::new(program);
        command.args(["-F", "-i", "-0", "-r"]).arg(root.at("/sysroot")).args(["-f", "-"]).arg(contexts);
        let Ok(mut child) = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn() else { return };
        if let Some(mut input) = child.stdin.take() {
            for path in paths {
                let _ = input.write_all(root.real(path).as_os_str().as_encoded_bytes());
                let _ = input.write_all(b"\0");
            }
        }
        let _ = child.wait();
    }
}

/// The name of the real root's SELinux policy; without one there are no labels.
fn policy(root: &Root) -> Option<String> {
    let bytes = read_bounded(&root.real("/etc/selinux/config"), 1 << 16).ok()?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let name = text.lines().rev().find_map(|line| line.trim().strip_prefix("SELINUXTYPE="))?.trim().to_owned();
    (!name.is_empty() && !name.contains(['/', '.'])).then_some(name)
}

fn program(root: &Root, name: &str) -> Option<PathBuf> {
    ["/usr/sbin", "/usr/bin", "/sbin"].iter().map(|folder| root.at(folder).join(name)).find(|program| program.exists())
}
