//! Schemas against objects, message by message.

use serde_json::{Value, json};

use super::Schema;

fn widget() -> Schema {
    Schema::parse(&json!({
        "type": "object",
        "required": ["spec"],
        "properties": {
            "spec": {
                "type": "object",
                "required": ["size"],
                "properties": {
                    "size": {"type": "integer", "format": "int32", "minimum": 0},
                    "mode": {"type": "string", "enum": ["fast", "slow"], "default": "slow"},
                    "note": {"type": "string", "nullable": true, "maxLength": 5, "pattern": "^[a-z]*$"},
                    "when": {"type": "string", "format": "date-time"},
                    "port": {"x-kubernetes-int-or-string": true},
                    "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
                    "ports": {
                        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                        "items": {"type": "object", "required": ["name"], "properties": {
                            "name": {"type": "string"}, "up": {"type": "boolean", "default": true}}},
                    },
                    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                    "words": {"type": "object", "additionalProperties": {"type": "string"}},
                    "either": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                        "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
                },
            },
        },
    }))
    .unwrap()
}

fn messages(spec: Value) -> Vec<String> {
    let causes = widget().validate(&json!({"metadata": {"name": 7}, "spec": spec}), None);
    causes.into_iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect()
}

#[test]
fn mistakes_are_told_in_the_words_of_the_real_server() {
    for (spec, expected) in [
        (json!({"size": 1, "mode": "fast", "note": null, "port": "http", "words": {"a": "b"}}), vec![]),
        (json!({"size": 1.0}), vec![]),
        (json!({}), vec!["spec.size: Required value"]),
        (
            json!({"size": -1, "mode": "warp"}),
            vec![
                "spec.size: Invalid value: -1: spec.size in body should be greater than or equal to 0",
                "spec.mode: Unsupported value: \"warp\": supported values: \"fast\", \"slow\"",
            ],
        ),
        (
            json!({"size": "big"}),
            vec!["spec.size: Invalid value: \"string\": spec.size in body must be of type integer: \"string\""],
        ),
        (
            json!({"size": 1, "port": null}),
            vec!["spec.port: Invalid value: \"null\": spec.port in body must be of type integer,string: \"null\""],
        ),
        (
            json!({"size": 1, "note": "TOOLONG"}),
            vec![
                "spec.note: Too long: may not be more than 5 bytes",
                "spec.note: Invalid value: \"TOOLONG\": spec.note in body should match '^[a-z]*$'",
            ],
        ),
        (
            json!({"size": 1, "when": "noon"}),
            vec!["spec.when: Invalid value: \"noon\": spec.when in body must be of type date-time: \"noon\""],
        ),
        (json!({"size": 1, "tags": ["a", "a"]}), vec!["spec.tags[1]: Duplicate value: \"a\""]),
        (
            json!({"size": 1, "ports": [{"name": "a"}, {"name": "a"}]}),
            vec!["spec.ports[1]: Duplicate value: {\"name\":\"a\"}"],
        ),
        (
            json!({"size": 1, "words": {"a": 1}}),
            vec!["spec.words.a: Invalid value: \"integer\": spec.words.a in body must be of type string: \"integer\""],
        ),
        (
            json!({"size": 1, "either": {"a": "x", "b": "y"}}),
            vec![
                "<nil>: Invalid value: \"\": \"spec.either\" must validate one and only one schema (oneOf). Found 2 valid \
                 alternatives",
            ],
        ),
        (
            json!({"size": 5_000_000_000_i64}),
            vec!["<nil>: Invalid value: \"\": Checked value must be of type integer with format int32 in spec.size"],
        ),
    ] {
        assert_eq!(messages(spec.clone()), expected, "{spec}");
    }
}

#[test]
fn unknown_fields_are_removed_and_named() {
    let mut object = json!({
        "apiVersion": "v1", "kind": "Widget", "metadata": {"name": "a", "odd": 1}, "extra": 1,
        "spec": {"size": 1, "typo": 2, "free": {"a": 1}, "words": {"k": "v"}, "ports": [{"name": "p", "oops": 1}]},
    });
    assert_eq!(widget().prune(&mut object), ["extra", "spec.typo", "spec.ports[0].oops"]);
    assert_eq!(object["spec"], json!({"size": 1, "free": {"a": 1}, "words": {"k": "v"}, "ports": [{"name": "p"}]}));
}

#[test]
fn defaults_fill_in_what_was_left_out() {
    let mut object = json!({"spec": {"size": 1, "mode": null, "note": null, "ports": [{"name": "p"}]}});
    widget().default_fields(&mut object);
    assert_eq!(
        object,
        json!({"spec": {"size": 1, "mode": "slow", "note": null, "ports": [{"name": "p", "up": true}]}})
    );
}

#[test]
fn schemas_that_cannot_work_are_refused_with_their_place() {
    for (schema, reason) in [
        (json!([]), "openAPIV3Schema: must be an object"),
        (json!({"type": "objekt"}), "openAPIV3Schema.type: \"objekt\" is not a type"),
        (json!({"properties": {"a": 1}}), "openAPIV3Schema.properties[a]: must be an object"),
    ] {
        assert_eq!(Schema::parse(&schema).unwrap_err(), reason);
    }
    let deep = (0..200).fold(json!({}), |inner, _| json!({"items": inner}));
    assert!(Schema::parse(&deep).unwrap_err().ends_with("nested more than 100 deep"));
}
