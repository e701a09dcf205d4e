//! What a change means for a disk that may have been customised before.

use super::Change;
use crate::coreos::{self, BootEdit, BootFacts, Part};
use crate::{Customization, ImageError, Patch, ReadAt};

/// The edit of the original that makes the changed disk. `edited` is the disk as it is now, if that is not the original.
pub fn plan_change(
    original: &impl ReadAt,
    edited: Option<&dyn ReadAt>,
    change: Change<'_>,
) -> Result<(Patch, Vec<String>), ImageError> {
    match (change, edited) {
        (Change::Customize(wish), _) => coreos::plan_customization(original, wish, None),
        (Change::Reset, Some(_)) => Ok((Patch::new(), Vec::new())),
        (Change::RemoveNetwork, Some(edited)) => {
            let wish = difference(&coreos::probe(original)?.boot, &coreos::probe(&edited)?.boot);
            coreos::plan_customization(original, &wish, None)
        }
        (Change::RemoveNetwork, None) => {
            let (patch, _) = coreos::plan_edit(original, &BootEdit::remove_network(), None)?;
            Ok((patch, remains(original)?))
        }
        (Change::Reset, None) => {
            let facts = coreos::probe(original)?.boot;
            let (patch, _) = coreos::plan_edit(original, &removable(&facts), None)?;
            let mut notes = if patch.is_empty() { Vec::new() } else { remains(original)? };
            if !patch.is_empty() {
                notes.push(
                    "the image does not remember its original: network files, Ignition config and first-boot arguments were \
                     taken out, other changes stay and the bytes differ from the original's"
                        .to_owned(),
                );
            }
            Ok((patch, notes))
        }
    }
}

/// Removing a file frees its blocks; it does not wipe them.
fn remains(disk: &impl ReadAt) -> Result<Vec<String>, ImageError> {
    let facts = coreos::probe(disk)?.boot;
    let secrets = !facts.all_network().is_empty() || facts.ignition.is_some();
    Ok(secrets
        .then(|| "what was in the removed files may still lie in unused blocks of the boot partition".to_owned())
        .into_iter()
        .collect())
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
    let kargs = |facts: &BootFacts| -> Vec<String> {
        facts
            .entries
            .last()
            .map(|(_, entry)| entry.kargs().iter().map(|&karg| karg.to_owned()).collect())
            .unwrap_or_default()
    };
    let missing = |of: &[String], from: &[String]| -> Vec<String> {
        of.iter().filter(|karg| !from.contains(karg)).cloned().collect()
    };
    let (before, after) = (kargs(original), kargs(edited));
    let firstboot = |facts: &BootFacts| facts.firstboot.clone().unwrap_or_default();
    Customization {
        network: Vec::new(),
        ignition: if edited.ignition == original.ignition { None } else { edited.ignition.clone() },
        append_kargs: missing(&after, &before),
        delete_kargs: missing(&before, &after),
        firstboot_kargs: missing(&firstboot(edited), &firstboot(original)),
    }
}
