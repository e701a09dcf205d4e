//! What CoreOS keeps on its boot partition, as files in a folder for `mke2fs -d`.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use crate::filling::filling;
use crate::initramfs::Initramfs;

/// The contents of a boot partition.
#[derive(Debug, Clone)]
pub struct Boot {
    /// The initramfs the boot entry names.
    pub initramfs: Initramfs,
    /// Size of the kernel, which is filling.
    pub kernel_bytes: usize,
    /// `ignition.platform.id` of the kernel arguments.
    pub platform: String,
    /// Version in the title of the boot entry.
    pub version: String,
    /// Whether the first boot is over: `ignition.firstboot` is gone and nothing that is put here is ever looked at.
    pub already_booted: bool,
    /// More files: path below the partition's root and contents, mode 0644.
    pub extra: Vec<(String, Vec<u8>)>,
}

impl Default for Boot {
    fn default() -> Self {
        Boot {
            initramfs: Initramfs::default(),
            kernel_bytes: 256 << 10,
            platform: "metal".into(),
            version: "44.20261101.3.0".into(),
            already_booted: false,
            extra: Vec::new(),
        }
    }
}

/// Folder of kernel and initramfs, as the boot entry names it.
pub const OSTREE: &str = "ostree/fedora-coreos-3f4e1c0a9b5d7286f1e0d3c2b4a596877869504132a1b0cfde2e3d4c5b6a7988";
/// Name of the kernel in [`OSTREE`].
pub const KERNEL: &str = "vmlinuz-6.17.4-300.fc44.x86_64";
/// Name of the initramfs in [`OSTREE`].
pub const INITRAMFS: &str = "initramfs-6.17.4-300.fc44.x86_64.img";
/// The boot entry, below the folder `/loader` points to.
pub const ENTRY: &str = "loader.1/entries/ostree-1-fedora-coreos.conf";

impl Boot {
    /// The kernel arguments of the boot entry.
    pub fn options(&self) -> String {
        format!(
            "rw $ignition_firstboot ostree=/ostree/boot.1/fedora-coreos/3f4e1c0a/0 ignition.platform.id={} console=tty0",
            self.platform
        )
    }

    /// Every file but the initramfs and the kernel, with its mode.
    fn small_files(&self) -> Vec<(String, u32, Vec<u8>)> {
        let entry = format!(
            "title Fedora CoreOS {} (ostree:0)\nversion 1\noptions {}\nlinux /{OSTREE}/{KERNEL}\ninitrd /{OSTREE}/{INITRAMFS}\naboot /ostree/deploy/fedora-coreos/deploy/3f4e1c0a.0/usr/lib/ostree-boot/aboot.img\n",
            self.version,
            self.options()
        );
        let mut files = vec![
            (ENTRY.to_owned(), 0o644, entry.into_bytes()),
            (".root_uuid".into(), 0o644, b"910678ff-f77e-4a7d-8d53-86f2ac47a823\n".to_vec()),
            ("coreos/platforms.json".into(), 0o644, PLATFORMS.into()),
            ("grub2/grub.cfg".into(), 0o600, GRUB.into()),
            ("grub2/console.cfg".into(), 0o600, b"# set by the installer\n".to_vec()),
            ("efi/placeholder".into(), 0o644, Vec::new()),
        ];
        if !self.already_booted {
            files.push(("ignition.firstboot".into(), 0o644, Vec::new()));
        }
        files.extend(self.extra.iter().map(|(path, bytes)| (path.clone(), 0o644, bytes.clone())));
        files
    }
}

/// Writes the contents of a boot partition into a folder.
pub fn write_tree(boot: &Boot, folder: &Path) {
    let write = |path: &str, mode: u32, bytes: &[u8]| {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    };
    for (path, mode, bytes) in boot.small_files() {
        write(&path, mode, &bytes);
    }
    write(&format!("{OSTREE}/{KERNEL}"), 0o755, &filling(5, boot.kernel_bytes));
    write(&format!("{OSTREE}/{INITRAMFS}"), 0o600, &boot.initramfs.bytes());
    symlink("loader.1", folder.join("loader")).unwrap();
    // Newer boot entries say /boot/ostree/…; both ways must lead to the same files.
    symlink(".", folder.join("boot")).unwrap();
}

const PLATFORMS: &str = r#"{
  "metal": { "grub_commands": ["serial --speed=115200"], "kernel_arguments": ["console=tty0", "console=ttyS0,115200n8"] },
  "openstack": { "kernel_arguments": ["console=tty0", "console=ttyS0,115200n8"] },
  "qemu": { "kernel_arguments": ["console=tty0", "console=ttyS0,115200n8"] }
}
"#;

const GRUB: &str = r#"# stands for the configuration of GRUB: reads the boot entries below /loader
set timeout=1
search --label boot --set boot --no-floppy
if [ -f "/ignition.firstboot" ]; then
  set ignition_network_kcmdline=""
  source "/ignition.firstboot"
  set ignition_firstboot="ignition.firstboot ${ignition_network_kcmdline}"
fi
blscfg
"#;
