//! The manifests for a real cluster: they are YAML, they name only kinds that exist, and they grant no more than they say.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails loudly")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use kiln::hub::controllers::kinds::{ENACTMENT, HOST, IMAGE, LEASE, OF_NETWORKS, POOL, WATCHED};
use kiln_core::document::yaml::parse_yaml;
use kiln_core::source::SourceMap;
use kiln_testimage::oracle;
use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn documents(name: &str, text: String) -> Vec<Value> {
    let mut sources = SourceMap::default();
    let file = sources.add(name, text);
    let (documents, problems) = parse_yaml(file, sources.file(file));
    assert!(problems.is_empty(), "{name}: {problems:?}");
    documents.iter().map(|document| document.to_json()).collect()
}

/// All objects in `deploy/kiln`.
fn manifests() -> Vec<Value> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(root().join("deploy/kiln")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| !path.ends_with("kustomization.yaml"));
    files.sort();
    assert!(!files.is_empty());
    files
        .iter()
        .flat_map(|path| documents(&path.display().to_string(), std::fs::read_to_string(path).unwrap()))
        .collect()
}

/// `group/plural` of every kind Kiln defines or its API brings along, with subresources.
fn known_resources() -> BTreeSet<String> {
    let mut known: BTreeSet<String> = [
        "certificates.k8s.io/signers",
        "certificates.k8s.io/certificatesigningrequests/approval",
        "events.k8s.io/events",
    ]
    .map(str::to_owned)
    .into();
    for resource in kiln_apiserver::definition::builtin_resources() {
        known.insert(format!("{}/{}", resource.group, resource.plural));
    }
    for definition in kiln_api::definitions::definitions().unwrap() {
        let spec = &definition.manifest["spec"];
        let name = format!("{}/{}", spec["group"].as_str().unwrap(), spec["names"]["plural"].as_str().unwrap());
        for (subresource, _) in spec["versions"][0]["subresources"].as_object().into_iter().flatten() {
            known.insert(format!("{name}/{subresource}"));
        }
        known.insert(name);
    }
    known
}

fn texts(value: &Value) -> Vec<&str> {
    value.as_array().unwrap().iter().map(|item| item.as_str().unwrap()).collect()
}

#[test]
fn every_right_is_about_a_kind_that_exists_and_none_is_a_wildcard() {
    let known = known_resources();
    let manifests = manifests();
    let roles: Vec<&Value> = manifests.iter().filter(|object| object["rules"].is_array()).collect();
    assert_eq!(roles.len(), 2);
    let mut wrong = Vec::new();
    for rule in roles.iter().flat_map(|role| role["rules"].as_array().unwrap()) {
        for group in texts(&rule["apiGroups"]) {
            for resource in texts(&rule["resources"]) {
                let name = format!("{group}/{resource}");
                if !known.contains(&name) {
                    wrong.push(format!("{name} does not exist"));
                }
            }
        }
        for verb in texts(&rule["verbs"]) {
            if verb == "*"
                || verb == "escalate"
                || verb == "bind"
                || verb == "impersonate"
                || verb == "deletecollection"
            {
                wrong.push(format!("{verb} in {rule}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_rights_are_exactly_what_the_controllers_watch_and_write() {
    let mut needed = BTreeSet::new();
    for watched in WATCHED {
        let name = format!("{}/{}", watched.group, watched.plural);
        needed.extend(["get", "list", "watch"].map(|verb| format!("{verb} {name}")));
        if [HOST, POOL, IMAGE].contains(watched) {
            needed.extend(["create", "patch", "delete"].map(|verb| format!("{verb} {name}")));
        }
        if watched.has_written_status() {
            needed.insert(format!("patch {name}/status"));
        }
    }
    // The rollout of networks: enactments and states of nodes are written; slots lie where the hub runs.
    for watched in OF_NETWORKS.iter().filter(|watched| **watched != LEASE) {
        let name = format!("{}/{}", watched.group, watched.plural);
        needed.extend(["get", "list", "watch", "create"].map(|verb| format!("{verb} {name}")));
        if *watched == ENACTMENT {
            needed.insert(format!("delete {name}"));
        }
        needed.insert(format!("patch {name}/status"));
    }
    // Pools keep payloads and tokens in Secrets; the approver tells of denials.
    needed.extend(["create /events", "create /secrets", "patch /secrets", "delete /secrets"].map(str::to_owned));
    // A late host's power is cycled by an annotation.
    needed.insert("patch metal3.io/baremetalhosts".to_owned());
    let manifests = manifests();
    let role = manifests.iter().find(|object| object["kind"] == "ClusterRole").unwrap();
    let mut granted = BTreeSet::new();
    for rule in role["rules"].as_array().unwrap() {
        for group in texts(&rule["apiGroups"]) {
            for resource in texts(&rule["resources"]) {
                granted.extend(texts(&rule["verbs"]).iter().map(|verb| format!("{verb} {group}/{resource}")));
            }
        }
    }
    assert_eq!(granted, needed);
    let role = manifests.iter().find(|object| object["kind"] == "Role").unwrap();
    let leases: BTreeSet<&str> =
        role["rules"].as_array().unwrap().iter().flat_map(|rule| texts(&rule["verbs"])).collect();
    assert_eq!(leases, BTreeSet::from(["get", "list", "watch", "create", "update", "patch", "delete"]));
    // The lease lies where the replicas run.
    let deployment = manifests.iter().find(|object| object["kind"] == "Deployment").unwrap();
    assert_eq!(role["metadata"]["namespace"], deployment["metadata"]["namespace"]);
}

#[test]
fn the_program_knows_every_flag_it_is_started_with() {
    let manifests = manifests();
    let deployment = manifests.iter().find(|object| object["kind"] == "Deployment").unwrap();
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let help = Command::new(env!("CARGO_BIN_EXE_kiln")).args(["serve", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    for argument in texts(&container["args"]).into_iter().filter(|argument| argument.starts_with("--")) {
        let flag = argument.split('=').next().unwrap();
        assert!(help.contains(flag), "kiln serve has no {flag}\n{help}");
    }
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
    assert!(deployment["spec"]["replicas"].as_u64().unwrap() >= 2);
}

#[test]
fn what_listens_is_probed_served_and_let_in() {
    let manifests = manifests();
    let of_kind = |kind: &str| manifests.iter().find(|object| object["kind"] == kind).unwrap();
    let pod = &of_kind("Deployment")["spec"]["template"];
    let container = &pod["spec"]["containers"][0];
    let arguments: Vec<(&str, &str)> =
        texts(&container["args"]).iter().filter_map(|argument| argument.split_once('=')).collect();
    let argument = |flag: &str| arguments.iter().find(|(name, _)| *name == flag).unwrap().1;
    let port = |flag: &str| argument(flag).rsplit(':').next().unwrap().parse::<u64>().unwrap();
    let listening = BTreeSet::from([port("--node-listen"), port("--metrics-listen")]);
    let named = |name: &Value| {
        let ports = container["ports"].as_array().unwrap();
        ports.iter().find(|port| port["name"] == *name).unwrap()["containerPort"].as_u64().unwrap()
    };
    let open: BTreeSet<u64> =
        container["ports"].as_array().unwrap().iter().map(|port| port["containerPort"].as_u64().unwrap()).collect();
    assert_eq!(open, listening);
    // Ready is who can answer machines; health is beside the figures, where no certificate is needed.
    let probe = |name: &str| &container[name]["httpGet"];
    assert_eq!(named(&probe("readinessProbe")["port"]), port("--node-listen"));
    assert_eq!(probe("readinessProbe")["scheme"], "HTTPS");
    assert_eq!(named(&probe("livenessProbe")["port"]), port("--metrics-listen"));
    let service = &of_kind("Service")["spec"];
    assert_eq!(named(&service["ports"][0]["targetPort"]), port("--node-listen"));
    assert_eq!(service["externalTrafficPolicy"], "Local", "boot tokens are bound to the addresses of machines");
    assert_eq!(service["selector"], pod["metadata"]["labels"]);
    let policy = &of_kind("NetworkPolicy")["spec"];
    let ports = |rules: &Value| -> BTreeSet<u64> {
        let rules = rules.as_array().unwrap().iter().flat_map(|rule| rule["ports"].as_array().unwrap());
        rules.map(|port| port["port"].as_u64().unwrap()).collect()
    };
    assert_eq!(ports(&policy["ingress"]), listening);
    assert_eq!(ports(&policy["egress"]), BTreeSet::from([53, 443, 5353, 6443, 10250, 22623]));
    // The certificate is where a Secret of that type is mounted, as a folder, so that a new one is seen.
    let (mount, volume) = (&container["volumeMounts"][0], &pod["spec"]["volumes"][0]);
    let folder = mount["mountPath"].as_str().unwrap();
    assert_eq!(argument("--tls-certificate"), format!("{folder}/tls.crt"));
    assert_eq!(argument("--tls-key"), format!("{folder}/tls.key"));
    assert_eq!((mount["name"] == volume["name"], mount["subPath"].is_null()), (true, true));
    let guide = std::fs::read_to_string(root().join("docs/hub.md")).unwrap();
    assert!(guide.contains(&format!("create secret tls {} ", volume["secret"]["secretName"].as_str().unwrap())));
    let settings = container["envFrom"][0]["configMapRef"]["name"].as_str().unwrap();
    assert!(guide.contains(&format!("create configmap {settings} ")));
}

#[test]
fn the_image_runs_the_program_as_nobody_in_particular() {
    let text = std::fs::read_to_string(root().join("packaging/Containerfile")).unwrap();
    let line = |word: &str| text.lines().rev().find_map(|line| line.strip_prefix(word)).unwrap().trim();
    let user: u32 = line("USER").split(':').next().unwrap().parse().expect("a number");
    assert_ne!(user, 0);
    assert_eq!(line("ENTRYPOINT"), r#"["/usr/local/bin/kiln"]"#);
    // The compiler is the one of the checkout.
    let toolchain = std::fs::read_to_string(root().join("rust-toolchain.toml")).unwrap();
    let version = toolchain.split('"').nth(1).unwrap();
    assert!(text.contains(&format!("rust:{version}-")), "{version}");
}

#[test]
fn kustomize_puts_it_all_together() {
    let Some(kubectl) = oracle::kubectl("kustomize_puts_it_all_together") else { return };
    let definitions = kiln_api::definitions::definitions().unwrap();
    let native = definitions.iter().filter(|definition| definition.native).count();
    for (folder, expected) in [("deploy", native), ("deploy/with-dialects", definitions.len())] {
        let output = Command::new(&kubectl).args(["kustomize", folder]).current_dir(root()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let objects = documents(folder, String::from_utf8(output.stdout).unwrap());
        let defined = objects.iter().filter(|object| object["kind"] == "CustomResourceDefinition").count();
        assert_eq!(defined, expected, "{folder}");
        assert_eq!(objects.len() - defined, manifests().len(), "{folder}");
        for object in objects.iter().filter(|object| object["kind"] == "CustomResourceDefinition") {
            assert!(kiln_apiserver::definition::parse_definition(object).is_ok(), "{}", object["metadata"]["name"]);
        }
    }
}
