//! The servers that are measured: `kiln serve`, and a real kube-apiserver with its etcd when there is one.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use super::hub_client::{Connection, Endpoint, Request};

/// Which server.
#[derive(Clone)]
pub enum Kind {
    /// The program to start.
    Kiln(PathBuf),
    /// The folder with kube-apiserver and etcd.
    Kubernetes(PathBuf),
}

/// A running server; dropped, its processes are asked to end.
pub struct Server {
    pub endpoint: Endpoint,
    /// From the start of the process to the first answer that it is ready.
    pub ready_after: Duration,
    processes: Vec<Child>,
}

impl Kind {
    pub fn name(&self) -> &'static str {
        match self {
            Kind::Kiln(_) => "kiln serve",
            Kind::Kubernetes(_) => "kube-apiserver + etcd",
        }
    }

    /// Starts it on what is in `folder`.
    pub async fn start(&self, folder: &Path) -> Result<Server> {
        fs::create_dir_all(folder)?;
        match self {
            Kind::Kiln(program) => start_kiln(program, folder, &[]).await,
            Kind::Kubernetes(assets) => start_kubernetes(assets, folder).await,
        }
    }
}

impl Server {
    /// A server of one process that answers already.
    pub fn of(endpoint: Endpoint, process: Child) -> Server {
        Server { endpoint, ready_after: Duration::ZERO, processes: vec![process] }
    }

    /// Ends it as an administrator would, and waits.
    pub fn stop(mut self) -> Result<()> {
        end(&mut self.processes)
    }

    /// CPU time of all its processes.
    pub fn cpu_seconds(&self) -> Result<f64> {
        let mut ticks = 0.0;
        for process in &self.processes {
            let text = fs::read_to_string(format!("/proc/{}/stat", process.id()))?;
            // The name in brackets may have spaces.
            let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
            let number = |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
            ticks += number(11) + number(12);
        }
        Ok(ticks / 100.0)
    }

    /// Resident memory of all its processes in MB.
    pub fn resident(&self) -> Result<f64> {
        let mut kilobytes = 0.0;
        for process in &self.processes {
            let text = fs::read_to_string(format!("/proc/{}/status", process.id()))?;
            let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
            kilobytes += line.trim().trim_end_matches(" kB").parse::<f64>()?;
        }
        Ok(kilobytes / 1024.0)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = end(&mut self.processes);
    }
}

fn end(processes: &mut Vec<Child>) -> Result<()> {
    // The API server before its etcd.
    for mut process in processes.drain(..).rev() {
        kill(Pid::from_raw(i32::try_from(process.id())?), Signal::SIGTERM)?;
        process.wait()?;
    }
    Ok(())
}

/// Starts `kiln serve` with more arguments.
pub async fn start_kiln(program: &Path, folder: &Path, arguments: &[&str]) -> Result<Server> {
    let kubeconfig = folder.join("kubeconfig");
    let _ = fs::remove_file(&kubeconfig);
    let log = fs::File::create(folder.join("log"))?;
    let start = Instant::now();
    let mut command = Command::new(program);
    command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(folder).args(arguments);
    command.stdout(Stdio::null()).stderr(log);
    let mut processes = vec![command.spawn().with_context(|| format!("cannot start {}", program.display()))?];
    while !kubeconfig.exists() {
        if start.elapsed() > Duration::from_secs(60) || processes[0].try_wait()?.is_some() {
            end(&mut processes).ok();
            anyhow::bail!("kiln serve did not start: see {}", folder.join("log").display());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let text = fs::read_to_string(&kubeconfig)?;
    let field = |name: &str| {
        let value =
            text.lines().find_map(|line| line.trim().strip_prefix(name)).with_context(|| format!("no {name}"))?;
        anyhow::Ok(value.trim().to_owned())
    };
    let pem = |name: &str| anyhow::Ok(STANDARD.decode(field(name)?)?);
    let address: SocketAddr = field("server: https://")?.parse()?;
    let authority = CertificateDer::from_pem_slice(&pem("certificate-authority-data:")?)?;
    let certificate = CertificateDer::from_pem_slice(&pem("client-certificate-data:")?)?;
    let key = PrivateKeyDer::from_pem_slice(&pem("client-key-data:")?)?;
    let tls = trusting(authority)?.with_client_auth_cert(vec![certificate], key)?;
    let endpoint = Endpoint { address, tls: Arc::new(tls), token: String::new() };
    let ready_after = wait_ready(&endpoint, start).await?;
    Ok(Server { endpoint, ready_after, processes })
}

async fn start_kubernetes(assets: &Path, folder: &Path) -> Result<Server> {
    let [client, peer, secure] = [free_port()?, free_port()?, free_port()?];
    let etcd_url = format!("http://127.0.0.1:{client}");
    let peer_url = format!("http://127.0.0.1:{peer}");
    let text = |path: PathBuf| path.display().to_string();
    let key = folder.join("service-accounts.key");
    if !key.exists() {
        let status =
            Command::new("openssl").args(["genrsa", "-out"]).arg(&key).arg("2048").stderr(Stdio::null()).status()?;
        ensure!(status.success(), "openssl made no key");
    }
    let token = "benchmark-on-loopback";
    fs::write(folder.join("tokens.csv"), format!("{token},admin,admin,system:masters\n"))?;
    let spawn = |program: &str, arguments: &[String]| {
        let log = fs::File::create(folder.join(format!("{program}.log")))?;
        let mut command = Command::new(assets.join(program));
        command.args(arguments).stdout(Stdio::null()).stderr(log);
        command.spawn().with_context(|| format!("cannot start {program} of {}", assets.display()))
    };
    let start = Instant::now();
    let etcd = spawn(
        "etcd",
        &[
            format!("--data-dir={}", text(folder.join("etcd"))),
            format!("--listen-client-urls={etcd_url}"),
            format!("--advertise-client-urls={etcd_url}"),
            format!("--listen-peer-urls={peer_url}"),
            format!("--initial-advertise-peer-urls={peer_url}"),
            format!("--initial-cluster=default={peer_url}"),
        ],
    )?;
    let mut server = Server {
        endpoint: Endpoint {
            address: SocketAddr::from(([127, 0, 0, 1], secure)),
            tls: Arc::new(trusting_nobody()?),
            token: token.into(),
        },
        ready_after: Duration::ZERO,
        processes: vec![etcd],
    };
    server.processes.push(spawn(
        "kube-apiserver",
        &[
            format!("--etcd-servers={etcd_url}"),
            "--bind-address=127.0.0.1".into(),
            "--advertise-address=127.0.0.1".into(),
            format!("--secure-port={secure}"),
            format!("--cert-dir={}", text(folder.join("certs"))),
            format!("--token-auth-file={}", text(folder.join("tokens.csv"))),
            "--authorization-mode=RBAC".into(),
            "--service-account-issuer=https://kubernetes.default.svc".into(),
            format!("--service-account-signing-key-file={}", text(key.clone())),
            format!("--service-account-key-file={}", text(key)),
            "--service-cluster-ip-range=10.0.0.0/24".into(),
            "--disable-admission-plugins=ServiceAccount".into(),
        ],
    )?);
    // It makes its certificate on the first start; the authority that signed it comes second in the file.
    let certificates = folder.join("certs/apiserver.crt");
    while fs::read_to_string(&certificates).map_or(0, |text| text.matches("BEGIN").count()) < 2 {
        ensure!(start.elapsed() < Duration::from_secs(120), "kube-apiserver made no certificate");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let chain: Vec<CertificateDer<'static>> =
        CertificateDer::pem_file_iter(&certificates)?.collect::<Result<_, _>>()?;
    let authority = chain.into_iter().next_back().context("no certificate")?;
    server.endpoint.tls = Arc::new(trusting(authority)?.with_no_client_auth());
    server.ready_after = wait_ready(&server.endpoint, start).await?;
    Ok(server)
}

type Builder = rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert>;

/// A client that trusts one authority.
pub fn trusting(authority: CertificateDer<'static>) -> Result<Builder> {
    let mut roots = RootCertStore::empty();
    roots.add(authority)?;
    builder(roots)
}

fn trusting_nobody() -> Result<ClientConfig> {
    Ok(builder(RootCertStore::empty())?.with_no_client_auth())
}

fn builder(roots: RootCertStore) -> Result<Builder> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(builder.with_root_certificates(roots))
}

async fn wait_ready(endpoint: &Endpoint, start: Instant) -> Result<Duration> {
    loop {
        if let Ok(mut connection) = Connection::open(endpoint).await
            && let Ok((200, _)) = connection.call(Request::get("/readyz")).await
        {
            return Ok(start.elapsed());
        }
        ensure!(start.elapsed() < Duration::from_secs(180), "the server on {} is not ready", endpoint.address);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
