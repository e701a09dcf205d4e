//! Document 002's option C as a MachineConfig: profiles written at run time are gone after a reboot, the machine config's stay.
//!
//! NetworkManager reads and writes a folder that is its usual one with a layer in memory over it. What a MachineConfig puts into
//! the usual folder is below, what nmstate or nmcli write is above, and a boot begins without it. For clusters that Kiln does
//! not run; an agent of Kiln's keeps runtime-only policies apart without any of this.
//!
//! Not as in the document: the layer is below `/run`, which exists before NetworkManager starts and is nobody else's, and
//! NetworkManager does not start without the mount, because it would then write to the disk what was to be forgotten.

use serde_json::{Value, json};

use super::{RENDERED_VERSION, ROLE_LABEL};
use crate::ignition::data_url::encode_plain;

const USUAL: &str = "/etc/NetworkManager/system-connections";
const MERGED: &str = "/etc/NetworkManager/system-connections-merged";
const LAYER: &str = "/run/network-overlay";
/// The name systemd wants for a unit that mounts there.
const UNIT: &str = r"etc-NetworkManager-system\x2dconnections\x2dmerged.mount";

/// The MachineConfig for a pool.
pub fn overlay_machine_config(pool: &str) -> Value {
    let file = |path: &str, text: &str| json!({"path": path, "mode": 0o644, "overwrite": true, "contents": {"source": encode_plain(text.as_bytes())}});
    let settings = format!("[keyfile]\npath={MERGED}\n");
    let folders = format!(
        "d {USUAL} 0755 root root -\nd {MERGED} 0755 root root -\nd {LAYER} 0700 root root -\n\
        D {LAYER}/upper 0755 root root -\nD {LAYER}/work 0700 root root -\n"
    );
    let unit = format!(
        "[Unit]\nDescription=Profiles of NetworkManager, with a layer that a reboot forgets\n\
        DefaultDependencies=no\nAfter=systemd-tmpfiles-setup.service local-fs.target\nBefore=NetworkManager.service\n\
        Conflicts=umount.target\nBefore=umount.target\n\n\
        [Mount]\nWhat=overlay\nWhere={MERGED}\nType=overlay\n\
        Options=lowerdir={USUAL},upperdir={LAYER}/upper,workdir={LAYER}/work\n\n\
        [Install]\nRequiredBy=NetworkManager.service\n"
    );
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {"name": format!("99-{pool}-network-overlay"), "labels": {ROLE_LABEL: pool}},
        "spec": {"config": {
            "ignition": {"version": RENDERED_VERSION.to_string()},
            "storage": {"files": [
                file("/etc/NetworkManager/conf.d/99-network-overlay.conf", &settings),
                file("/etc/tmpfiles.d/network-overlay.conf", &folders),
            ]},
            "systemd": {"units": [{"name": UNIT, "enabled": true, "contents": unit}]},
        }},
    })
}
