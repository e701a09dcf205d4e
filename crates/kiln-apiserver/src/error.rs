//! What a client is told when something is refused: a Kubernetes `Status` with reason, details and causes.
//!
//! Clients act on `reason` and `details`, people read `message`; the wording follows the real API server, because
//! tools have learnt to recognise it.

use serde_json::{Map, Value, json};

/// A refusal, ready to be sent.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiError {
    /// The HTTP status.
    pub code: u16,
    /// The machine-readable reason.
    pub reason: &'static str,
    /// For people.
    pub message: String,
    /// Which object. Boxed: most results are not refusals, and all of them would be as large.
    pub details: Box<Details>,
}

/// Which object a refusal is about.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Details {
    /// Its group.
    pub group: String,
    /// Its resource name, or its kind for validation errors.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// What exactly was wrong.
    pub causes: Vec<Cause>,
    /// When to try again.
    pub retry_after_seconds: u32,
}

/// One thing that was wrong.
#[derive(Debug, Clone, PartialEq)]
pub struct Cause {
    /// The kind of mistake, for example `FieldValueInvalid`.
    pub reason: &'static str,
    /// For people.
    pub message: String,
    /// Where in the object.
    pub field: String,
}

/// What an object is called in messages: `widgets.example.org "w1"`.
#[derive(Debug, Clone, Copy)]
pub struct Named<'a> {
    /// The group, empty for the core.
    pub group: &'a str,
    /// Resource or kind.
    pub resource: &'a str,
    /// The object.
    pub name: &'a str,
}

impl ApiError {
    /// A refusal without an object.
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> ApiError {
        ApiError { code, reason, message: message.into(), details: Box::default() }
    }

    /// 400: the request makes no sense.
    pub fn bad_request(message: impl Into<String>) -> ApiError {
        ApiError::new(400, "BadRequest", message)
    }

    /// 401: who are you?
    pub fn unauthorized() -> ApiError {
        ApiError::new(401, "Unauthorized", "Unauthorized")
    }

    /// 403: you may not.
    pub fn forbidden(message: impl Into<String>) -> ApiError {
        ApiError::new(403, "Forbidden", message)
    }

    /// 404 for a path nobody serves.
    pub fn no_such_path() -> ApiError {
        ApiError::new(404, "NotFound", "the server could not find the requested resource")
    }

    /// 404 for an object.
    pub fn not_found(named: Named<'_>) -> ApiError {
        ApiError::new(404, "NotFound", format!("{} not found", named.text())).about(named)
    }

    /// 405 on a path that is served.
    pub fn method_not_allowed() -> ApiError {
        ApiError::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
    }

    /// 409: the name is taken.
    pub fn already_exists(named: Named<'_>) -> ApiError {
        ApiError::new(409, "AlreadyExists", format!("{} already exists", named.text())).about(named)
    }

    /// 409: changed meanwhile.
    pub fn conflict(named: Named<'_>, why: &str) -> ApiError {
        let message = format!("Operation cannot be fulfilled on {}: {why}", named.text());
        ApiError::new(409, "Conflict", message).about(named)
    }

    /// 409: the object has been modified.
    pub fn stale(named: Named<'_>) -> ApiError {
        ApiError::conflict(
            named,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// 410: list again.
    pub fn expired(message: impl Into<String>) -> ApiError {
        ApiError::new(410, "Expired", message)
    }

    /// 413.
    pub fn too_large(limit: usize) -> ApiError {
        let message = format!("Request entity too large: limit is {limit}");
        ApiError::new(413, "RequestEntityTooLarge", message)
    }

    /// 415 with what would be read.
    pub fn unsupported_media_type(accepted: &[&str]) -> ApiError {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        ApiError::new(415, "UnsupportedMediaType", message)
    }

    /// 422 with every cause.
    pub fn invalid(named: Named<'_>, causes: Vec<Cause>) -> ApiError {
        let texts: Vec<String> = causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
        let what = match texts.as_slice() {
            [only] => only.clone(),
            several => format!("[{}]", several.join(", ")),
        };
        let mut error = ApiError::new(422, "Invalid", format!("{} is invalid: {what}", named.text())).about(named);
        error.details.causes = causes;
        error
    }

    /// 429: come back later.
    pub fn too_many_requests(message: impl Into<String>) -> ApiError {
        let mut error = ApiError::new(429, "TooManyRequests", message);
        error.details.retry_after_seconds = 1;
        error
    }

    /// 500: our own fault.
    pub fn internal(message: impl Into<String>) -> ApiError {
        ApiError::new(500, "InternalError", format!("Internal error occurred: {}", message.into()))
    }

    /// Says which object it is about.
    #[must_use]
    pub fn about(mut self, named: Named<'_>) -> ApiError {
        self.details.group = named.group.into();
        self.details.kind = named.resource.into();
        self.details.name = named.name.into();
        self
    }

    /// The `Status` object.
    pub fn status(&self) -> Value {
        let mut details = Map::new();
        let Details { group, kind, name, causes, retry_after_seconds } = &*self.details;
        for (key, text) in [("name", name), ("group", group), ("kind", kind)] {
            if !text.is_empty() {
                details.insert(key.into(), text.as_str().into());
            }
        }
        if !causes.is_empty() {
            let causes = causes.iter().map(Cause::json).collect();
            details.insert("causes".into(), Value::Array(causes));
        }
        if *retry_after_seconds > 0 {
            details.insert("retryAfterSeconds".into(), (*retry_after_seconds).into());
        }
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        });
        if !details.is_empty() {
            status["details"] = Value::Object(details);
        }
        status
    }
}

impl Cause {
    /// A value that is wrong.
    pub fn invalid(field: impl Into<String>, value: &Value, why: &str) -> Cause {
        let message = format!("Invalid value: {}: {why}", shorten(value));
        Cause { reason: "FieldValueInvalid", message, field: field.into() }
    }

    /// A value that is missing.
    pub fn required(field: impl Into<String>, why: &str) -> Cause {
        let message = if why.is_empty() { "Required value".to_owned() } else { format!("Required value: {why}") };
        Cause { reason: "FieldValueRequired", message, field: field.into() }
    }

    /// A value that may not be there.
    pub fn forbidden(field: impl Into<String>, why: &str) -> Cause {
        Cause { reason: "FieldValueForbidden", message: format!("Forbidden: {why}"), field: field.into() }
    }

    fn json(&self) -> Value {
        json!({"reason": self.reason, "message": self.message, "field": self.field})
    }
}

impl Named<'_> {
    fn text(&self) -> String {
        let dot = if self.group.is_empty() { "" } else { "." };
        format!("{}{dot}{} \"{}\"", self.resource, self.group, self.name)
    }
}

/// A refusal must not repeat megabytes.
fn shorten(value: &Value) -> String {
    let text = match value {
        Value::Object(_) => "object".into(),
        Value::Array(_) => "array".into(),
        other => other.to_string(),
    };
    match text.char_indices().nth(200) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_read_as_those_of_a_real_server() {
        let named = Named { group: "example.org", resource: "widgets", name: "w1" };
        assert_eq!(ApiError::not_found(named).message, r#"widgets.example.org "w1" not found"#);
        let core = Named { group: "", resource: "configmaps", name: "c" };
        assert_eq!(ApiError::already_exists(core).message, r#"configmaps "c" already exists"#);
        let causes = vec![
            Cause::invalid("spec.size", &json!(-1), "spec.size in body should be greater than or equal to 0"),
            Cause::required("spec.name", ""),
        ];
        let kind = Named { group: "example.org", resource: "Widget", name: "w1" };
        let error = ApiError::invalid(kind, causes);
        assert_eq!(
            error.message,
            "Widget.example.org \"w1\" is invalid: [spec.size: Invalid value: -1: spec.size in body should be greater \
             than or equal to 0, spec.name: Required value]"
        );
        assert_eq!(error.status()["details"]["causes"][1]["field"], "spec.name");
    }

    #[test]
    fn long_values_are_cut_at_a_character() {
        let cause = Cause::invalid("a", &Value::from("ü".repeat(1000)), "too long");
        assert!(cause.message.len() < 500, "{}", cause.message.len());
    }
}
