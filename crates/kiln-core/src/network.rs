//! Sets of connection profiles: what they mean together.
//!
//! [`profile`] reads one keyfile, [`choice`] says which profile NetworkManager activates on which NIC.
//! All of it is a function of the files: the same set, in any order, gives the same answer.

pub mod choice;
pub mod profile;
