//! Whether the initramfs has only the profiles nobody asked for.
//!
//! As stock scripts do it, the machine's own nm-initrd-generator is run again with `ip=auto` and the results are
//! compared, so that a newer NetworkManager is its own judge. Where there is none, the core's model of it decides.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use kiln_core::boot::folder::NetworkFile;
use kiln_core::boot::kargs::Kargs;
use kiln_core::boot::teardown::is_default;

use crate::folder::read_folder;
use crate::root::Root;

const PROGRAMS: [&str; 2] = ["/usr/libexec/nm-initrd-generator", "/usr/lib/NetworkManager/nm-initrd-generator"];

pub fn are_default(root: &Root, files: &[NetworkFile], kargs: &Kargs) -> bool {
    let program = PROGRAMS.iter().map(|program| root.at(program)).find(|program| program.exists());
    let generated = program.and_then(|program| generate(root, &program, kargs));
    match generated {
        Some(generated) => comparable(files) == comparable(&generated),
        None => is_default(files, kargs),
    }
}

fn generate(root: &Root, program: &Path, kargs: &Kargs) -> Option<Vec<NetworkFile>> {
    let folder = root.at("/run/kiln/default-profiles");
    let files = run(program, &folder, kargs).ok();
    let _ = fs::remove_dir_all(&folder);
    files
}

fn run(program: &Path, folder: &Path, kargs: &Kargs) -> io::Result<Vec<NetworkFile>> {
    let [connections, data, config]: [PathBuf; 3] = ["c", "i", "r"].map(|name| folder.join(name));
    for folder in [&connections, &data, &config] {
        fs::create_dir_all(folder)?;
    }
    let boot_interface =
        kargs.arguments().iter().filter(|argument| matches!(argument.key.as_str(), "BOOTIF" | "rd.bootif"));
    let boot_interface = boot_interface.map(|argument| match &argument.value {
        Some(value) => format!("{}={value}", argument.key),
        None => argument.key.clone(),
    });
    let mut command = Command::new(program);
    command.arg("-c").arg(&connections).arg("-i").arg(&data).arg("-r").arg(&config).args(["--", "ip=auto"]);
    command.args(boot_interface).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match command.status()?.success() {
        true => read_folder(&connections).map_err(io::Error::other),
        false => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// Names and lines, without those that differ at every run.
fn comparable(files: &[NetworkFile]) -> Vec<(&str, Vec<Vec<u8>>)> {
    let differs_anyway = |line: &&[u8]| line.starts_with(b"uuid=") || line.starts_with(b"wait-device-timeout=");
    let kept = files.iter().filter(|file| file.name != "lo.nmconnection");
    kept.map(|file| {
        let bytes = file.bytes().unwrap_or_default();
        let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !differs_anyway(line));
        (file.name.as_str(), lines.map(<[u8]>::to_vec).collect())
    })
    .collect()
}
