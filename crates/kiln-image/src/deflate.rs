//! Deflate to the bit: an inflater that says where each block begins, and a writer that can continue at any bit.
//!
//! The inflater is Kiln's own because the crates that inflate quickly do not report block boundaries through a safe
//! interface, and a composed image is made of the base's own blocks. It accepts what zlib accepts and refuses what zlib
//! refuses. Compressing is left to flate2; only blocks without content are written here.

pub mod bits;
mod inflate;
mod input;
mod table;

pub use inflate::{Block, Inflater, Step, WINDOW};

#[cfg(test)]
mod tests;
