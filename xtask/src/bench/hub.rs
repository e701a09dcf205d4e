//! `cargo xtask bench hub`: the API of `kiln serve` under load, beside a real kube-apiserver and etcd.
//!
//! `KUBEBUILDER_ASSETS` names the folder with the real ones; without it a line says so. Both get the same definition, the
//! same objects and the same requests from the same client over TLS on loopback, one server at a time.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
use serde_json::Value;

use super::hub_client::{Connection, Load, Made, Request, load, quantile};
use super::hub_samples::{Sample, name};
use super::hub_servers::{Kind, Server};
use crate::execute;

#[derive(clap::Args, Clone)]
pub struct Args {
    /// Objects in the store
    #[arg(long, default_value_t = 10_000)]
    objects: usize,
    /// Connections that write at the same time
    #[arg(long, default_value_t = 32)]
    clients: usize,
    /// Watches that must all see an update
    #[arg(long, default_value_t = 1000)]
    watches: usize,
    /// Measure only this kind of objects
    #[arg(long, value_enum)]
    only: Option<Sample>,
    /// Cargo profile of server and client
    #[arg(long, default_value = "release")]
    profile: String,
    /// Measure with this program as the client instead of building first
    #[arg(long, hide = true)]
    built: bool,
}

const WORK: &str = "target/bench/hub";
/// Watches that are open while objects are written.
const WATCHERS: usize = 10;
const STARTS: usize = 5;

/// What a figure should be.
enum Goal {
    Below(f64),
    AtLeast(f64),
    None,
}

/// Key, text, unit, goal. The order of the table.
const FIGURES: [(&str, &str, &str, Goal); 25] = [
    ("start", "cold start to ready, empty (median of 5)", "ms", Goal::Below(300.0)),
    ("start full", "cold start to ready, all objects (median of 5)", "ms", Goal::Below(300.0)),
    ("create", "creates, durable", "/s", Goal::AtLeast(3000.0)),
    ("create p50", "a create, p50", "ms", Goal::None),
    ("create p99", "a create, p99", "ms", Goal::None),
    ("create server", "CPU of the server per create", "µs", Goal::None),
    ("create client", "CPU of the client per create", "µs", Goal::None),
    ("settled", "status of every object written, after the last create", "ms", Goal::None),
    ("get", "gets", "/s", Goal::None),
    ("list", "list of all, one page (best of 5)", "ms", Goal::Below(150.0)),
    ("pages", "list of all, pages of 500 (best of 5)", "ms", Goal::Below(150.0)),
    ("label", "list of 1 in 100 by label (best of 5)", "ms", Goal::Below(150.0)),
    ("status", "merge patches (of the status; of Hosts the metadata), 10 watches", "/s", Goal::None),
    ("status server", "CPU of the server per merge patch", "µs", Goal::None),
    ("apply", "server-side applies of status, 10 watches", "/s", Goal::None),
    ("apply server", "CPU of the server per apply", "µs", Goal::None),
    ("no-op", "server-side applies that change nothing", "/s", Goal::None),
    ("watch all", "an update seen by all watches (median of 20 updates)", "ms", Goal::Below(100.0)),
    ("watch p50", "an update seen by a watch, all watches, p50", "ms", Goal::None),
    ("watch p99", "an update seen by a watch, all watches, p99", "ms", Goal::None),
    ("watch max", "an update seen by a watch, slowest of all updates", "ms", Goal::Below(100.0)),
    ("memory", "resident memory, all objects, 10 watches, at rest after the writes", "MB", Goal::Below(130.0)),
    ("memory busy", "resident memory, all objects, 10 watches, at the last write", "MB", Goal::None),
    ("memory restarted", "resident memory, all objects, after a restart", "MB", Goal::None),
    ("memory empty", "resident memory, empty", "MB", Goal::None),
];

type Measured = Vec<(&'static str, f64)>;

pub fn run(args: &Args) -> Result<()> {
    let target = super::target_of(&args.profile);
    if !args.built {
        let mut measuring = super::build_measuring("hub", &args.profile)?;
        for (flag, value) in [("--objects", args.objects), ("--clients", args.clients), ("--watches", args.watches)] {
            measuring.arg(flag).arg(value.to_string());
        }
        if let Some(only) = args.only.and_then(|only| only.to_possible_value()) {
            measuring.args(["--only", only.get_name()]);
        }
        return execute(&mut measuring);
    }
    allow_connections(args.watches)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let kiln = Kind::Kiln(target.join("kiln"));
    let measured = |kind: &Kind, sample| runtime.block_on(measure(kind, sample, args));
    if args.only != Some(Sample::Machine) {
        let hosts = measured(&kiln, Sample::Host)?;
        println!("\nHosts: judged by the rules, acted on by the controllers");
        print(args, Sample::Host, &hosts, None);
    }
    if args.only != Some(Sample::Host) {
        let ours = measured(&kiln, Sample::Machine)?;
        let theirs = match std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from) {
            Some(assets) => Some(measured(&Kind::Kubernetes(assets), Sample::Machine)?),
            None => None,
        };
        println!("\nA kind nobody acts on, the same on both");
        print(args, Sample::Machine, &ours, theirs.as_ref());
        if theirs.is_none() {
            println!("\nKUBEBUILDER_ASSETS names no folder with kube-apiserver and etcd: nothing to compare with.");
        }
    }
    Ok(())
}

/// A thousand watches need a thousand files on either side; the server inherits the limit.
fn allow_connections(watches: usize) -> Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let wanted = u64::try_from(watches)? + 1000;
    ensure!(hard >= wanted, "{watches} watches need {wanted} open files, {hard} are allowed (ulimit -n)");
    setrlimit(Resource::RLIMIT_NOFILE, soft.max(wanted), hard)?;
    Ok(())
}

async fn measure(kind: &Kind, sample: Sample, args: &Args) -> Result<Measured> {
    let folder = Path::new(WORK).join(kind.name().replace(' ', "-"));
    let _ = fs::remove_dir_all(&folder);
    let mut figures: Measured = Vec::new();
    let (start, _) = starts(kind, |number| folder.join(format!("empty-{number}"))).await?;
    figures.push(("start", start));
    let data = folder.join("data");
    let server = kind.start(&data).await?;
    figures.push(("memory empty", server.resident()?));
    prepare(&server, sample).await?;
    writes(&server, sample, args, &mut figures).await?;
    reads(&server, sample, args, &mut figures).await?;
    changes(&server, sample, args, &mut figures).await?;
    watches(&server, sample, args, &mut figures).await?;
    server.stop()?;
    let (start, memory) = starts(kind, |_| data.clone()).await?;
    figures.push(("start full", start));
    figures.push(("memory restarted", memory));
    Ok(figures)
}

/// The median time of some starts in milliseconds, and the memory after the last.
async fn starts(kind: &Kind, folder: impl Fn(usize) -> PathBuf) -> Result<(f64, f64)> {
    let mut times = Vec::new();
    let mut memory = 0.0;
    for number in 0..STARTS {
        let server = kind.start(&folder(number)).await?;
        times.push(server.ready_after);
        memory = server.resident()?;
        server.stop()?;
    }
    times.sort_unstable();
    Ok((quantile(&times, 0.5), memory))
}

async fn prepare(server: &Server, sample: Sample) -> Result<()> {
    let mut connection = Connection::open(&server.endpoint).await?;
    if let Some(definition) = sample.definition() {
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        connection.done(Request::post(definitions, definition.to_string().as_bytes())).await?;
    }
    connection.done(Request::post("/api/v1/namespaces", br#"{"metadata":{"name":"bench"}}"#)).await?;
    // A real server needs a moment until it serves a new kind.
    let start = Instant::now();
    while connection.call(Request::get(sample.path())).await?.0 != 200 {
        ensure!(start.elapsed() < Duration::from_secs(30), "the new kind is not served");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

async fn writes(server: &Server, sample: Sample, args: &Args, figures: &mut Measured) -> Result<()> {
    let (load, server_cpu, client_cpu) =
        loaded(server, args.clients, args.objects, move |number| sample.create(number)).await?;
    figures.push(("create", load.per_second()));
    figures.push(("create p50", load.quantile(0.5)));
    figures.push(("create p99", load.quantile(0.99)));
    figures.push(("create server", server_cpu));
    figures.push(("create client", client_cpu));
    if sample == Sample::Host {
        figures.push(("settled", settled(server, sample, args.objects).await?));
    }
    Ok(())
}

/// Milliseconds until the controllers have written the status of every object.
async fn settled(server: &Server, sample: Sample, objects: usize) -> Result<f64> {
    let mut connection = Connection::open(&server.endpoint).await?;
    let start = Instant::now();
    loop {
        let list = connection.done(Request::get(sample.path())).await?;
        let judged = std::str::from_utf8(list)?.matches("\"timeline\":").count();
        if judged >= objects {
            return Ok(start.elapsed().as_secs_f64() * 1e3);
        }
        ensure!(start.elapsed() < Duration::from_secs(300), "{judged} of {objects} objects have a timeline");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn reads(server: &Server, sample: Sample, args: &Args, figures: &mut Measured) -> Result<()> {
    let objects = args.objects;
    let (gets, ..) = loaded(server, args.clients, objects, move |number| Made {
        method: "GET",
        path: format!("{}/{}", sample.path(), name(number * 7919 % objects)),
        media: "application/json",
        body: Vec::new(),
    })
    .await?;
    figures.push(("get", gets.per_second()));
    let mut connection = Connection::open(&server.endpoint).await?;
    let mut best = [f64::INFINITY; 3];
    for _ in 0..5 {
        let start = Instant::now();
        let bytes = connection.done(Request::get(sample.path())).await?.len();
        best[0] = best[0].min(start.elapsed().as_secs_f64() * 1e3);
        ensure!(bytes > objects * 1000, "the list has only {bytes} bytes");
        let start = Instant::now();
        let pages = turn_pages(&mut connection, sample).await?;
        best[1] = best[1].min(start.elapsed().as_secs_f64() * 1e3);
        ensure!(pages == objects.div_ceil(500), "{pages} pages");
        let start = Instant::now();
        connection.done(Request::get(&format!("{}?labelSelector=picked%3Dyes", sample.path()))).await?;
        best[2] = best[2].min(start.elapsed().as_secs_f64() * 1e3);
    }
    figures.extend([("list", best[0]), ("pages", best[1]), ("label", best[2])]);
    Ok(())
}

/// Lists in pages; gives their number.
async fn turn_pages(connection: &mut Connection, sample: Sample) -> Result<usize> {
    let first = format!("{}?limit=500", sample.path());
    let mut path = first.clone();
    for pages in 1.. {
        let body = connection.done(Request::get(&path)).await?;
        // The key comes in the metadata of the list, before or behind the items.
        let text = std::str::from_utf8(body)?;
        let ends = [&text[..text.len().min(1000)], &text[text.len().saturating_sub(1000)..]];
        let next = ends.iter().find_map(|end| end.split("\"continue\":\"").nth(1)?.split('"').next());
        match next.filter(|key| !key.is_empty()) {
            None => return Ok(pages),
            Some(key) => path = format!("{first}&continue={key}"),
        }
    }
    Ok(0)
}

async fn changes(server: &Server, sample: Sample, args: &Args, figures: &mut Measured) -> Result<()> {
    let objects = args.objects;
    let mut watching = Vec::new();
    for _ in 0..WATCHERS {
        let mut connection = Connection::open(&server.endpoint).await?;
        connection.watch(&format!("{}?watch=true&timeoutSeconds=3000", sample.path())).await?;
        watching.push(tokio::spawn(async move { connection.read_until(b"never sent").await }));
    }
    let change = move |number: usize| sample.change(number, &format!("Phase{number}"));
    let (patched, cpu, _) = loaded(server, args.clients, objects, change).await?;
    figures.extend([("status", patched.per_second()), ("status server", cpu)]);
    if sample.apply(0).is_some() {
        let apply = move |number: usize| sample.apply(number).unwrap_or_else(|| sample.change(number, "none"));
        let (applied, cpu, _) = loaded(server, args.clients, objects, apply).await?;
        figures.extend([("apply", applied.per_second()), ("apply server", cpu)]);
        let (again, ..) = loaded(server, args.clients, objects, apply).await?;
        figures.push(("no-op", again.per_second()));
    }
    figures.push(("memory busy", server.resident()?));
    rest(server).await?;
    figures.push(("memory", server.resident()?));
    for task in watching {
        ensure!(!task.is_finished(), "a watch ended before the writes did");
        task.abort();
    }
    Ok(())
}

/// Waits until the server has nothing left to do. Its controllers pause between looks at a large world: only a longer silence
/// is rest.
async fn rest(server: &Server) -> Result<()> {
    const WINDOW: Duration = Duration::from_secs(3);
    const SILENT: usize = 5;
    let (start, mut silent) = (Instant::now(), 0);
    loop {
        let before = server.cpu_seconds()?;
        tokio::time::sleep(WINDOW).await;
        let is_silent = server.cpu_seconds()? - before < WINDOW.as_secs_f64() / 50.0;
        silent = if is_silent { silent + 1 } else { 0 };
        if silent == SILENT {
            return Ok(());
        }
        ensure!(start.elapsed() < Duration::from_secs(300), "the server does not come to rest");
    }
}

/// Updates of one object, each seen by every watch.
async fn watches(server: &Server, sample: Sample, args: &Args, figures: &mut Measured) -> Result<()> {
    const UPDATES: usize = 20;
    let mut connection = Connection::open(&server.endpoint).await?;
    let list = connection.done(Request::get(&format!("{}?limit=1", sample.path()))).await?;
    let list: Value = serde_json::from_slice(list)?;
    let revision = list["metadata"]["resourceVersion"].as_str().context("a list without revision")?.to_owned();
    let (seen, mut arrivals) = tokio::sync::mpsc::channel::<(usize, Instant)>(args.watches * 2);
    let mut tasks = Vec::new();
    for _ in 0..args.watches {
        let mut watch = Connection::open(&server.endpoint).await?;
        watch.watch(&format!("{}?watch=true&timeoutSeconds=3000&resourceVersion={revision}", sample.path())).await?;
        let seen = seen.clone();
        tasks.push(tokio::spawn(async move {
            for update in 0..UPDATES {
                watch.read_until(format!("\"update-{update}\"").as_bytes()).await?;
                seen.send((update, Instant::now())).await?;
            }
            anyhow::Ok(())
        }));
    }
    // Handshakes are over, buffers are warm.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let (mut times, mut last_of_update) = (Vec::new(), Vec::new());
    for update in 0..UPDATES {
        let change = sample.change(0, &format!("update-{update}"));
        let sent = Instant::now();
        connection.done(change.request()).await?;
        for _ in 0..args.watches {
            let arrival = tokio::time::timeout(Duration::from_secs(30), arrivals.recv()).await;
            let (number, at) = arrival.context("a watch did not see an update")?.context("all watches ended")?;
            ensure!(number == update, "a watch saw update {number} while {update} was sent");
            times.push(at.duration_since(sent));
        }
        last_of_update.push(times[times.len() - args.watches..].iter().copied().max().unwrap_or_default());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for task in tasks {
        task.await??;
    }
    times.sort_unstable();
    last_of_update.sort_unstable();
    figures.push(("watch all", quantile(&last_of_update, 0.5)));
    figures.push(("watch p50", quantile(&times, 0.5)));
    figures.push(("watch p99", quantile(&times, 0.99)));
    figures.push(("watch max", quantile(&times, 1.0)));
    Ok(())
}

/// A load, with µs of CPU per request of the server and of the client.
async fn loaded(
    server: &Server,
    clients: usize,
    count: usize,
    make: impl Fn(usize) -> Made + Send + Sync + 'static,
) -> Result<(Load, f64, f64)> {
    let (server_before, client_before) = (server.cpu_seconds()?, own_cpu()?);
    let load = load(&server.endpoint, clients, count, make).await?;
    let each = |seconds: f64| seconds * 1e6 / count as f64;
    Ok((load, each(server.cpu_seconds()? - server_before), each(own_cpu()? - client_before)))
}

fn own_cpu() -> Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    Ok(seconds(usage.user_time()) + seconds(usage.system_time()))
}

fn print(args: &Args, sample: Sample, ours: &Measured, theirs: Option<&Measured>) {
    let Args { objects, clients, watches, profile, .. } = args;
    let size = sample.object(0).to_string().len();
    println!("\n{objects} objects of {size} bytes, {clients} clients, {watches} watches, profile {profile}\n");
    println!("| what | kiln serve | goal | | kube-apiserver + etcd | kiln / them |\n|---|---|---|---|---|---|");
    let find = |figures: &Measured, key: &str| figures.iter().find(|(known, _)| *known == key).map(|(_, value)| *value);
    for (key, text, unit, goal) in &FIGURES {
        let Some(value) = find(ours, key) else { continue };
        let (wanted, met) = match goal {
            Goal::Below(limit) => (format!("< {limit} {unit}"), Some(value < *limit)),
            Goal::AtLeast(limit) => (format!("≥ {limit} {unit}"), Some(value >= *limit)),
            Goal::None => (String::new(), None),
        };
        let met = met.map_or("", |met| if met { "met" } else { "missed" });
        let peer = theirs.and_then(|theirs| find(theirs, key));
        let ratio = peer.map_or(String::new(), |peer| format!("{:.2}×", value / peer));
        let peer = peer.map_or(String::new(), |peer| shown(peer, unit));
        println!("| {text} | {} | {wanted} | {met} | {peer} | {ratio} |", shown(value, unit));
    }
}

fn shown(value: f64, unit: &str) -> String {
    let digits = usize::from(value < 100.0);
    format!("{value:.digits$} {unit}")
}
