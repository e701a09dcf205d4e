//! `kiln serve` driven by a real kubectl over HTTPS, as people will, and killed at bad moments.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use kiln_testimage::oracle;
use kiln_testimage::temp_dir::TempDir;

/// A running hub.
struct Hub {
    process: Child,
    data: PathBuf,
}

impl Hub {
    fn start(data: &Path) -> Hub {
        // The kubeconfig of an earlier start names an old port.
        let kubeconfig = data.join("kubeconfig");
        let _ = std::fs::remove_file(&kubeconfig);
        let process = Command::new(env!("CARGO_BIN_EXE_kiln"))
            .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(data)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let hub = Hub { process, data: data.to_owned() };
        let deadline = Instant::now() + Duration::from_secs(30);
        while !kubeconfig.exists() {
            assert!(Instant::now() < deadline, "kiln serve wrote no kubeconfig");
            std::thread::sleep(Duration::from_millis(10));
        }
        hub
    }

    fn command(&self, kubectl: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(kubectl);
        command
            .env("KUBECONFIG", self.data.join("kubeconfig"))
            // kubectl keeps what it learnt about servers here.
            .env("HOME", &self.data)
            .env_remove("KUBECTL_PATH")
            .args(["--request-timeout=20s"])
            .args(arguments);
        command
    }

    /// Runs kubectl and gives what it printed, both ways, without the line ends at the end.
    fn run(&self, kubectl: &Path, arguments: &[&str], input: &str) -> (bool, String) {
        let mut command = self.command(kubectl, arguments);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
        let text = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        (status.success(), text.trim_end().to_owned())
    }

    fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// One step of a script: arguments, standard input, what must be printed (`…` stands for anything).
struct Step {
    arguments: &'static str,
    input: &'static str,
    expected: &'static str,
}

const fn step(arguments: &'static str, input: &'static str, expected: &'static str) -> Step {
    Step { arguments, input, expected }
}

/// Whether a text is what was expected, where `…` stands for anything.
fn fits(text: &str, expected: &str) -> bool {
    let mut rest = text;
    let parts: Vec<&str> = expected.split('…').collect();
    for (index, part) in parts.iter().enumerate() {
        let found = if index == 0 { rest.starts_with(part).then_some(0) } else { rest.find(part) };
        let Some(at) = found else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.is_empty() || parts.last().is_some_and(|last| last.is_empty())
}

const CRD: &str = include_str!("serve_with_kubectl/widgets.yaml");
const W1: &str = "{apiVersion: example.org/v1, kind: Widget, metadata: {name: w1, labels: {a: b}}, spec: {size: 3, note: hello, tags: [red, blue], ports: [{name: eth0, mtu: 1500}]}}";
const W1_EDITED: &str = "{apiVersion: example.org/v1, kind: Widget, metadata: {name: w1, labels: {a: b}}, spec: {size: 5, tags: [red, blue], ports: [{name: eth0, mtu: 1500}]}}";
const TYPO: &str = "{apiVersion: example.org/v1, kind: Widget, metadata: {name: bad}, spec: {size: 1, typo: 1}}";
const WRONG: &str = "{apiVersion: example.org/v1, kind: Widget, metadata: {name: bad}, spec: {size: -1, mode: warp}}";
const GENERATED: &str = "{apiVersion: example.org/v1, kind: Widget, metadata: {generateName: gen-}, spec: {size: 1}}";
const LEASE: &str = "{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: l1}, spec: {holderIdentity: me, leaseDurationSeconds: 15}}";
const SSA_ALICE: &str =
    "{apiVersion: example.org/v1, kind: Widget, metadata: {name: ssa}, spec: {size: 1, tags: [a, b]}}";
const SSA_BOB: &str = "{apiVersion: example.org/v1, kind: Widget, metadata: {name: ssa}, spec: {size: 1, tags: [c]}}";
const SSA_CAROL: &str = "{apiVersion: example.org/v1, kind: Widget, metadata: {name: ssa}, spec: {size: 2}}";

const SCRIPT: &[Step] = &[
    step("version", "", "Client Version: …Server Version: v1.32.0+kiln…"),
    step("get ns", "", "NAME          STATUS   AGE\ndefault       Active   …\nkube-system   Active   …"),
    step("apply -f -", CRD, "customresourcedefinition.apiextensions.k8s.io/widgets.example.org created"),
    step(
        "wait --for=condition=Established --timeout=10s crd/widgets.example.org",
        "",
        "customresourcedefinition.apiextensions.k8s.io/widgets.example.org condition met",
    ),
    step("apply -f -", CRD, "customresourcedefinition.apiextensions.k8s.io/widgets.example.org unchanged"),
    step("api-resources --api-group=example.org --no-headers", "", "widgets   wd    example.org/v1   true   Widget"),
    step("apply -f -", W1, "widget.example.org/w1 created"),
    step("apply -f -", W1, "widget.example.org/w1 unchanged"),
    step("get wd", "", "NAME   SIZE   READY   AGE\nw1     3              …s"),
    step("get wd -o wide", "", "NAME   SIZE   READY   NOTE    AGE\nw1     3              hello   …s"),
    step("get wd w1 -o jsonpath={.spec.mode}", "", "slow"),
    step("get wd w1 -o custom-columns=N:.metadata.name,S:.spec.size --no-headers", "", "w1    3"),
    step("diff -f -", W1_EDITED, "…-  note: hello…"),
    step("apply -f -", W1_EDITED, "widget.example.org/w1 configured"),
    step("get wd w1 -o jsonpath={.spec.note}{.spec.size}", "", "5"),
    step("label wd w1 color=red", "", "widget.example.org/w1 labeled"),
    step("label wd w1 color=blue", "", "error: 'color' already has a value (red), and --overwrite is false"),
    step("annotate wd w1 x=y", "", "widget.example.org/w1 annotated"),
    step("get wd -l color=red,a=b -o name", "", "widget.example.org/w1"),
    step("get wd -l color!=red -o name", "", ""),
    step("get wd --field-selector metadata.name=w1 -o name", "", "widget.example.org/w1"),
    step(
        "get wd --field-selector spec.size=5",
        "",
        "Error from server (BadRequest): …field label not supported: spec.size",
    ),
    step("patch wd w1 --type=merge -p {\"spec\":{\"size\":6}}", "", "widget.example.org/w1 patched"),
    step(
        "patch wd w1 --type=json -p [{\"op\":\"replace\",\"path\":\"/spec/size\",\"value\":7}]",
        "",
        "widget.example.org/w1 patched",
    ),
    step(
        "patch wd w1 --type=strategic -p {\"spec\":{\"size\":6}}",
        "",
        "error: application/strategic-merge-patch+json is not supported by example.org/v1, Kind=Widget: …",
    ),
    step(
        "patch wd w1 --type=merge -p {\"spec\":{\"size\":\"big\"}}",
        "",
        "The Widget \"w1\" is invalid: spec.size: Invalid value: \"big\": spec.size in body must be of type integer: \"string\"",
    ),
    step(
        "patch wd w1 --type=merge -p {\"spec\":{\"bogus\":1}}",
        "",
        "widget.example.org/w1 patched (no change)\nWarning: unknown field \"spec.bogus\"",
    ),
    step(
        "patch wd w1 --type=merge --subresource=status -p {\"status\":{\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\"}]},\"spec\":{\"size\":99}}",
        "",
        "widget.example.org/w1 patched",
    ),
    step("get wd", "", "NAME   SIZE   READY   AGE\nw1     7      True    …s"),
    step("get wd w1 -o jsonpath={.metadata.generation}", "", "4"),
    step("wait --for=condition=Ready wd/w1 --timeout=5s", "", "widget.example.org/w1 condition met"),
    step("wait --for=jsonpath={.spec.size}=7 wd/w1 --timeout=5s", "", "widget.example.org/w1 condition met"),
    step(
        "explain wd.spec.size",
        "",
        "GROUP:      example.org\nKIND:       Widget\nVERSION:    v1\n\nFIELD: size <integer>\n\n\nDESCRIPTION:\n    how big",
    ),
    step("explain wd.metadata.labels", "", "…FIELD: labels <map[string]string>…"),
    step("explain cm.data", "", "…FIELD: data <map[string]string>…"),
    step("auth can-i create widgets.example.org", "", "yes"),
    step(
        "auth whoami",
        "",
        "ATTRIBUTE   VALUE\nUsername    kiln-admin\nGroups      [system:masters system:authenticated]…",
    ),
    step("apply -f -", TYPO, "…strict decoding error: unknown field \"spec.typo\""),
    step("apply --validate=warn -f -", TYPO, "widget.example.org/bad created\nWarning: unknown field \"spec.typo\""),
    step("delete wd bad", "", "widget.example.org \"bad\" deleted"),
    step(
        "apply -f -",
        WRONG,
        "The Widget \"bad\" is invalid: \n* spec.mode: Unsupported value: \"warp\": supported values: \"fast\", \"slow\"\n* spec.size: Invalid value: -1: spec.size in body should be greater than or equal to 0",
    ),
    step("create -f -", GENERATED, "widget.example.org/gen-… created"),
    step("apply --dry-run=server -f -", SSA_ALICE, "widget.example.org/ssa created (server dry run)"),
    step("get wd ssa", "", "Error from server (NotFound): widgets.example.org \"ssa\" not found"),
    step(
        "create -f -",
        W1,
        "Error from server (AlreadyExists): error when creating \"STDIN\": widgets.example.org \"w1\" already exists",
    ),
    step("get nopes", "", "error: the server doesn't have a resource type \"nopes\""),
    step("apply --server-side --field-manager=alice -f -", SSA_ALICE, "widget.example.org/ssa serverside-applied"),
    step("apply --server-side --field-manager=bob -f -", SSA_BOB, "widget.example.org/ssa serverside-applied"),
    step("get wd ssa -o jsonpath={.spec.tags}", "", "[\"a\",\"b\",\"c\"]"),
    step(
        "apply --server-side --field-manager=carol -f -",
        SSA_CAROL,
        "error: Apply failed with 2 conflicts: conflict with \"alice\": .spec.size\n- conflict with \"bob\": .spec.size…",
    ),
    step(
        "apply --server-side --force-conflicts --field-manager=carol -f -",
        SSA_CAROL,
        "widget.example.org/ssa serverside-applied",
    ),
    step("apply --server-side --force-conflicts -f -", W1, "widget.example.org/w1 serverside-applied"),
    step("create ns n", "", "namespace/n created"),
    step("create cm c1 --from-literal=a=b -n n", "", "configmap/c1 created"),
    step("get cm -n n", "", "NAME   DATA   AGE\nc1     1      …s"),
    step("create secret generic s1 --from-literal=pw=x", "", "secret/s1 created"),
    step("get secret", "", "NAME   TYPE     DATA   AGE\ns1     Opaque   1      …s"),
    step("get secret s1 -o jsonpath={.data.pw}", "", "eA=="),
    step("apply -f -", LEASE, "lease.coordination.k8s.io/l1 created"),
    step("get lease l1", "", "NAME   HOLDER   AGE\nl1     me       …s"),
    step("describe wd w1", "", "Name:         w1\nNamespace:    default…Events:  <none>"),
    step(
        "patch wd ssa --type=merge -p {\"metadata\":{\"finalizers\":[\"example.org/x\"]}}",
        "",
        "widget.example.org/ssa patched",
    ),
    step("delete wd ssa --wait=false", "", "widget.example.org \"ssa\" deleted"),
    step("get wd ssa -o jsonpath={.metadata.deletionGracePeriodSeconds}", "", "0"),
    step("patch wd ssa --type=merge -p {\"metadata\":{\"finalizers\":null}}", "", "widget.example.org/ssa patched"),
    step("get wd ssa", "", "Error from server (NotFound): widgets.example.org \"ssa\" not found"),
    step("delete ns n", "", "namespace \"n\" deleted"),
    step("get ns n", "", "Error from server (NotFound): namespaces \"n\" not found"),
    step("delete wd --all", "", "widget.example.org \"gen-…\" deleted\nwidget.example.org \"w1\" deleted"),
    step(
        "delete crd widgets.example.org",
        "",
        "customresourcedefinition.apiextensions.k8s.io \"widgets.example.org\" deleted",
    ),
    step("get wd", "", "…the server could not find the requested resource"),
];

#[test]
fn a_real_kubectl_works_from_end_to_end() {
    let Some(kubectl) = oracle::kubectl("a_real_kubectl_works_from_end_to_end") else { return };
    let folder = TempDir::new("serve-kubectl");
    let hub = Hub::start(folder.path());
    let mut wrong = Vec::new();
    for step in SCRIPT {
        // JSON in arguments has no spaces, so that a script is one line per step.
        let arguments: Vec<&str> = step.arguments.split(' ').collect();
        let (_, printed) = hub.run(&kubectl, &arguments, step.input);
        if !fits(&printed, step.expected) {
            wrong
                .push(format!("kubectl {}\n--- expected\n{}\n--- printed\n{printed}\n", step.arguments, step.expected));
        }
    }
    assert!(wrong.is_empty(), "{} steps differ\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn what_was_acknowledged_survives_kill_9_and_revisions_go_on() {
    let Some(kubectl) = oracle::kubectl("what_was_acknowledged_survives_kill_9_and_revisions_go_on") else { return };
    let folder = TempDir::new("serve-kill");
    let mut acknowledged = Vec::new();
    let mut newest = 0;
    for round in 0..3 {
        let hub = Hub::start(folder.path());
        let (done, listed) = hub.run(&kubectl, &["get", "cm", "-o", "name"], "");
        assert!(done, "{listed}");
        for name in &acknowledged {
            assert!(listed.lines().any(|line| line == format!("configmap/{name}")), "{name} is lost: {listed}");
        }
        let (_, revision) = hub.run(&kubectl, &["get", "--raw", "/api/v1/configmaps?limit=1"], "");
        let at = revision.split("\"resourceVersion\":\"").nth(1).unwrap();
        let revision: u64 = at.split('"').next().unwrap().parse().unwrap();
        assert!(revision >= newest, "the revision went back from {newest} to {revision}");
        newest = revision;
        let writers: Vec<(String, Child)> = (0..4)
            .map(|writer| {
                let name = format!("c{round}-{writer}");
                let mut command = hub.command(&kubectl, &["create", "cm", &name, "--from-literal=a=b", "-o", "name"]);
                let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
                (name, child)
            })
            .collect();
        // Somewhere among the writes, a little later each time.
        std::thread::sleep(Duration::from_millis(200 + 300 * round));
        hub.kill();
        for (name, child) in writers {
            if child.wait_with_output().unwrap().status.success() {
                acknowledged.push(name);
            }
        }
    }
}
