//! Where the machine's files are: below `/`, or below a folder that stands for a machine.

use std::fs;
use std::path::{Path, PathBuf};

use kiln_core::boot::handover::Policy;
use kiln_core::boot::kargs::{Kargs, MAX_BYTES};

use crate::error::FirstbootError;
use crate::folder::read_bounded;

/// What every initramfs has and no installed system.
const INITRAMFS: &str = "/etc/initrd-release";
/// What the initramfs of a live image has.
const LIVE: &str = "/etc/coreos-live-initramfs";

/// The root of the machine that is worked on. The real root is below it, at `/sysroot`.
#[derive(Debug, Clone)]
pub struct Root {
    path: PathBuf,
}

impl Root {
    /// A machine below a folder.
    pub fn new(path: impl Into<PathBuf>) -> Root {
        Root { path: path.into() }
    }

    /// An absolute path of the machine.
    pub fn at(&self, path: &str) -> PathBuf {
        self.path.join(path.trim_start_matches('/'))
    }

    /// A path in the machine's real root.
    pub fn real(&self, path: &str) -> PathBuf {
        self.path.join("sysroot").join(path.trim_start_matches('/'))
    }

    /// Whether this is the running machine and not a folder.
    pub fn is_machine(&self) -> bool {
        self.path == Path::new("/")
    }

    /// Refuses to work on a running machine that is past its initramfs.
    pub fn require_initramfs(&self) -> Result<(), FirstbootError> {
        let path = self.at(INITRAMFS);
        if self.is_machine() && !path.exists() {
            return Err(FirstbootError::NoInitramfs { path });
        }
        Ok(())
    }

    /// Whether a live image boots: its network files are in the initramfs and not on a disk.
    pub fn is_live(&self) -> bool {
        self.at(LIVE).exists()
    }

    /// The kernel command line as dracut puts it together: drop-ins first, so that what the boot loader says is last.
    pub fn kargs(&self) -> Kargs {
        let mut drop_ins: Vec<PathBuf> = fs::read_dir(self.at("/etc/cmdline.d"))
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|ending| ending == "conf"))
            .collect();
        drop_ins.sort();
        let sources = drop_ins.into_iter().chain([self.at("/etc/cmdline"), self.at("/proc/cmdline")]);
        let texts = sources.filter_map(|path| read_bounded(&path, MAX_BYTES).ok());
        let line: Vec<String> = texts.map(|bytes| String::from_utf8_lossy(&bytes).trim_end().to_owned()).collect();
        Kargs::parse(&line.join(" "))
    }

    /// The policy the kernel command line asks for (`kiln.firstboot=merge`), or the stock one.
    pub fn policy(&self) -> Policy {
        self.kargs().value("kiln.firstboot").and_then(|policy| policy.parse().ok()).unwrap_or(Policy::Stock)
    }

    /// Whether the root is on iSCSI: then the boot partition is behind the network, which must stay up.
    pub fn is_iscsi(kargs: &Kargs) -> bool {
        kargs.flag("rd.iscsi.firmware", false) || kargs.value("netroot").is_some()
    }
}
