//! What a boot partition and the gap before it may hold: boot entries, `ignition.firstboot`, undo records; and any first bytes
//! of an image. The first byte says which of them the rest is.
#![no_main]

use kiln_image::bls::BootEntry;
use kiln_image::coreos::firstboot;
use kiln_image::{Patched, ReadAt, format, undo};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Some((kind, bytes)) = input.split_first() else { return };
    match kind % 4 {
        0 => entry(bytes),
        1 => first_boot(bytes),
        2 => record(bytes.to_vec()),
        _ => drop(format::recognise(&bytes.to_vec())),
    }
});

fn entry(bytes: &[u8]) {
    let Ok(entry) = BootEntry::parse("a.conf", bytes.to_vec()) else { return };
    let (append, delete) = (["kiln=1".to_owned()], ["rw".to_owned()]);
    let edited = entry.edit_kargs(&append, &delete);
    let again = BootEntry::parse("a.conf", edited.text.into_bytes()).unwrap();
    assert!(again.kargs().contains(&"kiln=1") && !again.kargs().contains(&"rw"));
    assert_eq!((again.title(), again.initrds()), (entry.title(), entry.initrds()));
    let twice = again.edit_kargs(&append, &[]);
    assert_eq!(twice.present, append);
}

fn first_boot(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let kargs = ["coreos.force_persist_ip".to_owned(), "ip=dhcp".to_owned()];
    assert_eq!(firstboot::kargs(&firstboot::with_kargs(&text, &kargs)), kargs);
    assert!(firstboot::kargs(&firstboot::with_kargs(&text, &[])).is_empty());
}

fn record(disk: Vec<u8>) {
    let gap = 0..disk.len() as u64 / 2;
    if let Ok(Some(patch)) = undo::original(&disk, gap) {
        let _ = Patched::with(&disk, patch).read_vec(0, disk.len()).unwrap();
    }
}
