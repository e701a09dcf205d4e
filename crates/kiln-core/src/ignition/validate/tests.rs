//! Exact findings of single rules. Verdicts over the whole rule book are compared in `tests/oracle_ignition.rs`.

use super::*;
use crate::diagnostic::Severity;
use crate::source::SourceMap;

fn findings(version: &str, rest: &str) -> Vec<String> {
    let mut sources = SourceMap::default();
    let file = sources.add("x.ign", format!("{{\"ignition\":{{\"version\":\"{version}\"}},\n{rest}}}"));
    let (config, mut findings) = Config::parse(file, sources.file(file));
    findings.extend(validate(&config.expect("readable")));
    let shown = findings.iter().map(|finding| {
        let at = sources.line_column(finding.at.expect("a place"));
        assert!(finding.cause.is_some() && finding.help.is_some(), "{finding:?}");
        let severity = if finding.severity == Severity::Error { "error" } else { "warning" };
        format!("{}:{} {} {severity}: {}", at.line, at.column, finding.code, finding.message)
    });
    shown.collect()
}

#[test]
fn each_finding_names_the_thing_and_its_place() {
    let mut differences = Vec::new();
    for (version, rest, expected) in [
        (
            "3.2.0",
            r#""storage":{"files":[{"path":"etc/a"}]}"#,
            "2:29 KLN0410 error: `path` of the file is `etc/a`, which is not absolute",
        ),
        (
            "3.2.0",
            r#""storage":{"files":[{"path":"/a/../b"}]}"#,
            "2:29 KLN0410 error: `path` of the file is `/a/../b`, which is not in its simplest form",
        ),
        ("3.2.0", r#""storage":{"files":[{}]}"#, "2:21 KLN0410 error: `path` of the file is missing or empty"),
        (
            "3.2.0",
            r#""storage":{"files":[{"path":"/a","mode":6440}]}"#,
            "2:41 KLN0411 error: mode 6440 of the file is outside 0 to 4095 (octal 7777)",
        ),
        (
            "3.5.0",
            r#""storage":{"files":[{"path":"/a","mode":2541}]}"#,
            "2:41 KLN0412 warning: mode 2541 (octal 4755) of the file has set-uid, set-gid or sticky bits",
        ),
        (
            "3.2.0",
            r#""storage":{"files":[{"path":"/a","user":{"id":0,"name":"root"}}]}"#,
            "2:41 KLN0413 error: the user of the file is given by id and by name",
        ),
        (
            "3.2.0",
            r#""storage":{"files":[{"path":"/a","overwrite":true}]}"#,
            "2:46 KLN0414 error: `/a` is to be overwritten, but with nothing",
        ),
        (
            "3.2.0",
            r#""storage":{"files":[{"path":"/a","contents":{"source":"data:,x","verification":{"hash":"sha512-00"}}}]}"#,
            "2:88 KLN0415 error: the hash `sha512-00` has 2 characters behind `sha512-` instead of 128",
        ),
        (
            "3.0.0",
            r#""storage":{"files":[{"path":"/a","contents":{"source":"gs://b/k"}}]}"#,
            "2:55 KLN0416 error: spec 3.0.0 cannot fetch from `gs:` URLs",
        ),
        (
            "3.4.0",
            r#""storage":{"files":[{"path":"/a","contents":{"source":"arn:aws:s3:::bucket"}}]}"#,
            "2:55 KLN0416 error: `arn:aws:s3:::bucket` is not the ARN of an S3 object",
        ),
        (
            "3.2.0",
            r#""storage":{"files":[{"path":"/a","contents":{"source":"data:,a b"}}]}"#,
            "2:55 KLN0417 error: the `data:` URL of the contents of the file does not decode: the data contains ' ', which must be written as a percent escape",
        ),
        (
            "3.2.0",
            r#""storage":{"files":[{"path":"/a"}],"links":[{"path":"/a","target":"/b"}]}"#,
            "2:45 KLN0418 error: `/a` is defined as a file and as a link",
        ),
        (
            "3.2.0",
            r#""storage":{"files":[{"path":"/a/b"}],"links":[{"path":"/a","target":"/c"}]}"#,
            "2:29 KLN0419 error: the file `/a/b` is below the link `/a`",
        ),
        ("3.2.0", r#""storage":{"links":[{"path":"/a"}]}"#, "2:21 KLN0420 warning: the link `/a` has no target"),
        ("3.3.0", r#""storage":{"links":[{"path":"/a"}]}"#, "2:21 KLN0420 error: the link `/a` has no target"),
        (
            "3.2.0",
            r#""storage":{"files":[{"path":"/a","contents":{"source":"data:,x","compression":"xz"}}]}"#,
            "2:79 KLN0421 error: `xz` is not a compression Ignition knows",
        ),
        (
            "3.2.0",
            r#""storage":{"files":[{"path":"/a","contents":{"source":"data:,x","compression":"gzip"}}]}"#,
            "2:55 KLN0434 warning: the contents of the file cannot be unpacked: it is not valid gzip: unexpected end of file",
        ),
        (
            "3.2.0",
            r#""storage":{"files":[{"path":"/a","contents":{"source":"https://a","httpHeaders":[{"name":"A","value":""}]}}]}"#,
            "2:102 KLN0422 error: an HTTP header `A` has an empty value",
        ),
        (
            "3.2.0",
            r#""storage":{"filesystems":[{"device":"/dev/sda","format":"none"}]}"#,
            "2:57 KLN0423 error: `none` is not a file system Ignition can make",
        ),
        (
            "3.2.0",
            r#""storage":{"disks":[{"device":"/dev/sda","partitions":[{"number":1,"startMiB":1,"sizeMiB":9},{"number":2,"startMiB":9,"sizeMiB":9}]}]}"#,
            "2:117 KLN0424 error: two partitions overlap: one begins at 9, another ends at 9",
        ),
        (
            "3.2.0",
            r#""storage":{"raid":[{"name":"a","level":"raid7","devices":["/dev/sda"]}]}"#,
            "2:40 KLN0425 error: `raid7` is not a RAID level Ignition knows",
        ),
        ("3.2.0", r#""storage":{"luks":[{"name":"a"}]}"#, "2:20 KLN0426 error: the LUKS volume `a` has no device"),
        (
            "3.5.0",
            r#""storage":{"luks":[{"name":"a","device":"/dev/sda","cex":{"enabled":true},"clevis":{"tpm2":true}}]}"#,
            "2:58 KLN0426 error: the LUKS volume `a` uses cex beside a key file or clevis",
        ),
        (
            "3.2.0",
            r#""systemd":{"units":[{"name":"a"}]}"#,
            "2:29 KLN0427 error: the unit name `a` does not end with a unit type",
        ),
        (
            "3.2.0",
            r#""systemd":{"units":[{"name":"a.service","contents":"[Unit]\nA=b\nC"}]}"#,
            "2:52 KLN0428 error: the unit `a.service` is not a unit file: line 3: the line `C` has no `=`",
        ),
        (
            "3.2.0",
            r#""systemd":{"units":[{"name":"a.service","enabled":true,"contents":"[Unit]\nA=b"}]}"#,
            "2:67 KLN0429 warning: the unit `a.service` is enabled but has no `[Install]` section",
        ),
        (
            "3.3.0",
            r#""kernelArguments":{"shouldExist":["a"],"shouldNotExist":["a"]}"#,
            "2:58 KLN0432 error: the kernel argument `a` should exist and should not exist",
        ),
        (
            "3.4.0",
            r#""systemd":{"units":[{"name":"a.service","contents":"[Unit]"}]},"storage":{"files":[{"path":"/etc/systemd/system/a.service"}]}"#,
            "2:92 KLN0435 error: the file `/etc/systemd/system/a.service` is where Ignition writes a unit of this config",
        ),
        (
            "3.2.0",
            r#""storage":{"disks":[{"device":"/dev/sda","wipeTable":true}],"filesystems":[{"device":"/dev/sda","format":"xfs"}]}"#,
            "2:86 KLN0436 warning: `wipeTable` of the disk `/dev/sda` also wipes the file system on it",
        ),
        (
            "3.2.0",
            r#""storage":{"links":[{"path":"/a","target":"/b","hard":true,"user":{"id":1}}]}"#,
            "2:67 KLN0437 warning: the owner of the hard link `/a` is ignored",
        ),
        (
            "2.2.0",
            r#""storage":{"files":[{"path":"/a","filesystem":"data"}]}"#,
            "2:47 KLN0438 error: the file is on the file system `data`, which the config does not define",
        ),
        (
            "2.2.0",
            r#""storage":{"files":[{"path":"/a","filesystem":"root","append":true,"overwrite":true}]}"#,
            "2:63 KLN0414 error: `/a` is to be overwritten and appended to",
        ),
        ("3.2.0", r#""passwd":{"users":[{}]}"#, "2:20 KLN0439 warning: a user has no name"),
        (
            "3.2.0",
            r#""storage":{"filesystems":[{"device":"/dev/a","format":"xfs","path":"/v"},{"device":"/dev/b","format":"xfs","path":"/v"}]}"#,
            "2:115 KLN0440 warning: two file systems are mounted at `/v`",
        ),
    ] {
        let found = findings(version, rest).join("\n");
        if found != expected {
            differences.push(format!("{rest}\n  found:    {found}\n  expected: {expected}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn findings_of_the_ignition_section_name_the_thing_and_its_place() {
    for (inner, expected) in [
        (r#""config":{"merge":[{}]}"#, "1:51 KLN0433 error: the config to merge has no source"),
        (
            r#""proxy":{"httpsProxy":"http://a"}"#,
            "1:54 KLN0431 warning: HTTPS resources are fetched through a plaintext proxy",
        ),
        (
            r#""proxy":{"httpProxy":"a:80"}"#,
            "1:53 KLN0430 error: `httpProxy` is `a:80`, which is not an http or https URL",
        ),
    ] {
        let mut sources = SourceMap::default();
        let file = sources.add("x.ign", format!(r#"{{"ignition":{{"version":"3.2.0",{inner}}}}}"#));
        let config = Config::parse(file, sources.file(file)).0.expect("readable");
        let found: Vec<_> = validate(&config)
            .iter()
            .map(|finding| {
                let at = sources.line_column(finding.at.expect("a place"));
                let severity = if finding.severity == Severity::Error { "error" } else { "warning" };
                format!("{}:{} {} {severity}: {}", at.line, at.column, finding.code, finding.message)
            })
            .collect();
        assert_eq!(found, [expected]);
    }
}

#[test]
fn a_machine_config_of_spec_two_passes() {
    let found = findings(
        "2.2.0",
        r#""storage":{"files":[{"filesystem":"root","path":"/etc/x","mode":420,"contents":{"source":"data:,x"}}]},
        "systemd":{"units":[{"name":"a.service","enabled":true,"contents":"[Install]\nWantedBy=x\n"}]},
        "passwd":{"users":[{"name":"core","sshAuthorizedKeys":["ssh-ed25519 AAAA"]}]}"#,
    );
    assert_eq!(found, [""; 0]);
}

#[test]
fn paths_are_cleaned_as_go_cleans_them() {
    for (path, expected) in [
        ("/", "/"),
        ("//a//b/", "/a/b"),
        ("/a/./../b", "/b"),
        ("/../a", "/a"),
        ("a/..", "."),
        ("../a", "../a"),
        ("", "."),
    ] {
        assert_eq!(clean_path(path), expected);
    }
}
