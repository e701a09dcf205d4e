//! InfraEnv, Agent and AgentClusterInstall in the words of assisted-service.

use kiln_core::diagnostic::ObjectId;
use kiln_core::timeline::Stage;
use serde_json::{Value, json};

use super::condition::{Condition, Truth, render_conditions};
use super::{HostView, Object, View};
use crate::hub::controllers::observe::agent_macs;

/// Whether the discovery image is there.
pub fn infra_env(view: &View, object: &Object) -> Value {
    let image = match view.error(&object.id) {
        Some(error) => Condition::new(
            "ImageCreated",
            Truth::False,
            "ImageCreationError",
            format!("Failed to create image: {error}"),
        ),
        None => Condition::not_driven("ImageCreated", "the image is composed on request (`kiln image compose`)"),
    };
    json!({"conditions": conditions(view, object, &[image])})
}

/// Where a machine that reported stands.
pub fn agent(view: &View, object: &Object) -> Value {
    let agent = json!({"status": object.status});
    let host = view.host_with(agent_macs(&agent));
    let bound = object.spec["clusterDeploymentName"]["name"].as_str().is_some_and(|name| !name.is_empty());
    let all = [
        synced(view.error(&object.id)),
        Condition::not_driven("Connected", "the agent's connection is watched by the discovery endpoint"),
        reached(
            host,
            "RequirementsMet",
            Stage::Validated,
            ("AgentIsReady", "The agent is ready to begin the installation"),
            "AgentNotReady",
            "The agent is not ready to begin the installation",
        ),
        reached(
            host,
            "Validated",
            Stage::Validated,
            ("ValidationsPassing", "The agent's validations are passing"),
            "ValidationsUnknown",
            "The agent's validations have not yet been calculated",
        ),
        reached(
            host,
            "Installed",
            Stage::Installed,
            ("InstallationCompleted", "The installation has completed"),
            "InstallationNotStarted",
            "The installation has not yet started",
        ),
        match bound {
            true => Condition::new("Bound", Truth::True, "Bound", "The agent is bound to a cluster deployment"),
            false => {
                Condition::new("Bound", Truth::False, "Unbound", "The agent is not bound to any cluster deployment")
            }
        },
    ];
    json!({"conditions": conditions(view, object, &all)})
}

/// Where the installation of a cluster stands.
pub fn cluster_install(view: &View, object: &Object) -> Value {
    let error = view.error(&object.id);
    let hosts = view.hosts_of(&object.id);
    let validated = match &error {
        Some(error) => {
            let message = format!("The cluster's validations are failing: {error}");
            Condition::new("Validated", Truth::False, "ValidationsFailing", message)
        }
        None => {
            let message = "The cluster's validations have not yet been calculated: no rule finds an error in what is declared, \
                           and the hosts have not been compared with it";
            Condition::new("Validated", Truth::Unknown, "ValidationsUnknown", message)
        }
    };
    let complete = !hosts.is_empty() && hosts.iter().all(|host| host.timeline.reached(Stage::Ready).is_some());
    let completed = match complete {
        true => Condition::new("Completed", Truth::True, "InstallationCompleted", "The installation has completed"),
        false => {
            Condition::new("Completed", Truth::False, "InstallationNotStarted", "The installation has not yet started")
        }
    };
    let stopped = match complete {
        true => Condition::new(
            "Stopped",
            Truth::True,
            "InstallationCompleted",
            "The installation has stopped because it completed successfully",
        ),
        false => {
            let message = "The installation is waiting to start or in progress";
            Condition::new("Stopped", Truth::False, "InstallationNotStopped", message)
        }
    };
    let all = [
        synced(error),
        validated,
        requirements(view, &object.id, &hosts),
        completed,
        Condition::new("Failed", Truth::False, "InstallationNotFailed", "The installation has not failed"),
        stopped,
    ];
    json!({"conditions": conditions(view, object, &all)})
}

fn requirements(view: &View, id: &ObjectId, hosts: &[&HostView]) -> Condition {
    let cluster = view.summary.clusters.iter().find(|cluster| cluster.id == *id);
    let [masters, workers, arbiters] = cluster.map_or([0; 3], |cluster| cluster.wanted);
    let invalid = hosts.iter().filter(|host| super::error_text(host.findings.iter().copied()).is_some()).count();
    if invalid > 0 {
        let message = format!("The cluster currently has {invalid} agents with spec error");
        return Condition::new("RequirementsMet", Truth::False, "UnsyncedAgents", message);
    }
    let wanted = masters + workers + arbiters;
    let reported = hosts.iter().filter(|host| host.timeline.reached(Stage::Discovered).is_some()).count();
    if (reported as u64) < u64::from(wanted) {
        let message = format!(
            "The cluster currently requires exactly {masters} master agents, {arbiters} arbiter agents and {workers} worker \
             agents; {} hosts are declared and {reported} have reported",
            hosts.len()
        );
        return Condition::new("RequirementsMet", Truth::False, "InsufficientAgents", message);
    }
    let message = "The cluster is not ready to begin the installation";
    Condition::new("RequirementsMet", Truth::False, "ClusterNotReady", message)
}

fn synced(error: Option<String>) -> Condition {
    match error {
        Some(error) => {
            let message = format!("The Spec could not be synced due to an input error: {error}");
            Condition::new("SpecSynced", Truth::False, "InputError", message)
        }
        None => Condition::new("SpecSynced", Truth::True, "SyncOK", "The Spec has been successfully applied"),
    }
}

fn reached(
    host: Option<&HostView>,
    kind: &'static str,
    stage: Stage,
    (reason, message): (&'static str, &str),
    other_reason: &'static str,
    other: &str,
) -> Condition {
    match host {
        None => {
            Condition::new(kind, Truth::Unknown, "NoHost", "no declared host has one of this machine's MAC addresses")
        }
        Some(host) if host.timeline.reached(stage).is_some() => Condition::new(kind, Truth::True, reason, message),
        Some(_) => Condition::new(kind, Truth::False, other_reason, other),
    }
}

/// As Hive has conditions: no observed generation, a probe time that would change for ever is left out.
fn conditions(view: &View, object: &Object, all: &[Condition]) -> Value {
    render_conditions(&object.status["conditions"], all, view.now, &Value::Null)
}
