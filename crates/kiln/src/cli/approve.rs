//! `kiln approve HOST`: a person vouches for a certificate request that waits.
//!
//! The request is named on the Host (`kiln.dev/approve-certificates`); the hub judges it once more and approves it. What is
//! denied cannot be vouched for, and in mode `observe` nothing is approved.

use anyhow::anyhow;
use clap::Args;
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use super::Outcome;
use super::output::{self, Failure};
use super::status::connection::{self, Connection, Host};
use crate::hub::approval::fleet::VOUCHED;
use crate::hub::approval::recorded::{Recorded, read_recorded};
use crate::hub::approval::vouch;
use crate::hub::controllers::kinds::HOST;

/// What `kiln approve` takes.
#[derive(Debug, Args)]
pub struct ApproveArgs {
    /// The host: NAME or NAMESPACE/NAME
    host: String,
    /// The request, when more than one waits; `kiln status HOST -o yaml` shows them
    #[arg(long, value_name = "NAME")]
    request: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

/// Names the request on the Host.
pub fn run(args: &ApproveArgs) -> Result<Outcome, Failure> {
    let message = args.connection.block_on(async |client| {
        let hosts = connection::fetch_hosts(&client).await?;
        let host = connection::choose(&hosts, &args.host)?;
        let request = choose(host, args.request.as_deref())?;
        annotate(&client, host, &request).await?;
        Ok(format!(
            "{}/{}: request {request} is vouched for; the hub approves it within seconds\n",
            host.namespace, host.name
        ))
    })?;
    output::print(&message)?;
    Ok(Outcome::Done)
}

/// The request that is meant: the one that was named, or the only one that waits.
fn choose(host: &Host, named: Option<&str>) -> Result<String, Failure> {
    let recorded = read_recorded(&host.status);
    let held: Vec<&Recorded> = recorded.iter().filter(|recorded| recorded.verdict == "Held").collect();
    let told = |recorded: &&Recorded| format!("{} ({}: {})", recorded.request, recorded.check, recorded.message);
    let list = held.iter().map(told).collect::<Vec<_>>().join("\n  ");
    let place = format!("{}/{}", host.namespace, host.name);
    match (named, &held[..]) {
        (Some(name), _) if held.iter().any(|recorded| recorded.request == name) => Ok(name.to_owned()),
        (Some(name), _) => {
            let known = recorded.iter().find(|recorded| recorded.request == name);
            Err(Failure::refused(match known {
                Some(known) => anyhow!(
                    "request {name} of {place} was {}: {}: {}",
                    known.verdict.to_lowercase(),
                    known.check,
                    known.message
                ),
                None => anyhow!("no request `{name}` of {place} waits; those that do:\n  {list}"),
            }))
        }
        (None, [one]) => Ok(one.request.clone()),
        (None, []) => Err(Failure::refused(anyhow!("no certificate request of {place} waits for anybody"))),
        (None, _) => {
            Err(Failure::refused(anyhow!("more than one request of {place} waits; name one with --request:\n  {list}")))
        }
    }
}

async fn annotate(client: &Client, host: &Host, request: &str) -> Result<(), Failure> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &host.namespace, &HOST.resource());
    let object = api.get(&host.name).await.map_err(connection::unanswered)?;
    let annotations = object.metadata.annotations.unwrap_or_default();
    let known = annotations.get(VOUCHED).map_or("", String::as_str);
    let patch: Value = json!({"metadata": {"resourceVersion": object.metadata.resource_version, "annotations": {VOUCHED: vouch(known, request)}}});
    api.patch(&host.name, &PatchParams::default(), &Patch::Merge(patch)).await.map_err(connection::unanswered)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(entries: &[(&str, &str)]) -> Host {
        let entry = |(request, verdict): &(&str, &str)| {
            json!({"request": request, "signer": "kubernetes.io/kubelet-serving", "verdict": verdict, "check": "mode",
                "message": "it passes", "time": "2026-01-01T00:00:00Z"})
        };
        let certificates: Vec<Value> = entries.iter().map(entry).collect();
        Host { namespace: "lab".into(), name: "w0".into(), status: json!({"certificates": certificates}) }
    }

    #[test]
    fn the_only_request_that_waits_is_meant() {
        let told = |host: &Host, named: Option<&str>| match choose(host, named) {
            Ok(name) => name,
            Err(Failure::Refused(error) | Failure::Failed(error)) => error.to_string(),
        };
        assert_eq!(told(&host(&[("a", "Denied"), ("b", "Held")]), None), "b");
        assert_eq!(told(&host(&[("a", "Held"), ("b", "Held")]), Some("a")), "a");
        assert_eq!(told(&host(&[]), None), "no certificate request of lab/w0 waits for anybody");
        let both = "more than one request of lab/w0 waits; name one with --request:\n  a (mode: it passes)\n  b (mode: it passes)";
        assert_eq!(told(&host(&[("a", "Held"), ("b", "Held")]), None), both);
        assert_eq!(told(&host(&[("a", "Denied")]), Some("a")), "request a of lab/w0 was denied: mode: it passes");
        assert_eq!(
            told(&host(&[("b", "Held")]), Some("z")),
            "no request `z` of lab/w0 waits; those that do:\n  b (mode: it passes)"
        );
    }
}
