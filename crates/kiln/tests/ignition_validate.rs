//! `kiln ignition validate` as it is typed: what it prints, where, and how it ends.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test may panic and must say what it skips")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A fresh folder; commands run in it.
fn folder(test: &str, files: &[(&str, &[u8])]) -> PathBuf {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ignition_validate").join(test);
    let _ = std::fs::remove_dir_all(&root);
    std::fs::create_dir_all(&root).unwrap();
    for (name, bytes) in files {
        std::fs::write(root.join(name), bytes).unwrap();
    }
    root
}

/// Exit code, standard output, standard error.
fn validate(folder: &Path, arguments: &[&str], stdin: &[u8]) -> (i32, String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_kiln"))
        .args(["ignition", "validate"])
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A refused input is not read to its end, and then nobody listens any more.
    let _ = child.stdin.take().unwrap().write_all(stdin);
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

const GOOD: &[u8] = br#"{"ignition":{"version":"3.2.0"}}"#;
const BAD: &[u8] = br#"{"ignition":{"version":"3.2.0","config":{"merge":[{"source":"https://a/b","httpHeaders":[{"name":"A","value":"sesame"}]}]}},
 "storage":{"files":[{"path":"/a","mode":6440,"contens":{}}]}}
"#;

#[test]
fn a_good_config_ends_with_exit_0() {
    let folder = folder("good", &[("a.ign", GOOD), ("b.ign", GOOD)]);
    let expected = "2 configs: nothing to complain about\n".to_owned();
    assert_eq!(validate(&folder, &["a.ign", "b.ign"], b""), (0, String::new(), expected));
}

#[test]
fn a_bad_config_ends_with_exit_1_and_names_every_finding_in_order() {
    let folder = folder("bad", &[("a.ign", BAD)]);
    let (code, stdout, stderr) = validate(&folder, &["a.ign", "--format", "json"], b"");
    let found: Vec<String> = stdout
        .lines()
        .map(|line| {
            let finding: serde_json::Value = serde_json::from_str(line).unwrap();
            format!("{}:{} {} {}", finding["line"], finding["column"], finding["code"], finding["field"])
        })
        .collect();
    assert_eq!((code, stderr.as_str()), (1, ""));
    assert_eq!(found, [r#"2:42 "KLN0411" "storage.files[0].mode""#, r#"2:47 "KLN0407" "storage.files[0].contens""#]);
}

#[test]
fn no_report_quotes_a_header_even_of_a_config_that_cannot_be_read() {
    let one_line = br#"{"ignition":{"version":"3.2.0","config":{"merge":[{"httpHeaders":[{"name":"A","Value":"sesame"}]}]}},"storage":[]}"#;
    let folder = folder("secret", &[("a.ign", one_line)]);
    let (code, _, stderr) = validate(&folder, &["a.ign"], b"");
    assert_eq!(code, 1);
    assert!(stderr.contains("KLN0406") && !stderr.contains("sesame"), "{stderr}");
}

#[test]
fn packed_input_and_standard_input_are_read() {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(BAD).unwrap();
    let folder = folder("packed", &[]);
    let (code, stdout, _) = validate(&folder, &["-", "--format", "github"], &encoder.finish().unwrap());
    assert_eq!(code, 1);
    assert!(stdout.starts_with("::error file=<stdin>,line=2,col=42,title=KLN0411::mode 6440"), "{stdout}");
}

#[test]
fn what_is_no_config_is_refused_with_a_reason() {
    let folder =
        folder("refused", &[("binary", b"\x7fELF\0"), ("cut.gz", b"\x1f\x8b\x08\0"), ("latin1.ign", b"{\"\xe9\":1}")]);
    for (argument, expected) in [
        ("missing.ign", "error: cannot read `missing.ign`\n"),
        ("binary", "error: `binary` is not text (UTF-8), so it is no Ignition config\n"),
        ("cut.gz", "error: cannot read `cut.gz`\n  caused by: the gzip data is damaged\n"),
        ("latin1.ign", "warning[KLN0403]: the text contains bytes that are not UTF-8\n"),
    ] {
        let (code, _, stderr) = validate(&folder, &[argument], b"");
        assert_eq!(code, 1);
        assert!(stderr.contains(expected), "{stderr}");
    }
    let (code, _, stderr) = validate(&folder, &["-"], &vec![b' '; (64 << 20) + 1]);
    assert_eq!((code, stderr.as_str()), (1, "error: `-` has more than 67108864 bytes; Kiln reads no more\n"));
}
