//! A live ISO with the areas that coreos-installer embeds into.
//!
//! Made by genisoimage, because coreos-installer looks for upper-case 8.3 names, which xorriso does not write. The areas
//! are found as in the real thing: by JSON files below `/coreos`, or before 2022 by two headers in the system area.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::filling::filling;
use crate::initramfs::Initramfs;
use crate::oracle::run;
use crate::temp_dir::TempDir;

/// How an ISO says where its areas are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Headers {
    /// `coreiso+` alone (2020): nothing for kernel arguments.
    Ignition,
    /// `coreiso+` and `coreKarg` (2021).
    IgnitionAndKargs,
    /// `kargs.json`, no `igninfo.json` (2022).
    KargsJson,
    /// `igninfo.json` and `kargs.json` (since 2023).
    Json,
}

/// What to write.
#[derive(Debug, Clone)]
pub struct LiveIso {
    /// How old the ISO is.
    pub headers: Headers,
    /// Size of `images/ignition.img`, zeros.
    pub embed_bytes: usize,
    /// Default kernel arguments.
    pub kargs: String,
    /// Size of each area for kernel arguments.
    pub karg_area_bytes: usize,
    /// `images/pxeboot/initrd.img`.
    pub initramfs: Initramfs,
    /// `images/pxeboot/rootfs.img`: this file, or a little filling.
    pub rootfs: Option<PathBuf>,
    /// Whether `coreos/features.json` is there.
    pub features: bool,
    /// Whether `coreos/miniso.dat` is there (16 KiB of filling, not a real one).
    pub miniso: bool,
}

impl Default for LiveIso {
    fn default() -> Self {
        LiveIso {
            headers: Headers::Json,
            embed_bytes: EMBED_BYTES,
            kargs: "mitigations=auto,nosmt coreos.liveiso=fedora-coreos-44.20261101.3.0 ignition.firstboot ignition.platform.id=metal".into(),
            karg_area_bytes: 1139,
            initramfs: Initramfs { live: true, ..Initramfs::default() },
            rootfs: None,
            features: true,
            miniso: true,
        }
    }
}

/// Size of the embed area of every CoreOS ISO.
pub const EMBED_BYTES: usize = 256 << 10;
/// What [`LiveIso::write`] runs, for [`crate::require_all`].
pub const PROGRAMS: &[(&str, &str)] = &[("genisoimage", "genisoimage"), ("gzip", "gzip")];

const SYSTEM_AREA: u64 = 32768;
const GRUB: &str = "EFI/fedora/grub.cfg";
const ISOLINUX: &str = "isolinux/isolinux.cfg";

impl LiveIso {
    /// Writes the ISO.
    pub fn write(&self, path: &Path) {
        let tree = TempDir::new("iso");
        let write = |name: &str, bytes: &[u8]| {
            let path = tree.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        };
        let grub = self.configuration(
            "set timeout=5\nmenuentry 'Fedora CoreOS (Live)' --class os {\n\tlinux /images/pxeboot/vmlinuz ",
            "\n\tinitrd /images/pxeboot/initrd.img /images/ignition.img\n}\n",
        );
        let isolinux = self.configuration("default vesamenu.c32\ntimeout 50\nlabel linux\n  kernel /images/pxeboot/vmlinuz\n  append initrd=/images/pxeboot/initrd.img,/images/ignition.img ", "\n\nmenu end\n");
        write(GRUB, &grub.0);
        write(ISOLINUX, &isolinux.0);
        write("isolinux/isolinux.bin", &filling(21, 38_912));
        write("images/efiboot.img", &filling(22, 40_000));
        write("images/ignition.img", &vec![0; self.embed_bytes]);
        write("images/pxeboot/initrd.img", &self.initramfs.bytes());
        write("images/pxeboot/vmlinuz", &filling(23, 200_000));
        if self.rootfs.is_none() {
            write("images/pxeboot/rootfs.img", &filling(24, 300_000));
        }
        write("zipl.prm", self.kargs.as_bytes());
        let locations = [(GRUB, grub.1), (ISOLINUX, isolinux.1)];
        for (name, value) in self.descriptions(&locations) {
            write(name, (serde_json::to_string_pretty(&value).unwrap() + "\n").as_bytes());
        }
        if self.miniso {
            write("coreos/miniso.dat", &filling(25, 16 << 10));
        }
        if self.headers == Headers::IgnitionAndKargs {
            write("cmdline", &self.area());
        }
        let mut command = Command::new("genisoimage");
        command.args([
            "-quiet",
            "-rational-rock",
            "-J",
            "-joliet-long",
            "-V",
            "fedora-coreos-44",
            "-graft-points",
            "-o",
        ]);
        command.arg(path).arg(tree.path());
        if let Some(rootfs) = &self.rootfs {
            command.arg(format!("images/pxeboot/rootfs.img={}", rootfs.display()));
        }
        run(&mut command);
        self.write_headers(path, &[(grub.0, grub.1), (isolinux.0, isolinux.1)]);
    }

    /// A boot loader's configuration around an area, and the offset of the area.
    fn configuration(&self, before: &str, after: &str) -> (Vec<u8>, usize) {
        let mut bytes = before.as_bytes().to_vec();
        bytes.extend(self.area());
        bytes.extend_from_slice(b" COREOS_KARG_EMBED_AREA");
        bytes.extend_from_slice(after.as_bytes());
        (bytes, before.len())
    }

    fn area(&self) -> Vec<u8> {
        let mut area = format!("{}\n", self.kargs).into_bytes();
        assert!(area.len() <= self.karg_area_bytes, "default kernel arguments do not fit into the area");
        area.resize(self.karg_area_bytes, b'#');
        area
    }

    fn descriptions(&self, locations: &[(&str, usize)]) -> Vec<(&'static str, Value)> {
        let mut files = Vec::new();
        if self.headers == Headers::Json {
            files.push(("coreos/igninfo.json", json!({"file": "images/ignition.img"})));
        }
        if matches!(self.headers, Headers::Json | Headers::KargsJson) {
            let locations: Vec<Value> = locations
                .iter()
                .map(|(path, offset)| match self.headers {
                    Headers::Json => json!({"end": "\n", "offset": offset, "pad": "#", "path": path}),
                    _ => json!({"offset": offset, "path": path}),
                })
                .collect();
            let kargs = json!({"default": self.kargs, "files": locations, "size": self.karg_area_bytes});
            files.push(("coreos/kargs.json", kargs));
        }
        if self.features {
            let directives: Value = [
                "append-karg",
                "console",
                "copy-network",
                "delete-karg",
                "dest-device",
                "ignition-file",
                "network-dir",
            ]
            .iter()
            .map(|directive| ((*directive).to_owned(), json!(true)))
            .collect::<serde_json::Map<_, _>>()
            .into();
            let features = json!({"installer-config": true, "installer-config-directives": directives, "live-initrd-network": true});
            files.push(("coreos/features.json", features));
        }
        files
    }

    /// The headers of old ISOs, written over the end of the system area.
    fn write_headers(&self, path: &Path, configurations: &[(Vec<u8>, usize)]) {
        if !matches!(self.headers, Headers::Ignition | Headers::IgnitionAndKargs) {
            return;
        }
        let mut image = Vec::new();
        File::open(path).unwrap().read_to_end(&mut image).unwrap();
        let iso = OpenOptions::new().write(true).open(path).unwrap();
        let record = directory_record(&image, b"IGNITION.IMG;1");
        let words = |magic: &[u8; 8], values: &[u64]| -> Vec<u8> {
            magic.iter().copied().chain(values.iter().flat_map(|value| value.to_le_bytes())).collect()
        };
        iso.write_all_at(&words(b"coreiso+", &[record, self.embed_bytes as u64]), SYSTEM_AREA - 24).unwrap();
        if self.headers == Headers::IgnitionAndKargs {
            let mut values = vec![self.karg_area_bytes as u64, directory_record(&image, b"CMDLINE.;1")];
            for ((_, offset), name) in configurations.iter().zip([b"GRUB.CFG;1".as_slice(), b"ISOLINUX.CFG;1"]) {
                values.push(directory_record(&image, name) + *offset as u64);
            }
            values.resize(8, 0);
            iso.write_all_at(&words(b"coreKarg", &values), SYSTEM_AREA - 24 - 72).unwrap();
        }
    }
}

/// Where the contents of the file with this name begin: the record before the name says the block.
fn directory_record(image: &[u8], name: &[u8]) -> u64 {
    let at = image.windows(name.len()).position(|window| window == name).expect("no such file in the ISO");
    let extent: [u8; 4] = image[at - 31..at - 27].try_into().unwrap();
    u64::from(u32::from_le_bytes(extent)) * 2048
}
