//! What is asked about objects so often that it is kept beside their bytes.

use serde::Deserialize;
use serde_json::Value;

/// Read once per change instead of once per question.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Index {
    /// `metadata.labels`.
    pub labels: Box<[(String, String)]>,
    /// `metadata.uid`.
    pub uid: Box<str>,
    /// The uids in `metadata.ownerReferences`.
    pub owners: Box<[String]>,
    /// Whether `metadata.deletionTimestamp` is set.
    pub deleting: bool,
}

/// The part of an object that is read at the start; the rest is only walked over, which is several times faster.
#[derive(Deserialize)]
struct Head {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    resource_version: String,
    #[serde(default)]
    labels: Value,
    #[serde(default)]
    uid: Value,
    #[serde(default)]
    owner_references: Value,
    #[serde(default)]
    deletion_timestamp: Value,
}

impl Index {
    /// Reads it from an object.
    pub fn of(object: &Value) -> Index {
        let metadata = &object["metadata"];
        let field = |name: &str| &metadata[name];
        Index::from_parts(field("labels"), field("uid"), field("ownerReferences"), field("deletionTimestamp"))
    }

    /// Reads it and the revision from the bytes of an object; nothing if they are not one.
    pub fn read(json: &[u8]) -> Option<(u64, Index)> {
        let Head { metadata } = serde_json::from_slice(json).ok()?;
        let Metadata { resource_version, labels, uid, owner_references, deletion_timestamp } = metadata;
        let index = Index::from_parts(&labels, &uid, &owner_references, &deletion_timestamp);
        Some((resource_version.parse().ok()?, index))
    }

    fn from_parts(labels: &Value, uid: &Value, owners: &Value, deletion: &Value) -> Index {
        let labels = labels.as_object().into_iter().flatten();
        let owners = owners.as_array().into_iter().flatten();
        Index {
            labels: labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect(),
            uid: uid.as_str().unwrap_or_default().into(),
            owners: owners.filter_map(|owner| Some(owner["uid"].as_str()?.to_owned())).collect(),
            deleting: !deletion.is_null(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn bytes_and_value_tell_the_same() {
        let object = json!({"spec": {"metadata": 1}, "metadata": {"resourceVersion": "7", "labels": {"b": "1", "a": "2"},
            "uid": "u", "ownerReferences": [{"uid": "o", "name": "n"}], "deletionTimestamp": "2026-01-01T00:00:00Z",
            "managedFields": [{}]}});
        assert_eq!(Index::read(object.to_string().as_bytes()), Some((7, Index::of(&object))));
        assert_eq!(
            Index::read(b"{\"metadata\":{\"resourceVersion\":\"7\"}}").map(|(_, index)| index),
            Some(Index::default())
        );
        for broken in [
            "",
            "[]",
            "{}",
            "{\"metadata\":{}}",
            "{\"metadata\":{\"resourceVersion\":\"x\"}}",
            "{\"metadata\":{\"resourceVersion\":\"1\"}",
        ] {
            assert_eq!(Index::read(broken.as_bytes()), None, "{broken}");
        }
    }
}
