//! The cpio format that kernels unpack as initramfs (`newc`).

/// Entries of one archive, finished by [`Archive::bytes`].
#[derive(Debug, Clone, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    /// No entries yet.
    pub fn new() -> Archive {
        Archive::default()
    }

    /// A folder of mode 0755. Parents are not made by themselves: the kernel wants them listed.
    pub fn folder(mut self, path: &str) -> Archive {
        self.entry(path, 0o040_755, &[]);
        self
    }

    /// A file with this mode.
    pub fn file(mut self, path: &str, mode: u32, contents: impl AsRef<[u8]>) -> Archive {
        self.entry(path, 0o100_000 | mode, contents.as_ref());
        self
    }

    /// A symbolic link.
    pub fn link(mut self, path: &str, target: &str) -> Archive {
        self.entry(path, 0o120_777, target.as_bytes());
        self
    }

    /// The archive with its end, padded to 512 bytes as cpio(1) does.
    pub fn bytes(mut self) -> Vec<u8> {
        self.entries = 0;
        self.entry("TRAILER!!!", 0, &[]);
        self.pad(512);
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, contents: &[u8]) {
        let (name_length, length) = (path.len() + 1, contents.len());
        self.entries += 1;
        let links = if mode & 0o040_000 == 0 { 1 } else { 2 };
        // magic, inode, mode, uid, gid, links, mtime, size, device ×2, rdev ×2, name length, checksum
        let header = format!(
            "070701{:08x}{mode:08x}{:08x}{:08x}{links:08x}{:08x}{length:08x}{:08x}{:08x}{:08x}{:08x}{name_length:08x}{:08x}",
            self.entries, 0, 0, 0, 0, 0, 0, 0, 0
        );
        self.bytes.extend_from_slice(header.as_bytes());
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad(4);
        self.bytes.extend_from_slice(contents);
        self.pad(4);
    }

    fn pad(&mut self, to: usize) {
        self.bytes.resize(self.bytes.len().next_multiple_of(to), 0);
    }
}
