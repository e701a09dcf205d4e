//! Which profiles are Kiln's: those it wrote for an interface, and those it took over with it. Nobody else's is ever removed.
//!
//! A profile is known by its UUID, as NetworkManager knows it: files get other names, and a NIC may have other profiles besides.
//! Memories from before UUIDs were noted do not list them. What such a Kiln wrote has the UUID of the profile it took over, the
//! UUID of a copy, or, where there was nothing to take over, the one the renderer gives.

use std::collections::HashSet;

use super::profiles::is_rendered;
use super::{Original, Ownership, Taken};
use crate::keyfile::{ConnectionFile, Keyfile};
use crate::net::ConnectionUuid;
use crate::network::profile::uuid_of;

/// What is recognised as Kiln's on one interface.
pub(super) struct Own<'n> {
    interface: &'n str,
    uuids: HashSet<ConnectionUuid>,
    /// Nobody noted what was written, and it was written from nothing.
    unrecorded: bool,
}

impl Own<'_> {
    /// Recognises this one too.
    pub fn add(&mut self, file: &ConnectionFile) {
        self.uuids.insert(uuid_of(file));
    }

    /// Whether a profile, which has this UUID, is Kiln's.
    pub fn is(&self, uuid: ConnectionUuid, file: &ConnectionFile) -> bool {
        let named = || file.keyfile.get("connection", "interface-name").is_some_and(|it| it == self.interface);
        self.uuids.contains(&uuid) || self.unrecorded && named() && is_rendered(file)
    }
}

impl Taken {
    /// What is Kiln's on this interface.
    pub(super) fn own<'n>(&self, interface: &'n str) -> Own<'n> {
        let originals = self.originals.iter().filter_map(Original::read).map(|file| uuid_of(&file));
        let made = self.made.iter().filter_map(|uuid| uuid.parse().ok());
        let uuids = originals.chain(made).chain([uuid_of_copy(interface)]).collect();
        let unrecorded = self.made.is_empty() && self.originals.is_empty() && self.shared.is_none();
        Own { interface, uuids, unrecorded }
    }
}

impl Original {
    /// The profile it holds.
    pub(super) fn read(&self) -> Option<ConnectionFile> {
        Some(ConnectionFile::new(self.name.clone(), Keyfile::parse(&self.content).ok()?))
    }
}

impl Ownership {
    /// Adds what was taken over later. What was there first counts: it is what was there before Kiln.
    pub fn join(&mut self, later: Ownership) {
        let Ownership { interfaces, hostname } = later;
        for (name, taken) in interfaces {
            match self.interfaces.get_mut(&name) {
                Some(first) => first.join(&name, taken),
                None => drop(self.interfaces.insert(name, taken)),
            }
        }
        self.hostname = self.hostname.take().or(hostname);
    }
}

impl Taken {
    fn join(&mut self, interface: &str, later: Taken) {
        let own = self.own(interface);
        // Seen later, what Kiln wrote itself looks as if it had been there before.
        let new = |original: &Original| original.read().is_some_and(|file| !own.is(uuid_of(&file), &file));
        self.originals.extend(later.originals.into_iter().filter(new));
        self.made.extend(later.made);
    }
}

/// UUID of the copy an interface gets of a profile that it shares with others.
pub(super) fn uuid_of_copy(interface: &str) -> ConnectionUuid {
    ConnectionUuid::of_path(&format!("kiln/{interface}"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::change::tests::{after, file, held, node, steps};
    use crate::change::{Change, Observed, Place, plan_change};

    /// Another profile the user has for eth1, for the day he needs it.
    const SPARE: &str = "[connection]\nid=spare\nuuid=10000000-0000-4000-8000-0000000000aa\ntype=ethernet\ninterface-name=eth1\nautoconnect=false\n[ipv4]\nmethod=auto\n";

    fn with_spare() -> Observed {
        let mut node = node();
        node.profiles.push(held("spare", None, SPARE));
        node
    }

    fn plan(node: &Observed, owned: &Ownership, document: &Value) -> Change {
        plan_change(node, owned, document, document).unwrap()
    }

    fn touches(change: &Change, name: &str) -> bool {
        change.writes.iter().any(|write| write.name == name)
    }

    fn mtu(mtu: u32) -> Value {
        json!({"interfaces": [{"name": "eth1", "type": "ethernet", "state": "up", "mtu": mtu}]})
    }

    /// A memory as earlier versions wrote it.
    fn unrecorded(ownership: &Ownership) -> Ownership {
        let mut value = serde_json::to_value(ownership).unwrap();
        for taken in value["interfaces"].as_object_mut().unwrap().values_mut() {
            taken.as_object_mut().unwrap().remove("made");
        }
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn another_profile_of_the_user_for_the_same_nic_is_never_touched() {
        let first = plan(&with_spare(), &Ownership::default(), &mtu(9000));
        assert!(!touches(&first, "spare.nmconnection"), "{first:#?}");
        let changed = after(with_spare(), &first);
        for owned in [first.ownership.clone(), unrecorded(&first.ownership)] {
            // An edit, a repair of what somebody else put in force, the end of the policy.
            let edited = plan(&changed, &owned, &mtu(1400));
            assert!(!touches(&edited, "spare.nmconnection"), "{edited:#?}");
            let mut drifted = changed.clone();
            for held in &mut drifted.profiles {
                held.active_on = match held.file.name.as_str() {
                    "spare.nmconnection" => Some("eth1".into()),
                    _ => held.active_on.take().filter(|it| it != "eth1"),
                };
            }
            let repaired = plan(&drifted, &owned, &mtu(9000));
            assert_eq!((steps(&repaired).as_str(), repaired.writes.as_slice()), ("activate eth1", &[][..]));
            let back = plan(&changed, &owned, &json!({}));
            assert!(!touches(&back, "spare.nmconnection"), "{back:#?}");
            assert!(!file(&back, Place::Persistent, "eth1.nmconnection").contains("mtu"), "{back:#?}");
        }
    }

    #[test]
    fn a_spare_profile_that_a_renderer_wrote_is_the_users_too() {
        let mut bare = node();
        bare.profiles.remove(1);
        let rendered = plan(&bare, &Ownership::default(), &mtu(9000));
        let rendered = held("rendered", None, file(&rendered, Place::Persistent, "eth1.nmconnection"));
        let shared =
            "[connection]\nid=any\nuuid=10000000-0000-4000-8000-0000000000cc\ntype=ethernet\nmulti-connect=3\n";
        for active in [node().profiles[1].clone(), held("any", Some("eth1"), shared)] {
            let mut node = bare.clone();
            node.profiles.extend([active, rendered.clone()]);
            let first = plan(&node, &Ownership::default(), &mtu(9000));
            assert!(!touches(&first, "rendered.nmconnection"), "{first:#?}");
            for owned in [first.ownership.clone(), unrecorded(&first.ownership)] {
                let back = plan(&after(node.clone(), &first), &owned, &json!({}));
                assert!(!touches(&back, "rendered.nmconnection"), "{back:#?}");
            }
        }
    }

    #[test]
    fn what_kiln_made_goes_and_what_the_user_made_since_stays() {
        let bridge =
            json!({"interfaces": [{"name": "br1", "type": "linux-bridge", "state": "up", "bridge": {"port": []}}]});
        let change = plan(&node(), &Ownership::default(), &bridge);
        let mut changed = after(node(), &change);
        let theirs = "[connection]\nid=br1 of mine\nuuid=10000000-0000-4000-8000-0000000000bb\ntype=bridge\ninterface-name=br1\nautoconnect=false\n";
        changed.profiles.push(held("mine", None, theirs));
        for owned in [change.ownership.clone(), unrecorded(&change.ownership)] {
            let back = plan(&changed, &owned, &json!({}));
            let removed: Vec<&str> = back.writes.iter().map(|write| write.name.as_str()).collect();
            assert_eq!(removed, ["br1.nmconnection"], "{back:#?}");
        }
    }

    #[test]
    fn a_name_that_somebody_elses_profile_has_by_now_is_left_to_it() {
        let first = plan(&node(), &Ownership::default(), &mtu(9000));
        let mut changed = after(node(), &first);
        changed.profiles.retain(|held| held.file.name != "eth1.nmconnection");
        changed.profiles.push(held("eth1", Some("eth1"), SPARE));
        let again = plan(&changed, &first.ownership, &mtu(9000));
        assert!(!touches(&again, "eth1.nmconnection"), "{again:#?}");
        assert!(file(&again, Place::Persistent, "kiln-eth1.nmconnection").contains("mtu=9000"));
        let back = plan(&changed, &first.ownership, &json!({}));
        assert!(!touches(&back, "eth1.nmconnection"), "{back:#?}");
        assert!(file(&back, Place::Persistent, "kiln-eth1.nmconnection").contains("8000-000000000001"));
    }

    #[test]
    fn every_profile_of_what_is_to_be_absent_goes_and_comes_back() {
        let absent = json!({"interfaces": [{"name": "eth1", "type": "ethernet", "state": "absent"}]});
        let first = plan(&with_spare(), &Ownership::default(), &absent);
        assert!(touches(&first, "eth1.nmconnection") && touches(&first, "spare.nmconnection"), "{first:#?}");
        let changed = after(with_spare(), &first);
        let back = plan(&changed, &first.ownership, &json!({}));
        for name in ["eth1.nmconnection", "spare.nmconnection"] {
            let lay = with_spare().profiles.into_iter().find(|held| held.file.name == name).unwrap();
            assert_eq!(file(&back, Place::Persistent, name), lay.file.keyfile.render());
        }
        assert!(matches!(&back.stages[0][0], crate::change::Step::Activate { uuid, .. } if uuid.ends_with("01")));
    }

    #[test]
    fn a_file_that_a_runtime_one_hides_comes_back_too() {
        let mut node = node();
        let mut hiding = node.profiles[1].clone();
        hiding.file.keyfile.set("ipv4", "method", "auto");
        hiding.place = Some(Place::Runtime);
        node.profiles[1].active_on = None;
        node.profiles.push(hiding);
        let lay: Vec<_> = node.profiles[1..].iter().map(|held| (held.place, held.file.keyfile.render())).collect();
        let first = plan(&node, &Ownership::default(), &mtu(9000));
        let back = plan(&after(node, &first), &first.ownership, &json!({}));
        for (place, text) in lay {
            assert_eq!(file(&back, place.unwrap(), "eth1.nmconnection"), text);
        }
    }

    #[test]
    fn what_was_there_first_counts_and_what_kiln_wrote_was_not_there() {
        let change = plan(&node(), &Ownership::default(), &mtu(9000));
        let again = plan(&after(node(), &change), &Ownership::default(), &mtu(1400));
        let mut joined = change.ownership.clone();
        joined.join(again.ownership);
        assert_eq!(joined, change.ownership);
    }
}
