//! What the kubelet of a node is told: labels and taints of one host, KubeletConfigs of a pool.
//!
//! Labels stand in a drop-in of `kubelet.service`: the machine-config-operator's unit reads `CUSTOM_KUBELET_LABELS`,
//! kubeadm's reads `KUBELET_EXTRA_ARGS`, which also carries the taints. A kubelet refuses to start with a label of
//! `kubernetes.io` or `k8s.io` that it does not know, so such labels are left out here; the hub puts them on the Node when
//! it registers. A KubeletConfig becomes a file of the kubelet's drop-in folder, which a kubelet reads that runs with
//! `--config-dir`; the operator's merge with its own templates is not done here.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::file_entry;
use crate::world::Taint;

/// Where the drop-in lies.
pub const DROP_IN: &str = "/etc/systemd/system/kubelet.service.d/20-kiln.conf";
/// Where a kubelet with `--config-dir` reads further settings.
pub const CONFIG_FOLDER: &str = "/etc/kubernetes/kubelet.conf.d";

/// Labels of these domains are the project's own; a kubelet sets only those it knows.
const RESERVED: [&str; 2] = ["kubernetes.io", "k8s.io"];
/// Whole domains among them that a kubelet may use.
const OPEN_DOMAINS: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];
/// Single labels among them that a kubelet may set.
const KNOWN: [&str; 10] = [
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];

/// Whether a kubelet may give itself this label.
pub fn may_set(label: &str) -> bool {
    let Some((domain, _)) = label.split_once('/') else { return true };
    let within = |outer: &str| domain == outer || domain.strip_suffix(outer).is_some_and(|rest| rest.ends_with('.'));
    !RESERVED.iter().any(|reserved| within(reserved))
        || OPEN_DOMAINS.iter().any(|open| within(open))
        || KNOWN.contains(&label)
}

/// The drop-in as an entry of `storage.files`; none when there is nothing to say.
pub fn render_drop_in(labels: &BTreeMap<String, String>, taints: &[Taint]) -> Option<Value> {
    let labels: Vec<String> = labels
        .iter()
        .filter(|(key, _)| may_set(key))
        .map(|(key, value)| format!("{}={}", quoted(key), quoted(value)))
        .collect();
    let taints: Vec<String> = taints
        .iter()
        .map(|taint| format!("{}={}:{}", quoted(&taint.key), quoted(&taint.value), quoted(&taint.effect)))
        .collect();
    let mut extra = Vec::new();
    if !labels.is_empty() {
        extra.push(format!("--node-labels={}", labels.join(",")));
    }
    if !taints.is_empty() {
        extra.push(format!("--register-with-taints={}", taints.join(",")));
    }
    if extra.is_empty() {
        return None;
    }
    let mut text = "[Service]\n".to_owned();
    if !labels.is_empty() {
        text.push_str(&format!("Environment=\"CUSTOM_KUBELET_LABELS={}\"\n", labels.join(",")));
    }
    text.push_str(&format!("Environment=\"KUBELET_EXTRA_ARGS={}\"\n", extra.join(" ")));
    Some(file_entry(DROP_IN, 0o644, text.as_bytes()))
}

/// What could end the quotes, begin a specifier or a new line is not part of any label or taint.
fn quoted(text: &str) -> String {
    text.chars().filter(|letter| letter.is_ascii_alphanumeric() || "-_./".contains(*letter)).collect()
}

/// A KubeletConfig as an entry of `storage.files`. `settings` is its `spec.kubeletConfig`.
pub fn render_kubelet_config(name: &str, settings: &Value) -> Value {
    let mut config = json!({"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"});
    for (key, value) in settings.as_object().into_iter().flatten() {
        if !["apiVersion", "kind"].contains(&key.as_str()) {
            config[key] = value.clone();
        }
    }
    let name: String = name.chars().filter(|letter| letter.is_ascii_alphanumeric() || "-.".contains(*letter)).collect();
    file_entry(&format!("{CONFIG_FOLDER}/50-{name}.conf"), 0o644, format!("{config}\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ignition::data_url;

    fn text(entry: &Value) -> String {
        String::from_utf8(data_url::decode(entry["contents"]["source"].as_str().unwrap()).unwrap()).unwrap()
    }

    #[test]
    fn a_kubelet_is_not_given_labels_it_would_refuse_to_start_with() {
        for (label, may) in [
            ("zone", true),
            ("example.com/rack", true),
            ("node-role.kubernetes.io/worker", false),
            ("kubernetes.io/hostname", true),
            ("node.kubernetes.io/instance-type", true),
            ("topology.kubernetes.io/region", true),
            ("x.node.kubernetes.io/a", true),
            ("foo.k8s.io/a", false),
            ("k8s.io/a", false),
            ("mykubernetes.io/a", true),
        ] {
            assert_eq!(may_set(label), may, "{label}");
        }
    }

    #[test]
    fn labels_and_taints_stand_in_one_drop_in() {
        let labels = [("zone", "a"), ("node-role.kubernetes.io/infra", ""), ("disk", "ssd")];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let taints = [Taint { key: "dedicated".into(), value: "edge\"\n".into(), effect: "NoSchedule".into() }];
        let entry = render_drop_in(&labels, &taints).unwrap();
        assert_eq!((entry["path"].as_str(), entry["mode"].as_i64()), (Some(DROP_IN), Some(420)));
        let expected = "[Service]\nEnvironment=\"CUSTOM_KUBELET_LABELS=disk=ssd,zone=a\"\nEnvironment=\"KUBELET_EXTRA_ARGS=--node-labels=disk=ssd,zone=a --register-with-taints=dedicated=edge:NoSchedule\"\n";
        assert_eq!(text(&entry), expected);
        assert_eq!(render_drop_in(&BTreeMap::new(), &[]), None);
    }

    #[test]
    fn a_kubelet_config_becomes_a_file_of_the_drop_in_folder() {
        let entry = render_kubelet_config("max-pods", &json!({"maxPods": 500}));
        assert_eq!(entry["path"], "/etc/kubernetes/kubelet.conf.d/50-max-pods.conf");
        let expected = r#"{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","maxPods":500}"#;
        assert_eq!(text(&entry), format!("{expected}\n"));
    }
}
