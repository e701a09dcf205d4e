//! Certificates of nodes: the approver, one task for each cluster that hosts join.
//!
//! ```text
//! Hosts, Pools of the hub -> fleet -> view per cluster -> judge -> Host.status.certificates, then /approval of the cluster
//! requests, Nodes of the cluster ------------------------^
//! ```
//!
//! The decisions are `kiln_core::certificate_request`'s. A cluster that does not answer is asked again with growing
//! waits and keeps no other one waiting. Nothing is kept in the process that a restart could lose.
//!
//! Not here: signing, which is done by the cluster's kube-controller-manager.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kiln_core::certificate_request::{KeyHash, WrongKeyHash};
use kube::api::DynamicObject;
use kube::runtime::watcher;
use kube::{Client, Error};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;

use connect::{ANSWER, BySecret, Connect};
use figures::Figures;
use fleet::{SharedFleet, Target, View};
use kubelet::{Dialled, Kubelet};

use super::following::Following;
use super::health::{self, StageFigures};
use super::pools::Endpoint;

mod bootstrap;
mod cluster;
pub mod connect;
pub mod figures;
pub mod fleet;
pub mod kubelet;
mod nodes;
pub mod recorded;
pub mod requests;

pub use cluster::vouch;

/// The wait after the first failure to reach a cluster; doubled each time.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// The longest wait.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// How many keys a host may report; the newest are kept.
pub const MOST_KEYS: usize = 8;

/// The approver and its ways to the world.
pub struct Approver {
    /// The hub's API.
    pub hub: Client,
    /// What the hub declares.
    pub fleet: Arc<SharedFleet>,
    /// The way to clusters.
    pub connect: Arc<dyn Connect>,
    /// The way to kubelets.
    pub kubelet: Arc<dyn Kubelet>,
    /// What is counted.
    pub figures: Arc<Figures>,
    /// What is counted about stages.
    pub stages: Arc<StageFigures>,
    /// Where machines reach the hub; without, a host that is provisioned again needs a person.
    pub endpoint: Option<Endpoint>,
}

impl Approver {
    /// Over the network, by the kubeconfigs in the hub's Secrets.
    pub fn new(hub: Client) -> Approver {
        Approver {
            connect: Arc::new(BySecret { hub: hub.clone() }),
            hub,
            fleet: Arc::default(),
            kubelet: Arc::new(Dialled::default()),
            figures: Arc::default(),
            stages: Arc::default(),
            endpoint: None,
        }
    }

    /// What it must be told of the hub's objects while it runs.
    pub fn following(&self) -> Following {
        let mut following = Following::default();
        self.fleet.follow(&mut following);
        following
    }
}

/// Runs until it is told to stop, while somebody follows [`Approver::following`]; the health of hosts is looked after from
/// the same views.
pub async fn run(approver: Approver, mut stop: watch::Receiver<bool>) {
    let approver = Arc::new(approver);
    let (views, mut seen) = watch::channel(Arc::new(View::default()));
    let mut clusters: BTreeMap<Target, tokio::task::AbortHandle> = BTreeMap::new();
    let mut tasks = JoinSet::new();
    let supervise = async {
        while seen.changed().await.is_ok() {
            let view = Arc::clone(&seen.borrow_and_update());
            clusters.retain(|target, task| {
                let kept = view.clusters.contains_key(target) && !task.is_finished();
                if !kept {
                    task.abort();
                }
                kept
            });
            for target in view.clusters.keys() {
                if !clusters.contains_key(target) {
                    let attending = attend(Arc::clone(&approver), target.clone(), seen.clone());
                    clusters.insert(target.clone(), tasks.spawn(attending));
                }
            }
            while tasks.try_join_next().is_some() {}
        }
    };
    tokio::select! {
        () = approver.fleet.publish(&views) => {}
        () = health::attend(&approver.hub, views.subscribe(), &approver.stages, approver.endpoint.as_ref()) => {}
        () = supervise => {}
        _ = stop.wait_for(|stop| *stop) => {}
    }
    tasks.shutdown().await;
}

/// Counts a cluster for as long as somebody attends to it.
struct Counted<'a> {
    figures: &'a Figures,
    answers: Option<bool>,
}

impl Counted<'_> {
    fn set(&mut self, answers: Option<bool>) {
        self.figures.cluster(self.answers, answers);
        self.answers = answers;
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.set(None);
    }
}

async fn attend(approver: Arc<Approver>, target: Target, mut views: watch::Receiver<Arc<View>>) {
    let mut wait = FIRST_WAIT;
    let mut complained = String::new();
    let mut counted = Counted { figures: &approver.figures, answers: None };
    // What is there already has not been looked at.
    views.mark_changed();
    loop {
        match approver.connect.connect(&target).await {
            Ok(connected) => {
                complained.clear();
                counted.set(Some(true));
                let began = std::time::Instant::now();
                cluster::attend(&approver, &target, &connected, &mut views).await;
                counted.set(Some(false));
                if began.elapsed() > LONGEST_WAIT {
                    wait = FIRST_WAIT;
                }
            }
            Err(why) => {
                counted.set(Some(false));
                // Once, not once a minute.
                if why != complained {
                    tracing::warn!(cluster = %target, "cannot attend to its certificates: {why}");
                    complained = why;
                }
            }
        }
        views.mark_changed();
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(LONGEST_WAIT);
    }
}

/// A key that a host reported with its own token becomes one its requests may be for. The newest [`MOST_KEYS`] are kept.
///
/// Gives `status.provision.spki` as it should stand, or nothing when the key is there already. Whoever calls it writes the
/// status with the revision he read.
pub fn accept_key(provision: &Value, reported: &str) -> Result<Option<Value>, WrongKeyHash> {
    let key: KeyHash = reported.trim().to_ascii_lowercase().parse()?;
    let known = provision["spki"].as_array().into_iter().flatten();
    let mut keys: Vec<String> = known.filter_map(|key| Some(key.as_str()?.to_owned())).collect();
    if keys.iter().any(|known| *known == key.to_string()) {
        return Ok(None);
    }
    keys.push(key.to_string());
    let from = keys.len().saturating_sub(MOST_KEYS);
    Ok(Some(Value::from(keys.get(from..).unwrap_or_default().to_vec())))
}

/// A request that may not take for ever.
async fn answered<T>(request: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    match tokio::time::timeout(ANSWER, request).await {
        Ok(result) => result,
        Err(_) => Err(Error::Service(format!("no answer within {} s", ANSWER.as_secs()).into())),
    }
}

/// An object as JSON.
fn as_value(object: DynamicObject) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}

/// The server does not have the kind, or does not let it be read.
fn is_absent(error: &watcher::Error) -> bool {
    use watcher::Error::{InitialListFailed, WatchFailed, WatchStartFailed};
    let (InitialListFailed(error) | WatchStartFailed(error) | WatchFailed(error)) = error else { return false };
    matches!(error, Error::Api(status) if status.code == 404 || status.code == 403)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_reported_key_is_kept_once_and_the_newest_few_are() {
        let key = |number: u8| KeyHash::of(&[number]).to_string();
        assert_eq!(accept_key(&Value::Null, &key(1)), Ok(Some(json!([key(1)]))));
        assert_eq!(accept_key(&json!({"spki": [key(1)]}), &key(1).to_uppercase()), Ok(None));
        let many: Vec<String> = (0..8).map(key).collect();
        let kept = accept_key(&json!({"spki": many}), &key(9)).unwrap().unwrap();
        assert_eq!(
            (kept[0].as_str(), kept[7].as_str(), kept.as_array().unwrap().len()),
            (Some(&*key(1)), Some(&*key(9)), 8)
        );
        assert_eq!(accept_key(&Value::Null, "mine"), Err(WrongKeyHash));
    }
}
