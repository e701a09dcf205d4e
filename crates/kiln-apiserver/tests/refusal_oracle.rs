//! Wrong objects, one after the other, to the embedded server and to a real one: both refuse the same with the same words.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::field_reassign_with_default,
    reason = "a test fails loudly and says what it skips"
)]

#[path = "support/api.rs"]
mod api;
#[path = "support/real.rs"]
mod real;

use api::{Api, DEFINITIONS};
use real::Real;
use serde_json::{Value, json};

const THINGS: &str = "/apis/refusals.example.org/v1/namespaces/default/things";

fn rules(rules: &[Value]) -> Value {
    rules.iter().map(|rule| if rule.is_string() { json!({"rule": rule}) } else { rule.clone() }).collect()
}

fn definition() -> Value {
    let spec = json!({"type": "object", "required": ["clusterName"],
        "x-kubernetes-validations": rules(&[
            json!({"rule": "!has(self.replicas) || !has(self.auto)", "message": "Both should not be set"}),
            json!({"rule": "!has(oldSelf.arch) || has(self.arch)", "message": "arch stays"}),
            json!({"rule": "!has(self.platform) || self.platform != 'X'", "message": "no X", "fieldPath": ".platform",
                "reason": "FieldValueForbidden"}),
            json!({"rule": "!has(self.platform) || self.platform != 'Y'", "messageExpression": "'no ' + self.platform",
                "reason": "FieldValueRequired"}),
            json!("!has(self.boom) || 1 / (self.boom - self.boom) == 1"),
            json!("!has(self.boom) || self.m['nokey'] == 'a'")]),
        "properties": {
            "clusterName": {"type": "string", "x-kubernetes-validations": rules(&[json!({"rule": "self == oldSelf", "message": "immutable"})])},
            "replicas": {"type": "integer", "minimum": 1, "x-kubernetes-validations": rules(&[json!("self < 10")])},
            "auto": {"type": "object", "properties": {"min": {"type": "integer"}, "max": {"type": "integer"}},
                "x-kubernetes-validations": rules(&[json!("self.min <= self.max")])},
            "arch": {"type": "string", "enum": ["a", "b"]}, "platform": {"type": "string", "maxLength": 3}, "boom": {"type": "integer"},
            "m": {"type": "object", "additionalProperties": {"type": "string", "x-kubernetes-validations": rules(&[json!("self.size() < 3")])}},
            "list": {"type": "array", "maxItems": 3, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "v": {"type": "string", "pattern": "^[a-z]*$"}},
                    "x-kubernetes-validations": rules(&[json!({"rule": "!has(oldSelf.v) || self.v == oldSelf.v", "message": "v fixed"})])}},
            "set": {"type": "array", "maxItems": 5, "items": {"type": "string"}, "x-kubernetes-list-type": "set",
                "x-kubernetes-validations": rules(&[json!("self.all(x, x.size() > 0)")])},
            "one": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
            "any": {"type": "integer", "anyOf": [{"minimum": 5}, {"maximum": 2}]},
            "not": {"type": "string", "not": {"enum": ["bad"]}}, "either": {"x-kubernetes-int-or-string": true},
            "number": {"type": "number", "multipleOf": 2}, "small": {"type": "integer", "format": "int32"},
            "when": {"type": "string", "format": "date-time"}, "long": {"type": "string", "minLength": 2},
            "many": {"type": "array", "minItems": 2, "items": {"type": "string"}},
            "few": {"type": "object", "minProperties": 1, "maxProperties": 1, "additionalProperties": {"type": "string"}}}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.refusals.example.org"},
        "spec": {"group": "refusals.example.org", "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing", "singular": "thing", "listKind": "ThingList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}}]}})
}

/// What is added to a specification that is right.
fn wrong_specs() -> Vec<Value> {
    vec![
        json!({"clusterName": null}),
        json!({"clusterName": 1}),
        json!({"replicas": 3, "auto": {"min": 1, "max": 2}}),
        json!({"replicas": 20}),
        json!({"replicas": 0}),
        json!({"replicas": "x"}),
        json!({"auto": {"min": 3, "max": 2}}),
        json!({"auto": {"min": 3}}),
        json!({"platform": "X"}),
        json!({"platform": "Y"}),
        json!({"platform": "LONG"}),
        json!({"boom": 1}),
        json!({"arch": "z"}),
        json!({"m": {"a": "b", "c": "ddd"}}),
        json!({"m": {"a": 1}}),
        json!({"list": [{"k": "a", "v": "A"}]}),
        json!({"list": [{"v": "a"}]}),
        json!({"list": [{"k": "a"}, {"k": "a"}]}),
        json!({"list": [{"k": "1"}, {"k": "2"}, {"k": "3"}, {"k": "4"}]}),
        json!({"set": ["a", "a"]}),
        json!({"set": ["a", ""]}),
        json!({"one": {}}),
        json!({"one": {"a": "x", "b": "y"}}),
        json!({"any": 3}),
        json!({"not": "bad"}),
        json!({"either": true}),
        json!({"either": 1.5}),
        json!({"number": 3}),
        json!({"number": "3"}),
        json!({"small": 3_000_000_000_u64}),
        json!({"when": "noon"}),
        json!({"long": "a"}),
        json!({"many": ["a"]}),
        json!({"few": {}}),
        json!({"few": {"a": "b", "c": "d"}}),
        json!({"unknown": 1}),
        json!({"replicas": null}),
        json!({"list": null}),
        json!({"platform": ["a"]}),
        json!({"list": {"a": 1}}),
    ]
}

fn thing(name: &str, extra: &Value) -> Value {
    let mut spec = json!({"clusterName": "c"});
    for (key, value) in extra.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    json!({"apiVersion": "refusals.example.org/v1", "kind": "Thing", "metadata": {"name": name}, "spec": spec})
}

fn comparable((code, answer): (u16, Value)) -> Value {
    if code < 300 {
        return json!({"code": code});
    }
    let mut causes = answer["details"]["causes"].as_array().cloned().unwrap_or_default();
    causes.sort_by_key(Value::to_string);
    json!({"code": code, "reason": answer["reason"], "causes": causes.iter().map(|cause| json!([cause["field"], cause["reason"], cause["message"]])).collect::<Value>()})
}

#[tokio::test]
async fn a_real_server_refuses_the_same_with_the_same_words() {
    let Some(real) = Real::find("a_real_server_refuses_the_same_with_the_same_words") else { return };
    let api = Api::start("refusals").await;
    api.call("POST", DEFINITIONS, definition()).await;
    real.define(&definition(), THINGS).await;
    let (mut count, mut differences) = (0, Vec::new());
    let mut compare = |what: &Value, ours: (u16, Value), theirs: (u16, Value)| {
        count += 1;
        let (ours, theirs) = (comparable(ours), comparable(theirs));
        if ours != theirs {
            differences.push(format!("{what}\n  ours {ours}\n  real {theirs}"));
        }
    };
    for (index, extra) in wrong_specs().iter().enumerate() {
        let name = format!("t{index}");
        let body = thing(&name, extra);
        let path = format!("{THINGS}/{name}");
        real.call("DELETE", &path, "application/json", &Value::Null).await;
        let ours = api.call("POST", THINGS, body.clone()).await;
        compare(extra, ours, real.call("POST", THINGS, "application/json", &body).await);
    }
    let path = format!("{THINGS}/u");
    let start = thing("u", &json!({"arch": "a", "list": [{"k": "a", "v": "x"}, {"k": "b"}]}));
    real.call("DELETE", &path, "application/json", &Value::Null).await;
    real.call("POST", THINGS, "application/json", &start).await;
    api.call("POST", THINGS, start).await;
    for change in [
        json!({"clusterName": "d"}),
        json!({"arch": null}),
        json!({"list": [{"k": "b", "v": "q"}, {"k": "a", "v": "y"}]}),
        json!({"clusterName": null}),
        json!({"platform": "X", "arch": "q"}),
        json!({"list": [{"k": "b", "v": "q"}, {"k": "a", "v": "x"}]}),
    ] {
        let patch = json!({"spec": change});
        let ours = api.call("PATCH", &path, patch.clone()).await;
        compare(&change, ours, real.call("PATCH", &path, "application/merge-patch+json", &patch).await);
    }
    println!("{count} requests compared, {} differences", differences.len());
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
