//! Many links removed by one request.
//!
//! NetworkManager deletes one link after the other, and for each the kernel waits until nobody uses it any more: a hundred
//! bridges take seconds. The kernel deletes a whole group of links in less than half that time, so what shall be
//! absent is put into a group of its own and that group is deleted. NetworkManager sees its devices go and does not make them
//! again; the checkpoint brings them back if need be.
//!
//! Only links that a document calls absent and that somebody made: never a NIC, never one end of a cable. A group that
//! somebody else uses is not touched; the caller then asks NetworkManager as ever.

use std::collections::HashSet;
use std::io;

use kiln_core::change::Step;
use serde_json::Value;

use crate::kernel::{attributes, messages, text, u32_of};
use crate::netlink::{acknowledge, dump};

/// The group, chosen so that nobody has it: "kiln" in ASCII.
const GROUP: u32 = 0x6b69_6c6e;

/// Kinds of the kernel that are made and deleted by request, and take nothing else with them.
const MADE: [&str; 7] = ["bridge", "bond", "vlan", "vxlan", "dummy", "macvlan", "vrf"];

/// The interfaces of a stage that shall not exist afterwards.
pub fn absent<'c>(stage: &'c [Step], wanted: &Value) -> Vec<&'c str> {
    let interfaces = wanted["interfaces"].as_array().map_or(&[][..], Vec::as_slice);
    let gone: HashSet<&str> = interfaces
        .iter()
        .filter(|entry| entry["state"] == "absent")
        .filter_map(|entry| entry["name"].as_str())
        .collect();
    let removed = stage.iter().filter_map(|step| match step {
        Step::Remove { interface } => Some(interface.as_str()),
        Step::Activate { .. } | Step::Reapply { .. } => None,
    });
    removed.filter(|name| gone.contains(name)).collect()
}

/// Deletes those links that can be deleted together. Says which are gone; none when there is nothing to gain.
pub async fn remove_together(names: &[&str]) -> io::Result<Vec<String>> {
    if names.len() < 2 {
        return Ok(Vec::new());
    }
    let names: HashSet<String> = names.iter().map(|name| (*name).to_owned()).collect();
    // The kernel answers when all are gone, which may be seconds.
    tokio::task::spawn_blocking(move || remove(&names)).await.map_err(io::Error::other)?
}

fn remove(names: &HashSet<String>) -> io::Result<Vec<String>> {
    // RTM_GETLINK
    let Some(chosen) = choose(&dump(18, 16)?, names) else { return Ok(Vec::new()) };
    for (index, _) in &chosen {
        // RTM_SETLINK
        acknowledge(&message(19, *index))?;
    }
    // RTM_DELLINK
    acknowledge(&message(17, 0))?;
    Ok(chosen.into_iter().map(|(_, name)| name).collect())
}

/// Index and name of the links to delete. None when they are fewer than two, or when others are in the group.
fn choose(links: &[u8], names: &HashSet<String>) -> Option<Vec<(u32, String)>> {
    let mut chosen = Vec::new();
    // RTM_NEWLINK
    for (_, body) in messages(links).filter(|(kind, _)| *kind == 16) {
        let (index, mut name, mut group, mut made) = (u32_of(body.get(4..)?)?, String::new(), 0, false);
        for (kind, value) in attributes(body.get(16..)?) {
            match kind {
                3 => name = text(value),
                18 => made |= attributes(value).any(|(kind, value)| kind == 1 && MADE.contains(&text(value).as_str())),
                27 => group = u32_of(value)?,
                _ => {}
            }
        }
        match (made && names.contains(&name), group) {
            (true, _) => chosen.push((index, name)),
            (false, GROUP) => return None,
            (false, _) => {}
        }
    }
    (chosen.len() > 1).then_some(chosen)
}

/// A request about one link, or without an index about the whole group: IFLA_GROUP is all it says.
fn message(kind: u16, index: u32) -> Vec<u8> {
    const LENGTH: u32 = 16 + 16 + 8;
    let mut message = LENGTH.to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    // NLM_F_REQUEST and NLM_F_ACK
    message.extend(0x5_u16.to_ne_bytes());
    message.extend([0; 8]);
    message.extend([0; 4]);
    message.extend(index.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(8_u16.to_ne_bytes());
    message.extend(27_u16.to_ne_bytes());
    message.extend(GROUP.to_ne_bytes());
    message
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_is_called_absent_is_deleted() {
        let remove = |name: &str| Step::Remove { interface: name.into() };
        let stage = [
            remove("br0"),
            remove("br1"),
            remove("bond0"),
            Step::Activate { uuid: "u".into(), interface: "br2".into() },
        ];
        let wanted = json!({"interfaces": [
            {"name": "br0", "state": "absent"}, {"name": "br1", "state": "up"}, {"name": "br2", "state": "absent"},
        ]});
        assert_eq!(absent(&stage, &wanted), ["br0"]);
    }

    /// In a network of its own, on a thread of its own.
    #[test]
    fn links_go_together_and_nobody_elses() {
        let inside = || {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).ok()?;
            let commands = "for link in br0 br1 br2 theirs; do ip link add $link type bridge; done; \
                ip link add a0 type veth peer name a1";
            assert!(std::process::Command::new("sh").args(["-c", commands]).status().unwrap().success());
            let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<HashSet<_>>();
            let links = || {
                let shown = std::process::Command::new("ip").args(["-brief", "link"]).output().unwrap();
                let text = String::from_utf8(shown.stdout).unwrap();
                let first = |line: &str| line.split([' ', '@']).next().unwrap_or_default().to_owned();
                text.lines().map(first).filter(|name| name != "lo").collect::<std::collections::BTreeSet<_>>()
            };
            let mut gone = remove(&names(&["br0", "br1", "a0", "none"])).unwrap();
            gone.sort();
            assert_eq!(gone, ["br0", "br1"]);
            assert_eq!(links(), ["a0", "a1", "br2", "theirs"].map(str::to_owned).into());
            // One alone is left to NetworkManager, and so is everything while a stranger is in the group.
            assert_eq!(remove(&names(&["br2"])).unwrap(), Vec::<String>::new());
            let taken = format!("ip link set theirs group {GROUP}; ip link add br3 type bridge");
            assert!(std::process::Command::new("sh").args(["-c", &taken]).status().unwrap().success());
            assert_eq!(remove(&names(&["br2", "br3"])).unwrap(), Vec::<String>::new());
            assert!(links().contains("br2") && links().contains("theirs"));
            Some(())
        };
        if std::thread::spawn(inside).join().unwrap().is_none() {
            assert!(std::env::var_os("KILN_REQUIRE_ORACLES").is_none(), "making network namespaces needs root");
        }
    }
}
