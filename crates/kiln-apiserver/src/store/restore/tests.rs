//! Backups put into a store that is in use: what changes, what is refused, and what is left.

use serde_json::json;
use time::OffsetDateTime;

use super::*;
use crate::identity::{ADMINISTRATORS, Identity, IssuedToken, hash, make_token};
use crate::secrecy::Unlock;
use crate::store::backup::{WithAuthority, hand_over, write_backup};
use crate::store::{Expired, StoreLimits, Write};
use crate::testing::TempDir;

fn key(collection: &str, name: &str) -> Key {
    Key::new(&Arc::from(collection), "ns", name)
}

fn draft(name: &str, uid: &str, text: &str) -> Draft {
    Draft::new(&json!({"apiVersion": "v1", "kind": "Thing", "metadata": {"name": name, "uid": uid}, "data": text}))
}

async fn create(store: &Store, collection: &str, name: &str, text: &str) -> u64 {
    let write = Write::Create { key: key(collection, name), draft: draft(name, "u", text), requires: Vec::new() };
    store.write(write).await.unwrap().revision
}

async fn update(store: &Store, collection: &str, name: &str, text: &str) -> u64 {
    let expected = store.snapshot().get(&key(collection, name)).unwrap().revision;
    let write = Write::Update { key: key(collection, name), expected, draft: draft(name, "u", text) };
    store.write(write).await.unwrap().revision
}

async fn delete(store: &Store, collection: &str, name: &str) {
    let expected = store.snapshot().get(&key(collection, name)).unwrap().revision;
    let draft = draft(name, "u", "last");
    store.write(Write::Delete { key: key(collection, name), expected, draft, empty: None }).await.unwrap();
}

fn secrecy(keys: &TempDir, name: &str) -> Secrecy {
    let unlock = Unlock::KeyFile { path: keys.path().join(name), make: true };
    Secrecy { collections: vec!["secrets".into()], unlock, previous: None }
}

fn open(folder: &TempDir, keys: &TempDir) -> (Store, Tokens) {
    Store::open_sealed(folder.path(), StoreLimits::default(), Some(&secrecy(keys, "key"))).unwrap()
}

/// `ns/name text` of a collection.
fn contents(store: &Store, collection: &str) -> Vec<String> {
    let text =
        |stored: &Arc<Stored>| format!("{} {}", stored.place.name, stored.value()["data"].as_str().unwrap_or_default());
    store.snapshot().list(collection, None, None).map(text).collect()
}

fn counts(restored: &Restored) -> [usize; 3] {
    [restored.created, restored.changed, restored.deleted]
}

fn token(user: &str) -> IssuedToken {
    make_token(Identity::member(user, ADMINISTRATORS), OffsetDateTime::UNIX_EPOCH, None).unwrap()
}

#[tokio::test]
async fn a_store_in_use_becomes_equal_to_the_backup_and_watchers_see_what_differs() {
    let (folder, keys) = (TempDir::new("live"), TempDir::new("keys"));
    let file = keys.path().join("hub.backup");
    let (store, _) = open(&folder, &keys);
    let (known, later) = (token("known"), token("later"));
    for name in ["a", "b", "c", "e"] {
        create(&store, "things", name, "old").await;
    }
    create(&store, "secrets", "s", "hunter2").await;
    store.put_token(hash(&known.text), known.record.clone()).await.unwrap();
    let manifest = write_backup(folder.path(), &file, WithAuthority::No).unwrap();
    // Written and written back: the same but for its revision.
    update(&store, "things", "a", "new").await;
    let kept = update(&store, "things", "a", "old").await;
    update(&store, "things", "b", "new").await;
    delete(&store, "things", "c").await;
    create(&store, "things", "d", "new").await;
    delete(&store, "things", "e").await;
    let another = Write::Create { key: key("things", "e"), draft: draft("e", "other", "old"), requires: Vec::new() };
    store.write(another).await.unwrap();
    update(&store, "secrets", "s", "changed").await;
    create(&store, "later", "x", "new").await;
    store.remove_token(hash(&known.text)).await.unwrap();
    store.put_token(hash(&later.text), later.record.clone()).await.unwrap();
    let before = store.snapshot().revision;

    let (_, handed) = hand_over(&file, folder.path()).unwrap();
    let restored = store.restore(handed.sha256.clone(), RestoredTokens::Keep).await.unwrap();
    assert!(!folder.path().join(HANDED_OVER).exists(), "the file is gone before the answer");
    assert_eq!((restored.from, counts(&restored)), (manifest.revision, [2, 2, 3]));
    assert_eq!(restored.revision, before + 7);
    assert_eq!(contents(&store, "things"), ["a old", "b old", "c old", "e old"]);
    assert_eq!(contents(&store, "secrets"), ["s hunter2"]);
    assert_eq!(contents(&store, "later"), Vec::<String>::new());
    assert_eq!(
        store.snapshot().get(&key("things", "a")).unwrap().revision,
        kept,
        "what is the same keeps its revision"
    );
    let told: Vec<String> = store
        .log("things")
        .read_after(before, 20)
        .unwrap()
        .iter()
        .map(|event| format!("{:?} {} {}", event.kind, event.object.place.name, event.object.index.uid))
        .collect();
    assert_eq!(told, ["Deleted d u", "Modified b u", "Added c u", "Deleted e other", "Added e u"]);
    let now = OffsetDateTime::UNIX_EPOCH;
    let are_known = |tokens: &Tokens| [&known, &later].map(|token| tokens.find(&token.text, now).is_some());
    assert_eq!(are_known(&restored.tokens), [true, false]);

    let (_, handed) = hand_over(&file, folder.path()).unwrap();
    let again = store.restore(handed.sha256.clone(), RestoredTokens::Forget).await.unwrap();
    assert_eq!((counts(&again), again.revision), ([0, 0, 0], restored.revision), "there was nothing to do");
    assert!(create(&store, "things", "z", "new").await == restored.revision + 1);
    store.close().await;
    let bytes = fs::read(folder.path().join("store.db")).unwrap();
    assert!(!bytes.windows(7).any(|window| window == b"hunter2"), "what was restored is sealed");
    let (store, tokens) = open(&folder, &keys);
    assert_eq!(contents(&store, "things"), ["a old", "b old", "c old", "e old", "z new"]);
    assert_eq!(contents(&store, "secrets"), ["s hunter2"]);
    assert_eq!(store.snapshot().revision, restored.revision + 1);
    assert_eq!(are_known(&tokens), [false, false], "all were forgotten");
}

#[tokio::test]
async fn what_cannot_be_restored_changes_nothing_and_leaves_nothing() {
    let (folder, keys) = (TempDir::new("live"), TempDir::new("keys"));
    let file = keys.path().join("hub.backup");
    let (store, _) = open(&folder, &keys);
    create(&store, "secrets", "s", "hunter2").await;
    create(&store, "things", "a", "old").await;
    write_backup(folder.path(), &file, WithAuthority::No).unwrap();
    update(&store, "things", "a", "new").await;
    let before = store.snapshot().revision;
    // Each gets the database of the backup, changes it and says what it hashes to.
    let same: &dyn Fn(&Connection) = &|_| {};
    let newer: &dyn Fn(&Connection) = &|database| database.execute_batch("PRAGMA user_version = 99").unwrap();
    let moved: &dyn Fn(&Connection) =
        &|database| database.execute_batch("UPDATE objects SET name = 't' WHERE collection = 'secrets'").unwrap();
    let broken: &dyn Fn(&Connection) =
        &|database| database.execute_batch("UPDATE objects SET json = x'7b7d' WHERE collection = 'things'").unwrap();
    let endless: &dyn Fn(&Connection) = &|database| {
        database.execute_batch("UPDATE facts SET value = 9223372036854775807 WHERE name = 'revision'").unwrap()
    };
    let other_key: &dyn Fn(&Connection) =
        &|database| database.execute_batch("UPDATE sealing SET wrapped = x'01020304'").unwrap();
    let no_table: &dyn Fn(&Connection) = &|database| database.execute_batch("DROP TABLE objects").unwrap();
    let another = "there is no restore.db";
    for (change, announced, expected) in [
        (same, Some("00"), "the restore.db in the data folder is another one than announced"),
        (newer, None, "restore.db` has format 99, this program reads up to 2: use the newer program"),
        (moved, None, "the backup is damaged: secrets ns/t cannot be read as an object"),
        (broken, None, "the backup is damaged: things ns/a cannot be read as an object"),
        (endless, None, "the backup is damaged: nobody comes to its revision 9223372036854775807"),
        (other_key, None, "Secrets in the backup are sealed with another key than the hub's"),
        (no_table, None, "no such table: objects"),
    ] {
        let (_, handed) = hand_over(&file, folder.path()).unwrap();
        let path = folder.path().join(HANDED_OVER);
        change(&Connection::open(&path).unwrap());
        let sha256 = announced.map_or_else(|| hash_file(&path).unwrap().1, str::to_owned);
        let error = store.restore(sha256, RestoredTokens::Keep).await.unwrap_err();
        let mut told = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(next) = cause {
            told.push_str(&format!(": {next}"));
            cause = next.source();
        }
        assert!(told.contains(expected), "{told} does not say {expected}");
        assert_eq!((contents(&store, "things"), store.snapshot().revision), (vec!["a new".into()], before), "{told}");
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
        assert!(!left.iter().any(|name| name.to_string_lossy().contains("restore")), "{left:?} after {told}");
        assert!(store.is_healthy(), "{told}");
        drop(handed);
        let error = store.restore(String::new(), RestoredTokens::Keep).await.unwrap_err().to_string();
        assert!(error.starts_with(another), "{error}");
    }
    create(&store, "things", "b", "new").await;
}

#[tokio::test]
async fn more_changes_than_the_log_keeps_tell_watchers_to_list_again() {
    let (folder, target) = (TempDir::new("live"), TempDir::new("live"));
    let file = folder.path().join("hub.backup");
    let large = Store::open(folder.path(), StoreLimits::default()).unwrap();
    for index in 0..20 {
        create(&large, "things", &format!("n{index:02}"), "old").await;
    }
    let manifest = write_backup(folder.path(), &file, WithAuthority::No).unwrap();
    let store = Store::open(target.path(), StoreLimits { log_events: 5, log_bytes: 1 << 20 }).unwrap();
    let start = store.snapshot().revision;
    // A hub that was killed did not come to this one.
    fs::write(target.path().join(HANDED_OVER), "half").unwrap();
    store.close().await;
    let store = Store::open(target.path(), StoreLimits { log_events: 5, log_bytes: 1 << 20 }).unwrap();
    assert!(!target.path().join(HANDED_OVER).exists());
    let (_, handed) = hand_over(&file, target.path()).unwrap();
    let restored = store.restore(handed.sha256.clone(), RestoredTokens::Keep).await.unwrap();
    assert_eq!(counts(&restored), [20, 0, 0]);
    assert_eq!(restored.revision, manifest.revision + GAP + 20, "no revision is given that the other store gave");
    assert_eq!(store.log("things").read_after(start, 50).unwrap_err(), Expired);
    assert_eq!(store.log("things").read_after(restored.revision - 5, 50).unwrap().len(), 5);
    assert_eq!(store.snapshot().count("things"), 20);
}

#[tokio::test]
async fn a_backup_of_the_first_format_is_brought_to_the_newest_and_its_secrets_are_sealed() {
    let (old, folder, keys) = (TempDir::new("old"), TempDir::new("live"), TempDir::new("keys"));
    let file = keys.path().join("hub.backup");
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/store/v1.db");
    fs::copy(fixture, old.path().join("store.db")).unwrap();
    assert_eq!(write_backup(old.path(), &file, WithAuthority::No).unwrap().format, 1);
    let (store, _) = open(&folder, &keys);
    let (_, handed) = hand_over(&file, folder.path()).unwrap();
    let restored = store.restore(handed.sha256.clone(), RestoredTokens::Keep).await.unwrap();
    assert_eq!(counts(&restored), [6, 0, 0]);
    let secret = Key::new(&"secrets".into(), "lab", "bmc");
    assert_eq!(store.snapshot().get(&secret).unwrap().value()["data"]["password"], "aHVudGVyMg==");
    store.close().await;
    let bytes = fs::read(folder.path().join("store.db")).unwrap();
    assert!(!bytes.windows(12).any(|window| window == b"aHVudGVyMg=="), "it was plain in the backup");
}
