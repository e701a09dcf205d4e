//! Hostnames a cluster will accept (rule R15).

use super::Rule;
use super::context::Context;
use crate::diagnostic::{Code, Diagnostic};

pub(super) const RULES: &[Rule] = &[valid_hostnames];

fn valid_hostnames(context: &Context, findings: &mut Vec<Diagnostic>) {
    for host in &context.world.hosts {
        let Some(hostname) = &host.hostname else { continue };
        let Some(reason) = refusal(hostname) else { continue };
        findings.push(
            Diagnostic::new(
                Code(320),
                hostname.at,
                format!(
                    "host `{}` is to be called `{hostname}`, which is not a valid hostname: {reason}",
                    host.meta.id.name
                ),
            )
            .cause(
                "the validation hostname-valid accepts lower-case letters, digits and dashes in parts of at most 63 \
                characters joined by dots, and no name that begins with `localhost`",
            )
            .help(match repaired(hostname).or_else(|| repaired(&host.meta.id.name)) {
                Some(name) => {
                    format!("write:\nmetadata:\n  annotations:\n    bmac.agent-install.openshift.io/hostname: {name}")
                }
                None => "choose a name such as `worker-0.site.example.com`".to_owned(),
            }),
        );
    }
}

/// What is wrong with a name, if anything.
fn refusal(name: &str) -> Option<&'static str> {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let mut parts = name.split('.');
    let first = parts.next().unwrap_or_default();
    match name {
        "" => Some("it is empty"),
        _ if name.starts_with("localhost") => Some("it begins with `localhost`"),
        _ if name.bytes().any(|byte| byte.is_ascii_uppercase()) => Some("it has upper-case letters"),
        _ if name.contains('_') => Some("it has underscores"),
        _ if !name.bytes().all(|byte| allowed(byte) || byte == b'.') => {
            Some("only `a`-`z`, `0`-`9`, `-` and `.` are allowed")
        }
        _ if first.starts_with('-') => Some("it begins with a dash"),
        _ if name.split('.').any(|part| part.is_empty()) => Some("it has an empty part between dots"),
        _ if name.split('.').any(|part| part.len() > 63) => Some("a part is longer than 63 characters"),
        _ if name.len() > 253 => Some("it is longer than 253 characters"),
        _ => None,
    }
}

fn repaired(name: &str) -> Option<String> {
    let name = name.to_ascii_lowercase().replace(['_', ' '], "-");
    refusal(&name).is_none().then_some(name)
}

#[cfg(test)]
mod tests {
    use super::{refusal, repaired};

    #[test]
    fn names_are_judged_as_the_hostname_validation_does() {
        for (name, expected) in [
            ("openshift-worker-2.ztp.e2e.example.com", None),
            ("0", None),
            ("localhost.localdomain", Some("it begins with `localhost`")),
            ("Worker", Some("it has upper-case letters")),
            ("worker_1", Some("it has underscores")),
            ("-a", Some("it begins with a dash")),
            ("a..b", Some("it has an empty part between dots")),
            ("wörker", Some("only `a`-`z`, `0`-`9`, `-` and `.` are allowed")),
            ("", Some("it is empty")),
        ] {
            assert_eq!(refusal(name), expected, "{name}");
        }
        assert_eq!(refusal(&"a".repeat(64)), Some("a part is longer than 63 characters"));
        assert_eq!(repaired("Worker_1").as_deref(), Some("worker-1"));
        assert_eq!(repaired("localhost"), None);
    }
}
