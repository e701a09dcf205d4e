//! `kiln serve` driven by a real kubectl over HTTPS, as people will, and killed at bad moments.
//!
//! `fixtures/hub/kubectl.txt` has the commands and what they print. `KILN_KUBECTL` names another kubectl to try;
//! `UPDATE_FIXTURES=1` writes the fixture anew.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails loudly")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use kiln_testimage::oracle;
use kiln_testimage::temp_dir::TempDir;

use hub::Hub;
use transcript::{Step, normalise, parse_transcript, render_transcript};

#[path = "support/hub.rs"]
mod hub;
#[path = "support/transcript.rs"]
mod transcript;

/// What commands of the transcript may use beside kubectl.
const PRELUDE: &str = r#"
# One line of YAML; what begins with a bracket would be taken for JSON.
y() { printf -- '---\n%s\n' "$1"; }
# Runs kubectl in the background until it has printed a line.
begin() { kubectl "$@" > watch.txt 2>&1 & W=$!; lines 1; }
lines() { for _ in $(seq 300); do [ "$(wc -l < watch.txt)" -ge "$1" ] && return; sleep 0.1; done; echo "no line $1"; }
# Waits for a number of lines, ends it and shows them.
end() { lines "$1"; { kill $W; wait $W; } 2>/dev/null; cat watch.txt; }
"#;

/// A shell's surroundings in which `kubectl` is the one under test and talks to the hub.
struct Shell {
    folder: PathBuf,
    kubeconfig: PathBuf,
    path: String,
}

impl Shell {
    fn new(folder: &Path, hub: &Hub, kubectl: &Path) -> Shell {
        let programs = folder.join("bin");
        fs::create_dir_all(&programs).unwrap();
        let program = programs.join("kubectl");
        // A script, not a link: some distributions' kubectl looks for parts of itself beside its own file.
        fs::write(&program, format!("#!/bin/sh\nexec '{}' --request-timeout=30s \"$@\"\n", kubectl.display())).unwrap();
        fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let kubeconfig = folder.join("kubeconfig");
        fs::copy(&hub.kubeconfig, &kubeconfig).unwrap();
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
        Shell { folder: folder.to_owned(), kubeconfig, path }
    }

    fn command(&self, script: &str) -> Command {
        let mut command = Command::new("bash");
        command
            .args(["-c", &format!("{PRELUDE}\nexec 2>&1\n{script}")])
            .current_dir(&self.folder)
            .env("PATH", &self.path)
            .env("KUBECONFIG", &self.kubeconfig)
            // kubectl keeps what it learnt about servers here.
            .env("HOME", &self.folder)
            .env("F", fixtures())
            .env("LC_ALL", "C")
            .stdin(Stdio::null());
        command
    }

    fn run(&self, step: &Step) -> String {
        let output = self.command(&step.script).output().unwrap();
        let mut printed = normalise(&String::from_utf8_lossy(&output.stdout));
        if let Some(code) = output.status.code().filter(|code| *code != 0) {
            printed.push_str(&format!("[{code}]\n"));
        }
        printed
    }
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/hub").canonicalize().unwrap()
}

#[test]
fn a_real_kubectl_works_from_end_to_end() {
    let name = "a_real_kubectl_works_from_end_to_end";
    let Some(kubectl) = oracle::kubectl(name) else { return };
    if !oracle::require_all(name, &[("openssl", "openssl"), ("bash", "bash")]) {
        return;
    }
    let folder = TempDir::new("serve-kubectl");
    let (data, work) = (folder.path().join("data"), folder.path().join("work"));
    fs::create_dir_all(&work).unwrap();
    let hub = Hub::start(&data);
    let shell = Shell::new(&work, &hub, &kubectl);
    let file = fixtures().join("kubectl.txt");
    let mut transcript = parse_transcript(&fs::read_to_string(&file).unwrap());
    let mut wrong = Vec::new();
    for step in transcript.iter_mut().filter(|step| !step.script.is_empty()) {
        let printed = shell.run(step);
        if printed != step.printed {
            wrong.push(format!("$ {}\n--- expected\n{}--- printed\n{printed}", step.script, step.printed));
            step.printed = printed;
        }
    }
    if std::env::var_os("UPDATE_FIXTURES").is_some() {
        fs::write(&file, render_transcript(&transcript)).unwrap();
        return;
    }
    assert!(wrong.is_empty(), "{} steps differ\n\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn what_was_acknowledged_survives_kill_9_and_revisions_go_on() {
    let Some(kubectl) = oracle::kubectl("what_was_acknowledged_survives_kill_9_and_revisions_go_on") else { return };
    let folder = TempDir::new("serve-kill");
    let (data, work) = (folder.path().join("data"), folder.path().join("work"));
    fs::create_dir_all(&work).unwrap();
    let mut acknowledged = Vec::new();
    let mut newest = 0;
    for round in 0..3 {
        let hub = Hub::start(&data);
        let shell = Shell::new(&work, &hub, &kubectl);
        let run = |script: &str| {
            let output = shell.command(script).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success(), "{script}: {text}");
            text
        };
        let listed = run("kubectl get cm -o name");
        for name in &acknowledged {
            assert!(listed.lines().any(|line| line == format!("configmap/{name}")), "{name} is lost: {listed}");
        }
        let revision = run("kubectl get --raw '/api/v1/configmaps?limit=1'");
        let at = revision.split("\"resourceVersion\":\"").nth(1).unwrap();
        let revision: u64 = at.split('"').next().unwrap().parse().unwrap();
        assert!(revision >= newest, "the revision went back from {newest} to {revision}");
        newest = revision;
        let writers: Vec<(String, Child)> = (0..4)
            .map(|writer| {
                let name = format!("c{round}-{writer}");
                let mut command = shell.command(&format!("kubectl create cm {name} --from-literal=a=b -o name"));
                let child = command.stdout(Stdio::null()).spawn().unwrap();
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
