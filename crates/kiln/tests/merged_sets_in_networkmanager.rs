//! The results of all merge fixtures before the real NetworkManager: every file is loaded, and nothing is said against any.

#![allow(clippy::unwrap_used, reason = "a test fails loudly")]

#[path = "../../kiln-core/tests/support/keyfile_sets.rs"]
mod keyfile_sets;
#[path = "support/networkmanager.rs"]
mod networkmanager;

use std::fs;
use std::path::Path;

use keyfile_sets::read_set;
use kiln_core::network::merge::merge;
use kiln_core::network::profile::{Profile, Reference};

#[test]
fn merged_sets_load_without_warning() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/network");
    let mut cases: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    assert!(!cases.is_empty());
    for case in cases {
        let text = fs::read_to_string(case.join("input.txt")).unwrap();
        let files = merge(&read_set(&text, "base"), &read_set(&text, "overlay")).files;
        let Some(loaded) = networkmanager::load("merged_sets_load_without_warning", &files) else { return };
        loaded.assert_clean(&files);
        for profile in files.iter().map(Profile::read) {
            let controller = profile.controller.map_or(String::new(), |reference| match reference {
                Reference::Uuid(uuid) => uuid.to_string(),
                Reference::Name(name) => name,
            });
            assert_eq!(loaded.value(&profile.file, "connection.master"), controller, "{}", case.display());
            assert_eq!(loaded.value(&profile.file, "connection.autoconnect-priority"), profile.priority.to_string());
        }
    }
}
