//! The dialect controllers over the embedded API, on a good day and on bad ones: both end in the same state.

#![allow(clippy::unwrap_used, reason = "tests may fail loudly")]

#[path = "support/chaos.rs"]
mod chaos;

use std::sync::Arc;
use std::time::{Duration, Instant};

use chaos::Chaos;
use kiln::hub::controllers::{self, Pace, kinds};
use kiln::hub::definitions::{self, Policy};
use kiln_apiserver::{Limits, Server, Tokens, router};
use kiln_testimage::temp_dir::TempDir;
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::sync::watch;

/// How the API treats the controllers. Whoever tests talks to it undisturbed.
enum Day {
    Good,
    Bad(Chaos),
}

/// Each of these on a good day and on a bad one.
macro_rules! on_each_day {
    ($($name:ident),* $(,)?) => {
        mod on_a_good_day {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$name(super::Day::Good).await;
            })*
        }
        mod on_a_bad_day {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                let chaos = super::Chaos::new(7);
                super::$name(super::Day::Bad(chaos.clone())).await;
                chaos.was_bad();
            })*
        }
    };
}

on_each_day! {
    upstream_kinds_become_kilns_objects_and_their_status_comes_back_in_their_words,
    when_all_is_said_nothing_is_written_any_more,
    what_a_person_wrote_is_left_alone_and_what_lost_its_source_goes,
    findings_across_objects_come_and_go_with_any_of_them,
    what_is_found_is_a_condition_of_every_kind_that_can_hold_one,
    nodes_and_agents_are_evidence,
    two_witnesses_do_not_lose_each_others_entries,
}

/// An embedded API with the controllers on it.
struct Hub {
    client: Client,
    server: Arc<Server>,
    stop: watch::Sender<bool>,
    _folder: TempDir,
}

impl Hub {
    async fn start(name: &str, day: &Day) -> Hub {
        let folder = TempDir::new(name);
        let server = Server::open(folder.path(), Tokens::default(), Limits::default()).await.unwrap();
        tokio::spawn(Arc::clone(&server).run_janitor());
        let plain = router(Arc::clone(&server));
        let client = controllers::in_process(plain.clone(), "test");
        definitions::install(&client, Policy::Own).await.unwrap();
        let theirs = match day {
            Day::Good => plain,
            Day::Bad(chaos) => chaos.over(plain),
        };
        let (stop, stopping) = watch::channel(false);
        let pace = Pace { retry: Duration::from_millis(50), ..Pace::default() };
        tokio::spawn(controllers::run(controllers::in_process(theirs, "system:kiln:controllers"), pace, stopping));
        Hub { client, server, stop, _folder: folder }
    }

    fn api(&self, kind: &str, namespace: &str) -> Api<DynamicObject> {
        let resource = kinds::find(kind).unwrap().resource();
        match namespace {
            "" => Api::all_with(self.client.clone(), &resource),
            namespace => Api::namespaced_with(self.client.clone(), namespace, &resource),
        }
    }

    async fn apply(&self, objects: &[Value]) {
        for object in objects {
            let kind = object["kind"].as_str().unwrap();
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
            let object: DynamicObject = serde_json::from_value(object.clone()).unwrap();
            self.api(kind, namespace).create(&PostParams::default(), &object).await.unwrap();
        }
    }

    /// Everything the controllers wrote, without what differs from run to run.
    async fn state(&self) -> Value {
        let mut state = json!({});
        for kind in [
            "Host",
            "Pool",
            "Image",
            "BareMetalHost",
            "InfraEnv",
            "Agent",
            "AgentClusterInstall",
            "NodePool",
            "MachineConfigPool",
            "NodeNetworkConfigurationPolicy",
            "NMStateConfig",
            "AgentServiceConfig",
            "KubeletConfig",
            "SiteConfig",
        ] {
            let all: Api<DynamicObject> = Api::all_with(self.client.clone(), &kinds::find(kind).unwrap().resource());
            for object in all.list(&ListParams::default()).await.unwrap() {
                let place = format!(
                    "{kind} {}/{}",
                    object.metadata.namespace.unwrap_or_default(),
                    object.metadata.name.unwrap()
                );
                let from = object.metadata.labels.unwrap_or_default().get("kiln.dev/from").cloned();
                let spec =
                    if ["Host", "Pool", "Image"].contains(&kind) { object.data["spec"].clone() } else { Value::Null };
                let mut entry = json!({"from": from, "spec": spec, "status": object.data["status"]});
                forget_times(&mut entry);
                forget_what_was_put_right(&mut entry["status"]);
                state[place] = entry;
            }
        }
        state
    }

    /// Waits until the state is as wished.
    async fn until(&self, what: &str, wished: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let state = self.state().await;
            if wished(&state) {
                return state;
            }
            assert!(Instant::now() < deadline, "{what} did not come about: {state:#}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until nothing changes any more.
    async fn settled(&self) -> Value {
        let mut before = self.state().await;
        let mut since = Instant::now();
        // Longer than a look takes on a busy machine, with the rest after it.
        while since.elapsed() < Duration::from_secs(2) {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let now = self.state().await;
            if now != before {
                (before, since) = (now, Instant::now());
            }
        }
        before
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        self.server.stop();
    }
}

/// That something was found for a moment, while half of the objects were there, differs from run to run.
fn forget_what_was_put_right(status: &mut Value) {
    let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut) else { return };
    conditions.retain(|condition| condition["type"] != "kiln.dev/Findings" || condition["status"] == "True");
    if conditions.is_empty() && status.as_object().is_some_and(|status| status.len() == 1) {
        *status = Value::Null;
    }
}

fn forget_times(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.shift_remove("lastTransitionTime");
            fields.shift_remove("lastHeartbeatTime");
            fields.shift_remove("time");
            // Whether two changes came at once or one after the other differs too.
            fields.shift_remove("observedGeneration");
            fields.values_mut().for_each(forget_times);
        }
        Value::Array(items) => items.iter_mut().for_each(forget_times),
        _ => {}
    }
}

fn condition<'s>(state: &'s Value, place: &str, kind: &str) -> &'s Value {
    let conditions = state[place]["status"]["conditions"].as_array();
    conditions.and_then(|all| all.iter().find(|condition| condition["type"] == kind)).unwrap_or(&Value::Null)
}

fn namespace() -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "site"}})
}

fn bare_metal_host(name: &str, mac: &str) -> Value {
    json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
        "metadata": {"name": name, "namespace": "site", "labels": {"infraenvs.agent-install.openshift.io": "env"},
            "annotations": {"bmac.agent-install.openshift.io/role": "worker", "bmac.agent-install.openshift.io/hostname": format!("{name}.lab"),
                "bmac.agent-install.openshift.io.node-label.zone": "a"}},
        "spec": {"online": true, "bootMACAddress": mac, "bmc": {"address": format!("redfish-virtualmedia://10.0.0.1/redfish/v1/Systems/{name}"), "credentialsName": "bmc"},
            "rootDeviceHints": {"deviceName": "/dev/sda", "minSizeGigabytes": 100, "rotational": false}}})
}

fn network(name: &str, mac: &str) -> Value {
    json!({"apiVersion": "agent-install.openshift.io/v1beta1", "kind": "NMStateConfig",
        "metadata": {"name": name, "namespace": "site", "labels": {"site": "lab"}},
        "spec": {"interfaces": [{"name": "eth0", "macAddress": mac}],
            "config": {"interfaces": [{"name": "eth0", "type": "ethernet", "state": "up", "ipv4": {"enabled": true, "dhcp": true}}]}}})
}

/// A small site: two hosts, one machine that somebody will boot, a pool of each dialect, an image, a cluster, a policy.
fn site() -> Vec<Value> {
    vec![
        namespace(),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "bmc", "namespace": "site"}, "stringData": {"username": "a", "password": "b"}}),
        json!({"apiVersion": "agent-install.openshift.io/v1beta1", "kind": "InfraEnv", "metadata": {"name": "env", "namespace": "site"},
            "spec": {"pullSecretRef": {"name": "pull"}, "clusterRef": {"name": "c", "namespace": "site"}, "nmStateConfigLabelSelector": {"matchLabels": {"site": "lab"}}}}),
        bare_metal_host("w0", "52:54:00:00:00:01"),
        bare_metal_host("w1", "52:54:00:00:00:02"),
        network("w0", "52:54:00:00:00:01"),
        network("stray", "52:54:00:00:00:09"),
        json!({"apiVersion": "extensions.hive.openshift.io/v1beta1", "kind": "AgentClusterInstall", "metadata": {"name": "c", "namespace": "site"},
            "spec": {"clusterDeploymentRef": {"name": "c"}, "imageSetRef": {"name": "img"}, "networking": {"machineNetwork": [{"cidr": "10.0.0.0/24"}]}, "provisionRequirements": {"controlPlaneAgents": 1, "workerAgents": 2}}}),
        json!({"apiVersion": "hypershift.openshift.io/v1beta1", "kind": "NodePool", "metadata": {"name": "np", "namespace": "site"},
            "spec": {"clusterName": "hc", "replicas": 2, "management": {"upgradeType": "InPlace"}, "platform": {"type": "None"}, "release": {"image": "quay.io/x:4.14"}}}),
        json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool", "metadata": {"name": "worker"},
            "spec": {"machineConfigSelector": {"matchLabels": {"machineconfiguration.openshift.io/role": "worker"}}, "nodeSelector": {"matchLabels": {"node-role.kubernetes.io/worker": ""}}, "maxUnavailable": 2}}),
        json!({"apiVersion": "agent-install.openshift.io/v1beta1", "kind": "AgentServiceConfig", "metadata": {"name": "agent"},
            "spec": {"databaseStorage": {}, "filesystemStorage": {}, "osImages": [{"openshiftVersion": "4.14", "version": "414.1", "url": "https://images.lab/rhcos.iso", "cpuArchitecture": "x86_64"}]}}),
        json!({"apiVersion": "nmstate.io/v1", "kind": "NodeNetworkConfigurationPolicy", "metadata": {"name": "p"}, "spec": {"desiredState": {"interfaces": []}}}),
    ]
}

fn is_complete(state: &Value) -> bool {
    ["Host site/w0", "Host site/w1", "Host site/stray", "Pool site/np", "Pool default/worker", "Image /os-4.14-x86-64"]
        .iter()
        .all(|place| state[*place]["status"]["conditions"].is_array())
        && [
            "InfraEnv site/env",
            "AgentClusterInstall site/c",
            "NodePool site/np",
            "MachineConfigPool /worker",
            "NodeNetworkConfigurationPolicy /p",
        ]
        .iter()
        .all(|place| state[*place]["status"]["conditions"].is_array())
}

async fn upstream_kinds_become_kilns_objects_and_their_status_comes_back_in_their_words(day: Day) {
    let hub = Hub::start("controllers-plain", &day).await;
    hub.apply(&site()).await;
    hub.until("the whole site", is_complete).await;
    let state = hub.settled().await;
    let host = &state["Host site/w0"];
    assert_eq!(host["from"], "baremetalhost");
    assert_eq!(
        host["spec"],
        json!({
            "bmc": {"address": "redfish-virtualmedia://10.0.0.1/redfish/v1/Systems/w0", "credentialsName": "bmc"},
            "cluster": {"name": "c", "namespace": "site"}, "hostname": "w0.lab",
            "installDisk": {"deviceName": "/dev/sda", "minSizeGigabytes": 100, "rotational": false},
            "macAddress": "52:54:00:00:00:01",
            "network": {"interfaces": [{"name": "eth0", "type": "ethernet", "state": "up", "ipv4": {"enabled": true, "dhcp": true}}]},
            "nics": [{"name": "eth0", "macAddress": "52:54:00:00:00:01"}],
            "nodeLabels": {"zone": "a"}, "pool": "worker", "role": "worker",
        })
    );
    assert_eq!(host["status"]["stage"], "Declared");
    assert_eq!(
        host["status"]["timeline"],
        json!([{"stage": "Declared", "outcome": "Reached", "source": "BareMetalHost site/w0", "cause": "the object was created"}])
    );
    assert_eq!(state["Host site/w1"]["spec"]["network"], Value::Null);
    assert_eq!(state["Host site/stray"]["from"], "nmstateconfig");
    assert_eq!(state["Pool site/np"]["from"], "nodepool");
    assert_eq!(state["Pool default/worker"]["spec"]["maxUnavailable"], 2);
    assert_eq!(state["Pool default/worker"]["status"]["hosts"], 3);
    assert_eq!(state["Image /os-4.14-x86-64"]["spec"]["url"], "https://images.lab/rhcos.iso");
    let image = condition(&state, "InfraEnv site/env", "ImageCreated");
    assert_eq!((image["status"].as_str(), image["reason"].as_str()), (Some("Unknown"), Some("NotDriven")), "{image}");
    // No agent speaks for any of the hosts.
    let ignored = condition(&state, "NodeNetworkConfigurationPolicy /p", "Ignored");
    assert_eq!((ignored["status"].as_str(), ignored["reason"].as_str()), (Some("True"), Some("NoMatchingNode")));
    let met = condition(&state, "AgentClusterInstall site/c", "RequirementsMet");
    assert_eq!(met["status"], "False", "{met}");
    let reached = condition(&state, "NodePool site/np", "ReachedIgnitionEndpoint");
    assert_eq!((reached["status"].as_str(), reached["reason"].as_str()), (Some("False"), Some("ignitionNotReached")));
}

async fn when_all_is_said_nothing_is_written_any_more(day: Day) {
    let hub = Hub::start("controllers-quiet", &day).await;
    hub.apply(&site()).await;
    hub.until("the whole site", is_complete).await;
    hub.settled().await;
    let hosts: Api<DynamicObject> = Api::all_with(hub.client.clone(), &kinds::HOST.resource());
    let revision = async || hosts.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let before = revision().await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(revision().await, before, "somebody goes on writing");
}

async fn what_a_person_wrote_is_left_alone_and_what_lost_its_source_goes(day: Day) {
    let hub = Hub::start("controllers-people", &day).await;
    let own = json!({"apiVersion": "kiln.dev/v1alpha1", "kind": "Host", "metadata": {"name": "w0", "namespace": "site"},
        "spec": {"hostname": "mine", "macAddress": "52:54:00:00:00:77"}});
    hub.apply(&[namespace(), own.clone()]).await;
    hub.apply(&site()[1..]).await;
    let state = hub.until("the whole site", is_complete).await;
    assert_eq!((&state["Host site/w0"]["spec"], &state["Host site/w0"]["from"]), (&own["spec"], &Value::Null));
    // A label of somebody else's on an object that Kiln made stays, a changed spec is put right.
    let patch = json!({"metadata": {"labels": {"mine": "yes"}}, "spec": {"hostname": "changed"}});
    hub.api("Host", "site").patch("w1", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    hub.until("the spec put right", |state| state["Host site/w1"]["spec"]["hostname"] == "w1.lab").await;
    let made = hub.api("Host", "site").get("w1").await.unwrap();
    assert_eq!(made.metadata.labels.unwrap().get("mine").map(String::as_str), Some("yes"));
    // The machine behind the stray network gets a name: its Host is made from that now.
    hub.apply(&[bare_metal_host("named", "52:54:00:00:00:09")]).await;
    hub.until("the stray Host to go", |state| {
        state["Host site/stray"].is_null() && !state["Host site/named"].is_null()
    })
    .await;
    hub.api("BareMetalHost", "site").delete("w1", &DeleteParams::default()).await.unwrap();
    hub.until("the Host to go with its source", |state| state["Host site/w1"].is_null()).await;
}

async fn findings_across_objects_come_and_go_with_any_of_them(day: Day) {
    let hub = Hub::start("controllers-findings", &day).await;
    hub.apply(&site()).await;
    hub.until("the whole site", is_complete).await;
    hub.apply(&[bare_metal_host("twin", "52:54:00:00:00:01")]).await;
    // It is told at the second of the two, which is w0.
    let has_twin = |state: &Value| {
        let found = state["Host site/w0"]["status"]["findings"].as_array();
        found.is_some_and(|found| found.iter().any(|finding| finding["code"] == "KLN0315"))
    };
    hub.until("the finding", has_twin).await;
    let state = hub
        .until("metal3's words", |state| state["BareMetalHost site/w0"]["status"]["operationalStatus"] == "error")
        .await;
    assert_eq!(condition(&state, "Host site/w0", "Valid")["status"], "False");
    hub.api("BareMetalHost", "site").delete("twin", &DeleteParams::default()).await.unwrap();
    hub.until("the finding to go", |state| {
        !has_twin(state) && state["BareMetalHost site/w0"]["status"]["operationalStatus"] == ""
    })
    .await;
}

/// Objects with a finding each, of kinds whose own status has no word for one, and what is found in them.
fn doubtful() -> Vec<(Value, &'static str)> {
    let policy = |name: &str, mtu: u32| {
        json!({"apiVersion": "nmstate.io/v1", "kind": "NodeNetworkConfigurationPolicy", "metadata": {"name": name},
            "spec": {"desiredState": {"interfaces": [{"name": "eth1", "type": "ethernet", "state": "up", "mtu": mtu}]}}})
    };
    let mut misspelt = network("misspelt", "52:54:00:00:00:31");
    misspelt["spec"]["typo"] = json!(1);
    vec![
        (misspelt, "KLN0010"),
        (
            json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "KubeletConfig", "metadata": {"name": "k"},
                "spec": {"machineConfigPoolSelector": {"matchLabels": {"no": "pool"}}, "kubeletConfig": {"maxPods": 500}, "typo": 1}}),
            "KLN0010",
        ),
        (
            json!({"apiVersion": "agent-install.openshift.io/v1beta1", "kind": "AgentServiceConfig", "metadata": {"name": "other"},
                "spec": {"databaseStorage": {}, "filesystemStorage": {}, "typo": 1}}),
            "KLN0010",
        ),
        (policy("jumbo", 9000), ""),
        (policy("plain", 1500), "KLN0600"),
    ]
}

fn findings<'s>(state: &'s Value, object: &Value) -> &'s Value {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (metadata, kind) = (&object["metadata"], text(&object["kind"]));
    condition(
        state,
        &format!("{kind} {}/{}", text(&metadata["namespace"]), text(&metadata["name"])),
        "kiln.dev/Findings",
    )
}

async fn what_is_found_is_a_condition_of_every_kind_that_can_hold_one(day: Day) {
    let hub = Hub::start("controllers-conditions", &day).await;
    hub.apply(&site()).await;
    hub.until("the whole site", is_complete).await;
    let doubtful = doubtful();
    for (object, _) in &doubtful {
        hub.apply(std::slice::from_ref(object)).await;
    }
    let told = |state: &Value| {
        let wanted = doubtful.iter().filter(|(_, code)| !code.is_empty());
        wanted.into_iter().all(|(object, code)| {
            let condition = findings(state, object);
            condition["status"] == "True" && condition["message"].as_str().is_some_and(|text| text.contains(code))
        })
    };
    hub.until("every finding", told).await;
    let state = hub.settled().await;
    assert!(told(&state), "{state:#}");
    // Beside it, whoever knows what became of a policy has said so, and goes on to.
    assert_eq!(condition(&state, "NodeNetworkConfigurationPolicy /plain", "Ignored")["status"], "True");
    assert_eq!(condition(&state, "NodeNetworkConfigurationPolicy /p", "kiln.dev/Findings"), &Value::Null);
    let reason = findings(&state, &doubtful[4].0)["reason"].as_str().unwrap();
    assert!(reason.starts_with("KLN"), "{reason}");
    let quiet = async || {
        let all: Api<DynamicObject> = Api::all_with(hub.client.clone(), &kinds::HOST.resource());
        all.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap()
    };
    let before = quiet().await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(quiet().await, before, "somebody goes on writing");
    // What is put right is said to be right.
    hub.api("NodeNetworkConfigurationPolicy", "").delete("jumbo", &DeleteParams::default()).await.unwrap();
    let right = Patch::Merge(json!({"spec": {"typo": null}}));
    hub.api("NMStateConfig", "site").patch("misspelt", &PatchParams::default(), &right).await.unwrap();
    let state = hub
        .until("what was put right", |state| {
            let says = |object: &Value, code: &str| {
                findings(state, object)["message"].as_str().is_some_and(|text| text.contains(code))
            };
            !says(&doubtful[4].0, "KLN0600") && !says(&doubtful[0].0, "KLN0010")
        })
        .await;
    assert_eq!(condition(&state, "NodeNetworkConfigurationPolicy /plain", "Ignored")["status"], "True");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_condition_is_taken_back_from_an_object_that_another_controller_speaks_of() {
    let hub = Hub::start("controllers-foreign", &Day::Good).await;
    let (object, _) = doubtful().swap_remove(2);
    hub.apply(std::slice::from_ref(&object)).await;
    hub.until("the finding", |state| findings(state, &object)["status"] == "True").await;
    let api = hub.api("AgentServiceConfig", "");
    let theirs = json!({"status": {"conditions": [{"type": "DeploymentsHealthy", "status": "True"}, {"type": "kiln.dev/Findings", "status": "True"}]}});
    let options = PatchParams { field_manager: Some("assisted-service".into()), ..PatchParams::default() };
    api.patch_status("other", &options, &Patch::Merge(theirs)).await.unwrap();
    let state = hub
        .until("ours to go", |state| {
            findings(state, &object).is_null() && state["AgentServiceConfig /other"]["status"]["conditions"].is_array()
        })
        .await;
    assert_eq!(condition(&state, "AgentServiceConfig /other", "DeploymentsHealthy")["status"], "True");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_without_room_for_the_condition_is_asked_once() {
    let hub = Hub::start("controllers-no-room", &Day::Good).await;
    // As upstream has it: a status without any field, so that whatever is written to it is dropped.
    let definitions: Api<DynamicObject> = Api::all_with(
        hub.client.clone(),
        &kube::api::ApiResource {
            group: "apiextensions.k8s.io".into(),
            version: "v1".into(),
            api_version: "apiextensions.k8s.io/v1".into(),
            kind: "CustomResourceDefinition".into(),
            plural: "customresourcedefinitions".into(),
        },
    );
    let name = "nmstateconfigs.agent-install.openshift.io";
    let closed = json!([{"op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/status", "value": {"type": "object"}}]);
    let patch: Patch<Value> = Patch::Json(serde_json::from_value(closed).unwrap());
    definitions.patch(name, &PatchParams::default(), &patch).await.unwrap();
    let (object, _) = doubtful().swap_remove(0);
    hub.apply(&[namespace(), object]).await;
    hub.until("a Host or a look", |state| !state["NMStateConfig site/misspelt"].is_null()).await;
    hub.settled().await;
    let asked = async || {
        let request = axum::http::Request::get("/metrics").body(Vec::new()).unwrap();
        let text = hub.client.request_text(request).await.unwrap();
        let lines = text
            .lines()
            .filter(|line| line.starts_with("kiln_requests_total{verb=\"patch\",resource=\"nmstateconfigs"));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum::<u64>()
    };
    let before = asked().await;
    for number in 0..3 {
        hub.apply(&[bare_metal_host(&format!("more-{number}"), &format!("52:54:00:00:01:0{number}"))]).await;
        hub.settled().await;
    }
    assert_eq!((before, asked().await), (1, 1), "it is asked again and again");
}

async fn nodes_and_agents_are_evidence(day: Day) {
    let hub = Hub::start("controllers-evidence", &day).await;
    hub.apply(&site()).await;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "w0.lab"}});
    let agent = json!({"apiVersion": "agent-install.openshift.io/v1beta1", "kind": "Agent", "metadata": {"name": "a", "namespace": "site"}, "spec": {"approved": true, "role": "worker"}});
    hub.apply(&[node, agent]).await;
    let inventory = json!({"status": {"inventory": {"interfaces": [{"macAddress": "52:54:00:00:00:02"}]}}});
    let options = PatchParams { field_manager: Some("kiln".into()), ..PatchParams::default() };
    hub.api("Agent", "site").patch_status("a", &options, &Patch::Merge(inventory)).await.unwrap();
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    hub.api("Node", "").patch_status("w0.lab", &options, &Patch::Merge(ready)).await.unwrap();
    let state = hub
        .until("both", |state| {
            state["Host site/w0"]["status"]["stage"] == "Ready"
                && state["Host site/w1"]["status"]["stage"] == "Discovered"
        })
        .await;
    assert_eq!(condition(&state, "Host site/w0", "Ready")["status"], "True");
    hub.until("metal3's words", |state| {
        state["BareMetalHost site/w0"]["status"]["provisioning"]["state"] == "provisioned"
    })
    .await;
    let state = hub.until("the agent's words", |state| state["Agent site/a"]["status"]["conditions"].is_array()).await;
    assert_eq!(condition(&state, "Agent site/a", "Bound")["reason"], "Unbound");
    let installed = condition(&state, "Agent site/a", "Installed");
    assert_eq!((&installed["status"], &installed["reason"]), (&json!("False"), &json!("InstallationNotStarted")));
    // One of two is ready; the cluster wants a third.
    let aci = "AgentClusterInstall site/c";
    let reason = |state: &Value, kind: &str| condition(state, aci, kind)["reason"].as_str().map(str::to_owned);
    let state = hub
        .until("the cluster's words", |state| {
            reason(state, "Completed").as_deref() == Some("InstallationInProgress")
                && condition(state, aci, "RequirementsMet")["message"]
                    .as_str()
                    .is_some_and(|text| text.ends_with("2 hosts are declared and 2 have reported"))
        })
        .await;
    let message = &condition(&state, aci, "Completed")["message"];
    assert_eq!(message, "The installation is in progress: 1 of 2 hosts are ready");
    // With the other ready and no third wanted any more, it is done, and so is the machine of the Agent.
    hub.apply(&[json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "w1.lab"}})]).await;
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": "2099-01-01T00:00:00Z"}]}});
    hub.api("Node", "").patch_status("w1.lab", &options, &Patch::Merge(ready)).await.unwrap();
    let fewer = Patch::Merge(json!({"spec": {"provisionRequirements": {"workerAgents": 1}}}));
    hub.api("AgentClusterInstall", "site").patch("c", &PatchParams::default(), &fewer).await.unwrap();
    hub.until("the end of the installation", |state| {
        reason(state, "Completed").as_deref() == Some("InstallationCompleted")
            && reason(state, "RequirementsMet").as_deref() == Some("ClusterInstallationStopped")
            && condition(state, aci, "RequirementsMet")["status"] == "True"
            && condition(state, "Agent site/a", "Installed")["reason"] == "InstallationCompleted"
    })
    .await;
}

/// Columns of upstream that stay empty: what they tell of is done or known by nobody here, or is wrong with no object here.
const EMPTY: &[(&str, &str)] = &[
    ("InfraEnv", "ISO Created At"),
    ("InfraEnv", "ISO URL"),
    // assisted-service's agent says these of its machine.
    ("Agent", "Role"),
    ("Agent", "Stage"),
    ("Agent", "Hostname"),
    ("BareMetalHost", "Hardware_Profile"),
    ("BareMetalHost", "Error"),
    // Known when every host is ready.
    ("NodePool", "Version"),
    ("MachineConfigPool", "Config"),
    // Known when an agent speaks for a running node.
    ("MachineConfigPool", "UpdatedMachineCount"),
    ("MachineConfigPool", "DegradedMachineCount"),
];

#[tokio::test(flavor = "multi_thread")]
async fn every_column_about_status_is_filled_for_a_well_formed_object() {
    let hub = Hub::start("controllers-columns", &Day::Good).await;
    hub.apply(&site()).await;
    let place = |name: &str, subnet: &str| json!({"apiVersion": "kiln.dev/v1alpha1", "kind": "Site", "metadata": {"name": name}, "spec": {"subnets": [subnet]}});
    let own = json!({"apiVersion": "kiln.dev/v1alpha1", "kind": "Host", "metadata": {"name": "own", "namespace": "site"},
        "spec": {"site": "lab", "macAddress": "52:54:00:00:00:55"}});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "w0.lab"}});
    let agent = json!({"apiVersion": "agent-install.openshift.io/v1beta1", "kind": "Agent", "metadata": {"name": "a", "namespace": "site"}, "spec": {"approved": true, "role": "worker"}});
    hub.apply(&[place("lab", "10.0.0.0/24"), place("far", "10.0.1.0/24"), own, node, agent]).await;
    hub.until("the whole site", |state| {
        is_complete(state)
            && state["Host site/own"]["status"]["conditions"].is_array()
            && state["BareMetalHost site/w0"]["status"]["operationalStatus"] == "OK"
    })
    .await;
    hub.settled().await;
    let (mut seen, mut wrong) = (0, Vec::new());
    for definition in kiln_api::definitions::definitions().unwrap() {
        let spec = &definition.manifest["spec"];
        let kind = spec["names"]["kind"].as_str().unwrap();
        let version = &spec["versions"][0];
        let mirrored = kinds::find(kind).is_some_and(|watched| watched.use_ != kinds::Use::Checked);
        let columns = version["additionalPrinterColumns"].as_array();
        if !mirrored || columns.is_none() || !version["subresources"]["status"].is_object() {
            continue;
        }
        let (group, version) = (spec["group"].as_str().unwrap(), version["name"].as_str().unwrap());
        let path = format!("/apis/{group}/{version}/{}", spec["names"]["plural"].as_str().unwrap());
        let request = axum::http::Request::get(path).header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
        let table: Value = hub.client.request(request.body(Vec::new()).unwrap()).await.unwrap();
        let rows = table["rows"].as_array().unwrap();
        // No agent of a node writes any in this test.
        assert!(!rows.is_empty() || kind == "NodeNetworkConfigurationEnactment", "there is no {kind}");
        for (index, column) in table["columnDefinitions"].as_array().unwrap().iter().enumerate() {
            let name = column["name"].as_str().unwrap();
            let written = columns.unwrap().iter().find(|written| written["name"] == name);
            let of_status = |written: &Value| written["jsonPath"].as_str().unwrap().starts_with(".status");
            if rows.is_empty() || !written.is_some_and(of_status) {
                continue;
            }
            seen += 1;
            let filled = rows.iter().any(|row| {
                !matches!(row["cells"][index].as_str(), Some("" | "<none>" | "<unknown>"))
                    && !row["cells"][index].is_null()
            });
            if filled == EMPTY.contains(&(kind, name)) {
                wrong.push(format!("{kind} {name}: {}", if filled { "is filled after all" } else { "is empty" }));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(seen > 25, "only {seen} columns were looked at");
    let sites = hub.api("Site", "").list(&ListParams::default()).await.unwrap();
    let hosts = |name: &str| {
        let site = sites.items.iter().find(|site| site.metadata.name.as_deref() == Some(name));
        site.map(|site| site.data["status"]["hosts"].clone())
    };
    assert_eq!((hosts("lab"), hosts("far")), (Some(json!(1)), Some(json!(0))));
    let state = hub.state().await;
    for kind in ["AutoscalingEnabled", "AutorepairEnabled"] {
        let unasked = condition(&state, "NodePool site/np", kind);
        assert_eq!((&unasked["status"], &unasked["reason"]), (&json!("False"), &json!("AsExpected")), "{kind}");
    }
    assert_eq!(condition(&state, "Pool site/np", "Ready")["message"], "0 of 0 hosts are ready");
    // What is asked for and done by nobody is not said to be so.
    let asked =
        json!({"spec": {"replicas": null, "autoScaling": {"min": 1, "max": 3}, "management": {"autoRepair": true}}});
    hub.api("NodePool", "site").patch("np", &PatchParams::default(), &Patch::Merge(asked)).await.unwrap();
    hub.until("the other words", |state| {
        condition(state, "NodePool site/np", "AutoscalingEnabled")["message"]
            == "the number of nodes follows the load (Maximum nodes: 3, Minimum nodes: 1); nothing in this hub does that yet"
            && condition(state, "NodePool site/np", "AutorepairEnabled")["reason"] == "NotDriven"
    })
    .await;
}

async fn two_witnesses_do_not_lose_each_others_entries(day: Day) {
    use kiln_core::timeline::{Entry, Moment, Stage};
    let hub = Hub::start("controllers-witnesses", &day).await;
    hub.apply(&site()).await;
    hub.until("the whole site", is_complete).await;
    let stages = [Stage::PoweredOn, Stage::ImageRead, Stage::Discovered, Stage::Validated, Stage::Installed];
    let recorded = futures::future::join_all(stages.map(|stage| {
        let (client, entry) = (hub.client.clone(), Entry::reached(stage, Moment(1_800_000_000), "test", "seen"));
        async move { kiln::hub::timeline::record(&client, "site", "w0", &entry).await.unwrap() }
    }));
    assert_eq!(recorded.await, [true; 5]);
    let state = hub.until("the stage", |state| state["Host site/w0"]["status"]["stage"] == "Installed").await;
    assert_eq!(state["Host site/w0"]["status"]["timeline"].as_array().unwrap().len(), 6);
    let again = Entry::reached(Stage::Installed, Moment(1_800_000_000), "test", "seen");
    assert!(!kiln::hub::timeline::record(&hub.client, "site", "w0", &again).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_day_ends_in_the_same_state() {
    let plain = Hub::start("controllers-good-day", &Day::Good).await;
    let life = async |hub: &Hub| {
        hub.apply(&site()).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        hub.apply(&[bare_metal_host("twin", "52:54:00:00:00:01"), bare_metal_host("named", "52:54:00:00:00:09")]).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        hub.api("BareMetalHost", "site").delete("w1", &DeleteParams::default()).await.unwrap();
        let patch = json!({"metadata": {"annotations": {"bmac.agent-install.openshift.io/hostname": "other.lab"}}});
        hub.api("BareMetalHost", "site").patch("w0", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    };
    life(&plain).await;
    plain
        .until("the end", |state| {
            let told = |host: &&str| state[format!("Host site/{host}")]["status"]["conditions"].is_array();
            state["Host site/w0"]["spec"]["hostname"] == "other.lab"
                && state["Host site/w0"]["status"]["node"] == "other.lab"
                && ["w0", "twin", "named"].iter().all(told)
        })
        .await;
    let expected = plain.settled().await;
    let mut harm = [0; chaos::HARMS.len()];
    for seed in 1..=5 {
        let chaos = Chaos::new(seed);
        let hub = Hub::start(&format!("controllers-bad-day-{seed}"), &Day::Bad(chaos.clone())).await;
        life(&hub).await;
        hub.until(&format!("the same end with seed {seed}"), |state| *state == expected).await;
        chaos.was_bad();
        harm.iter_mut().zip(chaos.harm.counts()).for_each(|(sum, count)| *sum += count);
    }
    // On a single day one of them may be missing, as the dice fall; on five none is.
    for (name, count) in chaos::HARMS.iter().zip(harm) {
        assert!(count > 0, "nothing was ever {name}: {harm:?}");
    }
}
