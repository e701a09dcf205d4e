//! A generated fleet for benchmarks: clusters of a hundred hosts, each host with two NICs in a bond, a VLAN on it and a
//! static address, a management controller and its credentials; MachineConfigs and policies beside them.
//!
//! Everything in it is right: `kiln check` must find no error and no warning.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

const HOSTS_PER_CLUSTER: u32 = 100;
const MASTERS: u32 = 3;

/// Writes the fleet below `out`.
pub fn write(hosts: u32, out: &Path) -> Result<()> {
    let save = |path: &str, text: &str| {
        let path = out.join(path);
        fs::create_dir_all(path.parent().unwrap_or(out))?;
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    save("machine-configs.yaml", &machine_configs())?;
    save("image-set.yaml", IMAGE_SET)?;
    for first in (0..hosts).step_by(HOSTS_PER_CLUSTER as usize) {
        let cluster = Cluster { index: first / HOSTS_PER_CLUSTER, size: HOSTS_PER_CLUSTER.min(hosts - first) };
        let name = cluster.name();
        save(&format!("{name}/cluster.yaml"), &cluster.manifests())?;
        for host in 0..cluster.size {
            save(&format!("{name}/host-{host:03}.yaml"), &cluster.host(host))?;
        }
    }
    Ok(())
}

const IMAGE_SET: &str = "\
apiVersion: hive.openshift.io/v1
kind: ClusterImageSet
metadata:
  name: release-4.16
spec:
  releaseImage: registry.example.com/ocp/release:4.16.0-x86_64
---
apiVersion: metal3.io/v1alpha1
kind: Provisioning
metadata:
  name: provisioning-configuration
spec:
  watchAllNamespaces: true
";

fn machine_configs() -> String {
    let mut text = String::new();
    for (number, (path, content)) in [
        ("/etc/chrony.conf", "server%20ntp.example.com%20iburst%0A"),
        ("/etc/sysctl.d/90-net.conf", "net.ipv4.tcp_mtu_probing%3D1%0A"),
        ("/etc/crio/crio.conf.d/01-pids", "%5Bcrio.runtime%5D%0A"),
        ("/etc/motd.d/site", "edge%0A"),
    ]
    .into_iter()
    .enumerate()
    {
        let _ = write!(
            text,
            "\
---
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata:
  name: 9{number}-worker-edge
  labels:
    machineconfiguration.openshift.io/role: worker
spec:
  config:
    ignition:
      version: 3.2.0
    storage:
      files:
      - path: {path}
        mode: 420
        overwrite: true
        contents:
          source: data:,{content}
"
        );
    }
    text
}

struct Cluster {
    index: u32,
    size: u32,
}

impl Cluster {
    fn name(&self) -> String {
        format!("edge-{:04}", self.index)
    }

    /// The first three octets of the machine network, one /24 per cluster.
    fn subnet(&self) -> String {
        format!("10.{}.{}", self.index / 250, self.index % 250)
    }

    fn manifests(&self) -> String {
        let (name, subnet) = (self.name(), self.subnet());
        let masters = MASTERS.min(self.size);
        let workers = self.size - masters;
        format!(
            "\
apiVersion: v1
kind: Namespace
metadata:
  name: {name}
---
apiVersion: v1
kind: Secret
metadata:
  name: pull-secret
  namespace: {name}
type: kubernetes.io/dockerconfigjson
stringData:
  .dockerconfigjson: '{{\"auths\": {{\"registry.example.com\": {{\"auth\": \"dXNlcjpwYXNz\"}}}}}}'
---
apiVersion: hive.openshift.io/v1
kind: ClusterDeployment
metadata:
  name: {name}
  namespace: {name}
spec:
  clusterName: {name}
  baseDomain: example.com
  clusterInstallRef:
    group: extensions.hive.openshift.io
    kind: AgentClusterInstall
    name: {name}
    version: v1beta1
  platform:
    agentBareMetal:
      agentSelector:
        matchLabels:
          cluster: {name}
  pullSecretRef:
    name: pull-secret
---
apiVersion: extensions.hive.openshift.io/v1beta1
kind: AgentClusterInstall
metadata:
  name: {name}
  namespace: {name}
spec:
  clusterDeploymentRef:
    name: {name}
  imageSetRef:
    name: release-4.16
  apiVIPs: [{subnet}.2]
  ingressVIPs: [{subnet}.3]
  networking:
    networkType: OVNKubernetes
    clusterNetwork:
    - cidr: 10.128.0.0/14
      hostPrefix: 23
    serviceNetwork: [172.30.0.0/16]
    machineNetwork:
    - cidr: {subnet}.0/24
  provisionRequirements:
    controlPlaneAgents: {masters}
    workerAgents: {workers}
---
apiVersion: agent-install.openshift.io/v1beta1
kind: InfraEnv
metadata:
  name: {name}
  namespace: {name}
spec:
  clusterRef:
    name: {name}
    namespace: {name}
  pullSecretRef:
    name: pull-secret
  nmStateConfigLabelSelector:
    matchLabels:
      infraenv: {name}
---
apiVersion: nmstate.io/v1
kind: NodeNetworkConfigurationPolicy
metadata:
  name: storage-{name}
spec:
  nodeSelector:
    example.com/site: {name}
  maxUnavailable: 10%
  desiredState:
    interfaces:
    - name: bond0.300
      type: vlan
      state: up
      vlan:
        base-iface: bond0
        id: 300
      ipv4:
        enabled: true
        dhcp: true
"
        )
    }

    fn host(&self, host: u32) -> String {
        let (name, subnet) = (self.name(), self.subnet());
        let role = if host < MASTERS { "master" } else { "worker" };
        let address = host + 10;
        let mac = |nic: u32| format!("52:54:{:02x}:{:02x}:{:02x}:0{nic}", self.index / 256, self.index % 256, host);
        let (first, second) = (mac(1), mac(2));
        let bmc = format!("192.{}.{}.{address}", 168 + self.index / 250, self.index % 250);
        format!(
            "\
apiVersion: v1
kind: Secret
metadata:
  name: host-{host:03}-bmc
  namespace: {name}
type: Opaque
stringData:
  username: admin
  password: secret
---
apiVersion: agent-install.openshift.io/v1beta1
kind: NMStateConfig
metadata:
  name: host-{host:03}
  namespace: {name}
  labels:
    infraenv: {name}
spec:
  interfaces:
  - name: eno1
    macAddress: {first}
  - name: eno2
    macAddress: {second}
  config:
    interfaces:
    - name: bond0
      type: bond
      state: up
      mtu: 9000
      ipv4:
        enabled: false
      ipv6:
        enabled: false
      link-aggregation:
        mode: 802.3ad
        options:
          miimon: '100'
        port: [eno1, eno2]
    - name: bond0.110
      type: vlan
      state: up
      vlan:
        base-iface: bond0
        id: 110
      ipv4:
        enabled: true
        dhcp: false
        address:
        - ip: {subnet}.{address}
          prefix-length: 24
      ipv6:
        enabled: false
    dns-resolver:
      config:
        server: [{subnet}.1]
    routes:
      config:
      - destination: 0.0.0.0/0
        next-hop-address: {subnet}.1
        next-hop-interface: bond0.110
---
apiVersion: metal3.io/v1alpha1
kind: BareMetalHost
metadata:
  name: host-{host:03}
  namespace: {name}
  labels:
    infraenvs.agent-install.openshift.io: {name}
  annotations:
    inspect.metal3.io: disabled
    bmac.agent-install.openshift.io/hostname: host-{host:03}.{name}.example.com
    bmac.agent-install.openshift.io/role: {role}
    bmac.agent-install.openshift.io.node-label.example.com/site: {name}
spec:
  online: true
  automatedCleaningMode: disabled
  bootMACAddress: {first}
  bmc:
    address: redfish-virtualmedia+https://{bmc}/redfish/v1/Systems/1
    credentialsName: host-{host:03}-bmc
  rootDeviceHints:
    deviceName: /dev/sda
"
        )
    }
}
