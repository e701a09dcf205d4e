//! Status of Kiln's own Host, and of Site and Image: whether it is valid, what was found, where it stands.

use kiln_core::diagnostic::Severity;
use kiln_core::timeline::{Situation, Stage, why};
use serde_json::{Value, json};

use super::condition::{Condition, Truth, render_conditions};
use super::{DRIVEN, Finding, HostView, Object, View, error_text};
use crate::hub::beacon::{read_boot, read_declared};
use crate::hub::pools::report::OutOfService;
use crate::hub::timeline::render_timeline;

/// Status of a Host, whoever declares it.
pub fn status(view: &View, object: &Object) -> Value {
    let Some(host) = host_of(view, object) else { return plain_status(view, object) };
    let errors: Vec<&Finding> =
        host.findings.iter().copied().filter(|finding| finding.severity == Severity::Error).collect();
    let situation = Situation {
        host: host.facts.id.name.clone(),
        errors: errors.iter().map(|finding| format!("{}: {}", finding.code, finding.message)).collect(),
        fix: errors.first().and_then(|finding| finding.fix.clone()),
        has_bmc: host.facts.has_bmc,
        driven: DRIVEN.to_vec(),
        boot: read_boot(object.status),
        declared: read_declared(object.spec),
    };
    // The present is left out of what is written: a status that changes every second wakes everybody for ever.
    let reason = why(&host.timeline, &situation, host.timeline.furthest().map_or(view.now, |entry| entry.time));
    let furthest = host.timeline.furthest().map(|entry| entry.stage);
    let mut conditions = vec![valid(host.findings.iter().copied()), ready(furthest, &reason)];
    conditions.extend(in_service(view.out_of_service(&object.id), object.status));
    json!({
        "stage": furthest.map(Stage::name),
        "observedGeneration": object.item.generation,
        "conditions": render_conditions(&object.status["conditions"], &conditions, view.now, &json!({"observedGeneration": object.item.generation})),
        "findings": findings(&host.findings),
        "timeline": render_timeline(&host.timeline),
        "node": host.facts.node,
        "pool": host.facts.pool,
    })
}

/// Status of an object that is only declared.
pub fn plain_status(view: &View, object: &Object) -> Value {
    let found: Vec<&Finding> = view.findings(&object.id).iter().collect();
    let conditions = [valid(found.iter().copied())];
    json!({
        "observedGeneration": object.item.generation,
        "conditions": render_conditions(&object.status["conditions"], &conditions, view.now, &json!({"observedGeneration": object.item.generation})),
        "findings": findings(&found),
    })
}

/// Status of a Site: how many hosts say that they stand there.
pub fn site_status(view: &View, object: &Object) -> Value {
    let mut status = plain_status(view, object);
    status["hosts"] = json!(view.hosts_at(&object.id.name));
    status
}

/// A Host that was made speaks for its source of the same name, one that a person wrote for itself.
fn host_of<'v, 'a>(view: &'v View<'a>, object: &Object) -> Option<&'v HostView<'a>> {
    if !object.item.made {
        return view.host(&object.id);
    }
    ["BareMetalHost", "NMStateConfig"].into_iter().find_map(|kind| {
        let id = kiln_core::diagnostic::ObjectId { kind: kind.into(), ..object.id.clone() };
        view.host(&id)
    })
}

/// Whether its pool has it in service. Of a pool that says no number there is nothing to say, unless something was said.
fn in_service(out: Option<&OutOfService>, status: &Value) -> Option<Condition> {
    let kind = "InService";
    let said = status["conditions"].as_array().is_some_and(|known| known.iter().any(|known| known["type"] == kind));
    match out {
        Some(out) => Some(Condition::new(kind, Truth::False, out.reason, out.message.clone())),
        None => said.then(|| Condition::new(kind, Truth::True, "AsExpected", "")),
    }
}

/// Whether what is declared can work. What is only doubtful is said too, the first of it.
pub fn valid<'a>(found: impl Iterator<Item = &'a Finding> + Clone) -> Condition {
    if let Some(error) = error_text(found.clone()) {
        return Condition::new("Valid", Truth::False, "FindingsOfSeverityError", error);
    }
    let mut found = found;
    match (found.next(), found.count()) {
        (None, _) => Condition::new("Valid", Truth::True, "NoErrors", "no rule finds an error in what is declared"),
        (Some(Finding { code, message, .. }), more) => {
            let more = if more == 0 { String::new() } else { format!(" (and {more} more)") };
            Condition::new("Valid", Truth::True, "WarningsOnly", format!("{code}: {message}{more}"))
        }
    }
}

fn ready(furthest: Option<Stage>, reason: &kiln_core::timeline::Why) -> Condition {
    match (furthest, reason.missing) {
        (Some(Stage::Ready), _) | (_, None) => Condition::new("Ready", Truth::True, "NodeReady", "its Node is ready"),
        (_, Some(missing)) => {
            let message = format!("waits for {missing}: {}; {}", reason.cause, reason.step);
            Condition::new("Ready", Truth::False, "StageMissing", message)
        }
    }
}

/// Findings as they stand in a status.
fn findings(found: &[&Finding]) -> Value {
    found
        .iter()
        .map(|finding| {
            let severity = match finding.severity {
                Severity::Error => "Error",
                Severity::Warning => "Warning",
                Severity::Note => "Note",
            };
            let mut value = json!({"code": finding.code, "severity": severity, "message": finding.message});
            for (key, text) in [("field", &finding.field), ("cause", &finding.cause), ("help", &finding.fix)] {
                if let Some(text) = text {
                    value[key] = json!(text);
                }
            }
            value
        })
        .collect()
}
