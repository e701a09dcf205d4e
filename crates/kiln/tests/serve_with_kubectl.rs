//! `kiln serve` driven by a real kubectl over HTTPS, as people will, and killed at bad moments.
//!
//! `fixtures/hub/kubectl.txt` has the commands and what they print. `KILN_KUBECTL` names another kubectl to try;
//! `UPDATE_FIXTURES=1` writes the fixture anew.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails loudly")]

use std::fs;
use std::process::{Child, Stdio};
use std::time::Duration;

use kiln_testimage::oracle;
use kiln_testimage::temp_dir::TempDir;

use hub::Hub;
use shell::{Shell, fixtures};
use transcript::{parse_transcript, render_transcript};

#[path = "support/hub.rs"]
mod hub;
#[path = "support/shell.rs"]
mod shell;
#[path = "support/transcript.rs"]
mod transcript;

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
    let shell = Shell::new(&work, &hub.kubeconfig, &kubectl, &fixtures());
    let file = fixtures().join("kubectl.txt");
    let mut transcript = parse_transcript(&fs::read_to_string(&file).unwrap());
    let mut wrong = Vec::new();
    for step in transcript.iter_mut().filter(|step| !step.script.is_empty()) {
        let printed = shell.run(&step.script);
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
        let shell = Shell::new(&work, &hub.kubeconfig, &kubectl, &fixtures());
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
