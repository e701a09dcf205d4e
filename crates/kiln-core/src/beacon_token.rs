//! Beacon tokens: what a machine that has its config shows when it reports.
//!
//! `kb1.` and two texts in base64url: whom it speaks for (`namespace/host/generation`) and a code over that, made with a
//! key only the hub has. So the hub keeps no token of any machine, and one that was made for an earlier generation is
//! worth nothing.
//!
//! Not here: the key and the code, see `kiln::hub::node::beacon`. A [`Claim`] is only a claim until its code was compared.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// What every token begins with, so that scanners for leaked secrets recognise it.
pub const PREFIX: &str = "kb1.";
/// The longest text that is looked at: two names of 253 letters, a number and a code.
const LONGEST: usize = 1024;

/// Whom a token speaks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bearer {
    /// Namespace of the Host.
    pub namespace: String,
    /// Name of the Host.
    pub host: String,
    /// Which provisioning of it.
    pub generation: u64,
}

impl Bearer {
    /// What the code is made over.
    pub fn message(&self) -> String {
        format!("{}/{}/{}", self.namespace, self.host, self.generation)
    }

    /// The token with this code. Secret.
    pub fn render(&self, code: &[u8]) -> String {
        format!("{PREFIX}{}.{}", URL_SAFE_NO_PAD.encode(self.message()), URL_SAFE_NO_PAD.encode(code))
    }
}

/// What a token says, not yet believed. It prints without its code.
#[derive(Clone, PartialEq, Eq)]
pub struct Claim {
    /// Whom it says it speaks for.
    pub bearer: Bearer,
    /// The code to be compared.
    pub code: Vec<u8>,
}

impl std::fmt::Debug for Claim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Claim").field("bearer", &self.bearer).finish_non_exhaustive()
    }
}

impl Claim {
    /// Takes a token apart. Strict: one text for each claim; none for what is no beacon token.
    pub fn parse(text: &str) -> Option<Claim> {
        if text.len() > LONGEST {
            return None;
        }
        let (message, code) = text.strip_prefix(PREFIX)?.split_once('.')?;
        let message = String::from_utf8(URL_SAFE_NO_PAD.decode(message).ok()?).ok()?;
        let code = URL_SAFE_NO_PAD.decode(code).ok()?;
        let mut parts = message.split('/');
        let (namespace, host, generation) = (parts.next()?, parts.next()?, parts.next()?);
        let bearer =
            Bearer { namespace: namespace.to_owned(), host: host.to_owned(), generation: generation.parse().ok()? };
        let whole = !namespace.is_empty() && !host.is_empty() && bearer.message() == message;
        whole.then_some(Claim { bearer, code })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_one_text_and_its_code_is_never_printed() {
        let bearer = Bearer { namespace: "site".into(), host: "w0".into(), generation: 7 };
        let text = bearer.render(&[0xab; 32]);
        assert_eq!(text, "kb1.c2l0ZS93MC83.q6urq6urq6urq6urq6urq6urq6urq6urq6urq6urq6s");
        let claim = Claim::parse(&text).unwrap();
        assert_eq!((&claim.bearer, claim.code.as_slice()), (&bearer, &[0xab; 32][..]));
        assert!(!format!("{claim:?}").contains("171"), "{claim:?}");
        let of = |message: &str| format!("kb1.{}.q6s", URL_SAFE_NO_PAD.encode(message));
        for wrong in [
            String::new(),
            "kb1.".into(),
            "kb1..".into(),
            text.replace("kb1", "kb2"),
            text.replacen('.', "", 1),
            format!("{text}="),
            format!(" {text}"),
            format!("{text}.q6s"),
            of("site/w0"),
            of("site/w0/7/"),
            of("site/w0/07"),
            of("site/w0/+7"),
            of("site/w0/-7"),
            of("/w0/7"),
            of("site//7"),
            of(&format!("site/{}/7", "w".repeat(LONGEST))),
        ] {
            assert_eq!(Claim::parse(&wrong), None, "{wrong}");
        }
    }
}
