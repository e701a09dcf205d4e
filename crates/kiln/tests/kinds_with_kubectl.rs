//! What people have in folders, applied with a real kubectl to `kiln serve`: accepted unchanged, in any order, and told
//! what `kiln check` tells about the folder.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails loudly")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use kiln_core::document::yaml::parse_yaml;
use kiln_core::source::SourceMap;
use kiln_testimage::oracle;
use kiln_testimage::temp_dir::TempDir;
use serde_json::{Value, json};

/// A running hub.
struct Hub {
    process: Child,
    kubectl: PathBuf,
    data: TempDir,
}

impl Hub {
    fn start(kubectl: &Path, name: &str) -> Hub {
        let data = TempDir::new(name);
        let process = Command::new(env!("CARGO_BIN_EXE_kiln"))
            .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(data.path())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let hub = Hub { process, kubectl: kubectl.to_owned(), data };
        let deadline = Instant::now() + Duration::from_secs(60);
        while !hub.data.path().join("kubeconfig").exists() {
            assert!(Instant::now() < deadline, "kiln serve wrote no kubeconfig");
            std::thread::sleep(Duration::from_millis(10));
        }
        hub
    }

    /// Runs kubectl; gives whether it succeeded, what it printed and what it complained.
    fn run(&self, arguments: &[&str], input: &str) -> (bool, String, String) {
        let mut child = Command::new(&self.kubectl)
            .env("KUBECONFIG", self.data.path().join("kubeconfig"))
            .env("HOME", self.data.path())
            .arg("--request-timeout=60s")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
        (status.success(), text(&stdout), text(&stderr))
    }

    fn apply(&self, objects: &[Value], more: &[&str]) -> String {
        let documents: Vec<String> = objects.iter().map(Value::to_string).collect();
        let (done, printed, complained) = self.run(&[&["apply", "-f", "-"], more].concat(), &documents.join("\n"));
        assert!(done, "kubectl apply failed:\n{complained}\n{printed}");
        complained
    }

    /// Makes the namespaces that objects are in and defines their kinds, which come first everywhere.
    fn prepare(&self, objects: &[Value]) {
        let names: BTreeSet<&str> =
            objects.iter().filter_map(|object| object["metadata"]["namespace"].as_str()).collect();
        let namespaces: Vec<Value> = names
            .into_iter()
            .map(|name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
            .collect();
        let definitions = objects.iter().filter(|object| object["kind"] == "CustomResourceDefinition").cloned();
        let first: Vec<Value> = namespaces.into_iter().chain(definitions).collect();
        if !first.is_empty() {
            self.apply(&first, &[]);
        }
    }

    /// Each of the objects as it is stored, without what differs from store to store.
    fn stored(&self, objects: &[Value]) -> Vec<String> {
        let mut found: Vec<String> = objects
            .iter()
            .map(|object| {
                let (group, version) = match object["apiVersion"].as_str().unwrap().split_once('/') {
                    Some((group, version)) => (format!(".{group}"), format!(".{version}")),
                    None => (String::new(), String::new()),
                };
                let kind = format!("{}{version}{group}", object["kind"].as_str().unwrap());
                let name = object["metadata"]["name"].as_str().unwrap();
                let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default");
                let (done, printed, complained) = self.run(&["get", &kind, name, "-n", namespace, "-o", "json"], "");
                assert!(done, "{kind} {name}: {complained}");
                let mut stored: Value = serde_json::from_str(&printed).unwrap();
                let metadata = stored["metadata"].as_object_mut().unwrap();
                for own in ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"] {
                    metadata.shift_remove(own);
                }
                if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
                    annotations.shift_remove("kubectl.kubernetes.io/last-applied-configuration");
                }
                stored["spec"].to_string() + &stored["data"].to_string() + &stored["metadata"].to_string()
            })
            .collect();
        found.sort();
        found
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Kinds that the fixture of every kind has to show that they are carried: no hub serves them.
const UNSERVED: [(&str, &str); 4] = [
    ("machineconfiguration.openshift.io/v1", "MachineConfigNode"),
    ("karpenter.sh/v1", "NodePool"),
    ("v1", "Pod"),
    ("kustomize.config.k8s.io/v1beta1", "Kustomization"),
];

/// Every object below a folder, in the order of the files.
fn objects_of(folder: &Path) -> Vec<Value> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut objects = Vec::new();
    for path in files.iter().filter(|path| path.extension().is_some_and(|extension| extension == "yaml")) {
        let mut sources = SourceMap::default();
        let file = sources.add(path.display().to_string(), std::fs::read_to_string(path).unwrap());
        let (documents, _) = parse_yaml(file, sources.file(file));
        objects.extend(documents.iter().map(|document| document.to_json()).filter(|object| object["kind"].is_string()));
    }
    // A list is its items, as for kubectl.
    let items = |object: Value| match &object["items"] {
        Value::Array(items) => items.clone(),
        _ => vec![object],
    };
    let mut objects: Vec<Value> = objects.into_iter().flat_map(items).collect();
    let served = |object: &Value| {
        let is = |(version, kind): &(&str, &str)| object["apiVersion"] == *version && object["kind"] == *kind;
        !UNSERVED.iter().any(is)
    };
    objects.retain(|object| served(object) && object["metadata"]["name"].is_string());
    objects
}

/// The codes in warnings or findings.
fn codes(text: &str) -> BTreeSet<String> {
    text.match_indices("KLN").filter_map(|(at, _)| text.get(at..at + 7)).map(str::to_owned).collect()
}

/// The codes `kiln check` has for a folder.
fn checked(folder: &Path) -> BTreeSet<String> {
    let output =
        Command::new(env!("CARGO_BIN_EXE_kiln")).args(["check", "--format", "json"]).arg(folder).output().unwrap();
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["code"].as_str().unwrap().to_owned())
        .collect()
}

/// Every folder of examples with objects in it, a complete site, and one typical object of every kind.
fn examples() -> Vec<PathBuf> {
    let below = |folder: &str| {
        let entries = std::fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.is_dir()).collect::<Vec<_>>()
    };
    let mut folders = [below("examples"), below("examples/broken")].concat();
    folders.retain(|folder| !objects_of(folder).is_empty());
    folders.sort();
    folders.push(root().join("fixtures/check/a_complete_site_has_nothing_to_hear"));
    folders.push(root().join("fixtures/dialects/every_kind"));
    folders
}

#[test]
fn every_example_is_accepted_unchanged_in_any_order_and_judged_as_by_kiln_check() {
    let Some(kubectl) = oracle::kubectl("every_example_is_accepted_unchanged_in_any_order_and_judged_as_by_kiln_check")
    else {
        return;
    };
    let examples = examples();
    assert!(examples.len() >= 7, "{examples:?}");
    for folder in examples {
        let (example, objects) = (folder.display(), objects_of(&folder));
        let hub = Hub::start(&kubectl, "kinds-forward");
        hub.prepare(&objects);
        hub.apply(&objects, &[]);
        let forward = hub.stored(&objects);
        // With everything in its place, what is said about all objects is what is said about the folder.
        let told = codes(&hub.apply(&objects, &["--server-side", "--force-conflicts", "--dry-run=server"]));
        assert_eq!(told, checked(&folder), "{example}");
        drop(hub);
        let hub = Hub::start(&kubectl, "kinds-backward");
        hub.prepare(&objects);
        let backward: Vec<Value> = objects.iter().rev().cloned().collect();
        hub.apply(&backward, &[]);
        assert_eq!(hub.stored(&objects), forward, "{example}: stored differently in another order");
    }
}

const BAD_HOST: &str = r#"{"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": {"name": "bad"},
  "spec": {"online": true, "bmc": {"address": "redfish-virtual-media://192.0.2.1/redfish/v1/Systems/1", "credentialsName": "x"}}}"#;
const UNTYPED_HOST: &str = r#"{"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": {"name": "bad"},
  "spec": {"online": "yes", "bmc": {"address": "redfish://192.0.2.1/redfish/v1/Systems/1"}}}"#;
const NATIVE_TYPO: &str =
    r#"{"apiVersion": "kiln.dev/v1alpha1", "kind": "Host", "metadata": {"name": "bad"}, "spec": {"macAdress": "x"}}"#;

#[test]
fn what_upstream_refuses_is_refused_and_everything_else_is_a_warning() {
    let Some(kubectl) = oracle::kubectl("what_upstream_refuses_is_refused_and_everything_else_is_a_warning") else {
        return;
    };
    let hub = Hub::start(&kubectl, "kinds-refused");
    let (done, _, complained) = hub.run(&["apply", "-f", "-"], BAD_HOST);
    assert!(!done);
    assert!(complained.contains("spec.bmc.address: KLN0321: "), "{complained}");
    assert!(complained.contains("; fix: "), "{complained}");
    let (done, _, complained) = hub.run(&["apply", "-f", "-"], UNTYPED_HOST);
    assert!(!done);
    for expected in ["spec.online: Invalid value: ", "spec.bmc.credentialsName: Required value"] {
        assert!(complained.contains(expected), "{complained}");
    }
    let (done, _, complained) = hub.run(&["apply", "-f", "-"], NATIVE_TYPO);
    assert!(!done);
    assert!(complained.contains("unknown field \"spec.macAdress\""), "{complained}");
    let good = BAD_HOST.replace("redfish-virtual-media", "redfish-virtualmedia");
    let (done, printed, complained) = hub.run(&["apply", "-f", "-"], &good);
    assert!(done, "{complained}");
    assert_eq!(printed, "baremetalhost.metal3.io/bad created");
    assert!(complained.lines().all(|line| line.starts_with("Warning: KLN")), "{complained}");
    let twin = good.replace("\"bad\"", "\"twin\"");
    let (_, _, complained) = hub.run(&["apply", "-f", "-"], &twin);
    assert!(codes(&complained).contains("KLN0319"), "{complained}");
}

/// `fixtures/hub/kinds.txt` has the line of `kubectl api-resources` of each kind and the heads of `kubectl get`.
/// `UPDATE_FIXTURES=1` rewrites it.
#[test]
fn kinds_have_their_short_names_columns_and_explanations() {
    let Some(kubectl) = oracle::kubectl("kinds_have_their_short_names_columns_and_explanations") else { return };
    let hub = Hub::start(&kubectl, "kinds-names");
    let (_, names, _) = hub.run(&["get", "crd", "-o", "name"], "");
    let names: BTreeSet<&str> = names.lines().filter_map(|line| line.split_once('/')).map(|(_, name)| name).collect();
    assert_eq!(names.len(), kiln_api_definitions());
    let objects = objects_of(&root().join("fixtures/dialects/every_kind"));
    hub.prepare(&objects);
    hub.apply(&objects, &[]);
    let all = names.iter().copied().collect::<Vec<_>>().join(",");
    let (_, narrow, complained) = hub.run(&["get", &all, "--all-namespaces"], "");
    let (_, wide, _) = hub.run(&["get", &all, "--all-namespaces", "-o", "wide"], "");
    let (narrow, wide) = (heads(&narrow), heads(&wide));
    let (_, resources, _) = hub.run(&["api-resources", "--no-headers"], "");
    let mut found = String::new();
    for line in resources.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [plural, .., version, _, kind] = words[..] else { panic!("{line}") };
        let group = version.split_once('/').map_or("", |(group, _)| group);
        if !names.contains(format!("{plural}.{group}").as_str()) {
            continue;
        }
        let of_kind = format!("{}.{group}", kind.to_lowercase());
        let head = |heads: &BTreeMap<String, String>| {
            heads.get(&of_kind).unwrap_or_else(|| panic!("no {of_kind} is shown: {complained}")).clone()
        };
        found += &format!("{}\n  {}\n", words.join(" "), head(&narrow));
        if head(&wide) != head(&narrow) {
            found += &format!("  wide: {}\n", head(&wide));
        }
    }
    let file = root().join("fixtures/hub/kinds.txt");
    if std::env::var_os("UPDATE_FIXTURES").is_some() {
        std::fs::write(&file, &found).unwrap();
    }
    let expected = std::fs::read_to_string(&file).unwrap();
    assert_eq!(found, expected, "{} differs; UPDATE_FIXTURES=1 rewrites it", file.display());
    assert_eq!(found.lines().filter(|line| !line.starts_with(' ')).count(), names.len());
    let (_, explained, _) = hub.run(&["explain", "host.spec.network", "--api-version=kiln.dev/v1alpha1"], "");
    assert!(explained.contains("nmstate document, honoured at every phase."), "{explained}");
}

/// The heads of the tables of many kinds, by `kind.group` of the object in the first row.
fn heads(tables: &str) -> BTreeMap<String, String> {
    let head_of = |table: &str| {
        let mut lines = table.lines();
        let head = lines.next()?.split("  ").map(str::trim).filter(|name| !name.is_empty() && *name != "NAMESPACE");
        let (of_kind, _) = lines.next()?.split_whitespace().find_map(|word| word.split_once('/'))?;
        Some((of_kind.to_owned(), head.collect::<Vec<_>>().join(" | ")))
    };
    tables.split("\n\n").filter_map(head_of).collect()
}

fn kiln_api_definitions() -> usize {
    let output = Command::new(env!("CARGO_BIN_EXE_kiln")).args(["crds", "--all", "-o", "json"]).output().unwrap();
    let list: Value = serde_json::from_slice(&output.stdout).unwrap();
    list["items"].as_array().unwrap().len()
}
