//! The key that makes beacon tokens and bootstrap tokens: 256 random bits in one Secret of the hub's, made once.
//!
//! Every replica tries to make it when it finds none; one of them does, and the others read what it made. Taking the
//! Secret away takes back every beacon token there is: the next one is made at once, and machines get new tokens with
//! their next config.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kiln_core::agent_token;
use kiln_core::beacon_token::{Bearer, Claim};
use kiln_core::boot_token::TokenHash;
use kiln_core::bootstrap_token::BootstrapToken;
use kube::Client;
use kube::api::{Api, DynamicObject, PostParams};
use ring::hmac;
use serde_json::{Value, json};

use super::Beacons;
use crate::hub::boot_secrets::{IGNITION_LABEL, decode_bytes};
use crate::hub::controllers::kinds;

/// The value of [`IGNITION_LABEL`] on the Secret.
pub const BEACON_KEY: &str = "beacon-key";
/// The name of the Secret, in the namespace of the hub.
pub const SECRET: &str = "kiln-beacon-key";
/// The wait after the first failure; doubled each time.
const FIRST_WAIT: Duration = Duration::from_millis(200);
/// The longest wait.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// What the key of agent tokens is derived with: a beacon token is no agent token, whatever it says.
const AGENTS: &[u8] = b"kiln agent tokens v1";

/// The key. It is never printed.
pub struct BeaconKey {
    beacons: hmac::Key,
    agents: hmac::Key,
}

impl BeaconKey {
    /// Reads the Secret; None for any other, wherever it has its label from.
    pub fn read(secret: &Value, namespace: &str) -> Option<BeaconKey> {
        let metadata = &secret["metadata"];
        if metadata["name"] != SECRET || metadata["namespace"] != namespace {
            return None;
        }
        let bytes = decode_bytes(&secret["data"], "key").filter(|bytes| bytes.len() == 32)?;
        let beacons = hmac::Key::new(hmac::HMAC_SHA256, &bytes);
        let agents = hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&beacons, AGENTS).as_ref());
        Some(BeaconKey { beacons, agents })
    }

    /// The code over a message.
    pub fn sign(&self, message: &str) -> Vec<u8> {
        hmac::sign(&self.beacons, message.as_bytes()).as_ref().to_vec()
    }

    /// The bootstrap token of a host that fetches with this boot token.
    pub fn bootstrap_token(&self, bearer: &Bearer, boot_token: &TokenHash) -> BootstrapToken {
        let mut code = [0; 32];
        code.copy_from_slice(
            hmac::sign(&self.beacons, BootstrapToken::message(bearer, boot_token).as_bytes()).as_ref(),
        );
        BootstrapToken::of_code(&code)
    }

    /// The token of a host's agent.
    pub fn agent_token(&self, bearer: &agent_token::Bearer) -> String {
        bearer.render(hmac::sign(&self.agents, bearer.message().as_bytes()).as_ref())
    }

    /// Whether an agent's claim has the right code. How long that takes does not depend on the code.
    pub fn verify_agent(&self, claim: &agent_token::Claim) -> bool {
        hmac::verify(&self.agents, claim.bearer.message().as_bytes(), &claim.code).is_ok()
    }

    /// Whether a claim has the right code. How long that takes does not depend on the code.
    pub fn verify(&self, claim: &Claim) -> bool {
        hmac::verify(&self.beacons, claim.bearer.message().as_bytes(), &claim.code).is_ok()
    }
}

/// Makes the Secret whenever it is missed. Never ends.
pub(in crate::hub::node) async fn keep(client: &Client, beacons: &Beacons) {
    let namespace = client.default_namespace().to_owned();
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &kinds::SECRET.resource());
    let mut wait = FIRST_WAIT;
    loop {
        beacons.key_is_missed.notified().await;
        while beacons.key().is_none() {
            match try_make(&api, &namespace).await {
                Ok(Some(key)) => {
                    beacons.set_key(Some(key));
                    wait = FIRST_WAIT;
                }
                Ok(None) => {
                    tracing::error!(
                        namespace,
                        secret = SECRET,
                        "this Secret has no key of 32 bytes: delete it, and it is made anew"
                    );
                    break;
                }
                Err(error) => {
                    tracing::warn!(%error, namespace, secret = SECRET, "the key of beacon tokens was not made");
                    tokio::time::sleep(wait).await;
                    wait = (wait * 2).min(LONGEST_WAIT);
                }
            }
        }
    }
}

async fn try_make(api: &Api<DynamicObject>, namespace: &str) -> Result<Option<BeaconKey>, kube::Error> {
    let read = |object: DynamicObject| BeaconKey::read(&serde_json::to_value(object).unwrap_or_default(), namespace);
    if let Some(object) = api.get_opt(SECRET).await? {
        return Ok(read(object));
    }
    let mut random = [0; 32];
    if rustls::crypto::ring::default_provider().secure_random.fill(&mut random).is_err() {
        return Ok(None);
    }
    let object = json!({"apiVersion": "v1", "kind": "Secret", "type": "kiln.dev/beacon-key", "immutable": true,
        "metadata": {"name": SECRET, "labels": {IGNITION_LABEL: BEACON_KEY}}, "data": {"key": STANDARD.encode(random)}});
    let object: DynamicObject = serde_json::from_value(object).map_err(kube::Error::SerdeError)?;
    match api.create(&PostParams::default(), &object).await {
        Ok(made) => Ok(read(made)),
        Err(error) => match api.get_opt(SECRET).await? {
            // Another replica was first, or the answer to this one was lost.
            Some(made) => Ok(read(made)),
            None => Err(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(bytes: &[u8]) -> Value {
        json!({"metadata": {"name": SECRET, "namespace": "kiln"}, "data": {"key": STANDARD.encode(bytes)}})
    }

    #[test]
    fn a_token_is_good_for_its_key_and_its_words_only() {
        let key = BeaconKey::read(&secret(&[1; 32]), "kiln").unwrap();
        let bearer = Bearer { namespace: "site".into(), host: "w0".into(), generation: 7 };
        let text = bearer.render(&key.sign(&bearer.message()));
        assert!(key.verify(&Claim::parse(&text).unwrap()));
        let other = BeaconKey::read(&secret(&[2; 32]), "kiln").unwrap();
        assert!(!other.verify(&Claim::parse(&text).unwrap()));
        let code = key.sign(&bearer.message());
        for (bearer, code) in [
            (Bearer { generation: 8, ..bearer.clone() }, &code[..]),
            (Bearer { host: "w1".into(), ..bearer.clone() }, &code[..]),
            (bearer.clone(), &code[..31]),
            (bearer.clone(), &[][..]),
        ] {
            assert!(!key.verify(&Claim { bearer, code: code.to_vec() }));
        }
    }

    #[test]
    fn an_agent_token_is_good_for_its_host_and_its_generation_and_no_beacon_token() {
        let key = BeaconKey::read(&secret(&[1; 32]), "kiln").unwrap();
        let bearer =
            agent_token::Bearer { namespace: "site".into(), host: "w0".into(), uid: "u".into(), generation: 1 };
        let claim = agent_token::Claim::parse(&key.agent_token(&bearer)).unwrap();
        assert!(key.verify_agent(&claim));
        assert!(!BeaconKey::read(&secret(&[2; 32]), "kiln").unwrap().verify_agent(&claim));
        let other = agent_token::Bearer { generation: 2, ..bearer.clone() };
        assert!(!key.verify_agent(&agent_token::Claim { bearer: other, code: claim.code }));
        let code = key.sign(&bearer.message());
        assert!(!key.verify_agent(&agent_token::Claim { bearer, code }), "another key");
    }

    /// A fault no real API server shows on demand: the create is refused as a conflict, and there is nothing it conflicts with.
    #[tokio::test]
    async fn a_key_whose_making_was_refused_is_made_again() {
        use axum::http::{Method, Request, Response, StatusCode};
        let refusals = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(2));
        let left = refusals.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let create = request.method() == Method::POST;
            let take = |left: usize| left.checked_sub(1);
            let order = std::sync::atomic::Ordering::SeqCst;
            let refused = !create || left.fetch_update(order, order, take).is_ok();
            let (code, body) = match (create, refused) {
                (true, false) => (StatusCode::CREATED, secret(&[1; 32])),
                (true, true) => (StatusCode::CONFLICT, json!({"kind": "Status", "code": 409, "reason": "Conflict"})),
                (false, _) => (StatusCode::NOT_FOUND, json!({"kind": "Status", "code": 404, "reason": "NotFound"})),
            };
            let answer = Response::builder().status(code).body(axum::body::Body::from(body.to_string()));
            std::future::ready(answer)
        });
        let client = Client::new(service, "kiln");
        let rate = kiln_apiserver::rate_limit::Rate { per_second: 1, burst: 1 };
        let beacons = Beacons::new(rate, rate);
        beacons.key_is_missed.notify_one();
        let made = async {
            while beacons.key().is_none() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::select! {
            () = keep(&client, &beacons) => unreachable!("it never ends"),
            () = made => {}
            () = tokio::time::sleep(Duration::from_secs(30)) => panic!("no key after two refusals"),
        }
        assert_eq!(refusals.load(std::sync::atomic::Ordering::SeqCst), 0, "both were refused first");
    }

    #[test]
    fn the_key_comes_from_one_place() {
        assert!(BeaconKey::read(&secret(&[1; 32]), "elsewhere").is_none());
        assert!(BeaconKey::read(&secret(&[1; 31]), "kiln").is_none());
        let mut other = secret(&[1; 32]);
        other["metadata"]["name"] = "other".into();
        assert!(BeaconKey::read(&other, "kiln").is_none());
    }
}
