//! LUKS volumes and how they are unlocked.

use super::resource::{Source, not_a_url};
use super::{Check, integer, is_true, items, place, text};
use crate::diagnostic::{Code, Diagnostic, Severity};
use crate::document::Node;
use crate::ignition::go_url;

const LUKS: Code = Code(426);
const MAX_LABEL: usize = 47;

pub(super) fn check(check: &mut Check<'_>) {
    let volumes = check.list(&["storage", "luks"]);
    for volume in volumes {
        check.volume(volume);
    }
    check.unique_by(volumes, "name", "the LUKS volume");
}

impl Check<'_> {
    fn volume(&mut self, volume: &Node) {
        let name = text(volume, "name");
        if name.contains('/') {
            self.luks(
                volume,
                "name",
                format!("the LUKS volume name `{name}` contains a slash"),
                "the volume appears as one file name under /dev/mapper",
                format!("write `{}`", name.replace('/', "-")),
            );
        } else if name.is_empty() {
            self.luks_warning(
                volume,
                "name",
                "a LUKS volume has no name".to_owned(),
                "Ignition accepts the config and fails to open the volume at boot",
                "add `\"name\": \"…\"`".to_owned(),
            );
        }
        let label = text(volume, "label");
        if label.len() > MAX_LABEL {
            self.luks(
                volume,
                "label",
                format!("the label `{label}` has {} bytes, more than {MAX_LABEL}", label.len()),
                "a LUKS2 header has room for 47 bytes",
                "shorten the label".to_owned(),
            );
        }
        if text(volume, "device").is_empty() {
            self.luks(
                volume,
                "device",
                format!("the LUKS volume `{name}` has no device"),
                "Ignition must know what to encrypt",
                "add `\"device\": \"/dev/disk/by-…\"`".to_owned(),
            );
        } else {
            self.path(volume, "device", "LUKS volume");
        }
        if let Some(key_file) = volume.get("keyFile") {
            self.resource(key_file, Source::Optional, "contents of the key file");
        }
        if let Some(clevis) = volume.get("clevis") {
            self.clevis(volume, clevis);
        }
        self.unique_texts(items(volume, "openOptions"), "the option");
        self.cex(volume);
    }

    fn clevis(&mut self, volume: &Node, clevis: &Node) {
        let servers = items(clevis, "tang");
        for server in servers {
            self.tang(server);
        }
        self.unique_by(servers, "url", "the tang server");
        let Some(custom) = clevis.get("custom") else { return };
        self.custom(custom);
        // In spec 3.2 an empty `custom` object counted as one.
        let present = !self.since_3(3) || !text(custom, "pin").is_empty();
        let others = !servers.is_empty() || is_true(clevis, "tpm2") || integer(clevis, "threshold").unwrap_or(0) != 0;
        if present && others {
            let name = text(volume, "name");
            self.luks(
                clevis,
                "custom",
                format!("the LUKS volume `{name}` has a custom clevis pin beside tpm2, tang or a threshold"),
                "a custom pin is the whole policy; Ignition does not combine it",
                "remove `custom`, or everything else from `clevis`".to_owned(),
            );
        }
    }

    fn tang(&mut self, server: &Node) {
        let url = text(server, "url");
        match go_url::parse(url) {
            Err(reason) => self.report(not_a_url(place(server, "url"), url, &reason)),
            Ok(parsed) if !matches!(parsed.scheme.as_str(), "http" | "https") => {
                self.luks(
                    server,
                    "url",
                    format!("the tang server `{url}` has no http or https URL"),
                    "tang speaks HTTP",
                    "write `http://tang.example.com`".to_owned(),
                );
            }
            Ok(_) => {}
        }
        if text(server, "thumbprint").is_empty() {
            self.luks(
                server,
                "thumbprint",
                format!("the tang server `{url}` has no thumbprint"),
                "without it anybody on the network could hand out the key",
                "add what `tang-show-keys` prints on the server".to_owned(),
            );
        }
        let advertisement = text(server, "advertisement");
        if !advertisement.is_empty() && serde_json::from_str::<serde::de::IgnoredAny>(advertisement).is_err() {
            self.luks(
                server,
                "advertisement",
                format!("the advertisement of the tang server `{url}` is not JSON"),
                "it is the signed key set that the server answers at /adv",
                "write the answer of `curl URL/adv` as a string".to_owned(),
            );
        }
    }

    fn custom(&mut self, custom: &Node) {
        let (pin, config) = (text(custom, "pin"), text(custom, "config"));
        let alone = is_true(custom, "needsNetwork") && self.since_3(3);
        if pin.is_empty() && config.is_empty() && !alone {
            return;
        }
        if !matches!(pin, "tpm2" | "tang" | "sss") {
            let message = if pin.is_empty() {
                "the custom clevis section has no pin".to_owned()
            } else {
                format!("`{pin}` is not a clevis pin Ignition knows")
            };
            self.luks(
                custom,
                "pin",
                message,
                "the pins are tpm2, tang and sss",
                "write one of tpm2, tang, sss".to_owned(),
            );
        }
        if config.is_empty() {
            self.luks(
                custom,
                "config",
                format!("the custom clevis pin `{pin}` has no config"),
                "clevis needs the pin's settings as JSON in a string",
                "add `\"config\": \"{…}\"`".to_owned(),
            );
        }
    }

    /// IBM's crypto cards hold the key themselves, so no other way to unlock can stand beside them.
    fn cex(&mut self, volume: &Node) {
        let enabled = volume.get("cex").is_some_and(|cex| is_true(cex, "enabled"));
        let keyed =
            !text(volume.get("keyFile").unwrap_or(volume), "source").is_empty() && volume.get("keyFile").is_some();
        let clevis = volume.get("clevis").is_some_and(|clevis| {
            !items(clevis, "tang").is_empty()
                || is_true(clevis, "tpm2")
                || integer(clevis, "threshold").unwrap_or(0) != 0
                || clevis.path(&["custom", "pin"]).and_then(Node::as_str).is_some_and(|pin| !pin.is_empty())
        });
        if enabled && (keyed || clevis) {
            let name = text(volume, "name");
            self.luks(
                volume,
                "cex",
                format!("the LUKS volume `{name}` uses cex beside a key file or clevis"),
                "with cex the key is held by the crypto card alone",
                "remove `cex`, or `keyFile` and `clevis`".to_owned(),
            );
        }
    }

    fn luks(&mut self, node: &Node, key: &str, message: String, cause: &str, help: String) {
        self.report(Diagnostic::new(LUKS, place(node, key), message).cause(cause).help(help));
    }

    fn luks_warning(&mut self, node: &Node, key: &str, message: String, cause: &str, help: String) {
        self.report(
            Diagnostic::new(LUKS, place(node, key), message).cause(cause).help(help).severity(Severity::Warning),
        );
    }
}
