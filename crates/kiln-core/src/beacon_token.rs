//! Beacon tokens: what a machine that has its config shows when it reports.
//!
//! A [`crate::signed_token`] with `kb1.` before it, whose message is `namespace/host/generation`. One that was made for an
//! earlier generation is worth nothing.

use crate::signed_token;

/// What every token begins with, so that scanners for leaked secrets recognise it.
pub const PREFIX: &str = "kb1.";

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
        signed_token::render(PREFIX, &self.message(), code)
    }
}

/// What a token says, not yet believed.
pub type Claim = signed_token::Claim<Bearer>;

impl Claim {
    /// Takes a token apart. Strict: one text for each claim; none for what is no beacon token.
    pub fn parse(text: &str) -> Option<Claim> {
        let (message, code) = signed_token::parse(PREFIX, text)?;
        let mut parts = message.split('/').map(str::to_owned);
        let (namespace, host, generation) = (parts.next()?, parts.next()?, parts.next()?);
        let bearer = Bearer { namespace, host, generation: generation.parse().ok()? };
        let named = !bearer.namespace.is_empty() && !bearer.host.is_empty();
        (named && bearer.message() == message).then_some(Claim { bearer, code })
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    use super::*;
    use crate::signed_token::LONGEST;

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
