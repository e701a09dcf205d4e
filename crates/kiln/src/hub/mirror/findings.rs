//! The condition [`FINDINGS`]: everything the rules find in an object of others, warnings and notes too.
//!
//! Upstream's own words know errors at best, and many kinds have no word for a mistake at all. So one condition says it
//! on every kind whose definition has room for it. It comes with the first finding and stays, as False, when nothing is
//! found any more: an object that was never wrong is never written to.
//!
//! Kiln's own kinds have `status.findings` and `Valid` instead. Beside conditions that somebody else in this hub writes
//! (`hub::network`) it keeps to its own entry, in the shape of theirs.

use serde_json::{Value, json};

use super::condition::{Condition, Truth, render_conditions};
use super::{Finding, Object, View};
use crate::hub::controllers::kinds::{NETWORK_POLICY, Use, Watched};
use crate::hub::timeline::render_time;

/// Its type: True when something was found.
pub const FINDINGS: &str = "kiln.dev/Findings";

/// The status with what was found in it, unless there never was anything, or no room for it.
pub fn add(view: &View, object: &Object, watched: &Watched, said: Option<Value>) -> Option<Value> {
    let found = view.findings(&object.id);
    let silent = found.is_empty() && !object.item.has_findings;
    if watched.use_ == Use::Own || silent || view.cache.without_findings.contains(watched.kind) {
        return said;
    }
    let mut status = said.unwrap_or_else(|| json!({}));
    let known = &object.status["conditions"];
    let beside = status.get("conditions").unwrap_or(known).clone();
    let condition = condition(found);
    let extra = match *watched == NETWORK_POLICY {
        true => json!({"lastHeartbeatTime": heartbeat(known, &condition, || render_time(view.now))}),
        false => Value::Null,
    };
    status["conditions"] = render_conditions(&beside, &[condition], view.now, &extra);
    Some(status)
}

/// The conditions of a status without this one.
pub fn without(status: &Value) -> Value {
    let others = status["conditions"].as_array().into_iter().flatten();
    json!({"conditions": others.filter(|condition| condition["type"] != FINDINGS).collect::<Vec<_>>()})
}

/// Whether an object, or a patch of one, has the condition.
pub fn holds_findings(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|condition| condition["type"] == FINDINGS))
}

fn condition(found: &[Finding]) -> Condition {
    let Some(worst) = found.first() else {
        return Condition::new(FINDINGS, Truth::False, "NoFindings", "no rule of kiln check finds anything any more");
    };
    let lines: Vec<String> = found.iter().map(line).collect();
    Condition::new(FINDINGS, Truth::True, worst.code.clone(), lines.join("\n"))
}

/// As `kubectl apply` prints it: code, message, place, fix.
fn line(finding: &Finding) -> String {
    let Finding { code, severity: _, message, field, cause: _, fix } = finding;
    let place = field.as_ref().map(|field| format!(" ({field})")).unwrap_or_default();
    let fix = fix.as_ref().map(|fix| format!("; {fix}")).unwrap_or_default();
    format!("{code}: {message}{place}{fix}").replace(char::is_control, " ")
}

/// nmstate's conditions have the time of the last word: as long as the word is the same, so is the time.
fn heartbeat(known: &Value, new: &Condition, now: impl FnOnce() -> String) -> String {
    let mut old = known.as_array().into_iter().flatten();
    let same = old.find(|old| {
        old["type"] == new.kind
            && old["status"] == new.truth.name()
            && old["reason"] == *new.reason
            && old["message"] == *new.message
    });
    same.and_then(|same| same["lastHeartbeatTime"].as_str()).map_or_else(now, str::to_owned)
}
