//! The real Ignition fetches from `kiln serve` over TLS and writes the files; certificates change and the hub is killed meanwhile.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::zombie_processes, reason = "a test fails loudly")]

#[path = "support/nodes.rs"]
mod nodes;

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kiln::hub::boot_secrets::parse_record;
use kiln::hub::timeline::now;
use kiln_apiserver::tls::Authority;
use kiln_core::boot_token::LIFETIME_SECONDS;
use kiln_core::timeline::Moment;
use kiln_testimage::oracle;
use kiln_testimage::temp_dir::TempDir;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use nodes::{NAMESPACE, POOL_CONFIG, api, bearer, create, declare_host, issue, payload, pool_token, until};
use serde_json::{Value, json};

const IGNITION: &str = "/usr/lib/dracut/modules.d/30ignition/ignition";
const UUID: &str = "0f0a3a5c-7a67-4a2b-9b1a-2f6a0a4c1e11";

/// A running hub with a listener for machines.
struct Hub {
    process: Child,
    data: PathBuf,
    /// `127.0.0.1:port` of the listener for machines.
    node: String,
}

impl Hub {
    fn start(data: &Path, listen: &str, arguments: &[&str]) -> Hub {
        let folder = data.display().to_string();
        let own = ["serve", "--listen", "127.0.0.1:0", "--node-listen", listen, "--data-dir", &folder];
        Hub::spawn(data, &[&own[..], arguments].concat())
    }

    fn spawn(data: &Path, arguments: &[&str]) -> Hub {
        let mut process = Command::new(env!("CARGO_BIN_EXE_kiln"))
            .args(arguments)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(process.stderr.take().unwrap());
        let mut told = String::new();
        let node = loop {
            let mut line = String::new();
            assert!(log.read_line(&mut line).unwrap() > 0, "kiln serve ended: {told}");
            if let Some((_, rest)) = line.split_once("machines fetch https://") {
                break rest.trim().trim_end_matches("/ignition").to_owned();
            }
            told.push_str(&line);
        };
        // What it says later must be read by somebody, or it waits.
        std::thread::spawn(move || log.read_to_end(&mut Vec::new()));
        Hub { process, data: data.to_owned(), node }
    }

    async fn client(&self) -> Client {
        let kubeconfig = Kubeconfig::read_from(self.data.join("kubeconfig")).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        Client::try_from(config).unwrap()
    }

    /// A client, with the namespace and the pool's payload made.
    async fn with_pool(&self) -> Client {
        let client = self.client().await;
        create(&client, "Namespace", json!({"metadata": {"name": NAMESPACE}})).await;
        create(&client, "Secret", payload("payload-worker-1", "worker", POOL_CONFIG)).await;
        client
    }

    fn authority(&self) -> String {
        std::fs::read_to_string(self.data.join("ca.crt")).unwrap()
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A machine that boots: a root of its own, a pointer, and the real Ignition.
struct Machine {
    folder: TempDir,
}

impl Machine {
    fn new(name: &str, pointer: &Value) -> Machine {
        let folder = TempDir::new(name);
        for part in ["root/etc/selinux", "state", "none", "bin"] {
            std::fs::create_dir_all(folder.join(part)).unwrap();
        }
        folder.write("pointer.ign", pointer.to_string());
        // Debian's Ignition always labels what it wrote.
        folder.write("root/etc/selinux/config", "SELINUXTYPE=none\n");
        let setfiles = folder.write("bin/setfiles", "#!/bin/sh\nexec cat >/dev/null\n");
        std::fs::set_permissions(setfiles, std::fs::Permissions::from_mode(0o755)).unwrap();
        Machine { folder }
    }

    fn stage(&self, stage: &str) -> Command {
        let mut command = Command::new(IGNITION);
        let path = std::env::var("PATH").unwrap_or_default();
        let argument = |name: &str, file: &str| format!("--{name}={}", self.folder.join(file).display());
        command
            .env("PATH", format!("{}:{path}", self.folder.join("bin").display()))
            .env("IGNITION_CONFIG_FILE", self.folder.join("pointer.ign"))
            .env("IGNITION_SYSTEM_CONFIG_DIR", self.folder.join("none"))
            .args(["--platform=file", "--log-to-stdout", "--fetch-timeout=30s"])
            .args([argument("root", "root"), argument("config-cache", "state/ignition.json")])
            .args([argument("state-file", "state/state"), argument("neednet", "state/neednet")])
            .arg(format!("--stage={stage}"))
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .stdout(Stdio::piped());
        command
    }

    /// Whether a stage succeeded, and what it said.
    fn run(&self, stage: &str) -> (bool, String) {
        let output = self.stage(stage).output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn file(&self, path: &str) -> String {
        let path = self.folder.join(&format!("root{path}"));
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// Fetches and writes, and has the files of its pool and its own.
    fn boots(&self, host: Option<&str>) {
        for stage in ["fetch", "files"] {
            let (done, said) = self.run(stage);
            assert!(done, "{stage}: {said}");
        }
        self.has_booted(host);
    }

    fn has_booted(&self, host: Option<&str>) {
        assert_eq!(self.file("/etc/pool"), "pool");
        if let Some(host) = host {
            assert_eq!(self.file("/etc/hostname").trim_end(), host);
            let keyfile = self.folder.join("root/etc/NetworkManager/system-connections/eth0.nmconnection");
            assert_eq!(std::fs::metadata(keyfile).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }
}

fn pointer(node: &str, authority: &str, token: &str) -> Value {
    let authority = format!("data:text/plain;base64,{}", STANDARD.encode(authority));
    json!({"ignition": {"version": "3.2.0",
        "timeouts": {"httpTotal": 20, "httpResponseHeaders": 5},
        "security": {"tls": {"certificateAuthorities": [{"source": authority}]}},
        "config": {"merge": [{"source": format!("https://{node}/ignition"), "httpHeaders": [
            {"name": "Authorization", "value": bearer(token)},
            {"name": "NodePool", "value": "site/worker"},
            {"name": "TargetConfigVersionHash", "value": "00000000"}]}]}}})
}

fn is_missing(test: &str) -> bool {
    let missing = !Path::new(IGNITION).exists();
    if missing {
        oracle::skip(test, "Ignition is not installed (apt-get install ignition)");
    }
    missing
}

#[tokio::test(flavor = "multi_thread")]
async fn ignition_waits_for_its_config_and_writes_it() {
    if is_missing("ignition_waits_for_its_config_and_writes_it") {
        return;
    }
    let folder = TempDir::new("node-real");
    let hub = Hub::start(&folder.join("hub"), "127.0.0.1:0", &[]);
    let client = hub.with_pool().await;
    create(&client, "Host", json!({"metadata": {"name": "w0"}, "spec": {"pool": "worker"}})).await;
    let token = issue(&client, "w0", now(), LIFETIME_SECONDS).await;
    let machine = Machine::new("node-real-machine", &pointer(&hub.node, &hub.authority(), &token));
    // Its overlay is not there yet: 511, which Ignition tries again.
    let mut fetching = machine.stage("fetch").spawn().unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(fetching.try_wait().unwrap().is_none(), "it still tries");
    create(&client, "Secret", nodes::overlay("w0", "payload-worker-1", &nodes::own_files("w0"), None)).await;
    let mut said = String::new();
    fetching.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(fetching.wait().unwrap().success(), "{said}");
    assert!(said.contains("result: Network Authentication Required") && said.contains("result: OK"), "{said}");
    assert!(machine.run("files").0);
    machine.has_booted(Some("w0"));
    until("the timeline", async || {
        api(&client, "Host").get("w0").await.unwrap().data["status"]["provision"]["source"] == "127.0.0.1"
    })
    .await;
    // The hub's own paths know of it.
    let raw =
        async |path: &str| client.request_text(axum::http::Request::get(path).body(Vec::new()).unwrap()).await.unwrap();
    assert_eq!(raw("/readyz/ignition").await, "ok");
    let figures = raw("/metrics").await;
    assert!(figures.contains("kiln_ignition_requests_total{outcome=\"served-host\"} 1\n"), "{figures}");
    assert!(figures.contains("kiln_requests_total{"), "{figures}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_over_another_api_server_serves_machines_whoever_leads() {
    let name = "a_replica_over_another_api_server_serves_machines_whoever_leads";
    if oracle::require(name, "curl", "curl").is_none() {
        return;
    }
    let folder = TempDir::new("node-cluster");
    let hub = Hub::start(&folder.join("hub"), "127.0.0.1:0", &[]);
    let client = hub.with_pool().await;
    declare_host(&client, "w0").await;
    let token = issue(&client, "w0", now(), LIFETIME_SECONDS).await;
    let issued = Authority::open(folder.path()).unwrap().issue_server(&["127.0.0.1".into()]).unwrap();
    folder.write("tls.crt", issued.certificate);
    folder.write("tls.key", issued.key);
    let path = |name: &str| folder.join(name).display().to_string();
    let start = || {
        let (certificate, key, kubeconfig) = (path("tls.crt"), path("tls.key"), path("hub/kubeconfig"));
        let arguments = ["serve", "--kubernetes", "--kubeconfig", &kubeconfig, "--node-listen", "127.0.0.1:0"];
        Hub::spawn(
            &folder.join("hub"),
            &[&arguments[..], &["--tls-certificate", &certificate, "--tls-key", &key]].concat(),
        )
    };
    let replicas = [start(), start()];
    let header = format!("Authorization: {}", bearer(&token));
    let stubborn = ["--fail", "--retry", "30", "--retry-all-errors", "--retry-delay", "1", "-H", &header];
    let bodies = replicas.each_ref().map(|replica| {
        let (done, said) = curl(&folder.join("ca.crt"), &format!("https://{}/ignition", replica.node), &stubborn);
        assert!(done && said.contains("data:,w0\""), "{said}");
        said.lines().last().unwrap_or_default().to_owned()
    });
    assert_eq!(bodies[0], bodies[1], "the same machine may ask any replica");
    let missing = Command::new(env!("CARGO_BIN_EXE_kiln"))
        .args(["serve", "--kubernetes", "--kubeconfig", &path("hub/kubeconfig"), "--node-listen", "127.0.0.1:0"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(
        missing.status.code() == Some(1) && said.contains("give --tls-certificate FILE and --tls-key FILE"),
        "{said}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn ignition_with_a_dead_token_or_a_wrong_authority_gets_nothing_and_rotated_tokens_are_good() {
    if is_missing("ignition_with_a_dead_token_or_a_wrong_authority_gets_nothing") {
        return;
    }
    let folder = TempDir::new("node-dead");
    let hub = Hub::start(&folder.join("hub"), "127.0.0.1:0", &[]);
    let client = hub.with_pool().await;
    declare_host(&client, "w0").await;
    let dead = issue(&client, "w0", Moment(0), 60).await;
    create(&client, "Secret", pool_token("token-worker-1", "payload-worker-1", UUID, None, None)).await;
    let brief = |mut pointer: Value| {
        pointer["ignition"]["timeouts"] = json!({"httpTotal": 3});
        pointer
    };
    let machine = Machine::new("node-dead-token", &brief(pointer(&hub.node, &hub.authority(), &dead)));
    let (done, said) = machine.run("fetch");
    assert!(!done && said.contains("Network Authentication Required"), "{said}");
    let stranger = Authority::open(folder.path()).unwrap();
    let machine = Machine::new("node-wrong-ca", &brief(pointer(&hub.node, stranger.certificate(), UUID)));
    let (done, said) = machine.run("fetch");
    assert!(!done && said.contains("certificate signed by unknown authority"), "{said}");
    // Rotated: the token before is good as long as it is in the Secret.
    let machine = Machine::new("node-first", &pointer(&hub.node, &hub.authority(), UUID));
    machine.boots(None);
    let patch = json!({"data": {"token": STANDARD.encode("the-next-one"), "old_token": STANDARD.encode(UUID)}});
    let parameters = kube::api::PatchParams::default();
    api(&client, "Secret").patch("token-worker-1", &parameters, &kube::api::Patch::Merge(patch)).await.unwrap();
    for token in [UUID, "the-next-one"] {
        Machine::new("node-rotated", &pointer(&hub.node, &hub.authority(), token)).boots(None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ignition_reads_a_config_in_gzip() {
    if is_missing("ignition_reads_a_config_in_gzip") {
        return;
    }
    let folder = TempDir::new("node-gzip");
    let hub = Hub::start(&folder.join("hub"), "127.0.0.1:0", &[]);
    let client = hub.with_pool().await;
    declare_host(&client, "w0").await;
    let token = issue(&client, "w0", now(), LIFETIME_SECONDS).await;
    let mut pointer = pointer(&hub.node, &hub.authority(), &token);
    let reference = &mut pointer["ignition"]["config"]["merge"][0];
    reference["compression"] = "gzip".into();
    reference["httpHeaders"].as_array_mut().unwrap().push(json!({"name": "Accept-Encoding", "value": "gzip"}));
    Machine::new("node-gzip-machine", &pointer).boots(Some("w0"));
}

/// The pool's config tweaks networking too, which on stock CoreOS would throw the host's own network away.
const TWEAKING_POOL: &str = r#"
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata: {name: 50-pool, labels: {machineconfiguration.openshift.io/role: worker}}
spec:
  config:
    ignition: {version: 3.2.0}
    storage:
      files:
      - {path: /etc/pool, mode: 420, contents: {source: "data:,pool"}}
      - path: /etc/NetworkManager/system-connections/dummy0.nmconnection
        mode: 384
        contents: {source: "data:,%5Bconnection%5D%0Aid%3Ddummy0%0Atype%3Ddummy%0Ainterface-name%3Ddummy0%0A"}
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_declared_host_boots_by_the_pointer_printed_for_it_and_has_the_network_it_declares() {
    if is_missing("a_declared_host_boots_by_the_pointer_printed_for_it_and_has_the_network_it_declares") {
        return;
    }
    let folder = TempDir::new("node-declared");
    let hub = Hub::start(&folder.join("hub"), "127.0.0.1:0", &[]);
    let client = hub.client().await;
    create(&client, "Namespace", json!({"metadata": {"name": NAMESPACE}})).await;
    create(&client, "ConfigMap", json!({"metadata": {"name": "config"}, "data": {"config": TWEAKING_POOL}})).await;
    create(&client, "Pool", json!({"metadata": {"name": "worker"}, "spec": {"config": [{"name": "config"}]}})).await;
    let network = json!({"interfaces": [{"name": "eth0", "type": "ethernet", "state": "up", "ipv4": {"enabled": true,
        "address": [{"ip": "192.0.2.10", "prefix-length": 24}]}}]});
    let host = json!({"metadata": {"name": "w0"}, "spec": {"pool": "worker", "macAddress": "52:54:00:00:00:01",
        "nics": [{"name": "eth0", "macAddress": "52:54:00:00:00:01"}], "network": network}});
    create(&client, "Host", host).await;
    let pointer = folder.join("w0.ign");
    let output = Command::new(env!("CARGO_BIN_EXE_kiln"))
        .args(["ignition", "pointer", "--host", "site/w0", "--endpoint", &format!("https://{}", hub.node), "--out"])
        .arg(&pointer)
        .arg("--data-dir")
        .arg(&hub.data)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let pointer: Value = serde_json::from_slice(&std::fs::read(pointer).unwrap()).unwrap();
    let machine = Machine::new("node-declared-machine", &pointer);
    // If the hub is still composing, Ignition waits for it.
    machine.boots(Some("w0"));
    let profile = machine.file("/etc/NetworkManager/system-connections/eth0.nmconnection");
    assert!(profile.contains("address0=192.0.2.10/24") || profile.contains("address1=192.0.2.10/24"), "{profile}");
    let dummy = machine.file("/etc/NetworkManager/system-connections/dummy0.nmconnection");
    assert!(dummy.contains("interface-name=dummy0"), "{dummy}");
    until("the timeline", async || {
        api(&client, "Host").get("w0").await.unwrap().data["status"]["stage"] == "IgnitionFetched"
    })
    .await;
}

/// curl as a machine: exit code and what it printed.
fn curl(authority: &Path, url: &str, arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new("curl");
    let output =
        command.args(["-sS", "--max-time", "20", "--cacert"]).arg(authority).args(arguments).arg(url).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_ones_own_is_shown_and_followed_when_it_changes() {
    let name = "a_certificate_of_ones_own_is_shown_and_followed_when_it_changes";
    if oracle::require(name, "curl", "curl").is_none() {
        return;
    }
    let folder = TempDir::new("node-certificate");
    let authorities = ["first", "second"].map(|name| {
        std::fs::create_dir_all(folder.join(name)).unwrap();
        Authority::open(&folder.join(name)).unwrap()
    });
    let write = |authority: &Authority, name: &str| {
        let issued = authority.issue_server(&["127.0.0.1".into(), name.to_owned()]).unwrap();
        folder.write("tls.crt", issued.certificate);
        folder.write("tls.key", issued.key);
    };
    write(&authorities[0], "a.example");
    let path = |name: &str| folder.join(name).display().to_string();
    let arguments = ["--tls-certificate", &path("tls.crt"), "--tls-key", &path("tls.key")];
    let hub = Hub::start(&folder.join("hub"), "127.0.0.1:0", &arguments);
    let url = format!("https://{}/healthz", hub.node);
    let (first, second) = (folder.join("first/ca.crt"), folder.join("second/ca.crt"));
    assert_eq!(curl(&first, &url, &[]), (true, "ok".into()));
    assert!(!curl(&second, &url, &[]).0);
    // Only machines are served there.
    assert_eq!(curl(&first, &url.replace("healthz", "api"), &[]).1, "404 page not found\n");
    // Half of a pair changes nothing; both do.
    let key = std::fs::read(folder.join("tls.key")).unwrap();
    write(&authorities[1], "b.example");
    let other = std::fs::read(folder.join("tls.key")).unwrap();
    folder.write("tls.key", key);
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(curl(&first, &url, &[]), (true, "ok".into()));
    folder.write("tls.key", other);
    let deadline = Instant::now() + Duration::from_secs(30);
    while !curl(&second, &url, &[]).0 {
        assert!(Instant::now() < deadline, "the new certificate is not shown");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    // What cannot be used is the input's fault.
    let output = Command::new(env!("CARGO_BIN_EXE_kiln"))
        .args(["serve", "--listen", "127.0.0.1:0", "--node-listen", "127.0.0.1:0", "--tls-certificate", "missing.crt"])
        .args(["--tls-key", "missing.key", "--data-dir"])
        .arg(folder.join("other"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("machines cannot be listened to") && said.contains("cannot read `missing.crt`"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hub_that_is_killed_under_load_loses_no_token_and_serves_at_once() {
    let name = "a_hub_that_is_killed_under_load_loses_no_token_and_serves_at_once";
    if oracle::require(name, "curl", "curl").is_none() {
        return;
    }
    const HOSTS: usize = 60;
    let folder = TempDir::new("node-killed");
    let data = folder.join("hub");
    let hub = Hub::start(&data, "127.0.0.1:0", &[]);
    let client = hub.with_pool().await;
    let mut tokens = Vec::new();
    for number in 0..HOSTS {
        let host = format!("w{number}");
        declare_host(&client, &host).await;
        tokens.push(issue(&client, &host, now(), LIFETIME_SECONDS).await);
    }
    let node = hub.node.clone();
    let authority = data.join("ca.crt");
    // Machines as stubborn as Ignition is: they try again whatever happens, each until it has its config.
    let machines: Vec<_> = tokens
        .iter()
        .enumerate()
        .map(|(number, token)| {
            let (authority, url, header) =
                (authority.clone(), format!("https://{node}/ignition"), format!("Authorization: {}", bearer(token)));
            tokio::task::spawn_blocking(move || {
                // A few at a time, so that the kill meets some of them.
                std::thread::sleep(Duration::from_millis(30 * number as u64));
                let arguments = [
                    "--fail",
                    "--retry",
                    "60",
                    "--retry-all-errors",
                    "--retry-delay",
                    "1",
                    "--retry-max-time",
                    "60",
                    "-H",
                    &header,
                ];
                curl(&authority, &url, &arguments)
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(700)).await;
    drop(hub);
    let hub = Hub::start(&data, &node, &[]);
    for (number, machine) in machines.into_iter().enumerate() {
        let (done, said) = machine.await.unwrap();
        let config = said.lines().find(|line| line.starts_with('{')).map(|line| line.to_owned());
        assert!(done && config.is_some(), "w{number}: {said}");
        assert!(said.contains(&format!("data:,w{number}\"")), "w{number} got its own: {said}");
    }
    let client = hub.client().await;
    for number in 0..HOSTS {
        let secret = api(&client, "Secret").get(&format!("boot-token-w{number}")).await.unwrap();
        let record = parse_record(&secret.data["data"]).unwrap();
        assert_eq!(record.used.unwrap().source.to_string(), "127.0.0.1", "w{number}");
        until("the story of each", async || {
            let host = api(&client, "Host").get(&format!("w{number}")).await.unwrap();
            host.data["status"]["provision"]["generation"] == 1
        })
        .await;
    }
}
