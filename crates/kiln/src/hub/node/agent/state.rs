//! `NodeNetworkState`: the network of a node as its agent sees it, written when it is another one.
//!
//! It is owned by nobody: deleting a Host does not make the node's network unknown. A Host that comes later takes over.

use kiln_core::assignment::NodeState;
use kiln_core::timeline::Moment;
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::hub::controllers::cache::MANAGER;
use crate::hub::controllers::difference::diff_merge;
use crate::hub::controllers::kinds::NETWORK_STATE;
use crate::hub::network::records::HOST_ANNOTATION;
use crate::hub::timeline::render_time;

/// Writes what a node says. A name that another Host's node has is told apart by the namespace.
pub(super) async fn publish(client: &Client, host: &Value, state: &NodeState, at: Moment) -> Result<(), kube::Error> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (namespace, name) = (text(&host["metadata"]["namespace"]), text(&host["metadata"]["name"]));
    let node = host["spec"]["hostname"].as_str().unwrap_or(&name).to_owned();
    let owner = format!("{namespace}/{name}");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &NETWORK_STATE.resource());
    for node in [node.clone(), format!("{namespace}-{node}")] {
        let known = match api.get_opt(&node).await? {
            Some(known) => known,
            None => {
                let object = json!({"apiVersion": NETWORK_STATE.api_version(), "kind": NETWORK_STATE.kind,
                    "metadata": {"name": node, "annotations": {HOST_ANNOTATION: owner}}});
                let object: DynamicObject = serde_json::from_value(object).map_err(kube::Error::SerdeError)?;
                let options = PostParams { field_manager: Some(MANAGER.into()), ..PostParams::default() };
                api.create(&options, &object).await?
            }
        };
        let theirs = known.metadata.annotations.as_ref().and_then(|all| all.get(HOST_ANNOTATION));
        if theirs.is_some_and(|theirs| *theirs != owner) {
            continue;
        }
        let Some(patch) = plan_state(&known.data["status"], state, at) else { return Ok(()) };
        let parameters = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
        return api.patch_status(&node, &parameters, &Patch::Merge(json!({"status": patch}))).await.map(drop);
    }
    Ok(())
}

/// None when nothing changed.
fn plan_state(old: &Value, state: &NodeState, at: Moment) -> Option<Value> {
    let NodeState { current, network_manager_version, agent_version, applied: _ } = state;
    let wanted = json!({"currentState": current, "hostNetworkManagerVersion": network_manager_version,
        "handlerNmstateVersion": agent_version});
    let known: Value = ["currentState", "hostNetworkManagerVersion", "handlerNmstateVersion"]
        .into_iter()
        .filter_map(|key| Some((key.to_owned(), old.get(key)?.clone())))
        .collect();
    let mut patch = diff_merge(&known, &wanted)?;
    patch["lastSuccessfulUpdateTime"] = render_time(at).into();
    Some(patch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_written_when_it_is_another_one() {
        let state = NodeState {
            current: json!({"interfaces": [{"name": "eth0"}]}),
            network_manager_version: "1.42.4".into(),
            agent_version: "0.1".into(),
            applied: None,
        };
        let first = plan_state(&Value::Null, &state, Moment(0)).unwrap();
        assert_eq!(
            first,
            json!({"currentState": state.current, "hostNetworkManagerVersion": "1.42.4", "handlerNmstateVersion": "0.1",
                "lastSuccessfulUpdateTime": "1970-01-01T00:00:00Z"})
        );
        assert_eq!(plan_state(&first, &state, Moment(9)), None);
        let other = NodeState { current: json!({"interfaces": []}), ..state };
        assert_eq!(
            plan_state(&first, &other, Moment(9)),
            Some(json!({"currentState": {"interfaces": []}, "lastSuccessfulUpdateTime": "1970-01-01T00:00:09Z"}))
        );
    }
}
