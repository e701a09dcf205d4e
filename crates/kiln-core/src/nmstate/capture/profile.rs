//! One profile that remembers which of its settings were asked for.
//!
//! Whatever nobody asked for was not said in the document; [`Profile::unsaid`] reports it. So a setting that a later
//! NetworkManager invents cannot be lost in silence.

use std::cell::RefCell;
use std::collections::BTreeSet;

use crate::diagnostic::{Code, Diagnostic};
use crate::keyfile::{ConnectionFile, Keyfile};

/// Settings that are said by the structure of the document, or that mean nothing in it.
const STRUCTURAL: [(&str, &str); 11] = [
    ("connection", "id"),
    ("connection", "uuid"),
    ("connection", "type"),
    ("connection", "interface-name"),
    ("connection", "autoconnect"),
    ("connection", "autoconnect-slaves"),
    ("connection", "autoconnect-ports"),
    ("connection", "master"),
    ("connection", "slave-type"),
    ("connection", "controller"),
    ("connection", "port-type"),
];

pub struct Profile<'f> {
    pub file: &'f str,
    pub keyfile: &'f Keyfile,
    asked: RefCell<BTreeSet<(String, String)>>,
}

impl<'f> Profile<'f> {
    pub fn new(file: &'f ConnectionFile) -> Self {
        Profile { file: &file.name, keyfile: &file.keyfile, asked: RefCell::default() }
    }

    /// A setting; asking for it promises to say it, or to know that it needs no saying.
    pub fn take(&self, group: &str, key: &str) -> Option<String> {
        self.asked.borrow_mut().insert((group.to_owned(), key.to_owned()));
        self.keyfile.get(group, key).map(|value| value.into_owned())
    }

    /// A truth value.
    pub fn take_flag(&self, group: &str, key: &str) -> Option<bool> {
        self.take(group, key).map(|value| matches!(value.as_str(), "true" | "1" | "yes"))
    }

    /// A number.
    pub fn take_number(&self, group: &str, key: &str) -> Option<i64> {
        self.take(group, key)?.parse().ok()
    }

    /// A list.
    pub fn take_list(&self, group: &str, key: &str) -> Vec<String> {
        self.asked.borrow_mut().insert((group.to_owned(), key.to_owned()));
        self.keyfile.get_list(group, key).unwrap_or_default()
    }

    /// Takes a promise back: the value has no words in nmstate after all.
    pub fn give_back(&self, group: &str, key: &str) {
        self.asked.borrow_mut().remove(&(group.to_owned(), key.to_owned()));
    }

    /// `ethernet`, `bond`, … with the old spelling of Ethernet put right.
    pub fn kind(&self) -> String {
        let kind = self.keyfile.get("connection", "type").unwrap_or_default();
        if kind == "802-3-ethernet" { "ethernet".to_owned() } else { kind.into_owned() }
    }

    /// The group of Ethernet settings, which has an old spelling as well.
    pub fn ethernet(&self) -> &'static str {
        if self.keyfile.groups().any(|group| group == "802-3-ethernet") { "802-3-ethernet" } else { "ethernet" }
    }

    /// The interface it is for. NetworkManager names a nameless VLAN after its parent.
    pub fn name(&self) -> Option<String> {
        let given = self.keyfile.get("connection", "interface-name").map(|name| name.into_owned());
        given.or_else(|| match self.kind().as_str() {
            "vlan" => Some(format!("{}.{}", self.keyfile.get("vlan", "parent")?, self.keyfile.get("vlan", "id")?)),
            _ => None,
        })
    }

    pub fn uuid(&self) -> String {
        self.keyfile.get("connection", "uuid").unwrap_or_default().into_owned()
    }

    pub fn priority(&self) -> i64 {
        self.keyfile.get("connection", "autoconnect-priority").and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    /// Name or UUID of its controller. Newer NetworkManagers write `controller` for `master`.
    pub fn controller(&self) -> Option<String> {
        let found = self.keyfile.get("connection", "master").or_else(|| self.keyfile.get("connection", "controller"));
        found.map(|name| name.into_owned())
    }

    /// A finding for each setting the document does not say.
    pub fn unsaid(&self) -> Vec<Diagnostic> {
        let asked = self.asked.borrow();
        let known = |group: &str, key: &str| {
            STRUCTURAL.contains(&(group, key)) || asked.contains(&(group.to_owned(), key.to_owned()))
        };
        let settings = self.keyfile.groups().flat_map(|group| self.keyfile.keys(group).map(move |key| (group, key)));
        settings.filter(|(group, key)| !known(group, key)).map(|(group, key)| self.unsaid_setting(group, key)).collect()
    }

    fn unsaid_setting(&self, group: &str, key: &str) -> Diagnostic {
        // Never the value: it may be a secret.
        let message = format!("{}: nmstate cannot say `{group}.{key}`", self.file);
        Diagnostic::new(Code(0240), None, message)
            .cause("the setting has no counterpart in an nmstate document")
            .help("use `-o keyfiles` if the setting matters")
    }
}
