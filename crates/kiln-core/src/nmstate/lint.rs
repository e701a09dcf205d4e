//! What a document says that the keyfiles will not, or that will not work as meant.
//!
//! nmstate checks most of this only against a live machine, or not at all. Each file looks at one side of the document;
//! the checks do not depend on one another and each finding has a code of its own.

use super::view::View;
use crate::diagnostic::Diagnostic;
use crate::world::NicMapping;

mod addresses;
mod bond;
mod lost;
mod routes;
mod topology;

pub use lost::known_mac;

/// Everything worth saying about a document.
pub fn lint(view: &View<'_>, nics: &[NicMapping]) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    lost::check(view, nics, &mut found);
    topology::check(view, nics, &mut found);
    addresses::check(view, &mut found);
    routes::check(view, &mut found);
    bond::check(view, &mut found);
    found
}

/// The known name nearest to a misspelt one.
pub fn nearest<'n>(name: &str, known: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let score = |candidate: &str| strsim::damerau_levenshtein(name, candidate);
    let best = known.into_iter().filter(|candidate| *candidate != name).min_by_key(|candidate| score(candidate))?;
    (score(best) <= 2 && score(best) < name.chars().count()).then_some(best)
}

/// The known interface whose name is nearest to a misspelt one. `eno2` and `eno3` are two NICs, not a slip of the pen.
pub fn nearest_interface<'n>(name: &str, known: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let digits = |name: &str| name.chars().filter(char::is_ascii_digit).collect::<String>();
    nearest(name, known.into_iter().filter(|candidate| digits(candidate) == digits(name)))
}
