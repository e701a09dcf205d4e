//! What is asked about objects so often that it is kept beside their bytes.

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

impl Index {
    /// Reads it from an object.
    pub fn of(object: &Value) -> Index {
        let metadata = &object["metadata"];
        let labels = metadata["labels"].as_object().into_iter().flatten();
        let owners = metadata["ownerReferences"].as_array().into_iter().flatten();
        Index {
            labels: labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect(),
            uid: metadata["uid"].as_str().unwrap_or_default().into(),
            owners: owners.filter_map(|owner| Some(owner["uid"].as_str()?.to_owned())).collect(),
            deleting: !metadata["deletionTimestamp"].is_null(),
        }
    }
}
