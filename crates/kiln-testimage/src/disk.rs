//! A whole disk as coreos-assembler lays it out: BIOS-BOOT, EFI-SYSTEM, boot (ext4), root.
//!
//! The sizes are small unless asked for. CoreOS's own boot partition has 384 MiB, for which mke2fs chooses 1 KiB blocks;
//! the smaller ones here get 1 KiB as well. The root partition holds filling unless a file system is given: nobody reads it.

use std::fs::{self, File};
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::boot::{Boot, write_tree};
use crate::filling::filling;
use crate::gpt::{self, Partition};
use crate::oracle::run;
use crate::temp_dir::TempDir;

/// What to write.
#[derive(Debug, Clone)]
pub struct Disk {
    /// 512, or 4096 for the images CoreOS calls `metal4k`.
    pub sector_size: u64,
    /// 127 on CoreOS, which puts the boot partition at 129 MiB.
    pub efi_mebibytes: u64,
    /// 384 on CoreOS.
    pub boot_mebibytes: u64,
    /// Filled to the last byte, unless [`Disk::root`] says with what.
    pub root_mebibytes: u64,
    /// A file system for the root partition, copied sparsely.
    pub root: Option<PathBuf>,
    /// The disk is made this large after the table was written, as cloud images are: the second table stays behind.
    pub grown_to_mebibytes: Option<u64>,
    /// What is on the boot partition.
    pub boot: Boot,
    /// Options for mke2fs beside those of CoreOS, such as `["-b", "4096", "-I", "128"]`.
    pub mke2fs: Vec<String>,
    /// Label of the boot file system and of its partition.
    pub boot_label: &'static str,
}

impl Default for Disk {
    fn default() -> Self {
        Disk {
            sector_size: 512,
            efi_mebibytes: 1,
            boot_mebibytes: 32,
            root_mebibytes: 8,
            root: None,
            grown_to_mebibytes: None,
            boot: Boot::default(),
            mke2fs: Vec::new(),
            boot_label: "boot",
        }
    }
}

/// Where partitions are, in bytes.
#[derive(Debug, Clone)]
pub struct Layout {
    /// The boot partition.
    pub boot: Range<u64>,
    /// The root partition.
    pub root: Range<u64>,
}

const MEBIBYTE: u64 = 1 << 20;
/// The file system of the boot partition has this UUID on every CoreOS image.
pub const BOOT_UUID: &str = "96d15588-3596-4b3c-adca-a2ff7279ea63";
/// What [`Disk::write`] runs, for [`crate::require_all`].
pub const PROGRAMS: &[(&str, &str)] = &[("mke2fs", "e2fsprogs"), ("gzip", "gzip")];

impl Disk {
    /// A disk with these options for mke2fs.
    pub fn with_mke2fs(options: &[&str]) -> Disk {
        Disk { mke2fs: options.iter().map(|option| (*option).to_owned()).collect(), ..Disk::default() }
    }

    /// Writes the boot partition's file system alone.
    pub fn write_boot(&self, path: &Path) {
        let tree = TempDir::new("boot");
        write_tree(&self.boot, tree.path());
        let mut command = Command::new("mke2fs");
        command.args(["-q", "-F", "-t", "ext4", "-L", self.boot_label, "-U", BOOT_UUID]);
        command.args(["-O", "metadata_csum_seed"]).args(&self.mke2fs).arg("-d").arg(tree.path()).arg(path);
        let _ = fs::remove_file(path);
        run(command.arg(format!("{}M", self.boot_mebibytes)));
    }

    /// Writes the disk as a sparse raw file.
    pub fn write(&self, path: &Path) -> Layout {
        let layout = self.layout();
        let length = layout.root.end + MEBIBYTE;
        let disk = File::create(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        disk.set_len(length).unwrap();
        let partition = |name, kind, range: Range<u64>| Partition {
            name,
            kind,
            start: range.start,
            length: range.end - range.start,
        };
        let efi = 2 * MEBIBYTE..layout.boot.start;
        let partitions = [
            partition("BIOS-BOOT", "21686148-6449-6E6F-744E-656564454649", MEBIBYTE..2 * MEBIBYTE),
            partition("EFI-SYSTEM", "C12A7328-F81F-11D2-BA4B-00A0C93EC93B", efi),
            partition(self.boot_label, "BC13C2FF-59E6-4262-A352-B275FD6F7172", layout.boot.clone()),
            partition("root", "4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709", layout.root.clone()),
        ];
        gpt::write(&disk, length, self.sector_size, &partitions).unwrap();
        let folder = TempDir::new("partition");
        let boot = folder.join("boot");
        self.write_boot(&boot);
        copy_sparsely(&boot, &disk, layout.boot.start).unwrap();
        if let Some(root) = &self.root {
            copy_sparsely(root, &disk, layout.root.start).unwrap();
        } else {
            for (number, start) in layout.root.clone().step_by(MEBIBYTE as usize).enumerate() {
                disk.write_all_at(&filling(number as u64, MEBIBYTE as usize), start).unwrap();
            }
        }
        if let Some(mebibytes) = self.grown_to_mebibytes {
            disk.set_len(mebibytes * MEBIBYTE).unwrap();
        }
        layout
    }

    /// Where the partitions will be.
    pub fn layout(&self) -> Layout {
        let boot = (2 + self.efi_mebibytes) * MEBIBYTE;
        let root = boot + self.boot_mebibytes * MEBIBYTE;
        Layout { boot: boot..root, root: root..root + self.root_mebibytes * MEBIBYTE }
    }
}

/// Copies a file into another at an offset; what is zero stays a hole.
pub fn copy_sparsely(from: &Path, to: &File, offset: u64) -> io::Result<()> {
    let mut source = File::open(from)?;
    let mut chunk = vec![0; 64 << 10];
    let mut at = offset;
    loop {
        let mut filled = 0;
        while filled < chunk.len() {
            match source.read(&mut chunk[filled..])? {
                0 => break,
                count => filled += count,
            }
        }
        if filled == 0 {
            return Ok(());
        }
        if chunk[..filled].iter().any(|byte| *byte != 0) {
            to.write_all_at(&chunk[..filled], at)?;
        }
        at += filled as u64;
    }
}
