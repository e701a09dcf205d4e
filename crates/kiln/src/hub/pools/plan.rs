//! Which Secrets for nodes must be made, changed or removed. Pure: [`plan_secrets`] decides, `execute` does it.
//!
//! | Secret | made | changed | removed |
//! |---|---|---|---|
//! | payload | when a pool or a host wants it | never: other inputs, other name | when nobody wants it and nothing stored names it |
//! | overlay | for each host in service, after its payload | when its digest differs | when the host went out of service, or to a pool nobody declares |
//! | pool token | for the present config, after its payload | rotated; its end is set when the config changes | after its end |
//! | user-data | from the token that is stored | when the token was rotated | when its config is outdated |
//!
//! Each is owned by its pool or its host and goes with it.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use kiln_core::diagnostic::ObjectId;
use kiln_core::payload::digest::{hash_simple, sha256_hex};
use kiln_core::pool_token::{Current, Expiry, Outdated, judge_current, judge_outdated};
use kiln_core::provision::{HostProvision, NoConfig, PoolConfig, PoolProvision, Provision, names};
use kiln_core::timeline::Moment;
use serde_json::{Value, json};

use super::held::{Held, HeldSecret, PoolToken, What, annotation};
use super::release::Release;
use super::render::{self, Owner, label};
use super::report::{ConfigReport, PoolReport, PoolReports};
use super::service::Service;
use super::{Endpoint, Hashed};
use crate::hub::controllers::cache::Cache;
use crate::hub::controllers::kinds;
use crate::hub::controllers::plan_objects::{Action, ObjectChange};
use crate::hub::timeline::render_time;

/// Everything a decision looks at.
pub struct Situation<'a> {
    /// What must be held ready.
    pub provision: &'a Provision,
    /// What is stored.
    pub held: &'a Held,
    /// What exists: owners.
    pub cache: &'a Cache,
    /// Hashes of pull secrets and additional authorities.
    pub hashes: &'a BTreeMap<Hashed, String>,
    /// Where nodes reach this hub.
    pub endpoint: Option<&'a Endpoint>,
    /// Why hosts that go are still there, by namespace and name.
    pub problems: &'a BTreeMap<(String, String), String>,
    /// The present.
    pub now: Moment,
}

/// What is to be done.
#[derive(Debug)]
pub struct Planned {
    /// Writes.
    pub changes: Vec<ObjectChange>,
    /// Hosts that go out of service.
    pub releases: Vec<Release>,
    /// Hosts that come into service and have a BareMetalHost that may be kept off, by namespace and name.
    pub switch_on: Vec<(String, String)>,
    /// What is to be said of each pool.
    pub reports: PoolReports,
    /// When there will be something to do again.
    pub next: Option<Moment>,
    /// Whether bytes are missing that only a look at the world gives.
    pub look_again: bool,
}

/// Compares what must be held ready with what is stored. `token` gives a new random token each time.
pub fn plan_secrets(situation: &Situation<'_>, token: &dyn Fn() -> String) -> Planned {
    let mut work = Work {
        situation,
        service: Service::decide(situation),
        planned: Planned {
            changes: Vec::new(),
            releases: Vec::new(),
            switch_on: Vec::new(),
            reports: PoolReports::new(),
            next: None,
            look_again: false,
        },
    };
    work.payloads();
    work.overlays();
    let mut seen = HashSet::new();
    for pool in &situation.provision.pools {
        // Of two pools with one name the first has it.
        if seen.insert((pool.namespace.as_str(), pool.name.as_str())) {
            work.pool(pool, token);
        }
    }
    work.sweep();
    work.planned.releases = std::mem::take(&mut work.service.releases);
    work.planned
}

struct Work<'a> {
    situation: &'a Situation<'a>,
    service: Service<'a>,
    planned: Planned,
}

impl<'a> Work<'a> {
    fn change(&mut self, namespace: &str, name: &str, action: Action) {
        let change =
            ObjectChange { kind: &kinds::SECRET, namespace: namespace.to_owned(), name: name.to_owned(), action };
        self.planned.changes.push(change);
    }

    fn delete(&mut self, namespace: &str, name: &str, held: &HeldSecret) {
        self.change(namespace, name, Action::Delete { uid: held.uid.clone(), revision: held.revision.clone() });
    }

    fn patch(&mut self, namespace: &str, name: &str, held: &HeldSecret, mut patch: Value) {
        patch["metadata"]["resourceVersion"] = json!(held.revision);
        self.change(namespace, name, Action::Patch(patch));
    }

    fn look_at(&mut self, moment: Moment) {
        self.planned.next = Some(self.planned.next.map_or(moment, |next| next.min(moment)));
    }

    /// The object as an owner, if it exists and stays.
    fn owner(&self, id: &ObjectId) -> Option<Owner> {
        let item = self.situation.cache.get(&id.kind, &id.namespace, &id.name).filter(|item| !item.deleting)?;
        let api_version = kinds::find(&id.kind)?.api_version();
        Some(Owner { api_version, id: id.clone(), uid: item.uid.clone() })
    }

    fn payloads(&mut self) {
        for payload in &self.situation.provision.payloads {
            if self.situation.held.get(&payload.namespace, &payload.name).is_some() {
                continue;
            }
            let Some(owner) = self.owner(&payload.pool) else { continue };
            match render::payload(payload, &owner) {
                Some(object) => self.change(&payload.namespace, &payload.name, Action::Create(object)),
                None => self.planned.look_again = true,
            }
        }
    }

    fn overlays(&mut self) {
        let provision = self.situation.provision;
        let in_service: Vec<&HostProvision> =
            provision.hosts.iter().filter(|host| self.service.has(&host.host)).collect();
        for host in in_service {
            let name = names::overlay(&host.host.name);
            let held = self.situation.held.get(&host.host.namespace, &name);
            let right =
                |held: &HeldSecret| matches!(&held.what, What::Overlay { id, .. } if *id == host.id.to_string());
            if held.is_some_and(right) {
                continue;
            }
            let Some(overlay) = &host.overlay else {
                self.planned.look_again = true;
                continue;
            };
            // First what it leads to.
            if self.situation.held.get(&host.host.namespace, &host.payload).is_none() {
                continue;
            }
            let Some(owner) = self.owner(&host_object(host)) else { continue };
            match held {
                None => {
                    let place = (host.host.namespace.clone(), host.host.name.clone());
                    if self.situation.cache.get("BareMetalHost", &place.0, &place.1).is_some() {
                        self.planned.switch_on.push(place);
                    }
                    let object = render::overlay(host, overlay, &owner);
                    self.change(&host.host.namespace, &name, Action::Create(object));
                }
                Some(held) => {
                    let mut data = render::overlay_data(host, overlay);
                    if overlay.config.is_none() {
                        data["config"] = Value::Null;
                    }
                    self.patch(&host.host.namespace, &name, held, json!({"data": data}));
                }
            }
        }
    }

    fn pool(&mut self, pool: &'a PoolProvision, token: &dyn Fn() -> String) {
        let config = pool.config.as_ref().ok();
        let current = config.map(|config| names::token(&pool.name, &config.hash));
        let held_tokens: Vec<(&String, &HeldSecret, &PoolToken)> = self.of_pool(pool).collect();
        for (name, secret, held) in &held_tokens {
            match (&current, judge_outdated(&held.record, self.situation.now)) {
                (Some(current), _) if current == *name => self.keep(pool, name, secret, held, token),
                // Nobody knows the present config: the last good one goes on.
                (None, _) if held.record.expires == Expiry::Open => self.keep(pool, name, secret, held, token),
                (_, Outdated::Expire { at }) => {
                    self.look_at(at);
                    let patch = json!({"metadata": {"annotations": {annotation::EXPIRES: render_time(at)}}});
                    self.patch(&pool.namespace, name, secret, patch);
                }
                (_, Outdated::Wait { until }) => self.look_at(until),
                (_, Outdated::Delete) => self.delete(&pool.namespace, name, secret),
            }
        }
        let stored = held_tokens.iter().find(|(name, _, _)| Some(*name) == current.as_ref());
        if let Some(config) = config {
            match stored {
                None => self.new_token(pool, config, token),
                Some((_, _, held)) => self.user_data(pool, config, held),
            }
        }
        let report = self.report(pool, stored.map(|(_, _, held)| *held));
        self.planned.reports.insert(pool.source.clone(), report);
    }

    /// The tokens of a pool that are stored.
    fn of_pool(&self, pool: &PoolProvision) -> impl Iterator<Item = (&'a String, &'a HeldSecret, &'a PoolToken)> {
        let (namespace, label) = (pool.namespace.clone(), label(&pool.name));
        self.situation.held.iter().filter_map(move |((held_in, name), secret)| match &secret.what {
            What::PoolToken(token) if *held_in == namespace && secret.pool == label => Some((name, secret, token)),
            _ => None,
        })
    }

    fn keep(
        &mut self,
        pool: &PoolProvision,
        name: &str,
        secret: &HeldSecret,
        held: &PoolToken,
        token: &dyn Fn() -> String,
    ) {
        let mut patch = json!({});
        match judge_current(&held.record, self.situation.now) {
            Current::Keep { until } => self.look_at(until),
            Current::Rotate { keep_old } => {
                use base64::Engine;
                let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
                let old = (keep_old && !held.token.is_empty()).then(|| encode(&held.token));
                patch["data"] = json!({"token": encode(&token()), "old_token": old});
                patch["metadata"]["annotations"][annotation::GENERATED] = json!(render_time(self.situation.now));
            }
        }
        // Of all inputs this one follows its cluster, as upstream has it.
        if held.configuration_hash != pool.configuration_hash {
            use base64::Engine;
            let hash = base64::engine::general_purpose::STANDARD.encode(&pool.configuration_hash);
            patch["data"][render::CONFIGURATION_HASH] = json!(hash);
        }
        if held.record.expires != Expiry::Open {
            patch["metadata"]["annotations"][annotation::EXPIRES] = Value::Null;
        }
        if patch != json!({}) {
            self.patch(&pool.namespace, name, secret, patch);
        }
    }

    fn new_token(&mut self, pool: &PoolProvision, config: &PoolConfig, token: &dyn Fn() -> String) {
        // First what it leads to.
        if self.situation.held.get(&pool.namespace, &config.payload).is_none() {
            return;
        }
        let Some(owner) = self.owner(&pool.source) else { return };
        let needs_bytes = pool.upgrade_type.as_deref() == Some("InPlace");
        if needs_bytes && config.packed.is_none() {
            self.planned.look_again = true;
            return;
        }
        let known = |hashed: Hashed| self.situation.hashes.get(&hashed).map(String::as_str);
        let place = |name: &String| (pool.namespace.clone(), name.clone());
        let nothing = hash_simple("");
        let hashes = render::Hashes {
            pull_secret: pool.pull_secret.as_ref().and_then(|name| known(Hashed::PullSecret(place(name)))),
            trust_bundle: match &pool.trust_bundle {
                None => Some(&nothing),
                Some(name) => known(Hashed::TrustBundle(place(name))),
            },
        };
        let object = render::pool_token(pool, config, &owner, &token(), hashes, self.situation.now);
        self.change(&pool.namespace, &names::token(&pool.name, &config.hash), Action::Create(object));
    }

    fn user_data(&mut self, pool: &PoolProvision, config: &PoolConfig, token: &PoolToken) {
        let Some(pointer) =
            self.situation.endpoint.and_then(|endpoint| render::pool_pointer(pool, config, endpoint, &token.token))
        else {
            return;
        };
        let Some(owner) = self.owner(&pool.source) else { return };
        let name = names::user_data(&pool.name, &config.hash);
        match self.situation.held.get(&pool.namespace, &name) {
            None => {
                let object = render::user_data(pool, config, &owner, &pointer);
                self.change(&pool.namespace, &name, Action::Create(object));
            }
            Some(held) => {
                let wanted = What::UserData { digest: sha256_hex(&pointer) };
                if held.what != wanted {
                    self.patch(&pool.namespace, &name, held, json!({"data": render::user_data_data(&pointer)}));
                }
            }
        }
    }

    fn report(&self, pool: &PoolProvision, stored: Option<&PoolToken>) -> PoolReport {
        let config = match &pool.config {
            Err(NoConfig::Pending) => ConfigReport::Pending,
            Err(NoConfig::Failed(why)) => ConfigReport::Failed(why.clone()),
            Ok(config) => ConfigReport::Ready {
                hash: config.hash.clone(),
                payload: config.payload.clone(),
                // A token that was taken back and made again changes no config.
                since: stored
                    .and_then(|_| self.situation.held.get(&pool.namespace, &config.payload))
                    .and_then(|payload| payload.created),
                message: render::message(&config.notes),
            },
        };
        PoolReport {
            config,
            reached: stored.is_some_and(|token| token.reached),
            has_endpoint: self.situation.endpoint.is_some(),
            release_version: pool.release_version.clone(),
            payloads: self.payloads_of(pool),
            replicas: self.service.replicas(&pool.source),
        }
    }

    /// Everything a machine of the pool may have fetched that is its present config.
    fn payloads_of(&self, pool: &PoolProvision) -> BTreeSet<String> {
        let hosts = self.situation.provision.hosts.iter().filter(|host| host.pool == pool.source);
        let mut payloads = BTreeSet::new();
        for payload in pool.config.iter().map(|config| &config.payload).chain(hosts.map(|host| &host.payload)) {
            if !payloads.contains(payload) {
                payloads.insert(payload.clone());
            }
        }
        payloads
    }

    /// Removes what nobody needs. What lost its pool or its host is the garbage collector's: a kind that cannot be read for a
    /// while must not look like one whose objects are gone.
    fn sweep(&mut self) {
        let Situation { provision, held, .. } = self.situation;
        let rendered = |pool: &&PoolProvision| pool.config.is_ok();
        let labels = |pools: &mut dyn Iterator<Item = &PoolProvision>| -> HashSet<String> {
            pools.map(|pool| label(&pool.name)).collect()
        };
        let good = labels(&mut provision.pools.iter().filter(rendered));
        let failing = labels(&mut provision.pools.iter().filter(|pool| !rendered(pool)));
        let wanted: HashSet<(&str, &str)> =
            provision.payloads.iter().map(|payload| (payload.namespace.as_str(), payload.name.as_str())).collect();
        let user_data: HashSet<(&str, String)> = provision
            .pools
            .iter()
            .filter_map(|pool| Some((pool, pool.config.as_ref().ok()?)))
            .map(|(pool, config)| (pool.namespace.as_str(), names::user_data(&pool.name, &config.hash)))
            .collect();
        let named: HashSet<(&str, &str)> = held
            .iter()
            .filter_map(|((namespace, _), secret)| match &secret.what {
                What::Overlay { payload, .. } => Some((namespace.as_str(), payload.as_str())),
                What::PoolToken(token) => Some((namespace.as_str(), token.payload.as_str())),
                _ => None,
            })
            .collect();
        for ((namespace, name), secret) in held.iter() {
            let of_good_pool = good.contains(&secret.pool) && !failing.contains(&secret.pool);
            let useless = match &secret.what {
                What::Payload => {
                    let place = (namespace.as_str(), name.as_str());
                    of_good_pool && !wanted.contains(&place) && !named.contains(&place)
                }
                // It went to a pool of another name, or its payload went with the pool.
                What::Overlay { payload, .. } => elsewhere(provision, namespace, name)
                    .is_some_and(|pool| held.get(namespace, payload).is_none_or(|payload| payload.pool != label(pool))),
                What::UserData { .. } => of_good_pool && !user_data.contains(&(namespace.as_str(), name.clone())),
                What::PoolToken(_) | What::Other => false,
            };
            if useless {
                self.delete(namespace, name, secret);
            }
        }
    }
}

/// The pool nobody declares that the host of this overlay says it is in.
fn elsewhere<'a>(provision: &'a Provision, namespace: &str, overlay: &str) -> Option<&'a String> {
    let host = overlay.strip_prefix("overlay-")?;
    let known = provision.elsewhere.get(&(namespace.to_owned(), host.to_owned()));
    // The name of the overlay of a host with a very long name does not say which it is.
    let is_cut = || overlay.len() >= names::SHORTEST_CUT;
    let mut all = provision.elsewhere.iter().filter(|_| known.is_none() && is_cut());
    known.or_else(|| {
        all.find(|((place, name), _)| place == namespace && names::overlay(name) == overlay).map(|(_, pool)| pool)
    })
}

/// The Host that stands for whatever declares it.
fn host_object(host: &HostProvision) -> ObjectId {
    ObjectId { kind: "Host".into(), ..host.host.clone() }
}

#[cfg(test)]
mod tests;
