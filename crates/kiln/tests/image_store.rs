//! From a base to a machine's download with the real program: import, compose, serve, fetch, list, forget.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "support/image.rs"]
mod image;

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use image::{done, kiln, sha256};
use kiln_testimage::{Disk, Packing, Qcow2Options, TempDir, disk, pack, require_all, run, to_qcow2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const PROGRAMS: &[(&str, &str)] =
    &[("qemu-img", "qemu-utils"), ("curl", "curl"), ("mke2fs", "e2fsprogs"), ("gzip", "gzip")];

/// A folder with `base.qcow2.gz`, `bond.yaml` and `host.ign`.
fn folder_with_base(name: &str) -> TempDir {
    let folder = image::folder(name);
    Disk::default().write(&folder.join("base.raw"));
    to_qcow2(&folder.join("base.raw"), &folder.join("base.qcow2"), &Qcow2Options::default());
    pack(Packing::Gzip(6), &folder.join("base.qcow2"), &folder.join("base.qcow2.gz"));
    folder
}

/// A server that is ended with its test.
struct Server {
    child: Child,
    url: String,
}

impl Server {
    fn start(folder: &TempDir) -> Server {
        let mut child = Command::new(env!("CARGO_BIN_EXE_kiln"))
            .args(["image", "serve", "--store", "store", "--listen", "127.0.0.1:0"])
            .current_dir(folder.path())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        log.read_line(&mut line).unwrap();
        // Whoever logs to a pipe that nobody reads would wait.
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        let url = line.trim().strip_prefix("serving on ").unwrap().trim_end_matches('/').to_owned();
        Server { child, url }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn field(json: &str, name: &str) -> String {
    let value: serde_json::Value = serde_json::from_str(json).unwrap();
    value[name].as_str().unwrap_or_else(|| panic!("no {name} in {json}")).to_owned()
}

#[test]
fn a_host_fetches_what_was_composed_for_it() {
    let test = "a_host_fetches_what_was_composed_for_it";
    if !require_all(test, &[disk::PROGRAMS, PROGRAMS].concat()) {
        return;
    }
    let folder = folder_with_base("image-store");
    let imported = done(&folder, &["image", "import", "base.qcow2.gz", "--store", "store", "--format", "json"]);
    assert_eq!(field(&imported, "path"), "/bases/base.qcow2.gz");
    let mut server = Server::start(&folder);
    let compose = |more: &[&str]| {
        let usual =
            ["image", "compose", "--store", "store", "--base", "base", "--format", "json", "--url", &server.url];
        done(&folder, &[&usual, more].concat())
    };
    let open = compose(&["--host", "n1", "--network", "bond.yaml", "-o", "n1.qcow2.gz"]);
    let fetch = |url: &str, file: &str| {
        let target = folder.join(file);
        let mut curl = Command::new("curl");
        curl.args(["-sS", "-w", "%{http_code}", "-o"]).arg(&target).arg(url);
        (String::from_utf8(run(&mut curl)).unwrap(), target)
    };
    let (status, fetched) = fetch(&field(&open, "clusterOSImage"), "fetched");
    assert_eq!((status.as_str(), sha256(&fetched)), ("200", field(&open, "sha256")));
    assert_eq!(sha256(&folder.join("n1.qcow2.gz")), field(&open, "sha256"));
    // The bytes are those that `customize` writes.
    done(&folder, &["image", "customize", "base.qcow2.gz", "-o", "same.qcow2.gz", "--network", "bond.yaml"]);
    assert_eq!(sha256(&folder.join("same.qcow2.gz")), field(&open, "sha256"));
    let inflated = folder.join("inflated.qcow2");
    kiln_testimage::unpack(&fetched, &inflated);
    assert_eq!(sha256(&inflated), field(&open, "inflatedSha256"));
    run(Command::new("qemu-img").args(["check", "-q"]).arg(&inflated));

    let secret = compose(&["--host", "n2", "--ignition", "host.ign"]);
    let url = field(&secret, "url");
    assert!(url.contains("?expires=") && url.contains("&signature="), "{url}");
    let (status, fetched) = fetch(&field(&secret, "clusterOSImage"), "secret");
    assert_eq!((status.as_str(), sha256(&fetched)), ("200", field(&secret, "sha256")));
    let (status, refused) = fetch(url.split('?').next().unwrap(), "refused");
    assert_eq!(status, "403");
    assert_eq!(
        fs::read_to_string(refused).unwrap(),
        "this address needs a signature: use the one that `kiln image compose` prints\n"
    );

    let listed = done(&folder, &["image", "list", "--store", "store"]);
    assert!(listed.contains("base   base.qcow2.gz") && listed.contains("image  /images/n2/base.qcow2.gz"), "{listed}");
    let said = kiln(&folder, &["image", "forget", "--store", "store", "--base", "base"]);
    assert_eq!(said.exit, 1);
    assert!(said.complaints.contains("the images of 2 hosts are made of it"), "{}", said.complaints);
    for host in ["n1", "n2"] {
        done(&folder, &["image", "forget", "--store", "store", "--host", host]);
    }
    done(&folder, &["image", "forget", "--store", "store", "--base", "base"]);
    assert_eq!(done(&folder, &["image", "list", "--store", "store"]), "");

    kill(Pid::from_raw(server.child.id() as i32), Signal::SIGTERM).unwrap();
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_killed_import_leaves_a_store_that_works() {
    let test = "a_killed_import_leaves_a_store_that_works";
    if !require_all(test, &[disk::PROGRAMS, PROGRAMS].concat()) {
        return;
    }
    let folder = folder_with_base("image-killed");
    let bases = folder.join("store/bases");
    for _ in 0..5 {
        let mut import = Command::new(env!("CARGO_BIN_EXE_kiln"))
            .args(["image", "import", "base.qcow2.gz", "--store", "store"])
            .current_dir(folder.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        let unfinished = || fs::read_dir(&bases).is_ok_and(|entries| entries.count() > 0);
        while !unfinished() && begun.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(1));
        }
        import.kill().unwrap();
        import.wait().unwrap();
        // Either it was quicker than the signal, and everything is there, or nothing is.
        let listed = done(&folder, &["image", "list", "--store", "store"]);
        assert!(listed.is_empty() || listed.starts_with("base   base.qcow2.gz"), "{listed}");
        if !listed.is_empty() {
            done(&folder, &["image", "forget", "--store", "store", "--base", "base"]);
        }
    }
    done(&folder, &["image", "import", "base.qcow2.gz", "--store", "store"]);
    assert_eq!(fs::read_dir(&bases).unwrap().count(), 1);
    done(
        &folder,
        &["image", "compose", "--store", "store", "--base", "base", "--host", "n1", "--network", "bond.yaml"],
    );
}

#[test]
fn processes_compose_side_by_side() {
    let test = "processes_compose_side_by_side";
    if !require_all(test, &[disk::PROGRAMS, PROGRAMS].concat()) {
        return;
    }
    let folder = folder_with_base("image-parallel");
    done(&folder, &["image", "import", "base.qcow2.gz", "--store", "store"]);
    let children: Vec<Child> = (0..12)
        .map(|number| {
            // Several of them for the same host.
            let host = format!("n{}", number % 4);
            Command::new(env!("CARGO_BIN_EXE_kiln"))
                .args([
                    "image",
                    "compose",
                    "--store",
                    "store",
                    "--base",
                    "base",
                    "--network",
                    "bond.yaml",
                    "--host",
                    &host,
                ])
                .args(["--ignition", "host.ign"])
                .current_dir(folder.path())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    for child in children {
        assert!(child.wait_with_output().unwrap().status.success());
    }
    let listed = done(&folder, &["image", "list", "--store", "store"]);
    let sums: Vec<&str> =
        listed.lines().filter_map(|line| line.strip_prefix("image")?.split("sha256 ").nth(1)).collect();
    assert!(sums.len() == 4 && sums.iter().all(|sum| *sum == sums[0]), "{listed}");
}
