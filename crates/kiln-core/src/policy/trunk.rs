//! kubernetes-nmstate's default for ports of Linux bridges: a trunk of the VLANs 2 to 4094.
//!
//! It is kept, because policies written for kubernetes-nmstate rely on it: without it the bridge does not filter VLANs, and
//! the tags that virtual machines ask for on such a bridge do not work. Unlike there it is no secret: the ports in the composed
//! document say it, and the enactment with them. A port that says `vlan: {}` has none.

use serde_json::{Value, json};

/// Gives ports of Linux bridges that say nothing about VLANs the trunk.
pub fn add_trunks(document: &mut Value) {
    let interfaces = document.get_mut("interfaces").and_then(Value::as_array_mut);
    for interface in interfaces.into_iter().flatten().filter(|interface| interface["type"] == "linux-bridge") {
        for key in ["port", "ports"] {
            let ports =
                interface.get_mut("bridge").and_then(|bridge| bridge.get_mut(key)).and_then(Value::as_array_mut);
            for port in ports.into_iter().flatten().filter_map(Value::as_object_mut) {
                if !port.contains_key("vlan") {
                    port.insert(
                        "vlan".to_owned(),
                        json!({"mode": "trunk", "trunk-tags": [{"id-range": {"min": 2, "max": 4094}}]}),
                    );
                }
            }
        }
    }
}
