//! `kiln restore` into a hub that runs: with the real program, controllers, watches and other people's tokens.

#![allow(clippy::unwrap_used, reason = "tests may fail loudly")]

#[path = "support/served.rs"]
mod served;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kiln_testimage::temp_dir::TempDir;
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams};
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use kube::runtime::reflector;
use kube::runtime::watcher::{self, watcher};
use serde_json::{Value, json};
use served::Hub;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SECRET: &str = "/api/v1/namespaces/default/secrets/bmc";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const HOSTS: &str = "/apis/kiln.dev/v1alpha1/namespaces/default/hosts";

/// The status of the answer, and the answer.
async fn call(client: &Client, method: &str, path: &str, body: Value) -> (u16, Value) {
    let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = axum::http::Request::builder().method(method).uri(path).header("content-type", kind).body(body);
    match client.request::<Value>(request.unwrap()).await {
        Ok(answer) => (200, answer),
        Err(kube::Error::Api(status)) => (status.code, json!({"message": status.message})),
        Err(error) => panic!("{method} {path}: {error}"),
    }
}

async fn must(client: &Client, method: &str, path: &str, body: Value) -> Value {
    let (code, answer) = call(client, method, path, body).await;
    assert_eq!(code, 200, "{method} {path}: {answer}");
    answer
}

async fn client_of(kubeconfig: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

fn map(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"value": value}})
}

fn definition(plural: &str) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.example.org")},
        "spec": {"group": "example.org", "scope": "Namespaced", "names": {"plural": plural, "kind": format!("K{plural}")},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}})
}

fn things(plural: &str) -> String {
    format!("/apis/example.org/v1/namespaces/default/{plural}")
}

async fn soon(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_so().await {
        assert!(Instant::now() < deadline, "{what} did not come about");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// `name=value` of all ConfigMaps.
async fn values(client: &Client) -> Vec<String> {
    let list = must(client, "GET", MAPS, Value::Null).await;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let items = list["items"].as_array().unwrap().iter();
    items.map(|item| format!("{}={}", text(&item["metadata"]["name"]), text(&item["data"]["value"]))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_hub_becomes_what_the_backup_says_and_whoever_watches_sees_it() {
    let folder = TempDir::new("live-restore");
    let path = |name: &str| folder.path().join(name);
    let hub = Hub::start(&path("hub"));
    let admin = hub.client().await;
    let file = path("hub.backup").display().to_string();
    let grant = |user: &str, more: &[&str]| {
        let out = path(user).display().to_string();
        let (code, told, error) = hub.kiln(&[&["access", "grant"], more, &["--out", &out]].concat());
        assert_eq!(code, 0, "{error}");
        told.split(' ').nth(1).unwrap().to_owned()
    };
    for name in ["stays", "changes", "goes"] {
        must(&admin, "POST", MAPS, map(name, "old")).await;
    }
    let secret = json!({"metadata": {"name": "bmc"}, "stringData": {"password": "hunter2"}});
    must(&admin, "POST", "/api/v1/namespaces/default/secrets", secret).await;
    must(&admin, "POST", DEFINITIONS, definition("olds")).await;
    must(
        &admin,
        "POST",
        &things("olds"),
        json!({"apiVersion": "example.org/v1", "kind": "Kolds", "metadata": {"name": "o"}}),
    )
    .await;
    let host = json!({"apiVersion": "kiln.dev/v1alpha1", "kind": "Host", "metadata": {"name": "h1"}, "spec": {}});
    must(&admin, "POST", HOSTS, host).await;
    // A backup from before Kiln knew a kind: the hub that runs does, and puts its definition back.
    let own = format!("{DEFINITIONS}/egressips.k8s.ovn.org");
    must(&admin, "DELETE", &own, Value::Null).await;
    let anna = grant("anna", &["anna"]);
    let (code, _, error) = hub.kiln(&["backup", &file]);
    assert_eq!(code, 0, "{error}");

    // Everything that can differ does.
    must(&admin, "PATCH", &format!("{MAPS}/changes"), json!({"data": {"value": "new"}})).await;
    must(&admin, "DELETE", &format!("{MAPS}/goes"), Value::Null).await;
    must(&admin, "POST", MAPS, map("later", "new")).await;
    must(&admin, "PATCH", SECRET, json!({"data": {"password": "bmV3"}})).await;
    must(&admin, "DELETE", &format!("{DEFINITIONS}/olds.example.org"), Value::Null).await;
    must(&admin, "POST", DEFINITIONS, definition("news")).await;
    must(
        &admin,
        "POST",
        &things("news"),
        json!({"apiVersion": "example.org/v1", "kind": "Knews", "metadata": {"name": "n"}}),
    )
    .await;
    must(&admin, "PATCH", &format!("{HOSTS}/h1"), json!({"metadata": {"labels": {"rack": "7"}}})).await;
    soon("the end of a definition", async || call(&admin, "GET", &things("olds"), Value::Null).await.0 == 404).await;
    assert_eq!(hub.kiln(&["access", "revoke", &anna]).0, 0);
    grant("bella", &["bella"]);
    grant("host", &["--role", "host", "--host", "default/h1"]);
    let stays = must(&admin, "GET", &format!("{MAPS}/stays"), Value::Null).await;
    let (reader, writer) = reflector::store();
    let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), "default");
    let watching = watcher(maps.clone(), watcher::Config::default());
    let following = tokio::spawn(reflector::reflector(writer, watching).for_each(|_| std::future::ready(())));
    reader.wait_until_ready().await.unwrap();
    let before = values(&admin).await;

    // Who may not, and what cannot be, changes nothing.
    for (who, expected) in [("anna", 401), ("bella", 403), ("host", 403)] {
        let asked = call(&client_of(&path(who)).await, "POST", "/restore?sha256=00", Value::Null).await;
        assert_eq!(asked.0, expected, "{who}: {}", asked.1);
    }
    for (path, expected) in [
        ("/restore?sha256=00&dryRun=All", (400, "dryRun: a restore has none")),
        ("/restore", (400, "sha256: what the database in the folder hashes to is wanted")),
        ("/restore?sha256=00", (409, "nothing was restored: there is no restore.db in the data folder")),
    ] {
        let (code, answer) = call(&admin, "POST", path, Value::Null).await;
        assert_eq!(code, expected.0);
        assert!(answer["message"].as_str().unwrap().starts_with(expected.1), "{answer}");
    }
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let damaged = folder.write("damaged", bytes).display().to_string();
    for (arguments, expected) in [
        (&["restore", &damaged, "--replace"][..], "damaged: store.db is not what was backed up; nothing was restored"),
        (&["restore", &file], "is not empty: give --replace to replace what the hub has there"),
        (
            &["restore", &file, "--replace", "--authority", "new"],
            "keeps its authority: stop it first, or leave out --authority",
        ),
    ] {
        let (code, _, error) = hub.kiln(arguments);
        assert_eq!(code, 1, "{error}");
        assert!(error.replace('`', "").contains(expected), "{error}");
    }
    assert_eq!(values(&admin).await, before);

    let (code, told, error) = hub.kiln(&["restore", &file, "--replace"]);
    assert_eq!(code, 0, "{error}");
    let counts = regex::Regex::new(
        r"^\S+: restored revision \d+ of \S+ into the running hub: (\d+) created, (\d+) changed, (\d+) deleted; revisions go on after (\d+)\n$",
    );
    let counts = counts.unwrap().captures(&told).unwrap_or_else(|| panic!("{told}"));
    let count = |number: usize| counts[number].parse::<u64>().unwrap();
    // A definition and what it defines; events of the controllers may be among them.
    assert!(count(1) >= 3 && count(2) >= 3 && count(3) >= 3, "{told}");
    // At once, not soon: it was answered after everything was served.
    assert_eq!(call(&admin, "GET", &format!("{}/o", things("olds")), Value::Null).await.0, 200);
    assert_eq!(call(&admin, "GET", &things("news"), Value::Null).await.0, 404);
    assert_eq!(values(&admin).await, ["changes=old", "goes=old", "stays=old"]);
    soon("a definition of Kiln's", async || call(&admin, "GET", &own, Value::Null).await.0 == 200).await;
    assert_eq!(must(&admin, "GET", SECRET, Value::Null).await["data"]["password"], "aHVudGVyMg==");
    assert_eq!(must(&admin, "GET", &format!("{HOSTS}/h1"), Value::Null).await["metadata"]["labels"], Value::Null);
    assert_eq!(must(&admin, "GET", &format!("{MAPS}/stays"), Value::Null).await, stays, "also its revision");
    let revision = |object: &Value| object["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
    let changed = must(&admin, "GET", &format!("{MAPS}/changes"), Value::Null).await;
    assert!(revision(&changed) > revision(&stays) && revision(&changed) <= count(4), "revisions never go back");
    let seen = || {
        let text = |map: &ConfigMap| {
            format!("{}={}", map.metadata.name.as_deref().unwrap(), map.data.as_ref().unwrap()["value"])
        };
        let mut seen: Vec<String> = reader.state().iter().map(|map| text(map)).collect();
        seen.sort();
        seen
    };
    soon("what a watch must see", async || seen() == ["changes=old", "goes=old", "stays=old"]).await;
    following.abort();
    // The controllers go on: they write about a host that is new to them.
    let later = json!({"apiVersion": "kiln.dev/v1alpha1", "kind": "Host", "metadata": {"name": "h2"}, "spec": {}});
    must(&admin, "POST", HOSTS, later).await;
    soon("a status", async || {
        !must(&admin, "GET", &format!("{HOSTS}/h2"), Value::Null).await["status"]["conditions"].is_null()
    })
    .await;

    // Tokens are those of the backup, and with the flag there are none.
    let look = async |who: &str| call(&client_of(&path(who)).await, "GET", MAPS, Value::Null).await.0;
    assert_eq!((look("anna").await, look("bella").await), (200, 401));
    let (code, _, error) = hub.kiln(&["restore", &file, "--replace", "--forget-tokens"]);
    assert_eq!(code, 0, "{error}");
    assert_eq!((look("anna").await, look("bella").await), (401, 401));
    assert!(!path("hub").join("restore.db").exists());
    let audit = std::fs::read_to_string(path("hub").join("audit.log")).unwrap();
    let told: Vec<String> = audit
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|line| line["resource"] == "/restore")
        .map(|line| {
            format!("{} {} {}", line["user"].as_str().unwrap_or("-"), line["verb"].as_str().unwrap(), line["code"])
        })
        .collect();
    let expected = [
        "- post 401",
        "bella post 403",
        "kiln:host:default:h1 post 403",
        "kiln-admin post 400",
        "kiln-admin post 400",
        "kiln-admin post 409",
    ];
    assert_eq!(told[..6], expected);
    assert_eq!(told[6..], ["kiln-admin post 200", "kiln-admin post 200"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hub_killed_while_it_restores_has_the_old_state_or_the_new_one() {
    const MANY: usize = 400;
    let folder = TempDir::new("killed-restore");
    let data = folder.path().join("hub");
    let file = folder.path().join("hub.backup").display().to_string();
    let mut hub = Hub::start(&data);
    let admin = hub.client().await;
    let creating = futures::stream::iter(0..MANY).map(|number| {
        let admin = admin.clone();
        async move { drop(must(&admin, "POST", MAPS, map(&format!("m{number:04}"), &"x".repeat(2000))).await) }
    });
    creating.buffer_unordered(32).collect::<Vec<()>>().await;
    assert_eq!(hub.kiln(&["backup", &file]).0, 0);
    let mut outcomes = [0, 0];
    let mut last = 0;
    for delay in [0, 10, 20, 40, 80, 160, 320] {
        let maps: Api<ConfigMap> = Api::namespaced(hub.client().await, "default");
        drop(maps.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap());
        let mut restoring = Command::new(env!("CARGO_BIN_EXE_kiln"))
            .args(["restore", &file, "--replace", "--data-dir"])
            .arg(&data)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        while !data.join("restore.db").exists() && restoring.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "nothing was handed over");
            std::thread::sleep(Duration::from_micros(200));
        }
        std::thread::sleep(Duration::from_millis(delay));
        // Dropped, it is killed.
        drop(hub);
        restoring.wait().unwrap();
        hub = Hub::start(&data);
        assert!(!data.join("restore.db").exists(), "the next start removes it");
        let maps: Api<ConfigMap> = Api::namespaced(hub.client().await, "default");
        let list = maps.list(&ListParams::default()).await.unwrap();
        let revision: u64 = list.metadata.resource_version.as_ref().unwrap().parse().unwrap();
        assert!(revision >= last, "{revision} after {last}");
        last = revision;
        match list.items.len() {
            0 => outcomes[0] += 1,
            MANY => outcomes[1] += 1,
            half => panic!("{half} of {MANY} objects after {delay} ms"),
        }
    }
    println!("killed in the middle: {} had the old state, {} the new one", outcomes[0], outcomes[1]);
}
