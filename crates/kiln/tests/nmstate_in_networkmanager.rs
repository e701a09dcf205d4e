//! Every network fixture that renders, before the real NetworkManager: loaded whole, without a word.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a helper that fails is a failed test"
)]

#[path = "../../kiln-core/tests/support/fixtures.rs"]
mod fixtures;
#[path = "support/networkmanager.rs"]
mod networkmanager;

use std::fs;
use std::path::Path;

use kiln_core::diagnostic::Code;
use kiln_core::document::yaml::parse_yaml;
use kiln_core::keyfile::{ConnectionFile, Keyfile};
use kiln_core::nmstate::{bind_to_macs, capture, find_network, render_for_nics};
use kiln_core::source::SourceMap;

/// Kiln said that NetworkManager 1.42 will not like it; that is the one which judges here.
const NEEDS_NEWER: Code = Code(0252);

/// The profiles of a case: as the document names them, and bound to MAC addresses. None when it is refused.
fn profiles(case: &Path) -> Option<[Vec<ConnectionFile>; 2]> {
    let mut sources = SourceMap::default();
    let file = sources.add("input.yaml", fs::read_to_string(case.join("input.yaml")).unwrap());
    let (documents, _) = parse_yaml(file, sources.file(file));
    let network = find_network(&documents[0]).unwrap();
    let rendered = render_for_nics(network.document, &network.nics);
    let (bound, _) = bind_to_macs(&rendered.files, &network.nics);
    let newer = rendered.diagnostics.iter().any(|finding| finding.code == NEEDS_NEWER);
    (!rendered.is_refused() && !newer).then_some([rendered.files, bound])
}

#[test]
fn networkmanager_loads_every_rendered_profile_without_warning() {
    let test = "networkmanager_loads_every_rendered_profile_without_warning";
    let mut judged = 0;
    for case in fixtures::cases("nmstate") {
        let Some([plain, bound]) = profiles(&case) else { continue };
        let mut sets = vec![plain];
        if bound != sets[0] {
            sets.push(bound);
        }
        for files in sets.iter().filter(|files| !files.is_empty()) {
            let Some(loaded) = networkmanager::load(test, files) else { return };
            eprintln!("{}", case.display());
            loaded.assert_clean(files);
            judged += 1;
        }
    }
    assert!(judged >= 6, "only {judged} sets were rendered");
}

#[test]
fn a_profile_bound_to_a_mac_comes_up_on_that_nic_whatever_its_name() {
    let case =
        fixtures::cases("nmstate").into_iter().find(|case| case.ends_with("nics_of_an_nmstateconfig_are_bound_by_mac"));
    let [_, bound] = profiles(&case.unwrap()).unwrap();
    let nics = [("weird7", "52:54:00:00:00:03")];
    let machine = networkmanager::Machine { nics: &nics, files: &bound, ..networkmanager::Machine::default() };
    let script = "nmcli -g NAME,DEVICE connection show --active; nmcli -g vlan.parent connection show storage";
    let test = "a_profile_bound_to_a_mac_comes_up_on_that_nic_whatever_its_name";
    let Some(session) = machine.run(test, script) else { return };
    let lines: Vec<&str> = session.output.lines().collect();
    assert!(lines.contains(&"nic3:weird7"), "{}\n{}", session.output, session.log);
    assert_eq!(lines.last(), Some(&"00e59ca9-070a-5416-9b30-31f1cf24cf5e"));
}

#[test]
fn networkmanager_loads_every_captured_profile_without_warning() {
    for case in fixtures::cases("capture") {
        let entries = fs::read_dir(case.join("profiles")).unwrap().map(|entry| entry.unwrap().path());
        let read = |path: std::path::PathBuf| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            ConnectionFile::new(name, Keyfile::parse(&fs::read_to_string(path).unwrap()).unwrap())
        };
        let captured = capture(&entries.map(read).collect::<Vec<_>>());
        let test = "networkmanager_loads_every_captured_profile_without_warning";
        let Some(loaded) = networkmanager::load(test, &captured.keyfiles) else { return };
        eprintln!("{}", case.display());
        loaded.assert_clean(&captured.keyfiles);
    }
}
