//! `NodePool` (hypershift.openshift.io/v1beta1): nodes of a hosted cluster that share config.

use kiln_core::diagnostic::Diagnostic;
use kiln_core::document::Node;
use kiln_core::source::Sourced;
use kiln_core::world::{FirstBootNetwork, LabelSelector, Meta, Pool, PoolOrigin};
use serde::Deserialize;

use crate::carried::Carried;
use crate::intake::Intake;
use crate::manifest::{LocalReference, TaintEntry, annotated_ignition};
use crate::value;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NodePoolSpec {
    arch: Carried,
    auto_scaling: Carried,
    cluster_name: Option<Sourced<String>>,
    config: Vec<LocalReference>,
    management: Management,
    /// The name `replicas` had in v1alpha1.
    node_count: Carried,
    node_drain_timeout: Carried,
    node_labels: Option<Node>,
    node_volume_detach_timeout: Carried,
    os_image_stream: Carried,
    paused_until: Option<Sourced<String>>,
    platform: Platform,
    release: Release,
    replicas: Option<Sourced<u32>>,
    taints: Vec<TaintEntry>,
    tuning_config: Carried,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Management {
    auto_repair: Option<Sourced<bool>>,
    in_place: InPlace,
    replace: Carried,
    upgrade_type: Option<Sourced<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct InPlace {
    max_unavailable: Option<Node>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Platform {
    agent: Carried,
    aws: Carried,
    azure: Carried,
    gcp: Carried,
    ibmcloud: Carried,
    kubevirt: Carried,
    openstack: Carried,
    powervs: Carried,
    r#type: Option<Sourced<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Release {
    image: Option<Sourced<String>>,
}

pub(crate) fn read(root: &Node, meta: Meta, intake: &mut Intake) {
    let spec: NodePoolSpec = intake.read_spec(root);
    let pool = Pool { within: intake.within.clone(), ..spec.convert(meta, &mut intake.findings) };
    intake.world.pools.push(pool);
}

impl NodePoolSpec {
    fn convert(self, meta: Meta, findings: &mut Vec<Diagnostic>) -> Pool {
        let NodePoolSpec {
            arch: Carried,
            auto_scaling: Carried,
            cluster_name,
            config,
            management:
                Management { auto_repair, in_place: InPlace { max_unavailable }, replace: Carried, upgrade_type },
            node_count: Carried,
            node_drain_timeout: Carried,
            node_labels,
            node_volume_detach_timeout: Carried,
            os_image_stream: Carried,
            paused_until,
            platform,
            release: Release { image },
            replicas,
            taints,
            tuning_config: Carried,
        } = self;
        let Platform {
            agent: Carried,
            aws: Carried,
            azure: Carried,
            gcp: Carried,
            ibmcloud: Carried,
            kubevirt: Carried,
            openstack: Carried,
            powervs: Carried,
            r#type: platform,
        } = platform;
        Pool {
            ignition: annotated_ignition(&meta),
            first_boot_network: FirstBootNetwork::Composed,
            proxy: None,
            own_bootstrap_user: meta.annotations.get("kiln.dev/bootstrap").is_some_and(|word| word.value == "token"),
            meta,
            origin: PoolOrigin::NodePool,
            config_selector: LabelSelector::default(),
            node_selector: LabelSelector::default(),
            config_maps: config.into_iter().filter_map(LocalReference::convert).collect(),
            replicas,
            platform,
            upgrade_type,
            auto_repair,
            cluster_name,
            release_image: image,
            max_unavailable: value::int_or_string(max_unavailable),
            network: None,
            paused: paused_until.map(|until| until.value),
            node_labels: value::labels(node_labels.as_ref(), findings),
            node_taints: taints.into_iter().filter_map(TaintEntry::convert).collect(),
            within: None,
        }
    }
}
