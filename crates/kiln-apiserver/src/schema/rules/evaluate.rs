//! Rules against an object and what it was before.

use kube_cel::cel::Value as CelValue;
use serde_json::Value;

use super::super::{Additional, Schema, Type, same};
use super::values::{Budget, Failure, cel_value, evaluate, optional};
use super::{Compiled, Rule, Verdict};
use crate::error::Cause;

/// Turns of loops all rules of one object may take together, when it is small.
const BUDGET: u64 = 1_000_000;
/// Bytes of an object for which one turn counts double.
const BYTES_PER_TURN: usize = 64 << 10;
/// The real server's bound for the result of a `messageExpression`.
const LONGEST_MESSAGE: usize = 5 << 10;

impl Schema {
    /// What the rules say about the object. Rules about a change run only where there is something to compare with.
    pub fn check_rules(&self, object: &Value, before: Option<&Value>) -> Verdict {
        let mut walk = Walk { left: BUDGET, verdict: Verdict::default() };
        if self.has_rules() {
            let pair = before.map(|before| (object, before));
            walk.node(At { rules: self, schema: self, is_resource: true }, object, before, Unchanged::of(pair), "");
        }
        walk.verdict
    }
}

#[derive(Clone, Copy)]
struct At<'a> {
    /// Whose rules.
    rules: &'a Schema,
    /// How the value is typed: another node only below `allOf`.
    schema: &'a Schema,
    is_resource: bool,
}

/// Whether a part is what it was: then it may stay wrong.
#[derive(Clone, Copy, Default)]
struct Unchanged<'a> {
    pair: Option<(&'a Value, &'a Value)>,
    parent: Option<(&'a Value, &'a Value)>,
}

impl<'a> Unchanged<'a> {
    fn of(pair: Option<(&'a Value, &'a Value)>) -> Unchanged<'a> {
        Unchanged { pair, parent: None }
    }

    fn holds(&self) -> bool {
        self.pair.or(self.parent).is_some_and(|(new, old)| same(new, old))
    }

    fn below(self, pair: Option<(&'a Value, &'a Value)>) -> Unchanged<'a> {
        if self.pair.is_none() { self } else { Unchanged { pair, parent: self.pair } }
    }
}

struct Walk {
    left: u64,
    verdict: Verdict,
}

impl Walk {
    fn node<'a>(
        &mut self,
        at: At<'a>,
        value: &'a Value,
        before: Option<&'a Value>,
        unchanged: Unchanged<'a>,
        path: &str,
    ) {
        // Rules look at values that are there; whether they may be missing is for the rules above to say.
        if value.is_null() || self.left == 0 || !at.rules.has_rules() {
            return;
        }
        let before = before.filter(|before| !before.is_null());
        if !at.rules.rules.is_empty() {
            self.rules(at, value, before, unchanged, path);
        }
        for rules in &at.rules.checks.all_of {
            let unchanged = Unchanged { pair: None, parent: unchanged.parent };
            self.node(At { rules, ..at }, value, before, unchanged, path);
        }
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    let before = before.and_then(|before| before.get(name));
                    let child = if let Some(rules) = at.rules.properties.get(name) {
                        let dot = if path.is_empty() { "" } else { "." };
                        Some((rules, format!("{path}{dot}{name}")))
                    } else if let Additional::Each(rules) = &at.rules.additional {
                        Some((&**rules, format!("{path}[{name}]")))
                    } else {
                        None
                    };
                    let Some((rules, path)) = child else { continue };
                    let schema = at.schema.property(name).unwrap_or(rules);
                    let is_type = path == "apiVersion" || path == "kind";
                    let below =
                        if is_type { Unchanged::default() } else { unchanged.below(before.map(|old| (value, old))) };
                    self.node(At { rules, schema, is_resource: schema.embedded }, value, before, below, &path);
                }
            }
            Value::Array(items) => {
                let Some(rules) = at.rules.items() else { return };
                let schema = at.schema.items().unwrap_or(rules);
                let old = before.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
                for (index, item) in items.iter().enumerate() {
                    let before = at.schema.list.counterpart(item, old);
                    let below = unchanged.below(before.map(|old| (item, old)));
                    let path = format!("{path}[{index}]");
                    self.node(At { rules, schema, is_resource: schema.embedded }, item, before, below, &path);
                }
            }
            _ => {}
        }
    }

    fn rules(&mut self, at: At<'_>, value: &Value, before: Option<&Value>, unchanged: Unchanged<'_>, path: &str) {
        let own = cel_value(at.schema, value, at.is_resource);
        let price = 1 + (value.to_string().len() / BYTES_PER_TURN) as u64;
        let old = before.map(|before| cel_value(at.schema, before, at.is_resource));
        let maybe_old = optional(old.clone());
        for rule in &at.rules.rules {
            let Some(compiled) = &rule.compiled else { continue };
            if compiled.uses_old && old.is_none() && !rule.takes_optional_old() {
                continue;
            }
            let mut variables: Vec<(&str, &CelValue)> = vec![("self", &own)];
            let mut plain = variables.clone();
            plain.extend(old.as_ref().map(|old| ("oldSelf", old)));
            if rule.takes_optional_old() {
                variables.push(("oldSelf", &maybe_old));
            } else {
                variables.clone_from(&plain);
            }
            let (result, rest) = evaluate(&compiled.rule, &variables, Budget { left: self.left, price });
            self.left = rest.left;
            match result {
                Ok(CelValue::Bool(true)) => {}
                Ok(_) => {
                    let message = self.message(rule, compiled, &plain, price);
                    let cause = refusal(rule, compiled, at.schema, value, path, &message);
                    if !compiled.uses_old && unchanged.holds() {
                        self.verdict.warnings.push(format!("{}: {}", cause.field, cause.message));
                    } else {
                        self.verdict.causes.push(cause);
                    }
                }
                Err(Failure::Exhausted) => {
                    let why = "validation failed due to running out of cost budget, no further validation rules will \
                               be run";
                    self.verdict.causes.push(unevaluated(at.schema, path, why));
                    return;
                }
                Err(Failure::NoOverload) => {
                    let why = format!(
                        "'no such overload': call arguments did not match a supported operator, function or macro \
                         signature for rule: {}",
                        rule.name()
                    );
                    self.verdict.causes.push(unevaluated(at.schema, path, &why));
                }
                Err(Failure::Said(what)) => {
                    let why = format!("{what} evaluating rule: {}", rule.name());
                    self.verdict.causes.push(unevaluated(at.schema, path, &why));
                }
            }
        }
    }

    /// What the refusal says: the computed message when there is one, else the fixed one, else the rule.
    fn message(&mut self, rule: &Rule, compiled: &Compiled, variables: &[(&str, &CelValue)], price: u64) -> String {
        if let Some(expression) = &compiled.message {
            let (result, rest) = evaluate(expression, variables, Budget { left: self.left, price });
            self.left = rest.left.max(1);
            if let Ok(CelValue::String(text)) = result {
                let text = text.trim();
                if !text.is_empty() && text.len() <= LONGEST_MESSAGE && !text.contains('\n') {
                    return text.to_owned();
                }
            }
        }
        match rule.message.trim() {
            "" => format!("failed rule: {}", rule.text.trim()),
            message => message.to_owned(),
        }
    }
}

fn refusal(rule: &Rule, compiled: &Compiled, schema: &Schema, value: &Value, path: &str, message: &str) -> Cause {
    let field = match (path, compiled.at.as_str()) {
        ("", "") => "<nil>".to_owned(),
        ("", below) => below.to_owned(),
        (here, "") => here.to_owned(),
        (here, below) => format!("{here}.{below}"),
    };
    let whole = matches!(schema.kind, Some(Type::Object | Type::Array));
    match rule.reason.as_deref() {
        Some("FieldValueForbidden") => Cause::forbidden(field, message),
        Some("FieldValueRequired") => Cause::required(field, message),
        Some("FieldValueDuplicate") => {
            let value = if whole { String::new() } else { format!(": {value}") };
            Cause { reason: "FieldValueDuplicate", message: format!("Duplicate value{value}"), field }
        }
        _ if whole => Cause { reason: "FieldValueInvalid", message: format!("Invalid value: {message}"), field },
        _ => Cause::invalid(field, value, message),
    }
}

fn unevaluated(schema: &Schema, path: &str, why: &str) -> Cause {
    let kind = match schema.kind {
        Some(Type::Object) => "object",
        Some(Type::Array) => "array",
        Some(Type::String) => "string",
        Some(Type::Integer) => "integer",
        Some(Type::Number) => "number",
        Some(Type::Boolean) => "boolean",
        None => "",
    };
    Cause::invalid(if path.is_empty() { "<nil>" } else { path }, &kind.into(), why)
}
