//! Which hosts of each pool are in service: those it has, takes or lets go, by [`kiln_core::replicas`].
//!
//! A host is in service while its overlay is stored: that is what a machine needs to get a config, so nothing else says
//! the same a second time. Taking a host is making its overlay; letting it go ends with removing it, see
//! [`super::release`].

use std::collections::{BTreeMap, HashMap};

use kiln_core::diagnostic::ObjectId;
use kiln_core::provision::{PoolProvision, names};
use kiln_core::replicas::{Candidate, Fate, HOLD, MARK, choose};
use kiln_core::timeline::{Moment, Stage};

use super::held::What;
use super::plan::Situation;
use super::release::Release;
use super::report::{OutOfService, Replicas};

/// Namespace and name.
type Place<'a> = (&'a str, &'a str);

/// What becomes of the hosts of pools that say how many they have.
#[derive(Debug, Default)]
pub struct Service<'a> {
    fates: HashMap<Place<'a>, Fate<'a>>,
    pools: HashMap<&'a ObjectId, Replicas>,
    /// Hosts that go.
    pub releases: Vec<Release>,
}

impl<'a> Service<'a> {
    /// Decides about every host of these pools.
    pub fn decide(situation: &Situation<'a>) -> Service<'a> {
        let mut service = Service::default();
        let counted: Vec<(&PoolProvision, u32)> =
            situation.provision.pools.iter().filter_map(|pool| Some((pool, pool.replicas?))).collect();
        if counted.is_empty() {
            return service;
        }
        let mut by_pool: HashMap<&ObjectId, Vec<Member<'a>>> = HashMap::new();
        for member in members(situation) {
            by_pool.entry(member.pool).or_default().push(member);
        }
        for (pool, wanted) in counted {
            let members = by_pool.remove(&pool.source).unwrap_or_default();
            service.decide_pool(situation, pool, wanted, &members);
        }
        service
    }

    fn decide_pool(&mut self, situation: &Situation<'a>, pool: &'a PoolProvision, wanted: u32, members: &[Member<'a>]) {
        let taken = members.iter().filter(|member| member.candidate.taken).count();
        let mut hosts: Vec<Candidate> = members.iter().map(|member| member.candidate.clone()).collect();
        // Who is ready matters only to whoever must let go.
        if taken as u64 > u64::from(wanted) {
            hosts.iter_mut().for_each(|host| host.ready = is_ready(situation, host.place));
        }
        let fates = choose(Some(wanted), &hosts);
        let in_service = fates.iter().filter(|fate| **fate == Fate::InService).count();
        let mut others = BTreeMap::new();
        for (member, fate) in members.iter().zip(fates) {
            let place = member.candidate.place;
            self.fates.insert(place, fate);
            if fate == Fate::InService {
                continue;
            }
            let problem = situation.problems.get(&(place.0.to_owned(), place.1.to_owned()));
            let out = OutOfService { reason: fate.reason(), message: message(fate, pool, wanted, problem) };
            others.insert((place.0.to_owned(), place.1.to_owned()), out);
            if fate == Fate::Released {
                self.releases.extend(release(situation, member, pool, wanted));
            }
        }
        self.pools.insert(&pool.source, Replicas { wanted, in_service, others });
    }

    /// Whether a host gets an overlay.
    pub fn has(&self, host: &'a ObjectId) -> bool {
        let fate = self.fates.get(&(host.namespace.as_str(), host.name.as_str()));
        fate.is_none_or(|fate| *fate == Fate::InService)
    }

    /// What is to be said of a pool.
    pub fn replicas(&self, pool: &ObjectId) -> Option<Replicas> {
        self.pools.get(pool).cloned()
    }
}

/// A host of a pool.
struct Member<'a> {
    pool: &'a ObjectId,
    /// Empty when it is not known.
    node: &'a str,
    candidate: Candidate<'a>,
}

/// Every host of a declared pool, also one whose overlay cannot be made: it may have one.
fn members<'a>(situation: &Situation<'a>) -> impl Iterator<Item = Member<'a>> {
    let &Situation { provision, held, cache, .. } = situation;
    let candidate = |place: Place<'a>, created: Option<Moment>| {
        let overlay = held.get(place.0, &names::overlay(place.1));
        Candidate {
            place,
            taken: overlay.is_some_and(|overlay| matches!(overlay.what, What::Overlay { .. })),
            marked: false,
            held: None,
            error: provision.errors.get(&(place.0.to_owned(), place.1.to_owned())).map(String::as_str),
            ready: false,
            created: created.unwrap_or(Moment(i64::MAX)),
        }
    };
    let known = provision.hosts.iter().map(move |host| {
        let id = &host.host;
        let created = cache.get(&id.kind, &id.namespace, &id.name).map(|item| item.created);
        let candidate = candidate((&id.namespace, &id.name), created);
        let candidate = Candidate { marked: host.marked, held: host.held.as_deref(), ..candidate };
        Member { pool: &host.pool, node: &host.node, candidate }
    });
    let waiting = provision.waiting.iter().map(move |((namespace, name), pool)| {
        let error = Some("its config cannot be made; the pool and `kiln check` say why");
        let candidate = candidate((namespace, name), None);
        Member { pool, node: "", candidate: Candidate { error: candidate.error.or(error), ..candidate } }
    });
    known.chain(waiting)
}

fn is_ready(situation: &Situation<'_>, place: Place<'_>) -> bool {
    let item = situation.cache.get("Host", place.0, place.1);
    item.is_some_and(|item| item.value()["status"]["stage"] == Stage::Ready.name())
}

/// None for a host that is not known well enough: the next look may tell.
fn release(situation: &Situation<'_>, member: &Member<'_>, pool: &PoolProvision, wanted: u32) -> Option<Release> {
    let (namespace, name) = member.candidate.place;
    let overlay = names::overlay(name);
    let held = situation.held.get(namespace, &overlay)?;
    Some(Release {
        namespace: namespace.to_owned(),
        host: name.to_owned(),
        node: Some(member.node).filter(|node| !node.is_empty())?.to_owned(),
        pool: pool.source.clone(),
        replicas: wanted,
        uid: held.uid.clone(),
        revision: held.revision.clone(),
        overlay,
        since: held.created,
    })
}

fn message(fate: Fate<'_>, pool: &PoolProvision, wanted: u32, problem: Option<&String>) -> String {
    let (kind, name) = (pool.source.kind.to_lowercase(), &pool.name);
    match fate {
        Fate::InService => String::new(),
        Fate::Full => format!(
            "the pool has the {wanted} hosts it says; `kubectl scale {kind} {name} --replicas={}` takes another",
            wanted.saturating_add(1)
        ),
        Fate::Held("") => format!("it is held by the annotation {HOLD}"),
        Fate::Held(why) => format!("it is held by the annotation {HOLD}: {why}"),
        Fate::Invalid(error) => error.to_owned(),
        Fate::Marked => format!("it is marked with {MARK} and is not taken until the annotation goes"),
        Fate::Released => {
            let so_far = problem.map_or_else(String::new, |problem| format!(", which did not work yet: {problem}"));
            format!("the pool was scaled to {wanted}: its token is revoked, its Node drained and deleted{so_far}")
        }
    }
}
