//! A machine that loses power while its network is handed over ends its next boot as if nothing had happened.
//!
//! The disk in between is simulated: it stops after any number of operations, leaves the last write half done, and either
//! keeps or forgets what was never synced. Then `/run` is gone, as memory is, and the machine boots again.
//! The last test kills the real program instead.

#![allow(clippy::unwrap_used, reason = "a helper that fails is a failed test")]

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use kiln_core::boot::handover::Policy;
use kiln_firstboot::disk::{Attributes, Disk, RealDisk};
use kiln_firstboot::propagate::propagate;

#[path = "support/machine.rs"]
mod machine;

use machine::{BOND, DUMMY, Entry, Machine};

/// What becomes of names that changed since their folder was synced.
#[derive(Debug, Clone, Copy)]
enum Unsynced {
    Kept,
    Forgotten,
}

/// A file as it was, so that it can be as it was.
type Before = (PathBuf, Option<(Vec<u8>, u32)>);

struct FailingDisk {
    operations_left: usize,
    unsynced: Vec<Before>,
}

impl FailingDisk {
    fn new(operations: usize) -> FailingDisk {
        FailingDisk { operations_left: operations, unsynced: Vec::new() }
    }

    fn step(&mut self) -> io::Result<()> {
        match self.operations_left.checked_sub(1) {
            Some(left) => {
                self.operations_left = left;
                Ok(())
            }
            None => Err(io::Error::other("the power is gone")),
        }
    }

    fn remember(&mut self, path: &Path) {
        let before = fs::read(path).ok();
        let before = before.map(|bytes| (bytes, fs::metadata(path).unwrap().permissions().mode() & 0o7777));
        self.unsynced.push((path.to_owned(), before));
    }

    fn cut(self, unsynced: Unsynced) {
        if let Unsynced::Forgotten = unsynced {
            for (path, before) in self.unsynced.into_iter().rev() {
                match before {
                    Some((bytes, mode)) => {
                        fs::create_dir_all(path.parent().unwrap()).unwrap();
                        fs::write(&path, bytes).unwrap();
                        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
                    }
                    None => drop(fs::remove_file(&path)),
                }
            }
        }
    }
}

impl Disk for FailingDisk {
    fn make_folder(&mut self, path: &Path) -> io::Result<()> {
        self.step()?;
        fs::create_dir_all(path)
    }

    fn write(&mut self, path: &Path, bytes: &[u8], attributes: Attributes) -> io::Result<()> {
        if let Err(error) = self.step() {
            fs::write(path, &bytes[..bytes.len() / 2])?;
            return Err(error);
        }
        fs::write(path, bytes)?;
        fs::set_permissions(path, fs::Permissions::from_mode(attributes.mode))
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.step()?;
        self.remember(from);
        self.remember(to);
        RealDisk.rename(from, to)
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        self.step()?;
        self.remember(path);
        RealDisk.remove(path)
    }

    fn remove_folder(&mut self, path: &Path) -> io::Result<()> {
        self.step()?;
        RealDisk.remove_folder(path)
    }

    fn sync_folder(&mut self, path: &Path) -> io::Result<()> {
        self.step()?;
        self.unsynced.retain(|(unsynced, _)| unsynced.parent() != Some(path));
        Ok(())
    }
}

const PORT: &str = "[connection]\nid=eth0\nuuid=0a2b9a3c-1f61-4b0b-8a55-0c8f5f6d2a12\ntype=ethernet\ninterface-name=eth0\nmaster=6f2b9a3c-1f61-4b0b-8a55-0c8f5f6d2a11\nslave-type=bond\n";
const ROUTES: &str = "[connection]\nid=routes\ntype=bond\ninterface-name=bond0\n\n[ipv4]\nmethod=manual\nroute1=198.51.100.0/24,192.0.2.1\n";

/// The initramfs, which every boot makes anew.
const INITRAMFS: &[(&str, u32, &str)] = &[
    ("run/NetworkManager/system-connections/bond0.nmconnection", 0o600, BOND),
    ("run/NetworkManager/system-connections/eth0.nmconnection", 0o600, PORT),
    ("run/NetworkManager/system-connections/lo.nmconnection", 0o600, "[connection]\nid=lo\n"),
    ("run/NetworkManager/initrd/hostname", 0o644, "worker-0\n"),
    ("etc/udev/rules.d/80-ifname.rules", 0o644, "rule\n"),
];
/// Real roots; with stock rules only the first lets anything in.
const REAL_ROOTS: &[&[(&str, u32, &str)]] = &[
    &[],
    &[
        ("sysroot/etc/NetworkManager/system-connections/bond0.nmconnection", 0o644, DUMMY),
        ("sysroot/etc/NetworkManager/system-connections/lo.nmconnection", 0o600, DUMMY),
    ],
    &[("sysroot/etc/NetworkManager/system-connections/routes.nmconnection", 0o600, ROUTES)],
];
const POLICIES: [Policy; 3] = [Policy::Stock, Policy::Force, Policy::Merge];

fn boot(machine: &Machine) {
    let _ = fs::remove_dir_all(machine.path("run"));
    INITRAMFS.iter().for_each(|(path, mode, text)| machine.put(path, *mode, text));
}

fn real_root(machine: &Machine) -> Vec<Entry> {
    machine.files("sysroot")
}

fn undisturbed(policy: Policy, files: &[(&str, u32, &str)]) -> Vec<Entry> {
    let machine = Machine::in_memory("", files);
    boot(&machine);
    propagate(&machine.root(), policy, &mut FailingDisk::new(usize::MAX)).unwrap();
    real_root(&machine)
}

#[test]
fn whichever_operation_is_the_last_the_next_boot_ends_the_same() {
    let mut cuts = 0;
    for (policy, files) in POLICIES.iter().flat_map(|policy| REAL_ROOTS.iter().map(move |files| (*policy, *files))) {
        let expected = undisturbed(policy, files);
        for unsynced in [Unsynced::Kept, Unsynced::Forgotten] {
            for operations in 0.. {
                let machine = Machine::in_memory("", files);
                boot(&machine);
                let mut disk = FailingDisk::new(operations);
                let done = propagate(&machine.root(), policy, &mut disk).is_ok();
                disk.cut(unsynced);
                boot(&machine);
                propagate(&machine.root(), policy, &mut FailingDisk::new(usize::MAX)).unwrap();
                assert_eq!(real_root(&machine), expected, "{policy}, {files:?}, {operations} operations, {unsynced:?}");
                if done {
                    break;
                }
                cuts += 1;
            }
        }
    }
    assert!(cuts > 100, "only {cuts} power cuts");
}

#[test]
fn a_second_power_cut_during_the_repair_changes_nothing() {
    let expected = undisturbed(Policy::Stock, &[]);
    for (first, second) in (0..30).step_by(3).flat_map(|first| (0..20).step_by(3).map(move |second| (first, second))) {
        let machine = Machine::in_memory("", &[]);
        for operations in [first, second] {
            boot(&machine);
            let mut disk = FailingDisk::new(operations);
            let _ = propagate(&machine.root(), Policy::Stock, &mut disk);
            disk.cut(Unsynced::Forgotten);
        }
        boot(&machine);
        propagate(&machine.root(), Policy::Stock, &mut FailingDisk::new(usize::MAX)).unwrap();
        assert_eq!(real_root(&machine), expected, "{first} and {second} operations");
    }
}

#[test]
fn the_completed_handover_is_told_as_what_it_was() {
    let machine = Machine::in_memory("", &[]);
    for operations in [15, usize::MAX] {
        boot(&machine);
        let done = propagate(&machine.root(), Policy::Stock, &mut FailingDisk::new(operations));
        if operations == usize::MAX {
            let done = done.unwrap();
            assert_eq!(done.handover.outcome, "copied", "{:?}", done.said);
            assert_eq!(done.said, ["an interrupted handover of an earlier boot was completed"]);
        } else {
            assert!(done.is_err());
        }
    }
}

#[test]
fn a_killed_program_leaves_what_the_next_one_completes() {
    const KILLS: u32 = 12;
    for policy in POLICIES {
        let expected = undisturbed(policy, REAL_ROOTS[2]);
        let mut usual = Duration::ZERO;
        for number in 0..=KILLS {
            let machine = Machine::in_memory("", REAL_ROOTS[2]);
            boot(&machine);
            let run = || {
                let mut command = Command::new(env!("CARGO_BIN_EXE_kiln-firstboot"));
                command.arg("propagate").arg("--policy").arg(policy.to_string()).arg("--root").arg(machine.path(""));
                command.stdout(Stdio::null());
                command
            };
            let start = Instant::now();
            let mut child = run().spawn().unwrap();
            if number == 0 {
                child.wait().unwrap();
                usual = start.elapsed();
            } else {
                // No event marks an arbitrary instant: this pause chooses one. Whichever it is, the outcome is the same.
                std::thread::sleep(usual * number / KILLS);
                let _ = child.kill();
                child.wait().unwrap();
                boot(&machine);
                assert!(run().status().unwrap().success());
            }
            assert_eq!(real_root(&machine), expected, "{policy}, run {number}");
        }
    }
}
