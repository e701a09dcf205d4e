//! Any bytes as the base config of a pool: they are refused with a reason, or become payloads that are read back, and overlays with
//! no path of theirs in the bare one.
#![no_main]

use std::collections::{BTreeMap, HashSet};

use kiln_core::payload::overlay::{HostParts, render_overlay};
use kiln_core::payload::{Base, pack, render_part, render_pool};
use kiln_core::world::FirstBootNetwork;
use serde_json::Value;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let part = render_part("pool", &[], &[]);
    let Ok(pool) = render_pool(Some(Base { what: "base", bytes }), &part) else { return };
    let again = render_pool(Some(Base { what: "base", bytes }), &part);
    assert_eq!(Ok(&pool), again.as_ref(), "the same inputs gave something else");
    let _ = pack(&pool.whole);
    let labels = BTreeMap::from([("zone".to_owned(), "a".to_owned())]);
    let network = FirstBootNetwork::Composed;
    let host =
        HostParts { node: "w0", profiles: &[], nics: &[], labels: &labels, taints: &[], ignition: None, network };
    let Some(overlay) = render_overlay(&pool, "payload", &host) else { return };
    let bare: Value = serde_json::from_str(&pool.bare.text).expect("a payload is JSON");
    let own: Value = serde_json::from_str(&overlay.files).expect("an overlay is JSON");
    let mut seen = HashSet::new();
    for file in [&bare["storage"]["files"], &own].into_iter().filter_map(Value::as_array).flatten() {
        assert!(seen.insert(file["path"].to_string()), "{} is there twice", file["path"]);
    }
});
