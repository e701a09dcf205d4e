//! Tokens that nobody has to keep: a message and a code over it, which only the hub's key can make.
//!
//! A prefix, then message and code in base64url. What the message says is for each kind of token to know. A [`Claim`] is only a
//! claim until its code was compared.
//!
//! Not here: the key and the code, see `kiln::hub::node::beacon`.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// The longest text that is looked at: two names of 253 letters, a UID, a number and a code.
pub(crate) const LONGEST: usize = 1024;

/// What a token says, not yet believed. It prints without its code.
#[derive(Clone, PartialEq, Eq)]
pub struct Claim<Bearer> {
    /// Whom it says it speaks for.
    pub bearer: Bearer,
    /// The code to be compared.
    pub code: Vec<u8>,
}

impl<Bearer: fmt::Debug> fmt::Debug for Claim<Bearer> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim").field("bearer", &self.bearer).finish_non_exhaustive()
    }
}

/// The token. Secret.
pub(crate) fn render(prefix: &str, message: &str, code: &[u8]) -> String {
    format!("{prefix}{}.{}", URL_SAFE_NO_PAD.encode(message), URL_SAFE_NO_PAD.encode(code))
}

/// Message and code. Strict: one text for each pair; none for what is no token with this prefix.
pub(crate) fn parse(prefix: &str, text: &str) -> Option<(String, Vec<u8>)> {
    if text.len() > LONGEST {
        return None;
    }
    let (message, code) = text.strip_prefix(prefix)?.split_once('.')?;
    let message = String::from_utf8(URL_SAFE_NO_PAD.decode(message).ok()?).ok()?;
    Some((message, URL_SAFE_NO_PAD.decode(code).ok()?))
}
