//! The JSONPath of printer columns and selectable fields: `.a.b[0].c`, `.a['b.c']`, `.a[*].b`, `.a[?(@.type=="Ready")].status`.
//!
//! Not here: slices, recursion and functions. The real server accepts a little more; a path it cannot read is refused
//! when the definition is applied, not when somebody lists.

use serde_json::Value;

/// A parsed path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonPath(Vec<Step>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Key(String),
    Index(usize),
    All,
    /// `[?(@.a.b=="c")]`
    Filter(Vec<String>, String),
}

impl JsonPath {
    /// Reads a path; says what was not understood.
    pub fn parse(text: &str) -> Result<JsonPath, String> {
        let mut steps = Vec::new();
        let mut rest = text.strip_prefix('$').unwrap_or(text);
        if !rest.starts_with(['.', '[']) {
            return Err(format!("{text:?} must begin with '.'"));
        }
        while !rest.is_empty() {
            if let Some(inside) = rest.strip_prefix('[') {
                let end = closing(inside).ok_or_else(|| format!("{text:?} has a '[' without its ']'"))?;
                steps.push(bracket(&inside[..end]).ok_or_else(|| format!("{:?} is not understood", &inside[..end]))?);
                rest = &inside[end + 1..];
            } else {
                rest = rest.strip_prefix('.').ok_or_else(|| format!("{rest:?} must begin with '.'"))?;
                let end = key_end(rest);
                if end == 0 {
                    // `.` alone is the whole object; `.[0]` is written too
                    if rest.starts_with('[') || (rest.is_empty() && steps.is_empty()) {
                        continue;
                    }
                    return Err(format!("{text:?} has an empty name"));
                }
                let key = rest[..end].replace("\\.", ".");
                steps.push(if key == "*" { Step::All } else { Step::Key(key) });
                rest = &rest[end..];
            }
        }
        Ok(JsonPath(steps))
    }

    /// Everything the path leads to.
    pub fn find<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        let mut found = vec![value];
        for step in &self.0 {
            found = found.into_iter().flat_map(|value| step.find(value)).collect();
        }
        found
    }

    /// The first value, as field selectors and printer columns compare it.
    pub fn text(&self, value: &Value) -> String {
        self.find(value).first().map(|value| render(value)).unwrap_or_default()
    }
}

/// A value as text without quotes.
pub fn render(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

impl Step {
    fn find<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match (self, value) {
            (Step::Key(key), Value::Object(map)) => map.get(key).into_iter().collect(),
            (Step::Index(index), Value::Array(items)) => items.get(*index).into_iter().collect(),
            (Step::All, Value::Array(items)) => items.iter().collect(),
            (Step::All, Value::Object(map)) => map.values().collect(),
            (Step::Filter(path, wanted), Value::Array(items)) => items
                .iter()
                .filter(|item| {
                    path.iter().try_fold(*item, |at, key| at.get(key)).is_some_and(|value| render(value) == *wanted)
                })
                .collect(),
            _ => Vec::new(),
        }
    }
}

fn key_end(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        if !escaped && (c == '.' || c == '[') {
            return at;
        }
        escaped = c == '\\' && !escaped;
    }
    text.len()
}

/// Where the bracket that is open ends, quotes respected.
fn closing(text: &str) -> Option<usize> {
    let mut quote = None;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (None, ']') => return Some(at),
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), _) if open == c => quote = None,
            _ => {}
        }
    }
    None
}

fn bracket(text: &str) -> Option<Step> {
    let text = text.trim();
    if text == "*" {
        return Some(Step::All);
    }
    if let Some(filter) = text.strip_prefix("?(").and_then(|text| text.strip_suffix(')')) {
        let (path, wanted) = filter.split_once("==")?;
        let path = path.trim().strip_prefix("@.")?.split('.').map(str::to_owned).collect();
        return Some(Step::Filter(path, unquote(wanted.trim()).unwrap_or(wanted.trim()).to_owned()));
    }
    match unquote(text) {
        Some(key) => Some(Step::Key(key.to_owned())),
        None => text.parse().ok().map(Step::Index),
    }
}

fn unquote(text: &str) -> Option<&str> {
    ['"', '\''].iter().find_map(|quote| text.strip_prefix(*quote)?.strip_suffix(*quote))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_lead_where_kubectl_expects() {
        let object = json!({
            "spec": {"size": 3, "list": [{"n": 1}, {"n": 2}], "a.b": true},
            "status": {"conditions": [{"type": "Up", "status": "False"}, {"type": "Ready", "status": "True"}]},
        });
        for (path, expected) in [
            (".spec.size", "3"),
            ("$.spec.size", "3"),
            (".spec.list[1].n", "2"),
            (".spec.list[*].n", "1"),
            (".spec['a.b']", "true"),
            (r".spec.a\.b", "true"),
            (r#".status.conditions[?(@.type=="Ready")].status"#, "True"),
            (".status.conditions[?(@.type=='Up')].status", "False"),
            (".missing.deep", ""),
        ] {
            assert_eq!(JsonPath::parse(path).unwrap().text(&object), expected, "{path}");
        }
    }

    #[test]
    fn broken_paths_are_refused_with_the_reason() {
        for (path, reason) in [
            ("spec", r#""spec" must begin with '.'"#),
            (".a[0", r#"".a[0" has a '[' without its ']'"#),
            (".a[x]", r#""x" is not understood"#),
            (".a..b", r#"".a..b" has an empty name"#),
        ] {
            assert_eq!(JsonPath::parse(path).unwrap_err(), reason, "{path}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in any::<String>(), shaped in r#"[.$\[\]?@()='"a0*\\]{0,20}"#) {
            let _ = JsonPath::parse(&text);
            let _ = JsonPath::parse(&shaped);
        }
    }
}
