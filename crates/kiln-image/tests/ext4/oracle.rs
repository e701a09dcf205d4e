//! The programs that judge, and images to judge.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use kiln_image::Patch;
use kiln_image::read_at::ImageFile;
use kiln_testimage::{TempDir, require_all, run};

/// Whether e2fsprogs is there.
pub fn have_e2fsprogs(test: &str) -> bool {
    require_all(test, &[("mke2fs", "e2fsprogs"), ("e2fsck", "e2fsprogs"), ("debugfs", "e2fsprogs")])
}

/// A folder with images that goes away with the test.
pub struct Scratch {
    pub folder: TempDir,
    images: AtomicU32,
}

impl Scratch {
    pub fn new() -> Self {
        Scratch { folder: TempDir::new("ext4"), images: AtomicU32::new(0) }
    }

    /// A new filesystem with always the same bytes, filled from a folder if there is one.
    pub fn mke2fs(&self, length: u64, options: &[&str], from: Option<&Path>) -> PathBuf {
        let image = self.folder.join(&format!("image-{}", self.images.fetch_add(1, Ordering::Relaxed)));
        File::create(&image).unwrap().set_len(length).unwrap();
        let mut command = Command::new("mke2fs");
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

    pub fn copy(&self, image: &Path) -> PathBuf {
        let copy = self.folder.join(&format!("image-{}", self.images.fetch_add(1, Ordering::Relaxed)));
        run(Command::new("cp").arg("--sparse=always").arg(image).arg(&copy));
        copy
    }
}

/// Fails with what e2fsck says where it finds anything at all.
pub fn e2fsck_is_clean(image: &Path, what: &str) {
    let output = Command::new("/usr/sbin/e2fsck").arg("-fn").arg(image).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && !text.contains("? no"), "{what}: e2fsck -fn: {}\n{text}", output.status);
}

/// What debugfs prints for one request.
pub fn debugfs(image: &Path, request: &str) -> Vec<u8> {
    let output = Command::new("/usr/sbin/debugfs").args(["-R", request]).arg(image).output().unwrap();
    assert!(output.status.success(), "debugfs: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Lets debugfs change an image.
pub fn debugfs_write(image: &Path, request: &str) {
    run(Command::new("debugfs").args(["-w", "-R", request]).arg(image));
}

/// Lets debugfs carry out one request after the other; none may fail.
pub fn debugfs_script(scratch: &Scratch, image: &Path, requests: &[String]) {
    let script = scratch.folder.write("script", requests.join("\n"));
    let output = Command::new("/usr/sbin/debugfs").arg("-w").arg("-f").arg(script).arg(image).output().unwrap();
    let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
    // The first line is the version; what fails is told below.
    assert!(output.status.success() && complaints.lines().count() <= 1, "debugfs: {complaints}");
}
