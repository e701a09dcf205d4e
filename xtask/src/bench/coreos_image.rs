//! An image as large and as compressible as a real CoreOS one, made from the programs of this machine.
//!
//! No root, loop device or network: the root file system is made by `mkfs.xfs -p` over `/usr`, the boot partition by
//! `mke2fs -d`. Made once and kept in the target folder; the files differ from machine to machine, the ratios hardly do.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use kiln_testimage::{Boot, Disk, Initramfs, LiveIso, Packing, Qcow2Options, pack, to_qcow2};

use crate::execute;

/// Programs that make the image, and their packages.
pub const PROGRAMS: [(&str, &str); 6] = [
    ("/usr/sbin/mkfs.xfs", "xfsprogs"),
    ("/usr/sbin/mke2fs", "e2fsprogs"),
    ("/usr/bin/qemu-img", "qemu-utils"),
    ("/usr/bin/gzip", "gzip"),
    ("/usr/bin/zstd", "zstd"),
    ("/usr/bin/genisoimage", "genisoimage"),
];

/// The files of the benchmark.
pub struct Images {
    /// As the OpenStack artifact is shipped: qcow2 without compressed clusters, `gzip -6`.
    pub qcow2_gz: PathBuf,
    /// As the metal artifact is shipped.
    pub raw_gz: PathBuf,
    /// A live ISO of the same size.
    pub iso: PathBuf,
    /// Where the boot partition is: offset and length.
    pub boot: (u64, u64),
}

/// Bytes of real files in the root file system.
const ROOT_FILES: u64 = 2_600 << 20;
const ROOT_MEBIBYTES: u64 = 3_400;
const CLOUD_MEBIBYTES: u64 = 16 << 10;
/// Compresses to about 90 MB, the size of an initramfs today.
const INITRAMFS_FILLING: usize = 440 << 20;

/// Makes what is missing in `folder`.
pub fn make(folder: &Path) -> Result<Images> {
    fs::create_dir_all(folder)?;
    let path = |name: &str| folder.join(name);
    let mut disk = Disk {
        efi_mebibytes: 127,
        boot_mebibytes: 384,
        root_mebibytes: ROOT_MEBIBYTES,
        boot: Boot {
            platform: "openstack".into(),
            kernel_bytes: 15 << 20,
            initramfs: Initramfs {
                filling_bytes: INITRAMFS_FILLING,
                packing: Packing::Zstd(3),
                ..Initramfs::default()
            },
            ..Boot::default()
        },
        ..Disk::default()
    };
    let layout = disk.layout();
    let images = Images {
        qcow2_gz: path("base.qcow2.gz"),
        raw_gz: path("metal.raw.gz"),
        iso: path("live.iso"),
        boot: (layout.boot.start, layout.boot.end - layout.boot.start),
    };
    if !images.qcow2_gz.exists() || !images.raw_gz.exists() {
        println!("making a CoreOS-like image of about 1 GB: once, some minutes");
        let root = path("root.xfs");
        make_root(&root, &path("root.proto"))?;
        disk.root = Some(root.clone());
        let raw = path("disk.raw");
        disk.write(&raw);
        made(&images.raw_gz, |partial| pack(Packing::Gzip(6), &raw, partial))?;
        // Cloud images are larger than what is in them; the second partition table stays where it was.
        fs::File::options().write(true).open(&raw)?.set_len(CLOUD_MEBIBYTES << 20)?;
        let qcow2 = path("disk.qcow2");
        to_qcow2(&raw, &qcow2, &Qcow2Options::default());
        made(&images.qcow2_gz, |partial| pack(Packing::Gzip(6), &qcow2, partial))?;
        for used_up in [root, raw, qcow2] {
            fs::remove_file(used_up)?;
        }
    }
    if !images.iso.exists() {
        // Squashed programs are as incompressible as this is.
        let iso = LiveIso { rootfs: Some(fs::canonicalize(&images.qcow2_gz)?), ..LiveIso::default() };
        made(&images.iso, |partial| iso.write(partial))?;
    }
    Ok(images)
}

/// Nothing half-made is found under the final name by the next run.
fn made(path: &Path, make: impl FnOnce(&Path)) -> Result<()> {
    let partial = path.with_extension("partial");
    make(&partial);
    fs::rename(&partial, path)?;
    println!("{}: {} bytes", path.display(), fs::metadata(path)?.len());
    Ok(())
}

fn make_root(image: &Path, proto: &Path) -> Result<()> {
    let mut text = String::from("/dev/null\n0 0\nd--755 0 0\n");
    let mut left = ROOT_FILES;
    // A machine with fewer programs gets them twice: compressors look back 32 KiB only.
    for round in 0.. {
        let before = left;
        text.push_str(&format!("usr{round} d--755 0 0\n"));
        list(Path::new("/usr"), &mut text, &mut left);
        text.push_str("$\n");
        ensure!(left < before, "/usr has no files to make an image of");
        if left == 0 {
            break;
        }
    }
    text.push_str("$\n");
    fs::File::create(proto)?.write_all(text.as_bytes())?;
    fs::File::create(image)?.set_len(ROOT_MEBIBYTES << 20)?;
    let (proto, image) = (proto.to_str().context("path")?, image.to_str().context("path")?);
    execute(Command::new("/usr/sbin/mkfs.xfs").args([
        "-q",
        "-f",
        "-L",
        "root",
        "-d",
        "agcount=2",
        "-p",
        proto,
        image,
    ]))?;
    Ok(fs::remove_file(proto)?)
}

/// Lists a folder in the words of mkfs.xfs until there are enough bytes.
fn list(folder: &Path, text: &mut String, left: &mut u64) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut entries: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    entries.sort();
    for path in entries {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let Ok(metadata) = path.symlink_metadata() else { continue };
        // The list is split at spaces.
        if *left == 0 || !path.to_str().is_some_and(|path| path.is_ascii() && !path.contains(char::is_whitespace)) {
            continue;
        }
        let mode = metadata.permissions().mode() & 0o777;
        if metadata.is_dir() {
            text.push_str(&format!("{name} d--{mode:03o} 0 0\n"));
            list(&path, text, left);
            text.push_str("$\n");
        } else if metadata.is_file() && fs::File::open(&path).is_ok() {
            text.push_str(&format!("{name} ---{mode:03o} 0 0 {}\n", path.display()));
            *left = left.saturating_sub(metadata.size());
        }
    }
}
