//! `kiln ignition merge|convert|pointer|render` as they are typed: what they print, where, and how they end.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a helper that fails is a failed test"
)]

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

/// A fresh folder with the given files; commands run in it.
fn folder(test: &str, files: &[(&str, &str)]) -> PathBuf {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ignition_commands").join(test);
    let _ = std::fs::remove_dir_all(&root);
    std::fs::create_dir_all(&root).unwrap();
    for (name, text) in files {
        std::fs::write(root.join(name), text).unwrap();
    }
    root
}

/// Exit code, standard output, standard error.
fn kiln(folder: &Path, arguments: &[&str]) -> (i32, String, String) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_kiln")).arg("ignition").args(arguments).current_dir(folder).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn merge_prints_the_config_and_tells_where_each_entry_is_from() {
    let base = r#"{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/etc/motd","mode":420,
        "contents":{"source":"data:,base"}}]}}"#;
    let site = r#"{"ignition":{"version":"3.3.0"},"storage":{"files":[
        {"path":"/etc/motd","contents":{"source":"data:,site"}},
        {"path":"/etc/site"}]}}"#;
    let folder = folder("merge", &[("base.ign", base), ("site.ign", site)]);
    let (code, stdout, stderr) = kiln(&folder, &["merge", "base.ign", "site.ign", "--provenance"]);
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(
        json_of(&stdout),
        json!({ "ignition": { "version": "3.3.0" }, "storage": { "files": [
            { "path": "/etc/motd", "mode": 420, "contents": { "source": "data:,site" } }, { "path": "/etc/site" } ] } })
    );
    assert_eq!(
        stderr,
        "storage.files /etc/motd: mode from base.ign:1, contents.source from site.ign:2\nstorage.files /etc/site: site.ign:3\n"
    );
}

#[test]
fn a_merge_whose_result_is_invalid_prints_nothing() {
    let base =
        r#"{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/opt/a/b","contents":{"source":"data:,"}}]}}"#;
    let site = r#"{"ignition":{"version":"3.2.0"},"storage":{"links":[{"path":"/opt/a","target":"/x"}]}}"#;
    let folder = folder("invalid", &[("base.ign", base), ("site.ign", site), ("broken.ign", "{")]);
    let (code, stdout, stderr) = kiln(&folder, &["merge", "base.ign", "site.ign"]);
    assert_eq!((code, stdout.as_str()), (1, ""), "{stderr}");
    assert!(stderr.contains("/opt/a/b"), "{stderr}");
    let (code, stdout, stderr) = kiln(&folder, &["merge", "base.ign", "broken.ign"]);
    assert_eq!((code, stdout.as_str()), (1, ""), "{stderr}");
    let (code, _, stderr) = kiln(&folder, &["merge", "base.ign", "missing.ign"]);
    assert_eq!(code, 1);
    assert!(stderr.starts_with("error: cannot read `missing.ign`\n"), "{stderr}");
}

#[test]
fn no_report_quotes_a_token() {
    let base = r#"{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/a","contents":{"source":"https://a.example/x","httpHeaders":[{"name":"Authorization","value":"Bearer s3cr3t"}]}}]}}"#;
    let site = r#"{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/a","contents":{"source":"https://b.example/x"}}]}}"#;
    let folder = folder("token", &[("base.ign", base), ("site.ign", site)]);
    let (code, stdout, stderr) = kiln(&folder, &["merge", "base.ign", "site.ign"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("Bearer s3cr3t"), "the config keeps it");
    assert!(stderr.contains("KLN0452") && !stderr.contains("s3cr3t"), "{stderr}");
}

#[test]
fn convert_prints_the_config_and_what_is_lost() {
    let text = r#"{"ignition":{"version":"3.3.0"},"kernelArguments":{"shouldExist":["quiet"]}}"#;
    let luks = r#"{"ignition":{"version":"3.3.0"},"storage":{"luks":[{"name":"a","device":"/dev/sda"}]}}"#;
    let folder = folder("convert", &[("a.ign", text), ("luks.ign", luks)]);
    let (code, stdout, stderr) = kiln(&folder, &["convert", "a.ign", "--to", "3.2.0"]);
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(json_of(&stdout), json!({ "ignition": { "version": "3.2.0" } }));
    assert!(stderr.contains("`kernelArguments` is lost: spec 3.2.0 does not have it"), "{stderr}");
    let (code, stdout, stderr) = kiln(&folder, &["convert", "luks.ign", "--to", "3.1.0"]);
    assert_eq!((code, stdout.as_str()), (1, ""), "{stderr}");
    assert!(stderr.contains("the data would be written to an unencrypted disk"), "{stderr}");
    let (code, _, stderr) = kiln(&folder, &["convert", "a.ign", "--to", "3.9.0"]);
    assert_eq!((code, stderr.as_str()), (1, "error: there is no Ignition spec `3.9.0`\n"));
}

#[test]
fn pointer_takes_secrets_from_files() {
    let pem = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";
    let folder = folder("pointer", &[("header", "Bearer s3cr3t\n"), ("ca.pem", pem)]);
    let common = ["pointer", "--source", "https://hub.example/ignition"];
    let with = |more: &[&str]| kiln(&folder, &[&common[..], more].concat());

    let (code, stdout, stderr) =
        with(&["--ca", "ca.pem", "--header", "Authorization: @header", "--header", "NodePool: clusters/edge"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    let reference = &json_of(&stdout)["ignition"]["config"]["merge"][0];
    assert_eq!(
        reference["httpHeaders"],
        json!([{ "name": "Authorization", "value": "Bearer s3cr3t" }, { "name": "NodePool", "value": "clusters/edge" }])
    );

    let (code, _, stderr) = with(&["--header", "Authorization: Bearer s3cr3t"]);
    assert_eq!(code, 0);
    assert!(stderr.contains("KLN0470") && !stderr.contains("s3cr3t"), "{stderr}");

    let (code, stdout, stderr) = with(&["--header", "Authorization: @header", "--spec", "3.0.0"]);
    assert_eq!((code, stdout.as_str()), (1, ""));
    assert!(stderr.contains("spec 3.0.0 has no request headers") && !stderr.contains("s3cr3t"), "{stderr}");

    let (code, stdout, stderr) = kiln(&folder, &["pointer", "--source", "ftp://hub.example/a"]);
    assert_eq!((code, stdout.as_str()), (1, ""), "{stderr}");
    assert!(stderr.contains("ftp"), "{stderr}");
}

const MACHINE_CONFIGS: &str = "\
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata:
  name: 99-worker-motd
  labels:
    machineconfiguration.openshift.io/role: worker
spec:
  kernelArguments: [nosmt]
  config:
    ignition:
      version: 3.2.0
    storage:
      files:
        - path: /etc/motd
          mode: 0644
          contents:
            source: data:,worker
---
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata:
  name: 00-edge-motd
  labels:
    machineconfiguration.openshift.io/role: edge
spec:
  fips: true
  config:
    ignition:
      version: 3.2.0
    storage:
      files:
        - path: /etc/motd
          contents:
            source: data:,edge
";

#[test]
fn render_prints_the_config_of_a_pool_and_tells_the_rest() {
    let folder = folder("render", &[("configs.yaml", MACHINE_CONFIGS)]);
    let (code, stdout, stderr) = kiln(&folder, &["render", "configs.yaml", "--pool", "edge"]);
    assert_eq!(code, 0, "{stderr}");
    let config = json!({ "ignition": { "version": "3.5.0" }, "storage": { "files": [
        { "path": "/etc/motd", "mode": 420, "overwrite": true, "contents": { "source": "data:,edge" } } ] } });
    assert_eq!(json_of(&stdout), config);
    let rest = "# pool edge: 99-worker-motd, 00-edge-motd\n# kernel argument nosmt  (configs.yaml:8)\n# FIPS mode\n";
    assert_eq!(stderr, rest);
    let (code, stdout, stderr) = kiln(&folder, &["render", "configs.yaml", "--pool", "edge", "-o", "json"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert_eq!(
        json_of(&stdout),
        json!({ "pool": "edge", "machineConfigs": ["99-worker-motd", "00-edge-motd"],
            "kernelArguments": [{ "value": "nosmt", "from": "configs.yaml:8" }], "extensions": [], "fips": true,
            "kernelType": null, "osImageURL": null, "config": config })
    );
    let (code, stdout, stderr) = kiln(&folder, &["render", "configs.yaml", "--pool", "master"]);
    assert_eq!((code, stdout.as_str()), (1, ""));
    assert_eq!(stderr, "error: no MachineConfig belongs to the pool `master`, so there is nothing to render\n");
}
