//! Conditions: one statement each, with the time it last became true or false.

use std::borrow::Cow;

use kiln_core::timeline::Moment;
use serde_json::{Value, json};

use crate::hub::timeline::render_time;

/// `status` of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Truth {
    /// It is so.
    True,
    /// It is not so.
    False,
    /// Nobody can say.
    Unknown,
}

impl Truth {
    /// True or False.
    pub const fn of(truth: bool) -> Truth {
        if truth { Truth::True } else { Truth::False }
    }

    /// The word in a condition.
    pub const fn name(self) -> &'static str {
        match self {
            Truth::True => "True",
            Truth::False => "False",
            Truth::Unknown => "Unknown",
        }
    }
}

/// One condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// `Ready`.
    pub kind: &'static str,
    /// Whether.
    pub truth: Truth,
    /// One word.
    pub reason: Cow<'static, str>,
    /// One sentence.
    pub message: String,
}

/// Longest message of a condition the API server takes.
const LONGEST_MESSAGE: usize = 32_000;

impl Condition {
    /// A condition.
    pub fn new(
        kind: &'static str,
        truth: Truth,
        reason: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) -> Condition {
        let mut message = message.into();
        let end = (0..=LONGEST_MESSAGE.min(message.len())).rev().find(|end| message.is_char_boundary(*end));
        message.truncate(end.unwrap_or(0));
        Condition { kind, truth, reason: reason.into(), message }
    }

    /// Whether it is so.
    pub fn is_true(&self) -> bool {
        self.truth == Truth::True
    }

    /// Something this hub does not do yet.
    pub fn not_driven(kind: &'static str, what: &str) -> Condition {
        Condition::new(kind, Truth::Unknown, "NotDriven", format!("{what}; nothing in this hub does that yet"))
    }
}

/// The list as it stands in a status. A condition that is as it was keeps its time; conditions of others stay.
///
/// `lastTransitionTime` moves when the status does, not when only the message changes.
pub fn render_conditions(old: &Value, conditions: &[Condition], now: Moment, extra: &Value) -> Value {
    let known = |kind: &str| old.as_array().into_iter().flatten().find(|condition| condition["type"] == kind);
    let mut list: Vec<Value> = old
        .as_array()
        .into_iter()
        .flatten()
        .filter(|condition| !conditions.iter().any(|ours| condition["type"] == ours.kind))
        .cloned()
        .collect();
    list.extend(conditions.iter().map(|condition| {
        let Condition { kind, truth, reason, message } = condition;
        let mut value = json!({"type": kind, "status": truth.name(), "reason": reason, "message": message});
        for (key, more) in extra.as_object().into_iter().flatten() {
            value[key] = more.clone();
        }
        let since = known(kind).filter(|known| known["status"] == truth.name());
        let since = since.and_then(|known| known["lastTransitionTime"].as_str());
        value["lastTransitionTime"] = since.map_or_else(|| json!(render_time(now)), |time| json!(time));
        value
    }));
    // The order people see does not depend on who wrote first.
    list.sort_by_key(|condition| condition["type"].as_str().unwrap_or_default().to_owned());
    Value::Array(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_moves_only_with_the_status_and_other_conditions_stay() {
        let old = json!([
            {"type": "Theirs", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"},
            {"type": "Valid", "status": "True", "reason": "R", "message": "old", "lastTransitionTime": "2020-01-01T00:00:00Z"},
            {"type": "Ready", "status": "True", "reason": "R", "message": "m", "lastTransitionTime": "2020-01-01T00:00:00Z"},
        ]);
        let conditions =
            [Condition::new("Valid", Truth::True, "R", "new"), Condition::new("Ready", Truth::False, "R", "m")];
        let new = render_conditions(&old, &conditions, Moment(0), &json!({"observedGeneration": 2}));
        let expected = json!([
            {"type": "Ready", "status": "False", "reason": "R", "message": "m", "observedGeneration": 2, "lastTransitionTime": "1970-01-01T00:00:00Z"},
            {"type": "Theirs", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"},
            {"type": "Valid", "status": "True", "reason": "R", "message": "new", "observedGeneration": 2, "lastTransitionTime": "2020-01-01T00:00:00Z"},
        ]);
        assert_eq!(new, expected);
        assert_eq!(render_conditions(&new, &conditions, Moment(9), &json!({"observedGeneration": 2})), expected);
    }
}
