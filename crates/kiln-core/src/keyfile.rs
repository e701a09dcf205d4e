//! NetworkManager keyfiles: one `.nmconnection` file as groups, keys and values.

use std::borrow::Cow;

/// One keyfile. Comments and unknown keys stay where they were.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Keyfile {
    groups: Vec<Group>,
}

/// One `[group]` with its lines.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Group {
    name: String,
    lines: Vec<Line>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Line {
    Comment(String),
    Entry { key: String, raw: String },
}

/// Why a text is not a keyfile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct KeyfileError {
    /// One-based line.
    pub line: usize,
    /// What is wrong with it.
    pub reason: String,
}

/// A keyfile with the name and mode it has, or will have, on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionFile {
    /// `bond0.nmconnection`.
    pub name: String,
    /// Permission bits. NetworkManager ignores a file with any of 0o077.
    pub mode: u32,
    /// What is in it.
    pub keyfile: Keyfile,
}

impl Keyfile {
    /// Reads a keyfile.
    pub fn parse(text: &str) -> Result<Keyfile, KeyfileError> {
        let mut keyfile = Keyfile::default();
        for (index, line) in text.lines().enumerate() {
            let refuse = |reason: &str| KeyfileError { line: index + 1, reason: reason.to_owned() };
            let trimmed = line.trim();
            if let Some(name) = trimmed.strip_prefix('[') {
                let name = name.strip_suffix(']').ok_or_else(|| refuse("a group needs its closing `]`"))?;
                keyfile.groups.push(Group { name: name.to_owned(), lines: Vec::new() });
                continue;
            }
            if trimmed.is_empty() {
                continue;
            }
            let group = keyfile.groups.last_mut().ok_or_else(|| refuse("a key before the first `[group]`"))?;
            group.lines.push(match trimmed.split_once('=') {
                _ if trimmed.starts_with('#') => Line::Comment(trimmed.to_owned()),
                Some((key, raw)) => Line::Entry { key: key.trim_end().to_owned(), raw: raw.trim_start().to_owned() },
                None => return Err(refuse("neither `key=value` nor `[group]` nor a comment")),
            });
        }
        Ok(keyfile)
    }

    /// The exact bytes of the file.
    pub fn render(&self) -> String {
        let mut text = String::new();
        for group in &self.groups {
            if !text.is_empty() {
                text.push('\n');
            }
            text.extend(["[", &group.name, "]\n"]);
            for line in &group.lines {
                match line {
                    Line::Comment(comment) => text.extend([comment, "\n"]),
                    Line::Entry { key, raw } => text.extend([key, "=", raw, "\n"]),
                }
            }
        }
        text
    }

    /// The value of a key, with its escapes undone.
    pub fn get(&self, group: &str, key: &str) -> Option<Cow<'_, str>> {
        let lines = self.groups.iter().filter(|candidate| candidate.name == group).flat_map(|group| &group.lines);
        lines.rev().find_map(|line| match line {
            Line::Entry { key: candidate, raw } if candidate == key => Some(Cow::Borrowed(raw.as_str())),
            _ => None,
        })
    }

    /// Sets a key, escaping its value; the group is made when it is missing.
    pub fn set(&mut self, group: &str, key: &str, value: &str) {
        let index = self.groups.iter().position(|candidate| candidate.name == group).unwrap_or_else(|| {
            self.groups.push(Group { name: group.to_owned(), lines: Vec::new() });
            self.groups.len() - 1
        });
        let lines = &mut self.groups[index].lines;
        let known = lines.iter_mut().find_map(|line| match line {
            Line::Entry { key: candidate, raw } if candidate == key => Some(raw),
            _ => None,
        });
        match known {
            Some(raw) => *raw = value.to_owned(),
            None => lines.push(Line::Entry { key: key.to_owned(), raw: value.to_owned() }),
        }
    }

    /// Removes a key; its group stays.
    pub fn remove(&mut self, group: &str, key: &str) {
        for candidate in self.groups.iter_mut().filter(|candidate| candidate.name == group) {
            candidate.lines.retain(|line| !matches!(line, Line::Entry { key: found, .. } if found == key));
        }
    }
}
