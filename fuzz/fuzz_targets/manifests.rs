//! Any text as a manifest: it is read, judged and planned within bounds.
#![no_main]

use kiln_core::document::yaml::parse_yaml;
use kiln_core::plan::Planner;
use kiln_core::source::SourceMap;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let mut sources = SourceMap::default();
    let file = sources.add("fuzz.yaml", text);
    let (documents, _) = parse_yaml(file, sources.file(file));
    let (world, _) = kiln_api::build_world(documents, &mut sources);
    let planner = Planner::new(&world);
    planner.plans(None).for_each(drop);
    planner.findings();
});
