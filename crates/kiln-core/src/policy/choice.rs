//! Which nodes a policy chooses: upstream's `nodeSelector` and Kiln's full label selector, which must both agree.

use std::collections::BTreeMap;

/// Chooses nodes. Everything that is written must hold; what is empty asks for nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeChoice {
    /// `nodeSelector` and `matchLabels`: labels with exactly these values.
    pub labels: Vec<(String, String)>,
    /// One of these nodes.
    pub names: Vec<String>,
    /// `matchExpressions`.
    pub expressions: Vec<Requirement>,
}

/// One of `matchExpressions`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// The label.
    pub key: String,
    /// What is asked of it.
    pub operator: Operator,
    /// For `In` and `NotIn`.
    pub values: Vec<String>,
}

/// What is asked of a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// It has one of the values.
    In,
    /// It is absent or has none of the values.
    NotIn,
    /// It is there.
    Exists,
    /// It is not.
    DoesNotExist,
}

impl NodeChoice {
    /// Whether it chooses a node, by the rules of Kubernetes.
    pub fn matches(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        (self.names.is_empty() || self.names.iter().any(|chosen| chosen == name))
            && self.labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.expressions.iter().all(|requirement| {
                let found = labels.get(&requirement.key);
                let listed = found.is_some_and(|value| requirement.values.contains(value));
                match requirement.operator {
                    Operator::In => listed,
                    Operator::NotIn => !listed,
                    Operator::Exists => found.is_some(),
                    Operator::DoesNotExist => found.is_none(),
                }
            })
    }
}
