//! Removing what the schema does not know.

use serde_json::Value;

use super::{Additional, Schema};

impl Schema {
    /// Removes fields the schema does not know and says which, as dotted paths. `apiVersion`, `kind` and `metadata` of
    /// the object itself and of embedded objects are left to others.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        let mut dropped = Vec::new();
        self.prune_at(object, "", true, &mut dropped);
        dropped
    }

    fn prune_at(&self, value: &mut Value, path: &str, is_object: bool, dropped: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                let known = |key: &str| {
                    self.preserve_unknown
                        || self.properties.contains_key(key)
                        || !matches!(self.additional, Additional::None)
                        || ((is_object || self.embedded) && ["apiVersion", "kind", "metadata"].contains(&key))
                };
                let unknown: Vec<String> = map.keys().filter(|key| !known(key)).cloned().collect();
                for key in unknown {
                    map.shift_remove(&key);
                    dropped.push(join(path, &key));
                }
                for (key, child) in map.iter_mut() {
                    if (is_object || self.embedded) && key == "metadata" {
                        continue;
                    }
                    if let Some(schema) = self.property(key) {
                        schema.prune_at(child, &join(path, key), false, dropped);
                    }
                }
            }
            Value::Array(items) => {
                if let Some(schema) = self.items() {
                    for (index, item) in items.iter_mut().enumerate() {
                        schema.prune_at(item, &format!("{path}[{index}]"), false, dropped);
                    }
                }
            }
            _ => {}
        }
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}
