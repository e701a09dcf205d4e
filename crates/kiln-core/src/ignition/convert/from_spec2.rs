//! Spec 2.2 to 3.0.
//!
//! Spec 2 runs its entries in order, so a path may appear many times and the last entry wins; spec 3 knows each path,
//! unit and user once. Files of spec 2 name the filesystem they are on; spec 3 has only mount points, so any filesystem
//! but `root` is refused. Everything deprecated in spec 2 is gone in spec 3 and is rewritten here where that is exact.

use std::collections::HashMap;

use super::refused;
use crate::diagnostic::{Code, Diagnostic};
use crate::document::{Node, Value};
use crate::ignition::data_url::encode_base64;

/// Rewrites the whole config.
pub(super) fn translate(root: &mut Node, lost: &mut Vec<Diagnostic>) {
    if let Some(references) = root.get_mut("ignition").and_then(|ignition| ignition.get_mut("config"))
        && let Some(append) = references.take("append")
    {
        references.set("merge", append);
    }
    let networkd = root.take("networkd");
    if let Some(storage) = root.get_mut("storage") {
        translate_filesystems(storage, lost);
        for list in ["files", "directories", "links"] {
            translate_nodes(storage, list, lost);
        }
        translate_files(storage, lost);
        translate_partitions(storage, lost);
    }
    if let Some(networkd) = networkd {
        translate_networkd(root, &networkd, lost);
    }
    if let Some(units) = root.get_mut("systemd").and_then(|systemd| systemd.get_mut("units")) {
        translate_units(units, lost);
    }
    if let Some(passwd) = root.get_mut("passwd") {
        if let Some(users) = passwd.get_mut("users") {
            translate_users(users, lost);
        }
        for group in passwd.get_mut("groups").map(Node::items_mut).unwrap_or_default() {
            drop_empty(group, &["passwordHash", "system"]);
        }
    }
}

/// Spec 2 names filesystems, spec 3 mounts them: only `root`, which both have, can be carried over.
fn translate_filesystems(storage: &mut Node, lost: &mut Vec<Diagnostic>) {
    let Some(filesystems) = storage.take("filesystems") else { return };
    for filesystem in filesystems.items() {
        let name = text(filesystem, "name");
        if name == "root" && filesystem.get("mount").is_none_or(Node::is_null) {
            continue;
        }
        lost.push(refused(
            filesystem.at,
            format!("the filesystem `{name}` cannot be converted"),
            "spec 2 names a filesystem, spec 3 needs the path it is mounted at, and nothing here says which",
            "write it as a spec 3 filesystem with `device`, `format` and `path` yourself",
        ));
    }
}

/// What files, directories and links have in common.
fn translate_nodes(storage: &mut Node, list: &str, lost: &mut Vec<Diagnostic>) {
    let Some(nodes) = storage.get_mut(list) else { return };
    for node in nodes.items_mut() {
        if let Some(filesystem) = node.take("filesystem")
            && filesystem.as_str() != Some("root")
        {
            let path = text(node, "path");
            lost.push(refused(
                filesystem.at,
                format!("`{path}` is on a filesystem other than `root` and cannot be converted"),
                "spec 3 finds the filesystem of a path by its mount point",
                "declare the filesystem with a `path` in spec 3 and put the file below it",
            ));
        }
        for owner in ["user", "group"] {
            if let Some(owner) = node.get_mut(owner) {
                drop_empty(owner, &["name"]);
            }
        }
        drop_empty(node, &["hard"]);
    }
    if list != "files" {
        fold(nodes, "path", lost, |_, _| Kept::Later);
    }
}

/// Folds the entries of one path into one: the last that writes, then everything that appends after it.
fn translate_files(storage: &mut Node, lost: &mut Vec<Diagnostic>) {
    let Some(files) = storage.get_mut("files") else { return };
    for file in files.items_mut() {
        let at = file.at;
        let appends = file.take("append").is_some_and(|append| append.as_bool() == Some(true));
        let mut contents = file.take("contents").unwrap_or_else(|| empty_mapping(at));
        if contents.get("source").is_none_or(Node::is_null) {
            contents.set("source", Node::made("", contents.at));
        }
        drop_empty(&mut contents, &["compression"]);
        if appends {
            // Overwriting and appending exclude each other.
            file.set("overwrite", Node::made(false, at));
            push(file, "append", contents);
        } else {
            if file.get("overwrite").is_none_or(Node::is_null) {
                file.set("overwrite", Node::made(true, at));
            }
            file.set("contents", contents);
        }
    }
    fold(files, "path", lost, |earlier, later| match later.take("append") {
        Some(pieces) => {
            *later = earlier.clone();
            for piece in pieces.items() {
                push(later, "append", piece.clone());
            }
            Kept::Both
        }
        None => Kept::Later,
    });
}

/// Spec 2.2 counts sectors, spec 3 MiB, and the size of a sector is not known here.
fn translate_partitions(storage: &mut Node, lost: &mut Vec<Diagnostic>) {
    for disk in storage.get_mut("disks").map(Node::items_mut).unwrap_or_default() {
        drop_empty(disk, &["wipeTable"]);
        for partition in disk.get_mut("partitions").map(Node::items_mut).unwrap_or_default() {
            drop_empty(partition, &["label", "typeGuid", "guid"]);
            for field in ["size", "start"] {
                let Some(sectors) = partition.take(field).filter(|value| value.as_integer() != Some(0)) else {
                    continue;
                };
                lost.push(refused(
                    sectors.at,
                    format!("the partition's `{field}` cannot be converted"),
                    "spec 2.2 counts in sectors, whose size depends on the disk; spec 3 counts in MiB",
                    &format!("write `{field}MiB` in a spec 3 config yourself"),
                ));
            }
        }
    }
    for array in storage.get_mut("raid").map(Node::items_mut).unwrap_or_default() {
        if array.get("spares").and_then(Node::as_integer) == Some(0) {
            array.take("spares");
        }
    }
}

/// Spec 3 has no networkd section: its units are files.
fn translate_networkd(root: &mut Node, networkd: &Node, lost: &mut Vec<Diagnostic>) {
    let mut files = Vec::new();
    for unit in networkd.get("units").map(Node::items).unwrap_or_default() {
        let Some(name) = unit.get("name").and_then(Node::as_str) else { continue };
        let directory = "/etc/systemd/network";
        files.extend(unit.get("contents").map(|contents| text_file(&format!("{directory}/{name}"), contents)));
        for dropin in unit.get("dropins").map(Node::items).unwrap_or_default() {
            let Some(file) = dropin.get("name").and_then(Node::as_str) else { continue };
            let path = format!("{directory}/{name}.d/{file}");
            files.extend(dropin.get("contents").map(|contents| text_file(&path, contents)));
        }
        lost.push(
            Diagnostic::new(Code(462), unit.at, format!("the networkd unit `{name}` became a file below {directory}"))
                .cause("spec 3 has no `networkd` section"),
        );
    }
    if files.is_empty() {
        return;
    }
    if root.get("storage").is_none_or(Node::is_null) {
        root.set("storage", empty_mapping(networkd.at));
    }
    let Some(storage) = root.get_mut("storage") else { return };
    for file in files {
        push(storage, "files", file);
    }
}

fn translate_units(units: &mut Node, lost: &mut Vec<Diagnostic>) {
    for unit in units.items_mut() {
        let enable = unit.take("enable").filter(|enable| enable.as_bool() == Some(true));
        if let Some(enable) = enable
            && unit.get("enabled").is_none_or(Node::is_null)
        {
            unit.set("enabled", enable);
        }
        drop_empty(unit, &["mask", "contents"]);
    }
    // The last entry of a unit wins, but drop-ins of the earlier ones stay unless it has one of the same name.
    fold(units, "name", lost, |earlier, later| {
        for dropin in earlier.get("dropins").map(Node::items).unwrap_or_default() {
            let known = later.get("dropins").map(Node::items).unwrap_or_default();
            if !known.iter().any(|other| text(other, "name") == text(dropin, "name")) {
                push(later, "dropins", dropin.clone());
            }
        }
        Kept::Later
    });
}

fn translate_users(users: &mut Node, lost: &mut Vec<Diagnostic>) {
    for user in users.items_mut() {
        // `create` is the old home of everything but name, hash and keys.
        for entry in user.take("create").iter().flat_map(Node::entries) {
            if user.get(&entry.key.value).is_none_or(Node::is_null) {
                user.set(&entry.key.value, entry.value.clone());
            }
        }
        drop_empty(
            user,
            &["gecos", "homeDir", "noCreateHome", "primaryGroup", "noUserGroup", "noLogInit", "shell", "system"],
        );
    }
    // The last entry of a user wins; keys of the earlier ones are kept behind its own, each once.
    fold(users, "name", lost, |earlier, later| {
        for key in earlier.get("sshAuthorizedKeys").map(Node::items).unwrap_or_default() {
            let known = later.get("sshAuthorizedKeys").map(Node::items).unwrap_or_default();
            if !known.iter().any(|other| other.value == key.value) {
                push(later, "sshAuthorizedKeys", key.clone());
            }
        }
        Kept::Later
    });
}

/// What is left of two entries with the same key.
enum Kept {
    /// The later one: the earlier had no lasting effect.
    Later,
    /// Both, folded into one.
    Both,
}

/// Makes each key unique: a later item, after `join` has seen both, takes the place of the earlier one.
fn fold(list: &mut Node, key: &str, lost: &mut Vec<Diagnostic>, join: impl Fn(&Node, &mut Node) -> Kept) {
    let Value::Sequence(old) = std::mem::replace(&mut list.value, Value::Null) else { return };
    let mut new: Vec<Node> = Vec::with_capacity(old.len());
    let mut index_of: HashMap<String, usize> = HashMap::new();
    for mut item in old {
        let name = text(&item, key).to_owned();
        let Some(earlier) = index_of.get(&name).map(|index| &mut new[*index]) else {
            index_of.insert(name, new.len());
            new.push(item);
            continue;
        };
        if let Kept::Later = join(earlier, &mut item) {
            lost.push(shadowed(earlier, &name, &item));
        }
        *earlier = item;
    }
    list.value = Value::Sequence(new);
}

fn shadowed(earlier: &Node, name: &str, later: &Node) -> Diagnostic {
    Diagnostic::new(Code(462), earlier.at, format!("`{name}` is declared twice; the later entry is kept"))
        .cause("spec 2 runs its entries in order, spec 3 allows each once")
        .related(later.at, "the entry that is kept")
}

/// Spec 2 writes `""` and `false` for "not set".
fn drop_empty(node: &mut Node, fields: &[&str]) {
    for field in fields {
        let empty = node.get(field).is_some_and(|value| value.as_str() == Some("") || value.as_bool() == Some(false));
        if empty {
            node.take(field);
        }
    }
}

fn push(node: &mut Node, list: &str, item: Node) {
    match node.get_mut(list) {
        Some(Node { value: Value::Sequence(items), .. }) => items.push(item),
        _ => {
            let at = item.at;
            node.set(list, Node::made(vec![item], at));
        }
    }
}

fn text<'a>(node: &'a Node, key: &str) -> &'a str {
    node.get(key).and_then(Node::as_str).unwrap_or_default()
}

fn text_file(path: &str, contents: &Node) -> Node {
    let at = contents.at;
    let mut resource = empty_mapping(at);
    let text = contents.as_str().unwrap_or_default();
    resource.set("source", Node::made(encode_base64(text.as_bytes()), at));
    let mut file = empty_mapping(at);
    file.set("path", Node::made(path, at));
    file.set("overwrite", Node::made(true, at));
    file.set("mode", Node::made(0o644, at));
    file.set("contents", resource);
    file
}

fn empty_mapping(at: crate::source::Location) -> Node {
    Node { at, value: Value::Mapping(Vec::new()) }
}
