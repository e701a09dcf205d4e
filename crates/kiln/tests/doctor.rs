//! `kiln doctor` and `kiln approve` against a real `kiln serve`, which is hub, management cluster and target at once.

#![allow(clippy::unwrap_used, reason = "tests may fail loudly")]

#[path = "support/lab.rs"]
mod lab;
#[path = "support/served.rs"]
mod served;

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kiln_apiserver::tls::Authority;
use kiln_testimage::temp_dir::TempDir;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use lab::{ago, api, create, key, request, until};
use serde_json::{Value, json};
use served::Hub;

fn resource(group: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource {
        group: group.into(),
        version: "v1".into(),
        api_version: format!("{group}/v1"),
        kind: kind.into(),
        plural: plural.into(),
    }
}

async fn make(client: &Client, kind: &ApiResource, namespace: &str, object: Value) {
    let api: Api<DynamicObject> = match namespace {
        "" => Api::all_with(client.clone(), kind),
        namespace => Api::namespaced_with(client.clone(), namespace, kind),
    };
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    until("the kind is served", async || api.create(&PostParams::default(), &object).await.ok()).await;
}

/// A hub whose own kubeconfig is that of cluster `hc`.
async fn hub(folder: &TempDir) -> (Hub, Client) {
    let hub = Hub::start(folder.path());
    let client = hub.client().await;
    for name in ["clusters", "clusters-hc"] {
        create(&client, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})).await;
    }
    let kubeconfig = std::fs::read_to_string(folder.path().join("kubeconfig")).unwrap();
    create(&client, json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hc-admin-kubeconfig", "namespace": "clusters"},
        "stringData": {"kubeconfig": kubeconfig}})).await;
    (hub, client)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_missing_secret_of_ovn_is_found_explained_and_made_once() {
    let folder = TempDir::new("doctor");
    let (hub, client) = hub(&folder).await;
    let (exit, output, complaints) = hub.kiln(&["doctor", "hc"]);
    assert_eq!((exit, complaints.as_str()), (0, ""));
    assert_eq!(output, "hc: 0 nodes, 0 requests that wait; no known fault was found\n");
    let (exit, _, complaints) = hub.kiln(&["doctor", "elsewhere"]);
    assert_eq!(
        (exit, complaints.as_str()),
        (
            1,
            "error: the hub has no Secret `elsewhere-admin-kubeconfig` in any namespace; make it from the cluster's kubeconfig (key `kubeconfig`), or name a file with --kubeconfig\n"
        )
    );
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "deployments.apps"},
        "spec": {"group": "apps", "scope": "Namespaced", "names": {"plural": "deployments", "singular": "deployment", "kind": "Deployment", "listKind": "DeploymentList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    make(
        &client,
        &resource("apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions"),
        "",
        definition,
    )
    .await;
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "ovnkube-control-plane", "namespace": "clusters-hc"}});
    make(&client, &resource("apps", "Deployment", "deployments"), "clusters-hc", deployment).await;
    create(&client, json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "w0"}})).await;
    let unready = json!({"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "KubeletNotReady",
        "message": "NetworkPluginNotReady message:Network plugin returns error: No CNI configuration file", "lastTransitionTime": ago(60)}]}});
    api(&client, "Node", "").patch_status("w0", &PatchParams::default(), &Patch::Merge(unready)).await.unwrap();

    let (exit, output, _) = hub.kiln(&["doctor", "clusters/hc"]);
    assert_eq!(exit, 1);
    let found: Vec<&str> = output.lines().filter(|line| line.contains("KLN")).collect();
    assert_eq!(
        found[0],
        "error[KLN0801]: Deployment clusters-hc/ovnkube-control-plane has no Secret clusters-hc/ovn-control-plane-metrics-cert"
    );
    assert!(
        output.contains("error[KLN0804]: 1 node is NotReady because the pods' network is missing: w0\n"),
        "{output}"
    );
    assert!(
        output.ends_with(
            "clusters/hc: 1 nodes, 0 requests that wait; 2 faults, `kiln explain CODE` tells their stories\n"
        ),
        "{output}"
    );
    let secrets = api(&client, "Secret", "clusters-hc");
    assert!(
        secrets.get_opt("ovn-control-plane-metrics-cert").await.unwrap().is_none(),
        "nothing is written without --fix"
    );

    let (_, output, _) = hub.kiln(&["doctor", "hc", "--fix", "-o", "json"]);
    let told: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(
        told["faults"][0]["mended"],
        "Secret clusters-hc/ovn-control-plane-metrics-cert was made: a certificate of its own for Service ovn-kubernetes-control-plane, valid for 365 days"
    );
    let made = secrets.get("ovn-control-plane-metrics-cert").await.unwrap();
    let pem = STANDARD.decode(made.data["data"]["tls.crt"].as_str().unwrap()).unwrap();
    let certificate = kiln_core::certificate_request::parse_certificate_pem(&pem).unwrap();
    assert!(certificate.names.dns.contains("ovn-kubernetes-control-plane.clusters-hc.svc"));
    let (_, output, _) = hub.kiln(&["doctor", "hc", "--fix"]);
    assert!(!output.contains("KLN0801:"), "{output}");
    let again = secrets.get("ovn-control-plane-metrics-cert").await.unwrap();
    assert_eq!(again.metadata.resource_version, made.metadata.resource_version, "what is there is not touched");
    // Where the hosted cluster has its own, that one is copied.
    secrets.delete("ovn-control-plane-metrics-cert", &Default::default()).await.unwrap();
    create(&client, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "openshift-ovn-kubernetes"}}))
        .await;
    create(&client, json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "ovn-control-plane-metrics-cert", "namespace": "openshift-ovn-kubernetes"},
        "stringData": {"tls.crt": "theirs", "tls.key": "secret"}})).await;
    let (_, output, _) = hub.kiln(&["doctor", "hc", "--fix"]);
    assert!(
        output.contains(
            "was made: a copy of openshift-ovn-kubernetes/ovn-control-plane-metrics-cert of the hosted cluster"
        ),
        "{output}"
    );
    assert!(!output.contains("secret\n") && !output.contains(&STANDARD.encode("secret")), "keys are not printed");
    let copied = secrets.get("ovn-control-plane-metrics-cert").await.unwrap();
    assert_eq!(copied.data["data"]["tls.crt"], STANDARD.encode("theirs"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_approves_with_one_command_what_waits() {
    let folder = TempDir::new("approve");
    let (hub, client) = hub(&folder).await;
    create(
        &client,
        json!({"apiVersion": "kiln.dev/v1alpha1", "kind": "Pool", "metadata": {"name": "p", "namespace": "clusters"},
        "spec": {"kubeconfig": {"name": "hc-admin-kubeconfig"}, "certificates": {"mode": "hold"}}}),
    )
    .await;
    create(&client, json!({"apiVersion": "kiln.dev/v1alpha1", "kind": "Host", "metadata": {"name": "w0", "namespace": "clusters"}, "spec": {"pool": "p"}})).await;
    let (exit, _, complaints) = hub.kiln(&["approve", "w0"]);
    assert_eq!((exit, complaints.as_str()), (1, "error: no certificate request of clusters/w0 waits for anybody\n"));
    let hosts = api(&client, "Host", "clusters");
    let user = "kiln:host:clusters:w0";
    let provision = json!({"status": {"provision": {"generation": 1, "fetchedAt": ago(30), "bootstrapUser": user}}});
    hosts.patch_status("w0", &PatchParams::default(), &Patch::Merge(provision)).await.unwrap();
    // The host itself asks, with a certificate of its own.
    let credentials = Authority::open(folder.path()).unwrap().issue_client(user, "kiln:hosts").unwrap();
    let mut kubeconfig = Kubeconfig::read_from(folder.path().join("kubeconfig")).unwrap();
    let own = kubeconfig.auth_infos[0].auth_info.as_mut().unwrap();
    own.client_certificate_data = Some(STANDARD.encode(&credentials.certificate));
    own.client_key_data = Some(STANDARD.encode(&credentials.key).into());
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    let host = Client::try_from(config).unwrap();
    create(&host, json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": "csr-w0"},
        "spec": {"request": STANDARD.encode(request("w0", &[], &key())), "signerName": lab::CLIENT, "usages": ["digital signature", "client auth"]}})).await;
    let said = until("it is vouched for", async || {
        let (exit, output, _) = hub.kiln(&["approve", "w0"]);
        tokio::time::sleep(Duration::from_millis(100)).await;
        (exit == 0).then_some(output)
    });
    assert_eq!(said.await, "clusters/w0: request csr-w0 is vouched for; the hub approves it within seconds\n");
    let requests = api(&client, "CertificateSigningRequest", "");
    let condition = until("it is approved", async || {
        requests.get("csr-w0").await.unwrap().data["status"]["conditions"].as_array()?.first().cloned()
    });
    let condition = condition.await;
    assert_eq!((condition["type"].as_str(), condition["reason"].as_str()), (Some("Approved"), Some("KilnApproved")));
    until("the timeline tells of it", async || {
        let (_, output, _) = hub.kiln(&["status", "w0", "-o", "json"]);
        output.contains("ClientCSR").then_some(())
    })
    .await;
}
