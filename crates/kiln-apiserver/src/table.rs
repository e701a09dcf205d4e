//! What `kubectl get` prints: a `Table` with one row per object.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::json_path::{JsonPath, render};
use crate::resource::{Column, ColumnValue, Resource};
use crate::timestamp::{parse_timestamp, render_age};

/// How much of the object goes into a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IncludeObject {
    /// Nothing.
    None,
    /// Its metadata.
    #[default]
    Metadata,
    /// All of it.
    Object,
}

/// A table of these objects.
pub fn render_table(
    resource: &Resource,
    objects: &[Value],
    list_metadata: &Value,
    include: IncludeObject,
    now: OffsetDateTime,
) -> Value {
    let rows: Vec<Value> = objects.iter().map(|object| render_row(resource, object, include, now)).collect();
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": list_metadata,
        "columnDefinitions": column_definitions(resource), "rows": rows,
    })
}

/// The object reduced to its metadata.
pub fn partial_metadata(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}

fn column_definitions(resource: &Resource) -> Vec<Value> {
    let name = json!({"name": "Name", "type": "string", "format": "name", "priority": 0,
        "description": "Name must be unique within a namespace."});
    let others = resource.columns.iter().map(|column| {
        json!({"name": column.name, "type": column.kind, "format": "", "description": column.description,
            "priority": column.priority})
    });
    begins_with_name(resource).then_some(name).into_iter().chain(others).collect()
}

/// Events are named by machines: what happened says more.
fn begins_with_name(resource: &Resource) -> bool {
    resource.kind != "Event" || !["", "events.k8s.io"].contains(&resource.group.as_str())
}

fn render_row(resource: &Resource, object: &Value, include: IncludeObject, now: OffsetDateTime) -> Value {
    let mut cells = Vec::with_capacity(resource.columns.len() + 1);
    if begins_with_name(resource) {
        cells.push(object["metadata"]["name"].clone());
    }
    cells.extend(resource.columns.iter().map(|column| render_cell(column, object, now)));
    let mut row = json!({"cells": cells});
    match include {
        IncludeObject::None => {}
        IncludeObject::Metadata => row["object"] = partial_metadata(object),
        IncludeObject::Object => row["object"] = object.clone(),
    }
    row
}

/// In the words of the real server.
fn request_state(request: &Value) -> String {
    let conditions = request["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is = |kind: &str| conditions.iter().any(|condition| condition["type"] == kind);
    let decided = match (is("Denied"), is("Approved")) {
        (true, _) => "Denied",
        (false, true) => "Approved",
        (false, false) => "Pending",
    };
    let failed = if is("Failed") { ",Failed" } else { "" };
    let issued = request["status"]["certificate"].as_str().is_some_and(|certificate| !certificate.is_empty());
    format!("{decided}{failed}{}", if issued { ",Issued" } else { "" })
}

/// In the words of the real server: a condition that is not True is as bad as one that is False.
fn node_state(node: &Value) -> String {
    let mut conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    let state = match conditions.find(|condition| condition["type"] == "Ready") {
        Some(ready) if ready["status"] == "True" => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    let disabled = if node["spec"]["unschedulable"] == true { ",SchedulingDisabled" } else { "" };
    format!("{state}{disabled}")
}

/// Two ways of labelling are in use: the role in the label's name, or in the value of an older label.
fn node_roles(node: &Value) -> String {
    let role = |(label, value): (&String, &Value)| match label.strip_prefix("node-role.kubernetes.io/") {
        Some(role) => Some(role.to_owned()),
        None if label == "kubernetes.io/role" => value.as_str().map(str::to_owned),
        None => None,
    };
    let labels = node["metadata"]["labels"].as_object().into_iter().flatten();
    let roles: BTreeSet<String> = labels.filter_map(role).filter(|role| !role.is_empty()).collect();
    if roles.is_empty() { "<none>".into() } else { roles.into_iter().collect::<Vec<_>>().join(",") }
}

fn render_cell(column: &Column, object: &Value, now: OffsetDateTime) -> Value {
    let path = match &column.value {
        ColumnValue::Path(path) => path,
        ColumnValue::First(paths) => {
            let there = |path: &&JsonPath| path.find(object).first().is_some_and(|value| !value.is_null());
            match paths.iter().find(there) {
                Some(path) => path,
                None => return Value::Null,
            }
        }
        ColumnValue::Count(paths) => {
            let count = |value: &Value| match value {
                Value::Object(map) => map.len(),
                Value::Array(items) => items.len(),
                _ => 0,
            };
            return paths.iter().flat_map(|path| path.find(object)).map(count).sum::<usize>().into();
        }
        ColumnValue::Duration(path) => {
            let seconds = path.find(object).first().and_then(|value| value.as_i64());
            return seconds.map_or_else(|| "<none>".into(), render_age).into();
        }
        ColumnValue::RequestState => return request_state(object).into(),
        ColumnValue::NodeState => return node_state(object).into(),
        ColumnValue::NodeRoles => return node_roles(object).into(),
        ColumnValue::Otherwise(path, words) => {
            let found = path.find(object);
            let text = found.first().and_then(|value| value.as_str()).filter(|text| !text.is_empty());
            return text.unwrap_or(words).into();
        }
        ColumnValue::Reference(kind, name) => {
            return format!("{}/{}", kind.text(object).to_lowercase(), name.text(object)).into();
        }
    };
    let found = path.find(object);
    let Some(first) = found.first().filter(|value| !value.is_null()) else { return Value::Null };
    match column.kind.as_str() {
        "date" => match first.as_str().and_then(parse_timestamp) {
            Some(at) => render_age((now - at).whole_seconds()).into(),
            None => "<invalid>".into(),
        },
        "integer" | "number" => {
            if first.is_number() {
                (*first).clone()
            } else {
                Value::Null
            }
        }
        "boolean" => {
            if first.is_boolean() {
                (*first).clone()
            } else {
                Value::Null
            }
        }
        _ => found.iter().map(|value| render(value)).collect::<Vec<_>>().join(",").into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::{builtin_resources, parse_definition};

    #[test]
    fn cells_follow_their_column() {
        let definition = json!({
            "metadata": {"name": "widgets.example.org"},
            "spec": {"group": "example.org", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object"}},
                    "additionalPrinterColumns": [
                        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
                        {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"},
                        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp", "priority": 1},
                    ]}]},
        });
        let [resource] = parse_definition(&definition).unwrap().try_into().unwrap();
        let object = json!({
            "metadata": {"name": "w", "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"size": 3},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        let now = parse_timestamp("2026-01-01T00:05:03Z").unwrap();
        let bare = json!({"metadata": {"name": "x"}, "spec": {"size": "odd"}});
        let table = render_table(&resource, &[object, bare], &json!({}), IncludeObject::Metadata, now);
        assert_eq!(table["rows"][0]["cells"], json!(["w", 3, "True", "5m3s"]));
        assert_eq!(table["rows"][1]["cells"], json!(["x", null, null, null]));
        assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
        assert_eq!(table["columnDefinitions"][3]["priority"], 1);
    }

    #[test]
    fn nodes_are_shown_as_the_real_server_shows_them() {
        let resources = builtin_resources();
        let nodes = resources.iter().find(|resource| resource.is("", "nodes")).unwrap();
        let now = parse_timestamp("2026-01-01T00:05:03Z").unwrap();
        let created = "2026-01-01T00:00:00Z";
        let ready =
            |status: &str| json!([{"type": "DiskPressure", "status": "False"}, {"type": "Ready", "status": status}]);
        let cells = |labels: Value, spec: Value, status: Value| {
            let metadata = json!({"name": "n", "creationTimestamp": created, "labels": labels});
            let object = json!({"metadata": metadata, "spec": spec, "status": status});
            let table = render_table(nodes, &[object], &json!({}), IncludeObject::None, now);
            table["rows"][0]["cells"].clone()
        };
        let whole = json!({
            "conditions": ready("True"),
            "addresses": [{"type": "Hostname", "address": "n"}, {"type": "InternalIP", "address": "192.0.2.1"},
                {"type": "InternalIP", "address": "2001:db8::1"}, {"type": "ExternalIP", "address": "198.51.100.1"}],
            "nodeInfo": {"kubeletVersion": "v1.31.0", "osImage": "An OS 1", "kernelVersion": "6.1.0",
                "containerRuntimeVersion": "cri-o://1.31.0"},
        });
        assert_eq!(
            cells(json!({"node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/infra": ""}), json!({}), whole),
            json!([
                "n",
                "Ready",
                "infra,worker",
                "5m3s",
                "v1.31.0",
                "192.0.2.1",
                "198.51.100.1",
                "An OS 1",
                "6.1.0",
                "cri-o://1.31.0"
            ])
        );
        let unknown = json!({"nodeInfo": {"osImage": ""}});
        assert_eq!(
            cells(
                json!({"kubernetes.io/role": "edge", "node-role.kubernetes.io/": "", "app": "x"}),
                json!({}),
                unknown
            ),
            json!(["n", "Unknown", "edge", "5m3s", null, "<none>", "<none>", "<unknown>", "<unknown>", "<unknown>"])
        );
        for (unschedulable, status, expected) in [
            (false, "True", "Ready"),
            (true, "True", "Ready,SchedulingDisabled"),
            (false, "False", "NotReady"),
            (true, "Unknown", "NotReady,SchedulingDisabled"),
        ] {
            let row = cells(Value::Null, json!({"unschedulable": unschedulable}), json!({"conditions": ready(status)}));
            assert_eq!((&row[1], &row[2]), (&json!(expected), &json!("<none>")));
        }
        let headings: Vec<&str> = nodes.columns.iter().filter(|c| c.priority == 1).map(|c| c.name.as_str()).collect();
        assert_eq!(headings, ["Internal-IP", "External-IP", "OS-Image", "Kernel-Version", "Container-Runtime"]);
    }
}
