//! The protobuf form of an OpenAPI v2 document (gnostic's `openapi.v2.Document`), as far as it is published here.
//!
//! Go clients ask for nothing else. Values of any form (defaults, choices, extensions) travel as YAML inside, of which JSON is
//! a part.

use serde_json::Value;

/// What clients call it.
pub const MEDIA_TYPE: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
/// What clients called it before, `@` being no character of a media type.
pub const OLD_MEDIA_TYPE: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

/// How a field of a schema is written.
enum Form {
    Text,
    Texts,
    Number,
    Integer,
    Flag,
    Any,
    Anys,
}

/// The simple fields of a schema: name, number, form.
const SCHEMA: [(&str, u32, Form); 20] = [
    ("$ref", 1, Form::Text),
    ("format", 2, Form::Text),
    ("title", 3, Form::Text),
    ("description", 4, Form::Text),
    ("default", 5, Form::Any),
    ("multipleOf", 6, Form::Number),
    ("maximum", 7, Form::Number),
    ("exclusiveMaximum", 8, Form::Flag),
    ("minimum", 9, Form::Number),
    ("exclusiveMinimum", 10, Form::Flag),
    ("maxLength", 11, Form::Integer),
    ("minLength", 12, Form::Integer),
    ("pattern", 13, Form::Text),
    ("maxItems", 14, Form::Integer),
    ("minItems", 15, Form::Integer),
    ("uniqueItems", 16, Form::Flag),
    ("maxProperties", 17, Form::Integer),
    ("minProperties", 18, Form::Integer),
    ("required", 19, Form::Texts),
    ("enum", 20, Form::Anys),
];

/// The document as protobuf.
pub fn encode(document: &Value) -> Vec<u8> {
    let mut info = Message::default();
    info.text(1, &document["info"]["title"]);
    info.text(2, &document["info"]["version"]);
    let mut paths = Message::default();
    for (path, item) in document["paths"].as_object().into_iter().flatten() {
        let mut value = Message::default();
        value.message(8, operation(&item["patch"]));
        paths.message(2, named(path, value));
    }
    let mut message = Message::default();
    message.text(1, &document["swagger"]);
    message.message(2, info);
    message.message(8, paths);
    message.message(9, schemas(&document["definitions"]));
    message.0
}

fn operation(operation: &Value) -> Message {
    let mut message = Message::default();
    message.texts(6, &operation["produces"]);
    message.texts(7, &operation["consumes"]);
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        let mut query = Message::default();
        query.text(2, &parameter["in"]);
        query.text(4, &parameter["name"]);
        query.text(6, &parameter["type"]);
        query.flag(20, &parameter["uniqueItems"]);
        // A parameter is one of several things, which is one of several things.
        message.message(8, Message::around(1, Message::around(2, Message::around(3, query))));
    }
    message.extensions(13, operation);
    message
}

/// Named schemas: the definitions, or the properties of one.
fn schemas(map: &Value) -> Message {
    let mut message = Message::default();
    for (name, value) in map.as_object().into_iter().flatten() {
        message.message(1, named(name, schema(value)));
    }
    message
}

fn schema(schema: &Value) -> Message {
    let mut message = Message::default();
    for (name, number, form) in &SCHEMA {
        let value = &schema[*name];
        match form {
            Form::Text => message.text(*number, value),
            Form::Texts => message.texts(*number, value),
            Form::Number => message.number(*number, value),
            Form::Integer => message.integer(*number, value),
            Form::Flag => message.flag(*number, value),
            Form::Any => message.any(*number, value),
            Form::Anys => value.as_array().into_iter().flatten().for_each(|value| message.any(*number, value)),
        }
    }
    match &schema["additionalProperties"] {
        Value::Bool(any) => {
            let mut either = Message::default();
            either.varint(2, u64::from(*any));
            message.message(21, either);
        }
        below @ Value::Object(_) => message.message(21, Message::around(1, self::schema(below))),
        _ => {}
    }
    if schema["type"].is_string() {
        let mut kind = Message::default();
        kind.text(1, &schema["type"]);
        message.message(22, kind);
    }
    if schema["items"].is_object() {
        message.message(23, Message::around(1, self::schema(&schema["items"])));
    }
    if schema["properties"].is_object() {
        message.message(25, schemas(&schema["properties"]));
    }
    message.extensions(31, schema);
    message
}

fn named(name: &str, value: Message) -> Message {
    let mut message = Message::default();
    message.bytes(1, name.as_bytes());
    message.message(2, value);
    message
}

/// A message as it grows. What is not there is not written.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn around(number: u32, inner: Message) -> Message {
        let mut message = Message::default();
        message.message(number, inner);
        message
    }

    fn key(&mut self, number: u32, wire: u64) {
        self.raw(u64::from(number) << 3 | wire);
    }

    fn raw(&mut self, mut value: u64) {
        loop {
            let byte = (value & 0x7f) as u8;
            value >>= 7;
            if value == 0 {
                return self.0.push(byte);
            }
            self.0.push(byte | 0x80);
        }
    }

    fn varint(&mut self, number: u32, value: u64) {
        self.key(number, 0);
        self.raw(value);
    }

    fn bytes(&mut self, number: u32, bytes: &[u8]) {
        self.key(number, 2);
        self.raw(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn message(&mut self, number: u32, inner: Message) {
        self.bytes(number, &inner.0);
    }

    fn text(&mut self, number: u32, value: &Value) {
        if let Some(text) = value.as_str() {
            self.bytes(number, text.as_bytes());
        }
    }

    fn texts(&mut self, number: u32, value: &Value) {
        value.as_array().into_iter().flatten().for_each(|value| self.text(number, value));
    }

    fn number(&mut self, number: u32, value: &Value) {
        if let Some(value) = value.as_f64() {
            self.key(number, 1);
            self.0.extend_from_slice(&value.to_le_bytes());
        }
    }

    fn integer(&mut self, number: u32, value: &Value) {
        if let Some(value) = value.as_i64() {
            self.varint(number, value.cast_unsigned());
        }
    }

    fn flag(&mut self, number: u32, value: &Value) {
        if let Some(value) = value.as_bool() {
            self.varint(number, u64::from(value));
        }
    }

    fn any(&mut self, number: u32, value: &Value) {
        if !value.is_null() {
            let mut any = Message::default();
            any.bytes(2, format!("{value}\n").as_bytes());
            self.message(number, any);
        }
    }

    fn extensions(&mut self, number: u32, value: &Value) {
        for (name, value) in value.as_object().into_iter().flatten().filter(|(name, _)| name.starts_with("x-")) {
            let mut extension = Message::default();
            extension.bytes(1, name.as_bytes());
            extension.any(2, value);
            self.message(number, extension);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_is_written_field_by_field() {
        let written =
            schema(&json!({"type": "integer", "minimum": 1, "maxLength": 300, "uniqueItems": true, "enum": ["a"],
            "x-k": [1]}));
        let expected = [
            &[9 << 3 | 1][..],
            &1f64.to_le_bytes(),
            &[11 << 3, 0xac, 2],
            &[0x80, 1, 1],
            &[0xa2, 1, 6, 18, 4],
            b"\"a\"\n",
            &[0xb2, 1, 9, 10, 7],
            b"integer",
            &[0xfa, 1, 13, 10, 3],
            b"x-k",
            &[18, 6, 18, 4],
            b"[1]\n",
        ]
        .concat();
        assert_eq!(written.0, expected);
    }

    #[test]
    fn what_is_nested_is_in_its_message() {
        let written = schema(&json!({"items": {"type": "string"}, "additionalProperties": true,
            "properties": {"a": {"$ref": "r"}}}));
        let expected = [
            &[0xaa, 1, 2, 16, 1][..],
            &[0xba, 1, 13, 10, 11, 0xb2, 1, 8, 10, 6],
            b"string",
            &[0xca, 1, 10, 10, 8, 10, 1, b'a', 18, 3, 10, 1, b'r'],
        ]
        .concat();
        assert_eq!(written.0, expected);
    }
}
