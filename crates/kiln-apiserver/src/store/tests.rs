//! The store: revisions, conflicts, durability and logs.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use serde_json::json;
use time::OffsetDateTime;

use super::*;
use crate::identity::{ADMINISTRATORS, Identity, hash, make_token};
use crate::secrecy::Unlock;
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
    let first =
        store.write(Write::Create { key: key("a"), draft: object("a", 1), requires: Vec::new() }).await.unwrap();
    let second =
        store.write(Write::Update { key: key("a"), expected: first.revision, draft: object("a", 2) }).await.unwrap();
    assert_eq!(second.revision, first.revision + 1);
    store.write(Write::Create { key: key("b"), draft: object("b", 1), requires: Vec::new() }).await.unwrap();
    let b = store.snapshot().get(&key("b")).unwrap().revision;
    let gone =
        store.write(Write::Delete { key: key("b"), expected: b, draft: object("b", 1), empty: None }).await.unwrap();
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
    let stored =
        store.write(Write::Create { key: key("a"), draft: object("a", 1), requires: Vec::new() }).await.unwrap();
    let again = store.write(Write::Create { key: key("a"), draft: object("a", 1), requires: Vec::new() }).await;
    assert_eq!(again.unwrap_err(), WriteError::Exists);
    let stale = store.write(Write::Update { key: key("a"), expected: 1, draft: object("a", 2) }).await;
    assert_eq!(stale.unwrap_err(), WriteError::Conflict { current: stored.revision });
    let missing = store.write(Write::Delete { key: key("b"), expected: 1, draft: object("b", 2), empty: None }).await;
    assert_eq!(missing.unwrap_err(), WriteError::Missing);
    let homeless = Write::Create { key: key("c"), draft: object("c", 1), requires: vec![key("a"), key("nowhere")] };
    assert_eq!(store.write(homeless).await.unwrap_err(), WriteError::RequirementMissing(key("nowhere")));
}

#[tokio::test]
async fn nothing_comes_where_something_leaves_and_nothing_leaves_that_must_be_empty() {
    let folder = TempDir::new("store");
    let store = open(&folder);
    let home = Key::new(&"homes".into(), "", "h");
    let create = |key: Key, requires: Vec<Key>| Write::Create { key, draft: object("x", 1), requires };
    let stored = store.write(create(home.clone(), Vec::new())).await.unwrap();
    store.write(create(key("a"), vec![home.clone()])).await.unwrap();
    let leave = |expected: u64, empty: Option<&str>| Write::Delete {
        key: home.clone(),
        expected,
        draft: object("h", 1),
        empty: empty.map(Arc::from),
    };
    let held = store.write(leave(stored.revision, Some("things"))).await;
    assert_eq!(held.unwrap_err(), WriteError::NotEmpty);
    let marked = Draft::new(&json!({"metadata": {"name": "h", "deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    let write = Write::Update { key: home.clone(), expected: stored.revision, draft: marked };
    // Sent together, so that they share a transaction: the mark counts from the next write on.
    let (marked, late) = tokio::join!(store.write(write), store.write(create(key("b"), vec![home.clone()])));
    assert_eq!(late.unwrap_err(), WriteError::RequirementLeaving(home.clone()));
    assert!(store.snapshot().get(&key("b")).is_none());
    store.write(leave(marked.unwrap().revision, Some("nothing"))).await.unwrap();
    let homeless = store.write(create(key("b"), vec![home.clone()])).await;
    assert_eq!(homeless.unwrap_err(), WriteError::RequirementMissing(home));
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
        store.write(Write::Create { key: key(&name), draft: object(&name, 1), requires: Vec::new() }).await.unwrap();
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
                let write = Write::Create { key: key(&name), draft: object(&name, 1), requires: Vec::new() };
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

#[tokio::test]
async fn tokens_are_kept_and_forgotten_for_good() {
    let folder = TempDir::new("store");
    let now = OffsetDateTime::from_unix_timestamp(1_000_000).unwrap();
    let issue = |expires| make_token(Identity::member("a", ADMINISTRATORS), now, expires).unwrap();
    let (kept, revoked, brief) = (issue(None), issue(None), issue(Some(now + time::Duration::seconds(5))));
    let store = open(&folder);
    for token in [&kept, &revoked, &brief] {
        store.put_token(hash(&token.text), token.record.clone()).await.unwrap();
    }
    store.remove_token(hash(&revoked.text)).await.unwrap();
    store.close().await;
    let bytes = std::fs::read(folder.path().join("store.db")).unwrap();
    assert!(!bytes.windows(kept.text.len()).any(|window| window == kept.text.as_bytes()), "only hashes are kept");
    let (store, tokens) = Store::open_sealed(folder.path(), StoreLimits::default(), None).unwrap();
    assert_eq!(tokens.find(&kept.text, now), Some(&kept.record.identity));
    assert_eq!(tokens.find(&revoked.text, now), None);
    assert_eq!(tokens.find(&brief.text, now), Some(&brief.record.identity));
    assert_eq!(tokens.find(&brief.text, now + time::Duration::seconds(5)), None);
    store.close().await;
}

fn sealed_with(key: &str, previous: Option<&str>, folder: &TempDir) -> Secrecy {
    let unlock = |name: &str| match name.strip_prefix("words-") {
        Some(_) => Unlock::PassphraseFile { path: folder.path().join(name) },
        None => Unlock::KeyFile { path: folder.path().join(name), make: true },
    };
    Secrecy { collections: vec!["secrets".into()], unlock: unlock(key), previous: previous.map(unlock) }
}

#[tokio::test]
async fn secrets_are_sealed_opened_and_sealed_anew_and_a_wrong_key_opens_nothing() {
    let (folder, keys) = (TempDir::new("store"), TempDir::new("keys"));
    let secret = Key::new(&"secrets".into(), "ns", "s");
    let passphrase = keys.path().join("words-1");
    std::fs::write(&passphrase, "correct horse battery staple\n").unwrap();
    std::fs::set_permissions(&passphrase, std::fs::Permissions::from_mode(0o600)).unwrap();
    let draft =
        Draft::new(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": "hunter2"}));
    let store = open(&folder);
    let stored = store.write(Write::Create { key: secret.clone(), draft, requires: Vec::new() }).await.unwrap();
    store.write(Write::Create { key: key("a"), draft: object("a", 1), requires: Vec::new() }).await.unwrap();
    store.close().await;
    let readable = || {
        let files = std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().path());
        files.filter(|path| std::fs::read(path).unwrap().windows(7).any(|window| window == b"hunter2")).count()
    };
    assert_eq!(readable(), 1, "without a key it is plain");
    let open_with = |secrecy: Option<&Secrecy>| Store::open_sealed(folder.path(), StoreLimits::default(), secrecy);
    // Sealed for the first time; opened; sealed anew with a passphrase; with a key again.
    for (current, previous) in [
        ("k1", None),
        ("k1", None),
        ("words-1", Some("k1")),
        ("words-1", None),
        ("words-1", Some("k1")),
        ("k2", Some("words-1")),
    ] {
        let (store, _) = open_with(Some(&sealed_with(current, previous, &keys))).unwrap();
        assert_eq!(store.snapshot().get(&secret).unwrap().json, stored.json, "{current} after {previous:?}");
        assert!(store.snapshot().get(&key("a")).is_some());
        store.close().await;
        assert_eq!(readable(), 0, "{current} after {previous:?}");
    }
    for (secrecy, expected) in [
        (None, "the database holds sealed objects: name its key file or passphrase file"),
        (
            Some(sealed_with("k1", None, &keys)),
            "`K/k1` is not the key of this database: name the right one, or the old one as the previous key to change keys",
        ),
        (
            Some(sealed_with("words-1", None, &keys)),
            "`K/words-1` is not the key of this database: name the right one, or the old one as the previous key to change keys",
        ),
        (
            Some(sealed_with("new", Some("k1"), &keys)),
            "`K/k1` is not the key of this database: name the right one, or the old one as the previous key to change keys",
        ),
        (
            Some(sealed_with("gone", None, &keys)),
            "the key of the database is missing: `K/gone` cannot be read; bring it back, sealed objects cannot be read without it",
        ),
    ] {
        let error = open_with(secrecy.as_ref()).unwrap_err();
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert_eq!(cause.replace(&keys.path().display().to_string(), "K"), expected);
        assert!(!keys.path().join("gone").exists(), "a lost key is not replaced in silence");
    }
}

#[tokio::test]
async fn a_sealed_row_moved_to_another_name_is_refused() {
    let (folder, keys) = (TempDir::new("store"), TempDir::new("keys"));
    let secrecy = sealed_with("k", None, &keys);
    let (store, _) = Store::open_sealed(folder.path(), StoreLimits::default(), Some(&secrecy)).unwrap();
    let secret = Key::new(&"secrets".into(), "ns", "mine");
    store.write(Write::Create { key: secret, draft: object("mine", 1), requires: Vec::new() }).await.unwrap();
    store.close().await;
    let connection = rusqlite::Connection::open(folder.path().join("store.db")).unwrap();
    connection.execute("UPDATE objects SET name = 'yours'", []).unwrap();
    drop(connection);
    let error = Store::open_sealed(folder.path(), StoreLimits::default(), Some(&secrecy)).unwrap_err();
    assert!(error.to_string().ends_with("secrets ns/yours cannot be read as an object: restore a backup"), "{error}");
}

#[tokio::test]
async fn a_database_of_the_first_format_is_brought_to_the_newest() {
    let (folder, keys) = (TempDir::new("store"), TempDir::new("keys"));
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/store/v1.db");
    std::fs::copy(fixture, folder.path().join("store.db")).unwrap();
    let secrecy = sealed_with("k", None, &keys);
    for _ in 0..2 {
        let (store, _) = Store::open_sealed(folder.path(), StoreLimits::default(), Some(&secrecy)).unwrap();
        let snapshot = store.snapshot();
        assert_eq!(snapshot.revision, 9);
        let counts: Vec<(&str, usize)> = snapshot.counts().map(|(name, count)| (&**name, count)).collect();
        let definitions = "customresourcedefinitions.apiextensions.k8s.io";
        assert_eq!(counts, [("configmaps", 1), (definitions, 1), ("namespaces", 3), ("secrets", 1)]);
        let secret = snapshot.get(&Key::new(&"secrets".into(), "lab", "bmc")).unwrap().value();
        assert_eq!(secret["data"]["password"], "aHVudGVyMg==");
        store.close().await;
    }
    let connection = rusqlite::Connection::open(folder.path().join("store.db")).unwrap();
    let number = |query: &str| connection.query_row(query, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!((number("PRAGMA user_version"), number("SELECT value FROM facts WHERE name = 'format'")), (2, 2));
    connection.execute_batch("PRAGMA user_version = 99").unwrap();
    drop(connection);
    let newer = Store::open(folder.path(), StoreLimits::default()).unwrap_err().to_string();
    assert!(newer.ends_with("store.db` has format 99, this program reads up to 2: use the newer program"), "{newer}");
}

#[tokio::test]
async fn the_write_ahead_log_stays_small_however_much_is_written() {
    let folder = TempDir::new("store");
    let store = open(&folder);
    let text = "x".repeat(64 << 10);
    let log = folder.path().join("store.db-wal");
    let (mut largest, mut revision) = (0, 0);
    for number in 0..800_u32 {
        let draft = Draft::new(&json!({"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "a"}, "text": text,
            "number": number}));
        let write = match number {
            0 => Write::Create { key: key("a"), draft, requires: Vec::new() },
            _ => Write::Update { key: key("a"), expected: revision, draft },
        };
        revision = store.write(write).await.unwrap().revision;
        largest = largest.max(std::fs::metadata(&log).unwrap().len());
    }
    assert!(largest < 40 << 20, "the log had {largest} bytes of the 52 MB that were written");
    store.close().await;
    assert!(!log.exists(), "it is folded and gone at the end");
    assert_eq!(open(&folder).snapshot().get(&key("a")).unwrap().revision, revision);
}
