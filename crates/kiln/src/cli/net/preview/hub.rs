//! Nodes, states and policies as a hub (or a cluster with kubernetes-nmstate) has them.

use anyhow::anyhow;
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::ApiResource;
use kube::{Client, Error};
use serde_json::{Value, json};

use super::Fleet;
use crate::cli::output::Failure;
use crate::hub::controllers::kinds::{HOST, POOL};

/// How many objects are asked for at once.
const PAGE: u32 = 500;

/// Adds everything the API has to what is known already.
pub async fn fetch(client: &Client, fleet: &mut Fleet) -> Result<(), Failure> {
    let kinds = [
        ("", "v1", "Node", "nodes"),
        ("nmstate.io", "v1", "NodeNetworkConfigurationPolicy", "nodenetworkconfigurationpolicies"),
        ("nmstate.io", "v1beta1", "NodeNetworkState", "nodenetworkstates"),
        ("nmstate.io", "v1beta1", "NodeNetworkConfigurationEnactment", "nodenetworkconfigurationenactments"),
    ];
    let kinds = kinds.map(|(group, version, kind, plural)| {
        let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
        ApiResource {
            group: group.into(),
            version: version.into(),
            api_version,
            kind: kind.into(),
            plural: plural.into(),
        }
    });
    let mut served = 0;
    for resource in kinds.iter().chain([&HOST.resource(), &POOL.resource()]) {
        served += usize::from(fetch_kind(client, resource, fleet).await?);
    }
    if served == 0 || fleet.nodes.is_empty() {
        let message = "no state of any node is known: name files with --state or --state-dir, or a hub whose agents have reported";
        return Err(Failure::refused(anyhow!(message)));
    }
    Ok(())
}

/// Whether the kind is served at all.
async fn fetch_kind(client: &Client, resource: &ApiResource, fleet: &mut Fleet) -> Result<bool, Failure> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), resource);
    let mut page = ListParams::default().limit(PAGE);
    loop {
        let list = match api.list(&page).await {
            Ok(list) => list,
            Err(Error::Api(status)) if status.code == 404 => return Ok(false),
            Err(Error::Api(status)) if status.code == 401 || status.code == 403 => {
                let message = format!("the hub does not let you read its {}", resource.plural);
                return Err(Failure::refused(anyhow!(Error::Api(status)).context(message)));
            }
            Err(error) => return Err(Failure::Failed(anyhow!(error).context("the hub did not answer"))),
        };
        for object in list.items {
            fleet.take(object_of(object, resource)?);
        }
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(true),
        }
    }
}

/// The items of a list do not say what they are.
fn object_of(object: DynamicObject, resource: &ApiResource) -> Result<Value, Failure> {
    let mut value = serde_json::to_value(object)?;
    value["kind"] = json!(resource.kind);
    value["apiVersion"] = json!(resource.api_version);
    Ok(value)
}
