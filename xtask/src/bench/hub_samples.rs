//! What is stored while the hub is measured: Machines of a kind both servers learn, and Kiln's own Hosts.

use serde_json::{Value, json};

use super::hub_client::Made;

/// One object in this many has the label that is asked for.
pub const PICKED: usize = 100;
const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const NAMESPACE: &str = "bench";

/// Which kind of object.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Sample {
    /// A kind that is defined for the measurement, the same on every server; nobody acts on it.
    Machine,
    /// `Host` of kiln.dev with a bond and a VLAN: judged by the rules when it is written, and acted on by the controllers.
    Host,
}

impl Sample {
    /// The collection.
    pub fn path(self) -> &'static str {
        match self {
            Sample::Machine => "/apis/bench.example.org/v1/namespaces/bench/machines",
            Sample::Host => "/apis/kiln.dev/v1alpha1/namespaces/bench/hosts",
        }
    }

    /// The definition, where the server does not bring it.
    pub fn definition(self) -> Option<Value> {
        (self == Sample::Machine).then(definition)
    }

    /// An object as people write it.
    pub fn object(self, number: usize) -> Value {
        match self {
            Sample::Machine => machine(number),
            Sample::Host => host(number),
        }
    }

    /// A request that makes it.
    pub fn create(self, number: usize) -> Made {
        let body = self.object(number).to_string().into_bytes();
        Made { method: "POST", path: self.path().into(), media: "application/json", body }
    }

    /// A merge patch by which `mark` appears in the object. Of a Host the status belongs to the controllers.
    pub fn change(self, number: usize, mark: &str) -> Made {
        let (subresource, body) = match self {
            Sample::Machine => ("/status", json!({"status": {"phase": mark, "conditions": conditions(number)}})),
            Sample::Host => ("", json!({"metadata": {"annotations": {"example.org/mark": mark}}})),
        };
        let path = format!("{}/{}{subresource}", self.path(), name(number));
        Made { method: "PATCH", path, media: MERGE, body: body.to_string().into_bytes() }
    }

    /// A server-side apply of a status, where nobody else writes it.
    pub fn apply(self, number: usize) -> Option<Made> {
        let body = json!({
            "apiVersion": "bench.example.org/v1", "kind": "Machine", "metadata": {"name": name(number)},
            "status": {"phase": format!("Phase{}", number + 1), "conditions": conditions(number + 1)},
        });
        let path = format!("{}/{}/status?fieldManager=bench&force=true", self.path(), name(number));
        let made = Made { method: "PATCH", path, media: APPLY, body: body.to_string().into_bytes() };
        (self == Sample::Machine).then_some(made)
    }
}

/// The name of an object.
pub fn name(number: usize) -> String {
    format!("machine-{number:05}")
}

/// What people write about a machine: about 1.3 KB.
fn machine(number: usize) -> Value {
    let mac =
        |card: usize| format!("52:54:{:02x}:{:02x}:{:02x}:{card:02x}", number >> 16, number >> 8 & 255, number & 255);
    let card =
        |card: usize| json!({"name": format!("eno{card}"), "macAddress": mac(card), "mtu": 9000, "speed": 25000});
    let picked = if number.is_multiple_of(PICKED) { "yes" } else { "no" };
    json!({
        "apiVersion": "bench.example.org/v1",
        "kind": "Machine",
        "metadata": {
            "name": name(number), "namespace": NAMESPACE,
            "labels": {"rack": format!("rack-{}", number / 40), "site": format!("site-{}", number % 17), "picked": picked},
            "annotations": {"example.org/serial": format!("SN{number:012}"), "example.org/owner": "the network team, floor 3"},
        },
        "spec": {
            "online": true,
            "bmc": {"address": format!("redfish-virtualmedia+https://10.{}.{}.{}/redfish/v1/Systems/1", number >> 16, number >> 8 & 255, number & 255),
                "credentialsName": format!("bmc-{number:05}"), "disableCertificateVerification": true},
            "bootMacAddress": mac(1),
            "interfaces": (1..=4).map(card).collect::<Vec<_>>(),
            "addresses": [format!("10.20.{}.{}/16", number >> 8 & 255, number & 255), format!("fd00::{number:x}/64")],
            "gateway": "10.20.0.1", "dns": ["10.20.0.2", "10.20.0.3"],
            "rootDeviceHints": {"deviceName": "/dev/disk/by-path/pci-0000:5e:00.0-nvme-1", "minSizeGigabytes": 120},
            "image": {"url": "https://images.example.org/coreos-418.94.202501221327-0.qcow2.gz",
                "sha256": format!("{:064x}", number * 7919)},
            "kernelArguments": ["console=ttyS0,115200n8", "rd.neednet=1", "nvme_core.io_timeout=4294967295"],
        },
    })
}

/// A machine with a bond and a VLAN: about 1.3 KB.
fn host(number: usize) -> Value {
    let mac =
        |card: u8| format!("52:54:{:02x}:{:02x}:{:02x}:{card:02x}", number >> 16, number >> 8 & 255, number & 255);
    let picked = if number.is_multiple_of(PICKED) { "yes" } else { "no" };
    let address = json!([{"ip": format!("10.20.{}.{}", number >> 8 & 255, number & 255), "prefix-length": 16}]);
    json!({
        "apiVersion": "kiln.dev/v1alpha1",
        "kind": "Host",
        "metadata": {
            "name": name(number), "namespace": NAMESPACE,
            "labels": {"rack": format!("rack-{}", number / 40), "site": format!("site-{}", number % 17), "picked": picked},
        },
        "spec": {
            "role": "worker",
            "macAddress": mac(1),
            "bmc": {"address": format!("redfish-virtualmedia+https://10.{}.{}.{}/redfish/v1/Systems/1", 64 + (number >> 16),
                number >> 8 & 255, number & 255), "credentialsName": "bmc"},
            "installDisk": {"deviceName": "/dev/disk/by-path/pci-0000:5e:00.0-nvme-1"},
            "nics": [{"name": "eno1", "macAddress": mac(1)}, {"name": "eno2", "macAddress": mac(2)}],
            "network": {
                "interfaces": [
                    {"name": "bond0", "type": "bond", "state": "up", "ipv4": {"enabled": false}, "ipv6": {"enabled": false},
                        "link-aggregation": {"mode": "802.3ad", "port": ["eno1", "eno2"]}},
                    {"name": "bond0.20", "type": "vlan", "state": "up", "vlan": {"base-iface": "bond0", "id": 20},
                        "ipv4": {"enabled": true, "dhcp": false, "address": address}, "ipv6": {"enabled": false}},
                ],
                "routes": {"config": [{"destination": "0.0.0.0/0", "next-hop-address": "10.20.0.1",
                    "next-hop-interface": "bond0.20"}]},
                "dns-resolver": {"config": {"server": ["10.20.0.2", "10.20.0.3"]}},
            },
        },
    })
}

fn conditions(number: usize) -> Value {
    let of = |kind: &str, status: &str| {
        json!({"type": kind, "status": status, "reason": "Measured", "message": format!("as number {number} says"),
            "lastTransitionTime": "2026-11-16T00:00:00Z"})
    };
    json!([of("Ready", "True"), of("Discovered", "True"), of("Installed", "False")])
}

fn definition() -> Value {
    let text = json!({"type": "string"});
    let integer = json!({"type": "integer"});
    let texts = json!({"type": "array", "items": text});
    let object = |properties: Value| json!({"type": "object", "properties": properties});
    let spec = json!({
        "online": {"type": "boolean"},
        "bmc": object(json!({"address": {"type": "string", "minLength": 1}, "credentialsName": text,
            "disableCertificateVerification": {"type": "boolean"}})),
        "bootMacAddress": {"type": "string", "pattern": "^[0-9a-f:]{17}$"},
        "interfaces": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "required": ["name"], "properties":
                {"name": text, "macAddress": text, "mtu": integer, "speed": integer, "up": {"type": "boolean", "default": true}}}},
        "addresses": texts, "gateway": text, "dns": texts,
        "rootDeviceHints": object(json!({"deviceName": text, "minSizeGigabytes": {"type": "integer", "minimum": 0}})),
        "image": object(json!({"url": text, "sha256": text})),
        "kernelArguments": texts,
        "automatedCleaningMode": {"type": "string", "enum": ["metadata", "disabled"], "default": "metadata"},
    });
    let condition = json!({"type": "object", "required": ["type", "status"], "properties": {"type": text, "status": text,
        "reason": text, "message": text, "lastTransitionTime": {"type": "string", "format": "date-time"}}});
    let status = json!({"phase": text, "conditions": {"type": "array", "items": condition,
        "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "machines.bench.example.org"},
        "spec": {
            "group": "bench.example.org", "scope": "Namespaced",
            "names": {"plural": "machines", "singular": "machine", "kind": "Machine", "listKind": "MachineList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": object(json!({"spec": object(spec), "status": object(status)}))}}],
        },
    })
}
