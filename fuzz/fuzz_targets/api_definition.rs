//! Any CustomResourceDefinition with any object of it, and any object of the built-in kinds: a JSON array of the two.
#![no_main]

use serde_json::Value;

#[path = "../../crates/kiln-apiserver/tests/support/invariants.rs"]
mod invariants;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(Value::Array(mut pair)) = serde_json::from_slice::<Value>(bytes) else { return };
    let Some(object) = pair.pop() else { return };
    invariants::check_builtin(&object);
    if let Some(definition) = pair.pop() {
        invariants::check_definition(definition, &object);
    }
});
