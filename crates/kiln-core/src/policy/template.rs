//! `{{ … }}` inside the strings of a desired state.
//!
//! A template that is the whole string becomes the value itself, so a number stays a number and a list a list; inside a
//! longer string only text and numbers can stand. What is filled in is not looked at again: a value cannot bring templates.

use serde_json::Value;

use super::PolicyError;

/// How many templates one desired state may have.
pub const MAX_TEMPLATES: usize = 10_000;

/// What stands between the braces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part<'t> {
    /// `node.name`.
    NodeName,
    /// `node.labels.KEY`.
    Label(&'t str),
    /// `table.NAME`.
    Table(&'t str),
    /// `pool.NAME`: an address.
    Pool(&'t str),
    /// `pool.NAME.prefix`: the prefix length of the pool.
    Prefix(&'t str),
    /// `capture.NAME.…`, without `capture.`.
    Capture(&'t str),
}

impl<'t> Part<'t> {
    fn parse(text: &'t str) -> Option<Part<'t>> {
        let text = text.trim();
        if text.is_empty() || text.contains(char::is_whitespace) {
            return None;
        }
        if text == "node.name" {
            return Some(Part::NodeName);
        }
        let after = |prefix: &str| text.strip_prefix(prefix).filter(|rest| !rest.is_empty());
        let pool = || {
            let name = after("pool.")?;
            Some(name.strip_suffix(".prefix").filter(|name| !name.is_empty()).map_or(Part::Pool(name), Part::Prefix))
        };
        after("node.labels.")
            .map(Part::Label)
            .or_else(|| after("table.").map(Part::Table))
            .or_else(pool)
            .or_else(|| after("capture.").map(Part::Capture))
    }
}

/// Gives the value of a template, or None to leave it as it stands.
type Lookup<'l> = dyn Fn(Part<'_>, &str) -> Result<Option<Value>, PolicyError> + 'l;

/// A copy of the document with its templates filled in.
pub(super) fn fill(document: &Value, lookup: &Lookup<'_>) -> Result<Value, PolicyError> {
    let mut filled = 0;
    walk(document, "spec.desiredState", lookup, &mut filled)
}

fn walk(value: &Value, at: &str, lookup: &Lookup<'_>, filled: &mut usize) -> Result<Value, PolicyError> {
    Ok(match value {
        Value::String(text) if text.contains("{{") => fill_text(text, at, lookup, filled)?,
        Value::Array(items) => {
            let items =
                items.iter().enumerate().map(|(index, item)| walk(item, &format!("{at}[{index}]"), lookup, filled));
            Value::Array(items.collect::<Result<_, _>>()?)
        }
        Value::Object(entries) => {
            let entries = entries
                .iter()
                .map(|(key, value)| Ok((key.clone(), walk(value, &format!("{at}.{key}"), lookup, filled)?)));
            Value::Object(entries.collect::<Result<_, PolicyError>>()?)
        }
        other => other.clone(),
    })
}

fn fill_text(text: &str, at: &str, lookup: &Lookup<'_>, filled: &mut usize) -> Result<Value, PolicyError> {
    let wrong = |why: String| PolicyError::Template { at: at.to_owned(), why };
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, inside)) = rest.split_once("{{") {
        let (name, after) =
            inside.split_once("}}").ok_or_else(|| wrong(format!("`{text}` has no `}}}}` at its end")))?;
        *filled += 1;
        if *filled > MAX_TEMPLATES {
            return Err(wrong(format!("the document has more than {MAX_TEMPLATES} templates")));
        }
        let part = Part::parse(name).ok_or_else(|| {
            wrong(format!(
                "`{{{{{name}}}}}` is none of node.name, node.labels.KEY, table.NAME, pool.NAME, pool.NAME.prefix, capture.NAME.…"
            ))
        })?;
        out.push_str(before);
        match lookup(part, at)? {
            None => out.push_str(&format!("{{{{{name}}}}}")),
            Some(value) if before.is_empty() && after.trim().is_empty() && rest.len() == text.len() => {
                return Ok(value);
            }
            Some(Value::String(value)) => out.push_str(&value),
            Some(Value::Number(value)) => out.push_str(&value.to_string()),
            Some(_) => return Err(wrong(format!("`{{{{{name}}}}}` is not text or a number and must stand alone"))),
        }
        rest = after;
    }
    out.push_str(rest);
    Ok(out.into())
}
