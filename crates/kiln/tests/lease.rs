//! Leader election over a real listener: one leads, the next takes over, and never two at once.

#![allow(clippy::unwrap_used, reason = "tests may fail loudly")]

#[path = "support/served.rs"]
mod served;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kiln::hub::lease::{Contender, Terms};
use kiln_testimage::temp_dir::TempDir;
use kube::Client;
use served::Hub;
use time::OffsetDateTime;
use tokio::sync::watch;

const TERMS: Terms = Terms {
    duration: Duration::from_secs(3),
    renew_within: Duration::from_millis(1500),
    retry: Duration::from_millis(200),
};

/// Counts who leads; two at once fail the test.
#[derive(Debug, Default)]
struct Throne {
    leading: AtomicUsize,
    at_once: AtomicUsize,
    reigns: AtomicUsize,
}

struct Reign(Arc<Throne>);

impl Reign {
    fn begin(throne: &Arc<Throne>) -> Reign {
        let now = throne.leading.fetch_add(1, Ordering::SeqCst) + 1;
        throne.at_once.fetch_max(now, Ordering::SeqCst);
        throne.reigns.fetch_add(1, Ordering::SeqCst);
        Reign(Arc::clone(throne))
    }
}

impl Drop for Reign {
    fn drop(&mut self) {
        self.0.leading.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn until(what: &str, wished: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !wished() {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn contend(
    client: Client,
    identity: &'static str,
    clock: fn() -> OffsetDateTime,
    throne: &Arc<Throne>,
) -> (tokio::task::JoinHandle<()>, watch::Sender<bool>) {
    let (stop, stopping) = watch::channel(false);
    let throne = Arc::clone(throne);
    let contender = Contender::new(client, "default", "kiln", identity, TERMS).with_wall_clock(clock);
    let task = tokio::spawn(async move {
        let lead = || async {
            let _reign = Reign::begin(&throne);
            std::future::pending::<()>().await;
        };
        contender.run(stopping, lead).await;
    });
    (task, stop)
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_leader_dies_the_other_takes_over_and_never_two_lead_at_once() {
    let folder = TempDir::new("lease");
    let hub = Hub::start(folder.path());
    let throne = Arc::new(Throne::default());
    // Clocks an hour apart: nobody may care.
    let fast = || OffsetDateTime::now_utc() + time::Duration::hours(1);
    let (first, _first_stop) = contend(hub.client().await, "first", OffsetDateTime::now_utc, &throne);
    until("the first leads", || throne.leading.load(Ordering::SeqCst) == 1).await;
    let (second, second_stop) = contend(hub.client().await, "second", fast, &throne);
    let (third, _third_stop) = contend(hub.client().await, "third", OffsetDateTime::now_utc, &throne);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(throne.reigns.load(Ordering::SeqCst), 1, "only the first has led");
    let died = Instant::now();
    first.abort();
    let _ = first.await;
    until("another leads", || throne.leading.load(Ordering::SeqCst) == 1).await;
    // It could not know that the first died, so it waited as long as that had promised to renew.
    assert!(died.elapsed() >= Duration::from_secs(2), "after {:?}", died.elapsed());
    // Whoever ends well lets go at once.
    if !second.is_finished() {
        second_stop.send_replace(true);
    }
    let _ = second.await;
    until("somebody leads", || throne.leading.load(Ordering::SeqCst) == 1).await;
    third.abort();
    assert_eq!(throne.at_once.load(Ordering::SeqCst), 1, "two led at once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_cannot_renew_stops_before_another_may_begin() {
    let folder = TempDir::new("lease-cut");
    let hub = Hub::start(folder.path());
    let throne = Arc::new(Throne::default());
    let (leader, _stop) = contend(hub.client().await, "first", OffsetDateTime::now_utc, &throne);
    until("it leads", || throne.leading.load(Ordering::SeqCst) == 1).await;
    drop(hub);
    let cut = Instant::now();
    until("it stops", || throne.leading.load(Ordering::SeqCst) == 0).await;
    assert!(cut.elapsed() < TERMS.duration, "it led for {:?} after it was cut off", cut.elapsed());
    leader.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_replicas_one_leads_and_the_other_takes_over_when_it_is_killed() {
    use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind};
    let folder = TempDir::new("lease-replicas");
    let hub = Hub::start(folder.path());
    let replica = || {
        let mut process = std::process::Command::new(env!("CARGO_BIN_EXE_kiln"))
            .args(["serve", "--kubernetes", "--metrics-listen", "127.0.0.1:0", "--kubeconfig"])
            .arg(folder.path().join("kubeconfig"))
            .env("KILN_LOG", "info")
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let figures = figures_address(process.stderr.take().unwrap());
        (process, figures)
    };
    let mut replicas = [replica(), replica()];
    let kind = GroupVersionKind::gvk("coordination.k8s.io", "v1", "Lease");
    let leases: Api<DynamicObject> =
        Api::namespaced_with(hub.client().await, "default", &ApiResource::from_gvk_with_plural(&kind, "leases"));
    let mut holder = None;
    let deadline = Instant::now() + Duration::from_secs(60);
    for _ in 0..2 {
        // First any leader, then another than the one that was killed.
        let leader = loop {
            assert!(Instant::now() < deadline, "nobody leads; the last was {holder:?}");
            let lease = leases.get_opt("kiln-controllers").await.unwrap();
            let now = lease.and_then(|lease| lease.data["spec"]["holderIdentity"].as_str().map(str::to_owned));
            if now.is_some() && now != holder {
                break now;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        let process = leader.as_ref().unwrap().rsplit('-').next().unwrap().to_owned();
        let leads = |id: u32| id.to_string() == process;
        assert!(replicas.iter().any(|(replica, _)| leads(replica.id())), "{leader:?} is none of ours");
        for (replica, figures) in replicas.iter_mut().filter(|(_, figures)| !ask(figures, "/healthz").is_empty()) {
            // The Lease is taken a moment before it is told.
            let expected = format!("\nkiln_leading {}\n", u8::from(leads(replica.id())));
            until(&format!("{figures} tells{expected}"), || ask(figures, "/metrics").contains(&expected)).await;
            for path in ["/healthz", "/readyz"] {
                let answer = ask(figures, path);
                assert!(
                    answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nok"),
                    "{path}: {answer}"
                );
            }
            assert!(
                ask(figures, "/metrics").contains("\r\ncontent-type: text/plain; version=0.0.4; charset=utf-8\r\n")
            );
            assert!(ask(figures, "/api").starts_with("HTTP/1.1 404 "), "what listens there is no API");
        }
        let (killed, figures) = replicas.iter_mut().find(|(replica, _)| leads(replica.id())).unwrap();
        killed.kill().unwrap();
        killed.wait().unwrap();
        assert_eq!(ask(figures, "/metrics"), "", "it goes on listening");
        holder = leader;
    }
}

/// Where a replica says that its figures are. The rest of what it says is read too, or it would wait for a reader.
fn figures_address(log: std::process::ChildStderr) -> String {
    let mut lines = BufReader::new(log).lines();
    let address = lines.by_ref().find_map(|line| {
        let line = line.unwrap();
        Some(line.split_once("figures are at http://")?.1.split_once('/')?.0.to_owned())
    });
    std::thread::spawn(move || lines.count());
    address.unwrap()
}

/// The whole answer to a plain HTTP request; nothing when nobody listens.
fn ask(address: &str, path: &str) -> String {
    let mut answer = String::new();
    if let Ok(mut stream) = TcpStream::connect(address) {
        write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        let _ = stream.read_to_string(&mut answer);
    }
    answer
}
