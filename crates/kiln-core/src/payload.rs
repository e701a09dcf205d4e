//! Payloads: the Ignition config the hosts of a pool get, rendered once and named by what went into it.
//!
//! ```text
//! MachineConfigs, KubeletConfigs -> Part -+
//!                                         +-> render_pool -> whole (pool token), bare (hosts with an overlay)
//! upstream or plain Ignition bytes -------+
//! ```
//!
//! The pool's own config is laid over the base as Ignition merges. What a host brings itself (profiles, hostname, kubelet
//! drop-in) is left out of the *bare* payload and comes in the host's [`overlay`], where the profiles of both are merged
//! by meaning. Without such files both payloads are one.
//!
//! **Invariant:** same inputs, same [`Digest`], same bytes. The digest covers contents, also those of Secrets.
//! **Invariant:** a payload that Ignition would refuse is never given out.
//!
//! Not in the config: extensions, FIPS, kernel types and OS images of MachineConfigs. Ignition has no word for them; a payload
//! says in its notes that they are missing, and carries them beside it ([`System`]) for the agents of running nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use serde_json::{Value, json};

use crate::boot::folder::{Content, NetworkFile};
use crate::boot::teardown::RealRoot;
use crate::bootstrap_token::{PATHS, take_credentials};
use crate::diagnostic::registry::explanation;
use crate::diagnostic::{Code, Diagnostic, Severity};
use crate::document::Node;
use crate::ignition::convert::convert;
use crate::ignition::data_url::encode_base64;
use crate::ignition::merge::merge;
use crate::ignition::validate::validate;
use crate::ignition::{Config, Contents, SpecVersion, unpack_gzip};
use crate::machine::System;
use crate::machine_config::{self, pin_compression, unpin_compression};
use crate::source::SourceMap;
use crate::world::MachineConfig;
use digest::{Digest, Inputs};

pub mod digest;
pub mod kubelet;
pub mod overlay;

/// Where NetworkManager's profiles lie.
pub const PROFILES: &str = "/etc/NetworkManager/system-connections/";
/// Where the hostname lies.
pub const HOSTNAME: &str = "/etc/hostname";
/// The largest payload that is stored, packed: a Secret holds one megabyte.
pub const LARGEST_PACKED: usize = 900_000;

/// A KubeletConfig of a pool.
#[derive(Debug, Clone, PartialEq)]
pub struct KubeletConfig {
    /// Its name.
    pub name: String,
    /// `spec.kubeletConfig`.
    pub settings: Value,
}

/// What the manifests of a pool give.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// Of everything that went into it.
    pub id: Digest,
    /// An Ignition config.
    text: String,
    /// Why it cannot be used.
    pub errors: Vec<String>,
    /// What Ignition has no word for, for people.
    pub notes: Vec<String>,
    /// The same for agents.
    pub system: System,
    /// Whether hosts get a bootstrap user of their own.
    own_user: bool,
}

impl Part {
    /// The same for hosts that get a bootstrap user of their own each.
    pub fn with_own_user(self) -> Part {
        Part { id: own_user_id(self.id), own_user: true, ..self }
    }
}

/// The digest of a part for hosts with a bootstrap user of their own.
pub fn own_user_id(part: Digest) -> Digest {
    Inputs::of("kiln payload part 1, own user").with(part.to_string()).digest()
}

/// A base config as it was fetched or read.
#[derive(Debug, Clone, Copy)]
pub struct Base<'a> {
    /// What it is, for messages: `https://…/config/worker`, `Secret edge/base`.
    pub what: &'a str,
    /// Its bytes, perhaps packed.
    pub bytes: &'a [u8],
}

/// A rendered config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payload {
    /// Of everything that went into it.
    pub id: Digest,
    /// The Ignition config, in the oldest spec from 3.2 on that has all of it.
    pub text: String,
    /// That spec.
    pub version: SpecVersion,
}

/// What a pool's config becomes.
#[derive(Debug, Clone, PartialEq)]
pub struct RenderedPool {
    /// For whoever has no overlay.
    pub whole: Payload,
    /// For hosts whose overlay brings profiles, hostname and kubelet drop-in.
    pub bare: Payload,
    /// The profiles that are left out of `bare`.
    pub profiles: Vec<NetworkFile>,
    /// Paths below [`PROFILES`] that stay in `bare`: what Ignition fetches at boot cannot be merged here.
    pub kept: BTreeSet<String>,
    /// Bootstrap kubeconfigs by path, without the token: each host gets them with its own. They are left out of `bare`.
    pub kubeconfigs: BTreeMap<String, Value>,
    /// What Ignition has no word for, for people.
    pub notes: Vec<String>,
    /// The same for agents.
    pub system: System,
}

/// Why there is no payload.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    /// The base is no Ignition config.
    #[error("{what} is no Ignition config: {why}")]
    Base {
        /// Which one.
        what: String,
        /// The first finding.
        why: String,
    },
    /// The manifests of the pool cannot be rendered.
    #[error("the pool's manifests cannot be rendered: {0}")]
    Manifests(String),
    /// Ignition would refuse the result.
    #[error("Ignition would refuse the rendered config: {0}")]
    Refused(String),
    /// It is too large to be stored.
    #[error("the rendered config has {packed} bytes packed, more than the {LARGEST_PACKED} a Secret can hold")]
    TooLarge {
        /// How many.
        packed: usize,
    },
}

/// The digest of what the manifests of a pool give, without rendering them.
pub fn part_id(configs: &[&MachineConfig], kubelet: &[KubeletConfig]) -> Digest {
    let mut members: Vec<Digest> = configs.iter().map(|config| machine_config_id(config)).collect();
    members.extend(
        kubelet.iter().map(|config| {
            Inputs::of("kiln kubelet config").with(&config.name).with(config.settings.to_string()).digest()
        }),
    );
    // Which of them comes first is decided by their names.
    members.sort_unstable();
    members.iter().fold(Inputs::of("kiln payload part 1"), |all, member| all.with(member.to_string())).digest()
}

fn machine_config_id(config: &MachineConfig) -> Digest {
    let MachineConfig { meta, role, config, kernel_arguments, extensions, fips, kernel_type, os_image_url, within: _ } =
        config;
    let mut inputs = Inputs::of("kiln machine config")
        .with(&meta.id.name)
        .with_optional(role.as_ref().map(|role| &role.value))
        .with_optional(config.as_ref().map(|config| config.to_json().to_string()))
        .with_optional(fips.as_ref().map(|fips| fips.value.to_string()))
        .with_optional(kernel_type.as_ref().map(|kernel| &kernel.value))
        .with_optional(os_image_url.as_ref().map(|url| &url.value))
        .with(kernel_arguments.len().to_string());
    for text in kernel_arguments.iter().chain(extensions) {
        inputs = inputs.with(&text.value);
    }
    inputs.digest()
}

/// Renders what the manifests of a pool give.
pub fn render_part(pool: &str, configs: &[&MachineConfig], kubelet: &[KubeletConfig]) -> Part {
    let id = part_id(configs, kubelet);
    let mut config = json!({"ignition": {"version": machine_config::RENDERED_VERSION.to_string()}});
    let (mut errors, mut notes, mut system) = (Vec::new(), Vec::new(), System::default());
    if let Some(rendered) = machine_config::render(pool, configs) {
        errors = errors_of(&rendered.diagnostics);
        config = rendered.config.root.to_json();
        let mut arguments: Vec<&str> = Vec::new();
        for argument in &rendered.kernel_arguments {
            // Ignition takes each once.
            if !arguments.contains(&argument.value.as_str()) {
                arguments.push(&argument.value);
            }
        }
        if !arguments.is_empty() {
            config["kernelArguments"]["shouldExist"] = json!(arguments);
        }
        let extensions: Vec<&str> = rendered.extensions.iter().map(|extension| extension.value.as_str()).collect();
        if !extensions.is_empty() {
            notes.push(format!("extensions {}", extensions.join(", ")));
        }
        if rendered.fips {
            notes.push("FIPS mode".to_owned());
        }
        notes.extend(rendered.kernel_type.as_ref().map(|kernel| format!("kernel type {kernel}")));
        notes.extend(rendered.os_image_url.as_ref().map(|url| format!("OS image {url}")));
        system = System {
            os_image_url: rendered.os_image_url.map(|url| url.value),
            extensions: rendered.extensions.into_iter().map(|extension| extension.value).collect(),
            kernel_type: rendered.kernel_type.map(|kernel| kernel.value),
            fips: rendered.fips,
        };
    }
    for kubelet in kubelet {
        let entry = kubelet::render_kubelet_config(&kubelet.name, &kubelet.settings);
        let files = config["storage"]["files"].as_array().map_or(&[][..], Vec::as_slice);
        if files.iter().any(|file| file["path"] == entry["path"]) {
            continue;
        }
        match &mut config["storage"]["files"] {
            Value::Array(files) => files.push(entry),
            nothing => *nothing = json!([entry]),
        }
    }
    Part { id, text: config.to_string(), errors, notes, system, own_user: false }
}

/// The digest of a pool's payload, without rendering it.
pub fn payload_id(base: Option<&[u8]>, part: Digest) -> Digest {
    Inputs::of("kiln payload 1").with_optional(base).with(part.to_string()).digest()
}

/// Lays the pool's own config over its base.
pub fn render_pool(base: Option<Base<'_>>, part: &Part) -> Result<RenderedPool, PayloadError> {
    if let [first, rest @ ..] = &part.errors[..] {
        return Err(PayloadError::Manifests(and_more(first, rest.len())));
    }
    let own = parse(part.text.as_bytes()).map_err(PayloadError::Manifests)?;
    let mut config = match base {
        None => own,
        Some(Base { what, bytes }) => {
            let base = parse(bytes).map_err(|why| PayloadError::Base { what: what.to_owned(), why })?;
            let mut own = own;
            pin_compression(&mut own);
            let merged = merge(&base, &own);
            refuse_errors(&merged.diagnostics)?;
            merged.config
        }
    };
    unpin_compression(&mut config);
    refuse_errors(&validate(&config))?;
    let id = payload_id(base.map(|base| base.bytes), part.id);
    let version = oldest_version(&config);
    let config = convert(&config, version).config;
    let whole = Payload { id, text: config.root.to_json().to_string(), version };
    let kubeconfigs = if part.own_user { bootstrap_kubeconfigs(&config) } else { BTreeMap::new() };
    let mut notes = part.notes.clone();
    if part.own_user && kubeconfigs.is_empty() {
        notes
            .push(format!("bootstrap users of their own, without a kubeconfig with a token at {}", PATHS.join(" or ")));
    }
    let Stripped { config: bare, profiles, kept, anything } = strip(config, &kubeconfigs);
    let bare = match anything {
        false => whole.clone(),
        true => {
            let id = Inputs::of("kiln bare payload 1").with(id.to_string()).digest();
            Payload { id, text: bare.root.to_json().to_string(), version }
        }
    };
    let system = part.system.clone();
    Ok(RenderedPool { whole, bare, profiles, kept, kubeconfigs, notes, system })
}

/// Packs a payload as it is stored. The same text gives the same bytes.
pub fn pack(payload: &Payload) -> Result<Vec<u8>, PayloadError> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    // Writing to memory does not fail.
    let packed = encoder.write_all(payload.text.as_bytes()).and_then(|()| encoder.finish()).unwrap_or_default();
    if packed.len() > LARGEST_PACKED {
        return Err(PayloadError::TooLarge { packed: packed.len() });
    }
    Ok(packed)
}

/// An entry of `storage.files` with its contents in it.
pub(crate) fn file_entry(path: &str, mode: u32, contents: &[u8]) -> Value {
    json!({"path": path, "mode": mode, "overwrite": true, "contents": {"source": encode_base64(contents)}})
}

struct Stripped {
    config: Config,
    profiles: Vec<NetworkFile>,
    kept: BTreeSet<String>,
    anything: bool,
}

/// The bootstrap kubeconfigs of a config, without their tokens.
fn bootstrap_kubeconfigs(config: &Config) -> BTreeMap<String, Value> {
    let files = config.files().into_iter().filter(|file| PATHS.contains(&file.path.value.as_str()));
    let taken = files.filter_map(|file| match file.contents {
        Contents::Inline(bytes) if file.append.is_empty() => {
            Some((file.path.value, take_credentials(std::str::from_utf8(&bytes).ok()?)?))
        }
        _ => None,
    });
    taken.collect()
}

/// Takes out what overlays bring.
fn strip(mut config: Config, kubeconfigs: &BTreeMap<String, Value>) -> Stripped {
    let in_root = RealRoot::from_config(&config).system_connections;
    let (profiles, remote): (Vec<NetworkFile>, Vec<NetworkFile>) =
        in_root.into_iter().partition(|file| matches!(file.content, Content::Bytes(_) | Content::Profile(_)));
    let mut kept: BTreeSet<String> = remote.into_iter().map(|file| format!("{PROFILES}{}", file.name)).collect();
    let mut anything = false;
    // Files, links and directories share one space of paths. A link to a profile stays, like one that is fetched.
    for list in ["files", "links", "directories"] {
        let entries = config.root.get_mut("storage").and_then(|storage| storage.get_mut(list));
        let Some(Node { value: crate::document::Value::Sequence(entries), .. }) = entries else { continue };
        let before = entries.len();
        entries.retain(|entry| {
            let path = entry.get("path").and_then(Node::as_str).unwrap_or_default();
            let in_folder = path.strip_prefix(PROFILES).is_some_and(|name| !name.contains('/'));
            if in_folder && list != "files" {
                kept.insert(path.to_owned());
            }
            let profile = in_folder && !kept.contains(path);
            !(profile || path == HOSTNAME || path == kubelet::DROP_IN || kubeconfigs.contains_key(path))
        });
        anything |= entries.len() != before;
    }
    Stripped { config, profiles, kept, anything }
}

/// The oldest spec that loses nothing; HyperShift's clients read 3.2.
fn oldest_version(config: &Config) -> SpecVersion {
    let versions = SpecVersion::all().filter(|version| *version >= SpecVersion::V3_2 && *version < config.version);
    let loses =
        |version: SpecVersion| convert(config, version).lost.iter().any(|finding| finding.severity > Severity::Note);
    versions.into_iter().find(|version| !loses(*version)).unwrap_or(config.version.max(SpecVersion::V3_2))
}

/// Reads a config, perhaps packed; or says why it is none, without quoting it.
pub(crate) fn parse(bytes: &[u8]) -> Result<Config, String> {
    let bytes = unpack_gzip(bytes).map_err(|error| error.to_string())?;
    let text = std::str::from_utf8(&bytes).map_err(|_| "it is not UTF-8 text".to_owned())?;
    let mut sources = SourceMap::default();
    let file = sources.add("config", text);
    let (config, findings) = Config::parse(file, sources.file(file));
    config.ok_or_else(|| first_error(&findings).unwrap_or_else(|| "it cannot be read".to_owned()))
}

fn refuse_errors(findings: &[Diagnostic]) -> Result<(), PayloadError> {
    first_error(findings).map_or(Ok(()), |error| Err(PayloadError::Refused(error)))
}

/// The first error by what its code stands for, and how many more there are: a config may be a secret, and findings quote
/// what they speak of.
pub(crate) fn first_error(findings: &[Diagnostic]) -> Option<String> {
    let mut errors = findings.iter().filter(|finding| finding.severity == Severity::Error);
    let first = errors.next()?;
    let title = |code: Code| explanation(code).map_or("", |known| known.title);
    Some(and_more(&format!("{}: {}", first.code, title(first.code)), errors.count()))
}

fn errors_of(findings: &[Diagnostic]) -> Vec<String> {
    let errors = findings.iter().filter(|finding| finding.severity == Severity::Error);
    errors.map(|finding| format!("{}: {}", finding.code, finding.message)).collect()
}

fn and_more(first: &str, more: usize) -> String {
    match more {
        0 => first.to_owned(),
        1 => format!("{first} (and 1 more error)"),
        more => format!("{first} (and {more} more errors)"),
    }
}

#[cfg(test)]
mod tests;
