//! Any beginning of a backup file: read or refused, with parts that stay in their folder and a revision one can go on from.
#![no_main]

use kiln_apiserver::store::backup::{GAP, Manifest};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut input = bytes;
    let Ok(manifest) = Manifest::read(&mut input) else { return };
    assert!(manifest.revision.checked_add(GAP).is_some_and(|revision| i64::try_from(revision).is_ok()));
    assert!(manifest.parts.len() <= 3);
    assert!(manifest.parts.iter().all(|part| ["store.db", "ca.crt", "ca.key"].contains(&part.name.as_str())));
});
