//! A NodeNetworkConfigurationPolicy's JSON to a [`NetworkPolicy`].
//!
//! `spec.kiln` is closed: a field nobody knows is a slip and is refused. The rest of the object is upstream's and may hold
//! anything. What is refused is named by its path.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::choice::{NodeChoice, Operator, Requirement};
use super::error::malformed;
use super::{
    Canary, LONGEST_TIME, MAX_CAPTURES, MAX_DEPTH, MAX_EXPRESSION, MAX_PORTS, MAX_VALUES, NetworkPolicy, OnFailure,
    Options, Parameters, Persistence, PolicyError, RolloutWish, fields, parameters,
};
use crate::assignment::{DriftAction, Probe};

/// How many names, probes or requirements a list may have.
const MAX_LIST: usize = 10_000;

impl NetworkPolicy {
    /// Reads the object as the API stores it.
    pub fn read(object: &Value) -> Result<NetworkPolicy, PolicyError> {
        let metadata = &object["metadata"];
        let name = metadata["name"].as_str().filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| malformed("metadata.name", "is missing"))?.to_owned();
        let none = Map::new();
        let spec = Section::of(&object["spec"], "spec", &none)?;
        let kiln = spec.section("kiln", &none)?;
        kiln.only(&[
            "after",
            "checkpoint",
            "drift",
            "nodes",
            "parameters",
            "paused",
            "persistence",
            "priority",
            "probes",
            "rollout",
            "soak",
            "timeout",
        ])?;
        let mut selector = kiln.choice("nodes")?;
        selector.labels.extend(spec.texts("nodeSelector")?);
        let captures = read_captures(&spec)?;
        let desired = match spec.get("desiredState") {
            None => Value::Object(Map::new()),
            Some(desired) => {
                bounded(desired)?;
                desired.clone()
            }
        };
        fields::refuse_shapes(&desired)?;
        let max_unavailable = match spec.get("maxUnavailable") {
            None => None,
            Some(Value::Number(number)) => Some(number.to_string()),
            Some(Value::String(text)) => Some(text.clone()),
            Some(_) => return Err(malformed("spec.maxUnavailable", "must be a number or a percentage")),
        };
        let options = read_options(&kiln)?;
        parameters::refuse_unknown(&desired, &captures, &options.parameters)?;
        Ok(NetworkPolicy {
            name,
            generation: metadata["generation"].as_i64().unwrap_or_default(),
            created: metadata["creationTimestamp"].as_str().unwrap_or_default().to_owned(),
            selector,
            captures,
            desired,
            max_unavailable,
            options,
        })
    }
}

fn read_captures(spec: &Section<'_>) -> Result<BTreeMap<String, String>, PolicyError> {
    let captures: BTreeMap<String, String> = spec.texts("capture")?.into_iter().collect();
    if captures.len() > MAX_CAPTURES {
        let why = format!("there are {} captures; at most {MAX_CAPTURES} are taken", captures.len());
        return Err(malformed("spec.capture", why));
    }
    match captures.iter().find(|(_, expression)| expression.len() > MAX_EXPRESSION) {
        Some((name, expression)) => Err(malformed(
            format!("spec.capture.{name}"),
            format!("the expression has {} bytes; at most {MAX_EXPRESSION} are taken", expression.len()),
        )),
        None => Ok(captures),
    }
}

/// Refuses a document that is too large, before anything walks over it without counting.
fn bounded(desired: &Value) -> Result<(), PolicyError> {
    let mut open = vec![(desired, 0)];
    let mut count = 0;
    while let Some((value, depth)) = open.pop() {
        count += 1;
        if count > MAX_VALUES {
            return Err(malformed("spec.desiredState", format!("holds more than {MAX_VALUES} values")));
        }
        if depth > MAX_DEPTH {
            return Err(malformed("spec.desiredState", format!("nests deeper than {MAX_DEPTH}")));
        }
        match value {
            Value::Array(items) => open.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Object(entries) => open.extend(entries.iter().map(|(_, value)| (value, depth + 1))),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    Ok(())
}

fn read_options(kiln: &Section<'_>) -> Result<Options, PolicyError> {
    Ok(Options {
        after: kiln.list("after", |value, at| text(value, at).map(str::to_owned))?.unwrap_or_default(),
        priority: match kiln.get("priority") {
            None => 0,
            Some(number) => number.as_i64().ok_or_else(|| malformed("spec.kiln.priority", "must be a number"))?,
        },
        parameters: Parameters::read(kiln)?,
        probes: read_probes(kiln)?,
        within: kiln.duration("timeout")?,
        soak: kiln.duration("soak")?,
        checkpoint: kiln.duration("checkpoint")?,
        persistence: kiln
            .word("persistence", &[("Persistent", Persistence::Persistent), ("Runtime", Persistence::Runtime)])?
            .unwrap_or_default(),
        drift: kiln.word(
            "drift",
            &[("Report", DriftAction::Report), ("Repair", DriftAction::Repair), ("Adopt", DriftAction::Adopt)],
        )?,
        paused: match kiln.get("paused") {
            None => false,
            Some(truth) => truth.as_bool().ok_or_else(|| malformed("spec.kiln.paused", "must be true or false"))?,
        },
        rollout: read_rollout(kiln)?,
    })
}

fn read_probes(kiln: &Section<'_>) -> Result<Option<Vec<Probe>>, PolicyError> {
    let probes = kiln.list("probes", read_probe)?;
    let ports = probes.iter().flatten().filter(|probe| matches!(probe, Probe::FromHub(_))).count();
    if ports > MAX_PORTS {
        let why = format!("has {ports} ports for the hub to reach; at most {MAX_PORTS} are taken");
        return Err(malformed(kiln.path("probes"), why));
    }
    Ok(probes)
}

fn read_probe(value: &Value, at: &str) -> Result<Probe, PolicyError> {
    let none = Map::new();
    let probe = Section::of(value, at, &none)?;
    probe.only(&["type", "target"])?;
    let kind = probe.get("type").and_then(Value::as_str).unwrap_or_default();
    let target = match probe.get("target") {
        None => None,
        // A port may be written as the number it is.
        Some(Value::Number(port)) if kind == "FromHub" => Some(port.to_string()),
        Some(target) => Some(text(target, &probe.path("target"))?.to_owned()),
    };
    match (kind, target) {
        ("Gateway", None) => Ok(Probe::Gateway),
        ("Dns", None) => Ok(Probe::Dns),
        ("Hub", None) => Ok(Probe::Hub),
        ("FromHub", Some(target)) => {
            // The node says where it is by asking; a policy says the port only, so that nobody has the hub dial third parties.
            let port = target.strip_prefix(':').unwrap_or(&target).parse::<u16>().ok().filter(|port| *port > 0);
            let why = || malformed(probe.path("target"), format!("`{target}` is not a port such as 22 or :22"));
            port.map(Probe::FromHub).ok_or_else(why)
        }
        ("ApiServer", Some(target)) => Ok(Probe::ApiServer(with_port(target, &probe.path("target"))?)),
        ("Tcp", Some(target)) => Ok(Probe::Tcp(with_port(target, &probe.path("target"))?)),
        ("Http", Some(target)) if target.starts_with("http://") || target.starts_with("https://") => {
            Ok(Probe::Http(target))
        }
        ("Http", Some(target)) => {
            Err(malformed(probe.path("target"), format!("`{target}` is not a URL of http or https")))
        }
        ("Ping", Some(target)) if target.parse::<std::net::IpAddr>().is_ok() => Ok(Probe::Ping(target)),
        ("Ping", Some(target)) => Err(malformed(probe.path("target"), format!("`{target}` is not an address"))),
        ("Gateway" | "Dns" | "Hub", Some(_)) => Err(malformed(probe.path("target"), format!("{kind} takes no target"))),
        ("FromHub" | "ApiServer" | "Tcp" | "Http" | "Ping", None) => {
            Err(malformed(at, format!("{kind} needs a target")))
        }
        _ => {
            Err(malformed(probe.path("type"), "must be one of Gateway, Dns, Hub, FromHub, ApiServer, Tcp, Http, Ping"))
        }
    }
}

/// `HOST:PORT`.
fn with_port(target: String, at: &str) -> Result<String, PolicyError> {
    let good = target
        .rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0));
    if good { Ok(target) } else { Err(malformed(at, format!("`{target}` is not HOST:PORT"))) }
}

fn read_rollout(kiln: &Section<'_>) -> Result<RolloutWish, PolicyError> {
    let none = Map::new();
    let rollout = kiln.section("rollout", &none)?;
    rollout.only(&["by", "canary", "onFailure"])?;
    let canary = rollout.section("canary", &none)?;
    canary.only(&["count", "nodes"])?;
    let canary = match (canary.get("count"), canary.get("nodes")) {
        (None, None) => None,
        (Some(count), None) => {
            let count = count.as_u64().and_then(|count| u32::try_from(count).ok()).filter(|count| *count > 0);
            Some(Canary::Count(count.ok_or_else(|| malformed(canary.path("count"), "must be a number from 1 on"))?))
        }
        (None, Some(_)) => Some(Canary::Nodes(canary.choice("nodes")?)),
        (Some(_), Some(_)) => return Err(malformed(&canary.at, "has both `count` and `nodes`")),
    };
    Ok(RolloutWish {
        canary,
        by: match rollout.get("by") {
            None => None,
            Some(label) => Some(text(label, &rollout.path("by"))?.to_owned()),
        },
        on_failure: rollout
            .word("onFailure", &[("Halt", OnFailure::Halt), ("Revert", OnFailure::Revert)])?
            .unwrap_or_default(),
    })
}

/// A mapping and where it stands.
pub(super) struct Section<'v> {
    pub(super) at: String,
    entries: &'v Map<String, Value>,
}

impl<'v> Section<'v> {
    /// The mapping `value`; nothing at all is an empty one.
    pub(super) fn of(value: &'v Value, at: &str, none: &'v Map<String, Value>) -> Result<Self, PolicyError> {
        let entries = match value {
            Value::Null => none,
            Value::Object(entries) => entries,
            _ => return Err(malformed(at, "must be a mapping")),
        };
        Ok(Section { at: at.to_owned(), entries })
    }

    pub(super) fn path(&self, key: &str) -> String {
        format!("{}.{key}", self.at)
    }

    pub(super) fn get(&self, key: &str) -> Option<&'v Value> {
        self.entries.get(key).filter(|value| !value.is_null())
    }

    pub(super) fn section(&self, key: &str, none: &'v Map<String, Value>) -> Result<Section<'v>, PolicyError> {
        Section::of(self.get(key).unwrap_or(&Value::Null), &self.path(key), none)
    }

    /// Refuses keys that are not among `known`.
    pub(super) fn only(&self, known: &[&str]) -> Result<(), PolicyError> {
        match self.entries.keys().find(|key| !known.contains(&key.as_str())) {
            Some(key) => {
                let nearest = known.iter().min_by_key(|name| strsim::damerau_levenshtein(name, key));
                let hint = nearest.filter(|name| strsim::damerau_levenshtein(name, key) <= 2);
                let hint = hint.map_or_else(String::new, |name| format!("; did you mean `{name}`?"));
                Err(malformed(self.path(key), format!("there is no such field{hint}")))
            }
            None => Ok(()),
        }
    }

    pub(super) fn list<T>(
        &self,
        key: &str,
        read: impl Fn(&'v Value, &str) -> Result<T, PolicyError>,
    ) -> Result<Option<Vec<T>>, PolicyError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let items = value.as_array().ok_or_else(|| malformed(self.path(key), "must be a list"))?;
        if items.len() > MAX_LIST {
            return Err(malformed(self.path(key), format!("has more than {MAX_LIST} items")));
        }
        let items = items.iter().enumerate().map(|(index, item)| read(item, &format!("{}[{index}]", self.path(key))));
        items.collect::<Result<Vec<T>, PolicyError>>().map(Some)
    }

    /// A mapping from text to text. A number or a truth value is taken for its text.
    fn texts(&self, key: &str) -> Result<Vec<(String, String)>, PolicyError> {
        let none = Map::new();
        let section = Section::of(self.get(key).unwrap_or(&Value::Null), &self.path(key), &none)?;
        let entries = section
            .entries
            .iter()
            .map(|(name, value)| text(value, &section.path(name)).map(|value| (name.clone(), value.to_owned())));
        entries.collect()
    }

    /// `20s`, `1m30s`, `500ms`.
    fn duration(&self, key: &str) -> Result<Option<u64>, PolicyError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let at = self.path(key);
        let written = text(value, &at)?;
        let duration = parse_duration(written)
            .ok_or_else(|| malformed(&at, format!("`{written}` is not a time such as 20s, 1m30s or 500ms")))?;
        if duration > LONGEST_TIME {
            return Err(malformed(at, format!("`{written}` is more than an hour")));
        }
        Ok(Some(duration))
    }

    pub(super) fn word<T: Copy>(&self, key: &str, words: &[(&str, T)]) -> Result<Option<T>, PolicyError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match words.iter().find(|(word, _)| Some(*word) == value.as_str()) {
            Some((_, meaning)) => Ok(Some(*meaning)),
            None => {
                let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
                Err(malformed(self.path(key), format!("must be one of {}", words.join(", "))))
            }
        }
    }

    fn choice(&self, key: &str) -> Result<NodeChoice, PolicyError> {
        let none = Map::new();
        let nodes = Section::of(self.get(key).unwrap_or(&Value::Null), &self.path(key), &none)?;
        nodes.only(&["matchExpressions", "matchLabels", "names"])?;
        Ok(NodeChoice {
            labels: nodes.texts("matchLabels")?,
            names: nodes.list("names", |value, at| text(value, at).map(str::to_owned))?.unwrap_or_default(),
            expressions: nodes.list("matchExpressions", read_requirement)?.unwrap_or_default(),
        })
    }
}

fn read_requirement(value: &Value, at: &str) -> Result<Requirement, PolicyError> {
    let none = Map::new();
    let requirement = Section::of(value, at, &none)?;
    requirement.only(&["key", "operator", "values"])?;
    let key = text(requirement.get("key").unwrap_or(&Value::Null), &requirement.path("key"))?.to_owned();
    let operators = [
        ("In", Operator::In),
        ("NotIn", Operator::NotIn),
        ("Exists", Operator::Exists),
        ("DoesNotExist", Operator::DoesNotExist),
    ];
    let operator = requirement.word("operator", &operators)?;
    let operator = operator.ok_or_else(|| malformed(requirement.path("operator"), "is missing"))?;
    let values = requirement.list("values", |value, at| text(value, at).map(str::to_owned))?.unwrap_or_default();
    match operator {
        Operator::In | Operator::NotIn if values.is_empty() => {
            Err(malformed(at, "In and NotIn need at least one value"))
        }
        Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
            Err(malformed(at, "Exists and DoesNotExist take no values"))
        }
        _ => Ok(Requirement { key, operator, values }),
    }
}

pub(super) fn text<'v>(value: &'v Value, at: &str) -> Result<&'v str, PolicyError> {
    value.as_str().ok_or_else(|| malformed(at, "must be a text"))
}

/// Milliseconds of `1m30s`.
fn parse_duration(text: &str) -> Option<u64> {
    let (mut rest, mut total) = (text, 0_u64);
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: u64 = rest.get(..digits)?.parse().ok()?;
        rest = rest.get(digits..)?;
        let units = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        let unit = match rest.get(..units)? {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return None,
        };
        rest = rest.get(units..)?;
        total = total.checked_add(number.checked_mul(unit)?)?;
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_kubernetes_writes_them() {
        for (text, expected) in [
            ("20s", Some(20_000)),
            ("1m30s", Some(90_000)),
            ("500ms", Some(500)),
            ("0s", Some(0)),
            ("", None),
            ("20", None),
            ("s", None),
            ("-1s", None),
            ("99999999999999999999s", None),
            ("18446744073709551615h", None),
        ] {
            assert_eq!(parse_duration(text), expected, "{text}");
        }
    }
}
