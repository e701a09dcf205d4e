//! CustomResourceDefinitions: from the manifest to the resources it defines.
//!
//! The kinds that come with the server are defined in the same form in `builtin.json`, so that there is one way in.
//! Conversion is by changing `apiVersion` only: a definition that wants a webhook between served versions is refused.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::error::Cause;
use crate::json_path::JsonPath;
use crate::registry::compare_versions;
use crate::resource::{Column, ColumnValue, Resource};
use crate::scale::ScalePaths;
use crate::schema::Schema;

/// The resources a definition defines, one per served version; or everything that is wrong with it.
pub fn parse_definition(definition: &Value) -> Result<Vec<Resource>, Vec<Cause>> {
    let mut causes = Vec::new();
    let spec = &definition["spec"];
    let names = &spec["names"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, plural, kind) = (text(&spec["group"]), text(&names["plural"]), text(&names["kind"]));
    for (path, value) in [("spec.group", &group), ("spec.names.plural", &plural), ("spec.names.kind", &kind)] {
        if value.is_empty() {
            causes.push(Cause::required(path, ""));
        }
    }
    if let Some(why) = crate::names::subdomain_problem(&group).filter(|_| !group.is_empty()) {
        causes.push(Cause::invalid("spec.group", &spec["group"], why));
    }
    if let Some(why) = crate::names::label_problem(&plural).filter(|_| !plural.is_empty()) {
        causes.push(Cause::invalid("spec.names.plural", &names["plural"], why));
    }
    let name = &definition["metadata"]["name"];
    if name.as_str() != Some(&format!("{plural}.{group}")) {
        causes.push(Cause::invalid("metadata.name", name, r#"must be spec.names.plural+"."+spec.group"#));
    }
    let namespaced = match spec["scope"].as_str() {
        Some("Namespaced") => true,
        Some("Cluster") => false,
        _ => {
            let message =
                format!("Unsupported value: {}: supported values: \"Cluster\", \"Namespaced\"", spec["scope"]);
            causes.push(Cause { reason: "FieldValueNotSupported", message, field: "spec.scope".into() });
            false
        }
    };
    let empty = Vec::new();
    let versions = spec["versions"].as_array().unwrap_or(&empty);
    if versions.iter().filter(|version| version["storage"] == true).count() != 1 {
        let why = "must have exactly one version marked as storage version";
        causes.push(Cause::invalid("spec.versions", &spec["versions"], why));
    }
    let served = versions.iter().filter(|version| version["served"] == true).count();
    if spec["conversion"]["strategy"] == "Webhook" && served > 1 {
        let why = "webhook conversion is not supported: serve one version, or use strategy None";
        causes.push(Cause::forbidden("spec.conversion.strategy", why));
    }
    let own = |value: &Value, fallback: String| value.as_str().map_or(fallback, str::to_owned);
    let common = Resource {
        collection: collection_name(&group, &plural),
        list_kind: own(&names["listKind"], format!("{kind}List")),
        singular: own(&names["singular"], kind.to_lowercase()),
        short_names: strings(&names["shortNames"]),
        categories: strings(&names["categories"]),
        namespaced,
        group,
        plural,
        kind,
        version: String::new(),
        status: false,
        scale: None,
        counts_generation: true,
        requires_revision: true,
        builtin: false,
        columns: Vec::new(),
        deprecation: None,
        schema: Arc::new(Schema::anything()),
        published: Arc::new(Value::Null),
        selectable: Vec::new(),
        renamed: &[],
    };
    let mut resources = Vec::new();
    for (index, version) in versions.iter().enumerate() {
        let at = format!("spec.versions[{index}]");
        if let Some(mut resource) = parse_version(&common, version, &at, &mut causes)
            && version["served"] == true
        {
            resource.deprecation = deprecation(&resource, version, versions);
            resources.push(resource);
        }
    }
    if causes.is_empty() { Ok(resources) } else { Err(causes) }
}

/// What whoever uses a deprecated version is told: its own words, or which newer version to use.
fn deprecation(resource: &Resource, version: &Value, versions: &[Value]) -> Option<String> {
    if version["deprecated"] != true {
        return None;
    }
    if let Some(own) = version["deprecationWarning"].as_str() {
        return Some(own.to_owned());
    }
    let Resource { group, version: old, kind, .. } = resource;
    let current = versions.iter().filter(|version| version["served"] == true && version["deprecated"] != true);
    let newer = current.filter_map(|version| version["name"].as_str());
    let newest = newer.filter(|name| compare_versions(name, old).is_gt()).max_by(|a, b| compare_versions(a, b));
    let instead = newest.map(|name| format!("; use {group}/{name} {kind}")).unwrap_or_default();
    Some(format!("{group}/{old} {kind} is deprecated{instead}"))
}

/// Where objects of a resource are stored.
pub fn collection_name(group: &str, plural: &str) -> Arc<str> {
    if group.is_empty() { plural.into() } else { format!("{plural}.{group}").into() }
}

/// Fills in what a definition may leave out.
pub fn default_definition(definition: &mut Value) {
    let Some(spec) = definition.get_mut("spec").and_then(Value::as_object_mut) else { return };
    spec.entry("conversion").or_insert_with(|| json!({"strategy": "None"}));
    let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) else { return };
    let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    names.entry("singular").or_insert_with(|| kind.to_lowercase().into());
    names.entry("listKind").or_insert_with(|| format!("{kind}List").into());
}

/// The status of a definition that is served.
pub fn established_status(definition: &Value, now: &str) -> Value {
    let mut stored: Vec<Value> = definition["status"]["storedVersions"].as_array().cloned().unwrap_or_default();
    let versions = definition["spec"]["versions"].as_array().into_iter().flatten();
    for storage in versions.filter(|version| version["storage"] == true).map(|version| &version["name"]) {
        if !stored.contains(storage) {
            stored.push(storage.clone());
        }
    }
    let since = |kind: &str| {
        let conditions = definition["status"]["conditions"].as_array().into_iter().flatten();
        let known = conditions.filter(|condition| condition["type"] == kind).map(|c| &c["lastTransitionTime"]);
        known.filter_map(Value::as_str).next().unwrap_or(now).to_owned()
    };
    json!({
        "conditions": [
            {"type": "NamesAccepted", "status": "True", "reason": "NoConflicts", "message": "no conflicts found",
             "lastTransitionTime": since("NamesAccepted")},
            {"type": "Established", "status": "True", "reason": "InitialNamesAccepted",
             "message": "the initial names have been accepted", "lastTransitionTime": since("Established")},
        ],
        "acceptedNames": definition["spec"]["names"],
        "storedVersions": stored,
    })
}

fn parse_version(common: &Resource, version: &Value, at: &str, causes: &mut Vec<Cause>) -> Option<Resource> {
    let before = causes.len();
    let name = version["name"].as_str().unwrap_or_default();
    if let Some(why) = crate::names::label_problem(name) {
        causes.push(Cause::invalid(format!("{at}.name"), &version["name"], why));
    }
    let published = &version["schema"]["openAPIV3Schema"];
    let schema = match published {
        Value::Null => {
            causes.push(Cause::required(format!("{at}.schema.openAPIV3Schema"), "schemas are required"));
            Schema::anything()
        }
        value => match Schema::parse(value) {
            Ok(mut schema) => {
                causes.extend(schema.compile_rules(&format!("{at}.schema.openAPIV3Schema")));
                schema
            }
            Err(why) => {
                causes.push(Cause::invalid(format!("{at}.schema.openAPIV3Schema"), value, &why));
                Schema::anything()
            }
        },
    };
    let mut columns = Vec::new();
    for (index, column) in version["additionalPrinterColumns"].as_array().into_iter().flatten().enumerate() {
        match parse_column(column) {
            Ok(column) => columns.push(column),
            Err(why) => {
                let field = format!("{at}.additionalPrinterColumns[{index}].jsonPath");
                causes.push(Cause::invalid(field, &column["jsonPath"], &why));
            }
        }
    }
    if columns.is_empty() {
        columns
            .extend(parse_column(&json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"})));
    }
    let mut selectable = Vec::new();
    for (index, field) in version["selectableFields"].as_array().into_iter().flatten().enumerate() {
        let text = field["jsonPath"].as_str().unwrap_or_default();
        match JsonPath::parse(text) {
            Ok(path) => selectable.push((text.trim_start_matches('.').to_owned(), path)),
            Err(why) => causes.push(Cause::invalid(format!("{at}.selectableFields[{index}].jsonPath"), field, &why)),
        }
    }
    let scale = match &version["subresources"]["scale"] {
        Value::Null => None,
        scale => ScalePaths::parse(scale, &format!("{at}.subresources.scale"), causes),
    };
    (causes.len() == before).then(|| Resource {
        version: name.to_owned(),
        status: version["subresources"]["status"].is_object(),
        scale,
        columns,
        schema: Arc::new(schema),
        published: Arc::new(published.clone()),
        selectable,
        ..common.clone()
    })
}

fn parse_column(column: &Value) -> Result<Column, String> {
    let text = |key: &str| column[key].as_str().unwrap_or_default().to_owned();
    let path = |value: &Value| JsonPath::parse(value.as_str().unwrap_or_default());
    // Only in definitions of our own: what the real server computes in code.
    let value = if let Some(paths) = column["first"].as_array() {
        ColumnValue::First(paths.iter().map(path).collect::<Result<_, _>>()?)
    } else if let Some(paths) = column["count"].as_array() {
        ColumnValue::Count(paths.iter().map(path).collect::<Result<_, _>>()?)
    } else if column["duration"].is_string() {
        ColumnValue::Duration(path(&column["duration"])?)
    } else if column["requestState"] == true {
        ColumnValue::RequestState
    } else if column["nodeState"] == true {
        ColumnValue::NodeState
    } else if column["nodeRoles"] == true {
        ColumnValue::NodeRoles
    } else if let Some(words) = column["otherwise"].as_str() {
        ColumnValue::Otherwise(path(&column["jsonPath"])?, words.to_owned())
    } else if let [kind, name] = column["reference"].as_array().map(Vec::as_slice).unwrap_or_default() {
        ColumnValue::Reference(path(kind)?, path(name)?)
    } else {
        ColumnValue::Path(path(&column["jsonPath"])?)
    };
    Ok(Column {
        name: text("name"),
        kind: text("type"),
        description: text("description"),
        priority: column["priority"].as_i64().unwrap_or(0),
        value,
    })
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(|value| value.as_str().map(str::to_owned)).collect()
}

/// Events have two groups and one store: `kubectl` reads those of the core, recorders write the newer ones.
const EVENT_NAMES: [(&str, &str); 7] = [
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
];

/// The kinds that come with the server.
pub fn builtin_resources() -> Vec<Resource> {
    // Checked by a test: the text is part of the program.
    let definitions: Vec<Value> = serde_json::from_str(include_str!("builtin.json")).unwrap_or_default();
    let mut resources = Vec::new();
    for definition in definitions {
        let spec = &definition;
        let group = spec["group"].as_str().unwrap_or_default().to_owned();
        let plural = spec["names"]["plural"].as_str().unwrap_or_default().to_owned();
        let mut version = Map::new();
        for key in ["additionalPrinterColumns", "selectableFields", "subresources", "schema"] {
            version.insert(key.into(), spec[key].clone());
        }
        version.insert("name".into(), spec["version"].clone());
        version.insert("served".into(), true.into());
        version.insert("storage".into(), true.into());
        // A core resource has no group; the parser of definitions rightly insists on one.
        let stand_in = if group.is_empty() { "core" } else { group.as_str() };
        let whole = json!({
            "metadata": {"name": format!("{plural}.{stand_in}")},
            "spec": {"group": stand_in, "names": spec["names"], "scope": spec["scope"], "versions": [version]},
        });
        for mut resource in parse_definition(&whole).unwrap_or_default() {
            resource.collection = collection_name(&group, &plural);
            if (group.as_str(), plural.as_str()) == ("events.k8s.io", "events") {
                resource.collection = collection_name("", &plural);
                resource.renamed = &EVENT_NAMES;
            }
            resource.group.clone_from(&group);
            resource.builtin = true;
            let defines = resource.plural == "customresourcedefinitions";
            resource.counts_generation = defines;
            resource.requires_revision = defines;
            resources.push(resource);
        }
    }
    resources
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition() -> Value {
        json!({
            "metadata": {"name": "widgets.example.org"},
            "spec": {
                "group": "example.org", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object"}}, "subresources": {"status": {}},
                    "selectableFields": [{"jsonPath": ".spec.color"}]}],
            },
        })
    }

    #[test]
    fn every_builtin_definition_is_read() {
        let definitions: Vec<Value> = serde_json::from_str(include_str!("builtin.json")).unwrap();
        assert_eq!(builtin_resources().len(), definitions.len());
    }

    #[test]
    fn a_definition_becomes_a_resource() {
        let [resource] = parse_definition(&definition()).unwrap().try_into().unwrap();
        assert_eq!(resource.api_version(), "example.org/v1");
        assert_eq!((resource.singular.as_str(), resource.list_kind.as_str()), ("widget", "WidgetList"));
        assert!(resource.status && resource.namespaced && resource.is_selectable("spec.color"));
        assert_eq!(&*resource.collection, "widgets.example.org");
    }

    #[test]
    fn everything_wrong_is_told_at_once() {
        let mut wrong = definition();
        wrong["metadata"]["name"] = "x".into();
        wrong["spec"]["scope"] = "Global".into();
        wrong["spec"]["versions"][0]["storage"] = false.into();
        wrong["spec"]["versions"][0]["schema"] = Value::Null;
        wrong["spec"]["versions"][0]["additionalPrinterColumns"] = json!([{"name": "A", "jsonPath": "spec"}]);
        let causes = parse_definition(&wrong).unwrap_err();
        let told: Vec<String> = causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
        assert_eq!(
            told,
            [
                r#"metadata.name: Invalid value: "x": must be spec.names.plural+"."+spec.group"#,
                r#"spec.scope: Unsupported value: "Global": supported values: "Cluster", "Namespaced""#,
                "spec.versions: Invalid value: array: must have exactly one version marked as storage version",
                "spec.versions[0].schema.openAPIV3Schema: Required value: schemas are required",
                r#"spec.versions[0].additionalPrinterColumns[0].jsonPath: Invalid value: "spec": "spec" must begin with '.'"#,
            ]
        );
    }
}
