//! Whether everything fits: the area of the discovery image that holds its Ignition config.
//!
//! The live ISO has 262,144 bytes for a compressed config; networks of all selected hosts go into it, whoever boots.
//! The estimate compresses what the networks become; what the service adds (agent, certificates, pull secret) is not
//! known here and comes on top.

use std::io::Write;

use base64::Engine;
use flate2::Compression;
use flate2::write::GzEncoder;

use super::Rule;
use super::context::Context;
use super::words::counted;
use crate::diagnostic::{Code, Diagnostic, Severity};

pub(super) const RULES: &[Rule] = &[discovery_images];

/// Bytes of the embed area of a CoreOS live ISO.
const EMBED_AREA: usize = 262_144;
/// What the service needs for itself, at least.
const RESERVED: usize = 65_536;

fn discovery_images(context: &Context, findings: &mut Vec<Diagnostic>) {
    let mut known = std::collections::HashMap::new();
    for (index, discovery) in context.world.discoveries.iter().enumerate() {
        let networks = context.selected_networks(index);
        let own =
            discovery.trust_bundle.iter().chain(&discovery.ignition_override).map(|text| text.len()).sum::<usize>();
        let networks_size =
            *known.entry(context.selection(index)).or_insert_with(|| compressed_networks(context, networks));
        let size = networks_size + own;
        if size <= EMBED_AREA - RESERVED {
            continue;
        }
        let at = discovery.network_selector.at.unwrap_or(discovery.meta.at);
        let severity = if size > EMBED_AREA { Severity::Error } else { Severity::Warning };
        findings.push(
            Diagnostic::new(
                Code(700),
                at,
                format!(
                    "the image of InfraEnv `{}` needs about {} KiB for the networks of {} and its own texts, and has \
                    256 KiB for everything",
                    discovery.meta.id.name,
                    size / 1024,
                    counted(networks.len(), "host")
                ),
            )
            .severity(severity)
            .cause(
                "the live ISO has 262,144 bytes for its compressed Ignition config; the networks of all selected \
                hosts go into every image, and the agent, certificates and pull secret come on top",
            )
            .help(format!(
                "split the hosts over several InfraEnvs with labels of their own, about {} hosts each",
                (networks.len() * (EMBED_AREA - RESERVED) / size.max(1)).max(1)
            )),
        );
    }
}

/// Bytes the networks take in a compressed config.
fn compressed_networks(context: &Context, networks: &[usize]) -> usize {
    let documents = || {
        networks
            .iter()
            .filter_map(|network| context.document_of_network.get(network))
            .map(|document| &context.documents[*document])
    };
    // Most folders are far below: compressing them to learn it would cost more than all other rules.
    let plain: usize = documents().map(|document| document.files.len() * 600).sum();
    if plain <= EMBED_AREA - RESERVED {
        return plain / 4;
    }
    let mut encoder = GzEncoder::new(Counter(0), Compression::fast());
    for (host, document) in documents().enumerate() {
        for file in &document.files {
            let contents = base64::engine::general_purpose::STANDARD.encode(file.keyfile.render());
            // Writing to a counter cannot fail.
            let _ = write!(
                encoder,
                r#"{{"path":"/etc/assisted/network/host{host}/{}","mode":384,"contents":{{"source":"data:,{contents}"}}}},"#,
                file.name
            );
        }
    }
    encoder.finish().map_or(0, |counter| counter.0)
}

/// Counts what is written.
struct Counter(usize);

impl Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
