//! Putting the definitions of Kiln's kinds where the controllers will need them.
//!
//! The same code serves the embedded API and a real cluster; what differs is the [`Policy`]. A definition that somebody
//! else applied, or that somebody changed, is theirs and stays as it is: on OpenShift most dialect kinds belong to other
//! operators. Which definitions are Kiln's is said by an annotation with the fingerprint of their spec.

use std::collections::HashMap;

use futures::future::try_join_all;
use kiln_api::definitions::{Definition, SHIPPED_ANNOTATION, ShapeError, definitions, fingerprint};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, PostParams};
use serde_json::Value;
use tokio::sync::watch;

/// What may be done to definitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Policy {
    /// Nothing: somebody else installs them.
    Never,
    /// Those that are not there are created.
    Missing,
    /// Those that are not there are created, and Kiln's own are replaced by newer ones.
    #[value(skip)]
    Own,
}

impl Policy {
    /// Reads what a setting says.
    pub fn parse(text: &str) -> Result<Policy, String> {
        match text {
            "never" => Ok(Policy::Never),
            "missing" => Ok(Policy::Missing),
            other => Err(format!("installCrds: {other:?} is neither never nor missing")),
        }
    }

    /// As a setting says it.
    pub fn name(self) -> String {
        match self {
            Policy::Never => "never",
            Policy::Missing => "missing",
            Policy::Own => "own",
        }
        .into()
    }
}

/// What was done.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Installed {
    /// New.
    pub created: usize,
    /// Replaced by newer ones.
    pub replaced: usize,
    /// Somebody else's, or changed by somebody.
    pub foreign: usize,
}

/// Why not.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The program's own data is wrong.
    #[error("the definitions in this program cannot be read")]
    Shape(#[from] ShapeError),
    /// The API refused.
    #[error("the API did not take the definition `{name}`")]
    Api {
        /// Which definition; `list` when they could not be listed.
        name: String,
        /// Why.
        source: Box<kube::Error>,
    },
}

/// Installs what the policy allows.
pub async fn install(client: &Client, policy: Policy) -> Result<Installed, InstallError> {
    if policy == Policy::Never {
        return Ok(Installed::default());
    }
    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let api: Api<DynamicObject> =
        Api::all_with(client.clone(), &ApiResource::from_gvk_with_plural(&kind, "customresourcedefinitions"));
    let failed = |name: &str| {
        let name = name.to_owned();
        move |source| InstallError::Api { name, source: Box::new(source) }
    };
    let listed = api.list(&ListParams::default()).await.map_err(failed("list"))?;
    let there: HashMap<String, &DynamicObject> =
        listed.items.iter().filter_map(|object| Some((object.metadata.name.clone()?, object))).collect();
    let (mut done, mut writes) = (Installed::default(), Vec::new());
    for definition in definitions()? {
        let step = plan(&definition, there.get(&definition.name).copied(), policy);
        match step {
            Step::Leave => {}
            Step::Foreign => done.foreign += 1,
            Step::Create => done.created += 1,
            Step::Replace { .. } => done.replaced += 1,
        }
        writes.push((definition, step));
    }
    let parameters = PostParams::default();
    try_join_all(writes.iter().map(async |(definition, step)| match step {
        Step::Leave | Step::Foreign => Ok(()),
        Step::Create => {
            let created = api.create(&parameters, &object(definition, None)).await;
            created.map(drop).or_else(ignore_existing).map_err(failed(&definition.name))
        }
        Step::Replace { revision } => {
            let newer = object(definition, Some(revision.clone()));
            api.replace(&definition.name, &parameters, &newer).await.map(drop).map_err(failed(&definition.name))
        }
    }))
    .await?;
    Ok(done)
}

/// Installs them again after every restore, until the hub stops: a backup has those of its own time, or none.
pub async fn follow(
    client: Client,
    policy: Policy,
    (mut restores, mut stopping): (watch::Receiver<u64>, watch::Receiver<bool>),
) {
    loop {
        tokio::select! {
            restored = restores.changed() => if restored.is_err() { return },
            _ = stopping.wait_for(|stop| *stop) => return,
        }
        match install(&client, policy).await {
            Ok(installed) => tracing::info!(?installed, "definitions of Kiln's kinds after a restore"),
            Err(error) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                tracing::error!(%error, cause, "the definitions are those of the backup; a restart tries again");
            }
        }
    }
}

#[derive(Debug, PartialEq)]
enum Step {
    Leave,
    Foreign,
    Create,
    Replace { revision: String },
}

fn plan(shipped: &Definition, there: Option<&DynamicObject>, policy: Policy) -> Step {
    let Some(there) = there else { return Step::Create };
    let mark = there.metadata.annotations.as_ref().and_then(|annotations| annotations.get(SHIPPED_ANNOTATION));
    let ours = shipped.manifest["metadata"]["annotations"][SHIPPED_ANNOTATION].as_str().unwrap_or_default();
    match mark {
        Some(mark) if *mark != fingerprint(&there.data["spec"]) => Step::Foreign,
        Some(mark) if mark == ours => Step::Leave,
        Some(_) if policy == Policy::Own => {
            Step::Replace { revision: there.metadata.resource_version.clone().unwrap_or_default() }
        }
        Some(_) => Step::Leave,
        None => Step::Foreign,
    }
}

fn object(definition: &Definition, revision: Option<String>) -> DynamicObject {
    let mut manifest = definition.manifest.clone();
    if let Some(revision) = revision {
        manifest["metadata"]["resourceVersion"] = revision.into();
    }
    // A manifest of this program is an object with metadata.
    serde_json::from_value(manifest).unwrap_or_else(|_| DynamicObject {
        types: None,
        metadata: kube::api::ObjectMeta::default(),
        data: Value::Null,
    })
}

/// Another replica was faster.
fn ignore_existing(error: kube::Error) -> Result<(), kube::Error> {
    match error {
        kube::Error::Api(status) if status.code == 409 => Ok(()),
        other => Err(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_apiserver::definition::parse_definition;
    use serde_json::json;

    #[test]
    fn the_api_server_takes_every_definition() {
        let mut wrong = Vec::new();
        for definition in definitions().unwrap() {
            match parse_definition(&definition.manifest) {
                Ok(resources) => assert!(!resources.is_empty()),
                Err(causes) => wrong.push(format!("{}: {causes:?}", definition.name)),
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    fn stored(definition: &Definition, change: impl Fn(&mut Value)) -> DynamicObject {
        let mut manifest = definition.manifest.clone();
        manifest["metadata"]["resourceVersion"] = "7".into();
        change(&mut manifest);
        serde_json::from_value(manifest).unwrap()
    }

    #[test]
    fn only_what_is_kilns_and_older_is_replaced() {
        let shipped = definitions().unwrap().remove(0);
        let same = stored(&shipped, |_| {});
        let older = stored(&shipped, |manifest| {
            manifest["spec"]["names"]["shortNames"] = json!(["old"]);
            manifest["metadata"]["annotations"][SHIPPED_ANNOTATION] = fingerprint(&manifest["spec"]).into();
        });
        let changed = stored(&shipped, |manifest| manifest["spec"]["names"]["shortNames"] = json!(["mine"]));
        let foreign = stored(&shipped, |manifest| manifest["metadata"]["annotations"] = json!({}));
        let planned = |there: Option<&DynamicObject>, policy| plan(&shipped, there, policy);
        assert_eq!(planned(None, Policy::Missing), Step::Create);
        assert_eq!(planned(Some(&same), Policy::Own), Step::Leave);
        assert_eq!(planned(Some(&older), Policy::Own), Step::Replace { revision: "7".into() });
        assert_eq!(planned(Some(&older), Policy::Missing), Step::Leave);
        assert_eq!(planned(Some(&changed), Policy::Own), Step::Foreign);
        assert_eq!(planned(Some(&foreign), Policy::Own), Step::Foreign);
    }
}
