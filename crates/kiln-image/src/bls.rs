//! Boot Loader Specification entries: which kernel and initramfs are started, and with which arguments.
//!
//! Editing changes nothing but the `options` lines; every other byte stays, comments and blanks included.
//! GRUB joins several `options` lines, and so does this. `$ignition_firstboot` is a variable of GRUB and an argument like
//! any other here.
//!
//! Not here: which entries there are and where they lie, see [`crate::coreos`].

use crate::ImageError;
use crate::kargs_line::split;

/// One boot entry, as its file says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootEntry {
    text: String,
}

/// An edited entry and what is worth telling about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EditedEntry {
    /// The new text.
    pub text: String,
    /// Arguments to delete that the entry did not have.
    pub absent: Vec<String>,
    /// Arguments to append that the entry already had.
    pub present: Vec<String>,
}

impl BootEntry {
    /// Takes the bytes of an entry's file, which must be text.
    pub fn parse(name: &str, bytes: Vec<u8>) -> Result<Self, ImageError> {
        let text = String::from_utf8(bytes).map_err(|_| ImageError::damaged(part(name), "it is not text (UTF-8)"))?;
        let entry = BootEntry { text };
        if entry.values("options").next().is_none() {
            return Err(ImageError::damaged(part(name), "it has no `options` line"));
        }
        // What is added behind an open quote would become a part of the argument before it.
        if entry.values("options").any(|options| options.matches('"').count() % 2 != 0) {
            return Err(ImageError::damaged(part(name), "the double quotes of its kernel arguments do not pair"));
        }
        Ok(entry)
    }

    /// What the menu shows, e.g. `Fedora CoreOS 44.20261101.3.0 (ostree:0)`.
    pub fn title(&self) -> Option<&str> {
        self.values("title").next()
    }

    /// The kernel arguments in order.
    pub fn kargs(&self) -> Vec<&str> {
        self.values("options").flat_map(split).collect()
    }

    /// The initramfs files in order, as the entry names them.
    pub fn initrds(&self) -> Vec<&str> {
        self.values("initrd").flat_map(str::split_whitespace).collect()
    }

    /// Takes arguments away, everywhere they stand, and then adds those that are missing at the end.
    pub fn edit_kargs(&self, append: &[String], delete: &[String]) -> EditedEntry {
        let kargs = self.kargs();
        let absent = delete.iter().filter(|karg| !kargs.contains(&karg.as_str())).cloned().collect();
        let stays = |karg: &str| !delete.iter().any(|deleted| deleted == karg);
        let mut missing: Vec<&str> = Vec::new();
        let mut present = Vec::new();
        for karg in append {
            let there = kargs.contains(&karg.as_str()) && stays(karg);
            if there {
                present.push(karg.clone());
            } else {
                missing.push(karg);
            }
        }
        let lines: Vec<&str> = self.text.split_inclusive('\n').collect();
        let last = lines.iter().rposition(|line| value(line, "options").is_some());
        let mut text = String::with_capacity(self.text.len() + 256);
        for (number, line) in lines.iter().enumerate() {
            let more: &[&str] = if Some(number) == last { &missing } else { &[] };
            match value(line, "options") {
                Some(options) if !more.is_empty() || !split(options).into_iter().all(stays) => {
                    let kept: Vec<&str> =
                        split(options).into_iter().filter(|karg| stays(karg)).chain(more.iter().copied()).collect();
                    let start = line.len() - line.trim_start_matches("options").trim_start_matches([' ', '\t']).len();
                    let end = &line[line.trim_end_matches(['\r', '\n']).len()..];
                    text.push_str(&line[..start]);
                    text.push_str(&kept.join(" "));
                    text.push_str(end);
                }
                _ => text.push_str(line),
            }
        }
        EditedEntry { text, absent, present }
    }

    fn values<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.text.lines().filter_map(move |line| value(line, key))
    }
}

/// How an entry is called in messages.
pub fn part(name: &str) -> String {
    format!("boot entry `{name}`")
}

/// What follows a key at the start of a line.
fn value<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let rest = line.strip_prefix(key)?;
    // The same blanks that part arguments: else one at the edge would change an argument beside it.
    rest.starts_with([' ', '\t']).then(|| rest.trim_matches(|edge: char| edge.is_ascii_whitespace()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "title Fedora CoreOS 44 (ostree:0)\r\nversion 1\noptions\trw  $ignition_firstboot console=tty0 \
                        dyndbg=\"file a +p\" console=tty0\n# kept \nlinux /ostree/a/vmlinuz\ninitrd /ostree/a/initramfs.img /b";

    fn owned(kargs: &[&str]) -> Vec<String> {
        kargs.iter().map(|karg| (*karg).to_owned()).collect()
    }

    #[test]
    fn an_entry_says_what_is_started_and_how() {
        let entry = BootEntry::parse("a.conf", TEXT.into()).unwrap();
        assert_eq!(entry.title(), Some("Fedora CoreOS 44 (ostree:0)"));
        let kargs = ["rw", "$ignition_firstboot", "console=tty0", "dyndbg=\"file a +p\"", "console=tty0"];
        assert_eq!(entry.kargs(), kargs);
        assert_eq!(entry.initrds(), ["/ostree/a/initramfs.img", "/b"]);
        let refused = BootEntry::parse("a.conf", b"title a\n".to_vec()).unwrap_err().to_string();
        assert_eq!(refused, "boot entry `a.conf` is damaged: it has no `options` line");
        let refused = BootEntry::parse("a.conf", b"options a=\"b\n".to_vec()).unwrap_err().to_string();
        let expected = "boot entry `a.conf` is damaged: the double quotes of its kernel arguments do not pair";
        assert_eq!(refused, expected);
        let refused = BootEntry::parse("a.conf", vec![0xff]).unwrap_err().to_string();
        assert_eq!(refused, "boot entry `a.conf` is damaged: it is not text (UTF-8)");
    }

    #[test]
    fn only_the_options_line_changes() {
        let entry = BootEntry::parse("a.conf", TEXT.into()).unwrap();
        let edited = entry.edit_kargs(&owned(&["rw", "ip=dhcp", "console=tty0"]), &owned(&["console=tty0", "quiet"]));
        let expected = TEXT.replace(
            "rw  $ignition_firstboot console=tty0 dyndbg=\"file a +p\" console=tty0",
            "rw $ignition_firstboot dyndbg=\"file a +p\" ip=dhcp console=tty0",
        );
        assert_eq!(edited.text, expected);
        assert_eq!((edited.absent, edited.present), (owned(&["quiet"]), owned(&["rw"])));
        assert_eq!(entry.edit_kargs(&[], &[]).text, TEXT);
        assert_eq!(entry.edit_kargs(&owned(&["rw"]), &[]).text, TEXT);
    }

    #[test]
    fn a_blank_that_parts_no_arguments_belongs_to_one() {
        let entry = BootEntry::parse("a.conf", b"options rw \x0brw\n".to_vec()).unwrap();
        assert_eq!(entry.kargs(), ["rw", "\u{b}rw"]);
        let edited = entry.edit_kargs(&[], &owned(&["rw"])).text;
        assert_eq!(BootEntry::parse("a.conf", edited.into_bytes()).unwrap().kargs(), ["\u{b}rw"]);
    }

    #[test]
    fn several_options_lines_are_one_list() {
        let text = "options a b\noptions c";
        let entry = BootEntry::parse("a.conf", text.into()).unwrap();
        assert_eq!(entry.kargs(), ["a", "b", "c"]);
        assert_eq!(entry.edit_kargs(&owned(&["d"]), &owned(&["a"])).text, "options b\noptions c d");
    }
}
