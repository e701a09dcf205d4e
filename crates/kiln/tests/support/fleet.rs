//! A site with a hub and nodes, each with a real NetworkManager, in namespaces of its own. See `fleet.sh`.

#![allow(dead_code, reason = "each test file uses its part of this")]

#[path = "oracle.rs"]
mod oracle;

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/fleet.sh");
/// The program under test.
pub const KILN: &str = env!("CARGO_BIN_EXE_kiln");
/// Where the hub listens inside the site.
pub const HUB: &str = "https://10.66.0.1:6443";

/// A site; dropped, everything in it ends.
pub struct Fleet {
    work: PathBuf,
    process: Child,
}

/// The site or a node: a place that runs scripts.
pub struct Place<'f> {
    folder: PathBuf,
    fleet: &'f Fleet,
}

/// What a script said.
#[derive(Debug)]
pub struct Said {
    pub code: i32,
    pub output: String,
}

impl Fleet {
    /// Starts nodes of these names; None when what it takes is not installed.
    pub fn start(test: &str, nodes: &[&str]) -> Option<Fleet> {
        let needed = [
            ("NetworkManager", "network-manager"),
            ("dbus-daemon", "dbus-daemon"),
            ("ip", "iproute2"),
            ("dnsmasq", "dnsmasq-base"),
            ("kubectl", "kubernetes-client"),
        ];
        if !needed.iter().all(|(program, package)| oracle::present(test, program, package)) {
            return None;
        }
        let attempt = Command::new("unshare").args(["--net", "--mount", "true"]).stderr(Stdio::null()).status();
        if !attempt.is_ok_and(|status| status.success()) {
            oracle::skip(test, "making network namespaces needs root");
            return None;
        }
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let work = std::env::temp_dir().join(format!("kiln-fleet-{}-{number}", std::process::id()));
        fs::create_dir_all(work.join("site")).unwrap();
        let log = File::create(work.join("start.log")).unwrap();
        let process = Command::new(SCRIPT)
            .arg("site")
            .arg(&work)
            .args(nodes)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let fleet = Fleet { work, process };
        fleet.site().wait_until_ready();
        for node in nodes {
            fleet.node(node).wait_until_ready();
        }
        Some(fleet)
    }

    pub fn site(&self) -> Place<'_> {
        self.node("site")
    }

    pub fn node(&self, name: &str) -> Place<'_> {
        Place { folder: self.work.join(name), fleet: self }
    }

    /// Visible from everywhere in the fleet.
    pub fn folder(&self) -> &Path {
        &self.work
    }

    /// Starts the hub and waits until it is ready; returns its process id inside the site.
    pub fn start_hub(&self) {
        let work = self.work.display();
        self.site().ok(&format!(
            "{KILN} serve --data-dir {work}/hub --listen 10.66.0.1:6443 >> {work}/hub.log 2>&1 &
            echo $! > {work}/hub.pid
            tries=600
            until kubectl --kubeconfig {work}/hub/kubeconfig get --raw /readyz > /dev/null 2>&1; do
                tries=$((tries - 1)); [ $tries -gt 0 ] || {{ cat {work}/hub.log; exit 1; }}
                sleep 0.1
            done"
        ));
    }

    /// kill -9.
    pub fn kill_hub(&self) {
        // It is dead when it has let go of its lock.
        self.site().ok(&format!(
            "kill -9 $(cat {0}/hub.pid); until flock --nonblock {0}/hub/store.lock true; do sleep 0.05; done",
            self.work.display()
        ));
    }

    /// The real kubectl, as the administrator.
    pub fn kubectl(&self, arguments: &str) -> Said {
        self.site().run(&format!("kubectl --kubeconfig {}/hub/kubeconfig {arguments}", self.work.display()))
    }

    /// `kubectl apply` of a manifest.
    pub fn apply(&self, manifest: &str) {
        let path = self.work.join("manifest.yaml");
        fs::write(&path, manifest).unwrap();
        let said = self.kubectl(&format!("apply -f {}", path.display()));
        assert_eq!(said.code, 0, "{}\n{manifest}", said.output);
    }

    /// Starts the hub, declares Hosts with this spec besides their name, and starts their agents.
    pub fn join(&self, nodes: &[&str], spec: &str) {
        self.start_hub();
        for node in nodes {
            self.apply(&format!(
                "apiVersion: kiln.dev/v1alpha1\nkind: Host\nmetadata: {{name: {node}, namespace: default, labels: {{site: lab}}}}\nspec: {{hostname: {node}{spec}}}\n"
            ));
        }
        for node in nodes {
            let token = self.work.join(format!("{node}.token"));
            self.site().ok(&format!(
                "{KILN} token agent {node} --kubeconfig {}/hub/kubeconfig --output {}",
                self.work.display(),
                token.display()
            ));
            self.node(node).start_agent(&token, "");
        }
        for node in nodes {
            self.until(&format!("{node} publishes its network"), 60, || {
                let said =
                    self.kubectl(&format!("get nns {node} -o jsonpath='{{.status.currentState.interfaces[*].name}}'"));
                if said.output.contains("eth0") {
                    Ok(())
                } else {
                    Err(format!("{}\n{}", said.output, self.node(node).agent_log()))
                }
            });
        }
    }

    /// Asks again until the answer is as wished.
    pub fn until(&self, what: &str, seconds: u64, mut wished: impl FnMut() -> Result<(), String>) {
        let deadline = Instant::now() + Duration::from_secs(seconds);
        loop {
            match wished() {
                Ok(()) => return,
                Err(seen) if Instant::now() > deadline => {
                    let hub = fs::read_to_string(self.work.join("hub.log")).unwrap_or_default();
                    let tail: Vec<_> = hub.lines().rev().take(40).collect();
                    panic!("{what}: still {seen}\n--- hub\n{}", tail.into_iter().rev().collect::<Vec<_>>().join("\n"));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(200)),
            }
        }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        // The first process of the site's process namespace: everything ends with it.
        let _ = self.process.kill();
        let _ = self.process.wait();
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.work);
        }
    }
}

impl Place<'_> {
    fn wait_until_ready(&self) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !self.folder.join("ready").exists() {
            let log = || fs::read_to_string(self.folder.join("start.log")).unwrap_or_default();
            assert!(Instant::now() < deadline, "{} did not start\n{}", self.folder.display(), log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Runs a shell script there.
    pub fn run(&self, script: &str) -> Said {
        fs::write(self.folder.join("script"), script).unwrap();
        OpenOptions::new().write(true).open(self.folder.join("ask")).unwrap().write_all(b"go\n").unwrap();
        let mut output = String::new();
        File::open(self.folder.join("answer")).unwrap().read_to_string(&mut output).unwrap();
        let (output, code) = output.trim_end().rsplit_once("exit ").unwrap();
        Said { code: code.parse().unwrap(), output: output.to_owned() }
    }

    /// Runs a script that must succeed.
    pub fn ok(&self, script: &str) -> String {
        let said = self.run(script);
        assert_eq!(said.code, 0, "{}: {script}\n{}", self.folder.display(), said.output);
        said.output
    }

    /// The address the node has in the site.
    pub fn address(&self) -> String {
        fs::read_to_string(self.folder.join("address")).unwrap().trim().to_owned()
    }

    /// The same with the token it joined with.
    pub fn restart_agent(&self) {
        let name = self.folder.file_name().unwrap().to_string_lossy().into_owned();
        self.start_agent(&self.fleet.work.join(format!("{name}.token")), "");
    }

    /// Starts the agent in the background.
    pub fn start_agent(&self, token: &Path, more: &str) {
        let (folder, work) = (self.folder.display(), self.fleet.work.display());
        self.ok(&format!(
            "{more} {KILN} agent run --hub {HUB} --ca {work}/hub/ca.crt --token-file {} --state-dir /var/lib/kiln/agent \
            >> {folder}/agent.log 2>&1 & echo $! > {folder}/agent.pid",
            token.display()
        ));
    }

    /// kill -9.
    pub fn kill_agent(&self) {
        self.ok(&format!("kill -9 $(cat {}/agent.pid); sleep 0.1", self.folder.display()));
    }

    pub fn agent_log(&self) -> String {
        fs::read_to_string(self.folder.join("agent.log")).unwrap_or_default()
    }

    /// What must be the same before and after: links, addresses, routes and rules of both families, name servers, profiles and
    /// the bytes of their files. Not the metrics of routes, which NetworkManager picks anew at each activation, not what the
    /// kernel gives every link by itself (fe80::/64), and not the file in which NetworkManager notes what it sees of cni0: that
    /// follows the kernel, whoever does anything.
    pub fn snapshot(&self) -> String {
        self.ok(
            "ip -o link | sed 's/^[0-9]*: //; s/@[^:]*//; s/ qlen.*//; s/state [A-Z]* //' | awk '{print $1, $3, $4, $5, $8, $9}' | sort
            ip -o -4 addr | awk '{print $2, $4}' | sort
            ip -o -6 addr show scope global | awk '{print $2, $4}' | sort
            ip -4 route | sed 's/ linkdown//; s/ metric [0-9]*//' | sort
            ip -6 route | grep -v '^fe80::/64 \\|^multicast ' | sed 's/ linkdown//; s/ metric [0-9]*//' | sort
            ip -4 rule; ip -6 rule
            grep -v '^#' /etc/resolv.conf
            nmcli -t -f NAME,UUID,DEVICE connection show | grep -v ':lo$' | sort
            find /etc/NetworkManager/system-connections /run/NetworkManager/system-connections -type f -name '*.nmconnection' -printf '%m %p ' -exec sha256sum {} \\; | grep -v '/lo.nmconnection\\|/cni0.nmconnection' | sort",
        )
    }
}
