//! Objects as the rollout remembers them: read once when a watch sees them, without a schema. What cannot be read counts
//! as not said.

use std::collections::BTreeMap;

use kiln_core::assignment::{Disruption, Phase, PolicyReference};
use kiln_core::policy::{NetworkPolicy, PolicyError};
use kiln_core::rollout::{Budget, Holder, Loss, Slot, Told, Upkeep};
use kiln_core::timeline::Moment;
use serde_json::{Value, json};

use crate::hub::boot_secrets::decode_text;
use crate::hub::controllers::cache::has_foreign_status;
use crate::hub::machines::records::MachineRecord;
use crate::hub::timeline::{parse_time, render_time};

/// The annotation of a Host that asks for a slot for something else: `reboot`, `drain` or `service`.
pub const UPKEEP_ANNOTATION: &str = "kiln.dev/upkeep";
/// The label of a slot; it says what for.
pub const SLOT_LABEL: &str = "kiln.dev/slot";
/// The annotation of a slot with `namespace/name` of its Host.
pub const HOST_ANNOTATION: &str = "kiln.dev/host";
/// The annotation of a slot with the policies of its revision.
pub const POLICIES_ANNOTATION: &str = "kiln.dev/policies";
/// The annotation of a slot that the node was told of.
pub const TAKEN_ANNOTATION: &str = "kiln.dev/taken";
/// The value of `kiln.dev/ignition` on the Secret with a host's assignment.
pub const ASSIGNMENT: &str = "network";

/// Which state of which object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stamp {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub revision: String,
}

impl Stamp {
    /// Of any object.
    pub fn of(object: &Value) -> Stamp {
        let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
        Stamp { namespace: text("namespace"), name: text("name"), uid: text("uid"), revision: text("resourceVersion") }
    }

    /// `namespace/name`.
    pub fn id(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// A Host that an agent speaks for.
#[derive(Debug, Clone, PartialEq)]
pub struct HostRecord {
    /// Which state.
    pub at: Stamp,
    /// Name of its Node.
    pub node: String,
    /// `namespace/pool`, or nothing.
    pub pool: String,
    /// Labels of the Host and those it declares for its Node.
    pub labels: BTreeMap<String, String>,
    /// `spec.network`.
    pub base: Value,
    /// Its last report.
    pub told: Option<Told>,
    /// What is in force, by the last report that said so.
    pub applied: Option<(String, Vec<PolicyReference>)>,
    /// A change it was lost with, and how often.
    pub failed: Option<(Loss, u32)>,
    /// Which layers own fields of its interfaces, as it is written: JSON.
    pub layers: String,
    /// What else wants it out: a person, or a change of its files and units.
    pub upkeep: Option<Upkeep>,
    /// Whether a person does.
    pub asked: bool,
    /// How far it is with its files and units.
    pub machine: MachineRecord,
}

impl HostRecord {
    /// None for a host without an agent, or one that goes.
    pub fn read(object: &Value) -> Option<HostRecord> {
        let (metadata, spec, network) = (&object["metadata"], &object["spec"], &object["status"]["network"]);
        if network["agent"].is_null() || metadata["deletionTimestamp"].is_string() {
            return None;
        }
        let at = Stamp::of(object);
        let mut labels = read_labels(&metadata["labels"]);
        labels.extend(read_labels(&spec["nodeLabels"]));
        // The kubelet of such a host will say so of its Node.
        let roles: &[&str] = match spec["role"].as_str() {
            Some("master") => &["master", "control-plane"],
            Some("worker") => &["worker"],
            Some("arbiter") => &["arbiter"],
            _ => &[],
        };
        labels.extend(roles.iter().map(|role| (format!("node-role.kubernetes.io/{role}"), String::new())));
        let pool = spec["pool"].as_str().or_else(|| object["status"]["pool"].as_str());
        let pool = pool.map(|pool| format!("{}/{pool}", at.namespace)).unwrap_or_default();
        let machine = MachineRecord::read(&object["status"]["machine"]);
        let applied = &network["applied"];
        Some(HostRecord {
            node: spec["hostname"].as_str().unwrap_or(&at.name).to_owned(),
            pool,
            labels,
            base: spec["network"].clone(),
            told: read_told(&network["report"]),
            applied: applied["revision"]
                .as_str()
                .map(|revision| (revision.to_owned(), read_policies(&applied["policies"]))),
            failed: network["failed"]["revision"].as_str().map(|revision| {
                let times = network["failed"]["times"].as_u64().and_then(|times| u32::try_from(times).ok());
                let policies = read_policies(&network["failed"]["policies"]);
                (Loss { revision: revision.to_owned(), policies }, times.unwrap_or(1))
            }),
            layers: network["layers"].to_string(),
            // What is under way keeps its slot: a change does not begin while a person wants the node.
            upkeep: machine.upkeep.or_else(|| Upkeep::parse(metadata["annotations"][UPKEEP_ANNOTATION].as_str()?)),
            asked: metadata["annotations"][UPKEEP_ANNOTATION].is_string(),
            machine,
            at,
        })
    }
}

/// The last report in `status.network.report`.
pub fn read_told(report: &Value) -> Option<Told> {
    let phase: Phase = serde_json::from_value(report["phase"].clone()).ok()?;
    let disruption: Disruption = serde_json::from_value(report["disruption"].clone()).unwrap_or_default();
    let at = report["at"].as_str().and_then(parse_time).unwrap_or(Moment(0));
    Some(Told { revision: report["revision"].as_str()?.to_owned(), phase, disruption, at })
}

fn read_policies(list: &Value) -> Vec<PolicyReference> {
    list.as_array().into_iter().flatten().filter_map(|item| serde_json::from_value(item.clone()).ok()).collect()
}

pub(super) fn read_labels(labels: &Value) -> BTreeMap<String, String> {
    let pairs = labels.as_object().into_iter().flatten();
    pairs.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

/// A policy.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyRecord {
    /// Which state.
    pub at: Stamp,
    /// `metadata.generation`.
    pub generation: i64,
    /// As it is written.
    pub spec: Value,
    /// As it is.
    pub status: Value,
    /// What it means, or why nobody can say.
    pub policy: Result<NetworkPolicy, PolicyError>,
}

impl PolicyRecord {
    /// None for one that goes, or one whose status another controller writes: it is driven by that.
    pub fn read(object: &Value) -> Option<PolicyRecord> {
        let metadata = &object["metadata"];
        if metadata["deletionTimestamp"].is_string() || has_foreign_status(metadata) {
            return None;
        }
        Some(PolicyRecord {
            at: Stamp::of(object),
            generation: metadata["generation"].as_i64().unwrap_or_default(),
            spec: object["spec"].clone(),
            status: object["status"].clone(),
            policy: NetworkPolicy::read(object),
        })
    }

    /// Whether this generation was taken back.
    pub fn is_withdrawn(&self) -> bool {
        self.status["kiln"]["withdrawn"].as_i64() == Some(self.generation)
    }
}

/// A slot.
#[derive(Debug, Clone, PartialEq)]
pub struct SlotRecord {
    /// Which state.
    pub at: Stamp,
    /// What it says.
    pub slot: Slot,
    /// When it was given.
    pub acquired: Moment,
}

impl SlotRecord {
    /// None for what is no slot.
    pub fn read(object: &Value) -> Option<SlotRecord> {
        let (metadata, spec) = (&object["metadata"], &object["spec"]);
        let annotations = &metadata["annotations"];
        let holder = match (metadata["labels"][SLOT_LABEL].as_str()?, spec["holderIdentity"].as_str()?) {
            ("network", revision) => {
                let policies = annotations[POLICIES_ANNOTATION].as_str().unwrap_or_default();
                let policies = read_policies(&serde_json::from_str(policies).unwrap_or_default());
                Holder::Change { revision: revision.to_owned(), policies }
            }
            (word, _) => Holder::Upkeep(Upkeep::parse(word)?),
        };
        let renewed = spec["renewTime"].as_str().and_then(parse_time).unwrap_or(Moment(0));
        let seconds = spec["leaseDurationSeconds"].as_i64().unwrap_or(0);
        Some(SlotRecord {
            at: Stamp::of(object),
            slot: Slot {
                node: annotations[HOST_ANNOTATION].as_str()?.to_owned(),
                holder,
                taken: annotations[TAKEN_ANNOTATION].is_string(),
                renewed,
                expires: Moment(renewed.0.saturating_add(seconds)),
            },
            acquired: spec["acquireTime"].as_str().and_then(parse_time).unwrap_or(renewed),
        })
    }
}

/// The Lease of a new slot, in the namespace of the hub.
pub fn render_slot(host: &str, holder: &Holder, now: Moment, seconds: i64) -> Value {
    let (label, identity, policies) = match holder {
        Holder::Change { revision, policies } => ("network", revision.as_str(), json!(policies).to_string()),
        Holder::Upkeep(upkeep) => (upkeep.name(), upkeep.name(), "[]".into()),
    };
    json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": slot_name(host), "labels": {SLOT_LABEL: label},
            "annotations": {HOST_ANNOTATION: host, POLICIES_ANNOTATION: policies}},
        "spec": {"holderIdentity": identity, "leaseDurationSeconds": seconds,
            "acquireTime": render_micro(now), "renewTime": render_micro(now)}})
}

/// A Lease wants six digits after the second.
pub fn render_micro(now: Moment) -> String {
    render_time(now).replace('Z', ".000000Z")
}

/// The name of a host's slot.
pub fn slot_name(host: &str) -> String {
    format!("slot-{}", host.replace('/', "."))
}

/// The stored assignment of a host: everything but the permit.
#[derive(Debug, Clone, PartialEq)]
pub struct AssignmentRecord {
    /// Which state.
    pub at: Stamp,
    /// Of the Host.
    pub host: String,
    /// JSON of the assignment with a permit to wait.
    pub text: String,
    /// When this revision was assigned.
    pub since: Moment,
}

impl AssignmentRecord {
    /// None for what is no assignment.
    pub fn read(object: &Value) -> Option<AssignmentRecord> {
        let at = Stamp::of(object);
        let host = object["metadata"]["annotations"][HOST_ANNOTATION].as_str()?;
        let data = &object["data"];
        Some(AssignmentRecord {
            // Nobody is given another one's network by a Secret in the wrong place.
            host: (host.split('/').next() == Some(&at.namespace)).then(|| host.to_owned())?,
            text: decode_text(data, "assignment")?,
            since: decode_text(data, "since").and_then(|since| parse_time(&since)).unwrap_or(Moment(0)),
            at,
        })
    }
}

/// What became of a policy on a node, as it is written.
#[derive(Debug, Clone, PartialEq)]
pub struct EnactmentRecord {
    /// Which state.
    pub at: Stamp,
    /// The label with the policy's name.
    pub policy: String,
    /// As it is.
    pub status: Value,
    /// Whether Kiln made it: others' are left alone.
    pub ours: bool,
}

impl EnactmentRecord {
    /// Of any enactment.
    pub fn read(object: &Value) -> EnactmentRecord {
        let labels = &object["metadata"]["labels"];
        EnactmentRecord {
            at: Stamp::of(object),
            policy: labels["nmstate.io/policy"].as_str().unwrap_or_default().to_owned(),
            status: object["status"].clone(),
            ours: labels["kiln.dev/from"] == "NodeNetworkConfigurationPolicy",
        }
    }
}

/// A pool, as far as its running nodes go.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PoolRecord {
    /// How many may be out; none when it says nothing.
    pub budget: Option<Budget>,
    /// `spec.network`.
    pub network: Value,
}

impl PoolRecord {
    /// Of any Pool.
    pub fn read(object: &Value) -> PoolRecord {
        let written = match &object["spec"]["maxUnavailable"] {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        PoolRecord { budget: Budget::of_pool(written.as_deref()), network: object["spec"]["network"].clone() }
    }
}

/// A Node of the cluster the hub runs on.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeRecord {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its condition Ready.
    pub ready: bool,
}

impl NodeRecord {
    /// Of any Node.
    pub fn read(object: &Value) -> NodeRecord {
        let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        let ready = conditions.into_iter().any(|item| item["type"] == "Ready" && item["status"] == "True");
        NodeRecord { labels: read_labels(&object["metadata"]["labels"]), ready }
    }
}
