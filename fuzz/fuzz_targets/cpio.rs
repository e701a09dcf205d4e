//! Any initrd: reading it ends, and what is appended to it comes off again.
#![no_main]

use std::io::Read;
use std::ops::ControlFlow;

use kiln_image::compression::Decoder;
use kiln_image::cpio::File;
use kiln_image::initrd::appended::{append_member, find_appended, original_length};
use kiln_image::initrd::{find_file, walk};

libfuzzer_sys::fuzz_target!(|initrd: &[u8]| {
    let _ = walk(initrd, |_, _| Ok(ControlFlow::Continue(())));
    let _ = find_file(initrd, &["etc/hostname", "a"], 1 << 20);
    let _ = find_appended(&initrd);
    if let Ok(decoder) = Decoder::new(initrd) {
        let _ = decoder.take(16 << 20).read_to_end(&mut Vec::new());
    }
    let before = original_length(&initrd).expect("bytes in memory can be read").unwrap_or(initrd.len() as u64);
    let files = [File::private("etc/coreos-firstboot-network/a.nmconnection", "[connection]\nid=a\n")];
    let appended = append_member(initrd.len() as u64, &files).expect("the path is a proper one");
    assert_eq!(
        original_length(&[initrd, appended.as_slice()].concat()).expect("bytes in memory can be read"),
        Some(before)
    );
});
