//! A real API server of the test's own: etcd, kube-apiserver and kube-controller-manager of `KUBEBUILDER_ASSETS`.
//!
//! The test set-up has none: building one takes longer than all tests together, so a test that needs it says so in one line
//! and ends, also where skipping is forbidden otherwise.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "each test file uses its part; tests fail loudly"
)]

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// What a cluster has besides the usual.
pub struct Setup {
    /// Who is recognised beside the administrator: lines of token, user, number and groups.
    pub tokens: String,
    /// More flags of the API server.
    pub server: Vec<String>,
    /// What kube-controller-manager does.
    pub controllers: &'static str,
    /// More flags of it.
    pub manager: Vec<String>,
}

impl Default for Setup {
    fn default() -> Setup {
        let controllers = "garbagecollector,namespace";
        Setup { tokens: String::new(), server: Vec::new(), controllers, manager: Vec::new() }
    }
}

/// A running cluster without nodes; dropped, it is killed.
pub struct Cluster {
    processes: Vec<Child>,
    port: u16,
    authority: String,
    /// An administrator's, called as the hub calls its own.
    pub kubeconfig: PathBuf,
    /// Of the API server, such as `v1.20.2`.
    pub version: String,
}

impl Cluster {
    /// Starts one in an empty folder and waits until it answers. None where there are no programs for it.
    pub fn start(test: &str, folder: &Path, kubectl: &Path) -> Option<Cluster> {
        Cluster::start_with(test, folder, kubectl, Setup::default())
    }

    pub fn start_with(test: &str, folder: &Path, kubectl: &Path, setup: Setup) -> Option<Cluster> {
        let programs = ["etcd", "kube-apiserver", "kube-controller-manager"];
        let assets = std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from);
        let Some(assets) = assets.filter(|assets| programs.iter().all(|program| assets.join(program).is_file())) else {
            let programs = programs.join(", ");
            println!("skipped: {test}: KUBEBUILDER_ASSETS names no folder with {programs} (docs/oracles.md)");
            return None;
        };
        fs::create_dir_all(folder).unwrap();
        let [client, peer, secure] = [free_port(), free_port(), free_port()];
        let (etcd, peers) = (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
        let path = |name: &str| folder.join(name).display().to_string();
        let token = token();
        let tokens = format!("{token},kiln-admin,1,system:masters\n{}", setup.tokens);
        fs::write(folder.join("tokens.csv"), tokens).unwrap();
        let made = Command::new("openssl").args(["genrsa", "-out", &path("accounts.key"), "2048"]).output().unwrap();
        assert!(made.status.success(), "openssl made no key");
        let version = Command::new(assets.join("kube-apiserver")).arg("--version").output().unwrap();
        let version = String::from_utf8(version.stdout).unwrap().trim().replace("Kubernetes ", "");
        let (authority, kubeconfig) = (String::new(), folder.join("kubeconfig"));
        let mut cluster = Cluster { processes: Vec::new(), port: secure, authority, kubeconfig, version };
        let etcd_flags = [
            format!("--data-dir={}", path("etcd")),
            format!("--listen-client-urls={etcd}"),
            format!("--advertise-client-urls={etcd}"),
            format!("--listen-peer-urls={peers}"),
            format!("--initial-advertise-peer-urls={peers}"),
            format!("--initial-cluster=default={peers}"),
        ];
        cluster.spawn(&assets, folder, "etcd", &etcd_flags);
        let mut server_flags = vec![
            format!("--etcd-servers={etcd}"),
            "--bind-address=127.0.0.1".into(),
            "--advertise-address=127.0.0.1".into(),
            format!("--secure-port={secure}"),
            format!("--cert-dir={}", path("certificates")),
            format!("--token-auth-file={}", path("tokens.csv")),
            "--authorization-mode=RBAC".into(),
            "--service-account-issuer=https://kubernetes.default.svc".into(),
            format!("--service-account-signing-key-file={}", path("accounts.key")),
            format!("--service-account-key-file={}", path("accounts.key")),
            "--service-cluster-ip-range=10.0.0.0/24".into(),
            "--disable-admission-plugins=ServiceAccount".into(),
        ];
        server_flags.extend(setup.server);
        cluster.spawn(&assets, folder, "kube-apiserver", &server_flags);
        // It makes its certificate on the first start; the authority that signed it comes second in the file.
        let certificates = folder.join("certificates/apiserver.crt");
        until(&format!("{test}: kube-apiserver made no certificate, see {}", folder.display()), || {
            fs::read_to_string(&certificates).is_ok_and(|text| text.matches("END CERTIFICATE").count() == 2)
        });
        let chain = fs::read_to_string(&certificates).unwrap();
        cluster.authority = chain[chain.rfind("-----BEGIN").unwrap()..].to_owned();
        fs::write(&cluster.kubeconfig, cluster.kubeconfig_of(&token)).unwrap();
        until(&format!("{test}: kube-apiserver is not ready, see {}", folder.display()), || {
            let asked = |what: &[&str]| {
                let mut command = Command::new(kubectl);
                command.arg("--kubeconfig").arg(&cluster.kubeconfig).args(what).env("HOME", folder);
                command.output().is_ok_and(|output| output.status.success())
            };
            asked(&["get", "--raw", "/readyz"]) && asked(&["get", "namespace", "default"])
        });
        let mut manager_flags = vec![
            format!("--kubeconfig={}", cluster.kubeconfig.display()),
            format!("--controllers={}", setup.controllers),
            "--leader-elect=false".into(),
            "--secure-port=0".into(),
        ];
        if cluster.minor() < 23 {
            // A second port that later versions do not have.
            manager_flags.push("--port=0".into());
        }
        manager_flags.extend(setup.manager);
        cluster.spawn(&assets, folder, "kube-controller-manager", &manager_flags);
        Some(cluster)
    }

    /// The kubeconfig of whoever has this token.
    pub fn kubeconfig_of(&self, token: &str) -> String {
        kubeconfig(self.port, &self.authority, token)
    }

    /// 20 of `v1.20.2`.
    pub fn minor(&self) -> u32 {
        self.version.split('.').nth(1).and_then(|minor| minor.parse().ok()).unwrap_or(0)
    }

    fn spawn(&mut self, assets: &Path, folder: &Path, program: &str, flags: &[String]) {
        let log = fs::File::create(folder.join(format!("{program}.log"))).unwrap();
        let mut command = Command::new(assets.join(program));
        command.args(flags).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let started = command.spawn().unwrap_or_else(|error| panic!("{program} of {}: {error}", assets.display()));
        self.processes.push(started);
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for process in self.processes.iter_mut().rev() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn until(what: &str, wished: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(180);
    while !wished() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn kubeconfig(port: u16, authority: &str, token: &str) -> String {
    let authority = STANDARD.encode(authority);
    format!(
        "apiVersion: v1
kind: Config
clusters:
- name: kiln
  cluster:
    server: https://127.0.0.1:{port}
    certificate-authority-data: {authority}
users:
- name: kiln-admin
  user:
    token: {token}
contexts:
- name: kiln
  context:
    cluster: kiln
    user: kiln-admin
    namespace: default
current-context: kiln
"
    )
}

/// Others on this machine can reach the port too.
fn token() -> String {
    let mut bytes = [0_u8; 16];
    std::io::Read::read_exact(&mut fs::File::open("/dev/urandom").unwrap(), &mut bytes).unwrap();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
