//! PXE initrds: what is put in is an archive behind the end.

use super::{Change, Composition, Original};
use crate::initrd::appended::{append_member, find_appended, original_length};
use crate::initrd::{Embedded, IGNITION_PATH, NETWORK_DIR};
use crate::{Carried, Customization, ImageError, NamedFile, ReadAt, Segment, cpio};

pub(super) fn plan<'a>(file: &'a (impl ReadAt + Sync), change: Change<'_>) -> Result<Composition<'a>, ImageError> {
    let mut length = original_length(file)?.unwrap_or(file.len());
    let mut notes = Vec::new();
    let appended = find_appended(file)?;
    let foreign = appended.iter().filter(|member| !member.own);
    let (member, carries, original) = match change {
        Change::Customize(wish) => {
            let stays = foreign.fold(Carried::of(wish), |all, member| all.and(carried(&member.embedded)));
            (plan_member(length, wish)?, stays, Original::Remembered)
        }
        Change::Reset | Change::RemoveNetwork => {
            // What another installer appended ends where it ends; nobody wrote down what was there before.
            if let Some(first) = foreign.clone().next() {
                length = length.min(first.range.start);
                notes.push("another installer's archive was taken off the end".to_owned());
            }
            let mut kept = Embedded::default();
            if matches!(change, Change::RemoveNetwork) {
                for member in &appended {
                    kept.ignition = member.embedded.ignition.clone().or(kept.ignition);
                    kept.other.extend(member.embedded.other.clone());
                }
            }
            let original = if matches!(change, Change::Reset) { Original::Same } else { Original::Remembered };
            (member_of(length, &kept.files())?, carried(&kept), original)
        }
    };
    let mut segments = vec![Segment::Base(0..length), Segment::Own(member)];
    segments.retain(|segment| !segment.is_empty());
    Composition::of(Box::new(file), segments, notes, original, carries)
}

/// The archive behind an initrd of this length; empty for an empty wish.
pub(crate) fn plan_member(length: u64, wish: &Customization) -> Result<Vec<u8>, ImageError> {
    let Customization { network, ignition, append_kargs, delete_kargs, firstboot_kargs } = wish;
    if let Some(karg) = append_kargs.iter().chain(delete_kargs).chain(firstboot_kargs).next() {
        return Err(ImageError::refused(
            format!("kernel argument `{karg}`"),
            "an initrd has no kernel arguments; whoever loads it gives them",
            "write it into the boot loader's configuration, e.g. the `kernel` line of iPXE",
        ));
    }
    let network =
        network.iter().map(|file| cpio::File::private(format!("{NETWORK_DIR}{}", file.name), file.bytes.clone()));
    let ignition = ignition.iter().map(|config| cpio::File::private(IGNITION_PATH, config.clone()));
    member_of(length, &ignition.chain(network).collect::<Vec<_>>())
}

fn member_of(length: u64, files: &[cpio::File]) -> Result<Vec<u8>, ImageError> {
    if files.is_empty() { Ok(Vec::new()) } else { append_member(length, files) }
}

pub(super) fn carried(embedded: &Embedded) -> Carried {
    let Embedded { ignition, network, other } = embedded;
    let network = network.iter().map(|(name, bytes)| NamedFile { name: name.clone(), bytes: bytes.clone() });
    Carried { network: network.collect(), config: ignition.is_some() || !other.is_empty() }
}
