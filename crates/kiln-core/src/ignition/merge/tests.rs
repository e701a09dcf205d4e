//! The rules of merging one by one. That they are Ignition's is shown by `tests/oracle_ignition_merge.rs`.

use serde_json::{Value, json};

use super::*;
use crate::source::SourceMap;

fn config(sources: &mut SourceMap, name: &str, text: &Value) -> Config {
    let file = sources.add(name, format!("{text:#}"));
    let (config, findings) = Config::parse(file, sources.file(file));
    assert_eq!(findings, []);
    config.unwrap()
}

fn merged(parent: Value, child: Value) -> (Value, Vec<String>) {
    let mut sources = SourceMap::default();
    let with_version = |mut value: Value| {
        if value.get("ignition").is_none() {
            value["ignition"] = json!({ "version": "3.3.0" });
        }
        value
    };
    let parent = config(&mut sources, "parent.ign", &with_version(parent));
    let child = config(&mut sources, "child.ign", &with_version(child));
    let Merged { config, diagnostics } = merge(&parent, &child);
    let found = diagnostics.iter().map(|it| format!("{}: {}", it.code, it.message)).collect();
    let mut value = config.root.to_json();
    value.as_object_mut().unwrap().remove("ignition");
    (value, found)
}

/// (what it shows, parent, child, result)
#[test]
fn lists_are_merged_by_their_keys() {
    let table = [
        (
            "an entry is merged where the parent has it, others follow",
            json!({ "systemd": { "units": [{ "name": "a.service", "enabled": true }, { "name": "b.service" }] } }),
            json!({ "systemd": { "units": [{ "name": "c.service" }, { "name": "a.service", "mask": true }] } }),
            json!({ "systemd": { "units": [
                { "name": "a.service", "enabled": true, "mask": true }, { "name": "b.service" }, { "name": "c.service" },
            ] } }),
        ),
        (
            "a path moves to the child's list",
            json!({ "storage": { "files": [{ "path": "/a" }, { "path": "/b" }] } }),
            json!({ "storage": { "links": [{ "path": "/a", "target": "/x" }] } }),
            json!({ "storage": { "files": [{ "path": "/b" }], "links": [{ "path": "/a", "target": "/x" }] } }),
        ),
        (
            "a kernel argument moves to the child's list",
            json!({ "kernelArguments": { "shouldExist": ["a", "b"] } }),
            json!({ "kernelArguments": { "shouldNotExist": ["a"] } }),
            json!({ "kernelArguments": { "shouldExist": ["b"], "shouldNotExist": ["a"] } }),
        ),
        (
            "appended pieces and options are not compared",
            json!({ "storage": { "files": [{ "path": "/a", "append": [{ "source": "data:,x" }] }] } }),
            json!({ "storage": { "files": [{ "path": "/a", "append": [{ "source": "data:,x" }] }] } }),
            json!({ "storage": { "files": [{ "path": "/a", "append": [{ "source": "data:,x" }, { "source": "data:,x" }] }] } }),
        ),
        (
            "keys of a user are unique",
            json!({ "passwd": { "users": [{ "name": "core", "sshAuthorizedKeys": ["a", "b"] }] } }),
            json!({ "passwd": { "users": [{ "name": "core", "sshAuthorizedKeys": ["b", "c"] }] } }),
            json!({ "passwd": { "users": [{ "name": "core", "sshAuthorizedKeys": ["a", "b", "c"] }] } }),
        ),
        (
            "partitions have a number or else a label",
            json!({ "storage": { "disks": [{ "device": "/dev/a", "partitions": [{ "number": 1 }, { "label": "x" }] }] } }),
            json!({ "storage": { "disks": [{ "device": "/dev/a", "partitions": [{ "label": "x", "guid": "g" }, { "number": 1, "label": "y" }] }] } }),
            json!({ "storage": { "disks": [{ "device": "/dev/a", "partitions": [{ "number": 1, "label": "y" }, { "label": "x", "guid": "g" }] }] } }),
        ),
        (
            "a header without a value takes the parent's away",
            json!({ "storage": { "files": [{ "path": "/a", "contents": { "source": "https://a/",
                "httpHeaders": [{ "name": "A", "value": "1" }, { "name": "B", "value": "2" }] } }] } }),
            json!({ "storage": { "files": [{ "path": "/a", "contents": { "httpHeaders": [{ "name": "A", "value": null }] } }] } }),
            json!({ "storage": { "files": [{ "path": "/a", "contents": { "source": "https://a/",
                "httpHeaders": [{ "name": "B", "value": "2" }] } }] } }),
        ),
    ];
    for (shows, parent, child, expected) in table {
        assert_eq!(merged(parent, child), (expected, Vec::new()), "{shows}");
    }
}

#[test]
fn what_a_replaced_source_inherits_is_reported() {
    let file = |contents: Value| json!({ "storage": { "files": [{ "path": "/a", "contents": contents }] } });
    let parent = json!({ "source": "https://a.example/x", "compression": "gzip", "verification": { "hash": "sha512-00" },
        "httpHeaders": [{ "name": "Authorization", "value": "Bearer x" }] });
    let (value, found) = merged(file(parent.clone()), file(json!({ "source": "https://b.example/y" })));
    let contents = &value["storage"]["files"][0]["contents"];
    assert_eq!((&contents["source"], &contents["compression"]), (&json!("https://b.example/y"), &json!("gzip")));
    assert_eq!(
        found,
        [
            "KLN0450: `https://b.example/y` will be unpacked as gzip although nothing here says so",
            "KLN0451: `https://b.example/y` will be checked against the hash of `https://a.example/x`",
            "KLN0452: the header `Authorization` meant for `https://a.example/x` will be sent to `https://b.example/y`",
        ]
    );
    let careful = json!({ "source": "https://b.example/y", "compression": "", "verification": { "hash": "sha512-11" },
        "httpHeaders": [{ "name": "Authorization", "value": null }] });
    assert_eq!(merged(file(parent.clone()), file(careful)).1, [""; 0]);
    let packed = json!({ "source": "data:;base64,H4sIAAAA", "verification": { "hash": "sha512-11" }, "httpHeaders": [{ "name": "Authorization" }] });
    assert_eq!(merged(file(parent), file(packed)).1, [""; 0]);
}

#[test]
fn the_newer_version_of_the_two_is_written_and_keeps_old_meanings() {
    let mut sources = SourceMap::default();
    let old = config(
        &mut sources,
        "old.ign",
        &json!({ "ignition": { "version": "3.1.0" }, "storage": { "files": [{ "path": "/a", "mode": 0o4755 }] } }),
    );
    let new = config(&mut sources, "new.ign", &json!({ "ignition": { "version": "3.6.0" } }));
    let merged = merge_all([&old, &new]).unwrap();
    assert_eq!(merged.config.version, SpecVersion::V3_6);
    let expected =
        json!({ "ignition": { "version": "3.6.0" }, "storage": { "files": [{ "path": "/a", "mode": 0o755 }] } });
    assert_eq!(merged.config.root.to_json(), expected);
    assert_eq!(merged.diagnostics[0].message, "mode 4755 became 0755 to keep its meaning");
    assert!(merge_all([]).is_none());
}

#[test]
fn each_entry_knows_its_file() {
    let mut sources = SourceMap::default();
    let parent = config(
        &mut sources,
        "base.ign",
        &json!({ "ignition": { "version": "3.3.0" }, "storage": { "files": [
            { "path": "/a", "mode": 420, "contents": { "source": "data:,a" } }, { "path": "/b", "mode": 420 } ] } }),
    );
    let child = config(
        &mut sources,
        "site.ign",
        &json!({ "ignition": { "version": "3.3.0" }, "storage": { "files": [{ "path": "/a", "contents": { "source": "data:,b" } }] },
            "systemd": { "units": [{ "name": "x.service" }] } }),
    );
    let merged = merge(&parent, &child).config;
    assert_eq!(
        crate::ignition::provenance::describe(&merged, &sources),
        "storage.files /a: mode from base.ign:9, contents.source from site.ign:10\n\
         storage.files /b: base.ign:16\n\
         systemd.units x.service: site.ign:18\n"
    );
}

#[test]
fn what_the_machine_fetches_besides_is_noted() {
    let mut sources = SourceMap::default();
    let pointer = config(
        &mut sources,
        "pointer.ign",
        &json!({ "ignition": { "version": "3.3.0", "config": {
            "replace": { "source": "https://a/r" }, "merge": [{ "source": "https://a/m" }] } } }),
    );
    let found: Vec<String> = references(&pointer).iter().map(|it| format!("{}: {}", it.code, it.message)).collect();
    assert_eq!(
        found,
        [
            "KLN0453: the machine will drop this whole config and use `https://a/r` instead",
            "KLN0454: the machine will lay `https://a/m` over this config; it may add to it or change it",
        ]
    );
}
