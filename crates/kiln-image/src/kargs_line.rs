//! A line of kernel arguments: split as the kernel splits it, and edited word by word.
//!
//! The kernel splits at blanks outside double quotes. Deleting takes every word that is equal; a part of a word is never
//! touched. A line that is not edited keeps its spelling.

/// An edited line, and what could not be taken from it because it was not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edited {
    /// The new line.
    pub line: String,
    /// Arguments to delete that no word is equal to.
    pub missing: Vec<String>,
}

/// Takes arguments away, then adds others at the end.
pub fn edit<'a>(line: &'a str, delete: &[String], append: impl IntoIterator<Item = &'a String>) -> Edited {
    let present = split(line);
    let missing = delete.iter().filter(|karg| !present.contains(&karg.as_str())).cloned().collect();
    let mut kept: Vec<&str> = present.iter().filter(|word| !delete.iter().any(|karg| karg == *word)).copied().collect();
    let unchanged = kept.len();
    kept.extend(append.into_iter().map(String::as_str));
    let line = if unchanged == present.len() && kept.len() == unchanged { line.to_owned() } else { kept.join(" ") };
    Edited { line, missing }
}

/// The words of a line.
pub fn split(line: &str) -> Vec<&str> {
    let mut quoted = false;
    line.split(move |character: char| {
        quoted ^= character == '"';
        !quoted && character.is_ascii_whitespace()
    })
    .filter(|word| !word.is_empty())
    .collect()
}

/// Words of one list that another one lacks.
pub fn missing(of: &[String], from: &[String]) -> Vec<String> {
    of.iter().filter(|karg| !from.contains(karg)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_taken_whole_and_added_at_the_end() {
        let cases = [
            ("a  b", "", "", "a  b", ""),
            ("foo bar foobar foo", "foo", "", "bar foobar", ""),
            ("foo bar", "fo", "", "foo bar", "fo"),
            ("console=tty0", "console=tty0", "console=ttyS0", "console=ttyS0", ""),
            ("x=\"a b\" a", "a", "y", "x=\"a b\" y", ""),
            ("", "gone", "new", "new", "gone"),
        ];
        let owned = |words: &str| words.split_whitespace().map(str::to_owned).collect::<Vec<String>>();
        for (line, delete, append, expected, missing) in cases {
            let edited = edit(line, &owned(delete), &owned(append));
            assert_eq!(edited, Edited { line: expected.to_owned(), missing: owned(missing) }, "{line}");
        }
    }
}
