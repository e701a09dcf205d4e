//! Objects as CEL sees them, and what CEL functions are there.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;

use kube_cel::KubeCelExt;
use kube_cel::cel::common::ast::{CallExpr, Expr, IdedExpr};
use kube_cel::cel::objects::{Key, Map, OptionalValue};
use kube_cel::cel::{Context, ExecutionError, Value};

use super::super::{Additional, Schema, Type};

pub(super) type Expression = IdedExpr;

/// Called once per turn of a loop; no rule can name it.
pub(super) const TICK: &str = "@tick";
/// A field or item that may be missing.
pub(super) const OPTIONAL_GET: &str = "@optional_get";

thread_local! {
    /// What the evaluation that runs on this thread may still spend.
    static BUDGET: Cell<Budget> = const { Cell::new(Budget { left: 0, price: 1 }) };
    /// All functions. Variables are laid over it for each evaluation.
    static FUNCTIONS: Context<'static> = functions();
}

/// Turns of loops. Each costs more the larger the object is, since it may look at all of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Budget {
    pub(super) left: u64,
    pub(super) price: u64,
}

/// Why an evaluation gave no value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Failure {
    /// In the words of the real server.
    Said(String),
    /// The types do not fit the operator.
    NoOverload,
    /// Too many turns.
    Exhausted,
}

/// Evaluates an expression; gives what is left of the budget.
pub(super) fn evaluate(
    expression: &Expression,
    variables: &[(&str, &Value)],
    budget: Budget,
) -> (Result<Value, Failure>, Budget) {
    BUDGET.set(budget);
    let result = FUNCTIONS.with(|functions| {
        let mut scope = functions.new_inner_scope();
        for (name, value) in variables {
            scope.add_variable_from_value(*name, (*value).clone());
        }
        scope.resolve(expression)
    });
    let left = BUDGET.get();
    // An error inside `||` may have been swallowed: the budget is the judge.
    if left.left == 0 {
        return (Err(Failure::Exhausted), left);
    }
    (result.map_err(said), left)
}

/// Whether a function of this name exists.
pub(super) fn is_function(name: &str) -> bool {
    let call = CallExpr { func_name: name.to_owned(), target: None, args: Vec::new() };
    let expression = IdedExpr { id: 0, expr: Expr::Call(call) };
    FUNCTIONS.with(|functions| {
        !matches!(functions.resolve(&expression), Err(ExecutionError::UndeclaredReference(missing)) if *missing == name)
    })
}

/// A JSON value as its schema types it. `is_resource` when it has `apiVersion`, `kind` and `metadata` of its own.
pub(super) fn cel_value(schema: &Schema, value: &serde_json::Value, is_resource: bool) -> Value {
    match value {
        serde_json::Value::Null => Value::Null,
        serde_json::Value::Bool(value) => Value::Bool(*value),
        serde_json::Value::Number(number) => cel_number(schema, number),
        serde_json::Value::String(text) => cel_text(schema, text),
        serde_json::Value::Array(items) => {
            let anything = Schema::anything();
            let item = schema.items().unwrap_or(&anything);
            Value::List(Arc::new(items.iter().map(|value| cel_value(item, value, item.embedded)).collect()))
        }
        serde_json::Value::Object(fields) => {
            let is_map = !matches!(schema.additional, Additional::None);
            let anything = Schema::anything();
            let mut map = HashMap::with_capacity(fields.len());
            for (name, value) in fields {
                let value = if is_resource && name == "metadata" {
                    visible_metadata(value)
                } else {
                    let below = schema.property(name).unwrap_or(&anything);
                    cel_value(below, value, below.embedded)
                };
                let name = if is_map { name.clone() } else { escape(name) };
                map.insert(Key::String(Arc::new(name)), value);
            }
            Value::Map(Map { map: Arc::new(map) })
        }
    }
}

/// An optional value.
pub(super) fn optional(value: Option<Value>) -> Value {
    Value::Opaque(Arc::new(value.map_or_else(OptionalValue::none, OptionalValue::of)))
}

/// How a rule writes the name of a property that is not a CEL name.
pub(super) fn escape(name: &str) -> String {
    const RESERVED: [&str; 19] = [
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
    ];
    if RESERVED.contains(&name) || ["void", "while"].contains(&name) {
        return format!("__{name}__");
    }
    let mut text = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(first) = rest.chars().next() {
        let (written, used) = match first {
            '_' if rest.starts_with("__") => ("__underscores__", 2),
            '.' => ("__dot__", 1),
            '-' => ("__dash__", 1),
            '/' => ("__slash__", 1),
            other => {
                text.push(other);
                rest = &rest[other.len_utf8()..];
                continue;
            }
        };
        text.push_str(written);
        rest = &rest[used..];
    }
    text
}

/// Rules see only how an object is called.
fn visible_metadata(metadata: &serde_json::Value) -> Value {
    let mut map = HashMap::new();
    for name in ["name", "generateName"] {
        if let Some(text) = metadata[name].as_str() {
            map.insert(Key::String(Arc::new(name.into())), Value::String(Arc::new(text.into())));
        }
    }
    Value::Map(Map { map: Arc::new(map) })
}

/// A number is what its schema says: 1 is a double where `number` is asked for.
fn cel_number(schema: &Schema, number: &serde_json::Number) -> Value {
    let float = || Value::Float(number.as_f64().unwrap_or(f64::NAN));
    if schema.kind == Some(Type::Number) {
        return float();
    }
    match (number.as_i64(), number.as_u64(), number.as_f64()) {
        (Some(integer), _, _) => Value::Int(integer),
        (None, Some(large), _) => Value::UInt(large),
        // 1.0 is an integer; it is in the range in which every one is exact.
        (None, None, Some(whole))
            if schema.kind == Some(Type::Integer) && whole.fract() == 0.0 && whole.abs() < 9.0e15 =>
        {
            whole.to_string().trim_end_matches(".0").parse().map_or_else(|_| float(), Value::Int)
        }
        _ => float(),
    }
}

fn cel_text(schema: &Schema, text: &str) -> Value {
    let plain = Value::String(Arc::new(text.to_owned()));
    let read = |function: &str| {
        let argument = IdedExpr { id: 1, expr: Expr::Ident("text".into()) };
        let call = CallExpr { func_name: function.to_owned(), target: None, args: vec![argument] };
        let expression = IdedExpr { id: 0, expr: Expr::Call(call) };
        FUNCTIONS.with(|functions| {
            let mut scope = functions.new_inner_scope();
            scope.add_variable_from_value("text", plain.clone());
            scope.resolve(&expression).ok()
        })
    };
    let read = match schema.format.as_deref() {
        _ if schema.int_or_string => None,
        Some("date-time") => read("timestamp"),
        Some("date") => read("timestamp"),
        Some("duration") => read("duration"),
        Some("byte") => {
            use base64::Engine;
            let bytes = base64::engine::general_purpose::STANDARD.decode(text).ok();
            bytes.map(|bytes| Value::Bytes(Arc::new(bytes)))
        }
        _ => None,
    };
    read.unwrap_or(plain)
}

fn functions() -> Context<'static> {
    let mut context = Context::default().with_all();
    context.add_function(TICK, tick);
    context.add_function(OPTIONAL_GET, optional_get);
    // Types are not checked, so that there is nothing to hide from.
    context.add_function("dyn", untyped);
    context.add_function("type", type_of);
    for name in TYPES {
        context.add_variable_from_value(name, type_value(name));
    }
    context
}

fn tick() -> Result<bool, ExecutionError> {
    let Budget { left, price } = BUDGET.get();
    let left = left.saturating_sub(price);
    BUDGET.set(Budget { left, price });
    if left == 0 { Err(ExecutionError::function_error("loop", "too many turns")) } else { Ok(true) }
}

/// What rules may compare `type(x)` with; types are told apart by these names.
pub(super) const TYPES: [&str; 11] = [
    "bool",
    "bytes",
    "double",
    "int",
    "list",
    "map",
    "null_type",
    "string",
    "uint",
    "google.protobuf.Duration",
    "google.protobuf.Timestamp",
];

/// A type as a value.
pub(super) fn type_value(name: &str) -> Value {
    Value::String(Arc::new(format!("type {name}")))
}

fn type_of(value: Value) -> Result<Value, ExecutionError> {
    Ok(type_value(match value {
        Value::List(_) => "list",
        Value::Map(_) => "map",
        Value::Int(_) => "int",
        Value::UInt(_) => "uint",
        Value::Float(_) => "double",
        Value::String(_) => "string",
        Value::Bytes(_) => "bytes",
        Value::Bool(_) => "bool",
        Value::Duration(_) => "google.protobuf.Duration",
        Value::Timestamp(_) => "google.protobuf.Timestamp",
        Value::Null => "null_type",
        Value::Function(..) | Value::Opaque(_) => "other",
    }))
}

fn untyped(value: Value) -> Result<Value, ExecutionError> {
    Ok(value)
}

/// `a.?b`, `a[?b]`, and what follows them: missing at any step is missing at the end.
fn optional_get(from: Value, key: Value) -> Result<Value, ExecutionError> {
    let from = match <&OptionalValue>::try_from(&from) {
        Ok(inner) => match inner.value() {
            Some(value) => value.clone(),
            None => return Ok(optional(None)),
        },
        Err(_) => from,
    };
    Ok(optional(match (from, key) {
        (Value::Map(map), Value::String(name)) => map.map.get(&Key::String(name)).cloned(),
        (Value::Map(map), Value::Int(number)) => map.map.get(&Key::Int(number)).cloned(),
        (Value::List(items), Value::Int(index)) => {
            usize::try_from(index).ok().and_then(|index| items.get(index).cloned())
        }
        _ => None,
    }))
}

fn said(error: ExecutionError) -> Failure {
    match error {
        ExecutionError::NoSuchKey(key) => Failure::Said(format!("no such key: {key}")),
        ExecutionError::IndexOutOfBounds(Value::Int(index)) => Failure::Said(format!("index out of bounds: {index}")),
        ExecutionError::DivisionByZero(_) => Failure::Said("division by zero".into()),
        ExecutionError::RemainderByZero(_) => Failure::Said("modulus by zero".into()),
        ExecutionError::Overflow(..) => Failure::Said("integer overflow".into()),
        ExecutionError::NoSuchOverload
        | ExecutionError::UnsupportedBinaryOperator(..)
        | ExecutionError::ValuesNotComparable(..)
        | ExecutionError::UnsupportedUnaryOperator(..) => Failure::NoOverload,
        other => {
            // Their texts repeat whole values.
            let text = other.to_string();
            Failure::Said(text.chars().take(300).collect())
        }
    }
}
