//! Where the hub is: the kubeconfig to use, a client for it, and the hosts it knows.

use std::path::PathBuf;

use anyhow::{Context, anyhow};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use kube::api::{Api, DynamicObject, ListParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config, Error};
use serde_json::Value;

use super::no_such_host;
use crate::cli::output::Failure;
use crate::hub::controllers::kinds::HOST;

/// Which hub is asked.
#[derive(Debug, Clone, Args)]
pub struct Connection {
    /// Credentials and address of the hub [default: KUBECONFIG, then ~/.kube/config]
    #[arg(long, value_name = "FILE", conflicts_with = "data_dir")]
    kubeconfig: Option<PathBuf>,
    /// Use the kubeconfig that `kiln serve` wrote into this folder
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

/// A host as the hub has it.
#[derive(Debug, Clone, PartialEq)]
pub struct Host {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its status.
    pub status: Value,
}

/// Where the hub is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// `https://10.0.0.1:8443`.
    pub url: String,
    /// PEM of the authorities the kubeconfig trusts.
    pub authorities: Option<Vec<u8>>,
}

impl Address {
    fn of(config: &Config) -> Address {
        let pem = |certificate: &Vec<u8>| {
            let text = STANDARD.encode(certificate);
            let lines: Vec<&str> =
                text.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
            format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
        };
        let authorities = config.root_cert.as_ref().map(|all| all.iter().map(pem).collect::<String>().into_bytes());
        Address { url: config.cluster_url.to_string().trim_end_matches('/').to_owned(), authorities }
    }
}

impl Connection {
    /// Runs something with a client of the hub.
    pub fn block_on<T>(&self, work: impl AsyncFnOnce(Client) -> Result<T, Failure>) -> Result<T, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async { work(self.client().await?).await })
    }

    /// By a file, by the folder of `kiln serve`, or as kubectl would.
    pub fn new(kubeconfig: Option<PathBuf>, data_dir: Option<PathBuf>) -> Connection {
        Connection { kubeconfig, data_dir }
    }

    /// The same, for work that must also know where the hub is.
    pub fn block_on_address<T>(
        &self,
        work: impl AsyncFnOnce(Client, Address) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let config = self.config().await?;
            let address = Address::of(&config);
            work(Client::try_from(config).context("cannot connect")?, address).await
        })
    }

    /// A client of the hub.
    pub async fn client(&self) -> Result<Client, Failure> {
        Ok(Client::try_from(self.config().await?).context("cannot connect")?)
    }

    async fn config(&self) -> Result<Config, Failure> {
        let named = self.kubeconfig.clone().or_else(|| Some(self.data_dir.as_ref()?.join("kubeconfig")));
        let kubeconfig = match &named {
            Some(path) => Kubeconfig::read_from(path).with_context(|| format!("cannot use `{}`", path.display())),
            None => Kubeconfig::read().context("no kubeconfig was found; name one with --kubeconfig or --data-dir"),
        };
        let kubeconfig = kubeconfig.map_err(Failure::Refused)?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        config.context("the kubeconfig does not lead to a server").map_err(Failure::Refused)
    }
}

/// Every host, by namespace and name.
pub async fn fetch_hosts(client: &Client) -> Result<Vec<Host>, Failure> {
    Ok(fetch_objects(client).await?.into_iter().map(|(host, _)| host).collect())
}

/// Every host with its spec, by namespace and name.
pub async fn fetch_objects(client: &Client) -> Result<Vec<(Host, Value)>, Failure> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &HOST.resource());
    let mut hosts = Vec::new();
    let mut page = ListParams::default().limit(500);
    loop {
        let list = api.list(&page).await.map_err(unanswered)?;
        hosts.extend(list.items.into_iter().map(|mut object| {
            let spec = object.data["spec"].take();
            (host(object), spec)
        }));
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => break,
        }
    }
    hosts.sort_by(|(left, _), (right, _)| (&left.namespace, &left.name).cmp(&(&right.namespace, &right.name)));
    Ok(hosts)
}

/// A host out of its object.
pub fn host(object: DynamicObject) -> Host {
    Host {
        namespace: object.metadata.namespace.unwrap_or_default(),
        name: object.metadata.name.unwrap_or_default(),
        status: object.data["status"].clone(),
    }
}

/// What a failed request means to the person who typed the command.
pub fn unanswered(error: Error) -> Failure {
    match &error {
        Error::Api(status) if status.code == 404 => Failure::refused(anyhow!(
            "this API serves no Hosts of kiln.dev: it is not a hub of Kiln, or its definitions are not installed (`kiln crds`)"
        )),
        Error::Api(status) if status.code == 401 || status.code == 403 => {
            Failure::refused(anyhow!(error).context("the hub does not let you read its hosts"))
        }
        _ => Failure::Failed(anyhow!(error).context("the hub did not answer")),
    }
}

/// The host that is called so: by its name, when only one has it, or by `namespace/name`.
pub fn choose<'h>(hosts: &'h [Host], name: &str) -> Result<&'h Host, Failure> {
    let exact = |host: &&Host| name.split_once('/') == Some((host.namespace.as_str(), host.name.as_str()));
    if let Some(host) = hosts.iter().find(exact) {
        return Ok(host);
    }
    let called: Vec<&Host> = hosts.iter().filter(|host| host.name == name).collect();
    match called[..] {
        [host] => Ok(host),
        [] => Err(no_such_host(name, hosts)),
        _ => {
            let namespaces: Vec<&str> = called.iter().map(|host| host.namespace.as_str()).collect();
            let message =
                format!("there are hosts `{name}` in the namespaces {}; write NAMESPACE/{name}", namespaces.join(", "));
            Err(Failure::refused(anyhow!(message)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_chosen_by_name_when_that_is_enough() {
        let host =
            |namespace: &str, name: &str| Host { namespace: namespace.into(), name: name.into(), status: Value::Null };
        let hosts = [host("a", "w0"), host("b", "w0"), host("b", "w1")];
        let chosen = |name: &str| match choose(&hosts, name) {
            Ok(host) => format!("{}/{}", host.namespace, host.name),
            Err(Failure::Refused(error) | Failure::Failed(error)) => error.to_string(),
        };
        assert_eq!(chosen("w1"), "b/w1");
        assert_eq!(chosen("a/w0"), "a/w0");
        assert_eq!(chosen("w0"), "there are hosts `w0` in the namespaces a, b; write NAMESPACE/w0");
        assert_eq!(chosen("w2"), "there is no host `w2`; there are a/w0, b/w0, b/w1");
    }
}
