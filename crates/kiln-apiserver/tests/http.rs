//! The API over its router: what clients send and what they get, without a socket.

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

use std::time::Duration;

use api::{Api, CONFIG_MAPS, DEFINITIONS, WIDGETS, config_map, widget};
use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use kiln_apiserver::Limits;
use kiln_apiserver::openapi_v2::protobuf::{MEDIA_TYPE, OLD_MEDIA_TYPE};
use serde_json::{Value, json};

#[tokio::test]
async fn nothing_but_health_is_answered_to_strangers_and_viewers_only_read() {
    let api = Api::start("auth").await;
    let request = Request::get("/healthz").body(Body::empty()).unwrap();
    assert_eq!(api.send(request).await.status(), 200);
    for path in ["/api", "/apis", "/version", "/openapi/v3", CONFIG_MAPS, "/nowhere"] {
        assert_eq!(api.call_as("wrong", "GET", path, "", String::new()).await.0, 401, "{path}");
    }
    let (code, answer) =
        api.call_as("viewer", "POST", CONFIG_MAPS, "application/json", config_map("c").to_string()).await;
    assert_eq!(code, 403);
    assert_eq!(
        answer["message"],
        "configmaps is forbidden: User \"viewer\" cannot create resource \"configmaps\" in API group \"\" in the namespace \"default\""
    );
    assert_eq!(api.call_as("viewer", "GET", CONFIG_MAPS, "", String::new()).await.0, 200);
    assert_eq!(api.call_as("viewer", "GET", "/api/v1/secrets", "", String::new()).await.0, 403);
}

#[tokio::test]
async fn an_object_lives_from_create_to_delete() {
    let api = Api::start("life").await;
    api.define_widgets().await;
    let (code, created) = api.call("POST", WIDGETS, widget("w", 1)).await;
    assert_eq!((code, &created["spec"]["mode"]), (201, &json!("slow")));
    assert_eq!(api.call("POST", WIDGETS, widget("w", 1)).await.0, 409);
    let path = format!("{WIDGETS}/w");
    let (_, got) = api.get(&path).await;
    assert_eq!(got, created);
    let (code, patched) = api.call("PATCH", &path, json!({"spec": {"size": 2}})).await;
    assert_eq!((code, &patched["metadata"]["generation"]), (200, &json!(2)));
    assert_eq!(api.call("PUT", &path, created.clone()).await.1["reason"], "Conflict");
    let mut unversioned = created.clone();
    unversioned["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    assert_eq!(api.call("PUT", &path, unversioned).await.0, 422);
    let (_, same) = api.call("PATCH", &path, json!({"spec": {"size": 2}})).await;
    assert_eq!(same["metadata"]["resourceVersion"], patched["metadata"]["resourceVersion"], "nothing changed");
    let (code, refused) = api.call("PATCH", &path, json!({"spec": {"size": -1}})).await;
    assert_eq!((code, &refused["details"]["causes"][0]["field"]), (422, &json!("spec.size")));
    let (_, status) =
        api.call("PATCH", &format!("{path}/status"), json!({"status": {"x": 1}, "spec": {"size": 9}})).await;
    assert_eq!(
        (&status["status"]["x"], &status["spec"]["size"], &status["metadata"]["generation"]),
        (&json!(1), &json!(2), &json!(2))
    );
    let (_, other) = api.get("/apis/example.org/v1beta1/namespaces/default/widgets/w").await;
    assert_eq!((&other["apiVersion"], &other["spec"]["size"]), (&json!("example.org/v1beta1"), &json!(2)));
    let (code, gone) = api.call("DELETE", &path, Value::Null).await;
    assert_eq!((code, &gone["status"], &gone["details"]["kind"]), (200, &json!("Success"), &json!("widgets")));
    assert_eq!(api.get(&path).await.1["message"], "widgets.example.org \"w\" not found");
}

#[tokio::test]
async fn dry_runs_leave_nothing_behind() {
    let api = Api::start("dry").await;
    assert_eq!(api.call("POST", &format!("{CONFIG_MAPS}?dryRun=All"), config_map("c")).await.0, 201);
    assert_eq!(api.get(&format!("{CONFIG_MAPS}/c")).await.0, 404);
    api.call("POST", CONFIG_MAPS, config_map("c")).await;
    let path = format!("{CONFIG_MAPS}/c");
    assert_eq!(api.call("PATCH", &format!("{path}?dryRun=All"), json!({"data": {"a": "z"}})).await.1["data"]["a"], "z");
    assert_eq!(api.call("DELETE", &format!("{path}?dryRun=All"), Value::Null).await.0, 200);
    assert_eq!(api.get(&path).await.1["data"]["a"], "b");
}

#[tokio::test]
async fn a_dry_run_of_deletecollection_names_what_would_go_and_keeps_it() {
    let api = Api::start("dry-collection").await;
    for (name, color) in [("a", "red"), ("b", "blue"), ("c", "red")] {
        let mut object = config_map(name);
        object["metadata"]["labels"] = json!({"color": color});
        assert_eq!(api.call("POST", CONFIG_MAPS, object).await.0, 201);
    }
    let (_, before) = api.get(CONFIG_MAPS).await;
    let by_query =
        api.call("DELETE", &format!("{CONFIG_MAPS}?dryRun=All&labelSelector=color%3Dred"), Value::Null).await;
    // As kubectl and client-go say it.
    let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"]});
    let by_body = api.call("DELETE", &format!("{CONFIG_MAPS}?labelSelector=color%3Dred"), options).await;
    for (code, list) in [by_query, by_body] {
        let names: Vec<&str> =
            list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect();
        assert_eq!((code, names), (200, vec!["a", "c"]));
    }
    assert_eq!(api.get(CONFIG_MAPS).await.1, before, "nothing happened, not even to the revision");
    assert_eq!(api.call("DELETE", &format!("{CONFIG_MAPS}?labelSelector=color%3Dred"), Value::Null).await.0, 200);
    assert_eq!(api.get(CONFIG_MAPS).await.1["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_list_that_goes_on_too_late_is_told_to_begin_anew() {
    let mut limits = Limits::default();
    limits.store.log_events = 2;
    let api = Api::start_with("continue-late", limits).await;
    for name in ["a", "b", "c"] {
        api.call("POST", CONFIG_MAPS, config_map(name)).await;
    }
    let (_, first) = api.get(&format!("{CONFIG_MAPS}?limit=1")).await;
    let next = first["metadata"]["continue"].as_str().unwrap();
    assert_eq!(api.get(&format!("{CONFIG_MAPS}?limit=1&continue={next}")).await.0, 200);
    for number in 0..4 {
        api.call("PATCH", &format!("{CONFIG_MAPS}/a"), json!({"data": {"a": number.to_string()}})).await;
    }
    let (code, refused) = api.get(&format!("{CONFIG_MAPS}?limit=1&continue={next}")).await;
    assert_eq!((code, &refused["kind"], &refused["reason"]), (410, &json!("Status"), &json!("Expired")), "{refused}");
    let message = refused["message"].as_str().unwrap();
    assert!(message.starts_with("The provided continue parameter is too old"), "{message}");
}

#[tokio::test]
async fn lists_are_paged_selected_and_shown_as_tables() {
    let api = Api::start("lists").await;
    api.define_widgets().await;
    for (index, color) in ["red", "blue", "red", "green", "red"].iter().enumerate() {
        let mut object = widget(&format!("w{index}"), 1);
        object["metadata"]["labels"] = json!({"color": color});
        object["spec"]["color"] = (*color).into();
        assert_eq!(api.call("POST", WIDGETS, object).await.0, 201);
    }
    let names = |list: &Value| -> Vec<String> {
        let items = list["items"].as_array().unwrap().iter();
        items.map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    };
    for (query, expected) in [
        ("labelSelector=color%3Dred", vec!["w0", "w2", "w4"]),
        ("labelSelector=color%20notin%20(red)", vec!["w1", "w3"]),
        ("fieldSelector=metadata.name%3Dw1", vec!["w1"]),
        ("fieldSelector=spec.color%3Dgreen", vec!["w3"]),
    ] {
        assert_eq!(names(&api.get(&format!("{WIDGETS}?{query}")).await.1), expected, "{query}");
    }
    for (query, message) in [
        ("fieldSelector=spec.size%3D1", "field label not supported: spec.size"),
        ("labelSelector=%3D", "unable to parse requirement: found '=', expected: identifier"),
        ("limit=many", "limit must be a number, not \"many\""),
        ("continue=zzz", "continue key is not valid"),
    ] {
        let (code, refused) = api.get(&format!("{WIDGETS}?{query}")).await;
        assert_eq!((code, refused["message"].as_str().unwrap()), (400, message), "{query}");
    }
    let (_, first) = api.get(&format!("{WIDGETS}?limit=2")).await;
    assert_eq!((names(&first), &first["metadata"]["remainingItemCount"]), (vec!["w0".into(), "w1".into()], &json!(3)));
    api.call("POST", WIDGETS, widget("w9", 1)).await;
    let next = first["metadata"]["continue"].as_str().unwrap();
    let (_, rest) = api.get(&format!("{WIDGETS}?limit=9&continue={next}")).await;
    assert_eq!(names(&rest), ["w2", "w3", "w4", "w9"]);
    assert_eq!(rest["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"], "all pages tell the first's");
    let table = api.table(&format!("{WIDGETS}?limit=1")).await;
    assert_eq!((&table["kind"], &table["rows"][0]["cells"]), (&json!("Table"), &json!(["w0", 1])));
    let (_, all) = api.get("/apis/example.org/v1/widgets").await;
    assert_eq!(names(&all).len(), 6);
    assert_eq!(api.get(&format!("{WIDGETS}?resourceVersion=999999")).await.0, 504);
}

#[tokio::test]
async fn a_watch_tells_what_happens_from_a_revision_on() {
    let api = Api::start("watch").await;
    api.call("POST", CONFIG_MAPS, config_map("before")).await;
    let (_, list) = api.get(CONFIG_MAPS).await;
    let revision = list["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let mut watch = api.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={revision}")).await;
    let mut existing = api.watch(&format!("{CONFIG_MAPS}?watch=true")).await;
    let mut red =
        api.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={revision}&labelSelector=c%3Dred")).await;
    assert_eq!(existing.brief().await, "ADDED before");
    api.call("POST", CONFIG_MAPS, config_map("c")).await;
    let path = format!("{CONFIG_MAPS}/c");
    api.call("PATCH", &path, json!({"metadata": {"labels": {"c": "red"}}})).await;
    api.call("PATCH", &path, json!({"metadata": {"labels": {"c": "blue"}}})).await;
    api.call("DELETE", &path, Value::Null).await;
    for expected in ["ADDED c", "MODIFIED c", "MODIFIED c"] {
        assert_eq!(watch.brief().await, expected);
    }
    let (kind, object) = watch.next().await.unwrap();
    let now = api.get(CONFIG_MAPS).await.1["metadata"]["resourceVersion"].clone();
    assert_eq!(
        (kind.as_str(), &object["metadata"]["resourceVersion"]),
        ("DELETED", &now),
        "the deletion's own revision"
    );
    assert_eq!((red.brief().await, red.brief().await), ("ADDED c".into(), "DELETED c".into()));
    api.server.stop();
    assert_eq!(watch.brief().await, "end");
}

#[tokio::test]
async fn streaming_lists_end_their_first_part_with_a_bookmark_and_timeouts_with_another() {
    let api = Api::start("stream").await;
    api.call("POST", CONFIG_MAPS, config_map("a")).await;
    let query =
        "watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=1";
    let mut watch = api.watch(&format!("{CONFIG_MAPS}?{query}")).await;
    assert_eq!(watch.brief().await, "ADDED a");
    let (kind, object) = watch.next().await.unwrap();
    assert_eq!(
        (kind.as_str(), &object["metadata"]["annotations"]["k8s.io/initial-events-end"]),
        ("BOOKMARK", &json!("true"))
    );
    assert_eq!((watch.brief().await, watch.brief().await), ("BOOKMARK -".into(), "end".into()));
}

#[tokio::test]
async fn a_watch_that_comes_too_late_is_told_inside_the_stream() {
    let mut limits = Limits::default();
    limits.store.log_events = 2;
    let api = Api::start_with("late", limits).await;
    let revision = api.get(CONFIG_MAPS).await.1["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    for index in 0..4 {
        api.call("POST", CONFIG_MAPS, config_map(&format!("c{index}"))).await;
    }
    let mut watch = api.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={revision}")).await;
    let (kind, status) = watch.next().await.unwrap();
    assert_eq!((kind.as_str(), &status["code"], &status["reason"]), ("ERROR", &json!(410), &json!("Expired")));
    let mut future = api.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion=999999")).await;
    assert_eq!(future.next().await.unwrap().1["code"], 410);
}

#[tokio::test]
async fn finalizers_hold_an_object_until_the_last_is_gone() {
    let api = Api::start("final").await;
    let mut held = config_map("c");
    held["metadata"]["finalizers"] = json!(["example.org/a"]);
    api.call("POST", CONFIG_MAPS, held).await;
    let path = format!("{CONFIG_MAPS}/c");
    let (_, marked) = api.call("DELETE", &path, Value::Null).await;
    assert!(marked["metadata"]["deletionTimestamp"].is_string(), "{marked}");
    assert_eq!(api.get(&path).await.0, 200);
    assert_eq!(api.call("PATCH", &path, json!({"metadata": {"finalizers": null}})).await.0, 200);
    assert_eq!(api.get(&path).await.0, 404);
    let (_, fresh) = api.call("POST", CONFIG_MAPS, config_map("c")).await;
    let wrong = json!({"preconditions": {"uid": "other"}});
    assert_eq!(api.call("DELETE", &path, wrong).await.0, 409);
    assert_eq!(api.call("DELETE", &path, json!({"preconditions": {"uid": fresh["metadata"]["uid"]}})).await.0, 200);
}

#[tokio::test]
async fn owned_objects_go_with_their_owner_before_it_or_stay() {
    let api = Api::start("owners").await;
    for (policy, stays) in [("Background", false), ("Foreground", false), ("Orphan", true)] {
        let (_, owner) = api.call("POST", CONFIG_MAPS, config_map("owner")).await;
        let mut owned = config_map("owned");
        owned["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}]);
        api.call("POST", CONFIG_MAPS, owned).await;
        api.call("DELETE", &format!("{CONFIG_MAPS}/owner"), json!({"propagationPolicy": policy})).await;
        api.until_gone(&format!("{CONFIG_MAPS}/owner")).await;
        if stays {
            let (code, left) = api.get(&format!("{CONFIG_MAPS}/owned")).await;
            assert_eq!((code, left["metadata"]["ownerReferences"].as_array().map_or(0, Vec::len)), (200, 0), "{left}");
        } else {
            api.until_gone(&format!("{CONFIG_MAPS}/owned")).await;
        }
    }
}

#[tokio::test]
async fn namespaces_and_definitions_take_their_objects_with_them() {
    let api = Api::start("ends").await;
    api.define_widgets().await;
    api.call("POST", "/api/v1/namespaces", json!({"metadata": {"name": "n"}})).await;
    let (code, missing) = api.call("POST", "/api/v1/namespaces/nowhere/configmaps", config_map("c")).await;
    assert_eq!((code, missing["message"].as_str().unwrap()), (404, "namespaces \"nowhere\" not found"));
    let mut held = config_map("held");
    held["metadata"]["finalizers"] = json!(["example.org/a"]);
    api.call("POST", "/api/v1/namespaces/n/configmaps", held).await;
    api.call("POST", "/apis/example.org/v1/namespaces/n/widgets", widget("w", 1)).await;
    let (_, ending) = api.call("DELETE", "/api/v1/namespaces/n", Value::Null).await;
    assert_eq!(ending["status"]["phase"], "Terminating");
    api.until_gone("/apis/example.org/v1/namespaces/n/widgets/w").await;
    let (code, refused) = api.call("POST", "/api/v1/namespaces/n/configmaps", config_map("new")).await;
    assert_eq!((code, &refused["details"]["causes"][0]["reason"]), (403, &json!("NamespaceTerminating")));
    api.call("PATCH", "/api/v1/namespaces/n/configmaps/held", json!({"metadata": {"finalizers": null}})).await;
    api.until_gone("/api/v1/namespaces/n").await;
    api.call("POST", WIDGETS, widget("w", 1)).await;
    api.call("DELETE", &format!("{DEFINITIONS}/widgets.example.org"), Value::Null).await;
    api.until_gone(&format!("{DEFINITIONS}/widgets.example.org")).await;
    // What is served follows what is stored within moments.
    api.until_gone(WIDGETS).await;
    assert_eq!(api.get(WIDGETS).await.1["message"], "the server could not find the requested resource");
    api.define_widgets().await;
    assert_eq!(api.get(WIDGETS).await.1["items"], json!([]));
}

#[tokio::test]
async fn nothing_is_created_while_its_definition_leaves() {
    let api = Api::start("leaving-definition").await;
    api.define_widgets().await;
    let mut held = widget("held", 1);
    held["metadata"]["finalizers"] = json!(["example.org/a"]);
    api.call("POST", WIDGETS, held).await;
    api.call("DELETE", &format!("{DEFINITIONS}/widgets.example.org"), Value::Null).await;
    let refusal = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "create not allowed while custom resource definition is terminating", "reason": "MethodNotAllowed",
        "code": 405, "details": {"group": "example.org", "kind": "widgets"}});
    assert_eq!(api.call("POST", WIDGETS, widget("late", 1)).await, (405, refusal.clone()));
    assert_eq!(api.call("POST", &format!("{WIDGETS}?dryRun=All"), widget("late", 1)).await, (405, refusal.clone()));
    assert_eq!(api.apply(&format!("{WIDGETS}/late"), "m", &widget("late", 1)).await, (405, refusal));
    // What is there can be changed, as its finalizers must be taken away by somebody.
    let path = format!("{WIDGETS}/held");
    assert_eq!(api.call("PATCH", &path, json!({"spec": {"size": 2}})).await.0, 200);
    api.call("PATCH", &path, json!({"metadata": {"finalizers": null}})).await;
    api.until_gone(&format!("{DEFINITIONS}/widgets.example.org")).await;
    api.until_gone(WIDGETS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_object_outlives_its_namespace_or_definition_however_they_race() {
    let api = Api::start("orphans").await;
    for round in 0..20 {
        let namespace = format!("n{round}");
        api.call("POST", "/api/v1/namespaces", json!({"metadata": {"name": namespace}})).await;
        api.define_widgets().await;
        let create = async |writer: usize| {
            for index in 0..50 {
                let name = format!("c{writer}-{index}");
                let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
                let (map, thing) = tokio::join!(
                    api.call("POST", &maps, config_map(&name)),
                    api.call("POST", WIDGETS, widget(&name, 1))
                );
                if map.0 != 201 && thing.0 != 201 {
                    return;
                }
            }
        };
        let delete = async || {
            // A moment that differs from round to round: with and without objects.
            tokio::time::sleep(Duration::from_micros(round * 150)).await;
            let (namespace, definition) =
                (format!("/api/v1/namespaces/{namespace}"), format!("{DEFINITIONS}/widgets.example.org"));
            tokio::join!(api.call("DELETE", &namespace, Value::Null), api.call("DELETE", &definition, Value::Null));
            api.until_gone(&namespace).await;
            api.until_gone(&definition).await;
        };
        tokio::join!(create(0), create(1), create(2), create(3), delete());
        let snapshot = api.server.snapshot();
        let orphans = snapshot.list("configmaps", Some(&namespace), None).count();
        assert_eq!((orphans, snapshot.count("widgets.example.org")), (0, 0), "round {round}");
    }
}

/// Sends a request and leaves as soon as it is stored, before the answer.
async fn leave_after(api: &Api, method: &str, path: &str, body: Value) {
    let before = api.server.snapshot().revision;
    let mut call = Box::pin(api.call(method, path, body));
    while api.server.snapshot().revision == before {
        assert!(futures::poll!(&mut call).is_pending(), "the answer came before anybody could leave");
        // Long enough for the write that was sent; the request itself does not go on meanwhile.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn what_follows_a_write_does_not_need_the_client_to_stay() {
    let api = Api::start("leaving").await;
    leave_after(&api, "POST", DEFINITIONS, api::definition()).await;
    for _ in 0..200 {
        if api.get(WIDGETS).await.0 == 200 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(api.call("POST", WIDGETS, widget("w", 1)).await.0, 201, "the definition is served");
    api.call("POST", "/api/v1/namespaces", json!({"metadata": {"name": "n"}})).await;
    leave_after(&api, "DELETE", "/api/v1/namespaces/n", Value::Null).await;
    api.until_gone("/api/v1/namespaces/n").await;
}

#[tokio::test]
async fn a_quiet_watch_hears_from_time_to_time_how_far_it_has_come() {
    assert_eq!(Limits::default().bookmarks, Duration::from_secs(60), "as often as a real server");
    let api = Api::start_with("bookmarks", Limits { bookmarks: Duration::from_millis(100), ..Limits::default() }).await;
    let start = api.get(CONFIG_MAPS).await.1["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let path = format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=2&resourceVersion={start}");
    let mut told = api.watch(&format!("{path}&allowWatchBookmarks=true")).await;
    let mut untold = api.watch(&path).await;
    // Nothing the watch is about, but the revision goes on.
    let secret = json!({"metadata": {"name": "s"}});
    let (_, elsewhere) = api.call("POST", "/api/v1/namespaces/default/secrets", secret).await;
    let revision = |object: &Value| object["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
    let mut bookmarks = 0;
    while let Some((kind, object)) = told.next().await {
        assert_eq!((kind.as_str(), &object["kind"]), ("BOOKMARK", &json!("ConfigMap")));
        bookmarks += 1;
        // The first may have been under way; whoever resumes from a later one misses nothing and repeats nothing.
        assert!(bookmarks == 1 || revision(&object) == revision(&elsewhere), "{object}");
    }
    assert!((3..=21).contains(&bookmarks), "{bookmarks} in two seconds");
    assert_eq!(untold.brief().await, "end", "who did not ask for them gets none");
}

#[tokio::test]
async fn discovery_and_openapi_follow_the_definitions() {
    let api = Api::start("discovery").await;
    assert!(!api.get("/apis").await.1.to_string().contains("example.org"));
    api.define_widgets().await;
    let (_, group) = api.get("/apis/example.org").await;
    assert_eq!(group["preferredVersion"]["version"], "v1");
    let (_, resources) = api.get("/apis/example.org/v1").await;
    let listed: Vec<&str> =
        resources["resources"].as_array().unwrap().iter().map(|r| r["name"].as_str().unwrap()).collect();
    assert_eq!(listed, ["widgets", "widgets/status"]);
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
    let request = Request::get("/apis").header("authorization", "Bearer admin").header("accept", accept);
    let response = api.send(request.body(Body::empty()).unwrap()).await;
    assert_eq!(
        response.headers()["content-type"],
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    );
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let all: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!((&all["kind"], &all["apiVersion"]), (&json!("APIGroupDiscoveryList"), &json!("apidiscovery.k8s.io/v2")));
    let groups = all["items"].as_array().unwrap();
    let ours = groups.iter().find(|group| group["metadata"]["name"] == "example.org").unwrap();
    let versions: Vec<&str> =
        ours["versions"].as_array().unwrap().iter().map(|version| version["version"].as_str().unwrap()).collect();
    assert_eq!(versions, ["v1", "v1beta1"]);
    let kind = json!({"group": "example.org", "version": "v1", "kind": "Widget"});
    let told = &ours["versions"][0]["resources"][0];
    assert_eq!(
        (&told["resource"], &told["scope"], &told["responseKind"]),
        (&json!("widgets"), &json!("Namespaced"), &kind)
    );
    assert_eq!(
        told["subresources"],
        json!([{"subresource": "status", "responseKind": kind, "verbs": ["get", "patch", "update"]}])
    );
    // What the one answer says is what the many say.
    assert_eq!(told["verbs"], resources["resources"][0]["verbs"]);
    let (_, listed) = api.get("/apis").await;
    let names = |groups: &Value, name: &str| -> Vec<String> {
        groups
            .as_array()
            .unwrap()
            .iter()
            .map(|group| group.pointer(name).unwrap().as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names(&all["items"], "/metadata/name"), names(&listed["groups"], "/name"));
    let (_, index) = api.get("/openapi/v3").await;
    let url = index["paths"]["apis/example.org/v1"]["serverRelativeURL"].as_str().unwrap();
    let (_, document) = api.get(url).await;
    let schema = &document["components"]["schemas"]["org.example.v1.Widget"];
    assert_eq!(schema["x-kubernetes-group-version-kind"][0]["kind"], "Widget");
    assert!(document["paths"]["/apis/example.org/v1/namespaces/{namespace}/widgets/{name}"]["patch"].is_object());
}

#[tokio::test]
async fn openapi_v2_comes_as_json_or_as_the_protobuf_go_clients_insist_on() {
    let api = Api::start("openapi-v2").await;
    api.define_widgets().await;
    let (code, document) = api.get("/openapi/v2").await;
    assert_eq!((code, document["swagger"].as_str()), (200, Some("2.0")));
    assert_eq!(
        document["definitions"]["org.example.v1.Widget"]["x-kubernetes-group-version-kind"][0]["kind"],
        "Widget"
    );
    let path = &document["paths"]["/apis/example.org/v1/namespaces/{namespace}/widgets/{name}"];
    assert_eq!(path["patch"]["parameters"][2]["name"], "fieldValidation");
    for (accept, expected) in [
        (MEDIA_TYPE, Some(MEDIA_TYPE)),
        (OLD_MEDIA_TYPE, Some(MEDIA_TYPE)),
        ("application/json;q=0.5, application/com.github.proto-openapi.spec.v2.v1.0+protobuf", Some(MEDIA_TYPE)),
        ("*/*", Some("application/json")),
        ("text/html", None),
    ] {
        let request = Request::get("/openapi/v2").header("authorization", "Bearer viewer").header("accept", accept);
        let response = api.send(request.body(Body::empty()).unwrap()).await;
        let kind = response.headers()["content-type"].to_str().unwrap().to_owned();
        let expected = expected.map_or((406, "application/json"), |kind| (200, kind));
        assert_eq!((response.status().as_u16(), kind.as_str()), expected, "{accept}");
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        assert!(!kind.ends_with("protobuf") || bytes.starts_with(b"\x0a\x032.0"), "{accept}");
    }
}

#[tokio::test]
async fn a_collection_goes_at_once_and_what_is_held_stays() {
    let api = Api::start("collection").await;
    for number in 0..300 {
        let finalizers = if number == 7 { json!(["example.org/f"]) } else { json!([]) };
        let metadata = json!({"name": format!("c{number:03}"), "labels": {"odd": (number % 2).to_string()}, "finalizers": finalizers});
        assert_eq!(api.call("POST", CONFIG_MAPS, json!({"metadata": metadata})).await.0, 201);
    }
    let before = api.server.snapshot().revision;
    let (code, list) = api.call("DELETE", &format!("{CONFIG_MAPS}?labelSelector=odd%3D1"), Value::Null).await;
    assert_eq!((code, list["items"].as_array().unwrap().len()), (200, 150));
    assert_eq!(api.server.snapshot().revision, before + 150, "each deletion has its revision");
    let (_, left) = api.get(CONFIG_MAPS).await;
    let left = left["items"].as_array().unwrap();
    let held: Vec<&Value> = left.iter().filter(|item| !item["metadata"]["deletionTimestamp"].is_null()).collect();
    assert_eq!((left.len(), held.len(), held[0]["metadata"]["name"].as_str()), (151, 1, Some("c007")));
}

#[tokio::test]
async fn bad_requests_are_answered_and_harm_nothing() {
    let mut limits = Limits::default();
    limits.watches = 1;
    let api = Api::start_with("bad", limits).await;
    let post = |kind: &'static str, body: String| api.call_as("admin", "POST", CONFIG_MAPS, kind, body);
    assert_eq!(post("application/json", "{".into()).await.0, 400);
    assert_eq!(post("application/json", "[".repeat(100_000)).await.0, 400);
    assert_eq!(post("application/json", "x".repeat(4 << 20)).await.0, 413);
    assert_eq!(post("application/yaml", "a: b".into()).await.0, 415);
    assert_eq!(post("application/vnd.kubernetes.protobuf", "k8s".into()).await.0, 400);
    for (method, path, code) in [
        ("PATCH", CONFIG_MAPS, 405),
        ("POST", "/api", 405),
        ("DELETE", "/api/v1/namespaces", 405),
        ("GET", "/api/v1/namespaces/default/nothing", 404),
        ("GET", "/api/v1/namespaces/default/namespaces", 404),
        ("GET", "/api/v1/namespaces/default/configmaps/a/scale", 404),
        ("POST", "/api/v1/configmaps", 400),
    ] {
        assert_eq!(api.call(method, path, config_map("c")).await.0, code, "{method} {path}");
    }
    let path = format!("{CONFIG_MAPS}/c");
    api.call("POST", CONFIG_MAPS, config_map("c")).await;
    for (kind, body, code) in [
        ("application/json-patch+json", r#"[{"op":"test","path":"/data/a","value":"z"}]"#, 422),
        ("application/json-patch+json", r#"{}"#, 400),
        ("application/merge-patch+json", r#"[]"#, 400),
        ("application/json", r#"{}"#, 415),
        ("application/strategic-merge-patch+json", r#"{"data":{"b":"c"}}"#, 200),
        ("application/apply-patch+yaml", r#"{}"#, 400),
    ] {
        assert_eq!(api.call_as("admin", "PATCH", &path, kind, body.into()).await.0, code, "{kind} {body}");
    }
    let _watch = api.watch(&format!("{CONFIG_MAPS}?watch=true")).await;
    assert_eq!(api.get(&format!("{CONFIG_MAPS}?watch=true")).await.1["reason"], "TooManyRequests");
}

#[tokio::test]
async fn a_node_that_comes_as_protobuf_is_kept_with_its_status() {
    let api = Api::start("node-protobuf").await;
    let field = |number: u8, text: String| {
        format!("{}{}{text}", char::from(number << 3 | 2), char::from(u8::try_from(text.len()).unwrap()))
    };
    let capacity = field(1, "cpu".into()) + &field(2, field(1, "4".into()));
    let raw = field(1, field(1, "n1".into())) + &field(3, field(1, capacity));
    let types = field(1, "v1".into()) + &field(2, "Node".into());
    let body = format!("k8s\0{}{}", field(1, types), field(2, raw));
    let kind = "application/vnd.kubernetes.protobuf";
    let (code, node) = api.call_as("admin", "POST", "/api/v1/nodes", kind, body).await;
    assert_eq!(
        (code, &node["metadata"]["name"], &node["status"]),
        (201, &json!("n1"), &json!({"capacity": {"cpu": "4"}}))
    );
}

#[tokio::test]
async fn definitions_take_strategic_patches_and_what_they_define_does_not() {
    let api = Api::start("strategic").await;
    api.define_widgets().await;
    let patch = |path: String, body: Value| {
        let api = &api;
        let kind = "application/strategic-merge-patch+json";
        async move { api.call_as("admin", "PATCH", &path, kind, body.to_string()).await }
    };
    let path = format!("{DEFINITIONS}/widgets.example.org");
    let (_, before) = api.get(&path).await;
    let body = json!({"metadata": {"finalizers": ["example.org/x"]}, "spec": {"names": {"shortNames": ["wd"]}}});
    let (code, patched) = patch(path.clone(), body).await;
    assert_eq!((code, &patched["spec"]["names"]["shortNames"]), (200, &json!(["wd"])), "{patched}");
    assert_eq!(patched["spec"]["versions"], before["spec"]["versions"]);
    // Finalizers are merged; lists of the definition are replaced, so that a version without its schema is refused.
    let (_, held) = patch(path.clone(), json!({"metadata": {"finalizers": ["example.org/y"]}})).await;
    let finalizers = held["metadata"]["finalizers"].as_array().unwrap();
    assert!(["example.org/x", "example.org/y"].iter().all(|one| finalizers.contains(&json!(one))), "{held}");
    let versions = json!({"spec": {"versions": [{"name": "v1", "served": false}]}});
    assert_eq!(patch(path.clone(), versions).await.0, 422);
    let (_, renamed) = patch(path, json!({"spec": {"names": {"shortNames": ["wg"]}}})).await;
    assert_eq!(renamed["spec"]["names"]["shortNames"], json!(["wg"]));
    api.call("POST", WIDGETS, widget("w", 1)).await;
    assert_eq!(patch(format!("{WIDGETS}/w"), json!({"spec": {"size": 2}})).await.0, 415);
}

#[tokio::test]
async fn namespaces_go_one_by_one() {
    let api = Api::start("namespaces-verbs").await;
    let verbs = |list: &Value, named: &str, plural: &str| {
        let found = list.as_array().unwrap().iter().find(|entry| entry[named] == plural).unwrap();
        found["verbs"].as_array().unwrap().iter().map(|verb| verb.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let (_, core) = api.get("/api/v1").await;
    assert_eq!(
        verbs(&core["resources"], "name", "namespaces"),
        ["create", "delete", "get", "list", "patch", "update", "watch"]
    );
    assert!(verbs(&core["resources"], "name", "configmaps").contains(&"deletecollection".to_owned()));
    let space = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}});
    assert_eq!(api.call("POST", "/api/v1/namespaces", space).await.0, 201);
    let (code, refused) = api.call("DELETE", "/api/v1/namespaces?labelSelector=a%3Db", Value::Null).await;
    assert_eq!((code, &refused["reason"]), (405, &json!("MethodNotAllowed")));
    assert_eq!(api.call("DELETE", "/api/v1/namespaces/a", Value::Null).await.0, 200);
}

#[tokio::test]
async fn server_side_apply_creates_shares_and_refuses() {
    let api = Api::start("apply").await;
    api.define_widgets().await;
    let path = format!("{WIDGETS}/w");
    let apply = |manager: &'static str, size: i64, force: bool| {
        let path = format!("{path}?fieldManager={manager}&force={force}");
        let body = widget("w", size).to_string();
        let api = &api;
        async move { api.call_as("admin", "PATCH", &path, "application/apply-patch+yaml", body).await }
    };
    let (code, created) = apply("alice", 1, false).await;
    assert_eq!(code, 201, "{created}");
    let managed = &created["metadata"]["managedFields"];
    assert_eq!((managed.as_array().unwrap().len(), &managed[0]["operation"]), (1, &json!("Apply")));
    let (_, again) = apply("alice", 1, false).await;
    assert_eq!(again["metadata"]["resourceVersion"], created["metadata"]["resourceVersion"]);
    let (code, refused) = apply("bob", 2, false).await;
    assert_eq!(
        (code, refused["message"].as_str().unwrap()),
        (409, "Apply failed with 1 conflict: conflict with \"alice\": .spec.size")
    );
    assert_eq!(refused["details"]["causes"][0]["reason"], "FieldManagerConflict");
    assert_eq!(apply("bob", 2, true).await.1["spec"]["size"], 2);
}
