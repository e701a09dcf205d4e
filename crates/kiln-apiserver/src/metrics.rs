//! Figures for Prometheus, in its text format, version 0.0.4.
//!
//! Counting is cheap and bounded: histograms are arrays of atomics, and there are at most [`MOST_SERIES`] combinations
//! of verb, resource and code; what comes later is counted under `other`. Names of objects or users never are labels.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::rate_limit::Seldom;

/// Combinations of labels that are counted apart.
const MOST_SERIES: usize = 2000;

/// Bounds of a latency in seconds.
const SECONDS: [f64; 11] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.0, 10.0];
/// Bounds of the number of writes in a transaction.
const WRITES: [f64; 9] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

/// How often something was at most so much.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [f64],
    /// One more than bounds: the last is for everything above.
    counts: Box<[AtomicU64]>,
    /// In millionths.
    sum: AtomicU64,
}

impl Histogram {
    /// Of latencies.
    pub fn seconds() -> Histogram {
        Histogram::new(&SECONDS)
    }

    /// Of numbers of writes.
    pub fn writes() -> Histogram {
        Histogram::new(&WRITES)
    }

    fn new(bounds: &'static [f64]) -> Histogram {
        Histogram { bounds, counts: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(), sum: AtomicU64::new(0) }
    }

    /// Counts one.
    pub fn observe(&self, value: f64) {
        let at = self.bounds.iter().position(|bound| value <= *bound).unwrap_or(self.bounds.len());
        self.counts[at].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add((value.max(0.0) * 1e6) as u64, Ordering::Relaxed);
    }

    fn render(&self, name: &str, labels: &str, text: &mut String) {
        let comma = if labels.is_empty() { "" } else { "," };
        let mut total = 0;
        for (index, count) in self.counts.iter().enumerate() {
            total += count.load(Ordering::Relaxed);
            let bound = self.bounds.get(index).map_or_else(|| "+Inf".to_owned(), f64::to_string);
            let _ = writeln!(text, "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {total}");
        }
        let braces = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        let sum = self.sum.load(Ordering::Relaxed) as f64 / 1e6;
        let _ = writeln!(text, "{name}_sum{braces} {sum}\n{name}_count{braces} {total}");
    }
}

/// What the store counts.
#[derive(Debug)]
pub struct StoreFigures {
    /// Writes in each transaction.
    pub batch: Histogram,
    /// How long each transaction took.
    pub commit: Histogram,
    /// Transactions that failed.
    pub failures: AtomicU64,
    /// Whether the last one did not.
    pub healthy: AtomicBool,
}

impl Default for StoreFigures {
    fn default() -> Self {
        StoreFigures {
            batch: Histogram::writes(),
            commit: Histogram::seconds(),
            failures: AtomicU64::new(0),
            healthy: AtomicBool::new(true),
        }
    }
}

/// Why somebody was turned away before their request was looked at, or a connection was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turned {
    /// Too many requests.
    Rate,
    /// Too many watches.
    Watches,
    /// Too many connections.
    Connections,
    /// The TLS handshake failed or took too long.
    Handshake,
    /// The body was too large.
    Body,
    /// The body did not arrive in time.
    Slow,
    /// The headers did not arrive in time.
    Headers,
    /// What came is no HTTP, or its headers are too large.
    Malformed,
    /// Nothing was asked for a long time.
    Idle,
    /// An answer was not read.
    Unread,
}

const TURNED: [(Turned, &str); 10] = [
    (Turned::Rate, "rate"),
    (Turned::Watches, "watches"),
    (Turned::Connections, "connections"),
    (Turned::Handshake, "handshake"),
    (Turned::Body, "body"),
    (Turned::Slow, "slow"),
    (Turned::Headers, "headers"),
    (Turned::Malformed, "malformed"),
    (Turned::Idle, "idle"),
    (Turned::Unread, "unread"),
];

/// What one request was.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Labels {
    verb: &'static str,
    resource: String,
    code: u16,
}

/// What the server counts.
#[derive(Debug, Default)]
pub struct Metrics {
    requests: Mutex<BTreeMap<Labels, u64>>,
    latencies: Mutex<BTreeMap<(&'static str, String), Histogram>>,
    turned: [AtomicU64; TURNED.len()],
    /// One for each reason: a flood of one kind must not hide another.
    complaints: [Seldom; TURNED.len()],
}

type RenderFigures = Box<dyn Fn() -> String + Send + Sync>;

/// What whoever embeds the server counts besides.
#[derive(Default)]
pub struct MoreFigures(Mutex<Vec<RenderFigures>>);

impl std::fmt::Debug for MoreFigures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MoreFigures").finish_non_exhaustive()
    }
}

impl MoreFigures {
    /// Adds some, in the text format of Prometheus.
    pub fn add(&self, render: impl Fn() -> String + Send + Sync + 'static) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(render));
    }

    /// All of them.
    pub fn render(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().map(|render| render()).collect()
    }
}

/// What is read when somebody asks, because others count it.
#[derive(Debug)]
pub struct Readings<'a> {
    /// Watches now.
    pub watches: usize,
    /// Connections now.
    pub connections: usize,
    /// The store's revision.
    pub revision: u64,
    /// Objects per collection.
    pub objects: Vec<(String, usize)>,
    /// What the store counted.
    pub store: &'a StoreFigures,
    /// Lines that did not get into the audit log.
    pub audit_failures: u64,
}

impl Metrics {
    /// Counts a request. The resource must be one that is served, or a word for all others.
    pub fn request(&self, verb: &'static str, resource: &str, code: u16, took: Duration) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let mut labels = Labels { verb, resource: resource.to_owned(), code };
        if requests.len() >= MOST_SERIES && !requests.contains_key(&labels) {
            labels.resource = "other".into();
        }
        let Labels { resource, .. } = labels.clone();
        *requests.entry(labels).or_default() += 1;
        drop(requests);
        let mut latencies = self.latencies.lock().unwrap_or_else(PoisonError::into_inner);
        latencies.entry((verb, resource)).or_insert_with(Histogram::seconds).observe(took.as_secs_f64());
    }

    /// Counts somebody who was turned away, and tells the log so: of each reason a line every ten seconds at most, with
    /// the number of those it stands for.
    pub fn turn_away(&self, why: Turned, who: impl Display, what: impl Display) {
        let Some((at, (_, reason))) = TURNED.iter().enumerate().find(|(_, (known, _))| *known == why) else { return };
        self.turned[at].fetch_add(1, Ordering::Relaxed);
        let Some(more) = self.complaints[at].now(Instant::now()) else { return };
        match why {
            // What the world does to every listener.
            Turned::Handshake | Turned::Headers | Turned::Malformed | Turned::Idle | Turned::Unread => {
                tracing::info!(%who, reason, more, "turned away: {what}");
            }
            Turned::Rate | Turned::Watches | Turned::Connections | Turned::Body | Turned::Slow => {
                tracing::warn!(%who, reason, more, "turned away: {what}");
            }
        }
    }

    /// How many were turned away for a reason.
    pub fn turned(&self, why: Turned) -> u64 {
        let at = TURNED.iter().position(|(known, _)| *known == why);
        at.map_or(0, |at| self.turned[at].load(Ordering::Relaxed))
    }

    /// Who was turned away: all there is to tell of a listener without an API behind it.
    pub fn render_turned(&self) -> String {
        let mut text = String::new();
        heading(&mut text, "kiln_turned_away_total", "counter", "Clients that were turned away, by reason.");
        for ((_, reason), count) in TURNED.iter().zip(&self.turned) {
            let _ = writeln!(text, "kiln_turned_away_total{{reason=\"{reason}\"}} {}", count.load(Ordering::Relaxed));
        }
        text
    }

    /// Everything.
    pub fn render(&self, readings: &Readings<'_>) -> String {
        let mut text = String::new();
        heading(&mut text, "kiln_requests_total", "counter", "Requests by verb, resource and code.");
        for (labels, count) in &*self.requests.lock().unwrap_or_else(PoisonError::into_inner) {
            let Labels { verb, resource, code } = labels;
            let resource = escape(resource);
            let line =
                format!("kiln_requests_total{{verb=\"{verb}\",resource=\"{resource}\",code=\"{code}\"}} {count}");
            let _ = writeln!(text, "{line}");
        }
        heading(&mut text, "kiln_request_seconds", "histogram", "Time to the answer; to its beginning for watches.");
        for ((verb, resource), histogram) in &*self.latencies.lock().unwrap_or_else(PoisonError::into_inner) {
            let labels = format!("verb=\"{verb}\",resource=\"{}\"", escape(resource));
            histogram.render("kiln_request_seconds", &labels, &mut text);
        }
        text += &self.render_turned();
        let Readings { watches, connections, revision, objects, store, audit_failures } = readings;
        single(&mut text, "kiln_watches", "gauge", "Watches now.", *watches as u64);
        single(&mut text, "kiln_connections", "gauge", "Connections now.", *connections as u64);
        single(&mut text, "kiln_store_revision", "gauge", "The newest resourceVersion.", *revision);
        heading(&mut text, "kiln_objects", "gauge", "Stored objects by collection.");
        for (collection, count) in objects {
            let _ = writeln!(text, "kiln_objects{{collection=\"{}\"}} {count}", escape(collection));
        }
        heading(&mut text, "kiln_commit_writes", "histogram", "Writes that shared a transaction.");
        store.batch.render("kiln_commit_writes", "", &mut text);
        heading(&mut text, "kiln_commit_seconds", "histogram", "Time until a transaction was on the disk.");
        store.commit.render("kiln_commit_seconds", "", &mut text);
        let failures = store.failures.load(Ordering::Relaxed);
        single(&mut text, "kiln_commit_failures_total", "counter", "Transactions that failed.", failures);
        let lost = "Lines that could not be written to the audit log.";
        single(&mut text, "kiln_audit_failures_total", "counter", lost, *audit_failures);
        render_process(&mut text);
        text
    }
}

fn heading(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn single(text: &mut String, name: &str, kind: &str, help: &str, value: u64) {
    heading(text, name, kind, help);
    let _ = writeln!(text, "{name} {value}");
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// From /proc; left out where there is none.
fn render_process(text: &mut String) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    if let Some(kilobytes) = parse_resident(&status) {
        single(text, "process_resident_memory_bytes", "gauge", "Memory in use.", kilobytes * 1024);
    }
    if let Ok(entries) = std::fs::read_dir("/proc/self/fd") {
        single(text, "process_open_fds", "gauge", "Open file descriptors.", entries.count() as u64);
    }
}

fn parse_resident(status: &str) -> Option<u64> {
    status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readings(store: &StoreFigures) -> Readings<'_> {
        let objects = vec![("widgets.example.org".into(), 3)];
        Readings { watches: 2, connections: 5, revision: 17, objects, store, audit_failures: 0 }
    }

    #[test]
    fn figures_are_told_as_prometheus_reads_them() {
        let (metrics, store) = (Metrics::default(), StoreFigures::default());
        metrics.request("get", "configmaps", 200, Duration::from_millis(3));
        metrics.request("get", "configmaps", 200, Duration::from_secs(60));
        metrics.request("create", "a\"b", 403, Duration::ZERO);
        metrics.turn_away(Turned::Body, "somebody", "the body is too large");
        store.batch.observe(3.0);
        let text = metrics.render(&readings(&store));
        for expected in [
            "# TYPE kiln_requests_total counter\n",
            "kiln_requests_total{verb=\"get\",resource=\"configmaps\",code=\"200\"} 2\n",
            "kiln_requests_total{verb=\"create\",resource=\"a\\\"b\",code=\"403\"} 1\n",
            "kiln_request_seconds_bucket{verb=\"get\",resource=\"configmaps\",le=\"0.0025\"} 0\n",
            "kiln_request_seconds_bucket{verb=\"get\",resource=\"configmaps\",le=\"0.005\"} 1\n",
            "kiln_request_seconds_bucket{verb=\"get\",resource=\"configmaps\",le=\"+Inf\"} 2\n",
            "kiln_request_seconds_sum{verb=\"get\",resource=\"configmaps\"} 60.003\n",
            "kiln_request_seconds_count{verb=\"get\",resource=\"configmaps\"} 2\n",
            "kiln_turned_away_total{reason=\"body\"} 1\n",
            "kiln_watches 2\n",
            "kiln_connections 5\n",
            "kiln_store_revision 17\n",
            "kiln_objects{collection=\"widgets.example.org\"} 3\n",
            "kiln_commit_writes_bucket{le=\"4\"} 1\n",
            "kiln_commit_writes_sum 3\n",
            "process_open_fds ",
        ] {
            assert!(text.contains(expected), "{expected} is not in\n{text}");
        }
        let heads = text.lines().filter(|line| line.starts_with("# TYPE")).count();
        let mut names: Vec<&str> = text.lines().filter(|line| line.starts_with("# TYPE")).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), heads, "each name is declared once");
    }

    #[test]
    fn figures_of_others_come_behind_in_the_order_they_were_added() {
        let more = MoreFigures::default();
        assert_eq!(more.render(), "");
        more.add(|| "a 1\n".into());
        more.add(|| "b 2\n".into());
        assert_eq!(more.render(), "a 1\nb 2\n");
    }

    #[test]
    fn clients_cannot_make_up_series_without_end() {
        let metrics = Metrics::default();
        for index in 0..3 * MOST_SERIES {
            metrics.request("get", &format!("r{index}"), 200, Duration::ZERO);
        }
        assert_eq!(metrics.requests.lock().unwrap().len(), MOST_SERIES + 1);
        assert_eq!(metrics.latencies.lock().unwrap().len(), MOST_SERIES + 1);
    }
}
