//! Any request: paths, queries, selectors, JSONPaths, protobuf bodies and patches are read or refused, and what is
//! rendered is read back the same.
#![no_main]

use kiln_apiserver::json_path::JsonPath;
use kiln_apiserver::patch::{apply_json_patch, apply_merge_patch, apply_strategic_patch};
use kiln_apiserver::request::{Query, parse_accept, parse_path};
use kiln_apiserver::schema::Schema;
use kiln_apiserver::selector::{FieldSelector, LabelSelector};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = kiln_apiserver::protobuf::decode(bytes);
    let object = serde_json::json!({"metadata": {"finalizers": ["a"]}, "status": {"conditions": [{"type": "A"}]}});
    let _ = apply_json_patch(&object, bytes);
    if let Ok(value) = serde_json::from_slice::<serde_json::Value>(bytes) {
        if let Ok(once) = apply_merge_patch(&object, &value) {
            assert_eq!(apply_merge_patch(&once, &value), Ok(once));
        }
        let _ = apply_strategic_patch(&object, &value);
        if let Ok(schema) = Schema::parse(&value) {
            let mut pruned = object.clone();
            schema.prune(&mut pruned);
            assert!(schema.prune(&mut pruned).is_empty());
            let _ = schema.validate(&object, None);
        }
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let _ = parse_path(text);
    let _ = parse_accept(text);
    let _ = Query::parse(text);
    let _ = JsonPath::parse(text);
    let _ = FieldSelector::parse(text);
    if let Ok(selector) = LabelSelector::parse(text) {
        assert_eq!(LabelSelector::parse(&selector.to_string()), Ok(selector));
    }
});
