//! What objects mean: CEL rules, scale, events in two groups, owners, revisions. Over the router, without a socket.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::field_reassign_with_default,
    reason = "a test fails loudly and says what it skips"
)]

#[path = "support/api.rs"]
mod api;

use api::{Api, CONFIG_MAPS, DEFINITIONS, config_map};
use serde_json::{Value, json};

const POOLS: &str = "/apis/example.org/v1/namespaces/default/pools";
const CORE_EVENTS: &str = "/api/v1/namespaces/default/events";
const NEW_EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";

/// The parts of a NodePool that make it hard: a fixed cluster name, exclusive choices, a scale.
fn pools() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "pools.example.org"},
        "spec": {"group": "example.org", "scope": "Namespaced", "names": {"plural": "pools", "kind": "Pool"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas",
                    "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "required": ["clusterName"],
                        "x-kubernetes-validations": [
                            {"rule": "!has(self.replicas) || !has(self.autoScaling)", "message": "Both replicas or autoScaling should not be set"},
                            {"rule": "self.arch != 'arm64' || self.platform == 'AWS'", "message": "arm64 needs AWS", "fieldPath": ".arch", "reason": "FieldValueForbidden"}],
                        "properties": {
                            "clusterName": {"type": "string", "x-kubernetes-validations": [
                                {"rule": "self == oldSelf", "message": "ClusterName is immutable"}]},
                            "replicas": {"type": "integer"}, "arch": {"type": "string", "default": "amd64"},
                            "platform": {"type": "string"}, "note": {"type": "string"},
                            "autoScaling": {"type": "object", "properties": {"max": {"type": "integer"}}}}},
                    "status": {"type": "object", "properties": {"replicas": {"type": "integer"}, "selector": {"type": "string"}},
                        "x-kubernetes-validations": [{"rule": "!has(oldSelf.replicas) || has(self.replicas)"}]}}}}}]}})
}

fn pool(name: &str) -> Value {
    json!({"apiVersion": "example.org/v1", "kind": "Pool", "metadata": {"name": name}, "spec": {"clusterName": "c1", "replicas": 2}})
}

async fn with_pools(name: &str) -> Api {
    let api = Api::start(name).await;
    let (code, answer) = api.call("POST", DEFINITIONS, pools()).await;
    assert_eq!(code, 201, "{answer}");
    api
}

#[tokio::test]
async fn rules_refuse_what_the_schema_cannot() {
    let api = with_pools("rules").await;
    let mut wrong = pool("p");
    wrong["spec"]["arch"] = "arm64".into();
    wrong["spec"]["autoScaling"] = json!({"max": 1});
    let (code, refused) = api.call("POST", POOLS, wrong).await;
    assert_eq!(code, 422, "{refused}");
    assert_eq!(
        refused["message"],
        "Pool.example.org \"p\" is invalid: [spec: Invalid value: Both replicas or autoScaling should not be set, spec: Invalid \
         value: \"object\": no such key: platform evaluating rule: arm64 needs AWS]"
    );
    assert_eq!(api.call("POST", POOLS, pool("p")).await.0, 201);
    let path = format!("{POOLS}/p");
    let (code, refused) = api.call("PATCH", &path, json!({"spec": {"clusterName": "c2"}})).await;
    assert_eq!(code, 422);
    assert_eq!(
        refused["details"]["causes"],
        json!([{"reason": "FieldValueInvalid", "message": "Invalid value: \"c2\": ClusterName is immutable", "field": "spec.clusterName"}])
    );
    let change = json!({"spec": {"arch": "arm64", "platform": "None"}});
    let (code, refused) = api.call("PATCH", &path, change).await;
    assert_eq!((code, &refused["details"]["causes"][0]["field"]), (422, &json!("spec.arch")), "{refused}");
    let applied = json!({"apiVersion": "example.org/v1", "kind": "Pool", "spec": {"clusterName": "c3"}});
    assert_eq!(api.apply(&path, "m&force=true", &applied).await.0, 422);
    assert_eq!(api.call("PATCH", &path, json!({"spec": {"note": "x"}})).await.0, 200);
    // Rules about the status hold for the subresource.
    let status = format!("{path}/status");
    assert_eq!(api.call("PATCH", &status, json!({"status": {"replicas": 1}})).await.0, 200);
    assert_eq!(api.call("PATCH", &status, json!({"status": {"replicas": null, "selector": "a=b"}})).await.0, 422);
    // An object without its form is not judged by rules.
    let (_, refused) = api.call("POST", POOLS, json!({"metadata": {"name": "q"}, "spec": {"arch": 7}})).await;
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("some validation rules were not checked because the object was invalid"), "{message}");
}

#[tokio::test]
async fn a_stricter_rule_does_not_block_changes_elsewhere() {
    let api = with_pools("ratchet").await;
    api.call("POST", POOLS, pool("p")).await;
    let mut stricter = pools();
    let properties =
        &mut stricter["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
    properties["replicas"]["x-kubernetes-validations"] = json!([{"rule": "self > 5"}]);
    properties["clusterName"]["pattern"] = "^d".into();
    let (_, stored) = api.get(&format!("{DEFINITIONS}/pools.example.org")).await;
    stricter["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"].clone();
    let (code, answer) = api.call("PUT", &format!("{DEFINITIONS}/pools.example.org"), stricter).await;
    assert_eq!(code, 200, "{answer}");
    let path = format!("{POOLS}/p");
    let (code, answer) = api.call("PATCH", &path, json!({"spec": {"note": "x"}})).await;
    assert_eq!(code, 200, "{answer}");
    assert_eq!(api.call("PATCH", &path, json!({"spec": {"replicas": 3}})).await.0, 422);
    assert_eq!(api.call("PATCH", &path, json!({"spec": {"replicas": 6}})).await.0, 200);
}

#[tokio::test]
async fn a_definition_with_a_rule_that_does_not_compile_is_refused() {
    let api = Api::start("badrule").await;
    let mut wrong = pools();
    wrong["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["x-kubernetes-validations"][0]["rule"] =
        "self.nothing == 1".into();
    let (code, refused) = api.call("POST", DEFINITIONS, wrong).await;
    assert_eq!(code, 422, "{refused}");
    assert_eq!(
        refused["details"]["causes"][0],
        json!({"reason": "FieldValueInvalid",
            "message": "Invalid value: \"self.nothing == 1\": compilation failed: undefined field 'nothing'",
            "field": "spec.versions[0].schema.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule"})
    );
}

#[tokio::test]
async fn pools_are_scaled_through_their_subresource() {
    let api = with_pools("scale").await;
    api.call("POST", POOLS, pool("p")).await;
    api.call("PATCH", &format!("{POOLS}/p/status"), json!({"status": {"replicas": 1, "selector": "a=b"}})).await;
    let path = format!("{POOLS}/p/scale");
    let (code, mut scale) = api.get(&path).await;
    assert_eq!(code, 200, "{scale}");
    assert_eq!((&scale["kind"], &scale["apiVersion"]), (&json!("Scale"), &json!("autoscaling/v1")));
    assert_eq!(scale["spec"], json!({"replicas": 2}));
    assert_eq!(scale["status"], json!({"replicas": 1, "selector": "a=b"}));
    let (code, patched) = api.call("PATCH", &path, json!({"spec": {"replicas": 4}})).await;
    assert_eq!((code, &patched["spec"]["replicas"], &patched["kind"]), (200, &json!(4), &json!("Scale")));
    scale["spec"]["replicas"] = 9.into();
    assert_eq!(api.call("PUT", &path, scale.clone()).await.0, 409, "the revision is an old one");
    scale["metadata"]["resourceVersion"] = patched["metadata"]["resourceVersion"].clone();
    assert_eq!(api.call("PUT", &path, scale).await.0, 200);
    let (_, whole) = api.get(&format!("{POOLS}/p")).await;
    assert_eq!((&whole["spec"]["replicas"], &whole["metadata"]["generation"]), (&json!(9), &json!(3)));
    let managed = whole["metadata"]["managedFields"].as_array().unwrap();
    let own = managed.iter().find(|entry| entry["subresource"] == "scale").unwrap();
    assert_eq!(own["fieldsV1"], json!({"f:spec": {"f:replicas": {}}}));
    assert_eq!(api.call("PATCH", &path, json!({"spec": {"replicas": -1}})).await.0, 422);
    assert_eq!(api.call("DELETE", &path, Value::Null).await.0, 405);
    let (_, list) = api.get("/apis/example.org/v1").await;
    let entry =
        list["resources"].as_array().unwrap().iter().find(|entry| entry["name"] == "pools/scale").cloned().unwrap();
    assert_eq!((&entry["group"], &entry["kind"]), (&json!("autoscaling"), &json!("Scale")));
}

#[tokio::test]
async fn events_of_both_groups_are_one() {
    let api = Api::start("events").await;
    let mut watch = api.watch(&format!("{CORE_EVENTS}?watch=true&fieldSelector=involvedObject.name%3Dn1")).await;
    let event = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e1"},
        "eventTime": "2026-01-01T00:00:00.000001Z", "reportingController": "kiln", "reportingInstance": "i", "action": "A",
        "reason": "Started", "regarding": {"kind": "Host", "name": "n1", "namespace": "default"}, "note": "hello", "type": "Normal"});
    let (code, made) = api.call("POST", NEW_EVENTS, event).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!((&made["note"], &made["apiVersion"]), (&json!("hello"), &json!("events.k8s.io/v1")));
    let (kind, seen) = watch.next().await.unwrap();
    assert_eq!((kind.as_str(), &seen["apiVersion"], &seen["message"]), ("ADDED", &json!("v1"), &json!("hello")));
    let (_, core) = api.get(&format!("{CORE_EVENTS}/e1")).await;
    assert_eq!((&core["involvedObject"]["name"], &core["reportingComponent"]), (&json!("n1"), &json!("kiln")));
    assert_eq!(core.get("note"), None, "{core}");
    // Written through the core, read through the other group.
    let old = json!({"metadata": {"name": "e2"}, "involvedObject": {"name": "n2"}, "message": "m", "count": 3, "source": {"component": "c"}});
    assert_eq!(api.call("POST", CORE_EVENTS, old).await.0, 201);
    let (_, list) = api.get(&format!("{NEW_EVENTS}?fieldSelector=regarding.name%3Dn2")).await;
    let items = list["items"].as_array().unwrap();
    assert_eq!(items.len(), 1, "{list}");
    assert_eq!((&items[0]["deprecatedCount"], &items[0]["deprecatedSource"]["component"]), (&json!(3), &json!("c")));
    let mut newer = api.watch(&format!("{NEW_EVENTS}?watch=true")).await;
    assert_eq!((newer.brief().await, newer.brief().await), ("ADDED e1".into(), "ADDED e2".into()));
    let (code, patched) = api.call("PATCH", &format!("{NEW_EVENTS}/e2"), json!({"note": "n"})).await;
    assert_eq!((code, &patched["note"]), (200, &json!("n")));
    assert_eq!(newer.next().await.unwrap().1["note"], "n");
    assert_eq!(api.get(&format!("{CORE_EVENTS}/e2")).await.1["message"], "n");
    assert_eq!(api.call("DELETE", &format!("{NEW_EVENTS}/e1"), Value::Null).await.0, 200);
    assert_eq!(watch.brief().await, "DELETED e1");
    let table = api.table(CORE_EVENTS).await;
    assert!(table["rows"][0]["cells"].as_array().unwrap().contains(&json!("/n2")), "{table}");
}

#[tokio::test]
async fn lists_refuse_revisions_that_mean_nothing_and_watches_tell_unknown_ones_in_the_stream() {
    let api = Api::start("match").await;
    api.call("POST", CONFIG_MAPS, config_map("a")).await;
    let revision = api.get(CONFIG_MAPS).await.1["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    for (query, code) in [
        ("resourceVersionMatch=Exact".to_owned(), 422),
        ("resourceVersionMatch=Exact&resourceVersion=0".to_owned(), 422),
        ("resourceVersionMatch=Newest&resourceVersion=1".to_owned(), 422),
        ("sendInitialEvents=true&resourceVersionMatch=NotOlderThan".to_owned(), 422),
        ("watch=true&sendInitialEvents=true".to_owned(), 422),
        ("watch=true&resourceVersionMatch=NotOlderThan&resourceVersion=1".to_owned(), 422),
        (format!("resourceVersionMatch=Exact&resourceVersion={revision}"), 200),
        (format!("resourceVersionMatch=NotOlderThan&resourceVersion={revision}"), 200),
        ("resourceVersion=0".to_owned(), 200),
        ("resourceVersion=999999".to_owned(), 504),
    ] {
        assert_eq!(api.get(&format!("{CONFIG_MAPS}?{query}")).await.0, code, "{query}");
    }
    api.call("POST", CONFIG_MAPS, config_map("b")).await;
    let old = format!("{CONFIG_MAPS}?resourceVersionMatch=Exact&resourceVersion={revision}");
    assert_eq!(api.get(&old).await.0, 410, "what is newer is not passed off as older");
    let not_older = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    for query in [
        String::new(),
        "&sendInitialEvents=false&resourceVersionMatch=NotOlderThan".to_owned(),
        format!("&{not_older}"),
        format!("&{not_older}&allowWatchBookmarks=true"),
    ] {
        let mut future = api.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion=999999{query}")).await;
        let (kind, status) = future.next().await.unwrap();
        assert_eq!((kind.as_str(), &status["code"]), ("ERROR", &json!(410)), "{query}");
        assert!(future.next().await.is_none(), "{query}");
    }
    for known in ["", "&resourceVersion=0", &format!("&resourceVersion={revision}")] {
        let mut watch = api.watch(&format!("{CONFIG_MAPS}?watch=true&{not_older}{known}")).await;
        assert_eq!((watch.brief().await, watch.brief().await), ("ADDED a".into(), "ADDED b".into()), "{known}");
    }
}

#[tokio::test]
async fn all_pages_report_the_revision_of_the_first() {
    let api = Api::start("pages").await;
    for name in ["a", "b", "c", "d"] {
        api.call("POST", CONFIG_MAPS, config_map(name)).await;
    }
    let (_, first) = api.get(&format!("{CONFIG_MAPS}?limit=2")).await;
    api.call("POST", CONFIG_MAPS, config_map("a1")).await;
    let next = first["metadata"]["continue"].as_str().unwrap();
    let (_, second) = api.get(&format!("{CONFIG_MAPS}?limit=2&continue={next}")).await;
    assert_eq!(second["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    let from = first["metadata"]["resourceVersion"].as_str().unwrap();
    let mut watch = api.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={from}")).await;
    assert_eq!(watch.brief().await, "ADDED a1", "what was created while pages were turned");
    assert_eq!(api.get(&format!("{CONFIG_MAPS}?limit=2&continue={next}&resourceVersion={from}")).await.0, 400);
}

#[tokio::test]
async fn writing_the_same_again_changes_nothing() {
    let api = with_pools("noop").await;
    let (_, made) = api.call("POST", POOLS, pool("p")).await;
    let path = format!("{POOLS}/p");
    let mut same = made.clone();
    same["spec"].as_object_mut().unwrap().shift_remove("arch");
    let (code, after) = api.call("PUT", &path, same).await;
    assert_eq!((code, &after["metadata"]["resourceVersion"]), (200, &made["metadata"]["resourceVersion"]), "{after}");
    let (_, after) = api.call("PATCH", &path, json!({"spec": {"arch": "amd64"}})).await;
    assert_eq!(after["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"]);
    let applied = json!({"apiVersion": "example.org/v1", "kind": "Pool", "spec": {"note": "x", "clusterName": "c1"}});
    let (_, once) = api.apply(&path, "m", &applied).await;
    let (_, twice) = api.apply(&path, "m", &applied).await;
    assert_eq!(once, twice);
}

fn owned(name: &str, owners: &[(&Value, bool)]) -> Value {
    let mut object = config_map(name);
    let references: Vec<Value> = owners
        .iter()
        .map(|(owner, blocks)| {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"], "blockOwnerDeletion": blocks})
        })
        .collect();
    object["metadata"]["ownerReferences"] = references.into();
    object
}

#[tokio::test]
async fn an_object_with_another_owner_survives_the_deletion_of_one() {
    let api = Api::start("owners").await;
    let (_, first) = api.call("POST", CONFIG_MAPS, config_map("first")).await;
    let (_, second) = api.call("POST", CONFIG_MAPS, config_map("second")).await;
    api.call("POST", CONFIG_MAPS, owned("shared", &[(&first, true), (&second, true)])).await;
    let foreground = json!({"propagationPolicy": "Foreground"});
    api.call("DELETE", &format!("{CONFIG_MAPS}/first"), foreground).await;
    api.until_gone(&format!("{CONFIG_MAPS}/first")).await;
    let (code, shared) = api.get(&format!("{CONFIG_MAPS}/shared")).await;
    assert_eq!(code, 200, "{shared}");
    assert_eq!(shared["metadata"]["ownerReferences"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn only_dependents_that_say_so_hold_their_owner_back() {
    let api = Api::start("blocking").await;
    let (_, owner) = api.call("POST", CONFIG_MAPS, config_map("owner")).await;
    let mut blocking = owned("blocking", &[(&owner, true)]);
    blocking["metadata"]["finalizers"] = json!(["example.org/f"]);
    let mut loose = owned("loose", &[(&owner, false)]);
    loose["metadata"]["finalizers"] = json!(["example.org/f"]);
    api.call("POST", CONFIG_MAPS, blocking).await;
    api.call("POST", CONFIG_MAPS, loose).await;
    let path = format!("{CONFIG_MAPS}/owner");
    api.call("DELETE", &path, json!({"propagationPolicy": "Foreground"})).await;
    for _ in 0..100 {
        if api.get(&format!("{CONFIG_MAPS}/blocking")).await.1["metadata"]["deletionTimestamp"].is_string() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(api.get(&path).await.0, 200, "the blocking dependent is still there");
    api.call("PATCH", &format!("{CONFIG_MAPS}/blocking"), json!({"metadata": {"finalizers": null}})).await;
    api.until_gone(&path).await;
    assert_eq!(api.get(&format!("{CONFIG_MAPS}/loose")).await.0, 200, "held by its own finalizer only");
}

#[tokio::test]
async fn what_goes_at_once_was_never_under_deletion() {
    let api = Api::start("atonce").await;
    let (_, made) = api.call("POST", CONFIG_MAPS, config_map("c")).await;
    let from = made["metadata"]["resourceVersion"].as_str().unwrap();
    let mut watch = api.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={from}")).await;
    api.call("DELETE", &format!("{CONFIG_MAPS}/c"), Value::Null).await;
    let (kind, last) = watch.next().await.unwrap();
    assert_eq!(kind, "DELETED");
    assert_eq!(last["metadata"].get("deletionTimestamp"), None, "{last}");
    assert_ne!(last["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"]);
}

#[tokio::test]
async fn keys_that_stand_twice_are_told_or_refused() {
    let api = with_pools("twice").await;
    let body = r#"{"metadata": {"name": "p"}, "spec": {"clusterName": "a", "replicas": 1, "replicas": 2}}"#.to_owned();
    let strict = format!("{POOLS}?fieldValidation=Strict");
    let (code, refused) = api.call_as("admin", "POST", &strict, "application/json", body.clone()).await;
    assert_eq!(code, 400);
    assert_eq!(
        refused["message"],
        "Pool in version \"v1\" cannot be handled as a Pool: strict decoding error: duplicate field \"spec.replicas\""
    );
    let request = axum::http::Request::post(POOLS).header("authorization", "Bearer admin");
    let request = request.header("content-type", "application/json").body(axum::body::Body::from(body)).unwrap();
    let response = api.send(request).await;
    assert_eq!(response.status(), 201);
    assert_eq!(response.headers()["warning"], "299 - \"duplicate field \\\"spec.replicas\\\"\"");
    assert_eq!(api.get(&format!("{POOLS}/p")).await.1["spec"]["replicas"], 2, "the last counts");
}

#[tokio::test]
async fn an_apply_by_kubectl_keeps_its_note_for_the_client_side_fresh() {
    let api = with_pools("note").await;
    let note = "kubectl.kubernetes.io/last-applied-configuration";
    let mut made = pool("p");
    made["metadata"]["annotations"] = json!({note: "old"});
    api.call("POST", POOLS, made).await;
    let path = format!("{POOLS}/p");
    let wanted =
        json!({"kind": "Pool", "apiVersion": "example.org/v1", "metadata": {"name": "p"}, "spec": {"note": "n"}});
    let (_, other) = api.apply(&path, "somebody", &wanted).await;
    assert_eq!(other["metadata"]["annotations"][note], "old");
    let (code, object) = api.apply(&path, "kubectl", &wanted).await;
    assert_eq!(code, 200, "{object}");
    assert_eq!(
        object["metadata"]["annotations"][note],
        "{\"apiVersion\":\"example.org/v1\",\"kind\":\"Pool\",\"metadata\":{\"name\":\"p\"},\"spec\":{\"note\":\"n\"}}\n"
    );
}
