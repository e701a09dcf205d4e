//! Files, directories and links: each alone, and all together.

use std::collections::HashMap;

use super::resource::Source;
use super::{Check, clean_path, integer, is_true, items, place, text};
use crate::diagnostic::{Code, Diagnostic, Severity};
use crate::document::Node;

const MODE: Code = Code(411);
const SPECIAL_BITS: Code = Code(412);
const OWNER: Code = Code(413);
const OVERWRITE: Code = Code(414);
const DUPLICATE: Code = Code(418);
const THROUGH_LINK: Code = Code(419);
const LINK_TARGET: Code = Code(420);
const UNIT_PATH: Code = Code(435);
const HARD_LINK_OWNER: Code = Code(437);
const SPEC_TWO: Code = Code(438);

pub(super) fn check(check: &mut Check<'_>) {
    for (list, called) in LISTS {
        for node in check.list(&["storage", list]) {
            check.path(node, "path", called);
            check.mode(node, called);
            check.owner(node, "user", called);
            check.owner(node, "group", called);
            if check.is_v2() {
                check.filesystem_reference(node, called);
            }
        }
    }
    check.files();
    check.links();
    check.same_paths();
    check.below_links();
    check.unit_paths();
}

const LISTS: [(&str, &str); 3] = [("files", "file"), ("directories", "directory"), ("links", "link")];

impl Check<'_> {
    fn mode(&mut self, node: &Node, called: &str) {
        let Some(mode) = integer(node, "mode") else { return };
        if !(0..=0o7777).contains(&mode) {
            let help = match i64::from_str_radix(&mode.to_string(), 8) {
                Ok(octal) => format!("if octal {mode} was meant, write {octal}"),
                Err(_) => "write the mode in decimal: 420 is octal 0644, 384 is octal 0600".to_owned(),
            };
            self.report(
                Diagnostic::new(
                    MODE,
                    place(node, "mode"),
                    format!("mode {mode} of the {called} is outside 0 to 4095 (octal 7777)"),
                )
                .cause("a mode is a decimal number of at most twelve bits")
                .help(help),
            );
        } else if mode > 0o777 && !self.since_3(6) {
            let plain = mode & 0o777;
            self.report(
                Diagnostic::new(
                    SPECIAL_BITS,
                    place(node, "mode"),
                    format!("mode {mode} (octal {mode:o}) of the {called} has set-uid, set-gid or sticky bits"),
                )
                .cause(format!(
                    "an Ignition that reads spec {} leaves these bits off; they are honoured from spec 3.6.0 on",
                    self.version
                ))
                .help(format!("write {plain} (octal {plain:o}), or set the bits by a systemd-tmpfiles line")),
            );
        }
    }

    fn owner(&mut self, node: &Node, key: &str, called: &str) {
        let Some(owner) = node.get(key) else { return };
        if owner.get("id").is_some() && !text(owner, "name").is_empty() {
            self.report(
                Diagnostic::new(OWNER, owner.at, format!("the {key} of the {called} is given by id and by name"))
                    .cause("the two might disagree, so Ignition accepts only one")
                    .help("remove `id` or `name`"),
            );
        }
    }

    fn files(&mut self) {
        for file in self.list(&["storage", "files"]) {
            let contents = file.get("contents");
            if let Some(contents) = contents {
                self.resource(contents, Source::Optional, "contents of the file");
            }
            for part in items(file, "append") {
                self.resource(part, Source::Optional, "contents to append");
            }
            if self.is_v2() {
                self.append_and_overwrite(file);
            } else if is_true(file, "overwrite") && contents.and_then(|contents| contents.get("source")).is_none() {
                self.report(
                    Diagnostic::new(OVERWRITE, place(file, "overwrite"), format!("`{}` is to be overwritten, but with nothing", text(file, "path")))
                        .cause("with `overwrite` Ignition removes an existing file and writes the contents, so it wants a source")
                        .help("add `\"contents\": {\"source\": \"data:,…\"}` (an empty source makes an empty file), or remove `overwrite`"),
                );
            }
        }
    }

    fn append_and_overwrite(&mut self, file: &Node) {
        if is_true(file, "append") && is_true(file, "overwrite") {
            self.report(
                Diagnostic::new(
                    OVERWRITE,
                    place(file, "append"),
                    format!("`{}` is to be overwritten and appended to", text(file, "path")),
                )
                .cause("spec 2 cannot do both")
                .help("remove `append` or `overwrite`"),
            );
        }
    }

    /// Spec 2 names the file system each node is on; `root` is always there.
    fn filesystem_reference(&mut self, node: &Node, called: &str) {
        let name = text(node, "filesystem");
        let known = name == "root" || self.list(&["storage", "filesystems"]).iter().any(|fs| text(fs, "name") == name);
        if name.is_empty() || !known {
            let message = match name {
                "" => format!("the {called} does not say which file system it is on"),
                name => format!("the {called} is on the file system `{name}`, which the config does not define"),
            };
            self.report(
                Diagnostic::new(SPEC_TWO, place(node, "filesystem"), message)
                    .cause(
                        "in spec 2 every file, directory and link names its file system; `root` is the machine's own",
                    )
                    .help("write `\"filesystem\": \"root\"`"),
            );
        }
    }

    fn links(&mut self) {
        let directories = self.list(&["storage", "directories"]);
        for link in self.list(&["storage", "links"]) {
            let (path, target) = (text(link, "path"), text(link, "target"));
            if target.is_empty() {
                let severity = if self.since_3(3) { Severity::Error } else { Severity::Warning };
                self.report(
                    Diagnostic::new(LINK_TARGET, place(link, "target"), format!("the link `{path}` has no target"))
                        .cause("spec 3.3.0 and later refuse it; earlier ones accept it and fail at boot")
                        .help("add `\"target\": \"/path\"`")
                        .severity(severity),
                );
            } else if is_true(link, "hard") {
                self.hard_link(link, path, target, directories);
            }
        }
    }

    fn hard_link(&mut self, link: &Node, path: &str, target: &str, directories: &[Node]) {
        // Ignition's check takes a relative target to start at the link itself, though the link would start beside it.
        let checked =
            if target.starts_with('/') { clean_path(target) } else { clean_path(&format!("{path}/{target}")) };
        let real =
            if target.starts_with('/') { clean_path(target) } else { clean_path(&format!("{path}/../{target}")) };
        if let Some(directory) =
            directories.iter().find(|directory| [&checked, &real].contains(&&text(directory, "path").to_owned()))
        {
            let severity = if text(directory, "path") == checked { Severity::Error } else { Severity::Warning };
            self.report(
                Diagnostic::new(
                    THROUGH_LINK,
                    place(link, "target"),
                    format!("the hard link `{path}` points to the directory `{target}`"),
                )
                .cause("Linux has no hard links to directories")
                .help("remove `hard`, which makes it a symbolic link")
                .severity(severity)
                .related(directory.at, "the directory is made here"),
            );
        }
        if let Some(owner) =
            ["user", "group"].into_iter().filter_map(|key| link.get(key)).find(|owner| !owner.entries().is_empty())
        {
            self.report(
                Diagnostic::new(HARD_LINK_OWNER, owner.at, format!("the owner of the hard link `{path}` is ignored"))
                    .cause("a hard link is another name of the same file and has the file's owner")
                    .help("remove `user` and `group`, and set them on the file"),
            );
        }
    }

    /// Files, directories and links share the space of paths. In spec 2 the last one won.
    fn same_paths(&mut self) {
        let severity = if self.is_v2() { Severity::Warning } else { Severity::Error };
        let mut seen: HashMap<(&str, &str), (&Node, &str)> = HashMap::new();
        for (list, called) in LISTS {
            for node in self.list(&["storage", list]) {
                let key = (text(node, "filesystem"), text(node, "path"));
                let Some((first, first_called)) = seen.get(&key) else {
                    seen.insert(key, (node, called));
                    continue;
                };
                let message = match called == *first_called {
                    true => format!("the {called} `{}` is defined twice", key.1),
                    false => format!("`{}` is defined as a {first_called} and as a {called}", key.1),
                };
                let finding = Diagnostic::new(DUPLICATE, node.at, message)
                    .cause("within one config a path belongs to one file, directory or link; only a merged config may redefine it")
                    .help("merge the two entries into one, or remove one")
                    .severity(severity)
                    .related(first.at, "first defined here");
                self.report(finding);
            }
        }
    }

    /// Nothing may be written through a link of the same config: it might not be there yet.
    fn below_links(&mut self) {
        let links: HashMap<&str, &Node> = self
            .list(&["storage", "links"])
            .iter()
            .map(|link| (text(link, "path"), link))
            .filter(|(path, _)| !path.is_empty())
            .collect();
        for (list, called) in LISTS {
            for node in self.list(&["storage", list]) {
                let path = text(node, "path");
                let Some(link) = path.rmatch_indices('/').find_map(|(at, _)| links.get(&path[..at])) else { continue };
                let finding = Diagnostic::new(
                    THROUGH_LINK,
                    place(node, "path"),
                    format!("the {called} `{path}` is below the link `{}`", text(link, "path")),
                )
                .cause("Ignition refuses to write through a link that the same config makes")
                .help("write the path the link points to")
                .related(link.at, "the link is made here");
                self.report(finding);
            }
        }
    }

    /// Ignition writes units itself; a file at the same place would be lost or overwrite it.
    fn unit_paths(&mut self) {
        let mut units: HashMap<String, &Node> = HashMap::new();
        for unit in self.list(&["systemd", "units"]) {
            let path = format!("/etc/systemd/system/{}", text(unit, "name"));
            for dropin in items(unit, "dropins").iter().filter(|dropin| !text(dropin, "contents").is_empty()) {
                units.insert(format!("{path}.d/{}", text(dropin, "name")), dropin);
            }
            if !text(unit, "contents").is_empty() {
                units.insert(path, unit);
            }
        }
        let severity = if self.since_3(4) { Severity::Error } else { Severity::Warning };
        for (list, called) in LISTS {
            for node in self.list(&["storage", list]) {
                let path = text(node, "path");
                let Some(unit) = units.get(path) else { continue };
                self.report(
                    Diagnostic::new(
                        UNIT_PATH,
                        place(node, "path"),
                        format!("the {called} `{path}` is where Ignition writes a unit of this config"),
                    )
                    .cause("spec 3.4.0 and later refuse this; earlier ones stop at boot or lose one of the two")
                    .help("keep either the unit or the file")
                    .severity(severity)
                    .related(unit.at, "the unit"),
                );
            }
        }
    }
}
