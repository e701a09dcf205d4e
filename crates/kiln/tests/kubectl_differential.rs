//! The commands of `fixtures/hub/kubectl.txt` told to `kiln serve` and to a real API server, compared line by line.
//!
//! The real one is started from `KUBEBUILDER_ASSETS` (etcd, kube-apiserver, kube-controller-manager, and kubectl unless
//! `KILN_KUBECTL` names another). Every difference is in [`KNOWN`] with its reason, or a failure; a reason that is no longer
//! needed is a failure too. The table is written for Kubernetes 1.20, which needs the least to be built.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test fails loudly and says what it skips")]

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use kiln_testimage::oracle;
use kiln_testimage::temp_dir::TempDir;
use regex::Regex;

use cluster::Cluster;
use hub::Hub;
use shell::{Shell, fixtures};
use transcript::parse_transcript;

#[path = "support/cluster.rs"]
mod cluster;
#[path = "support/hub.rs"]
mod hub;
#[path = "support/shell.rs"]
mod shell;
#[path = "support/transcript.rs"]
mod transcript;

/// Why the two servers may differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Because {
    /// A newer real server does what the hub does.
    Old(&'static str),
    /// The hub does it on purpose; `docs/hub.md` or `docs/kubectl.md` says so.
    Chosen(&'static str),
    /// The hub is faster, but not always.
    Sometimes(&'static str),
}
use Because::{Chosen, Old, Sometimes};

/// Commands that print something else, or how they begin, and why.
const KNOWN: &[(&str, Because)] = &[
    ("kubectl version", Old("says that it is 1.20")),
    ("kubectl get --raw /version…", Old("says that it is 1.20")),
    ("kubectl auth whoami", Old("has no SelfSubjectReview")),
    ("kubectl explain …", Old("explains from OpenAPI v2")),
    (
        "kubectl patch wd w1 --type=json -p '[{\"op\":\"test\"…",
        Chosen("the operation that does not fit is named by its number"),
    ),
    (
        "kubectl patch wd w1 --type=json -p '[{\"op\":\"remove\"…",
        Chosen("the operation that does not fit is named by its number"),
    ),
    ("kubectl patch wd w1 --type=merge -p '{\"spec\":{\"bogus\":1}}'", Old("does not warn of unknown fields")),
    ("kubectl patch wd w1 --type=merge -p '{\"status\":…", Old("records a status that it does not take as managed")),
    (
        "y '{apiVersion: example.org/v1, kind: Widget, metadata: {name: bad}, spec: {size: -1, mode: warp, typo…",
        Old("leaves unknown fields to kubectl"),
    ),
    (
        "y '{apiVersion: example.org/v1, kind: Widget, metadata: {name: warned}…",
        Old("leaves unknown fields to kubectl"),
    ),
    (
        "y '{apiVersion: example.org/v1, kind: Widget, metadata: {name: nospec}…",
        Old("leaves missing fields to kubectl"),
    ),
    (
        "y '{apiVersion: example.org/v1, kind: Widget, metadata: {name: x}, spec: {size: 1, ports: [{name: a}, {name: a}]…",
        Old("shows a value as Go does"),
    ),
    ("ssa() {…", Old("lets kubectl refuse an apply without required fields")),
    ("kubectl get wd ssa -o yaml…", Old("has not got that apply")),
    ("kubectl patch wd ssa --type=merge -p '{\"spec\":{\"ports\"…", Old("has not got that apply")),
    ("kubectl patch wd ssa --type=merge --subresource=status…", Old("does not tell managers of the status apart")),
    ("kubectl apply --server-side -f $F/w1.yaml", Old("does not say when the other manager wrote")),
    ("for m in kubectl kubectl-last-applied…", Old("does not tell managers of the status apart")),
    (
        "kubectl patch wd ssa --type=merge -p '{\"metadata\":{\"finalizers\":[\"example.org/x\"]}}'; …",
        Old("has not got that apply, so it counts one generation less"),
    ),
    ("family() {…", Sometimes("owned objects are gone before kubectl begins to wait")),
    (
        "y '{apiVersion: v1, kind: Secret, metadata: {name: s6}…",
        Chosen("bytes that are no base64 are a mistake with its place (422), not an unreadable body (400)"),
    ),
    ("kubectl get csr", Old("has no duration")),
    ("sed 's/type: integer/type: nonsense/…", Chosen("mistakes in a definition are told where they stand")),
    ("kubectl get wd", Chosen("a path nobody serves gets a Status, not plain text")),
];

/// What 1.20 does not know in a definition.
const TOO_NEW: [&str; 3] = ["x-kubernetes-validations:", "- {rule:", "selectableFields:"];

#[test]
fn a_real_server_prints_the_same() {
    let name = "a_real_server_prints_the_same";
    let own = std::env::var_os("KUBEBUILDER_ASSETS").map(|assets| PathBuf::from(assets).join("kubectl"));
    let chosen = own.filter(|path| path.is_file() && std::env::var_os("KILN_KUBECTL").is_none());
    let Some(kubectl) = chosen.or_else(|| oracle::kubectl(name)) else { return };
    if !oracle::require_all(name, &[("openssl", "openssl"), ("bash", "bash")]) {
        return;
    }
    let folder = TempDir::new("differential");
    let Some(cluster) = Cluster::start(name, &folder.join("cluster"), &kubectl) else { return };
    let hub = Hub::start(&folder.join("data"));
    let old_fixtures = folder.join("fixtures");
    write_for_old_servers(&old_fixtures);
    let shell = |name: &str, credentials: &Path| {
        let work = folder.join(name);
        fs::create_dir_all(&work).unwrap();
        Shell::new(&work, credentials, &kubectl, &old_fixtures)
    };
    let (ours, theirs) = (shell("hub", &hub.kubeconfig), shell("real", &cluster.kubeconfig));
    let transcript = parse_transcript(&fs::read_to_string(fixtures().join("kubectl.txt")).unwrap());
    let (mut wrong, mut needed, mut same) = (Vec::new(), HashSet::new(), 0);
    for step in transcript.iter().filter(|step| !step.script.is_empty()) {
        let script = step.script.as_str();
        let (mine, mut real) = std::thread::scope(|scope| {
            let mine = scope.spawn(|| comparable(&ours.run(script)));
            let real = comparable(&theirs.run(script));
            (mine.join().unwrap(), real)
        });
        let is_it = |text: &str| text.strip_suffix('…').map_or(script == text, |begins| script.starts_with(begins));
        let known = KNOWN.iter().position(|(text, _)| is_it(text));
        // What was written a moment ago is not everywhere in a real server yet; who only reads may ask again.
        for _ in 0..3 {
            if mine == real || known.is_some() || !is_reading(script) {
                break;
            }
            std::thread::sleep(Duration::from_secs(1));
            real = comparable(&theirs.run(script));
        }
        match (mine == real, known) {
            (true, _) => same += 1,
            (false, Some(index)) => drop(needed.insert(index)),
            (false, None) => wrong.push(format!("$ {script}\n--- {}\n{real}--- kiln serve\n{mine}", cluster.version)),
        }
    }
    let always = |index: &usize| !matches!(KNOWN[*index].1, Sometimes(_));
    let unneeded = (0..KNOWN.len()).filter(always).filter(|index| !needed.contains(index));
    let stale: Vec<String> = unneeded.map(|index| format!("{:?}", KNOWN[index])).collect();
    println!("{same} commands print the same on {}; {} reasons for others", cluster.version, needed.len());
    assert!(stale.is_empty() || cluster.minor() > 20, "no longer different:\n{}", stale.join("\n"));
    assert!(wrong.is_empty(), "{} commands differ\n\n{}", wrong.len(), wrong.join("\n"));
}

fn is_reading(script: &str) -> bool {
    let reads = ["kubectl get ", "kubectl api-", "kubectl explain ", "kubectl describe "];
    reads.iter().any(|begins| script.starts_with(begins)) && !script.contains(['|', ';', '>'])
}

/// The fixtures without what old servers refuse.
fn write_for_old_servers(folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    for entry in fs::read_dir(fixtures()).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let kept = text.lines().filter(|line| !TOO_NEW.iter().any(|new| line.trim_start().starts_with(new)));
        let text: String = kept.map(|line| format!("{line}\n")).collect();
        fs::write(folder.join(path.file_name().unwrap()), text).unwrap();
    }
}

/// What is printed, without what only a whole cluster has and what only says which server it is.
fn comparable(text: &str) -> String {
    static PADDING: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(\S)  +").unwrap());
    let skew = |line: &&str| !line.to_lowercase().starts_with("warning: version difference between client");
    let namespaces = |line: &&str| !line.starts_with("kube-node-lease ") && !line.starts_with("kube-public ");
    let kept = text.lines().filter(skew).filter(namespaces);
    let mut lines: Vec<String> = kept.map(|line| format!("{}\n", PADDING.replace_all(line, "$1  "))).collect();
    // A real server tells several mistakes in any order.
    lines.chunk_by_mut(|a, b| a.starts_with("* ") && b.starts_with("* ")).for_each(<[String]>::sort);
    lines.concat()
}
