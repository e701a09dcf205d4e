//! `kiln serve`: the hub in one process, until it is asked to stop.

use std::path::PathBuf;

use anyhow::{Context, anyhow};
use clap::Args;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::Outcome;
use super::check::ReportFormat;
use super::output::{Failure, complain};
use super::report;
use crate::hub::definitions::Policy;
use crate::hub::memory::give_back_when_idle;
use crate::hub::node::listener::ListenError;
use crate::hub::pools::Endpoint;
use crate::hub::{self, HubError};
use config::{Layer, Settled};

pub mod config;
mod kubernetes;

/// What `kiln serve` takes. Every setting can also be a variable or in the file: the flag counts, then the variable.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Folder for state, keys and the administrator's kubeconfig; made with mode 0700 if it does not exist
    /// [KILN_DATA_DIR, dataDir]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Address and port of the API (HTTPS); port 0 takes a free one [KILN_LISTEN, listen; 127.0.0.1:6443]
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<String>,
    /// Address and port for machines only: /ignition, /config/POOL and health, nothing else [KILN_NODE_LISTEN, nodeListen]
    #[arg(long, value_name = "ADDR:PORT")]
    node_listen: Option<String>,
    /// Where machines reach the hub, for the user-data of pools; a load balancer in front of replicas, say
    /// [KILN_NODE_URL, nodeUrl; --node-listen or --listen with the first --tls-name]
    #[arg(long, value_name = "URL")]
    node_url: Option<String>,
    /// Authorities (PEM) machines trust there [KILN_NODE_CA, nodeCa; the hub's own]
    #[arg(long, value_name = "FILE")]
    node_ca: Option<PathBuf>,
    /// Certificate chain (PEM) that machines are shown on --node-listen; read anew when it changes. Without it the hub's own
    /// authority signs one [KILN_TLS_CERTIFICATE, tlsCertificate]
    #[arg(long, value_name = "FILE")]
    tls_certificate: Option<PathBuf>,
    /// Key of that certificate (PEM) [KILN_TLS_KEY, tlsKey]
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// Name or address clients use, besides the one listened on; may be repeated [KILN_TLS_NAMES, tlsNames]
    #[arg(long, value_name = "NAME")]
    tls_name: Vec<String>,
    /// YAML file with settings [KILN_CONFIG]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Key that seals Secrets on the disk: 32 bytes in base64, mode 0600; made if nothing is sealed yet
    /// [KILN_ENCRYPTION_KEY_FILE, encryptionKeyFile; DIR/encryption.key]
    #[arg(long, value_name = "FILE", conflicts_with = "encryption_passphrase_file")]
    encryption_key_file: Option<PathBuf>,
    /// Passphrase instead of a key, at least 12 bytes [KILN_ENCRYPTION_PASSPHRASE_FILE, encryptionPassphraseFile]
    #[arg(long, value_name = "FILE")]
    encryption_passphrase_file: Option<PathBuf>,
    /// The key until now: Secrets are sealed anew with the new one [KILN_PREVIOUS_KEY_FILE, previousKeyFile]
    #[arg(long, value_name = "FILE", conflicts_with = "previous_passphrase_file")]
    previous_key_file: Option<PathBuf>,
    /// The passphrase until now [KILN_PREVIOUS_PASSPHRASE_FILE, previousPassphraseFile]
    #[arg(long, value_name = "FILE")]
    previous_passphrase_file: Option<PathBuf>,
    /// MiB of DIR/audit.log, after which a new file is begun [KILN_AUDIT_MEGABYTES, auditMegabytes; 64]
    #[arg(long, value_name = "MIB")]
    audit_megabytes: Option<u64>,
    /// Old files of the audit log that are kept [KILN_AUDIT_KEEP, auditKeep; 5]
    #[arg(long, value_name = "NUMBER")]
    audit_keep: Option<usize>,
    /// How long requests may take after the hub was asked to stop [KILN_SHUTDOWN_SECONDS, shutdownSeconds; 5]
    #[arg(long, value_name = "SECONDS")]
    shutdown_seconds: Option<u64>,
    /// What is logged: error, warn, info, debug or trace [KILN_LOG, log; info]
    #[arg(long, value_name = "LEVEL")]
    log: Option<String>,
    /// Run only the controllers, over a real API server with Kiln's definitions; of several replicas one leads
    #[arg(long, conflicts_with_all = ["data_dir", "listen", "tls_name"])]
    kubernetes: bool,
    /// With --kubernetes: where that server is [default: the pod's service account, then KUBECONFIG]
    #[arg(long, value_name = "FILE", requires = "kubernetes")]
    kubeconfig: Option<PathBuf>,
    /// With --kubernetes: address and port for /metrics, /healthz and /readyz, without TLS
    /// [KILN_METRICS_LISTEN, metricsListen; none]
    #[arg(long, value_name = "ADDR:PORT", requires = "kubernetes")]
    metrics_listen: Option<String>,
    /// What is done about definitions (CRDs) of Kiln's kinds at start; without it, Kiln's own are kept up to date, and
    /// with --kubernetes nothing is done [KILN_INSTALL_CRDS, installCrds]
    #[arg(long, value_enum, value_name = "WHICH")]
    install_crds: Option<Policy>,
}

/// Serves until SIGTERM or SIGINT.
pub fn run(args: &ServeArgs) -> Result<Outcome, Failure> {
    let Some(layer) = layers(args)? else { return Ok(Outcome::Refused) };
    if args.kubernetes {
        let url = layer.node_url.clone().map(config::parse_node_url).transpose();
        let url = url.map_err(|why| Failure::refused(anyhow!(why)))?;
        let endpoint = url.map(|url| Endpoint::read(url, layer.node_ca.as_deref())).transpose();
        let endpoint = endpoint.context("cannot read the authorities of --node-ca").map_err(Failure::refused)?;
        return kubernetes::run(args.kubeconfig.as_deref(), layer, endpoint);
    }
    let Settled { hub: config, log } = layer.settle().map_err(|why| Failure::refused(anyhow!(why)))?;
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_target(false).with_max_level(log).init();
    raise_file_limit();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().on_thread_park(give_back_when_idle).enable_all().build()?;
    let ended = runtime.block_on(hub::run(&config, |ready| {
        complain(&format!(
            "kiln {} serves https://{}\n  kubectl --kubeconfig {} get namespaces\n",
            env!("CARGO_PKG_VERSION"),
            ready.address,
            ready.kubeconfig.display()
        ));
        if let Some(node) = ready.node {
            complain(&format!("  machines fetch https://{node}/ignition\n"));
        }
    }));
    match ended {
        Ok(()) => {}
        // A wrong or missing key is for whoever started it to repair; nothing was changed.
        Err(error @ HubError::Store(kiln_apiserver::store::OpenError::Key(_))) => return Err(Failure::refused(error)),
        // So is a certificate that cannot be used.
        Err(error @ HubError::Node(ListenError::File { .. } | ListenError::Tls(_) | ListenError::NoCertificate)) => {
            return Err(Failure::refused(error));
        }
        Err(error) => return Err(error.into()),
    }
    complain("kiln stopped; everything acknowledged is on the disk\n");
    Ok(Outcome::Done)
}

/// What all places say together; none when the file has mistakes, which have been printed.
fn layers(args: &ServeArgs) -> Result<Option<Layer>, Failure> {
    let flags = Layer {
        data_dir: args.data_dir.clone(),
        listen: args.listen.clone(),
        node_listen: args.node_listen.clone(),
        node_url: args.node_url.clone(),
        node_ca: args.node_ca.clone(),
        tls_certificate: args.tls_certificate.clone(),
        tls_key: args.tls_key.clone(),
        tls_names: Some(args.tls_name.clone()).filter(|names| !names.is_empty()),
        encryption_key_file: args.encryption_key_file.clone(),
        encryption_passphrase_file: args.encryption_passphrase_file.clone(),
        previous_key_file: args.previous_key_file.clone(),
        previous_passphrase_file: args.previous_passphrase_file.clone(),
        audit_megabytes: args.audit_megabytes,
        audit_keep: args.audit_keep,
        shutdown_seconds: args.shutdown_seconds,
        log: args.log.clone(),
        metrics_listen: args.metrics_listen.clone(),
        install_crds: args.install_crds.map(Policy::name),
    };
    let variable = |name: &str| std::env::var(name).ok();
    let environment = Layer::parse_environment(variable).map_err(|why| Failure::refused(anyhow!(why)))?;
    let path = args.config.clone().or_else(|| std::env::var_os("KILN_CONFIG").map(PathBuf::from));
    let file = match path {
        None => Layer::default(),
        Some(path) => {
            let text = std::fs::read_to_string(&path)
                .with_context(|| format!("cannot read the configuration file `{}`", path.display()))
                .map_err(Failure::refused)?;
            let (layer, sources, findings) = Layer::parse_file(&path.display().to_string(), &text);
            if !findings.is_empty() {
                report::print(&sources, &findings, ReportFormat::Human)?;
                complain("kiln does not start: the configuration file has mistakes\n");
                return Ok(None);
            }
            layer
        }
    };
    Ok(Some(flags.over(environment).over(file)))
}

/// As many connections as the system allows: the usual soft limit of 1,024 files is less than a fleet of hosts.
fn raise_file_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(soft, hard)| if soft < hard { setrlimit(Resource::RLIMIT_NOFILE, hard, hard) } else { Ok(()) });
    if let Err(error) = raised {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
}
