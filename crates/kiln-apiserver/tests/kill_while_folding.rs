//! kill -9 while the write-ahead log is folded into the database: everything acknowledged is there at the next start.
//!
//! Large objects are written without a pause, so that the log is folded most of the time. `kill.rs` has what else a crash
//! must not do.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails loudly; the child tells its parent what was acknowledged"
)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use kiln_apiserver::store::{Draft, Key, Store, StoreLimits, Write};
use serde_json::json;

const FOLDER: &str = "KILN_TEST_FOLDED_STORE";
const WRITERS: usize = 4;
const ROUNDS: usize = 15;
/// With 16 pages each the log is full some times in each round.
const BYTES: usize = 64 << 10;

fn key(name: &str) -> Key {
    Key::new(&"things".into(), "ns", name)
}

/// Not a test by itself: what the other one starts and kills.
#[test]
fn child_writes_until_it_is_killed() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Arc::new(Store::open(&folder, StoreLimits::default()).unwrap());
        let writers = (0..WRITERS).map(|writer| tokio::spawn(write_for_ever(Arc::clone(&store), writer)));
        for writer in writers.collect::<Vec<_>>() {
            writer.await.unwrap();
        }
    });
}

async fn write_for_ever(store: Arc<Store>, writer: usize) {
    for number in 0_usize.. {
        let name = format!("w{writer}-{}", number % 20);
        let text = number.to_string().repeat(BYTES / number.to_string().len());
        let draft = Draft::new(&json!({"apiVersion": "v1", "kind": "Thing", "metadata": {"name": name}, "text": text}));
        let known = store.snapshot().get(&key(&name)).map(|stored| stored.revision);
        let write = match known {
            None => Write::Create { key: key(&name), draft, requires: Vec::new() },
            Some(expected) => Write::Update { key: key(&name), expected, draft },
        };
        let revision = store.write(write).await.unwrap().revision;
        println!("\nstored {name} {revision}");
    }
}

/// Starts the child, kills it after so many writes and gives what it had acknowledged: name and revision.
fn acknowledged_by_child(folder: &Path, writes: usize) -> BTreeMap<String, u64> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["child_writes_until_it_is_killed", "--exact", "--nocapture"])
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut acknowledged = BTreeMap::new();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for (number, line) in lines.map_while(Result::ok).filter(|line| line.starts_with("stored ")).enumerate() {
        if number == writes {
            child.kill().unwrap();
        }
        // A line that the end of the child cut short is no acknowledgement.
        let mut words = line.split(' ').skip(1);
        if let (Some(name), Some(Ok(revision))) = (words.next(), words.next().map(str::parse::<u64>)) {
            acknowledged.entry(name.to_owned()).and_modify(|known| *known = revision.max(*known)).or_insert(revision);
        }
    }
    child.wait().unwrap();
    acknowledged
}

#[test]
fn everything_acknowledged_is_there_after_a_kill_while_the_log_is_folded() {
    let folder = std::env::temp_dir().join(format!("kiln-kill-while-folding-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for round in 0..ROUNDS {
        let acknowledged = acknowledged_by_child(&folder, 100 + round * 7);
        assert!(!acknowledged.is_empty(), "round {round}: the child wrote nothing");
        let log = std::fs::metadata(folder.join("store.db-wal")).unwrap().len();
        assert!(log < 40 << 20, "round {round}: the log has {log} bytes");
        let store = Store::open(&folder, StoreLimits::default()).unwrap();
        let snapshot = store.snapshot();
        for (name, revision) in &acknowledged {
            let stored = snapshot.get(&key(name)).unwrap_or_else(|| panic!("round {round}: {name} is gone"));
            assert!(stored.revision >= *revision, "round {round}: {name} is older than acknowledged");
            let text = stored.value()["text"].as_str().unwrap().to_owned();
            assert!(text.len() > BYTES - 16, "round {round}: {name} is not whole");
        }
        runtime.block_on(store.close());
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
