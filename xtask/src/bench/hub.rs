//! `cargo xtask bench hub`: the API of `kiln serve` under load, beside a real kube-apiserver and etcd.
//!
//! `KUBEBUILDER_ASSETS` names the folder with the real ones; without it a line says so. Both get the same definition, the
//! same objects and the same requests from the same client over TLS on loopback, one server at a time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
use serde_json::{Value, json};

use super::hub_client::{Connection, Load, Made, Request, load, quantile};
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
    /// Cargo profile of server and client
    #[arg(long, default_value = "release")]
    profile: String,
    /// Measure with this program as the client instead of building first
    #[arg(long, hide = true)]
    built: bool,
}

const WORK: &str = "target/bench/hub";
const PATH: &str = "/apis/bench.example.org/v1/namespaces/bench/machines";
const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
/// Watches that are open while objects are written.
const WATCHERS: usize = 10;
/// One object in this many has the label that is asked for.
const PICKED: usize = 100;
const STARTS: usize = 5;

/// What a figure should be.
enum Goal {
    Below(f64),
    AtLeast(f64),
    None,
}

/// Key, text, unit, goal. The order of the table.
const FIGURES: [(&str, &str, &str, Goal); 22] = [
    ("start", "cold start to ready, empty (median of 5)", "ms", Goal::Below(300.0)),
    ("start full", "cold start to ready, all objects (median of 5)", "ms", Goal::Below(300.0)),
    ("create", "creates, durable", "/s", Goal::AtLeast(3000.0)),
    ("create p50", "a create, p50", "ms", Goal::None),
    ("create p99", "a create, p99", "ms", Goal::None),
    ("create server", "CPU of the server per create", "µs", Goal::None),
    ("create client", "CPU of the client per create", "µs", Goal::None),
    ("get", "gets", "/s", Goal::None),
    ("list", "list of all, one page (best of 5)", "ms", Goal::Below(150.0)),
    ("pages", "list of all, pages of 500 (best of 5)", "ms", Goal::Below(150.0)),
    ("label", "list of 1 in 100 by label (best of 5)", "ms", Goal::Below(150.0)),
    ("status", "status merge patches, 10 watches", "/s", Goal::None),
    ("status server", "CPU of the server per status patch", "µs", Goal::None),
    ("apply", "server-side applies of status, 10 watches", "/s", Goal::None),
    ("apply server", "CPU of the server per apply", "µs", Goal::None),
    ("no-op", "server-side applies that change nothing", "/s", Goal::None),
    ("watch p50", "an update seen by a watch, all watches, p50", "ms", Goal::None),
    ("watch p99", "an update seen by a watch, all watches, p99", "ms", Goal::None),
    ("watch max", "an update seen by a watch, all watches, slowest", "ms", Goal::Below(100.0)),
    ("memory", "resident memory, all objects, 10 watches, after the writes", "MB", Goal::Below(130.0)),
    ("memory restarted", "resident memory, all objects, after a restart", "MB", Goal::None),
    ("memory empty", "resident memory, empty", "MB", Goal::None),
];

type Measured = Vec<(&'static str, f64)>;

pub fn run(args: &Args) -> Result<()> {
    let folder = if args.profile == "dev" { "debug" } else { &args.profile };
    let target = PathBuf::from("target").join(folder);
    if !args.built {
        let mut build = Command::new("cargo");
        execute(build.args(["build", "--package", "kiln", "--package", "xtask", "--profile", &args.profile]))?;
        let mut measuring = Command::new(target.join("xtask"));
        measuring.args(["bench", "hub", "--built", "--profile", &args.profile]);
        for (flag, value) in [("--objects", args.objects), ("--clients", args.clients), ("--watches", args.watches)] {
            measuring.arg(flag).arg(value.to_string());
        }
        return execute(&mut measuring);
    }
    allow_connections(args.watches)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let kiln = Kind::Kiln(target.join("kiln"));
    let ours = runtime.block_on(measure(&kiln, args))?;
    let theirs = match std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from) {
        Some(assets) => Some(runtime.block_on(measure(&Kind::Kubernetes(assets), args))?),
        None => None,
    };
    print(args, &ours, theirs.as_ref());
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

async fn measure(kind: &Kind, args: &Args) -> Result<Measured> {
    let folder = Path::new(WORK).join(kind.name().replace(' ', "-"));
    let _ = fs::remove_dir_all(&folder);
    let mut figures: Measured = Vec::new();
    let (start, _) = starts(kind, |number| folder.join(format!("empty-{number}"))).await?;
    figures.push(("start", start));
    let data = folder.join("data");
    let server = kind.start(&data).await?;
    figures.push(("memory empty", server.resident()?));
    prepare(&server).await?;
    writes(&server, args, &mut figures).await?;
    reads(&server, args, &mut figures).await?;
    changes(&server, args, &mut figures).await?;
    watches(&server, args, &mut figures).await?;
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

async fn prepare(server: &Server) -> Result<()> {
    let mut connection = Connection::open(&server.endpoint).await?;
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    connection.done(Request::post(definitions, definition().to_string().as_bytes())).await?;
    connection.done(Request::post("/api/v1/namespaces", br#"{"metadata":{"name":"bench"}}"#)).await?;
    // A real server needs a moment until it serves a new kind.
    let start = Instant::now();
    while connection.call(Request::get(PATH)).await?.0 != 200 {
        ensure!(start.elapsed() < Duration::from_secs(30), "the new kind is not served");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

async fn writes(server: &Server, args: &Args, figures: &mut Measured) -> Result<()> {
    let (load, server_cpu, client_cpu) = loaded(server, args.clients, args.objects, |number| Made {
        method: "POST",
        path: PATH.into(),
        media: "application/json",
        body: machine(number).to_string().into_bytes(),
    })
    .await?;
    figures.push(("create", load.per_second()));
    figures.push(("create p50", load.quantile(0.5)));
    figures.push(("create p99", load.quantile(0.99)));
    figures.push(("create server", server_cpu));
    figures.push(("create client", client_cpu));
    Ok(())
}

async fn reads(server: &Server, args: &Args, figures: &mut Measured) -> Result<()> {
    let objects = args.objects;
    let (gets, ..) = loaded(server, args.clients, objects, move |number| Made {
        method: "GET",
        path: format!("{PATH}/{}", name(number * 7919 % objects)),
        media: "application/json",
        body: Vec::new(),
    })
    .await?;
    figures.push(("get", gets.per_second()));
    let mut connection = Connection::open(&server.endpoint).await?;
    let mut best = [f64::INFINITY; 3];
    for _ in 0..5 {
        let start = Instant::now();
        let bytes = connection.done(Request::get(PATH)).await?.len();
        best[0] = best[0].min(start.elapsed().as_secs_f64() * 1e3);
        ensure!(bytes > objects * 1000, "the list has only {bytes} bytes");
        let start = Instant::now();
        let pages = turn_pages(&mut connection).await?;
        best[1] = best[1].min(start.elapsed().as_secs_f64() * 1e3);
        ensure!(pages == objects.div_ceil(500), "{pages} pages");
        let start = Instant::now();
        connection.done(Request::get(&format!("{PATH}?labelSelector=picked%3Dyes"))).await?;
        best[2] = best[2].min(start.elapsed().as_secs_f64() * 1e3);
    }
    figures.extend([("list", best[0]), ("pages", best[1]), ("label", best[2])]);
    Ok(())
}

/// Lists in pages; gives their number.
async fn turn_pages(connection: &mut Connection) -> Result<usize> {
    let mut path = format!("{PATH}?limit=500");
    for pages in 1.. {
        let body = connection.done(Request::get(&path)).await?;
        // The key comes in the metadata of the list, before or behind the items.
        let text = std::str::from_utf8(body)?;
        let ends = [&text[..text.len().min(1000)], &text[text.len().saturating_sub(1000)..]];
        let next = ends.iter().find_map(|end| end.split("\"continue\":\"").nth(1)?.split('"').next());
        match next.filter(|key| !key.is_empty()) {
            None => return Ok(pages),
            Some(key) => path = format!("{PATH}?limit=500&continue={key}"),
        }
    }
    Ok(0)
}

async fn changes(server: &Server, args: &Args, figures: &mut Measured) -> Result<()> {
    let objects = args.objects;
    let mut watching = Vec::new();
    for _ in 0..WATCHERS {
        let mut connection = Connection::open(&server.endpoint).await?;
        connection.watch(&format!("{PATH}?watch=true&timeoutSeconds=3000")).await?;
        watching.push(tokio::spawn(async move { connection.read_until(b"never sent").await }));
    }
    let status =
        |number: usize| json!({"status": {"phase": format!("Phase{number}"), "conditions": conditions(number)}});
    let (patched, cpu, _) = loaded(server, args.clients, objects, move |number| Made {
        method: "PATCH",
        path: format!("{PATH}/{}/status", name(number)),
        media: MERGE,
        body: status(number).to_string().into_bytes(),
    })
    .await?;
    figures.extend([("status", patched.per_second()), ("status server", cpu)]);
    let apply = move |number: usize| {
        let mut body = json!({"apiVersion": "bench.example.org/v1", "kind": "Machine"});
        body["metadata"] = json!({"name": name(number)});
        body["status"] = status(number + 1)["status"].take();
        Made {
            method: "PATCH",
            path: format!("{PATH}/{}/status?fieldManager=bench&force=true", name(number)),
            media: APPLY,
            body: body.to_string().into_bytes(),
        }
    };
    let (applied, cpu, _) = loaded(server, args.clients, objects, apply).await?;
    figures.extend([("apply", applied.per_second()), ("apply server", cpu)]);
    let (again, ..) = loaded(server, args.clients, objects, apply).await?;
    figures.push(("no-op", again.per_second()));
    figures.push(("memory", server.resident()?));
    for task in watching {
        ensure!(!task.is_finished(), "a watch ended before the writes did");
        task.abort();
    }
    Ok(())
}

/// Updates of one object, each seen by every watch.
async fn watches(server: &Server, args: &Args, figures: &mut Measured) -> Result<()> {
    const UPDATES: usize = 20;
    let mut connection = Connection::open(&server.endpoint).await?;
    let list = connection.done(Request::get(&format!("{PATH}?limit=1"))).await?;
    let list: Value = serde_json::from_slice(list)?;
    let revision = list["metadata"]["resourceVersion"].as_str().context("a list without revision")?.to_owned();
    let (seen, mut arrivals) = tokio::sync::mpsc::channel::<(usize, Instant)>(args.watches * 2);
    let mut tasks = Vec::new();
    for _ in 0..args.watches {
        let mut watch = Connection::open(&server.endpoint).await?;
        watch.watch(&format!("{PATH}?watch=true&timeoutSeconds=3000&resourceVersion={revision}")).await?;
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
    let mut times = Vec::new();
    let path = format!("{PATH}/{}/status", name(0));
    for update in 0..UPDATES {
        let body = json!({"status": {"phase": format!("update-{update}")}}).to_string();
        let sent = Instant::now();
        connection.done(Request { method: "PATCH", path: &path, media: MERGE, body: body.as_bytes() }).await?;
        for _ in 0..args.watches {
            let arrival = tokio::time::timeout(Duration::from_secs(30), arrivals.recv()).await;
            let (number, at) = arrival.context("a watch did not see an update")?.context("all watches ended")?;
            ensure!(number == update, "a watch saw update {number} while {update} was sent");
            times.push(at.duration_since(sent));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for task in tasks {
        task.await??;
    }
    times.sort_unstable();
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

fn print(args: &Args, ours: &Measured, theirs: Option<&Measured>) {
    let Args { objects, clients, watches, profile, .. } = args;
    let size = machine(0).to_string().len();
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
    if theirs.is_none() {
        println!("\nKUBEBUILDER_ASSETS names no folder with kube-apiserver and etcd: nothing to compare with.");
    }
}

fn shown(value: f64, unit: &str) -> String {
    let digits = usize::from(value < 100.0);
    format!("{value:.digits$} {unit}")
}

fn name(number: usize) -> String {
    format!("machine-{number:05}")
}

/// What people write about a machine: about 1.3 KB.
fn machine(number: usize) -> Value {
    let mac =
        |card: usize| format!("52:54:{:02x}:{:02x}:{:02x}:{card:02x}", number >> 16, number >> 8 & 255, number & 255);
    let card =
        |card: usize| json!({"name": format!("eno{card}"), "macAddress": mac(card), "mtu": 9000, "speed": 25000});
    let picked = if number.is_multiple_of(PICKED) { "yes" } else { "no" };
    json!({
        "apiVersion": "bench.example.org/v1",
        "kind": "Machine",
        "metadata": {
            "name": name(number), "namespace": "bench",
            "labels": {"rack": format!("rack-{}", number / 40), "site": format!("site-{}", number % 17), "picked": picked},
            "annotations": {"example.org/serial": format!("SN{number:012}"), "example.org/owner": "the network team, floor 3"},
        },
        "spec": {
            "online": true,
            "bmc": {"address": format!("redfish-virtualmedia+https://10.{}.{}.{}/redfish/v1/Systems/1", number >> 16, number >> 8 & 255, number & 255),
                "credentialsName": format!("bmc-{number:05}"), "disableCertificateVerification": true},
            "bootMacAddress": mac(1),
            "interfaces": (1..=4).map(card).collect::<Vec<_>>(),
            "addresses": [format!("10.20.{}.{}/16", number >> 8 & 255, number & 255), format!("fd00::{number:x}/64")],
            "gateway": "10.20.0.1", "dns": ["10.20.0.2", "10.20.0.3"],
            "rootDeviceHints": {"deviceName": "/dev/disk/by-path/pci-0000:5e:00.0-nvme-1", "minSizeGigabytes": 120},
            "image": {"url": "https://images.example.org/coreos-418.94.202501221327-0.qcow2.gz",
                "sha256": format!("{:064x}", number * 7919)},
            "kernelArguments": ["console=ttyS0,115200n8", "rd.neednet=1", "nvme_core.io_timeout=4294967295"],
        },
    })
}

fn conditions(number: usize) -> Value {
    let of = |kind: &str, status: &str| {
        json!({"type": kind, "status": status, "reason": "Measured", "message": format!("as number {number} says"),
            "lastTransitionTime": "2026-11-16T00:00:00Z"})
    };
    json!([of("Ready", "True"), of("Discovered", "True"), of("Installed", "False")])
}

fn definition() -> Value {
    let text = json!({"type": "string"});
    let integer = json!({"type": "integer"});
    let texts = json!({"type": "array", "items": text});
    let object = |properties: Value| json!({"type": "object", "properties": properties});
    let spec = json!({
        "online": {"type": "boolean"},
        "bmc": object(json!({"address": {"type": "string", "minLength": 1}, "credentialsName": text,
            "disableCertificateVerification": {"type": "boolean"}})),
        "bootMacAddress": {"type": "string", "pattern": "^[0-9a-f:]{17}$"},
        "interfaces": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "required": ["name"], "properties":
                {"name": text, "macAddress": text, "mtu": integer, "speed": integer, "up": {"type": "boolean", "default": true}}}},
        "addresses": texts, "gateway": text, "dns": texts,
        "rootDeviceHints": object(json!({"deviceName": text, "minSizeGigabytes": {"type": "integer", "minimum": 0}})),
        "image": object(json!({"url": text, "sha256": text})),
        "kernelArguments": texts,
        "automatedCleaningMode": {"type": "string", "enum": ["metadata", "disabled"], "default": "metadata"},
    });
    let condition = json!({"type": "object", "required": ["type", "status"], "properties": {"type": text, "status": text,
        "reason": text, "message": text, "lastTransitionTime": {"type": "string", "format": "date-time"}}});
    let status = json!({"phase": text, "conditions": {"type": "array", "items": condition,
        "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "machines.bench.example.org"},
        "spec": {
            "group": "bench.example.org", "scope": "Namespaced",
            "names": {"plural": "machines", "singular": "machine", "kind": "Machine", "listKind": "MachineList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": object(json!({"spec": object(spec), "status": object(status)}))}}],
        },
    })
}
