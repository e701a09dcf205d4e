//! A real NetworkManager in a private namespace, as the judge of keyfiles.
//!
//! [`load`] answers "does it load these files without a word, and what does it read in them"; a [`Machine`] also has
//! NICs (veth ends, so the running kernel is enough) and can be asked anything with a shell script.
//! Kernel types the host lacks (bond, VLAN, dummy) still load as profiles; they only do not come up.

#![allow(dead_code, clippy::unwrap_used, reason = "each test program uses a part of it; a test fails loudly")]

#[path = "oracle.rs"]
mod oracle;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use kiln_core::keyfile::ConnectionFile;

/// What a test machine has before NetworkManager starts.
#[derive(Debug, Default)]
pub struct Machine<'a> {
    /// Names and addresses.
    pub nics: &'a [(&'a str, &'a str)],
    /// `/etc/NetworkManager/system-connections`.
    pub files: &'a [ConnectionFile],
    /// When each profile (by UUID) was last active, in seconds since 1970.
    pub last_active: &'a [(&'a str, u64)],
}

/// What a script said, and what NetworkManager logged meanwhile.
#[derive(Debug)]
pub struct Session {
    /// Standard output of the script.
    pub output: String,
    /// Whole log.
    pub log: String,
}

/// What NetworkManager made of a set of files.
#[derive(Debug)]
pub struct Loaded {
    /// By file name: each property as `nmcli` prints it, such as `connection.id`.
    pub profiles: BTreeMap<String, BTreeMap<String, String>>,
    /// Lines of the log that complain about keyfiles, without the time.
    pub warnings: Vec<String>,
}

impl Loaded {
    /// One property of one profile; the panic lists what was loaded.
    pub fn value(&self, file: &str, property: &str) -> &str {
        let profile = self.profiles.get(file).unwrap_or_else(|| panic!("{file} was not loaded: {self:#?}"));
        profile.get(property).unwrap_or_else(|| panic!("{file} has no {property}: {profile:#?}"))
    }

    /// Fails unless every one of these files was loaded and nothing was said against any.
    pub fn assert_clean(&self, files: &[ConnectionFile]) {
        let mut names: Vec<_> = files.iter().map(|file| file.name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(self.warnings, Vec::<String>::new());
        assert_eq!(self.profiles.keys().collect::<Vec<_>>(), names, "{:#?}", self.warnings);
    }
}

/// Loads files. `None`: skipped, because NetworkManager is missing or the test may not make namespaces.
pub fn load(test: &str, files: &[ConnectionFile]) -> Option<Loaded> {
    let script = r#"
        nmcli -g UUID connection show | while read -r uuid; do
            echo "@ $(nmcli -e no -g FILENAME,UUID connection show | sed -n "s|^/etc/NetworkManager/system-connections/\(.*\):$uuid\$|\1|p")"
            nmcli -t -e no connection show "$uuid"
        done"#;
    let session = Machine { files, ..Machine::default() }.run(test, script)?;
    let mut profiles = BTreeMap::<String, BTreeMap<String, String>>::new();
    let mut file = String::new();
    for line in session.output.lines() {
        match (line.strip_prefix("@ "), line.split_once(':')) {
            (Some(name), _) => file = name.to_owned(),
            // The loopback profile is NetworkManager's own and has no file in /etc.
            (None, Some((property, value))) if !file.is_empty() => {
                profiles.entry(file.clone()).or_default().insert(property.to_owned(), value.to_owned());
            }
            _ => {}
        }
    }
    Some(Loaded { profiles, warnings: keyfile_warnings(&session.log) })
}

/// The lines of a log in which NetworkManager complains about keyfiles, without level and time.
pub fn keyfile_warnings(log: &str) -> Vec<String> {
    let complaints = log.lines().filter(|line| line.starts_with("<warn>") || line.starts_with("<error>"));
    complaints
        .filter_map(|line| line.split_once("] "))
        .filter(|(_, text)| text.starts_with("keyfile: "))
        .map(|(_, text)| text.to_owned())
        .collect()
}

impl Machine<'_> {
    /// Starts NetworkManager, waits until it has read its profiles, runs a shell script beside it and ends everything.
    pub fn run(&self, test: &str, script: &str) -> Option<Session> {
        let needed = [("NetworkManager", "network-manager"), ("dbus-daemon", "dbus-daemon"), ("ip", "iproute2")];
        if !needed.iter().all(|(program, package)| oracle::present(test, program, package)) {
            return None;
        }
        if !may_make_namespaces() {
            oracle::skip(test, "making network namespaces needs root");
            return None;
        }
        let work = WorkFolder::new();
        self.prepare(&work.0);
        let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../kiln/tests/support/networkmanager.sh"));
        command.arg(&work.0).args(self.nics.iter().map(|(name, mac)| format!("{name}={mac}")));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        let result = child.wait_with_output().unwrap();
        let log = fs::read_to_string(work.0.join("log")).unwrap_or_default();
        let complaints = String::from_utf8_lossy(&result.stderr);
        assert!(result.status.success(), "{test}: {}\n{complaints}\n{log}", result.status);
        Some(Session { output: String::from_utf8(result.stdout).unwrap(), log })
    }

    fn prepare(&self, work: &Path) {
        let folder = work.join("system-connections");
        fs::create_dir(&folder).unwrap();
        for file in self.files {
            let path = folder.join(&file.name);
            fs::write(&path, file.keyfile.render()).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(file.mode)).unwrap();
        }
        let lines = self.last_active.iter().map(|(uuid, seconds)| format!("{uuid}={seconds}\n"));
        fs::write(work.join("timestamps"), format!("[timestamps]\n{}", lines.collect::<String>())).unwrap();
    }
}

fn may_make_namespaces() -> bool {
    let attempt = Command::new("unshare").args(["--net", "--mount", "true"]).stderr(Stdio::null()).status();
    attempt.is_ok_and(|status| status.success())
}

/// A folder of one test, removed with it.
struct WorkFolder(PathBuf);

impl WorkFolder {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("kiln-nm-{}-{number}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        WorkFolder(folder)
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        // A folder left behind harms nobody, a panic while panicking would hide the first one.
        let _ = fs::remove_dir_all(&self.0);
    }
}
