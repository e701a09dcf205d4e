//! systemd unit files, as far as Ignition reads them.
//!
//! Ignition only wants to know whether a text is a unit file and whether it has an `[Install]` section with an option in it.
//! The reader is the one of the go-systemd library and as odd: words in front of the first section are skipped, a section
//! name may contain line breaks, a comment that ends with a backslash goes on, and no line may have 2048 bytes.

/// The longest line Ignition reads, without its line break.
const MAX_LINE: usize = 2047;

/// Why Ignition refuses a unit text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UnitSyntaxError {
    /// One-based line of the unit text.
    pub line: usize,
    /// What is wrong there.
    pub reason: String,
}

/// The sections that have at least one option, in order of appearance.
pub(super) fn sections(text: &str) -> Result<Vec<&str>, UnitSyntaxError> {
    if let Some((line, bytes)) = text.split('\n').enumerate().find(|(_, line)| line.len() > MAX_LINE) {
        let reason = format!("the line has {} bytes, more than {MAX_LINE}", bytes.len());
        return Err(UnitSyntaxError { line: line + 1, reason });
    }
    let mut reader = Reader { text, at: 0 };
    let mut sections = Vec::new();
    if !reader.skip_to_first_section() {
        return Ok(sections);
    }
    let mut section = reader.section_name()?;
    while let Some(next) = reader.next_item()? {
        match next {
            Item::Section(name) => section = name,
            Item::Option => {
                if sections.last() != Some(&section) {
                    sections.push(section);
                }
            }
        }
    }
    Ok(sections)
}

enum Item<'a> {
    Section(&'a str),
    Option,
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    /// Everything in front of the first `[` is skipped, comments line by line.
    fn skip_to_first_section(&mut self) -> bool {
        while let Some(letter) = self.rest().chars().next() {
            self.at += letter.len_utf8();
            match letter {
                '[' => return true,
                '#' | ';' => self.skip_comment(),
                _ => {}
            }
        }
        false
    }

    /// Reads behind `[`.
    fn section_name(&mut self) -> Result<&'a str, UnitSyntaxError> {
        let start = self.at;
        let Some(length) = self.rest().find(']') else {
            return Err(self.error(start - 1, "a section name is not closed with `]`"));
        };
        let name = &self.rest()[..length];
        self.at += length + 1;
        let behind = self.at;
        if !self.line().trim().is_empty() {
            return Err(self.error(behind, format!("something follows the section name `[{name}]` on its line")));
        }
        Ok(name)
    }

    fn next_item(&mut self) -> Result<Option<Item<'a>>, UnitSyntaxError> {
        loop {
            let Some(letter) = self.rest().chars().next() else { return Ok(None) };
            match letter {
                space if space.is_whitespace() => self.at += space.len_utf8(),
                '[' => {
                    self.at += 1;
                    return self.section_name().map(|name| Some(Item::Section(name)));
                }
                '#' | ';' => {
                    self.at += 1;
                    self.skip_comment();
                }
                _ => return self.option().map(|()| Some(Item::Option)),
            }
        }
    }

    fn option(&mut self) -> Result<(), UnitSyntaxError> {
        let start = self.at;
        let name = self.rest().find(['=', '\n', '\r']);
        let Some(length) = name.filter(|at| self.rest().as_bytes()[*at] == b'=') else {
            let line = self.rest().lines().next().unwrap_or_default().trim_end();
            return Err(self.error(start, format!("the line `{}` has no `=`", shortened(line))));
        };
        self.at += length + 1;
        while self.line().ends_with('\\') {}
        Ok(())
    }

    /// A comment goes on in the next line if it ends with a backslash.
    fn skip_comment(&mut self) {
        loop {
            let line = self.line();
            if !line.strip_suffix(' ').unwrap_or(line).ends_with('\\') {
                return;
            }
        }
    }

    /// The rest of the line; the reader moves behind its line break.
    fn line(&mut self) -> &'a str {
        let rest = self.rest();
        let (line, next) = rest.split_once('\n').map_or((rest, rest.len()), |(line, _)| (line, line.len() + 1));
        self.at += next;
        line
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn error(&self, offset: usize, reason: impl Into<String>) -> UnitSyntaxError {
        UnitSyntaxError { line: self.text[..offset].matches('\n').count() + 1, reason: reason.into() }
    }
}

fn shortened(line: &str) -> String {
    if line.chars().count() <= 40 { line.to_owned() } else { line.chars().take(39).chain(['…']).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn unit_texts_are_read_as_go_systemd_reads_them() {
        for (text, expected) in [
            ("", Ok(vec![])),
            ("words", Ok(vec![])),
            ("words [Unit]\nA=b", Ok(vec!["Unit"])),
            ("[Unit]\nA=b\n[Install]\nB=c\n", Ok(vec!["Unit", "Install"])),
            ("[Unit]\nA=b \\\n  c\n[Install]\n", Ok(vec!["Unit"])),
            ("[Unit]\n# x \\\nA\n", Ok(vec![])),
            ("[Unit", Err((1, "a section name is not closed with `]`"))),
            ("[Unit] x", Err((1, "something follows the section name `[Unit]` on its line"))),
            ("[Unit]\nA\n", Err((2, "the line `A` has no `=`"))),
            ("[Unit]\nA=b\nC", Err((3, "the line `C` has no `=`"))),
        ] {
            let found = sections(text);
            let found = found.as_ref().map_err(|error| (error.line, error.reason.as_str()));
            assert_eq!(found, expected.as_ref().map_err(|error| *error), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in "[\\[\\]a=\\\\#; \r\n\u{e9}]{0,40}") {
            let _ = sections(&text);
        }
    }
}
