//! Day 2: the networks of running nodes, composed per host and given out in the right order by the leader.
//!
//! ```text
//! policies, Hosts, Nodes, Pools, slots, reports -> compose -> plan_rollout (pure) -> Secrets, Leases, enactments, statuses
//!        ^                                                                                |
//!        +----- agents, through any replica's /agent/v1/network (hub::node::agent) <------+
//! ```
//!
//! Everything that is known is in objects: what a host shall have is a Secret, who may be out is a Lease, what nodes said is
//! in their Host's status. A leader that begins knows what the one before knew.
//!
//! **Invariant:** a slot is given by making its Lease, and counts from then on; it is taken in the Lease before a node hears
//! of it. What the leader made it knows at once, not when its watch comes round.
//! **Invariant:** a policy whose status another controller writes is that controller's.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kiln_core::timeline::Moment;
use kube::Client;

use super::controllers::execute::{execute_objects, execute_statuses};
use super::controllers::looking::look;
use compose::Memo;
use plan::{Planned, plan_network};
use seen::Shared;
use slots::Slots;

pub mod compose;
pub mod figures;
pub mod plan;
pub mod records;
pub mod report;
pub mod seen;
mod slots;

/// Changes are gathered for so long.
const QUIET: Duration = Duration::from_millis(20);
/// The longest time without looking.
const PATROL: Duration = Duration::from_secs(30);
/// The longest wait before something that failed is tried again.
const LONGEST_RETRY: Duration = Duration::from_secs(30);

/// Keeps networks right for as long as this replica leads. Never ends.
pub(crate) async fn run(
    client: Client,
    shared: Arc<Shared>,
    clock: Arc<dyn Fn() -> Moment + Send + Sync>,
    figures: Arc<figures::Figures>,
) {
    let namespace = client.default_namespace().to_owned();
    let _reign = figures.begin();
    let mut memo = Memo::default();
    let mut failures = 0_u32;
    let mut wait = PATROL;
    loop {
        tokio::select! {
            () = shared.changed.notified() => {}
            () = tokio::time::sleep(wait) => {}
        }
        tokio::time::sleep(QUIET).await;
        let Some(seen) = shared.seen() else { continue };
        let (now, began) = (clock(), Instant::now());
        let mut memory = std::mem::take(&mut memo);
        let planned = look(move || {
            let planned = plan_network(&seen, &mut memory, now);
            (planned, plan::drifted(&seen), memory)
        });
        let Some((planned, drifted, memory)) = planned.await else {
            tracing::error!("the rollout of networks was not planned; the next change tries again");
            continue;
        };
        memo = memory;
        let took = began.elapsed();
        figures.rollout(&planned.rollout, drifted);
        let next = planned.next;
        let failed = execute(&client, &namespace, &shared, planned, now).await;
        wait = next.map_or(PATROL, |next| {
            Duration::from_secs(next.0.saturating_sub(clock().0).max(0).unsigned_abs()).min(PATROL)
        });
        failures = if failed == 0 { 0 } else { failures + 1 };
        if failures > 0 {
            wait = (Duration::from_millis(100) * 2_u32.saturating_pow(failures.min(16))).min(LONGEST_RETRY);
        }
        wait = wait.max(QUIET);
        // However fast things change, most of the time is left to others.
        tokio::time::sleep(took * 3).await;
    }
}

/// Carries it out. Says how much did not work.
async fn execute(client: &Client, namespace: &str, shared: &Shared, planned: Planned, now: Moment) -> usize {
    let Planned { releases, changes, grants, statuses, uncertain, lost, next: _, rollout: _ } = planned;
    let mut failed = 0;
    let slots = Slots { client, namespace, shared };
    for (host, holder, seconds) in &grants {
        failed += usize::from(!slots.give(host, holder, now, *seconds).await);
    }
    for record in &uncertain {
        let seconds = record.slot.expires.0 - record.slot.renewed.0;
        failed += usize::from(!slots.give(&record.slot.node, &record.slot.holder, now, seconds).await);
    }
    for (record, why) in &releases {
        failed += usize::from(!slots.end(record, *why).await);
    }
    for record in &lost {
        slots.verify(record).await;
    }
    let made = execute_objects(client, changes).await;
    let written = execute_statuses(client, statuses).await;
    for done in [made, written] {
        failed += done.failed + done.outdated;
    }
    failed
}
