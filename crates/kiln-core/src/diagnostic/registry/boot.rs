//! Codes about first boot and profiles (01xx).

super::codes! {
    0100 Error "a kernel argument crashes nm-initrd-generator",
    0101 Error "a kernel argument has no effect",
    0102 Warning "a kernel argument is read differently than it looks",
    0103 Error "a profile from kernel arguments is not written",
    0104 Warning "a part of a kernel argument has no effect",
    0105 Note "the effect of a kernel argument depends on firmware",
}
