//! The protobuf that Go clients send for kinds they have compiled in, read as the JSON it stands for.
//!
//! kubectl 1.32 and later creates namespaces, config maps and secrets this way and does not fall back to JSON. Answers
//! are always JSON, which these clients accept. A table of fields replaces generated code; fields it does not know are
//! skipped, kinds it does not know are refused: among those that come with the server only definitions, which Go clients
//! send as JSON.

use base64::Engine;
use serde_json::{Map, Value};
use time::OffsetDateTime;

use crate::timestamp::render_timestamp;
use fields::{FieldKind, message};

mod fields;

/// What these bodies are called.
pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

const MAGIC: &[u8] = b"k8s\0";
/// Deeper than any kind in the table.
const DEEPEST: usize = 16;

/// Reads an object.
pub fn decode(bytes: &[u8]) -> Result<Value, String> {
    let body = bytes.strip_prefix(MAGIC).ok_or("it does not begin with the Kubernetes magic")?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    let mut reader = Reader { rest: body };
    while let Some((field, wire)) = reader.field()? {
        match (field, wire) {
            (1, Wire::Bytes(bytes)) => {
                let mut inner = Reader { rest: bytes };
                while let Some((field, wire)) = inner.field()? {
                    match (field, wire) {
                        (1, Wire::Bytes(bytes)) => api_version = text(bytes)?,
                        (2, Wire::Bytes(bytes)) => kind = text(bytes)?,
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    // The two kinds of events have the same name and other numbers.
    let qualified = format!("{api_version} {kind}");
    let name = if message(&qualified).is_some() { qualified.as_str() } else { kind.as_str() };
    if message(name).is_none() {
        return Err(format!("kind {kind:?} is read as JSON only"));
    }
    let mut object = Map::new();
    object.insert("apiVersion".into(), api_version.into());
    object.insert("kind".into(), kind.as_str().into());
    object.extend(decode_message(name, raw, 0)?);
    Ok(Value::Object(object))
}

fn decode_message(name: &str, bytes: &[u8], depth: usize) -> Result<Map<String, Value>, String> {
    let table = message(name).ok_or_else(|| format!("message {name} is not known"))?;
    if depth > DEEPEST {
        return Err(format!("nested more than {DEEPEST} deep"));
    }
    let mut object = Map::new();
    let mut reader = Reader { rest: bytes };
    while let Some((number, wire)) = reader.field()? {
        let Some((_, field, kind)) = table.iter().find(|(known, ..)| *known == number) else { continue };
        let wrong = || format!("field {name}.{field} has the wrong wire type");
        match (kind, wire) {
            (FieldKind::Text, Wire::Bytes(bytes)) => {
                let text = text(bytes)?;
                // Go writes empty strings; JSON leaves them out.
                if !text.is_empty() {
                    object.insert((*field).into(), text.into());
                }
            }
            (FieldKind::Binary, Wire::Bytes(bytes)) => {
                object.insert((*field).into(), encode(bytes));
            }
            (FieldKind::Count | FieldKind::Flag, Wire::Number(0)) => drop(object.shift_remove(*field)),
            (FieldKind::Integer | FieldKind::Count, Wire::Number(number)) => {
                object.insert((*field).into(), number.cast_signed().into());
            }
            (FieldKind::Boolean | FieldKind::Flag, Wire::Number(number)) => {
                object.insert((*field).into(), (number != 0).into());
            }
            (FieldKind::Time | FieldKind::MicroTime, Wire::Bytes(bytes)) => {
                if let Some(time) = decode_time(bytes, matches!(kind, FieldKind::MicroTime))? {
                    object.insert((*field).into(), time.into());
                }
            }
            (FieldKind::Message(inner), Wire::Bytes(bytes)) => {
                object.insert((*field).into(), Value::Object(decode_message(inner, bytes, depth + 1)?));
            }
            (FieldKind::Texts, Wire::Bytes(bytes)) => push(&mut object, field, text(bytes)?.into()),
            (FieldKind::Messages(inner), Wire::Bytes(bytes)) => {
                push(&mut object, field, Value::Object(decode_message(inner, bytes, depth + 1)?));
            }
            (FieldKind::TextMap | FieldKind::BinaryMap | FieldKind::QuantityMap, Wire::Bytes(bytes)) => {
                let (key, value) = decode_entry(bytes)?;
                let value = match kind {
                    FieldKind::TextMap => text(value)?.into(),
                    FieldKind::QuantityMap => decode_quantity(value)?.into(),
                    _ => encode(value),
                };
                let map = object.entry(*field).or_insert_with(|| Value::Object(Map::new()));
                if let Value::Object(map) = map {
                    map.insert(key, value);
                }
            }
            _ => return Err(wrong()),
        }
    }
    Ok(object)
}

fn decode_entry(bytes: &[u8]) -> Result<(String, &[u8]), String> {
    let (mut key, mut value) = (String::new(), &[][..]);
    let mut reader = Reader { rest: bytes };
    while let Some((number, wire)) = reader.field()? {
        match (number, wire) {
            (1, Wire::Bytes(bytes)) => key = text(bytes)?,
            (2, Wire::Bytes(bytes)) => value = bytes,
            _ => {}
        }
    }
    Ok((key, value))
}

/// Without a text it is nothing of the thing: Go's zero value.
fn decode_quantity(bytes: &[u8]) -> Result<String, String> {
    let mut amount = String::new();
    let mut reader = Reader { rest: bytes };
    while let Some((number, wire)) = reader.field()? {
        if let (1, Wire::Bytes(bytes)) = (number, wire) {
            amount = text(bytes)?;
        }
    }
    Ok(if amount.is_empty() { "0".into() } else { amount })
}

/// An empty time is no time: Go writes its zero value so.
fn decode_time(bytes: &[u8], micro: bool) -> Result<Option<String>, String> {
    let (mut seconds, mut nanos) = (0_i64, 0_i64);
    let mut reader = Reader { rest: bytes };
    while let Some((number, wire)) = reader.field()? {
        match (number, wire) {
            (1, Wire::Number(value)) => seconds = value.cast_signed(),
            (2, Wire::Number(value)) => nanos = value.cast_signed(),
            _ => {}
        }
    }
    if seconds == 0 && nanos == 0 {
        return Ok(None);
    }
    let at = OffsetDateTime::from_unix_timestamp(seconds).map_err(|_| "a time is out of range")?;
    let whole = render_timestamp(at);
    Ok(Some(if micro {
        let micros = nanos.clamp(0, 999_999_999) / 1000;
        format!("{}.{micros:06}Z", whole.trim_end_matches('Z'))
    } else {
        whole
    }))
}

fn push(object: &mut Map<String, Value>, field: &str, value: Value) {
    let list = object.entry(field).or_insert_with(|| Value::Array(Vec::new()));
    if let Value::Array(items) = list {
        items.push(value);
    }
}

fn encode(bytes: &[u8]) -> Value {
    base64::engine::general_purpose::STANDARD.encode(bytes).into()
}

fn text(bytes: &[u8]) -> Result<String, String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| "a string is not UTF-8".into())
}

enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn field(&mut self) -> Result<Option<(u64, Wire<'a>)>, String> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let key = self.varint()?;
        let wire = match key & 7 {
            0 => Wire::Number(self.varint()?),
            1 => Wire::Bytes(self.take(8)?),
            2 => {
                let length = self.varint()?;
                Wire::Bytes(self.take(usize::try_from(length).map_err(|_| "a length is too large")?)?)
            }
            5 => Wire::Bytes(self.take(4)?),
            other => return Err(format!("wire type {other} does not exist")),
        };
        Ok(Some((key >> 3, wire)))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or("it ends in the middle of a field")?;
        self.rest = rest;
        Ok(taken)
    }

    fn varint(&mut self) -> Result<u64, String> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = *self.take(1)?.first().ok_or("it ends in the middle of a number")?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err("a number has more than ten bytes".into())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let length = match bytes.len() {
            short @ 0..0x80 => vec![u8::try_from(short).unwrap()],
            long => vec![u8::try_from(long & 0x7f).unwrap() | 0x80, u8::try_from(long >> 7).unwrap()],
        };
        [&[number << 3 | 2], length.as_slice(), bytes].concat()
    }

    fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
        let types = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
        [MAGIC, &field(1, &types), &field(2, raw)].concat()
    }

    #[test]
    fn a_secret_is_read_as_its_json() {
        let metadata =
            [field(1, b"s"), field(2, b""), field(8, b""), field(11, &[field(1, b"k"), field(2, b"v")].concat())]
                .concat();
        let data = [field(1, b"pw"), field(2, b"x")].concat();
        let raw = [field(1, &metadata), field(2, &data), field(3, b"Opaque"), vec![5 << 3, 1]].concat();
        assert_eq!(
            decode(&envelope("v1", "Secret", &raw)).unwrap(),
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "labels": {"k": "v"}},
                "data": {"pw": "eA=="}, "type": "Opaque", "immutable": true})
        );
    }

    #[test]
    fn a_node_is_read_as_its_json() {
        // Byte for byte as Go writes it: zero values of plain fields too, in the order of their numbers.
        let amount = |name: &[u8], text: &[u8]| [field(1, name), field(2, &field(1, text))].concat();
        let taint = [field(1, b"a"), field(2, b""), field(3, b"NoSchedule")].concat();
        let spec = [
            field(1, b"10.0.0.0/24"),
            field(2, b""),
            field(3, b"metal://n"),
            vec![4 << 3, 0],
            field(5, &taint),
            field(7, b"10.0.0.0/24"),
            field(7, b"fd00::/64"),
        ]
        .concat();
        let ready =
            [field(1, b"Ready"), field(2, b"True"), field(3, &[8, 10]), field(4, &[]), field(5, b""), field(6, b"")]
                .concat();
        let info = [field(1, b"m"), field(2, b""), field(5, b"An OS 1"), field(11, &[8, 0])].concat();
        let image = [field(1, b"a:1"), field(1, b"a@2"), vec![2 << 3, 0x80, 1]].concat();
        let status = [
            field(1, &amount(b"cpu", b"4")),
            field(1, &amount(b"memory", b"16Gi")),
            field(2, &amount(b"cpu", b"3500m")),
            field(2, &[field(1, b"pods"), field(2, b"")].concat()),
            field(3, b""),
            field(4, &ready),
            field(5, &[field(1, b"InternalIP"), field(2, b"192.0.2.1")].concat()),
            field(6, &field(1, &[8, 0xca, 0x50])),
            field(7, &info),
            field(8, &image),
            field(8, &[field(1, b"b:1"), vec![2 << 3, 0]].concat()),
            field(9, b"v"),
            field(10, &[field(1, b"v"), field(2, b"/dev/sdb")].concat()),
            field(11, &[field(1, &field(2, &field(2, b"config"))), field(4, b"")].concat()),
            field(12, &[field(1, b""), field(2, &[2 << 3, 0])].concat()),
            field(13, &[8, 1]),
        ]
        .concat();
        let raw = [field(1, &field(1, b"n")), field(2, &spec), field(3, &status)].concat();
        assert_eq!(
            decode(&envelope("v1", "Node", &raw)).unwrap(),
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"},
            "spec": {"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24", "fd00::/64"], "providerID": "metal://n",
                "taints": [{"key": "a", "effect": "NoSchedule"}]},
            "status": {
                "capacity": {"cpu": "4", "memory": "16Gi"}, "allocatable": {"cpu": "3500m", "pods": "0"},
                "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "1970-01-01T00:00:10Z"}],
                "addresses": [{"type": "InternalIP", "address": "192.0.2.1"}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": 10314}},
                "nodeInfo": {"machineID": "m", "osImage": "An OS 1", "swap": {"capacity": 0}},
                "images": [{"names": ["a:1", "a@2"], "sizeBytes": 128}, {"names": ["b:1"]}],
                "volumesInUse": ["v"], "volumesAttached": [{"name": "v", "devicePath": "/dev/sdb"}],
                "config": {"assigned": {"configMap": {"name": "config"}}},
                "runtimeHandlers": [{"features": {"userNamespaces": false}}],
                "features": {"supplementalGroupsPolicy": true},
            }})
        );
        let cordoned = field(2, &[4 << 3, 1]);
        assert_eq!(decode(&envelope("v1", "Node", &cordoned)).unwrap()["spec"], json!({"unschedulable": true}));
        for (status, reason) in [
            (vec![8, 1], "field NodeStatus.capacity has the wrong wire type"),
            (field(1, &field(2, &field(1, b"\xff"))), "a string is not UTF-8"),
        ] {
            assert_eq!(decode(&envelope("v1", "Node", &field(3, &status))).unwrap_err(), reason);
        }
    }

    #[test]
    fn times_keep_their_precision_and_no_time_is_left_out() {
        let renewed = [vec![8, 10], vec![16, 0xc0, 0x84, 0x3d]].concat();
        let spec = [field(1, b"me"), vec![2 << 3, 15], field(3, b""), field(4, &renewed)].concat();
        let lease = decode(&envelope("coordination.k8s.io/v1", "Lease", &field(2, &spec))).unwrap();
        assert_eq!(
            lease["spec"],
            json!({"holderIdentity": "me", "leaseDurationSeconds": 15, "renewTime": "1970-01-01T00:00:10.001000Z"})
        );
    }

    #[test]
    fn broken_bodies_are_refused_with_the_reason() {
        for (bytes, reason) in [
            (b"{}".to_vec(), "it does not begin with the Kubernetes magic"),
            (envelope("v1", "Pod", b""), "kind \"Pod\" is read as JSON only"),
            (envelope("v1", "Secret", &[10, 200]), "it ends in the middle of a number"),
            (envelope("v1", "Secret", &[10, 20, 1]), "it ends in the middle of a field"),
            (envelope("v1", "Secret", &[8, 1]), "field Secret.metadata has the wrong wire type"),
            ([MAGIC, &[0xff; 12]].concat(), "a number has more than ten bytes"),
        ] {
            let refused = decode(&bytes).unwrap_err();
            assert!(refused == reason || reason.starts_with("it ends"), "{refused} is not {reason}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_decoder_panic(raw in prop::collection::vec(any::<u8>(), 0..120)) {
            let _ = decode(&envelope("v1", "Event", &raw));
            let _ = decode(&envelope("v1", "Node", &field(3, &raw)));
            let _ = decode(&[MAGIC, &raw].concat());
        }
    }
}
