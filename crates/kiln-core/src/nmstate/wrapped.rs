//! The network document inside of what people write: bare, in an NMStateConfig, in a policy.

use crate::document::Node;
use crate::net::{InterfaceName, MacAddress};
use crate::source::Sourced;
use crate::world::NicMapping;

/// A network document and what its wrapping says about it.
#[derive(Debug, Clone)]
pub struct NetworkDocument<'d> {
    /// The nmstate document.
    pub document: &'d Node,
    /// MAC addresses of the NICs it speaks of.
    pub nics: Vec<NicMapping>,
    /// What it was wrapped in.
    pub wrapping: Wrapping,
}

/// What a network document can be wrapped in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrapping {
    /// Nothing: nmstate's own sections on the top level.
    Bare,
    /// `spec.config` of an NMStateConfig: the whole network of one machine.
    HostNetwork,
    /// `spec.desiredState` of a NodeNetworkConfigurationPolicy: perhaps only a part of a node's network.
    Policy,
}

/// The network document of one YAML document; none for other kinds.
pub fn find_network(root: &Node) -> Option<NetworkDocument<'_>> {
    match root.get("kind").and_then(Node::as_str) {
        Some("NMStateConfig") => {
            let nics = root.path(&["spec", "interfaces"]).map(Node::items).unwrap_or_default();
            let document = root.path(&["spec", "config"])?;
            Some(NetworkDocument {
                document,
                nics: nics.iter().filter_map(nic).collect(),
                wrapping: Wrapping::HostNetwork,
            })
        }
        Some("NodeNetworkConfigurationPolicy") => {
            let document = root.path(&["spec", "desiredState"])?;
            Some(NetworkDocument { document, nics: Vec::new(), wrapping: Wrapping::Policy })
        }
        Some(_) => None,
        // A Kubernetes object without a kind is no network document either.
        None if root.get("apiVersion").is_some() || root.get("metadata").is_some() => None,
        None => Some(NetworkDocument { document: root, nics: Vec::new(), wrapping: Wrapping::Bare }),
    }
}

/// What cannot be read is left out here: the rules for NMStateConfigs report it.
fn nic(entry: &Node) -> Option<NicMapping> {
    let name = entry.get("name")?;
    let mac = entry.get("macAddress")?;
    Some(NicMapping {
        name: Sourced::new(name.as_str()?.parse::<InterfaceName>().ok()?, name.at),
        mac: Sourced::new(mac.as_str()?.parse::<MacAddress>().ok()?, mac.at),
    })
}
