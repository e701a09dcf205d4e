//! A whole first boot of stock CoreOS: kernel arguments, copied network, Ignition, teardown, real root.
//!
//! [`simulate`] is total: every input gives a prediction, each decision with its reason. [`compose`] is what Kiln puts
//! into the real root of the same host instead.
//!
//! Not here: platforms whose hypervisor hands in kernel arguments, and whether Ignition needs the network at all. The
//! initramfs profiles exist in both cases; only NetworkManager's start depends on it.

use std::borrow::Cow;

use super::folder::{Content, Folder, NetworkFile, NotLoaded};
use super::initrd::{self, Dropped, Generated};
use super::kargs::Kargs;
use super::teardown::{Propagation, RealRoot, Teardown, tear_down};
use crate::keyfile::ConnectionFile;
use crate::network::choice::{Choice, choose, known_nics};
use crate::network::merge::{Merged, merge};

/// What the distribution adds when the command line has no `ip=` of its own.
const DEFAULT_ARGUMENT: &str = "ip=auto";

/// Where first-boot profiles are put by an installer, and looked for by an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyLayout {
    /// `/boot/coreos-firstboot-network` (coreos-installer before 0.27).
    Boot,
    /// `/etc/coreos-firstboot-network` in an initrd appended to the installed one (0.27 and later).
    Initrd,
}

impl CopyLayout {
    /// The folder, as messages name it.
    pub fn folder(self) -> &'static str {
        match self {
            CopyLayout::Boot => "/boot/coreos-firstboot-network",
            CopyLayout::Initrd => "/etc/coreos-firstboot-network in the initrd",
        }
    }
}

/// Everything that decides a first boot.
#[derive(Debug, Clone)]
pub struct FirstBoot {
    /// The kernel command line.
    pub kargs: Kargs,
    /// Files in the first-boot network area; empty when there is none.
    pub copied_network: Vec<NetworkFile>,
    /// Where the installer put them.
    pub written_to: CopyLayout,
    /// Where the image's initramfs looks for them.
    pub read_from: CopyLayout,
    /// The real root after Ignition.
    pub real_root: RealRoot,
}

/// One profile at one phase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhaseProfile {
    /// Name of its file.
    pub name: String,
    /// Mode of its file.
    pub mode: u32,
    /// Why NetworkManager does not load it, if so.
    pub not_loaded: Option<NotLoaded>,
}

/// The network at one phase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Phase {
    /// What the phase is called.
    pub name: &'static str,
    /// Its files.
    pub profiles: Vec<PhaseProfile>,
    /// Those that NetworkManager loads.
    pub loaded: Vec<ConnectionFile>,
    /// Which profile comes up on which interface.
    pub choices: Vec<Choice>,
    /// Each decision and its reason.
    pub reasons: Vec<String>,
}

/// What will happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prediction {
    /// From the kernel arguments alone.
    pub kernel_arguments: Phase,
    /// In the initramfs, after copy-network.
    pub initramfs: Phase,
    /// In the real root, on stock CoreOS.
    pub real_root: Phase,
    /// Whether the initramfs has only what `ip=auto` gives: NetworkManager makes that anew in the real root.
    pub only_default: bool,
    /// What was decided about propagation.
    pub propagation: Propagation,
    /// Hostname of the real root.
    pub hostname: Option<String>,
    /// Arguments that do not do what they seem to say.
    pub dropped: Vec<Dropped>,
    /// Profiles of the initramfs that the real root does not load any more.
    pub lost: Vec<String>,
}

impl Prediction {
    /// The profiles somebody asked for: what the initramfs loads, unless that is only the default.
    pub fn declared(&self) -> Vec<ConnectionFile> {
        if self.only_default { Vec::new() } else { self.initramfs.loaded.clone() }
    }
}

/// What a command line alone leads to. The hosts of a fleet share it.
#[derive(Debug, Clone)]
pub struct KernelArguments {
    /// With what the distribution adds.
    kargs: Kargs,
    files: Vec<NetworkFile>,
    phase: Phase,
    hostname: Option<String>,
    dropped: Vec<Dropped>,
}

impl KernelArguments {
    /// Runs the generator on a command line.
    pub fn read(given: &Kargs) -> Self {
        let kargs = effective_arguments(given);
        let Generated { files, hostname, dropped, .. } = initrd::generate(&kargs);
        let files: Vec<NetworkFile> = files.iter().map(NetworkFile::from).collect();
        let added = format!("the command line has no `ip=`, so the distribution adds `{DEFAULT_ARGUMENT}`");
        let reasons = if kargs == *given { Vec::new() } else { vec![added] };
        let phase = phase("kernel arguments", Folder::Run, &files, reasons);
        KernelArguments { kargs, files, phase, hostname, dropped }
    }
}

/// Predicts.
pub fn simulate(boot: &FirstBoot) -> Prediction {
    simulate_with(&KernelArguments::read(&boot.kargs), boot)
}

/// Predicts for a command line that was read before.
pub fn simulate_with(arguments: &KernelArguments, boot: &FirstBoot) -> Prediction {
    let (profiles, reasons) = copy_network(boot, &arguments.files);
    let initramfs = phase("initramfs", Folder::Run, &profiles, reasons);
    let Teardown { propagation, only_default, system_connections, hostname, reasons, .. } =
        tear_down(&arguments.kargs, &profiles, arguments.hostname.as_deref(), &boot.real_root);
    let real_root = phase("real root", Folder::Etc, &system_connections, reasons);
    // Default profiles are made anew by NetworkManager in the real root; nobody misses them.
    let missed = names(&initramfs).filter(|name| !only_default && !names(&real_root).any(|kept| kept == *name));
    let lost = missed.map(str::to_owned).collect();
    Prediction {
        kernel_arguments: arguments.phase.clone(),
        initramfs,
        real_root,
        only_default,
        propagation,
        hostname,
        dropped: arguments.dropped.clone(),
        lost,
    }
}

/// The host's declared profiles and the pool's, merged by meaning; where both speak, the host is right.
///
/// What is no keyfile takes no part: NetworkManager would not load it either.
pub fn compose(declared: &[ConnectionFile], pool: &[NetworkFile]) -> Merged {
    let pool: Vec<ConnectionFile> = pool.iter().filter_map(|file| file.parse().ok()).collect();
    merge(&pool, declared)
}

fn effective_arguments(kargs: &Kargs) -> Kargs {
    let given = kargs.words().iter().any(|word| word.starts_with("ip="));
    if given { kargs.clone() } else { kargs.and(DEFAULT_ARGUMENT) }
}

/// What coreos-copy-firstboot-network leaves in the initramfs.
fn copy_network<'b>(boot: &'b FirstBoot, from_arguments: &'b [NetworkFile]) -> (Cow<'b, [NetworkFile]>, Vec<String>) {
    let FirstBoot { kargs, copied_network, written_to, read_from, .. } = boot;
    if copied_network.is_empty() {
        let reason = format!("{} is empty: the profiles of the kernel arguments stay", read_from.folder());
        return (from_arguments.into(), vec![reason]);
    }
    if written_to != read_from {
        let reason = format!(
            "the files are in {}, but this image looks in {}: they are never read",
            written_to.folder(),
            read_from.folder()
        );
        return (from_arguments.into(), vec![reason]);
    }
    let iscsi = kargs.flag("rd.iscsi.firmware", false) || kargs.value("netroot").is_some();
    if iscsi && *read_from == CopyLayout::Boot {
        let reason = "the root is on iSCSI, so /boot cannot be read yet and copying is switched off".to_owned();
        return (from_arguments.into(), vec![reason]);
    }
    if let Some(folder) = copied_network.iter().find(|file| file.content == Content::Directory && !file.is_hidden()) {
        let reason = format!("`{}` is a folder, which the copy cannot handle: the boot stops here", folder.name);
        return (Cow::default(), vec![reason]);
    }
    let copied: Cow<[NetworkFile]> = match copied_network.iter().any(NetworkFile::is_hidden) {
        true => copied_network.iter().filter(|file| !file.is_hidden()).cloned().collect(),
        false => copied_network.into(),
    };
    if copied.is_empty() {
        let reason = "only hidden files are there, which count but cannot be copied: the boot stops here".to_owned();
        return (Cow::default(), vec![reason]);
    }
    let replaced: Vec<&str> = from_arguments.iter().map(|file| file.name.as_str()).collect();
    let count = if copied.len() == 1 { "1 file is".to_owned() } else { format!("{} files are", copied.len()) };
    let mut reasons = vec![format!("{count} copied from {}", read_from.folder())];
    if !replaced.is_empty() {
        reasons.push(format!("the profiles of the kernel arguments are deleted first: {}", replaced.join(", ")));
    }
    (copied, reasons)
}

fn phase(name: &'static str, folder: Folder, files: &[NetworkFile], mut reasons: Vec<String>) -> Phase {
    let (mut profiles, mut loaded) = (Vec::new(), Vec::new());
    for file in files {
        let not_loaded = file.load(folder).map(|profile| loaded.push(profile)).err();
        if let Some(reason) = &not_loaded {
            reasons.push(format!("`{}` is not loaded: {reason}", file.name));
        }
        profiles.push(PhaseProfile { name: file.name.clone(), mode: file.mode, not_loaded });
    }
    Phase { name, choices: choose(&loaded, &known_nics(&loaded)), profiles, loaded, reasons }
}

fn names(phase: &Phase) -> impl Iterator<Item = &str> {
    phase.loaded.iter().map(|profile| profile.name.as_str())
}

#[cfg(test)]
mod tests;
