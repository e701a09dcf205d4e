//! Base configs of pools: whole Ignition configs from Secrets and ConfigMaps, and from the machine-config-servers of existing
//! clusters. Also the hashes of pull secrets and additional authorities, which HyperShift's token carries.
//!
//! An object is read again when its revision changes; a server is asked again every [`AGAIN`], with the ETag it gave.
//! Whatever fails is told, and what was fetched before stays: a pool keeps its last good payload.
//! Bounds: [`LARGEST`] bytes, [`PATIENCE`] for a whole answer, no redirects, TLS with the authorities of the pool's Secret.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use axum::http::{Request, StatusCode, header};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kiln_core::diagnostic::ObjectId;
use kiln_core::payload::digest::{hash_bytes, hash_simple};
use kiln_core::provision::FetchedBase;
use kiln_core::world::IgnitionSource;
use kube::api::{Api, DynamicObject};
use kube::{Client, Config};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::Value;

use super::{Hashed, Settings};
use crate::hub::controllers::Shared;
use crate::hub::controllers::cache::Change;
use crate::hub::controllers::kinds;

/// The largest base config.
pub const LARGEST: usize = 10 << 20;
/// How long a server may take for its whole answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// After this time a server is asked again.
const AGAIN: Duration = Duration::from_secs(600);
/// After this time something that failed is tried again.
const AFTER_FAILURE: Duration = Duration::from_secs(30);
/// What is said to a machine-config-server: the newest spec it may answer with.
const ACCEPT: &str = "application/vnd.coreos.ignition+json;version=3.4.0, */*;q=0.1";

/// What is known of one base.
struct Known {
    /// What it was fetched from, with revisions.
    from: String,
    at: Instant,
    etag: Option<String>,
    failed: bool,
}

/// Fetches what the pools want. Never ends.
pub(super) async fn keep(client: Client, shared: Arc<Shared>, settings: Settings) {
    let mut known: BTreeMap<ObjectId, Known> = BTreeMap::new();
    loop {
        tokio::select! {
            () = shared.desk.looked_for_bases.notified() => {}
            () = tokio::time::sleep(settings.patrol.min(AFTER_FAILURE)) => {}
        }
        let wanted = wanted(&shared);
        known.retain(|id, _| wanted.iter().any(|wanted| wanted.id == *id));
        let due: Vec<&Wanted> = wanted.iter().filter(|wanted| is_due(wanted, known.get(&wanted.id))).collect();
        let fetches = due.into_iter().map(|wanted| {
            let etag =
                known.get(&wanted.id).filter(|known| known.from == wanted.from).and_then(|known| known.etag.clone());
            let client = client.clone();
            async move { (wanted, fetch(&client, wanted, etag.as_deref()).await) }
        });
        let fetched = futures::future::join_all(fetches).await;
        let mut changed = false;
        for (wanted, result) in fetched {
            let failed = result.is_err();
            let (etag, base) = match result {
                Ok(Fetched::Same) => (known.get(&wanted.id).and_then(|known| known.etag.clone()), None),
                Ok(Fetched::New { bytes, etag }) => {
                    (etag, Some(FetchedBase::Ready { what: wanted.what.clone(), bytes: bytes.into() }))
                }
                Err(error) => (None, Some(FetchedBase::Failed(format!("{}: {error:#}", wanted.what)))),
            };
            known.insert(wanted.id.clone(), Known { from: wanted.from.clone(), at: Instant::now(), etag, failed });
            if let Some(base) = base {
                changed |= put_base(&shared, &wanted.id, base);
            }
        }
        changed |= forget_others(&shared, &wanted);
        fetch_hashes(&client, &shared).await;
        if changed {
            shared.look_again(Change::World);
        }
    }
}

/// A base that a pool wants.
struct Wanted {
    id: ObjectId,
    namespace: String,
    source: IgnitionSource,
    what: String,
    /// What it comes from, with revisions: when this differs, it is fetched again.
    from: String,
}

fn wanted(shared: &Shared) -> Vec<Wanted> {
    let state = shared.lock();
    let Some(provision) = shared.desk.lock().provision.clone() else { return Vec::new() };
    let revision = |kind: &str, namespace: &str, name: &str| {
        state.cache.get(kind, namespace, name).map_or("absent", |item| item.revision.as_str()).to_owned()
    };
    let wants = provision.pools.iter().filter_map(|pool| {
        let source = pool.base.clone()?;
        let namespace = pool.namespace.clone();
        let (what, from) = match &source {
            IgnitionSource::Secret(reference) => {
                let what = format!("Secret {namespace}/{}", reference.name);
                (what.clone(), format!("{what} {}", revision("Secret", &namespace, &reference.name)))
            }
            IgnitionSource::ConfigMap(reference) => {
                let what = format!("ConfigMap {namespace}/{}", reference.name);
                (what.clone(), format!("{what} {}", revision("ConfigMap", &namespace, &reference.name)))
            }
            IgnitionSource::Upstream { url, authority } => {
                let trusted = authority.as_ref().map(|reference| revision("Secret", &namespace, &reference.name));
                (url.value.clone(), format!("{} {}", url.value, trusted.unwrap_or_default()))
            }
        };
        Some(Wanted { id: pool.source.clone(), namespace, source, what, from })
    });
    wants.collect()
}

fn is_due(wanted: &Wanted, known: Option<&Known>) -> bool {
    let Some(known) = known else { return true };
    let upstream = matches!(wanted.source, IgnitionSource::Upstream { .. });
    known.from != wanted.from
        || known.failed && known.at.elapsed() >= AFTER_FAILURE
        || upstream && known.at.elapsed() >= AGAIN
}

/// Keeps the last good bytes when a fetch failed. Says whether anything changed.
fn put_base(shared: &Shared, id: &ObjectId, base: FetchedBase) -> bool {
    let mut desk = shared.desk.lock();
    match (desk.bases.get(id), &base) {
        (Some(known), base) if known == base => return false,
        (Some(FetchedBase::Ready { .. }), FetchedBase::Failed(why)) => {
            tracing::warn!(pool = %id.name, namespace = %id.namespace, why, "the base config was not fetched; the last one is used on");
            return false;
        }
        _ => {}
    }
    let mut bases = (*desk.bases).clone();
    bases.insert(id.clone(), base);
    desk.bases = Arc::new(bases);
    true
}

fn forget_others(shared: &Shared, wanted: &[Wanted]) -> bool {
    let mut desk = shared.desk.lock();
    if desk.bases.keys().all(|id| wanted.iter().any(|wanted| wanted.id == *id)) {
        return false;
    }
    let mut bases = (*desk.bases).clone();
    bases.retain(|id, _| wanted.iter().any(|wanted| wanted.id == *id));
    desk.bases = Arc::new(bases);
    true
}

enum Fetched {
    /// As it was.
    Same,
    New {
        bytes: Vec<u8>,
        etag: Option<String>,
    },
}

async fn fetch(client: &Client, wanted: &Wanted, etag: Option<&str>) -> Result<Fetched, anyhow::Error> {
    match &wanted.source {
        IgnitionSource::Secret(reference) => {
            let object = read_object(client, "Secret", &wanted.namespace, &reference.name).await?;
            Ok(Fetched::New { bytes: one_value(&object["data"], true)?, etag: None })
        }
        IgnitionSource::ConfigMap(reference) => {
            let object = read_object(client, "ConfigMap", &wanted.namespace, &reference.name).await?;
            let bytes = match object["data"].is_object() {
                true => one_value(&object["data"], false)?,
                false => one_value(&object["binaryData"], true)?,
            };
            Ok(Fetched::New { bytes, etag: None })
        }
        IgnitionSource::Upstream { url, authority } => {
            let trusted = match authority {
                None => None,
                Some(reference) => {
                    let secret = read_object(client, "Secret", &wanted.namespace, &reference.name).await?;
                    let pem = secret["data"]["ca.crt"].as_str().and_then(|text| STANDARD.decode(text).ok());
                    Some(pem.with_context(|| {
                        format!("Secret {}/{} has no key `ca.crt`", wanted.namespace, reference.name)
                    })?)
                }
            };
            let fetching = fetch_upstream(&url.value, trusted.as_deref(), etag);
            tokio::time::timeout(PATIENCE, fetching)
                .await
                .map_err(|_| anyhow!("no whole answer within {PATIENCE:?}"))?
        }
    }
}

async fn read_object(client: &Client, kind: &str, namespace: &str, name: &str) -> Result<Value, anyhow::Error> {
    let kind = kinds::find(kind).context("an unknown kind")?;
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &kind.resource());
    let object = api.get_opt(name).await.context("the API did not answer")?;
    let object = object.with_context(|| format!("there is no {} {namespace}/{name}", kind.kind))?;
    Ok(object.data)
}

/// The value under `config`, or the only one.
fn one_value(data: &Value, encoded: bool) -> Result<Vec<u8>, anyhow::Error> {
    let values = data.as_object().context("it has no data")?;
    let value = match (values.get("config"), values.len()) {
        (Some(value), _) => value,
        (None, 1) => values.values().next().context("it has no data")?,
        (None, number) => bail!("it has {number} keys and none of them is `config`"),
    };
    let text = value.as_str().unwrap_or_default();
    let bytes =
        if encoded { STANDARD.decode(text).context("its data is not base64")? } else { text.as_bytes().to_vec() };
    if bytes.len() > LARGEST {
        bail!("it has more than {LARGEST} bytes");
    }
    Ok(bytes)
}

async fn fetch_upstream(url: &str, authorities: Option<&[u8]>, etag: Option<&str>) -> Result<Fetched, anyhow::Error> {
    let target: axum::http::Uri = url.parse().context("not a URL")?;
    if target.scheme_str() != Some("https") {
        bail!("a base config has credentials in it and is fetched over https only");
    }
    let (authority, path) = (target.authority().context("a URL without a host")?, target.path_and_query());
    let server: axum::http::Uri = format!("https://{authority}").parse().context("not a URL")?;
    let mut config = Config::new(server);
    config.connect_timeout = Some(Duration::from_secs(10));
    config.read_timeout = Some(PATIENCE);
    config.proxy_url = None;
    if let Some(pem) = authorities {
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
        let certificates =
            certificates.ok().filter(|found| !found.is_empty()).context("`ca.crt` is not a PEM bundle")?;
        config.root_cert = Some(certificates.iter().map(|certificate| certificate.to_vec()).collect());
    }
    let client = Client::try_from(config).context("TLS cannot be set up")?;
    let mut request = Request::get(path.map_or("/", |path| path.as_str()))
        .header(header::ACCEPT, ACCEPT)
        .header(header::USER_AGENT, concat!("kiln/", env!("CARGO_PKG_VERSION")));
    if let Some(etag) = etag {
        request = request.header(header::IF_NONE_MATCH, etag);
    }
    let request = request.body(kube::client::Body::empty()).context("not a request")?;
    let answer = client.send(request).await.map_err(|error| anyhow!(error).context("the server did not answer"))?;
    match answer.status() {
        StatusCode::NOT_MODIFIED if etag.is_some() => return Ok(Fetched::Same),
        StatusCode::OK => {}
        status => bail!("the server answered {status}"),
    }
    let etag = answer.headers().get(header::ETAG).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let body = axum::body::Body::new(answer.into_body());
    let bytes = axum::body::to_bytes(body, LARGEST).await;
    let bytes = bytes.with_context(|| format!("the answer broke off or has more than {LARGEST} bytes"))?;
    Ok(Fetched::New { bytes: bytes.to_vec(), etag })
}

/// Reads pull secrets that are not known yet. HyperShift freezes their hash when the token is made, and so does Kiln.
async fn fetch_hashes(client: &Client, shared: &Shared) {
    let wanted: Vec<Hashed> = {
        let desk = shared.desk.lock();
        let Some(provision) = &desk.provision else { return };
        let named = provision.pools.iter().flat_map(|pool| {
            let place = |name: &String| (pool.namespace.clone(), name.clone());
            let pull_secret = pool.pull_secret.as_ref().map(|name| Hashed::PullSecret(place(name)));
            pull_secret.into_iter().chain(pool.trust_bundle.as_ref().map(|name| Hashed::TrustBundle(place(name))))
        });
        named.filter(|hashed| !desk.hashes.contains_key(hashed)).collect()
    };
    for hashed in wanted {
        let hash = match &hashed {
            Hashed::PullSecret((namespace, name)) => read_object(client, "Secret", namespace, name)
                .await
                .ok()
                .and_then(|secret| STANDARD.decode(secret["data"][".dockerconfigjson"].as_str()?).ok())
                .map(|contents| hash_bytes(&contents)),
            Hashed::TrustBundle((namespace, name)) => read_object(client, "ConfigMap", namespace, name)
                .await
                .ok()
                .map(|map| hash_simple(map["data"]["ca-bundle.crt"].as_str().unwrap_or_default())),
        };
        if let Some(hash) = hash {
            shared.desk.lock().hashes.insert(hashed, hash);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_config_is_found_under_its_key_or_alone() {
        let value = |data: Value| match one_value(&data, false) {
            Ok(bytes) => String::from_utf8(bytes).unwrap(),
            Err(error) => error.to_string(),
        };
        assert_eq!(value(json!({"config": "a", "other": "b"})), "a");
        assert_eq!(value(json!({"worker.ign": "a"})), "a");
        assert_eq!(value(json!({"x": "a", "y": "b"})), "it has 2 keys and none of them is `config`");
        assert_eq!(value(Value::Null), "it has no data");
    }

    #[tokio::test]
    async fn nothing_is_fetched_in_the_clear() {
        let refused = async |url: &str| match fetch_upstream(url, None, None).await {
            Err(error) => error.to_string(),
            Ok(_) => "fetched".into(),
        };
        assert_eq!(
            refused("http://127.0.0.1:9/config/worker").await,
            "a base config has credentials in it and is fetched over https only"
        );
        assert_eq!(refused("::").await, "not a URL");
    }
}
