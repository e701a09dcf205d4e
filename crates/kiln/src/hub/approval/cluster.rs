//! One cluster: its requests and Nodes are watched, judged and acted upon. No other cluster waits for it.
//!
//! What was decided is written on the Host first and carried out on the cluster then: if the hub dies in between, the
//! next look finds the same request undecided and the same verdict written, and carries it out. The Host is read anew
//! for each approval and written with its revision, so that two requests never count as the first of a generation.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::future::BoxFuture;
use kiln_core::certificate_request::{Claim, ClusterFacts, Current, Pending, Verdict, judge, needs_current};
use kiln_core::timeline::{Entry, Outcome};
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::runtime::watcher::{self, Event};
use kube::{Client, Error};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::bootstrap::{self, Users};
use super::connect::Connected;
use super::fleet::{Member, Target, View};
use super::nodes::plan_node;
use super::recorded::{Recorded, add, read_recorded, render_recorded};
use super::requests::{Asked, NodeRecord, read_node, read_request, stage_of};
use super::{Approver, answered, as_value, is_absent};
use crate::hub::controllers::cache::MANAGER;
use crate::hub::controllers::kinds::{CERTIFICATE_REQUEST, HOST, NODE, Watched};
use crate::hub::following::Place;
use crate::hub::timeline::{now, record, render_time};

/// Requests that are remembered. Of more, only those of declared hosts are.
const MOST_REQUESTS: usize = 20_000;
/// How often everything is looked at again without a change.
const TICK: Duration = Duration::from_secs(30);
/// Changes are gathered for so long.
const QUIET: Duration = Duration::from_millis(50);
/// How long what a kubelet served is believed.
const SERVED_FOR: Duration = Duration::from_secs(60);
/// Denials of one host that are written down within a minute; what is more is denied all the same and counted.
const TOLD_PER_MINUTE: usize = 6;
/// How often a write is tried again when somebody else was faster.
const TRIES: usize = 8;
/// Failures of watches in a row until the way to the cluster is looked for anew.
const MOST_FAILURES: u32 = 4;
/// How many requests are under way at most.
const CONCURRENCY: usize = 16;

/// What the watches of a cluster saw.
#[derive(Default)]
struct Seen {
    requests: BTreeMap<String, Asked>,
    nodes: BTreeMap<String, NodeRecord>,
    requests_read: bool,
    nodes_read: bool,
}

/// What was done, so that it is not done again.
#[derive(Default)]
struct Memory {
    /// The last verdict told of each request that waits.
    told: HashMap<String, Verdict>,
    /// The revision a request had when it was approved or denied.
    decided: HashMap<String, (String, Instant)>,
    /// What the kubelets of nodes served.
    served: HashMap<String, (Instant, Current)>,
    denials: HashMap<Place, VecDeque<Instant>>,
    users: Users,
}

impl Memory {
    fn forget(&mut self, seen: &Seen) {
        self.told.retain(|name, _| seen.requests.contains_key(name));
        self.decided.retain(|name, _| seen.requests.contains_key(name));
        self.served.retain(|_, (time, _)| time.elapsed() < SERVED_FOR);
        self.denials.retain(|_, times| times.iter().any(|time| time.elapsed() < Duration::from_secs(60)));
    }

    /// Whether there is nothing new to say of a request.
    fn is_done(&self, asked: &Asked, verdict: &Verdict) -> bool {
        let name = &asked.request.name;
        let just_now = |(revision, time): &(String, Instant)| *revision == asked.revision && time.elapsed() < TICK;
        self.told.get(name) == Some(verdict) || self.decided.get(name).is_some_and(just_now)
    }

    fn may_tell(&mut self, place: &Place) -> bool {
        let times = self.denials.entry(place.clone()).or_default();
        times.retain(|time| time.elapsed() < Duration::from_secs(60));
        let free = times.len() < TOLD_PER_MINUTE;
        if free {
            times.push_back(Instant::now());
        }
        free
    }
}

/// Attends to a cluster until its kubeconfig changes or it stops answering.
pub async fn attend(
    approver: &Approver,
    target: &Target,
    connected: &Connected,
    views: &mut watch::Receiver<Arc<View>>,
) {
    let requests = watch_kind(&connected.client, &CERTIFICATE_REQUEST);
    let nodes = watch_kind(&connected.client, &NODE);
    let (mut requests, mut nodes) = (pin!(requests), pin!(nodes));
    let (mut seen, mut memory) = (Seen::default(), Memory::default());
    let mut tick = tokio::time::interval(TICK);
    let mut listed = (Vec::new(), Vec::new());
    let mut failures = 0;
    while failures < MOST_FAILURES {
        // Everything that is there already is taken before anybody judges.
        let due = tokio::select! {
            event = requests.next() => match event {
                Some(Ok(event)) => take_request(event, &mut seen, &mut listed.0, &views.borrow(), target),
                other => interrupted(other.and_then(Result::err), target, &mut failures).await,
            },
            event = nodes.next() => match event {
                Some(Ok(event)) => take_node(event, &mut seen, &mut listed.1),
                other => interrupted(other.and_then(Result::err), target, &mut failures).await,
            },
            changed = views.changed() => match changed {
                Ok(()) => true,
                Err(_) => return,
            },
            _ = tick.tick() => {
                let current = approver.connect.version(target).await;
                if current.is_some_and(|current| current != connected.version) {
                    tracing::info!(cluster = %target, "the kubeconfig has changed");
                    return;
                }
                true
            }
        };
        if due && seen.requests_read && seen.nodes_read {
            failures = 0;
            tokio::time::sleep(QUIET).await;
            let view = Arc::clone(&views.borrow_and_update());
            drain(&mut requests, &mut nodes, &mut seen, &mut listed, &view, target);
            look(approver, target, connected, &view, &seen, &mut memory).await;
        }
    }
}

/// A watch that fails begins anew by itself; when that goes on, the way to the cluster is looked for anew.
async fn interrupted(error: Option<watcher::Error>, target: &Target, failures: &mut u32) -> bool {
    *failures += 1;
    match error {
        Some(error) if is_absent(&error) => {
            tracing::warn!(cluster = %target, %error, "the cluster does not let its requests or Nodes be read");
            *failures = MOST_FAILURES;
        }
        Some(error) if *failures >= MOST_FAILURES => {
            tracing::warn!(cluster = %target, %error, "the cluster does not answer; it is asked again");
        }
        _ => tokio::time::sleep(QUIET * *failures * 4).await,
    }
    false
}

/// Takes what the watches have ready, without waiting.
fn drain<'a>(
    requests: &mut std::pin::Pin<
        &mut (impl futures::Stream<Item = Result<Event<DynamicObject>, watcher::Error>> + Send + 'a),
    >,
    nodes: &mut std::pin::Pin<
        &mut (impl futures::Stream<Item = Result<Event<DynamicObject>, watcher::Error>> + Send + 'a),
    >,
    seen: &mut Seen,
    listed: &mut (Vec<String>, Vec<String>),
    view: &View,
    target: &Target,
) {
    use futures::FutureExt;
    // An error comes again when the watch is asked the next time.
    while let Some(Some(Ok(event))) = requests.next().now_or_never() {
        take_request(event, seen, &mut listed.0, view, target);
    }
    while let Some(Some(Ok(event))) = nodes.next().now_or_never() {
        take_node(event, seen, &mut listed.1);
    }
}

fn watch_kind(
    client: &Client,
    kind: &Watched,
) -> impl futures::Stream<Item = Result<Event<DynamicObject>, watcher::Error>> + Send + use<> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &kind.resource());
    watcher::watcher(api, watcher::Config::default())
}

fn take_request(
    event: Event<DynamicObject>,
    seen: &mut Seen,
    listed: &mut Vec<String>,
    view: &View,
    target: &Target,
) -> bool {
    match event {
        Event::Init => listed.clear(),
        Event::InitApply(object) => {
            let asked = read_request(&as_value(object));
            listed.push(asked.request.name.clone());
            keep(asked, seen, view, target);
        }
        Event::InitDone => {
            listed.sort();
            seen.requests.retain(|name, _| listed.binary_search(name).is_ok());
            listed.clear();
            seen.requests_read = true;
        }
        Event::Apply(object) => keep(read_request(&as_value(object)), seen, view, target),
        Event::Delete(object) => drop(seen.requests.remove(&object.metadata.name.unwrap_or_default())),
    }
    seen.requests_read
}

fn keep(asked: Asked, seen: &mut Seen, view: &View, target: &Target) {
    let hosts = view.clusters.get(target);
    let of_host = asked.request.claimed_node().is_some_and(|node| hosts.is_some_and(|hosts| hosts.contains_key(node)));
    if of_host || seen.requests.len() < MOST_REQUESTS {
        seen.requests.insert(asked.request.name.clone(), asked);
    }
}

fn take_node(event: Event<DynamicObject>, seen: &mut Seen, listed: &mut Vec<String>) -> bool {
    match event {
        Event::Init => listed.clear(),
        Event::InitApply(object) => {
            let name = object.metadata.name.clone().unwrap_or_default();
            listed.push(name.clone());
            seen.nodes.insert(name, read_node(&as_value(object)));
        }
        Event::InitDone => {
            listed.sort();
            seen.nodes.retain(|name, _| listed.binary_search(name).is_ok());
            listed.clear();
            seen.nodes_read = true;
        }
        Event::Apply(object) => {
            let name = object.metadata.name.clone().unwrap_or_default();
            let node = read_node(&as_value(object));
            // A kubelet reports every few seconds; only what is asked about counts.
            let same = |before: &NodeRecord| NodeRecord { revision: node.revision.clone(), ..before.clone() } == node;
            let changed = !seen.nodes.get(&name).is_some_and(same);
            seen.nodes.insert(name, node);
            return changed && seen.nodes_read;
        }
        Event::Delete(object) => drop(seen.nodes.remove(&object.metadata.name.unwrap_or_default())),
    }
    seen.nodes_read
}

/// Looks at everything once.
async fn look(
    approver: &Approver,
    target: &Target,
    connected: &Connected,
    view: &View,
    seen: &Seen,
    memory: &mut Memory,
) {
    let none = HashMap::new();
    let hosts = view.clusters.get(target).unwrap_or(&none);
    memory.forget(seen);
    let members = hosts.values().flatten().map(|member| &**member);
    bootstrap::attend(approver, connected, members, &mut memory.users).await;
    let mut witnessed: Vec<BoxFuture<'_, ()>> = Vec::new();
    let mut dialled: BTreeMap<&str, &Member> = BTreeMap::new();
    for asked in seen.requests.values() {
        let [member] = members_of(hosts, asked) else { continue };
        witnessed.push(Box::pin(witness(approver, member, asked)));
        let node = member.facts.node.as_str();
        if needs_current(&asked.request, &member.facts) && !memory.served.contains_key(node) {
            dialled.insert(node, member);
        }
    }
    each(witnessed).await;
    let mut dials: Vec<BoxFuture<'_, (String, Current)>> = Vec::new();
    for member in dialled.into_values() {
        dials.push(Box::pin(dial(approver, connected, member)));
    }
    for (node, current) in each(dials).await {
        memory.served.insert(node, (Instant::now(), current));
    }
    each(act_on_all(approver, connected, hosts, seen, memory)).await.into_iter().for_each(|(asked, done)| {
        let name = asked.request.name.clone();
        match done {
            Ok(verdict) => {
                approver.figures.verdict(&verdict);
                match verdict {
                    Verdict::Approve { .. } | Verdict::Deny { .. } => {
                        memory.decided.insert(name, (asked.revision.clone(), Instant::now()));
                    }
                    Verdict::Hold { .. } | Verdict::Leave { .. } => drop(memory.told.insert(name, verdict)),
                }
            }
            Err(error) => {
                approver.figures.failure();
                tracing::warn!(cluster = %target, request = name, %error, "not carried out; it is tried again");
            }
        }
    });
    let mut nodes: Vec<BoxFuture<'_, ()>> = Vec::new();
    for (name, node) in &seen.nodes {
        if let Some([member]) = hosts.get(name).map(Vec::as_slice) {
            nodes.push(Box::pin(registered(approver, connected, member, name, node)));
        }
    }
    each(nodes).await;
}

type Hosts = HashMap<String, Vec<Arc<Member>>>;

/// The hosts a request may claim to be.
fn members_of<'v>(hosts: &'v Hosts, asked: &Asked) -> &'v [Arc<Member>] {
    let members = asked.request.claimed_node().and_then(|node| hosts.get(node));
    members.map_or(&[][..], Vec::as_slice)
}

type Acted<'a> = (&'a Asked, Result<Verdict, Error>);

/// Judges everything that waits; gives what must be done about what has changed.
fn act_on_all<'a>(
    approver: &'a Approver,
    connected: &'a Connected,
    hosts: &'a Hosts,
    seen: &'a Seen,
    memory: &mut Memory,
) -> Vec<BoxFuture<'a, Acted<'a>>> {
    let mut pending: HashMap<&str, Vec<Pending>> = HashMap::new();
    for asked in seen.requests.values() {
        if let (Some(node), Some(waits)) = (asked.request.claimed_node(), asked.pending()) {
            pending.entry(node).or_default().push(waits);
        }
    }
    let mut acts: Vec<BoxFuture<'a, Acted<'a>>> = Vec::new();
    for asked in seen.requests.values().filter(|asked| !asked.request.decided) {
        let node = asked.request.claimed_node();
        let members = members_of(hosts, asked);
        let claim = match members {
            [] => Claim::Nobody,
            [member] => Claim::Host(&member.facts),
            _ => Claim::Several,
        };
        let looked = members.first().filter(|member| needs_current(&asked.request, &member.facts));
        let served = looked.and_then(|member| memory.served.get(&member.facts.node));
        let facts = ClusterFacts {
            node: node.and_then(|node| seen.nodes.get(node)).map(|node| node.facts),
            pending: node.and_then(|node| pending.get(node)).cloned().unwrap_or_default(),
            current: served.map_or(Current::Unknown, |(_, served)| served.clone()),
        };
        let verdict = judge(&asked.request, claim, &facts, now());
        if memory.is_done(asked, &verdict) {
            continue;
        }
        match (members, &verdict) {
            ([member], Verdict::Approve { .. } | Verdict::Deny { .. } | Verdict::Hold { .. }) => {
                let tell = !matches!(verdict, Verdict::Deny { .. }) || memory.may_tell(&member.host.place);
                acts.push(Box::pin(
                    async move { (asked, act(approver, connected, member, asked, &facts, tell).await) },
                ));
            }
            _ => {
                approver.figures.verdict(&verdict);
                memory.told.insert(asked.request.name.clone(), verdict);
            }
        }
    }
    acts
}

/// Carries out all of them, some at a time.
pub(super) async fn each<T>(work: Vec<BoxFuture<'_, T>>) -> Vec<T> {
    futures::stream::iter(work).buffer_unordered(CONCURRENCY).collect().await
}

/// What the kubelet serves, asked at declared addresses only.
async fn dial(approver: &Approver, connected: &Connected, member: &Member) -> (String, Current) {
    let facts = &member.facts;
    let witnessed = facts.provision.as_ref().and_then(|provision| provision.source).filter(|_| facts.dynamic);
    let addresses = facts.declared.addresses.iter().copied().chain(witnessed).collect();
    (facts.node.clone(), approver.kubelet.current(&facts.node, addresses, &connected.authorities).await)
}

/// Judges once more by the newest state of the host, writes the verdict down and carries it out.
async fn act(
    approver: &Approver,
    connected: &Connected,
    member: &Member,
    asked: &Asked,
    facts: &ClusterFacts,
    tell: bool,
) -> Result<Verdict, Error> {
    let place = &member.host.place;
    let hosts: Api<DynamicObject> = Api::namespaced_with(approver.hub.clone(), &place.0, &HOST.resource());
    let mut tries = 0;
    let verdict = loop {
        let object = as_value(answered(hosts.get(&place.1)).await?);
        let fresh = approver.fleet.with(|fleet| fleet.member_of(&object));
        let time = now();
        let verdict = judge(&asked.request, Claim::Host(&fresh.facts), facts, time);
        let generation = fresh.facts.provision.as_ref().map_or(0, |provision| provision.generation);
        let new = Recorded::of(&asked.request, &verdict, generation, time);
        let recorded = read_recorded(&object["status"]);
        let known = recorded.iter().any(|old| old.says_the_same(&new));
        // What is approved is always written down: the next request is judged by it.
        let silent = !tell && matches!(verdict, Verdict::Deny { .. });
        if matches!(verdict, Verdict::Leave { .. }) || known || silent {
            break verdict;
        }
        let patch = json!({
            "metadata": {"resourceVersion": object["metadata"]["resourceVersion"]},
            "status": {"certificates": render_recorded(&add(recorded, new))},
        });
        match answered(hosts.patch_status(&place.1, &parameters(), &Patch::Merge(patch))).await {
            Err(Error::Api(status)) if status.code == 409 && tries < TRIES => tries += 1,
            Err(error) => return Err(error),
            Ok(_) => {
                told(approver, member, asked, &verdict).await;
                break verdict;
            }
        }
    };
    match &verdict {
        Verdict::Approve { check, message } => {
            decide(connected, asked, "Approved", "KilnApproved", &format!("{check}: {message}")).await?;
        }
        Verdict::Deny { check, message } => {
            decide(connected, asked, "Denied", "KilnDenied", &format!("{check}: {message}")).await?;
        }
        Verdict::Hold { .. } | Verdict::Leave { .. } => {}
    }
    Ok(verdict)
}

/// Log, Event and, for a denial, the timeline. That they are lost changes nothing.
async fn told(approver: &Approver, member: &Member, asked: &Asked, verdict: &Verdict) {
    let (namespace, name) = &member.host.place;
    let request = &asked.request.name;
    tracing::info!(host = %format!("{namespace}/{name}"), request, check = %verdict.check(), "{}: {}", verdict.name(), verdict.message());
    if !matches!(verdict, Verdict::Deny { .. }) {
        return;
    }
    if let Some(stage) = stage_of(&asked.request.signer) {
        let cause = format!("{}: {}", verdict.check(), verdict.message());
        let entry = Entry::failed(stage, now(), asked.source(), cause);
        if let Err(error) = record(&approver.hub, namespace, name, &entry).await {
            tracing::debug!(%error, "a denial is missing from a timeline");
        }
    }
    let time = render_time(now());
    let event = json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"generateName": format!("{name}."), "namespace": namespace},
        "involvedObject": {"apiVersion": HOST.api_version(), "kind": HOST.kind, "namespace": namespace, "name": name, "uid": member.host.uid},
        "type": "Warning", "reason": "CertificateDenied", "source": {"component": "kiln"},
        "message": format!("request {request}: {}: {}", verdict.check(), verdict.message()),
        "firstTimestamp": time, "lastTimestamp": time, "count": 1,
    });
    let events = ApiResource {
        group: String::new(),
        version: "v1".into(),
        api_version: "v1".into(),
        kind: "Event".into(),
        plural: "events".into(),
    };
    let api: Api<DynamicObject> = Api::namespaced_with(approver.hub.clone(), namespace, &events);
    if let Ok(event) = serde_json::from_value(event) {
        let _ = answered(api.create(&kube::api::PostParams::default(), &event)).await;
    }
}

/// Puts a condition on the request, unless somebody has decided since.
async fn decide(connected: &Connected, asked: &Asked, kind: &str, reason: &str, message: &str) -> Result<(), Error> {
    let api: Api<DynamicObject> = Api::all_with(connected.client.clone(), &CERTIFICATE_REQUEST.resource());
    let mut conditions = asked.conditions.as_array().cloned().unwrap_or_default();
    let time = render_time(now());
    conditions.push(json!({"type": kind, "status": "True", "reason": reason, "message": message,
        "lastUpdateTime": time, "lastTransitionTime": time}));
    let patch = json!({"metadata": {"resourceVersion": asked.revision}, "status": {"conditions": conditions}});
    let name = &asked.request.name;
    match answered(api.patch_subresource("approval", name, &parameters(), &Patch::Merge(patch))).await {
        Ok(_) => Ok(()),
        // Gone or changed meanwhile: the watch brings what is left to decide.
        Err(Error::Api(status)) if [404, 409, 410].contains(&status.code) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Writes down that a request was approved, by whomever, and when its certificate ends.
async fn witness(approver: &Approver, member: &Member, asked: &Asked) {
    let (namespace, name) = &member.host.place;
    if let Some(entry) = asked.entry().filter(|entry| !is_known(member, entry))
        && let Err(error) = record(&approver.hub, namespace, name, &entry).await
    {
        tracing::debug!(%error, "an approval is missing from a timeline; it is tried again");
    }
    let Some(ends) = asked.ends else { return };
    let open = |recorded: &&Recorded| recorded.request == asked.request.name && recorded.ends.is_none();
    if !member.host.recorded.iter().any(|recorded| open(&recorded)) {
        return;
    }
    let hosts: Api<DynamicObject> = Api::namespaced_with(approver.hub.clone(), namespace, &HOST.resource());
    let Ok(object) = answered(hosts.get(name)).await.map(as_value) else { return };
    let mut recorded = read_recorded(&object["status"]);
    let Some(open) = recorded.iter_mut().find(|recorded| open(&&**recorded)) else { return };
    open.ends = Some(ends);
    let patch = json!({"metadata": {"resourceVersion": object["metadata"]["resourceVersion"]},
        "status": {"certificates": render_recorded(&recorded)}});
    // Somebody was faster: the next look tries again.
    let _ = answered(hosts.patch_status(name, &parameters(), &Patch::Merge(patch))).await;
}

/// A Node is there: timeline, labels and taints.
async fn registered(approver: &Approver, connected: &Connected, member: &Member, name: &str, node: &NodeRecord) {
    let (namespace, host) = &member.host.place;
    for entry in node.entries(name).into_iter().filter(|entry| !is_known(member, entry)) {
        if let Err(error) = record(&approver.hub, namespace, host, &entry).await {
            tracing::debug!(%error, "a Node is missing from a timeline; it is tried again");
        }
    }
    let Some(patch) = plan_node(node, &member.labels, &member.taints) else { return };
    if member.facts.mode == kiln_core::certificate_request::Mode::Observe {
        return;
    }
    let api: Api<DynamicObject> = Api::all_with(connected.client.clone(), &NODE.resource());
    match answered(api.patch(name, &parameters(), &Patch::Merge(patch))).await {
        Ok(_) => tracing::info!(node = name, "labels and taints as declared"),
        Err(Error::Api(status)) if [404, 409].contains(&status.code) => {}
        Err(error) => {
            approver.figures.failure();
            tracing::warn!(node = name, %error, "labels and taints were not taken; it is tried again");
        }
    }
}

fn is_known(member: &Member, entry: &Entry) -> bool {
    let known = member.host.timeline.entries().iter();
    known.into_iter().any(|known| {
        known.outcome == Outcome::Reached
            && (known.stage, known.time, &known.source) == (entry.stage, entry.time, &entry.source)
    })
}

fn parameters() -> PatchParams {
    PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() }
}

/// The annotation of a Host for whose requests a person vouches, with one more.
pub fn vouch(known: &str, request: &str) -> Value {
    let mut names: Vec<&str> =
        known.split(',').map(str::trim).filter(|name| !name.is_empty() && *name != request).collect();
    names.push(request);
    // Old ones have been decided long ago.
    let from = names.len().saturating_sub(8);
    json!(names.get(from..).unwrap_or_default().join(","))
}
