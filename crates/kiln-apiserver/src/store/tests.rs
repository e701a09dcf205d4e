//! The store: revisions, conflicts, durability and logs.

use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::testing::TempDir;

fn object(name: &str, value: u32) -> Draft {
    Draft::new(
        &json!({"apiVersion": "v1", "kind": "Thing", "metadata": {"name": name, "labels": {"v": value.to_string()}}}),
    )
}

fn key(name: &str) -> Key {
    Key::new(&"things".into(), "ns", name)
}

fn open(folder: &TempDir) -> Store {
    Store::open(folder.path(), StoreLimits::default()).unwrap()
}

#[tokio::test]
async fn acknowledged_writes_are_there_after_opening_again_and_revisions_go_on() {
    let folder = TempDir::new("store");
    let store = open(&folder);
    let first = store.write(Write::Create { key: key("a"), draft: object("a", 1), requires: None }).await.unwrap();
    let second =
        store.write(Write::Update { key: key("a"), expected: first.revision, draft: object("a", 2) }).await.unwrap();
    assert_eq!(second.revision, first.revision + 1);
    store.write(Write::Create { key: key("b"), draft: object("b", 1), requires: None }).await.unwrap();
    let b = store.snapshot().get(&key("b")).unwrap().revision;
    let gone = store.write(Write::Delete { key: key("b"), expected: b, draft: object("b", 1) }).await.unwrap();
    store.close().await;
    let store = open(&folder);
    let snapshot = store.snapshot();
    assert_eq!(snapshot.revision, gone.revision, "a deletion's revision is not given twice");
    assert_eq!(snapshot.get(&key("a")).unwrap().json, second.json);
    assert_eq!(snapshot.get(&key("a")).unwrap().index, second.index);
    assert!(snapshot.get(&key("b")).is_none());
    assert_eq!(second.value()["metadata"]["resourceVersion"], second.revision.to_string());
}

#[tokio::test]
async fn writes_on_another_state_than_expected_are_refused() {
    let folder = TempDir::new("store");
    let store = open(&folder);
    let stored = store.write(Write::Create { key: key("a"), draft: object("a", 1), requires: None }).await.unwrap();
    let again = store.write(Write::Create { key: key("a"), draft: object("a", 1), requires: None }).await;
    assert_eq!(again.unwrap_err(), WriteError::Exists);
    let stale = store.write(Write::Update { key: key("a"), expected: 1, draft: object("a", 2) }).await;
    assert_eq!(stale.unwrap_err(), WriteError::Conflict { current: stored.revision });
    let missing = store.write(Write::Delete { key: key("b"), expected: 1, draft: object("b", 2) }).await;
    assert_eq!(missing.unwrap_err(), WriteError::Missing);
    let homeless = Write::Create { key: key("c"), draft: object("c", 1), requires: Some(key("nowhere")) };
    assert_eq!(store.write(homeless).await.unwrap_err(), WriteError::RequirementMissing);
}

#[tokio::test]
async fn a_second_process_is_kept_out() {
    let folder = TempDir::new("store");
    let store = open(&folder);
    let refused = Store::open(folder.path(), StoreLimits::default()).unwrap_err();
    assert!(refused.to_string().ends_with("store.lock` is in use by another process: stop it first"), "{refused}");
    store.close().await;
    open(&folder);
}

#[tokio::test]
async fn a_log_forgets_by_count_and_says_so_and_a_quiet_one_does_not() {
    let folder = TempDir::new("store");
    let store = Store::open(folder.path(), StoreLimits { log_events: 3, log_bytes: 1 << 20 }).unwrap();
    let start = store.snapshot().revision;
    for index in 0..5 {
        let name = format!("n{index}");
        store.write(Write::Create { key: key(&name), draft: object(&name, 1), requires: None }).await.unwrap();
    }
    let log = store.log("things");
    assert_eq!(log.read_after(start, 10).unwrap_err(), Expired);
    let kept = log.read_after(start + 2, 10).unwrap();
    assert_eq!(kept.iter().map(|event| event.object.revision).collect::<Vec<_>>(), [start + 3, start + 4, start + 5]);
    assert!(store.log("quiet").read_after(start, 10).unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn many_writers_share_transactions_and_each_gets_its_own_revision() {
    let folder = TempDir::new("store");
    let store = Arc::new(open(&folder));
    let mut tasks = Vec::new();
    for writer in 0..16 {
        let store = Arc::clone(&store);
        tasks.push(tokio::spawn(async move {
            let mut revisions = Vec::new();
            for index in 0..20 {
                let name = format!("w{writer}-{index}");
                let write = Write::Create { key: key(&name), draft: object(&name, 1), requires: None };
                revisions.push(store.write(write).await.unwrap().revision);
            }
            revisions
        }));
    }
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await.unwrap());
    }
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 320);
    assert_eq!(store.snapshot().count("things"), 320);
    let second_page = store.snapshot();
    let after = Place { namespace: "ns".into(), name: "w15-9".into() };
    let rest: Vec<&str> =
        second_page.list("things", Some("ns"), Some(&after)).map(|stored| &*stored.place.name).take(1).collect();
    assert_eq!(rest, ["w2-0"]);
}
