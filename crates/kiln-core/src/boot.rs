//! First boot of a CoreOS machine: kernel arguments, initramfs profiles, propagation into the real root.

pub mod folder;
pub mod handover;
pub mod initrd;
pub mod kargs;
pub mod simulate;
pub mod teardown;
