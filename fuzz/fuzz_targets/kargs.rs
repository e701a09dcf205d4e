//! Any command line: the model of the initramfs ends and gives the same answer twice.
#![no_main]

use kiln_core::boot::initrd::generate;
use kiln_core::boot::kargs::Kargs;

libfuzzer_sys::fuzz_target!(|line: &str| {
    let kargs = Kargs::parse(line);
    assert_eq!(generate(&kargs), generate(&kargs));
});
