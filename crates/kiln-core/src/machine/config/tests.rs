//! Configs, and what a running machine is asked for by them.

use std::io::Write as _;

use serde_json::{Value, json};

use super::*;
use crate::ignition::data_url::encode_base64;

const PROFILE: &str = "[connection]\nid=eth0\ntype=ethernet\ninterface-name=eth0\n";

fn config(version: &str, sections: &Value) -> Vec<u8> {
    let mut config = sections.clone();
    config["ignition"]["version"] = version.into();
    config.to_string().into_bytes()
}

fn read(sections: &Value) -> Result<Machine, MachineError> {
    read_machine(&config("3.5.0", sections), &System::default())
}

fn files(files: &[Value]) -> Value {
    json!({"storage": {"files": files}})
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn files_have_ignitions_defaults_and_are_unpacked() {
    let packed = encode_base64(&gzip(b"long"));
    let read = read(&files(&[
        json!({"path": "/etc/a", "contents": {"source": "data:,a%20b"}}),
        json!({"path": "/etc/b", "mode": 0o4755, "user": {"name": "core"}, "group": {"id": 7}, "contents": {"source": packed, "compression": "gzip"}}),
        json!({"path": "/etc/empty", "contents": {"source": ""}}),
        json!({"path": "/etc/there", "mode": 384}),
        json!({"path": "/etc/fetched", "contents": {"source": "https://hub.lab/a"}}),
    ]))
    .unwrap();
    let file = |bytes: &[u8], mode: u32, user: Option<&str>, group: Option<&str>| FileWish {
        bytes: bytes.to_vec(),
        mode,
        user: user.map(str::to_owned),
        group: group.map(str::to_owned),
    };
    let expected = [
        ("/etc/a", file(b"a b", 0o644, None, None)),
        // Before 3.6 Ignition drops what is no permission bit.
        ("/etc/b", file(b"long", 0o755, Some("core"), Some("7"))),
        ("/etc/empty", file(b"", 0o644, None, None)),
    ];
    assert_eq!(read.files, expected.map(|(path, file)| (path.to_owned(), file)).into());
    assert_eq!(read.left, ["/etc/fetched", "/etc/there"].map(str::to_owned).into());
    assert_eq!(read.paths().into_iter().collect::<Vec<_>>(), ["/etc/a", "/etc/b", "/etc/empty"]);
}

#[test]
fn a_packed_config_is_the_same_config() {
    let plain = config("3.4.0", &files(&[json!({"path": "/etc/a", "contents": {"source": "data:,a"}})]));
    let system = System { os_image_url: Some("quay.io/os@sha256:00".into()), ..System::default() };
    let read = read_machine(&plain, &system).unwrap();
    assert_eq!(read_machine(&gzip(&plain), &system), Ok(read.clone()));
    assert_eq!(read.system, system);
    let stored = serde_json::to_string(&read).unwrap();
    assert_eq!(serde_json::from_str::<Machine>(&stored).unwrap(), read);
}

#[test]
fn what_joining_needs_and_what_others_own_is_left_out() {
    let paths = FIRST_BOOT.iter().chain(&bootstrap_token::PATHS);
    let entries: Vec<Value> = paths.map(|path| json!({"path": path, "contents": {"source": "data:,a"}})).collect();
    assert_eq!(read(&files(&entries)), Ok(Machine::default()));
}

#[test]
fn profiles_are_what_networkmanager_would_load() {
    let entry = |name: &str, mode: i64, text: &str| json!({"path": format!("{PROFILES}{name}"), "mode": mode, "contents": {"source": encode_base64(text.as_bytes())}});
    let read = read(&files(&[
        entry("eth0.nmconnection", 0o600, PROFILE),
        entry("open.nmconnection", 0o644, PROFILE),
        entry("ca.pem", 0o600, PROFILE),
        entry("broken.nmconnection", 0o600, "[connection"),
        entry("below/eth0.nmconnection", 0o600, PROFILE),
    ]))
    .unwrap();
    assert_eq!(read.profiles, [("eth0.nmconnection".to_owned(), PROFILE.to_owned())].into());
    let ordinary = ["below/eth0.nmconnection", "broken.nmconnection", "ca.pem", "open.nmconnection"];
    assert_eq!(read.files.into_keys().collect::<Vec<_>>(), ordinary.map(|name| format!("{PROFILES}{name}")));
}

#[test]
fn units_are_read_with_their_drop_ins() {
    let read = read(&json!({"systemd": {"units": [
        {"name": "a.service", "enabled": true, "contents": "[Install]\nWantedBy=x\n", "dropins": [
            {"name": "10-a.conf", "contents": "[Unit]\n"}, {"name": "20-empty.conf", "contents": ""}]},
        {"name": "b.service", "enabled": false, "contents": ""},
        {"name": "c.service", "mask": true, "contents": "[Unit]\n"},
    ]}}))
    .unwrap();
    let a = UnitWish {
        enabled: Some(true),
        masked: false,
        contents: Some("[Install]\nWantedBy=x\n".into()),
        drop_ins: [("10-a.conf".to_owned(), "[Unit]\n".to_owned())].into(),
    };
    let b = UnitWish { enabled: Some(false), ..UnitWish::default() };
    let c = UnitWish { masked: true, ..UnitWish::default() };
    assert_eq!(
        read.units,
        [("a.service".to_owned(), a), ("b.service".to_owned(), b), ("c.service".to_owned(), c)].into()
    );
    let paths = ["a.service", "a.service.d/10-a.conf", "c.service"].map(|path| format!("/etc/systemd/system/{path}"));
    assert_eq!(read.paths().into_iter().collect::<Vec<_>>(), paths);
    assert_eq!(read.unit_names().into_iter().collect::<Vec<_>>(), ["a.service", "b.service", "c.service"]);
}

#[test]
fn the_keys_of_core_are_the_file_ignition_writes() {
    let read = read(
        &json!({"passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 A", "ssh-ed25519 B"]}]}}),
    )
    .unwrap();
    let core = Some("core".to_owned());
    let file =
        FileWish { bytes: b"ssh-ed25519 A\nssh-ed25519 B\n".to_vec(), mode: 0o600, user: core.clone(), group: core };
    assert_eq!(read.files, [(SSH_KEYS.to_owned(), file)].into());
    assert_eq!(read.fixed, BTreeMap::new(), "keys alone do not make a user");
}

#[test]
fn what_only_an_installation_changes_is_a_digest_by_section() {
    let read = |sections: &Value| read(sections).unwrap().fixed;
    let full = json!({
        "storage": {
            "disks": [{"device": "/dev/sda", "wipeTable": true}],
            "raid": [{"name": "r", "level": "raid1", "devices": ["/dev/sda", "/dev/sdb"]}],
            "filesystems": [{"device": "/dev/sda1", "path": "/var", "format": "xfs"}],
            "luks": [{"name": "l", "device": "/dev/sdb", "clevis": {"tpm2": true}}],
            "directories": [{"path": "/etc/d"}],
            "links": [{"path": "/etc/l", "target": "/etc/d"}],
        },
        "passwd": {"groups": [{"name": "g"}], "users": [{"name": "core", "passwordHash": "$6$x", "sshAuthorizedKeys": ["k"]}]},
    });
    let fixed = read(&full);
    let sections = ["directories", "disks", "filesystems", "groups", "links", "luks", "raid", "users"];
    assert_eq!(fixed.keys().collect::<Vec<_>>(), sections);
    assert!(fixed.values().all(|digest| digest.len() == 64));
    let mut other = full.clone();
    other["passwd"]["users"][0]["sshAuthorizedKeys"] = json!(["other"]);
    other["storage"]["disks"] = json!([{"wipeTable": true, "device": "/dev/sda"}]);
    assert_eq!(read(&other), fixed, "neither keys nor the order of fields count");
    other["storage"]["links"][0]["target"] = "/etc/x".into();
    let differs: Vec<_> =
        sections.into_iter().filter(|section| read(&other).get(*section) != fixed.get(*section)).collect();
    assert_eq!(differs, ["links"]);
}

#[test]
fn kernel_arguments_are_read_one_by_one() {
    let read = read(&json!({"kernelArguments": {"shouldExist": ["nosmt", "a=1 b=\"x y\"", "nosmt=force"], "shouldNotExist": ["quiet"]}})).unwrap();
    assert_eq!(read.kernel_arguments, ["nosmt", "a=1", "b=\"x y\"", "nosmt=force"]);
    assert_eq!(read.kernel_arguments_absent, ["quiet"]);
    let long = json!({"kernelArguments": {"shouldExist": ["a".repeat(LONGEST_LINE), "b"]}});
    assert_eq!(
        super::tests::read(&long),
        Err(MachineError::Unfit(vec!["the kernel arguments have 65537 bytes; at most 65536 are taken".into()]))
    );
}

#[test]
fn what_a_running_node_cannot_be_given_is_refused_at_once() {
    let secret = encode_base64(b"secret");
    let said = |sections: &Value| read(sections).unwrap_err().to_string();
    for (sections, expected) in [
        (
            json!({"ignition": {"config": {"merge": [{"source": "https://hub.lab/a"}]}}}),
            "ignition.config.merge names a config that is fetched elsewhere; give the whole config, as `kiln ignition merge` makes it",
        ),
        (
            json!({"ignition": {"config": {"replace": {"source": "https://hub.lab/a"}}}}),
            "ignition.config.replace names a config that is fetched elsewhere; give the whole config, as `kiln ignition merge` makes it",
        ),
        (
            files(&[
                json!({"path": "/etc/a", "append": [{"source": secret}]}),
                json!({"path": "/etc/b\u{7}", "contents": {"source": secret}}),
            ]),
            "`/etc/a` is appended to, and nobody knows what it had before; write its whole contents instead; `/etc/b\\u{7}` is no absolute path in its simplest form",
        ),
        (
            files(&[json!({"path": "/etc/a", "contents": {"source": secret, "compression": "gzip"}})]),
            "the contents of `/etc/a` cannot be read: it is not valid gzip: unexpected end of file",
        ),
        (
            json!({"systemd": {"units": [{"name": "-a.service"}, {"name": "b/c.service"},
                {"name": "d.service", "dropins": [{"name": ".e.conf", "contents": "[Unit]\n"}]}]}}),
            "`-a.service` is no name of a unit; `b/c.service` is no name of a unit; `.e.conf` is no name of a drop-in of d.service",
        ),
        (
            json!({"storage": {"files": [{"path": SSH_KEYS, "contents": {"source": "data:,"}}]},
                "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["k"]}]}}),
            "`/home/core/.ssh/authorized_keys.d/ignition` is a file of the config and holds the SSH keys of `core`; keep one of the two",
        ),
        (
            json!({"storage": {"files": [{"path": "/etc/systemd/system/a.service", "contents": {"source": "data:,"}}]},
                "systemd": {"units": [{"name": "a.service", "mask": true}]}}),
            "`/etc/systemd/system/a.service` is a file of the config and part of its unit a.service; keep one of the two",
        ),
        (
            json!({"kernelArguments": {"shouldExist": ["a b"], "shouldNotExist": ["b"]}}),
            "the kernel argument `b` should exist and should not exist",
        ),
    ] {
        assert_eq!(
            said(&sections),
            format!("the config cannot be applied to a running node: {expected}"),
            "{sections}"
        );
    }
    assert_eq!(
        said(&files(&[json!({"path": "etc/a"})])),
        "Ignition would refuse the config: KLN0410: a path is missing, relative or not in its simplest form"
    );
    assert_eq!(
        read_machine(b"{\"secret\": 1}", &System::default()).unwrap_err().to_string(),
        "this is no Ignition config: KLN0404: the Ignition spec version is missing or unknown"
    );
    for image in ["", "-x", "a b"] {
        let system = System { os_image_url: Some(image.into()), ..System::default() };
        assert_eq!(
            read_machine(&config("3.5.0", &json!({})), &system).unwrap_err().to_string(),
            "the config cannot be applied to a running node: osImageURL is no image reference; write it as `registry/name@sha256:…`"
        );
    }
}

#[test]
fn a_config_in_spec_two_is_read_as_the_same_in_spec_three() {
    let sections = json!({"storage": {"files": [{"filesystem": "root", "path": "/etc/a", "mode": 384, "contents": {"source": "data:,a"}}]},
        "systemd": {"units": [{"name": "a.service", "enabled": true}]}});
    let read = read_machine(&config("2.2.0", &sections), &System::default()).unwrap();
    assert_eq!(read.files["/etc/a"].mode, 0o600);
    assert_eq!(read.units["a.service"].enabled, Some(true));
}
