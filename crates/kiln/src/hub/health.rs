//! Health of hosts: the condition `Healthy`, repairs that are wanted, and figures for each stage.
//!
//! Decisions are `kiln_core::health`'s. What was done stands in `status.provision.wanted` and in the timeline; how it is
//! done is [`repair`]'s.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use kiln_core::health::{Attempts, Health, HealthPolicy, judge_health, parse_budget, parse_duration, take_turns};
use kiln_core::timeline::{Entry, Moment, Stage};
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::{Client, Error};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::approval::fleet::{Member, View};
use super::controllers::cache::MANAGER;
use super::controllers::kinds::HOST;
use super::following::Place;
use super::mirror::{Condition, DRIVEN, Truth, render_conditions};
use super::pools::Endpoint;
use super::timeline::{now, parse_time, read_timeline, render_time, render_timeline};

pub mod repair;

/// How often hosts are looked at without a change: stages take minutes.
const TICK: Duration = Duration::from_secs(20);
/// Who repairs.
const WITNESS: &str = "health of hosts";
/// How many requests are under way at most.
const CONCURRENCY: usize = 16;
/// Bounds of how long a stage took, in seconds.
const BOUNDS: [i64; 11] = [10, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14_400];

/// Reads `spec.health` of a Pool. What cannot be understood is as if it were not written.
pub fn read_policy(written: &Value) -> HealthPolicy {
    let mut policy = HealthPolicy::default();
    for (stage, limit) in written["stages"].as_object().into_iter().flatten() {
        let limit = limit.as_str().and_then(|limit| parse_duration(limit).ok());
        if let (Ok(stage), Some(limit)) = (stage.parse::<Stage>(), limit) {
            policy.limit(stage, limit);
        }
    }
    let repair = &written["repair"];
    policy.remedy = repair["policy"].as_str().and_then(|remedy| remedy.parse().ok()).unwrap_or_default();
    if let Some(attempts) = repair["attempts"].as_u64() {
        policy.attempts = u32::try_from(attempts).unwrap_or(u32::MAX).min(100);
    }
    policy
}

/// What is counted about stages.
#[derive(Debug, Default)]
pub struct StageFigures {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiting: BTreeMap<Stage, u64>,
    durations: BTreeMap<Stage, Histogram>,
    repairs: BTreeMap<&'static str, u64>,
    furthest: HashMap<Place, (Stage, Moment)>,
}

#[derive(Debug, Clone, Default)]
struct Histogram {
    counts: [u64; BOUNDS.len() + 1],
    sum: i64,
}

impl StageFigures {
    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes a look at all hosts: who waits for what, and how long each took that came further since the last look.
    fn look(&self, looked: &[(&Member, Health)]) {
        self.with(|state| {
            state.waiting.clear();
            let mut furthest = HashMap::with_capacity(looked.len());
            for (member, health) in looked {
                health.missing().into_iter().for_each(|stage| *state.waiting.entry(stage).or_default() += 1);
                let Some(entry) = member.host.timeline.furthest() else { continue };
                let place = member.host.place.clone();
                if let Some((stage, time)) = state.furthest.get(&place)
                    && entry.stage > *stage
                {
                    let took = (entry.time.0 - time.0).max(0);
                    let histogram = state.durations.entry(entry.stage).or_default();
                    let at = BOUNDS.iter().position(|bound| took <= *bound).unwrap_or(BOUNDS.len());
                    histogram.counts.iter_mut().skip(at).take(1).for_each(|count| *count += 1);
                    histogram.sum += took;
                }
                furthest.insert(place, (entry.stage, entry.time));
            }
            state.furthest = furthest;
        });
    }

    /// In Prometheus' text format.
    pub fn render(&self) -> String {
        let mut text = String::from(
            "# HELP kiln_hosts_waiting Hosts by the stage they wait for.\n# TYPE kiln_hosts_waiting gauge\n",
        );
        self.with(|state| {
            for (stage, count) in &state.waiting {
                let _ = writeln!(text, "kiln_hosts_waiting{{stage=\"{stage}\"}} {count}");
            }
            text.push_str(
                "# HELP kiln_stage_duration_seconds How long hosts took to the stage from the one before.\n\
                 # TYPE kiln_stage_duration_seconds histogram\n",
            );
            for (stage, histogram) in &state.durations {
                let mut total = 0;
                for (index, count) in histogram.counts.iter().enumerate() {
                    total += count;
                    let bound = BOUNDS.get(index).map_or_else(|| "+Inf".to_owned(), i64::to_string);
                    let _ = writeln!(
                        text,
                        "kiln_stage_duration_seconds_bucket{{stage=\"{stage}\",le=\"{bound}\"}} {total}"
                    );
                }
                let _ = writeln!(text, "kiln_stage_duration_seconds_sum{{stage=\"{stage}\"}} {}", histogram.sum);
                let _ = writeln!(text, "kiln_stage_duration_seconds_count{{stage=\"{stage}\"}} {total}");
            }
            text.push_str("# HELP kiln_repairs_total Repairs of late hosts.\n# TYPE kiln_repairs_total counter\n");
            for (remedy, count) in &state.repairs {
                let _ = writeln!(text, "kiln_repairs_total{{remedy=\"{remedy}\"}} {count}");
            }
        });
        text
    }
}

/// How a host is now.
pub fn health_of(member: &Member, now: Moment) -> Health {
    let wanted = &member.host.wanted;
    let attempts = Attempts {
        made: wanted["attempt"].as_u64().and_then(|made| u32::try_from(made).ok()).unwrap_or_default(),
        last: wanted["since"].as_str().and_then(parse_time),
    };
    // Not every image has a witness: a host whose real root does not report has until its kubelet asks.
    let waited_for: Vec<Stage> = DRIVEN.iter().copied().filter(|stage| *stage != Stage::RealRoot).collect();
    judge_health(&member.host.timeline, &read_policy(&member.health), attempts, &waited_for, now)
}

/// How every host is now, with no more of a pool repaired at once than it allows.
fn judge(view: &View, now: Moment) -> Vec<(&Member, Health)> {
    let mut members: Vec<&Member> = view.members().collect();
    // The order decides whose turn it is.
    members.sort_by(|left, right| left.host.place.cmp(&right.host.place));
    let mut pools: BTreeMap<(&str, Option<&String>), Vec<&Member>> = BTreeMap::new();
    for member in members {
        pools.entry((member.host.place.0.as_str(), member.host.pool.as_ref())).or_default().push(member);
    }
    let mut looked = Vec::new();
    for members in pools.into_values() {
        let mut hosts: Vec<(Health, bool)> =
            members.iter().map(|member| (health_of(member, now), !member.host.wanted.is_null())).collect();
        let budget = members.first().and_then(|member| member.budget.as_deref());
        take_turns(&mut hosts, parse_budget(budget, members.len()));
        looked.extend(members.into_iter().zip(hosts.into_iter().map(|(health, _)| health)));
    }
    looked
}

/// The condition of a host.
pub fn condition(health: &Health, member: &Member) -> Condition {
    let truth = match health {
        Health::Healthy => Truth::True,
        Health::Waiting { .. } => Truth::Unknown,
        Health::Late { .. } | Health::Repair { .. } | Health::Queued { .. } | Health::GaveUp { .. } => Truth::False,
    };
    let until = match health {
        Health::Waiting { until: Some(until), .. } => format!(" until {}", render_time(*until)),
        _ => String::new(),
    };
    let advice = match health {
        Health::Healthy => None,
        _ => repair::advice(&member.host).map(|advice| format!("; {advice}")),
    };
    Condition::new("Healthy", truth, health.reason(), format!("{health}{until}{}", advice.unwrap_or_default()))
}

/// Looks after the hosts of each view. Never ends while there are views.
pub async fn attend(
    hub: &Client,
    mut views: watch::Receiver<Arc<View>>,
    figures: &StageFigures,
    endpoint: Option<&Endpoint>,
) {
    use futures::StreamExt;
    let mut tick = tokio::time::interval(TICK);
    loop {
        tokio::select! {
            changed = views.changed() => if changed.is_err() { return },
            _ = tick.tick() => {}
        }
        let view = Arc::clone(&views.borrow_and_update());
        let looked = judge(&view, now());
        figures.look(&looked);
        let due = looked.iter().filter(|(member, health)| must_write(member, health));
        // Made one by one: ten thousand that wait for their turn would hold a request each.
        let mut writes = Due { attendant: Attendant { hub, figures, endpoint }, due };
        let all = futures::stream::iter(std::iter::from_fn(move || writes.next()));
        all.buffer_unordered(CONCURRENCY).collect::<()>().await;
        // Stages take minutes: a burst of changes is looked at once.
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// The writes that are still to be begun.
struct Due<'a, I> {
    attendant: Attendant<'a>,
    due: I,
}

/// What a write needs.
#[derive(Clone, Copy)]
struct Attendant<'a> {
    hub: &'a Client,
    figures: &'a StageFigures,
    endpoint: Option<&'a Endpoint>,
}

impl<'a, I: Iterator<Item = &'a (&'a Member, Health)>> Due<'a, I> {
    fn next(&mut self) -> Option<BoxFuture<'a, ()>> {
        let (member, health) = self.due.next()?;
        Some(Box::pin(write(self.attendant, member, health)))
    }
}

fn must_write(member: &Member, health: &Health) -> bool {
    let wished = condition(health, member);
    let stands = member.host.healthy.as_deref();
    // Of a host that nobody has switched on there is nothing to say.
    if stands.is_none() && matches!(health, Health::Waiting { until: None, .. }) {
        return false;
    }
    let same = stands.is_some_and(|(truth, reason, message)| {
        (truth.as_str(), reason.as_str(), message.as_str())
            == (wished.truth.name(), &*wished.reason, wished.message.as_str())
    });
    let done = *health == Health::Healthy && !member.host.wanted.is_null();
    !same || done || matches!(health, Health::Repair { .. }) || repair::is_under_way(&member.host)
}

/// Does what is to be done and writes it with the revision it was decided for. What fails is decided again at the next look.
async fn write(attendant: Attendant<'_>, member: &Member, health: &Health) {
    let (namespace, name) = &member.host.place;
    if let Err(error) = try_write(attendant, member, health).await {
        let outdated = matches!(&error, Error::Api(status) if [404, 409].contains(&status.code));
        if !outdated {
            tracing::warn!(host = %format!("{namespace}/{name}"), %error, "its health was not written; it is tried again");
        }
    }
}

async fn try_write(attendant: Attendant<'_>, member: &Member, health: &Health) -> Result<(), Error> {
    let Attendant { hub, figures, endpoint } = attendant;
    let (namespace, name) = &member.host.place;
    let hosts: Api<DynamicObject> = Api::namespaced_with(hub.clone(), namespace, &HOST.resource());
    let object = hosts.get(name).await?;
    let status = &object.data["status"];
    if status["provision"]["wanted"] != member.host.wanted {
        // Somebody was faster; the watch will tell.
        return Ok(());
    }
    let extra = json!({"observedGeneration": object.metadata.generation});
    let conditions = render_conditions(&status["conditions"], &[condition(health, member)], now(), &extra);
    let mut patch = json!({"conditions": conditions});
    match health {
        Health::Healthy if !member.host.wanted.is_null() => {
            repair::clean_up(hub, &member.host).await?;
            patch["provision"] = json!({"wanted": null});
        }
        Health::Repair { stage, remedy, attempt } => {
            let done = repair::execute(hub, endpoint, &member.host, *remedy).await?;
            let cause = format!("{health}: {}", done.words);
            let mut timeline = read_timeline(status);
            timeline.merge(Entry::failed(*stage, now(), WITNESS, cause));
            patch["timeline"] = render_timeline(&timeline);
            let mut wanted = json!({"attempt": attempt, "since": render_time(now()), "stage": stage.name()});
            done.write(&mut wanted);
            patch["provision"] = json!({"wanted": wanted});
            tracing::info!(host = %format!("{namespace}/{name}"), attempt, "{health}: {}", done.words);
        }
        _ => {
            if let Some(state) = repair::follow_up(hub, &member.host, now()).await? {
                patch["provision"] = json!({"wanted": {"reboot": state}});
            }
        }
    }
    let patch = json!({"metadata": {"resourceVersion": object.metadata.resource_version}, "status": patch});
    hosts.patch_status(name, &parameters(), &Patch::Merge(patch)).await?;
    if let Health::Repair { remedy, .. } = health {
        figures.with(|state| *state.repairs.entry(remedy.name()).or_default() += 1);
    }
    Ok(())
}

pub(super) fn parameters() -> PatchParams {
    PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() }
}

#[cfg(test)]
mod tests {
    use kiln_core::health::Remedy;

    use super::super::approval::fleet::Fleet;
    use super::*;

    fn member(timeline: &Value, pool_health: &Value) -> Member {
        let mut fleet = Fleet::default();
        fleet.put("Pool", &json!({"metadata": {"name": "p", "namespace": "lab"}, "spec": {"health": pool_health}}));
        fleet.member_of(&json!({"metadata": {"name": "w0", "namespace": "lab"}, "spec": {"pool": "p"}, "status": {"timeline": timeline}}))
    }

    #[test]
    fn the_policy_of_the_pool_is_read_and_strange_words_are_left_out() {
        let policy = read_policy(
            &json!({"stages": {"ClientCSR": "5m", "Baked": "1m", "Ready": "soon"}, "repair": {"policy": "Repower", "attempts": 2}}),
        );
        let mut expected = HealthPolicy::default();
        (expected.remedy, expected.attempts) = (Remedy::Repower, 2);
        expected.limit(Stage::ClientCsr, 300);
        assert_eq!(policy, expected);
        assert_eq!(read_policy(&Value::Null), HealthPolicy::default());
    }

    #[test]
    fn a_late_host_says_so_and_time_is_counted_by_stage() {
        let fetched =
            json!([{"stage": "IgnitionFetched", "time": "2026-01-01T00:00:00Z", "source": "s", "cause": "c"}]);
        let host = member(
            &fetched,
            &json!({"stages": {"RealRoot": "1s", "ClientCSR": "59s"}, "repair": {"policy": "Reprovision"}}),
        );
        let then = |seconds: i64| Moment(parse_time("2026-01-01T00:00:00Z").unwrap().0 + seconds);
        let waits = condition(&health_of(&host, then(59)), &host);
        assert_eq!(
            (waits.truth, waits.message.as_str()),
            (Truth::Unknown, "waits for ClientCSR and has time until 2026-01-01T00:01:00Z")
        );
        let late = health_of(&host, then(60));
        assert_eq!(late, Health::Repair { stage: Stage::ClientCsr, remedy: Remedy::Reprovision, attempt: 1 });
        assert!(must_write(&host, &late));
        let figures = StageFigures::default();
        figures.look(&[(&host, late)]);
        let mut more = fetched;
        more.as_array_mut()
            .unwrap()
            .push(json!({"stage": "ClientCSR", "time": "2026-01-01T00:00:40Z", "source": "s", "cause": "c"}));
        let host = member(&more, &Value::Null);
        figures.look(&[(&host, health_of(&host, then(50)))]);
        let text = figures.render();
        assert!(text.contains("kiln_hosts_waiting{stage=\"Registered\"} 1\n"), "{text}");
        assert!(text.contains("kiln_stage_duration_seconds_sum{stage=\"ClientCSR\"} 40\n"), "{text}");
    }
}
