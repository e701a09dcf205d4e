//! `cargo xtask testbed`: what the first-boot test boots in a virtual machine, in `target/testbed`.
//!
//! A Debian root with systemd, NetworkManager and Ignition (`root.ext4`), its kernel (`vmlinuz`), and an initramfs that dracut
//! makes inside that root with Kiln's module and the static `kiln-firstboot` (`initrd`); the same without its witness and
//! with the witness appended is `initrd-appended`. Each is made again when what it is made of has changed. Needs root for
//! chroot and mounts in a namespace; no loop device, no KVM.
//!
//! Not here: the disk, which the test makes itself, and how it is booted (`crates/kiln/tests/support/vm.rs`).

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use crate::bench::firstboot;
use crate::test::install_packages;
use crate::{execute, files};

/// The programs, and the Debian packages they come from.
pub const PROGRAMS: [(&str, &str); 5] = [
    ("/usr/bin/qemu-system-x86_64", "qemu-system-x86"),
    ("/usr/bin/mmdebstrap", "mmdebstrap"),
    ("/usr/sbin/mke2fs", "e2fsprogs"),
    ("/usr/bin/unshare", "util-linux"),
    ("/usr/bin/cpio", "cpio"),
];

/// What the root is made of.
const PACKAGES: &str = "systemd,systemd-sysv,dbus,network-manager,udev,iproute2,kmod,procps,passwd,curl,ca-certificates,linux-image-cloud-amd64,dracut,dracut-network,ignition";
/// What a virtual machine never needs, and what would be built twice.
const LEFT_OUT: [&str; 28] = [
    "/usr/share/doc/*",
    "/usr/share/man/*",
    "/usr/share/locale/*",
    "/usr/lib/udev/hwdb.d/*",
    "/lib/udev/hwdb.d/*",
    "/sbin/dhclient",
    "/etc/kernel/postinst.d/*",
    "/lib/modules/*/kernel/drivers/ata/*",
    "/lib/modules/*/kernel/drivers/gpu/*",
    "/lib/modules/*/kernel/drivers/hv/*",
    "/lib/modules/*/kernel/drivers/infiniband/*",
    "/lib/modules/*/kernel/drivers/md/*",
    "/lib/modules/*/kernel/drivers/net/ethernet/*",
    "/lib/modules/*/kernel/drivers/net/hyperv/*",
    "/lib/modules/*/kernel/drivers/nvme/*",
    "/lib/modules/*/kernel/drivers/scsi/*",
    "/lib/modules/*/kernel/drivers/usb/*",
    "/lib/modules/*/kernel/fs/btrfs/*",
    "/lib/modules/*/kernel/fs/ceph/*",
    "/lib/modules/*/kernel/fs/xfs/*",
    "/lib/modules/*/kernel/net/ipv4/netfilter/*",
    "/lib/modules/*/kernel/net/ipv6/netfilter/*",
    "/lib/modules/*/kernel/net/netfilter/*",
    "/lib/udev/rules.d/60-autosuspend.rules",
    "/lib/udev/rules.d/60-evdev.rules",
    "/lib/udev/rules.d/60-sensor.rules",
    "/lib/udev/rules.d/70-mouse.rules",
    "/lib/udev/rules.d/75-probe_mtd.rules",
];
/// Where Debian is fetched from when the machine's own sources do not say.
const SOURCES: [&str; 2] = ["/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list"];
/// Size of the root's file system; most of it is a hole.
const ROOT_SIZE: &str = "480M";
const FOLDER: &str = "target/testbed";
const SCRIPTS: &str = "xtask/src/testbed";

/// Makes what is missing or out of date.
pub fn run() -> Result<()> {
    if !nix::unistd::Uid::effective().is_root() {
        bail!("the test bed is made with chroot and mounts: run `cargo xtask testbed` as root");
    }
    if !install_packages(&PROGRAMS)? {
        bail!("the test bed needs these packages");
    }
    fs::create_dir_all(FOLDER)?;
    let root = digest(&[Path::new(SCRIPTS).join("prepare-root.sh")], &[PACKAGES, ROOT_SIZE, &LEFT_OUT.concat()])?;
    made_of("root.ext4", &root, build_root)?;
    firstboot::build()?;
    let mut inputs = files("dracut", &[""])?;
    inputs.extend([PathBuf::from(firstboot::PROGRAM), Path::new(SCRIPTS).join("build-initrd.sh")]);
    made_of("initrd", &digest(&inputs, &[&root])?, build_initrds)?;
    println!("the test bed is ready in {FOLDER}");
    Ok(())
}

/// Makes `name` unless it was made of the same inputs before. What is made is complete or not there.
fn made_of(name: &str, inputs: &str, make: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let (made, note) = (Path::new(FOLDER).join(name), Path::new(FOLDER).join(format!("{name}.inputs")));
    if made.exists() && fs::read_to_string(&note).is_ok_and(|note| note == inputs) {
        return Ok(());
    }
    let unfinished = made.with_extension("unfinished");
    let _ = fs::remove_file(&unfinished);
    make(&unfinished).with_context(|| format!("cannot make {}", made.display()))?;
    fs::rename(&unfinished, &made)?;
    fs::write(note, inputs)?;
    Ok(())
}

fn build_root(output: &Path) -> Result<()> {
    let root = Path::new(FOLDER).join("root");
    if root.exists() {
        fs::remove_dir_all(&root)?;
    }
    let mut debian = Command::new("mmdebstrap");
    debian.args(["--quiet", "--mode=root", "--variant=essential", "--format=directory"]);
    debian.arg(format!("--include={PACKAGES}"));
    debian.args(LEFT_OUT.map(|path| format!("--dpkgopt=path-exclude={path}")));
    debian.arg("--aptopt=APT::Install-Recommends \"false\"");
    // The kernel's package would make an initramfs; this one is made with Kiln's module, later.
    debian.arg(
        "--essential-hook=mkdir -p \"$1/etc/kernel/postinst.d\" && ln -s /bin/true \"$1/etc/kernel/postinst.d/dracut\"",
    );
    debian.arg(format!("--customize-hook={}", Path::new(SCRIPTS).canonicalize()?.join("prepare-root.sh").display()));
    debian.arg("bookworm").arg(&root);
    let own = SOURCES.iter().find(|path| fs::read_to_string(path).is_ok_and(|text| text.contains("bookworm")));
    debian.args(own);
    execute(&mut debian)?;
    let kernel = fs::read_dir(root.join("boot"))?.flatten().map(|entry| entry.path());
    let kernel = kernel.into_iter().find(|path| starts_with(path, "vmlinuz")).context("the root has no kernel")?;
    fs::copy(kernel, Path::new(FOLDER).join("vmlinuz"))?;
    // Its own kernel and initramfs are given to the virtual machine from outside.
    let mut file_system = Command::new("mke2fs");
    file_system.args(["-q", "-F", "-t", "ext4", "-L", "root", "-E", "lazy_itable_init=1,lazy_journal_init=1", "-d"]);
    execute(file_system.arg(&root).arg(output).arg(ROOT_SIZE))
}

fn starts_with(path: &Path, beginning: &str) -> bool {
    path.file_name().and_then(OsStr::to_str).is_some_and(|name| name.starts_with(beginning))
}

/// Makes `initrd-appended`, too.
fn build_initrds(output: &Path) -> Result<()> {
    let (bare, witness) = (Path::new(FOLDER).join("initrd-bare"), Path::new(FOLDER).join("witness.img"));
    let mut dracut = Command::new("unshare");
    dracut.args(["--mount", "--propagation", "private"]).arg(Path::new(SCRIPTS).join("build-initrd.sh"));
    dracut.args([&Path::new(FOLDER).join("root"), Path::new("dracut/35kiln-firstboot"), Path::new(firstboot::PROGRAM)]);
    execute(dracut.args([output, &bare]))?;
    execute(Command::new("dracut/appended-initrd").arg(firstboot::PROGRAM).arg(&witness))?;
    // As docs/first-boot.md says it.
    fs::write(Path::new(FOLDER).join("initrd-appended"), [fs::read(bare)?, fs::read(witness)?].concat())?;
    Ok(())
}

/// SHA-256 of files, their modes and these words.
fn digest(inputs: &[PathBuf], words: &[&str]) -> Result<String> {
    let mut hash = Sha256::new();
    for path in inputs {
        let bytes = fs::read(path).with_context(|| format!("cannot read `{}`", path.display()))?;
        let mode = fs::metadata(path)?.permissions().mode();
        hash.update(format!("{} {mode:o} {}\n", path.display(), bytes.len()));
        hash.update(bytes);
    }
    for word in words {
        hash.update(format!("{word}\n"));
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}
