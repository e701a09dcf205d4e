//! Any qcow2 file: it is refused or read; an edit that is planned gives a file that reads as edited and can be undone.
#![no_main]

use kiln_image::qcow2::{Qcow2, TailBase, original};
use kiln_image::{Patch, ReadAt};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let file = bytes.to_vec();
    let _ = Qcow2::undo(&file);
    let Ok(guest) = Qcow2::open(&file) else { return };
    let mut patch = Patch::new();
    for start in [0, guest.len() / 2, guest.len().saturating_sub(5000)] {
        let length = (guest.len() - start).min(5000) as usize;
        let _ = guest.read_exact_at(start, &mut vec![0; length]);
        patch.write(start, &vec![0xa5; length.min(700)]);
    }
    let Ok(base) = TailBase::read(&file) else { return };
    // The file changes between reading its tables and planning.
    let changed: Vec<u8> = file.iter().rev().copied().collect();
    let _ = base.plan(&changed, &patch);

    let Ok(tail) = base.plan(&file, &patch) else { return };
    assert_eq!(tail.offset, file.len() as u64);
    let mut edited = file.clone();
    edited[..tail.header.len()].copy_from_slice(&tail.header);
    edited.extend_from_slice(&tail.bytes);
    let view = Qcow2::open(&edited).expect("the edited file is whole");
    for (start, bytes) in patch.pieces() {
        assert_eq!(view.read_vec(start, bytes.len()).expect("what was written is there"), bytes);
    }
    if base.records_undo() {
        let undone = original(&edited).expect("nobody wrote to it");
        assert_eq!(undone.read_vec(0, undone.len() as usize).expect("it is in memory"), file);
    }
});
