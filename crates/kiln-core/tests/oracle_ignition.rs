//! Kiln's verdicts on Ignition configs against those of `ignition-validate`, the program Ignition's authors ship.
//!
//! `oracle_ignition/cases.txt` has one config per line; each is written in the specs 3.0 to 3.3, all that the program
//! (2.14) knows. The verdict must be the same for every one, and so must the warnings both can give. What Kiln warns about
//! beyond the program is listed in [`OURS_ALONE`], each with its reason.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test may panic and must say what it skips")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use kiln_core::diagnostic::Severity;
use kiln_core::ignition::{Config, validate::validate};
use kiln_core::source::SourceMap;

/// Warnings the program does not have.
const OURS_ALONE: [(u16, &str); 13] = [
    (401, "the program says nothing about keys written twice"),
    (415, "a hash with other characters than hex digits is accepted and never matches"),
    (419, "a hard link to a directory, by the path the link really leads to"),
    (420, "a link without target is refused from 3.3 on and fails at boot before"),
    (425, "an array without a name fails at boot"),
    (426, "a volume without a name fails at boot"),
    (432, "several kernel arguments in one string are never found on the command line"),
    (434, "inline contents that are not gzip fail at boot"),
    (435, "a file in the place of a unit is refused from 3.4 on"),
    (436, "later releases of the program warn about it"),
    (437, "later releases of the program warn about it"),
    (439, "a user without a name fails at boot"),
    (440, "two file systems at one mount point are accepted"),
];

#[test]
fn verdicts_on_generated_configs_equal_those_of_ignition_validate() {
    let test = "verdicts_on_generated_configs_equal_those_of_ignition_validate";
    if Command::new("ignition-validate").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err()
    {
        assert!(std::env::var_os("KILN_REQUIRE_ORACLES").is_none(), "ignition-validate is not installed");
        eprintln!("skipped: {test}: ignition-validate is not installed (apt-get install ignition)");
        return;
    }
    let folder = std::env::temp_dir().join(format!("kiln-oracle-ignition-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let configs = configs();
    assert!(configs.len() > 3000, "only {} configs were generated", configs.len());
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let parts: Vec<_> = configs.chunks(configs.len().div_ceil(workers)).collect();
    let differences: Vec<String> = std::thread::scope(|scope| {
        let folder = &folder;
        let started: Vec<_> = parts
            .iter()
            .enumerate()
            .map(|(index, part)| scope.spawn(move || compare(part, &folder.join(format!("{index}.ign")))))
            .collect();
        started.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(differences.is_empty(), "{} of {} differ:\n{}", differences.len(), configs.len(), differences.join("\n"));
}

/// Ignition's own reader and the structs of the `ignition-config` crate must take the same configs.
#[test]
fn every_config_that_can_be_read_has_a_typed_form() {
    let mut read = 0;
    for text in configs() {
        let mut sources = SourceMap::default();
        let file = sources.add("x.ign", text.as_str());
        let Some(config) = Config::parse(file, sources.file(file)).0 else { continue };
        assert_eq!(config.typed().map(|_| ()).map_err(|error| format!("{error:?}")), Ok(()), "{text}");
        read += 1;
    }
    assert!(read > 2500, "only {read} configs were read");
}

/// What one side says: valid or not, and the kinds of warning both sides have.
#[derive(Debug, PartialEq, Eq)]
struct Verdict {
    valid: bool,
    warnings: BTreeSet<&'static str>,
}

fn compare(configs: &[String], file: &Path) -> Vec<String> {
    let mut differences = Vec::new();
    for config in configs {
        std::fs::write(file, config).unwrap();
        let (theirs, said) = judge(file);
        let (ours, found) = kiln(config);
        // A config that cannot be read at all has no comparable warnings.
        if theirs.valid != ours.valid || (theirs.valid && theirs.warnings != ours.warnings) {
            differences.push(format!("{config}\n  ignition-validate {theirs:?}: {said}\n  kiln {ours:?}: {found}"));
        }
    }
    differences
}

fn judge(file: &Path) -> (Verdict, String) {
    let output = Command::new("ignition-validate").arg(file).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    let kinds = [
        ("Unused key ", "unknown key"),
        ("setuid/setgid/sticky", "special bits"),
        ("no install section", "no install section"),
        ("insecure plaintext HTTP proxy", "plaintext proxy"),
    ];
    let warnings = kinds.into_iter().filter(|(words, _)| said.contains(words)).map(|(_, kind)| kind).collect();
    (Verdict { valid: output.status.success(), warnings }, said.trim().replace('\n', " ; "))
}

fn kiln(text: &str) -> (Verdict, String) {
    let mut sources = SourceMap::default();
    let file = sources.add("x.ign", text);
    let (config, mut findings) = Config::parse(file, sources.file(file));
    findings.extend(config.as_ref().map(validate).unwrap_or_default());
    let valid = config.is_some() && findings.iter().all(|finding| finding.severity < Severity::Error);
    let mut shown = String::new();
    let mut warnings = BTreeSet::new();
    for finding in &findings {
        write!(shown, "{} {} ; ", finding.code, finding.message).unwrap();
        let ours_alone = OURS_ALONE.iter().any(|(code, _)| *code == finding.code.0);
        match finding.code.0 {
            407..=409 => drop(warnings.insert("unknown key")),
            412 => drop(warnings.insert("special bits")),
            429 => drop(warnings.insert("no install section")),
            431 => drop(warnings.insert("plaintext proxy")),
            _ => assert!(ours_alone || finding.severity == Severity::Error, "unlisted warning: {finding:?}"),
        }
    }
    (Verdict { valid, warnings }, shown)
}

/// Every case in every spec the program knows.
fn configs() -> Vec<String> {
    let cases =
        include_str!("oracle_ignition/cases.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let cases = cases.map(|line| line.split_once(": ").unwrap());
    cases.flat_map(|(shape, body)| (0..=3).map(move |minor| config(shape, body, minor))).collect()
}

fn config(shape: &str, body: &str, minor: u8) -> String {
    let version = format!("3.{minor}.0");
    let body = expand(body);
    let root = |rest: String| format!(r#"{{"ignition":{{"version":"{version}"}},{rest}}}"#);
    let storage = |rest: String| root(format!(r#""storage":{{{rest}}}"#));
    let ignition = |rest: String| format!(r#"{{"ignition":{{"version":"{version}",{rest}}}}}"#);
    match shape {
        "raw" => body.replace("$V", &version),
        "root" => root(body),
        "storage" => storage(body),
        "files" | "directories" | "links" | "disks" | "raid" | "filesystems" | "luks" => {
            storage(format!(r#""{shape}":[{body}]"#))
        }
        "contents" => storage(format!(r#""files":[{{"path":"/a","contents":{body}}}]"#)),
        "append" => storage(format!(r#""files":[{{"path":"/a","append":[{body}]}}]"#)),
        "source" => storage(format!(r#""files":[{{"path":"/a","contents":{{"source":"{body}"}}}}]"#)),
        "partitions" => storage(format!(r#""disks":[{{"device":"/dev/sda","partitions":[{body}]}}]"#)),
        "units" => root(format!(r#""systemd":{{"units":[{body}]}}"#)),
        "users" | "groups" => root(format!(r#""passwd":{{"{shape}":[{body}]}}"#)),
        "kargs" => root(format!(r#""kernelArguments":{{{body}}}"#)),
        "ignition" => ignition(body),
        "merge" => ignition(format!(r#""config":{{"merge":[{body}]}}"#)),
        "ca" => ignition(format!(r#""security":{{"tls":{{"certificateAuthorities":[{body}]}}}}"#)),
        other => panic!("unknown shape {other}"),
    }
}

/// `$H64` is 64 hex digits, `$h64` the same in upper case, `$G64` 64 letters that are none, `$LINE2050` a line that long.
fn expand(body: &str) -> String {
    let mut body = body.to_owned();
    for length in [256, 128, 64] {
        let digits = "0123456789abcdef".repeat(length / 16);
        body = body.replace(&format!("$H{length}"), &digits);
        body = body.replace(&format!("$h{length}"), &digits.to_uppercase());
        body = body.replace(&format!("$G{length}"), &"g".repeat(length));
    }
    for length in [2047, 2048, 2050] {
        body = body.replace(&format!("$LINE{length}"), &format!("[Unit]\\nA={}", "x".repeat(length - 2)));
    }
    body
}
