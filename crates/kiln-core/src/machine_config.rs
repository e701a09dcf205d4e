//! MachineConfigs: which ones a pool takes, and the one config they become.
//!
//! [`render`] follows the machine-config-operator rule by rule: MachineConfigs of role `worker` first, everything else
//! after them, each group by name, later ones win; the Ignition parts are merged as Ignition merges; kernel arguments and
//! extensions are concatenated without removing doubles; what the operator would answer with `RenderDegraded` is an
//! error here. Rendering is done once per pool, not once per host.
//!
//! Not here: the operator's own templates (kubelet, CRI-O, certificates). They are part of every rendered config on a
//! cluster and cannot be known from manifests, so the result is what the user's MachineConfigs contribute.
//! What surprises: a custom pool also takes the worker's MachineConfigs, and its own win whatever their names; files
//! overwrite by default, unlike in Ignition.

use crate::diagnostic::{Code, Diagnostic, Severity};
use crate::document::{Node, Value};
use crate::ignition::convert::convert;
use crate::ignition::merge::{Merged, merge};
use crate::ignition::{Config, SpecVersion};
use crate::source::{Location, Sourced};
use crate::world::{MachineConfig, Pool, PoolOrigin};

mod overlay;
mod rules;

pub use overlay::overlay_machine_config;

/// The spec version the operator renders.
pub const RENDERED_VERSION: SpecVersion = SpecVersion::V3_5;

/// The label that says which pool a MachineConfig is for.
pub const ROLE_LABEL: &str = "machineconfiguration.openshift.io/role";

/// What the MachineConfigs of a pool become.
#[derive(Debug, Clone)]
pub struct Rendered {
    /// Names of the MachineConfigs, in the order they were laid over each other.
    pub members: Vec<String>,
    /// The Ignition config.
    pub config: Config,
    /// Kernel arguments, each with the place it was written at.
    pub kernel_arguments: Vec<Sourced<String>>,
    /// RHCOS extensions.
    pub extensions: Vec<Sourced<String>>,
    /// Whether any of them asks for FIPS.
    pub fips: bool,
    /// The last kernel that is not the default; none means the default.
    pub kernel_type: Option<Sourced<String>>,
    /// The last OS image; none means the one of the release.
    pub os_image_url: Option<Sourced<String>>,
    /// What the operator would refuse, and what will surprise.
    pub diagnostics: Vec<Diagnostic>,
}

impl Rendered {
    /// Whether the operator would render the pool at all.
    pub fn is_refused(&self) -> bool {
        self.diagnostics.iter().any(|finding| finding.severity == Severity::Error)
    }
}

/// The MachineConfigs a declared pool takes, in the order given: what its ConfigMaps bring and what its selector chooses.
/// Without either, those of its role. A NodePool has its ConfigMaps alone.
pub fn members<'w>(pool: &Pool, configs: &'w [MachineConfig]) -> Vec<&'w MachineConfig> {
    match pool.origin {
        PoolOrigin::NodePool => configs.iter().filter(|config| is_brought(pool, config)).collect(),
        _ if pool.config_maps.is_empty() && pool.config_selector.is_empty() => {
            members_of_role(&pool.meta.id.name, configs)
        }
        _ => configs.iter().filter(|config| is_brought(pool, config) || is_selected(pool, config)).collect(),
    }
}

/// Whether one of the pool's ConfigMaps brings it.
fn is_brought(pool: &Pool, config: &MachineConfig) -> bool {
    config.within.as_ref().is_some_and(|outer| {
        pool.config_maps.iter().any(|reference| {
            let own = &pool.meta.id.namespace;
            let namespace = if reference.namespace.is_empty() { own } else { &reference.namespace };
            reference.name == outer.name && *namespace == outer.namespace
        })
    })
}

/// Whether the pool's selector chooses it; one that says nothing chooses nothing here.
fn is_selected(pool: &Pool, config: &MachineConfig) -> bool {
    let label = |key: &str| config.meta.labels.get(key).map(|value| value.value.as_str());
    !pool.config_selector.is_empty() && pool.config_selector.matches(label)
}

/// The MachineConfigs a pool takes that is not declared: `worker`, `master` and `arbiter` have their own, every other pool
/// has the worker's too, as the documentation tells people to write it.
pub fn members_of_role<'w>(pool: &str, configs: &'w [MachineConfig]) -> Vec<&'w MachineConfig> {
    let inherits = !["worker", "master", "arbiter"].contains(&pool);
    let takes = |config: &&MachineConfig| {
        let role = config.role.as_ref().map(|role| role.value.as_str());
        role == Some(pool) || inherits && role == Some("worker")
    };
    configs.iter().filter(takes).collect()
}

/// Renders the MachineConfigs of a pool. None when there are none: such a pool has no config of its own.
pub fn render(pool: &str, configs: &[&MachineConfig]) -> Option<Rendered> {
    let ordered = in_merge_order(configs);
    let first = ordered.first()?;
    let mut diagnostics = Vec::new();
    for config in &ordered {
        rules::check(config, &mut diagnostics);
    }
    let mut config = empty_config(first.meta.at);
    for machine_config in &ordered {
        let Some(part) = read(machine_config, &mut diagnostics) else { continue };
        let Merged { config: merged, diagnostics: traps } = merge(&config, &part);
        config = merged;
        diagnostics.extend(traps);
    }
    unpin_compression(&mut config);
    default_overwrite(&mut config);
    let rendered = Rendered {
        members: ordered.iter().map(|config| config.meta.id.name.clone()).collect(),
        config,
        kernel_arguments: ordered.iter().flat_map(|config| config.kernel_arguments.clone()).collect(),
        extensions: ordered.iter().flat_map(|config| config.extensions.clone()).collect(),
        fips: ordered.iter().any(|config| config.fips.as_ref().is_some_and(|fips| fips.value)),
        kernel_type: ordered
            .iter()
            .rev()
            .find_map(|config| config.kernel_type.clone().filter(rules::is_special_kernel)),
        os_image_url: ordered.iter().rev().find_map(|it| it.os_image_url.clone().filter(|url| !url.is_empty())),
        diagnostics,
    };
    let more = rules::check_rendered(pool, &rendered);
    Some(Rendered { diagnostics: rendered.diagnostics.into_iter().chain(more).collect(), ..rendered })
}

/// Worker MachineConfigs first, then all others, each group by name.
fn in_merge_order<'w>(configs: &[&'w MachineConfig]) -> Vec<&'w MachineConfig> {
    let mut ordered = configs.to_vec();
    let is_worker = |config: &MachineConfig| config.role.as_ref().is_some_and(|role| role.value == "worker");
    ordered.sort_by(|a, b| is_worker(b).cmp(&is_worker(a)).then_with(|| a.meta.id.name.cmp(&b.meta.id.name)));
    ordered
}

/// The Ignition part of one MachineConfig in the version that is rendered.
fn read(machine_config: &MachineConfig, diagnostics: &mut Vec<Diagnostic>) -> Option<Config> {
    let node = machine_config.config.as_ref().filter(|node| !node.is_null())?;
    let (config, findings) = Config::from_node(node.clone());
    diagnostics.extend(findings.into_iter().filter(|finding| finding.severity == Severity::Error));
    let config = config?;
    let readable =
        config.version <= RENDERED_VERSION && !(config.version.is_v2() && config.version > SpecVersion::V2_2);
    if !readable {
        let at = config.root.path(&["ignition", "version"]).map_or(node.at, |version| version.at);
        let message = format!("`{}` is written in spec {}", machine_config.meta.id.name, config.version);
        diagnostics.push(
            Diagnostic::new(Code(480), at, message)
                .cause("the machine-config-operator reads 2.2 and 3.0 to 3.5 and marks the pool RenderDegraded")
                .help(format!("write `version: {RENDERED_VERSION}` or older")),
        );
        return None;
    }
    if config.version.is_v2() {
        rules::check_spec2_users(&config, diagnostics);
    }
    let mut converted = convert(&config, RENDERED_VERSION);
    diagnostics.extend(converted.lost.into_iter().filter(|finding| finding.severity > Severity::Note));
    pin_compression(&mut converted.config);
    Some(converted.config)
}

fn empty_config(at: Location) -> Config {
    let mut ignition = Node { at, value: Value::Mapping(Vec::new()) };
    ignition.set("version", Node::made(RENDERED_VERSION.to_string(), at));
    let mut root = Node { at, value: Value::Mapping(Vec::new()) };
    root.set("ignition", ignition);
    Config { root, version: RENDERED_VERSION }
}

/// Says of every file with contents how they are packed, so that no file inherits another's compression.
pub(crate) fn pin_compression(config: &mut Config) {
    for file in files_of(config) {
        if let Some(contents) = file.get_mut("contents")
            && let Some(at) = contents.get("source").map(|source| source.at)
            && contents.get("compression").is_none()
        {
            contents.set("compression", Node::made("", at));
        }
    }
}

pub(crate) fn unpin_compression(config: &mut Config) {
    for file in files_of(config) {
        if let Some(contents) = file.get_mut("contents")
            && contents.get("compression").and_then(Node::as_str) == Some("")
        {
            contents.take("compression");
        }
    }
}

/// The operator overwrites whatever is on the node, so a new node must not stop at a file the image ships.
fn default_overwrite(config: &mut Config) {
    for file in files_of(config) {
        if file.get("overwrite").is_none_or(Node::is_null) {
            file.set("overwrite", Node::made(true, file.at));
        }
    }
}

fn files_of(config: &mut Config) -> &mut [Node] {
    let files = config.root.get_mut("storage").and_then(|storage| storage.get_mut("files"));
    files.map(Node::items_mut).unwrap_or_default()
}

#[cfg(test)]
mod tests;
