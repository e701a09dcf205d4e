//! Emptying the Node of a host before it is changed, and letting it take pods again: through the API of the cluster it joined.
//!
//! Which cluster that is, and how long emptying may take, is asked of the hub's API each time: few hosts go at a time. A host
//! that joined no cluster has no pods.

use std::time::Duration;

use kiln_core::timeline::Moment;
use kube::api::{Api, DynamicObject};
use kube::{Client, Error};
use serde_json::Value;

use crate::hub::approval::connect::Connect;
use crate::hub::controllers::kinds::{HOST, NODE};
use crate::hub::network::records::HostRecord;
use crate::hub::pools::drain::{drain, uncordon};
use crate::hub::pools::release::target;

/// How long a cluster may take for all of it.
const PATIENCE: Duration = Duration::from_secs(20);

/// What is done with a Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Deed {
    /// Its pods go elsewhere.
    Empty,
    /// It takes pods again.
    Reopen,
}

/// The way to Nodes.
pub(super) struct Nodes<'a> {
    pub(super) hub: &'a Client,
    pub(super) clusters: &'a dyn Connect,
    /// Whether the hub's own API has a Node of this name.
    pub(super) own: &'a (dyn Fn(&str) -> bool + Sync),
}

impl Nodes<'_> {
    /// Does it. Fails with the reason as long as it is not done.
    pub(super) async fn execute(&self, deed: Deed, host: &HostRecord, pool: &str, now: Moment) -> Result<(), String> {
        let of_hub = |error: Error| format!("the hub's API: {error}");
        let hosts: Api<DynamicObject> = Api::namespaced_with(self.hub.clone(), &host.at.namespace, &HOST.resource());
        let Some(object) = hosts.get_opt(&host.at.name).await.map_err(of_hub)? else { return Ok(()) };
        let object: Value = serde_json::to_value(object).unwrap_or_default();
        let found = target(self.hub, (&host.at.namespace, pool), &object).await.map_err(of_hub)?;
        let Some((target, limit)) = found else {
            return match deed == Deed::Empty && (self.own)(&host.node) {
                // Nobody reboots a node with pods on it because a name was not written down.
                true => Err(format!("nobody says how its cluster is reached: set spec.kubeconfig of pool {pool}")),
                false => Ok(()),
            };
        };
        let work = async {
            let client = self.clusters.connect(&target).await?.client;
            if deed == Deed::Reopen {
                return uncordon(&client, &host.node).await;
            }
            let nodes: Api<DynamicObject> = Api::all_with(client.clone(), &NODE.resource());
            match nodes.get_opt(&host.node).await.map_err(|error| error.to_string())? {
                Some(node) => drain(&client, &node, limit, now).await,
                None => Ok(()),
            }
        };
        let ended = tokio::time::timeout(PATIENCE, work).await;
        ended.unwrap_or_else(|_| Err("it does not answer".into())).map_err(|why| format!("cluster {target}: {why}"))
    }
}
