//! One served resource: a kind in one version, with everything the API says about it.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::error::Named;
use crate::json_path::JsonPath;
use crate::scale::ScalePaths;
use crate::schema::Schema;

/// A kind in one version.
#[derive(Debug, Clone)]
pub struct Resource {
    /// API group, empty for the core.
    pub group: String,
    /// API version.
    pub version: String,
    /// For example `Widget`.
    pub kind: String,
    /// For example `WidgetList`.
    pub list_kind: String,
    /// For example `widgets`.
    pub plural: String,
    /// For example `widget`.
    pub singular: String,
    /// For example `wd`.
    pub short_names: Vec<String>,
    /// For example `all`.
    pub categories: Vec<String>,
    /// Whether objects are in namespaces.
    pub namespaced: bool,
    /// Where the objects are stored; the same for all versions.
    pub collection: Arc<str>,
    /// Whether status is a subresource: written by others than those who write the rest.
    pub status: bool,
    /// Where the numbers of the scale subresource are, if there is one.
    pub scale: Option<ScalePaths>,
    /// Whether changes outside metadata and status are counted in `metadata.generation`.
    pub counts_generation: bool,
    /// Whether a replacement must say which revision it replaces.
    pub requires_revision: bool,
    /// Whether the kind comes with the server: clients have it compiled in and send strategic merge patches for it. Each of the
    /// others has a definition, of the collection's name.
    pub builtin: bool,
    /// What `kubectl get` shows after the name.
    pub columns: Vec<Column>,
    /// What whoever uses this version is told, if it is on its way out.
    pub deprecation: Option<String>,
    /// What objects look like.
    pub schema: Arc<Schema>,
    /// The schema as it is published.
    pub published: Arc<Value>,
    /// Fields a field selector may name, besides name and namespace.
    pub selectable: Vec<(String, JsonPath)>,
    /// Top-level fields that are called otherwise in what is stored: the name here, the name there.
    pub renamed: &'static [(&'static str, &'static str)],
}

/// A column of `kubectl get`.
#[derive(Debug, Clone)]
pub struct Column {
    /// The heading.
    pub name: String,
    /// `string`, `integer`, `date`, …
    pub kind: String,
    /// For the table's definition.
    pub description: String,
    /// 0 is always shown, more only with `-o wide`.
    pub priority: i64,
    /// Where the value is.
    pub value: ColumnValue,
}

/// Where a cell's value comes from.
#[derive(Debug, Clone)]
pub enum ColumnValue {
    /// A field.
    Path(JsonPath),
    /// The first of these that is there.
    First(Vec<JsonPath>),
    /// How many entries these have together.
    Count(Vec<JsonPath>),
    /// Two fields with a slash, the first in lower case: `pod/web`.
    Reference(JsonPath, JsonPath),
    /// Seconds as people say them.
    Duration(JsonPath),
    /// How far a certificate signing request has come.
    RequestState,
    /// Whether a node is ready, and whether it takes work.
    NodeState,
    /// What a node's labels say it is for.
    NodeRoles,
    /// The first text at a field, or these words if there is none.
    Otherwise(JsonPath, String),
}

impl Resource {
    /// `group/version`, or the version alone for the core.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// What messages about an object call it.
    pub fn named<'a>(&'a self, name: &'a str) -> Named<'a> {
        Named { group: &self.group, resource: &self.plural, name }
    }

    /// What messages about an object's contents call it.
    pub fn named_kind<'a>(&'a self, name: &'a str) -> Named<'a> {
        Named { group: &self.group, resource: &self.kind, name }
    }

    /// Whether this is the core resource or the one of that group.
    pub fn is(&self, group: &str, plural: &str) -> bool {
        self.group == group && self.plural == plural
    }

    /// A stored object as this version shows it.
    pub fn shown(&self, mut stored: Value) -> Value {
        if let Value::Object(map) = &mut stored {
            for (here, there) in self.renamed {
                rename(map, there, here);
            }
        }
        stored["apiVersion"] = self.api_version().into();
        stored
    }

    /// An object of this version as it is stored. All versions of a custom resource have the same fields.
    pub fn stored<'a>(&self, object: &'a Value) -> Cow<'a, Value> {
        if self.renamed.is_empty() {
            return Cow::Borrowed(object);
        }
        let mut object = object.clone();
        if let Value::Object(map) = &mut object {
            for (here, there) in self.renamed {
                rename(map, here, there);
            }
        }
        // So far only events, whose stored form is that of the core.
        object["apiVersion"] = "v1".into();
        Cow::Owned(object)
    }

    /// The text at a selectable field, empty when there is none.
    pub fn field_text(&self, object: &Value, path: &str) -> String {
        let own = match path {
            "metadata.name" => Some(&object["metadata"]["name"]),
            "metadata.namespace" => Some(&object["metadata"]["namespace"]),
            _ => None,
        };
        match own {
            Some(value) => value.as_str().unwrap_or_default().to_owned(),
            None => self
                .selectable
                .iter()
                .find(|(known, _)| known == path)
                .map(|(_, field)| field.text(object))
                .unwrap_or_default(),
        }
    }

    /// Whether a field selector may name this path.
    pub fn is_selectable(&self, path: &str) -> bool {
        path == "metadata.name"
            || path == "metadata.namespace"
            || self.selectable.iter().any(|(known, _)| known == path)
    }
}

/// Gives a field another name and leaves the order of the others.
fn rename(map: &mut Map<String, Value>, from: &str, to: &str) {
    if let Some(value) = map.shift_remove(from) {
        map.insert(to.into(), value);
    }
}
