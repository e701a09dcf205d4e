//! What makes a change hopeless is found before anything is touched: each refusal is one line with its cause and what to do.
//!
//! Nothing is forked and nothing is tried out: the kernel's and NetworkManager's own lists say what they can make.

use std::fs;
use std::path::Path;

use kiln_core::change::{Change, Step};
use kiln_core::keyfile::Keyfile;

use crate::nm::Snapshot;

/// Kinds of interfaces, as NetworkManager's profiles call them, that need a module of the kernel.
const MODULES: [(&str, &str); 11] = [
    ("bond", "bonding"),
    ("bridge", "bridge"),
    ("vlan", "8021q"),
    ("dummy", "dummy"),
    ("vrf", "vrf"),
    ("vxlan", "vxlan"),
    ("macvlan", "macvlan"),
    ("macsec", "macsec"),
    ("wireguard", "wireguard"),
    ("ipvlan", "ipvlan"),
    ("hsr", "hsr"),
];

/// What the kernel can make.
#[derive(Debug, Clone, Default)]
pub struct Kernel {
    /// Names of modules that are loaded, built in or can be loaded. None: nobody knows, and nothing is refused.
    modules: Option<Vec<String>>,
}

impl Kernel {
    /// Reads the lists of the running kernel.
    pub fn read() -> Kernel {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let folder = ["/lib/modules", "/usr/lib/modules"]
            .into_iter()
            .map(|root| Path::new(root).join(release.trim()))
            .find(|folder| folder.join("modules.builtin").exists());
        // Without these lists a missing module and a built-in one look alike; NetworkManager will find out.
        let Some(folder) = folder else { return Kernel::default() };
        let mut modules = Vec::new();
        for list in ["modules.builtin", "modules.dep"] {
            let text = fs::read_to_string(folder.join(list)).unwrap_or_default();
            let paths = text.lines().map(|line| line.split(':').next().unwrap_or_default());
            modules.extend(paths.filter_map(module_name));
        }
        let loaded = fs::read_to_string("/proc/modules").unwrap_or_default();
        modules.extend(loaded.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned));
        Kernel { modules: Some(modules) }
    }

    fn can(&self, module: &str) -> bool {
        self.modules.as_ref().is_none_or(|modules| modules.iter().any(|known| known == module))
    }
}

fn module_name(path: &str) -> Option<String> {
    let file = path.rsplit('/').next()?;
    Some(file.split(".ko").next()?.replace('-', "_"))
}

/// What a change has to wait for: another program is about to change the network, and NetworkManager makes no second
/// checkpoint meanwhile. It ends by itself, and says nothing about the change.
pub fn waits_for(snapshot: &Snapshot) -> Option<String> {
    let checkpoint = snapshot.checkpoints.first()?;
    let number = checkpoint.path.rsplit('/').next().unwrap_or_default();
    Some(format!(
        "checkpoint {number} of another program is pending in NetworkManager, for {} s at most; \
         `nmstatectl commit` or `rollback` ends it now",
        checkpoint.timeout
    ))
}

/// Why a change cannot work here. Pure.
pub fn refusal(change: &Change, snapshot: &Snapshot, kernel: &Kernel) -> Option<String> {
    let keyfiles: Vec<Keyfile> =
        change.writes.iter().filter_map(|write| Keyfile::parse(write.content.as_deref()?).ok()).collect();
    for write in &change.writes {
        if let Some(Err(error)) = write.content.as_deref().map(Keyfile::parse) {
            return Some(format!("{} is no keyfile: {error}", write.name));
        }
    }
    keyfiles.iter().find_map(|keyfile| refuse_profile(keyfile, &keyfiles, change, snapshot, kernel))
}

fn refuse_profile(
    keyfile: &Keyfile,
    all: &[Keyfile],
    change: &Change,
    snapshot: &Snapshot,
    kernel: &Kernel,
) -> Option<String> {
    let kind = keyfile.get("connection", "type")?;
    let name = keyfile.get("connection", "interface-name").unwrap_or_default();
    if let Some((_, module)) = MODULES.iter().find(|(known, _)| *known == kind)
        && !kernel.can(module)
    {
        return Some(format!(
            "{name} is a {kind}, and this kernel has no module `{module}`; install the kernel's extra modules or use another kind"
        ));
    }
    let plugin = match &*kind {
        "team" => Some((1, "team")),
        kind if kind.starts_with("ovs-") => Some((2, "ovs")),
        _ => None,
    };
    if let Some((capability, plugin)) = plugin
        && !snapshot.capabilities.contains(&capability)
    {
        return Some(format!(
            "{name} is a {kind}, and NetworkManager has no plugin for it; install NetworkManager-{plugin} and restart NetworkManager"
        ));
    }
    let activated = change.stages.iter().flatten().any(
        |step| matches!(step, Step::Activate { interface, .. } | Step::Reapply { interface, .. } if *interface == *name),
    );
    let physical = matches!(&*kind, "ethernet" | "802-3-ethernet" | "infiniband");
    if physical && activated && !snapshot.device(&name).is_some_and(|device| device.real) {
        // A veth is made by its own profile; its other end is a profile of the type ethernet, perhaps.
        let peer = all.iter().any(|other| other.get("veth", "peer").is_some_and(|peer| peer == name));
        if !peer {
            let mut known: Vec<&str> =
                snapshot.devices.iter().filter(|device| device.real).map(|device| &*device.interface).collect();
            known.sort_unstable();
            known.truncate(12);
            return Some(format!("there is no NIC {name} on this node; it has {}", known.join(", ")));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nm::{Checkpoint, Device};
    use kiln_core::change::{Place, Write};
    use zbus::zvariant::OwnedObjectPath;

    fn change(content: &str) -> Change {
        let write = Write { place: Place::Persistent, name: "x".to_owned(), content: Some(content.to_owned()) };
        let step = Step::Activate { uuid: "u".to_owned(), interface: "x0".to_owned() };
        Change { writes: vec![write], stages: vec![vec![step]], ..Change::default() }
    }

    fn snapshot() -> Snapshot {
        let path = OwnedObjectPath::try_from("/d").unwrap();
        let device = Device { path, interface: "eth0".to_owned(), state: 100, reason: 0, managed: true, real: true };
        Snapshot { devices: vec![device], ..Snapshot::default() }
    }

    #[test]
    fn each_hopeless_change_is_refused_with_cause_and_help() {
        let kernel = Kernel { modules: Some(vec!["bridge".to_owned()]) };
        for (kind, expected) in [
            ("bridge", None),
            (
                "bond",
                Some(
                    "x0 is a bond, and this kernel has no module `bonding`; install the kernel's extra modules or use \
                     another kind",
                ),
            ),
            (
                "ovs-bridge",
                Some(
                    "x0 is a ovs-bridge, and NetworkManager has no plugin for it; install NetworkManager-ovs and restart \
                     NetworkManager",
                ),
            ),
            ("ethernet", Some("there is no NIC x0 on this node; it has eth0")),
        ] {
            let text = format!("[connection]\nid=x0\ntype={kind}\ninterface-name=x0\n");
            assert_eq!(refusal(&change(&text), &snapshot(), &kernel).as_deref(), expected);
        }
    }

    #[test]
    fn a_kernel_without_lists_is_given_the_benefit_of_the_doubt() {
        let text = "[connection]\ntype=bond\ninterface-name=x0\n";
        assert_eq!(refusal(&change(text), &snapshot(), &Kernel::default()), None);
    }

    #[test]
    fn somebody_elses_checkpoint_is_waited_for_and_no_reason_to_refuse() {
        let path = OwnedObjectPath::try_from("/org/freedesktop/NetworkManager/Checkpoint/7").unwrap();
        let checkpoints = vec![Checkpoint { path, created: 5, timeout: 60 }];
        let busy = Snapshot { checkpoints, ..snapshot() };
        assert_eq!(refusal(&change("[connection]\ntype=bridge\n"), &busy, &Kernel::default()), None);
        let expected = "checkpoint 7 of another program is pending in NetworkManager, for 60 s at most; \
            `nmstatectl commit` or `rollback` ends it now";
        assert_eq!(waits_for(&busy).as_deref(), Some(expected));
        assert_eq!(waits_for(&snapshot()), None);
    }

    #[test]
    fn module_files_are_named_with_underscores() {
        assert_eq!(module_name("kernel/net/8021q/8021q.ko.xz").as_deref(), Some("8021q"));
        assert_eq!(module_name("kernel/drivers/net/bonding/bonding.ko").as_deref(), Some("bonding"));
        assert_eq!(module_name("kernel/net/a-b.ko").as_deref(), Some("a_b"));
    }
}
