//! Label and field selectors: the strings of `-l` and `--field-selector`, parsed and matched.
//!
//! Both are pure and bounded: a selector has at most [`MOST_REQUIREMENTS`] requirements.

use std::collections::BTreeSet;
use std::fmt;

/// Requirements one selector may have.
pub const MOST_REQUIREMENTS: usize = 1000;

/// A parsed label selector; empty matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelSelector(Vec<LabelRequirement>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct LabelRequirement {
    key: String,
    operator: Operator,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Operator {
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    Exists,
    Absent,
    Above(i64),
    Below(i64),
}

/// Why a selector could not be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("unable to parse requirement: {0}")]
pub struct SelectorError(String);

impl LabelSelector {
    /// Reads `a=b,c!=d,e in (f,g),h,!i,j>3`.
    pub fn parse(text: &str) -> Result<LabelSelector, SelectorError> {
        let mut lexer = Lexer { rest: text };
        let mut requirements = Vec::new();
        if lexer.peek()?.is_none() {
            return Ok(LabelSelector::default());
        }
        loop {
            requirements.push(requirement(&mut lexer)?);
            if requirements.len() > MOST_REQUIREMENTS {
                return Err(SelectorError(format!("more than {MOST_REQUIREMENTS} requirements")));
            }
            match lexer.next()? {
                None => return Ok(LabelSelector(requirements)),
                Some(Token::Comma) => {}
                Some(other) => return Err(SelectorError(format!("found '{other}', expected: ',' or 'end of string'"))),
            }
        }
    }

    /// Whether an object with these labels is selected.
    pub fn matches(&self, labels: &[(String, String)]) -> bool {
        self.0.iter().all(|requirement| {
            let value = labels.iter().find(|(key, _)| *key == requirement.key).map(|(_, value)| value.as_str());
            requirement.operator.holds(value)
        })
    }

    /// Whether everything is selected.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let join = |values: &BTreeSet<String>| values.iter().map(String::as_str).collect::<Vec<_>>().join(",");
        for (index, LabelRequirement { key, operator }) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            match operator {
                Operator::In(values) => write!(f, "{key} in ({})", join(values))?,
                Operator::NotIn(values) => write!(f, "{key} notin ({})", join(values))?,
                Operator::Exists => f.write_str(key)?,
                Operator::Absent => write!(f, "!{key}")?,
                Operator::Above(bound) => write!(f, "{key}>{bound}")?,
                Operator::Below(bound) => write!(f, "{key}<{bound}")?,
            }
        }
        Ok(())
    }
}

impl Operator {
    fn holds(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match self {
            Operator::In(values) => value.is_some_and(|value| values.contains(value)),
            // An object without the label is selected: `!=` means "not labelled so".
            Operator::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
            Operator::Exists => value.is_some(),
            Operator::Absent => value.is_none(),
            Operator::Above(bound) => number().is_some_and(|number| number > *bound),
            Operator::Below(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

fn requirement(lexer: &mut Lexer<'_>) -> Result<LabelRequirement, SelectorError> {
    let negated = lexer.take(&Token::Not)?;
    let key = lexer.word("identifier")?;
    if let Some(why) = crate::names::label_key_problem(&key) {
        return Err(SelectorError(format!("invalid label key {key:?}: {why}")));
    }
    if negated {
        return Ok(LabelRequirement { key, operator: Operator::Absent });
    }
    let operator = match lexer.peek()? {
        None | Some(Token::Comma) => return Ok(LabelRequirement { key, operator: Operator::Exists }),
        Some(token) => token,
    };
    lexer.next()?;
    let operator = match operator {
        Token::Equal => Operator::In([lexer.value()?].into()),
        Token::NotEqual => Operator::NotIn([lexer.value()?].into()),
        Token::Above => Operator::Above(lexer.number()?),
        Token::Below => Operator::Below(lexer.number()?),
        Token::Word("in") => Operator::In(lexer.values()?),
        Token::Word("notin") => Operator::NotIn(lexer.values()?),
        other => {
            return Err(SelectorError(format!(
                "found '{other}', expected: in, notin, =, ==, !=, gt, lt or 'end of string'"
            )));
        }
    };
    if let Operator::In(values) | Operator::NotIn(values) = &operator
        && let Some((value, why)) =
            values.iter().find_map(|value| Some((value, crate::names::label_value_problem(value)?)))
    {
        return Err(SelectorError(format!("invalid label value {value:?}: {why}")));
    }
    Ok(LabelRequirement { key, operator })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
    Word(&'a str),
    Equal,
    NotEqual,
    Not,
    Above,
    Below,
    Comma,
    Open,
    Close,
}

impl fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Token::Word(word) => word,
            Token::Equal => "=",
            Token::NotEqual => "!=",
            Token::Not => "!",
            Token::Above => ">",
            Token::Below => "<",
            Token::Comma => ",",
            Token::Open => "(",
            Token::Close => ")",
        })
    }
}

struct Lexer<'a> {
    rest: &'a str,
}

impl<'a> Lexer<'a> {
    fn next(&mut self) -> Result<Option<Token<'a>>, SelectorError> {
        self.rest = self.rest.trim_start();
        let symbols = [
            ("==", Token::Equal),
            ("!=", Token::NotEqual),
            ("=", Token::Equal),
            ("!", Token::Not),
            (">", Token::Above),
            ("<", Token::Below),
            (",", Token::Comma),
            ("(", Token::Open),
            (")", Token::Close),
        ];
        for (text, token) in symbols {
            if let Some(rest) = self.rest.strip_prefix(text) {
                self.rest = rest;
                return Ok(Some(token));
            }
        }
        let end = self.rest.find(|c: char| c.is_whitespace() || "=!><,()".contains(c)).unwrap_or(self.rest.len());
        if end == 0 {
            return Ok(None);
        }
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        Ok(Some(Token::Word(word)))
    }

    fn peek(&mut self) -> Result<Option<Token<'a>>, SelectorError> {
        Lexer { rest: self.rest }.next()
    }

    fn take(&mut self, wanted: &Token<'_>) -> Result<bool, SelectorError> {
        let found = self.peek()?.as_ref() == Some(wanted);
        if found {
            self.next()?;
        }
        Ok(found)
    }

    fn word(&mut self, expected: &str) -> Result<String, SelectorError> {
        match self.next()? {
            Some(Token::Word(word)) => Ok(word.to_owned()),
            Some(other) => Err(SelectorError(format!("found '{other}', expected: {expected}"))),
            None => Err(SelectorError(format!("found 'end of string', expected: {expected}"))),
        }
    }

    /// `a=` selects the empty value.
    fn value(&mut self) -> Result<String, SelectorError> {
        match self.peek()? {
            None | Some(Token::Comma) => Ok(String::new()),
            _ => self.word("value"),
        }
    }

    fn number(&mut self) -> Result<i64, SelectorError> {
        let word = self.word("number")?;
        word.parse().map_err(|_| SelectorError(format!("{word:?} is not an integer")))
    }

    fn values(&mut self) -> Result<BTreeSet<String>, SelectorError> {
        if !self.take(&Token::Open)? {
            return Err(SelectorError("expected: '('".into()));
        }
        if self.peek()?.is_none() {
            return Err(SelectorError("found '', expected: ',', ')' or identifier".into()));
        }
        let mut values = BTreeSet::new();
        loop {
            match self.peek()? {
                Some(Token::Comma | Token::Close) => values.insert(String::new()),
                _ => values.insert(self.word("value")?),
            };
            if values.len() > MOST_REQUIREMENTS {
                return Err(SelectorError(format!("more than {MOST_REQUIREMENTS} values")));
            }
            match self.next()? {
                Some(Token::Comma) => {}
                Some(Token::Close) => return Ok(values),
                _ => return Err(SelectorError("expected: ',' or ')'".into())),
            }
        }
    }
}

/// A parsed field selector: dotted paths that must, or must not, have a value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSelector(Vec<FieldRequirement>);

/// One part of a field selector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldRequirement {
    /// For example `metadata.name`.
    pub path: String,
    /// The value.
    pub value: String,
    /// True for `=`, false for `!=`.
    pub equal: bool,
}

impl FieldSelector {
    /// Reads `metadata.name=a,spec.b!=c`. A backslash keeps the next character.
    pub fn parse(text: &str) -> Result<FieldSelector, SelectorError> {
        let mut requirements = Vec::new();
        for part in split_unescaped(text, ',').into_iter().filter(|part| !part.is_empty()) {
            if requirements.len() == MOST_REQUIREMENTS {
                return Err(SelectorError(format!("more than {MOST_REQUIREMENTS} requirements")));
            }
            let (path, value, equal) = if let Some((path, value)) = part.split_once("!=") {
                (path, value, false)
            } else if let Some((path, value)) = part.split_once('=') {
                (path, value.strip_prefix('=').unwrap_or(value), true)
            } else {
                return Err(SelectorError(format!("invalid field selector: '{part}'; can't understand '{part}'")));
            };
            requirements.push(FieldRequirement { path: path.trim().into(), value: unescape(value), equal });
        }
        Ok(FieldSelector(requirements))
    }

    /// The requirements.
    pub fn requirements(&self) -> &[FieldRequirement] {
        &self.0
    }

    /// Whether an object is selected; `field` gives the text at a path, empty if there is none.
    pub fn matches(&self, field: impl Fn(&str) -> String) -> bool {
        self.0.iter().all(|requirement| (field(&requirement.path) == requirement.value) == requirement.equal)
    }
}

fn split_unescaped(text: &str, separator: char) -> Vec<&str> {
    let (mut parts, mut start, mut escaped) = (Vec::new(), 0, false);
    for (at, c) in text.char_indices() {
        if c == separator && !escaped {
            parts.push(&text[start..at]);
            start = at + c.len_utf8();
        }
        escaped = c == '\\' && !escaped;
    }
    parts.push(&text[start..]);
    parts
}

fn unescape(text: &str) -> String {
    let mut characters = text.chars();
    let mut plain = String::with_capacity(text.len());
    while let Some(c) = characters.next() {
        plain.extend(if c == '\\' { characters.next() } else { Some(c) });
    }
    plain
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
    }

    #[test]
    fn label_selectors_select_as_kubernetes_does() {
        let given = labels(&[("a", "b"), ("color", "red"), ("n", "5"), ("example.org/x", "")]);
        for (text, expected) in [
            ("", true),
            ("a=b", true),
            ("a==b,color=red", true),
            ("a = b , color != blue", true),
            ("a!=b", false),
            ("missing!=b", true),
            ("missing", false),
            ("!missing", true),
            ("! a", false),
            ("color in (red, blue)", true),
            ("color notin (red)", false),
            ("missing notin (red)", true),
            ("missing in (red)", false),
            ("n>4,n<6", true),
            ("n>5", false),
            ("example.org/x=", true),
            ("example.org/x in ()", true),
        ] {
            let selector = LabelSelector::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(selector.matches(&given), expected, "{text}");
        }
    }

    #[test]
    fn broken_label_selectors_are_refused_with_the_reason() {
        for (text, reason) in [
            ("=b", "unable to parse requirement: found '=', expected: identifier"),
            (
                "a b",
                "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt or 'end of string'",
            ),
            ("a in b", "unable to parse requirement: expected: '('"),
            ("a in (b", "unable to parse requirement: expected: ',' or ')'"),
            ("a>x", "unable to parse requirement: \"x\" is not an integer"),
            ("a=b,", "unable to parse requirement: found 'end of string', expected: identifier"),
        ] {
            assert_eq!(LabelSelector::parse(text).unwrap_err().to_string(), reason, "{text}");
        }
    }

    #[test]
    fn field_selectors_keep_escaped_separators() {
        let selector = FieldSelector::parse(r"metadata.name=a\,b,spec.x!=1").unwrap();
        assert!(selector.matches(|path| if path == "metadata.name" { "a,b".into() } else { "2".into() }));
        assert!(!selector.matches(|_| "a,b".into()) || !selector.matches(|_| "1".into()));
        assert_eq!(
            FieldSelector::parse("nonsense").unwrap_err().to_string(),
            "unable to parse requirement: invalid field selector: 'nonsense'; can't understand 'nonsense'"
        );
    }

    proptest! {
        #[test]
        fn a_rendered_label_selector_reads_back_the_same(text in "[a-c!=<>(), in01]{0,30}") {
            if let Ok(selector) = LabelSelector::parse(&text) {
                prop_assert_eq!(LabelSelector::parse(&selector.to_string()).unwrap(), selector);
            }
        }

        #[test]
        fn no_text_makes_the_parsers_panic(text in any::<String>()) {
            let _ = LabelSelector::parse(&text);
            let _ = FieldSelector::parse(&text);
        }
    }
}
