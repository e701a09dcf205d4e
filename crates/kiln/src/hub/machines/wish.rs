//! Which hosts Kiln keeps right while they run, and what each of them shall have. Pure.
//!
//! A host's wish is what a new machine in its place would fetch: the payload and the overlay that are stored for it, named by
//! their digests. A pool whose base comes from a machine-config-server has that cluster's own operator for its nodes, a NodePool
//! with `upgradeType: Replace` gets new machines, and what another controller drives is not in the provision at all.

use std::collections::{BTreeMap, HashMap, HashSet};

use kiln_core::assignment::Proof;
use kiln_core::diagnostic::ObjectId;
use kiln_core::machine::{MachineAssignment, Rules, System};
use kiln_core::payload::digest::Inputs;
use kiln_core::provision::{Provision, names};
use kiln_core::rollout::Budget;
use kiln_core::timeline::Moment;
use kiln_core::world::IgnitionSource;

use crate::hub::pools::held::{Held, What};
use crate::hub::timeline::parse_time;

/// What one host shall have.
#[derive(Debug, Clone, PartialEq)]
pub struct Wish {
    /// Names all of it.
    pub revision: String,
    /// What declares its pool.
    pub pool: ObjectId,
    /// Name of its Node.
    pub node: String,
    /// The digest of its payload.
    pub payload: String,
    /// The digest of its overlay.
    pub overlay: String,
    /// What Ignition has no word for.
    pub system: System,
}

/// A pool whose running nodes are kept.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolWish {
    /// Nobody begins.
    pub paused: bool,
    /// How many may be out, and how many may fail.
    pub budget: Budget,
}

/// What all hosts shall have.
#[derive(Debug, Default, PartialEq)]
pub struct Wishes {
    /// By `namespace/name`.
    pub hosts: BTreeMap<String, Wish>,
    /// Hosts of which nothing can be said now: what they have been told stays.
    pub unsure: HashSet<String>,
    /// The pools of these hosts.
    pub pools: BTreeMap<ObjectId, PoolWish>,
    /// What changes take.
    pub rules: Rules,
}

impl Wishes {
    /// By what must be held ready, and is.
    pub fn of(provision: &Provision, held: &Held, now: Moment) -> Wishes {
        let rules = provision.rules.clone();
        let mut wishes = Wishes { rules, ..Wishes::default() };
        for pool in provision
            .pools
            .iter()
            .filter(|pool| is_kept(&pool.source.kind, pool.upgrade_type.as_deref(), pool.base.as_ref()))
        {
            let budget = Budget::of_pool(pool.max_unavailable.as_deref()).unwrap_or(Budget::Count(1));
            let paused = is_paused(pool.paused.as_deref(), now);
            wishes.pools.insert(pool.source.clone(), PoolWish { paused, budget });
        }
        let payloads: HashMap<(&str, &str), (String, &System)> = provision
            .payloads
            .iter()
            .map(|payload| {
                ((payload.namespace.as_str(), payload.name.as_str()), (payload.id.to_string(), &payload.system))
            })
            .collect();
        for host in provision.hosts.iter().filter(|host| wishes.pools.contains_key(&host.pool)) {
            let (namespace, name) = (host.host.namespace.as_str(), host.host.name.as_str());
            let id = format!("{namespace}/{name}");
            // A host without an overlay is not in service.
            let Some(overlay) = held.get(namespace, &names::overlay(name)) else { continue };
            let payload = payloads.get(&(namespace, host.payload.as_str()));
            let stored = matches!(&overlay.what, What::Overlay { id, payload }
                if *id == host.id.to_string() && *payload == host.payload)
                && held.get(namespace, &host.payload).is_some();
            let (true, Some((payload, system))) = (stored, payload) else {
                wishes.unsure.insert(id);
                continue;
            };
            let overlay = host.id.to_string();
            let revision = revision(payload, &overlay, system, &wishes.rules);
            let wish = Wish {
                revision,
                pool: host.pool.clone(),
                node: host.node.clone(),
                payload: payload.clone(),
                overlay,
                system: (*system).clone(),
            };
            wishes.hosts.insert(id, wish);
        }
        let waiting = provision.waiting.iter().filter(|(_, pool)| wishes.pools.contains_key(pool));
        wishes.unsure.extend(waiting.map(|((namespace, name), _)| format!("{namespace}/{name}")));
        wishes
    }
}

impl Wish {
    /// The assignment, without a word about when.
    pub fn assignment(&self, rules: &Rules, permit: kiln_core::assignment::Permit) -> MachineAssignment {
        MachineAssignment {
            revision: self.revision.clone(),
            system: self.system.clone(),
            rules: rules.clone(),
            proof: Proof::default(),
            permit,
        }
    }
}

fn revision(payload: &str, overlay: &str, system: &System, rules: &Rules) -> String {
    let json = |value: serde_json::Result<String>| value.unwrap_or_default();
    let inputs = Inputs::of("kiln machine 1")
        .with(payload)
        .with(overlay)
        .with(json(serde_json::to_string(system)))
        .with(json(serde_json::to_string(rules)))
        .with(json(serde_json::to_string(&Proof::default())));
    let mut digest = inputs.digest().to_string();
    digest.truncate(32);
    digest
}

/// Whether Kiln changes running nodes of this pool.
fn is_kept(kind: &str, upgrade: Option<&str>, base: Option<&IgnitionSource>) -> bool {
    match kind {
        "NodePool" => upgrade == Some("InPlace"),
        _ => !matches!(base, Some(IgnitionSource::Upstream { .. })),
    }
}

/// `true`, or a time that has not come.
fn is_paused(written: Option<&str>, now: Moment) -> bool {
    written.is_some_and(|written| written == "true" || parse_time(written).is_some_and(|until| now < until))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_has_an_end_if_it_says_one() {
        for (written, expected) in [
            (None, false),
            (Some("true"), true),
            (Some("false"), false),
            (Some("1970-01-01T00:01:41Z"), true),
            (Some("1970-01-01T00:01:40Z"), false),
            (Some("soon"), false),
        ] {
            assert_eq!(is_paused(written, Moment(100)), expected, "{written:?}");
        }
    }

    #[test]
    fn a_revision_names_everything_that_reaches_the_node() {
        let (system, rules) = (System::default(), Rules::default());
        let first = revision("p", "o", &system, &rules);
        assert_eq!(first.len(), 32);
        assert_eq!(first, revision("p", "o", &system, &rules));
        let real_time = System { kernel_type: Some("realtime".into()), ..System::default() };
        let ruled = Rules {
            units: vec![],
            files: vec![kiln_core::machine::FileRule { path: "/etc/a".into(), actions: vec![] }],
        };
        for other in [
            revision("q", "o", &system, &rules),
            revision("p", "x", &system, &rules),
            revision("po", "", &system, &rules),
            revision("p", "o", &real_time, &rules),
            revision("p", "o", &system, &ruled),
        ] {
            assert_ne!(first, other);
        }
    }
}
