//! The way to a cluster: the kubeconfig in a Secret of the hub, and what it may not do.
//!
//! Whoever may write a Secret must not be able to run a program on the hub or read its files: a kubeconfig that names a
//! command, a plugin or a file is refused. Certificates and tokens stand in it directly, as those of `<cluster>-admin-kubeconfig`.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::future::BoxFuture;
use kiln_core::certificate_request::KeyHash;
use kube::api::{Api, DynamicObject};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::fleet::Target;
use crate::hub::controllers::kinds::{CONFIG_MAP, SECRET};

/// The largest kubeconfig that is read.
const LARGEST_KUBECONFIG: usize = 1024 * 1024;
/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(10);
/// How long a request may take that is not a watch.
pub const ANSWER: Duration = Duration::from_secs(20);

/// A cluster that can be asked.
#[derive(Clone)]
pub struct Connected {
    /// Its API.
    pub client: Client,
    /// Authorities that may have signed what its kubelets serve.
    pub authorities: Arc<Vec<CertificateDer<'static>>>,
    /// Changes when the kubeconfig does.
    pub version: String,
}

/// How clusters are reached. Tests have their own way.
pub trait Connect: Send + Sync {
    /// Reaches a cluster, or says why not.
    fn connect<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<Connected, String>>;

    /// What [`Connected::version`] would be now; none when it cannot be told.
    fn version<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Option<String>>;
}

/// By the kubeconfig in a Secret of the hub.
pub struct BySecret {
    /// The hub.
    pub hub: Client,
}

impl BySecret {
    async fn read(&self, target: &Target) -> Result<String, String> {
        let api: Api<DynamicObject> = Api::namespaced_with(self.hub.clone(), &target.namespace, &SECRET.resource());
        let secret = tokio::time::timeout(ANSWER, api.get(&target.secret)).await;
        let secret = match secret {
            Err(_) => return Err("the hub's API does not answer".into()),
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => {
                return Err(format!("there is no Secret {target} with its kubeconfig"));
            }
            Ok(Err(error)) => return Err(format!("Secret {target} cannot be read: {error}")),
            Ok(Ok(secret)) => secret,
        };
        let encoded = secret.data["data"][&target.key].as_str();
        let encoded = encoded.ok_or_else(|| format!("Secret {target} has no key `{}`", target.key))?;
        let bytes = STANDARD.decode(encoded).ok().filter(|bytes| bytes.len() <= LARGEST_KUBECONFIG);
        let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
        text.ok_or_else(|| format!("key `{}` of Secret {target} is no kubeconfig", target.key))
    }
}

impl Connect for BySecret {
    fn connect<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<Connected, String>> {
        Box::pin(async move {
            let text = self.read(target).await?;
            let version = KeyHash::of(text.as_bytes()).to_string();
            let (client, roots) =
                client(&text).await.map_err(|why| format!("the kubeconfig in Secret {target} {why}"))?;
            let mut authorities = roots;
            authorities.extend(signers(&client).await);
            Ok(Connected { client, authorities: Arc::new(authorities), version })
        })
    }

    fn version<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Option<String>> {
        Box::pin(async move { Some(KeyHash::of(self.read(target).await.ok()?.as_bytes()).to_string()) })
    }
}

/// A client by the text of a kubeconfig, and the authorities it trusts.
pub async fn client(text: &str) -> Result<(Client, Vec<CertificateDer<'static>>), String> {
    let kubeconfig = parse_kubeconfig(text)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let mut config = config.map_err(|error| format!("does not lead to a server: {error}"))?;
    config.connect_timeout = Some(CONNECT);
    let roots = config.root_cert.clone().unwrap_or_default().into_iter().map(CertificateDer::from).collect();
    let client = Client::try_from(config).map_err(|error| format!("cannot be used: {error}"))?;
    Ok((client, roots))
}

/// Reads a kubeconfig that came over the network.
fn parse_kubeconfig(text: &str) -> Result<Kubeconfig, String> {
    // The library's error may repeat what it read, and that is secret.
    let kubeconfig = Kubeconfig::from_yaml(text).map_err(|_| "cannot be read".to_owned())?;
    for user in kubeconfig.auth_infos.iter().filter_map(|user| user.auth_info.as_ref()) {
        let named = [
            ("exec", user.exec.is_some()),
            ("auth-provider", user.auth_provider.is_some()),
            ("tokenFile", user.token_file.is_some()),
            ("client-certificate", user.client_certificate.is_some()),
            ("client-key", user.client_key.is_some()),
        ];
        if let Some((field, _)) = named.iter().find(|(_, given)| *given) {
            return Err(format!(
                "names `{field}`: the hub runs no programs and reads no files for a Secret; put the data into it"
            ));
        }
    }
    for cluster in kubeconfig.clusters.iter().filter_map(|cluster| cluster.cluster.as_ref()) {
        if cluster.certificate_authority.is_some() {
            return Err("names the file `certificate-authority`; write certificate-authority-data".into());
        }
    }
    Ok(kubeconfig)
}

/// Where OpenShift publishes who signs for kubelets.
async fn signers(client: &Client) -> Vec<CertificateDer<'static>> {
    let api: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), "openshift-config-managed", &CONFIG_MAP.resource());
    let map = tokio::time::timeout(ANSWER, api.get_opt("csr-controller-ca")).await;
    let Ok(Ok(Some(map))) = map else { return Vec::new() };
    let bundle = map.data["data"]["ca-bundle.crt"].as_str().unwrap_or_default();
    CertificateDer::pem_slice_iter(bundle.as_bytes()).filter_map(Result::ok).take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubeconfig_of_a_secret_runs_nothing_and_reads_no_file() {
        let user = |user: &str| {
            format!(
                "apiVersion: v1\nkind: Config\nclusters: [{{name: c, cluster: {{server: \"https://127.0.0.1\"}}}}]\nusers: [{{name: u, user: {user}}}]\n"
            )
        };
        let refusal = |text: String| parse_kubeconfig(&text).err().unwrap_or_default();
        assert_eq!(refusal(user("{token: abc}")), "");
        let told = "the hub runs no programs and reads no files for a Secret; put the data into it";
        for (written, field) in [
            ("{exec: {command: /bin/sh, apiVersion: client.authentication.k8s.io/v1}}", "exec"),
            ("{tokenFile: /etc/shadow}", "tokenFile"),
            ("{client-key: /root/.ssh/id}", "client-key"),
            ("{client-certificate: /etc/x}", "client-certificate"),
            ("{auth-provider: {name: gcp, config: {}}}", "auth-provider"),
        ] {
            assert_eq!(refusal(user(written)), format!("names `{field}`: {told}"));
        }
        let file = "clusters: [{name: c, cluster: {server: \"https://x\", certificate-authority: /etc/passwd}}]\n";
        assert_eq!(refusal(file.into()), "names the file `certificate-authority`; write certificate-authority-data");
        assert_eq!(refusal("{".into()), "cannot be read");
    }
}
