//! Creates and updates, table by table.

use serde_json::{Value, json};

use super::*;
use crate::definition::{builtin_resources, parse_definition};

fn widget() -> Resource {
    let definition = json!({
        "metadata": {"name": "widgets.example.org"},
        "spec": {"group": "example.org", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {"size": {"type": "integer", "minimum": 0}, "mode": {"type": "string", "default": "slow"}}},
                    "status": {"type": "object", "properties": {"ready": {"type": "boolean"}}}}}}}]},
    });
    let [resource] = parse_definition(&definition).unwrap().try_into().unwrap();
    resource
}

fn builtin(plural: &str) -> Resource {
    builtin_resources().into_iter().find(|resource| resource.plural == plural).unwrap()
}

fn context(validation: FieldValidation) -> WriteContext {
    WriteContext {
        now: "2026-01-01T00:00:00Z".into(),
        validation,
        manager: "m".into(),
        user: "u".into(),
        groups: vec!["g".into()],
        applied: false,
    }
}

fn create(resource: &Resource, body: Value, validation: FieldValidation) -> Result<Planned, ApiError> {
    let place = NewPlace { namespace: "ns", uid: "uid-1", suffix: "xyz12" };
    plan_create(resource, body, place, &context(validation))
}

fn stored() -> Value {
    let body = json!({"metadata": {"name": "w"}, "spec": {"size": 1}});
    let mut object = create(&widget(), body, FieldValidation::Warn).unwrap().object;
    object["metadata"]["resourceVersion"] = "5".into();
    object["status"] = json!({"ready": true});
    object
}

fn update(given: Value, part: Part) -> Result<Value, ApiError> {
    plan_update(&widget(), &stored(), given, part, &context(FieldValidation::Warn)).map(|planned| planned.object)
}

#[test]
fn a_new_object_gets_what_only_the_server_decides() {
    let body = json!({
        "metadata": {"generateName": "w-", "uid": "forged", "generation": 9, "labels": {}, "deletionTimestamp": "2020-01-01T00:00:00Z"},
        "spec": {"size": 1}, "status": {"ready": true},
    });
    let mut object = create(&widget(), body, FieldValidation::Warn).unwrap().object;
    object["metadata"].as_object_mut().unwrap().shift_remove("managedFields");
    assert_eq!(
        object,
        json!({"apiVersion": "example.org/v1", "kind": "Widget",
            "metadata": {"generateName": "w-", "name": "w-xyz12", "namespace": "ns", "uid": "uid-1",
                "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1},
            "spec": {"size": 1, "mode": "slow"}})
    );
}

#[test]
fn unknown_fields_are_dropped_told_or_refused() {
    let body = json!({"metadata": {"name": "w", "odd": 1}, "spec": {"size": 1, "typo": 1}});
    let told = create(&widget(), body.clone(), FieldValidation::Warn).unwrap().warnings;
    assert_eq!(told, [r#"unknown field "metadata.odd""#, r#"unknown field "spec.typo""#]);
    assert!(create(&widget(), body.clone(), FieldValidation::Ignore).unwrap().warnings.is_empty());
    assert_eq!(
        create(&widget(), body, FieldValidation::Strict).unwrap_err().message,
        r#"Widget in version "v1" cannot be handled as a Widget: strict decoding error: unknown field "metadata.odd", unknown field "spec.typo""#
    );
}

#[test]
fn wrong_objects_are_refused_with_the_reason() {
    for (body, code, message) in [
        (json!([]), 400, "the body must be an object"),
        (
            json!({"kind": "Gadget"}),
            422,
            "Gadget.example.org \"\" is invalid: kind: Invalid value: \"Gadget\": must be Widget",
        ),
        (json!({"metadata": 1}), 400, "metadata must be an object"),
        (
            json!({"metadata": {"name": "w", "namespace": "other"}}),
            400,
            "the namespace of the provided object does not match the namespace sent on the request (other is not ns)",
        ),
        (
            json!({"metadata": {}}),
            422,
            "Widget.example.org \"\" is invalid: metadata.name: Required value: name or generateName is required",
        ),
        (
            json!({"metadata": {"name": "w", "labels": {"a": 1}}, "spec": {"size": -1}}),
            400,
            "Widget in version \"v1\" cannot be handled as a Widget: json: cannot unmarshal number into Go struct field \
             ObjectMeta.labels of type string",
        ),
    ] {
        let refused = create(&widget(), body, FieldValidation::Warn).unwrap_err();
        assert_eq!((refused.code, refused.message.as_str()), (code, message));
    }
}

#[test]
fn main_and_status_are_written_apart_and_only_contents_count() {
    let mut given = stored();
    given["spec"]["size"] = 2.into();
    given["status"]["ready"] = false.into();
    let main = update(given.clone(), Part::Main).unwrap();
    assert_eq!(
        (&main["spec"]["size"], &main["status"]["ready"], &main["metadata"]["generation"]),
        (&json!(2), &json!(true), &json!(2))
    );
    let status = update(given, Part::Status).unwrap();
    assert_eq!(
        (&status["spec"]["size"], &status["status"]["ready"], &status["metadata"]["generation"]),
        (&json!(1), &json!(false), &json!(1))
    );
    let mut labelled = stored();
    labelled["metadata"]["labels"] = json!({"a": "b"});
    assert_eq!(update(labelled, Part::Main).unwrap()["metadata"]["generation"], 1);
    assert!(is_unchanged(&stored(), &update(stored(), Part::Main).unwrap()));
    let mut float = stored();
    float["spec"]["size"] = json!(1.0);
    assert!(is_unchanged(&stored(), &update(float, Part::Main).unwrap()), "1 is 1.0");
}

#[test]
fn an_update_of_another_state_or_object_is_a_conflict() {
    for (key, value, code) in
        [("resourceVersion", "4", 409), ("uid", "other", 409), ("name", "x", 400), ("namespace", "x", 400)]
    {
        let mut given = stored();
        given["metadata"][key] = value.into();
        assert_eq!(update(given, Part::Main).unwrap_err().code, code, "{key}");
    }
}

#[test]
fn an_object_under_deletion_gets_no_new_finalizers_and_goes_with_the_last() {
    let mut before = stored();
    before["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    before["metadata"]["finalizers"] = json!(["example.org/a"]);
    let mut more = before.clone();
    more["metadata"]["finalizers"] = json!(["example.org/a", "example.org/b"]);
    let refused = plan_update(&widget(), &before, more, Part::Main, &context(FieldValidation::Warn)).unwrap_err();
    assert!(refused.message.contains("no new finalizers can be added if the object is being deleted"), "{refused:?}");
    let mut none = before.clone();
    none["metadata"]["finalizers"] = json!([]);
    let gone = plan_update(&widget(), &before, none, Part::Main, &context(FieldValidation::Warn)).unwrap().object;
    assert!(may_go(&gone) && !may_go(&before));
}

#[test]
fn builtin_kinds_have_their_ways() {
    let secret = create(
        &builtin("secrets"),
        json!({"metadata": {"name": "s"}, "stringData": {"u": "v"}}),
        FieldValidation::Strict,
    )
    .unwrap()
    .object;
    assert_eq!(
        (&secret["data"], &secret["type"], secret.get("stringData")),
        (&json!({"u": "dg=="}), &json!("Opaque"), None)
    );
    let namespace =
        create(&builtin("namespaces"), json!({"metadata": {"name": "n"}}), FieldValidation::Strict).unwrap().object;
    assert_eq!(namespace["status"]["phase"], "Active");
    assert_eq!(namespace["metadata"]["labels"]["kubernetes.io/metadata.name"], "n");
    let mut frozen = create(
        &builtin("configmaps"),
        json!({"metadata": {"name": "c"}, "data": {"a": "b"}, "immutable": true}),
        FieldValidation::Strict,
    )
    .unwrap()
    .object;
    let before = frozen.clone();
    frozen["data"]["a"] = "c".into();
    let refused =
        plan_update(&builtin("configmaps"), &before, frozen, Part::Main, &context(FieldValidation::Warn)).unwrap_err();
    assert_eq!(
        refused.message,
        "ConfigMap \"c\" is invalid: data: Forbidden: field is immutable when `immutable` is set"
    );
    let request = json!({"metadata": {"name": "r"}, "spec": {"request": "eA==", "signerName": "example.org/x", "username": "forged"}});
    let request = create(&builtin("certificatesigningrequests"), request, FieldValidation::Strict).unwrap().object;
    assert_eq!(request["spec"]["username"], "u");
}

#[test]
fn whoever_approves_writes_conditions_only_and_takes_nothing_back() {
    let resource = builtin("certificatesigningrequests");
    let request = json!({"metadata": {"name": "r"}, "spec": {"request": "eA==", "signerName": "example.org/x"}});
    let mut before = create(&resource, request, FieldValidation::Strict).unwrap().object;
    before["status"] = json!({"certificate": "c2lnbmVk"});
    let update = |before: &Value, status: Value, part: Part| {
        let mut given = before.clone();
        given["status"] = status;
        plan_update(&resource, before, given, part, &context(FieldValidation::Warn))
    };
    let approved = json!([{"type": "Approved", "status": "True"}]);
    let forged = json!({"certificate": "Zm9yZ2Vk", "conditions": approved});
    let after = update(&before, forged, Part::Approval).unwrap().object;
    assert_eq!(after["status"], json!({"certificate": "c2lnbmVk", "conditions": approved}));
    let refused = update(&after, json!({"conditions": []}), Part::Approval).unwrap_err();
    let expected = "is invalid: status.conditions: Forbidden: updates may not remove a condition of type \"Approved\"";
    assert!(refused.message.ends_with(expected), "{}", refused.message);
    let both = json!({"conditions": [{"type": "Approved", "status": "True"}, {"type": "Denied", "status": "True"}]});
    let refused = update(&after, both, Part::Approval).unwrap_err();
    assert!(refused.message.ends_with("Approved and Denied conditions are mutually exclusive"), "{}", refused.message);
    let signed = json!({"certificate": "bmV3", "conditions": approved});
    assert_eq!(update(&after, signed.clone(), Part::Status).unwrap().object["status"], signed);
}
