//! Sets of field paths, and the `FieldsV1` form in which `managedFields` keep them.
//!
//! A path is a list of elements as `FieldsV1` writes them: `f:name` a field, `k:{"name":"a"}` a list item by its keys,
//! `v:"a"` an item of a set by its value.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value};

/// One step of a path. Paths share their beginnings, so the steps are shared.
pub type Element = Arc<str>;

/// Where a field is.
pub type Path = Vec<Element>;

/// A set of paths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSet(pub BTreeSet<Path>);

/// Deeper paths are not read.
const DEEPEST: usize = 128;

impl FieldSet {
    /// Reads `fieldsV1`.
    pub fn parse(value: &Value) -> FieldSet {
        let mut set = BTreeSet::new();
        read(value, &mut Vec::new(), &mut set);
        FieldSet(set)
    }

    /// Writes `fieldsV1`.
    pub fn render(&self) -> Value {
        let mut root = Value::Object(Map::new());
        for path in &self.0 {
            let mut at = &mut root;
            for element in path {
                let Value::Object(map) = at else { break };
                at = map.entry(&**element).or_insert_with(|| Value::Object(Map::new()));
            }
            // Paths come in order: whether something below follows is not known yet.
            if let Value::Object(map) = at {
                map.insert(".".into(), Value::Object(Map::new()));
            }
        }
        simplify(&mut root);
        root
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is here and there.
    #[must_use]
    pub fn intersection(&self, other: &FieldSet) -> FieldSet {
        FieldSet(self.0.intersection(&other.0).cloned().collect())
    }

    /// What is here and not there.
    #[must_use]
    pub fn difference(&self, other: &FieldSet) -> FieldSet {
        FieldSet(self.0.difference(&other.0).cloned().collect())
    }

    /// What is here or there.
    #[must_use]
    pub fn union(&self, other: &FieldSet) -> FieldSet {
        FieldSet(self.0.union(&other.0).cloned().collect())
    }

    /// What the predicate takes.
    #[must_use]
    pub fn filter(&self, keep: impl Fn(&[Element]) -> bool) -> FieldSet {
        FieldSet(self.0.iter().filter(|path| keep(path)).cloned().collect())
    }

    /// Whether this path, or one below it, is in the set.
    pub fn touches(&self, path: &[Element]) -> bool {
        self.0.range(path.to_vec()..).next().is_some_and(|next| next.starts_with(path))
    }
}

/// A path as messages write it: `.spec.ports[name="a"].mtu`.
pub fn render_path(path: &[Element]) -> String {
    let mut text = String::new();
    for element in path {
        match element.split_once(':') {
            Some(("k", keys)) => {
                let keys: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
                let parts: Vec<String> = keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
                text.push_str(&format!("[{}]", parts.join(",")));
            }
            Some(("v", value)) => text.push_str(&format!("[={value}]")),
            Some((_, name)) => text.push_str(&format!(".{name}")),
            None => text.push_str(element),
        }
    }
    text
}

fn read(value: &Value, path: &mut Path, set: &mut BTreeSet<Path>) {
    let Value::Object(map) = value else { return };
    if path.len() > DEEPEST {
        return;
    }
    if map.is_empty() && !path.is_empty() {
        set.insert(path.clone());
    }
    for (key, below) in map {
        if key == "." {
            set.insert(path.clone());
        } else {
            path.push(key.as_str().into());
            read(below, path, set);
            path.pop();
        }
    }
}

/// `{".": {}}` alone is written `{}`.
fn simplify(value: &mut Value) {
    let Value::Object(map) = value else { return };
    if map.len() == 1 && map.contains_key(".") {
        map.clear();
    }
    map.iter_mut().filter(|(key, _)| *key != ".").for_each(|(_, below)| simplify(below));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sets_are_read_back_as_written() {
        let fields = json!({
            "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
            "f:spec": {"f:ports": {"k:{\"name\":\"p\"}": {".": {}, "f:mtu": {}}}, "f:tags": {"v:\"x\"": {}}},
        });
        let set = FieldSet::parse(&fields);
        assert_eq!(set.render(), fields);
        let paths: Vec<String> = set.0.iter().map(|path| render_path(path)).collect();
        assert_eq!(
            paths,
            [
                ".metadata.labels",
                ".metadata.labels.a",
                ".spec.ports[name=\"p\"]",
                ".spec.ports[name=\"p\"].mtu",
                ".spec.tags[=\"x\"]"
            ]
        );
        assert!(set.touches(&["f:spec".into(), "f:ports".into()]));
        assert!(!set.touches(&["f:status".into()]));
    }
}
