//! Why a policy is refused, everywhere or on one node.

/// Why a policy is refused. Every variant says where or with whom, so that the reader can go there.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PolicyError {
    /// A field does not have the shape it must have.
    #[error("{at}: {why}")]
    Malformed {
        /// `spec.kiln.after[0]`.
        at: String,
        /// What is wrong.
        why: String,
    },
    /// `after` names nobody.
    #[error("{at}: there is no policy `{name}`")]
    UnknownAfter {
        /// `spec.kiln.after[0]`.
        at: String,
        /// The name.
        name: String,
    },
    /// Policies wait for each other.
    #[error("spec.kiln.after: policies wait for each other: {}", .0.join(" after "))]
    Cycle(Vec<String>),
    /// It stands on a policy that is refused.
    #[error("it needs policy `{0}`, which is refused on this node")]
    Needs(String),
    /// An older policy of its priority wants something else.
    #[error("{field}: policy `{other}` is older and wants {theirs}, this one wants {own}")]
    Conflict {
        /// `interfaces[bond0].mtu`.
        field: String,
        /// The older policy.
        other: String,
        /// What it wants.
        theirs: String,
        /// What this one wants.
        own: String,
    },
    /// A template cannot be filled in.
    #[error("{at}: {why}")]
    Template {
        /// `spec.desiredState.interfaces[0].name`.
        at: String,
        /// What is wrong.
        why: String,
    },
    /// The node has not published its state yet, and the policy depends on it.
    #[error("waits for the node's state, which {0} needs")]
    WaitsForState(String),
    /// A capture does not work on this node.
    #[error("spec.capture: {0}")]
    Capture(String),
    /// This program was built without nmstate's capture engine.
    #[error("spec.capture: this program was built without captures")]
    WithoutCaptures,
    /// A pool of addresses has no address for some nodes.
    #[error("{at}: pool `{pool}` has no address left for {}", .nodes.join(", "))]
    Exhausted {
        /// `spec.kiln.parameters.pools[0]`.
        at: String,
        /// The pool.
        pool: String,
        /// Nodes that got none, by name.
        nodes: Vec<String>,
    },
    /// nmstate does not take the document.
    #[error("spec.desiredState: nmstate refuses it: {0}")]
    Document(String),
}

impl PolicyError {
    /// Whether time heals it, without an edit.
    pub fn is_waiting(&self) -> bool {
        matches!(self, PolicyError::WaitsForState(_))
    }

    /// The field of the policy to look at, as in `spec.kiln.after[0]`.
    pub fn at(&self) -> Option<&str> {
        match self {
            PolicyError::Malformed { at, .. }
            | PolicyError::UnknownAfter { at, .. }
            | PolicyError::Template { at, .. }
            | PolicyError::Exhausted { at, .. } => Some(at),
            PolicyError::Cycle(_) => Some("spec.kiln.after"),
            PolicyError::Capture(_) | PolicyError::WithoutCaptures => Some("spec.capture"),
            PolicyError::Document(_) => Some("spec.desiredState"),
            PolicyError::Needs(_) | PolicyError::Conflict { .. } | PolicyError::WaitsForState(_) => None,
        }
    }
}

/// A field whose shape is wrong.
pub(super) fn malformed(at: impl Into<String>, why: impl Into<String>) -> PolicyError {
    PolicyError::Malformed { at: at.into(), why: why.into() }
}
