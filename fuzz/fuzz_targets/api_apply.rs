//! Stories of writes by several managers: nothing panics, what is stored stays itself, and who applies twice changes
//! nothing.
#![no_main]

use serde_json::Value;

#[path = "../../crates/kiln-apiserver/tests/support/invariants.rs"]
mod invariants;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(Value::Array(steps)) = serde_json::from_slice(bytes) {
        invariants::check_story(&steps);
    }
});
