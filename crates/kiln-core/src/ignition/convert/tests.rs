//! What each conversion gives and what it loses, word for word.

use serde_json::{Value, json};

use super::*;
use crate::ignition::schema::{self, Object, Type};
use crate::source::SourceMap;

fn converted(value: Value, to: SpecVersion) -> (Value, Vec<String>) {
    let mut sources = SourceMap::default();
    let file = sources.add("a.ign", value.to_string());
    let (config, findings) = Config::parse(file, sources.file(file));
    let Converted { config, lost } = convert(&config.unwrap_or_else(|| panic!("{findings:#?}")), to);
    (config.root.to_json(), lost.iter().map(|it| format!("{}: {}", it.code, it.message)).collect())
}

#[test]
fn upwards_only_the_version_changes() {
    let old = json!({ "ignition": { "version": "3.0.0" }, "storage": { "files": [{ "path": "/a", "mode": 420 }] } });
    let mut new = old.clone();
    new["ignition"]["version"] = "3.6.0".into();
    assert_eq!(converted(old, SpecVersion::V3_6), (new, Vec::new()));
}

#[test]
fn downwards_every_lost_field_is_named() {
    let config = json!({
        "ignition": { "version": "3.6.0", "proxy": { "httpProxy": "http://p/" },
            "config": { "merge": [{ "source": "https://a/", "httpHeaders": [{ "name": "A", "value": "b" }] }] } },
        "kernelArguments": { "shouldExist": ["a"] },
        "passwd": { "users": [{ "name": "a", "shouldExist": true }, { "name": "b", "shouldExist": false }] },
        "storage": {
            "files": [
                { "path": "/a", "mode": 0o4755, "contents": { "source": "gs://b/o", "verification": { "hash": "sha256-00" } } },
                { "path": "/b", "contents": { "source": "arn:aws:s3:::b/o" } },
            ],
            "filesystems": [{ "device": "/dev/a", "format": "none", "mountOptions": ["ro"] }],
            "luks": [{ "name": "l", "discard": true, "cex": { "enabled": false } }],
        },
    });
    let (value, lost) = converted(config.clone(), SpecVersion::V3_3);
    assert_eq!(
        lost,
        [
            "KLN0460: `storage.luks.discard` is lost: spec 3.3.0 does not have it",
            "KLN0460: `mode 4755` is lost: spec 3.3.0 does not have it",
            "KLN0461: `arn:aws:s3:::b/o` cannot be converted: spec 3.3.0 does not know arn: sources",
        ]
    );
    assert_eq!(value["storage"]["luks"], json!([{ "name": "l" }]));
    assert_eq!(value["storage"]["files"][0]["mode"], json!(0o755));
    let (_, lost) = converted(config, SpecVersion::V3_0);
    assert_eq!(
        lost,
        [
            "KLN0460: `ignition.proxy` is lost: spec 3.0.0 does not have it",
            "KLN0461: `ignition.config.merge.httpHeaders` cannot be converted: spec 3.0.0 does not have it",
            "KLN0460: `kernelArguments` is lost: spec 3.0.0 does not have it",
            "KLN0461: `passwd.users.shouldExist` cannot be converted: spec 3.0.0 does not have it",
            "KLN0460: `storage.filesystems.mountOptions` is lost: spec 3.0.0 does not have it",
            "KLN0461: `storage.luks` cannot be converted: spec 3.0.0 does not have it",
            "KLN0460: `mode 4755` is lost: spec 3.0.0 does not have it",
            "KLN0461: `gs://b/o` cannot be converted: spec 3.0.0 does not know gs:// sources",
            "KLN0460: `sha256-00` is lost: spec 3.0.0 does not have it",
            "KLN0461: `arn:aws:s3:::b/o` cannot be converted: spec 3.0.0 does not know arn: sources",
            "KLN0461: the filesystem format `none` cannot be converted: spec 3.0.0 does not have it",
        ]
    );
}

#[test]
fn every_field_newer_than_3_0_is_known_to_the_conversion() {
    fn walk(object: &'static Object, path: &str, inherited: u8, found: &mut Vec<(String, u8)>) {
        for field in object.fields {
            let path = if path.is_empty() { field.name.to_owned() } else { format!("{path}.{}", field.name) };
            if field.since > inherited {
                found.push((path.clone(), field.since));
            }
            if let Type::Object(inner) | Type::Objects(inner) = field.holds {
                walk(inner, &path, inherited.max(field.since), found);
            }
        }
    }
    let mut fields = Vec::new();
    walk(schema::root(SpecVersion::NEWEST), "", 0, &mut fields);
    let mut known: Vec<(String, u8)> =
        features::FEATURES.iter().map(|feature| (feature.path.to_owned(), feature.since.minor())).collect();
    fields.sort();
    known.sort();
    assert_eq!(fields, known);
}

#[test]
fn spec_2_runs_in_order_and_spec_3_says_each_thing_once() {
    let spec2 = json!({
        "ignition": { "version": "2.2.0", "config": { "append": [{ "source": "https://a/" }] } },
        "networkd": { "units": [{ "name": "a.network", "contents": "x" }] },
        "passwd": { "users": [
            { "name": "core", "sshAuthorizedKeys": ["old", "both"] },
            { "name": "core", "create": { "uid": 5, "shell": "" }, "sshAuthorizedKeys": ["both", "new"] },
        ] },
        "storage": { "files": [
            { "filesystem": "root", "path": "/a", "contents": { "source": "data:,1", "compression": "" } },
            { "filesystem": "root", "path": "/a", "contents": { "source": "data:,2" }, "mode": 420 },
            { "filesystem": "root", "path": "/a", "append": true, "contents": { "source": "data:,3" } },
            { "filesystem": "root", "path": "/b", "append": true, "contents": { "source": "data:,4" } },
            { "filesystem": "root", "path": "/c", "overwrite": false },
        ] },
        "systemd": { "units": [
            { "name": "u.service", "contents": "old", "dropins": [{ "name": "a.conf" }, { "name": "b.conf", "contents": "old" }] },
            { "name": "u.service", "enable": true, "dropins": [{ "name": "b.conf", "contents": "new" }] },
        ] },
    });
    let (value, lost) = converted(spec2, SpecVersion::V3_2);
    assert_eq!(
        value,
        json!({
            "ignition": { "version": "3.2.0", "config": { "merge": [{ "source": "https://a/" }] } },
            "passwd": { "users": [{ "name": "core", "sshAuthorizedKeys": ["both", "new", "old"], "uid": 5 }] },
            "storage": { "files": [
                { "path": "/a", "mode": 420, "overwrite": true, "contents": { "source": "data:,2" }, "append": [{ "source": "data:,3" }] },
                { "path": "/b", "overwrite": false, "append": [{ "source": "data:,4" }] },
                { "path": "/c", "overwrite": false, "contents": { "source": "" } },
                { "path": "/etc/systemd/network/a.network", "overwrite": true, "mode": 420, "contents": { "source": "data:;base64,eA==" } },
            ] },
            "systemd": { "units": [
                { "name": "u.service", "enabled": true, "dropins": [{ "name": "b.conf", "contents": "new" }, { "name": "a.conf" }] },
            ] },
        })
    );
    assert_eq!(
        lost,
        [
            "KLN0462: `/a` is declared twice; the later entry is kept",
            "KLN0462: the networkd unit `a.network` became a file below /etc/systemd/network",
            "KLN0462: `u.service` is declared twice; the later entry is kept",
            "KLN0462: `core` is declared twice; the later entry is kept",
        ]
    );
}

#[test]
fn what_spec_2_says_and_spec_3_cannot_is_refused() {
    let spec2 = json!({
        "ignition": { "version": "2.2.0" },
        "storage": {
            "filesystems": [{ "name": "data", "mount": { "device": "/dev/b", "format": "xfs" } }],
            "files": [{ "filesystem": "data", "path": "/a" }],
            "disks": [{ "device": "/dev/a", "partitions": [{ "number": 1, "size": 2048 }] }],
        },
    });
    let (_, lost) = converted(spec2, SpecVersion::V3_0);
    assert_eq!(
        lost,
        [
            "KLN0461: the filesystem `data` cannot be converted",
            "KLN0461: `/a` is on a filesystem other than `root` and cannot be converted",
            "KLN0461: the partition's `size` cannot be converted",
        ]
    );
    let (_, lost) = converted(json!({ "ignition": { "version": "3.0.0" } }), "2.4.0".parse().unwrap());
    assert_eq!(lost, ["KLN0461: spec 3.0.0 cannot be converted to 2.4.0"]);
}

#[test]
fn spec_3_becomes_spec_2_with_named_filesystems() {
    let spec3 = json!({
        "ignition": { "version": "3.1.0", "config": { "merge": [{ "source": "https://a/" }] } },
        "storage": {
            "filesystems": [{ "device": "/dev/b", "format": "xfs", "path": "/var" }, { "device": "/dev/c" }],
            "files": [
                { "path": "/var/a", "contents": { "source": "data:,1" }, "append": [{ "source": "data:,2" }] },
                { "path": "/variant", "overwrite": true, "contents": { "source": "data:,1" } },
                { "path": "/b" },
            ],
            "disks": [{ "device": "/dev/a", "partitions": [{ "number": 1, "sizeMiB": 8, "wipePartitionEntry": true }] }],
        },
    });
    let (value, lost) = converted(spec3, SpecVersion::V2_2);
    assert_eq!(
        value,
        json!({
            "ignition": { "version": "2.2.0", "config": { "append": [{ "source": "https://a/" }] } },
            "storage": {
                "filesystems": [
                    { "name": "/var", "mount": { "device": "/dev/b", "format": "xfs" } },
                    { "name": "1", "mount": { "device": "/dev/c" } },
                ],
                "files": [
                    { "filesystem": "/var", "path": "/a", "overwrite": false, "contents": { "source": "data:,1" } },
                    { "filesystem": "/var", "path": "/a", "overwrite": false, "append": true, "contents": { "source": "data:,2" } },
                    { "filesystem": "root", "path": "/variant", "overwrite": true, "contents": { "source": "data:,1" } },
                    { "filesystem": "root", "path": "/b", "overwrite": false, "append": true, "contents": { "source": "" } },
                ],
                "disks": [{ "device": "/dev/a", "partitions": [{ "number": 1 }] }],
            },
        })
    );
    assert_eq!(
        lost,
        [
            "KLN0461: the partition's `sizeMiB` cannot be converted",
            "KLN0460: `wipePartitionEntry` is lost: spec 2.2.0 does not have it",
        ]
    );
}
