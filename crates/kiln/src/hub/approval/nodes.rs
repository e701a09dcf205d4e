//! Labels and taints of a Node that has registered: what was declared, added once for each declaration.
//!
//! What others put on a Node stays, and what somebody took away later is not put back: an annotation says which
//! declaration the Node got. A kubelet may not give itself labels such as `node-role.kubernetes.io/…`; Kiln may.

use std::collections::BTreeMap;

use kiln_core::certificate_request::KeyHash;
use serde_json::{Value, json};

use super::requests::{APPLIED, NodeRecord};

/// The merge patch a Node needs; none when it got this declaration.
pub fn plan_node(node: &NodeRecord, labels: &BTreeMap<String, String>, taints: &[Value]) -> Option<Value> {
    let declaration = declaration(labels, taints);
    if node.applied == declaration || (labels.is_empty() && taints.is_empty() && node.applied.is_empty()) {
        return None;
    }
    let missing: BTreeMap<&String, &String> =
        labels.iter().filter(|(key, value)| node.labels.get(*key) != Some(value)).collect();
    let same = |left: &Value, right: &Value| left["key"] == right["key"] && left["effect"] == right["effect"];
    let mut all: Vec<Value> = node.taints.clone();
    for taint in taints {
        match all.iter_mut().find(|known| same(known, taint)) {
            Some(known) => known.clone_from(taint),
            None => all.push(taint.clone()),
        }
    }
    let mut patch = json!({"metadata": {"resourceVersion": node.revision, "annotations": {APPLIED: declaration}}});
    if !missing.is_empty() {
        patch["metadata"]["labels"] = json!(missing);
    }
    if all != node.taints {
        patch["spec"] = json!({"taints": all});
    }
    Some(patch)
}

fn declaration(labels: &BTreeMap<String, String>, taints: &[Value]) -> String {
    let text = json!([labels, taints]).to_string();
    KeyHash::of(text.as_bytes()).to_string().chars().take(16).collect()
}

#[cfg(test)]
mod tests {
    use super::super::requests::read_node;
    use super::*;

    #[test]
    fn what_is_declared_is_added_once_and_nothing_is_taken_away() {
        let node = json!({"metadata": {"name": "w0", "resourceVersion": "7", "labels": {"theirs": "1", "zone": "old"}},
            "spec": {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}, {"key": "t", "effect": "NoSchedule", "value": "old"}]}});
        let labels = BTreeMap::from([("zone".to_owned(), "a".to_owned()), ("theirs".to_owned(), "1".to_owned())]);
        let taints =
            [json!({"key": "t", "effect": "NoSchedule", "value": "new"}), json!({"key": "u", "effect": "NoExecute"})];
        let patch = plan_node(&read_node(&node), &labels, &taints).unwrap();
        let applied = patch["metadata"]["annotations"][APPLIED].clone();
        assert_eq!(
            patch,
            json!({"metadata": {"resourceVersion": "7", "annotations": {APPLIED: applied}, "labels": {"zone": "a"}},
            "spec": {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
                {"key": "t", "effect": "NoSchedule", "value": "new"}, {"key": "u", "effect": "NoExecute"}]}})
        );
        let mut done = node.clone();
        done["metadata"]["annotations"] = json!({APPLIED: applied});
        done["metadata"]["labels"] = json!({});
        assert_eq!(plan_node(&read_node(&done), &labels, &taints), None, "what somebody took away is not put back");
        assert!(plan_node(&read_node(&done), &BTreeMap::new(), &taints).is_some(), "another declaration is applied");
        assert_eq!(plan_node(&read_node(&node), &BTreeMap::new(), &[]), None);
    }
}
