//! A hub with hosts that boot for the first time, each in a virtual machine.

#![allow(dead_code, clippy::unwrap_used, reason = "a test fails loudly; a test file may use a part of it")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use kiln::hub::beacon::{read_boot, read_declared};
use kiln::hub::timeline::{now, read_timeline};
use kiln_core::timeline::{Moment, Situation, Why, why};
use kiln_testimage::temp_dir::TempDir;
use kiln_testimage::{Disk, Layout, run};
use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::{Client, Config};
use serde_json::{Value, json};

use crate::vm::trunk::Trunk;
use crate::vm::{Bed, KERNEL_ARGUMENTS, Vm};

/// Document 000's, to the letter: with mode 420, which NetworkManager does not load, and its name.
const MACHINE_CONFIG: &str = "data:text/plain;charset=utf-8;base64,W2Nvbm5lY3Rpb25dCmlkPWR1bW15LWR1bW15MAp1dWlkPWRkMzZjN2ZjLTgyZWMtNDk4Ny1iYzVmLTQxMDc2MDJmZGM1Mgp0eXBlPWR1bW15CmF1dG9jb25uZWN0PWZhbHNlCmludGVyZmFjZS1uYW1lPWR1bW15MAp0aW1lc3RhbXA9MTY5MzkxMDY5MwoKW2R1bW15XQoKW2lwdjRdCm1ldGhvZD1kaXNhYmxlZAoKW2lwdjZdCmFkZHItZ2VuLW1vZGU9ZGVmYXVsdAptZXRob2Q9ZGlzYWJsZWQKCltwcm94eV0K";
const CONNECTIONS: &str = "/etc/NetworkManager/system-connections";
/// A boot takes 40 seconds on an idle machine; a busy one may take long.
pub const LONGEST_BOOT: Duration = Duration::from_secs(900);

/// One machine.
#[derive(Debug, Clone, Copy)]
pub struct Host {
    pub name: &'static str,
    pub address: &'static str,
    pub pool: &'static str,
    /// The addresses of eno2 and eno3.
    pub nics: [&'static str; 2],
    /// Whether its image has the kernel argument `coreos.force_persist_ip`.
    pub force_persist_ip: bool,
}

impl Host {
    /// Document 003's network in nmstate's words.
    fn network(&self) -> Value {
        json!({
            "interfaces": [
                {"name": "bond0", "type": "bond", "state": "up", "ipv4": {"enabled": false}, "ipv6": {"enabled": false},
                    "link-aggregation": {"mode": "802.3ad", "options": {"miimon": "100"}, "port": ["eno2", "eno3"]}},
                {"name": "bond0.110", "type": "vlan", "state": "up", "vlan": {"base-iface": "bond0", "id": 110},
                    "ipv4": {"enabled": true, "dhcp": false, "address": [{"ip": self.address, "prefix-length": 24}]},
                    "ipv6": {"enabled": false}}],
            "routes": {"config": [{"destination": "0.0.0.0/0", "next-hop-address": "10.0.11.1", "next-hop-interface": "bond0.110"}]},
        })
    }
}

/// Keyfiles by name: mode, and contents.
pub type Connections = BTreeMap<String, (u32, String)>;

/// What became of a machine.
pub struct Ending {
    pub host: Host,
    /// `ip -brief address` in the real root.
    pub addresses: String,
    /// The profiles on the disk after the boot.
    pub real_root: Connections,
    /// The profiles `kiln boot simulate` said there would be.
    pub predicted: Connections,
    /// What is on the boot partition after the boot, without what CoreOS keeps there.
    pub boot: Vec<String>,
    /// The reports the machine kept for lack of a network.
    pub kept_reports: Vec<String>,
    pub console: String,
}

/// A running hub and its objects.
pub struct Site {
    folder: TempDir,
    process: Child,
    port: u16,
}

impl Site {
    pub async fn start(name: &str, hosts: &[Host]) -> Site {
        let folder = TempDir::new(name);
        // The address machines use is in what they are given, so it must be known before.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let log = std::fs::File::create(folder.join("hub.log")).unwrap();
        let mut process = Command::new(env!("CARGO_BIN_EXE_kiln"))
            .args(["serve", "--listen", "127.0.0.1:0", "--node-listen", &format!("127.0.0.1:{port}")])
            .args(["--node-url", &format!("https://10.0.11.1:{port}"), "--tls-name", "127.0.0.1"])
            // The first name is in the kubeconfig, the second is what machines see.
            .args(["--tls-name", "10.0.11.1"])
            .arg("--data-dir")
            .arg(folder.join("hub"))
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(process.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("machines fetch https://") {
            line.clear();
            assert!(said.read_line(&mut line).unwrap() > 0, "kiln serve ended");
        }
        std::thread::spawn(move || std::io::copy(&mut said, &mut { log }));
        let site = Site { folder, process, port };
        site.declare(hosts).await;
        site
    }

    async fn declare(&self, hosts: &[Host]) {
        let client = self.client().await;
        create(&client, "v1", "Namespace", json!({"metadata": {"name": "site"}})).await;
        let machine_config = json!({"metadata": {"name": "50-network-dumy", "labels": {"machineconfiguration.openshift.io/role": "worker"}},
            "spec": {"config": {"ignition": {"version": "3.2.0"}, "storage": {"files": [
                {"path": format!("{CONNECTIONS}/dummy-dummy0.nmconnection"), "mode": 420, "contents": {"source": MACHINE_CONFIG, "verification": {}}}]}}}});
        create(&client, "machineconfiguration.openshift.io/v1", "MachineConfig", machine_config).await;
        for (pool, role, network) in
            [("plain", "quiet", "stock"), ("stock", "worker", "stock"), ("composed", "worker", "composed")]
        {
            let selector = json!({"matchLabels": {"machineconfiguration.openshift.io/role": role}});
            let pool = json!({"metadata": {"name": pool, "namespace": "site"},
                "spec": {"machineConfigSelector": selector, "firstBootNetwork": network}});
            create(&client, "kiln.dev/v1alpha1", "Pool", pool).await;
        }
        for host in hosts {
            let [eno2, eno3] = host.nics;
            let nics = json!([{"name": "eno2", "macAddress": eno2}, {"name": "eno3", "macAddress": eno3}]);
            let host = json!({"metadata": {"name": host.name, "namespace": "site"},
                "spec": {"pool": host.pool, "macAddress": eno2, "nics": nics, "network": host.network()}});
            create(&client, "kiln.dev/v1alpha1", "Host", host).await;
        }
    }

    /// Runs kiln: what it printed.
    pub fn kiln(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
        String::from_utf8(run(command.args(arguments))).unwrap()
    }

    /// The same, against the hub.
    pub fn ask(&self, arguments: &[&str]) -> String {
        let data = self.folder.join("hub").display().to_string();
        self.kiln(&[arguments, &["--data-dir", &data]].concat())
    }

    /// What the hub makes of a host that has told nothing more for this long, in seconds.
    pub async fn why_after(&self, host: Host, seconds: i64) -> Why {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("kiln.dev", "v1alpha1", "Host"));
        let api: Api<DynamicObject> = Api::namespaced_with(self.client().await, "site", &resource);
        let object = api.get(host.name).await.unwrap();
        let status = &object.data["status"];
        let situation = Situation {
            host: host.name.to_owned(),
            errors: Vec::new(),
            fix: None,
            has_bmc: false,
            driven: Vec::new(),
            boot: read_boot(status),
            declared: read_declared(&object.data["spec"]),
        };
        why(&read_timeline(status), &situation, Moment(now().0 + seconds))
    }

    async fn client(&self) -> Client {
        let kubeconfig = Kubeconfig::read_from(self.folder.join("hub/kubeconfig")).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        Client::try_from(config).unwrap()
    }

    /// A pointer with a new token.
    fn pointer(&self, host: Host, file: &Path) {
        let endpoint = format!("https://10.0.11.1:{}", self.port);
        let name = format!("site/{}", host.name);
        let file = file.display().to_string();
        self.ask(&["ignition", "pointer", "--host", &name, "--endpoint", &endpoint, "--out", &file]);
    }

    /// Boots a host for the first time and lets it end.
    pub fn first_boot(&self, bed: &Bed, host: Host) -> Ending {
        let machine = Machine::new(self, bed, host);
        machine.first_boot(bed)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

async fn create(client: &Client, api_version: &str, kind: &str, mut object: Value) {
    object["apiVersion"] = api_version.into();
    object["kind"] = kind.into();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let api: Api<DynamicObject> = match &object.metadata.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    api.create(&PostParams::default(), &object).await.unwrap();
}

/// A disk that was customised for a host, and what was predicted of it.
pub struct Machine {
    folder: TempDir,
    host: Host,
    layout: Layout,
    trunk: Trunk,
    kernel_arguments: String,
    predicted: Connections,
}

impl Machine {
    pub fn new(site: &Site, bed: &Bed, host: Host) -> Machine {
        let folder = TempDir::new(&format!("vm-{}", host.name));
        let path = |name: &str| folder.join(name).display().to_string();
        let root_mebibytes = std::fs::metadata(&bed.root).unwrap().len() >> 20;
        let layout =
            Disk { root: Some(bed.root.clone()), root_mebibytes, ..Disk::default() }.write(&folder.join("disk"));
        folder.write("network.yaml", host.network().to_string());
        site.pointer(host, &folder.join("first.ign"));
        let config = fetch(site, &folder);
        site.pointer(host, &folder.join("pointer.ign"));
        let (disk, network, pointer) = (path("disk"), path("network.yaml"), path("pointer.ign"));
        let mut customize =
            vec!["image", "customize", &disk, "-o", &disk, "--network", &network, "--ignition", &pointer];
        customize.extend(host.force_persist_ip.then_some("--force-persist-ip"));
        site.kiln(&customize);
        let boot = Partition { disk: folder.join("disk"), start: layout.boot.start };
        let kernel_arguments = kernel_arguments(&boot);
        boot.copy_out("/coreos-firstboot-network", folder.path());
        let predicted = predict(site, &kernel_arguments, &folder.join("coreos-firstboot-network"), &config);
        let trunk = Trunk::start(folder.path(), host.nics, site.port);
        Machine { folder, host, layout, trunk, kernel_arguments, predicted }
    }

    /// Boots with further kernel arguments.
    pub fn boot(&self, bed: &Bed, arguments: &str) -> Vm {
        // The last word about each counts.
        let arguments = format!("{} {KERNEL_ARGUMENTS} {arguments}", self.kernel_arguments);
        Vm::boot(bed, &self.folder.join("disk"), &arguments, &self.trunk, self.folder.path())
    }

    /// Boots and ends by itself.
    pub fn first_boot(&self, bed: &Bed) -> Ending {
        let vm = self.boot(bed, "");
        vm.wait_for_real_root(LONGEST_BOOT);
        // NetworkManager has tried what it has, whatever came of it.
        vm.ask("nm-online -s -q -t 120");
        let addresses = vm.ask("ip -brief address");
        let waiting = vm.ask("systemctl show --value --property=Before kiln-witness.service");
        assert_eq!(waiting.trim(), "shutdown.target", "nothing waits for the witness");
        // The block on the console says what became of the report, so the report is sent or kept when it is there.
        let told = vm.console.wait_for(&["==== kiln: real root ===="], Duration::from_secs(300));
        assert!(told, "the real root says nothing; the console:\n{}", vm.console.text());
        let console = vm.console.text();
        vm.end();
        self.ending(addresses, console)
    }

    /// What is on its disk.
    pub fn ending(&self, addresses: String, console: String) -> Ending {
        let disk = self.folder.join("disk");
        let after = self.folder.join("after");
        std::fs::create_dir_all(&after).unwrap();
        Partition { disk: disk.clone(), start: self.layout.root.start }.copy_out(CONNECTIONS, &after);
        Partition { disk, start: self.layout.boot.start }.copy_out("/", &after.join("boot"));
        let names = |folder: &Path| -> Vec<PathBuf> {
            std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
        };
        let boot = names(&after.join("boot")).iter().map(|path| file_name(path)).collect();
        let kept = names(&after.join("boot").join(kiln_core::beacon::KEPT_FOLDER));
        Ending {
            host: self.host,
            addresses,
            real_root: names(&after.join("system-connections")).iter().map(|path| read_connection(path)).collect(),
            predicted: self.predicted.clone(),
            boot,
            kept_reports: kept.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect(),
            console,
        }
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_owned()
}

fn read_connection(path: &Path) -> (String, (u32, String)) {
    let mode = std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    (file_name(path), (mode, std::fs::read_to_string(path).unwrap()))
}

/// The config the hub will serve this host: a token of its own is used up for that.
fn fetch(site: &Site, folder: &TempDir) -> PathBuf {
    let pointer: Value = serde_json::from_slice(&std::fs::read(folder.join("first.ign")).unwrap()).unwrap();
    let header = pointer["ignition"]["config"]["merge"][0]["httpHeaders"].as_array().unwrap().iter();
    let header = header.clone().find(|header| header["name"] == "Authorization").unwrap()["value"].as_str().unwrap();
    let url = format!("https://10.0.11.1:{}/ignition", site.port);
    let connect = format!("10.0.11.1:{}:127.0.0.1:{}", site.port, site.port);
    let accept = "Accept: application/vnd.coreos.ignition+json;version=3.3.0";
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--fail", "--retry", "60", "--retry-all-errors", "--retry-delay", "1", "--connect-to", &connect]);
    curl.args(["-H", &format!("Authorization: {header}"), "-H", accept, "--cacert"]);
    let config = run(curl.arg(site.folder.join("hub/ca.crt")).arg(url));
    folder.write("config.ign", config)
}

/// What the boot loader would give the kernel: the boot entry, on a first boot with what its stamp says.
fn kernel_arguments(boot: &Partition) -> String {
    let entry = boot.read(&format!("/{}", kiln_testimage::boot::ENTRY));
    let options = entry.lines().find_map(|line| line.strip_prefix("options ")).unwrap();
    let stamp = boot.read("/ignition.firstboot");
    let more = stamp.lines().find_map(|line| line.strip_prefix("set ignition_network_kcmdline=")).unwrap_or_default();
    options.replace("$ignition_firstboot", &format!("ignition.firstboot {}", more.trim_matches('"')))
}

/// What `kiln boot simulate` says the real root will have.
fn predict(site: &Site, kernel_arguments: &str, network: &Path, config: &Path) -> Connections {
    let (network, config) = (network.display().to_string(), config.display().to_string());
    let said = site.kiln(&[
        "boot",
        "simulate",
        "--kargs",
        kernel_arguments,
        "--firstboot-network",
        &network,
        "--ignition",
        &config,
        "-o",
        "json",
    ]);
    let said: Value = serde_json::from_str(&said).unwrap();
    let config: Value = serde_json::from_slice(&std::fs::read(config).unwrap()).unwrap();
    let profiles = said["phases"][2]["profiles"].as_array().unwrap();
    let read = |profile: &Value| {
        let name = profile["file"].as_str().unwrap().to_owned();
        let mode = u32::from_str_radix(profile["mode"].as_str().unwrap(), 8).unwrap();
        // Of a file that NetworkManager does not load only the name is told: it is as Ignition writes it.
        let text = profile["text"].as_str().map_or_else(|| written_by(&config, &name), str::to_owned);
        (name, (mode, text))
    };
    profiles.iter().map(read).collect()
}

/// The contents of a profile in an Ignition config.
fn written_by(config: &Value, name: &str) -> String {
    let path = format!("{CONNECTIONS}/{name}");
    let file = config["storage"]["files"].as_array().unwrap().iter().find(|file| file["path"] == path.as_str());
    let source = file.unwrap()["contents"]["source"].as_str().unwrap();
    String::from_utf8(kiln_core::ignition::data_url::decode(source).unwrap()).unwrap()
}

/// A file system inside a disk, read with debugfs.
struct Partition {
    disk: PathBuf,
    start: u64,
}

impl Partition {
    fn debugfs(&self, request: &str) -> Vec<u8> {
        let place = format!("{}?offset={}", self.disk.display(), self.start);
        run(Command::new("debugfs").args(["-R", request, &place]))
    }

    fn read(&self, path: &str) -> String {
        String::from_utf8(self.debugfs(&format!("cat {path}"))).unwrap()
    }

    /// Copies a folder, with its modes, to a folder that exists.
    fn copy_out(&self, path: &str, to: &Path) {
        std::fs::create_dir_all(to).unwrap();
        self.debugfs(&format!("rdump {path} {}", to.display()));
    }
}
