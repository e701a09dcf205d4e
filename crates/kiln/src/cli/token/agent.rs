//! `kiln token agent`: the token with which the agent on a running node speaks for its Host.
//!
//! The hub keeps no such token: it is a code over the Host's name, uid and generation, made with the hub's key, which
//! whoever may read the hub's Secrets can make. It is written to a file that only its owner may read, and never shown.

use std::io::Write;
use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use kiln_core::agent_token::{Bearer, GENERATION_ANNOTATION};
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::stored::{self, NamedHost, Target};
use crate::cli::image::output_file::{Existing, OutputFile, Readers};
use crate::cli::output::{self, Failure};
use crate::cli::status::connection::{Connection, unanswered};
use crate::hub::boot_secrets::IGNITION_LABEL;
use crate::hub::controllers::kinds::{HOST, SECRET};
use crate::hub::node::agent::token_generation;
use crate::hub::node::beacon::key::{self, BeaconKey};

/// What `kiln token agent` takes.
#[derive(Debug, Args)]
pub struct AgentArgs {
    /// The host: NAME or NAMESPACE/NAME
    host: String,
    /// Where the token is written, readable by you alone
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
    /// Count the host's token up first: every token written before is worth nothing from then on
    #[arg(long)]
    renew: bool,
    /// The namespace the hub runs in, when more than one has a key
    #[arg(long, value_name = "NAMESPACE")]
    hub_namespace: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

/// Writes the token.
pub fn run(args: &AgentArgs) -> Result<(), Failure> {
    let existing = if args.force { Existing::Replace } else { Existing::Keep };
    args.connection.block_on(async |client| {
        let Target::Host(host) = stored::choose(&client, &args.host).await? else {
            return Err(Failure::refused(anyhow!("`{}` is a pool; agents speak for hosts", args.host)));
        };
        let file = OutputFile::create(&args.output, existing, Readers::Owner)?;
        let key = fetch_key(&client, args.hub_namespace.as_deref()).await?;
        let bearer = fetch_bearer(&client, &host, args.renew).await?;
        writeln!(file.file(), "{}", key.agent_token(&bearer))?;
        file.finish()?;
        output::print(&format!(
            "the agent token of {}/{} (generation {}) is in {}\n",
            bearer.namespace,
            bearer.host,
            bearer.generation,
            args.output.display()
        ))?;
        Ok(())
    })
}

async fn fetch_key(client: &Client, namespace: Option<&str>) -> Result<BeaconKey, Failure> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &SECRET.resource());
    let options = ListParams::default().labels(&format!("{IGNITION_LABEL}={}", key::BEACON_KEY));
    let secrets = api.list(&options).await.map_err(unanswered)?.items;
    let keys: Vec<(String, BeaconKey)> = secrets
        .into_iter()
        .filter_map(|secret| {
            let at = secret.metadata.namespace.clone()?;
            let secret: Value = serde_json::to_value(secret).ok()?;
            Some((at.clone(), BeaconKey::read(&secret, &at)?))
        })
        .filter(|(at, _)| namespace.is_none_or(|wanted| wanted == at))
        .collect();
    let names = keys.iter().map(|(at, _)| at.as_str()).collect::<Vec<_>>().join(", ");
    match <[(String, BeaconKey); 1]>::try_from(keys) {
        Ok([(_, key)]) => Ok(key),
        Err(keys) if keys.is_empty() => {
            Err(Failure::refused(anyhow!("the hub has no key for tokens; it makes one when it starts")))
        }
        Err(_) => {
            Err(Failure::refused(anyhow!("several namespaces have a key ({names}); name one with --hub-namespace")))
        }
    }
}

async fn fetch_bearer(client: &Client, host: &NamedHost, renew: bool) -> Result<Bearer, Failure> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &host.namespace, &HOST.resource());
    let object = api.get(&host.name).await.map_err(unanswered)?;
    let (uid, revision) = (object.metadata.uid.clone().unwrap_or_default(), object.metadata.resource_version.clone());
    let object = serde_json::to_value(object).map_err(anyhow::Error::from)?;
    let mut generation = token_generation(&object)
        .ok_or_else(|| Failure::refused(anyhow!("the annotation {GENERATION_ANNOTATION} of the Host is no number")))?;
    if renew {
        generation += 1;
        let patch = json!({"metadata": {"resourceVersion": revision,
            "annotations": {GENERATION_ANNOTATION: generation.to_string()}}});
        api.patch(&host.name, &PatchParams::default(), &Patch::Merge(patch)).await.map_err(unanswered)?;
    }
    Ok(Bearer { namespace: host.namespace.clone(), host: host.name.clone(), uid, generation })
}
