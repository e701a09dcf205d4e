//! Spec 3.0 to 2.2.
//!
//! Runs after everything newer than 3.0 was taken out. Files get the name of the filesystem they lie on, and each
//! appended piece becomes an entry of its own.
//!
//! What surprises: a spec 3 file without contents only has to exist. Spec 2 says that with an entry that appends
//! nothing, because a plain entry would empty a file that is already there.

use super::{dropped, refused};
use crate::diagnostic::Diagnostic;
use crate::document::{Node, Value};
use crate::ignition::SpecVersion;

/// Rewrites the whole config.
pub(super) fn translate(root: &mut Node, lost: &mut Vec<Diagnostic>) {
    if let Some(references) = root.get_mut("ignition").and_then(|ignition| ignition.get_mut("config"))
        && let Some(merge) = references.take("merge")
    {
        references.set("append", merge);
    }
    let Some(storage) = root.get_mut("storage") else { return };
    refuse_partitions(storage, lost);
    let mounts = translate_filesystems(storage);
    translate_files(storage);
    for list in ["files", "directories", "links"] {
        for node in storage.get_mut(list).map(Node::items_mut).unwrap_or_default() {
            place(node, &mounts);
        }
    }
}

/// Spec 2.2 counts sectors and cannot delete or re-create a partition.
fn refuse_partitions(storage: &mut Node, lost: &mut Vec<Diagnostic>) {
    for disk in storage.get_mut("disks").map(Node::items_mut).unwrap_or_default() {
        for partition in disk.get_mut("partitions").map(Node::items_mut).unwrap_or_default() {
            for field in ["sizeMiB", "startMiB"] {
                if let Some(size) = partition.take(field).filter(|size| !size.is_null()) {
                    lost.push(refused(
                        size.at,
                        format!("the partition's `{field}` cannot be converted"),
                        "spec 2.2 counts in sectors, whose size depends on the disk; spec 3 counts in MiB",
                        &format!("take `{field}` out yourself"),
                    ));
                }
            }
            if let Some(wipe) = partition.take("wipePartitionEntry").filter(|wipe| wipe.as_bool() == Some(true)) {
                let consequence = "a partition that does not match will stop the boot instead of being replaced";
                lost.push(dropped(wipe.at, "wipePartitionEntry", SpecVersion::V2_2, consequence));
            }
            if let Some(exists) = partition.take("shouldExist").filter(|exists| exists.as_bool() == Some(false)) {
                lost.push(refused(
                    exists.at,
                    "a partition to delete cannot be converted".to_owned(),
                    "spec 2.2 would create it instead",
                    "take the partition out yourself",
                ));
            }
        }
    }
}

/// Gives each filesystem the name spec 2 wants: its mount point, or a number. Returns the mount points.
fn translate_filesystems(storage: &mut Node) -> Vec<String> {
    let mut mounts = Vec::new();
    let mut unnamed = 0;
    for filesystem in storage.get_mut("filesystems").map(Node::items_mut).unwrap_or_default() {
        let at = filesystem.at;
        let path = filesystem.take("path").and_then(|path| path.as_str().map(str::to_owned));
        let name = path.clone().filter(|path| !path.is_empty()).unwrap_or_else(|| {
            unnamed += 1;
            unnamed.to_string()
        });
        let mount = std::mem::replace(filesystem, Node { at, value: Value::Mapping(Vec::new()) });
        filesystem.set("name", Node::made(name, at));
        filesystem.set("mount", mount);
        mounts.extend(path.filter(|path| !path.is_empty()));
    }
    mounts
}

fn translate_files(storage: &mut Node) {
    let Some(files) = storage.get_mut("files") else { return };
    let Value::Sequence(old) = std::mem::replace(&mut files.value, Value::Null) else { return };
    let mut new = Vec::new();
    for mut file in old {
        let appended = file.take("append");
        let written = file.get("contents").is_some_and(|it| it.get("source").is_some_and(|source| !source.is_null()));
        if written {
            // Unset means "do not overwrite" in spec 3 and "overwrite" in spec 2.
            if file.get("overwrite").is_none_or(Node::is_null) {
                file.set("overwrite", Node::made(false, file.at));
            }
            new.push(file.clone());
        }
        let mut pieces: Vec<Node> = appended.iter().flat_map(Node::items).cloned().collect();
        if !written && pieces.is_empty() {
            let mut nothing = Node { at: file.at, value: Value::Mapping(Vec::new()) };
            nothing.set("source", Node::made("", file.at));
            pieces.push(nothing);
        }
        for contents in pieces {
            let mut piece = file.clone();
            piece.set("contents", contents);
            piece.set("overwrite", Node::made(false, file.at));
            piece.set("append", Node::made(true, file.at));
            new.push(piece);
        }
    }
    files.value = Value::Sequence(new);
}

/// Names the filesystem a path lies on and makes the path relative to it.
fn place(node: &mut Node, mounts: &[String]) {
    let Some(path) = node.get("path").and_then(Node::as_str).map(str::to_owned) else { return };
    let below = |mount: &String| {
        let rest = path.strip_prefix(mount.trim_end_matches('/'))?;
        rest.starts_with('/').then_some((mount.clone(), rest.to_owned()))
    };
    let deepest = mounts.iter().filter_map(below).max_by_key(|(mount, _)| mount.len());
    let (filesystem, path) = deepest.unwrap_or_else(|| ("root".to_owned(), path.clone()));
    node.set("path", Node::made(path, node.at));
    node.set("filesystem", Node::made(filesystem, node.at));
}
