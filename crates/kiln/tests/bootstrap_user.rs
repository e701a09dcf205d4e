//! Hosts with a bootstrap user of their own, from the pool's config to the certificate, over the embedded API.
//!
//! The embedded API knows no bootstrap tokens: here the test says as whom a request comes. That a real API server
//! recognises the Secret is shown in `approval_on_kubernetes.rs`.

#![allow(clippy::unwrap_used, reason = "a test fails loudly")]

#[path = "support/lab.rs"]
mod lab;
#[path = "support/nodes.rs"]
mod nodes;

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kiln::hub::boot_secrets::{hash_token, make_token, render_record};
use kiln::hub::controllers::{self, Pace};
use kiln::hub::node::NodeLimits;
use kiln::hub::pools::Settings;
use kiln::hub::timeline::{now, parse_time};
use kiln_apiserver::rate_limit::Rate;
use kiln_apiserver::router;
use kiln_core::boot_token::{BootRecord, LIFETIME_SECONDS};
use kiln_core::bootstrap_token::{GROUP, PATHS, secret_name};
use kiln_core::ignition::data_url;
use kube::api::{Patch, PatchParams};
use lab::{Lab, api, create, key, request, until};
use nodes::Replica;
use rcgen::CertificateParams;
use serde_json::{Value, json};
use tokio::sync::watch;

const KUBECONFIG: &str = "clusters: [{name: c, cluster: {server: 'https://api-int.lab:6443', certificate-authority-data: Q0E=}}]\nusers: [{name: kubelet, user: {token: shared-secret}}]\ncontexts: [{name: x, context: {cluster: c, user: kubelet}}]\ncurrent-context: x\n";

/// A hub with its controllers, a pool whose hosts have users of their own, and the cluster they join.
struct Site {
    lab: Lab,
    replica: Replica,
    stop: watch::Sender<bool>,
}

impl Site {
    async fn start(name: &str, first_boot_network: &str) -> Site {
        let lab = Lab::start(name).await;
        let base = json!({"ignition": {"version": "3.2.0"}, "storage": {"files": [{"path": PATHS[0], "mode": 384,
            "contents": {"source": data_url::encode_base64(KUBECONFIG.as_bytes())}}, {"path": "/etc/motd", "contents": {"source": "data:,x"}}]}});
        let base = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "base", "namespace": "default"},
            "stringData": {"config": base.to_string()}});
        create(&lab.hub.client, base).await;
        lab.pool(
            "p",
            json!({"certificates": {"bootstrap": "token"}, "ignition": {"secret": "base"}, "firstBootNetwork": first_boot_network}),
        )
        .await;
        let (stop, stopping) = watch::channel(false);
        let client = controllers::in_process(router(Arc::clone(&lab.hub.server)), "system:kiln:controllers");
        let settings = Settings { patrol: Duration::from_millis(200), ..Settings::default() };
        tokio::spawn(controllers::run_with(client, Pace::default(), settings, stopping));
        // The test asks more often than a machine would, until its config is there.
        let none = Rate { per_second: 0, burst: 0 };
        let limits = NodeLimits { strangers: none, host_token: none, ..NodeLimits::default() };
        let replica = Replica::over(router(Arc::clone(&lab.hub.server)), limits);
        Site { lab, replica, stop }
    }

    /// A new boot token of a host.
    async fn issue(&self, host: &str, before: Option<&BootRecord>) -> (String, BootRecord) {
        let token = make_token().unwrap();
        let record = BootRecord::issue(hash_token(token.text()), before, now(), LIFETIME_SECONDS);
        let mut data = render_record(&record);
        let secrets = api(&self.lab.hub.client, "Secret", "default");
        match before {
            Some(_) => {
                let patch = Patch::Merge(json!({"data": data}));
                secrets.patch(&format!("boot-token-{host}"), &PatchParams::default(), &patch).await.unwrap();
            }
            None => {
                data.as_object_mut().unwrap().retain(|_, value| !value.is_null());
                create(
                    &self.lab.hub.client,
                    json!({"apiVersion": "v1", "kind": "Secret", "type": "kiln.dev/boot-token", "data": data,
                    "metadata": {"name": format!("boot-token-{host}"), "namespace": "default",
                        "labels": {"kiln.dev/ignition": "boot-token", "kiln.dev/host": host}}}),
                )
                .await;
            }
        }
        (token.text().to_owned(), record)
    }

    /// Fetches a host's config: the token in its bootstrap kubeconfig, and its user.
    async fn fetch(&self, token: &str) -> (String, String) {
        let answer = self.replica.fetch_soon(token, "192.0.2.1").await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let config = answer.json();
        let files = config["storage"]["files"].as_array().unwrap();
        let [file] = &files.iter().filter(|file| file["path"] == PATHS[0]).collect::<Vec<_>>()[..] else {
            panic!("{config}")
        };
        assert_eq!(file["mode"], 0o600);
        let text = data_url::decode(file["contents"]["source"].as_str().unwrap()).unwrap();
        let kubeconfig: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(kubeconfig["clusters"][0]["cluster"]["server"], "https://api-int.lab:6443");
        assert!(
            !answer.text().contains(&STANDARD.encode("shared-secret")) && !kubeconfig.to_string().contains("shared")
        );
        let token = kubeconfig["users"][0]["user"]["token"].as_str().unwrap().to_owned();
        let user = format!("system:bootstrap:{}", token.split_once('.').unwrap().0);
        (token, user)
    }

    /// The Secret on the cluster that makes a user's token good.
    async fn secret(&self, user: &str) -> Option<Value> {
        let name = secret_name(user).unwrap();
        let found = api(&self.lab.cluster.client, "Secret", "kube-system").get_opt(&name).await.unwrap();
        found.map(|secret| serde_json::to_value(secret).unwrap())
    }

    async fn until_gone(&self, user: &str) {
        until(&format!("{user} is gone"), async || self.secret(user).await.is_none().then_some(())).await;
    }

    async fn ask(&self, name: &str, user: &str, node: &str) -> String {
        let groups = ["system:bootstrappers", GROUP, "system:authenticated"];
        self.lab.ask(name, lab::CLIENT, user, &groups, &request(node, &[], &key())).await;
        self.lab.decision(name).await
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_host_asks_as_itself_and_its_user_goes_when_it_has_its_certificate() {
    let site = Site::start("bootstrap-user", "composed").await;
    let mut users = Vec::new();
    for host in ["w0", "w1"] {
        site.lab.host(host, "p", Value::Null).await;
        let (token, _) = site.issue(host, None).await;
        users.push(site.fetch(&token).await);
    }
    let [(token, user), (_, other)] = &users[..] else { panic!() };
    assert_ne!(user, other);
    let secret = until("the token is good", async || site.secret(user).await).await;
    let data = |key: &str| String::from_utf8(STANDARD.decode(secret["data"][key].as_str().unwrap()).unwrap()).unwrap();
    assert_eq!(secret["type"], "bootstrap.kubernetes.io/token");
    assert_eq!(format!("{}.{}", data("token-id"), data("token-secret")), *token);
    assert_eq!((data("usage-bootstrap-authentication"), data("auth-extra-groups")), ("true".into(), GROUP.into()));
    let left = parse_time(&data("expiration")).unwrap().0 - now().0;
    assert!((7000..=7200).contains(&left), "{left}");
    assert_eq!(site.lab.host_status("w0").await["provision"]["bootstrapUser"], user.as_str());

    let denied = "Denied KilnDenied identity: the host has a user of its own, and another one asks for it";
    assert_eq!(site.ask("csr-of-another-host", other, "w0").await, denied);
    site.lab.ask_shared("csr-shared", &request("w0", &[], &key())).await;
    assert_eq!(site.lab.decision("csr-shared").await, denied);
    let decision = site.ask("csr-own", user, "w0").await;
    assert!(decision.starts_with("Approved KilnApproved identity: asked by the host's own user"), "{decision}");

    // The cluster signs.
    let certificate = CertificateParams::new(Vec::new()).unwrap().self_signed(&key()).unwrap().pem();
    let patch = Patch::Merge(json!({"status": {"certificate": STANDARD.encode(certificate)}}));
    let requests = api(&site.lab.cluster.client, "CertificateSigningRequest", "");
    requests.patch_status("csr-own", &PatchParams::default(), &patch).await.unwrap();
    site.until_gone(user).await;
    until("the Host says so", async || {
        site.lab.host_status("w0").await["provision"]["bootstrapUser"].is_null().then_some(())
    })
    .await;
    assert!(site.secret(other).await.is_some(), "the other host has not asked yet");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_ends_with_its_generation_with_an_alarm_and_with_its_host() {
    // With the stock network the pool's whole config is served: the shared token must not be in that either.
    let site = Site::start("bootstrap-generations", "stock").await;
    site.lab.host("w0", "p", Value::Null).await;
    let (token, record) = site.issue("w0", None).await;
    let (_, first) = site.fetch(&token).await;
    until("the first is good", async || site.secret(&first).await).await;
    let (token, _) = site.issue("w0", Some(&record)).await;
    let (_, second) = site.fetch(&token).await;
    assert_ne!(first, second);
    until("the second is good", async || site.secret(&second).await).await;
    site.until_gone(&first).await;
    site.lab.status("w0", json!({"provision": {"alarm": "two machines have it"}})).await;
    site.until_gone(&second).await;

    site.lab.host("w1", "p", Value::Null).await;
    let (token, _) = site.issue("w1", None).await;
    let (_, user) = site.fetch(&token).await;
    until("it is good", async || site.secret(&user).await).await;
    api(&site.lab.hub.client, "Host", "default").delete("w1", &Default::default()).await.unwrap();
    site.until_gone(&user).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_that_is_only_claimed_in_a_status_gets_no_token() {
    let site = Site::start("bootstrap-claimed", "composed").await;
    site.lab.host("w0", "p", Value::Null).await;
    let (token, _) = site.issue("w0", None).await;
    site.fetch(&token).await;
    let claimed = "system:bootstrap:aaaaaa";
    let cause = "its bootstrap user: the hub's key or the host's boot token changed since it fetched its config";
    until("the fetch is told", async || {
        site.lab.host_status("w0").await["provision"]["bootstrapUser"].as_str().map(drop)
    })
    .await;
    site.lab.status("w0", json!({"provision": {"bootstrapUser": claimed}})).await;
    until("the timeline says so", async || {
        let timeline = site.lab.host_status("w0").await["timeline"].as_array()?.clone();
        timeline.into_iter().find(|entry| entry["cause"] == cause)
    })
    .await;
    assert_eq!(site.secret(claimed).await, None);
}
