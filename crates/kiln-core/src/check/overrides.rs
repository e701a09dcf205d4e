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
                    format!("the Ignition override of {kind} `{name}` is not JSON: {}", in_plain_words(text, &error)),
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

/// Why a text is no JSON object, for somebody who does not know the parser.
fn in_plain_words(text: &str, error: &serde_json::Error) -> String {
    match text.trim_start().chars().next() {
        None => "it is empty".to_owned(),
        Some('{' | '[') if error.is_eof() => "it ends before its last bracket is closed".to_owned(),
        Some('{' | '[') => error.to_string(),
        Some(_) => {
            let shown: String = text.trim_start().chars().take(20).collect();
            format!("it begins with `{}` and not with `{{`", shown.lines().next().unwrap_or_default())
        }
    }
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
        let edit = |how: &str| {
            format!(
                "{how}:\nmetadata:\n  annotations:\n    bmac.agent-install.openshift.io/installer-args: '{}'",
                as_json(&allowed_arguments(&arguments))
            )
        };
        for (index, argument) in arguments.iter().enumerate() {
            if is_stray(&arguments, index) {
                findings.push(
                    Diagnostic::new(
                        Code(344),
                        text.at,
                        format!("host `{name}` passes `{argument}` to the installer, which belongs to no flag"),
                    )
                    .cause(
                        "the only argument without a flag is the disk, which the assisted service adds itself; with \
                        another one coreos-installer stops before it writes anything",
                    )
                    .help(edit("remove it")),
                );
            }
            if !argument.starts_with('-') || ALLOWED_FLAGS.contains(&argument.as_str()) {
                continue;
            }
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
                .help(match meant_flag(argument) {
                    Some((_, Some(_))) => edit("write flag and value as two arguments"),
                    Some((_, None)) => edit("write the flag in full"),
                    None if value_of(&arguments, index).is_some() => {
                        edit("remove the flag and its value; kernel arguments are given with \"--append-karg\"")
                    }
                    None => edit("remove the flag; kernel arguments are given with \"--append-karg\""),
                }),
            );
        }
    }
}

/// Flags of coreos-installer that stand alone.
const LONELY_FLAGS: [&str; 6] =
    ["-n", "--copy-network", "--offline", "--insecure", "--insecure-ignition", "--preserve-on-error"];

/// The value that belongs to the flag at `index`.
fn value_of(arguments: &[String], index: usize) -> Option<&str> {
    let flag = arguments.get(index).filter(|flag| flag.starts_with('-') && !flag.contains('='))?;
    let value = arguments.get(index + 1).filter(|value| !value.starts_with('-'))?;
    (!LONELY_FLAGS.contains(&flag.as_str())).then_some(value.as_str())
}

/// Whether an argument is neither a flag nor the value of one.
fn is_stray(arguments: &[String], index: usize) -> bool {
    let of_flag = index.checked_sub(1).and_then(|before| value_of(arguments, before));
    !arguments[index].starts_with('-') && of_flag.is_none()
}

/// An allowed flag that was written in another way, with the value written behind `=`.
fn meant_flag(argument: &str) -> Option<(&'static str, Option<&str>)> {
    let (flag, value) = argument.split_once('=').map_or((argument, None), |(flag, value)| (flag, Some(value)));
    let flag = match flag {
        "--append" | "--karg" | "--kargs" | "--append-kargs" => "--append-karg",
        "--delete" | "--delete-kargs" => "--delete-karg",
        flag => flag,
    };
    ALLOWED_FLAGS.iter().find(|allowed| **allowed == flag).map(|allowed| (*allowed, value))
}

/// The same arguments without what is not allowed.
fn allowed_arguments(arguments: &[String]) -> Vec<&str> {
    let mut allowed = Vec::new();
    for (index, argument) in arguments.iter().enumerate().filter(|(_, argument)| argument.starts_with('-')) {
        if let Some((flag, value)) = meant_flag(argument) {
            allowed.push(flag);
            allowed.extend(value.or_else(|| value_of(arguments, index)));
        }
    }
    allowed
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
            Err(error) => format!("it is not JSON: {}", in_plain_words(text, &error)),
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
    use super::{allowed_arguments, as_json, is_stray, with_version};

    #[test]
    fn what_is_not_allowed_goes_with_its_value_and_the_rest_stays() {
        for (written, allowed, stray) in [
            (&["--append-karg", "a", "--firstboot-args", "x"][..], &["--append-karg", "a"][..], &[][..]),
            (&["--append-karg=a", "-n", "/dev/sda"], &["--append-karg", "a", "-n"], &["/dev/sda"]),
            (&["--append", "a", "b"], &["--append-karg", "a"], &["b"]),
            (&["--insecure-ignition", "--copy-network"], &["--copy-network"], &[]),
        ] {
            let written: Vec<String> = written.iter().map(|argument| (*argument).to_owned()).collect();
            assert_eq!(allowed_arguments(&written), allowed, "{written:?}");
            let found: Vec<&String> =
                (0..written.len()).filter(|index| is_stray(&written, *index)).map(|index| &written[index]).collect();
            assert_eq!(found, stray, "{written:?}");
        }
    }

    #[test]
    fn the_repaired_override_keeps_everything_and_begins_with_its_version() {
        let config = serde_json::json!({"storage": {"files": []}});
        assert_eq!(with_version(&config), r#"{"ignition":{"version":"3.2.0"},"storage":{"files":[]}}"#);
        assert_eq!(as_json(&["--append-karg", "a=\"b\""]), r#"["--append-karg","a=\"b\""]"#);
    }
}
