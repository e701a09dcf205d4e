//! The words of the approver: checks, modes, proofs, signers and verdicts.

use std::fmt;
use std::str::FromStr;

/// What decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Check {
    /// Somebody was faster.
    Decided,
    /// For another signer.
    Signer,
    /// Of no host of this hub.
    Foreign,
    /// What is inside cannot be read, or is more than a kubelet asks for.
    Content,
    /// The signature proves the key.
    Signature,
    /// Who asks.
    Requestor,
    /// The groups of who asks.
    Groups,
    /// The common name.
    CommonName,
    /// The organization.
    Organization,
    /// What the certificate is for.
    Usages,
    /// Names of a sort that has no place there.
    Names,
    /// The host's token was used twice.
    Alarm,
    /// A newer request of the same node.
    Superseded,
    /// Whether the host has fetched its config.
    State,
    /// Whether a user of its own asks.
    Identity,
    /// Whether the key is the host's.
    Key,
    /// Whether it asks soon after it was provisioned.
    Window,
    /// One certificate for each time a host is provisioned.
    Generation,
    /// Whether the Node may exist.
    Node,
    /// Names and addresses are declared.
    Addresses,
    /// The names of the certificate it has.
    Renewal,
    /// How much one host may ask for.
    Budget,
    /// What the pool wants done.
    Mode,
}

impl Check {
    /// All of them.
    pub const ALL: [Check; 23] = [
        Check::Decided,
        Check::Signer,
        Check::Foreign,
        Check::Content,
        Check::Signature,
        Check::Requestor,
        Check::Groups,
        Check::CommonName,
        Check::Organization,
        Check::Usages,
        Check::Names,
        Check::Alarm,
        Check::Superseded,
        Check::State,
        Check::Identity,
        Check::Key,
        Check::Window,
        Check::Generation,
        Check::Node,
        Check::Addresses,
        Check::Renewal,
        Check::Budget,
        Check::Mode,
    ];

    /// The word people and programs use.
    pub const fn name(self) -> &'static str {
        match self {
            Check::Decided => "decided",
            Check::Signer => "signer",
            Check::Foreign => "foreign",
            Check::Content => "content",
            Check::Signature => "signature",
            Check::Requestor => "requestor",
            Check::Groups => "groups",
            Check::CommonName => "common-name",
            Check::Organization => "organization",
            Check::Usages => "usages",
            Check::Names => "names",
            Check::Alarm => "alarm",
            Check::Superseded => "superseded",
            Check::State => "state",
            Check::Identity => "identity",
            Check::Key => "key",
            Check::Window => "window",
            Check::Generation => "generation",
            Check::Node => "node",
            Check::Addresses => "addresses",
            Check::Renewal => "renewal",
            Check::Budget => "budget",
            Check::Mode => "mode",
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Who signs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Signer {
    /// `kubernetes.io/kube-apiserver-client-kubelet`.
    Client,
    /// `kubernetes.io/kubelet-serving`.
    Serving,
    /// Any other.
    Other(String),
}

impl Signer {
    /// By the name in a request.
    pub fn of(name: &str) -> Signer {
        match name {
            "kubernetes.io/kube-apiserver-client-kubelet" => Signer::Client,
            "kubernetes.io/kubelet-serving" => Signer::Serving,
            other => Signer::Other(other.to_owned()),
        }
    }

    /// The name in a request.
    pub fn name(&self) -> &str {
        match self {
            Signer::Client => "kubernetes.io/kube-apiserver-client-kubelet",
            Signer::Serving => "kubernetes.io/kubelet-serving",
            Signer::Other(name) => name,
        }
    }
}

/// What is done with the requests of a pool's hosts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// Kiln approves and denies.
    #[default]
    Auto,
    /// Kiln denies what fails; what passes waits for a person.
    Hold,
    /// Kiln approves only what a person names, and denies nothing.
    Manual,
    /// Kiln only says what it would do.
    Observe,
}

/// A word that is no mode or no proof.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` is not one of {known}")]
pub struct UnknownWord {
    given: String,
    known: &'static str,
}

impl FromStr for Mode {
    type Err = UnknownWord;
    fn from_str(text: &str) -> Result<Mode, UnknownWord> {
        match text {
            "auto" => Ok(Mode::Auto),
            "hold" => Ok(Mode::Hold),
            "manual" => Ok(Mode::Manual),
            "observe" => Ok(Mode::Observe),
            _ => Err(UnknownWord { given: text.to_owned(), known: "auto, hold, manual, observe" }),
        }
    }
}

impl Mode {
    /// What becomes of a verdict in this mode, with or without a person who vouches for the request.
    ///
    /// A person can vouch for what is held, never for what is denied.
    pub(super) fn settle(self, verdict: Verdict, vouched: bool) -> Verdict {
        match (self, verdict) {
            (_, leave @ Verdict::Leave { .. }) => leave,
            (Mode::Observe, Verdict::Approve { check, message }) => Verdict::hold(
                Check::Mode,
                format!("the pool is only observed; it would be approved ({check}: {message})"),
            ),
            (Mode::Observe, Verdict::Deny { check, message }) => {
                Verdict::hold(check, format!("the pool is only observed; it would be denied: {message}"))
            }
            (Mode::Observe, hold @ Verdict::Hold { .. }) => hold,
            (_, Verdict::Hold { check, message }) if vouched => {
                Verdict::Approve { check, message: format!("a person vouches for it ({message})") }
            }
            (Mode::Manual, Verdict::Deny { check, message }) => {
                Verdict::hold(check, format!("the pool is approved by hand; it would be denied: {message}"))
            }
            (Mode::Hold | Mode::Manual, Verdict::Approve { check, message }) if !vouched => {
                Verdict::hold(Check::Mode, format!("it passes ({check}: {message}) and waits for `kiln approve`"))
            }
            (_, verdict) => verdict,
        }
    }
}

/// What must prove that a request comes from the host it names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Proof {
    /// Its own user or its own key.
    #[default]
    Key,
    /// That it fetched its config with its own token a short while ago. Whoever has the nodes' shared bootstrap user can
    /// be faster than the host: for clusters in which that user is trusted.
    Fetched,
}

impl FromStr for Proof {
    type Err = UnknownWord;
    fn from_str(text: &str) -> Result<Proof, UnknownWord> {
        match text {
            "key" => Ok(Proof::Key),
            "fetched" => Ok(Proof::Fetched),
            _ => Err(UnknownWord { given: text.to_owned(), known: "key, fetched" }),
        }
    }
}

/// What is done with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It is approved.
    Approve {
        /// What bound it to the host.
        check: Check,
        /// Why.
        message: String,
    },
    /// It is denied, with the reason.
    Deny {
        /// What failed.
        check: Check,
        /// Why.
        message: String,
    },
    /// Nothing is done until something changes or a person vouches for it.
    Hold {
        /// What is missing.
        check: Check,
        /// Why.
        message: String,
    },
    /// It is none of Kiln's business.
    Leave {
        /// What says so.
        check: Check,
        /// Why.
        message: String,
    },
}

impl Verdict {
    pub(super) fn deny(check: Check, message: impl Into<String>) -> Verdict {
        Verdict::Deny { check, message: message.into() }
    }

    pub(super) fn hold(check: Check, message: impl Into<String>) -> Verdict {
        Verdict::Hold { check, message: message.into() }
    }

    pub(super) fn leave(check: Check, message: impl Into<String>) -> Verdict {
        Verdict::Leave { check, message: message.into() }
    }

    /// The word for a status.
    pub const fn name(&self) -> &'static str {
        match self {
            Verdict::Approve { .. } => "Approved",
            Verdict::Deny { .. } => "Denied",
            Verdict::Hold { .. } => "Held",
            Verdict::Leave { .. } => "Left",
        }
    }

    /// What decided.
    pub const fn check(&self) -> Check {
        match self {
            Verdict::Approve { check, .. }
            | Verdict::Deny { check, .. }
            | Verdict::Hold { check, .. }
            | Verdict::Leave { check, .. } => *check,
        }
    }

    /// Why.
    pub fn message(&self) -> &str {
        match self {
            Verdict::Approve { message, .. }
            | Verdict::Deny { message, .. }
            | Verdict::Hold { message, .. }
            | Verdict::Leave { message, .. } => message,
        }
    }
}
