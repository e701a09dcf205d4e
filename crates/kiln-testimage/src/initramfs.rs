//! An initramfs as dracut makes it: an uncompressed archive with microcode, then a compressed one with everything else.

use crate::cpio::Archive;
use crate::filling::filling;
use crate::packing::Packing;

/// Where the image's own script looks for network files on the first boot from disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CopyNetwork {
    /// In `/boot/coreos-firstboot-network`: every image until autumn 2026.
    #[default]
    BootPartition,
    /// In `/etc/coreos-firstboot-network` of the initramfs itself: images made for coreos-installer 0.27.
    Initramfs,
    /// There is no such script: not a CoreOS.
    Missing,
}

/// What goes into an initramfs.
#[derive(Debug, Clone)]
pub struct Initramfs {
    /// Which script is inside.
    pub copy_network: CopyNetwork,
    /// How the main archive is compressed; [`Packing::None`] leaves it as it is.
    pub packing: Packing,
    /// Size of the filling that stands for all the other programs.
    pub filling_bytes: usize,
    /// Whether this is the initramfs of a live system.
    pub live: bool,
}

impl Default for Initramfs {
    fn default() -> Self {
        Initramfs {
            copy_network: CopyNetwork::default(),
            packing: Packing::Gzip(6),
            filling_bytes: 512 << 10,
            live: false,
        }
    }
}

impl Initramfs {
    /// The bytes of the file.
    pub fn bytes(&self) -> Vec<u8> {
        let mut early = Archive::new()
            .file("early_cpio", 0o644, "1\n")
            .folder("kernel")
            .folder("kernel/x86")
            .folder("kernel/x86/microcode")
            .file("kernel/x86/microcode/AuthenticAMD.bin", 0o644, filling(7, 20_000))
            .bytes();
        let mut main = Archive::new()
            .folder(".")
            .folder("etc")
            .folder("usr")
            .folder("usr/lib")
            .folder("usr/lib/dracut")
            .folder("usr/sbin")
            .link("sbin", "usr/sbin")
            .file(
                "etc/initrd-release",
                0o644,
                "ID=\"fedora\"\nVARIANT_ID=coreos\nVERSION=\"44.20261101.3.0 dracut-107\"\n",
            )
            .file("usr/lib/dracut/filling", 0o644, filling(11, self.filling_bytes));
        if self.live {
            main = main.file("etc/coreos-live-initramfs", 0o644, "\n");
        }
        main = match self.copy_network {
            CopyNetwork::BootPartition => main.file(SCRIPT, 0o755, SCRIPT_OF_BOOT_PARTITION),
            CopyNetwork::Initramfs => main.file(SCRIPT, 0o755, SCRIPT_OF_INITRAMFS).file(
                "usr/sbin/coreos-rescue-misplaced-network",
                0o755,
                RESCUE,
            ),
            CopyNetwork::Missing => main,
        };
        early.extend(self.packing.packed(&main.bytes()));
        early
    }
}

const SCRIPT: &str = "usr/sbin/coreos-copy-firstboot-network";

// Our own words with the paths of the real ones; nothing runs them.
const SCRIPT_OF_BOOT_PARTITION: &str = "\
#!/bin/bash
# stands for the script of images that look on the boot partition
set -euo pipefail
boot=/mnt/boot_partition
if is-live-image; then
    source=/etc/coreos-firstboot-network/
else
    mount -o ro /dev/disk/by-label/boot ${boot}
    source=${boot}/coreos-firstboot-network/
fi
cp -v ${source}/* /run/NetworkManager/system-connections/
";

const SCRIPT_OF_INITRAMFS: &str = "\
#!/bin/bash
# stands for the script of images that look in the initramfs alone
set -euo pipefail
cp -v /etc/coreos-firstboot-network/* /run/NetworkManager/system-connections/
";

const RESCUE: &str = "\
#!/bin/bash
# stands for the script that still finds what an old installer left in /boot/coreos-firstboot-network
set -euo pipefail
mount -o ro /dev/disk/by-label/boot /mnt/boot_partition
cp -v /mnt/boot_partition/coreos-firstboot-network/* /run/NetworkManager/system-connections/
";
