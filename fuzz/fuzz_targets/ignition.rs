//! Any text as an Ignition config: it is read, validated, merged with itself and converted within bounds.
#![no_main]

use kiln_core::ignition::convert::convert;
use kiln_core::ignition::merge::merge;
use kiln_core::ignition::validate::validate;
use kiln_core::ignition::{Config, SpecVersion};
use kiln_core::source::SourceMap;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let mut sources = SourceMap::default();
    let file = sources.add("fuzz.ign", text);
    let (Some(config), _) = Config::parse(file, sources.file(file)) else { return };
    validate(&config);
    assert!(config.version.is_v2() || config.typed().is_ok(), "Ignition's reader and the typed structs disagree");
    config.files();
    merge(&config, &config);
    for version in SpecVersion::all() {
        let _ = convert(&config, version);
    }
});
