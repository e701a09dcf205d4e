//! The model of nm-initrd-generator against the program itself.
//!
//! Each case is a kernel command line. Both get it, and the files both leave behind must be the same: names, bytes,
//! hostname, configuration. UUIDs are random in one and derived in the other, so they are replaced by numbers in
//! the order they appear; the same UUID gets the same number, in whichever file it is named.
//!
//! `KILN_FUZZ_CASES=5000` adds that many pseudo-random lines to the fixed ones.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a helper that fails is a failed test"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use kiln_core::boot::initrd::{Effect, generate};
use kiln_core::boot::kargs::Kargs;

#[path = "support/kernel_lines.rs"]
mod kernel_lines;

const PROGRAMS: [&str; 2] = ["/usr/lib/NetworkManager/nm-initrd-generator", "/usr/libexec/nm-initrd-generator"];

/// File name below the output directory and contents; none when the program crashed or gave up.
type Outcome = Option<BTreeMap<String, String>>;

#[test]
fn the_model_writes_what_nm_initrd_generator_writes() {
    let Some(program) = program("the_model_writes_what_nm_initrd_generator_writes") else { return };
    let extra = std::env::var("KILN_FUZZ_CASES").ok().and_then(|count| count.parse().ok()).unwrap_or(0);
    let lines = kernel_lines::all(extra);
    let directory = std::env::temp_dir().join(format!("kiln-oracle-initrd-{}", std::process::id()));
    let threads = 4;
    let differences: Vec<String> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|worker| {
                let (lines, directory) = (&lines, directory.join(worker.to_string()));
                scope.spawn(move || {
                    let mine = lines.iter().skip(worker).step_by(threads);
                    mine.filter_map(|line| difference(program, &directory, line)).collect::<Vec<_>>()
                })
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("a worker panicked")).collect()
    });
    let _ = std::fs::remove_dir_all(&directory);
    eprintln!("compared {} command lines, {} differ", lines.len(), differences.len());
    assert!(lines.len() >= 300, "only {} command lines", lines.len());
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
}

fn program(test: &str) -> Option<&'static Path> {
    let found = PROGRAMS.into_iter().map(Path::new).find(|program| program.exists());
    if found.is_none() {
        let reason = "nm-initrd-generator is not installed (apt-get install network-manager)";
        assert!(std::env::var("KILN_REQUIRE_ORACLES").as_deref() != Ok("1"), "{test}: {reason}");
        eprintln!("skipped: {test}: {reason}");
    }
    found
}

fn difference(program: &Path, directory: &Path, line: &str) -> Option<String> {
    let expected = run(program, directory, line);
    let actual = model(line);
    if expected == actual {
        return None;
    }
    let show = |outcome: &Outcome| match outcome {
        None => "nothing, it failed".to_owned(),
        Some(files) => files.iter().map(|(name, text)| format!("--- {name}\n{text}")).collect::<String>(),
    };
    Some(format!("##### {line}\n== program\n{}\n== model\n{}", show(&expected), show(&actual)))
}

fn run(program: &Path, directory: &Path, line: &str) -> Outcome {
    let _ = std::fs::remove_dir_all(directory);
    let absent = directory.join("absent");
    let output = Command::new(program)
        .args([
            "-c".as_ref(),
            directory.join("system-connections").as_os_str(),
            "-i".as_ref(),
            directory.join("initrd").as_os_str(),
            "-r".as_ref(),
            directory.join("conf.d").as_os_str(),
            "-d".as_ref(),
            absent.as_os_str(),
            "-p".as_ref(),
            absent.as_os_str(),
            "--".as_ref(),
        ])
        .args(Kargs::parse(line).words())
        .output()
        .expect("nm-initrd-generator starts");
    output.status.success().then_some(())?;
    let mut files = BTreeMap::new();
    for part in ["system-connections", "initrd", "conf.d"] {
        for path in list(&directory.join(part)) {
            use std::os::unix::fs::PermissionsExt as _;
            let name = format!("{part}/{}", path.file_name().unwrap_or_default().to_string_lossy());
            let mode = path.metadata().expect("a written file has metadata").permissions().mode() & 0o777;
            assert!(part != "system-connections" || mode == 0o600, "{name} has mode {mode:o}");
            files.insert(name, std::fs::read_to_string(&path).expect("a written file is readable text"));
        }
    }
    Some(number_uuids(files))
}

fn list(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    entries.map(|entry| entry.expect("a readable directory").path()).collect()
}

fn model(line: &str) -> Outcome {
    let generated = generate(&Kargs::parse(line));
    if generated.dropped.iter().any(|dropped| dropped.effect == Effect::Fatal) {
        return None;
    }
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    for file in generated.files {
        assert_eq!(file.mode, 0o600);
        files.insert(format!("system-connections/{}", file.name), file.keyfile.render());
    }
    for file in generated.run_files {
        files.insert(file.path.replace("/run/NetworkManager/", ""), file.text);
    }
    if let Some(hostname) = generated.hostname {
        files.insert("initrd/hostname".to_owned(), format!("{hostname}\n"));
    }
    Some(number_uuids(files))
}

/// Replaces each UUID by its number in order of first appearance, over all files in the order of their names.
fn number_uuids(files: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut known: Vec<String> = Vec::new();
    let number = |line: &str, known: &mut Vec<String>| {
        let Some((key @ ("uuid" | "master"), uuid)) = line.split_once('=') else { return line.to_owned() };
        let index = known.iter().position(|candidate| candidate == uuid).unwrap_or_else(|| {
            known.push(uuid.to_owned());
            known.len() - 1
        });
        format!("{key}=#{index}")
    };
    files
        .into_iter()
        .map(|(name, text)| {
            (name, text.split('\n').map(|line| number(line, &mut known)).collect::<Vec<_>>().join("\n"))
        })
        .collect()
}
