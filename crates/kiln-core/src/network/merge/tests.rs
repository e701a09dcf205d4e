//! What holds for every merge; single cases are in `fixtures/network`.

use proptest::prelude::*;

use super::*;
use crate::keyfile::Keyfile;
use crate::network::diff::diff;
use crate::network::profile::Reference;

/// Small pools, so that profiles of both sides meet often.
fn profile() -> impl Strategy<Value = String> {
    let uuid = prop::option::of(1u8..6)
        .prop_map(|digit| digit.map(|digit| format!("uuid={digit}0000000-0000-4000-8000-000000000000\n")));
    let interface = prop::option::of(prop::sample::select(vec!["eth0", "eth1", "bond0"]));
    let controller = prop::option::of(prop::sample::select(vec![
        "bond0",
        "10000000-0000-4000-8000-000000000000",
        "20000000-0000-4000-8000-000000000000",
    ]));
    let extra = prop::sample::select(vec![
        "",
        "autoconnect-priority=999\n",
        "autoconnect=false\n",
        "[ipv4]\nmethod=auto\n",
        "[ipv4]\nmethod=manual\naddress1=192.0.2.1/24\nroute1=10.0.0.0/8,192.0.2.9\n",
        "[ipv4]\nroute1=10.0.0.0/8,192.0.2.7\nroute3=10.1.0.0/16,192.0.2.7\n",
        "[ipv4]\nmethod=disabled\n",
        "[ethernet]\nmac-address=52:54:00:00:00:01\n",
        "[vlan]\nid=5\nparent=bond0\n",
        "[vlan]\nid=6\nparent=30000000-0000-4000-8000-000000000000\n",
    ]);
    let kind = prop::sample::select(vec!["ethernet", "802-3-ethernet", "bond", "bridge", "vlan", ""]);
    (kind, uuid, interface, controller, extra).prop_map(|(kind, uuid, interface, controller, extra)| {
        let kind = if kind.is_empty() { String::new() } else { format!("type={kind}\n") };
        let interface = interface.map_or(String::new(), |name| format!("interface-name={name}\n"));
        let controller = controller.map_or(String::new(), |name| format!("master={name}\nslave-type=bond\n"));
        format!("[connection]\n{kind}{}{interface}{controller}{extra}", uuid.unwrap_or_default())
    })
}

fn set() -> impl Strategy<Value = Vec<ConnectionFile>> {
    let mode = prop::sample::select(vec![0o600, 0o600, 0o600, 0o644]);
    prop::collection::btree_map("[a-c]{1,2}", (profile(), mode), 0..6).prop_map(|files| {
        let file = |(name, (text, mode)): (String, (String, u32))| ConnectionFile {
            name: format!("{name}.nmconnection"),
            mode,
            keyfile: Keyfile::parse(&text).unwrap(),
        };
        files.into_iter().map(file).collect()
    })
}

proptest! {
    #[test]
    fn no_reference_by_uuid_leads_nowhere_and_every_file_is_private(base in set(), overlay in set()) {
        let merged = merge(&base, &overlay);
        let profiles: Vec<_> = merged.files.iter().map(Profile::read).collect();
        for profile in &profiles {
            for reference in [&profile.controller, &profile.parent].into_iter().flatten() {
                let found = profiles.iter().any(|other| other.is_meant_by(reference));
                prop_assert!(found || matches!(reference, Reference::Name(_)), "{} of {}", reference, profile.file);
            }
        }
        prop_assert!(merged.files.iter().all(|file| file.mode == 0o600));
        prop_assert!(merged.files.windows(2).all(|pair| pair[0].name < pair[1].name));
    }

    #[test]
    fn the_order_of_files_does_not_matter(base in set(), overlay in set()) {
        let reversed = |files: &[ConnectionFile]| files.iter().rev().cloned().collect::<Vec<_>>();
        prop_assert_eq!(merge(&base, &overlay), merge(&reversed(&base), &reversed(&overlay)));
    }

    #[test]
    fn a_result_merged_with_nothing_stays_as_it_is(base in set(), overlay in set()) {
        let once = merge(&base, &overlay).files;
        prop_assert_eq!(&merge(&once, &[]).files, &once);
    }
}

#[test]
fn a_set_merged_with_itself_keeps_its_meaning() {
    let text = "[connection]\nid=a\ntype=ethernet\ninterface-name=eth0\n[ipv4]\nmethod=manual\naddress1=192.0.2.1/24,192.0.2.254\nroute1=10.0.0.0/8,192.0.2.9\nrouting-rule1=priority 5 from 0.0.0.0/0 table 5\n";
    let files = [ConnectionFile::new("a.nmconnection", Keyfile::parse(text).unwrap())];
    let merged = merge(&files, &files);
    assert_eq!(diff(&files, &merged.files), []);
    assert_eq!(merged.decisions.len(), 1, "{:?}", merged.decisions);
}

#[test]
fn the_highest_priority_is_lowered_where_none_is_above_it() {
    let file = |name: &str, text: &str| ConnectionFile::new(name, Keyfile::parse(text).unwrap());
    let base = [file("any.nmconnection", "[connection]\nid=any\ntype=ethernet\nautoconnect-priority=999\n")];
    let overlay = [file("eth0.nmconnection", "[connection]\nid=eth0\ntype=ethernet\ninterface-name=eth0\n")];
    let merged = merge(&base, &overlay);
    let told: Vec<_> = merged.decisions.iter().map(ToString::to_string).collect();
    let expected = [
        "eth0.nmconnection and any.nmconnection apply to one NIC; eth0.nmconnection wins because the autoconnect-priority of any.nmconnection was changed from 999 to 998",
        "eth0.nmconnection and any.nmconnection apply to one NIC; eth0.nmconnection wins because the autoconnect-priority of eth0.nmconnection was changed from 0 to 999",
    ];
    assert_eq!(told, expected);
}
