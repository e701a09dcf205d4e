//! Keyfiles that MachineConfigs write: whether NetworkManager reads them at all.

use super::Rule;
use super::context::Context;
use super::propagation::{CONNECTIONS, file_mode};
use crate::diagnostic::{Code, Diagnostic};
use crate::document::Node;

pub(super) const RULES: &[Rule] = &[unreadable_keyfiles];

fn unreadable_keyfiles(context: &Context, findings: &mut Vec<Diagnostic>) {
    for config in &context.world.machine_configs {
        let files = config.config.as_ref().and_then(|root| root.path(&["storage", "files"]));
        for file in files.map_or(&[][..], Node::items) {
            let Some(path) = file.get("path") else { continue };
            let Some(name) =
                path.as_str().and_then(|path| path.strip_prefix(CONNECTIONS)).filter(|name| !name.contains('/'))
            else {
                continue;
            };
            let mode = file_mode(file);
            if mode & 0o077 == 0 {
                continue;
            }
            let written = file.get("mode");
            let (said, hint) = match written.and_then(Node::as_integer) {
                None => ("has no mode, which means 0644".to_owned(), String::new()),
                Some(600 | 400) => {
                    (format!("has mode {mode}"), format!("; the number is decimal, and {mode} is {mode:04o} in octal"))
                }
                Some(_) => (format!("has mode {mode}, which is {mode:04o} in octal"), String::new()),
            };
            findings.push(
                Diagnostic::new(
                    Code(121),
                    written.map_or(path.at, |mode| mode.at),
                    format!(
                        "keyfile `{name}` of MachineConfig `{}` {said}: NetworkManager ignores it",
                        config.meta.id.name
                    ),
                )
                .cause(format!(
                    "NetworkManager loads a keyfile only if group and others have no rights (0600); Ignition takes \
                    modes as decimal numbers{hint}"
                ))
                .help("write:\nmode: 384\n(384 is 0600; 420 is 0644)"),
            );
        }
    }
}
