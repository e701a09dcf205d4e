//! What kubectl asks first: which groups, versions and resources there are.

use serde_json::{Value, json};

use crate::registry::Registry;
use crate::resource::Resource;

const VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
/// Nobody empties a cluster with one request: namespaces go one by one.
const NAMESPACE_VERBS: [&str; 7] = ["create", "delete", "get", "list", "patch", "update", "watch"];
/// The real server does not sort those of defined kinds, and kubectl prints them as they come.
const DEFINED_VERBS: [&str; 8] = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];

/// Kinds that are only asked, never stored: group, kind, plural.
pub const REVIEWS: [(&str, &str, &str, bool); 5] = [
    ("authentication.k8s.io", "SelfSubjectReview", "selfsubjectreviews", false),
    ("authorization.k8s.io", "SelfSubjectAccessReview", "selfsubjectaccessreviews", false),
    ("authorization.k8s.io", "SelfSubjectRulesReview", "selfsubjectrulesreviews", false),
    ("authorization.k8s.io", "SubjectAccessReview", "subjectaccessreviews", false),
    ("authorization.k8s.io", "LocalSubjectAccessReview", "localsubjectaccessreviews", true),
];

/// `/api`.
pub fn core_versions() -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
}

/// `/apis`.
pub fn group_list(registry: &Registry) -> Value {
    let groups: Vec<Value> =
        all_groups(registry).iter().map(|(group, versions)| group_entry(group, versions)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/{group}`.
pub fn group(registry: &Registry, name: &str) -> Option<Value> {
    let groups = all_groups(registry);
    let (group, versions) = groups.iter().find(|(group, _)| group == name)?;
    let mut entry = group_entry(group, versions);
    entry["kind"] = "APIGroup".into();
    entry["apiVersion"] = "v1".into();
    Some(entry)
}

/// `/api/v1`, `/apis/{group}/{version}`.
pub fn resource_list(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let is_core = group.is_empty() && version == "v1";
    if !is_core && !all_groups(registry).iter().any(|(g, v)| g == group && v.iter().any(|v| v == version)) {
        return None;
    }
    let mut resources = Vec::new();
    for resource in registry.of_version(group, version) {
        let mut entry = json!({
            "name": resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced,
            "kind": resource.kind, "verbs": verbs_of(resource),
        });
        insert_names(&mut entry, resource);
        resources.push(entry);
        for (sub, verbs) in subresources(resource) {
            let mut entry = json!({"name": format!("{}/{sub}", resource.plural), "singularName": "",
                "namespaced": resource.namespaced, "kind": resource.kind, "verbs": verbs});
            if sub == "scale" {
                entry["group"] = "autoscaling".into();
                entry["version"] = "v1".into();
                entry["kind"] = crate::scale::KIND.into();
            }
            resources.push(entry);
        }
    }
    for (_, kind, plural, namespaced) in REVIEWS.iter().filter(|review| review.0 == group && version == "v1") {
        resources.push(json!({"name": plural, "singularName": kind.to_lowercase(), "namespaced": namespaced,
            "kind": kind, "verbs": ["create"]}));
    }
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    Some(json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources}))
}

/// `/api` or `/apis` with everything in one answer.
pub fn aggregated(registry: &Registry, core: bool, version: &str) -> Value {
    let groups = if core { vec![(String::new(), vec!["v1".to_owned()])] } else { all_groups(registry) };
    let items: Vec<Value> = groups
        .iter()
        .map(|(group, versions)| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|version| {
                    json!({"version": version, "freshness": "Current",
                        "resources": aggregated_resources(registry, group, version)})
                })
                .collect();
            let metadata = if group.is_empty() { json!({}) } else { json!({"name": group}) };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": format!("apidiscovery.k8s.io/{version}"),
        "metadata": {}, "items": items})
}

/// The subresources of a resource and what can be done with them.
pub fn subresources(resource: &Resource) -> Vec<(&'static str, Vec<&'static str>)> {
    let mut found = Vec::new();
    if resource.is("certificates.k8s.io", "certificatesigningrequests") {
        found.push(("approval", vec!["get", "patch", "update"]));
    }
    if resource.scale.is_some() {
        found.push(("scale", vec!["get", "patch", "update"]));
    }
    if resource.status {
        found.push(("status", vec!["get", "patch", "update"]));
    }
    found
}

fn aggregated_resources(registry: &Registry, group: &str, version: &str) -> Vec<Value> {
    let kind_of = |kind: &str| json!({"group": group, "version": version, "kind": kind});
    let scope = |namespaced: bool| if namespaced { "Namespaced" } else { "Cluster" };
    let mut resources = Vec::new();
    for resource in registry.of_version(group, version) {
        let mut entry = json!({
            "resource": resource.plural, "responseKind": kind_of(&resource.kind), "scope": scope(resource.namespaced),
            "singularResource": resource.singular, "verbs": verbs_of(resource),
        });
        insert_names(&mut entry, resource);
        let subresources: Vec<Value> = subresources(resource)
            .into_iter()
            .map(|(sub, verbs)| {
                let kind = match sub {
                    "scale" => json!({"group": "autoscaling", "version": "v1", "kind": crate::scale::KIND}),
                    _ => kind_of(&resource.kind),
                };
                json!({"subresource": sub, "responseKind": kind, "verbs": verbs})
            })
            .collect();
        if !subresources.is_empty() {
            entry["subresources"] = subresources.into();
        }
        resources.push(entry);
    }
    for (_, kind, plural, namespaced) in REVIEWS.iter().filter(|review| review.0 == group && version == "v1") {
        resources.push(json!({"resource": plural, "responseKind": kind_of(kind), "scope": scope(*namespaced),
            "singularResource": kind.to_lowercase(), "verbs": ["create"]}));
    }
    resources
}

fn all_groups(registry: &Registry) -> Vec<(String, Vec<String>)> {
    let mut groups = registry.groups();
    for (group, ..) in REVIEWS {
        if !groups.iter().any(|(known, _)| known == group) {
            groups.push((group.into(), vec!["v1".into()]));
        }
    }
    groups
}

fn group_entry(group: &str, versions: &[String]) -> Value {
    let entry = |version: &String| json!({"groupVersion": format!("{group}/{version}"), "version": version});
    let all: Vec<Value> = versions.iter().map(entry).collect();
    json!({"name": group, "versions": all, "preferredVersion": versions.first().map(entry)})
}

/// What can be done with objects of a resource.
pub fn verbs_of(resource: &Resource) -> &'static [&'static str] {
    match resource.builtin {
        true if resource.is("", "namespaces") => &NAMESPACE_VERBS,
        true => &VERBS,
        false => &DEFINED_VERBS,
    }
}

fn insert_names(entry: &mut Value, resource: &Resource) {
    if !resource.short_names.is_empty() {
        entry["shortNames"] = resource.short_names.clone().into();
    }
    if !resource.categories.is_empty() {
        entry["categories"] = resource.categories.clone().into();
    }
}
