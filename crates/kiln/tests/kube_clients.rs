//! kube-rs against the embedded API over HTTPS: what its runtime is made of must work here as on a real cluster.

#![allow(clippy::unwrap_used, reason = "tests may fail loudly")]

#[path = "support/served.rs"]
mod served;

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Event as CoreEvent};
use kiln_testimage::temp_dir::TempDir;
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::controller::{self, Action, Controller};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::runtime::finalizer::{self, finalizer};
use kube::runtime::reflector::{self, ObjectRef};
use kube::runtime::watcher::{self, watcher};
use kube::{Resource, ResourceExt};
use served::Hub;

fn map(name: &str, value: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() },
        data: Some(BTreeMap::from([("value".to_owned(), value.to_owned())])),
        ..ConfigMap::default()
    }
}

async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), work).await.unwrap_or_else(|_| panic!("{what} did not come about"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reflector_follows_lists_and_streaming_lists_alike() {
    let folder = TempDir::new("kube-reflector");
    let hub = Hub::start(folder.path());
    let client = hub.client().await;
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    for number in 0..7 {
        maps.create(&PostParams::default(), &map(&format!("m{number}"), "old")).await.unwrap();
    }
    for config in [watcher::Config::default().page_size(2), watcher::Config::default().streaming_lists()] {
        let (reader, writer) = reflector::store();
        let following = tokio::spawn({
            let events = watcher(maps.clone(), config.clone());
            async move { reflector::reflector(writer, events).applied_objects().for_each(|_| std::future::ready(())).await }
        });
        soon("the first list", reader.wait_until_ready()).await.unwrap();
        assert_eq!(reader.len(), 7, "{config:?}");
        let patch = serde_json::json!({"data": {"value": "new"}});
        maps.patch("m3", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        maps.delete("m4", &DeleteParams::default()).await.unwrap();
        let key = ObjectRef::new("m3").within("default");
        soon("the change", async {
            while reader.len() != 6 || reader.get(&key).is_none_or(|map| map.data.as_ref().unwrap()["value"] != "new") {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        following.abort();
        maps.create(&PostParams::default(), &map("m4", "old")).await.unwrap();
        let patch = serde_json::json!({"data": {"value": "old"}});
        maps.patch("m3", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_as_yaml_is_read_as_yaml() {
    let folder = TempDir::new("kube-yaml");
    let hub = Hub::start(folder.path());
    let client = hub.client().await;
    let send = async |method: &str, path: &str, media: &str, body: &str| {
        let request = axum::http::Request::builder().method(method).uri(path).header("content-type", media);
        client.request_text(request.body(body.as_bytes().to_vec()).unwrap()).await
    };
    let maps = "/api/v1/namespaces/default/configmaps";
    let apply = "application/apply-patch+yaml";
    let text = "# of a person\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: y1\ndata:\n  a: 'yes'\n  text: |\n    one\n    two\n";
    for media in [apply, "application/apply-patch+yaml; charset=utf-8"] {
        let answer = send("PATCH", &format!("{maps}/y1?fieldManager=person"), media, text).await.unwrap();
        assert!(answer.contains(r#""data":{"a":"yes","text":"one\ntwo\n"}"#), "{answer}");
    }
    send("POST", maps, "application/yaml", &text.replace("y1", "y2")).await.unwrap();
    let refused = send("PATCH", &format!("{maps}/y1?fieldManager=person"), apply, "a: [\n").await.unwrap_err();
    let kube::Error::Api(status) = refused else { panic!("{refused}") };
    assert_eq!(status.code, 400);
    assert!(status.message.starts_with("error decoding YAML: line 2: "), "{}", status.message);
    let two = format!("{text}---\n{text}");
    let refused = send("PATCH", &format!("{maps}/y1?fieldManager=person"), apply, &two).await.unwrap_err();
    assert!(refused.to_string().contains("there are 2 documents in it"), "{refused}");
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Failed(String);

#[derive(Default)]
struct Counts {
    applied: AtomicUsize,
    cleaned: AtomicUsize,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_with_a_finalizer_and_children_works() {
    let folder = TempDir::new("kube-controller");
    let hub = Hub::start(folder.path());
    let client = hub.client().await;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let counts = Arc::new(Counts::default());
    let only_parents = watcher::Config::default().labels("role=parent");
    let config = controller::Config::default().concurrency(32);
    let running = Controller::new(maps.clone(), only_parents)
        .owns(maps.clone(), watcher::Config::default().labels("role=child"))
        .with_config(config)
        .run(
            |parent, context| {
                let (maps, counts): &(Api<ConfigMap>, Arc<Counts>) = &context;
                let (maps, counts) = (maps.clone(), Arc::clone(counts));
                async move {
                    let api = maps.clone();
                    let done = finalizer(&api, "kiln.dev/test", parent, |event| async move {
                        match event {
                            finalizer::Event::Apply(parent) => {
                                let mut child = map(&format!("{}-child", parent.name_any()), "made");
                                child.metadata.owner_references =
                                    parent.controller_owner_ref(&()).map(|owner| vec![owner]);
                                child.metadata.labels = Some(BTreeMap::from([("role".into(), "child".into())]));
                                child.metadata.managed_fields = None;
                                let name = child.name_any();
                                let apply = Patch::Apply(&child);
                                maps.patch(&name, &PatchParams::apply("test").force(), &apply)
                                    .await
                                    .map_err(|error| Failed(error.to_string()))?;
                                counts.applied.fetch_add(1, Ordering::SeqCst);
                            }
                            finalizer::Event::Cleanup(_) => {
                                counts.cleaned.fetch_add(1, Ordering::SeqCst);
                            }
                        }
                        Ok::<_, Failed>(Action::await_change())
                    });
                    done.await.map_err(|error| Failed(error.to_string()))
                }
            },
            |_, _, _| Action::requeue(Duration::from_millis(200)),
            Arc::new((maps.clone(), Arc::clone(&counts))),
        );
    let running = tokio::spawn(async move { pin!(running).for_each(|_| std::future::ready(())).await });
    for number in 0..20 {
        let mut parent = map(&format!("p{number}"), "x");
        parent.metadata.labels = Some(BTreeMap::from([("role".into(), "parent".into())]));
        maps.create(&PostParams::default(), &parent).await.unwrap();
    }
    let children = ListParams::default().labels("role=child");
    let count = async || maps.list(&children).await.unwrap().items.len();
    soon("a child for each", async {
        while count().await != 20 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    // What belongs to a parent is made again, and goes with it.
    maps.delete("p0-child", &DeleteParams::default()).await.unwrap();
    soon("the child again", async {
        while maps.get_opt("p0-child").await.unwrap().is_none() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    maps.delete("p1", &DeleteParams::default()).await.unwrap();
    soon("parent and child to go", async {
        while maps.get_opt("p1").await.unwrap().is_some() || maps.get_opt("p1-child").await.unwrap().is_some() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    assert_eq!(counts.cleaned.load(Ordering::SeqCst), 1);
    assert!(counts.applied.load(Ordering::SeqCst) >= 21);
    running.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_a_recorder_are_read_as_kubectl_reads_them() {
    let folder = TempDir::new("kube-events");
    let hub = Hub::start(folder.path());
    let client = hub.client().await;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let about = maps.create(&PostParams::default(), &map("about", "x")).await.unwrap();
    let reporter = Reporter { controller: "kiln-test".into(), instance: Some("one".into()) };
    let recorder = Recorder::new(client.clone(), reporter);
    let event = Event {
        type_: EventType::Warning,
        reason: "Tested".into(),
        note: Some("it works".into()),
        action: "Testing".into(),
        secondary: None,
    };
    // The second one is the same event again and is counted by the first.
    recorder.publish(&event, &about.object_ref(&())).await.unwrap();
    recorder.publish(&event, &about.object_ref(&())).await.unwrap();
    let events: Api<CoreEvent> = Api::namespaced(client, "default");
    let found = events.list(&ListParams::default().fields("involvedObject.name=about")).await.unwrap();
    let told: Vec<(Option<&str>, Option<&str>, Option<&str>)> =
        found.iter().map(|event| (event.reason.as_deref(), event.message.as_deref(), event.type_.as_deref())).collect();
    assert_eq!(told, [(Some("Tested"), Some("it works"), Some("Warning"))]);
}
