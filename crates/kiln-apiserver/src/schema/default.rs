//! Filling in what was left out.

use serde_json::Value;

use super::Schema;

impl Schema {
    /// Fills in defaults; a null that is not allowed and has a default is replaced by it.
    pub fn default_fields(&self, value: &mut Value) {
        match value {
            Value::Object(map) => {
                for (name, schema) in &self.properties {
                    let Some(default) = &schema.default else { continue };
                    let absent = match map.get(name) {
                        None => true,
                        Some(Value::Null) => !schema.nullable,
                        Some(_) => false,
                    };
                    if absent {
                        map.insert(name.clone(), default.clone());
                    }
                }
                for (name, child) in map.iter_mut() {
                    if let Some(schema) = self.property(name) {
                        schema.default_fields(child);
                    }
                }
            }
            Value::Array(items) => {
                if let Some(schema) = self.items() {
                    for item in items {
                        schema.default_fields(item);
                    }
                }
            }
            _ => {}
        }
    }

    /// Removes nulls that are not allowed and have no default: clients write them for "not set".
    pub fn drop_nulls(&self, value: &mut Value) {
        match value {
            Value::Object(map) => {
                map.retain(|name, child| match self.property(name) {
                    Some(schema) if child.is_null() => schema.nullable || schema.default.is_some(),
                    Some(schema) => {
                        schema.drop_nulls(child);
                        true
                    }
                    None => true,
                });
            }
            Value::Array(items) => {
                if let Some(schema) = self.items() {
                    items.iter_mut().for_each(|item| schema.drop_nulls(item));
                }
            }
            _ => {}
        }
    }
}
