//! Typed reading of a [`Node`]: serde types that keep the place of every field, and all mistakes at once.
//!
//! [`read`] is a serde reader. `Sourced<T>` fields get value and place, `Node` fields take a free-form part as it is.
//! A value of the wrong type is reported and treated as absent, and reading goes on: a document with three mistakes
//! shows all three, and still gives a value when the broken fields are optional. Fields a type does not have are
//! warnings with the nearest known name.
//!
//! Types are as strict as the API server: `"24"` is no number and `24` is no string. `null` is an absent field, and in
//! lists and maps the empty value, as Go reads it.
//! Not for these types: `#[serde(flatten)]`, which loses places and hides unknown fields.

use std::cell::RefCell;
use std::collections::HashSet;

use serde::de::DeserializeOwned;

use crate::diagnostic::Diagnostic;

use super::Node;
use deserializer::{NodeDeserializer, Path};
use problem::Problem;

mod deserializer;
mod integer;
mod node;
mod problem;
mod sourced;
mod unknown;

/// Mistakes shown per document. Each costs one more pass over it.
const MAX_ROUNDS: usize = 100;

/// Reads a document into a type, as far as possible. Every mistake goes to `findings`, in the order of the text.
pub fn read<T: DeserializeOwned>(node: &Node, findings: &mut Vec<Diagnostic>) -> Option<T> {
    let state = State::default();
    let value = read_in_rounds(node, &state);
    let mut found = state.found.into_inner();
    found.sort_by_key(|diagnostic| diagnostic.at);
    findings.extend(found);
    value
}

/// Reads, sets the value that failed aside, and reads again, until nothing fails or nothing is left.
fn read_in_rounds<T: DeserializeOwned>(node: &Node, state: &State) -> Option<T> {
    for _ in 0..MAX_ROUNDS {
        let problem = match T::deserialize(NodeDeserializer::new(node, &Path::ROOT, state)) {
            Ok(value) => return Some(value),
            Err(problem) => problem,
        };
        state.note(&problem);
        if !state.set_aside(&problem, node) {
            return None;
        }
    }
    None
}

/// What the passes over one document share.
#[derive(Default)]
struct State {
    /// Values that are treated as absent, by address: the document does not move while it is read.
    aside: RefCell<HashSet<*const Node>>,
    found: RefCell<Vec<Diagnostic>>,
}

impl State {
    fn is_aside(&self, node: &Node) -> bool {
        self.aside.borrow().contains(&std::ptr::from_ref(node))
    }

    /// A field missing only because it was set aside has been reported already.
    fn note(&self, problem: &Problem) {
        if let Some(diagnostic) = problem.diagnostic() {
            self.warn(diagnostic);
        }
    }

    fn warn(&self, diagnostic: Diagnostic) {
        let mut found = self.found.borrow_mut();
        if !found.contains(&diagnostic) {
            found.push(diagnostic);
        }
    }

    /// Whether there is something left to read.
    fn set_aside(&self, problem: &Problem, root: &Node) -> bool {
        problem.node().is_some_and(|node| !std::ptr::eq(node, root) && self.aside.borrow_mut().insert(node))
    }
}

#[cfg(test)]
mod tests;
