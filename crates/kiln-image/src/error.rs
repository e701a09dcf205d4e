//! Why an image could not be read or edited. Every variant says which part of the image is meant.

use std::io;

/// Why an image was not read, or not changed.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The bytes cannot be had.
    #[error("cannot read {what}")]
    Read {
        /// Which bytes.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// The result cannot be written.
    #[error("cannot write {what}")]
    Write {
        /// Which bytes.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// The image contradicts itself or ends too early.
    #[error("{part} is damaged: {problem}")]
    Damaged {
        /// The part of the image, e.g. `ext4 group descriptor 3`.
        part: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The image may be in order, but this cannot be done with it safely.
    #[error("{part}: {problem}; {fix}")]
    Refused {
        /// The part of the image or of the request.
        part: String,
        /// Why not.
        problem: String,
        /// What the user can do.
        fix: String,
    },
}

impl ImageError {
    /// The image contradicts itself.
    pub fn damaged(part: impl Into<String>, problem: impl Into<String>) -> Self {
        ImageError::Damaged { part: part.into(), problem: problem.into() }
    }

    /// This cannot be done safely.
    pub fn refused(part: impl Into<String>, problem: impl Into<String>, fix: impl Into<String>) -> Self {
        ImageError::Refused { part: part.into(), problem: problem.into(), fix: fix.into() }
    }

    /// For `map_err` on reads. A read past the end means that the image was cut off.
    pub fn read(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| match source.kind() {
            io::ErrorKind::UnexpectedEof => ImageError::damaged(what, "the image ends before it"),
            _ => ImageError::Read { what, source },
        }
    }
}
