//! MachineConfigs that keep a declared network from reaching the installed system.
//!
//! At the end of the first boot CoreOS copies the network of the initramfs into the real root only when two
//! directories there are empty. Any file in them counts: a dot file, a route, a keyfile NetworkManager ignores. One
//! small day-2 tweak for a pool therefore leaves every host added later without its network.
//!
//! Hosts that Kiln composes are left out: their network is merged with the pool's files by meaning.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::Rule;
use super::context::{Context, HostView, PoolView};
use super::overrides::installer_args;
use super::words::{SHOWN, counted, listed};
use crate::boot::kargs::Kargs;
use crate::diagnostic::{Code, Diagnostic, ObjectId};
use crate::document::Node;
use crate::source::Location;
use crate::world::{Host, MachineConfig};

pub(super) const RULES: &[Rule] = &[blocked_propagation, blocked_by_override, switched_off, forced_but_unreadable];

pub(super) const CONNECTIONS: &str = "/etc/NetworkManager/system-connections/";
const SCRIPTS: &str = "/etc/sysconfig/network-scripts/";
const HARMLESS: &str = "readme-ifcfg-rh.txt";

pub(super) const FORCE: &str = "coreos.force_persist_ip";
const SWITCH_OFF: &str = "coreos.no_persist_ip";

/// Paths of everything a config writes: files, links and directories.
pub(super) fn written_paths(config: &Node) -> impl Iterator<Item = &Node> {
    let lists = ["files", "links", "directories"].into_iter().filter_map(|list| config.path(&["storage", list]));
    lists.flat_map(Node::items).filter_map(|entry| entry.get("path"))
}

/// Whether a path makes one of the two directories non-empty.
pub(super) fn blocks(path: &str) -> bool {
    let inside = |directory: &str| path.strip_prefix(directory).is_some_and(|name| !name.trim_matches('/').is_empty());
    inside(CONNECTIONS) || (inside(SCRIPTS) && path.strip_prefix(SCRIPTS) != Some(HARMLESS))
}

/// Whether the host's kernel arguments switch `karg` on, read as dracut reads truth values.
pub(super) fn has_karg(host: &HostView, karg: &str) -> bool {
    Kargs::parse(&appended_kernel_arguments(host.host).join(" ")).flag(karg, false)
}

/// The kernel arguments a host adds to its installed system: through the installer, or declared on it.
pub(crate) fn appended_kernel_arguments(host: &Host) -> Vec<String> {
    let given = host.installer_args.as_ref().and_then(|text| installer_args(text)).unwrap_or_default();
    let own = host.kernel_arguments.iter().map(|argument| argument.value.clone());
    appended(&given).map(str::to_owned).chain(own).collect()
}

/// What follows `--append-karg` in installer arguments.
pub(super) fn appended(arguments: &[String]) -> impl Iterator<Item = &str> {
    let separate = arguments.windows(2).filter(|pair| pair[0] == "--append-karg").map(|pair| pair[1].as_str());
    separate.chain(arguments.iter().filter_map(|argument| argument.strip_prefix("--append-karg=")))
}

/// Kiln composes the network of its own kind of host.
pub(super) fn composed_by_kiln(host: &HostView) -> bool {
    host.host.meta.id.kind == "Host"
}

/// The hosts of a pool whose declared network would be lost, found once per pool and manifest ConfigMap.
#[derive(Default)]
struct Losers<'c> {
    known: HashMap<(&'c str, Option<&'c ObjectId>), Vec<usize>>,
}

impl<'c> Losers<'c> {
    fn of(&mut self, context: &'c Context, pool: &'c str, config: &'c MachineConfig) -> &[usize] {
        self.known.entry((pool, config.within.as_ref())).or_insert_with(|| {
            let hosts = context.hosts_of_pool.get(pool).into_iter().flatten().copied();
            hosts
                .filter(|host| {
                    let view = &context.hosts[*host];
                    !view.documents.is_empty()
                        && !composed_by_kiln(view)
                        && !has_karg(view, FORCE)
                        && context.config_reaches(config, view)
                })
                .collect()
        })
    }
}

fn blocked_propagation(context: &Context, findings: &mut Vec<Diagnostic>) {
    let mut losers = Losers::default();
    let mut pools_of: HashMap<*const MachineConfig, Vec<&str>> = HashMap::new();
    for (name, pool) in &context.pools {
        for config in &pool.configs {
            pools_of.entry(std::ptr::from_ref(*config)).or_default().push(name);
        }
    }
    let mut latent_files: BTreeMap<&str, Vec<LatentFile>> = BTreeMap::new();
    for config in &context.world.machine_configs {
        let blocking = config.config.iter().flat_map(written_paths);
        let blocking: Vec<&Node> = blocking.filter(|path| path.as_str().is_some_and(blocks)).collect();
        let Some(first) = blocking.first() else { continue };
        let mut lost = BTreeSet::new();
        let reached = pools_of.get(&std::ptr::from_ref(config)).map_or(&[][..], Vec::as_slice);
        for pool in reached {
            lost.extend(losers.of(context, pool, config).iter().copied());
        }
        let path = first.as_str().unwrap_or_default();
        if lost.is_empty() {
            if !reached.iter().any(|pool| context.hosts_of_pool.contains_key(pool)) {
                let role = config.role.as_ref().map_or("", |role| role.value.as_str());
                latent_files.entry(role).or_default().push((config, path, first.at));
            }
            continue;
        }
        let hosts: Vec<&HostView> = lost.iter().map(|host| &context.hosts[*host]).collect();
        findings.push(lost_network(
            context,
            &format!("MachineConfig `{}`", config.meta.id.name),
            path,
            first.at,
            &hosts,
        ));
    }
    findings.extend(latent_files.into_iter().filter_map(|(role, files)| latent(role, &files)));
}

/// A MachineConfig, the path it writes and where that stands.
type LatentFile<'c> = (&'c MachineConfig, &'c str, Location);

fn blocked_by_override(context: &Context, findings: &mut Vec<Diagnostic>) {
    for view in &context.hosts {
        let Some(text) = &view.host.ignition_override else { continue };
        if view.documents.is_empty() || composed_by_kiln(view) || has_karg(view, FORCE) {
            continue;
        }
        let Ok(config) = serde_json::from_str::<serde_json::Value>(text) else { continue };
        let paths =
            ["files", "links"].into_iter().filter_map(|list| config.pointer(&format!("/storage/{list}"))?.as_array());
        let mut paths = paths.flatten().filter_map(|entry| entry.get("path")?.as_str());
        if let Some(path) = paths.find(|path| blocks(path)) {
            findings.push(lost_network(
                context,
                &format!("the Ignition override of host `{}`", view.host.meta.id.name),
                path,
                text.at,
                &[view],
            ));
        }
    }
}

const WHY: &str = "at the end of the first boot CoreOS copies the network of the initramfs into the installed \
    system only if /etc/NetworkManager/system-connections and /etc/sysconfig/network-scripts are empty there; any \
    file counts, even one NetworkManager ignores. The host then comes up without its addresses, and the hub only \
    says `Host timed out when pulling ignition`";

fn lost_network(context: &Context, writer: &str, path: &str, at: Location, hosts: &[&HostView]) -> Diagnostic {
    let names = listed(hosts.iter().map(|host| &host.host.meta.id.name));
    let whose =
        if hosts.len() == 1 { format!("host {names}") } else { format!("{} ({names})", counted(hosts.len(), "host")) };
    let finding = Diagnostic::new(
        Code(120),
        at,
        format!("`{path}`, written by {writer}, keeps the declared network of {whose} out of the installed system"),
    )
    .cause(WHY)
    .help(format!(
        "{}Forcing copies files side by side and decides nothing: profiles made from kernel arguments have priority \
        -100 and lose against a profile of the pool for the same NIC, and a file of the same name keeps its old \
        mode, so one written with 0644 stays ignored. On a host that Kiln composes (kind Host) the two sets are \
        merged by meaning, and this cannot occur",
        edits(hosts)
    ));
    hosts.iter().take(SHOWN).fold(finding, |finding, host| {
        let network = context.documents(host).next().map_or(host.host.meta.at, |document| document.meta.at);
        finding.related(network, format!("the network of host `{}`, which is lost", host.host.meta.id.name))
    })
}

/// What to write on the hosts: once for all that have the same arguments now.
fn edits(hosts: &[&HostView]) -> String {
    let mut by_arguments: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for host in hosts {
        by_arguments.entry(forced_arguments(host)).or_default().push(&host.host.meta.id.name);
    }
    let edit = |(arguments, hosts): (String, Vec<&str>)| {
        format!(
            "on BareMetalHost {} write:\nmetadata:\n  annotations:\n    \
            bmac.agent-install.openshift.io/installer-args: '{arguments}'\n",
            listed(hosts)
        )
    };
    by_arguments.into_iter().take(SHOWN).map(edit).collect()
}

/// The installer arguments the host has, with the one that forces added.
fn forced_arguments(host: &HostView) -> String {
    let mut arguments = host.host.installer_args.as_ref().and_then(|text| installer_args(text)).unwrap_or_default();
    arguments.extend(["--append-karg".to_owned(), FORCE.to_owned()]);
    let quoted: Vec<String> =
        arguments.into_iter().map(|argument| serde_json::Value::from(argument).to_string()).collect();
    format!("[{}]", quoted.join(","))
}

/// One remark for all files of a pool that has no hosts yet.
fn latent(role: &str, files: &[LatentFile]) -> Option<Diagnostic> {
    let (first, others) = files.split_first()?;
    let writers = listed(files.iter().map(|(config, ..)| &config.meta.id.name));
    let what = if others.is_empty() {
        format!("MachineConfig {writers} writes `{}`", first.1)
    } else {
        format!("MachineConfigs {writers} write files such as `{}`", first.1)
    };
    let finding = Diagnostic::new(
        Code(126),
        first.2,
        format!(
            "hosts added to {} later will lose their declared network, because {what}",
            if role.is_empty() { "a pool that takes it".to_owned() } else { format!("the {role} pool") }
        ),
    )
    .cause(WHY)
    .help(
        "give every host that is added with a network of its own the annotation\nmetadata:\n  annotations:\n    \
        bmac.agent-install.openshift.io/installer-args: '[\"--append-karg\",\"coreos.force_persist_ip\"]'\nor change \
        the network of running nodes with a NodeNetworkConfigurationPolicy instead of a file",
    );
    Some(others.iter().take(SHOWN).fold(finding, |finding, (_, path, at)| finding.related(*at, format!("`{path}`"))))
}

fn switched_off(context: &Context, findings: &mut Vec<Diagnostic>) {
    for view in context.hosts.iter().filter(|view| !view.documents.is_empty() && !composed_by_kiln(view)) {
        if !has_karg(view, SWITCH_OFF) {
            continue;
        }
        let at = view.host.installer_args.as_ref().map_or(view.host.meta.at, |text| text.at);
        let forced =
            if has_karg(view, FORCE) { ", also against `coreos.force_persist_ip`, which stands there too" } else { "" };
        findings.push(
            Diagnostic::new(
                Code(123),
                at,
                format!(
                    "`{SWITCH_OFF}` keeps the declared network of host `{}` out of the installed system",
                    view.host.meta.id.name
                ),
            )
            .cause(format!(
                "with this kernel argument CoreOS copies neither profiles nor hostname nor interface names from the \
                initramfs{forced}"
            ))
            .help(format!("remove \"--append-karg\",\"{SWITCH_OFF}\" from the installer arguments")),
        );
    }
}

/// Permission bits of a written file; Ignition takes 0644 when none are written.
pub(super) fn file_mode(file: &Node) -> u32 {
    file.get("mode").and_then(Node::as_integer).and_then(|mode| u32::try_from(mode).ok()).unwrap_or(0o644)
}

/// A file of a pool that a host's forced profile will take the mode of, so that NetworkManager ignores it.
pub(super) struct UnreadableTarget<'c> {
    pub file: &'c Node,
    name: &'c str,
    config: &'c MachineConfig,
    host: &'c HostView<'c>,
}

/// Every file that others may read and that a forced profile will overwrite.
pub(super) fn unreadable_targets<'c>(context: &'c Context) -> Vec<UnreadableTarget<'c>> {
    let mut targets = Vec::new();
    for (pool, PoolView { configs, .. }) in &context.pools {
        let files = configs.iter().flat_map(|config| {
            let files =
                config.config.as_ref().and_then(|root| root.path(&["storage", "files"])).map_or(&[][..], Node::items);
            files.iter().map(move |file| (*config, file))
        });
        let open: HashMap<&str, (&MachineConfig, &Node)> = files
            .filter(|(_, file)| file_mode(file) & 0o077 != 0)
            .filter_map(|(config, file)| Some((file.get("path")?.as_str()?.strip_prefix(CONNECTIONS)?, (config, file))))
            .collect();
        if open.is_empty() {
            continue;
        }
        let hosts = context.hosts_of_pool.get(pool).into_iter().flatten().map(|host| &context.hosts[*host]);
        for host in hosts.filter(|host| has_karg(host, FORCE)) {
            for forced in context.documents(host).flat_map(|document| &document.files) {
                let Some((config, file)) = open.get(forced.name.as_str()) else { continue };
                targets.push(UnreadableTarget { file, name: &forced.name, config, host });
            }
        }
    }
    targets
}

fn forced_but_unreadable(context: &Context, findings: &mut Vec<Diagnostic>) {
    for UnreadableTarget { file, name, config, host } in unreadable_targets(context) {
        findings.push(
            Diagnostic::new(
                Code(127),
                file.get("path").map_or(file.at, |path| path.at),
                format!(
                    "`{name}` of MachineConfig `{}` has mode {:04o}, so the forced profile of host `{}` under the \
                    same name will be ignored",
                    config.meta.id.name,
                    file_mode(file),
                    host.host.meta.id.name
                ),
            )
            .cause(
                "forcing overwrites the contents of a file of the same name, but keeps its mode; NetworkManager \
                loads no keyfile that others may read",
            )
            .help("write in the MachineConfig:\nmode: 384\n(384 is 0600 in decimal), or give its file another name")
            .related(host.host.meta.at, "the host that forces its network"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::blocks;

    #[test]
    fn any_entry_of_the_two_directories_blocks_except_the_one_readme() {
        for (path, expected) in [
            ("/etc/NetworkManager/system-connections/dummy.nmconnection", true),
            ("/etc/NetworkManager/system-connections/.hidden", true),
            ("/etc/NetworkManager/system-connections/", false),
            ("/etc/NetworkManager/system-connections", false),
            ("/etc/NetworkManager/conf.d/99-dns.conf", false),
            ("/etc/sysconfig/network-scripts/route-bond0", true),
            ("/etc/sysconfig/network-scripts/readme-ifcfg-rh.txt", false),
            ("/etc/sysconfig/network", false),
        ] {
            assert_eq!(blocks(path), expected, "{path}");
        }
    }
}
