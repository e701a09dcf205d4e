//! The decision at the end of the initramfs: what of its network reaches the real root.
//!
//! This is what coreos-teardown-initramfs does, and nothing better: it asks whether two folders are empty, and copies
//! files. A forced copy writes new contents into an existing file of the same name but keeps that file's mode, and it
//! knows nothing of UUIDs, interfaces or controllers.

use super::folder::{Content, NetworkFile};
use super::initrd;
use super::kargs::Kargs;
use crate::ignition::{Config, Contents};
use crate::keyfile::ConnectionFile;

/// The only file below `network-scripts` that does not count as configuration.
const SCRIPTS_README: &str = "readme-ifcfg-rh.txt";

/// What Ignition left in the real root before the decision.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RealRoot {
    /// `/etc/NetworkManager/system-connections`.
    pub system_connections: Vec<NetworkFile>,
    /// `/etc/sysconfig/network-scripts`.
    pub network_scripts: Vec<NetworkFile>,
    /// `/etc/hostname`, when it exists; it may be empty.
    pub hostname: Option<String>,
}

impl RealRoot {
    /// What a config writes into the folders that matter here. Without `mode`, Ignition writes 0644.
    pub fn from_config(config: &Config) -> RealRoot {
        let mut root = RealRoot::default();
        for file in config.files() {
            let content = match &file.contents {
                Contents::Inline(bytes) => Content::Bytes(bytes.clone()),
                Contents::Remote(url) => Content::Remote(url.clone()),
                Contents::Absent | Contents::Unreadable(_) => Content::Bytes(Vec::new()),
            };
            let mode = file.mode.as_ref().map_or(0o644, |mode| u32::try_from(mode.value).unwrap_or(0o644));
            if file.path.value == "/etc/hostname" {
                root.hostname = match &content {
                    Content::Bytes(bytes) => Some(String::from_utf8_lossy(bytes).trim().to_owned()),
                    Content::Profile(_) | Content::Remote(_) | Content::Directory => Some(String::new()),
                };
            }
            root.put(&file.path, NetworkFile { name: String::new(), mode, content });
        }
        for link in config.links() {
            // A link counts as an entry; what it points to is not known here.
            root.put(&link.path, NetworkFile { name: String::new(), mode: 0o777, content: Content::Bytes(Vec::new()) });
        }
        for directory in config.directories() {
            root.put(&directory.path, NetworkFile { name: String::new(), mode: 0o755, content: Content::Directory });
        }
        root
    }

    /// Adds an entry when its path lies in one of the two folders; of a deeper path, the folder that holds it.
    fn put(&mut self, path: &str, entry: NetworkFile) {
        let (folder, below) = if let Some(below) = path.strip_prefix("/etc/NetworkManager/system-connections/") {
            (&mut self.system_connections, below)
        } else if let Some(below) = path.strip_prefix("/etc/sysconfig/network-scripts/") {
            (&mut self.network_scripts, below)
        } else {
            return;
        };
        let (name, entry) = match below.split_once('/') {
            Some((name, _)) => (name, NetworkFile { mode: 0o755, content: Content::Directory, ..entry }),
            None => (below, entry),
        };
        if !name.is_empty() && !folder.iter().any(|known| known.name == name) {
            folder.push(NetworkFile { name: name.to_owned(), ..entry });
        }
    }
}

/// What becomes of the initramfs profiles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Propagation {
    /// `coreos.no_persist_ip` forbids it.
    Forbidden,
    /// There is nothing to copy.
    Nothing,
    /// The profiles are the default ones.
    Default,
    /// The real root has files of its own: these.
    Blocked {
        /// Absolute paths.
        by: Vec<String>,
    },
    /// Copied: these names.
    Copied {
        /// Names of the files.
        names: Vec<String>,
        /// Whether only `coreos.force_persist_ip` made it happen.
        forced: bool,
    },
}

impl Propagation {
    /// One word, for programs.
    pub fn name(&self) -> &'static str {
        match self {
            Propagation::Forbidden => "forbidden",
            Propagation::Nothing => "nothing",
            Propagation::Default => "default",
            Propagation::Blocked { .. } => "blocked",
            Propagation::Copied { forced: true, .. } => "forced",
            Propagation::Copied { forced: false, .. } => "copied",
        }
    }
}

/// Everything the script decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Teardown {
    /// What becomes of the profiles.
    pub propagation: Propagation,
    /// Whether the initramfs has only what `ip=auto` gives.
    pub only_default: bool,
    /// `/etc/NetworkManager/system-connections` afterwards.
    pub system_connections: Vec<NetworkFile>,
    /// `/etc/hostname` afterwards.
    pub hostname: Option<String>,
    /// Each decision and its reason, in order.
    pub reasons: Vec<String>,
}

/// Decides as the script does.
pub fn tear_down(
    kargs: &Kargs,
    initramfs: &[NetworkFile],
    initramfs_hostname: Option<&str>,
    real_root: &RealRoot,
) -> Teardown {
    tear_down_knowing(is_default(initramfs, kargs), kargs, initramfs, initramfs_hostname, real_root)
}

/// Like [`tear_down`], for whoever asked the machine's own generator whether its profiles are the default ones.
pub fn tear_down_knowing(
    only_default: bool,
    kargs: &Kargs,
    initramfs: &[NetworkFile],
    initramfs_hostname: Option<&str>,
    real_root: &RealRoot,
) -> Teardown {
    let forbidden = kargs.flag("coreos.no_persist_ip", false);
    let mut reasons = Vec::new();
    let hostname = decide_hostname(forbidden, initramfs_hostname, real_root, &mut reasons);
    let propagation = decide_propagation(kargs, only_default, initramfs, real_root);
    reasons.push(explain(&propagation));
    let mut system_connections = real_root.system_connections.clone();
    if let Propagation::Copied { .. } = propagation {
        copy(initramfs, &mut system_connections, &mut reasons);
    }
    let renamed = kargs.values("ifname").next().is_some();
    if renamed && forbidden {
        reasons.push("the interface names of `ifname=` are not kept, for the same reason".to_owned());
    } else if renamed {
        reasons.push("the interface names of `ifname=` are kept: 80-ifname.rules is copied".to_owned());
    }
    Teardown { propagation, only_default, system_connections, hostname, reasons }
}

fn decide_propagation(
    kargs: &Kargs,
    only_default: bool,
    initramfs: &[NetworkFile],
    real_root: &RealRoot,
) -> Propagation {
    let by = blocking_files(real_root);
    let forced = kargs.flag("coreos.force_persist_ip", false);
    if kargs.flag("coreos.no_persist_ip", false) {
        Propagation::Forbidden
    } else if initramfs.is_empty() {
        Propagation::Nothing
    } else if only_default {
        Propagation::Default
    } else if !by.is_empty() && !forced {
        Propagation::Blocked { by }
    } else {
        let names = initramfs.iter().filter(|file| !file.is_hidden()).map(|file| file.name.clone()).collect();
        Propagation::Copied { names, forced: !by.is_empty() }
    }
}

/// The files that make the script believe the real root is configured: any file at all, loadable or not.
pub fn blocking_files(real_root: &RealRoot) -> Vec<String> {
    let scripts = real_root.network_scripts.iter().filter(|file| file.name != SCRIPTS_README);
    real_root
        .system_connections
        .iter()
        .map(|file| format!("/etc/NetworkManager/system-connections/{}", file.name))
        .chain(scripts.map(|file| format!("/etc/sysconfig/network-scripts/{}", file.name)))
        .collect()
}

/// Whether these are the profiles nobody asked for. A file that is no keyfile cannot be one of them.
pub fn is_default(initramfs: &[NetworkFile], kargs: &Kargs) -> bool {
    let profiles: Result<Vec<ConnectionFile>, _> = initramfs.iter().map(NetworkFile::parse).collect();
    profiles.is_ok_and(|profiles| initrd::is_default(&profiles, kargs))
}

fn decide_hostname(
    forbidden: bool,
    initramfs: Option<&str>,
    real_root: &RealRoot,
    reasons: &mut Vec<String>,
) -> Option<String> {
    let Some(name) = initramfs else { return real_root.hostname.clone() };
    let (kept, reason) = match &real_root.hostname {
        _ if forbidden => (real_root.hostname.clone(), "coreos.no_persist_ip is set".to_owned()),
        Some(existing) => (Some(existing.clone()), "/etc/hostname exists already, and this is never forced".to_owned()),
        None => {
            reasons
                .push(format!("hostname `{name}` from the kernel arguments is written: /etc/hostname did not exist"));
            return Some(name.to_owned());
        }
    };
    reasons.push(format!("hostname `{name}` from the kernel arguments is not used: {reason}"));
    kept
}

fn explain(propagation: &Propagation) -> String {
    match propagation {
        Propagation::Forbidden => {
            "nothing is propagated: coreos.no_persist_ip is set, which also beats coreos.force_persist_ip".to_owned()
        }
        Propagation::Nothing => "nothing is propagated: the initramfs has no profiles".to_owned(),
        Propagation::Default => {
            "nothing is propagated: the profiles are what `ip=auto` gives, and the default is never copied".to_owned()
        }
        Propagation::Blocked { by } => format!(
            "nothing is propagated: the real root has files of its own ({}), and whether they configure anything is not asked",
            by.join(", ")
        ),
        Propagation::Copied { names, forced: true } => {
            format!(
                "copied although the real root has files of its own, because coreos.force_persist_ip is set: {}",
                names.join(", ")
            )
        }
        Propagation::Copied { names, forced: false } => {
            format!("copied, because the real root has no network files of its own: {}", names.join(", "))
        }
    }
}

/// `cp run/* etc/`: contents are replaced, the mode of a file that exists stays.
fn copy(initramfs: &[NetworkFile], target: &mut Vec<NetworkFile>, reasons: &mut Vec<String>) {
    let copied = initramfs.iter().filter(|file| !file.is_hidden() && file.content != Content::Directory);
    for file in copied.filter(|file| file.name != "lo.nmconnection") {
        match target.iter_mut().find(|existing| existing.name == file.name) {
            Some(existing) if existing.content == Content::Directory => {
                reasons.push(format!("`{}` is a folder in the real root, which a file cannot replace", file.name));
            }
            Some(existing) => {
                existing.content = file.content.clone();
                reasons.push(format!(
                    "`{}` existed: it gets the initramfs contents but keeps mode {:04o}",
                    file.name, existing.mode
                ));
            }
            None => target.push(file.clone()),
        }
    }
    target.retain(|file| file.name != "lo.nmconnection" || file.content == Content::Directory);
    target.sort_by(|one, other| one.name.cmp(&other.name));
}
