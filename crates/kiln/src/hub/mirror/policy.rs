//! NodeNetworkConfigurationPolicy in the words of kubernetes-nmstate.
//!
//! No node is changed by this hub yet, so Available and Progressing are unknown; an error in the policy is Degraded.

use serde_json::{Value, json};

use super::condition::{Condition, Truth, render_conditions};
use super::{Object, View};

/// Conditions of a policy.
pub fn status(view: &View, object: &Object) -> Value {
    let what = "nodes are changed by the agents on them";
    let degraded = match view.error(&object.id) {
        Some(error) => Condition::new("Degraded", Truth::True, "FailedToConfigure", error),
        None => Condition::not_driven("Degraded", what),
    };
    let all = [Condition::not_driven("Available", what), Condition::not_driven("Progressing", what), degraded];
    json!({"conditions": render_conditions(&object.status["conditions"], &all, view.now, &Value::Null)})
}
