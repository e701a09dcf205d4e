//! What holds for any input: used with generated values by tests and with mutated bytes by the fuzz targets.

#![allow(dead_code, reason = "each program uses its part")]

use kiln_apiserver::apply::{ApplyError, plan_apply};
use kiln_apiserver::change::{
    FieldValidation, NewPlace, Part, WriteContext, is_unchanged, plan_create, plan_unmanaged, plan_update,
};
use kiln_apiserver::definition::{builtin_resources, default_definition, parse_definition};
use kiln_apiserver::field_set::FieldSet;
use kiln_apiserver::patch::{apply_json_patch, apply_merge_patch, apply_strategic_patch};
use kiln_apiserver::resource::Resource;
use serde_json::{Map, Value, json};

/// A definition with every kind of list and map that server-side apply tells apart.
pub fn widgets() -> Value {
    let text = r#"{
        "metadata": {"name": "widgets.example.org"},
        "spec": {"group": "example.org", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {
                        "size": {"type": "integer", "minimum": -100}, "note": {"type": "string", "nullable": true},
                        "mode": {"type": "string", "enum": ["slow", "fast"], "default": "slow"},
                        "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
                        "plain": {"type": "array", "items": {"type": "string"}},
                        "either": {"x-kubernetes-int-or-string": true},
                        "one": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "string"}},
                        "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                            "items": {"type": "object", "required": ["name"], "properties": {
                                "name": {"type": "string"}, "mtu": {"type": "integer"}, "up": {"type": "boolean", "default": true},
                                "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}}}},
                        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}},
                    "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}]}
    }"#;
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}"))
}

/// Writes of several managers, one after the other: `{"by": 0-3, "how": "apply|force|update|merge|json|status", "what": …}`.
pub fn check_story(steps: &[Value]) {
    let Ok(mut resources) = parse_definition(&widgets()) else { panic!("the definition is good") };
    let resource = resources.remove(0);
    let mut live = json!({"apiVersion": "example.org/v1", "kind": "Widget",
        "metadata": {"name": "w", "namespace": "n", "resourceVersion": "1", "uid": "u", "generation": 1}});
    for step in steps.iter().take(12) {
        let manager = format!("manager-{}", step["by"].as_u64().unwrap_or(0) % 4);
        let how = step["how"].as_str().unwrap_or("apply");
        if let Some(next) = take_step(&resource, &live, &manager, how, &step["what"]) {
            check_stored(&resource, &next);
            live = next;
        }
    }
}

fn take_step(resource: &Resource, live: &Value, manager: &str, how: &str, what: &Value) -> Option<Value> {
    let context = context(manager);
    let part = if how == "status" { Part::Status } else { Part::Main };
    let given = match how {
        "apply" | "force" | "status" => {
            let wanted = wanted(what);
            let applied = plan_apply(resource, live, &wanted, part, how != "apply", &context);
            let object = match applied {
                Ok(object) => object,
                Err(ApplyError::Conflicts(conflicts)) => {
                    assert!(how == "apply" && !conflicts.is_empty(), "a forced apply has no conflicts");
                    return None;
                }
                Err(ApplyError::Malformed(_)) => return None,
            };
            let stored = plan_unmanaged(resource, live, object, part, &context).ok()?.object;
            // Who says the same again meets nobody and soon changes nothing. An empty list claims nothing, so that one
            // time may take away what the next puts back, as on a real server, and what nobody claims is then given
            // to those before the first apply.
            let mut again = stored.clone();
            let settles = (0..4).any(|_| {
                let before = std::mem::replace(&mut again, Value::Null);
                again = apply_again(resource, &before, &wanted, part, &context);
                is_unchanged(&before, &again)
            });
            assert!(settles, "applied again and again:\n{wanted}\n{stored}\n{again}");
            return Some(stored);
        }
        "merge" => apply_merge_patch(live, what).ok()?,
        "json" => apply_json_patch(live, what.to_string().as_bytes()).ok()?,
        "strategic" => apply_strategic_patch(live, what).ok()?,
        _ => {
            let mut given = wanted(what);
            given["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"].clone();
            given
        }
    };
    Some(plan_update(resource, live, given, part, &context).ok()?.object)
}

fn apply_again(resource: &Resource, stored: &Value, wanted: &Value, part: Part, context: &WriteContext) -> Value {
    let again = plan_apply(resource, stored, wanted, part, false, context);
    let again = again.unwrap_or_else(|error| panic!("{error:?}\nafter {wanted}\nof {stored}"));
    let again = plan_unmanaged(resource, stored, again, part, context);
    again.unwrap_or_else(|error| panic!("{error:?}\nafter {wanted}\nof {stored}")).object
}

/// What may be stored is what the server would store again.
fn check_stored(resource: &Resource, object: &Value) {
    for entry in object["metadata"]["managedFields"].as_array().into_iter().flatten() {
        let fields = FieldSet::parse(&entry["fieldsV1"]);
        assert!(!fields.is_empty(), "an entry that manages nothing: {entry}");
        assert_eq!(FieldSet::parse(&fields.render()), fields, "{entry}");
    }
    assert_eq!(object["metadata"]["name"], "w", "{object}");
    assert_eq!(object["metadata"]["uid"], "u", "{object}");
    let again = plan_update(resource, object, object.clone(), Part::Main, &context("manager-0"));
    let again = again.unwrap_or_else(|error| panic!("what was stored is refused: {error:?}\n{object}")).object;
    assert!(is_unchanged(object, &again), "stored again:\n{object}\n{again}");
}

/// Any definition and any object of it.
pub fn check_definition(mut definition: Value, object: &Value) {
    if !definition.is_object() {
        return;
    }
    default_definition(&mut definition);
    let Ok(resources) = parse_definition(&definition) else { return };
    for resource in &resources {
        check_create(resource, object);
    }
}

/// Any object of the kinds that come with the server.
pub fn check_builtin(object: &Value) {
    for resource in builtin_resources() {
        check_create(&resource, object);
    }
}

fn check_create(resource: &Resource, object: &Value) {
    let mut body = object.clone();
    if let Value::Object(map) = &mut body {
        map.remove("apiVersion");
        map.remove("kind");
    }
    let place = NewPlace { namespace: if resource.namespaced { "n" } else { "" }, uid: "u", suffix: "abcde" };
    let Ok(planned) = plan_create(resource, body, place, &context("creator")) else { return };
    let mut stored = planned.object;
    stored["metadata"]["resourceVersion"] = "1".into();
    let strict = WriteContext { validation: FieldValidation::Strict, ..context("creator") };
    // A rule may compare with what was before and refuse what stays the same; nothing else may.
    if let Ok(again) = plan_update(resource, &stored, stored.clone(), Part::Main, &strict) {
        assert!(is_unchanged(&stored, &again.object), "stored again:\n{stored}\n{}", again.object);
        assert!(again.warnings.iter().all(|warning| !warning.contains("unknown field")), "{:?}", again.warnings);
    }
}

fn wanted(what: &Value) -> Value {
    let mut wanted = match what {
        Value::Object(map) => map.clone(),
        _ => Map::new(),
    };
    wanted.insert("apiVersion".into(), "example.org/v1".into());
    wanted.insert("kind".into(), "Widget".into());
    let mut metadata = wanted.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
    metadata.remove("managedFields");
    for own in ["namespace", "uid", "resourceVersion", "generateName"] {
        metadata.remove(own);
    }
    metadata.insert("name".into(), "w".into());
    wanted.insert("metadata".into(), Value::Object(metadata));
    Value::Object(wanted)
}

fn context(manager: &str) -> WriteContext {
    WriteContext {
        now: "2026-01-01T00:00:00Z".into(),
        validation: FieldValidation::Ignore,
        manager: manager.into(),
        user: "u".into(),
        groups: Vec::new(),
        applied: false,
    }
}
