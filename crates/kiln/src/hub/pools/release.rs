//! Letting a host go: its token is revoked, its Node emptied and deleted, its machine switched off, and its Host begins anew; then
//! its overlay goes.
//!
//! In this order, so that the machine cannot come back meanwhile, and so that whatever fails is done again: the overlay is
//! what says that the host is in service. Each step may run twice.
//!
//! A machine without a BareMetalHost stays on. Its kubelet has a certificate until that ends: it may register again until
//! somebody switches it off or installs it anew.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kiln_core::diagnostic::ObjectId;
use kiln_core::provision::names;
use kiln_core::timeline::{Entry, Moment, Stage};
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, Preconditions};
use kube::{Client, Error};
use serde_json::{Value, json};

use super::drain::drain;
use crate::hub::approval::connect::Connect;
use crate::hub::approval::fleet::{Fleet, Target, read_host};
use crate::hub::controllers::cache::MANAGER;
use crate::hub::controllers::kinds::{HOST, NODE, NODE_POOL, POOL, SECRET, Watched};
use crate::hub::health::repair::{clean_up, keep_off};
use crate::hub::timeline::{parse_time, record_with, render_time};

/// How long a cluster may take for all of it.
const PATIENCE: Duration = Duration::from_secs(20);

/// A host that goes out of service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    /// Of the Host.
    pub namespace: String,
    /// Name of the Host.
    pub host: String,
    /// Name of its Node.
    pub node: String,
    /// What declares its pool.
    pub pool: ObjectId,
    /// How many the pool says.
    pub replicas: u32,
    /// Name of its overlay.
    pub overlay: String,
    /// Which overlay.
    pub uid: String,
    /// In which state.
    pub revision: String,
    /// Since when it is in service.
    pub since: Option<Moment>,
}

/// Carries one out. What fails is said in words, and tried again from the next look.
pub async fn execute(hub: &Client, clusters: &dyn Connect, release: &Release, now: Moment) -> Result<(), String> {
    let of_hub = |error: Error| format!("the hub's API: {error}");
    revoke(hub, &release.namespace, &release.host, now).await.map_err(of_hub)?;
    let declared = api(hub, &HOST, &release.namespace).get_opt(&release.host).await.map_err(of_hub)?;
    let declared = serde_json::to_value(declared).unwrap_or_default();
    clean_up(hub, &read_host(&declared)).await.map_err(of_hub)?;
    if let Some((target, limit)) =
        target(hub, (&release.namespace, &release.pool.name), &declared).await.map_err(of_hub)?
    {
        let node = remove_node(clusters, &target, &release.node, limit, now);
        let ended = tokio::time::timeout(PATIENCE, node).await;
        ended.unwrap_or_else(|_| Err("it does not answer".into())).map_err(|why| format!("cluster {target}: {why}"))?;
    }
    keep_off(hub, &release.namespace, &release.host).await.map_err(of_hub)?;
    let Release { namespace, host, pool, replicas, .. } = release;
    let source = format!("{} {}/{}", pool.kind, pool.namespace, pool.name);
    let entry =
        Entry::reached(Stage::Changed, now, source, format!("out of service: the pool was scaled to {replicas}"));
    let more = |status: &Value| begin_anew(&status["provision"], release.since, now);
    match record_with(hub, namespace, host, &entry, more).await {
        Err(Error::Api(status)) if status.code == 404 => {}
        other => drop(other.map_err(of_hub)?),
    }
    let same = Preconditions { uid: Some(release.uid.clone()), resource_version: Some(release.revision.clone()) };
    let options = DeleteParams { preconditions: Some(same), ..DeleteParams::default() };
    gone(api(hub, &SECRET, namespace).delete(&release.overlay, &options).await.map(drop)).map_err(of_hub)
}

/// What `status.provision` must become; nothing when it says so already.
fn begin_anew(provision: &Value, since: Option<Moment>, now: Moment) -> Option<Value> {
    let released = provision["released"].as_str().and_then(parse_time);
    let done = released.is_some_and(|released| since.is_none_or(|since| since <= released));
    (!done).then(|| {
        json!({"provision": {"released": render_time(now), "fetchedAt": null, "source": null, "payload": null,
            "alarm": null, "spki": null, "bootstrapUser": null, "wanted": null}})
    })
}

/// Revokes a host's boot token, if it has one.
pub async fn revoke(hub: &Client, namespace: &str, host: &str, now: Moment) -> Result<(), Error> {
    let api = api(hub, &SECRET, namespace);
    let name = names::boot_token(host);
    let Some(secret) = api.get_opt(&name).await? else { return Ok(()) };
    // Also one that cannot be read: it is not repaired into a good one.
    if secret.data["data"]["revoked"].is_string() {
        return Ok(());
    }
    let patch = json!({"metadata": {"resourceVersion": secret.metadata.resource_version},
        "data": {"revoked": STANDARD.encode(render_time(now))}});
    api.patch(&name, &parameters(), &Patch::Merge(patch)).await.map(drop)
}

/// The cluster that a host of this pool (namespace of the host, name) joined, if the hub knows one, and how long emptying its Node may take there.
pub(crate) async fn target(
    hub: &Client,
    (in_namespace, name): (&str, &str),
    host: &Value,
) -> Result<Option<(Target, Option<i64>)>, Error> {
    let mut fleet = Fleet::default();
    for kind in [&POOL, &NODE_POOL] {
        // A Pool of a MachineConfigPool is in `default`, wherever its hosts are.
        for namespace in [in_namespace, "default"] {
            match api(hub, kind, namespace).get_opt(name).await {
                Ok(Some(pool)) => drop(fleet.put(kind.kind, &serde_json::to_value(pool).unwrap_or_default())),
                Ok(None) => {}
                // A hub on a cluster without HyperShift has no such kind.
                Err(Error::Api(status)) if status.code == 404 => {}
                Err(error) => return Err(error),
            }
        }
    }
    let limit = fleet.member_of(host).drain;
    Ok(fleet.target_of(host).map(|target| (target, limit)))
}

async fn remove_node(
    clusters: &dyn Connect,
    target: &Target,
    name: &str,
    limit: Option<i64>,
    now: Moment,
) -> Result<(), String> {
    let client = clusters.connect(target).await?.client;
    let nodes: Api<DynamicObject> = Api::all_with(client.clone(), &NODE.resource());
    let failed = |error: Error| error.to_string();
    let Some(node) = nodes.get_opt(name).await.map_err(failed)? else { return Ok(()) };
    drain(&client, &node, limit, now).await?;
    let same = Preconditions { uid: node.metadata.uid, resource_version: None };
    let options = DeleteParams { preconditions: Some(same), ..DeleteParams::default() };
    gone(nodes.delete(name, &options).await.map(drop)).map_err(failed)
}

/// What is gone already need not go.
pub(super) fn gone(result: Result<(), Error>) -> Result<(), Error> {
    match result {
        Err(Error::Api(status)) if status.code == 404 => Ok(()),
        other => other,
    }
}

fn api(client: &Client, kind: &Watched, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &kind.resource())
}

pub(super) fn parameters() -> PatchParams {
    PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_begins_anew_once_for_each_time_it_was_in_service() {
        let (since, now) = (Moment(1_767_225_600), Moment(1_767_225_700));
        let anew = begin_anew(&json!({"generation": 3, "spki": ["a"]}), Some(since), now).unwrap();
        assert_eq!(anew["provision"]["released"], "2026-01-01T00:01:40Z");
        assert!(anew["provision"].get("generation").is_none(), "generations go on");
        assert_eq!(begin_anew(&anew["provision"], Some(since), now), None);
        assert!(begin_anew(&anew["provision"], Some(Moment(now.0 + 1)), Moment(now.0 + 2)).is_some());
    }
}
