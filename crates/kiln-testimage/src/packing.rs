//! Compressors and qemu-img: the same bytes as different programs pack them.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::oracle::run;
use crate::temp_dir::TempDir;

/// A program that compresses, and its level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// Not at all.
    None,
    /// gzip
    Gzip(u8),
    /// `gzip --rsyncable`
    GzipRsyncable,
    /// pigz; 11 is zopfli
    Pigz(u8),
    /// igzip (package isal), levels 0 to 3
    Igzip(u8),
    /// libdeflate-gzip (package libdeflate-tools), levels 1 to 12
    Libdeflate(u8),
    /// xz with CRC32, the only check kernels know
    Xz(u8),
    /// zstd
    Zstd(u8),
}

impl Packing {
    /// The program and the Debian package it comes from, as [`crate::require`] wants them.
    pub fn program(self) -> (&'static str, &'static str) {
        match self {
            Packing::None => ("true", "coreutils"),
            Packing::Gzip(_) | Packing::GzipRsyncable => ("gzip", "gzip"),
            Packing::Pigz(_) => ("pigz", "pigz"),
            Packing::Igzip(_) => ("igzip", "isal"),
            Packing::Libdeflate(_) => ("libdeflate-gzip", "libdeflate-tools"),
            Packing::Xz(_) => ("xz", "xz-utils"),
            Packing::Zstd(_) => ("zstd", "zstd"),
        }
    }

    /// Some bytes, packed.
    pub fn packed(self, bytes: &[u8]) -> Vec<u8> {
        let folder = TempDir::new("packing");
        let (input, output) = (folder.write("input", bytes), folder.join("output"));
        pack(self, &input, &output);
        fs::read(&output).unwrap()
    }
}

/// Packs one file into another.
pub fn pack(packing: Packing, input: &Path, output: &Path) {
    let arguments: Vec<String> = match packing {
        Packing::None => {
            fs::copy(input, output).unwrap();
            return;
        }
        Packing::Gzip(level) => vec![format!("-{level}"), "-nc".into()],
        Packing::GzipRsyncable => vec!["--rsyncable".into(), "-nc".into()],
        Packing::Pigz(level) => vec![format!("-{level}"), "-nc".into()],
        Packing::Igzip(level) => vec![format!("-{level}"), "-nc".into()],
        Packing::Libdeflate(level) => vec![format!("-{level}"), "-c".into()],
        Packing::Xz(level) => vec![format!("-{level}"), "--check=crc32".into(), "-c".into()],
        Packing::Zstd(level) => vec![format!("-{level}"), "-qc".into()],
    };
    let shown = format!("{} {arguments:?} {}", packing.program().0, input.display());
    let status = Command::new(packing.program().0)
        .args(&arguments)
        .arg(input)
        .stdin(Stdio::null())
        .stdout(File::create(output).unwrap())
        .status()
        .unwrap_or_else(|error| panic!("cannot start {shown}: {error}"));
    assert!(status.success(), "{shown} ended with {status}");
}

/// Unpacks gzip, xz or zstd with the field's own programs.
pub fn unpack(input: &Path, output: &Path) {
    let magic = fs::read(input).unwrap().get(..4).map(<[u8]>::to_vec).unwrap_or_default();
    let program = match magic.as_slice() {
        [0x1f, 0x8b, ..] => "gzip",
        [0xfd, b'7', ..] => "xz",
        [0x28, 0xb5, 0x2f, 0xfd] => "zstd",
        _ => panic!("{}: not compressed", input.display()),
    };
    fs::write(output, run(Command::new(program).arg("-dc").arg(input))).unwrap();
}

/// How `qemu-img convert` writes a qcow2.
#[derive(Debug, Clone)]
pub struct Qcow2Options {
    /// For `-o`, such as `compat=1.1,cluster_size=65536,compression_type=zstd`; CoreOS uses `compat=1.1`.
    pub options: String,
    /// Whether clusters are compressed (`-c`).
    pub compressed: bool,
}

impl Default for Qcow2Options {
    fn default() -> Self {
        Qcow2Options { options: "compat=1.1".into(), compressed: false }
    }
}

/// Converts a raw disk to qcow2.
pub fn to_qcow2(raw: &Path, qcow2: &Path, options: &Qcow2Options) {
    let mut command = Command::new("qemu-img");
    command.args(["convert", "-f", "raw", "-O", "qcow2", "-o", &options.options]);
    if options.compressed {
        command.arg("-c");
    }
    run(command.arg(raw).arg(qcow2));
}
