//! The bytes of CoreOS images, read and edited without root, loop devices or an appliance.
//!
//! Everything is synchronous and reads through [`ReadAt`]. An edit is a value: the code that understands a format returns
//! a [`Patch`] (bytes that differ) or [`Segment`]s (which ranges of the base to keep and which bytes to put between them)
//! and writes nothing, compressed images included. A refusal therefore leaves the image untouched by construction.
//!
//! Not here: hosts, nmstate, the command line and HTTP. Callers bring finished files and kernel arguments.

pub mod bls;
pub mod compression;
pub mod coreos;
pub mod cpio;
pub mod customization;
pub mod customize;
pub mod deflate;
pub mod digest;
pub mod error;
pub mod ext4;
pub mod format;
pub mod gpt;
pub mod gz_index;
pub mod gzip;
pub mod initrd;
pub mod inspect;
pub mod iso9660;
pub mod kargs_line;
pub mod live_iso;
pub mod patch;
pub mod qcow2;
pub mod read_at;
pub mod segment;
pub mod splice;
pub mod store;
pub mod undo;

pub use customization::{Carried, Customization, NamedFile};
pub use error::ImageError;
pub use patch::{Patch, Patched};
pub use read_at::{ReadAt, Seekable, Window};
pub use segment::{Composed, Segment};
