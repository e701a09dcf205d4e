//! Rules against objects, message by message.

use serde_json::{Value, json};

use super::super::Schema;

/// The shape of a NodePool: fields that may not change, fields that may not go, choices that exclude each other.
fn pool() -> Value {
    json!({
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "x-kubernetes-validations": [
                    {"rule": "!has(oldSelf.arch) || has(self.arch)", "message": "Arch is required once set"},
                    {"rule": "self.arch != 'arm64' || has(self.platform.aws)",
                     "messageExpression": "'arm64 is not for ' + self.platform.type", "fieldPath": ".platform.type",
                     "reason": "FieldValueForbidden"},
                    {"rule": "!(has(self.replicas) && has(self.autoScaling))", "message": "only one of replicas or autoScaling"},
                ],
                "properties": {
                    "clusterName": {"type": "string", "x-kubernetes-validations": [
                        {"rule": "self == oldSelf", "message": "ClusterName is immutable"}]},
                    "arch": {"type": "string", "default": "amd64"},
                    "replicas": {"type": "integer", "x-kubernetes-validations": [{"rule": "self >= 0"}]},
                    "autoScaling": {"type": "object", "properties": {"min": {"type": "integer"}, "max": {"type": "integer"}},
                        "x-kubernetes-validations": [{"rule": "self.max >= self.min", "message": "max must be at least min"}]},
                    "platform": {"type": "object", "properties": {
                        "type": {"type": "string"},
                        "aws": {"type": "object", "properties": {"x-y": {"type": "string"}},
                            "x-kubernetes-validations": [{"rule": "!has(self.x__dash__y) || self.x__dash__y.matches('^[a-z]+$')"}]}}},
                    "taints": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["key"],
                        "items": {"type": "object", "properties": {"key": {"type": "string"}, "value": {"type": "string"}},
                            "x-kubernetes-validations": [{"rule": "self.value == oldSelf.value", "message": "a taint's value is fixed"}]}},
                    "labels": {"type": "object", "additionalProperties": {"type": "string",
                        "x-kubernetes-validations": [{"rule": "self.size() < 4", "message": "too long a label"}]}},
                    "release": {"type": "string", "x-kubernetes-validations": [
                        {"rule": "oldSelf.hasValue() ? self != '' : self.startsWith('4.')", "optionalOldSelf": true,
                         "message": "a first release begins with 4."}]},
                },
            },
        },
    })
}

fn compiled(schema: &Value) -> Schema {
    let mut schema = Schema::parse(schema).unwrap();
    let causes = schema.compile_rules("schema");
    assert!(causes.is_empty(), "{causes:?}");
    schema
}

fn told(schema: &Schema, object: &Value, before: Option<&Value>) -> Vec<String> {
    let causes = schema.check_rules(object, before).causes;
    causes.into_iter().map(|cause| format!("{} {}: {}", cause.reason, cause.field, cause.message)).collect()
}

fn spec(spec: Value) -> Value {
    json!({"apiVersion": "x/v1", "kind": "Pool", "metadata": {"name": "p"}, "spec": spec})
}

#[test]
fn rules_about_a_change_hold_only_for_changes() {
    let schema = compiled(&pool());
    let before = spec(json!({"clusterName": "a", "arch": "amd64"}));
    assert_eq!(told(&schema, &before, None), Vec::<String>::new());
    assert_eq!(told(&schema, &before, Some(&before)), Vec::<String>::new());
    assert_eq!(
        told(&schema, &spec(json!({"clusterName": "b", "arch": "amd64"})), Some(&before)),
        ["FieldValueInvalid spec.clusterName: Invalid value: \"b\": ClusterName is immutable"]
    );
    assert_eq!(
        told(&schema, &spec(json!({"clusterName": "a", "platform": {"type": "None"}})), Some(&before)),
        [
            "FieldValueInvalid spec: Invalid value: Arch is required once set",
            "FieldValueInvalid spec: Invalid value: \"object\": no such key: arch evaluating rule: self.arch != 'arm64' || \
             has(self.platform.aws)"
        ]
    );
}

#[test]
fn refusals_name_the_field_the_reason_and_the_computed_message() {
    let schema = compiled(&pool());
    for (given, expected) in [
        (
            json!({"arch": "arm64", "platform": {"type": "KubeVirt"}}),
            vec!["FieldValueForbidden spec.platform.type: Forbidden: arm64 is not for KubeVirt"],
        ),
        (
            json!({"arch": "a", "replicas": -1, "autoScaling": {"min": 2, "max": 1}}),
            vec![
                "FieldValueInvalid spec: Invalid value: only one of replicas or autoScaling",
                "FieldValueInvalid spec.replicas: Invalid value: -1: failed rule: self >= 0",
                "FieldValueInvalid spec.autoScaling: Invalid value: max must be at least min",
            ],
        ),
        (
            json!({"arch": "a", "labels": {"x": "abc", "y": "abcd"}}),
            vec!["FieldValueInvalid spec.labels[y]: Invalid value: \"abcd\": too long a label"],
        ),
        (
            json!({"arch": "a", "platform": {"aws": {"x-y": "A"}}}),
            vec![
                "FieldValueInvalid spec.platform.aws: Invalid value: failed rule: !has(self.x__dash__y) || \
                  self.x__dash__y.matches('^[a-z]+$')",
            ],
        ),
        (
            json!({"arch": "a", "release": "5"}),
            vec!["FieldValueInvalid spec.release: Invalid value: \"5\": a first release begins with 4."],
        ),
    ] {
        assert_eq!(told(&schema, &spec(given), None), expected);
    }
    let before = spec(json!({"arch": "a", "release": "4.1"}));
    assert_eq!(told(&schema, &spec(json!({"arch": "a", "release": "5"})), Some(&before)), Vec::<String>::new());
}

#[test]
fn list_items_are_compared_by_their_keys() {
    let schema = compiled(&pool());
    let before = spec(json!({"arch": "a", "taints": [{"key": "a", "value": "1"}, {"key": "b", "value": "2"}]}));
    let moved = spec(
        json!({"arch": "a", "taints": [{"key": "b", "value": "2"}, {"key": "n", "value": "9"}, {"key": "a", "value": "3"}]}),
    );
    assert_eq!(
        told(&schema, &moved, Some(&before)),
        ["FieldValueInvalid spec.taints[2]: Invalid value: a taint's value is fixed"]
    );
}

#[test]
fn what_was_wrong_before_and_did_not_change_is_only_a_warning() {
    let schema = compiled(&pool());
    let before = spec(json!({"arch": "a", "replicas": -1, "labels": {"x": "long"}}));
    let after = spec(json!({"arch": "b", "replicas": -1, "labels": {"x": "long"}}));
    let verdict = schema.check_rules(&after, Some(&before));
    assert!(verdict.causes.is_empty(), "{:?}", verdict.causes);
    assert_eq!(
        verdict.warnings,
        [
            "spec.replicas: Invalid value: -1: failed rule: self >= 0",
            "spec.labels[x]: Invalid value: \"long\": too long a label"
        ]
    );
    let worse = spec(json!({"arch": "b", "replicas": -2, "labels": {"x": "long"}}));
    assert_eq!(
        told(&schema, &worse, Some(&before)),
        ["FieldValueInvalid spec.replicas: Invalid value: -2: failed rule: self >= 0"]
    );
}

#[test]
fn rules_that_cannot_be_evaluated_are_refused_with_the_definition() {
    let node = |rules: Value| json!({"type": "object", "properties": {"a": {"type": "string"}}, "x-kubernetes-validations": rules});
    for (rule, expected) in [
        (json!({"rule": "self.a =="}), "compilation failed: ERROR: <input>:1:10"),
        (json!({"rule": "self.b == ''"}), "compilation failed: undefined field 'b'"),
        (json!({"rule": "nonsense(self)"}), "compilation failed: undeclared reference to 'nonsense'"),
        (json!({"rule": "other == 1"}), "compilation failed: undeclared reference to 'other'"),
        (json!({"rule": "Some{a: 1} == 1"}), "compilation failed: undeclared reference to 'Some'"),
        (json!({"rule": "self.a == ''", "messageExpression": "x"}), "messageExpression compilation failed: undeclared"),
        (json!({"rule": "self.a == ''", "optionalOldSelf": true}), "may not be set if oldSelf is not used in rule"),
        (
            json!({"rule": "self.a == ''", "reason": "Odd"}),
            "Unsupported value: \"Odd\": supported values: \"FieldValueDuplicate\"",
        ),
        (json!({"rule": "self.a == ''", "fieldPath": ".b"}), "must be a valid path"),
        (json!({"rule": " "}), "Required value: rule is not specified"),
        (json!({"rule": "self.a ==\n''"}), "Required value: message must be specified if rule contains line breaks"),
    ] {
        let mut schema = Schema::parse(&node(json!([rule]))).unwrap();
        let causes = schema.compile_rules("schema");
        assert!(causes.len() == 1 && causes[0].message.contains(expected), "{rule}: {causes:?}");
        assert!(causes[0].field.starts_with("schema.x-kubernetes-validations[0]."), "{}", causes[0].field);
    }
    let list = json!({"type": "object", "properties": {"l": {"type": "array", "items": node(json!([{"rule": "self == oldSelf"}]))}}});
    let causes = Schema::parse(&list).unwrap().compile_rules("schema");
    assert_eq!(
        causes[0].message,
        "Invalid value: \"self == oldSelf\": oldSelf cannot be used on the uncorrelatable portion of the schema within \
         schema.properties[l]"
    );
}

#[test]
fn loops_are_counted_and_stopped() {
    let schema =
        compiled(&json!({"type": "object", "properties": {"l": {"type": "array", "items": {"type": "integer"}}},
        "x-kubernetes-validations": [
            {"rule": "self.l.all(a, self.l.all(b, self.l.all(c, a + b + c >= 0))) || true"},
            {"rule": "false"}]}));
    let small: Vec<i64> = (0..20).collect();
    assert_eq!(
        told(&schema, &json!({"l": small}), None),
        ["FieldValueInvalid <nil>: Invalid value: failed rule: false"]
    );
    let large: Vec<i64> = (0..120).collect();
    assert_eq!(
        told(&schema, &json!({"l": large}), None),
        [
            "FieldValueInvalid <nil>: Invalid value: \"object\": validation failed due to running out of cost budget, no \
             further validation rules will be run"
        ]
    );
}

#[test]
fn expressions_mean_what_they_mean_in_the_real_server() {
    let schema = |rule: &str| {
        json!({"type": "object", "x-kubernetes-validations": [{"rule": rule}], "properties": {
            "name": {"type": "string"}, "count": {"type": "integer"}, "ratio": {"type": "number"},
            "when": {"type": "string", "format": "date-time"}, "for": {"type": "string", "format": "duration"},
            "bytes": {"type": "string", "format": "byte"}, "port": {"x-kubernetes-int-or-string": true},
            "list": {"type": "array", "items": {"type": "string"}}, "map": {"type": "object", "additionalProperties": {"type": "string"}},
            "in": {"type": "string"}, "a__b": {"type": "string"},
            "deep": {"type": "object", "properties": {"er": {"type": "object", "properties": {"est": {"type": "string"}}}}},
        }})
    };
    let object = json!({
        "metadata": {"name": "n", "labels": {"a": "b"}}, "name": "abc", "count": 2, "ratio": 1, "when": "2026-01-02T03:04:05Z",
        "for": "1h30m", "bytes": "aGVsbG8=", "port": 80, "list": ["a", "b"], "map": {"x.y/z": "v", "in": "w"}, "in": "i",
        "a__b": "u", "deep": {"er": {"est": "d"}},
    });
    let mut wrong = Vec::new();
    for (rule, expected) in [
        ("self.metadata.name == 'n' && !has(self.metadata.labels)", true),
        ("self.ratio == 1.0 && self.ratio / 2.0 == 0.5", true),
        ("self.count + 1 == 3", true),
        ("self.when > timestamp('2026-01-01T00:00:00Z') && self.when.getFullYear() == 2026", true),
        ("self.__for__ >= duration('90m')", true),
        ("self.bytes == b'hello' && self.bytes.size() == 5", true),
        ("self.port == 80", true),
        ("'x.y/z' in self.map && self.map['in'] == 'w'", true),
        ("self.__in__ == 'i' && self.a__underscores__b == 'u'", true),
        ("self.list.exists(x, x == 'b') && self.list.exists_one(x, x == 'a') && !self.list.all(x, x == 'a')", true),
        ("self.list.map(x, x + '!').filter(x, x != 'b!') == ['a!']", true),
        ("self.map.all(k, k.size() > 1)", true),
        ("self.?deep.?er.?est.orValue('') == 'd'", true),
        ("self.?deep.er.est.orValue('') == 'd'", true),
        ("self.deep.?nothing.orValue('z') == 'z'", true),
        ("self.?list[?5].orValue('none') == 'none'", true),
        ("self.map[?'no'].orValue('none') == 'none'", true),
        ("self.?name.optMap(n, n + '!').orValue('') == 'abc!'", true),
        ("cel.bind(n, self.name, n + n) == 'abcabc'", true),
        ("optional.none().hasValue()", false),
        (
            "url('https://a.b:8/c').getHost() == 'a.b:8' && isIP('10.0.0.1') && cidr('10.0.0.0/8').containsIP('10.1.1.1')",
            true,
        ),
        ("quantity('1Gi').isGreaterThan(quantity('1G'))", true),
        ("self.name.find('[b-c]+') == 'bc' && ['b', 'a'].isSorted() == false && sets.contains([1, 2], [1])", true),
        (
            "self.name.substring(1) == 'bc' && self.name.upperAscii() == 'ABC' && self.name.split('b') == ['a', 'c']",
            true,
        ),
        ("dyn(self.count) == 2", true),
        ("(1 / 0 == 1) || true", true),
        ("false && (1 / 0 == 1)", false),
        ("self.count == 2 ? true : self.nope", false),
        ("type(self.name) == string && type(self.when) == google.protobuf.Timestamp && type(self.list) != map", true),
        ("type(self.port) == int ? self.port == 80 : self.port == '80'", true),
    ] {
        let mut schema = Schema::parse(&schema(rule)).unwrap();
        let causes = schema.compile_rules("schema");
        let holds = causes.is_empty() && schema.check_rules(&object, None).causes.is_empty();
        let why = schema.check_rules(&object, None).causes;
        if holds != expected {
            wrong.push(format!("{rule}: {causes:?} {why:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn rules_below_all_of_are_checked() {
    let schema = compiled(&json!({"type": "object", "properties": {"a": {"type": "string"}},
        "allOf": [{"properties": {"a": {"x-kubernetes-validations": [{"rule": "self != 'x'"}]}}}]}));
    assert_eq!(
        told(&schema, &json!({"a": "x"}), None),
        ["FieldValueInvalid a: Invalid value: \"x\": failed rule: self != 'x'"]
    );
}
