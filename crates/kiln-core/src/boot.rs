//! First boot of a CoreOS machine: kernel arguments, initramfs profiles, propagation into the real root.

pub mod initrd;
pub mod kargs;
