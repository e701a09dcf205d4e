//! `kiln serve --kubernetes` on a real API server, with exactly the rights `deploy/` grants.
//!
//! It is started from `KUBEBUILDER_ASSETS`. Servers before 1.25 know no rules in definitions; those are taken out first.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test fails loudly and says what it skips")]

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use kiln_testimage::oracle;
use kiln_testimage::temp_dir::TempDir;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use cluster::Cluster;

#[path = "support/cluster.rs"]
mod cluster;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A real cluster and what is asked of it.
struct Site {
    folder: TempDir,
    kubectl: PathBuf,
    cluster: Cluster,
}

impl Site {
    fn start(test: &str) -> Option<Site> {
        let assets = std::env::var_os("KUBEBUILDER_ASSETS").map(|assets| PathBuf::from(assets).join("kubectl"));
        let kubectl = assets.filter(|path| path.is_file()).or_else(|| oracle::kubectl(test))?;
        if !oracle::require_all(test, &[("openssl", "openssl")]) {
            return None;
        }
        let folder = TempDir::new("real-cluster");
        let cluster = Cluster::start(test, &folder.join("cluster"), &kubectl)?;
        Some(Site { folder, kubectl, cluster })
    }

    fn try_kubectl(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = Command::new(&self.kubectl);
        command.arg("--kubeconfig").arg(&self.cluster.kubeconfig).args(arguments).current_dir(root());
        let output = command.env("HOME", self.folder.path()).stdin(Stdio::null()).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    fn kubectl(&self, arguments: &[&str]) -> String {
        self.try_kubectl(arguments).unwrap_or_else(|why| panic!("kubectl {arguments:?}: {why}"))
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.kubectl(&[arguments, &["-o", "json"]].concat())).unwrap()
    }

    /// The definitions as `kiln crds` prints them, without what the server is too old for.
    fn apply_definitions(&self) {
        let printed = Command::new(env!("CARGO_BIN_EXE_kiln")).args(["crds", "--all", "-o", "json"]).output().unwrap();
        let mut list: Value = serde_json::from_slice(&printed.stdout).unwrap();
        if self.cluster.minor() < 25 {
            take_out_rules(&mut list);
        }
        let list = self.folder.write("crds.json", list.to_string());
        self.kubectl(&["apply", "--server-side", "-f", list.to_str().unwrap()]);
        self.kubectl(&["wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"]);
    }

    /// A folder of hosts. A server this old that was built with a newer Go than its own takes an empty text for null.
    fn example(&self) -> String {
        let (from, to) = (root().join("examples/remote-worker"), self.folder.join("example"));
        fs::create_dir_all(&to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let path = entry.unwrap().path();
            let text = fs::read_to_string(&path).unwrap();
            let text = if self.cluster.minor() < 25 { text.replace(": \"\"", ": \"yes\"") } else { text };
            fs::write(to.join(path.file_name().unwrap()), text).unwrap();
        }
        to.display().to_string()
    }

    /// Credentials of the service account in `deploy/`.
    fn service_account(&self) -> PathBuf {
        let token = self.kubectl(&["create", "token", "kiln", "--namespace=kiln-system"]);
        let text = fs::read_to_string(&self.cluster.kubeconfig).unwrap();
        let old = text.lines().find(|line| line.trim_start().starts_with("token: ")).unwrap();
        let text = text.replace(old, &format!("    token: {}", token.trim()));
        self.folder.write("service-account", text.replace("namespace: default", "namespace: kiln-system"))
    }
}

fn take_out_rules(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|key, _| key != "x-kubernetes-validations" && key != "selectableFields");
            map.values_mut().for_each(take_out_rules);
        }
        Value::Array(items) => items.iter_mut().for_each(take_out_rules),
        _ => {}
    }
}

/// `kiln serve --kubernetes`; dropped, it is killed.
struct Replica {
    process: Child,
    port: u16,
    log: PathBuf,
}

impl Replica {
    fn start(site: &Site, name: &str, kubeconfig: &Path) -> Replica {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let log = site.folder.join(name);
        let process = Command::new(env!("CARGO_BIN_EXE_kiln"))
            .args(["serve", "--kubernetes", "--kubeconfig"])
            .arg(kubeconfig)
            // One setting from each place.
            .args(["--metrics-listen", &format!("127.0.0.1:{port}")])
            .env("KILN_LOG", "info")
            .env("KILN_CONFIG", site.folder.write("kiln.yaml", "installCrds: never\n"))
            .stderr(fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Replica { process, port, log }
    }

    fn metrics(&self) -> String {
        let mut answer = String::new();
        if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) {
            stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
            let _ = stream.read_to_string(&mut answer);
        }
        answer
    }

    fn leads(&self) -> bool {
        self.metrics().contains("\nkiln_leading 1\n")
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn until(what: &str, mut wished: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(90);
    while !wished() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn two_replicas_serve_a_real_cluster_with_the_rights_they_are_given() {
    let Some(site) = Site::start("two_replicas_serve_a_real_cluster_with_the_rights_they_are_given") else { return };
    site.apply_definitions();
    // Whether the server can store the Deployment's newest fields does not matter here: nothing runs it.
    site.kubectl(&["apply", "--validate=false", "-k", "deploy/kiln"]);
    let binding = site.json(&["get", "clusterrolebinding", "kiln"]);
    site.kubectl(&["delete", "clusterrolebinding", "kiln"]);
    let account = site.service_account();

    // Rights that are missing are told in the log and in the figures, and nothing else stops.
    let first = Replica::start(&site, "first", &account);
    until("the first leads", || first.leads());
    until("what is refused is told", || {
        let metrics = first.metrics();
        metrics.contains("kiln_watch_refused{resource=\"hosts.kiln.dev\"} 1")
            && metrics.contains("kiln_watch_refused{resource=\"secrets\"} 1")
    });
    let line = "the API server refuses to show hosts.kiln.dev: its objects count as absent until get, list and watch are granted";
    assert_eq!(first.log().matches(line).count(), 1, "{}", first.log());
    let restored = json!({"apiVersion": binding["apiVersion"], "kind": binding["kind"], "metadata": {"name": "kiln"},
        "roleRef": binding["roleRef"], "subjects": binding["subjects"]});
    let restored = site.folder.write("binding.json", restored.to_string());
    site.kubectl(&["create", "-f", restored.to_str().unwrap()]);
    until("everything is shown", || !first.metrics().contains("kiln_watch_refused{"));

    let second = Replica::start(&site, "second", &account);
    until("the second answers", || second.metrics().contains("\nkiln_leading 0\n"));
    let lease = site.json(&["get", "lease", "kiln-controllers", "--namespace=kiln-system"]);
    let holder = lease["spec"]["holderIdentity"].as_str().unwrap().to_owned();
    assert!(holder.ends_with(&format!("-{}", first.process.id())), "{holder}");

    // The rights suffice for what the controllers write.
    let example = site.example();
    until("the example is applied", || site.try_kubectl(&["apply", "-f", &example]).is_ok());
    let hosts = || site.json(&["get", "hosts.kiln.dev", "--all-namespaces"])["items"].as_array().unwrap().clone();
    let told = |host: &Value| {
        let valid = host["status"]["conditions"].as_array().into_iter().flatten().any(|c| c["type"] == "Valid");
        valid && host["status"]["timeline"][0]["stage"] == "Declared"
    };
    let declared = site.json(&["get", "baremetalhosts", "--all-namespaces"])["items"].as_array().unwrap().len();
    let deadline = Instant::now() + Duration::from_secs(120);
    while !(hosts().len() == declared && hosts().iter().all(told)) {
        assert!(Instant::now() < deadline, "{declared} hosts are declared: {:?}\n{}", hosts(), first.log());
        std::thread::sleep(Duration::from_millis(500));
    }
    let log = first.log();
    let denied = log.lines().filter(|line| line.contains("orbidden") && line.contains("did not take"));
    assert_eq!(denied.collect::<Vec<_>>(), [] as [&str; 0]);

    // Whoever ends well lets go, and the other goes on.
    kill(Pid::from_raw(i32::try_from(first.process.id()).unwrap()), Signal::SIGTERM).unwrap();
    let stopped = Instant::now();
    until("the second leads", || second.leads());
    assert!(stopped.elapsed() < Duration::from_secs(12), "it took {:?}", stopped.elapsed());
    let host = hosts().remove(0);
    let name = host["metadata"]["name"].as_str().unwrap().to_owned();
    let namespace = format!("--namespace={}", host["metadata"]["namespace"].as_str().unwrap());
    site.kubectl(&["delete", "hosts.kiln.dev", &name, &namespace]);
    until("the host is made again", || site.try_kubectl(&["get", "hosts.kiln.dev", &name, &namespace]).is_ok());
    println!("{} hosts on {}", declared, site.cluster.version);
}
