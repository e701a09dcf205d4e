//! Payloads, overlays, tokens and user-data over the embedded API: made, rotated, kept apart and taken away.

#![allow(clippy::unwrap_used, reason = "tests may fail loudly")]

#[path = "support/chaos.rs"]
mod chaos;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::routing::get;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chaos::{Chaos, on_day, on_each_day};
use kiln::hub::controllers::{self, Pace, kinds};
use kiln::hub::definitions::{self, Policy};
use kiln::hub::pools::{Endpoint, Settings};
use kiln::hub::timeline::record;
use kiln_apiserver::tls::{self, Authority};
use kiln_apiserver::{Limits, Server, Tokens, router};
use kiln_core::timeline::{Entry, Moment, Stage};
use kiln_testimage::temp_dir::TempDir;
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::sync::watch;

const GENERATED: &str = "hypershift.openshift.io/last-token-generation-time";
const EXPIRES: &str = "hypershift.openshift.io/ignition-token-expiration-timestamp";

on_each_day! { 23:
    everything_goes_with_the_pool,
    a_config_that_comes_back_is_on_the_hosts_that_fetched_it,
}

/// A hub on that day.
struct Site;

impl Site {
    async fn start(name: &str, chaos: Option<Chaos>) -> Hub {
        Hub::start_on(&format!("pools-{name}"), 1, chaos).await
    }
}

/// An embedded API with controllers on it, whose clock the test turns.
struct Hub {
    client: Client,
    server: Arc<Server>,
    stop: watch::Sender<bool>,
    clock: Arc<AtomicI64>,
    folder: TempDir,
    /// What stands between the controllers and the API.
    day: Option<Chaos>,
}

impl Hub {
    async fn start(name: &str, controllers: usize) -> Hub {
        Hub::start_on(name, controllers, None).await
    }

    async fn start_on(name: &str, controllers: usize, day: Option<Chaos>) -> Hub {
        let folder = TempDir::new(name);
        let server = Server::open(folder.path(), Tokens::default(), Limits::default()).await.unwrap();
        tokio::spawn(Arc::clone(&server).run_janitor());
        let plain = router(Arc::clone(&server));
        let client = controllers::in_process(plain.clone(), "test");
        definitions::install(&client, Policy::Own).await.unwrap();
        let (stop, _) = watch::channel(false);
        let clock = Arc::new(AtomicI64::new(kiln::hub::timeline::now().0));
        let hub = Hub { client, server, stop, clock, folder, day };
        for _ in 0..controllers {
            hub.run_controllers();
        }
        hub.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "site"}})).await;
        hub
    }

    fn run_controllers(&self) {
        let api = on_day(self.day.as_ref(), router(Arc::clone(&self.server)));
        let client = controllers::in_process(api, "system:kiln:controllers");
        let clock = Arc::clone(&self.clock);
        let settings = Settings {
            endpoint: Some(Endpoint { url: "https://hub.lab:8443".into(), authorities: None }),
            clock: Arc::new(move || Moment(clock.load(Ordering::SeqCst))),
            patrol: Duration::from_millis(50),
            ..Settings::default()
        };
        let pace = Pace { retry: Duration::from_millis(50), ..Pace::default() };
        tokio::spawn(controllers::run_with(client, pace, settings, self.stop.subscribe()));
    }

    fn api(&self, kind: &str) -> Api<DynamicObject> {
        let resource = kinds::find(kind).unwrap().resource();
        match kind {
            "Namespace" => Api::all_with(self.client.clone(), &resource),
            _ => Api::namespaced_with(self.client.clone(), "site", &resource),
        }
    }

    async fn create(&self, object: Value) {
        let api = self.api(object["kind"].as_str().unwrap());
        api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    }

    async fn patch(&self, kind: &str, name: &str, patch: Value) {
        self.api(kind).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    async fn secrets(&self, sort: &str) -> Vec<DynamicObject> {
        let options = ListParams::default().labels(&format!("kiln.dev/ignition={sort}"));
        self.api("Secret").list(&options).await.unwrap().items
    }

    /// Waits until the Secrets of a sort are as wished.
    async fn until(&self, sort: &str, what: &str, wished: impl Fn(&[DynamicObject]) -> bool) -> Vec<DynamicObject> {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let secrets = self.secrets(sort).await;
            if wished(&secrets) {
                return secrets;
            }
            let seen: Vec<_> =
                secrets.iter().map(|secret| (&secret.metadata.name, &secret.metadata.annotations)).collect();
            assert!(Instant::now() < deadline, "{what} did not come about: {seen:#?}");
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }

    async fn condition(&self, kind: &str, name: &str, condition: &str, wished: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let object = self.api(kind).get(name).await.unwrap();
            let conditions = object.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let found = conditions.into_iter().find(|found| found["type"] == condition).unwrap_or_default();
            if wished(&found) {
                return found;
            }
            assert!(Instant::now() < deadline, "{condition} of {name} stayed {found}");
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }

    fn turn_clock(&self, seconds: i64) {
        self.clock.fetch_add(seconds, Ordering::SeqCst);
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        self.server.stop();
    }
}

fn data(secret: &DynamicObject, key: &str) -> String {
    let text = secret.data["data"][key].as_str().unwrap_or_default();
    String::from_utf8(STANDARD.decode(text).unwrap()).unwrap()
}

fn config_map(text: &str) -> Value {
    let config = format!(
        "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata: {{name: 50-motd, labels: {{machineconfiguration.openshift.io/role: worker}}}}\nspec:\n  config:\n    ignition: {{version: 3.2.0}}\n    storage: {{files: [{{path: /etc/motd, mode: 420, contents: {{source: \"data:,{text}\"}}}}]}}\n"
    );
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "config", "namespace": "site"}, "data": {"config": config}})
}

fn pool(spec: Value) -> Value {
    json!({"apiVersion": "kiln.dev/v1alpha1", "kind": "Pool", "metadata": {"name": "edge", "namespace": "site"}, "spec": spec})
}

fn host(name: &str, pool: &str) -> Value {
    let mac = format!("52:54:00:00:00:{:02x}", name.bytes().fold(0_u8, u8::wrapping_add));
    json!({"apiVersion": "kiln.dev/v1alpha1", "kind": "Host", "metadata": {"name": name, "namespace": "site"}, "spec": {"pool": pool, "macAddress": mac}})
}

fn node_pool() -> Value {
    json!({"apiVersion": "hypershift.openshift.io/v1beta1", "kind": "NodePool", "metadata": {"name": "np", "namespace": "site"},
        "spec": {"clusterName": "hc", "config": [{"name": "config"}], "management": {"upgradeType": "Replace"}, "platform": {"type": "None"},
            "release": {"image": "quay.io/openshift-release-dev/ocp-release:4.14.3-x86_64"}}})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_with_a_config_map_gets_everything_its_nodes_need() {
    let hub = Hub::start("pools-skeleton", 1).await;
    hub.create(config_map("one")).await;
    hub.create(pool(json!({"config": [{"name": "config"}], "nodeLabels": {"zone": "a"}}))).await;
    hub.create(host("w0", "edge")).await;
    let payload = hub.until("payload", "a payload", |found| found.len() == 1).await.remove(0);
    let overlay = hub.until("overlay", "an overlay", |found| found.len() == 1).await.remove(0);
    let token = hub.until("pool-token", "a token", |found| found.len() == 1).await.remove(0);
    let user_data = hub.until("user-data", "user-data", |found| found.len() == 1).await.remove(0);
    assert_eq!(data(&overlay, "payload"), payload.metadata.name.clone().unwrap());
    assert!(data(&overlay, "files").contains("20-kiln.conf"));
    let packed = STANDARD.decode(payload.data["data"]["config"].as_str().unwrap()).unwrap();
    let config: Value = serde_json::from_slice(&kiln_core::ignition::unpack_gzip(&packed).unwrap()).unwrap();
    assert_eq!(config["storage"]["files"][0]["path"], "/etc/motd");
    assert_eq!(data(&token, "token").len(), 36);
    assert!(data(&user_data, "value").contains(&STANDARD.encode(data(&token, "token"))));
    let ready = hub.condition("Pool", "edge", "PayloadReady", |found| found["status"] == "True").await;
    assert_eq!(ready["reason"], "AsExpected");
    // Nothing is written any more.
    let revision =
        async || hub.api("Secret").list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let before = revision().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(revision().await, before, "somebody goes on writing");
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_rotate_by_the_clock_and_end_when_the_config_changes() {
    let hub = Hub::start("pools-rotation", 1).await;
    hub.create(config_map("one")).await;
    hub.create(pool(json!({"config": [{"name": "config"}]}))).await;
    let first = hub.until("pool-token", "a token", |found| found.len() == 1).await.remove(0);
    hub.turn_clock(19_801);
    let old = data(&first, "token");
    let rotated = hub.until("pool-token", "the rotation", |found| data(&found[0], "token") != old).await.remove(0);
    assert_eq!(data(&rotated, "old_token"), old);
    let new = STANDARD.encode(data(&rotated, "token"));
    hub.until("user-data", "user-data with the new token", |found| {
        found.len() == 1 && data(&found[0], "value").contains(&new)
    })
    .await;
    // Asked for by a person.
    let name = rotated.metadata.name.clone().unwrap();
    hub.patch("Secret", &name, json!({"metadata": {"annotations": {GENERATED: null}}})).await;
    let before = data(&rotated, "token");
    hub.until("pool-token", "the wished rotation", |found| data(&found[0], "old_token") == before).await;
    // Another config: the old token gets its end, once, and goes then.
    hub.api("ConfigMap").delete("config", &DeleteParams::default()).await.unwrap();
    hub.create(config_map("two")).await;
    let is_old = |secret: &&DynamicObject| secret.metadata.name.as_deref() == Some(&name);
    let end = |found: &[DynamicObject]| {
        found.iter().find(is_old).and_then(|old| old.metadata.annotations.as_ref()?.get(EXPIRES).cloned())
    };
    let found = hub.until("pool-token", "an end for the old token", |found| end(found).is_some()).await;
    let set = end(&found);
    hub.turn_clock(3_600);
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(end(&hub.secrets("pool-token").await), set);
    hub.turn_clock(3_601);
    let left =
        hub.until("pool-token", "the old token to go", |found| !found.iter().any(|secret| is_old(&secret))).await;
    assert!(!left.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn two_controllers_at_once_never_undo_each_others_tokens() {
    let hub = Hub::start("pools-two", 2).await;
    hub.create(config_map("one")).await;
    hub.create(pool(json!({"config": [{"name": "config"}]}))).await;
    hub.create(host("w0", "edge")).await;
    let mut token = hub.until("pool-token", "a token", |found| found.len() == 1).await.remove(0);
    for _ in 0..8 {
        let before = data(&token, "token");
        hub.turn_clock(19_801);
        token = hub.until("pool-token", "the rotation", |found| data(&found[0], "token") != before).await.remove(0);
        assert_eq!(data(&token, "old_token"), before, "a token was lost: it was valid for nobody");
        let new = STANDARD.encode(data(&token, "token"));
        hub.until("user-data", "user-data", |found| found.len() == 1 && data(&found[0], "value").contains(&new)).await;
        assert_eq!(data(&hub.secrets("pool-token").await[0], "token"), data(&token, "token"));
    }
    assert_eq!((hub.secrets("payload").await.len(), hub.secrets("overlay").await.len()), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_hosts_change_among_three_hundred_costs_one_write() {
    const HOSTS: usize = 300;
    let hub = Hub::start("pools-many", 1).await;
    hub.create(config_map("one")).await;
    hub.create(pool(json!({"config": [{"name": "config"}]}))).await;
    for number in 0..HOSTS {
        hub.create(json!({"apiVersion": "kiln.dev/v1alpha1", "kind": "Host", "metadata": {"name": format!("w{number}"), "namespace": "site"},
            "spec": {"pool": "edge", "macAddress": format!("52:54:00:00:{:02x}:{:02x}", number >> 8, number & 0xff)}}))
        .await;
    }
    let before = hub.until("overlay", "an overlay for each", |found| found.len() == HOSTS).await;
    hub.patch("Host", "w7", json!({"spec": {"hostname": "seven"}})).await;
    let id = |found: &[DynamicObject]| {
        found
            .iter()
            .find(|secret| secret.metadata.name.as_deref() == Some("overlay-w7"))
            .map(|secret| data(secret, "id"))
    };
    let old = id(&before);
    let after = hub.until("overlay", "the overlay of w7", |found| id(found) != old).await;
    let revisions = |found: &[DynamicObject]| -> HashSet<String> {
        found.iter().filter_map(|secret| secret.metadata.resource_version.clone()).collect()
    };
    assert_eq!(revisions(&after).difference(&revisions(&before)).count(), 1);
    assert_eq!((hub.secrets("payload").await.len(), hub.secrets("pool-token").await.len()), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn contents_of_a_secret_change_the_payload_and_a_pool_keeps_its_last_good_one() {
    let hub = Hub::start("pools-secret", 1).await;
    let base = |text: &str| {
        STANDARD.encode(format!(r#"{{"ignition":{{"version":"3.2.0"}},"storage":{{"files":[{{"path":"/etc/secret","mode":384,"contents":{{"source":"data:,{text}"}}}}]}}}}"#))
    };
    hub.create(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "base", "namespace": "site"}, "data": {"config": base("1")}})).await;
    hub.create(pool(json!({"ignition": {"secret": "base"}}))).await;
    hub.create(host("w0", "edge")).await;
    let first = hub.until("payload", "a payload", |found| found.len() == 1).await.remove(0);
    let refers = |found: &[DynamicObject], to: &DynamicObject| {
        found.len() == 1 && data(&found[0], "payload") == to.metadata.name.clone().unwrap()
    };
    hub.until("overlay", "an overlay", |found| refers(found, &first)).await;
    hub.patch("Secret", "base", json!({"data": {"config": base("2")}})).await;
    let id = data(&first, "id");
    let found =
        hub.until("payload", "another payload", |found| found.iter().any(|other| data(other, "id") != id)).await;
    let second = found.into_iter().find(|other| data(other, "id") != id).unwrap();
    hub.until("overlay", "an overlay over the new payload", |found| refers(found, &second)).await;
    hub.patch("Secret", "base", json!({"data": {"config": STANDARD.encode("broken")}})).await;
    let failed = hub.condition("Pool", "edge", "PayloadReady", |found| found["status"] == "False").await;
    assert_eq!(failed["reason"], "InvalidConfig");
    assert!(failed["message"].as_str().unwrap().starts_with("Secret site/base is no Ignition config: "), "{failed}");
    assert!(!failed["message"].as_str().unwrap().contains("broken"), "contents of Secrets are not repeated");
    assert!(refers(&hub.secrets("overlay").await, &second));
    assert!(hub.secrets("payload").await.iter().any(|payload| payload.metadata.name == second.metadata.name));
}

async fn everything_goes_with_the_pool(hub: Hub) {
    hub.create(config_map("one")).await;
    hub.create(pool(json!({"config": [{"name": "config"}]}))).await;
    hub.create(host("w0", "edge")).await;
    for sort in ["payload", "overlay", "pool-token", "user-data"] {
        hub.until(sort, sort, |found| found.len() == 1).await;
    }
    hub.api("Pool").delete("edge", &DeleteParams::default()).await.unwrap();
    for sort in ["payload", "overlay", "pool-token", "user-data"] {
        hub.until(sort, "nothing left", <[DynamicObject]>::is_empty).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_config_is_fetched_with_its_authority_and_laid_under_the_pools() {
    let hub = Hub::start("pools-upstream", 1).await;
    let authority = Authority::open(hub.folder.path()).unwrap();
    let tls = authority.server_config(&["127.0.0.1".into()]).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/config/worker", listener.local_addr().unwrap());
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    let answer = move |headers: axum::http::HeaderMap| async move {
        counter.fetch_add(1, Ordering::SeqCst);
        assert!(headers["accept"].to_str().unwrap().starts_with("application/vnd.coreos.ignition+json;version=3."));
        r#"{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/etc/kubernetes/kubeconfig","contents":{"source":"data:,upstream"}}]}}"#
    };
    let upstream = axum::Router::new().route("/config/worker", get(answer));
    tokio::spawn(tls::serve_bounded(Arc::clone(&hub.server), listener, upstream, tls));
    hub.create(config_map("mine")).await;
    hub.create(pool(
        json!({"config": [{"name": "config"}], "ignition": {"upstream": {"url": url, "caSecret": "mcs-ca"}}}),
    ))
    .await;
    let failed = hub.condition("Pool", "edge", "PayloadReady", |found| found["status"] == "False").await;
    assert_eq!(failed["message"], format!("{url}: there is no Secret site/mcs-ca"));
    let ca = STANDARD.encode(authority.certificate());
    hub.create(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "mcs-ca", "namespace": "site"}, "data": {"ca.crt": ca}})).await;
    let payload = hub.until("payload", "a payload", |found| found.len() == 1).await.remove(0);
    let packed = STANDARD.decode(payload.data["data"]["config"].as_str().unwrap()).unwrap();
    let config: Value = serde_json::from_slice(&kiln_core::ignition::unpack_gzip(&packed).unwrap()).unwrap();
    let paths: HashSet<&str> =
        config["storage"]["files"].as_array().unwrap().iter().map(|file| file["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["/etc/kubernetes/kubeconfig", "/etc/motd"].into());
    assert_eq!(asked.load(Ordering::SeqCst), 1, "what was fetched is kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_pool_says_what_is_true_of_each_host() {
    let hub = Hub::start("pools-conditions", 1).await;
    hub.create(config_map("one")).await;
    hub.create(node_pool()).await;
    hub.create(host("w0", "np")).await;
    hub.create(host("w1", "np")).await;
    hub.condition("NodePool", "np", "ValidGeneratedPayload", |found| found["status"] == "True").await;
    let reached = "ReachedIgnitionEndpoint";
    let both = "2 of 2 hosts have not fetched their config: w0, w1";
    hub.condition("NodePool", "np", reached, |found| found["message"] == both).await;
    hub.until("pool-token", "a token", |found| found.len() == 1).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let fetched =
        Entry::reached(Stage::IgnitionFetched, kiln::hub::timeline::now(), "ignition endpoint", "10.0.0.7 fetched");
    record(&hub.client, "site", "w0", &fetched).await.unwrap();
    let one = hub
        .condition("NodePool", "np", reached, |found| {
            found["message"].as_str().is_some_and(|text| text.starts_with("1 of"))
        })
        .await;
    assert_eq!((one["status"].as_str(), one["reason"].as_str()), (Some("False"), Some("ignitionNotReached")));
    assert_eq!(one["message"], "1 of 2 hosts have not fetched their config: w1");
    record(&hub.client, "site", "w1", &fetched).await.unwrap();
    hub.condition("NodePool", "np", reached, |found| found["status"] == "True").await;
    hub.condition("NodePool", "np", "UpdatingConfig", |found| found["status"] == "False").await;
    let version = hub.condition("NodePool", "np", "UpdatingVersion", |found| found["status"] == "True").await;
    assert_eq!(version["message"], "version 4.14.3 is not proven on every host: 0 of 2 hosts are ready");
    // A token that is taken back changes no config.
    let token = hub.secrets("pool-token").await.remove(0);
    tokio::time::sleep(Duration::from_secs(1)).await;
    hub.api("Secret").delete(token.metadata.name.as_deref().unwrap(), &DeleteParams::default()).await.unwrap();
    hub.until("pool-token", "another token", |found| found.len() == 1 && found[0].metadata.uid != token.metadata.uid)
        .await;
    hub.condition("NodePool", "np", "ValidGeneratedPayload", |found| found["status"] == "True").await;
    hub.condition("NodePool", "np", "UpdatingConfig", |found| found["status"] == "False").await;
    // A new config is not on the hosts because it was rendered.
    tokio::time::sleep(Duration::from_secs(1)).await;
    hub.api("ConfigMap").delete("config", &DeleteParams::default()).await.unwrap();
    hub.create(config_map("two")).await;
    let updating = hub.condition("NodePool", "np", "UpdatingConfig", |found| found["status"] == "True").await;
    assert!(
        updating["message"].as_str().unwrap().ends_with("is not on 2 hosts, which fetched another one: w0, w1"),
        "{updating}"
    );
}

async fn a_config_that_comes_back_is_on_the_hosts_that_fetched_it(hub: Hub) {
    hub.create(config_map("one")).await;
    hub.create(pool(json!({"config": [{"name": "config"}]}))).await;
    hub.create(host("w0", "edge")).await;
    let overlay = hub.until("overlay", "an overlay", |found| found.len() == 1).await.remove(0);
    let fetched = Entry::reached(Stage::IgnitionFetched, kiln::hub::timeline::now(), "ignition endpoint", "fetched");
    record(&hub.client, "site", "w0", &fetched).await.unwrap();
    let status = json!({"status": {"provision": {"payload": data(&overlay, "payload")}}});
    hub.api("Host").patch_status("w0", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    let updating = async |truth: &str| {
        hub.condition("Pool", "edge", "UpdatingConfig", |found| found["status"] == truth).await["message"].clone()
    };
    assert_eq!(updating("False").await, "");
    // Its payload is made anew when it comes back, later than the host fetched: the time says nothing.
    hub.turn_clock(7_200);
    for (text, truth) in [("two", "True"), ("one", "False")] {
        hub.patch("ConfigMap", "config", json!({"data": config_map(text)["data"]})).await;
        let message = updating(truth).await;
        let told = message.as_str().unwrap().ends_with("is not on 1 hosts, which fetched another one: w0");
        assert_eq!(told, truth == "True", "{message}");
    }
}
