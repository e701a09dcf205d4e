//! What the doctor looks at: Nodes, requests, saved configs and the hosted control plane. Nothing is written.
//!
//! What a cluster does not have, or does not let be read, is not there: a plain Kubernetes has no OpenShift namespaces.

use anyhow::{Context, anyhow};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kiln_core::doctor::{ControlPlane, NodeSigns, OVN_DEPLOYMENT, OVN_SECRET, Patient};
use kiln_core::timeline::Moment;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::{Client, Error};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::Value;

use crate::cli::output::Failure;
use crate::cli::status::connection;
use crate::hub::approval::connect::client;
use crate::hub::approval::recorded::read_recorded;
use crate::hub::approval::requests::read_request;
use crate::hub::controllers::kinds::find;
use crate::hub::timeline::{now, parse_time};

/// The clusters that belong together.
pub struct Clusters {
    /// The hub, where there is one.
    pub hub: Option<Client>,
    /// The cluster that hosts join.
    pub target: Client,
    /// Where its control plane runs, where that is known.
    pub management: Option<Client>,
    /// The namespace there.
    pub control_plane: String,
}

/// Where saved configs are, in OpenShift.
const POINTERS: [(&str, &str); 2] =
    [("openshift-machine-api", "worker-user-data"), ("openshift-machine-api", "master-user-data")];
/// What the machine-config-server shows.
const CONFIG_SERVER: (&str, &str) = ("openshift-machine-config-operator", "machine-config-server-tls");

/// A kind of the API by its place.
pub fn resource(group: &str, kind: &str, plural: &str) -> ApiResource {
    let api_version = if group.is_empty() { "v1".to_owned() } else { format!("{group}/v1") };
    ApiResource { group: group.into(), version: "v1".into(), api_version, kind: kind.into(), plural: plural.into() }
}

/// A Secret.
pub async fn secret(client: &Client, namespace: &str, name: &str) -> Result<Option<Value>, Failure> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource("", "Secret", "secrets"));
    Ok(readable(api.get_opt(name).await)?.flatten().map(|secret| secret.data["data"].clone()))
}

/// A value of a Secret.
pub fn decoded(data: &Value, key: &str) -> Option<Vec<u8>> {
    STANDARD.decode(data[key].as_str()?).ok()
}

/// What is forbidden or unknown is as if it were not there.
fn readable<T>(result: Result<T, Error>) -> Result<Option<T>, Failure> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(Error::Api(status)) if [403, 404].contains(&status.code) => Ok(None),
        Err(error) => Err(Failure::Failed(anyhow!(error).context("a cluster did not answer"))),
    }
}

/// The cluster by the kubeconfig in the hub, and the namespace that was in.
pub async fn target(hub: &Client, namespace: Option<&str>, name: &str) -> Result<(String, Client), Failure> {
    let secret_name = format!("{name}-admin-kubeconfig");
    let kind = resource("", "Secret", "secrets");
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(hub.clone(), namespace, &kind),
        None => Api::all_with(hub.clone(), &kind),
    };
    let named = ListParams::default().fields(&format!("metadata.name={secret_name}"));
    let found = api.list(&named).await.map_err(connection::unanswered)?.items;
    let place = |secret: &DynamicObject| secret.metadata.namespace.clone().unwrap_or_default();
    let secret = match &found[..] {
        [one] => one,
        [] => {
            let place =
                namespace.map_or_else(|| "any namespace".to_owned(), |namespace| format!("namespace {namespace}"));
            return Err(Failure::refused(anyhow!(
                "the hub has no Secret `{secret_name}` in {place}; make it from the cluster's kubeconfig (key `kubeconfig`), or name a file with --kubeconfig"
            )));
        }
        several => {
            let places: Vec<String> = several.iter().map(place).collect();
            return Err(Failure::refused(anyhow!(
                "there are Secrets `{secret_name}` in {}; write NAMESPACE/{name}",
                places.join(", ")
            )));
        }
    };
    let text = decoded(&secret.data["data"], "kubeconfig").and_then(|bytes| String::from_utf8(bytes).ok());
    let text = text
        .ok_or_else(|| Failure::refused(anyhow!("Secret {}/{secret_name} has no key `kubeconfig`", place(secret))))?;
    let (client, _) = client(&text)
        .await
        .map_err(|why| Failure::refused(anyhow!("the kubeconfig in Secret {}/{secret_name} {why}", place(secret))))?;
    Ok((place(secret), client))
}

/// Looks at everything.
pub async fn observe_patient(clusters: &Clusters) -> Result<Patient, Failure> {
    let target = &clusters.target;
    let list = async |kind: &str| -> Result<Vec<Value>, Failure> {
        let kind = find(kind).with_context(|| format!("kind {kind} is not known"))?;
        let api: Api<DynamicObject> = Api::all_with(target.clone(), &kind.resource());
        let objects = readable(api.list(&ListParams::default()).await)?.into_iter().flat_map(|list| list.items);
        Ok(objects.map(|object| serde_json::to_value(object).unwrap_or_default()).collect())
    };
    let nodes: Vec<NodeSigns> = list("Node").await?.iter().map(node).collect();
    let requests = list("CertificateSigningRequest").await?.iter().map(|object| read_request(object).request).collect();
    let (held, ended) = match &clusters.hub {
        Some(hub) => remembered(hub).await?,
        None => (Vec::new(), Vec::new()),
    };
    let mut pointers = Vec::new();
    for (namespace, name) in POINTERS {
        let data = secret(target, namespace, name).await?.unwrap_or_default();
        let config = decoded(&data, "userData").and_then(|text| serde_json::from_slice::<Value>(&text).ok());
        if let Some(config) = config {
            pointers.push((format!("Secret {namespace}/{name}"), authorities(&config)));
        }
    }
    let (namespace, name) = CONFIG_SERVER;
    let shown = secret(target, namespace, name).await?.and_then(|data| decoded(&data, "tls.crt"));
    let shown = shown.and_then(|pem| CertificateDer::from_pem_slice(&pem).ok());
    Ok(Patient {
        nodes,
        requests,
        held,
        ended,
        control_plane: control_plane(clusters).await?,
        pointers,
        config_server: shown.map(|certificate| (format!("Secret {namespace}/{name}"), certificate.to_vec())),
    })
}

fn node(object: &Value) -> NodeSigns {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let ready = conditions.into_iter().find(|condition| condition["type"] == "Ready").cloned().unwrap_or_default();
    NodeSigns {
        name: text(&object["metadata"]["name"]),
        ready: text(&ready["status"]),
        reason: text(&ready["reason"]),
        message: text(&ready["message"]),
        since: ready["lastTransitionTime"].as_str().and_then(parse_time).unwrap_or_else(now),
    }
}

type Remembered = (Vec<(String, String)>, Vec<(String, Moment)>);

/// What the hub holds, and the certificates it saw end.
async fn remembered(hub: &Client) -> Result<Remembered, Failure> {
    let (mut held, mut ended) = (Vec::new(), Vec::new());
    for (host, spec) in connection::fetch_objects(hub).await? {
        let node = spec["hostname"].as_str().unwrap_or(&host.name).to_owned();
        let recorded = read_recorded(&host.status);
        let waiting = recorded.iter().filter(|recorded| recorded.verdict == "Held");
        held.extend(
            waiting.map(|recorded| (recorded.request.clone(), format!("{}: {}", recorded.check, recorded.message))),
        );
        let client =
            |signer: &kiln_core::certificate_request::Signer| *signer == kiln_core::certificate_request::Signer::Client;
        let last =
            recorded.iter().filter(|recorded| client(&recorded.signer)).filter_map(|recorded| recorded.ends).max();
        ended.extend(last.filter(|ends| *ends <= now()).map(|ends| (node, ends)));
    }
    Ok((held, ended))
}

/// The authorities a config trusts, as far as they stand in it.
fn authorities(config: &Value) -> Vec<Vec<u8>> {
    let listed = config["ignition"]["security"]["tls"]["certificateAuthorities"].as_array().into_iter().flatten();
    let read = |source: &str| {
        let (_, encoded) = source.strip_prefix("data:")?.split_once(";base64,")?;
        let pem = STANDARD.decode(encoded).ok()?;
        let certificates = CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok);
        Some(certificates.map(|certificate| certificate.to_vec()).collect::<Vec<_>>())
    };
    listed.filter_map(|authority| read(authority["source"].as_str()?)).flatten().collect()
}

async fn control_plane(clusters: &Clusters) -> Result<Option<ControlPlane>, Failure> {
    let (Some(management), namespace) = (&clusters.management, clusters.control_plane.clone()) else { return Ok(None) };
    let kind = resource("apps", "Deployment", "deployments");
    let deployments: Api<DynamicObject> = Api::namespaced_with(management.clone(), &namespace, &kind);
    let has_ovn = readable(deployments.get_opt(OVN_DEPLOYMENT).await)?.flatten().is_some();
    let has_secret = secret(management, &namespace, OVN_SECRET).await?.is_some();
    Ok(Some(ControlPlane { namespace, has_ovn, has_secret }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn authorities_are_read_out_of_a_config_and_others_are_left_out() {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(Vec::new()).unwrap().self_signed(&key).unwrap();
        let source = format!("data:text/plain;charset=utf-8;base64,{}", STANDARD.encode(certificate.pem()));
        let config = json!({"ignition": {"security": {"tls": {"certificateAuthorities": [{"source": source}, {"source": "https://ca"}, {"source": "data:,x"}]}}}});
        assert_eq!(authorities(&config), [certificate.der().to_vec()]);
        assert_eq!(authorities(&json!({})), Vec::<Vec<u8>>::new());
    }
}
