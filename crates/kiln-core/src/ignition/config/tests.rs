//! What is read, what is refused, and what both forms of a config say.

use super::*;
use crate::ignition::{Contents, Owner};
use crate::source::SourceMap;

pub(super) fn read(text: &str) -> (Option<Config>, Vec<String>) {
    let mut sources = SourceMap::default();
    let file = sources.add("x.ign", text);
    let (config, findings) = Config::parse(file, sources.file(file));
    let shown = findings
        .iter()
        .map(|finding| {
            let at = sources.line_column(finding.at.unwrap());
            format!("{}:{} {} {}", at.line, at.column, finding.code, finding.message)
        })
        .collect();
    (config, shown)
}

fn refusal(text: &str) -> String {
    let (config, findings) = read(text);
    assert_eq!(config, None, "{text}");
    findings.join("\n")
}

#[test]
fn an_empty_file_is_told_the_smallest_config() {
    for text in ["", " \n"] {
        let mut sources = SourceMap::default();
        let file = sources.add("x.ign", text);
        let (_, findings) = Config::parse(file, sources.file(file));
        let helps: Vec<_> = findings.iter().filter_map(|finding| finding.help.as_deref()).collect();
        assert_eq!(helps, [r#"write {"ignition": {"version": "3.2.0"}}"#]);
    }
}

#[test]
fn what_ignition_cannot_read_is_refused() {
    for (text, expected) in [
        ("{}", "1:1 KLN0404 the config has no `ignition.version`"),
        ("null", "1:1 KLN0404 the config has no `ignition.version`"),
        ("[]", "1:1 KLN0406 the config must be an object, but it is a list"),
        (r#"{"ignition":{}}"#, "1:13 KLN0404 the config has no `ignition.version`"),
        (r#"{"ignition":{"version":3}}"#, "1:24 KLN0406 `ignition.version` must be a string, but it is a number"),
        (
            r#"{"ignition":{"version":"3.7.0-experimental"}}"#,
            "1:24 KLN0404 `ignition.version`: `3.7.0-experimental` is an experimental spec",
        ),
        (r#"{"ignitionVersion":1}"#, "1:2 KLN0404 the config is written in spec 1"),
        (r#"{"variant":"fcos"}"#, "1:2 KLN0405 this is a Butane config, not an Ignition config"),
        ("# mine\nvariant: fcos\nversion: 1.5.0\n", "2:1 KLN0405 this is a Butane config, not an Ignition config"),
        (
            r#"{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/a","mode":420.0},{"path":5}]}}"#,
            "1:73 KLN0406 `mode` of the file must be a whole number, but it is the number 420.0\n\
             1:88 KLN0406 `path` of the file must be a string, but it is the number 5",
        ),
        (
            r#"{"ignition":{"version":"3.2.0"},"storage":[]}"#,
            "1:43 KLN0406 `storage` of the config must be an object, but it is a list",
        ),
        (
            r#"{"ignition":{"version":"3.2.0"},"storage":{"files":[7]}}"#,
            "1:53 KLN0406 `files` of the storage section must be an object, but it is the number 7",
        ),
    ] {
        assert_eq!(refusal(text), expected);
    }
}

#[test]
fn unknown_newer_and_oddly_cased_keys_are_warnings() {
    let (config, findings) = read(
        r#"{"Ignition":{"version":"3.2.0"},"kernelArguments":{"shouldExist":5},
"storage":{"files":[{"Path":"/a","path":"/b","modes":1,"zzz":0}]}}"#,
    );
    assert_eq!(
        findings,
        [
            "1:2 KLN0408 key `Ignition` is written in another letter case than `ignition`",
            "1:33 KLN0409 `kernelArguments` of the config needs spec 3.3.0, but the config is written in 3.2.0",
            "2:22 KLN0408 key `Path` is written in another letter case than `path`",
            "2:34 KLN0401 `path` is written twice, in two letter cases",
            "2:46 KLN0407 spec 3.2.0 has no key `modes` in a file",
            "2:56 KLN0407 spec 3.2.0 has no key `zzz` in a file",
        ]
    );
    assert_eq!(config.unwrap().files()[0].path.value, "/b");
}

#[test]
fn nulls_are_as_good_as_nothing() {
    let (config, findings) = read(
        r#"{"ignition":{"version":"3.3.0","config":null},"storage":{"files":[{"path":"/a","mode":null,"user":{"id":null}}]},
        "passwd":{"users":[{"name":"core","groups":["wheel",null]}]}}"#,
    );
    assert_eq!(findings, [""; 0]);
    let config = config.unwrap();
    assert_eq!(config.files()[0].mode, None);
    let json = config.root.to_json().to_string();
    assert_eq!(
        json,
        r#"{"ignition":{"version":"3.3.0"},"storage":{"files":[{"path":"/a","user":{}}]},"passwd":{"users":[{"name":"core","groups":["wheel",""]}]}}"#
    );
    let ignition_config::Config::V3_3(typed) = config.typed().unwrap() else { panic!("wrong version") };
    assert_eq!(typed.storage.unwrap().files.unwrap()[0].path, "/a");
}

#[test]
fn the_typed_form_accepts_what_go_accepts() {
    for minor in 0..=6 {
        let text = format!(
            r#"{{"IGNITION":{{"VERSION":"3.0{minor}.0","config":{{"merge":[{{}}]}}}},
            "storage":{{"raid":[{{}}],"links":[{{"path":"/l"}}],"disks":[{{"partitions":[{{}}]}}],"luks":[{{"clevis":{{"custom":{{}},"tang":[{{}}]}}}}]}}}}"#
        );
        let config = read(&text).0.unwrap();
        assert_eq!(config.typed().map(|_| ()).map_err(|error| format!("{error:?}")), Ok(()), "3.{minor}.0");
    }
    let config = read(r#"{"ignition":{"version":"2.2.0"}}"#).0.unwrap();
    assert_eq!(
        config.typed().unwrap_err().to_string(),
        "spec 2.2.0 has no typed form; convert the config to 3.x first"
    );
}

#[test]
fn files_are_listed_with_decoded_contents() {
    let packed = {
        use std::io::Write;
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(b"packed").unwrap();
        crate::ignition::data_url::encode_base64(&encoder.finish().unwrap())
    };
    let text = format!(
        r#"{{"ignition":{{"version":"3.2.0"}},"storage":{{"files":[
        {{"path":"/plain","mode":384,"overwrite":true,"contents":{{"source":"data:,a%0Ab"}},"user":{{"name":"core"}},"group":{{"id":5}}}},
        {{"path":"/gz","contents":{{"source":"{packed}","compression":"gzip"}},"append":[{{"source":"data:,x"}}]}},
        {{"path":"/far","contents":{{"source":"https://example.com/f"}}}},
        {{"path":"/bad","contents":{{"source":"data:;base64,a"}}}},
        {{"path":"/empty","contents":{{"source":""}}}},
        {{"path":"/kept"}}]}}}}"#
    );
    let files = read(&text).0.unwrap().files();
    let shown: Vec<_> = files.iter().map(|file| (file.path.value.as_str(), file.contents.clone())).collect();
    assert_eq!(
        shown,
        [
            ("/plain", Contents::Inline(b"a\nb".to_vec())),
            ("/gz", Contents::Inline(b"packed".to_vec())),
            ("/far", Contents::Remote("https://example.com/f".into())),
            ("/bad", Contents::Unreadable("the base64 data has the wrong length or lacks its `=` padding".into())),
            ("/empty", Contents::Inline(Vec::new())),
            ("/kept", Contents::Absent),
        ]
    );
    assert_eq!(files[0].mode.as_ref().map(|mode| mode.value), Some(0o600));
    assert_eq!((files[0].user.clone(), files[0].group.clone()), (Some(Owner::Name("core".into())), Some(Owner::Id(5))));
    assert_eq!(files[1].append, [Contents::Inline(b"x".to_vec())]);
}

#[test]
fn an_appended_file_of_spec_two_has_no_contents_of_its_own() {
    let files = read(
        r#"{"ignition":{"version":"2.2.0"},"storage":{"files":[{"filesystem":"root","path":"/a","append":true,"contents":{"source":"data:,x"}}]}}"#,
    )
    .0
    .unwrap()
    .files();
    assert_eq!((&files[0].contents, &files[0].append[..]), (&Contents::Absent, &[Contents::Inline(b"x".to_vec())][..]));
}

#[test]
fn gzip_is_undone_within_bounds() {
    use std::io::Write;
    assert_eq!(unpack_gzip(b"{}").unwrap(), &b"{}"[..]);
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(b"{}").unwrap();
    assert_eq!(unpack_gzip(&encoder.finish().unwrap()).unwrap(), &b"{}"[..]);
    assert_eq!(unpack_gzip(&[0x1f, 0x8b, 0]).unwrap_err().to_string(), "the gzip data is damaged");
    let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    bomb.write_all(&vec![b' '; MAX_BYTES + 1]).unwrap();
    assert_eq!(unpack_gzip(&bomb.finish().unwrap()).unwrap_err().to_string(), "the text has more than 67108864 bytes");
}
