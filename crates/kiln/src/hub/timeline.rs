//! Timelines as they travel: `status.timeline` of a Host, and the one way to add to it.
//!
//! Whoever witnesses something about a host (an endpoint, a controller) calls [`record`]. It reads the Host, merges and
//! writes the status with the revision it read, so that two witnesses never lose each other's entries.

use kiln_core::timeline::{Entry, Moment, Outcome, Timeline};
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::controllers::kinds::HOST;

/// How often a write is tried again when somebody else was faster.
const TRIES: u32 = 8;

/// The timeline in a Host's status. What cannot be read is left out: an entry of a newer Kiln must not stop an older one.
/// A host that its pool let go begins anew.
pub fn read_timeline(status: &Value) -> Timeline {
    let timeline = Timeline::of(status["timeline"].as_array().into_iter().flatten().filter_map(read_entry));
    // Times are whole seconds: what happened in the second it was let go happened before.
    let released = status["provision"]["released"].as_str().and_then(parse_time);
    timeline.begun_anew(released.map(|released| Moment(released.0.saturating_add(1))))
}

fn read_entry(entry: &Value) -> Option<Entry> {
    let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
    Some(Entry {
        stage: entry["stage"].as_str()?.parse().ok()?,
        outcome: if entry["outcome"] == "Failed" { Outcome::Failed } else { Outcome::Reached },
        time: parse_time(entry["time"].as_str()?)?,
        source: text("source"),
        cause: text("cause"),
    })
}

/// The timeline as it stands in a status.
pub fn render_timeline(timeline: &Timeline) -> Value {
    timeline.entries().iter().map(render_entry).collect()
}

fn render_entry(entry: &Entry) -> Value {
    let outcome = match entry.outcome {
        Outcome::Reached => "Reached",
        Outcome::Failed => "Failed",
    };
    json!({"stage": entry.stage.name(), "outcome": outcome, "time": render_time(entry.time),
        "source": entry.source, "cause": entry.cause})
}

/// `2026-01-02T03:04:05Z`; fractions of a second are dropped.
pub fn parse_time(text: &str) -> Option<Moment> {
    Some(Moment(OffsetDateTime::parse(text, &Rfc3339).ok()?.unix_timestamp()))
}

/// The way Kubernetes writes times.
pub fn render_time(moment: Moment) -> String {
    let time = OffsetDateTime::from_unix_timestamp(moment.0).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    time.format(&Rfc3339).unwrap_or_default()
}

/// The present second.
pub fn now() -> Moment {
    Moment(OffsetDateTime::now_utc().unix_timestamp())
}

/// Adds an entry to a Host's timeline. Says whether it was new.
///
/// Fails when there is no such Host, or when the API does not answer.
pub async fn record(client: &kube::Client, namespace: &str, host: &str, entry: &Entry) -> Result<bool, kube::Error> {
    record_with(client, namespace, host, entry, |_| None).await
}

/// Adds an entry and, in the same write, what follows from it: `more` gets the status and gives a merge patch of it, or
/// nothing. Says whether anything was written.
pub async fn record_with(
    client: &kube::Client,
    namespace: &str,
    host: &str,
    entry: &Entry,
    more: impl Fn(&Value) -> Option<Value>,
) -> Result<bool, kube::Error> {
    let plan = |object: &Value| Update { entries: vec![entry.clone()], patch: more(&object["status"]) };
    update(client, namespace, host, plan).await
}

/// What becomes of a Host.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Update {
    /// For its timeline.
    pub entries: Vec<Entry>,
    /// A merge patch of the rest of its status.
    pub patch: Option<Value>,
}

/// Writes what `plan` makes of a Host (its `spec` and `status`), with the revision it was made for. Says whether anything
/// was written.
pub async fn update(
    client: &kube::Client,
    namespace: &str,
    host: &str,
    plan: impl Fn(&Value) -> Update,
) -> Result<bool, kube::Error> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &HOST.resource());
    let mut tries = 0;
    loop {
        let object = api.get(host).await?;
        let mut timeline = read_timeline(&object.data["status"]);
        let Update { entries, patch } = plan(&object.data);
        let mut new = false;
        for entry in entries {
            new |= timeline.merge(entry);
        }
        if !new && patch.is_none() {
            return Ok(false);
        }
        let mut patch = patch.unwrap_or_else(|| json!({}));
        if new {
            patch["timeline"] = render_timeline(&timeline);
        }
        let patch = json!({"metadata": {"resourceVersion": object.metadata.resource_version}, "status": patch});
        let parameters = PatchParams { field_manager: Some("kiln".into()), ..PatchParams::default() };
        match api.patch_status(host, &parameters, &Patch::Merge(patch)).await {
            Err(kube::Error::Api(status)) if status.code == 409 && tries < TRIES => tries += 1,
            other => return other.map(|_| true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_core::timeline::Stage;

    #[test]
    fn a_timeline_is_read_as_it_was_written_and_strange_entries_are_left_out() {
        let timeline = Timeline::of([
            Entry::reached(Stage::Declared, Moment(1_700_000_000), "BareMetalHost a/b", "was created"),
            Entry::failed(Stage::ClientCsr, Moment(1_700_000_100), "cluster", "no"),
        ]);
        let mut written = render_timeline(&timeline);
        assert_eq!(
            written[1],
            json!({"stage": "ClientCSR", "outcome": "Failed", "time": "2023-11-14T22:15:00Z", "source": "cluster", "cause": "no"})
        );
        written.as_array_mut().unwrap().extend([json!({"stage": "Baked", "time": "x"}), json!(7), json!({})]);
        assert_eq!(read_timeline(&json!({"timeline": written})), timeline);
        assert_eq!(read_timeline(&Value::Null), Timeline::default());
    }
}
