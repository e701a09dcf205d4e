//! Verdicts as they travel: `status.certificates` of a Host, and what is kept of them.
//!
//! **Invariant:** what was approved in the present generation is never pushed out by what was denied: it is what keeps a
//! second machine from getting a certificate for the same host.

use kiln_core::certificate_request::{Approved, KeyHash, Request, Signer, Verdict};
use kiln_core::timeline::Moment;
use serde_json::{Map, Value, json};

use crate::hub::timeline::{parse_time, render_time};

/// How many verdicts a Host keeps.
pub const MOST_VERDICTS: usize = 20;
/// How long a message may be, in bytes.
const LONGEST_MESSAGE: usize = 512;
const APPROVED: &str = "Approved";

/// One verdict as it stands in a status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// Name of the request.
    pub request: String,
    /// Who signs.
    pub signer: Signer,
    /// Approved, Denied or Held.
    pub verdict: String,
    /// The check that decided.
    pub check: String,
    /// Why.
    pub message: String,
    /// When.
    pub time: Moment,
    /// The host's generation.
    pub generation: u64,
    /// The key of the request.
    pub key: Option<KeyHash>,
    /// When the certificate ends, once it was issued.
    pub ends: Option<Moment>,
}

impl Recorded {
    /// What is written down about a request.
    pub fn of(request: &Request, verdict: &Verdict, generation: u64, now: Moment) -> Recorded {
        let message = verdict.message();
        let end = (0..=LONGEST_MESSAGE.min(message.len())).rev().find(|end| message.is_char_boundary(*end));
        Recorded {
            request: request.name.clone(),
            signer: request.signer.clone(),
            verdict: verdict.name().to_owned(),
            check: verdict.check().name().to_owned(),
            message: message.get(..end.unwrap_or(0)).unwrap_or_default().to_owned(),
            time: now,
            generation,
            key: request.content.as_ref().ok().map(|content| content.key),
            ends: None,
        }
    }

    /// Whether both say the same of the same request.
    pub fn says_the_same(&self, other: &Recorded) -> bool {
        (&self.request, &self.verdict, &self.check, &self.message)
            == (&other.request, &other.verdict, &other.check, &other.message)
    }
}

/// The verdicts in a Host's status. What cannot be read is left out.
pub fn read_recorded(status: &Value) -> Vec<Recorded> {
    status["certificates"].as_array().into_iter().flatten().filter_map(read_one).collect()
}

fn read_one(entry: &Value) -> Option<Recorded> {
    let text = |key: &str| entry[key].as_str().unwrap_or_default();
    Some(Recorded {
        request: entry["request"].as_str()?.to_owned(),
        signer: Signer::of(text("signer")),
        verdict: text("verdict").to_owned(),
        check: text("check").to_owned(),
        message: text("message").to_owned(),
        time: parse_time(text("time"))?,
        generation: entry["generation"].as_u64().unwrap_or_default(),
        key: text("key").parse().ok(),
        ends: parse_time(text("expires")),
    })
}

/// The verdicts as they stand in a status.
pub fn render_recorded(recorded: &[Recorded]) -> Value {
    recorded.iter().map(render_one).collect()
}

fn render_one(recorded: &Recorded) -> Value {
    let Recorded { request, signer, verdict, check, message, time, generation, key, ends } = recorded;
    let mut entry = Map::new();
    let mut put = |name: &str, value: Value| drop(entry.insert(name.to_owned(), value));
    put("request", json!(request));
    put("signer", json!(signer.name()));
    put("verdict", json!(verdict));
    put("check", json!(check));
    put("message", json!(message));
    put("time", json!(render_time(*time)));
    put("generation", json!(generation));
    if let Some(key) = key {
        put("key", json!(key.to_string()));
    }
    if let Some(ends) = ends {
        put("expires", json!(render_time(*ends)));
    }
    Value::Object(entry)
}

/// What was approved, for the rules.
pub fn approved(recorded: &[Recorded]) -> Vec<Approved> {
    let approved = recorded.iter().filter(|recorded| recorded.verdict == APPROVED);
    approved
        .map(|recorded| Approved {
            request: recorded.request.clone(),
            signer: recorded.signer.clone(),
            generation: recorded.generation,
            key: recorded.key,
            time: recorded.time,
            ends: recorded.ends,
        })
        .collect()
}

/// Adds a verdict, newest last. One about the same request takes the place of the older one.
pub fn add(mut recorded: Vec<Recorded>, new: Recorded) -> Vec<Recorded> {
    recorded.retain(|old| old.request != new.request);
    recorded.push(new);
    while recorded.len() > MOST_VERDICTS {
        let newest = recorded.iter().map(|recorded| recorded.generation).max().unwrap_or_default();
        // Others first, then approvals of earlier generations, then the oldest serving certificate, and only then the rest.
        let last = recorded.len() - 1;
        let worth = |(index, recorded): &(usize, &Recorded)| {
            let kept = match (recorded.verdict == APPROVED, recorded.generation == newest, &recorded.signer) {
                _ if *index == last => 4,
                (false, ..) => 0,
                (true, false, _) => 1,
                (true, true, Signer::Client) => 3,
                (true, true, _) => 2,
            };
            (kept, *index)
        };
        match recorded.iter().enumerate().min_by_key(worth).map(|(index, _)| index) {
            Some(index) => drop(recorded.remove(index)),
            None => break,
        }
    }
    recorded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(request: &str, verdict: &str, generation: u64) -> Recorded {
        Recorded {
            request: request.into(),
            signer: Signer::Client,
            verdict: verdict.into(),
            check: "key".into(),
            message: "m".into(),
            time: Moment(1_700_000_000),
            generation,
            key: Some(KeyHash::of(b"k")),
            ends: Some(Moment(1_700_000_100)),
        }
    }

    #[test]
    fn verdicts_are_read_as_they_were_written() {
        let list = vec![recorded("a", "Approved", 1), Recorded { key: None, ends: None, ..recorded("b", "Denied", 1) }];
        let status = json!({"certificates": render_recorded(&list)});
        assert_eq!(read_recorded(&status), list);
        assert_eq!(approved(&list).len(), 1);
        assert_eq!(read_recorded(&json!({"certificates": [7, {}, {"request": "x"}]})), []);
    }

    #[test]
    fn a_flood_of_denials_does_not_push_out_what_was_approved() {
        let mut list = vec![recorded("old", "Approved", 1), recorded("good", "Approved", 2)];
        for number in 0..100 {
            list = add(list, recorded(&format!("bad-{number}"), "Denied", 2));
        }
        assert_eq!(list.len(), MOST_VERDICTS);
        let names: Vec<&str> = list.iter().take(3).map(|recorded| recorded.request.as_str()).collect();
        assert_eq!(names, ["old", "good", "bad-82"]);
        for number in 0..100 {
            list = add(list, recorded(&format!("more-{number}"), "Approved", 2));
        }
        assert!(list.iter().any(|recorded| recorded.request == "more-99"));
        assert!(!list.iter().any(|recorded| recorded.request == "old"));
        let list = add(list, recorded("more-99", "Denied", 2));
        assert_eq!(list.iter().filter(|recorded| recorded.request == "more-99").count(), 1);
    }
}
