//! What is stored of files and units of running nodes: `status.machine` of a Host, and the Secret with its assignment. What
//! cannot be read counts as not said.
//!
//! ```text
//! status.machine.revision  what the node shall have; written by the leader, as are upkeep and waits
//!               .upkeep    what a change takes the node out for: it asks for a slot, and holds it
//!               .waits     why the change does not begin
//!               .report    the node's last report and when it arrived
//!               .applied   the revision in force
//! ```

use kiln_core::machine::{MachineAssignment, MachineReport, Needs};
use kiln_core::rollout::Upkeep;
use kiln_core::timeline::Moment;
use serde_json::Value;

use crate::hub::boot_secrets::decode_text;
use crate::hub::network::records::{HOST_ANNOTATION, Stamp};
use crate::hub::timeline::parse_time;

/// The value of `kiln.dev/ignition` on the Secret with a host's assignment.
pub const MACHINE: &str = "machine";

/// `status.machine` of a Host.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MachineRecord {
    /// What the node shall have.
    pub revision: Option<String>,
    /// What it is taken out for.
    pub upkeep: Option<Upkeep>,
    /// Why it waits.
    pub waits: Option<String>,
    /// Its last report, and when it arrived.
    pub told: Option<(MachineReport, Moment)>,
    /// What is in force.
    pub applied: Option<String>,
}

impl MachineRecord {
    /// Of `status.machine`.
    pub fn read(machine: &Value) -> MachineRecord {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        MachineRecord {
            revision: text(&machine["revision"]),
            upkeep: machine["upkeep"].as_str().and_then(Upkeep::parse),
            waits: text(&machine["waits"]),
            told: read_report(&machine["report"]),
            applied: text(&machine["applied"]["revision"]),
        }
    }
}

/// The last report in `status.machine.report`.
pub fn read_report(report: &Value) -> Option<(MachineReport, Moment)> {
    let mut said = report.clone();
    let at = said.as_object_mut()?.remove("at");
    let at = at.as_ref().and_then(Value::as_str).and_then(parse_time).unwrap_or(Moment(0));
    Some((serde_json::from_value(said).ok()?, at))
}

/// What a change takes a node out for; nothing when nobody notices it.
pub fn upkeep_of(needs: Needs) -> Option<Upkeep> {
    match needs {
        Needs::Nothing => None,
        Needs::Service => Some(Upkeep::Service),
        Needs::Drain => Some(Upkeep::Drain),
        Needs::Reboot => Some(Upkeep::Reboot),
    }
}

/// The stored assignment of a host.
#[derive(Debug, Clone, PartialEq)]
pub struct MachineSecret {
    /// Which state.
    pub at: Stamp,
    /// Of the Host.
    pub host: String,
    /// JSON of the assignment.
    pub text: String,
    /// The same, read.
    pub assignment: MachineAssignment,
    /// The digest of the payload it is about.
    pub payload: String,
    /// The digest of the overlay it is about.
    pub overlay: String,
}

impl MachineSecret {
    /// None for what is no assignment.
    pub fn read(object: &Value) -> Option<MachineSecret> {
        let at = Stamp::of(object);
        let host = object["metadata"]["annotations"][HOST_ANNOTATION].as_str()?;
        let data = &object["data"];
        let text = decode_text(data, "assignment")?;
        Some(MachineSecret {
            // Nobody is given another one's files by a Secret in the wrong place.
            host: (host.split('/').next() == Some(&at.namespace)).then(|| host.to_owned())?,
            assignment: serde_json::from_str(&text).ok()?,
            text,
            payload: decode_text(data, "payload").unwrap_or_default(),
            overlay: decode_text(data, "overlay").unwrap_or_default(),
            at,
        })
    }
}
