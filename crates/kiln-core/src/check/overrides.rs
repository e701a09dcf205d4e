//! Texts inside annotations that are parsed only later: Ignition overrides, installer arguments and install-config
//! overrides (rules R13 and R17).
//!
//! Findings stand at the annotation. A refused override blocks the whole cluster: all it says is that one agent has a
//! spec error.

use super::Rule;
use super::context::Context;
use crate::diagnostic::{Code, Diagnostic};
use crate::ignition::Config;
use crate::ignition::validate::validate;
use crate::source::{SourceMap, Sourced};

pub(super) const RULES: &[Rule] = &[ignition_overrides, installer_arguments, install_config_overrides];

/// What the assisted service can parse: it tries these exact versions and no other.
const OVERRIDE_VERSIONS: [&str; 2] = ["3.1.0", "3.2.0"];

/// Flags of coreos-installer that the assisted service lets through, each as an argument of its own.
const ALLOWED_FLAGS: [&str; 9] = [
    "--append-karg",
    "--delete-karg",
    "-n",
    "--copy-network",
    "--network-dir",
    "--save-partlabel",
    "--save-partindex",
    "--image-url",
    "--image-file",
];

/// Which part of the service reads an override.
struct Reader<'a> {
    /// `host` or `InfraEnv`.
    kind: &'static str,
    name: &'a str,
    /// What a refusal leads to.
    consequence: &'static str,
}

fn ignition_overrides(context: &Context, findings: &mut Vec<Diagnostic>) {
    for host in context.world.hosts.iter().filter(|host| host.meta.id.kind == "BareMetalHost") {
        let consequence = "the agent gets `SpecSynced=False` with an input error, and the cluster waits with `The \
            cluster currently has 1 agents with spec error`";
        let reader = Reader { kind: "host", name: &host.meta.id.name, consequence };
        host.ignition_override.iter().for_each(|text| check_ignition(&reader, text, findings));
    }
    for discovery in &context.world.discoveries {
        let reader = Reader {
            kind: "InfraEnv",
            name: &discovery.meta.id.name,
            consequence: "the InfraEnv gets no image (`ImageCreated=False`)",
        };
        discovery.ignition_override.iter().for_each(|text| check_ignition(&reader, text, findings));
    }
}

fn check_ignition(reader: &Reader, text: &Sourced<String>, findings: &mut Vec<Diagnostic>) {
    let Reader { kind, name, consequence } = reader;
    let parsed: serde_json::Value = match serde_json::from_str(text) {
        Ok(parsed) => parsed,
        Err(error) => {
            findings.push(
                Diagnostic::new(
                    Code(340),
                    text.at,
                    format!("the Ignition override of {kind} `{name}` is not JSON: {error}"),
                )
                .cause(format!("the override is parsed as one JSON document; when that fails, {consequence}"))
                .help(
                    "write the whole config as JSON between single quotes: '{\"ignition\": {\"version\": \"3.2.0\"}, \
                    …}'",
                ),
            );
            return;
        }
    };
    let version = parsed.pointer("/ignition/version");
    let supported = format!(
        "the service tries Ignition {} and {}, which must stand there exactly; anything else is refused, \
        {consequence}",
        OVERRIDE_VERSIONS[1], OVERRIDE_VERSIONS[0]
    );
    match version.map(|version| (version, version.as_str().unwrap_or_default())) {
        None => findings.push(
            Diagnostic::new(
                Code(341),
                text.at,
                format!("the Ignition override of {kind} `{name}` has no `ignition.version`"),
            )
            .cause(supported)
            .help(format!("write:\n'{}'", with_version(&parsed))),
        ),
        Some((_, version)) if OVERRIDE_VERSIONS.contains(&version) => check_inside(reader, text, findings),
        Some((written, _)) => findings.push(
            Diagnostic::new(
                Code(342),
                text.at,
                format!(
                    "the Ignition override of {kind} `{name}` has version {written}, which the assisted service \
                    cannot read"
                ),
            )
            .cause(supported)
            .help(format!("write it for version 3.2.0:\n'{}'", with_version(&parsed))),
        ),
    }
}

/// What is wrong inside an override. The text has no file of its own, so every finding stands at the annotation and
/// names the field.
fn check_inside(reader: &Reader, text: &Sourced<String>, findings: &mut Vec<Diagnostic>) {
    let mut own = SourceMap::default();
    let file = own.add("override", text.value.as_str());
    let (config, mut inside) = Config::parse(file, own.file(file));
    let Some(config) = config else {
        return findings.extend(inside.into_iter().map(|finding| moved(reader, text, finding, None)));
    };
    inside.extend(validate(&config));
    findings.extend(inside.into_iter().map(|finding| {
        let field = finding.at.and_then(|at| config.root.path_of(at));
        moved(reader, text, finding, field)
    }));
}

fn moved(reader: &Reader, text: &Sourced<String>, finding: Diagnostic, field: Option<String>) -> Diagnostic {
    let field = field.filter(|field| !field.is_empty()).map(|field| format!(", `{field}`")).unwrap_or_default();
    let message = format!("in the Ignition override of {} `{}`{field}: {}", reader.kind, reader.name, finding.message);
    Diagnostic { at: Some(text.at), related: Vec::new(), message, ..finding }
}

/// The same config with a version the service accepts, `ignition` first.
fn with_version(config: &serde_json::Value) -> String {
    let mut repaired = serde_json::Map::new();
    let mut ignition = config.get("ignition").and_then(serde_json::Value::as_object).cloned().unwrap_or_default();
    ignition.insert("version".to_owned(), "3.2.0".into());
    repaired.insert("ignition".to_owned(), ignition.into());
    for (key, value) in config.as_object().into_iter().flatten().filter(|(key, _)| *key != "ignition") {
        repaired.insert(key.clone(), value.clone());
    }
    let text = serde_json::Value::Object(repaired).to_string();
    if text.len() > 400 {
        "{\"ignition\": {\"version\": \"3.2.0\"}, … the rest as it is …}".to_owned()
    } else {
        text
    }
}

/// The arguments of coreos-installer written on a host; nothing when they cannot be read.
pub(super) fn installer_args(text: &str) -> Option<Vec<String>> {
    serde_json::from_str(text).ok()
}

fn installer_arguments(context: &Context, findings: &mut Vec<Diagnostic>) {
    for host in &context.world.hosts {
        let Some(text) = &host.installer_args else { continue };
        let name = &host.meta.id.name;
        let Some(arguments) = installer_args(text) else {
            let words: Vec<&str> =
                text.split_whitespace().map(|word| word.trim_matches(['[', ']', '"', ',', '\''])).collect();
            findings.push(
                Diagnostic::new(
                    Code(343),
                    text.at,
                    format!(
                        "the installer arguments of host `{name}` are not a JSON array of strings: `{}`",
                        text.value
                    ),
                )
                .cause(
                    "the annotation is parsed as JSON; anything but an array of strings is an input error of the \
                    agent, and the cluster waits for it",
                )
                .help(format!(
                    "write:\nmetadata:\n  annotations:\n    bmac.agent-install.openshift.io/installer-args: '{}'",
                    as_json(&words)
                )),
            );
            continue;
        };
        for argument in arguments.iter().filter(|argument| argument.starts_with('-')) {
            if ALLOWED_FLAGS.contains(&argument.as_str()) {
                continue;
            }
            let split = argument.split_once('=').filter(|(flag, _)| ALLOWED_FLAGS.contains(flag));
            findings.push(
                Diagnostic::new(
                    Code(344),
                    text.at,
                    format!("host `{name}` passes `{argument}` to the installer, which is not allowed"),
                )
                .cause(format!(
                    "the assisted service compares each argument that begins with a dash with its list, whole: {}",
                    ALLOWED_FLAGS.join(", ")
                ))
                .help(match split {
                    Some((flag, value)) => {
                        format!("write flag and value as two arguments: {}", as_json(&[flag, value]))
                    }
                    None if argument == "--append" || argument.contains("karg") => {
                        "use \"--append-karg\" or \"--delete-karg\"".to_owned()
                    }
                    None => format!("remove `{argument}`; kernel arguments are given with \"--append-karg\""),
                }),
            );
        }
    }
}

fn as_json(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| serde_json::Value::from(*word).to_string()).collect();
    format!("[{}]", quoted.join(","))
}

fn install_config_overrides(context: &Context, findings: &mut Vec<Diagnostic>) {
    for cluster in &context.world.clusters {
        let Some(text) = &cluster.install_config_overrides else { continue };
        let name = &cluster.meta.id.name;
        let reason = match serde_json::from_str::<serde_json::Value>(text) {
            Ok(serde_json::Value::Object(_)) => continue,
            Ok(_) => "it is not a JSON object".to_owned(),
            Err(error) => format!("it is not JSON: {error}"),
        };
        findings.push(
            Diagnostic::new(
                Code(514),
                text.at,
                format!("the install-config overrides of cluster `{name}` will be refused: {reason}"),
            )
            .cause(
                "the annotation is merged into the install-config as a JSON object; when it cannot be parsed the \
                install gets `SpecSynced=False` and does not start",
            )
            .help(
                "write:\nmetadata:\n  annotations:\n    agent-install.openshift.io/install-config-overrides: \
                '{\"networking\": {\"networkType\": \"OVNKubernetes\"}}'",
            ),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::{as_json, with_version};

    #[test]
    fn the_repaired_override_keeps_everything_and_begins_with_its_version() {
        let config = serde_json::json!({"storage": {"files": []}});
        assert_eq!(with_version(&config), r#"{"ignition":{"version":"3.2.0"},"storage":{"files":[]}}"#);
        assert_eq!(as_json(&["--append-karg", "a=\"b\""]), r#"["--append-karg","a=\"b\""]"#);
    }
}
