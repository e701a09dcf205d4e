//! kill -9 at any moment under load: what was acknowledged is there as it was acknowledged, nothing is half there,
//! revisions never go back, and watches go on where they were without a gap and without telling anything twice.
//!
//! The server is a process of its own (this program, started again), asked over HTTPS. A killed process leaves the
//! kernel's cache behind, so this shows what a crash of the program does; what a loss of power does is SQLite's
//! `synchronous=FULL` and the disk's promise.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::field_reassign_with_default,
    reason = "a test fails loudly and says what it skips"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use client::{Connection, Dice, Lines, Lost, client_config};
use kiln_apiserver::identity::ADMINISTRATORS;
use kiln_apiserver::tls::{self, Authority};
use kiln_apiserver::{Limits, Server, Tokens, router};
use rustls::ClientConfig;
use serde_json::{Value, json};

#[path = "support/client.rs"]
mod client;

const FOLDER: &str = "KILN_TEST_STORE";
const ROUNDS: u64 = 210;
const WRITERS: usize = 8;
const NAMES: u64 = 4;
const WATCHERS: usize = 2;
const PATH: &str = "/api/v1/namespaces/default/configmaps";

/// Not a test by itself: what the other one starts and kills.
#[test]
fn child_serves_until_it_is_killed() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let server = Server::open(&folder, Tokens::default(), Limits::default()).await.unwrap();
        let authority = Authority::open(&folder).unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let config = authority.server_config(&["localhost".into()]).unwrap();
        println!("\nlistening {}", listener.local_addr().unwrap());
        tokio::spawn(Arc::clone(&server).run_janitor());
        tls::serve(listener, router(Arc::clone(&server)), config, server.stopping()).await;
    });
}

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The child; it does not outlive the test.
struct Process(Child);

impl Process {
    fn start(folder: &Path) -> (Process, SocketAddr) {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["child_serves_until_it_is_killed", "--exact", "--nocapture"])
            .env(FOLDER, folder)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let line =
            output.lines().map_while(Result::ok).find_map(|line| Some(line.strip_prefix("listening ")?.to_owned()));
        (Process(child), line.expect("the server starts").parse().unwrap())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What everybody knows of one life of the server.
#[derive(Clone)]
struct Life {
    address: SocketAddr,
    config: Arc<ClientConfig>,
    /// The newest revision anybody has heard of.
    newest: Arc<AtomicU64>,
}

impl Life {
    async fn connect(&self) -> Result<Connection, Lost> {
        Connection::open(self.address, Arc::clone(&self.config)).await
    }

    async fn list(&self) -> Result<(BTreeMap<String, Value>, u64), Lost> {
        let (status, list) = self.connect().await?.get(PATH).await?;
        assert_eq!(status, 200, "{list}");
        let items = list["items"].as_array().unwrap().iter();
        Ok((items.map(|item| (name_of(item), item.clone())).collect(), revision_of(&list)))
    }
}

/// What a writer knows about an object of its own.
#[derive(Clone, Debug)]
enum Known {
    Absent,
    /// Exactly this.
    Present(Value),
    /// The server died before it answered: as before, or as wanted (a number of its content, or gone).
    Either(Option<Value>, Option<u64>),
}

struct Writer {
    dice: Dice,
    number: u64,
    objects: BTreeMap<String, Known>,
    /// What was acknowledged, by revision.
    acknowledged: BTreeMap<u64, Value>,
}

impl Writer {
    /// Writes until the server dies, or for a number of turns.
    async fn run(mut self, life: Life, turns: u64) -> Writer {
        let Ok(mut connection) = life.connect().await else { return self };
        for _ in 0..turns {
            let name = format!("w{}-{}", self.number % 100, self.dice.below(NAMES));
            let known = self.objects.get(&name).cloned().unwrap_or(Known::Absent);
            self.number += 100;
            let before = match &known {
                Known::Absent => None,
                Known::Present(object) => Some(object.clone()),
                Known::Either(..) => unreachable!("decided when the server came back"),
            };
            let wanted = self.content(&name);
            let apply = format!("{PATH}/{name}?fieldManager=test&force=true");
            let one = format!("{PATH}/{name}");
            let json = "application/json";
            let (method, path, media, body) = match (&before, self.dice.below(10)) {
                (None, 0..6) => ("POST", PATH, json, wanted.clone()),
                (None, _) | (Some(_), 0..3) => ("PATCH", &*apply, "application/apply-patch+yaml", wanted.clone()),
                (Some(before), 3..6) => {
                    let mut whole = wanted.clone();
                    whole["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"].clone();
                    ("PUT", &*one, json, whole)
                }
                (Some(_), 6..8) => ("PATCH", &*one, "application/merge-patch+json", json!({"data": wanted["data"]})),
                (Some(_), _) => ("DELETE", &*one, json, Value::Null),
            };
            let oldest = life.newest.load(Ordering::SeqCst);
            let Ok((status, answer)) = connection.call(method, path, media, &body).await else {
                let wanted = (method != "DELETE").then_some(self.number);
                self.objects.insert(name, Known::Either(before, wanted));
                return self;
            };
            assert!(status < 300, "{method} {path}: {status} {answer}");
            if method == "DELETE" {
                self.objects.insert(name, Known::Absent);
                continue;
            }
            let revision = revision_of(&answer);
            assert!(revision > oldest, "{method} {path} got revision {revision} after {oldest} was known");
            life.newest.fetch_max(revision, Ordering::SeqCst);
            assert_eq!(answer["data"], wanted["data"], "{method} {path}");
            self.acknowledged.insert(revision, answer.clone());
            self.objects.insert(name, Known::Present(answer));
        }
        self
    }

    fn content(&mut self, name: &str) -> Value {
        let number = self.number.to_string();
        let filling = "x".repeat(self.dice.below(3000) as usize);
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
            "data": {"number": number, "filling": filling, "again": number}})
    }

    /// Compares what the server has after its restart with what it may have.
    fn check(&mut self, listed: &BTreeMap<String, Value>) {
        for (name, known) in &mut self.objects {
            let found = listed.get(name);
            match known {
                Known::Absent => assert_eq!(found, None, "{name} was deleted"),
                Known::Present(object) => assert_eq!(found, Some(&*object), "{name} was acknowledged"),
                Known::Either(before, wanted) => {
                    let number = found.map(number_of);
                    let as_before = found == before.as_ref();
                    assert!(as_before || number == *wanted, "{name} is {found:?}, neither {before:?} nor {wanted:?}");
                }
            }
            *known = found.map_or(Known::Absent, |object| Known::Present(object.clone()));
        }
    }
}

/// A copy of the collection kept by watching, as controllers keep one.
struct Watcher {
    dice: Dice,
    copy: BTreeMap<String, Value>,
    cursor: u64,
    /// Everything after this was seen, up to the cursor.
    whole_since: u64,
    seen: BTreeMap<u64, (String, Value)>,
    resumed: usize,
    expired: usize,
}

impl Watcher {
    /// Watches until the server dies, or up to a revision, leaving and coming back now and then.
    async fn run(mut self, life: Life, until: u64) -> Watcher {
        while self.cursor < until {
            if self.session(&life, until).await.is_err() {
                return self;
            }
        }
        self
    }

    async fn session(&mut self, life: &Life, until: u64) -> Result<(), Lost> {
        if self.cursor == 0 {
            let (copy, revision) = life.list().await?;
            (self.copy, self.cursor, self.whole_since) = (copy, revision, revision);
            self.seen.clear();
        }
        let patience = 1 + self.dice.below(12);
        let path = format!("{PATH}?watch=true&allowWatchBookmarks=true&resourceVersion={}", self.cursor);
        let (status, body) = life.connect().await?.ask("GET", &path, "application/json", "").await?;
        assert_eq!(status, 200);
        let mut lines = Lines::of(body);
        for _ in 0..patience {
            if self.cursor >= until {
                break;
            }
            let Some(event) = lines.next().await? else { break };
            let object = &event["object"];
            if event["type"] == "ERROR" {
                assert_eq!(object["code"], 410, "{event}");
                self.expired += 1;
                self.cursor = 0;
                return Ok(());
            }
            self.take(&event["type"], object, life);
        }
        self.resumed += 1;
        Ok(())
    }

    fn take(&mut self, kind: &Value, object: &Value, life: &Life) {
        let (name, revision) = (name_of(object), revision_of(object));
        if kind == "BOOKMARK" {
            assert!(revision >= self.cursor, "a bookmark went back from {} to {revision}", self.cursor);
            self.cursor = revision;
            return;
        }
        assert!(revision > self.cursor, "{kind} {name} has revision {revision}, {} was told before", self.cursor);
        life.newest.fetch_max(revision, Ordering::SeqCst);
        self.cursor = revision;
        self.seen.insert(revision, (kind.as_str().unwrap().to_owned(), object.clone()));
        let before = match kind.as_str() {
            Some("DELETED") => self.copy.remove(&name),
            _ => self.copy.insert(name.clone(), object.clone()),
        };
        assert_eq!(before.is_none(), kind == "ADDED", "{kind} {name} does not follow from what was told before");
    }

    /// Every acknowledged write in the time that was watched was told, as it was acknowledged.
    fn check(&self, acknowledged: &BTreeMap<u64, Value>) {
        for (revision, object) in acknowledged.range(self.whole_since + 1..=self.cursor.max(self.whole_since + 1)) {
            if *revision > self.cursor {
                continue;
            }
            let seen = self.seen.get(revision).map(|(_, object)| object);
            assert_eq!(seen, Some(object), "revision {revision} was acknowledged and not told");
        }
    }
}

#[test]
fn nothing_acknowledged_is_lost_when_the_server_is_killed_at_any_moment() {
    let seed = std::env::var("KILN_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(4);
    let folder = Folder(std::env::temp_dir().join(format!("kiln-kill-{}", std::process::id())));
    std::fs::create_dir_all(&folder.0).unwrap();
    let authority = Authority::open(&folder.0).unwrap();
    let admin = authority.issue_client("admin", ADMINISTRATORS).unwrap();
    let config = client_config(&authority, Some(&admin));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    eprintln!("KILN_SEED={seed}");
    runtime.block_on(killed_again_and_again(&folder.0, config, Dice(seed)));
}

async fn killed_again_and_again(folder: &Path, config: Arc<ClientConfig>, mut dice: Dice) {
    let mut writers: Vec<Writer> = (0..WRITERS as u64)
        .map(|number| {
            let dice = Dice(dice.below(u64::MAX));
            Writer { dice, number, objects: BTreeMap::new(), acknowledged: BTreeMap::new() }
        })
        .collect();
    let mut watchers: Vec<Watcher> = (0..WATCHERS)
        .map(|_| Watcher {
            dice: Dice(dice.below(u64::MAX)),
            copy: BTreeMap::new(),
            cursor: 0,
            whole_since: 0,
            seen: BTreeMap::new(),
            resumed: 0,
            expired: 0,
        })
        .collect();
    let newest = Arc::new(AtomicU64::new(0));
    let (mut written, mut in_step, mut uncertain) = (0, 0, BTreeSet::new());
    for round in 0..=ROUNDS {
        let (mut process, address) = Process::start(folder);
        let life = Life { address, config: Arc::clone(&config), newest: Arc::clone(&newest) };
        let (listed, revision) = life.list().await.expect("the server answers");
        let known = newest.load(Ordering::SeqCst);
        assert!(revision >= known, "round {round}: the revision went back from {known} to {revision}");
        for (name, object) in &listed {
            assert_eq!(object["data"]["number"], object["data"]["again"], "{name} is half written");
        }
        for writer in &mut writers {
            let open = writer.objects.values().filter(|known| matches!(known, Known::Either(..))).count();
            if open > 0 {
                uncertain.insert(round);
            }
            writer.check(&listed);
        }
        for watcher in &watchers {
            assert!(watcher.cursor <= revision, "round {round}: a watcher was told what is not there");
            if watcher.cursor == revision {
                in_step += 1;
                assert_eq!(watcher.copy, listed, "round {round}: a watcher at the newest revision has another copy");
            }
        }
        let last = round == ROUNDS;
        let turns = if last { 20 } else { u64::MAX };
        let writing: Vec<_> = writers.drain(..).map(|writer| tokio::spawn(writer.run(life.clone(), turns))).collect();
        let watch = |watcher: Watcher, until: u64| tokio::spawn(watcher.run(life.clone(), until));
        let mut watching = Vec::new();
        if !last {
            watching.extend(watchers.drain(..).map(|watcher| watch(watcher, u64::MAX)));
            tokio::time::sleep(Duration::from_micros(500 + dice.below(70_000))).await;
            process.0.kill().unwrap();
            process.0.wait().unwrap();
        }
        for task in writing {
            writers.push(task.await.unwrap());
        }
        if last {
            let (listed, revision) = life.list().await.expect("the server answers");
            watching.extend(watchers.drain(..).map(|watcher| watch(watcher, revision)));
            for task in watching {
                let watcher = task.await.unwrap();
                assert_eq!(watcher.copy, listed, "a watcher that saw everything has another copy");
                watchers.push(watcher);
            }
        } else {
            for task in watching {
                watchers.push(task.await.unwrap());
            }
        }
        let acknowledged: BTreeMap<u64, Value> =
            writers.iter_mut().flat_map(|writer| std::mem::take(&mut writer.acknowledged)).collect();
        written += acknowledged.len();
        for watcher in &mut watchers {
            watcher.check(&acknowledged);
            // Checked; what follows begins here.
            watcher.whole_since = watcher.cursor;
            watcher.seen.clear();
        }
    }
    let expired: usize = watchers.iter().map(|watcher| watcher.expired).sum();
    let resumed: usize = watchers.iter().map(|watcher| watcher.resumed).sum();
    eprintln!(
        "{ROUNDS} kills, {written} acknowledged writes, {} kills with writes in the air, watches resumed {resumed} \
         times, {in_step} times at the newest revision after a kill, expired {expired} times",
        uncertain.len()
    );
    assert!(written as u64 > ROUNDS * 2, "only {written} writes were acknowledged: nothing was tried");
    assert!(uncertain.len() as u64 > ROUNDS / 2, "only {} kills hit a write", uncertain.len());
    assert!(resumed > 100, "only {resumed} watches were resumed");
}

fn name_of(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

fn revision_of(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok()).expect("a revision")
}

fn number_of(object: &Value) -> u64 {
    object["data"]["number"].as_str().and_then(|text| text.parse().ok()).expect("a number")
}
