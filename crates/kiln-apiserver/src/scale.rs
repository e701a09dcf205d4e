//! The `scale` subresource: how many replicas an object asks for, in the one form autoscalers and `kubectl scale` know.
//!
//! A definition says where in its objects the numbers are; [`scale_of`] reads them, [`with_scale`] writes the wanted one.

use serde_json::{Map, Value, json};

use crate::error::{ApiError, Cause};

/// Where the numbers are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScalePaths {
    /// How many are wanted.
    pub spec: FieldPath,
    /// How many there are.
    pub status: FieldPath,
    /// Which ones.
    pub selector: Option<FieldPath>,
}

/// A path of plain fields: `.spec.replicas`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldPath {
    text: String,
    fields: Vec<String>,
}

/// The version and kind of what the subresource gives.
pub const API_VERSION: &str = "autoscaling/v1";
/// See [`API_VERSION`].
pub const KIND: &str = "Scale";

impl ScalePaths {
    /// Reads `subresources.scale` of a definition; adds what is wrong with it.
    pub fn parse(value: &Value, at: &str, causes: &mut Vec<Cause>) -> Option<ScalePaths> {
        let mut path = |key: &str, parents: &[&str], required: bool| {
            let text = value[key].as_str().unwrap_or_default();
            let field = format!("{at}.{key}");
            if text.is_empty() {
                if required {
                    causes.push(Cause::required(field, ""));
                }
                return None;
            }
            let parsed = FieldPath::parse(text).filter(|path| parents.contains(&path.fields[0].as_str()));
            if parsed.is_none() {
                let parents: Vec<String> = parents.iter().map(|parent| format!(".{parent}")).collect();
                let why = format!("should be a json path under {}", parents.join(" or "));
                causes.push(Cause::invalid(field, &value[key], &why));
            }
            parsed
        };
        let spec = path("specReplicasPath", &["spec"], true);
        let status = path("statusReplicasPath", &["status"], true);
        let selector = path("labelSelectorPath", &["spec", "status"], false);
        Some(ScalePaths { spec: spec?, status: status?, selector })
    }

    /// How many an object asks for.
    pub fn wanted(&self, object: &Value) -> i64 {
        self.spec.find(object).and_then(Value::as_i64).unwrap_or(0)
    }

    /// What is wrong with the numbers of an object.
    pub fn validate(&self, object: &Value) -> Vec<Cause> {
        let mut causes = Vec::new();
        for path in [&self.spec, &self.status] {
            let Some(value) = path.find(object) else { continue };
            let why = match value.as_i64() {
                Some(0..=0x7fff_ffff) => continue,
                Some(..0) => "should be a non-negative integer",
                Some(_) => "should be less than or equal to 2147483647",
                None => {
                    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                    let why = format!(
                        "{} accessor error: {text} is of the type {}, expected int64",
                        path.text,
                        go_type(value)
                    );
                    causes.push(Cause::invalid(path.text.as_str(), &0.into(), &why));
                    continue;
                }
            };
            causes.push(Cause::invalid(path.text.as_str(), value, why));
        }
        causes
    }
}

impl FieldPath {
    fn parse(text: &str) -> Option<FieldPath> {
        let fields: Vec<String> = text.strip_prefix('.')?.split('.').map(str::to_owned).collect();
        let plain = |field: &String| !field.is_empty() && !field.contains(['[', ']', '\'']);
        (fields.len() > 1 && fields.iter().all(plain)).then(|| FieldPath { text: text.to_owned(), fields })
    }

    fn find<'a>(&self, object: &'a Value) -> Option<&'a Value> {
        let found = self.fields.iter().try_fold(object, |value, field| value.get(field))?;
        (!found.is_null()).then_some(found)
    }

    fn set(&self, object: &mut Value, value: Value) {
        let mut at = object;
        for field in &self.fields {
            if !at.is_object() {
                *at = Value::Object(Map::new());
            }
            at = &mut at[field.as_str()];
        }
        *at = value;
    }
}

/// The scale of an object.
pub fn scale_of(paths: &ScalePaths, object: &Value) -> Value {
    let mut metadata = Map::new();
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object["metadata"].get(field) {
            metadata.insert(field.into(), value.clone());
        }
    }
    let number = |path: &FieldPath| path.find(object).and_then(Value::as_i64).unwrap_or(0);
    let mut spec = Map::new();
    // A zero is left out here, and clients take what is left out for zero.
    if paths.wanted(object) != 0 {
        spec.insert("replicas".into(), paths.wanted(object).into());
    }
    let mut status = json!({"replicas": number(&paths.status)});
    if let Some(selector) = paths.selector.as_ref().and_then(|path| path.find(object)).and_then(Value::as_str) {
        status["selector"] = selector.into();
    }
    json!({"kind": KIND, "apiVersion": API_VERSION, "metadata": metadata, "spec": spec, "status": status})
}

/// The scale of an object that was asked for by name: one that never says how many it wants cannot be scaled.
pub fn existing_scale(paths: &ScalePaths, object: &Value) -> Result<Value, ApiError> {
    match paths.spec.find(object) {
        Some(_) => Ok(scale_of(paths, object)),
        None => Err(ApiError::internal(format!("the spec replicas field {:?} does not exist", paths.spec.text))),
    }
}

/// The object with the replicas its scale asks for, ready to be an update of it.
pub fn with_scale(paths: &ScalePaths, object: &Value, scale: &Value) -> Result<Value, ApiError> {
    for (key, expected) in [("kind", KIND), ("apiVersion", API_VERSION)] {
        match scale[key].as_str().unwrap_or_default() {
            given if given.is_empty() || given == expected => {}
            given => {
                let message = format!("the {key} in the data ({given}) does not match the expected {key} ({expected})");
                return Err(ApiError::bad_request(message));
            }
        }
    }
    let replicas = match &scale["spec"]["replicas"] {
        Value::Null if paths.spec.find(object).is_none() => {
            let message = format!("the spec replicas field {:?} cannot be empty", paths.spec.text);
            return Err(ApiError::bad_request(message));
        }
        Value::Null => 0.into(),
        value if value.is_i64() || value.is_u64() => value.clone(),
        value => return Err(ApiError::bad_request(format!("spec.replicas must be an integer, not {value}"))),
    };
    let mut wanted = object.clone();
    paths.spec.set(&mut wanted, replicas);
    for field in ["name", "namespace", "uid", "resourceVersion"] {
        // What the client says it changes is checked against what there is.
        match scale["metadata"][field].as_str().unwrap_or_default() {
            "" => {}
            given => wanted["metadata"][field] = given.into(),
        }
    }
    Ok(wanted)
}

/// What an apply to the scale wants of the object.
pub fn applied_scale(paths: &ScalePaths, api_version: &str, kind: &str, scale: &Value) -> Value {
    let mut wanted = json!({"apiVersion": api_version, "kind": kind, "metadata": scale["metadata"]});
    if let Some(replicas) = scale["spec"].get("replicas") {
        paths.spec.set(&mut wanted, replicas.clone());
    }
    wanted
}

/// What the real server, which is written in Go, calls the type of a value that is no whole number.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "string",
        Value::Bool(_) => "bool",
        Value::Object(_) => "map[string]interface {}",
        Value::Array(_) => "[]interface {}",
        Value::Number(_) => "float64",
        Value::Null => "<nil>",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths() -> ScalePaths {
        let given = json!({"specReplicasPath": ".spec.pool.replicas", "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector"});
        ScalePaths::parse(&given, "scale", &mut Vec::new()).unwrap()
    }

    #[test]
    fn the_scale_is_read_and_written_where_the_definition_says() {
        let object = json!({"metadata": {"name": "p", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"}},
            "spec": {"pool": {"replicas": 3}, "other": 1}, "status": {"replicas": 2, "selector": "a=b"}});
        let scale = existing_scale(&paths(), &object).unwrap();
        assert_eq!(
            scale,
            json!({"kind": "Scale", "apiVersion": "autoscaling/v1",
                "metadata": {"name": "p", "uid": "u", "resourceVersion": "7"},
                "spec": {"replicas": 3}, "status": {"replicas": 2, "selector": "a=b"}})
        );
        let wanted = with_scale(&paths(), &object, &json!({"spec": {"replicas": 5}})).unwrap();
        assert_eq!(wanted["spec"], json!({"pool": {"replicas": 5}, "other": 1}));
        let refused = with_scale(&paths(), &json!({"spec": {}}), &json!({"spec": {}})).unwrap_err();
        assert_eq!(refused.message, "the spec replicas field \".spec.pool.replicas\" cannot be empty");
        let wrong = with_scale(&paths(), &object, &json!({"kind": "Widget"})).unwrap_err();
        assert_eq!(wrong.message, "the kind in the data (Widget) does not match the expected kind (Scale)");
    }

    #[test]
    fn paths_outside_spec_and_status_are_refused() {
        let mut causes = Vec::new();
        let given = json!({"specReplicasPath": ".status.replicas", "labelSelectorPath": ".metadata.x"});
        assert_eq!(ScalePaths::parse(&given, "scale", &mut causes), None);
        let told: Vec<String> = causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
        assert_eq!(
            told,
            [
                "scale.specReplicasPath: Invalid value: \".status.replicas\": should be a json path under .spec",
                "scale.statusReplicasPath: Required value",
                "scale.labelSelectorPath: Invalid value: \".metadata.x\": should be a json path under .spec or .status",
            ]
        );
        let negative = paths().validate(&json!({"spec": {"pool": {"replicas": -1}}}));
        assert_eq!(negative[0].message, "Invalid value: -1: should be a non-negative integer");
    }
}
