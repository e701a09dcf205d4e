//! The hub as a service: settings, crowds of connections, keys, backups, and how it ends; with the real program.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::zombie_processes, reason = "a test fails loudly")]

use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::time::{Duration, Instant};

use kiln_testimage::oracle;
use kiln_testimage::temp_dir::TempDir;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A running hub.
struct Hub {
    process: Child,
    data: PathBuf,
    address: SocketAddr,
    log: BufReader<ChildStderr>,
}

impl Hub {
    fn start(data: &Path, arguments: &[&str]) -> Hub {
        Hub::begin(kiln(&["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(data).args(arguments), data)
    }

    /// Waits until the command serves.
    fn begin(command: &mut Command, data: &Path) -> Hub {
        let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(process.stderr.take().unwrap());
        let mut told = String::new();
        loop {
            let mut line = String::new();
            assert!(log.read_line(&mut line).unwrap() > 0, "kiln serve ended: {told}");
            if let Some((_, address)) = line.split_once("serves https://") {
                let address = address.trim().parse().unwrap();
                return Hub { process, data: data.to_owned(), address, log };
            }
            told.push_str(&line);
        }
    }

    fn kubectl(&self, kubectl: &Path, arguments: &[&str]) -> String {
        let output = Command::new(kubectl)
            .env("KUBECONFIG", self.data.join("kubeconfig"))
            .env("HOME", &self.data)
            .arg("--request-timeout=20s")
            .args(arguments)
            .output()
            .unwrap();
        text(&output)
    }

    /// Asks it to stop; gives how it ended and what it said.
    fn stop(mut self) -> (Option<i32>, String) {
        kill(Pid::from_raw(i32::try_from(self.process.id()).unwrap()), Signal::SIGTERM).unwrap();
        let mut told = String::new();
        self.log.read_to_string(&mut told).unwrap();
        (self.process.wait().unwrap().code(), told)
    }

    fn open_files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.process.id())).unwrap().count()
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn kiln(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
        .trim_end()
        .to_owned()
}

/// Runs kiln to its end: exit code and what it printed.
fn run(arguments: &[&str]) -> (Option<i32>, String) {
    let output = kiln(arguments).output().unwrap();
    (output.status.code(), text(&output))
}

#[test]
fn two_thousand_idle_connections_leave_others_their_answers_and_are_closed() {
    let name = "two_thousand_idle_connections_leave_others_their_answers_and_are_closed";
    let Some(kubectl) = oracle::kubectl(name) else { return };
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    if hard < 4200 {
        return oracle::skip(name, &format!("only {hard} files may be open"));
    }
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    let folder = TempDir::new("idle-connections");
    let hub = Hub::start(&folder.path().join("hub"), &[]);
    let before = hub.open_files();
    let connections: Vec<TcpStream> = (0..2000).map(|_| TcpStream::connect(hub.address).unwrap()).collect();
    // Those that were accepted first are closed after ten seconds, which a busy machine may need for all of them.
    let mut most = 0;
    for _ in 0..20 {
        most = most.max(hub.open_files());
        if most >= before + 2000 {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(most > before + 1000, "only {} are open", most - before);
    let begun = Instant::now();
    assert_eq!(hub.kubectl(&kubectl, &["get", "ns", "default", "-o", "name"]), "namespace/default");
    // kubectl itself needs most of it on a busy machine.
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    let deadline = Instant::now() + Duration::from_secs(60);
    while hub.open_files() > before + 20 {
        assert!(Instant::now() < deadline, "{} files are still open", hub.open_files());
        std::thread::sleep(Duration::from_millis(200));
    }
    drop(connections);
    let metrics = hub.kubectl(&kubectl, &["get", "--raw", "/metrics"]);
    assert!(metrics.contains("kiln_turned_away_total{reason=\"handshake\"} 2000\n"), "{metrics}");
    // It is told, and a crowd cannot fill the log.
    let (_, told) = hub.stop();
    let lines = told.lines().filter(|line| line.contains("turned away: the TLS handshake took too long")).count();
    assert!((1..20).contains(&lines), "{lines} lines: {told}");
}

#[test]
fn a_viewer_is_told_what_a_viewer_may() {
    let Some(kubectl) = oracle::kubectl("a_viewer_is_told_what_a_viewer_may") else { return };
    let folder = TempDir::new("viewer");
    let (data, file) = (folder.path().join("hub"), folder.path().join("anna.kubeconfig"));
    let hub = Hub::start(&data, &[]);
    let (code, told) =
        run(&["access", "grant", "anna", "--out", file.to_str().unwrap(), "--data-dir", data.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{told}");
    std::fs::copy(&file, data.join("kubeconfig")).unwrap();
    for (asked, expected) in [
        (&["get", "hosts.kiln.dev"][..], "yes"),
        (&["list", "configmaps", "--all-namespaces"], "yes"),
        (&["watch", "baremetalhosts.metal3.io"], "yes"),
        (&["get", "secrets"], "no"),
        (&["create", "hosts.kiln.dev"], "no"),
        (&["patch", "hosts.kiln.dev", "--subresource=status"], "no"),
        (&["delete", "namespaces"], "no"),
        (&["get", "/metrics"], "yes"),
        (&["post", "/tokens"], "no"),
    ] {
        let printed = hub.kubectl(&kubectl, &[&["auth", "can-i"], asked].concat());
        // Beside it, kinds that are not namespaced are remarked upon.
        assert_eq!(printed.lines().next(), Some(expected), "{asked:?}: {printed}");
    }
    // What is said is what happens.
    let refused = hub.kubectl(&kubectl, &["get", "secrets"]);
    assert!(refused.contains("secrets is forbidden: User \"anna\" cannot list resource"), "{refused}");
    assert_eq!(hub.kubectl(&kubectl, &["get", "hosts.kiln.dev"]), "No resources found in default namespace.");
}

#[test]
fn a_backup_of_a_running_hub_comes_back_with_its_secrets_and_goes_on_beyond_it() {
    let Some(kubectl) = oracle::kubectl("a_backup_of_a_running_hub") else { return };
    let folder = TempDir::new("backup");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (data, file, key, target) = (path("hub"), path("hub.backup"), path("hub.key"), path("restored"));
    let hub = Hub::start(Path::new(&data), &["--encryption-key-file", &key]);
    let secret = ["create", "secret", "generic", "bmc", "--from-literal=password=hunter2"];
    assert_eq!(hub.kubectl(&kubectl, &secret), "secret/bmc created");
    let (code, told) = run(&["backup", &file, "--data-dir", &data, "--with-authority"]);
    assert_eq!(code, Some(0), "{told}");
    assert!(told.ends_with("Secrets in it are sealed: keep the encryption key, elsewhere"), "{told}");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(hub.kubectl(&kubectl, &["create", "configmap", "later"]), "configmap/later created");
    let later: u64 =
        hub.kubectl(&kubectl, &["get", "cm", "later", "-o", "jsonpath={.metadata.resourceVersion}"]).parse().unwrap();
    // A hub that runs keeps its authority; `live_restore` has the rest.
    let (code, told) = run(&["restore", &file, "--data-dir", &data, "--replace", "--authority", "backup"]);
    assert_eq!(code, Some(1));
    assert!(told.contains("is in use by a hub that runs, which keeps its authority: stop it first"), "{told}");
    let (code, told) = hub.stop();
    assert_eq!((code, told.ends_with("everything acknowledged is on the disk\n")), (Some(0), true), "{told}");
    let (code, told) = run(&["restore", &file, "--data-dir", &data]);
    assert_eq!(code, Some(1));
    assert!(told.contains("is not empty: give --replace"), "{told}");
    let (code, told) = run(&["restore", &file, "--data-dir", &target]);
    assert_eq!(code, Some(0), "{told}");
    assert_eq!(std::fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o700);
    // Without its key nothing opens, and no new key is made in silence.
    let (code, told) = run(&["serve", "--listen", "127.0.0.1:0", "--data-dir", &target]);
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("the key of the database is missing"), "{told}");
    let hub = Hub::start(Path::new(&target), &["--encryption-key-file", &key]);
    let get = ["get", "secret", "bmc", "-o", "jsonpath={.data.password}"];
    assert_eq!(hub.kubectl(&kubectl, &get), "aHVudGVyMg==");
    assert!(hub.kubectl(&kubectl, &["get", "cm", "later"]).contains("not found"));
    assert_eq!(hub.kubectl(&kubectl, &["create", "configmap", "new"]), "configmap/new created");
    let new: u64 =
        hub.kubectl(&kubectl, &["get", "cm", "new", "-o", "jsonpath={.metadata.resourceVersion}"]).parse().unwrap();
    assert!(new > later + 1_000_000, "{new} is not far beyond {later}");
    let authority = |folder: &str| std::fs::read_to_string(Path::new(folder).join("ca.crt")).unwrap();
    assert_eq!(authority(&data), authority(&target), "the authority came from the backup");
    let audit = std::fs::read_to_string(Path::new(&target).join("audit.log")).unwrap();
    assert!(audit.contains("\"user\":\"kiln-admin\"") && audit.contains("\"name\":\"new\""), "{audit}");
    assert!(!audit.contains("hunter2"));
}

/// Whatever the umask lets through: it is 0 here, under which a careless program lets everybody write.
#[test]
fn what_a_hub_keeps_is_for_its_own_user_alone() {
    let folder = TempDir::new("modes");
    let data = folder.path().join("hub");
    let mut command = Command::new("sh");
    command.args(["-c", "umask 0; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_kiln"), "serve", "--listen", "127.0.0.1:0"]);
    let hub = Hub::begin(command.arg("--data-dir").arg(&data).stdin(Stdio::null()), &data);
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&data), 0o700);
    for name in ["kubeconfig", "ca.key", "store.db", "encryption.key", "audit.log"] {
        assert_eq!(format!("{name} {:o}", mode(&data.join(name))), format!("{name} 600"));
    }
    // Of the rest, whoever has come so far may write nothing.
    for entry in std::fs::read_dir(&data).unwrap().map(|entry| entry.unwrap().path()) {
        assert_eq!(mode(&entry) & 0o022, 0, "{} has mode {:o}", entry.display(), mode(&entry));
    }
    assert_eq!(hub.stop().0, Some(0));
}

#[test]
fn keys_are_changed_at_a_start_and_the_old_one_opens_nothing_afterwards() {
    let folder = TempDir::new("keys");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (data, words) = (path("hub"), path("words"));
    assert_eq!(Hub::start(Path::new(&data), &[]).stop().0, Some(0));
    std::fs::write(&words, "correct horse battery staple\n").unwrap();
    let serve = ["serve", "--listen", "127.0.0.1:0", "--data-dir", &data, "--encryption-passphrase-file", &words];
    let (code, told) = run(&serve);
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("others may read it; chmod 0600 it first"), "{told}");
    std::fs::set_permissions(&words, std::fs::Permissions::from_mode(0o600)).unwrap();
    let (code, told) = run(&serve);
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("is not the key of this database"), "{told}");
    let old = Path::new(&data).join("encryption.key").display().to_string();
    let both = ["--encryption-passphrase-file", &words, "--previous-key-file", &old];
    assert_eq!(Hub::start(Path::new(&data), &both).stop().0, Some(0));
    assert_eq!(run(&["serve", "--listen", "127.0.0.1:0", "--data-dir", &data]).0, Some(1));
    assert_eq!(Hub::start(Path::new(&data), &["--encryption-passphrase-file", &words]).stop().0, Some(0));
}

#[test]
fn settings_come_from_a_file_and_variables_and_a_mistake_is_shown_at_its_line() {
    let folder = TempDir::new("settings");
    let (file, data) = (folder.path().join("kiln.yaml"), folder.path().join("hub"));
    std::fs::write(&file, format!("dataDir: {}\nlisten: 127.0.0.1:0\nlog: debug\nshutdownSecnds: 1\n", data.display()))
        .unwrap();
    let output = kiln(&["serve"]).env("KILN_CONFIG", &file).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let told = text(&output);
    assert!(told.contains("kiln.yaml:4:1") && told.contains("shutdownSeconds"), "{told}");
    assert!(!data.exists(), "nothing was begun");
    let output = kiln(&["serve"]).env_remove("KILN_DATA_DIR").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).starts_with("error: no data folder: give --data-dir DIR"), "{}", text(&output));
    // The variable counts before the file: nothing listens on this address.
    std::fs::write(&file, format!("dataDir: {}\nlisten: 127.0.0.1:0\n", data.display())).unwrap();
    let mut command = kiln(&["serve", "--config"]);
    let output = command.arg(&file).env("KILN_LISTEN", "192.0.2.1:1").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output).contains("cannot listen on 192.0.2.1:1"), "{}", text(&output));
}

#[test]
fn systemd_reads_the_unit_without_a_complaint() {
    let name = "systemd_reads_the_unit_without_a_complaint";
    let Some(systemd_analyze) = oracle::require(name, "systemd-analyze", "systemd") else { return };
    let folder = TempDir::new("unit");
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/kiln.service");
    // The program and its manual are not installed where this runs.
    let text_of_unit = std::fs::read_to_string(unit).unwrap();
    let there = text_of_unit
        .replace("/usr/local/bin/kiln", env!("CARGO_BIN_EXE_kiln"))
        .replace("Documentation=man:kiln-serve(1)\n", "");
    assert_ne!(there, text_of_unit);
    let copy = folder.path().join("kiln.service");
    std::fs::write(&copy, there).unwrap();
    let output = Command::new(systemd_analyze).arg("verify").arg(&copy).output().unwrap();
    let told = text(&output);
    let complaints: Vec<&str> = told.lines().filter(|line| line.contains("kiln.service")).collect();
    assert_eq!(complaints, Vec::<&str>::new(), "{told}");
}
