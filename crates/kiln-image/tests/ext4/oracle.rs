//! The programs that judge, and images to judge.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use kiln_image::Patch;
use kiln_image::read_at::ImageFile;

/// Whether e2fsprogs is there. Says so where it is not, and fails where it must be.
pub fn have_e2fsprogs(test: &str) -> bool {
    let found = ["mke2fs", "e2fsck", "debugfs"].iter().all(|program| Path::new("/usr/sbin").join(program).exists());
    if !found {
        assert!(std::env::var_os("KILN_REQUIRE_ORACLES").is_none(), "{test}: e2fsck is not installed");
        println!("skipped: {test}: e2fsck is not installed (apt-get install e2fsprogs)");
    }
    found
}

/// A folder that goes away with the test.
pub struct Scratch {
    pub folder: PathBuf,
    images: AtomicU32,
}

impl Scratch {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("kiln-ext4-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        Scratch { folder, images: AtomicU32::new(0) }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// A new filesystem with always the same bytes, filled from a folder if there is one.
    pub fn mke2fs(&self, length: u64, options: &[&str], from: Option<&Path>) -> PathBuf {
        let image = self.path(&format!("image-{}", self.images.fetch_add(1, Ordering::Relaxed)));
        File::create(&image).unwrap().set_len(length).unwrap();
        let mut command = Command::new("/usr/sbin/mke2fs");
        command.args(["-q", "-F", "-t", "ext4", "-U", "96d15588-3596-4b3c-adca-a2ff7279ea63"]);
        command.args(["-E", "hash_seed=96d15588-3596-4b3c-adca-a2ff7279ea63"]).args(options);
        if let Some(folder) = from {
            command.arg("-d").arg(folder);
        }
        run(command.arg(&image).env("E2FSPROGS_FAKE_TIME", "1600000000"));
        image
    }

    pub fn disk(&self, image: &Path) -> ImageFile {
        ImageFile::new(File::open(image).unwrap()).unwrap()
    }

    pub fn apply(&self, image: &Path, patch: &Patch) {
        let mut file = File::options().write(true).open(image).unwrap();
        for (offset, bytes) in patch.pieces() {
            file.seek(SeekFrom::Start(offset)).unwrap();
            file.write_all(bytes).unwrap();
        }
    }

    pub fn copy(&self, image: &Path, name: &str) -> PathBuf {
        let copy = self.path(name);
        run(Command::new("cp").arg("--sparse=always").arg(image).arg(&copy));
        copy
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Fails with what e2fsck says where it finds anything at all.
pub fn e2fsck_is_clean(image: &Path) {
    let output = Command::new("/usr/sbin/e2fsck").arg("-fn").arg(image).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && !text.contains("? no"), "e2fsck -fn: {}\n{text}", output.status);
}

/// What debugfs prints for one request.
pub fn debugfs(image: &Path, request: &str) -> Vec<u8> {
    let output = Command::new("/usr/sbin/debugfs").args(["-R", request]).arg(image).output().unwrap();
    assert!(output.status.success(), "debugfs: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

pub fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
