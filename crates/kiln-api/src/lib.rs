//! The kinds Kiln reads, and their translation into [`kiln_core::world::World`].
//!
//! Each kind is a serde type in `<group>/<kind>.rs`; [`de`] reads it from a document and keeps the place of every
//! field. Nothing here reads files: the `kiln` crate hands in texts.
//! **Invariant:** no decision is taken here. Whatever is wrong with the meaning of an object is found by
//! `kiln_core::check` on the world; only what cannot be read at all is reported from here.
