//! InfraEnv, Agent and AgentClusterInstall in the words of assisted-service.
//!
//! Where a machine stands is judged by how far it is: a host whose Node is ready was installed, whoever saw that. Which stage
//! assisted-service would call the end differs: for it an installation goes on until the Node is ready.

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
        agent_requirements(host, object.spec["approved"].as_bool()),
        agent_validated(host),
        agent_installed(host),
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
    let wanted = wanted(view, &object.id);
    let progress = Progress::of(&hosts, wanted.iter().map(|many| u64::from(*many)).sum(), object.status);
    let completed = match progress {
        Progress::Installed | Progress::AddingHosts => {
            let message = "The installation has completed: Cluster is installed";
            Condition::new("Completed", Truth::True, "InstallationCompleted", message)
        }
        Progress::Installing => {
            let ready = hosts.iter().filter(|host| host.furthest() >= Stage::Ready).count();
            let message = format!("The installation is in progress: {ready} of {} hosts are ready", hosts.len());
            Condition::new("Completed", Truth::False, "InstallationInProgress", message)
        }
        Progress::NotBegun => {
            Condition::new("Completed", Truth::False, "InstallationNotStarted", "The installation has not yet started")
        }
    };
    let stopped = match progress {
        Progress::Installed | Progress::AddingHosts => Condition::new(
            "Stopped",
            Truth::True,
            "InstallationCompleted",
            "The installation has stopped because it completed successfully",
        ),
        Progress::Installing | Progress::NotBegun => {
            let message = "The installation is waiting to start or in progress";
            Condition::new("Stopped", Truth::False, "InstallationNotStopped", message)
        }
    };
    let all = [
        synced(error),
        validated,
        requirements(progress, wanted, &hosts),
        completed,
        Condition::new("Failed", Truth::False, "InstallationNotFailed", "The installation has not failed"),
        stopped,
    ];
    let (state, info) = progress.state();
    json!({"conditions": conditions(view, object, &all), "debugInfo": {"state": state, "stateInfo": info}})
}

/// How far the installation of a cluster is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// No host has its system.
    NotBegun,
    /// Some host has.
    Installing,
    /// Every host is ready, and there are as many as the cluster wants.
    Installed,
    /// It was installed, and a host is new or begins anew.
    AddingHosts,
}

impl Progress {
    fn of(hosts: &[&HostView], wanted: u64, status: &Value) -> Progress {
        let at = |stage| hosts.iter().filter(|host| host.furthest() >= stage).count();
        let ready = at(Stage::Ready);
        let mut said = status["conditions"].as_array().into_iter().flatten();
        // That a cluster was installed stays true when hosts are added to it, and as long as anything of it is left.
        let was_installed = said.any(|known| known["type"] == "Completed" && known["status"] == "True");
        match (ready, at(Stage::Installed)) {
            (1.., _) if ready == hosts.len() && ready as u64 >= wanted => Progress::Installed,
            (1.., _) if was_installed => Progress::AddingHosts,
            (_, 1..) => Progress::Installing,
            (_, 0) => Progress::NotBegun,
        }
    }

    /// assisted-service's name of the state a cluster is in, and its words for it. Those between, such as `ready` and
    /// `finalizing`, tell of work that nothing here does.
    const fn state(self) -> (&'static str, &'static str) {
        match self {
            Progress::NotBegun => ("insufficient", "Cluster is not ready for install"),
            Progress::Installing => ("installing", "Installation in progress"),
            Progress::Installed => ("installed", "Cluster is installed"),
            Progress::AddingHosts => ("adding-hosts", "cluster is adding hosts to existing OCP cluster"),
        }
    }
}

/// Masters, workers and arbiters the cluster wants.
fn wanted(view: &View, id: &ObjectId) -> [u32; 3] {
    let cluster = view.summary.clusters.iter().find(|cluster| cluster.id == *id);
    cluster.map_or([0; 3], |cluster| cluster.wanted)
}

fn requirements(progress: Progress, wanted: [u32; 3], hosts: &[&HostView]) -> Condition {
    let kind = "RequirementsMet";
    let met = || Condition::new(kind, Truth::True, "ClusterAlreadyInstalling", "The cluster requirements are met");
    match progress {
        Progress::Installed => {
            let message = "The cluster installation stopped";
            return Condition::new(kind, Truth::True, "ClusterInstallationStopped", message);
        }
        // They were met when it was installed; what is wrong with the new host is said by its own objects.
        Progress::AddingHosts => return met(),
        Progress::NotBegun | Progress::Installing => {}
    }
    let invalid = hosts.iter().filter(|host| super::error_text(host.findings.iter().copied()).is_some()).count();
    if invalid > 0 {
        let message = format!("The cluster currently has {invalid} agents with spec error");
        return Condition::new(kind, Truth::False, "UnsyncedAgents", message);
    }
    let [masters, workers, arbiters] = wanted;
    let reported = hosts.iter().filter(|host| host.furthest() >= Stage::Discovered).count();
    // assisted-service begins with no host before all have reported; Kiln's hosts begin each for itself.
    if (reported as u64) < u64::from(masters) + u64::from(workers) + u64::from(arbiters) {
        let message = format!(
            "The cluster currently requires exactly {masters} master agents, {arbiters} arbiter agents and {workers} worker \
             agents; {} hosts are declared and {reported} have reported",
            hosts.len()
        );
        return Condition::new(kind, Truth::False, "InsufficientAgents", message);
    }
    match progress {
        Progress::NotBegun => {
            let message = "The cluster is not ready to begin the installation";
            Condition::new(kind, Truth::False, "ClusterNotReady", message)
        }
        _ => met(),
    }
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

fn agent_requirements(host: Option<&HostView>, approved: Option<bool>) -> Condition {
    let kind = "RequirementsMet";
    let Some(host) = host else { return no_host(kind) };
    match host.furthest() {
        _ if is_installed(host) => {
            Condition::new(kind, Truth::True, "AgentInstallationStopped", "The agent installation stopped")
        }
        furthest if furthest >= Stage::Installed => {
            let message = "Installation already started and is in progress";
            Condition::new(kind, Truth::True, "AgentAlreadyInstalling", message)
        }
        Stage::Validated if approved != Some(true) => {
            Condition::new(kind, Truth::False, "AgentIsNotApproved", "The agent is not approved")
        }
        Stage::Validated => {
            Condition::new(kind, Truth::True, "AgentIsReady", "The agent is ready to begin the installation")
        }
        _ => Condition::new(kind, Truth::False, "AgentNotReady", "The agent is not ready to begin the installation"),
    }
}

/// Here a later stage proves nothing: a host may be ready that nobody compared with what was declared.
fn agent_validated(host: Option<&HostView>) -> Condition {
    let kind = "Validated";
    let Some(host) = host else { return no_host(kind) };
    match host.timeline.reached(Stage::Validated) {
        Some(_) => Condition::new(kind, Truth::True, "ValidationsPassing", "The agent's validations are passing"),
        None => {
            let message = "The agent's validations have not yet been calculated";
            Condition::new(kind, Truth::Unknown, "ValidationsUnknown", message)
        }
    }
}

fn agent_installed(host: Option<&HostView>) -> Condition {
    let kind = "Installed";
    let Some(host) = host else { return no_host(kind) };
    let furthest = host.furthest();
    if is_installed(host) {
        return Condition::new(kind, Truth::True, "InstallationCompleted", "The installation has completed");
    }
    match furthest > Stage::Installed {
        true => {
            let message = format!("The installation is in progress: the host has come to {furthest}");
            Condition::new(kind, Truth::False, "InstallationInProgress", message)
        }
        false => Condition::new(kind, Truth::False, "InstallationNotStarted", "The installation has not yet started"),
    }
}

/// Who says Installed of a machine is assisted-service, for which it is the end.
fn is_installed(host: &HostView) -> bool {
    host.furthest() == Stage::Ready || host.timeline.reached(Stage::Installed).is_some()
}

fn no_host(kind: &'static str) -> Condition {
    Condition::new(kind, Truth::Unknown, "NoHost", "no declared host has one of this machine's MAC addresses")
}

/// As Hive has conditions: no observed generation, a probe time that would change for ever is left out.
fn conditions(view: &View, object: &Object, all: &[Condition]) -> Value {
    render_conditions(&object.status["conditions"], all, view.now, &Value::Null)
}

#[cfg(test)]
mod tests {
    use kiln_core::timeline::Moment;
    use serde_json::json;

    use super::*;
    use crate::hub::controllers::cache::Cache;
    use crate::hub::controllers::kinds::find;
    use crate::hub::controllers::summary::{ClusterFacts, HostFacts, Summary};

    fn id(kind: &str, name: &str) -> ObjectId {
        ObjectId { kind: kind.into(), namespace: "n".into(), name: name.into() }
    }

    /// A world of hosts that have come to these stages and belong to one cluster, which wants one master and one worker.
    fn world(stages: &[Stage]) -> (Summary, Cache) {
        let (mut summary, mut cache) = (Summary::default(), Cache::default());
        summary.clusters =
            vec![ClusterFacts { id: id("AgentClusterInstall", "c"), deployment: None, wanted: [1, 1, 0] }];
        for (number, stage) in stages.iter().enumerate() {
            let name = format!("h{number}");
            let timeline = json!([{"stage": "Declared", "time": "2026-01-01T00:00:00Z"},
                {"stage": stage.name(), "time": "2026-01-01T00:00:01Z"}]);
            cache.put(
                find("Host").unwrap(),
                &json!({"kind": "Host", "metadata": {"name": name, "namespace": "n"}, "status": {"timeline": timeline}}),
            );
            summary.hosts.push(HostFacts {
                id: id("Host", &name),
                node: name,
                pool: "worker".into(),
                cluster: Some(id("AgentClusterInstall", "c")),
                deployment: None,
                macs: vec![format!("52:54:00:00:00:0{number}")],
                has_bmc: false,
                site: None,
                networks: Vec::new(),
            });
        }
        (summary, cache)
    }

    /// `status reason: message` of the condition of that type.
    fn said(status: &Value, kind: &str) -> String {
        let all = status["conditions"].as_array().unwrap();
        let condition = all.iter().find(|condition| condition["type"] == kind).unwrap();
        let text = |key: &str| condition[key].as_str().unwrap().to_owned();
        format!("{} {}: {}", text("status"), text("reason"), text("message"))
    }

    #[test]
    fn a_cluster_says_how_far_its_hosts_are() {
        use Stage::{Declared, Discovered, IgnitionFetched, Installed, Ready, Validated};
        let installed = json!({"conditions": [{"type": "Completed", "status": "True"}]});
        let too_few = |declared: u32, reported: u32| {
            format!(
                "False InsufficientAgents: The cluster currently requires exactly 1 master agents, 0 arbiter agents and 1 \
                 worker agents; {declared} hosts are declared and {reported} have reported"
            )
        };
        let not_ready = "False ClusterNotReady: The cluster is not ready to begin the installation";
        let begun = "True ClusterAlreadyInstalling: The cluster requirements are met";
        let over = "True ClusterInstallationStopped: The cluster installation stopped";
        let not_started = "False InstallationNotStarted: The installation has not yet started";
        let done = "True InstallationCompleted: The installation has completed: Cluster is installed";
        let half = "False InstallationInProgress: The installation is in progress: 1 of 2 hosts are ready";
        let none = "False InstallationInProgress: The installation is in progress: 0 of 2 hosts are ready";
        let alone = "False InstallationInProgress: The installation is in progress: 1 of 1 hosts are ready";
        for (stages, before, requirements, completed, state) in [
            (&[][..], Value::Null, too_few(0, 0).as_str(), not_started, "insufficient"),
            (&[Declared, Discovered], Value::Null, &too_few(2, 1), not_started, "insufficient"),
            (&[Validated, Discovered], Value::Null, not_ready, not_started, "insufficient"),
            (&[Installed, Discovered], Value::Null, begun, none, "installing"),
            (&[IgnitionFetched, Validated], Value::Null, begun, none, "installing"),
            (&[Ready, Discovered], Value::Null, begun, half, "installing"),
            // One host is there before the other reported: that is told apart.
            (&[Ready, Declared], Value::Null, &too_few(2, 1), half, "installing"),
            (&[Ready, Ready], Value::Null, over, done, "installed"),
            // All that is declared is ready, but the cluster wants more.
            (&[Ready], Value::Null, &too_few(1, 1), alone, "installing"),
            // A third host is added to a cluster that was installed, one of two begins anew, then the whole does.
            (&[Ready, Ready, Declared], installed.clone(), begun, done, "adding-hosts"),
            (&[Ready, Declared], installed.clone(), begun, done, "adding-hosts"),
            (&[Declared, Discovered], installed, &too_few(2, 1), not_started, "insufficient"),
        ] {
            let (summary, cache) = world(stages);
            let view = View::new(&summary, &cache, Moment(0));
            let item = cache.get("Host", "n", "h0").cloned();
            let item = item.unwrap_or_else(|| {
                let mut cache = Cache::default();
                cache
                    .put(find("Host").unwrap(), &json!({"kind": "Host", "metadata": {"name": "h0", "namespace": "n"}}));
                cache.get("Host", "n", "h0").unwrap().clone()
            });
            let object =
                Object { id: id("AgentClusterInstall", "c"), item: &item, spec: &Value::Null, status: &before };
            let status = cluster_install(&view, &object);
            assert_eq!(said(&status, "RequirementsMet"), requirements, "{stages:?}");
            assert_eq!(said(&status, "Completed"), completed, "{stages:?}");
            assert_eq!(status["debugInfo"]["state"], state, "{stages:?}");
            let stopped = match completed == done {
                true => "True InstallationCompleted: The installation has stopped because it completed successfully",
                false => "False InstallationNotStopped: The installation is waiting to start or in progress",
            };
            assert_eq!(said(&status, "Stopped"), stopped, "{stages:?}");
        }
    }

    #[test]
    fn an_agent_says_how_far_its_host_is() {
        let not_ready = "False AgentNotReady: The agent is not ready to begin the installation";
        let ready = "True AgentIsReady: The agent is ready to begin the installation";
        let unapproved = "False AgentIsNotApproved: The agent is not approved";
        let begun = "True AgentAlreadyInstalling: Installation already started and is in progress";
        let over = "True AgentInstallationStopped: The agent installation stopped";
        let not_started = "False InstallationNotStarted: The installation has not yet started";
        let registered =
            "False InstallationInProgress: The installation is in progress: the host has come to Registered";
        let done = "True InstallationCompleted: The installation has completed";
        let unknown = "Unknown ValidationsUnknown: The agent's validations have not yet been calculated";
        let passing = "True ValidationsPassing: The agent's validations are passing";
        for (stage, approved, requirements, validated, installed) in [
            (Stage::Discovered, true, not_ready, unknown, not_started),
            (Stage::Validated, true, ready, passing, not_started),
            (Stage::Validated, false, unapproved, passing, not_started),
            (Stage::Installed, true, over, unknown, done),
            (Stage::Registered, true, begun, unknown, registered),
            (Stage::Ready, true, over, unknown, done),
        ] {
            let (summary, cache) = world(&[stage]);
            let view = View::new(&summary, &cache, Moment(0));
            let status = json!({"inventory": {"interfaces": [{"macAddress": "52:54:00:00:00:00"}]}});
            let spec = json!({"approved": approved});
            let item = cache.get("Host", "n", "h0").unwrap();
            let status = agent(&view, &Object { id: id("Agent", "a"), item, spec: &spec, status: &status });
            assert_eq!(said(&status, "RequirementsMet"), requirements, "{stage}");
            assert_eq!(said(&status, "Validated"), validated, "{stage}");
            assert_eq!(said(&status, "Installed"), installed, "{stage}");
        }
    }
}
