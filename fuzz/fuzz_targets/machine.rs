//! Any bytes as the config of a running machine, and any JSON as its rules: they are refused with a reason, or a change comes out
//! that writes only what was asked for and leaves nothing to do once it is carried out.
#![no_main]

use kiln_core::machine::config::read_machine;
use kiln_core::machine::plan::{drifted, plan_machine};
use kiln_core::machine::rules::parse_rules;
use kiln_core::machine::wish::{Found, Machine, MachineChange, UnitStep};
use kiln_core::machine::{Action, Rules, System};

/// Carries a change out.
fn simulate(found: &mut Found, change: &MachineChange) {
    found.files.extend(change.writes.iter().cloned());
    for step in change.units_before.iter().chain(&change.units) {
        let state = match step {
            UnitStep::Enable(_) => "enabled",
            UnitStep::Disable(_) | UnitStep::Unmask(_) | UnitStep::Preset(_) => "disabled",
            UnitStep::Mask(_) => "masked",
        };
        found.units.insert(step.unit().clone(), state.to_owned());
    }
    let arguments = change.kernel_arguments.clone().unwrap_or_default();
    found.kernel_arguments.retain(|argument| !arguments.remove.contains(argument));
    found.kernel_arguments.extend(arguments.append);
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    // Up to two configs and rules, apart by a NUL, which none of them may have.
    let mut texts = bytes.split(|byte| *byte == 0);
    let read = |text: &[u8]| read_machine(text, &System::default()).ok();
    let (wanted, before) = (texts.next().and_then(read), texts.next().and_then(read));
    let value = texts.next().and_then(|text| serde_json::from_slice(text).ok()).unwrap_or_default();
    let rules = parse_rules(&value).unwrap_or_else(|mistakes| {
        assert!(!mistakes.is_empty());
        Rules::default()
    });
    let Some(wanted) = wanted else { return };
    let mut found = Found { kernel_arguments: vec!["quiet".to_owned()], ..Found::default() };
    for machine in [before.as_ref(), Some(&wanted)].into_iter().flatten() {
        let Ok(change) = plan_machine(None, machine, &found, &rules) else {
            panic!("a machine without a past is refused")
        };
        assert!(change.writes.iter().all(|(path, _)| machine.paths().contains(path)));
        simulate(&mut found, &change);
    }
    let Ok(change) = plan_machine(before.as_ref(), &wanted, &found, &rules) else { return };
    let reboots = change.actions.iter().filter(|action| **action == Action::Reboot).count();
    assert!(reboots == 0 || change.actions == [Action::Drain, Action::Reboot]);
    simulate(&mut found, &change);
    let again = plan_machine(Some(&wanted), &wanted, &found, &rules).expect("nothing changes any more");
    assert!(again.is_empty(), "{again:?}");
    assert_eq!(drifted(&wanted, &found), [""; 0]);
    let stored = serde_json::to_vec(&wanted).expect("a machine is JSON");
    assert_eq!(serde_json::from_slice::<Machine>(&stored).expect("what was stored is a machine"), wanted);
});
