//! Overlays: what one host adds to its pool's payload.
//!
//! The files are appended to `storage.files` of the *bare* payload, which has none of these paths; the host's own Ignition
//! config, if it has one, is merged last. A host of a pool with the stock network has no profiles here and gets the whole
//! payload, with the pool's.

use std::collections::BTreeMap;

use serde_json::Value;

use super::digest::{Digest, Inputs};
use super::{HOSTNAME, PROFILES, RenderedPool, file_entry, kubelet};
use crate::boot::folder::Folder;
use crate::boot::simulate::compose;
use crate::document::Node;
use crate::ignition::Config;
use crate::keyfile::ConnectionFile;
use crate::nmstate::bind_to_macs;
use crate::world::{FirstBootNetwork, NicMapping, Taint};

/// What is declared of one host.
#[derive(Debug)]
pub struct HostParts<'a> {
    /// The name of its Node.
    pub node: &'a str,
    /// The profiles its network becomes, with the names it uses.
    pub profiles: &'a [ConnectionFile],
    /// Which NICs these names stand for.
    pub nics: &'a [NicMapping],
    /// Labels of the pool and its own.
    pub labels: &'a BTreeMap<String, String>,
    /// Taints of the pool.
    pub taints: &'a [Taint],
    /// Its own Ignition config.
    pub ignition: Option<&'a Node>,
    /// Whether its profiles are in it.
    pub network: FirstBootNetwork,
}

/// What a host adds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overlay {
    /// Of everything in it.
    pub id: Digest,
    /// A JSON list of entries for `storage.files`.
    pub files: String,
    /// A whole config, merged last.
    pub config: Option<String>,
}

/// Composes the overlay of a host over its pool's payload. `payload` is the name the bare payload is stored under.
///
/// None when the host's own Ignition config cannot be read: `kiln check` says why, and what was stored before stays.
pub fn render_overlay(pool: &RenderedPool, payload: &str, host: &HostParts<'_>) -> Option<Overlay> {
    let config = match host.ignition {
        None => None,
        Some(node) => Some(Config::from_node(node.clone()).0?.root.to_json().to_string()),
    };
    let mut files = match host.network {
        FirstBootNetwork::Composed => profiles(pool, host),
        FirstBootNetwork::Stock => Vec::new(),
    };
    files.push(file_entry(HOSTNAME, 0o644, format!("{}\n", host.node).as_bytes()));
    files.extend(kubelet::render_drop_in(host.labels, host.taints));
    let files = Value::Array(files).to_string();
    let id = Inputs::of("kiln overlay 1").with(payload).with(&files).with_optional(config.as_ref()).digest();
    Some(Overlay { id, files, config })
}

/// The profiles of host and pool as one set.
fn profiles(pool: &RenderedPool, host: &HostParts<'_>) -> Vec<Value> {
    // First the names, which the pool's profiles use too; then the addresses, which are right on any machine.
    let merged = compose(host.profiles, &pool.profiles);
    let (profiles, _) = bind_to_macs(&merged.files, host.nics);
    // What NetworkManager does not load takes no part in that; it is the pool's file all the same.
    let unused = pool.profiles.iter().filter(|file| file.load(Folder::Etc).is_err());
    let unused = unused.filter(|file| profiles.iter().all(|profile| profile.name != file.name));
    let unused =
        unused.filter_map(|file| Some(file_entry(&format!("{PROFILES}{}", file.name), file.mode, &file.bytes()?)));
    let merged = profiles
        .iter()
        .map(|file| (format!("{PROFILES}{}", file.name), file))
        .filter(|(path, _)| !pool.kept.contains(path))
        .map(|(path, file)| file_entry(&path, 0o600, file.keyfile.render().as_bytes()));
    merged.chain(unused).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ignition::data_url;
    use crate::keyfile::Keyfile;
    use crate::payload::{render_part, render_pool};

    fn keyfile(text: &str) -> ConnectionFile {
        ConnectionFile::new("eth0.nmconnection", Keyfile::parse(text).unwrap())
    }

    fn pool() -> RenderedPool {
        let keyfile = data_url::encode_base64(
            b"[connection]\nid=eth0\ntype=ethernet\ninterface-name=eth0\n[ipv4]\nmethod=auto\n",
        );
        let config = serde_json::json!({"ignition": {"version": "3.2.0"}, "storage": {"files": [
            {"path": "/etc/NetworkManager/system-connections/eth0.nmconnection", "mode": 384, "contents": {"source": keyfile}},
            {"path": "/etc/NetworkManager/system-connections/far.nmconnection", "contents": {"source": "https://x.lab/far"}},
            {"path": "/etc/motd", "contents": {"source": "data:,hello"}}],
            "links": [{"path": "/etc/hostname", "target": "/etc/pool"}, {"path": "/etc/l", "target": "/etc/motd"}]}});
        let base = config.to_string();
        let base = crate::payload::Base { what: "base", bytes: base.as_bytes() };
        render_pool(Some(base), &render_part("p", &[], &[])).unwrap()
    }

    #[test]
    fn a_file_of_the_pool_that_networkmanager_does_not_load_is_kept_as_it_is() {
        let dummy = "[connection]\nid=dummy0\ntype=dummy\ninterface-name=dummy0\n";
        let path = "/etc/NetworkManager/system-connections/dummy0.nmconnection";
        let file = serde_json::json!({"path": path, "mode": 0o644, "contents": {"source": data_url::encode_base64(dummy.as_bytes())}});
        let base = serde_json::json!({"ignition": {"version": "3.2.0"}, "storage": {"files": [file]}}).to_string();
        let base = crate::payload::Base { what: "base", bytes: base.as_bytes() };
        let pool = render_pool(Some(base), &render_part("p", &[], &[])).unwrap();
        assert!(!pool.bare.text.contains(path));
        let (labels, network) = (BTreeMap::new(), FirstBootNetwork::Composed);
        let host = [keyfile("[connection]\nid=eth0\ntype=ethernet\ninterface-name=eth0\n")];
        let parts =
            HostParts { node: "w0", profiles: &host, nics: &[], labels: &labels, taints: &[], ignition: None, network };
        let overlay: Value = serde_json::from_str(&render_overlay(&pool, "p-1", &parts).unwrap().files).unwrap();
        let kept = overlay.as_array().unwrap().iter().find(|file| file["path"] == path).unwrap();
        assert_eq!(kept["mode"], 0o644);
        assert_eq!(data_url::decode(kept["contents"]["source"].as_str().unwrap()).unwrap(), dummy.as_bytes());
    }

    #[test]
    fn no_path_is_both_in_the_bare_payload_and_in_the_overlay() {
        let pool = pool();
        assert_ne!(pool.whole.id, pool.bare.id);
        let host = [keyfile(
            "[connection]\nid=eth0\ntype=ethernet\ninterface-name=eth0\n[ipv4]\nmethod=manual\naddress1=10.0.0.5/24\n",
        )];
        let (labels, taints) = ([("zone".to_owned(), "a".to_owned())].into(), []);
        let network = FirstBootNetwork::Composed;
        let parts = HostParts {
            node: "w0.lab",
            profiles: &host,
            nics: &[],
            labels: &labels,
            taints: &taints,
            ignition: None,
            network,
        };
        let overlay = render_overlay(&pool, "payload-p-1", &parts).unwrap();
        let stock = HostParts { network: FirstBootNetwork::Stock, ..parts };
        let stock = render_overlay(&pool, "payload-p-1", &stock).unwrap();
        assert!(
            stock.files.contains("/etc/hostname") && !stock.files.contains("system-connections"),
            "{}",
            stock.files
        );
        assert_ne!(stock.id, overlay.id);
        let paths = |value: &Value| -> Vec<String> {
            value.as_array().unwrap().iter().map(|file| file["path"].as_str().unwrap().to_owned()).collect()
        };
        let bare: Value = serde_json::from_str(&pool.bare.text).unwrap();
        assert_eq!(
            paths(&bare["storage"]["files"]),
            ["/etc/NetworkManager/system-connections/far.nmconnection", "/etc/motd"]
        );
        assert_eq!(paths(&bare["storage"]["links"]), ["/etc/l"]);
        let own: Value = serde_json::from_str(&overlay.files).unwrap();
        assert_eq!(
            paths(&own),
            ["/etc/NetworkManager/system-connections/eth0.nmconnection", "/etc/hostname", kubelet::DROP_IN]
        );
        assert_eq!((own[0]["mode"].as_i64(), own[1]["mode"].as_i64()), (Some(384), Some(420)));
        let profile = data_url::decode(own[0]["contents"]["source"].as_str().unwrap()).unwrap();
        assert!(String::from_utf8(profile).unwrap().contains("10.0.0.5/24"), "the host is right");
        assert_eq!(data_url::decode(own[1]["contents"]["source"].as_str().unwrap()).unwrap(), b"w0.lab\n");
    }

    #[test]
    fn an_overlay_is_called_after_everything_in_it() {
        let pool = pool();
        let (labels, taints) = (BTreeMap::new(), []);
        let id = |payload: &str, node: &str| {
            let network = FirstBootNetwork::Composed;
            let parts =
                HostParts { node, profiles: &[], nics: &[], labels: &labels, taints: &taints, ignition: None, network };
            render_overlay(&pool, payload, &parts).unwrap().id
        };
        assert_eq!(id("p-1", "a"), id("p-1", "a"));
        assert_ne!(id("p-1", "a"), id("p-2", "a"));
        assert_ne!(id("p-1", "a"), id("p-1", "b"));
    }
}
