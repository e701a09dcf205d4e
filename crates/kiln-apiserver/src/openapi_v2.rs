//! OpenAPI v2, for clients that still ask for it: kubectl about a `kind: List`, kubectl before 1.29, Argo CD.
//!
//! The definition of every kind, and of each the one operation clients look up: whether its patch takes `dryRun` and
//! `fieldValidation`. What v2 cannot say is left open, as a real server leaves it: a field that may be null, or a number or
//! a text, or anything, has no type. Rules and alternatives are not in it. Go clients take it as [protobuf] only.

use serde_json::{Map, Value, json};

use crate::openapi::{OBJECT_META, object_meta, schema_name};
use crate::registry::Registry;
use crate::resource::Resource;

pub mod protobuf;

/// What is kept of a schema besides its type and what is below it.
const KEPT: [&str; 19] = [
    "description",
    "format",
    "default",
    "enum",
    "required",
    "pattern",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
    "title",
];

/// What is kept of the extensions of Kubernetes: how lists are merged and what is open.
const EXTENSIONS: [&str; 6] = [
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-int-or-string",
    "x-kubernetes-embedded-resource",
];

/// `/openapi/v2`.
pub fn document(registry: &Registry) -> Value {
    let (mut paths, mut definitions) = (Map::new(), Map::new());
    for resource in registry.all() {
        let (path, item) = path_item(resource);
        paths.insert(path, item);
        definitions.insert(schema_name(resource), definition(resource));
    }
    definitions.insert(OBJECT_META.into(), plain(&object_meta()));
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": crate::http::KUBERNETES_VERSION.2},
        "paths": paths,
        "definitions": definitions,
    })
}

fn path_item(resource: &Resource) -> (String, Value) {
    let root = if resource.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", resource.group) };
    let scope = if resource.namespaced { "/namespaces/{namespace}" } else { "" };
    let text = |name: &str| json!({"name": name, "in": "query", "type": "string", "uniqueItems": true});
    let item = json!({"patch": {
        "consumes": ["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"],
        "produces": ["application/json"],
        "parameters": [text("dryRun"), text("fieldManager"), text("fieldValidation"), text("force")],
        "responses": {"200": {"description": "OK", "schema": {"$ref": format!("#/definitions/{}", schema_name(resource))}}},
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": kind(resource),
    }});
    (format!("{root}/{}{scope}/{}/{{name}}", resource.version, resource.plural), item)
}

fn kind(resource: &Resource) -> Value {
    json!({"group": resource.group, "version": resource.version, "kind": resource.kind})
}

fn definition(resource: &Resource) -> Value {
    let mut definition = plain(&resource.published);
    if !definition.is_object() {
        definition = json!({});
    }
    definition["type"] = "object".into();
    // A kind whose fields nobody knows must have none here, or clients would refuse the others.
    if definition["properties"].is_object() || resource.published["x-kubernetes-preserve-unknown-fields"] != true {
        definition["properties"]["apiVersion"] = json!({"type": "string"});
        definition["properties"]["kind"] = json!({"type": "string"});
        definition["properties"]["metadata"] = json!({"$ref": format!("#/definitions/{OBJECT_META}")});
    }
    definition["x-kubernetes-group-version-kind"] = json!([kind(resource)]);
    definition
}

/// A schema in the words of v2. Schemas are nested at most as deep as their parser allows.
fn plain(schema: &Value) -> Value {
    let says = |key: &str| schema[key] == true;
    let open = says("nullable") || says("x-kubernetes-preserve-unknown-fields") || says("x-kubernetes-int-or-string");
    let mut plain = Map::new();
    let kept = EXTENSIONS.iter().chain(if open { &["description"][..] } else { &KEPT[..] });
    for key in kept {
        if let Some(value) = schema.get(*key) {
            plain.insert((*key).into(), value.clone());
        }
    }
    if open {
        return Value::Object(plain);
    }
    if let Some(properties) = schema["properties"].as_object() {
        let properties = properties.iter().map(|(name, schema)| (name.clone(), self::plain(schema)));
        plain.insert("properties".into(), Value::Object(properties.collect()));
    }
    match &schema["additionalProperties"] {
        Value::Object(_) => {
            drop(plain.insert("additionalProperties".into(), self::plain(&schema["additionalProperties"])))
        }
        Value::Bool(any) => drop(plain.insert("additionalProperties".into(), (*any).into())),
        _ => {}
    }
    // Clients refuse the whole document for a list without items.
    let list = schema["type"] == "array";
    if list && schema["items"].is_object() {
        plain.insert("items".into(), self::plain(&schema["items"]));
    }
    if schema["type"].is_string() && (!list || plain.contains_key("items")) {
        plain.insert("type".into(), schema["type"].clone());
    }
    Value::Object(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::{builtin_resources, parse_definition};

    fn widget() -> Resource {
        let definition = json!({"metadata": {"name": "widgets.example.org"}, "spec": {"group": "example.org",
            "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object",
                "required": ["spec"], "properties": {"spec": {"type": "object", "properties": {
                    "size": {"type": "integer", "minimum": 0},
                    "note": {"type": "string", "nullable": true},
                    "port": {"x-kubernetes-int-or-string": true},
                    "free": {"type": "object", "properties": {"a": {"type": "string"}}, "x-kubernetes-preserve-unknown-fields": true},
                    "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
                    "words": {"type": "object", "additionalProperties": {"type": "string"}}}}}}}}]}});
        parse_definition(&definition).unwrap().remove(0)
    }

    #[test]
    fn what_v2_cannot_say_is_left_open() {
        let definition = definition(&widget());
        assert_eq!(
            definition["properties"]["spec"],
            json!({"properties": {
                "size": {"minimum": 0, "type": "integer"},
                "note": {},
                "port": {"x-kubernetes-int-or-string": true},
                "free": {"x-kubernetes-preserve-unknown-fields": true},
                "tags": {"x-kubernetes-list-type": "set", "items": {"type": "string"}, "type": "array"},
                "words": {"additionalProperties": {"type": "string"}, "type": "object"}}, "type": "object"})
        );
        assert_eq!(definition["required"], json!(["spec"]));
        assert_eq!(definition["properties"]["metadata"], json!({"$ref": format!("#/definitions/{OBJECT_META}")}));
        assert_eq!(
            definition["x-kubernetes-group-version-kind"],
            json!([{"group": "example.org", "version": "v1", "kind": "Widget"}])
        );
    }

    #[test]
    fn every_kind_has_its_patch_and_no_list_is_without_items() {
        fn check(schema: &Value, at: &str) {
            assert!(schema["type"] != "array" || schema["items"].is_object(), "{at}");
            for (name, below) in schema["properties"].as_object().into_iter().flatten() {
                check(below, &format!("{at}.{name}"));
            }
            if schema["items"].is_object() {
                check(&schema["items"], &format!("{at}[]"));
            }
        }
        for resource in builtin_resources() {
            check(&definition(&resource), &resource.kind);
            let (path, item) = path_item(&resource);
            assert!(path.ends_with(&format!("{}/{{name}}", resource.plural)), "{path}");
            assert_eq!(item["patch"]["x-kubernetes-group-version-kind"], kind(&resource));
        }
    }
}
