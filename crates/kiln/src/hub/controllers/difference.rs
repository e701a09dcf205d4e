//! The merge patch between two JSON values: what must be sent so that the one becomes the other.

use serde_json::{Map, Value};

/// The patch that turns `old` into `new`; none when they are equal.
///
/// Lists are sent whole, keys that are gone as null. A null in `new` cannot be told from a missing key by a merge patch
/// and is taken for one.
pub fn diff_merge(old: &Value, new: &Value) -> Option<Value> {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            let mut patch = Map::new();
            for (key, value) in new.iter().filter(|(_, value)| !value.is_null()) {
                match old.get(key) {
                    Some(known) => patch.extend(diff_merge(known, value).map(|part| (key.clone(), part))),
                    None => drop(patch.insert(key.clone(), value.clone())),
                }
            }
            for key in old.keys().filter(|key| new.get(*key).is_none_or(Value::is_null)) {
                patch.insert(key.clone(), Value::Null);
            }
            (!patch.is_empty()).then_some(Value::Object(patch))
        }
        _ if same(old, new) => None,
        _ => Some(new.clone()),
    }
}

/// Whether two values say the same: 1 and 1.0 do, as they do for servers written in Go.
fn same(old: &Value, new: &Value) -> bool {
    match (old, new) {
        (Value::Number(old), Value::Number(new)) => old == new || old.as_f64() == new.as_f64(),
        (Value::Array(old), Value::Array(new)) => {
            old.len() == new.len() && old.iter().zip(new).all(|(old, new)| same(old, new))
        }
        (Value::Object(old), Value::Object(new)) => {
            old.len() == new.len() && old.iter().all(|(key, old)| new.get(key).is_some_and(|new| same(old, new)))
        }
        _ => old == new,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    /// RFC 7396, as the server does it.
    fn merge(target: &mut Value, patch: &Value) {
        let Value::Object(patch) = patch else {
            *target = patch.clone();
            return;
        };
        if !target.is_object() {
            *target = json!({});
        }
        for (key, value) in patch {
            if value.is_null() {
                target.as_object_mut().unwrap().shift_remove(key);
            } else {
                merge(&mut target[key], value);
            }
        }
    }

    #[test]
    fn only_what_differs_is_sent() {
        for (old, new, expected) in [
            (json!({"a": 1}), json!({"a": 1}), None),
            (json!({"a": 1}), json!({"a": 1.0}), None),
            (json!({"a": [1, {"b": 2}]}), json!({"a": [1, {"b": 2}]}), None),
            (json!({"a": {"b": 1, "c": 2}}), json!({"a": {"b": 1}}), Some(json!({"a": {"c": null}}))),
            (json!({}), json!({"a": {"b": 1}}), Some(json!({"a": {"b": 1}}))),
            (json!({"a": [1]}), json!({"a": [1, 2]}), Some(json!({"a": [1, 2]}))),
            (Value::Null, json!({"a": 1}), Some(json!({"a": 1}))),
            (json!({"a": 1}), json!({"a": null}), Some(json!({"a": null}))),
        ] {
            assert_eq!(diff_merge(&old, &new), expected, "{old} -> {new}");
        }
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::from),
            (0..5).prop_map(Value::from),
            "[ab]{0,2}".prop_map(Value::from)
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[a-c]", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn the_patch_makes_the_new_of_the_old(old in any_json(), new in any_json()) {
            let mut patched = old.clone();
            if let Some(patch) = diff_merge(&old, &new) {
                merge(&mut patched, &patch);
            }
            prop_assert_eq!(patched, new);
        }
    }
}
