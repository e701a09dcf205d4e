//! A tree of files in memory: what a filesystem should hold, and what the judges say it holds.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use kiln_image::ReadAt;
use kiln_image::ext4::{Ext4, FileKind};

/// What a path leads to.
#[derive(Clone, PartialEq, Eq)]
pub enum Node {
    Directory,
    File(Vec<u8>),
    Symlink(Vec<u8>),
}

/// Content is shown by its length: a failed comparison must stay readable.
impl std::fmt::Debug for Node {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Node::Directory => write!(formatter, "directory"),
            Node::File(bytes) => write!(formatter, "{} bytes {:?}", bytes.len(), bytes.get(..8).unwrap_or(bytes)),
            Node::Symlink(target) => write!(formatter, "-> {}", String::from_utf8_lossy(target)),
        }
    }
}

/// Paths without the first slash. `lost+found` is left out.
pub type Tree = BTreeMap<String, Node>;

/// The start of every image: what CoreOS keeps in `/boot`, and what else a map or a directory can look like.
pub fn sample(names: usize) -> Tree {
    let mut tree = Tree::new();
    for folder in ["loader.0", "loader.0/entries", "ostree", "ostree/abc", "grub2", "many", "empty"] {
        tree.insert(folder.into(), Node::Directory);
    }
    tree.insert("loader".into(), Node::Symlink(b"loader.0".to_vec()));
    tree.insert("grub2/far".into(), Node::Symlink(format!("{}/loader/entries/a.conf", "../grub2".repeat(9)).into()));
    tree.insert("loader.0/entries/a.conf".into(), Node::File(b"options root=/dev/sda4\n".to_vec()));
    tree.insert("grub2/grub.cfg".into(), Node::File(vec![b'g'; 5000]));
    tree.insert("ostree/abc/initramfs".into(), Node::File(noise(700_001)));
    let mut sparse = vec![0; 300_000];
    sparse[200_000..200_010].fill(7);
    tree.insert("sparse".into(), Node::File(sparse));
    for number in 0..names {
        tree.insert(format!("many/a-rather-long-file-name-{number:05}"), Node::File(vec![]));
    }
    tree
}

/// Bytes without a pattern.
pub fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15u64 ^ length as u64;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Writes a tree into a folder for `mke2fs -d`. Runs of zeros become holes.
pub fn write(tree: &Tree, folder: &Path) {
    use std::os::unix::fs::FileExt;
    fs::create_dir_all(folder).unwrap();
    for (path, node) in tree {
        let path = folder.join(path);
        match node {
            Node::Directory => fs::create_dir_all(path).unwrap(),
            Node::Symlink(target) => symlink(std::ffi::OsStr::from_bytes(target), path).unwrap(),
            Node::File(bytes) => {
                let file = fs::File::create(path).unwrap();
                file.set_len(bytes.len() as u64).unwrap();
                for (index, block) in bytes.chunks(4096).enumerate() {
                    if block.iter().any(|byte| *byte != 0) {
                        file.write_all_at(block, index as u64 * 4096).unwrap();
                    }
                }
            }
        }
    }
}

/// The tree below a folder, and the permissions and owners of its regular files.
pub fn read(folder: &Path) -> (Tree, BTreeMap<String, (u32, u32)>) {
    let (mut tree, mut owners) = (Tree::new(), BTreeMap::new());
    let mut waiting = vec![folder.to_owned()];
    while let Some(next) = waiting.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
            let metadata = fs::symlink_metadata(&path).unwrap();
            if name == "lost+found" {
                continue;
            }
            if metadata.is_dir() {
                waiting.push(path);
                tree.insert(name, Node::Directory);
            } else if metadata.is_symlink() {
                tree.insert(name, Node::Symlink(fs::read_link(path).unwrap().as_os_str().as_bytes().to_vec()));
            } else {
                owners.insert(name.clone(), (metadata.mode() & 0o7777, metadata.uid()));
                tree.insert(name, Node::File(fs::read(path).unwrap()));
            }
        }
    }
    (tree, owners)
}

/// The tree as Kiln's own reader sees it.
pub fn read_ext4<D: ReadAt>(fs: &Ext4<D>) -> Tree {
    let mut tree = Tree::new();
    let mut waiting = vec![String::new()];
    while let Some(folder) = waiting.pop() {
        for entry in fs.read_dir(&folder).unwrap() {
            let path = if folder.is_empty() { entry.text() } else { format!("{folder}/{}", entry.text()) };
            if path == "lost+found" {
                continue;
            }
            let node = match entry.metadata.kind {
                FileKind::Directory => {
                    waiting.push(path.clone());
                    Node::Directory
                }
                FileKind::Symlink => Node::Symlink(fs.read_link(&path).unwrap()),
                _ => Node::File(fs.read_file(&path, 1 << 30).unwrap()),
            };
            tree.insert(path, node);
        }
    }
    tree
}

/// Names both sides of the first difference.
pub fn assert_same(left: &Tree, right: &Tree, what: &str) {
    let paths: std::collections::BTreeSet<&String> = left.keys().chain(right.keys()).collect();
    for path in paths {
        assert!(left.get(path) == right.get(path), "{what}: {path}: {:?} and {:?}", left.get(path), right.get(path));
    }
}
