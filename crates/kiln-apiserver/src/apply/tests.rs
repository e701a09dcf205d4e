//! Server-side apply, as stories of several managers.

use serde_json::{Value, json};

use super::*;
use crate::change::{FieldValidation, plan_unmanaged, plan_update};
use crate::definition::parse_definition;

fn widget() -> Resource {
    let definition = json!({
        "metadata": {"name": "widgets.example.org"},
        "spec": {"group": "example.org", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {
                        "size": {"type": "integer"}, "note": {"type": "string"},
                        "mode": {"type": "string", "default": "slow"},
                        "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
                        "plain": {"type": "array", "items": {"type": "string"}},
                        "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                            "items": {"type": "object", "properties": {"name": {"type": "string"}, "mtu": {"type": "integer"}}}},
                        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}},
                    "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}]},
    });
    let [resource] = parse_definition(&definition).unwrap().try_into().unwrap();
    resource
}

fn context(manager: &str) -> WriteContext {
    WriteContext {
        now: "2026-01-01T00:00:00Z".into(),
        validation: FieldValidation::Ignore,
        manager: manager.into(),
        user: "u".into(),
        groups: vec![],
        applied: false,
    }
}

fn start() -> Value {
    json!({"apiVersion": "example.org/v1", "kind": "Widget",
        "metadata": {"name": "w", "namespace": "n", "resourceVersion": "1", "uid": "u", "generation": 1}})
}

fn apply(live: &Value, manager: &str, spec: Value, force: bool) -> Result<Value, Vec<String>> {
    let wanted = json!({"apiVersion": "example.org/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": spec});
    match plan_apply(&widget(), live, &wanted, Part::Main, force, &context(manager)) {
        Ok(object) => Ok(plan_unmanaged(&widget(), live, object, Part::Main, &context(manager)).unwrap().object),
        Err(ApplyError::Conflicts(conflicts)) => {
            Err(conflicts.iter().map(|conflict| format!("{} {}", conflict.manager_text(), conflict.field)).collect())
        }
        Err(other) => panic!("{other:?}"),
    }
}

fn owns(object: &Value, manager: &str) -> Vec<String> {
    let entries = parse_entries(&object["metadata"]["managedFields"]).unwrap_or_default();
    let own = entries.iter().filter(|entry| entry.manager == manager);
    own.flat_map(|entry| entry.fields.0.iter().map(|path| render_path(path))).collect()
}

#[test]
fn managers_share_sets_and_maps_and_take_back_only_their_own() {
    let spec = json!({"size": 1, "tags": ["a", "b"], "ports": [{"name": "p1", "mtu": 1}, {"name": "p2", "mtu": 2}]});
    let alice = apply(&start(), "alice", spec, false).unwrap();
    assert_eq!(alice["spec"]["mode"], "slow");
    assert!(!owns(&alice, "alice").contains(&".spec.mode".into()), "defaults are not owned by who applies");
    let both =
        apply(&alice, "bob", json!({"size": 1, "tags": ["c"], "ports": [{"name": "p3", "mtu": 3}]}), false).unwrap();
    assert_eq!(both["spec"]["tags"], json!(["a", "b", "c"]));
    assert_eq!(both["spec"]["ports"].as_array().unwrap().len(), 3);
    let less = apply(&both, "alice", json!({"tags": ["b"], "ports": [{"name": "p1"}]}), false).unwrap();
    assert_eq!(less["spec"]["size"], 1, "bob still wants it");
    assert_eq!(less["spec"]["tags"], json!(["b", "c"]));
    assert_eq!(less["spec"]["ports"], json!([{"name": "p1"}, {"name": "p3", "mtu": 3}]));
    assert_eq!(
        owns(&less, "alice"),
        [".spec.ports[name=\"p1\"]", ".spec.ports[name=\"p1\"].name", ".spec.tags[=\"b\"]"]
    );
}

#[test]
fn a_value_somebody_else_manages_is_a_conflict_unless_forced() {
    let alice = apply(&start(), "alice", json!({"size": 1, "plain": ["x"]}), false).unwrap();
    assert_eq!(
        apply(&alice, "bob", json!({"size": 2, "plain": ["y"]}), false).unwrap_err(),
        ["\"alice\" .spec.plain", "\"alice\" .spec.size"]
    );
    let forced = apply(&alice, "bob", json!({"size": 2}), true).unwrap();
    assert_eq!((owns(&forced, "alice"), owns(&forced, "bob")), (vec![".spec.plain".into()], vec![".spec.size".into()]));
}

#[test]
fn an_update_takes_what_it_changes_and_says_so_in_the_next_conflict() {
    let alice = apply(&start(), "alice", json!({"size": 1, "note": "a"}), false).unwrap();
    let mut edited = alice.clone();
    edited["spec"]["size"] = 5.into();
    let edited = plan_update(&widget(), &alice, edited, Part::Main, &context("kubectl-edit")).unwrap().object;
    assert_eq!(owns(&edited, "alice"), [".spec.note"]);
    assert_eq!(owns(&edited, "kubectl-edit"), [".spec.size"]);
    assert_eq!(
        apply(&edited, "alice", json!({"size": 1, "note": "a"}), false).unwrap_err(),
        ["\"kubectl-edit\" using example.org/v1 at 2026-01-01T00:00:00Z .spec.size"]
    );
}

#[test]
fn applying_the_same_again_changes_nothing() {
    let spec = json!({"size": 1, "free": {"a": {"b": 1}, "l": [1]}, "tags": ["a"]});
    let once = apply(&start(), "alice", spec.clone(), false).unwrap();
    let twice = apply(&once, "alice", spec, false).unwrap();
    assert!(crate::change::is_unchanged(&once, &twice), "{once:#}\n{twice:#}");
}

#[test]
fn status_is_applied_apart() {
    let live = apply(&start(), "alice", json!({"size": 1}), false).unwrap();
    let wanted = json!({"status": {"ready": true}, "spec": {"size": 9}});
    let object = plan_apply(&widget(), &live, &wanted, Part::Status, false, &context("c")).unwrap();
    let object = plan_unmanaged(&widget(), &live, object, Part::Status, &context("c")).unwrap().object;
    assert_eq!((&object["spec"]["size"], &object["status"]), (&json!(1), &json!({"ready": true})));
    assert_eq!(owns(&object, "c"), [".status.ready"]);
    assert_eq!(object["metadata"]["generation"], live["metadata"]["generation"]);
}

#[test]
fn a_value_of_a_wrong_type_is_refused_and_takes_nothing_away() {
    let live = apply(&start(), "a", json!({}), false).unwrap();
    let wanted = json!({"apiVersion": "example.org/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": false});
    let refused = plan_apply(&widget(), &live, &wanted, Part::Main, false, &context("a"));
    let why = "spec: Invalid value: \"boolean\": spec in body must be of type object: \"boolean\"";
    assert_eq!(refused, Err(ApplyError::Malformed(why.into())));
}

#[test]
fn what_nobody_tracked_in_the_part_that_is_applied_belongs_to_those_before() {
    let mut live = start();
    live["spec"] = json!({"size": 1});
    live["status"] = json!({"x": 1, "y": 2});
    let wanted = json!({"apiVersion": "example.org/v1", "kind": "Widget", "metadata": {"name": "w"},
        "spec": {"note": "n"}, "status": {"x": 5}});
    for (part, expected, named) in
        [(Part::Main, vec![".spec", ".spec.size"], ""), (Part::Status, vec![".status", ".status.y"], "status")]
    {
        let object = plan_apply(&widget(), &live, &wanted, part, true, &context("alice")).unwrap();
        assert_eq!(owns(&object, "before-first-apply"), expected);
        let entries = parse_entries(&object["metadata"]["managedFields"]).unwrap();
        assert!(entries.iter().all(|entry| entry.subresource == named), "{entries:?}");
    }
}
