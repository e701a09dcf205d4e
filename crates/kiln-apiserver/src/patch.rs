//! The three kinds of patches clients send: JSON (RFC 6902), merge (RFC 7386) and strategic merge.
//!
//! Strategic merge is needed only for the kinds compiled into kubectl; of its list rules only those of the metadata
//! and of conditions occur in what is served, so a short table replaces the Go struct tags.

use json_patch::PatchOperation;
use serde_json::{Map, Value};

/// How deep a patch may be nested.
const DEEPEST: usize = 128;
/// Operations one JSON patch may have, as in the real server.
const MOST_OPERATIONS: usize = 10_000;

/// Why a patch cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PatchError {
    /// It is not a patch.
    Malformed(String),
    /// It does not fit the object.
    Unfit(String),
}

/// Applies a JSON patch.
pub fn apply_json_patch(object: &Value, patch: &[u8]) -> Result<Value, PatchError> {
    let operations: Vec<PatchOperation> =
        serde_json::from_slice(patch).map_err(|error| PatchError::Malformed(error.to_string()))?;
    if operations.len() > MOST_OPERATIONS {
        let message = format!("The allowed maximum operations in a JSON patch is {MOST_OPERATIONS}");
        return Err(PatchError::Unfit(message));
    }
    let mut result = object.clone();
    for operation in operations {
        if let PatchOperation::Test(test) = &operation
            && test.value.is_null()
            && result.pointer(test.path.as_str()).is_none()
        {
            // Go's library takes a missing field for null, and controllers rely on it to add the first finalizer.
            continue;
        }
        json_patch::patch(&mut result, std::slice::from_ref(&operation)).map_err(|error| {
            PatchError::Unfit(format!("the server rejected our request due to an error in our request: {error}"))
        })?;
    }
    Ok(result)
}

/// Applies a merge patch.
pub fn apply_merge_patch(object: &Value, patch: &Value) -> Result<Value, PatchError> {
    if !patch.is_object() {
        return Err(PatchError::Malformed("a merge patch must be an object".into()));
    }
    let mut result = object.clone();
    merge(&mut result, patch, 0, Rules::Plain)?;
    Ok(result)
}

/// Applies a strategic merge patch.
pub fn apply_strategic_patch(object: &Value, patch: &Value) -> Result<Value, PatchError> {
    if !patch.is_object() {
        return Err(PatchError::Malformed("a strategic merge patch must be an object".into()));
    }
    let mut result = object.clone();
    merge(&mut result, patch, 0, Rules::Strategic)?;
    Ok(result)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Rules {
    /// RFC 7386: null deletes, everything else is data.
    Plain,
    /// Keys with a dollar are directives, some lists are merged.
    Strategic,
}

fn merge(target: &mut Value, patch: &Value, depth: usize, rules: Rules) -> Result<(), PatchError> {
    if depth > DEEPEST {
        return Err(PatchError::Malformed(format!("nested more than {DEEPEST} deep")));
    }
    let Value::Object(changes) = patch else {
        *target = patch.clone();
        return Ok(());
    };
    let directive = |value: &Value, wanted: &str| rules == Rules::Strategic && value["$patch"] == wanted;
    if directive(patch, "replace") {
        let kept = changes.iter().filter(|(key, _)| *key != "$patch");
        *target = Value::Object(kept.map(|(key, value)| (key.clone(), value.clone())).collect());
        return Ok(());
    }
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(fields) = target else { return Ok(()) };
    for (key, change) in changes {
        let special = rules == Rules::Strategic && key.starts_with('$');
        if change.is_null() || directive(change, "delete") {
            fields.shift_remove(key);
        } else if let Some(field) = key.strip_prefix("$deleteFromPrimitiveList/").filter(|_| special) {
            let gone = change.as_array().cloned().unwrap_or_default();
            if let Some(list) = fields.get_mut(field).and_then(Value::as_array_mut) {
                list.retain(|item| !gone.contains(item));
            }
        } else if special {
            // `$setElementOrder` and `$retainKeys` only arrange what the other rules decide.
        } else {
            let current = fields.entry(key.clone()).or_insert(Value::Null);
            let merged = if rules == Rules::Strategic { merge_list(key, current, change)? } else { None };
            match merged {
                Some(merged) => *current = merged,
                None => merge(current, change, depth + 1, rules)?,
            }
        }
    }
    Ok(())
}

/// The lists that are merged instead of replaced, and what tells their items apart. None for any other list.
fn merge_list(field: &str, current: &Value, change: &Value) -> Result<Option<Value>, PatchError> {
    let key = match field {
        "finalizers" => None,
        "ownerReferences" => Some("uid"),
        "conditions" => Some("type"),
        "taints" => Some("key"),
        "addresses" => Some("type"),
        _ => return Ok(None),
    };
    let Some(changes) = change.as_array() else { return Ok(None) };
    // One item that says so makes the whole list new; it is no item itself, and neither is any other directive.
    if changes.iter().any(|item| item["$patch"] == "replace") {
        let plain = changes.iter().filter(|item| item.get("$patch").is_none());
        return Ok(Some(plain.cloned().collect()));
    }
    let mut merged = current.as_array().cloned().unwrap_or_default();
    for item in changes {
        let gone = match item.get("$patch") {
            None => false,
            Some(directive) if directive == "delete" => true,
            Some(other) => return Err(PatchError::Malformed(format!("unknown patch type {other} in {field}"))),
        };
        let same = |known: &Value| match key {
            None => known == item,
            Some(key) => known[key] == item[key],
        };
        match merged.iter().position(same) {
            Some(at) if gone => drop(merged.remove(at)),
            Some(_) if key.is_none() => {}
            // Depth was bounded when the body was parsed.
            Some(at) => merge(&mut merged[at], item, 0, Rules::Strategic)?,
            None if gone => {}
            None => merged.push(item.clone()),
        }
    }
    Ok(Some(Value::Array(merged)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn merge_patches_merge_as_rfc_7386_says() {
        for (object, patch, expected) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        ] {
            assert_eq!(apply_merge_patch(&object, &patch).unwrap(), expected, "{patch}");
        }
        let refused = apply_merge_patch(&json!({}), &json!([1])).unwrap_err();
        assert_eq!(refused, PatchError::Malformed("a merge patch must be an object".into()));
    }

    #[test]
    fn strategic_patches_merge_the_lists_of_metadata_and_conditions() {
        let object = json!({
            "metadata": {"finalizers": ["a"], "ownerReferences": [{"uid": "1", "name": "x"}], "labels": {"k": "v"}},
            "status": {"conditions": [{"type": "A", "status": "True"}, {"type": "B", "status": "True"}]},
            "usages": ["a", "b"],
        });
        let patch = json!({
            "metadata": {"finalizers": ["b"], "$deleteFromPrimitiveList/finalizers": ["a"],
                "ownerReferences": [{"uid": "2", "name": "y"}, {"uid": "1", "$patch": "delete"}],
                "labels": {"$patch": "replace", "n": "w"}},
            "status": {"conditions": [{"type": "A", "status": "False"}], "$setElementOrder/conditions": [{"type": "A"}]},
            "usages": ["c"],
        });
        assert_eq!(
            apply_strategic_patch(&object, &patch).unwrap(),
            json!({
                "metadata": {"finalizers": ["b"], "ownerReferences": [{"uid": "2", "name": "y"}], "labels": {"n": "w"}},
                "status": {"conditions": [{"type": "A", "status": "False"}, {"type": "B", "status": "True"}]},
                "usages": ["c"],
            })
        );
    }

    #[test]
    fn strategic_patches_merge_taints_and_addresses_of_a_node() {
        let node = json!({
            "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}, {"key": "b", "effect": "NoExecute", "value": "1"}]},
            "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": "n"}]},
        });
        let (taints, addresses) = (node["spec"]["taints"].clone(), node["status"]["addresses"].clone());
        for (patch, new_taints, new_addresses) in [
            (
                // As `kubectl taint` and a kubelet say it.
                json!({"spec": {"$setElementOrder/taints": [{"key": "b"}, {"key": "c"}],
                        "taints": [{"key": "b", "value": "2"}, {"key": "c", "effect": "NoSchedule"}, {"key": "a", "$patch": "delete"}]},
                    "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.2"}]}}),
                json!([{"key": "b", "effect": "NoExecute", "value": "2"}, {"key": "c", "effect": "NoSchedule"}]),
                json!([{"type": "InternalIP", "address": "10.0.0.2"}, {"type": "Hostname", "address": "n"}]),
            ),
            (
                json!({"spec": {"taints": [{"$patch": "replace"}, {"key": "c", "effect": "NoSchedule"}]},
                    "status": {"addresses": [{"type": "ExternalIP", "address": "192.0.2.1"}, {"$patch": "replace"}]}}),
                json!([{"key": "c", "effect": "NoSchedule"}]),
                json!([{"type": "ExternalIP", "address": "192.0.2.1"}]),
            ),
            (json!({"spec": {"taints": [{"$patch": "replace"}]}}), json!([]), addresses.clone()),
            (json!({"spec": {"taints": [{"key": "z", "$patch": "delete"}]}}), taints.clone(), addresses.clone()),
            (json!({"spec": {"taints": null}}), Value::Null, addresses.clone()),
        ] {
            let patched = apply_strategic_patch(&node, &patch).unwrap();
            assert_eq!(patched["spec"]["taints"], new_taints, "{patch}");
            assert_eq!(patched["status"]["addresses"], new_addresses, "{patch}");
        }
        let refused = apply_strategic_patch(&node, &json!({"spec": {"taints": [{"key": "a", "$patch": "melt"}]}}));
        assert_eq!(refused, Err(PatchError::Malformed("unknown patch type \"melt\" in taints".into())));
    }

    #[test]
    fn json_patches_take_a_missing_field_for_null() {
        let object = json!({"metadata": {}});
        let patch = br#"[{"op":"test","path":"/metadata/finalizers","value":null},
            {"op":"add","path":"/metadata/finalizers","value":["x"]}]"#;
        assert_eq!(apply_json_patch(&object, patch).unwrap(), json!({"metadata": {"finalizers": ["x"]}}));
        let unfit = apply_json_patch(&object, br#"[{"op":"test","path":"/metadata","value":1}]"#).unwrap_err();
        assert!(matches!(unfit, PatchError::Unfit(_)), "{unfit:?}");
        let malformed = apply_json_patch(&object, b"{}").unwrap_err();
        assert!(matches!(malformed, PatchError::Malformed(_)), "{malformed:?}");
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            "[a-c]{0,2}".prop_map(Value::from)
        ];
        leaf.prop_recursive(4, 30, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-d]|finalizers|conditions|type", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    fn any_object() -> impl Strategy<Value = Value> {
        prop::collection::btree_map("[a-d]|finalizers|conditions", any_json(), 0..4)
            .prop_map(|map| Value::Object(map.into_iter().collect()))
    }

    proptest! {
        #[test]
        fn a_merge_patch_applied_twice_changes_nothing_more(object in any_object(), patch in any_object()) {
            let once = apply_merge_patch(&object, &patch).unwrap();
            prop_assert_eq!(apply_merge_patch(&once, &patch).unwrap(), once);
        }

        #[test]
        fn an_object_is_its_own_merge_patch(object in any_object()) {
            prop_assert_eq!(apply_merge_patch(&object, &object).unwrap(), object.clone());
            prop_assert_eq!(apply_merge_patch(&Value::Object(Map::new()), &object).unwrap(), object);
        }

        #[test]
        fn strategic_patches_never_panic(object in any_object(), patch in any_object()) {
            let _ = apply_strategic_patch(&object, &patch);
        }
    }
}
