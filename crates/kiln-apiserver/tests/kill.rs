//! kill -9 among writes: what was acknowledged is there, and revisions never go back.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use kiln_apiserver::store::{Draft, Key, Store, StoreLimits, Write};
use serde_json::json;

const FOLDER: &str = "KILN_TEST_STORE";
const ROUND: &str = "KILN_TEST_ROUND";
const ROUNDS: usize = 25;

/// Not a test by itself: what the other one starts and kills.
#[test]
fn child_writes_until_it_is_killed() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let round = std::env::var(ROUND).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let store = Arc::new(Store::open(&folder, StoreLimits::default()).unwrap());
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let (store, round) = (Arc::clone(&store), round.clone());
                tokio::spawn(async move {
                    for index in 0.. {
                        let name = format!("r{round}-{writer}-{index}");
                        let write = Write::Create { key: key(&name), draft: draft(&name), requires: None };
                        let stored = store.write(write).await.unwrap();
                        println!("acknowledged {name} {}", stored.revision);
                        if index % 3 == 0 {
                            let gone =
                                Write::Delete { key: key(&name), expected: stored.revision, draft: draft(&name) };
                            let gone = store.write(gone).await.unwrap();
                            println!("deleted {name} {}", gone.revision);
                        }
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.await.unwrap();
        }
    });
}

#[test]
fn what_was_acknowledged_survives_kill_9() {
    let folder = std::env::temp_dir().join(format!("kiln-kill-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (mut present, mut newest, mut total) = (std::collections::BTreeSet::new(), 0, 0);
    for round in 0..ROUNDS {
        for line in lines_until_killed(&folder, round) {
            let words: Vec<&str> = line.split(' ').collect();
            let [what, name, revision] = words.as_slice() else { continue };
            let revision: u64 = revision.parse().unwrap();
            newest = newest.max(revision);
            total += 1;
            match *what {
                "acknowledged" => present.insert((*name).to_owned()),
                _ => present.remove(*name),
            };
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let store = Store::open(&folder, StoreLimits::default()).unwrap();
            let snapshot = store.snapshot();
            assert!(snapshot.revision >= newest, "the revision went back from {newest} to {}", snapshot.revision);
            for name in &present {
                // Its deletion may have been committed without anybody hearing of it.
                let deletable = name.rsplit('-').next().unwrap().parse::<u32>().unwrap() % 3 == 0;
                assert!(deletable || snapshot.get(&key(name)).is_some(), "{name} is lost");
            }
            store.close().await;
        });
    }
    let _ = std::fs::remove_dir_all(&folder);
    assert!(total > ROUNDS, "only {total} writes were acknowledged: nothing was tried");
}

/// Starts the child, kills it after a while that differs from round to round, and gives what it had printed.
fn lines_until_killed(folder: &Path, round: usize) -> Vec<String> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["child_writes_until_it_is_killed", "--exact", "--nocapture"])
        .env(FOLDER, folder)
        .env(ROUND, round.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut lines = Vec::new();
    // From the first acknowledgement on, a time that falls anywhere in the next transactions.
    let mut line = String::new();
    while output.read_line(&mut line).unwrap() > 0 && !line.contains("acknowledged") {
        line.clear();
    }
    lines.push(line.trim().to_owned());
    std::thread::sleep(Duration::from_micros(700 * (round as u64 * 7 % 23)));
    child.kill().unwrap();
    lines.extend(output.lines().map_while(Result::ok));
    child.wait().unwrap();
    lines
}

fn key(name: &str) -> Key {
    Key::new(&"things".into(), "ns", name)
}

fn draft(name: &str) -> Draft {
    Draft::new(&json!({"apiVersion": "v1", "kind": "Thing", "metadata": {"name": name}, "data": "x".repeat(500)}))
}
