//! Every code, its severity, its title and its long story for `kiln explain`.
//!
//! One list per area, so that a code is found where its rules are: 00xx reading, 01xx first boot and profiles,
//! 02xx network documents, 03xx hosts and discovery, 04xx Ignition and MachineConfigs, 05xx cluster network,
//! 06xx day-2 policies, 07xx images and sizes, 08xx clusters that run.

use super::{Code, Severity};

mod boot;
mod cluster;
mod hosts;
mod ignition;
mod images;
mod network;
mod policy;
mod reading;
mod running;

/// What is known about one code.
#[derive(Debug, Clone, Copy)]
pub struct Explanation {
    /// The code.
    pub code: Code,
    /// Its usual severity.
    pub severity: Severity,
    /// One line without names or values.
    pub title: &'static str,
    /// Markdown: what happens, why, how it looks, how to repair it.
    pub story: &'static str,
}

const AREAS: [&[Explanation]; 9] = [
    reading::CODES,
    boot::CODES,
    network::CODES,
    hosts::CODES,
    ignition::CODES,
    cluster::CODES,
    policy::CODES,
    images::CODES,
    running::CODES,
];

/// All codes in order.
pub fn all() -> impl Iterator<Item = &'static Explanation> {
    AREAS.into_iter().flatten()
}

/// What is known about `code`.
pub fn explanation(code: Code) -> Option<&'static Explanation> {
    all().find(|known| known.code == code)
}

/// The usual severity; a code nobody registered is an error, and a test refuses it.
pub fn severity(code: Code) -> Severity {
    explanation(code).map_or(Severity::Error, |known| known.severity)
}

/// Writes one line of a list: the story is `docs/diagnostics/KLNnnnn.md`.
macro_rules! codes {
    ($($number:literal $severity:ident $title:literal),* $(,)?) => {
        pub(super) const CODES: &[super::Explanation] = &[$(super::Explanation {
            code: super::Code($number),
            severity: super::Severity::$severity,
            title: $title,
            story: include_str!(concat!("../../../../../docs/diagnostics/KLN", stringify!($number), ".md")),
        }),*];
    };
}
use codes;
