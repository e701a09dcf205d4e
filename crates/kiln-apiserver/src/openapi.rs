//! OpenAPI v3, as far as kubectl reads it: for `explain`, and to learn that the server validates fields itself.
//!
//! Strategic merge patch is accepted for built-in kinds and not advertised: kubectl would look up merge keys in the
//! published schemas instead of those it has compiled in.

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::registry::Registry;
use crate::resource::Resource;

pub(crate) const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// `/openapi/v3`: the documents and where they are. The hash lets clients keep what has not changed.
pub fn index(registry: &Registry) -> Value {
    let mut paths = Map::new();
    let mut versions = vec![(String::new(), "v1".to_owned())];
    for (group, known) in registry.groups() {
        versions.extend(known.into_iter().map(|version| (group.clone(), version)));
    }
    for (group, version) in versions {
        let Some(document) = document(registry, &group, &version) else { continue };
        let path = if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") };
        let digest = Sha256::digest(document.to_string().as_bytes());
        let hash: String = digest.iter().take(16).map(|byte| format!("{byte:02X}")).collect();
        paths.insert(path.clone(), json!({"serverRelativeURL": format!("/openapi/v3/{path}?hash={hash}")}));
    }
    json!({"paths": paths})
}

/// The document of one version of a group.
pub fn document(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let (mut paths, mut schemas) = (Map::new(), Map::new());
    for resource in registry.of_version(group, version) {
        insert_paths(resource, &mut paths);
        schemas.insert(schema_name(resource), schema(resource));
    }
    if schemas.is_empty() {
        return None;
    }
    schemas.insert(OBJECT_META.into(), object_meta());
    Some(json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": crate::http::KUBERNETES_VERSION.2},
        "paths": paths,
        "components": {"schemas": schemas},
    }))
}

fn insert_paths(resource: &Resource, paths: &mut Map<String, Value>) {
    let root = if resource.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", resource.group) };
    let scope = if resource.namespaced { "/namespaces/{namespace}" } else { "" };
    let collection = format!("{root}/{}{scope}/{}", resource.version, resource.plural);
    let kind = json!({"group": resource.group, "version": resource.version, "kind": resource.kind});
    let reference = json!({"$ref": format!("#/components/schemas/{}", schema_name(resource))});
    let content = json!({"application/json": {"schema": reference}});
    let answers = json!({"200": {"description": "OK", "content": content}});
    let text = |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}});
    let writing = json!([text("dryRun"), text("fieldManager"), text("fieldValidation"), text("pretty")]);
    let operation = |action: &str, parameters: &Value, body: Option<Value>| {
        let mut operation = json!({
            "x-kubernetes-action": action, "x-kubernetes-group-version-kind": kind, "parameters": parameters,
            "responses": answers,
        });
        if let Some(body) = body {
            operation["requestBody"] = body;
        }
        operation
    };
    let object_body = || Some(json!({"content": {"application/json": {"schema": reference}}}));
    let patch_schema = json!({"schema": {"type": "object"}});
    let patch_body = json!({"content": {"application/json-patch+json": patch_schema,
        "application/merge-patch+json": patch_schema, "application/apply-patch+yaml": patch_schema}});
    paths.insert(
        collection.clone(),
        json!({"get": operation("list", &json!([]), None), "post": operation("post", &writing, object_body())}),
    );
    paths.insert(
        format!("{collection}/{{name}}"),
        json!({
            "get": operation("get", &json!([]), None),
            "put": operation("put", &writing, object_body()),
            "patch": operation("patch", &writing, Some(patch_body)),
            "delete": operation("delete", &json!([text("dryRun")]), None),
        }),
    );
}

/// `org.example.v1.Widget`, `io.k8s.api.core.v1.ConfigMap`.
pub(crate) fn schema_name(resource: &Resource) -> String {
    let group = match resource.group.as_str() {
        "" => "io.k8s.api.core".to_owned(),
        group => group.split('.').rev().collect::<Vec<_>>().join("."),
    };
    format!("{group}.{}.{}", resource.version, resource.kind)
}

fn schema(resource: &Resource) -> Value {
    let mut schema = (*resource.published).clone();
    if !schema.is_object() {
        schema = json!({});
    }
    schema["type"] = "object".into();
    let own = [
        (
            "apiVersion",
            json!({"type": "string", "description": "APIVersion defines the versioned schema of this representation of an object."}),
        ),
        (
            "kind",
            json!({"type": "string", "description": "Kind is a string value representing the REST resource this object represents."}),
        ),
        (
            "metadata",
            json!({"description": "Standard object's metadata.", "default": {},
            "allOf": [{"$ref": format!("#/components/schemas/{OBJECT_META}")}]}),
        ),
    ];
    for (name, value) in own {
        schema["properties"][name] = value;
    }
    schema["x-kubernetes-group-version-kind"] =
        json!([{"group": resource.group, "version": resource.version, "kind": resource.kind}]);
    schema
}

pub(crate) fn object_meta() -> Value {
    let text = |description: &str| json!({"type": "string", "description": description});
    let texts = |description: &str| {
        json!({"type": "object", "description": description,
        "additionalProperties": {"type": "string", "default": ""}})
    };
    json!({
        "type": "object",
        "description": "ObjectMeta is metadata that all persisted resources must have, which includes all objects users must create.",
        "properties": {
            "name": text("Name must be unique within a namespace."),
            "generateName": text("GenerateName is an optional prefix, used by the server, to generate a unique name ONLY IF the Name field has not been provided."),
            "namespace": text("Namespace defines the space within which each name must be unique."),
            "uid": text("UID is the unique in time and space value for this object."),
            "resourceVersion": text("An opaque value that represents the internal version of this object."),
            "generation": {"type": "integer", "format": "int64", "description": "A sequence number representing a specific generation of the desired state."},
            "creationTimestamp": {"type": "string", "format": "date-time", "description": "When this object was created."},
            "deletionTimestamp": {"type": "string", "format": "date-time", "description": "When this object will be deleted."},
            "deletionGracePeriodSeconds": {"type": "integer", "format": "int64"},
            "labels": texts("Map of string keys and values that can be used to organize and categorize objects."),
            "annotations": texts("Annotations is an unstructured key value map."),
            "finalizers": {"type": "array", "items": {"type": "string", "default": ""}, "x-kubernetes-list-type": "set",
                "x-kubernetes-patch-strategy": "merge", "description": "Must be empty before the object is deleted from the registry."},
            "ownerReferences": {"type": "array", "description": "List of objects depended by this object.",
                "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["uid"],
                "items": {"type": "object", "required": ["apiVersion", "kind", "name", "uid"], "properties": {
                    "apiVersion": text("API version of the referent."), "kind": text("Kind of the referent."),
                    "name": text("Name of the referent."), "uid": text("UID of the referent."),
                    "controller": {"type": "boolean"}, "blockOwnerDeletion": {"type": "boolean"}}}},
            "managedFields": {"type": "array", "items": {"type": "object"}, "description": "Which manager manages which fields."},
            "selfLink": text("Deprecated."),
        },
    })
}
