//! Every way of sending a config gives the same config.

use std::io::Read;

use proptest::prelude::*;
use serde_json::json;

use super::*;

const POOL: &str = r#" { "ignition": {"version": "3.4.0"},
  "storage": {"files": [ {"path": "/etc/a", "mode": 420, "contents": {"source": "data:,a"}} ], "links": [{"path": "/etc/l", "target": "/x"}]},
  "kernelArguments": {"shouldExist": ["quiet"]} }
"#;
const FILES: &str = r#"{"path":"/etc/hostname","mode":420,"contents":{"source":"data:,w0"}},{"path":"/etc/b"}"#;

fn source(text: &str) -> Source {
    Source::parse(Bytes::copy_from_slice(text.as_bytes())).unwrap()
}

fn joined(parts: Vec<Bytes>) -> Vec<u8> {
    parts.concat()
}

fn inflated(parts: Vec<Bytes>) -> Vec<u8> {
    let mut bytes = Vec::new();
    // One member, to its very end.
    let packed = joined(parts);
    let mut decoder = flate2::bufread::GzDecoder::new(packed.as_slice());
    decoder.read_to_end(&mut bytes).unwrap();
    assert!(decoder.into_inner().is_empty(), "there is something behind the first member");
    bytes
}

fn value(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

#[test]
fn a_payload_leaves_as_the_bytes_that_came_in() {
    let source = source(POOL);
    let rendered = source.render(SpecVersion::V3_4).unwrap();
    assert_eq!(joined(rendered.body(None).unwrap()), POOL.as_bytes());
    assert_eq!(inflated(rendered.packed_body(None).unwrap()), POOL.as_bytes());
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), Compression::fast());
    std::io::Write::write_all(&mut packed, POOL.as_bytes()).unwrap();
    let packed = Source::parse(packed.finish().unwrap().into()).unwrap();
    assert_eq!(joined(packed.render(SpecVersion::V3_4).unwrap().body(None).unwrap()), POOL.as_bytes());
}

#[test]
fn the_files_of_a_host_are_the_last_of_the_list_however_it_is_sent() {
    let (source, files) = (source(POOL), Bytes::from_static(FILES.as_bytes()));
    let rendered = source.render(SpecVersion::V3_4).unwrap();
    let plain = joined(rendered.body(Some(&files)).unwrap());
    let paths: Vec<String> = value(&plain)["storage"]["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| file["path"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(paths, ["/etc/a", "/etc/hostname", "/etc/b"]);
    assert_eq!(inflated(rendered.packed_body(Some(&files)).unwrap()), plain);
    let list: Vec<Value> = serde_json::from_str(&format!("[{FILES}]")).unwrap();
    assert_eq!(value(&source.compose(&list, None, SpecVersion::V3_4).unwrap()), value(&plain));
    assert_eq!(inflated(pack(&plain)), plain);
}

#[test]
fn an_empty_list_takes_files_and_a_missing_one_is_composed() {
    let files = Bytes::from_static(FILES.as_bytes());
    let empty = source(r#"{"ignition":{"version":"3.2.0"},"storage":{"files":[ ]}}"#);
    let body = joined(empty.render(SpecVersion::V3_2).unwrap().body(Some(&files)).unwrap());
    assert_eq!(value(&body)["storage"]["files"].as_array().unwrap().len(), 2);
    let missing = source(r#"{"ignition":{"version":"3.2.0"}}"#);
    let rendered = missing.render(SpecVersion::V3_2).unwrap();
    assert!(
        !rendered.takes_files()
            && rendered.body(Some(&files)).is_none()
            && rendered.packed_body(Some(&files)).is_none()
    );
    let composed = value(&missing.compose(&[json!({"path": "/a"})], None, SpecVersion::V3_2).unwrap());
    assert_eq!(composed, json!({"ignition": {"version": "3.2.0"}, "storage": {"files": [{"path": "/a"}]}}));
}

#[test]
fn what_a_host_writes_takes_the_place_of_what_its_pool_writes() {
    let pool = source(
        r#"{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/etc/hostname","contents":{"compression":"gzip","source":"data:,x"}}],
            "links":[{"path":"/etc/motd","target":"/x"}]}}"#,
    );
    assert!(pool.has_any(&["/etc/motd".into()]) && !pool.has_any(&["/etc/other".into()]));
    let files = [json!({"path": "/etc/hostname", "contents": {"source": "data:,w0"}}), json!({"path": "/etc/motd"})];
    let over = br#"{"ignition":{"version":"3.3.0"},"storage":{"files":[{"path":"/etc/hostname","mode":384}]}}"#;
    let composed = value(&pool.compose(&files, Some(over), SpecVersion::V3_3).unwrap());
    assert_eq!(
        composed,
        json!({"ignition": {"version": "3.3.0"}, "storage": {
            "files": [{"path": "/etc/hostname", "contents": {"source": "data:,w0"}, "mode": 384}, {"path": "/etc/motd"}], "links": []}})
    );
}

#[test]
fn an_older_version_is_written_with_what_it_lost_or_refused() {
    let source = source(POOL);
    let rendered = source.render(SpecVersion::V3_2).unwrap();
    assert_eq!(rendered.lost, 1, "kernel arguments came with 3.3");
    let files = Bytes::from_static(FILES.as_bytes());
    let body = value(&joined(rendered.body(Some(&files)).unwrap()));
    assert_eq!(
        (&body["ignition"]["version"], body["storage"]["files"].as_array().unwrap().len()),
        (&json!("3.2.0"), 3)
    );
    let second = value(&joined(source.render(SpecVersion::V2_2).unwrap().body(None).unwrap()));
    assert_eq!(second["ignition"]["version"], "2.2.0");
    assert_eq!(second["storage"]["files"][0]["filesystem"], "root");
    let luks =
        self::source(r#"{"ignition":{"version":"3.3.0"},"storage":{"luks":[{"name":"a","device":"/dev/sda"}]}}"#);
    let refused = luks.render(SpecVersion::V3_1).unwrap_err().to_string();
    assert!(refused.starts_with("the config cannot be written in spec 3.1.0: KLN"), "{refused}");
}

#[test]
fn what_only_go_reads_is_written_anew() {
    let twice =
        source(r#"{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/a"}]},"storage":{"Links":[]}}"#);
    let rendered = twice.render(SpecVersion::V3_2).unwrap();
    let body = joined(rendered.body(Some(&Bytes::from_static(b"{\"path\":\"/b\"}"))).unwrap());
    assert_eq!(value(&body)["storage"]["files"], json!([{"path": "/a"}, {"path": "/b"}]));
    assert_eq!(String::from_utf8(body).unwrap().matches("storage").count(), 1);
}

#[test]
fn what_is_no_config_is_refused_without_its_contents() {
    for (bytes, expected) in [
        (b"secret".as_slice(), "the payload is no Ignition config: KLN0400"),
        (br#"{"ignition":{"version":"9.9.9"},"a":"secret"}"#, "the payload is no Ignition config: KLN0404"),
        (b"\x1f\x8b\x08", "the payload cannot be unpacked"),
        (b"\xff", "the payload cannot be unpacked"),
    ] {
        assert_eq!(Source::parse(Bytes::copy_from_slice(bytes)).unwrap_err().to_string(), expected);
    }
}

proptest! {
    // Each of them deflates some kilobytes.
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn any_bytes_are_a_payload_or_none(bytes: Vec<u8>) {
        let _ = Source::parse(bytes.into());
    }

    #[test]
    fn deflated_parts_join_to_one_stream(head in prop::collection::vec(any::<u8>(), 0..20_000), letters in "[ab]{0,5000}") {
        let text = format!(r#"{{"ignition":{{"version":"3.2.0"}},"x":{},"storage":{{"files":[]}}}}"#, json!(format!("{head:?}{letters}")));
        let rendered = source(&text).render(SpecVersion::V3_2).unwrap();
        let files = Bytes::from(json!({"path": letters}).to_string());
        prop_assert_eq!(inflated(rendered.packed_body(Some(&files)).unwrap()), joined(rendered.body(Some(&files)).unwrap()));
    }
}
