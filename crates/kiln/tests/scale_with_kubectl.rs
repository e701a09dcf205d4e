//! `kubectl scale` against a running hub: hosts are taken and let go, and the Node of one that goes is deleted.
//!
//! The cluster the hosts join is the hub itself, over HTTPS and by the kubeconfig in a Secret, as any other cluster.

#![allow(clippy::unwrap_used, reason = "a test fails loudly")]

use std::fs;
use std::time::{Duration, Instant};

use hub::Hub;
use kiln_testimage::oracle;
use kiln_testimage::temp_dir::TempDir;
use shell::{Shell, fixtures};

#[path = "support/hub.rs"]
mod hub;
#[path = "support/shell.rs"]
mod shell;
#[path = "support/transcript.rs"]
#[allow(dead_code, reason = "only the shell uses it here")]
mod transcript;

const OBJECTS: &str = "
apiVersion: kiln.dev/v1alpha1
kind: Pool
metadata: {name: edge, namespace: default}
spec: {replicas: 1, kubeconfig: {name: hc-admin-kubeconfig}}
---
apiVersion: hypershift.openshift.io/v1beta1
kind: NodePool
metadata: {name: workers, namespace: default}
spec:
  clusterName: hc
  replicas: 1
  management: {upgradeType: InPlace}
  platform: {type: Agent}
  release: {image: 'quay.io/openshift-release-dev/ocp-release:4.14.3-x86_64'}
";

fn until(shell: &Shell, what: &str, script: &str, wished: &str) {
    let deadline = Instant::now() + Duration::from_secs(90);
    loop {
        let printed = shell.run(script);
        if printed == wished {
            return;
        }
        assert!(Instant::now() < deadline, "{what}: {script} prints\n{printed}and not\n{wished}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn pools_and_node_pools_are_scaled_by_kubectl() {
    let name = "pools_and_node_pools_are_scaled_by_kubectl";
    let Some(kubectl) = oracle::kubectl(name) else { return };
    if !oracle::require_all(name, &[("bash", "bash")]) {
        return;
    }
    let folder = TempDir::new("scale-kubectl");
    let (data, work) = (folder.path().join("data"), folder.path().join("work"));
    fs::create_dir_all(&work).unwrap();
    let hub = Hub::start(&data);
    let shell = Shell::new(&work, &hub.kubeconfig, &kubectl, &fixtures());
    let mut objects = OBJECTS.to_owned();
    for (pool, host) in [("edge", "e0"), ("edge", "e1"), ("edge", "e2"), ("workers", "w0"), ("workers", "w1")] {
        objects.push_str(&format!("---\napiVersion: kiln.dev/v1alpha1\nkind: Host\nmetadata: {{name: {host}, namespace: default}}\nspec: {{pool: {pool}}}\n"));
        objects.push_str(&format!("---\napiVersion: v1\nkind: Node\nmetadata: {{name: {host}}}\n"));
    }
    fs::write(work.join("objects.yaml"), objects).unwrap();
    let printed = shell.run("kubectl create secret generic hc-admin-kubeconfig --from-file=kubeconfig=$KUBECONFIG && kubectl create -f objects.yaml | wc -l");
    assert_eq!(printed, "secret/hc-admin-kubeconfig created\n12\n");
    for (scaled, kind, pool, prefix, hosts) in [
        ("pool.kiln.dev/edge scaled\n", "pool", "edge", 'e', 3),
        ("nodepool.hypershift.openshift.io/workers scaled\n", "nodepool", "workers", 'w', 2),
    ] {
        let overlays = format!(
            "kubectl get secret -l kiln.dev/ignition=overlay -o name | grep -c secret/overlay-{prefix} || true"
        );
        let nodes = format!("kubectl get node -o name | grep -c node/{prefix} || true");
        until(&shell, "one host is in service", &overlays, "1\n");
        assert_eq!(shell.run(&format!("kubectl scale {kind}/{pool} --replicas={hosts}")), scaled);
        until(&shell, "all hosts are in service", &overlays, &format!("{hosts}\n"));
        assert_eq!(shell.run(&nodes), format!("{hosts}\n"));
        assert_eq!(shell.run(&format!("kubectl scale {kind} {pool} --current-replicas={hosts} --replicas=1")), scaled);
        until(&shell, "one host stays", &overlays, "1\n");
        assert_eq!(shell.run(&nodes), "1\n", "the Nodes of those that went are gone");
        assert_eq!(shell.run(&format!("kubectl get {kind} {pool} -o jsonpath='{{.spec.replicas}}'")), "1\n");
    }
}
