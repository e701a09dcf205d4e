//! Emptying a Node before it goes, or is changed: no pod is scheduled there any more, and those that run there are evicted.
//!
//! As `kubectl drain --ignore-daemonsets --delete-emptydir-data --force` does it: pods of DaemonSets and those that a kubelet
//! runs from files stay, finished ones do not count. An eviction that a PodDisruptionBudget refuses is asked for again at the next
//! look, for as long as the pool allows. Since when is written on the Node, so that a restart begins nothing anew.
//!
//! A Node that is only changed takes pods again afterwards ([`uncordon`]), unless somebody else had closed it before.
//!
//! A pod that is being deleted on a Node that is not ready is not waited for: no kubelet will say that it has ended.

use futures::StreamExt;
use kiln_core::timeline::Moment;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PostParams};
use kube::{Client, Error};
use serde_json::{Value, json};

use super::release::{gone, parameters};
use crate::hub::controllers::kinds::NODE;
use crate::hub::timeline::{parse_time, render_time};

/// The annotation of a Node that is being emptied: since when.
pub const DRAINING: &str = "kiln.dev/draining-since";
/// The annotation of a Node that is being emptied and took no pods before.
pub const CLOSED_BEFORE: &str = "kiln.dev/cordoned-before";
/// How many evictions are under way at a time.
const CONCURRENCY: usize = 8;

/// What is to be done with the pods of a Node.
#[derive(Debug, Default, PartialEq, Eq)]
struct Pods {
    /// Namespace and name of those that must be asked to go.
    evict: Vec<(String, String)>,
    /// How many are on their way.
    going: usize,
}

/// Cordons the Node and evicts its pods. Fails with the reason as long as some are there; after `limit` seconds, no more.
pub async fn drain(cluster: &Client, node: &DynamicObject, limit: Option<i64>, now: Moment) -> Result<(), String> {
    let failed = |error: Error| error.to_string();
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let known = node.metadata.annotations.as_ref().and_then(|all| parse_time(all.get(DRAINING)?));
    if known.is_none() || node.data["spec"]["unschedulable"] != true {
        let since = render_time(known.unwrap_or(now));
        let mut patch = json!({"metadata": {"annotations": {DRAINING: since}}, "spec": {"unschedulable": true}});
        if known.is_none() && node.data["spec"]["unschedulable"] == true {
            patch["metadata"]["annotations"][CLOSED_BEFORE] = "true".into();
        }
        let nodes: Api<DynamicObject> = Api::all_with(cluster.clone(), &NODE.resource());
        gone(nodes.patch(name, &parameters(), &Patch::Merge(patch)).await.map(drop)).map_err(failed)?;
    }
    let all: Api<DynamicObject> = Api::all_with(cluster.clone(), &pods());
    let listed = match all.list(&ListParams::default().fields(&format!("spec.nodeName={name}"))).await {
        Ok(listed) => listed.items,
        // An API without pods has none on this Node.
        Err(Error::Api(status)) if status.code == 404 => return Ok(()),
        Err(error) => return Err(format!("its pods cannot be listed: {error}")),
    };
    let listed: Vec<Value> = listed.into_iter().map(|pod| serde_json::to_value(pod).unwrap_or_default()).collect();
    let Pods { evict, going } = judge(&listed, is_ready(&node.data["status"]));
    let there = evict.len() + going;
    if there == 0 {
        return Ok(());
    }
    if limit.is_some_and(|limit| now.0 >= known.unwrap_or(now).0.saturating_add(limit)) {
        tracing::warn!(node = name, pods = there, "it goes with its pods: the time to drain it is over");
        return Ok(());
    }
    let asking = evict.into_iter().map(|(namespace, pod)| async move {
        let answer = evict_pod(cluster, &namespace, &pod).await;
        answer.map_err(|why| format!("{namespace}/{pod}: {why}"))
    });
    let answers: Vec<Result<(), String>> = futures::stream::iter(asking).buffer_unordered(CONCURRENCY).collect().await;
    let mut refused: Vec<String> = answers.into_iter().filter_map(Result::err).collect();
    refused.sort();
    let why =
        refused.first().map_or_else(String::new, |first| format!("; {} refused, the first is {first}", refused.len()));
    Err(format!("pods left on Node {name}: {there}{why}"))
}

/// Lets a Node take pods again that was emptied here. Fails with the reason until it is ready: until then it is out anyway.
pub async fn uncordon(cluster: &Client, name: &str) -> Result<(), String> {
    let failed = |error: Error| error.to_string();
    let nodes: Api<DynamicObject> = Api::all_with(cluster.clone(), &NODE.resource());
    let Some(node) = nodes.get_opt(name).await.map_err(failed)? else { return Ok(()) };
    let Some(patch) = reopening(&serde_json::to_value(&node).unwrap_or_default()) else { return Ok(()) };
    if !is_ready(&node.data["status"]) {
        return Err(format!("Node {name} is not ready"));
    }
    gone(nodes.patch(name, &parameters(), &Patch::Merge(patch)).await.map(drop)).map_err(failed)
}

/// How a Node becomes what it was before it was emptied; nothing when it was not emptied here.
fn reopening(node: &Value) -> Option<Value> {
    let annotations = &node["metadata"]["annotations"];
    if !annotations[DRAINING].is_string() {
        return None;
    }
    let mut patch = json!({"metadata": {"annotations": {DRAINING: null, CLOSED_BEFORE: null}}});
    if !annotations[CLOSED_BEFORE].is_string() {
        patch["spec"] = json!({"unschedulable": null});
    }
    Some(patch)
}

/// What is to be done with the pods of a Node.
fn judge(pods: &[Value], node_is_ready: bool) -> Pods {
    let mut judged = Pods::default();
    for pod in pods {
        let metadata = &pod["metadata"];
        let owners = metadata["ownerReferences"].as_array().into_iter().flatten();
        let of_daemon_set = owners.into_iter().any(|owner| owner["kind"] == "DaemonSet" && owner["controller"] == true);
        let mirrored = metadata["annotations"]["kubernetes.io/config.mirror"].is_string();
        let finished = ["Succeeded", "Failed"].iter().any(|phase| pod["status"]["phase"] == *phase);
        if of_daemon_set || mirrored || finished {
            continue;
        }
        match (metadata["deletionTimestamp"].is_string(), node_is_ready) {
            (true, true) => judged.going += 1,
            (true, false) => {}
            (false, _) => {
                let text = |key: &str| metadata[key].as_str().unwrap_or_default().to_owned();
                judged.evict.push((text("namespace"), text("name")));
            }
        }
    }
    judged
}

fn is_ready(status: &Value) -> bool {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

async fn evict_pod(cluster: &Client, namespace: &str, name: &str) -> Result<(), String> {
    let api: Api<DynamicObject> = Api::namespaced_with(cluster.clone(), namespace, &pods());
    let eviction =
        json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}});
    match api.create_subresource::<Value, Value>("eviction", name, &PostParams::default(), &eviction).await {
        Ok(_) => Ok(()),
        Err(Error::Api(status)) if status.code == 404 => Ok(()),
        Err(Error::Api(status)) if status.code == 429 => Err(match status.message.as_str() {
            "" => "a PodDisruptionBudget does not allow it now".to_owned(),
            message => message.to_owned(),
        }),
        Err(error) => Err(error.to_string()),
    }
}

fn pods() -> ApiResource {
    ApiResource {
        group: String::new(),
        version: "v1".into(),
        api_version: "v1".into(),
        kind: "Pod".into(),
        plural: "pods".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_was_closed_by_others_stays_closed() {
        let open = json!({"unschedulable": null});
        for (annotations, expected) in [
            (json!({DRAINING: "2026-01-01T00:00:00Z"}), Some(open)),
            (json!({DRAINING: "2026-01-01T00:00:00Z", CLOSED_BEFORE: "true"}), Some(Value::Null)),
            (json!({}), None),
        ] {
            let patch = reopening(&json!({"metadata": {"annotations": annotations}, "spec": {"unschedulable": true}}));
            assert_eq!(patch.as_ref().map(|patch| patch["spec"].clone()), expected, "{annotations}");
            let forgotten =
                |patch: &Value| patch["metadata"]["annotations"] == json!({DRAINING: null, CLOSED_BEFORE: null});
            assert!(patch.is_none_or(|patch| forgotten(&patch)));
        }
    }

    #[test]
    fn what_runs_for_the_node_itself_stays_and_what_will_not_end_is_not_waited_for() {
        let pod = |name: &str, more: Value, status: Value| {
            let mut metadata = json!({"name": name, "namespace": "lab"});
            for (key, value) in more.as_object().into_iter().flatten() {
                metadata[key] = value.clone();
            }
            json!({"metadata": metadata, "status": status})
        };
        let owned = |kind: &str| json!({"ownerReferences": [{"kind": kind, "name": "x", "controller": true}]});
        let going = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        let pods = [
            pod("web", owned("ReplicaSet"), json!({"phase": "Running"})),
            pod("alone", Value::Null, json!({"phase": "Pending"})),
            pod("agent", owned("DaemonSet"), json!({"phase": "Running"})),
            pod("etcd", json!({"annotations": {"kubernetes.io/config.mirror": "1"}}), json!({"phase": "Running"})),
            pod("job", owned("Job"), json!({"phase": "Succeeded"})),
            pod("ends", going, json!({"phase": "Running"})),
        ];
        let evict = ["web", "alone"].map(|name| ("lab".to_owned(), name.to_owned())).to_vec();
        assert_eq!(judge(&pods, true), Pods { evict: evict.clone(), going: 1 });
        assert_eq!(judge(&pods, false), Pods { evict, going: 0 });
    }
}
