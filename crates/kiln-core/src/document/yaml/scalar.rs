//! What a scalar means: YAML 1.1 as the Kubernetes YAML reader (go-yaml v2, then JSON) understands it.
//!
//! `0644` is 420, `yes` is true, `1_000` is 1000, `12:30` and `2024-01-01` stay text, quotes make text.
//! The reader passes through JSON, which has one type of number: `1500.0` and `15e2` arrive as the whole number 1500.
//! `09` surprises: it is no octal number, so it is read as a float and arrives as 9.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use saphyr_parser::Tag;

use super::super::Value;

/// The standard tags that change how a scalar is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScalarTag {
    /// None: guess from the text.
    Absent,
    /// `!!str`, `!!timestamp`, `!` and tags of somebody's own: text.
    Text,
    /// `!!bool`.
    Bool,
    /// `!!int`.
    Integer,
    /// `!!float`.
    Float,
    /// `!!null`.
    Null,
    /// `!!binary`: base64.
    Binary,
}

impl ScalarTag {
    pub(super) fn of(tag: Option<&Tag>) -> Self {
        let Some(tag) = tag else { return ScalarTag::Absent };
        let name = if tag.is_yaml_core_schema() {
            tag.suffix.as_str()
        } else {
            tag.suffix.strip_prefix("tag:yaml.org,2002:").unwrap_or("")
        };
        match name {
            "bool" => ScalarTag::Bool,
            "int" => ScalarTag::Integer,
            "float" => ScalarTag::Float,
            "null" => ScalarTag::Null,
            "binary" => ScalarTag::Binary,
            _ => ScalarTag::Text,
        }
    }
}

/// The value of a scalar, or why its tag does not fit.
pub(super) fn resolve(text: &str, plain: bool, tag: ScalarTag) -> Result<Value, String> {
    let guessed = match tag {
        ScalarTag::Absent if plain => return Ok(guess(text)),
        ScalarTag::Absent | ScalarTag::Text => return Ok(Value::String(text.into())),
        ScalarTag::Binary => return decode_binary(text),
        ScalarTag::Bool | ScalarTag::Integer | ScalarTag::Float | ScalarTag::Null => guess(text),
    };
    match (tag, &guessed) {
        (ScalarTag::Bool, Value::Bool(_))
        | (ScalarTag::Integer | ScalarTag::Float, Value::Integer(_))
        | (ScalarTag::Float, Value::Float(_))
        | (ScalarTag::Null, Value::Null) => Ok(guessed),
        (ScalarTag::Bool, _) => Err(format!("`{text}` is tagged !!bool but is no boolean")),
        (ScalarTag::Null, _) => Err(format!("`{text}` is tagged !!null but is not null")),
        (ScalarTag::Float, _) => Err(format!("`{text}` is tagged !!float but is no number")),
        _ => Err(format!("`{text}` is tagged !!int but is no whole number")),
    }
}

/// How Kubernetes writes a value that is used as a key; none for what it refuses.
pub(super) fn key_text(value: Value) -> Option<Box<str>> {
    match value {
        Value::String(text) => Some(text),
        Value::Integer(number) => Some(number.to_string().into()),
        Value::Bool(truth) => Some(truth.to_string().into()),
        Value::Float(number) if number.is_nan() => Some(".nan".into()),
        Value::Float(number) if number.is_infinite() => Some(if number > 0.0 { ".inf" } else { "-.inf" }.into()),
        Value::Float(number) => Some((number as f32).to_string().into()),
        Value::Null | Value::Sequence(_) | Value::Mapping(_) => None,
    }
}

fn guess(text: &str) -> Value {
    let number = match text.as_bytes().first() {
        None => return Value::Null,
        Some(b'y' | b'Y' | b'n' | b'N' | b't' | b'T' | b'f' | b'F' | b'o' | b'O' | b'~') => return guess_word(text),
        Some(b'.') => guess_point(text),
        Some(b'+' | b'-' | b'0'..=b'9') => guess_number(text),
        Some(_) => None,
    };
    number.unwrap_or_else(|| Value::String(text.into()))
}

fn guess_word(text: &str) -> Value {
    match text {
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => Value::Bool(true),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => Value::Bool(false),
        "~" | "null" | "Null" | "NULL" => Value::Null,
        _ => Value::String(text.into()),
    }
}

fn guess_point(text: &str) -> Option<Value> {
    match text {
        ".nan" | ".NaN" | ".NAN" => Some(Value::Float(f64::NAN)),
        ".inf" | ".Inf" | ".INF" => Some(Value::Float(f64::INFINITY)),
        _ => text.parse().ok().and_then(number),
    }
}

fn guess_number(text: &str) -> Option<Value> {
    match text {
        "+.inf" | "+.Inf" | "+.INF" => return Some(Value::Float(f64::INFINITY)),
        "-.inf" | "-.Inf" | "-.INF" => return Some(Value::Float(f64::NEG_INFINITY)),
        _ => {}
    }
    let joined;
    let digits = if text.contains('_') {
        joined = text.replace('_', "");
        joined.as_str()
    } else {
        text
    };
    whole_number(digits).or_else(|| if is_decimal(digits) { digits.parse().ok().and_then(number) } else { None })
}

/// A whole number with Go's prefixes. Decimal numbers beyond 64 bits are left to the floats, as Go does.
fn whole_number(text: &str) -> Option<Value> {
    let (negative, digits) = match text.as_bytes() {
        [b'-', ..] => (true, &text[1..]),
        [b'+', ..] => (false, &text[1..]),
        _ => (false, text),
    };
    let (radix, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
        [b'0', b'b' | b'B', ..] => (2, &digits[2..]),
        [b'0', b'o' | b'O', ..] => (8, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    if !digits.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return None;
    }
    let size = i128::from_str_radix(digits, radix).ok()?;
    let value = if negative { -size } else { size };
    let fits = i64::try_from(value).is_ok() || (u64::try_from(value).is_ok() && !text.starts_with('+'));
    (fits || (radix != 10 && !negative)).then_some(Value::Integer(value))
}

/// `[-+]? (.digits | digits[.digits]) ([eE][-+]?digits)?`
fn is_decimal(text: &str) -> bool {
    let text = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['-', '+']).unwrap_or(exponent))),
        None => (text, None),
    };
    let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let some_digits = |part: &str| !part.is_empty() && all_digits(part);
    let good_mantissa = match mantissa.split_once('.') {
        Some(("", fraction)) => some_digits(fraction),
        Some((whole, fraction)) => some_digits(whole) && all_digits(fraction),
        None => some_digits(mantissa),
    };
    good_mantissa && exponent.is_none_or(some_digits)
}

/// A number as it comes out of JSON: whole if it is written without fraction and exponent there.
fn number(value: f64) -> Option<Value> {
    if !value.is_finite() {
        None
    } else if value.fract() == 0.0 && value.abs() < 1e21 {
        Some(Value::Integer(value as i128))
    } else {
        Some(Value::Float(value))
    }
}

fn decode_binary(text: &str) -> Result<Value, String> {
    let packed: String = text.chars().filter(|character| !matches!(character, '\n' | '\r')).collect();
    let bytes =
        STANDARD.decode(packed).map_err(|error| format!("the value is tagged !!binary but is no base64: {error}"))?;
    // JSON cannot carry bytes that are not text; Go replaces them in the same way.
    Ok(Value::String(String::from_utf8_lossy(&bytes).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_scalars_mean_what_the_kubernetes_reader_takes_them_for() {
        let integer = |number: i128| Value::Integer(number);
        let text = |text: &str| Value::String(text.into());
        let float = Value::Float;
        let table = [
            ("", Value::Null),
            ("~", Value::Null),
            ("null", Value::Null),
            ("Null", Value::Null),
            ("NULL", Value::Null),
            ("nULL", text("nULL")),
            ("true", Value::Bool(true)),
            ("True", Value::Bool(true)),
            ("tRUE", text("tRUE")),
            ("yes", Value::Bool(true)),
            ("YES", Value::Bool(true)),
            ("y", Value::Bool(true)),
            ("Y", Value::Bool(true)),
            ("on", Value::Bool(true)),
            ("off", Value::Bool(false)),
            ("OFF", Value::Bool(false)),
            ("oFF", text("oFF")),
            ("no", Value::Bool(false)),
            ("n", Value::Bool(false)),
            ("N", Value::Bool(false)),
            ("false", Value::Bool(false)),
            ("0", integer(0)),
            ("-0", integer(0)),
            ("7", integer(7)),
            ("+7", integer(7)),
            ("-7", integer(-7)),
            ("0644", integer(420)),
            ("-0644", integer(-420)),
            ("0o644", integer(420)),
            ("0O17", integer(15)),
            ("0x1F", integer(31)),
            ("0XfF", integer(255)),
            ("-0x10", integer(-16)),
            ("0b101", integer(5)),
            ("-0b101", integer(-5)),
            ("0b102", text("0b102")),
            ("0x", text("0x")),
            ("0xg", text("0xg")),
            ("09", integer(9)),
            ("08", integer(8)),
            ("0o8", text("0o8")),
            ("1_000", integer(1000)),
            ("0x_ff", integer(255)),
            ("_1", text("_1")),
            ("1_", integer(1)),
            ("9223372036854775807", integer(i64::MAX.into())),
            ("-9223372036854775808", integer(i64::MIN.into())),
            ("18446744073709551615", integer(u64::MAX.into())),
            ("18446744073709551616", integer(18_446_744_073_709_551_616)),
            ("1e3", integer(1000)),
            ("1E+2", integer(100)),
            ("1.5", float(1.5)),
            ("1.", integer(1)),
            ("1.0", integer(1)),
            (".5", float(0.5)),
            ("-.5", float(-0.5)),
            ("+.5", float(0.5)),
            ("1e-3", float(0.001)),
            ("1e400", text("1e400")),
            ("1e", text("1e")),
            ("1.2.3", text("1.2.3")),
            ("4.9.13", text("4.9.13")),
            ("192.168.1.1", text("192.168.1.1")),
            ("10.0.0.0/8", text("10.0.0.0/8")),
            (".", text(".")),
            ("..", text("..")),
            (".inf", float(f64::INFINITY)),
            ("+.Inf", float(f64::INFINITY)),
            ("-.INF", float(f64::NEG_INFINITY)),
            ("inf", text("inf")),
            ("-inf", text("-inf")),
            ("nan", text("nan")),
            ("-", text("-")),
            ("+", text("+")),
            ("--1", text("--1")),
            ("+-1", text("+-1")),
            ("0x-1", text("0x-1")),
            ("0x+1", text("0x+1")),
            ("190:20:30", text("190:20:30")),
            ("12:30", text("12:30")),
            ("2024-01-01", text("2024-01-01")),
            ("2024-01-01T10:00:00Z", text("2024-01-01T10:00:00Z")),
            ("de:ad:be:ef:00:10", text("de:ad:be:ef:00:10")),
            ("52:54:00:11:22:33", text("52:54:00:11:22:33")),
            ("<<", text("<<")),
            ("=", text("=")),
            ("1 2", text("1 2")),
            ("٣", text("٣")),
        ];
        for (input, expected) in table {
            assert_eq!(guess(input), expected, "{input:?}");
        }
        assert!(matches!(guess(".NaN"), Value::Float(number) if number.is_nan()));
    }

    #[test]
    fn tags_decide_and_refuse() {
        let text = |text: &str| Ok(Value::String(text.into()));
        let table = [
            ("5", true, ScalarTag::Text, text("5")),
            ("5", false, ScalarTag::Absent, text("5")),
            ("5", false, ScalarTag::Integer, Ok(Value::Integer(5))),
            ("x", true, ScalarTag::Integer, Err("`x` is tagged !!int but is no whole number".into())),
            ("1.5", true, ScalarTag::Integer, Err("`1.5` is tagged !!int but is no whole number".into())),
            ("3", true, ScalarTag::Float, Ok(Value::Integer(3))),
            ("x", true, ScalarTag::Float, Err("`x` is tagged !!float but is no number".into())),
            ("yes", false, ScalarTag::Bool, Ok(Value::Bool(true))),
            ("1", true, ScalarTag::Bool, Err("`1` is tagged !!bool but is no boolean".into())),
            ("", true, ScalarTag::Null, Ok(Value::Null)),
            ("0", true, ScalarTag::Null, Err("`0` is tagged !!null but is not null".into())),
            ("aGVs\nbG8=\n", false, ScalarTag::Binary, text("hello")),
            (
                "a",
                true,
                ScalarTag::Binary,
                Err("the value is tagged !!binary but is no base64: Invalid input length: 1".into()),
            ),
        ];
        for (input, plain, tag, expected) in table {
            assert_eq!(resolve(input, plain, tag), expected, "{input:?} {tag:?}");
        }
    }

    #[test]
    fn keys_become_the_text_kubernetes_gives_them() {
        let table = [
            ("a", Some("a")),
            ("8", Some("8")),
            ("010", Some("8")),
            ("on", Some("true")),
            ("1.5", Some("1.5")),
            ("~", None),
        ];
        for (input, expected) in table {
            assert_eq!(key_text(guess(input)).as_deref(), expected, "{input:?}");
        }
    }
}
