//! Backups of a store in use, put back, damaged and refused.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::identity::{ADMINISTRATORS, Identity, hash, make_token};
use crate::secrecy::{Secrecy, Unlock};
use crate::store::{Draft, Expired, Key, Store, StoreLimits, Write};
use crate::testing::TempDir;

fn key(collection: &str, name: &str) -> Key {
    Key::new(&Arc::from(collection), "ns", name)
}

fn draft(name: &str, text: &str) -> Draft {
    Draft::new(&json!({"apiVersion": "v1", "kind": "Thing", "metadata": {"name": name}, "data": text}))
}

async fn put(store: &Store, collection: &str, name: &str) -> u64 {
    let write =
        Write::Create { key: key(collection, name), draft: draft(name, "plain hunter2 text"), requires: Vec::new() };
    store.write(write).await.unwrap().revision
}

fn secrecy(folder: &Path) -> Secrecy {
    let unlock = Unlock::KeyFile { path: folder.join("key"), make: true };
    Secrecy { collections: vec!["secrets".into()], unlock, previous: None }
}

fn open_sealed(folder: &Path, keys: &Path) -> Store {
    Store::open_sealed(folder, StoreLimits::default(), Some(&secrecy(keys))).unwrap().0
}

fn restore(file: &Path, folder: &Path, replace: bool) -> Result<(Manifest, u64), String> {
    restore_backup(file, folder, replace, RestoredAuthority::Keep, RestoredTokens::Keep)
        .map_err(|error| error.to_string().replace(&folder.display().to_string(), "DIR"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_taken_among_writes_is_whole_and_restores_beyond_every_revision() {
    let (folder, keys, target) = (TempDir::new("backup"), TempDir::new("keys"), TempDir::new("restored"));
    let file = keys.path().join("hub.backup");
    let store = Arc::new(open_sealed(folder.path(), keys.path()));
    put(&store, "secrets", "s1").await;
    let writing = {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            for index in 0..400 {
                put(&store, "things", &format!("n{index:04}")).await;
            }
        })
    };
    while store.snapshot().count("things") < 50 {
        tokio::task::yield_now().await;
    }
    let path = (folder.path().to_owned(), file.clone());
    let manifest =
        tokio::task::spawn_blocking(move || write_backup(&path.0, &path.1, WithAuthority::No).unwrap()).await.unwrap();
    writing.await.unwrap();
    let last = store.snapshot().revision;
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(read_manifest(&file).unwrap(), manifest);
    assert!(manifest.sealed && manifest.revision <= last);
    let (_, revision) = restore(&file, target.path(), false).unwrap();
    assert_eq!(revision, manifest.revision + GAP);
    let restored = open_sealed(target.path(), keys.path());
    let snapshot = restored.snapshot();
    // Everything up to the revision of the backup, and nothing after it.
    let copied = snapshot.count("things");
    assert_eq!(copied as u64, manifest.revision - 2, "one transaction, nothing half");
    for index in 0..copied {
        assert!(snapshot.get(&key("things", &format!("n{index:04}"))).is_some(), "n{index:04}");
    }
    assert_eq!(snapshot.get(&key("secrets", "s1")).unwrap().value()["data"], "plain hunter2 text");
    assert_eq!(snapshot.revision, revision);
    assert_eq!(
        restored.log("things").read_after(last, 10).unwrap_err(),
        Expired,
        "old watchers are told to list again"
    );
    assert!(put(&restored, "things", "new").await > last, "no revision is given twice");
    store.close().await;
    restored.close().await;
}

#[tokio::test]
async fn secrets_in_a_backup_are_sealed() {
    let (folder, keys) = (TempDir::new("backup"), TempDir::new("keys"));
    let file = keys.path().join("hub.backup");
    let store = open_sealed(folder.path(), keys.path());
    put(&store, "secrets", "s1").await;
    write_backup(folder.path(), &file, WithAuthority::No).unwrap();
    let holds = |path: &Path| fs::read(path).unwrap().windows(7).any(|window| window == b"hunter2");
    assert!(!holds(&file), "the secret is in the backup");
    store.close().await;
    assert!(!holds(&folder.path().join("store.db")), "the secret is in the database");
}

#[tokio::test]
async fn restoring_refuses_a_running_store_a_full_folder_and_damaged_files() {
    let (folder, target) = (TempDir::new("backup"), TempDir::new("restored"));
    let file = folder.path().join("hub.backup");
    let store = Store::open(folder.path(), StoreLimits::default()).unwrap();
    put(&store, "things", "a").await;
    write_backup(folder.path(), &file, WithAuthority::No).unwrap();
    assert_eq!(restore(&file, folder.path(), true).unwrap_err(), "the store was not restored", "the store is in use");
    store.close().await;
    let full = restore(&file, folder.path(), false).unwrap_err();
    assert_eq!(full, "`DIR` is not empty: give --replace to replace what the hub has there");
    let bytes = fs::read(&file).unwrap();
    let mut flipped = bytes.clone();
    let middle = bytes.len() / 2;
    flipped[middle] ^= 1;
    let longer = [bytes.as_slice(), b"x"].concat();
    let escaping = String::from_utf8_lossy(&bytes).replacen("\"store.db\"", "\"../../x\"", 1).into_bytes();
    let endless = String::from_utf8_lossy(&bytes).replacen("\"revision\":2", "\"revision\":18446744073709551615", 1);
    let endless = endless.into_bytes();
    for (damaged, expected) in [
        (flipped.as_slice(), "store.db is not what was backed up"),
        (&bytes[..bytes.len() - 1], "store.db is not what was backed up"),
        (&longer, "what follows the last part is not what was backed up"),
        (b"kiln-backup 9\n", "it is of a newer program"),
        (b"SQLite format 3\0", "it begins otherwise"),
        (b"kiln-backup 1\n{}\n", "its manifest is damaged"),
        (&escaping, "its manifest is damaged"),
        (&endless, "its manifest is damaged"),
        (b"", "it begins otherwise"),
    ] {
        let path = folder.path().join("damaged");
        fs::write(&path, damaged).unwrap();
        let refused = restore(&path, target.path(), false).unwrap_err();
        assert!(refused.contains(expected), "{refused} does not say {expected}");
        assert!(is_empty(target.path()).unwrap(), "something was left behind after: {refused}");
    }
    let (_, revision) = restore(&file, folder.path(), true).unwrap();
    assert_eq!(revision, 2 + GAP);
    let (_, again) = restore(&file, folder.path(), true).unwrap();
    assert_eq!(again, revision + GAP, "a second restore goes on from the first");
}

#[tokio::test]
async fn the_authority_and_tokens_come_back_only_as_told() {
    let (folder, target) = (TempDir::new("backup"), TempDir::new("restored"));
    let (plain, whole) = (folder.path().join("plain"), folder.path().join("whole"));
    let store = Store::open(folder.path(), StoreLimits::default()).unwrap();
    let token = make_token(Identity::member("a", ADMINISTRATORS), OffsetDateTime::UNIX_EPOCH, None).unwrap();
    store.put_token(hash(&token.text), token.record.clone()).await.unwrap();
    for name in AUTHORITY {
        fs::write(folder.path().join(name), format!("old {name}")).unwrap();
    }
    write_backup(folder.path(), &plain, WithAuthority::No).unwrap();
    write_backup(folder.path(), &whole, WithAuthority::Yes).unwrap();
    store.close().await;
    let restore = |file: &Path, authority, tokens| restore_backup(file, target.path(), true, authority, tokens);
    let authority = || fs::read_to_string(target.path().join("ca.key")).ok();
    let tokens = async || {
        let (store, tokens) = Store::open_sealed(target.path(), StoreLimits::default(), None).unwrap();
        store.close().await;
        tokens.find(&token.text, OffsetDateTime::UNIX_EPOCH).is_some()
    };
    let missing = restore(&plain, RestoredAuthority::FromBackup, RestoredTokens::Keep).unwrap_err();
    assert!(missing.to_string().ends_with("holds no authority: it was made without --with-authority"), "{missing}");
    restore(&plain, RestoredAuthority::Keep, RestoredTokens::Keep).unwrap();
    assert_eq!((authority(), tokens().await), (None, true));
    restore(&whole, RestoredAuthority::Keep, RestoredTokens::Forget).unwrap();
    assert_eq!((authority(), tokens().await), (Some("old ca.key".into()), false));
    restore(&whole, RestoredAuthority::New, RestoredTokens::Keep).unwrap();
    assert_eq!(authority(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_root_restores_is_the_hubs() {
    let (folder, target) = (TempDir::new("root-backup"), TempDir::new("root-restored"));
    let file = folder.path().join("hub.backup");
    put(&Store::open(folder.path(), StoreLimits::default()).unwrap(), "things", "n").await;
    for name in AUTHORITY {
        fs::write(folder.path().join(name), "x").unwrap();
    }
    write_backup(folder.path(), &file, WithAuthority::Yes).unwrap();
    // Only root can give a folder to somebody else; everybody else's is their own.
    let _ = chown(target.path(), Some(4711), Some(4711));
    let owner = fs::metadata(target.path()).unwrap().uid();
    restore(&file, target.path(), false).unwrap();
    let (_, handed) = hand_over(&file, target.path()).unwrap();
    let mut found: Vec<(String, u32)> = fs::read_dir(target.path())
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), entry.metadata().unwrap().uid()))
        .collect();
    found.sort();
    drop(handed);
    let expected = ["ca.crt", "ca.key", "restore.db", "store.db", "store.lock"];
    assert_eq!(found, expected.map(|name| (name.to_owned(), owner)));
}
