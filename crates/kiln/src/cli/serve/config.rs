//! What `kiln serve` is told, from three places: flags, then variables of the environment, then the file.
//!
//! Each place is a [`Layer`]; the first that says something about a setting is right. Pure but for reading the file,
//! which the caller does. A name the file misspells is a mistake, not a setting that silently does nothing.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use kiln_apiserver::audit::AuditLimits;
use kiln_apiserver::secrecy::Unlock;
use kiln_core::diagnostic::Diagnostic;
use kiln_core::document::read;
use kiln_core::document::yaml::parse_yaml;
use kiln_core::source::SourceMap;
use serde::Deserialize;

use crate::hub::HubConfig;
use crate::hub::definitions::Policy;
use crate::hub::node::listener::{CertificateFiles, NodeListen};

/// What one place says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Layer {
    /// State, keys and kubeconfig.
    pub data_dir: Option<PathBuf>,
    /// Address and port.
    pub listen: Option<String>,
    /// Address and port for machines only.
    pub node_listen: Option<String>,
    /// Where machines reach the hub.
    pub node_url: Option<String>,
    /// Authorities that sign what machines are shown there.
    pub node_ca: Option<PathBuf>,
    /// Certificate machines are shown.
    pub tls_certificate: Option<PathBuf>,
    /// Its key.
    pub tls_key: Option<PathBuf>,
    /// More names for the certificate.
    pub tls_names: Option<Vec<String>>,
    /// Key of sealed objects.
    pub encryption_key_file: Option<PathBuf>,
    /// Or a passphrase.
    pub encryption_passphrase_file: Option<PathBuf>,
    /// The key before.
    pub previous_key_file: Option<PathBuf>,
    /// Or the passphrase before.
    pub previous_passphrase_file: Option<PathBuf>,
    /// MiB of one file of the audit log.
    pub audit_megabytes: Option<u64>,
    /// Old files of it.
    pub audit_keep: Option<usize>,
    /// For requests that have begun.
    pub shutdown_seconds: Option<u64>,
    /// `error`, `warn`, `info`, `debug` or `trace`.
    pub log: Option<String>,
    /// Where the figures are with `--kubernetes`.
    pub metrics_listen: Option<String>,
    /// `never` or `missing`.
    pub install_crds: Option<String>,
}

/// Everything settled.
#[derive(Debug, Clone)]
pub struct Settled {
    /// For the hub.
    pub hub: HubConfig,
    /// What is logged.
    pub log: tracing::Level,
}

/// The same for `--kubernetes`.
#[derive(Debug, Clone)]
pub struct SettledKubernetes {
    /// What is logged.
    pub log: tracing::Level,
    /// Where the figures are.
    pub metrics_listen: Option<SocketAddr>,
    /// What may be done to definitions.
    pub install_definitions: Policy,
    /// Where machines are listened to.
    pub node: Option<NodeListen>,
    /// Settings that were made and mean nothing here.
    pub does_nothing: Vec<&'static str>,
}

/// Where the API listens when nobody says.
const LISTEN: &str = "127.0.0.1:6443";
/// How long requests may take at the end when nobody says.
const SHUTDOWN: u64 = 5;

impl Layer {
    /// Reads the file. All findings are mistakes.
    pub fn parse_file(name: &str, text: &str) -> (Layer, SourceMap, Vec<Diagnostic>) {
        let mut sources = SourceMap::default();
        let file = sources.add(name, text);
        let (documents, mut findings) = parse_yaml(file, sources.file(file));
        let layer = documents.first().and_then(|document| read(document, &mut findings)).unwrap_or_default();
        (layer, sources, findings)
    }

    /// Reads the variables.
    pub fn parse_environment(variable: impl Fn(&str) -> Option<String>) -> Result<Layer, String> {
        let text = |name: &str| variable(name).filter(|value| !value.is_empty());
        let path = |name: &str| text(name).map(PathBuf::from);
        let number = |name: &str| {
            let parse = |value: String| {
                value.parse::<u64>().map_err(|_| format!("the variable {name} must be a number, not {value:?}"))
            };
            text(name).map(parse).transpose()
        };
        Ok(Layer {
            data_dir: path("KILN_DATA_DIR"),
            listen: text("KILN_LISTEN"),
            node_listen: text("KILN_NODE_LISTEN"),
            node_url: text("KILN_NODE_URL"),
            node_ca: path("KILN_NODE_CA"),
            tls_certificate: path("KILN_TLS_CERTIFICATE"),
            tls_key: path("KILN_TLS_KEY"),
            tls_names: text("KILN_TLS_NAMES").map(|names| {
                names.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect()
            }),
            encryption_key_file: path("KILN_ENCRYPTION_KEY_FILE"),
            encryption_passphrase_file: path("KILN_ENCRYPTION_PASSPHRASE_FILE"),
            previous_key_file: path("KILN_PREVIOUS_KEY_FILE"),
            previous_passphrase_file: path("KILN_PREVIOUS_PASSPHRASE_FILE"),
            audit_megabytes: number("KILN_AUDIT_MEGABYTES")?,
            audit_keep: number("KILN_AUDIT_KEEP")?.and_then(|number| usize::try_from(number).ok()),
            shutdown_seconds: number("KILN_SHUTDOWN_SECONDS")?,
            log: text("KILN_LOG"),
            metrics_listen: text("KILN_METRICS_LISTEN"),
            install_crds: text("KILN_INSTALL_CRDS"),
        })
    }

    /// This layer, and below it another.
    #[must_use]
    pub fn over(self, below: Layer) -> Layer {
        // A key named above replaces a passphrase named below, and the other way round.
        let own_key = self.encryption_key_file.is_some() || self.encryption_passphrase_file.is_some();
        let own_previous = self.previous_key_file.is_some() || self.previous_passphrase_file.is_some();
        let unless = |own: bool, below: Option<PathBuf>| below.filter(|_| !own);
        Layer {
            data_dir: self.data_dir.or(below.data_dir),
            listen: self.listen.or(below.listen),
            node_listen: self.node_listen.or(below.node_listen),
            node_url: self.node_url.or(below.node_url),
            node_ca: self.node_ca.or(below.node_ca),
            tls_certificate: self.tls_certificate.or(below.tls_certificate),
            tls_key: self.tls_key.or(below.tls_key),
            tls_names: self.tls_names.or(below.tls_names),
            encryption_key_file: self.encryption_key_file.or(unless(own_key, below.encryption_key_file)),
            encryption_passphrase_file: self
                .encryption_passphrase_file
                .or(unless(own_key, below.encryption_passphrase_file)),
            previous_key_file: self.previous_key_file.or(unless(own_previous, below.previous_key_file)),
            previous_passphrase_file: self
                .previous_passphrase_file
                .or(unless(own_previous, below.previous_passphrase_file)),
            audit_megabytes: self.audit_megabytes.or(below.audit_megabytes),
            audit_keep: self.audit_keep.or(below.audit_keep),
            shutdown_seconds: self.shutdown_seconds.or(below.shutdown_seconds),
            log: self.log.or(below.log),
            metrics_listen: self.metrics_listen.or(below.metrics_listen),
            install_crds: self.install_crds.or(below.install_crds),
        }
    }

    /// What `--kubernetes` needs of it.
    pub fn settle_kubernetes(self) -> Result<SettledKubernetes, String> {
        let does_nothing = [
            ("dataDir", self.data_dir.is_some()),
            ("listen", self.listen.is_some()),
            ("tlsNames", self.tls_names.is_some()),
            ("encryptionKeyFile", self.encryption_key_file.is_some()),
            ("encryptionPassphraseFile", self.encryption_passphrase_file.is_some()),
            ("previousKeyFile", self.previous_key_file.is_some()),
            ("previousPassphraseFile", self.previous_passphrase_file.is_some()),
            ("auditMegabytes", self.audit_megabytes.is_some()),
            ("auditKeep", self.audit_keep.is_some()),
            ("shutdownSeconds", self.shutdown_seconds.is_some()),
        ];
        Ok(SettledKubernetes {
            log: parse_log(self.log)?,
            metrics_listen: self
                .metrics_listen
                .as_deref()
                .map(|text| parse_address("metricsListen", text))
                .transpose()?,
            install_definitions: self.install_crds.as_deref().map_or(Ok(Policy::Never), Policy::parse)?,
            node: parse_node_listen(self.node_listen, self.tls_certificate, self.tls_key)?,
            does_nothing: does_nothing.into_iter().filter(|(_, set)| *set).map(|(name, _)| name).collect(),
        })
    }

    /// Fills in what nobody said; refuses what makes no sense.
    pub fn settle(self) -> Result<Settled, String> {
        let data_dir = self.data_dir.ok_or(
            "no data folder: give --data-dir DIR, set KILN_DATA_DIR, or write dataDir into the configuration file",
        )?;
        let listen = self.listen.unwrap_or_else(|| LISTEN.into());
        let listen = parse_address("listen", &listen)?;
        let node = parse_node_listen(self.node_listen, self.tls_certificate, self.tls_key)?;
        let node_url = self.node_url.map(parse_node_url).transpose()?;
        let unlock = choose("encryption", self.encryption_key_file, self.encryption_passphrase_file, true)?;
        let previous = choose("previous", self.previous_key_file, self.previous_passphrase_file, false)?;
        let audit = AuditLimits::default();
        let megabytes = self.audit_megabytes.unwrap_or(audit.bytes >> 20);
        if !(1..=1 << 20).contains(&megabytes) {
            return Err(format!("auditMegabytes: {megabytes} is outside 1-1048576"));
        }
        let keep = self.audit_keep.unwrap_or(audit.keep);
        if keep > 1000 {
            return Err(format!("auditKeep: {keep} is more than 1000"));
        }
        let seconds = self.shutdown_seconds.unwrap_or(SHUTDOWN);
        if seconds > 3600 {
            return Err(format!("shutdownSeconds: {seconds} is more than 3600"));
        }
        let log = parse_log(self.log)?;
        Ok(Settled {
            hub: HubConfig {
                data_dir,
                listen,
                node,
                node_url,
                node_ca: self.node_ca,
                tls_names: self.tls_names.unwrap_or_default(),
                unlock,
                previous,
                audit: AuditLimits { bytes: megabytes << 20, keep },
                shutdown: Duration::from_secs(seconds),
                install_definitions: self.install_crds.as_deref().map_or(Ok(Policy::Own), Policy::parse)?,
            },
            log,
        })
    }
}

/// Where machines reach the hub: an https URL without a path.
pub fn parse_node_url(url: String) -> Result<String, String> {
    let trimmed = url.trim_end_matches('/');
    let host = trimmed.strip_prefix("https://").filter(|host| !host.is_empty() && !host.contains(['/', '?', '#', '@']));
    match host {
        Some(_) => Ok(trimmed.to_owned()),
        None => {
            Err(format!("nodeUrl: {url:?} is not an https URL without a path, such as https://hub.example.org:8443"))
        }
    }
}

/// Where machines are listened to. A certificate without that, or half of one, is a mistake.
fn parse_node_listen(
    listen: Option<String>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
) -> Result<Option<NodeListen>, String> {
    let files = match (certificate, key) {
        (None, None) => None,
        (Some(certificate), Some(key)) => Some(CertificateFiles { certificate, key }),
        (Some(_), None) => return Err("tlsCertificate: its key is missing; name it with --tls-key FILE".into()),
        (None, Some(_)) => return Err("tlsKey: its certificate is missing; name it with --tls-certificate FILE".into()),
    };
    let Some(listen) = listen else {
        let unused = "tlsCertificate: it is for machines; name where they are listened to with --node-listen ADDR:PORT";
        return if files.is_none() { Ok(None) } else { Err(unused.into()) };
    };
    let address = listen
        .parse()
        .map_err(|_| format!("nodeListen: {listen:?} is not an address and a port, such as 0.0.0.0:8443"))?;
    Ok(Some(NodeListen { address, files }))
}

fn parse_address(name: &str, text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| format!("{name}: {text:?} is not an address and a port, such as 127.0.0.1:6443"))
}

fn parse_log(log: Option<String>) -> Result<tracing::Level, String> {
    let log = log.unwrap_or_else(|| "info".into());
    log.parse().map_err(|_| format!("log: {log:?} is not one of error, warn, info, debug, trace"))
}

fn choose(what: &str, key: Option<PathBuf>, passphrase: Option<PathBuf>, make: bool) -> Result<Option<Unlock>, String> {
    match (key, passphrase) {
        (None, None) => Ok(None),
        (Some(path), None) => Ok(Some(Unlock::KeyFile { path, make })),
        (None, Some(path)) => Ok(Some(Unlock::PassphraseFile { path })),
        (Some(_), Some(_)) => Err(format!("{what}: there is a key file and a passphrase file; name one of them")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(data_dir: &str, listen: Option<&str>) -> Layer {
        Layer { data_dir: Some(data_dir.into()), listen: listen.map(str::to_owned), ..Layer::default() }
    }

    #[test]
    fn flags_win_over_the_environment_and_that_over_the_file() {
        let (file, _, findings) = Layer::parse_file(
            "kiln.yaml",
            "dataDir: /file\nlisten: 0.0.0.0:1\ntlsNames: [a, b]\nauditKeep: 2\nencryptionPassphraseFile: /p\nlog: debug\n",
        );
        assert_eq!(findings, []);
        let variables = |name: &str| match name {
            "KILN_DATA_DIR" => Some("/variable".to_owned()),
            "KILN_LISTEN" => Some("127.0.0.1:2".to_owned()),
            "KILN_ENCRYPTION_KEY_FILE" => Some("/k".to_owned()),
            "KILN_AUDIT_KEEP" => Some(String::new()),
            _ => None,
        };
        let environment = Layer::parse_environment(variables).unwrap();
        let settled = layer("/flag", None).over(environment).over(file).settle().unwrap();
        assert_eq!(settled.hub.data_dir, PathBuf::from("/flag"));
        assert_eq!(settled.hub.listen.to_string(), "127.0.0.1:2");
        assert_eq!(settled.hub.tls_names, ["a", "b"]);
        assert_eq!(settled.hub.audit, AuditLimits { bytes: 64 << 20, keep: 2 });
        assert_eq!(settled.hub.unlock, Some(Unlock::KeyFile { path: "/k".into(), make: true }));
        assert_eq!((settled.hub.shutdown, settled.log), (Duration::from_secs(5), tracing::Level::DEBUG));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_name() {
        let both = Layer {
            encryption_key_file: Some("/k".into()),
            encryption_passphrase_file: Some("/p".into()),
            ..layer("/d", None)
        };
        for (layer, expected) in [
            (
                Layer::default(),
                "no data folder: give --data-dir DIR, set KILN_DATA_DIR, or write dataDir into the configuration file",
            ),
            (layer("/d", Some("6443")), "listen: \"6443\" is not an address and a port, such as 127.0.0.1:6443"),
            (
                Layer { node_listen: Some("8443".into()), ..layer("/d", None) },
                "nodeListen: \"8443\" is not an address and a port, such as 0.0.0.0:8443",
            ),
            (
                Layer { node_url: Some("http://hub.lab".into()), ..layer("/d", None) },
                "nodeUrl: \"http://hub.lab\" is not an https URL without a path, such as https://hub.example.org:8443",
            ),
            (
                Layer { tls_certificate: Some("/c".into()), ..layer("/d", None) },
                "tlsCertificate: its key is missing; name it with --tls-key FILE",
            ),
            (
                Layer { tls_certificate: Some("/c".into()), tls_key: Some("/k".into()), ..layer("/d", None) },
                "tlsCertificate: it is for machines; name where they are listened to with --node-listen ADDR:PORT",
            ),
            (both, "encryption: there is a key file and a passphrase file; name one of them"),
            (Layer { audit_megabytes: Some(0), ..layer("/d", None) }, "auditMegabytes: 0 is outside 1-1048576"),
            (
                Layer { log: Some("loud".into()), ..layer("/d", None) },
                "log: \"loud\" is not one of error, warn, info, debug, trace",
            ),
        ] {
            assert_eq!(layer.settle().unwrap_err(), expected);
        }
        let number = Layer::parse_environment(|name| (name == "KILN_SHUTDOWN_SECONDS").then(|| "soon".into()));
        assert_eq!(number.unwrap_err(), "the variable KILN_SHUTDOWN_SECONDS must be a number, not \"soon\"");
    }

    #[test]
    fn with_kubernetes_what_means_nothing_is_told() {
        let (file, _, findings) = Layer::parse_file(
            "kiln.yaml",
            "dataDir: /file\nmetricsListen: 127.0.0.1:9\ninstallCrds: missing\nlog: warn\n",
        );
        assert_eq!(findings, []);
        let settled = file.settle_kubernetes().unwrap();
        assert_eq!((settled.log, settled.install_definitions), (tracing::Level::WARN, Policy::Missing));
        assert_eq!(settled.metrics_listen.unwrap().port(), 9);
        assert_eq!(settled.does_nothing, ["dataDir"]);
        let settled = Layer::default().settle_kubernetes().unwrap();
        assert_eq!((settled.install_definitions, settled.metrics_listen), (Policy::Never, None));
        let wrong = Layer { install_crds: Some("always".into()), ..Layer::default() };
        assert_eq!(
            wrong.clone().settle_kubernetes().unwrap_err(),
            "installCrds: \"always\" is neither never nor missing"
        );
        assert_eq!(
            wrong.over(layer("/d", None)).settle().unwrap_err(),
            "installCrds: \"always\" is neither never nor missing"
        );
    }

    #[test]
    fn a_misspelt_name_in_the_file_is_a_mistake_at_its_place() {
        let (_, sources, findings) =
            Layer::parse_file("kiln.yaml", "dataDir: /d\nlistne: 127.0.0.1:1\nauditKeep: many\n");
        let lines: Vec<u32> = findings.iter().map(|finding| sources.line_column(finding.at.unwrap()).line).collect();
        assert_eq!(lines, [2, 3], "{findings:?}");
    }
}
