//! Making and taking back boot tokens: a write of the hash, which the endpoints see at once. The text goes to the caller only.

use anyhow::anyhow;
use kiln_core::boot_token::{BootRecord, BootToken, LIFETIME_SECONDS};
use kiln_core::provision::names;
use kiln_core::timeline::Moment;
use kube::Client;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

use super::stored::{NamedHost, secrets};
use crate::cli::output::Failure;
use crate::hub::boot_secrets::{
    BOOT_TOKEN, BOOT_TOKEN_TYPE, HOST_LABEL, IGNITION_LABEL, hash_token, make_token, parse_record, render_record,
};
use crate::hub::controllers::kinds::HOST;
use crate::hub::pools::label;

/// How often a write is tried again when somebody else was faster.
const TRIES: u32 = 5;

/// Makes a new token for a host, in place of the one before. Its text exists only in what is returned.
pub async fn issue(client: &Client, host: &NamedHost, now: Moment) -> Result<BootToken, Failure> {
    let token = make_token().ok_or_else(|| anyhow!("this system has no random numbers"))?;
    let hash = hash_token(token.text());
    let (api, name) = (secrets(client, &host.namespace), names::boot_token(&host.name));
    for _ in 0..TRIES {
        let existing = api.get_opt(&name).await.map_err(unanswered)?;
        let previous = existing.as_ref().and_then(|secret| parse_record(&secret.data["data"]));
        let data = render_record(&BootRecord::issue(hash, previous.as_ref(), now, LIFETIME_SECONDS));
        let written = match existing {
            Some(secret) => {
                let patch = json!({"metadata": {"resourceVersion": secret.metadata.resource_version}, "data": data});
                api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await
            }
            None => {
                let data: serde_json::Map<_, _> = data
                    .as_object()
                    .into_iter()
                    .flatten()
                    .filter(|(_, value)| !value.is_null())
                    .map(|(key, value)| (key.clone(), value.clone()))
                    .collect();
                let object = json!({
                    "apiVersion": "v1", "kind": "Secret", "type": BOOT_TOKEN_TYPE,
                    "metadata": {"name": name, "namespace": host.namespace,
                        "labels": {IGNITION_LABEL: BOOT_TOKEN, HOST_LABEL: label(&host.name)},
                        "ownerReferences": [{"apiVersion": HOST.api_version(), "kind": "Host", "name": host.name, "uid": host.uid}]},
                    "data": data,
                });
                api.create(&PostParams::default(), &serde_json::from_value(object)?).await
            }
        };
        match written {
            Ok(_) => return Ok(token),
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(unanswered(error)),
        }
    }
    Err(Failure::Failed(anyhow!("somebody else keeps changing the token of {}/{}", host.namespace, host.name)))
}

/// Takes a host's token back. Gives its generation.
pub async fn revoke(client: &Client, host: &NamedHost, now: Moment) -> Result<u64, Failure> {
    let (api, name) = (secrets(client, &host.namespace), names::boot_token(&host.name));
    for _ in 0..TRIES {
        let Some(secret) = api.get_opt(&name).await.map_err(unanswered)? else {
            return Err(Failure::refused(anyhow!("host {}/{} has no boot token", host.namespace, host.name)));
        };
        let Some(record) = parse_record(&secret.data["data"]) else {
            return Err(Failure::refused(anyhow!(
                "Secret {}/{name} is no boot token; nobody gets in with it",
                host.namespace
            )));
        };
        let patch = json!({"metadata": {"resourceVersion": secret.metadata.resource_version}, "data": render_record(&record.revoke(now))});
        match api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(_) => return Ok(record.generation),
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(unanswered(error)),
        }
    }
    Err(Failure::Failed(anyhow!("somebody else keeps changing the token of {}/{}", host.namespace, host.name)))
}

fn unanswered(error: kube::Error) -> Failure {
    match &error {
        kube::Error::Api(status) if status.code == 401 || status.code == 403 => {
            Failure::refused(anyhow!(error).context("the hub does not let you change tokens"))
        }
        _ => Failure::Failed(anyhow!(error).context("the hub did not answer")),
    }
}
