//! What a change means for a disk that may have been customised before.

use super::Change;
use crate::coreos::{self, BootEdit, BootFacts, Edited, KnownInitramfs, Part};
use crate::kargs_line::missing;
use crate::{Customization, ImageError, ReadAt};

/// The edit of the original that makes the changed disk. `edited` is the disk as it is now, if that is not the original.
pub(super) fn plan_change(
    original: &impl ReadAt,
    edited: Option<&dyn ReadAt>,
    change: Change<'_>,
    known: Option<KnownInitramfs>,
) -> Result<Edited, ImageError> {
    match (change, edited) {
        (Change::Customize(wish), _) => coreos::plan_customization(original, wish, known),
        (Change::Reset, Some(_)) => {
            Ok(Edited { carries: coreos::probe(original)?.boot.carried(), ..Edited::default() })
        }
        (Change::RemoveNetwork, Some(edited)) => {
            let wish = difference(&coreos::probe(original)?.boot, &coreos::probe(&edited)?.boot);
            coreos::plan_customization(original, &wish, known)
        }
        (Change::RemoveNetwork, None) => {
            let mut edited = coreos::plan_edit(original, &BootEdit::remove_network(), known)?;
            edited.notes.clear();
            Ok(edited)
        }
        (Change::Reset, None) => {
            let facts = coreos::probe(original)?.boot;
            let mut edited = coreos::plan_edit(original, &removable(&facts), known)?;
            edited.notes.clear();
            if !edited.patch.is_empty() {
                edited.notes.push(
                    "the image does not remember its original: network files, Ignition config and first-boot arguments were \
                     taken out, other changes stay and the bytes differ from the original's"
                        .to_owned(),
                );
            }
            Ok(edited)
        }
    }
}

/// Whether a change takes out what others put there. Nobody wants that back: it is wiped, and no record of it is kept.
pub(super) fn takes_out_for_good(change: Change<'_>, edited: Option<&dyn ReadAt>) -> bool {
    match change {
        Change::Customize(_) => false,
        Change::Reset => true,
        Change::RemoveNetwork => edited.is_none(),
    }
}

/// Everything that is there and can be recognised as a customisation.
fn removable(facts: &BootFacts) -> BootEdit {
    let BootEdit { network, ignition, firstboot_kargs, .. } = BootEdit::remove_all();
    BootEdit {
        network: if facts.all_network().is_empty() { Part::Keep } else { network },
        ignition: if facts.ignition.is_none() { Part::Keep } else { ignition },
        firstboot_kargs: if facts.firstboot.as_ref().is_none_or(Vec::is_empty) { Part::Keep } else { firstboot_kargs },
        ..BootEdit::default()
    }
}

/// What was put into a disk, but for the network files.
fn difference(original: &BootFacts, edited: &BootFacts) -> Customization {
    let (before, after) = (original.kargs(), edited.kargs());
    let firstboot = |facts: &BootFacts| facts.firstboot.clone().unwrap_or_default();
    Customization {
        network: Vec::new(),
        ignition: if edited.ignition == original.ignition { None } else { edited.ignition.clone() },
        append_kargs: missing(&after, &before),
        delete_kargs: missing(&before, &after),
        firstboot_kargs: missing(&firstboot(edited), &firstboot(original)),
    }
}
