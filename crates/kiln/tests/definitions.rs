//! The shipped definitions in the embedded API: which edits they forbid and in which words, and how they come back.

#![allow(clippy::unwrap_used, reason = "tests may fail loudly")]

use std::collections::BTreeSet;
use std::sync::Arc;

use kiln::hub::controllers::{self, kinds};
use kiln::hub::definitions::{self, Installed, Policy};
use kiln_apiserver::{Limits, Server, Tokens, router};
use kiln_testimage::temp_dir::TempDir;
use kube::Client;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

/// An embedded API. Nobody judges or controls: only the definitions speak.
async fn api(folder: &TempDir) -> Client {
    let server = Server::open(folder.path(), Tokens::default(), Limits::default()).await.unwrap();
    tokio::spawn(Arc::clone(&server).run_janitor());
    controllers::in_process(router(server), "test")
}

fn of_kind(client: &Client, kind: &str) -> Api<DynamicObject> {
    let resource = kinds::find(kind).unwrap().resource();
    match kind {
        "NodeNetworkConfigurationPolicy" => Api::all_with(client.clone(), &resource),
        _ => Api::namespaced_with(client.clone(), "default", &resource),
    }
}

/// Objects called `x` that their definitions take, as far as rules speak of them.
fn good() -> Vec<(&'static str, Value)> {
    vec![
        (
            "NodePool",
            json!({"clusterName": "edge", "arch": "amd64", "replicas": 2, "management": {"upgradeType": "InPlace"},
                "platform": {"type": "None"}, "release": {"image": "registry.example.com/release:4.16.8"}}),
        ),
        ("HostedCluster", json!({"clusterID": "one", "infraID": "two", "platform": {"type": "None"}})),
        (
            "BareMetalHost",
            json!({"online": true, "bootMACAddress": "52:54:00:00:00:0a",
                "bmc": {"address": "redfish://192.0.2.1/redfish/v1/Systems/1", "credentialsName": "bmc"}}),
        ),
        (
            "AgentClusterInstall",
            json!({"clusterDeploymentRef": {"name": "c"}, "imageSetRef": {"name": "4.16"}, "networking": {"userManagedNetworking": false},
                "provisionRequirements": {"controlPlaneAgents": 3}}),
        ),
        ("InfraEnv", json!({"pullSecretRef": {"name": "pull"}, "clusterRef": {"name": "c", "namespace": "default"}})),
        (
            "NodeNetworkConfigurationPolicy",
            json!({"capture": {"nic": "interfaces.name == \"eth1\""}, "desiredState": {}}),
        ),
        ("Pool", json!({"ignition": {"secret": "base"}})),
    ]
}

/// Kind, an edit of its good object, and what is said to it: field, value unless it is an object, message. Nothing is said
/// to what is allowed.
fn edits() -> Vec<(&'static str, Value, &'static str)> {
    vec![
        ("NodePool", json!({"replicas": 3}), ""),
        ("NodePool", json!({"clusterName": "other"}), "spec.clusterName: \"other\": ClusterName is immutable"),
        ("NodePool", json!({"arch": "arm64"}), "spec.arch: \"arm64\": Arch is immutable"),
        ("NodePool", json!({"arch": null}), "spec: Arch is required once set"),
        (
            "NodePool",
            json!({"management": {"upgradeType": "Replace"}}),
            "spec.management.upgradeType: \"Replace\": UpgradeType is immutable",
        ),
        ("NodePool", json!({"platform": {"type": "Agent"}}), "spec.platform.type: \"Agent\": Type is immutable"),
        (
            "NodePool",
            json!({"autoScaling": {"min": 1, "max": 2}}),
            "spec: Both replicas or autoScaling should not be set",
        ),
        ("NodePool", json!({"replicas": null, "autoScaling": {"min": 1, "max": 2}}), ""),
        ("HostedCluster", json!({"pausedUntil": "true"}), ""),
        ("HostedCluster", json!({"clusterID": "three"}), "spec.clusterID: \"three\": clusterID is immutable"),
        ("HostedCluster", json!({"infraID": "three"}), "spec.infraID: \"three\": infraID is immutable"),
        ("HostedCluster", json!({"platform": {"type": "Agent"}}), "spec.platform.type: \"Agent\": Type is immutable"),
        // Written in other letters it is the same address.
        ("BareMetalHost", json!({"bootMACAddress": "52:54:00:00:00:0A"}), ""),
        (
            "BareMetalHost",
            json!({"bootMACAddress": "52:54:00:00:00:0b"}),
            "spec: bootMACAddress can not be changed once it is set",
        ),
        ("BareMetalHost", json!({"bootMACAddress": null}), "spec: bootMACAddress can not be changed once it is set"),
        ("BareMetalHost", json!({"online": false}), ""),
        (
            "BareMetalHost",
            json!({"online": false, "disablePowerOff": true}),
            "spec: online can not be false while powering off is disabled",
        ),
        ("AgentClusterInstall", json!({"holdInstallation": true}), ""),
        ("AgentClusterInstall", json!({"imageSetRef": {"name": "4.17"}}), "spec: imageSetRef is immutable"),
        ("AgentClusterInstall", json!({"imageSetRef": null}), "spec: imageSetRef is immutable"),
        (
            "AgentClusterInstall",
            json!({"provisionRequirements": {"controlPlaneAgents": 1}}),
            "spec: userManagedNetworking must be true on a single node",
        ),
        ("InfraEnv", json!({"clusterRef": {"name": "other"}}), "spec: clusterRef is immutable"),
        ("InfraEnv", json!({"clusterRef": null}), "spec: clusterRef is immutable"),
        ("InfraEnv", json!({"cpuArchitecture": "arm64"}), "spec: cpuArchitecture is immutable"),
        // What is taken away is the default again, as it was.
        ("InfraEnv", json!({"cpuArchitecture": null}), ""),
        ("NodeNetworkConfigurationPolicy", json!({"desiredState": {"interfaces": []}}), ""),
        (
            "NodeNetworkConfigurationPolicy",
            json!({"capture": {"nic": "interfaces.name == \"eth2\""}}),
            "spec: capture is immutable",
        ),
        (
            "NodeNetworkConfigurationPolicy",
            json!({"capture": {"more": "interfaces.name == \"eth2\""}}),
            "spec: capture is immutable",
        ),
        ("NodeNetworkConfigurationPolicy", json!({"capture": null}), "spec: capture is immutable"),
        (
            "Pool",
            json!({"certificates": {"bootstrap": "token"}}),
            "spec: bootstrap tokens are made on the cluster of kubeconfig",
        ),
        ("Pool", json!({"certificates": {"bootstrap": "token"}, "kubeconfig": {"name": "target"}}), ""),
        (
            "Pool",
            json!({"ignition": {"upstream": {"url": "https://api-int.lab:22623/config/worker"}}}),
            "spec.ignition: upstream and secret exclude each other",
        ),
        ("Pool", json!({"ignition": {"configMap": "base"}}), "spec.ignition: secret and configMap exclude each other"),
        (
            "Pool",
            json!({"ignition": {"secret": null, "configMap": "base", "upstream": {"url": "https://api-int.lab:22623/config/worker"}}}),
            "spec.ignition: upstream and configMap exclude each other",
        ),
    ]
}

/// `Kind: message` of every rule below a schema.
fn rules(kind: &str, schema: &Value, found: &mut BTreeSet<String>) {
    match schema {
        Value::Object(fields) => {
            let own = fields.get("x-kubernetes-validations").and_then(Value::as_array);
            found
                .extend(own.into_iter().flatten().map(|rule| format!("{kind}: {}", rule["message"].as_str().unwrap())));
            fields.values().for_each(|field| rules(kind, field, found));
        }
        Value::Array(items) => items.iter().for_each(|item| rules(kind, item, found)),
        _ => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_rule_forbids_to_change_is_refused_in_its_words() {
    let folder = TempDir::new("definitions-edits");
    let client = api(&folder).await;
    definitions::install(&client, Policy::Own).await.unwrap();
    for (kind, spec) in good() {
        let api_version = kinds::find(kind).unwrap().api_version();
        let object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}, "spec": spec});
        of_kind(&client, kind).create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    }
    let (mut wrong, mut shown) = (Vec::new(), BTreeSet::new());
    for (kind, edit, expected) in edits() {
        let asked = PatchParams { dry_run: true, ..PatchParams::default() };
        let patch = Patch::Merge(json!({"spec": edit}));
        let told = match of_kind(&client, kind).patch("x", &asked, &patch).await {
            Ok(_) => String::new(),
            Err(kube::Error::Api(status)) => format!("{} {}", status.code, status.message),
            Err(error) => panic!("{error}"),
        };
        let group = kinds::find(kind).unwrap().group;
        let expected_text = match expected.split_once(": ") {
            Some((field, told)) => {
                let message = told.rsplit_once(": ").map_or(told, |(_, message)| message);
                shown.insert(format!("{kind}: {message}"));
                format!("422 {kind}.{group} \"x\" is invalid: {field}: Invalid value: {told}")
            }
            None => String::new(),
        };
        if told != expected_text {
            wrong.push(format!("{kind} {edit}\n  expected {expected_text}\n  told     {told}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let mut shipped = BTreeSet::new();
    for definition in kiln_api::definitions::definitions().unwrap() {
        let spec = &definition.manifest["spec"];
        rules(spec["names"]["kind"].as_str().unwrap(), &spec["versions"], &mut shipped);
    }
    assert_eq!(shown, shipped, "every rule that is shipped has an edit that it forbids, and no other has");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_that_was_deleted_comes_back_and_one_that_was_changed_stays() {
    let folder = TempDir::new("definitions-again");
    let client = api(&folder).await;
    let shipped = kiln_api::definitions::definitions().unwrap().len();
    let first = definitions::install(&client, Policy::Own).await.unwrap();
    assert_eq!(first, Installed { created: shipped, ..Installed::default() });
    let resource = ApiResource {
        group: "apiextensions.k8s.io".into(),
        version: "v1".into(),
        api_version: "apiextensions.k8s.io/v1".into(),
        kind: "CustomResourceDefinition".into(),
        plural: "customresourcedefinitions".into(),
    };
    let all: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    all.delete("sites.kiln.dev", &DeleteParams::default()).await.unwrap();
    let mine = Patch::Merge(json!({"spec": {"names": {"shortNames": ["mine"]}}}));
    all.patch("egressips.k8s.ovn.org", &PatchParams::default(), &mine).await.unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while all.get_opt("sites.kiln.dev").await.unwrap().is_some() {
        assert!(std::time::Instant::now() < deadline, "it does not go");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let again = definitions::install(&client, Policy::Own).await.unwrap();
    assert_eq!(again, Installed { created: 1, foreign: 1, ..Installed::default() });
    assert_eq!(all.list(&ListParams::default()).await.unwrap().items.len(), shipped);
    let theirs = all.get("egressips.k8s.ovn.org").await.unwrap();
    assert_eq!(theirs.data["spec"]["names"]["shortNames"], json!(["mine"]));
}
