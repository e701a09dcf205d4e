//! What hosts may do: with their own Host object, and nothing else.
//!
//! A host's identity is called after its object, `kiln:host:NAMESPACE:NAME`, and is in the group [`HOSTS`]. It reads its
//! Host, writes its status, tells events about itself and asks for certificates. It sees no other host, no secret and
//! no spec it could change.

use kiln_apiserver::identity::Identity;
use kiln_apiserver::policy::{Policy, Reach, Role, Rule, Users, Wanted};

/// The group of all hosts.
pub const HOSTS: &str = "kiln:hosts";
const PREFIX: &str = "kiln:host:";

const OWN: Rule = Rule {
    verbs: &["get", "list", "watch"],
    groups: &["kiln.dev"],
    resources: &["hosts"],
    except: &[],
    reach: Reach::Own,
    requires: &[],
};

const ROLE: Role = Role {
    group: HOSTS,
    users: Users::Owners { prefix: PREFIX },
    rules: &[
        // A list must select its name: a list of one, which is what `kubectl wait` and watches begin with.
        OWN,
        Rule { verbs: &["get", "update", "patch"], resources: &["hosts/status"], ..OWN },
        Rule {
            verbs: &["create"],
            groups: &[""],
            resources: &["events"],
            reach: Reach::OwnNamespace,
            requires: &[
                ("/involvedObject/kind", Wanted::Text("Host")),
                ("/involvedObject/namespace", Wanted::OwnNamespace),
                ("/involvedObject/name", Wanted::OwnName),
            ],
            ..OWN
        },
        Rule {
            verbs: &["create"],
            groups: &["events.k8s.io"],
            resources: &["events"],
            reach: Reach::OwnNamespace,
            requires: &[
                ("/regarding/kind", Wanted::Text("Host")),
                ("/regarding/namespace", Wanted::OwnNamespace),
                ("/regarding/name", Wanted::OwnName),
            ],
            ..OWN
        },
        Rule {
            verbs: &["create"],
            groups: &["certificates.k8s.io"],
            resources: &["certificatesigningrequests"],
            reach: Reach::All,
            ..OWN
        },
    ],
    paths: &[],
};

/// The server's own roles and that of hosts.
pub fn policy() -> Policy {
    Policy::with(&[ROLE])
}

/// The identity of the host that owns this object.
pub fn host_identity(namespace: &str, name: &str) -> Identity {
    Identity::member(&format!("{PREFIX}{namespace}:{name}"), HOSTS)
}

#[cfg(test)]
mod tests {
    use kiln_apiserver::policy::{Attributes, Target, Verdict};

    use super::*;

    #[test]
    fn a_host_reaches_its_own_objects_only() {
        let (policy, host) = (policy(), host_identity("lab", "worker-7"));
        for (asked, expected) in [
            ("get kiln.dev hosts - lab worker-7", "yes"),
            ("watch kiln.dev hosts - lab worker-7", "yes"),
            ("list kiln.dev hosts - lab worker-7", "yes"),
            ("list kiln.dev hosts - lab -", "no"),
            ("list kiln.dev hosts - - worker-7", "no"),
            ("watch kiln.dev hosts - - -", "no"),
            ("get kiln.dev hosts - lab worker-8", "no"),
            ("get kiln.dev hosts - prod worker-7", "no"),
            ("get kiln.dev pools - lab worker-7", "no"),
            ("update kiln.dev hosts - lab worker-7", "no"),
            ("patch kiln.dev hosts - lab worker-7", "no"),
            ("delete kiln.dev hosts - lab worker-7", "no"),
            ("patch kiln.dev hosts status lab worker-7", "yes"),
            ("update kiln.dev hosts status lab worker-7", "yes"),
            ("patch kiln.dev hosts status lab worker-8", "no"),
            ("get other.dev hosts - lab worker-7", "no"),
            ("get - secrets - lab worker-7", "no"),
            ("list - configmaps - lab -", "no"),
            ("create - events - lab -", "if"),
            ("create - events - prod -", "no"),
            ("patch - events - lab worker-7", "no"),
            ("create events.k8s.io events - lab -", "if"),
            ("create certificates.k8s.io certificatesigningrequests - - -", "yes"),
            ("get certificates.k8s.io certificatesigningrequests - - csr-1", "no"),
            ("update certificates.k8s.io certificatesigningrequests approval - csr-1", "no"),
            ("create kiln.dev hosts - lab -", "no"),
        ] {
            let words: Vec<&str> = asked.split(' ').map(|word| if word == "-" { "" } else { word }).collect();
            let [verb, group, resource, subresource, namespace, name] = words.as_slice() else { panic!("{asked}") };
            let target = Target::Objects { group, resource, subresource, namespace, name };
            let verdict = match policy.authorize(&host, &Attributes { verb, target }) {
                Verdict::Allowed => "yes",
                Verdict::AllowedIf(_) => "if",
                Verdict::Denied => "no",
            };
            assert_eq!(verdict, expected, "{asked}");
        }
    }
}
