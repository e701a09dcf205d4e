//! Rendering, tried on MachineConfigs made from YAML-like JSON.

use serde_json::json;

use super::*;
use crate::diagnostic::ObjectId;
use crate::document::json::parse_json;
use crate::source::SourceMap;
use crate::world::{LabelSelector, Meta, Requirement};

/// Builds MachineConfigs from JSON, all in one source map.
#[derive(Default)]
struct Manifests {
    sources: SourceMap,
    configs: Vec<MachineConfig>,
}

impl Manifests {
    fn add(&mut self, name: &str, role: &str, spec: serde_json::Value) -> &mut MachineConfig {
        let file = self.sources.add(format!("{name}.json"), spec.to_string());
        let (root, findings) = parse_json(file, self.sources.file(file));
        assert_eq!(findings, []);
        let root = root.unwrap();
        let text = |node: &Node| Sourced::new(node.as_str().unwrap().to_owned(), node.at);
        let texts = |key: &str| root.get(key).map(Node::items).unwrap_or_default().iter().map(text).collect();
        let role = Sourced::new(role.to_owned(), root.at);
        self.configs.push(MachineConfig {
            meta: Meta {
                id: ObjectId { kind: "MachineConfig".into(), namespace: String::new(), name: name.into() },
                at: root.at,
                labels: [(ROLE_LABEL.to_owned(), role.clone())].into(),
                annotations: Default::default(),
            },
            role: Some(role),
            config: root.get("config").cloned(),
            kernel_arguments: texts("kernelArguments"),
            extensions: texts("extensions"),
            fips: root.get("fips").map(|fips| Sourced::new(fips.as_bool().unwrap(), fips.at)),
            kernel_type: root.get("kernelType").map(text),
            os_image_url: root.get("osImageURL").map(text),
            within: None,
        });
        self.configs.last_mut().unwrap()
    }

    fn file(&mut self, name: &str, role: &str, file: serde_json::Value) {
        self.add(
            name,
            role,
            json!({ "config": { "ignition": { "version": "3.2.0" }, "storage": { "files": [file] } } }),
        );
    }

    fn render(&self, pool: &str) -> Rendered {
        render(pool, &members_of_role(pool, &self.configs)).unwrap()
    }
}

fn messages(rendered: &Rendered) -> Vec<String> {
    rendered.diagnostics.iter().map(|finding| format!("{}: {}", finding.code, finding.message)).collect()
}

#[test]
fn a_custom_pool_wins_over_the_worker_whatever_the_names() {
    let mut manifests = Manifests::default();
    let motd = |source: &str| json!({ "path": "/etc/motd", "contents": { "source": source } });
    manifests.file("00-edge", "edge", motd("data:,edge"));
    manifests.file("99-worker", "worker", motd("data:,late"));
    manifests.file("50-worker", "worker", motd("data:,early"));
    manifests.file("99-master", "master", motd("data:,master"));
    let edge = manifests.render("edge");
    assert_eq!(edge.members, ["50-worker", "99-worker", "00-edge"]);
    let expected = json!({
        "ignition": { "version": "3.5.0" },
        "storage": { "files": [{ "path": "/etc/motd", "contents": { "source": "data:,edge" }, "overwrite": true }] },
    });
    assert_eq!(edge.config.root.to_json(), expected);
    assert_eq!(manifests.render("worker").members, ["50-worker", "99-worker"]);
    assert_eq!(manifests.render("master").members, ["99-master"]);
    assert_eq!(messages(&edge), [""; 0]);
    assert!(render("empty", &[]).is_none());
}

#[test]
fn a_declared_pool_takes_what_its_selector_chooses() {
    let mut manifests = Manifests::default();
    manifests.add("50-worker", "worker", json!({}));
    manifests.add("50-edge", "edge", json!({}));
    manifests.add("50-master", "master", json!({}));
    let at = manifests.configs[0].meta.at;
    let sourced = |text: &str| Sourced::new(text.to_owned(), at);
    let mut pool = Pool {
        meta: manifests.configs[0].meta.clone(),
        origin: PoolOrigin::MachineConfigPool,
        config_selector: LabelSelector {
            expressions: vec![Requirement {
                key: sourced(ROLE_LABEL),
                operator: sourced("In"),
                values: vec![sourced("worker"), sourced("edge")],
            }],
            ..LabelSelector::default()
        },
        node_selector: LabelSelector::default(),
        config_maps: Vec::new(),
        replicas: None,
        platform: None,
        upgrade_type: None,
        auto_repair: None,
        cluster_name: None,
        release_image: None,
        max_unavailable: None,
        network: None,
        paused: None,
        node_labels: Default::default(),
        node_taints: Vec::new(),
        ignition: None,
        first_boot_network: Default::default(),
        proxy: None,
        own_bootstrap_user: false,
        within: None,
    };
    let names = |chosen: Vec<&MachineConfig>| chosen.iter().map(|it| it.meta.id.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(members(&pool, &manifests.configs)), ["50-worker", "50-edge"]);

    // A hosted pool takes the MachineConfigs of the ConfigMaps it names.
    pool.origin = PoolOrigin::NodePool;
    pool.meta.id.namespace = "clusters".into();
    pool.config_maps = vec![crate::world::Reference { namespace: String::new(), name: "extra".into(), at }];
    manifests.configs[2].within =
        Some(ObjectId { kind: "ConfigMap".into(), namespace: "clusters".into(), name: "extra".into() });
    assert_eq!(names(members(&pool, &manifests.configs)), ["50-master"]);
}

#[test]
fn arguments_and_extensions_are_concatenated_and_flags_follow_their_rules() {
    let mut manifests = Manifests::default();
    manifests.add(
        "10-a",
        "worker",
        json!({ "kernelArguments": ["nosmt", "quiet"], "extensions": ["usbguard"], "fips": true, "kernelType": "realtime",
                "osImageURL": "quay.io/a" }),
    );
    manifests.add(
        "20-b",
        "worker",
        json!({ "kernelArguments": ["quiet"], "extensions": ["usbguard"], "fips": false, "kernelType": "default",
                "osImageURL": "" }),
    );
    let rendered = manifests.render("worker");
    let values = |list: &[Sourced<String>]| list.iter().map(|it| it.value.clone()).collect::<Vec<_>>();
    assert_eq!(values(&rendered.kernel_arguments), ["nosmt", "quiet", "quiet"]);
    assert_eq!(values(&rendered.extensions), ["usbguard", "usbguard"]);
    assert!(rendered.fips);
    assert_eq!(rendered.kernel_type.unwrap().value, "realtime");
    assert_eq!(rendered.os_image_url.unwrap().value, "quay.io/a");
    let from = manifests.sources.file(rendered.kernel_arguments[2].at.file);
    assert_eq!(from.name, "20-b.json");
}

#[test]
fn a_file_never_inherits_the_compression_of_the_one_it_replaces() {
    let mut manifests = Manifests::default();
    let packed = json!({ "path": "/etc/a", "contents": { "source": "data:;base64,H4sIAAAAAAAAA0vLz+cCAKhlMn4EAAAA", "compression": "gzip" } });
    manifests.file("10-a", "worker", packed.clone());
    manifests.file("20-b", "worker", json!({ "path": "/etc/a", "contents": { "source": "data:,plain" } }));
    let rendered = manifests.render("worker");
    let file = &rendered.config.root.path(&["storage", "files"]).unwrap().items()[0];
    let expected = json!({ "path": "/etc/a", "contents": { "source": "data:,plain" }, "overwrite": true });
    assert_eq!(file.to_json(), expected);
    assert_eq!(messages(&rendered), [""; 0]);

    // A MachineConfig that changes only the mode leaves contents and compression together.
    let mut manifests = Manifests::default();
    manifests.file("10-a", "worker", packed);
    manifests.file("20-b", "worker", json!({ "path": "/etc/a", "mode": 384 }));
    let rendered = manifests.render("worker");
    let file = &rendered.config.root.path(&["storage", "files"]).unwrap().items()[0];
    assert_eq!(file.path(&["contents", "compression"]).unwrap().as_str(), Some("gzip"));
    assert_eq!(file.get("mode").unwrap().as_integer(), Some(384));
}

#[test]
fn what_the_operator_refuses_is_an_error() {
    let mut manifests = Manifests::default();
    manifests.add(
        "10-a",
        "worker",
        json!({
            "kernelType": "rt", "extensions": ["foo", "kernel-devel"],
            "config": { "ignition": { "version": "3.2.0" }, "storage": { "files": [
                { "path": "/etc/a", "mode": 644, "contents": { "source": "data:," } },
                { "path": "/etc/b", "mode": 0o1777, "append": [{ "source": "data:,x" }] },
            ] } },
        }),
    );
    manifests.add(
        "20-b",
        "worker",
        json!({ "kernelType": "64k-pages", "config": { "ignition": { "version": "3.6.0" } } }),
    );
    manifests.add(
        "30-c",
        "worker",
        json!({ "config": { "ignition": { "version": "2.2.0" }, "passwd": { "users": [{ "name": "core" }, { "name": "eve" }] } } }),
    );
    let rendered = manifests.render("worker");
    assert!(rendered.is_refused());
    assert_eq!(
        messages(&rendered),
        [
            "KLN0482: there is no kernel type `rt`",
            "KLN0483: there is no extension `foo`",
            "KLN0480: `20-b` is written in spec 3.6.0",
            "KLN0487: the user `eve` cannot be configured",
            "KLN0481: mode 644 (01204) of `/etc/a` exceeds 0777",
            "KLN0481: mode 1023 (01777) of `/etc/b` exceeds 0777",
            "KLN0485: `/etc/b` appends to a file",
            "KLN0484: kernel-devel cannot be installed with the `64k-pages` kernel",
        ]
    );
    assert_eq!(
        rendered.diagnostics[4].help.as_deref(),
        Some("write `mode: 420` (0644); JSON and the number 644 are decimal")
    );
}

#[test]
fn what_only_a_first_boot_honours_is_noted() {
    let mut manifests = Manifests::default();
    manifests.add(
        "10-a",
        "worker",
        json!({ "config": { "ignition": { "version": "3.3.0" },
            "storage": { "links": [{ "path": "/etc/l", "target": "/x" }], "disks": [] },
            "kernelArguments": { "shouldExist": ["a"] } } }),
    );
    let expected = [
        "KLN0488: links are honoured on new nodes only",
        "KLN0488: Ignition kernel arguments are honoured on new nodes only",
    ];
    assert_eq!(messages(&manifests.render("worker")), expected);
}

#[test]
fn the_size_limit_of_etcd_is_warned_of_and_kept() {
    for (bytes, severity) in
        [(1_000_000, None), (1_300_000, Some(Severity::Warning)), (1_600_000, Some(Severity::Error))]
    {
        let mut manifests = Manifests::default();
        let source = format!("data:,{}", "x".repeat(bytes));
        manifests.file("10-a", "worker", json!({ "path": "/etc/a", "contents": { "source": source } }));
        let rendered = manifests.render("worker");
        let found = rendered.diagnostics.first().map(|finding| (finding.code, finding.severity));
        assert_eq!(found, severity.map(|severity| (Code(486), severity)), "{bytes}");
    }
}
