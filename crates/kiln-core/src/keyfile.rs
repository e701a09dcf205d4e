//! NetworkManager keyfiles: one `.nmconnection` file as groups, keys and values.
//!
//! Reading follows GLib's `GKeyFile`, which NetworkManager uses: a group that appears twice is one group, of a key that
//! appears twice the last value counts, only `#` starts a comment, white space at the end of a value belongs to it.
//! Rendering is deterministic: comments and unknown keys keep their order, one blank line stands between groups, none
//! inside. `parse(render(x)) == x` for every `x`, and whatever is [`set`](Keyfile::set), the rendered text parses.
//!
//! Not here: what the keys mean ([`crate::network::profile`]) and writing files.
//! Surprising: a value with an unknown escape (`\x`) loads, but NetworkManager treats its key as absent; so does
//! [`Keyfile::get`]. Text that is not UTF-8 is refused although GLib only refuses it when the value is asked for.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

mod escape;
mod name;

/// The longest text that is read. Real keyfiles have a few kilobytes (certificates inside them a few more).
pub const LONGEST_TEXT: usize = 1 << 20;

/// One keyfile. Comments and unknown keys stay in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Keyfile {
    /// Comments before the first group, set off by a blank line. Empty in a file without groups.
    opening: Vec<String>,
    groups: Vec<Group>,
    /// Comments after the last group, set off by a blank line, or the whole of a file without groups.
    closing: Vec<String>,
}

/// One `[group]` with its lines.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Group {
    /// Comments directly above the header.
    above: Vec<String>,
    name: String,
    lines: Vec<Line>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Line {
    Comment(String),
    Entry { key: String, raw: String },
}

/// Why a text is not a keyfile. NetworkManager refuses the same file with a line in its log and goes on without it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct KeyfileError {
    /// One-based line.
    pub line: usize,
    /// What is wrong with it, and what to write instead.
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

/// Why NetworkManager passes over a file without reading it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Ignored {
    /// Group or others have any right on it.
    #[error("mode {0:04o} gives rights to group or others; NetworkManager loads a keyfile only with mode 0600 or less")]
    Mode(u32),
    /// Its name starts with a dot.
    #[error("NetworkManager skips files whose names start with `.`")]
    Hidden,
    /// `~`, or a dot and six letters or digits: what editors and mkstemp leave behind, and `.backup` or `.rpmnew`.
    #[error("NetworkManager skips files whose names end in `~` or in a dot and six letters or digits")]
    Leftover,
    /// 802.1X certificates and keys lie beside the profiles.
    #[error("NetworkManager takes `.pem` and `.der` files for certificates")]
    Certificate,
}

impl ConnectionFile {
    /// A file as Kiln writes it: mode 0600.
    pub fn new(name: impl Into<String>, keyfile: Keyfile) -> Self {
        ConnectionFile { name: name.into(), mode: 0o600, keyfile }
    }

    /// Why NetworkManager will not even read this file in `/etc/NetworkManager/system-connections`, if so.
    pub fn ignored(&self) -> Option<Ignored> {
        let random_ending = |ending: &str| ending.len() == 6 && ending.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let ending = self.name.rsplit_once('.').map(|(_, ending)| ending);
        if self.name.starts_with('.') {
            Some(Ignored::Hidden)
        } else if self.name.ends_with('~') || ending.is_some_and(random_ending) {
            Some(Ignored::Leftover)
        } else if matches!(ending, Some("pem" | "der")) {
            Some(Ignored::Certificate)
        } else {
            (self.mode & 0o077 != 0).then_some(Ignored::Mode(self.mode))
        }
    }
}

impl Keyfile {
    /// Reads a keyfile from the bytes of a file.
    pub fn parse_bytes(bytes: &[u8]) -> Result<Keyfile, KeyfileError> {
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let line = 1 + bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count();
            KeyfileError { line, reason: "it is not UTF-8; save the file as UTF-8".to_owned() }
        })?;
        Keyfile::parse(text)
    }

    /// Reads a keyfile.
    pub fn parse(text: &str) -> Result<Keyfile, KeyfileError> {
        if text.len() > LONGEST_TEXT {
            let reason = format!("the text has {} bytes; a keyfile may have {LONGEST_TEXT}", text.len());
            return Err(KeyfileError { line: 1, reason });
        }
        let mut reader = Reader::default();
        for (index, line) in text.split('\n').enumerate() {
            reader.line(line).map_err(|reason| KeyfileError { line: index + 1, reason })?;
        }
        Ok(reader.finish())
    }

    /// The exact text of the file.
    pub fn render(&self) -> String {
        self.to_string()
    }

    /// The value of a key with its escapes undone. `None` when it is absent or has an escape GLib does not know.
    pub fn get(&self, group: &str, key: &str) -> Option<Cow<'_, str>> {
        escape::unescape(self.raw(group, key)?)
    }

    /// The values of a list such as `dns=192.0.2.1;192.0.2.2;`. The last `;` may be missing.
    pub fn get_list(&self, group: &str, key: &str) -> Option<Vec<String>> {
        escape::unescape_list(self.raw(group, key)?)
    }

    /// The text behind the `=`, escapes and all.
    pub fn raw(&self, group: &str, key: &str) -> Option<&str> {
        self.group(group)?.lines.iter().find_map(|line| match line {
            Line::Entry { key: candidate, raw } if candidate == key => Some(raw.as_str()),
            _ => None,
        })
    }

    /// Sets a key, escaping its value; the group is made when it is missing.
    ///
    /// A file cannot hold every name: characters without a spelling become `_` (in names) or are left out (NUL in
    /// values).
    pub fn set(&mut self, group: &str, key: &str, value: &str) {
        self.set_raw(group, key, escape::escape(value));
    }

    /// Sets a key to a list, each element closed with `;` as NetworkManager writes it.
    pub fn set_list<T: AsRef<str>>(&mut self, group: &str, key: &str, values: impl IntoIterator<Item = T>) {
        self.set_raw(group, key, escape::escape_list(values));
    }

    /// Makes a group, perhaps to stay empty, unless it is there.
    pub fn add_group(&mut self, group: &str) {
        self.group_place(group);
    }

    /// Sets the comment the file begins with, without its `#`. A file without groups keeps none.
    pub fn set_opening(&mut self, comment: &str) {
        if !self.groups.is_empty() {
            self.opening = comment.lines().map(|line| format!("# {line}").trim_end().to_owned()).collect();
        }
    }

    /// Removes a key; its group stays.
    pub fn remove(&mut self, group: &str, key: &str) {
        for candidate in self.groups.iter_mut().filter(|candidate| candidate.name == group) {
            candidate.lines.retain(|line| !matches!(line, Line::Entry { key: found, .. } if found == key));
        }
    }

    /// Removes a group with its comments.
    pub fn remove_group(&mut self, group: &str) {
        self.groups.retain(|candidate| candidate.name != group);
        if self.groups.is_empty() {
            self.closing.splice(0..0, std::mem::take(&mut self.opening));
        }
    }

    /// The names of the groups in order.
    pub fn groups(&self) -> impl Iterator<Item = &str> {
        self.groups.iter().map(|group| group.name.as_str())
    }

    /// The keys of a group in order.
    pub fn keys(&self, group: &str) -> impl Iterator<Item = &str> {
        self.group(group).into_iter().flat_map(|group| &group.lines).filter_map(|line| match line {
            Line::Entry { key, .. } => Some(key.as_str()),
            Line::Comment(_) => None,
        })
    }

    fn group(&self, name: &str) -> Option<&Group> {
        self.groups.iter().find(|group| group.name == name)
    }

    fn group_place(&mut self, group: &str) -> usize {
        let name = name::spell_group(group);
        self.groups.iter().position(|candidate| candidate.name == name).unwrap_or_else(|| {
            self.groups.push(Group { name: name.into_owned(), ..Group::default() });
            self.groups.len() - 1
        })
    }

    /// Sets the text behind the `=`, which must come from another keyfile's [`Keyfile::raw`] or be escaped.
    pub(crate) fn set_raw(&mut self, group: &str, key: &str, value: String) {
        let index = self.group_place(group);
        let key = name::spell_key(key);
        let lines = &mut self.groups[index].lines;
        let known = lines.iter_mut().find_map(|line| match line {
            Line::Entry { key: candidate, raw } if *candidate == key => Some(raw),
            _ => None,
        });
        match known {
            Some(raw) => *raw = value,
            None => lines.push(Line::Entry { key: key.into_owned(), raw: value }),
        }
    }
}

impl fmt::Display for Keyfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.opening.iter().try_for_each(|comment| writeln!(f, "{comment}"))?;
        for (index, group) in self.groups.iter().enumerate() {
            if index > 0 || !self.opening.is_empty() {
                writeln!(f)?;
            }
            for comment in &group.above {
                writeln!(f, "{comment}")?;
            }
            writeln!(f, "[{}]", group.name)?;
            for line in &group.lines {
                match line {
                    Line::Comment(comment) => writeln!(f, "{comment}")?,
                    Line::Entry { key, raw } => writeln!(f, "{key}={raw}")?,
                }
            }
        }
        if !self.groups.is_empty() && !self.closing.is_empty() {
            writeln!(f)?;
        }
        self.closing.iter().try_for_each(|comment| writeln!(f, "{comment}"))
    }
}

/// What has been read so far.
#[derive(Default)]
struct Reader {
    keyfile: Keyfile,
    /// Where each group is, so that a second header of the same name continues it.
    group_index: HashMap<String, usize>,
    /// Where each key is, so that the last value counts. Keeps hostile files from taking quadratic time.
    key_index: HashMap<(usize, String), usize>,
    current: Option<usize>,
    /// Comments since the last blank line: they belong to the header that follows, if one does.
    pending: Vec<String>,
    after_blank: bool,
}

impl Reader {
    fn line(&mut self, line: &str) -> Result<(), String> {
        let line = line.trim_end_matches('\r').trim_start_matches(|c: char| c.is_ascii_whitespace());
        if line.contains('\0') {
            return Err("it has a NUL byte; is this really a text file?".to_owned());
        }
        if line.is_empty() {
            self.after_blank = true;
            if self.current.is_none() {
                self.keyfile.opening.append(&mut self.pending);
            }
            return Ok(());
        }
        if line.starts_with('#') {
            self.comment(line.trim_end_matches(|c: char| c.is_ascii_whitespace()));
            return Ok(());
        }
        if let Some(name) = name::header(line) {
            return self.header(name);
        }
        match line.split_once('=') {
            Some((key, value)) => self.entry(key, value),
            None if line.starts_with('[') => Err(format!("`{line}` is not a group; close it with `]` at the end")),
            None if line.starts_with(';') => Err(format!("`{line}`: a comment starts with `#`, not with `;`")),
            None => Err(format!("`{line}` is neither `key=value` nor `[group]`; start comments with `#`")),
        }
    }

    fn comment(&mut self, text: &str) {
        match self.current {
            Some(index) if !self.after_blank => {
                self.keyfile.groups[index].lines.push(Line::Comment(text.to_owned()));
            }
            _ => self.pending.push(text.to_owned()),
        }
    }

    fn header(&mut self, name: &str) -> Result<(), String> {
        if !name::is_group(name) {
            return Err(format!(
                "`[{name}]` is not a group name; it must not be empty nor have `[`, `]` or control characters"
            ));
        }
        let above = std::mem::take(&mut self.pending);
        let groups = &mut self.keyfile.groups;
        match self.group_index.get(name) {
            Some(index) => {
                groups[*index].lines.extend(above.into_iter().map(Line::Comment));
                self.current = Some(*index);
            }
            None => {
                self.group_index.insert(name.to_owned(), groups.len());
                self.current = Some(groups.len());
                groups.push(Group { above, name: name.to_owned(), lines: Vec::new() });
            }
        }
        self.after_blank = false;
        Ok(())
    }

    fn entry(&mut self, key: &str, value: &str) -> Result<(), String> {
        let key = key.trim_end_matches(|c: char| c.is_ascii_whitespace());
        if key.is_empty() {
            return Err(format!("`={value}` has no key; write `key={value}`"));
        }
        if !name::is_key(key) {
            return Err(format!("`{key}` is not a key name; `[` and `]` may only enclose a locale at its end"));
        }
        let Some(current) = self.current else {
            return Err(format!("`{key}` stands before the first group; put a line such as `[connection]` above it"));
        };
        let lines = &mut self.keyfile.groups[current].lines;
        lines.extend(std::mem::take(&mut self.pending).into_iter().map(Line::Comment));
        let raw = value.trim_start_matches(|c: char| c.is_ascii_whitespace()).to_owned();
        match self.key_index.get(&(current, key.to_owned())).map(|index| &mut lines[*index]) {
            Some(Line::Entry { raw: earlier, .. }) => *earlier = raw,
            _ => {
                self.key_index.insert((current, key.to_owned()), lines.len());
                lines.push(Line::Entry { key: key.to_owned(), raw });
            }
        }
        self.after_blank = false;
        Ok(())
    }

    fn finish(mut self) -> Keyfile {
        self.keyfile.closing = self.pending;
        if self.keyfile.groups.is_empty() {
            self.keyfile.closing.splice(0..0, std::mem::take(&mut self.keyfile.opening));
        }
        self.keyfile
    }
}

#[cfg(test)]
mod tests;
