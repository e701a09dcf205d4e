//! Day 2: the files, units and kernel arguments of running nodes, given out in the right order by the leader.
//!
//! ```text
//! pools: payload + overlay of each host -> Wishes -+
//! watches of hub::network: Hosts, slots, Secrets --+-> plan_machines (pure) -> Secrets, statuses, Nodes emptied and reopened
//!        ^                                                                        |
//!        +----- agents, through any replica's /agent/v1/machine (hub::node::machine) <---+
//! ```
//!
//! What a node shall have is exactly what a new machine in its place would fetch. Who may be out is decided where the network's
//! slots are decided ([`super::network`]), from one budget: here a slot is only asked for.
//!
//! **Invariant:** everything that is known is in objects; a leader that begins knows what the one before knew.
//! **Invariant:** pods leave by the cluster's own eviction: what a PodDisruptionBudget protects is waited for.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use kiln_core::assignment::Permit;
use kiln_core::timeline::Moment;
use kube::Client;

use super::approval::connect::BySecret;
use super::controllers::Shared;
use super::controllers::execute::{execute_objects, execute_statuses};
use super::controllers::looking::look;
use super::network::seen;
use super::pools::Settings;
use drain::{Deed, Nodes};
use plan::{Emptying, Freeing, Planned, WINDOW, assignment, plan_machines};
use wish::Wishes;

mod drain;
pub mod figures;
pub mod plan;
pub mod records;
pub mod report;
pub mod wish;

/// Changes are gathered for so long.
const QUIET: Duration = Duration::from_millis(20);
/// The longest time without looking.
const PATROL: Duration = Duration::from_secs(30);
/// When a Node that is not empty, or not ready, is looked at again.
const AGAIN: Duration = Duration::from_secs(5);
/// The longest wait before something that failed is tried again.
const LONGEST_RETRY: Duration = Duration::from_secs(30);
/// Nodes that are emptied or reopened at a time.
const AT_ONCE: usize = 8;

/// Keeps files and units right for as long as this replica leads. Never ends.
pub(crate) async fn run(
    client: Client,
    shared: Arc<Shared>,
    seen: Arc<seen::Shared>,
    settings: Settings,
    figures: Arc<figures::Figures>,
) {
    let _reign = figures.begin();
    let mut shell = Shell { client, seen, settings, asked: HashMap::new() };
    let mut failures = 0_u32;
    let mut wait = PATROL;
    loop {
        tokio::select! {
            () = shell.seen.changed_for_machines.notified() => {}
            () = shared.desk.provided.notified() => {}
            () = tokio::time::sleep(wait) => {}
        }
        tokio::time::sleep(QUIET).await;
        let (now, began) = ((shell.settings.clock)(), Instant::now());
        let (Some(known), Some(wishes)) = (shell.seen.seen(), shared.desk.wishes(now)) else { continue };
        let wishes = Arc::new(wishes);
        let asked = Arc::clone(&wishes);
        let Some(planned) = look(move || plan_machines(&known, &asked)).await else {
            tracing::error!("the rollout of machine configs was not planned; the next change tries again");
            continue;
        };
        let took = began.elapsed();
        figures.tell(planned.standings.values());
        let busy = !planned.emptying.is_empty() || !planned.freeing.is_empty();
        let failed = shell.execute(planned, &wishes, now).await;
        failures = if failed == 0 { 0 } else { failures + 1 };
        wait = match (failures, busy) {
            (0, false) => PATROL,
            (0, true) => shell.again(),
            _ => (Duration::from_millis(100) * 2_u32.saturating_pow(failures.min(16))).min(LONGEST_RETRY),
        };
        // However fast things change, most of the time is left to others.
        tokio::time::sleep(took * 3).await;
    }
}

struct Shell {
    client: Client,
    seen: Arc<seen::Shared>,
    settings: Settings,
    /// When a cluster was last asked to do something with the Node of a host.
    asked: HashMap<(Deed, String), Instant>,
}

impl Shell {
    /// When a cluster is asked again.
    fn again(&self) -> Duration {
        AGAIN.min(self.settings.patrol)
    }

    /// Lets those through that were not asked for a short while ago: a fleet that reports does not hurry evictions.
    fn pace(&mut self, freeing: &mut Vec<Freeing>, emptying: &mut Vec<Emptying>) {
        let (again, present) = (self.again(), Instant::now());
        let mut asked = HashMap::new();
        let known = std::mem::take(&mut self.asked);
        let mut may = |deed: Deed, host: String| {
            let last = known.get(&(deed, host.clone())).copied();
            let due = last.is_none_or(|last| present.duration_since(last) >= again);
            asked.insert((deed, host), last.filter(|_| !due).unwrap_or(present));
            due
        };
        freeing.retain(|freeing| !freeing.emptied || may(Deed::Reopen, freeing.host.at.id()));
        emptying.retain(|emptying| may(Deed::Empty, emptying.host.at.id()));
        self.asked = asked;
    }

    /// Carries it out. Says how much did not work; what only has to wait is no failure.
    async fn execute(&mut self, planned: Planned, wishes: &Wishes, now: Moment) -> usize {
        let Planned { changes, statuses, mut freeing, mut emptying, standings: _ } = planned;
        self.pace(&mut freeing, &mut emptying);
        let mut failed = 0;
        for done in [execute_objects(&self.client, changes).await, execute_statuses(&self.client, statuses).await] {
            failed += done.failed + done.outdated;
        }
        let clusters = self.settings.clusters.clone();
        let clusters = clusters.unwrap_or_else(|| Arc::new(BySecret { hub: self.client.clone() }));
        let own = |node: &str| self.seen.has_node(node);
        let nodes = Nodes { hub: &self.client, clusters: &*clusters, own: &own };
        let freed = freeing.into_iter().map(|freeing| free(&nodes, freeing, now));
        let freed: Vec<_> = futures::stream::iter(freed).buffer_unordered(AT_ONCE).collect().await;
        let done = execute_statuses(&self.client, freed.into_iter().flatten().collect()).await;
        failed += done.failed + done.outdated;
        let emptied = emptying.into_iter().map(|emptying| empty(&nodes, emptying, wishes, now));
        let emptied: Vec<_> = futures::stream::iter(emptied).buffer_unordered(AT_ONCE).collect().await;
        let done = execute_objects(&self.client, emptied.into_iter().flatten().collect()).await;
        failed + done.failed + done.outdated
    }
}

/// Lets the Node take pods again, then the slot may end. None while it does not.
async fn free(nodes: &Nodes<'_>, freeing: Freeing, now: Moment) -> Option<super::mirror::StatusPatch> {
    let Freeing { host, pool, emptied, status } = freeing;
    if emptied && let Err(why) = nodes.execute(Deed::Reopen, &host, &pool, now).await {
        tracing::warn!(host = host.at.id(), why, "a node that was changed does not take pods yet; it is tried again");
        return None;
    }
    Some(status)
}

/// Empties a Node; then its host may go. Otherwise it is told why not.
async fn empty(
    nodes: &Nodes<'_>,
    emptying: Emptying,
    wishes: &Wishes,
    now: Moment,
) -> Option<super::controllers::plan_objects::ObjectChange> {
    let Emptying { host, pool, wish, stored } = emptying;
    let permit = match nodes.execute(Deed::Empty, &host, &pool, now).await {
        Ok(()) => Permit::Go(WINDOW),
        Err(why) => Permit::Wait(format!("the node is being emptied: {why}")),
    };
    assignment(&host, &wish, wishes, stored.as_deref(), permit)
}
