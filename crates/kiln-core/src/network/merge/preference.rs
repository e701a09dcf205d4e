//! Profiles of both sides that apply to one NIC: priorities make the right one win.
//!
//! NetworkManager would decide by priority and then by UUID, that is by chance. Here a profile that names its NIC beats one for any
//! NIC, and among equals the overlay beats the base. Only when the overlay gives its general profile a higher priority in so many words
//! is it left the winner.

use super::Draft;
use super::decision::{Decision, Preference};
use crate::network::profile::Profile;

/// Highest priority NetworkManager accepts.
const HIGHEST: i32 = 999;

/// Changes priorities until the right profile wins everywhere.
pub(super) fn settle(drafts: &mut [Draft], decisions: &mut Vec<Decision>) {
    // The order "overlay's specific, base's specific, overlay's general, base's general" has no circles, so every round puts at least
    // one more profile into its final place.
    for _ in 0..=drafts.len() {
        let mut changed = false;
        for (winner, loser) in overlaps(drafts) {
            changed |= prefer(drafts, winner, loser, decisions);
        }
        if !changed {
            break;
        }
    }
    for (winner, loser) in overlaps(drafts) {
        let [first, second] = [winner, loser].map(|place| Profile::read(&drafts[place].file));
        let told = |decision: &Decision| matches!(decision, Decision::Preferred { winner, loser, .. } if *winner == first.file && *loser == second.file);
        if decisions.iter().any(told) {
            continue;
        }
        let (winner, loser, how) = match first.priority > second.priority {
            true => (first.file, second.file, Preference::AlreadyHigher),
            false => (second.file, first.file, Preference::AsWritten),
        };
        decisions.push(Decision::Preferred { winner, loser, how });
    }
}

/// Pairs of places of which both apply to one NIC and start by themselves, one from each side; the rightful winner first.
fn overlaps(drafts: &[Draft]) -> Vec<(usize, usize)> {
    let profiles: Vec<_> = drafts.iter().map(|draft| Profile::read(&draft.file)).collect();
    let mut pairs = Vec::new();
    for (theirs, _) in drafts.iter().enumerate().filter(|(_, draft)| draft.has_overlay()) {
        for (ours, _) in drafts.iter().enumerate().filter(|(_, draft)| !draft.has_overlay()) {
            let [a, b] = [theirs, ours].map(|place| &profiles[place]);
            if a.autoconnect && b.autoconnect && overlap(a, b) {
                pairs.push(if is_specific(a) || !is_specific(b) { (theirs, ours) } else { (ours, theirs) });
            }
        }
    }
    pairs
}

/// Whether both can be meant for one interface, as far as the files tell.
fn overlap(a: &Profile, b: &Profile) -> bool {
    let names = a.interface.as_ref().zip(b.interface.as_ref());
    let macs = a.mac.zip(b.mac);
    let bound = |profile: &Profile| profile.interface.is_some() || profile.mac.is_some();
    // A name here and an address there: only the machine knows.
    let unknown = bound(a) && bound(b) && names.is_none() && macs.is_none();
    let apart = names.is_some_and(|(a, b)| a != b) || macs.is_some_and(|(a, b)| a != b);
    a.kind == b.kind && !unknown && !apart && (!a.is_virtual() || names.is_some())
}

fn is_specific(profile: &Profile) -> bool {
    profile.interface.is_some() || profile.mac.is_some() || !profile.name_patterns.is_empty()
}

/// Makes `winner` win over `loser`; whether something had to be changed.
fn prefer(drafts: &mut [Draft], winner: usize, loser: usize, decisions: &mut Vec<Decision>) -> bool {
    let [first, second] = [winner, loser].map(|place| Profile::read(&drafts[place].file));
    let wanted_by_overlay = drafts[loser].has_overlay()
        && second.priority > first.priority
        && drafts[loser].file.keyfile.raw("connection", "autoconnect-priority").is_some();
    if first.priority > second.priority || wanted_by_overlay {
        return false;
    }
    let (place, from, to) = match second.priority {
        HIGHEST => (loser, HIGHEST, HIGHEST - 1),
        priority => (winner, first.priority, priority + 1),
    };
    drafts[place].file.keyfile.set("connection", "autoconnect-priority", &to.to_string());
    let how = Preference::Changed { file: drafts[place].file.name.clone(), from, to };
    decisions.push(Decision::Preferred { winner: first.file, loser: second.file, how });
    true
}
