//! Whether everything fits: the area of the discovery image that holds its Ignition config, and user-data of clouds.
//!
//! The live ISO has 262,144 bytes for a compressed config; networks of all selected hosts go into it, whoever boots.
//! The estimate compresses what the networks become; what the service adds (agent, certificates, pull secret) is not
//! known here and comes on top.

use std::collections::HashMap;
use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;

use super::Rule;
use super::context::Context;
use super::words::{counted, listed};
use crate::diagnostic::{Code, Diagnostic, Severity};
use crate::source::Sourced;

pub(super) const RULES: &[Rule] = &[discovery_images, user_data];

/// Bytes of the embed area of a CoreOS live ISO.
const EMBED_AREA: usize = 262_144;
/// What the service needs for itself, at least.
const RESERVED: usize = 65_536;

fn discovery_images(context: &Context, findings: &mut Vec<Diagnostic>) {
    let mut known = HashMap::new();
    for (index, discovery) in context.world.discoveries.iter().enumerate() {
        let networks = context.selected_networks(index);
        let networks_size =
            *known.entry(context.selection(index)).or_insert_with(|| compressed_networks(context, networks));
        let own = compressed_texts(discovery.trust_bundle.iter().chain(&discovery.ignition_override));
        let size = networks_size + own;
        if size <= EMBED_AREA - RESERVED {
            continue;
        }
        let largest = if own > networks_size {
            discovery.trust_bundle.as_ref().or(discovery.ignition_override.as_ref()).map(|text| text.at)
        } else {
            discovery.network_selector.at
        };
        findings.push(
            Diagnostic::new(
                Code(700),
                largest.unwrap_or(discovery.meta.at),
                format!(
                    "the image of InfraEnv `{}` has 256 KiB for its compressed config, and needs about {} KiB for the \
                    networks of {} and {} KiB for its trust bundle and override",
                    discovery.meta.id.name,
                    networks_size.div_ceil(1024),
                    counted(networks.len(), "host"),
                    own.div_ceil(1024)
                ),
            )
            .severity(if size > EMBED_AREA { Severity::Error } else { Severity::Warning })
            .cause(
                "the live ISO has 262,144 bytes for its compressed Ignition config; the networks of all selected \
                hosts go into every image, and the agent, certificates and pull secret come on top",
            )
            .help(if own > networks_size {
                "keep only the authorities the hosts need in `spec.additionalTrustBundle`".to_owned()
            } else {
                let hosts = networks.len() * (EMBED_AREA - RESERVED) / size;
                format!("split the hosts over several InfraEnvs with labels of their own, about {hosts} hosts each")
            }),
        );
    }
}

/// What a cloud takes as user-data: platform and bytes.
const USER_DATA: &[(&str, usize)] = &[("AWS", 16_384), ("Azure", 65_536), ("OpenStack", 65_536), ("GCP", 262_144)];

fn user_data(context: &Context, findings: &mut Vec<Diagnostic>) {
    for pool in &context.world.pools {
        let Some(platform) = &pool.platform else { continue };
        let limit = USER_DATA.iter().find(|(name, _)| name.eq_ignore_ascii_case(platform));
        let view = context.pools.get(pool.meta.id.name.as_str());
        let rendered = view.and_then(|view| view.rendered.as_ref());
        let (Some((_, limit)), Some(rendered)) = (limit, rendered) else { continue };
        let size = rendered.config.root.to_json().to_string().len();
        if size <= *limit {
            continue;
        }
        findings.push(
            Diagnostic::new(
                Code(702),
                platform.at,
                format!(
                    "the config of pool `{}` has {size} bytes, and {platform} takes {limit} bytes of user-data ({})",
                    pool.meta.id.name,
                    listed(&rendered.members)
                ),
            )
            .cause(
                "what does not fit is refused or cut off by the cloud, and the machine then boots without its config; \
                hosted clusters hand out a pointer by themselves",
            )
            .help(format!(
                "nothing to do while the hosted cluster makes the machines; for machines made by hand, let `kiln \
                ignition pointer --source https://HUB/config/{}` write a pointer to the config",
                pool.meta.id.name
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
    let most: usize = documents().map(|document| document.files.len() * 200).sum();
    if most <= EMBED_AREA - RESERVED {
        return most / 4;
    }
    let mut encoder = GzEncoder::new(Counter(0), Compression::default());
    for (host, document) in documents().enumerate() {
        let macs: String = document.nics.iter().map(|nic| format!("{}={}\n", nic.mac, nic.name)).collect();
        let files = document.files.iter().map(|file| (file.name.as_str(), file.keyfile.render()));
        for (name, contents) in files.chain([("mac_interface.ini", macs)]) {
            let contents = STANDARD.encode(contents);
            let entry = format!(
                "{{\"path\":\"/etc/assisted/network/host{host}/{name}\",\"mode\":384,\"contents\":{{\"source\":\"data:text/plain;charset=utf-8;base64,{contents}\"}}}},"
            );
            // Writing to a counter cannot fail.
            let _ = encoder.write_all(entry.as_bytes());
        }
    }
    encoder.finish().map_or(0, |counter| counter.0)
}

fn compressed_texts<'t>(texts: impl Iterator<Item = &'t Sourced<String>>) -> usize {
    let mut encoder = GzEncoder::new(Counter(0), Compression::default());
    for text in texts.filter(|text| text.len() > 16_384) {
        let _ = encoder.write_all(text.as_bytes());
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
