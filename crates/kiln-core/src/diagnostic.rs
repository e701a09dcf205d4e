//! Findings: what is wrong, where, why, and the exact edit that repairs it.
//!
//! A rule states code, place, message, cause and help. Which object and which field the place belongs to is
//! worked out afterwards from the place ([`attribute`]), so that no rule has to carry names along.
//! Rendering (rustc-like text, JSON lines, SARIF, GitHub) is done by the `kiln` crate.

use std::fmt;

use crate::source::Location;

mod attribution;
pub mod registry;

pub use attribution::attribute;

/// A stable name such as `KLN0101`. Codes are never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Code(pub u16);

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KLN{:04}", self.0)
    }
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Something a reader should know; nothing is wrong.
    Note,
    /// It will probably not do what was meant.
    Warning,
    /// It will be refused or will fail.
    Error,
}

/// The object a finding is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    /// `BareMetalHost`.
    pub kind: String,
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
}

/// A second place that belongs to the story.
#[derive(Debug, Clone, PartialEq)]
pub struct Related {
    /// Where.
    pub at: Location,
    /// What it has to do with it.
    pub message: String,
}

/// One finding.
#[derive(Debug, Clone, PartialEq)]
pub struct Diagnostic {
    /// Which rule.
    pub code: Code,
    /// How bad.
    pub severity: Severity,
    /// One line: the state of things, with names and values.
    pub message: String,
    /// The place to look at first. None only when there is no text (an empty folder, say).
    pub at: Option<Location>,
    /// Other places.
    pub related: Vec<Related>,
    /// Why this is so: the rule of the outside system that decides.
    pub cause: Option<String>,
    /// The edit that repairs it.
    pub help: Option<String>,
    /// Filled by attribution.
    pub object: Option<ObjectId>,
    /// Filled by attribution: `spec.bmc.address`.
    pub field: Option<String>,
}

impl Diagnostic {
    /// A finding with the severity its code has in the [`registry`].
    pub fn new(code: Code, at: impl Into<Option<Location>>, message: impl Into<String>) -> Self {
        Diagnostic {
            code,
            severity: registry::severity(code),
            message: message.into(),
            at: at.into(),
            related: Vec::new(),
            cause: None,
            help: None,
            object: None,
            field: None,
        }
    }

    /// Says why.
    pub fn cause(mut self, cause: impl Into<String>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    /// Says what to edit.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Points at a second place.
    pub fn related(mut self, at: Location, message: impl Into<String>) -> Self {
        self.related.push(Related { at, message: message.into() });
        self
    }

    /// Overrides the severity of the code.
    pub fn severity(mut self, severity: Severity) -> Self {
        self.severity = severity;
        self
    }
}
