//! Fields a type does not have, and the name that was probably meant.

use crate::diagnostic::{Code, Diagnostic};
use crate::document::Entry;

use super::deserializer::Path;

/// The warning about one unknown field of a mapping.
pub(super) fn unknown_field(entry: &Entry, path: &Path, fields: &'static [&'static str]) -> Diagnostic {
    let name = &*entry.key.value;
    let parent = path.to_string();
    let message = match parent.as_str() {
        "" => format!("unknown field `{name}`"),
        parent => format!("unknown field `{name}` in `{parent}`"),
    };
    let diagnostic = Diagnostic::new(Code(0010), entry.key.at, message);
    match nearest(name, fields) {
        Some(near) if plain(near) == plain(name) => diagnostic
            .cause("field names are case-sensitive; the API server drops a field it does not know")
            .help(format!("write `{near}`")),
        Some(near) => diagnostic
            .cause("the API server drops a field it does not know, or refuses the object")
            .help(format!("did you mean `{near}`?")),
        None => diagnostic
            .cause("the API server drops a field it does not know, or refuses the object")
            .help("remove it, or move it to the level where it belongs"),
    }
}

/// The known name nearest to a wrong one, if any is near enough to be meant.
pub(super) fn nearest(wrong: &str, known: &'static [&'static str]) -> Option<&'static str> {
    let wrong = plain(wrong);
    let allowed = (wrong.chars().count() / 3).max(1);
    known
        .iter()
        .map(|name| (strsim::damerau_levenshtein(&wrong, &plain(name)), *name))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
        .or_else(|| abbreviated(&wrong, known))
}

/// The known name that begins like the wrong one: `kernelArgs` for `kernelArguments`, `mac` for `macAddress`.
fn abbreviated(wrong: &str, known: &'static [&'static str]) -> Option<&'static str> {
    let shared = |name: &str| wrong.chars().zip(plain(name).chars()).take_while(|(a, b)| a == b).count();
    let needed = (wrong.chars().count() * 2).div_ceil(3).max(3);
    known.iter().copied().max_by_key(|name| shared(name)).filter(|name| shared(name) >= needed)
}

/// Without case, dashes and underscores, and not longer than any real name, so that comparing stays cheap.
fn plain(name: &str) -> String {
    name.chars().take(80).filter(|c| !matches!(c, '-' | '_')).flat_map(char::to_lowercase).collect()
}
