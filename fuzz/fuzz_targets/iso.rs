//! Any ISO: areas are found or refused, and a plan stays within the image.
//!
//! The interesting bytes of an ISO are few and far apart, so an input is a list of pieces over zeros: offset (three bytes),
//! length (one byte), bytes.
#![no_main]

use kiln_image::Segment;
use kiln_image::customization::{Customization, NamedFile};
use kiln_image::live_iso::{LiveIso, Plan};

libfuzzer_sys::fuzz_target!(|pieces: &[u8]| {
    let iso = unpack(pieces);
    let Ok(live) = LiveIso::open(iso.as_slice()) else { return };
    let _ = (live.release(), live.has_miniso(), live.kargs(), live.room(), live.embedded());
    let _ = live.plan_without_network();
    let keyfile = NamedFile { name: "a.nmconnection".into(), bytes: b"[connection]\nid=a\n".to_vec() };
    let wish = Customization {
        network: if live.features().live_initrd_network { vec![keyfile] } else { Vec::new() },
        ignition: Some(b"{}".to_vec()),
        ..Customization::default()
    };
    // Areas may lie over each other or over what describes them; then only the bounds hold.
    if let Ok(plan) = live.plan(&wish) {
        apply(&plan, &iso);
    }
    if let Ok(plan) = live.plan_reset() {
        apply(&plan, &iso);
    }
});

fn unpack(mut pieces: &[u8]) -> Vec<u8> {
    let mut iso = vec![0; 1 << 20];
    while let [a, b, c, length, rest @ ..] = pieces {
        let offset = u32::from_le_bytes([*a, *b, *c, 0]) as usize % iso.len();
        let length = usize::from(*length).min(rest.len()).min(iso.len() - offset);
        iso[offset..offset + length].copy_from_slice(&rest[..length]);
        pieces = &rest[length..];
    }
    iso
}

fn apply(plan: &Plan, iso: &[u8]) {
    let mut bytes = Vec::new();
    for segment in plan.segments() {
        match segment {
            Segment::Base(range) => bytes.extend_from_slice(&iso[range.start as usize..range.end as usize]),
            Segment::Own(own) => bytes.extend_from_slice(&own),
        }
    }
    assert_eq!(bytes.len() as u64, plan.length());
}
