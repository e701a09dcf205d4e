//! Late hosts and what is done about them, over the embedded API, on a good day and on a bad one.

#![allow(clippy::unwrap_used, reason = "tests may fail loudly")]

#[path = "support/chaos.rs"]
mod chaos;
#[path = "support/lab.rs"]
mod lab;

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chaos::{Chaos, on_day, on_each_day};
use kiln::hub::approval::{self, Approver};
use kiln::hub::boot_secrets::{decode_text, hash_token, parse_record, render_record};
use kiln::hub::controllers;
use kiln::hub::health::repair::REBOOT;
use kiln::hub::pools::Endpoint;
use kiln::hub::timeline::{now, record};
use kiln_apiserver::router;
use kiln_core::boot_token::{BootRecord, Use};
use kiln_core::timeline::{Entry, Stage};
use kube::api::{Patch, PatchParams};
use lab::{Embedded, ago, api, create, until};
use serde_json::{Value, json};
use tokio::sync::watch;

on_each_day! { 13:
    power_is_cycled_by_the_bare_metal_host_and_one_host_of_a_pool_at_a_time,
    without_a_bare_metal_host_a_person_is_told_what_to_do,
    a_host_that_begins_anew_gets_a_new_token_and_its_pointer,
}

/// A hub that looks after its hosts.
struct Site {
    hub: Embedded,
    stop: watch::Sender<bool>,
}

impl Site {
    async fn start(name: &str, chaos: Option<Chaos>) -> Site {
        let hub = Embedded::start(&format!("repair-{name}")).await;
        let theirs = on_day(chaos.as_ref(), router(Arc::clone(&hub.server)));
        let approver = Approver {
            endpoint: Some(Endpoint { url: "https://hub.lab:8443".into(), authorities: None }),
            ..Approver::new(controllers::in_process(theirs, "system:kiln:approver"))
        };
        let (stop, stopping) = watch::channel(false);
        tokio::spawn(approver.following().run(approver.hub.clone()));
        tokio::spawn(approval::run(approver, stopping));
        Site { hub, stop }
    }

    async fn create(&self, kind: &str, name: &str, spec: Value) {
        let version = if kind == "BareMetalHost" { "metal3.io/v1alpha1" } else { "kiln.dev/v1alpha1" };
        let metadata = json!({"name": name, "namespace": "default"});
        let object = json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec});
        create(&self.hub.client, object).await;
    }

    async fn pool(&self, policy: &str) {
        let health =
            json!({"stages": {"RealRoot": "1s", "ClientCSR": "1s"}, "repair": {"policy": policy, "attempts": 1}});
        self.create("Pool", "p", json!({"health": health})).await;
    }

    /// A host that fetched its config long ago.
    async fn late_host(&self, name: &str) {
        self.create("Host", name, json!({"pool": "p"})).await;
        let timeline =
            json!([{"stage": "IgnitionFetched", "outcome": "Reached", "time": ago(7200), "source": "s", "cause": "c"}]);
        self.status("Host", name, json!({"timeline": timeline})).await;
    }

    async fn status(&self, kind: &str, name: &str, status: Value) {
        let patch = Patch::Merge(json!({"status": status}));
        api(&self.hub.client, kind, "default").patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Waits until the Host's status is as wished.
    async fn until(&self, what: &str, host: &str, wished: impl Fn(&Value) -> bool) -> Value {
        until(what, async || {
            let status = api(&self.hub.client, "Host", "default").get(host).await.unwrap().data["status"].take();
            wished(&status).then_some(status)
        })
        .await
    }

    async fn annotation(&self, machine: &str) -> Option<String> {
        let object = api(&self.hub.client, "BareMetalHost", "default").get(machine).await.unwrap();
        object.metadata.annotations.unwrap_or_default().get(REBOOT).cloned()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

fn healthy(status: &Value) -> Value {
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|condition| condition["type"] == "Healthy").unwrap_or_default()
}

async fn power_is_cycled_by_the_bare_metal_host_and_one_host_of_a_pool_at_a_time(site: Site) {
    site.pool("Repower").await;
    for host in ["w0", "w1"] {
        site.create("BareMetalHost", host, json!({"online": true})).await;
        site.late_host(host).await;
    }
    let (first, second) = until("one of them is repaired", async || {
        let asked = [site.annotation("w0").await, site.annotation("w1").await];
        match asked.each_ref().map(Option::as_deref) {
            [Some(r#"{"mode":"hard"}"#), None] => Some(("w0", "w1")),
            [None, Some(r#"{"mode":"hard"}"#)] => Some(("w1", "w0")),
            [Some(_), Some(_)] => panic!("both at once"),
            _ => None,
        }
    })
    .await;
    let status = site.until("it says so", first, |status| status["provision"]["wanted"]["reboot"] == "Asked").await;
    assert_eq!(
        (&status["provision"]["wanted"]["action"], &status["provision"]["wanted"]["attempt"]),
        (&json!("PowerCycle"), &json!(1))
    );
    let told = status["timeline"].as_array().unwrap().iter().any(|entry| {
        entry["source"] == "health of hosts" && entry["outcome"] == "Failed" && entry["stage"] == "ClientCSR"
    });
    assert!(told, "{status}");
    site.until("the other waits for its turn", second, |status| healthy(status)["reason"] == "WaitsForItsTurn").await;
    // Off: now it may go on again.
    site.status("BareMetalHost", first, json!({"poweredOn": false})).await;
    site.until("the cycle is done", first, |status| status["provision"]["wanted"]["reboot"] == "Done").await;
    assert_eq!(site.annotation(first).await, None);
    assert_eq!(site.annotation(second).await, None, "the first has time and is not well yet");
    let ready = Entry::reached(Stage::Ready, now(), format!("Node {first}"), "it is");
    record(&site.hub.client, "default", first, &ready).await.unwrap();
    site.until("nothing is wanted any more", first, |status| status["provision"]["wanted"].is_null()).await;
    until("it is the other's turn", async || site.annotation(second).await).await;
}

async fn without_a_bare_metal_host_a_person_is_told_what_to_do(site: Site) {
    site.pool("Repower").await;
    site.late_host("w0").await;
    let by_hand = "there is no BareMetalHost default/w0 to cycle its power by: do it by hand, as with `ipmitool -I lanplus -H BMC chassis power cycle`";
    site.until("the condition says so", "w0", |status| {
        healthy(status)["message"].as_str().is_some_and(|message| message.ends_with(by_hand))
    })
    .await;
}

async fn a_host_that_begins_anew_gets_a_new_token_and_its_pointer(site: Site) {
    let old = BootRecord::issue(hash_token("old"), None, now(), 3600);
    let old = BootRecord { used: Some(Use { at: now(), source: "192.0.2.7".parse().unwrap() }), ..old };
    let mut data = render_record(&old);
    data.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    create(
        &site.hub.client,
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "boot-token-w0", "namespace": "default"}, "data": data}),
    )
    .await;
    site.pool("Reprovision").await;
    site.late_host("w0").await;
    let status = site
        .until("it begins anew", "w0", |status| status["provision"]["wanted"]["userData"] == "boot-user-data-w0")
        .await;
    assert_eq!(status["provision"]["wanted"]["action"], "Reprovision");
    let secrets = api(&site.hub.client, "Secret", "default");
    let fresh = parse_record(&secrets.get("boot-token-w0").await.unwrap().data["data"]).unwrap();
    assert!(fresh.generation >= 2 && fresh.used.is_none() && fresh.revoked.is_none(), "{fresh:?}");
    let pointer = decode_text(&secrets.get("boot-user-data-w0").await.unwrap().data["data"], "value").unwrap();
    let pointer: Value = serde_json::from_str(&pointer).unwrap();
    let merged = &pointer["ignition"]["config"]["merge"][0];
    assert_eq!(merged["source"], "https://hub.lab:8443/ignition");
    let bearer = merged["httpHeaders"][0]["value"].as_str().unwrap().strip_prefix("Bearer ").unwrap();
    let token = String::from_utf8(STANDARD.decode(bearer).unwrap()).unwrap();
    assert_eq!(hash_token(&token), fresh.hash, "the pointer has the token the hub knows");
    assert!(!status.to_string().contains(&token), "it stands in no status");
    // A host that is well needs no pointer.
    record(&site.hub.client, "default", "w0", &Entry::reached(Stage::Ready, now(), "Node w0", "it is")).await.unwrap();
    site.until("nothing is wanted any more", "w0", |status| status["provision"]["wanted"].is_null()).await;
    assert!(secrets.get_opt("boot-user-data-w0").await.unwrap().is_none());
}
