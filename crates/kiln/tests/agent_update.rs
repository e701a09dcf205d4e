//! `kiln agent update` on a folder that stands for a machine. Its `systemctl` is simulated: a script that notes what it is asked.

#![allow(clippy::unwrap_used, reason = "tests may fail loudly")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

const SYSTEMCTL: &str = "#!/bin/sh\n# Simulated: no systemd is asked.\necho \"$*\" >> ROOT/asked\n";

struct Machine(PathBuf);

impl Machine {
    fn new(name: &str) -> Machine {
        let machine = Machine(std::env::temp_dir().join(format!("kiln-update-{name}-{}", std::process::id())));
        let _ = fs::remove_dir_all(&machine.0);
        machine.write("proc/cmdline", "quiet\n");
        machine.write("proc/sys/kernel/random/boot_id", "first\n");
        machine.write("usr/bin/systemctl", &SYSTEMCTL.replace("ROOT", &machine.0.display().to_string()));
        fs::set_permissions(machine.0.join("usr/bin/systemctl"), fs::Permissions::from_mode(0o755)).unwrap();
        machine.write("rules.yaml", "files:\n- path: /etc/motd\n  actions: [{type: None}]\n");
        machine
    }

    fn write(&self, path: &str, text: &str) -> PathBuf {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    fn config(&self, path: &str, text: &str) -> PathBuf {
        let file =
            json!({"path": path, "mode": 420, "overwrite": true, "contents": {"source": format!("data:,{text}")}});
        let config = json!({"ignition": {"version": "3.4.0"}, "storage": {"files": [file]}});
        self.write("worker.ign", &config.to_string())
    }

    /// Exit code and what was printed as JSON.
    fn update(&self, config: &Path, options: &[&str]) -> (Option<i32>, Value) {
        let ended = Command::new(env!("CARGO_BIN_EXE_kiln"))
            .args(["agent", "update", "-o", "json"])
            .arg(config)
            .arg("--root")
            .arg(&self.0)
            .arg("--state-dir")
            .arg(self.0.join("state"))
            .arg("--rules")
            .arg(self.0.join("rules.yaml"))
            .args(options)
            .output()
            .unwrap();
        let printed = serde_json::from_slice(&ended.stdout);
        (ended.status.code(), printed.unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&ended.stderr))))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_file_is_shown_first_then_written_and_removed_by_the_config_without_it() {
    let machine = Machine::new("file");
    let config = machine.config("/etc/motd", "hello");
    let (code, told) = machine.update(&config, &["--dry-run"]);
    assert_eq!((code, &told["outcome"], &told["changes"]), (Some(0), &json!("planned"), &json!(["+ /etc/motd"])));
    assert_eq!((&told["needs"], machine.0.join("etc/motd").exists()), (&json!("nothing"), false));
    let (code, told) = machine.update(&config, &[]);
    assert_eq!((code, &told["outcome"]), (Some(0), &json!("applied")), "{told}");
    assert_eq!(fs::read_to_string(machine.0.join("etc/motd")).unwrap(), "hello");
    let (code, told) = machine.update(&config, &[]);
    assert_eq!((code, &told["outcome"]), (Some(0), &json!("unchanged")));
    let empty = machine.write("empty.ign", r#"{"ignition": {"version": "3.4.0"}}"#);
    let (code, told) = machine.update(&empty, &[]);
    assert_eq!((code, &told["changes"]), (Some(0), &json!(["- /etc/motd"])));
    assert!(!machine.0.join("etc/motd").exists());
}

#[test]
fn what_needs_a_reboot_is_refused_without_leave_and_verified_after_it() {
    let machine = Machine::new("reboot");
    let config = machine.config("/etc/unruled.conf", "x");
    let (code, told) = machine.update(&config, &[]);
    assert_eq!((code, &told["outcome"]), (Some(1), &json!("refused")));
    assert_eq!(told["reason"], "the change needs a reboot; give --reboot to allow it");
    assert!(!machine.0.join("etc").exists());
    let (code, told) = machine.update(&config, &["--reboot"]);
    assert_eq!((code, &told["outcome"]), (Some(0), &json!("rebooting")), "{told}");
    assert_eq!(fs::read_to_string(machine.0.join("asked")).unwrap(), "reboot\n");
    let (code, told) = machine.update(&config, &[]);
    assert_eq!((code, &told["outcome"]), (Some(1), &json!("refused")), "the boot is still to come");
    machine.write("proc/sys/kernel/random/boot_id", "second\n");
    let (code, told) = machine.update(&config, &[]);
    assert_eq!((code, &told["outcome"], &told["needs"]), (Some(0), &json!("applied"), &json!("reboot")), "{told}");
}

#[test]
fn a_reboot_that_brought_something_else_is_told_and_put_back() {
    let machine = Machine::new("else");
    let config = machine.config("/etc/unruled.conf", "x");
    machine.update(&config, &["--reboot"]);
    machine.write("proc/sys/kernel/random/boot_id", "second\n");
    machine.write("etc/unruled.conf", "somebody else's");
    let (code, told) = machine.update(&config, &[]);
    assert_eq!((code, &told["outcome"]), (Some(1), &json!("rolledBack")), "{told}");
    assert_eq!(told["reason"], "the machine has booted, and this is still to be done: /etc/unruled.conf changes");
    assert!(!machine.0.join("etc").exists());
}
