//! What `kiln doctor --fix` does. Only what is missing is made; what is there is never changed.

use anyhow::anyhow;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kiln_core::doctor::{Mend, OVN_SECRET};
use kube::Error;
use kube::api::{Api, DynamicObject, PostParams};
use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair};
use serde_json::{Value, json};
use time::{Duration, OffsetDateTime};

use super::observe::{Clusters, resource, secret};
use crate::cli::output::Failure;

/// Where the hosted cluster has its own copy.
const HOSTED: &str = "openshift-ovn-kubernetes";
/// The Service whose port is served with it.
const SERVICE: &str = "ovn-kubernetes-control-plane";
/// How long a certificate of our own is valid.
const DAYS: i64 = 365;

/// Mends, and says what was done.
pub async fn mend(clusters: &Clusters, wanted: &Mend) -> Result<String, Failure> {
    let Mend::MakeOvnSecret { namespace } = wanted;
    let management =
        clusters.management.as_ref().ok_or_else(|| Failure::refused(anyhow!("no management cluster is known")))?;
    let theirs = secret(&clusters.target, HOSTED, OVN_SECRET).await?;
    let theirs = theirs.filter(|data| data["tls.crt"].is_string() && data["tls.key"].is_string());
    let (data, from) = match theirs {
        Some(data) => {
            let data = json!({"tls.crt": data["tls.crt"], "tls.key": data["tls.key"]});
            (data, format!("a copy of {HOSTED}/{OVN_SECRET} of the hosted cluster"))
        }
        None => (
            own_certificate(namespace)?,
            format!("a certificate of its own for Service {SERVICE}, valid for {DAYS} days"),
        ),
    };
    let object: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"name": OVN_SECRET, "namespace": namespace, "labels": {"kiln.dev/made-by": "doctor"}},
        "data": data,
    }))?;
    let api: Api<DynamicObject> =
        Api::namespaced_with(management.clone(), namespace, &resource("", "Secret", "secrets"));
    let options = PostParams { field_manager: Some("kiln-doctor".into()), ..PostParams::default() };
    match api.create(&options, &object).await {
        Ok(_) => Ok(format!("Secret {namespace}/{OVN_SECRET} was made: {from}")),
        Err(Error::Api(status)) if status.code == 409 => {
            Ok(format!("somebody made Secret {namespace}/{OVN_SECRET} meanwhile; it was left as it is"))
        }
        Err(error) => {
            Err(Failure::Failed(anyhow!(error).context(format!("Secret {namespace}/{OVN_SECRET} was not made"))))
        }
    }
}

/// Serves metrics only: nothing trusts it but who scrapes without looking.
fn own_certificate(namespace: &str) -> Result<Value, Failure> {
    let names = ["svc", "svc.cluster.local"].map(|end| format!("{SERVICE}.{namespace}.{end}"));
    let mut params = CertificateParams::new(names.to_vec())?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, SERVICE);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let now = OffsetDateTime::now_utc();
    params.not_before = now - Duration::hours(1);
    params.not_after = now + Duration::days(DAYS);
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?.pem();
    Ok(json!({"tls.crt": STANDARD.encode(certificate), "tls.key": STANDARD.encode(key.serialize_pem())}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_core::certificate_request::parse_certificate_pem;

    #[test]
    fn a_certificate_of_our_own_is_for_the_service() {
        let data = own_certificate("clusters-hc").unwrap();
        let pem = STANDARD.decode(data["tls.crt"].as_str().unwrap()).unwrap();
        let names = parse_certificate_pem(&pem).unwrap().names.to_string();
        assert_eq!(
            names,
            "ovn-kubernetes-control-plane.clusters-hc.svc, ovn-kubernetes-control-plane.clusters-hc.svc.cluster.local"
        );
    }
}
