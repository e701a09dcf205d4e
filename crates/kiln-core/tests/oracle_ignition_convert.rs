//! Conversion, judged by `ignition-validate`: what Kiln converts must be valid in the version it says, and hold no key
//! that version does not know. The program is Debian's 2.14, which knows specs 3.0 to 3.3.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a helper that fails is a failed test"
)]

use std::io::Write as _;
use std::process::{Command, Stdio};

use kiln_core::diagnostic::Severity;
use kiln_core::ignition::convert::convert;
use kiln_core::ignition::{Config, SpecVersion};
use kiln_core::source::SourceMap;
use serde_json::{Value, json};

#[path = "support/ignition_configs.rs"]
mod ignition_configs;

use ignition_configs::Random;

const TARGETS: [SpecVersion; 4] = [SpecVersion::V3_0, SpecVersion::V3_1, SpecVersion::V3_2, SpecVersion::V3_3];

#[test]
fn converted_configs_are_valid_where_they_go() {
    if !validator_is_there("converted_configs_are_valid_where_they_go") {
        return;
    }
    let (mut judged, mut refused) = (0, 0);
    for seed in 1..=60_u64 {
        let mut random = Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
        let minor = random.below(4);
        let config = read(&ignition_configs::config(&mut random, minor));
        for target in TARGETS {
            let converted = convert(&config, target);
            if converted.lost.iter().any(|finding| finding.severity == Severity::Error) {
                assert!(target < config.version, "a config must never be refused upwards");
                refused += 1;
                continue;
            }
            judge(&converted.config);
            judged += 1;
        }
    }
    eprintln!("judged {judged} conversions, {refused} were refused");
    assert!(judged >= 100, "only {judged} conversions could be judged");
}

#[test]
fn raised_and_lowered_again_a_config_is_the_same() {
    for seed in 1..=200_u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let minor = random.below(4);
        let config = read(&ignition_configs::config(&mut random, minor));
        let raised = convert(&config, SpecVersion::NEWEST);
        assert_eq!(raised.lost, []);
        let lowered = convert(&raised.config, config.version);
        assert_eq!((lowered.config.root.to_json(), lowered.lost), (config.root.to_json(), Vec::new()));
    }
}

#[test]
fn spec_2_becomes_valid_spec_3() {
    if !validator_is_there("spec_2_becomes_valid_spec_3") {
        return;
    }
    let config = read(&json!({
        "ignition": { "version": "2.2.0", "config": { "append": [{ "source": "https://a.example/b.ign" }] },
            "timeouts": { "httpTotal": 30 } },
        "networkd": { "units": [{ "name": "00-eth.network", "contents": "[Match]\nName=eth0\n" }] },
        "passwd": { "users": [{ "name": "core", "create": { "uid": 1000, "gecos": "" }, "sshAuthorizedKeys": ["a"] },
            { "name": "core", "sshAuthorizedKeys": ["b", "a"] }] },
        "storage": {
            "filesystems": [{ "name": "root", "path": "/sysroot" }],
            "disks": [{ "device": "/dev/sda", "wipeTable": false, "partitions": [{ "label": "x", "number": 1, "size": 0, "start": 0 }] }],
            "files": [
                { "filesystem": "root", "path": "/etc/a", "mode": 420, "contents": { "source": "data:,1" } },
                { "filesystem": "root", "path": "/etc/a", "append": true, "contents": { "source": "data:,2" } },
                { "filesystem": "root", "path": "/etc/b", "append": true, "contents": { "source": "data:,3" } },
                { "filesystem": "root", "path": "/etc/c", "contents": {}, "user": { "id": 0, "name": "" } },
            ],
            "directories": [{ "filesystem": "root", "path": "/opt/d", "mode": 493 }],
            "links": [{ "filesystem": "root", "path": "/opt/l", "target": "/opt/d", "hard": false }],
        },
        "systemd": { "units": [{ "name": "a.service", "enable": true, "contents": "[Install]\nWantedBy=x.target\n" }] },
    }));
    for target in TARGETS {
        let converted = convert(&config, target);
        assert!(converted.lost.iter().all(|finding| finding.severity == Severity::Note), "{:#?}", converted.lost);
        judge(&converted.config);
        let back = convert(&converted.config, SpecVersion::V2_2);
        assert_eq!(back.lost, []);
        judge(&convert(&back.config, target).config);
    }
}

fn read(value: &Value) -> Config {
    let mut sources = SourceMap::default();
    let file = sources.add("generated.ign", value.to_string());
    let (config, findings) = Config::parse(file, sources.file(file));
    config.unwrap_or_else(|| panic!("{findings:#?}\n{value:#}"))
}

fn validator_is_there(test: &str) -> bool {
    let found = Command::new("ignition-validate").arg("--version").output().is_ok();
    if !found {
        assert!(std::env::var_os("KILN_REQUIRE_ORACLES").is_none(), "ignition-validate is not installed");
        eprintln!("skipped: {test}: ignition-validate is not installed (apt-get install ignition)");
    }
    found
}

fn judge(config: &Config) {
    let text = config.root.to_json().to_string();
    let mut process = Command::new("ignition-validate")
        .arg("-")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    process.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = process.wait_with_output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && !said.contains("Unused key"), "{said}\n{:#}", config.root.to_json());
}
