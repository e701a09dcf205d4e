//! Sets of connection profiles: what they mean together.
//!
//! [`profile`] reads one keyfile, [`choice`] says which profile NetworkManager activates on which NIC, [`merge`](mod@merge) makes one
//! set of two, [`diff`](mod@diff) says what differs between two. All of it is a function of the files: the same set, in any order,
//! gives the same answer.

pub mod choice;
pub mod diff;
pub(crate) mod meaning;
pub mod merge;
pub mod pairing;
pub mod profile;

pub use meaning::is_secret;
