//! Plans by hand, and what holds of every plan.

use proptest::prelude::*;

use super::*;
use crate::machine::wish::UnitWish;
use crate::machine::{FileRule, UnitRule};

fn file(text: &str) -> FileWish {
    FileWish { bytes: text.as_bytes().to_vec(), mode: 0o644, user: None, group: None }
}

fn machine(files: &[(&str, &str)]) -> Machine {
    let files = files.iter().map(|(path, text)| ((*path).to_owned(), file(text))).collect();
    Machine { files, ..Machine::default() }
}

fn with_unit(name: &str, unit: UnitWish) -> Machine {
    Machine { units: [(name.to_owned(), unit)].into(), ..Machine::default() }
}

fn with_state(name: &str, state: &str) -> Found {
    Found { units: [(name.to_owned(), state.to_owned())].into(), ..Found::default() }
}

/// A machine that has what a config wants.
fn having(machine: &Machine) -> Found {
    let files = parts(machine).into_iter().map(|(path, part)| (path, part.wish)).collect();
    let state = |unit: &UnitWish| match unit.enabled {
        _ if unit.masked => "masked",
        Some(true) => "enabled",
        _ => "disabled",
    };
    let units = machine.units.iter().map(|(name, unit)| (name.clone(), state(unit).to_owned())).collect();
    let kernel_arguments = machine.kernel_arguments.clone();
    Found { files, units, kernel_arguments, os_image: machine.system.os_image_url.clone() }
}

/// Carries a change out.
fn simulate(found: &Found, change: &MachineChange) -> Found {
    let mut found = found.clone();
    found.files.extend(change.writes.iter().cloned());
    for step in change.units_before.iter().chain(&change.units) {
        let state = match step {
            UnitStep::Enable(_) => "enabled",
            UnitStep::Disable(_) | UnitStep::Unmask(_) | UnitStep::Preset(_) => "disabled",
            UnitStep::Mask(_) => "masked",
        };
        found.units.insert(step.unit().clone(), state.to_owned());
    }
    let KernelArguments { remove, append } = change.kernel_arguments.clone().unwrap_or_default();
    found.kernel_arguments.retain(|argument| !remove.contains(argument));
    found.kernel_arguments.extend(append);
    if change.os_image.is_some() {
        found.os_image.clone_from(&change.os_image);
    }
    found
}

fn plan(before: Option<&Machine>, wanted: &Machine, found: &Found) -> MachineChange {
    plan_machine(before, wanted, found, &Rules::default()).unwrap()
}

#[test]
fn files_are_written_where_the_machine_differs_and_only_what_the_config_brought_is_removed() {
    let before = machine(&[("/etc/chrony.conf", "a"), ("/etc/old", "o"), ("/etc/old/deep", "o"), ("/etc/same", "s")]);
    let wanted = machine(&[("/etc/chrony.conf", "b"), ("/etc/new", "n"), ("/etc/same", "s")]);
    let mut found = having(&before);
    found.files.insert("/etc/mine".into(), Some(file("nobody's business")));
    let change = plan(Some(&before), &wanted, &found);
    assert_eq!(change.lines, ["/etc/chrony.conf changes", "+ /etc/new", "- /etc/old", "- /etc/old/deep"]);
    let written: Vec<(&str, bool)> = change.writes.iter().map(|(path, wish)| (path.as_str(), wish.is_some())).collect();
    assert_eq!(
        written,
        [("/etc/old/deep", false), ("/etc/old", false), ("/etc/chrony.conf", true), ("/etc/new", true)]
    );
    assert_eq!((change.needs, &change.actions[..]), (Needs::Reboot, &[Action::Drain, Action::Reboot][..]));
    assert!(!change.daemon_reload);
    // Nothing was applied before: nothing is removed.
    assert_eq!(plan(None, &wanted, &found).lines, ["/etc/chrony.conf changes", "+ /etc/new"]);
    assert!(plan(Some(&before), &before, &having(&before)).is_empty());
    let found = having(&wanted);
    assert!(plan(Some(&before), &wanted, &found).is_empty(), "what is gone already is not removed");
}

#[test]
fn modes_and_owners_count_when_they_are_said() {
    let found = |mode: u32, user: &str| {
        let there = FileWish { mode, user: Some(user.into()), group: Some("0".into()), ..file("a") };
        Found { files: [("/etc/a".to_owned(), Some(there))].into(), ..Found::default() }
    };
    let wanted = |user: Option<&str>| {
        let wish = FileWish { user: user.map(str::to_owned), ..file("a") };
        Machine { files: [("/etc/a".to_owned(), wish)].into(), ..Machine::default() }
    };
    for (user, mode, has, differs) in [
        (None, 0o644, "0", false),
        (None, 0o600, "0", true),
        (None, 0o644, "1000", false),
        (Some("root"), 0o644, "0", false),
        (Some("root"), 0o644, "1000", true),
        (Some("1000"), 0o644, "1000", false),
        (Some("0"), 0o644, "1000", true),
        // Only the machine knows who that is.
        (Some("core"), 0o644, "1000", false),
    ] {
        assert_eq!(!plan(None, &wanted(user), &found(mode, has)).is_empty(), differs, "{user:?} {mode:o} {has}");
    }
    assert_eq!(plan(Some(&wanted(None)), &wanted(Some("core")), &found(0o644, "0")).lines, ["/etc/a changes"]);
    assert!(plan(Some(&wanted(Some("core"))), &wanted(Some("core")), &found(0o644, "1000")).is_empty());
}

#[test]
fn what_is_left_to_others_is_not_removed() {
    let before = machine(&[("/etc/fetched", "a")]);
    let wanted = Machine { left: ["/etc/fetched".to_owned()].into(), ..Machine::default() };
    assert!(plan(Some(&before), &wanted, &having(&before)).is_empty());
}

#[test]
fn what_systemd_answers_decides_what_it_is_told() {
    let enabled = |enabled: bool| UnitWish { enabled: Some(enabled), ..UnitWish::default() };
    let masked = UnitWish { masked: true, ..UnitWish::default() };
    let drop_in = UnitWish { drop_ins: [("a.conf".to_owned(), "[Unit]\n".to_owned())].into(), ..UnitWish::default() };
    let lines = |before: Option<&UnitWish>, wanted: Option<&UnitWish>, state: &str| {
        let of = |unit: &UnitWish| with_unit("a.service", unit.clone());
        let wanted = wanted.map(of).unwrap_or_default();
        let mut found = with_state("a.service", state);
        found.files = having(&wanted).files;
        plan(before.map(of).as_ref(), &wanted, &found).lines.join(", ")
    };
    let on = "unit a.service is enabled";
    for (state, to_enable, to_disable, to_mask) in [
        ("enabled", "", "unit a.service is disabled", "unit a.service is masked"),
        ("enabled-runtime", on, "", "unit a.service is masked"),
        ("disabled", on, "", "unit a.service is masked"),
        ("linked", on, "", "unit a.service is masked"),
        ("static", "", "", "unit a.service is masked"),
        ("indirect", "", "", "unit a.service is masked"),
        ("alias", "", "", "unit a.service is masked"),
        ("generated", "", "", "unit a.service is masked"),
        ("transient", "", "", "unit a.service is masked"),
        ("masked", "unit a.service is unmasked, unit a.service is enabled", "", ""),
        ("masked-runtime", "", "", "unit a.service is masked"),
        ("not-found", "", "", "unit a.service is masked"),
        ("what systemd may say one day", "", "", "unit a.service is masked"),
    ] {
        assert_eq!(lines(None, Some(&enabled(true)), state), to_enable, "{state}");
        assert_eq!(lines(None, Some(&enabled(false)), state), to_disable, "{state}");
        assert_eq!(lines(None, Some(&masked), state), to_mask, "{state}");
        assert_eq!(lines(None, Some(&drop_in), state), "", "{state}");
        assert_eq!(lines(None, None, state), "", "{state}");
    }
    for (before, wanted, state, expected) in [
        (&masked, None, "masked", "unit a.service is unmasked"),
        (&masked, Some(&drop_in), "masked", "unit a.service is unmasked"),
        (&enabled(true), None, "enabled", "unit a.service is as the presets have it"),
        (&enabled(true), Some(&drop_in), "enabled", "unit a.service is as the presets have it"),
        (&enabled(true), None, "not-found", ""),
        (&enabled(true), None, "masked", ""),
        (&enabled(false), Some(&enabled(true)), "indirect", on),
        (&enabled(true), Some(&enabled(false)), "indirect", "unit a.service is disabled"),
        (&drop_in, None, "enabled", ""),
    ] {
        assert_eq!(lines(Some(before), wanted, state), expected, "{before:?} {wanted:?} {state}");
    }
}

#[test]
fn a_unit_comes_with_its_file_and_leaves_its_targets_before_it_goes() {
    let unit = UnitWish {
        enabled: Some(true),
        contents: Some("[Install]\nWantedBy=multi-user.target\n".into()),
        drop_ins: [("10-a.conf".to_owned(), "[Unit]\n".to_owned())].into(),
        ..UnitWish::default()
    };
    let with = with_unit("a.service", unit.clone());
    let change = plan(Some(&Machine::default()), &with, &Found::default());
    let lines =
        ["+ /etc/systemd/system/a.service", "+ /etc/systemd/system/a.service.d/10-a.conf", "unit a.service is enabled"];
    assert_eq!(change.lines, lines);
    assert!(change.daemon_reload);
    assert_eq!(change.writes[0].1.as_ref().unwrap().mode, 0o644);

    let change = plan(Some(&with), &Machine::default(), &having(&with));
    assert_eq!(change.units_before, [UnitStep::Disable("a.service".into())]);
    assert_eq!(change.units, [UnitStep::Preset("a.service".into())], "another one may lie below /usr");
    assert!(change.daemon_reload && change.writes.iter().all(|(_, wish)| wish.is_none()));

    let masked = with_unit("a.service", UnitWish { masked: true, ..UnitWish::default() });
    let change = plan(Some(&with), &masked, &having(&with));
    assert_eq!(change.units, [UnitStep::Mask("a.service".into())]);
    assert_eq!(change.writes.len(), 2, "a link is not put over a file: {:?}", change.lines);

    // A unit that had no `[Install]` may have one now.
    let mut found = having(&with);
    found.units.insert("a.service".into(), "static".into());
    found.files.insert(unit_path("a.service"), Some(file("[Service]\n")));
    assert_eq!(plan(Some(&with), &with, &found).units, [UnitStep::Enable("a.service".into())]);
}

#[test]
fn profiles_are_given_to_the_network_and_ask_for_a_service_at_most() {
    let text = "[connection]\nid=eth0\ntype=ethernet\n";
    let with = |names: &[&str]| Machine {
        profiles: names.iter().map(|name| ((*name).to_owned(), text.to_owned())).collect(),
        ..Machine::default()
    };
    let wish = |before: Option<&Machine>, wanted: &Machine| {
        let change = plan(before, wanted, &Found::default());
        assert!(change.lines.is_empty() && change.actions.is_empty());
        let wish = change.profiles?;
        assert_eq!(change.needs, Needs::Service);
        Some((wish.files.into_iter().map(|file| file.name).collect::<Vec<_>>(), wish.gone))
    };
    assert_eq!(wish(None, &with(&["a"])), Some((vec!["a".into()], vec![])));
    assert_eq!(wish(None, &with(&[])), None);
    assert_eq!(wish(Some(&with(&["a"])), &with(&["a"])), None);
    assert_eq!(
        wish(Some(&with(&["a", "b"])), &with(&["b", "c"])),
        Some((vec!["b".into(), "c".into()], vec!["a".into()]))
    );
    // What NetworkManager ignored and loads now is not removed as a file; what it loads no more is written as one.
    let path = format!("{PROFILES}a");
    let ordinary = machine(&[(&path, text)]);
    assert!(plan(Some(&ordinary), &with(&["a"]), &having(&ordinary)).writes.is_empty());
    let change = plan(Some(&with(&["a"])), &ordinary, &Found::default());
    assert_eq!((change.profiles, change.writes.len()), (Some(ProfileWish::default()), 1));
    let broken = Machine { profiles: [("a".to_owned(), "secret".to_owned())].into(), ..Machine::default() };
    let error = plan_machine(None, &broken, &Found::default(), &Rules::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the config cannot be applied to a running node: the profile `a` is no keyfile: line 1"
    );
}

#[test]
fn kernel_arguments_and_images_ask_for_a_reboot() {
    let with = |wanted: &[&str], absent: &[&str]| Machine {
        kernel_arguments: wanted.iter().map(|text| (*text).to_owned()).collect(),
        kernel_arguments_absent: absent.iter().map(|text| (*text).to_owned()).collect(),
        ..Machine::default()
    };
    let found = Found {
        kernel_arguments: ["quiet", "nosmt", "mitigations=auto"].map(str::to_owned).into(),
        ..Found::default()
    };
    let before = with(&["nosmt", "gone=already"], &[]);
    let wanted = with(&["quiet", "x=1", "x=1"], &["mitigations=auto", "never"]);
    let change = plan(Some(&before), &wanted, &found);
    let lines = [
        "kernel argument nosmt is removed",
        "kernel argument mitigations=auto is removed",
        "kernel argument x=1 is added",
    ];
    assert_eq!(change.lines, lines);
    assert_eq!((change.needs, &change.actions[..]), (Needs::Reboot, &[Action::Drain, Action::Reboot][..]));
    assert_eq!(plan(None, &with(&["quiet"], &[]), &found), MachineChange::default());

    let image = |url: Option<&str>| {
        let mut machine = Machine::default();
        machine.system.os_image_url = url.map(str::to_owned);
        machine
    };
    for (before, wanted, runs, expected) in [
        (None, None, Some("q/a"), None),
        (None, Some("q/a"), Some("q/a"), None),
        (None, Some("q/b"), Some("q/a"), Some("q/b")),
        (None, Some("q/b"), None, None),
        (Some(Some("q/b")), Some("q/b"), None, None),
        (Some(Some("q/a")), Some("q/b"), None, Some("q/b")),
        (Some(None), Some("q/b"), None, Some("q/b")),
        (Some(Some("q/a")), None, Some("q/a"), None),
    ] {
        let found = Found { os_image: runs.map(str::to_owned), ..Found::default() };
        let change = plan(before.map(image).as_ref(), &image(wanted), &found);
        assert_eq!(change.os_image.as_deref(), expected, "{before:?} {wanted:?} {runs:?}");
        assert_eq!(change.needs, if expected.is_some() { Needs::Reboot } else { Needs::Nothing });
        assert_eq!(
            change.lines,
            expected.map(|image| format!("the OS image becomes {image}")).into_iter().collect::<Vec<_>>()
        );
    }
}

#[test]
fn what_only_an_installation_changes_is_refused_by_name() {
    let before = Machine { fixed: [("disks".to_owned(), "1".to_owned())].into(), ..Machine::default() };
    let mut wanted = Machine { fixed: [("users".to_owned(), "2".to_owned())].into(), ..Machine::default() };
    wanted.system = System {
        extensions: vec!["usbguard".into()],
        kernel_type: Some("realtime".into()),
        fips: true,
        ..System::default()
    };
    let error = plan_machine(Some(&before), &wanted, &Found::default(), &Rules::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "only an installation changes disks, users, extensions, the kernel type, FIPS mode: take the change back, or install the machine anew with this config"
    );
    assert!(plan(None, &wanted, &Found::default()).is_empty(), "a machine without a past is taken as it is");
    let mut same = before.clone();
    same.system.kernel_type = Some("default".into());
    assert!(plan(Some(&before), &same, &Found::default()).is_empty());
}

#[test]
fn rules_of_files_and_units_are_added_up() {
    let rules = Rules {
        files: vec![
            FileRule { path: "/etc/chrony.conf".into(), actions: vec![Action::Restart("chronyd.service".into())] },
            FileRule { path: "/etc/motd".into(), actions: vec![Action::None] },
        ],
        units: vec![UnitRule { name: "a.service".into(), actions: vec![Action::Drain, Action::DaemonReload] }],
    };
    let needs = |wanted: &Machine| {
        let change = plan_machine(None, wanted, &Found::default(), &rules).unwrap();
        (change.needs, change.actions)
    };
    let chrony = Action::Restart("chronyd.service".into());
    assert_eq!(needs(&machine(&[("/etc/motd", "m")])), (Needs::Nothing, vec![]));
    assert_eq!(
        needs(&machine(&[("/etc/motd", "m"), ("/etc/chrony.conf", "c")])),
        (Needs::Service, vec![chrony.clone()])
    );
    let mut both = machine(&[("/etc/chrony.conf", "c")]);
    both.units = with_unit("a.service", UnitWish { contents: Some("[Unit]\n".into()), ..UnitWish::default() }).units;
    assert_eq!(needs(&both), (Needs::Drain, vec![Action::Drain, Action::DaemonReload, chrony]));
    let strange = Rules {
        files: vec![FileRule { path: "/etc/motd".into(), actions: vec![Action::Restart("--now".into())] }],
        ..rules
    };
    let error = plan_machine(None, &machine(&[("/etc/motd", "m")]), &Found::default(), &strange).unwrap_err();
    assert_eq!(error.to_string(), "the config cannot be applied to a running node: `--now` is no name of a unit");
}

#[test]
fn drift_is_told_without_contents() {
    let mut applied = machine(&[("/etc/a", "secret"), ("/etc/b", "b"), ("/etc/c", "c"), ("/etc/d", "d")]);
    applied.files.insert("/etc/e".into(), FileWish { user: Some("root".into()), ..file("e") });
    let unit = |enabled| UnitWish { enabled, contents: Some("[Unit]\n".into()), ..UnitWish::default() };
    for (name, wish) in [
        ("a.service", unit(Some(true))),
        ("b.service", unit(Some(false))),
        ("c.service", UnitWish { masked: true, ..UnitWish::default() }),
        ("d.service", unit(None)),
    ] {
        applied.units.insert(name.into(), wish);
    }
    let mut found = having(&applied);
    assert_eq!(drifted(&applied, &found), [""; 0]);
    found.files.insert("/etc/a".into(), Some(file("other secret")));
    found.files.insert("/etc/b".into(), None);
    found.files.remove("/etc/c");
    found.files.insert("/etc/d".into(), Some(FileWish { mode: 0o4755, ..file("d") }));
    found.files.insert("/etc/e".into(), Some(FileWish { user: Some("1000".into()), ..file("e") }));
    found.files.insert(unit_path("a.service"), Some(file("[Unit]\nAfter=b.service\n")));
    for (name, state) in [("b.service", "enabled"), ("c.service", "disabled"), ("d.service", "enabled")] {
        found.units.insert(name.into(), state.into());
    }
    let expected = [
        "/etc/a has other contents",
        "/etc/b is gone",
        "/etc/c is gone",
        "/etc/d has mode 4755, not 0644",
        "/etc/e has another owner",
        "/etc/systemd/system/a.service has other contents",
        "unit b.service is enabled, not disabled",
        "unit c.service is disabled, not masked",
    ];
    assert_eq!(drifted(&applied, &found), expected);
    found.units.insert("a.service".into(), "masked".into());
    assert!(drifted(&applied, &found).contains(&"unit a.service is masked, not enabled".to_owned()));
    let change = plan(Some(&applied), &applied, &found);
    assert_eq!(drifted(&applied, &simulate(&found, &change)), [""; 0], "applied again, nothing has drifted");
}

fn any_file() -> impl Strategy<Value = FileWish> {
    let owner =
        || proptest::option::of(prop_oneof![Just("root".to_owned()), Just("7".to_owned()), Just("core".to_owned())]);
    ("[ab]?", prop_oneof![Just(0o644), Just(0o600)], owner(), owner()).prop_map(|(text, mode, user, group)| FileWish {
        bytes: text.into_bytes(),
        mode,
        user,
        group,
    })
}

fn any_unit() -> impl Strategy<Value = UnitWish> {
    (
        any::<Option<bool>>(),
        any::<bool>(),
        proptest::option::of("[ab]"),
        proptest::collection::btree_map("[ab]\\.conf", "[ab]", 0..2),
    )
        .prop_map(|(enabled, masked, contents, drop_ins)| UnitWish { enabled, masked, contents, drop_ins })
}

fn any_machine() -> impl Strategy<Value = Machine> {
    let arguments = || proptest::collection::vec("[abc]", 0..3);
    (
        proptest::collection::btree_map("/etc/[abc]", any_file(), 0..4),
        proptest::collection::btree_map("[ab]\\.service", any_unit(), 0..3),
        proptest::collection::btree_map("[ab]", Just("[connection]\nid=a\ntype=dummy\n".to_owned()), 0..2),
        arguments(),
        arguments(),
        proptest::option::of("[ab]"),
        proptest::collection::btree_set("/etc/[abc]", 0..2),
    )
        .prop_map(|(files, units, profiles, kernel_arguments, kernel_arguments_absent, os_image_url, left)| {
            Machine {
                files,
                units,
                profiles,
                kernel_arguments,
                kernel_arguments_absent,
                system: System { os_image_url, ..System::default() },
                left,
                ..Machine::default()
            }
        })
}

fn any_found() -> impl Strategy<Value = Found> {
    let path = prop_oneof![
        "/etc/[abc]",
        "/etc/systemd/system/[ab]\\.service",
        "/etc/systemd/system/[ab]\\.service\\.d/[ab]\\.conf"
    ];
    let states = [
        "enabled",
        "disabled",
        "static",
        "masked",
        "masked-runtime",
        "enabled-runtime",
        "indirect",
        "alias",
        "not-found",
    ];
    (
        proptest::collection::btree_map(path, proptest::option::of(any_file()), 0..8),
        proptest::collection::btree_map(
            "[ab]\\.service",
            proptest::sample::select(states.to_vec()).prop_map(str::to_owned),
            0..3,
        ),
        proptest::collection::vec("[abc]", 0..3),
        proptest::option::of("[ab]"),
    )
        .prop_map(|(files, units, kernel_arguments, os_image)| Found { files, units, kernel_arguments, os_image })
}

proptest! {
    #[test]
    fn once_a_change_is_carried_out_nothing_is_left_to_do(
        before in proptest::option::of(any_machine()), wanted in any_machine(), found in any_found(),
    ) {
        let change = plan(before.as_ref(), &wanted, &found);
        prop_assert_eq!(&change, &plan(before.as_ref(), &wanted, &found), "the same twice");
        let quiet = change.writes.is_empty() && change.units.is_empty() && change.units_before.is_empty();
        prop_assert!(!change.daemon_reload || !quiet);
        prop_assert!(change.actions.is_empty() || !change.lines.is_empty());
        let after = simulate(&found, &change);
        let again = plan(Some(&wanted), &wanted, &after);
        prop_assert!(again.is_empty(), "{:?}", again);
        prop_assert_eq!(drifted(&wanted, &after), Vec::<String>::new());
        let paths: BTreeSet<String> = before.iter().chain([&wanted]).flat_map(Machine::paths).collect();
        prop_assert!(change.writes.iter().all(|(path, _)| paths.contains(path)), "nobody asked for it");
    }
}
