//! Keyfiles that MachineConfigs write: whether NetworkManager reads them, and what they do beside a host's own.
//!
//! A host that forces its network into the installed system ends up with two sets of profiles in one directory. Which
//! one gets a NIC is NetworkManager's choice ([`crate::network::choice`]), not the order of writing.

use std::collections::{BTreeMap, HashSet};

use super::Rule;
use super::context::{Context, HostView, PoolView};
use super::discovery::looks_like_a_real_nic;
use super::propagation::{CONNECTIONS, FORCE, composed_by_kiln, file_mode, has_karg, unreadable_targets};
use super::words::listed;
use crate::diagnostic::{Code, Diagnostic};
use crate::document::Node;
use crate::ignition::{ConfigFile, Contents};
use crate::keyfile::{ConnectionFile, Keyfile};
use crate::network::choice::{Nic, Reason, choose, known_nics};
use crate::network::profile::{Profile, Reference, Refusal, ignored_values};
use crate::nmstate::bind_to_macs;
use crate::source::Location;

pub(super) const RULES: &[Rule] =
    &[unreadable_keyfiles, refused_keyfiles, ignored_keyfile_values, two_sets_of_profiles];

fn unreadable_keyfiles(context: &Context, findings: &mut Vec<Diagnostic>) {
    // Where a forced profile is lost with the file, that is said instead.
    let worse: HashSet<Location> = unreadable_targets(context).iter().map(|target| target.file.at).collect();
    for config in &context.world.machine_configs {
        let files = config.config.as_ref().and_then(|root| root.path(&["storage", "files"]));
        for file in files.map_or(&[][..], Node::items) {
            let Some(path) = file.get("path") else { continue };
            let Some(name) = path.as_str().and_then(profile_name) else { continue };
            let mode = file_mode(file);
            // Beyond 0777 the operator refuses the whole config, which is said elsewhere.
            if mode & 0o077 == 0 || mode > 0o777 || worse.contains(&file.at) {
                continue;
            }
            let written = file.get("mode");
            let said = match written.and_then(Node::as_integer) {
                None => "has no mode, which means 0644".to_owned(),
                Some(_) => format!("has mode {mode}, which is {mode:04o} in octal"),
            };
            findings.push(
                Diagnostic::new(
                    Code(121),
                    written.map_or(path.at, |mode| mode.at),
                    format!(
                        "keyfile `{name}` of MachineConfig `{}` {said}: NetworkManager ignores it",
                        config.meta.id.name
                    ),
                )
                .cause(
                    "NetworkManager loads a keyfile only if group and others have no rights (0600); a mode without \
                    leading zero is a decimal number, also in YAML",
                )
                .help("write:\nmode: 384\n(384 is 0600; 420 is 0644)"),
            );
        }
    }
}

/// The name of a file directly in the directory of profiles.
fn profile_name(path: &str) -> Option<&str> {
    path.strip_prefix(CONNECTIONS).filter(|name| !name.is_empty() && !name.contains('/'))
}

/// A profile of a pool, and where its path stands.
struct PoolFile {
    file: ConnectionFile,
    at: Location,
}

fn pool_files(pool: &PoolView) -> Vec<Result<PoolFile, (String, Location, String)>> {
    let files = pool.rendered.iter().flat_map(|rendered| rendered.config.files());
    files
        .filter_map(|file: ConfigFile| {
            let name = profile_name(&file.path)?.to_owned();
            let Contents::Inline(bytes) = &file.contents else { return None };
            let mode = file.mode.as_ref().and_then(|mode| u32::try_from(mode.value).ok()).unwrap_or(0o644);
            Some(match Keyfile::parse_bytes(bytes) {
                Ok(keyfile) => Ok(PoolFile { file: ConnectionFile { name, mode, keyfile }, at: file.path.at }),
                Err(error) => Err((name, file.path.at, error.to_string())),
            })
        })
        .collect()
}

fn refused_keyfiles(context: &Context, findings: &mut Vec<Diagnostic>) {
    for file in context.pools.values().flat_map(pool_files) {
        let (name, at, reason, decoded) = match file {
            Err((name, at, reason)) => (name, at, reason, String::new()),
            Ok(PoolFile { file, at }) => match Profile::refusal(&file) {
                Some(Refusal::Invalid(reason)) => {
                    let decoded = decoded_group(&file.keyfile, &reason);
                    (file.name, at, reason, decoded)
                }
                Some(Refusal::Ignored(_)) | None => continue,
            },
        };
        findings.push(
            Diagnostic::new(Code(128), at, format!("NetworkManager will refuse the keyfile `{name}`: {reason}"))
                .cause(
                    "a keyfile that cannot be used is passed over with one line in the log; it still counts as \
                    configuration when CoreOS decides about the declared network",
                )
                .help(format!("repair the contents of the file, or remove it from the MachineConfig{decoded}")),
        );
    }
}

/// The group a refusal speaks of, as the file says it once decoded. Only groups that hold no secrets.
fn decoded_group(keyfile: &Keyfile, reason: &str) -> String {
    let named = ["ipv4", "ipv6", "vlan"].into_iter().find(|group| reason.contains(&format!("[{group}]")));
    let group = named.unwrap_or("connection");
    let lines = keyfile.keys(group).filter_map(|key| Some(format!("\n{key}={}", keyfile.raw(group, key)?)));
    let lines: String = lines.collect();
    if lines.is_empty() { lines } else { format!("; decoded, it says:\n[{group}]{lines}") }
}

fn ignored_keyfile_values(context: &Context, findings: &mut Vec<Diagnostic>) {
    for PoolFile { file, at } in context.pools.values().flat_map(pool_files).flatten() {
        if Profile::refusal(&file).is_some() {
            continue;
        }
        for ignored in ignored_values(&file.keyfile) {
            let place =
                format!("`{}={}` in [{}] of the keyfile `{}`", ignored.key, ignored.value, ignored.group, file.name);
            findings.push(
                Diagnostic::new(Code(140), at, format!("{place} has no effect: {}", ignored.reason))
                    .cause("NetworkManager passes over a value it cannot read and loads the rest of the file")
                    .help(format!("correct `{}` in [{}], or remove the line", ignored.key, ignored.group)),
            );
        }
    }
}

/// What is wrong with two sets together, told once for all hosts it happens to.
#[derive(Default)]
struct Troubles {
    found: BTreeMap<(Location, Code, String), (Trouble, Vec<String>)>,
}

struct Trouble {
    message: String,
    cause: &'static str,
    help: String,
}

impl Troubles {
    fn add(&mut self, code: Code, at: Location, trouble: Trouble, host: &HostView) {
        let (_, hosts) = self.found.entry((at, code, trouble.message.clone())).or_insert((trouble, Vec::new()));
        hosts.push(host.host.meta.id.name.clone());
    }
}

fn two_sets_of_profiles(context: &Context, findings: &mut Vec<Diagnostic>) {
    let mut troubles = Troubles::default();
    for (name, pool) in &context.pools {
        let files: Vec<PoolFile> =
            pool_files(pool).into_iter().flatten().filter(|found| found.file.ignored().is_none()).collect();
        if files.is_empty() {
            continue;
        }
        for host in context.hosts_of_pool.get(name).into_iter().flatten().map(|host| &context.hosts[*host]) {
            if !host.documents.is_empty() && !composed_by_kiln(host) && has_karg(host, FORCE) {
                judge_together(context, host, &files, &mut troubles);
            }
        }
    }
    for ((at, code, _), (trouble, hosts)) in troubles.found {
        findings.push(
            Diagnostic::new(code, at, format!("{} on host {}", trouble.message, listed(&hosts)))
                .cause(trouble.cause)
                .help(trouble.help),
        );
    }
}

fn judge_together(context: &Context, host: &HostView, pool: &[PoolFile], troubles: &mut Troubles) {
    // Names in a document are logical; the address says which NIC is meant.
    let own: Vec<ConnectionFile> =
        context.documents(host).flat_map(|document| bind_to_macs(&document.files, document.nics).0).collect();
    let own_names: HashSet<&str> = own.iter().map(|file| file.name.as_str()).collect();
    // Forcing overwrites files of the same name.
    let kept: Vec<&PoolFile> = pool.iter().filter(|found| !own_names.contains(found.file.name.as_str())).collect();
    let place = |file: &str| kept.iter().find(|found| found.file.name == file).map(|found| found.at);
    let all: Vec<ConnectionFile> = own.iter().cloned().chain(kept.iter().map(|found| found.file.clone())).collect();
    for choice in choose(&all, &nics(context, host, &all)) {
        let Some(winner) = &choice.profile else { continue };
        let loser = choice.others.iter().find(|file| own_names.contains(file.as_str()));
        let (Some(at), Some(loser)) = (place(&winner.file), loser) else { continue };
        let why = match &choice.reason {
            Reason::Priority { chosen, next, .. } => format!("its autoconnect-priority {chosen} is above {next}"),
            Reason::Uuid { .. } => "nothing but the order of their UUIDs decides between them".to_owned(),
            other => other.to_string(),
        };
        troubles.add(
            Code(122),
            at,
            Trouble {
                message: format!(
                    "NetworkManager gives {} to the pool's `{}` and not to the declared `{loser}`, because {why},",
                    choice.nic, winner.file
                ),
                cause: "for each NIC NetworkManager takes the fitting profile with the highest \
                    autoconnect-priority; files copied by force are not preferred",
                help: format!(
                    "leave the NIC out of `{}`, or let it lose:\n[connection]\nautoconnect-priority=-999",
                    winner.file
                ),
            },
            host,
        );
    }
    let profiles: Vec<Profile> = all.iter().map(Profile::read).collect();
    for profile in &profiles {
        let Some(at) = place(&profile.file) else { continue };
        if let Some(missing) = missing_below(profile, &profiles) {
            troubles.add(
                Code(124),
                at,
                Trouble {
                    message: format!("the pool's `{}` needs `{missing}`, which no profile makes", profile.file),
                    cause: "a port cannot come up without its controller, nor a VLAN without the interface below \
                        it; files of the same name overwrite each other, and references by UUID then lead nowhere",
                    help: format!(
                        "remove the file if `{missing}` is a slip, or add the profile that makes it, in a file of \
                        its own with `mode: 384`, for a \
                        bond:\n[connection]\nid={missing}\ntype=bond\ninterface-name={missing}\n\n[bond]\nmode=active-backup\nmiimon=100\n\n[ipv4]\nmethod=disabled\n\n[ipv6]\nmethod=disabled"
                    ),
                },
                host,
            );
        }
        let is_port =
            |other: &Profile| other.controller.as_ref().is_some_and(|reference| profile.is_meant_by(reference));
        if profile.kind.as_deref() == Some("bond") && !profiles.iter().any(is_port) {
            let name = profile.interface.as_ref().map_or(profile.id.as_str(), |name| name.as_str());
            troubles.add(
                Code(125),
                at,
                Trouble {
                    message: format!("the pool's bond `{}` has no ports", profile.file),
                    cause: "ports name their controller, not the other way round; a bond nobody names has no carrier",
                    help: format!(
                        "remove the bond, or add a file with `mode: 384` for each NIC that is to be its port (a NIC \
                        the declared network does not \
                        use):\n[connection]\nid={name}-port\ntype=ethernet\ninterface-name=NIC\nmaster={name}\nslave-type=bond"
                    ),
                },
                host,
            );
        }
    }
}

/// The NICs of the host: those it maps, under their names where these are real, and what else the profiles speak of.
fn nics(context: &Context, host: &HostView, all: &[ConnectionFile]) -> Vec<Nic> {
    let mapped = context.documents(host).flat_map(|document| document.nics);
    let mut nics: Vec<Nic> = mapped
        .map(|nic| Nic {
            name: Some(nic.name.value.clone()).filter(|name| looks_like_a_real_nic(name.as_str())),
            mac: Some(nic.mac.value),
        })
        .collect();
    let others = known_nics(all).into_iter();
    let others = others.filter(|other| {
        !nics
            .iter()
            .any(|nic| (nic.mac == other.mac && nic.mac.is_some()) || (nic.name == other.name && nic.name.is_some()))
    });
    let others: Vec<Nic> = others.collect();
    nics.extend(others);
    nics
}

/// The controller or parent no profile makes. A parent that may be a NIC needs no profile.
fn missing_below(profile: &Profile, profiles: &[Profile]) -> Option<String> {
    let made = |reference: &Reference| profiles.iter().any(|other| other.is_meant_by(reference));
    let may_be_a_nic = |reference: &Reference| match reference {
        Reference::Uuid(_) => false,
        Reference::Name(name) => !["bond", "team", "br", "ovs"].iter().any(|prefix| name.starts_with(prefix)),
    };
    let controller = profile.controller.as_ref().filter(|reference| !made(reference));
    let parent = profile.parent.as_ref().filter(|reference| !made(reference) && !may_be_a_nic(reference));
    controller.or(parent).map(|reference| match reference {
        Reference::Uuid(uuid) => uuid.to_string(),
        Reference::Name(name) => name.clone(),
    })
}
