//! The three kinds of patches clients send: JSON (RFC 6902), merge (RFC 7386) and strategic merge.
//!
//! Strategic merge is needed only for the kinds compiled into clients. Which of their lists are merged is said by tags
//! of Go structs (`patchStrategy`, `patchMergeKey`); a short table has those of the kinds that are served. Every other
//! list is replaced whole, also where server-side apply merges it.

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

/// Applies a strategic merge patch. The kind of the object says which of its lists are merged.
pub fn apply_strategic_patch(object: &Value, patch: &Value) -> Result<Value, PatchError> {
    if !patch.is_object() {
        return Err(PatchError::Malformed("a strategic merge patch must be an object".into()));
    }
    let text = |key: &str| object[key].as_str().unwrap_or_default();
    let mut result = object.clone();
    merge(&mut result, patch, 0, Rules::Strategic { kind: (text("apiVersion"), text("kind")), section: "" })?;
    Ok(result)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Rules<'a> {
    /// RFC 7386: null deletes, everything else is data.
    Plain,
    /// Keys with a dollar are directives, some lists are merged.
    Strategic {
        /// `apiVersion` and `kind` of the object.
        kind: (&'a str, &'a str),
        /// The top-level field that is being merged.
        section: &'a str,
    },
}

impl<'a> Rules<'a> {
    fn is_strategic(self) -> bool {
        self != Rules::Plain
    }

    /// The rules for what a field holds.
    fn within(self, field: &'a str, depth: usize) -> Rules<'a> {
        match self {
            Rules::Strategic { kind, .. } if depth == 0 => Rules::Strategic { kind, section: field },
            rules => rules,
        }
    }

    /// How a list is merged, if it is. All lists with a tag stand one level below the top.
    fn items(self, field: &str, depth: usize) -> Option<Items> {
        match self {
            Rules::Strategic { kind, section } if depth == 1 => merged_items(kind, section, field),
            _ => None,
        }
    }
}

/// What tells the items of a merged list apart.
#[derive(Clone, Copy)]
enum Items {
    /// Their whole value.
    Values,
    /// One of their fields.
    Keyed(&'static str),
}

/// The tags of the kinds in `builtin.json`.
fn merged_items(kind: (&str, &str), section: &str, field: &str) -> Option<Items> {
    match (kind, section, field) {
        (_, "metadata", "finalizers") => Some(Items::Values),
        (_, "metadata", "ownerReferences") => Some(Items::Keyed("uid")),
        (("v1", "Namespace" | "Node"), "status", "conditions") => Some(Items::Keyed("type")),
        (("v1", "Node"), "spec", "podCIDRs") => Some(Items::Values),
        (("v1", "Node"), "status", "addresses") => Some(Items::Keyed("type")),
        _ => None,
    }
}

fn merge(target: &mut Value, patch: &Value, depth: usize, rules: Rules<'_>) -> Result<(), PatchError> {
    if depth > DEEPEST {
        return Err(PatchError::Malformed(format!("nested more than {DEEPEST} deep")));
    }
    let Value::Object(changes) = patch else {
        *target = patch.clone();
        return Ok(());
    };
    let directive = |value: &Value, wanted: &str| rules.is_strategic() && value["$patch"] == wanted;
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
        let special = rules.is_strategic() && key.starts_with('$');
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
            match (rules.items(key, depth), change) {
                (Some(items), Value::Array(changes)) => *current = merge_list(key, items, current, changes)?,
                _ => merge(current, change, depth + 1, rules.within(key, depth))?,
            }
        }
    }
    Ok(())
}

/// Items have no lists with tags, and are deeper than those.
const IN_AN_ITEM: usize = 3;
const IN_ITEMS: Rules<'static> = Rules::Strategic { kind: ("", ""), section: "" };

/// A list that is merged instead of replaced.
fn merge_list(field: &str, items: Items, current: &Value, changes: &[Value]) -> Result<Value, PatchError> {
    // One item that says so makes the whole list new; it is no item itself, and neither is any other directive.
    if changes.iter().any(|item| item["$patch"] == "replace") {
        let plain = changes.iter().filter(|item| item.get("$patch").is_none());
        return Ok(plain.cloned().collect());
    }
    let mut merged = current.as_array().cloned().unwrap_or_default();
    for item in changes {
        let gone = match item.get("$patch") {
            None => false,
            Some(directive) if directive == "delete" => true,
            Some(other) => return Err(PatchError::Malformed(format!("unknown patch type {other} in {field}"))),
        };
        let same = |known: &Value| match items {
            Items::Values => known == item,
            Items::Keyed(key) => known[key] == item[key],
        };
        match (merged.iter().position(same), items) {
            (Some(at), _) if gone => drop(merged.remove(at)),
            (Some(_), Items::Values) => {}
            (Some(at), Items::Keyed(_)) => merge(&mut merged[at], item, IN_AN_ITEM, IN_ITEMS)?,
            (None, _) if gone => {}
            (None, _) => merged.push(item.clone()),
        }
    }
    Ok(Value::Array(merged))
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
    fn strategic_patches_merge_the_lists_that_are_tagged_and_replace_the_others() {
        let [old, new] = [json!([{"type": "A", "status": "True"}, {"type": "B"}]), json!([{"type": "A"}])];
        let merged = json!([{"type": "A", "status": "True"}, {"type": "B"}]);
        // As the tags of upstream's structs say; lists of text have what is there already, and one item more.
        let [texts, text, both] = [json!(["a"]), json!(["b"]), json!(["a", "b"])];
        for (api_version, kind, path, object, patch, expected) in [
            ("v1", "ConfigMap", "/metadata/finalizers", &texts, &text, &both),
            ("v1", "Namespace", "/metadata/finalizers", &texts, &text, &both),
            ("v1", "Namespace", "/spec/finalizers", &texts, &text, &text),
            ("v1", "Namespace", "/status/conditions", &old, &new, &merged),
            ("v1", "Node", "/spec/podCIDRs", &texts, &text, &both),
            ("v1", "Node", "/spec/taints", &old, &new, &new),
            ("v1", "Node", "/status/conditions", &old, &new, &merged),
            ("v1", "Node", "/status/addresses", &old, &new, &merged),
            ("v1", "Node", "/status/images", &old, &new, &new),
            ("v1", "Node", "/status/volumesInUse", &texts, &text, &text),
            ("v1", "Node", "/status/volumesAttached", &old, &new, &new),
            ("v1", "Node", "/status/runtimeHandlers", &old, &new, &new),
            ("v1", "Node", "/status/declaredFeatures", &texts, &text, &text),
            ("certificates.k8s.io/v1", "CertificateSigningRequest", "/spec/usages", &texts, &text, &text),
            ("certificates.k8s.io/v1", "CertificateSigningRequest", "/spec/groups", &texts, &text, &text),
            ("certificates.k8s.io/v1", "CertificateSigningRequest", "/status/conditions", &old, &new, &new),
            ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "/metadata/finalizers", &texts, &text, &both),
            ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "/spec/versions", &old, &new, &new),
            ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "/spec/names/shortNames", &texts, &text, &text),
            ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "/status/conditions", &old, &new, &new),
            ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "/status/storedVersions", &texts, &text, &text),
        ] {
            let nested = |list: &Value| {
                path.rsplit('/').filter(|key| !key.is_empty()).fold(list.clone(), |inner, key| json!({key: inner}))
            };
            let mut before = nested(object);
            before["apiVersion"] = api_version.into();
            before["kind"] = kind.into();
            let after = apply_strategic_patch(&before, &nested(patch)).unwrap();
            assert_eq!(after.pointer(path), Some(expected), "{kind} {path}");
        }
    }

    #[test]
    fn strategic_patches_obey_their_directives() {
        let object = json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"finalizers": ["a"], "ownerReferences": [{"uid": "1", "name": "x"}], "labels": {"k": "v"}},
            "status": {"conditions": [{"type": "A", "status": "True"}, {"type": "B", "status": "True"}]},
        });
        let patch = json!({
            "metadata": {"finalizers": ["b"], "$deleteFromPrimitiveList/finalizers": ["a"],
                "ownerReferences": [{"uid": "2", "name": "y"}, {"uid": "1", "$patch": "delete"}],
                "labels": {"$patch": "replace", "n": "w"}},
            "status": {"conditions": [{"type": "A", "status": "False"}], "$setElementOrder/conditions": [{"type": "A"}]},
        });
        assert_eq!(
            apply_strategic_patch(&object, &patch).unwrap(),
            json!({"apiVersion": "v1", "kind": "Namespace",
                "metadata": {"finalizers": ["b"], "ownerReferences": [{"uid": "2", "name": "y"}], "labels": {"n": "w"}},
                "status": {"conditions": [{"type": "A", "status": "False"}, {"type": "B", "status": "True"}]},
            })
        );
        let with = |conditions: Value| apply_strategic_patch(&object, &json!({"status": {"conditions": conditions}}));
        for (conditions, expected) in [
            (json!([{"$patch": "replace"}, {"type": "C"}]), json!([{"type": "C"}])),
            (json!([{"type": "C"}, {"$patch": "replace"}]), json!([{"type": "C"}])),
            (json!([{"$patch": "replace"}]), json!([])),
            (json!([{"type": "A", "$patch": "delete"}]), json!([{"type": "B", "status": "True"}])),
            (json!([{"type": "Z", "$patch": "delete"}]), object["status"]["conditions"].clone()),
            (json!([{"type": "A", "status": null}]), json!([{"type": "A"}, {"type": "B", "status": "True"}])),
            (Value::Null, Value::Null),
        ] {
            assert_eq!(with(conditions.clone()).unwrap()["status"]["conditions"], expected, "{conditions}");
        }
        let refused = with(json!([{"type": "A", "$patch": "melt"}]));
        assert_eq!(refused, Err(PatchError::Malformed("unknown patch type \"melt\" in conditions".into())));
    }

    #[test]
    fn taints_are_added_and_taken_away_as_kubectl_says_it() {
        let [a, b] = [json!({"key": "a", "effect": "NoSchedule"}), json!({"key": "b", "effect": "NoExecute"})];
        let node = json!({"apiVersion": "v1", "kind": "Node", "spec": {"taints": [a, b]}});
        // `kubectl taint node n a-` sends those that are left.
        for (taints, expected) in [(json!([b]), json!([b])), (json!([]), json!([])), (Value::Null, Value::Null)] {
            let patched = apply_strategic_patch(&node, &json!({"spec": {"taints": taints}})).unwrap();
            assert_eq!(patched["spec"]["taints"], expected);
        }
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
        fn strategic_patches_never_panic(sections in [any_object(), any_object()], patches in [any_object(), any_object()]) {
            let within = |[metadata, status]: [Value; 2]| json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status});
            let _ = apply_strategic_patch(&within(sections), &within(patches));
        }
    }
}
