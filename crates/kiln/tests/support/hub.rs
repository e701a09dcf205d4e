//! A `kiln serve` of the test's own.

#![allow(dead_code, reason = "each test file uses its part of this")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running hub; dropped, it is killed.
pub struct Hub {
    process: Child,
    /// The administrator's kubeconfig.
    pub kubeconfig: PathBuf,
}

impl Hub {
    /// Starts the real program on a free port and waits until it answers.
    pub fn start(data: &Path) -> Hub {
        // The kubeconfig of an earlier start names an old port.
        let kubeconfig = data.join("kubeconfig");
        let _ = std::fs::remove_file(&kubeconfig);
        let process = Command::new(env!("CARGO_BIN_EXE_kiln"))
            .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(data)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let hub = Hub { process, kubeconfig };
        let deadline = Instant::now() + Duration::from_secs(30);
        while !hub.kubeconfig.exists() {
            assert!(Instant::now() < deadline, "kiln serve wrote no kubeconfig");
            std::thread::sleep(Duration::from_millis(10));
        }
        hub
    }

    /// kill -9.
    pub fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
