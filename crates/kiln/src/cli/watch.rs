//! `kiln watch`: each change of a host as it happens, for as long as one looks.
//!
//! A hub that restarts does not end it: the watch goes on where it was, or looks anew and tells only what changed.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::time::Duration;

use clap::Args;
use futures::StreamExt;
use kube::api::{Api, DynamicObject};
use kube::runtime::watcher::{self, Event};
use serde_json::{Value, json};

use super::output::{self, Failure};
use super::status::connection::{self, Connection, Host};
use super::{Outcome, PrintFormat};
use crate::hub::controllers::kinds::HOST;
use crate::hub::timeline::{now, read_timeline, render_time};

/// What `kiln watch` takes.
#[derive(Debug, Args)]
pub struct WatchArgs {
    /// Only this host: NAME or NAMESPACE/NAME
    host: Option<String>,
    #[command(flatten)]
    connection: Connection,
    /// How it is printed; json gives one line per change
    #[arg(short, long, value_enum, default_value = "human")]
    output: PrintFormat,
}

/// Longest wait before the hub is asked again.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Watches until Ctrl-C.
pub fn run(args: &WatchArgs) -> Result<Outcome, Failure> {
    args.connection.block_on(async |client| {
        // Whoever named the wrong server hears so at once instead of waiting for ever.
        connection::fetch_hosts(&client).await?;
        tokio::select! {
            result = follow(&client, args) => result,
            _ = tokio::signal::ctrl_c() => Ok(()),
        }
    })?;
    Ok(Outcome::Done)
}

async fn follow(client: &kube::Client, args: &WatchArgs) -> Result<(), Failure> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &HOST.resource());
    let mut events = pin!(watcher::watcher(api, watcher::Config::default()));
    let mut known: BTreeMap<(String, String), Value> = BTreeMap::new();
    let mut listed: BTreeSet<(String, String)> = BTreeSet::new();
    let mut wait = Duration::from_millis(200);
    while let Some(event) = events.next().await {
        let changes = match event {
            Ok(Event::Init) => {
                listed.clear();
                Vec::new()
            }
            Ok(Event::InitApply(object)) => {
                let host = connection::host(object);
                listed.insert((host.namespace.clone(), host.name.clone()));
                take(&mut known, host)
            }
            Ok(Event::Apply(object)) => take(&mut known, connection::host(object)),
            Ok(Event::InitDone) => {
                wait = Duration::from_millis(200);
                let gone: Vec<_> = known.keys().filter(|place| !listed.contains(*place)).cloned().collect();
                gone.into_iter().flat_map(|(namespace, name)| forget(&mut known, namespace, name)).collect()
            }
            Ok(Event::Delete(object)) => {
                let Host { namespace, name, .. } = connection::host(object);
                forget(&mut known, namespace, name)
            }
            Err(error) => {
                output::complain(&format!("the hub does not answer ({error}); trying again\n"));
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(LONGEST_WAIT);
                continue;
            }
        };
        for change in changes.iter().filter(|change| change.is_about(args.host.as_deref())) {
            output::print(&change.render(args.output))?;
        }
    }
    Ok(())
}

/// One thing that changed.
#[derive(Debug, PartialEq)]
struct Change {
    namespace: String,
    name: String,
    time: String,
    what: String,
}

impl Change {
    fn is_about(&self, wanted: Option<&str>) -> bool {
        wanted.is_none_or(|wanted| {
            wanted == self.name || wanted.split_once('/') == Some((self.namespace.as_str(), self.name.as_str()))
        })
    }

    fn render(&self, format: PrintFormat) -> String {
        let Change { namespace, name, time, what } = self;
        match format {
            PrintFormat::Human => format!("{time}  {namespace}/{name}  {what}\n"),
            PrintFormat::Json => format!("{}\n", self.to_json()),
            PrintFormat::Yaml => format!("---\n{}", kiln_core::document::emit::to_yaml(&self.to_json())),
        }
    }

    fn to_json(&self) -> Value {
        json!({"time": self.time, "namespace": self.namespace, "name": self.name, "change": self.what})
    }
}

fn forget(known: &mut BTreeMap<(String, String), Value>, namespace: String, name: String) -> Vec<Change> {
    let known = known.remove(&(namespace.clone(), name.clone())).is_some();
    let time = render_time(now());
    known.then(|| Change { namespace, name, time, what: "is gone".into() }).into_iter().collect()
}

fn take(known: &mut BTreeMap<(String, String), Value>, host: Host) -> Vec<Change> {
    let place = (host.namespace.clone(), host.name.clone());
    let old = known.insert(place, host.status.clone());
    diff(old.as_ref(), &host)
}

/// What is new since the last look: entries of the timeline, and conditions that turned.
fn diff(old: Option<&Value>, host: &Host) -> Vec<Change> {
    let nothing = Value::Null;
    let before = old.unwrap_or(&nothing);
    let change =
        |time: String, what: String| Change { namespace: host.namespace.clone(), name: host.name.clone(), time, what };
    let seen = read_timeline(before);
    let entries = read_timeline(&host.status);
    let new = entries.entries().iter().filter(|entry| !seen.entries().contains(entry));
    let mut changes: Vec<Change> = new
        .map(|entry| {
            let failed = if entry.outcome == kiln_core::timeline::Outcome::Failed { " failed" } else { "" };
            change(render_time(entry.time), format!("{}{failed}: {} ({})", entry.stage, entry.cause, entry.source))
        })
        .collect();
    for condition in host.status["conditions"].as_array().into_iter().flatten() {
        let word = |key: &str| condition[key].as_str().unwrap_or_default().to_owned();
        let known = before["conditions"].as_array().into_iter().flatten();
        let turned = !known
            .into_iter()
            .any(|known| known["type"] == condition["type"] && known["status"] == condition["status"]);
        if turned {
            let what = format!("{} is {}: {}", word("type"), word("status"), word("message"));
            changes.push(change(word("lastTransitionTime"), what));
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(status: Value) -> Host {
        Host { namespace: "ztp".into(), name: "w0".into(), status }
    }

    #[test]
    fn only_what_is_new_is_told() {
        let first = json!({"timeline": [{"stage": "Declared", "time": "2026-01-01T00:00:00Z", "source": "s", "cause": "c"}],
            "conditions": [{"type": "Ready", "status": "False", "message": "waits", "lastTransitionTime": "2026-01-01T00:00:01Z"}]});
        let mut known = BTreeMap::new();
        let told: Vec<String> =
            take(&mut known, host(first.clone())).iter().map(|change| change.render(PrintFormat::Human)).collect();
        assert_eq!(
            told,
            [
                "2026-01-01T00:00:00Z  ztp/w0  Declared: c (s)\n",
                "2026-01-01T00:00:01Z  ztp/w0  Ready is False: waits\n"
            ]
        );
        assert_eq!(take(&mut known, host(first.clone())), []);
        let mut second = first;
        second["conditions"][0]["status"] = "True".into();
        let told = take(&mut known, host(second));
        assert_eq!(told.len(), 1);
        assert_eq!(
            told[0].render(PrintFormat::Json),
            "{\"time\":\"2026-01-01T00:00:01Z\",\"namespace\":\"ztp\",\"name\":\"w0\",\"change\":\"Ready is True: waits\"}\n"
        );
        assert!(told[0].is_about(Some("w0")) && told[0].is_about(Some("ztp/w0")) && !told[0].is_about(Some("w1")));
        assert_eq!(forget(&mut known, "ztp".into(), "w0".into())[0].what, "is gone");
        assert_eq!(forget(&mut known, "ztp".into(), "w0".into()), []);
    }
}
