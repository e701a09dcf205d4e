//! What a request asks for: path, query and headers turned into values. Pure.

use percent_encoding::percent_decode_str;

use crate::change::FieldValidation;
use crate::error::ApiError;
use crate::table::IncludeObject;

/// What a path leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// `/healthz`, `/livez`, `/readyz`.
    Health,
    /// `/metrics`.
    Metrics,
    /// `/version`.
    Version,
    /// `/`.
    Index,
    /// `/api`.
    CoreVersions,
    /// `/apis`.
    Groups,
    /// `/apis/{group}`.
    Group(String),
    /// `/api/v1` or `/apis/{group}/{version}`.
    Resources(String, String),
    /// `/openapi/v2`.
    OpenApiV2,
    /// `/openapi/v3`.
    OpenApiIndex,
    /// `/openapi/v3/…`, for group and version.
    OpenApi(String, String),
    /// `/tokens`, or the one of an id.
    Tokens(Option<String>),
    /// `/restore`.
    Restore,
    /// Objects of a resource.
    Objects(ObjectPath),
}

/// The path to a collection or to an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectPath {
    /// Empty for the core.
    pub group: String,
    /// The version.
    pub version: String,
    /// The resource.
    pub plural: String,
    /// None for cluster-wide resources and for lists over all namespaces.
    pub namespace: Option<String>,
    /// None for the collection.
    pub name: Option<String>,
    /// For example `status`.
    pub subresource: Option<String>,
}

/// Reads a path.
pub fn parse_path(path: &str) -> Option<Route> {
    let mut segments = Vec::new();
    for segment in path.trim_matches('/').split('/') {
        segments.push(percent_decode_str(segment).decode_utf8().ok()?.into_owned());
    }
    let parts: Vec<&str> = segments.iter().map(String::as_str).collect();
    match parts.as_slice() {
        [""] => Some(Route::Index),
        ["healthz" | "livez" | "readyz", ..] => Some(Route::Health),
        ["metrics"] => Some(Route::Metrics),
        ["version"] => Some(Route::Version),
        ["restore"] => Some(Route::Restore),
        ["tokens"] => Some(Route::Tokens(None)),
        ["tokens", id] => Some(Route::Tokens(Some((*id).into()))),
        ["api"] => Some(Route::CoreVersions),
        ["apis"] => Some(Route::Groups),
        ["apis", group] => Some(Route::Group((*group).into())),
        ["api", version] => Some(Route::Resources(String::new(), (*version).into())),
        ["apis", group, version] => Some(Route::Resources((*group).into(), (*version).into())),
        ["openapi", "v2"] => Some(Route::OpenApiV2),
        ["openapi", "v3"] => Some(Route::OpenApiIndex),
        ["openapi", "v3", "api", version] => Some(Route::OpenApi(String::new(), (*version).into())),
        ["openapi", "v3", "apis", group, version] => Some(Route::OpenApi((*group).into(), (*version).into())),
        ["api", version, rest @ ..] => object_path("", version, rest).map(Route::Objects),
        ["apis", group, version, rest @ ..] => object_path(group, version, rest).map(Route::Objects),
        _ => None,
    }
}

fn object_path(group: &str, version: &str, rest: &[&str]) -> Option<ObjectPath> {
    if rest.iter().any(|part| part.is_empty()) {
        return None;
    }
    let path = |plural: &str, namespace: Option<&str>, name: Option<&str>, subresource: Option<&str>| ObjectPath {
        group: group.into(),
        version: version.into(),
        plural: plural.into(),
        namespace: namespace.map(str::to_owned),
        name: name.map(str::to_owned),
        subresource: subresource.map(str::to_owned),
    };
    Some(match rest {
        // Subresources of a namespace look like resources in it.
        ["namespaces", name, sub @ ("status" | "finalize")] if group.is_empty() => {
            path("namespaces", None, Some(name), Some(sub))
        }
        ["namespaces", namespace, plural] => path(plural, Some(namespace), None, None),
        ["namespaces", namespace, plural, name] => path(plural, Some(namespace), Some(name), None),
        ["namespaces", namespace, plural, name, sub] => path(plural, Some(namespace), Some(name), Some(sub)),
        [plural] => path(plural, None, None, None),
        [plural, name] => path(plural, None, Some(name), None),
        [plural, name, sub] => path(plural, None, Some(name), Some(sub)),
        _ => return None,
    })
}

/// The query of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Reads the part after the question mark.
    pub fn parse(text: &str) -> Query {
        Query(form_urlencoded::parse(text.as_bytes()).into_owned().collect())
    }

    /// The value of a parameter, if it is there and not empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// The query with one more requirement in a selector.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Query {
        match self.0.iter_mut().find(|(key, _)| key == name) {
            Some((_, known)) if !known.is_empty() => *known = format!("{known},{value}"),
            Some((_, known)) => value.clone_into(known),
            None => self.0.push((name.into(), value.into())),
        }
        self
    }

    /// Whether a parameter is there, empty or not.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(key, _)| key == name)
    }

    /// `true` or `1`.
    pub fn flag(&self, name: &str) -> bool {
        matches!(self.get(name), Some("true" | "1" | "True"))
    }

    /// A number, or a refusal.
    pub fn number(&self, name: &str) -> Result<Option<u64>, ApiError> {
        let parse = |text: &str| {
            text.parse().map_err(|_| ApiError::bad_request(format!("{name} must be a number, not {text:?}")))
        };
        self.get(name).map(parse).transpose()
    }

    /// Whether nothing may be stored; anything but `All` is refused.
    pub fn dry_run(&self) -> Result<bool, ApiError> {
        match self.get("dryRun") {
            None => Ok(false),
            Some("All") => Ok(true),
            Some(other) => Err(ApiError::bad_request(format!("dryRun: unsupported value {other:?}: use All"))),
        }
    }

    /// What to do about unknown fields.
    pub fn field_validation(&self) -> Result<FieldValidation, ApiError> {
        match self.get("fieldValidation") {
            None | Some("Warn") => Ok(FieldValidation::Warn),
            Some("Ignore") => Ok(FieldValidation::Ignore),
            Some("Strict") => Ok(FieldValidation::Strict),
            Some(other) => Err(ApiError::bad_request(format!(
                "fieldValidation: unsupported value {other:?}: use Ignore, Warn or Strict"
            ))),
        }
    }

    /// How much of each object goes into a table.
    pub fn include_object(&self) -> IncludeObject {
        match self.get("includeObject") {
            Some("None") => IncludeObject::None,
            Some("Object") => IncludeObject::Object,
            _ => IncludeObject::Metadata,
        }
    }
}

/// In which form objects are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// As they are.
    Plain,
    /// As rows of a table.
    Table,
    /// Their metadata only.
    Metadata,
    /// Aggregated discovery of this version.
    Discovery(&'static str),
}

/// Reads the Accept header: the first form in it that can be given.
pub fn parse_accept(header: &str) -> Result<Form, ApiError> {
    if header.trim().is_empty() {
        return Ok(Form::Plain);
    }
    for choice in header.split(',') {
        let mut parts = choice.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        if !matches!(media, "application/json" | "*/*" | "application/*") {
            continue;
        }
        let (mut what, mut version) = (None, None);
        for part in parts {
            match part.split_once('=') {
                Some(("as", value)) => what = Some(value),
                Some(("v", value)) => version = Some(value),
                _ => {}
            }
        }
        match (what, version) {
            (None, _) => return Ok(Form::Plain),
            (Some("Table"), Some("v1") | None) => return Ok(Form::Table),
            (Some("PartialObjectMetadata" | "PartialObjectMetadataList"), Some("v1") | None) => {
                return Ok(Form::Metadata);
            }
            (Some("APIGroupDiscoveryList"), Some("v2")) => return Ok(Form::Discovery("v2")),
            (Some("APIGroupDiscoveryList"), Some("v2beta1")) => return Ok(Form::Discovery("v2beta1")),
            _ => {}
        }
    }
    Err(ApiError::new(406, "NotAcceptable", "only the following media types are accepted: application/json"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn objects(path: &str) -> String {
        match parse_path(path) {
            Some(Route::Objects(o)) => {
                let text = |part: &Option<String>| part.clone().unwrap_or_else(|| "-".into());
                let (namespace, name, sub) = (text(&o.namespace), text(&o.name), text(&o.subresource));
                format!("{}/{} {} {namespace} {name} {sub}", o.group, o.version, o.plural)
            }
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn paths_lead_to_objects() {
        for (path, expected) in [
            ("/api/v1/namespaces", "/v1 namespaces - - -"),
            ("/api/v1/namespaces/a", "/v1 namespaces - a -"),
            ("/api/v1/namespaces/a/status", "/v1 namespaces - a status"),
            ("/api/v1/namespaces/a/configmaps", "/v1 configmaps a - -"),
            ("/api/v1/namespaces/a/configmaps/b", "/v1 configmaps a b -"),
            ("/api/v1/configmaps", "/v1 configmaps - - -"),
            ("/apis/g/v1/namespaces/a/widgets/b/status", "g/v1 widgets a b status"),
            ("/apis/g/v1/things/system%3Anode", "g/v1 things - system:node -"),
            ("/apis/g/v1/things/a/b/c/d/e/f", "None"),
            ("/apis/g/v1/things//x", "None"),
            ("/nothing", "None"),
        ] {
            assert_eq!(objects(path), expected, "{path}");
        }
    }

    #[test]
    fn the_first_acceptable_form_is_given() {
        for (header, expected) in [
            ("", Some(Form::Plain)),
            ("application/json", Some(Form::Plain)),
            ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", Some(Form::Table)),
            ("application/vnd.kubernetes.protobuf, */*", Some(Form::Plain)),
            (
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json",
                Some(Form::Discovery("v2")),
            ),
            ("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", Some(Form::Metadata)),
            ("text/html", None),
        ] {
            assert_eq!(parse_accept(header).ok(), expected, "{header}");
        }
    }

    proptest! {
        #[test]
        fn no_path_makes_the_parser_panic(path in "/?[a-z/%0-9]{0,60}") {
            let _ = parse_path(&path);
        }
    }
}
