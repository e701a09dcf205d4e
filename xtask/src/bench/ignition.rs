//! `cargo xtask bench ignition`: machines fetch their config from `kiln serve`, beside nginx that serves the same bytes from a file.
//!
//! Both show the same P-256 certificate, without tickets or sessions. Each fetch is a new TLS connection; then the same over
//! kept-alive ones. Servers take turns within a run, and what counts is requests per second of the server's CPU time: client
//! and server share the machine. Then a boot storm: every host has a token of its own, which is used up durably
//! before its config leaves.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kiln::hub::boot_secrets::{hash_token, make_token, render_record};
use kiln::hub::timeline::now;
use kiln_core::boot_token::{BootRecord, LIFETIME_SECONDS};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rustls::client::Resumption;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};

use super::hub_client::{Connection, Endpoint, Made, Request, load, quantile};
use super::hub_servers::{Server, free_port, start_kiln, trusting};
use crate::execute;

#[derive(clap::Args, Clone)]
pub struct Args {
    /// Hosts of the boot storm
    #[arg(long, default_value_t = 10_000)]
    hosts: usize,
    /// Machines that fetch at the same time
    #[arg(long, default_value_t = 32)]
    clients: usize,
    /// Machines of the storm that fetch at the same time
    #[arg(long, default_value_t = 256)]
    at_once: usize,
    /// Seconds of one round
    #[arg(long, default_value_t = 6)]
    seconds: u64,
    /// Rounds of each server
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Cargo profile of server and client
    #[arg(long, default_value = "release")]
    profile: String,
    /// Measure with this program as the client instead of building first
    #[arg(long, hide = true)]
    built: bool,
}

const WORK: &str = "target/bench/ignition";
const NAMESPACE: &str = "bench";
/// The size of a worker's config in a hosted cluster.
const PAYLOAD: usize = 355_000;
const TOKEN: &str = "0f0a3a5c-7a67-4a2b-9b1a-2f6a0a4c1e11";
const SECRETS: &str = "/api/v1/namespaces/bench/secrets";
const HOSTS: &str = "/apis/kiln.dev/v1alpha1/namespaces/bench/hosts";

pub fn run(args: &Args) -> Result<()> {
    let target = super::target_of(&args.profile);
    if !args.built {
        let mut measuring = super::build_measuring("ignition", &args.profile)?;
        for (flag, value) in [
            ("--hosts", args.hosts),
            ("--clients", args.clients),
            ("--at-once", args.at_once),
            ("--rounds", args.rounds),
            ("--seconds", usize::try_from(args.seconds)?),
        ] {
            measuring.arg(flag).arg(value.to_string());
        }
        return execute(&mut measuring);
    }
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, soft.max(hard.min(20_000)), hard)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(measure(args, &target.join("kiln")))
}

async fn measure(args: &Args, program: &Path) -> Result<()> {
    let _ = fs::remove_dir_all(WORK);
    fs::create_dir_all(WORK)?;
    let work = fs::canonicalize(WORK)?;
    let authority = make_certificate(&work)?;
    let payload = make_payload(PAYLOAD);
    let (kiln, node) = start_hub(program, &work, &authority).await?;
    let mut api = Connection::open(&kiln.endpoint).await?;
    prepare(&mut api, &payload).await?;
    wait_served(&node).await?;
    println!(
        "\n{} bytes, P-256, TLS without tickets, {} clients, {} rounds of {} s, profile {}\n",
        payload.len(),
        args.clients,
        args.rounds,
        args.seconds,
        args.profile
    );
    match start_nginx(&work, &payload, &node).await? {
        None => println!("nginx is not installed (apt-get install nginx): Kiln alone"),
        Some(nginx) => compare(args, &kiln, &node, &nginx).await?,
    }
    storm(args, &kiln, &node).await?;
    kiln.stop()
}

/// What one server did in its rounds.
#[derive(Default)]
struct Rounds {
    /// Requests per second of the server's CPU time, each round.
    per_cpu: Vec<f64>,
    /// Requests per second, each round.
    per_second: Vec<f64>,
    /// Every request.
    each: Vec<Duration>,
}

impl Rounds {
    fn median(values: &[f64]) -> f64 {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or_default()
    }

    fn p99(&mut self) -> f64 {
        self.each.sort_unstable();
        quantile(&self.each, 0.99)
    }
}

async fn compare(args: &Args, kiln: &Server, node: &Endpoint, nginx: &Server) -> Result<()> {
    println!("| what | kiln serve | nginx, static file | kiln / nginx | goal | |\n|---|---|---|---|---|---|");
    for (what, kept, goal) in [("new connection", false, 1.0), ("kept alive", true, 0.9)] {
        let (mut ours, mut theirs) = (Rounds::default(), Rounds::default());
        for _ in 0..args.rounds {
            for (server, endpoint, rounds) in [(kiln, node, &mut ours), (nginx, &nginx.endpoint, &mut theirs)] {
                round(args, server, endpoint, kept, rounds).await?;
            }
        }
        let per_cpu = (Rounds::median(&ours.per_cpu), Rounds::median(&theirs.per_cpu));
        let ratio = per_cpu.0 / per_cpu.1;
        let met = if ratio >= goal { "met" } else { "missed" };
        println!(
            "| {what}: requests per CPU second (median) | {:.0} | {:.0} | {ratio:.2}× | ≥ {goal:.1}× | {met} |",
            per_cpu.0, per_cpu.1
        );
        let per_second = (Rounds::median(&ours.per_second), Rounds::median(&theirs.per_second));
        println!(
            "| {what}: requests per second | {:.0} | {:.0} | {:.2}× | | |",
            per_second.0,
            per_second.1,
            per_second.0 / per_second.1
        );
        let p99 = (ours.p99(), theirs.p99());
        println!("| {what}: p99 | {:.1} ms | {:.1} ms | {:.2}× | | |", p99.0, p99.1, p99.0 / p99.1);
    }
    Ok(())
}

/// Fetches for some seconds.
async fn round(args: &Args, server: &Server, endpoint: &Endpoint, kept: bool, rounds: &mut Rounds) -> Result<()> {
    let (before, start) = (server.cpu_seconds()?, Instant::now());
    let until = start + Duration::from_secs(args.seconds);
    let tasks: Vec<_> = (0..args.clients)
        .map(|_| {
            let endpoint = endpoint.clone();
            tokio::spawn(async move {
                let mut each = Vec::new();
                let mut connection = None;
                while Instant::now() < until {
                    let begun = Instant::now();
                    let mut used = match connection.take() {
                        Some(kept) => kept,
                        None => Connection::open(&endpoint).await?,
                    };
                    let length = used.done(Request::get("/ignition")).await?.len();
                    ensure!(length >= PAYLOAD, "only {length} bytes came");
                    each.push(begun.elapsed());
                    connection = kept.then_some(used);
                }
                anyhow::Ok(each)
            })
        })
        .collect();
    let mut count = 0;
    for task in tasks {
        let each = task.await??;
        count += each.len();
        rounds.each.extend(each);
    }
    let seconds = start.elapsed().as_secs_f64();
    rounds.per_second.push(count as f64 / seconds);
    rounds.per_cpu.push(count as f64 / (server.cpu_seconds()? - before));
    Ok(())
}

/// Every host fetches once with a token of its own.
async fn storm(args: &Args, kiln: &Server, node: &Endpoint) -> Result<()> {
    let tokens = make_hosts(args, kiln).await?;
    calm(kiln).await?;
    let idle = kiln.resident()?;
    let (next, tokens) = (Arc::new(AtomicUsize::new(0)), Arc::new(tokens));
    let start = Instant::now();
    let before = kiln.cpu_seconds()?;
    let tasks: Vec<_> = (0..args.at_once)
        .map(|_| {
            let (next, tokens, node) = (Arc::clone(&next), Arc::clone(&tokens), node.clone());
            tokio::spawn(async move {
                let (mut each, mut failures) = (Vec::new(), Vec::new());
                while let Some(token) = tokens.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let begun = Instant::now();
                    match fetch_once(&node, token).await {
                        Ok(()) => each.push(begun.elapsed()),
                        Err(error) => failures.push(format!("{error:#}")),
                    }
                }
                (each, failures)
            })
        })
        .collect();
    let watched = Arc::clone(&next);
    let mut peak = idle;
    while watched.load(Ordering::Relaxed) < tokens.len() + args.at_once {
        peak = peak.max(kiln.resident()?);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (mut each, mut failures) = (Vec::new(), Vec::new());
    for task in tasks {
        let (times, failed) = task.await?;
        each.extend(times);
        failures.extend(failed);
    }
    let (seconds, cpu) = (start.elapsed().as_secs_f64(), kiln.cpu_seconds()? - before);
    peak = peak.max(kiln.resident()?);
    let told = wait_told(kiln, args.hosts).await?;
    each.sort_unstable();
    let met = |met: bool| if met { "met" } else { "missed" };
    println!("\n| boot storm: {} hosts, {} at once | reached | goal | |\n|---|---|---|---|", args.hosts, args.at_once);
    println!("| failures | {} | 0 | {} |", failures.len(), met(failures.is_empty()));
    println!("| memory above idle ({idle:.0} MB) | {:.0} MB | < 100 MB | {} |", peak - idle, met(peak - idle < 100.0));
    println!("| hosts per second | {:.0} | | |", each.len() as f64 / seconds);
    println!(
        "| CPU of the server per host, with the use of its token on the disk | {:.2} ms | | |",
        cpu * 1e3 / args.hosts as f64
    );
    println!("| a fetch, p50 / p99 | {:.0} / {:.0} ms | | |", quantile(&each, 0.5), quantile(&each, 0.99));
    println!("| Hosts whose status says so afterwards | {told} | {} | {} |", args.hosts, met(told == args.hosts));
    if let Some(first) = failures.first() {
        println!("\nthe first failure: {first}");
    }
    Ok(())
}

async fn fetch_once(node: &Endpoint, token: &str) -> Result<()> {
    let endpoint = Endpoint { token: STANDARD.encode(token), ..node.clone() };
    let mut connection = Connection::open(&endpoint).await?;
    let (status, body) = connection.call(Request::get("/ignition")).await?;
    ensure!(status == 200, "{status} {}", String::from_utf8_lossy(body));
    ensure!(body.len() > PAYLOAD, "only {} bytes came", body.len());
    Ok(())
}

/// Host, overlay and token of each; gives the tokens.
async fn make_hosts(args: &Args, kiln: &Server) -> Result<Vec<String>> {
    let tokens: Vec<String> = (0..args.hosts)
        .map(|_| make_token().map(|token| token.text().to_owned()).context("no random numbers"))
        .collect::<Result<_>>()?;
    let made = Arc::new(tokens.clone());
    let create = move |number: usize| {
        let (host, what) = (format!("host-{:05}", number / 3), number % 3);
        let (path, object) = match what {
            0 => (
                HOSTS,
                json!({"apiVersion": "kiln.dev/v1alpha1", "kind": "Host", "metadata": {"name": host}, "spec": {"pool": "worker"}}),
            ),
            1 => {
                let files = json!([{"path": "/etc/hostname", "mode": 420, "overwrite": true, "contents": {"source": format!("data:,{host}")}},
                    {"path": "/etc/NetworkManager/system-connections/bond0.nmconnection", "mode": 384,
                        "contents": {"source": format!("data:;base64,{}", STANDARD.encode("[connection]\nid=bond0\n".repeat(20)))}}]);
                (
                    SECRETS,
                    secret(
                        &format!("overlay-{host}"),
                        "overlay",
                        &host,
                        &[("payload", "payload-worker-1"), ("files", &files.to_string()), ("id", &host)],
                    ),
                )
            }
            _ => {
                let hash = hash_token(made.get(number / 3).map_or("", String::as_str));
                let mut object = secret(&format!("boot-token-{host}"), "boot-token", &host, &[]);
                let mut data = render_record(&BootRecord::issue(hash, None, now(), LIFETIME_SECONDS));
                if let Some(entries) = data.as_object_mut() {
                    entries.retain(|_, value| !value.is_null());
                }
                object["data"] = data;
                (SECRETS, object)
            }
        };
        Made { method: "POST", path: path.into(), media: "application/json", body: object.to_string().into_bytes() }
    };
    load(&kiln.endpoint, args.clients, args.hosts * 3, create).await?;
    Ok(tokens)
}

/// Waits until the server has nothing to do.
async fn calm(kiln: &Server) -> Result<()> {
    for _ in 0..120 {
        let before = kiln.cpu_seconds()?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        if kiln.cpu_seconds()? - before < 0.05 {
            return Ok(());
        }
    }
    println!("the hub was still busy after four minutes");
    Ok(())
}

/// How many Hosts say that they have fetched; waits for all of them for a while.
async fn wait_told(kiln: &Server, hosts: usize) -> Result<usize> {
    let mut api = Connection::open(&kiln.endpoint).await?;
    let mut told = 0;
    for _ in 0..120 {
        let list = api.done(Request::get(HOSTS)).await?;
        let list: Value = serde_json::from_slice(list)?;
        let items = list["items"].as_array().into_iter().flatten();
        told = items.filter(|host| host["status"]["provision"]["fetchedAt"].is_string()).count();
        if told >= hosts {
            break;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    Ok(told)
}

async fn prepare(api: &mut Connection, payload: &str) -> Result<()> {
    api.done(Request::post("/api/v1/namespaces", format!(r#"{{"metadata":{{"name":"{NAMESPACE}"}}}}"#).as_bytes()))
        .await?;
    let mut object = secret("payload-worker-1", "payload", "", &[("id", "bench"), ("config", payload)]);
    object["metadata"]["labels"]["kiln.dev/pool"] = "worker".into();
    api.done(Request::post(SECRETS, object.to_string().as_bytes())).await?;
    let mut object = secret("token-worker-1", "pool-token", "", &[("token", TOKEN)]);
    object["metadata"]["annotations"] =
        json!({"kiln.dev/payload": "payload-worker-1", "hypershift.openshift.io/nodePool": "bench/worker"});
    api.done(Request::post(SECRETS, object.to_string().as_bytes())).await?;
    Ok(())
}

fn secret(name: &str, what: &str, host: &str, data: &[(&str, &str)]) -> Value {
    let data: serde_json::Map<String, Value> =
        data.iter().map(|(key, text)| ((*key).to_owned(), STANDARD.encode(text).into())).collect();
    let mut object = json!({"apiVersion": "v1", "kind": "Secret", "type": format!("kiln.dev/{what}"),
        "metadata": {"name": name, "labels": {"kiln.dev/ignition": what}}, "data": data});
    if !host.is_empty() {
        object["metadata"]["labels"]["kiln.dev/host"] = host.into();
    }
    object
}

/// A config of files such as a pool has, padded to its size.
fn make_payload(size: usize) -> String {
    let mut files = Vec::new();
    let mut state = 0x9e37_79b9_u64;
    for number in 0..150 {
        let content: Vec<u8> = (0..1500)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                b"abcdefghijklmnopqrstuvwxyz =/\n[]"[(state >> 59) as usize]
            })
            .collect();
        files.push(json!({"path": format!("/etc/kubernetes/file-{number:03}"), "mode": 420, "overwrite": true,
            "contents": {"source": format!("data:text/plain;charset=utf-8;base64,{}", STANDARD.encode(content))}}));
    }
    let config = |padding: usize| {
        let mut files = files.clone();
        files.push(json!({"path": "/etc/padding", "contents": {"source": format!("data:,{}", "x".repeat(padding))}}));
        json!({"ignition": {"version": "3.2.0"}, "storage": {"files": files}}).to_string()
    };
    let length = config(0).len();
    config(size.saturating_sub(length))
}

/// An authority and a P-256 certificate for this machine, by openssl. Gives the authority's.
fn make_certificate(work: &Path) -> Result<CertificateDer<'static>> {
    let openssl = |arguments: &[&str]| {
        let output =
            Command::new("openssl").args(arguments).current_dir(work).output().context("cannot start openssl")?;
        ensure!(output.status.success(), "openssl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        anyhow::Ok(())
    };
    fs::write(work.join("san"), "subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth\n")?;
    let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
    openssl(
        &[&["req", "-x509", "-days", "10", "-subj", "/CN=bench", "-keyout", "ca.key", "-out", "ca.crt"], &key[..]]
            .concat(),
    )?;
    openssl(&[&["req", "-subj", "/CN=localhost", "-keyout", "tls.key", "-out", "tls.csr"], &key[..]].concat())?;
    openssl(&[
        "x509",
        "-req",
        "-in",
        "tls.csr",
        "-CA",
        "ca.crt",
        "-CAkey",
        "ca.key",
        "-CAcreateserial",
        "-days",
        "10",
        "-extfile",
        "san",
        "-out",
        "tls.crt",
    ])?;
    Ok(CertificateDer::from_pem_file(work.join("ca.crt"))?)
}

/// The hub, and its listener for machines with the pool's token.
async fn start_hub(program: &Path, work: &Path, authority: &CertificateDer<'static>) -> Result<(Server, Endpoint)> {
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()?));
    let (certificate, key) = (work.join("tls.crt"), work.join("tls.key"));
    let (certificate, key) = (certificate.to_string_lossy(), key.to_string_lossy());
    let arguments =
        ["--node-listen", &address.to_string(), "--tls-certificate", &certificate, "--tls-key", &key, "--log", "warn"];
    let data = work.join("hub");
    fs::create_dir_all(&data)?;
    let server = start_kiln(program, &data, &arguments).await?;
    let mut tls = trusting(authority.clone())?.with_no_client_auth();
    tls.resumption = Resumption::disabled();
    let endpoint = Endpoint { address, tls: Arc::new(tls), token: STANDARD.encode(TOKEN) };
    Ok((server, endpoint))
}

/// One process and everything in its favour: no log, open files kept.
async fn start_nginx(work: &Path, payload: &str, node: &Endpoint) -> Result<Option<Server>> {
    let program = Path::new("/usr/sbin/nginx");
    if !program.exists() {
        return Ok(None);
    }
    fs::create_dir_all(work.join("www"))?;
    fs::write(work.join("www/ignition"), payload)?;
    let (port, folder) = (free_port()?, work.display());
    let configuration = format!(
        "daemon off; master_process off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
events {{ worker_connections 4096; }}
http {{ sendfile on; tcp_nopush on; access_log off; default_type application/json; open_file_cache max=100; keepalive_requests 1000000;
  client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder}; uwsgi_temp_path {folder}; scgi_temp_path {folder};
  server {{ listen 127.0.0.1:{port} ssl; ssl_certificate {folder}/tls.crt; ssl_certificate_key {folder}/tls.key;
    ssl_protocols TLSv1.2 TLSv1.3; ssl_session_tickets off; ssl_session_cache off; location / {{ root {folder}/www; }} }} }}
"
    );
    let path = work.join("nginx.conf");
    fs::write(&path, configuration)?;
    let errors = fs::File::create(work.join("nginx.err"))?;
    let process: Child = Command::new(program).arg("-c").arg(&path).stdin(Stdio::null()).stderr(errors).spawn()?;
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let server = Server::of(Endpoint { address, ..node.clone() }, process);
    wait_served(&server.endpoint).await?;
    Ok(Some(server))
}

async fn wait_served(endpoint: &Endpoint) -> Result<()> {
    let start = Instant::now();
    loop {
        if let Ok(mut connection) = Connection::open(endpoint).await
            && let Ok((200, _)) = connection.call(Request::get("/ignition")).await
        {
            return Ok(());
        }
        ensure!(start.elapsed() < Duration::from_secs(30), "nothing is served on {}", endpoint.address);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
