//! CEL rules (`x-kubernetes-validations`): what a schema cannot say with types, above all that a field may not change.
//!
//! [`compile_rules`](Schema::compile_rules) runs once, when the definition is applied, and refuses a rule it cannot
//! evaluate; [`check_rules`](Schema::check_rules) runs on every write. Both are pure, and the second is bounded: loops
//! are counted, not timed, so that the same object is judged the same on a busy machine.
//!
//! The parser and the functions are those of `kube-cel`; walking object and old object together, optional values and
//! the bound are here, because there they follow list indexes instead of list keys and have no bound.

use serde_json::Value;

use super::Schema;

mod compile;
mod evaluate;
mod values;

/// One rule as the definition has it, and compiled.
#[derive(Debug, Clone, Default)]
pub(super) struct Rule {
    text: String,
    message: String,
    message_text: String,
    reason: Option<String>,
    field_path: String,
    optional_old: Option<bool>,
    compiled: Option<Compiled>,
}

#[derive(Debug, Clone)]
struct Compiled {
    rule: values::Expression,
    message: Option<values::Expression>,
    uses_old: bool,
    /// Which field the refusal names, below the one the rule stands at.
    at: String,
}

/// What the rules say about an object.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Why it is refused.
    pub causes: Vec<crate::error::Cause>,
    /// What is wrong but was so before, in a part that did not change.
    pub warnings: Vec<String>,
}

impl Rule {
    pub(super) fn read(value: &Value) -> Rule {
        let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
        Rule {
            text: text("rule"),
            message: text("message"),
            message_text: text("messageExpression"),
            reason: value["reason"].as_str().map(str::to_owned),
            field_path: text("fieldPath"),
            optional_old: value["optionalOldSelf"].as_bool(),
            compiled: None,
        }
    }

    /// How messages call the rule.
    fn name(&self) -> &str {
        let message = self.message.trim();
        if message.is_empty() { self.text.trim() } else { message }
    }

    fn takes_optional_old(&self) -> bool {
        self.optional_old == Some(true)
    }
}

impl Schema {
    /// Whether a rule is here or below.
    pub fn has_rules(&self) -> bool {
        !self.rules.is_empty() || self.rules_below
    }
}

#[cfg(test)]
mod tests;
