//! Captures: questions to the network of a node, answered by nmstate's own policy engine.
//!
//! What was captured once is kept by the caller and used again: a policy that put the default gateway's NIC into a bridge
//! must still mean that NIC when the gateway has moved to the bridge. For the same reason the difference to the running
//! network, which nmstate would make of a policy with captures, is not taken here: a composition says what shall be.
//!
//! Without the feature `captures` every capture is refused, because nmstate ships its engine with its way to the kernel only.

use serde_json::Value;

use super::template::{self, Part};
use super::{NetworkPolicy, PolicyError};

/// What the captures of a policy find on a node: what is kept, else what `current` says.
pub(super) fn capture(
    policy: &NetworkPolicy,
    current: Option<&Value>,
    kept: Option<&Value>,
) -> Result<Value, PolicyError> {
    let complete = |kept: &&Value| {
        kept.as_object().is_some_and(|kept| {
            kept.len() == policy.captures.len() && policy.captures.keys().all(|name| kept.contains_key(name))
        })
    };
    if let Some(kept) = kept.filter(complete) {
        return Ok(kept.clone());
    }
    for (name, expression) in &policy.captures {
        refuse_odd(expression).map_err(|why| PolicyError::Capture(format!("{name}: {why}")))?;
    }
    let Some(current) = current else { return Err(PolicyError::WaitsForState("`capture`".into())) };
    execute(policy, current)
}

/// nmstate's parser counts characters where it has bytes, and takes a property of a capture for granted.
fn refuse_odd(expression: &str) -> Result<(), String> {
    if !expression.is_ascii() {
        return Err("an expression is made of ASCII characters".to_owned());
    }
    let words = expression.split(|letter: char| " =!|\":\t\n\r".contains(letter));
    for word in words.filter(|word| word.starts_with("capture.")) {
        let segments: Vec<&str> = word.split('.').collect();
        if segments.len() == 3 || segments.iter().any(|segment| segment.is_empty()) {
            return Err(format!(
                "`{word}` must be capture.NAME or capture.NAME.interfaces.…, .routes.… or .route-rules.…"
            ));
        }
    }
    Ok(())
}

#[cfg(feature = "captures")]
fn execute(policy: &NetworkPolicy, current: &Value) -> Result<Value, PolicyError> {
    let rules: serde_json::Map<String, Value> =
        policy.captures.iter().map(|(name, expression)| (name.clone(), expression.as_str().into())).collect();
    let rules: nmstate::NetworkCaptureRules =
        serde_json::from_value(rules.into()).map_err(|error| PolicyError::Capture(one_line(&error.to_string())))?;
    let current: nmstate::NetworkState = serde_json::from_value(current.clone())
        .map_err(|error| PolicyError::Capture(format!("the state of the node cannot be read: {error}")))?;
    let found = rules.execute(&current).map_err(|error| PolicyError::Capture(one_line(error.msg())))?;
    let mut captured = serde_json::Map::new();
    for name in policy.captures.keys() {
        let state = found.get(name).map(serde_json::to_value).transpose();
        let state = state.map_err(|error| PolicyError::Capture(format!("{name}: {error}")))?;
        captured.insert(name.clone(), state.unwrap_or_default());
    }
    Ok(captured.into())
}

#[cfg(not(feature = "captures"))]
fn execute(_: &NetworkPolicy, _: &Value) -> Result<Value, PolicyError> {
    Err(PolicyError::WithoutCaptures)
}

/// nmstate draws an arrow below the expression; a condition has one line.
#[cfg(feature = "captures")]
fn one_line(message: &str) -> String {
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Fills `{{ capture.NAME.… }}` in.
pub(super) fn fill(desired: &Value, captured: &Value) -> Result<Value, PolicyError> {
    template::fill(desired, &|part, at| match part {
        Part::Capture(path) => look_up(captured, path).map(Some).ok_or_else(|| PolicyError::Template {
            at: at.to_owned(),
            why: format!("no capture found `{path}` on this node"),
        }),
        _ => Ok(None),
    })
}

/// `NAME.interfaces.0.name`, where a number counts the entries of a list.
fn look_up(captured: &Value, path: &str) -> Option<Value> {
    let mut found = captured;
    for segment in path.split('.') {
        found = match found {
            Value::Object(entries) => entries.get(segment)?,
            Value::Array(items) => items.get(segment.parse::<usize>().ok()?)?,
            _ => return None,
        };
    }
    Some(found.clone())
}
