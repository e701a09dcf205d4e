//! What a merge decided, in a form that can be counted and in plain words.

use std::fmt;

use crate::network::pairing::Sameness;
use crate::network::profile::Refusal;

/// Which of the two sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// The set to start from.
    Base,
    /// The set that wins.
    Overlay,
}

/// One thing a merge decided, or could not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// NetworkManager would not read the file, so it says nothing.
    TakesNoPart {
        /// Of which set.
        side: Side,
        /// The file.
        file: String,
        /// Why.
        reason: Refusal,
    },
    /// Two files are one connection.
    Joined {
        /// File of the base; the result has its name.
        base: String,
        /// File of the overlay.
        overlay: String,
        /// By what.
        by: Sameness,
    },
    /// Both describe one interface as different kinds of device.
    Replaced {
        /// File of the base, left out.
        base: String,
        /// File of the overlay, kept.
        overlay: String,
        /// What both claim, and how they differ.
        reason: String,
    },
    /// Both say something different; the overlay's value is kept.
    Conflict {
        /// File of the result.
        file: String,
        /// Group.
        group: String,
        /// Key, or `addresses`.
        key: String,
        /// What the base says.
        base: String,
        /// What the overlay says.
        overlay: String,
    },
    /// A setting cannot stand beside another and was left out.
    Dropped {
        /// File of the result.
        file: String,
        /// `[ipv4] addresses`.
        what: String,
        /// Why.
        reason: String,
    },
    /// A reference was changed to follow its profile.
    Followed {
        /// File of the result.
        file: String,
        /// Group.
        group: String,
        /// Key.
        key: String,
        /// Before.
        from: String,
        /// After.
        to: String,
    },
    /// A reference leads nowhere, in the inputs already.
    Dangling {
        /// File.
        file: String,
        /// `[connection] master`.
        what: String,
        /// What it names.
        reference: String,
        /// Whether the file was left out, because nothing can ever satisfy it.
        left_out: bool,
    },
    /// Two different connections had one file name.
    Renamed {
        /// The overlay's file.
        from: String,
        /// Its name in the result.
        to: String,
    },
    /// Two files of the result apply to one NIC.
    Preferred {
        /// The file that wins.
        winner: String,
        /// The one that does not.
        loser: String,
        /// What makes it so.
        how: Preference,
    },
    /// Two files have one UUID: NetworkManager loads only one of them.
    SharedUuid {
        /// Both, in order.
        files: [String; 2],
    },
    /// NetworkManager will not load a file of the result.
    WillNotLoad {
        /// The file.
        file: String,
        /// Why.
        reason: Refusal,
    },
}

/// Why one of two profiles for a NIC wins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Preference {
    /// Its priority already was higher.
    AlreadyHigher,
    /// Its priority was changed so that it is.
    Changed {
        /// File whose priority was changed.
        file: String,
        /// Before.
        from: i32,
        /// After.
        to: i32,
    },
    /// The overlay gives its general profile a higher priority than the specific one of the base, in so many words.
    AsWritten,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Side::Base => "base",
            Side::Overlay => "overlay",
        })
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Decision::TakesNoPart { side, file, reason } => write!(f, "{file} of the {side} takes no part: {reason}"),
            Decision::Joined { base, overlay, by } => {
                write!(
                    f,
                    "{base} of the base and {overlay} of the overlay are one connection (same {by}); written to {base}"
                )
            }
            Decision::Replaced { base, overlay, reason } => {
                write!(f, "{overlay} of the overlay replaces {base} of the base: {reason}")
            }
            Decision::Conflict { file, group, key, base, overlay } => {
                write!(f, "{file} [{group}] {key}: the base says `{base}`, the overlay `{overlay}`; the overlay wins")
            }
            Decision::Dropped { file, what, reason } => write!(f, "{file} {what} was left out: {reason}"),
            Decision::Followed { file, group, key, from, to } => {
                write!(f, "{file} [{group}] {key}: `{from}` became `{to}`, following its profile")
            }
            Decision::Dangling { file, what, reference, left_out: true } => {
                write!(f, "{file} was left out: its {what} is {reference}, and no profile of either side is that")
            }
            Decision::Dangling { file, what, reference, left_out: false } => {
                write!(f, "{file} {what} is {reference}, and no profile of either side makes that interface")
            }
            Decision::Renamed { from, to } => {
                write!(
                    f,
                    "{from} of the overlay is written to {to}: the base has another connection in a file of that name"
                )
            }
            Decision::Preferred { winner, loser, how } => {
                write!(f, "{winner} and {loser} apply to one NIC; {winner} wins because ")?;
                match how {
                    Preference::AlreadyHigher => f.write_str("its autoconnect-priority is higher"),
                    Preference::Changed { file, from, to } => {
                        write!(f, "the autoconnect-priority of {file} was changed from {from} to {to}")
                    }
                    Preference::AsWritten => f.write_str("the overlay gives it a higher autoconnect-priority"),
                }
            }
            Decision::SharedUuid { files: [a, b] } => {
                write!(f, "{a} and {b} have the same UUID; NetworkManager loads only one of them")
            }
            Decision::WillNotLoad { file, reason } => write!(f, "NetworkManager will not load {file}: {reason}"),
        }
    }
}
