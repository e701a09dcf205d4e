//! What the compiler does not check: headers, sizes, orphans, codes, words that do not belong here.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use kiln_core::diagnostic::registry;

use crate::{files, licences};

const LONGEST_FILE: usize = 800;

/// Runs every check and fails with all complaints at once.
pub fn run() -> Result<()> {
    let mut complaints = Vec::new();
    let sources: BTreeMap<PathBuf, String> = files(".", &[".rs"])?
        .into_iter()
        .map(|path| fs::read_to_string(&path).map(|text| (path, text)))
        .collect::<Result<_, _>>()?;
    for (path, text) in &sources {
        source_file(path, text, &sources, &mut complaints);
    }
    fixtures(&sources, &mut complaints)?;
    diagnostics(&sources, &mut complaints)?;
    ensure!(complaints.is_empty(), "not tidy:\n  {}", complaints.join("\n  "));
    licences::check()?;
    println!("tidy: {} source files, {} diagnostics", sources.len(), registry::all().count());
    Ok(())
}

fn source_file(path: &Path, text: &str, sources: &BTreeMap<PathBuf, String>, complaints: &mut Vec<String>) {
    let name = path.display();
    if !text.starts_with("//!") && !text.starts_with("#!") {
        complaints.push(format!("{name}: begins without a `//!` header"));
    }
    let lines = text.lines().count();
    if lines > LONGEST_FILE {
        complaints.push(format!("{name}: {lines} lines, more than {LONGEST_FILE}"));
    }
    // Put together here, so that this file does not complain about itself.
    for unfinished in [concat!("todo", "!("), concat!("unimplemented", "!("), concat!("#[", "ignore")] {
        if text.contains(unfinished) {
            complaints.push(format!("{name}: contains `{unfinished}`"));
        }
    }
    if !is_root(path) && !is_declared(path, sources) {
        complaints.push(format!("{name}: no module declares it"));
    }
}

/// Files cargo finds by itself.
fn is_root(path: &Path) -> bool {
    let parent = path.parent().and_then(Path::file_name).unwrap_or_default();
    let stem = path.file_stem().unwrap_or_default();
    ["lib", "main", "build"].iter().any(|root| stem == *root)
        || ["tests", "benches", "examples", "fuzz_targets"].iter().any(|root| parent == *root)
}

fn is_declared(path: &Path, sources: &BTreeMap<PathBuf, String>) -> bool {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let folder = path.parent().unwrap_or(Path::new(""));
    let (name, declaring_folder) = if stem == "mod" {
        (folder.file_name().unwrap_or_default().to_string_lossy(), folder.parent().unwrap_or(folder))
    } else {
        (stem, folder)
    };
    let declaration = format!("mod {name};");
    // Test programs name the support files they share by path.
    let by_path = format!("support/{name}.rs\"");
    if folder.ends_with("support") && sources.values().any(|text| text.contains(&by_path)) {
        return true;
    }
    let by_parent = [folder.with_extension("rs"), folder.join("lib.rs"), folder.join("main.rs"), folder.join("mod.rs")];
    let siblings = sources.keys().filter(|other| other.parent() == Some(declaring_folder));
    by_parent.iter().chain(siblings).any(|parent| sources.get(parent).is_some_and(|text| text.contains(&declaration)))
}

/// Every area below `fixtures/` must be named by a test.
fn fixtures(sources: &BTreeMap<PathBuf, String>, complaints: &mut Vec<String>) -> Result<()> {
    let areas: BTreeSet<String> = files("fixtures", &[""])?
        .iter()
        .filter_map(|path| path.components().nth(1))
        .map(|area| area.as_os_str().to_string_lossy().into_owned())
        .collect();
    for area in areas {
        let names = [format!("fixtures/{area}"), format!("check_cases(\"{area}\""), format!("cases(\"{area}\"")];
        if !sources.values().any(|text| names.iter().any(|name| text.contains(name))) {
            complaints.push(format!("fixtures/{area}: no test reads it"));
        }
    }
    Ok(())
}

/// Codes in use are registered; registered codes are in use, told in docs and shown by a test or fixture.
fn diagnostics(sources: &BTreeMap<PathBuf, String>, complaints: &mut Vec<String>) -> Result<()> {
    let mut used = BTreeSet::new();
    for (path, text) in sources.iter().filter(|(path, _)| path.starts_with("crates")) {
        for number in text.split("Code(").skip(1).filter_map(leading_number) {
            used.insert(number);
            if registry::explanation(kiln_core::diagnostic::Code(number)).is_none() {
                complaints.push(format!("{}: KLN{number:04} is not registered", path.display()));
            }
        }
    }
    let shown = shown_codes(sources)?;
    let mut known = BTreeSet::new();
    let mut previous = None;
    for explanation in registry::all() {
        let code = explanation.code.to_string();
        if previous.is_some_and(|previous| previous >= explanation.code) {
            complaints.push(format!("{code}: registered out of order or twice"));
        }
        previous = Some(explanation.code);
        known.insert(code.clone());
        if !used.contains(&explanation.code.0) {
            complaints.push(format!("{code}: registered, but nothing reports it"));
        }
        if !shown.contains(&code) {
            complaints.push(format!("{code}: no fixture or test shows it"));
        }
        if explanation.story.trim().len() < 80 {
            complaints.push(format!("docs/diagnostics/{code}.md: tells nothing"));
        }
    }
    for path in files("docs/diagnostics", &[".md"])? {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if stem != "README" && !known.contains(&stem) {
            complaints.push(format!("{}: tells of a code that is not registered", path.display()));
        }
    }
    Ok(())
}

fn leading_number(text: &str) -> Option<u16> {
    let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// Codes named in expected outputs and in tests, as `KLN0101` or `Code(101)`.
fn shown_codes(sources: &BTreeMap<PathBuf, String>) -> Result<BTreeSet<String>> {
    let mut shown = BTreeSet::new();
    let mut collect = |text: &str| {
        shown.extend(text.match_indices("KLN").filter_map(|(at, _)| text.get(at..at + 7)).map(str::to_owned));
        shown.extend(text.split("Code(").skip(1).filter_map(leading_number).map(|number| format!("KLN{number:04}")));
    };
    for path in files("fixtures", &[".txt", ".json"])?.iter().chain(&files("examples", &[".txt"])?) {
        collect(&fs::read_to_string(path)?);
    }
    for (path, text) in sources {
        collect(tests_of(path, text));
    }
    Ok(shown)
}

/// The part of a source file that is tests.
fn tests_of<'t>(path: &Path, text: &'t str) -> &'t str {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    if stem.ends_with("tests") || path.components().any(|part| part.as_os_str() == "tests") {
        return text;
    }
    text.split_once("#[cfg(test)]").map_or("", |(_, tests)| tests)
}
