//! A folder that stands for a machine in its initramfs.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use kiln_firstboot::root::Root;

pub const BOND: &str = "[connection]\nid=bond0\nuuid=6f2b9a3c-1f61-4b0b-8a55-0c8f5f6d2a11\ntype=bond\ninterface-name=bond0\n\n[ipv4]\nmethod=manual\naddress1=192.0.2.7/24\n";
pub const DUMMY: &str = "[connection]\nid=dummy0\ntype=dummy\nautoconnect=false\ninterface-name=dummy0\n";

/// Path, mode and contents.
pub type Entry = (String, u32, String);

pub struct Machine {
    folder: PathBuf,
}

impl Machine {
    pub fn new(kargs: &str, files: &[(&str, u32, &str)]) -> Machine {
        Machine::below(&std::env::temp_dir(), kargs, files)
    }

    /// Where writing costs nothing, for hundreds of machines; programs may not be allowed to run there.
    pub fn in_memory(kargs: &str, files: &[(&str, u32, &str)]) -> Machine {
        let memory = Path::new("/dev/shm");
        Machine::below(if memory.is_dir() { memory } else { Path::new("/tmp") }, kargs, files)
    }

    fn below(folder: &Path, kargs: &str, files: &[(&str, u32, &str)]) -> Machine {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = folder.join(format!("kiln-machine-{}-{number}", std::process::id()));
        let machine = Machine { folder };
        machine.put("proc/cmdline", 0o644, &format!("{kargs}\n"));
        fs::create_dir_all(machine.path("sysroot/etc/NetworkManager/system-connections")).unwrap();
        for (path, mode, text) in files {
            machine.put(path, *mode, text);
        }
        machine
    }

    pub fn root(&self) -> Root {
        Root::new(&self.folder)
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.folder.join(path)
    }

    pub fn put(&self, path: &str, mode: u32, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }

    pub fn link(&self, path: &str, target: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }

    /// Every file below a path, by name.
    pub fn files(&self, below: &str) -> Vec<Entry> {
        let mut found = Vec::new();
        collect(&self.path(below), &self.folder, &mut found);
        found.sort();
        found
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn collect(path: &Path, root: &Path, found: &mut Vec<Entry>) {
    let Ok(metadata) = fs::symlink_metadata(path) else { return };
    if metadata.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            collect(&entry.unwrap().path(), root, found);
        }
    } else {
        let name = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
        let text = String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned();
        found.push((name, metadata.permissions().mode() & 0o7777, text));
    }
}
