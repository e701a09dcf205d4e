//! `kiln serve` in a process of its own, and a kube client of it over HTTPS.

#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses its part of this")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// A running hub.
pub struct Hub {
    process: Child,
    pub data: PathBuf,
}

impl Hub {
    pub fn start(data: &Path) -> Hub {
        Hub::start_at(data, "127.0.0.1:0")
    }

    pub fn start_at(data: &Path, listen: &str) -> Hub {
        let kubeconfig = data.join("kubeconfig");
        let _ = std::fs::remove_file(&kubeconfig);
        let process = Command::new(env!("CARGO_BIN_EXE_kiln"))
            .args(["serve", "--listen", listen, "--data-dir"])
            .arg(data)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        while !kubeconfig.exists() {
            assert!(Instant::now() < deadline, "kiln serve wrote no kubeconfig");
            std::thread::sleep(Duration::from_millis(10));
        }
        Hub { process, data: data.to_owned() }
    }

    pub async fn client(&self) -> Client {
        let kubeconfig = Kubeconfig::read_from(self.data.join("kubeconfig")).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        Client::try_from(config).unwrap()
    }

    /// Where it listens, as `127.0.0.1:port`.
    pub fn address(&self) -> String {
        let text = std::fs::read_to_string(self.data.join("kubeconfig")).unwrap();
        let at = text.split("server: https://").nth(1).unwrap();
        at.lines().next().unwrap().to_owned()
    }

    /// Runs kiln against it: exit code, standard output, standard error.
    pub fn kiln(&self, arguments: &[&str]) -> (i32, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
        let Output { status, stdout, stderr } =
            command.args(arguments).arg("--data-dir").arg(&self.data).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (status.code().unwrap_or(-1), text(stdout), text(stderr))
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
