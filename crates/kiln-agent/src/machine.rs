//! Changes the files, units, kernel arguments and OS image of a running node: observe, journal, write, verify, put into force.
//!
//! What must change is decided elsewhere ([`kiln_core::machine::plan`]); here it is carried out ([`execute`]). Promised: before the
//! first write there is a journal on the disk ([`journal`]), and whoever finds it puts the old machine back ([`resume`]), or
//! verifies it when the change asked for a reboot and there was one. Profiles of NetworkManager are tried by the agent's own
//! engine, with its own checkpoint and probes; when they are put back, so is everything else.
//!
//! [`day`] is the part of `kiln agent run`. Contents of files are in no line, no log and no [`Debug`](std::fmt::Debug).
//!
//! Not here: emptying the node before; the hub does that ([`kiln_core::machine::Action::Drain`]).

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::AgentError;

pub mod day;
pub mod decide;
pub mod drift;
pub mod execute;
pub mod journal;
pub mod observe;
pub mod place;
pub mod plan;
pub mod program;
mod restore;
pub mod resume;
#[cfg(test)]
mod tests;

/// The machine that is worked on: `/`, or a folder that stands for one.
///
/// Programs are looked for below it too: a folder brings its own `/usr/bin/systemctl`.
#[derive(Debug, Clone)]
pub struct Root {
    path: PathBuf,
}

impl Root {
    /// A machine below a folder.
    pub fn new(path: impl Into<PathBuf>) -> Root {
        Root { path: path.into() }
    }

    /// The machine this runs on.
    pub fn machine() -> Root {
        Root::new("/")
    }

    /// An absolute path of the machine.
    pub fn at(&self, path: &str) -> PathBuf {
        self.path.join(path.trim_start_matches('/'))
    }

    /// The kernel's name for this boot.
    pub fn boot_id(&self) -> Result<String, AgentError> {
        let path = self.at("/proc/sys/kernel/random/boot_id");
        let text = fs::read_to_string(&path);
        text.map(|text| text.trim().to_owned()).map_err(|source| AgentError::File { doing: "read", path, source })
    }
}

/// Where a change happens.
#[derive(Debug, Clone, Copy)]
pub struct Site<'a> {
    /// The machine.
    pub root: &'a Root,
    /// Of the journal and the memory.
    pub state_dir: &'a Path,
}

/// How a change ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// Written, verified, in force. The journal says so and stays until it is remembered ([`resume::confirm`]).
    Applied {
        /// From the first write to the end.
        took: Duration,
    },
    /// Everything is written; the machine has to boot now ([`execute::reboot`]).
    Reboot,
    /// Put back.
    RolledBack {
        /// One line with the cause.
        why: String,
        /// From the first write to the end of the way back.
        took: Duration,
        /// Whether the network was at fault, and not a file, a unit or a service.
        network: bool,
    },
    /// Nothing was touched.
    Refused {
        /// One line with the cause and what to do.
        why: String,
    },
    /// The machine is as it was: somebody else is changing the network. Nothing was learned about the change.
    Waits {
        /// One line: for whom.
        why: String,
    },
}
