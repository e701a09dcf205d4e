//! A shell in which `kubectl` is the one under test and talks to one server.

#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses its part of this; a test fails loudly")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What scripts may use beside kubectl.
const PRELUDE: &str = r#"
# One line of YAML; what begins with a bracket would be taken for JSON.
y() { printf -- '---\n%s\n' "$1"; }
# Runs kubectl in the background until it has printed a line.
begin() { kubectl "$@" > watch.txt 2>&1 & W=$!; lines 1; }
lines() { for _ in $(seq 300); do [ "$(wc -l < watch.txt)" -ge "$1" ] && return; sleep 0.1; done; echo "no line $1"; }
# Waits for a number of lines, ends it and shows them.
end() { lines "$1"; { kill $W; wait $W; } 2>/dev/null; cat watch.txt; }
"#;

/// The surroundings of a script.
pub struct Shell {
    folder: PathBuf,
    kubeconfig: PathBuf,
    path: String,
    fixtures: PathBuf,
}

impl Shell {
    /// In a folder of its own, with the credentials of a server and the files scripts call `$F`.
    pub fn new(folder: &Path, credentials: &Path, kubectl: &Path, fixtures: &Path) -> Shell {
        let programs = folder.join("bin");
        fs::create_dir_all(&programs).unwrap();
        let program = programs.join("kubectl");
        // A script, not a link: some distributions' kubectl looks for parts of itself beside its own file.
        fs::write(&program, format!("#!/bin/sh\nexec '{}' --request-timeout=30s \"$@\"\n", kubectl.display())).unwrap();
        fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let kubeconfig = folder.join("kubeconfig");
        fs::copy(credentials, &kubeconfig).unwrap();
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
        Shell { folder: folder.to_owned(), kubeconfig, path, fixtures: fixtures.to_owned() }
    }

    /// A script, not started.
    pub fn command(&self, script: &str) -> Command {
        let mut command = Command::new("bash");
        command
            .args(["-c", &format!("{PRELUDE}\nexec 2>&1\n{script}")])
            .current_dir(&self.folder)
            .env("PATH", &self.path)
            .env("KUBECONFIG", &self.kubeconfig)
            // kubectl keeps what it learnt about servers here.
            .env("HOME", &self.folder)
            .env("F", &self.fixtures)
            .env("LC_ALL", "C")
            .stdin(Stdio::null());
        command
    }

    /// What a script prints, with the code it ends with unless that is 0.
    pub fn run(&self, script: &str) -> String {
        let output = self.command(script).output().unwrap();
        let mut printed = super::transcript::normalise(&String::from_utf8_lossy(&output.stdout));
        if let Some(code) = output.status.code().filter(|code| *code != 0) {
            printed.push_str(&format!("[{code}]\n"));
        }
        printed
    }
}

/// What the transcript's commands are about.
pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/hub").canonicalize().unwrap()
}
