//! Where in the document the crate's complaint belongs.
//!
//! The crate gives a message without a place and stops at the first mistake, in an order that changes from run to run.
//! The place is found by leaving parts of the document out: the smallest part whose absence silences the complaint is to
//! blame. It is left out for good and the crate asked again, so that every mistake of a document is told at once.
//! The number of attempts is bounded; a document too large to search is blamed as a whole.

use ::nmstate::Interface;
use serde::Deserialize;
use serde_json::Value;

use super::convert::generate;
use super::lint::nearest;
use crate::diagnostic::{Code, Diagnostic, Severity};
use crate::document::Node;
use crate::source::{Location, Span};

/// How often the crate is asked about a small document; a large one costs more each time and is asked less often.
const ATTEMPTS: usize = 400;
/// How many mistakes are told about one document.
const MISTAKES: usize = 20;

/// Complaints that the checks before tell better, with a place in the document.
const COVERED: [(&str, Code); 6] = [
    ("maximum supported MTU", Code(0232)),
    ("is overbooked by two controller", Code(0214)),
    ("next hop interface", Code(0219)),
    ("disabled", Code(0229)),
    ("cannot have IP enabled", Code(0226)),
    ("option is", Code(0225)),
];

/// What to do about complaints that do not say it themselves.
const HINTS: [(&str, &str); 4] = [
    (
        "Autoconf without DHCP",
        "write `dhcp: true` beside `autoconf: true`; router advertisements still decide whether DHCPv6 is used",
    ),
    ("in the middle of", "list all name servers of one family first, then those of the other"),
    ("Missing 'vlan.base-iface'", "add `base-iface` with the name of the interface below"),
    ("up to 4 levels", "list controllers before their ports"),
];

/// One step into a document.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Key(String),
    Index(usize),
}

type Path = Vec<Step>;

/// Adds findings for a document the crate refused with `message`. What was already found is not told twice.
pub fn explain(document: &Node, json: &Value, message: String, found: &mut Vec<Diagnostic>) {
    let mut search = Search { json, left_out: Vec::new(), attempts: attempts(json) };
    let mut complaint = Some(message);
    while let Some(message) = complaint.take().filter(|_| search.left_out.len() < MISTAKES) {
        let path = search.culprit(&message);
        // A second complaint about the same interface is most likely a consequence of what was left out of it.
        let owner = path[..path.len().min(2)].to_vec();
        if search.left_out.contains(&owner) || (path.is_empty() && !search.left_out.is_empty()) {
            break;
        }
        if search.left_out.iter().any(|other| other.starts_with(&owner)) {
            search.left_out.push(owner);
        } else {
            let finding = describe(document, &path, &message);
            // Whatever is wrong with a route was said once, wherever in the route; an interface is larger than that.
            let whole = matches!(path.first(), Some(Step::Key(key)) if key.starts_with("route"));
            let around = place(document, if whole { &path[..path.len().min(3)] } else { &path }).value;
            let covered = COVERED
                .iter()
                .any(|(part, code)| message.contains(part) && found.iter().any(|known| known.code == *code));
            if !covered && !found.iter().any(|known| tells_same(known, around)) {
                found.push(finding);
            }
            if path.is_empty() {
                break;
            }
            search.left_out.push(path);
        }
        complaint = search.ask(Question::Document, None);
    }
}

fn attempts(json: &Value) -> usize {
    let interfaces = json.get("interfaces").and_then(Value::as_array).map_or(1, |list| list.len().max(1));
    (20_000 / interfaces).clamp(16, ATTEMPTS)
}

/// Whether a known error stands at the same place, around it or inside.
fn tells_same(known: &Diagnostic, at: Location) -> bool {
    let overlaps =
        |other: Location| at.file == other.file && (at.span.contains(other.span) || other.span.contains(at.span));
    let mut places = known.related.iter().map(|related| related.at).chain(known.at);
    known.severity == Severity::Error && places.any(overlaps)
}

struct Search<'j> {
    /// The whole document; paths lead into this one.
    json: &'j Value,
    /// Parts already blamed.
    left_out: Vec<Path>,
    /// How often the crate may still be asked.
    attempts: usize,
}

/// What the crate is asked about.
#[derive(Clone, Copy)]
enum Question {
    /// Whether it renders the document.
    Document,
    /// Whether it can read one interface.
    Interface(usize),
}

impl Search<'_> {
    /// What the crate says about the document without the parts already blamed, and without one more.
    fn ask(&mut self, question: Question, without: Option<&Path>) -> Option<String> {
        self.attempts = self.attempts.saturating_sub(1);
        if let Question::Interface(index) = question {
            let mut entry = self.json.get("interfaces")?.get(index)?.clone();
            remove(&mut entry, without.and_then(|path| path.get(2..)).unwrap_or_default());
            return shape_error(&entry);
        }
        let mut paths: Vec<&Path> = self.left_out.iter().chain(without).collect();
        // From the back, so that indices in front stay true.
        paths.sort_unstable_by(|a, b| b.cmp(a));
        let mut rest = self.json.clone();
        paths.into_iter().for_each(|path| remove(&mut rest, path));
        generate(&rest).err()
    }

    /// The smallest part whose absence silences the complaint; empty for the whole document.
    fn culprit(&mut self, message: &str) -> Path {
        let unreadable = self.unreadable(message);
        let (question, mut path) = match unreadable {
            Some(index) => (Question::Interface(index), interface_path(index)),
            None => (Question::Document, self.section(message).or_else(|| self.named(message)).unwrap_or_default()),
        };
        while let Some(child) = self.blamed_child(question, &path, message) {
            path.push(child);
        }
        path
    }

    /// The interface whose shape the message is about.
    fn unreadable(&self, message: &str) -> Option<usize> {
        let entries = self.json.get("interfaces")?.as_array()?;
        let blamed = |index: &usize| self.left_out.iter().any(|other| other.starts_with(&interface_path(*index)));
        let guilty = |index: &usize| shape_error(&entries[*index]).is_some_and(|error| error == message);
        (0..entries.len()).filter(|index| !blamed(index)).find(guilty)
    }

    /// The section beside `interfaces` to blame. Without one of them nothing else becomes wrong, so this is asked first.
    fn section(&mut self, message: &str) -> Option<Path> {
        let keys = self.json.as_object()?.keys().filter(|key| *key != "interfaces");
        let mut paths = keys.map(|key| vec![Step::Key(key.clone())]).collect::<Vec<_>>().into_iter();
        paths.find(|path| self.ask(Question::Document, Some(path)).as_deref() != Some(message))
    }

    /// An interface the message names: this keeps the search short in large documents.
    fn named(&mut self, message: &str) -> Option<Path> {
        let entries = self.json.get("interfaces")?.as_array()?;
        let named = |index: &usize| {
            entries[*index].get("name").and_then(Value::as_str).is_some_and(|name| mentions(message, name))
        };
        let suspects: Vec<usize> = (0..entries.len()).filter(named).take(8).collect();
        let mut paths = suspects.into_iter().map(interface_path);
        paths.find(|path| self.ask(Question::Document, Some(path)).as_deref() != Some(message))
    }

    /// The part of `path` that alone is to blame.
    fn blamed_child(&mut self, question: Question, path: &Path, message: &str) -> Option<Step> {
        let mut children: Vec<Step> = match at(self.json, path)? {
            Value::Object(entries) => entries.keys().cloned().map(Step::Key).collect(),
            Value::Array(items) => (0..items.len()).map(Step::Index).collect(),
            _ => return None,
        };
        // Without its type an interface is read more leniently, whatever is wrong with it: ask about that last.
        children.sort_by_key(|child| matches!(child, Step::Key(key) if key == "type" || key == "name"));
        // With another mistake elsewhere the crate never falls silent: then the part counts whose absence has the same
        // effect as the absence of everything around it.
        let without_all = self.ask(question, Some(path)).filter(|_| !path.is_empty());
        let (mut likely, mut doubtful) = (None, None);
        let (all, mut changed) = (children.len(), 0);
        for child in children {
            if self.attempts == 0 {
                return None;
            }
            let mut candidate = path.clone();
            candidate.push(child.clone());
            match self.ask(question, Some(&candidate)) {
                None => return Some(child),
                Some(other) if Some(&other) == without_all.as_ref() && other != message => {
                    likely.get_or_insert(child);
                }
                // Without a required field the crate complains about its absence, which says nothing about the field.
                Some(other) if other != message && !other.to_lowercase().contains("missing") => {
                    changed += 1;
                    doubtful.get_or_insert(child);
                }
                Some(_) => {}
            }
        }
        // A message that repeats the whole entry changes with each of its parts, which blames none of them.
        likely.or(doubtful.filter(|_| changed == 1 || changed < all))
    }
}

fn interface_path(index: usize) -> Path {
    vec![Step::Key("interfaces".to_owned()), Step::Index(index)]
}

fn shape_error(entry: &Value) -> Option<String> {
    Interface::deserialize(entry).err().map(|error| error.to_string())
}

fn at<'v>(value: &'v Value, path: &[Step]) -> Option<&'v Value> {
    path.iter().try_fold(value, |value, step| match step {
        Step::Key(key) => value.get(key),
        Step::Index(index) => value.get(index),
    })
}

fn remove(value: &mut Value, path: &[Step]) {
    let Some((last, way)) = path.split_last() else { return };
    let container = way.iter().try_fold(value, |value, step| match step {
        Step::Key(key) => value.get_mut(key),
        Step::Index(index) => value.get_mut(index),
    });
    match (container, last) {
        (Some(Value::Object(entries)), Step::Key(key)) => drop(entries.shift_remove(key)),
        (Some(Value::Array(items)), Step::Index(index)) if *index < items.len() => drop(items.remove(*index)),
        _ => {}
    }
}

/// Whether `message` has `name` as a word of its own.
fn mentions(message: &str, name: &str) -> bool {
    let part_of_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    message.match_indices(name).any(|(start, _)| {
        let before = message[..start].chars().next_back().is_some_and(part_of_name);
        let after = message[start + name.len()..].chars().next().is_some_and(|c| part_of_name(c) && c != '.');
        !name.is_empty() && !before && !after
    })
}

fn describe(document: &Node, path: &[Step], message: &str) -> Diagnostic {
    let place = place(document, path);
    let subject = subject(document, path);
    if let Some(field) = quoted_after(message, "unknown field `") {
        let known: Vec<&str> = message.split('`').skip(3).step_by(2).collect();
        let alike = nearest(field, known.iter().copied()).or_else(|| nearest(field, FIELDS.iter().copied()));
        let finding = Diagnostic::new(Code(0201), place.key, format!("{subject} is not a field nmstate knows"))
            .cause("nmstate refuses a document with a field it does not know");
        return match alike {
            Some(alike) => finding.help(format!("did you mean `{alike}`?")),
            None => finding.help(format!("delete `{field}`")),
        };
    }
    if message.contains("interface for DNS") {
        return Diagnostic::new(Code(0220), place.value, "no interface of the document can carry the name servers")
            .cause("name servers are part of a profile with an address of the same family, static or by DHCP")
            .help("add an interface with that IP family enabled to `interfaces`, or write the name servers where the interface is");
    }
    let finding =
        Diagnostic::new(Code(0200), place.value, format!("nmstate refuses {subject}: {}", first_lines(message)));
    let finding = finding.cause("the node would refuse the document for the same reason");
    let alike = quoted_after(message, "unknown variant `").and_then(|value| {
        let known: Vec<&str> = message.split('`').skip(3).step_by(2).collect();
        nearest(value, known)
    });
    match (alike, HINTS.iter().find(|(part, _)| message.contains(part))) {
        (Some(alike), _) => finding.help(format!("did you mean `{alike}`?")),
        (None, Some((_, hint))) => finding.help(*hint),
        (None, None) => finding,
    }
}

/// The crate prints whole structures in some messages.
fn first_lines(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default();
    if line.chars().count() > 300 { line.chars().take(300).chain(['…']).collect() } else { line.to_owned() }
}

fn quoted_after<'m>(message: &'m str, start: &str) -> Option<&'m str> {
    message.split_once(start)?.1.split('`').next()
}

struct Place {
    key: Location,
    value: Location,
}

fn place(document: &Node, path: &[Step]) -> Place {
    let mut node = document;
    let mut key = document.at;
    for step in path {
        let next = match step {
            Step::Key(name) => {
                node.entries().iter().find(|entry| *entry.key.value == **name).map(|entry| (entry.key.at, &entry.value))
            }
            Step::Index(index) => node.items().get(*index).map(|item| (item.at, item)),
        };
        let Some((place, inner)) = next else { break };
        (key, node) = (place, inner);
    }
    let empty = node.at.span == Span::default();
    Place { key, value: if empty { key } else { node.at } }
}

/// `` `vlan.id` of interface `bond0.110` ``, or whatever is known.
fn subject(document: &Node, path: &[Step]) -> String {
    let (owner, rest) = match path {
        [Step::Key(list), Step::Index(index), rest @ ..] if list == "interfaces" => {
            let entry = document.get("interfaces").and_then(|list| list.items().get(*index));
            let name = entry.and_then(|entry| entry.get("name")).and_then(Node::as_str);
            (Some(name.map_or(format!("interface number {}", index + 1), |name| format!("interface `{name}`"))), rest)
        }
        rest => (None, rest),
    };
    let mut field = String::new();
    for step in rest {
        match step {
            Step::Key(key) if field.is_empty() => field.push_str(key),
            Step::Key(key) => field.extend([".", key]),
            Step::Index(index) => field.push_str(&format!("[{index}]")),
        }
    }
    match (owner, field.is_empty()) {
        (Some(owner), true) => owner,
        (Some(owner), false) => format!("`{field}` of {owner}"),
        (None, true) => "the document".to_owned(),
        (None, false) => format!("`{field}`"),
    }
}

/// Fields people misspell; the crate lists the known ones only for some parts of a document.
const FIELDS: [&str; 61] = [
    "accept-all-mac-addresses",
    "address",
    "addr-gen-mode",
    "auto-dns",
    "auto-gateway",
    "auto-negotiation",
    "auto-route-metric",
    "auto-routes",
    "auto-route-table-id",
    "autoconf",
    "base-iface",
    "bridge",
    "config",
    "controller",
    "copy-mac-from",
    "description",
    "destination",
    "dhcp",
    "dhcp-client-id",
    "dhcp-duid",
    "dhcp-send-hostname",
    "dns-resolver",
    "duplex",
    "enabled",
    "ethernet",
    "ethtool",
    "hostname",
    "id",
    "identifier",
    "interfaces",
    "ip",
    "ip-from",
    "ip-to",
    "ipv4",
    "ipv6",
    "link-aggregation",
    "lldp",
    "mac-address",
    "metric",
    "mode",
    "mtu",
    "name",
    "next-hop-address",
    "next-hop-interface",
    "options",
    "port",
    "ports-config",
    "prefix-length",
    "priority",
    "profile-name",
    "protocol",
    "route-rules",
    "route-table",
    "routes",
    "search",
    "server",
    "speed",
    "state",
    "table-id",
    "type",
    "vlan",
];
