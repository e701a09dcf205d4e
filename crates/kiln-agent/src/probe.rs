//! Whether the node can still reach what it must: all probes side by side, before, during and after a change.
//!
//! [`Probes::baseline`] asks each once: what every node has (a gateway, name servers, the hub) and did not work before is not
//! held against the change, and that it was not is said. What somebody named must work afterwards, whether or not it did
//! before: perhaps the change is made for its sake. From then on each is asked again and again, which gives the outage in
//! milliseconds and ends the wait the moment everything works. [`Watch::prove`] then wants them to go on working.
//!
//! Not here: judging from outside. The hub does that, and its word comes in as a probe of the caller's.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kiln_core::assignment::Proof;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::HubProbe;

mod dns;
mod gateway;
mod http;
mod icmp;
mod route;
mod target;

pub use dns::{answers, query};
pub use icmp::{echo_request, is_reply};
pub use route::{Gateway, parse_route_v4, parse_route_v6};
use target::Target;

/// How long each has for the first try, before the change.
const BASELINE: Duration = Duration::from_secs(1);
/// One try of one probe.
const TRY: Duration = Duration::from_millis(800);
/// The same for what may be slow by nature: the hub over a satellite is a hub. Nobody waits longer than it takes.
const SLOW: Duration = Duration::from_secs(5);
/// What took some time before the change may take so many times that during it.
const SLACK: u32 = 3;
/// So many tries in a row must fail before a probe that passed is taken for lost: one packet may get lost any time.
const LOST: u32 = 2;
/// For so long, too, where the hub is asked: a hub that starts anew, or is busy, is no reason to give up a proved network.
const HUB_AWAY: Duration = Duration::from_secs(10);

/// Probes that count.
#[derive(Debug)]
pub struct Probes {
    asked: Vec<Arc<Asked>>,
    /// Those that do not, because they failed before the change, for people.
    pub dropped: Vec<String>,
}

/// A probe with what the first try showed.
#[derive(Debug)]
struct Asked {
    target: Target,
    /// How long it took to answer before the change; None: it did not.
    before: Option<Duration>,
}

impl Asked {
    fn patience(&self) -> Duration {
        match self.before {
            Some(took) if self.target.may_be_slow() => (took * SLACK).clamp(TRY, SLOW),
            _ => TRY,
        }
    }

    fn endurance(&self) -> Duration {
        if self.target.may_be_slow() { HUB_AWAY } else { Duration::ZERO }
    }
}

/// Probes that are being asked all the time.
#[derive(Debug)]
pub struct Watch {
    records: Vec<Arc<Record>>,
    news: Arc<Notify>,
    tasks: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Record {
    name: String,
    patience: Duration,
    /// How long it must have failed to be lost.
    endurance: Duration,
    history: Mutex<History>,
}

/// What is known of one probe. `began` is when the try that passed last was begun.
#[derive(Debug, Clone, Copy)]
struct History {
    began: Instant,
    passed: Instant,
    failures: u32,
    longest: Duration,
    /// Whether it ever passed: what never worked was not interrupted.
    ever: bool,
}

impl History {
    fn new(now: Instant, ever: bool) -> History {
        History { began: now, passed: now, failures: 0, longest: Duration::ZERO, ever }
    }

    fn note(&mut self, began: Instant, now: Instant, passed: bool) {
        if passed {
            // A gap without a failed try is only the pause between two tries.
            if self.failures > 0 && self.ever {
                self.longest = self.longest.max(now.saturating_duration_since(self.passed));
            }
            (self.began, self.passed, self.failures, self.ever) = (began, now, 0, true);
        } else {
            self.failures += 1;
        }
    }

    fn outage(&self, now: Instant) -> Duration {
        match self.failures {
            0 => self.longest,
            _ if !self.ever => self.longest,
            _ => self.longest.max(now.saturating_duration_since(self.passed)),
        }
    }
}

impl Probes {
    /// Asks each probe once.
    pub async fn baseline(proof: &Proof, hub: Option<HubProbe>) -> Probes {
        let targets = proof.probes.iter().filter_map(|probe| Target::new(probe.clone(), hub.clone()));
        let asked = futures::future::join_all(targets.map(first_try)).await;
        let (asked, dropped): (Vec<Asked>, Vec<Asked>) =
            asked.into_iter().partition(|asked| asked.before.is_some() || asked.target.is_named());
        let dropped: Vec<String> = dropped.iter().map(|asked| asked.target.name()).collect();
        if !dropped.is_empty() {
            tracing::info!(probes = dropped.join(", "), "failed before the change and do not count");
        }
        Probes { asked: asked.into_iter().map(Arc::new).collect(), dropped }
    }

    /// Begins to ask them all the time.
    pub fn watch(&self) -> Watch {
        let news = Arc::new(Notify::new());
        let now = Instant::now();
        let mut watch = Watch { records: Vec::new(), news: news.clone(), tasks: Vec::new() };
        for asked in &self.asked {
            let history = Mutex::new(History::new(now, asked.before.is_some()));
            let (patience, endurance) = (asked.patience(), asked.endurance());
            let record = Arc::new(Record { name: asked.target.name(), patience, endurance, history });
            watch.records.push(record.clone());
            watch.tasks.push(tokio::spawn(ask_again_and_again(asked.clone(), record, news.clone())));
        }
        watch
    }
}

async fn first_try(target: Target) -> Asked {
    let longest = if target.may_be_slow() { SLOW } else { BASELINE };
    let began = Instant::now();
    let passed = tokio::time::timeout(longest, target.ask()).await.unwrap_or(false);
    Asked { target, before: passed.then(|| began.elapsed()) }
}

async fn ask_again_and_again(asked: Arc<Asked>, record: Arc<Record>, news: Arc<Notify>) {
    loop {
        let began = Instant::now();
        let passed = tokio::time::timeout(record.patience, asked.target.ask()).await.unwrap_or(false);
        let now = Instant::now();
        record.history.lock().unwrap_or_else(PoisonError::into_inner).note(began, now, passed);
        news.notify_waiters();
        tokio::time::sleep(asked.target.pause()).await;
    }
}

impl Watch {
    /// Every probe passes within the first time and goes on passing for the second. Otherwise which one did not.
    pub async fn prove(&self, within: Duration, soak: Duration) -> Result<(), String> {
        let placed = Instant::now();
        self.wait(placed + within, |history| history.failures == 0 && history.began >= placed)
            .await
            .map_err(|names| format!("{names} did not answer within {} ms of the change", within.as_millis()))?;
        let steady = Instant::now();
        let lost = |record: &&Arc<Record>| {
            let History { failures, passed, .. } = read(record);
            failures >= LOST && passed.elapsed() >= record.endurance
        };
        if self.records.is_empty() {
            // Nobody is asked, but what breaks at once by itself shall still show: the time is the operator's wish.
            tokio::time::sleep(soak).await;
            return Ok(());
        }
        loop {
            let news = self.news.notified();
            if let Some(record) = self.records.iter().find(lost) {
                let after = steady.elapsed().as_millis();
                return Err(format!("{} stopped answering {after} ms after the change had been proved", record.name));
            }
            let left = soak.saturating_sub(steady.elapsed());
            if left.is_zero() {
                break;
            }
            let _ = tokio::time::timeout(left, news).await;
        }
        // One that failed at the very end gets the try that decides.
        let left = |record: &Arc<Record>| match read(record).failures {
            0 => Duration::ZERO,
            _ => (record.patience * 2).max(record.endurance),
        };
        let end = Instant::now() + self.records.iter().map(left).max().unwrap_or_default();
        self.wait(end, |history| history.failures == 0).await.map_err(|names| format!("{names} stopped answering"))
    }

    /// The longest span in which a probe did not pass.
    pub fn outage(&self) -> Duration {
        let now = Instant::now();
        self.records.iter().map(|record| read(record).outage(now)).max().unwrap_or_default()
    }

    async fn wait(&self, until: Instant, enough: impl Fn(&History) -> bool) -> Result<(), String> {
        loop {
            let news = self.news.notified();
            let missing: Vec<&str> = self
                .records
                .iter()
                .filter(|record| !enough(&read(record)))
                .map(|record| record.name.as_str())
                .collect();
            if missing.is_empty() {
                return Ok(());
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(missing.join(" and "));
            }
            let _ = tokio::time::timeout(left, news).await;
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

fn read(record: &Record) -> History {
    *record.history.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use kiln_core::assignment::Probe;

    use super::*;

    #[test]
    fn the_outage_is_the_longest_span_without_an_answer() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut history = History::new(start, true);
        history.note(at(90), at(100), true);
        assert_eq!(history.outage(at(250)), Duration::ZERO, "a pause between tries is no outage");
        history.note(at(200), at(300), false);
        assert_eq!(history.outage(at(350)), Duration::from_millis(250));
        history.note(at(400), at(420), true);
        history.note(at(500), at(520), true);
        assert_eq!(history.outage(at(900)), Duration::from_millis(320));
        let mut never = History::new(start, false);
        never.note(at(100), at(200), false);
        never.note(at(300), at(320), true);
        assert_eq!(never.outage(at(400)), Duration::ZERO, "what never worked was not interrupted");
        never.note(at(400), at(500), false);
        assert_eq!(never.outage(at(600)), Duration::from_millis(280));
    }

    #[tokio::test]
    async fn what_every_node_has_and_failed_before_does_not_count_and_is_named() {
        let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let somebody = listener.local_addr().unwrap();
        let api = |at: std::net::SocketAddr| Probe::ApiServer(at.to_string());
        let proof = Proof { probes: vec![api(nobody), api(somebody), Probe::Hub], ..Proof::default() };
        let probes = Probes::baseline(&proof, None).await;
        assert_eq!(probes.dropped, [format!("the API server at {nobody}")]);
        assert_eq!(probes.asked.len(), 1);
        let watch = probes.watch();
        watch.prove(Duration::from_secs(2), Duration::from_millis(300)).await.unwrap();
        assert_eq!(watch.outage(), Duration::ZERO);
        drop(listener);
        let failed = watch.prove(Duration::from_millis(400), Duration::ZERO).await.unwrap_err();
        assert_eq!(failed, format!("the API server at {somebody} did not answer within 400 ms of the change"));
        assert!(watch.outage() >= Duration::from_millis(300), "{:?}", watch.outage());
    }

    #[tokio::test]
    async fn what_somebody_named_must_answer_after_the_change_whether_or_not_it_did_before() {
        let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let proof = Proof { probes: vec![Probe::Tcp(address.to_string())], ..Proof::default() };
        let probes = Probes::baseline(&proof, None).await;
        assert_eq!(probes.dropped, [] as [String; 0]);
        let watch = probes.watch();
        let failed = watch.prove(Duration::from_millis(300), Duration::ZERO).await.unwrap_err();
        assert_eq!(failed, format!("TCP {address} did not answer within 300 ms of the change"));
        // The change brings it.
        let _listener = std::net::TcpListener::bind(address).unwrap();
        watch.prove(Duration::from_secs(2), Duration::from_millis(200)).await.unwrap();
        assert_eq!(watch.outage(), Duration::ZERO);
    }

    #[tokio::test]
    async fn a_hub_behind_a_slow_link_counts() {
        let slow: HubProbe = Arc::new(|_| {
            Box::pin(async {
                tokio::time::sleep(Duration::from_millis(1200)).await;
                true
            })
        });
        let proof = Proof { probes: vec![Probe::Hub], ..Proof::default() };
        let probes = Probes::baseline(&proof, Some(slow)).await;
        assert_eq!((probes.asked.len(), probes.dropped.len()), (1, 0));
        probes.watch().prove(Duration::from_secs(4), Duration::ZERO).await.unwrap();
    }

    #[tokio::test]
    async fn a_hub_that_starts_anew_during_the_soak_is_waited_for() {
        let began = Instant::now();
        let away: HubProbe = Arc::new(move |_| {
            let there = !(1000..4000).contains(&began.elapsed().as_millis());
            Box::pin(async move { there })
        });
        let proof = Proof { probes: vec![Probe::Hub], ..Proof::default() };
        let watch = Probes::baseline(&proof, Some(away)).await.watch();
        watch.prove(Duration::from_secs(1), Duration::from_secs(2)).await.unwrap();
        let outage = watch.outage();
        assert!(outage >= Duration::from_secs(2), "proved while it was away: {outage:?}");
    }

    #[tokio::test]
    async fn a_probe_that_stops_during_the_soak_is_named() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let probes = vec![Probe::Tcp(address.to_string())];
        let watch = Probes::baseline(&Proof { probes, ..Proof::default() }, None).await.watch();
        let gone = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            drop(listener);
        };
        let proving = watch.prove(Duration::from_secs(2), Duration::from_secs(20));
        let (proved, ()) = futures::future::join(proving, gone).await;
        let why = proved.unwrap_err();
        assert!(why.starts_with(&format!("TCP {address} stopped answering ")), "{why}");
    }
}
