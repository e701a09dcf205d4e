//! Who may do what: roles made of rules, and the one function that decides.
//!
//! [`Policy::authorize`] is asked by requests and by every kind of review, so `kubectl auth can-i` never says anything
//! else than what happens. The server brings three roles (administrators, viewers, everybody who was recognised); whoever
//! embeds it adds roles for identities that own one object, which rules call *own*. Pure: nothing is read, nothing kept.
//!
//! Not here: Role and RoleBinding objects. Rules only allow; there is nothing that forbids what another role allows.

use serde_json::{Value, json};

use crate::identity::{ADMINISTRATORS, AUTHENTICATED, Identity, VIEWERS};

/// What somebody wants to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes<'a> {
    /// `get`, `list`, `watch`, `create`, …; the lower-case method for paths.
    pub verb: &'a str,
    /// With what.
    pub target: Target<'a>,
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target<'a> {
    /// Objects. Empty texts: the core group, no subresource, all namespaces or cluster-wide, any name.
    Objects {
        /// API group.
        group: &'a str,
        /// The plural.
        resource: &'a str,
        /// For example `status`.
        subresource: &'a str,
        /// The namespace.
        namespace: &'a str,
        /// From the path, or the one name a field selector lets through.
        name: &'a str,
    },
    /// Anything else the server answers.
    Path(&'a str),
}

/// What was decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Go on.
    Allowed,
    /// Go on if the object that was sent fulfils all of these.
    AllowedIf(Vec<Condition>),
    /// Stop.
    Denied,
}

/// What an object must say to be accepted from somebody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// JSON pointer.
    pub field: &'static str,
    /// The text that must be there.
    pub value: String,
}

impl Condition {
    /// Whether the object says so.
    pub fn holds(&self, object: &Value) -> bool {
        object.pointer(self.field).and_then(Value::as_str) == Some(self.value.as_str())
    }
}

/// Which objects a rule reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// All of them.
    All,
    /// Those in the namespace of the identity's own object.
    OwnNamespace,
    /// The one that has the namespace and the name of the identity's own object.
    Own,
}

/// A text in a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// This.
    Text(&'static str),
    /// The name of the identity's own object.
    OwnName,
    /// Its namespace.
    OwnNamespace,
}

/// One thing a role may do. `*` stands for everything in the first three.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// Verbs.
    pub verbs: &'static [&'static str],
    /// API groups.
    pub groups: &'static [&'static str],
    /// Plurals; a subresource after a slash (`hosts/status`).
    pub resources: &'static [&'static str],
    /// Resources that `*` does not mean, as group and plural.
    pub except: &'static [(&'static str, &'static str)],
    /// Which of the objects.
    pub reach: Reach,
    /// What an object that is sent must say (JSON pointer, text).
    pub requires: &'static [(&'static str, Wanted)],
}

/// Which users of the group have the role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Users {
    /// All.
    All,
    /// Those who are called `{prefix}{namespace}:{name}` after the object they own.
    Owners {
        /// For example `kiln:host:`.
        prefix: &'static str,
    },
}

/// What the members of a group may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Role {
    /// The group.
    pub group: &'static str,
    /// Which of its users.
    pub users: Users,
    /// With objects.
    pub rules: &'static [Rule],
    /// Paths that may be read; `*` at the end stands for anything, alone for every path and every verb.
    pub paths: &'static [&'static str],
}

const EVERYTHING: Rule =
    Rule { verbs: &["*"], groups: &["*"], resources: &["*"], except: &[], reach: Reach::All, requires: &[] };

const STANDARD: [Role; 3] = [
    Role { group: ADMINISTRATORS, users: Users::All, rules: &[EVERYTHING], paths: &["*"] },
    Role {
        group: VIEWERS,
        users: Users::All,
        rules: &[Rule { verbs: &["get", "list", "watch"], except: &[("", "secrets")], ..EVERYTHING }],
        paths: &["/metrics"],
    },
    Role {
        group: AUTHENTICATED,
        users: Users::All,
        rules: &[Rule {
            verbs: &["create"],
            groups: &["authorization.k8s.io", "authentication.k8s.io"],
            resources: &["selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"],
            ..EVERYTHING
        }],
        paths: &[
            "/",
            "/api",
            "/api/*",
            "/apis",
            "/apis/*",
            "/healthz",
            "/livez",
            "/openapi",
            "/openapi/*",
            "/readyz",
            "/version",
        ],
    },
];

/// Every role. The standard ones are always among them.
#[derive(Debug, Clone)]
pub struct Policy {
    roles: Vec<Role>,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy { roles: STANDARD.to_vec() }
    }
}

impl Policy {
    /// The standard roles and these.
    pub fn with(roles: &[Role]) -> Policy {
        let mut policy = Policy::default();
        policy.roles.extend_from_slice(roles);
        policy
    }

    /// Decides.
    pub fn authorize(&self, identity: &Identity, attributes: &Attributes<'_>) -> Verdict {
        let mut conditional = None;
        for (role, own) in self.roles_of(identity) {
            match attributes.target {
                Target::Path(path) => {
                    let known = role.paths.contains(&"*")
                        || (["get", "head"].contains(&attributes.verb)
                            && role.paths.iter().any(|pattern| path_fits(pattern, path)));
                    if known {
                        return Verdict::Allowed;
                    }
                }
                Target::Objects { .. } => {
                    for rule in role.rules.iter().filter(|rule| rule.covers(attributes, own)) {
                        let conditions = rule.conditions(own);
                        if conditions.is_empty() {
                            return Verdict::Allowed;
                        }
                        conditional.get_or_insert(conditions);
                    }
                }
            }
        }
        conditional.map_or(Verdict::Denied, Verdict::AllowedIf)
    }

    /// The rules of somebody in a namespace, as `SelfSubjectRulesReview` tells them.
    pub fn tell(&self, identity: &Identity, namespace: &str) -> Value {
        let (mut resources, mut others, mut unsaid) = (Vec::new(), Vec::new(), Vec::new());
        for (role, own) in self.roles_of(identity) {
            for rule in role.rules {
                if rule.reach != Reach::All && own.is_none_or(|own| own.namespace != namespace) {
                    continue;
                }
                let mut told = json!({"verbs": rule.verbs, "apiGroups": rule.groups, "resources": rule.resources});
                if let (Reach::Own, Some(own)) = (rule.reach, own) {
                    told["resourceNames"] = json!([own.name]);
                }
                resources.push(told);
                unsaid.extend(rule.except.iter().map(|(_, resource)| format!("{resource} are not among *")));
                if !rule.requires.is_empty() {
                    unsaid.push(format!("{} must be about the asker's own object", rule.resources.join(", ")));
                }
            }
            if !role.paths.is_empty() {
                let verbs = if role.paths.contains(&"*") { "*" } else { "get" };
                others.push(json!({"verbs": [verbs], "nonResourceURLs": role.paths}));
            }
        }
        let mut status =
            json!({"resourceRules": resources, "nonResourceRules": others, "incomplete": !unsaid.is_empty()});
        if !unsaid.is_empty() {
            status["evaluationError"] = unsaid.join("; ").into();
        }
        status
    }

    fn roles_of<'a>(&'a self, identity: &'a Identity) -> impl Iterator<Item = (&'a Role, Option<Own<'a>>)> {
        self.roles.iter().filter(|role| identity.is_in(role.group)).filter_map(|role| match role.users {
            Users::All => Some((role, None)),
            Users::Owners { prefix } => Some((role, Some(Own::parse(prefix, &identity.user)?))),
        })
    }
}

/// The object an identity is named after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Own<'a> {
    namespace: &'a str,
    name: &'a str,
}

impl<'a> Own<'a> {
    fn parse(prefix: &str, user: &'a str) -> Option<Own<'a>> {
        let (namespace, name) = user.strip_prefix(prefix)?.split_once(':')?;
        let whole = |part: &str| !part.is_empty() && !part.contains([':', '/']);
        (whole(namespace) && whole(name)).then_some(Own { namespace, name })
    }
}

impl Rule {
    fn covers(&self, attributes: &Attributes<'_>, own: Option<Own<'_>>) -> bool {
        let Target::Objects { group, resource, subresource, namespace, name } = attributes.target else {
            return false;
        };
        let listed = |list: &[&str], wanted: &str| list.contains(&"*") || list.contains(&wanted);
        let whole = if subresource.is_empty() { resource.to_owned() } else { format!("{resource}/{subresource}") };
        // Who asks for everything must not get what is excepted.
        let excepted = self.except.iter().any(|(except_group, except_resource)| {
            (group == *except_group || group == "*") && (resource == *except_resource || resource == "*")
        });
        let reached = match (self.reach, own) {
            (Reach::All, _) => true,
            (_, None) => false,
            (Reach::OwnNamespace, Some(own)) => namespace == own.namespace,
            (Reach::Own, Some(own)) => namespace == own.namespace && name == own.name,
        };
        reached
            && !excepted
            && listed(self.verbs, attributes.verb)
            && listed(self.groups, group)
            && listed(self.resources, &whole)
    }

    fn conditions(&self, own: Option<Own<'_>>) -> Vec<Condition> {
        let text = |wanted: Wanted| match wanted {
            Wanted::Text(text) => text,
            Wanted::OwnName => own.map_or("", |own| own.name),
            Wanted::OwnNamespace => own.map_or("", |own| own.namespace),
        };
        self.requires.iter().map(|(field, wanted)| Condition { field, value: text(*wanted).to_owned() }).collect()
    }
}

fn path_fits(pattern: &str, path: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => path.starts_with(start),
        None => path == pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Rule = Rule { groups: &["example.org"], reach: Reach::Own, ..EVERYTHING };
    const MACHINES: Role = Role {
        group: "machines",
        users: Users::Owners { prefix: "machine:" },
        rules: &[
            Rule { verbs: &["get", "list", "watch"], resources: &["widgets"], ..OWN },
            Rule { verbs: &["get", "update", "patch"], resources: &["widgets/status"], ..OWN },
            Rule {
                verbs: &["create"],
                groups: &[""],
                resources: &["events"],
                reach: Reach::OwnNamespace,
                requires: &[
                    ("/involvedObject/kind", Wanted::Text("Widget")),
                    ("/involvedObject/name", Wanted::OwnName),
                ],
                ..EVERYTHING
            },
        ],
        paths: &[],
    };

    /// `verb group/resource[/subresource] namespace/name`, or `verb path`.
    fn decide(policy: &Policy, identity: &Identity, asked: &str) -> &'static str {
        let words: Vec<&str> = asked.split(' ').collect();
        let target = match words.as_slice() {
            [_, path] => Target::Path(path),
            [_, what, place] => {
                let parts: Vec<&str> = what.split('/').collect();
                let (namespace, name) = place.split_once('/').unwrap();
                let subresource = parts.get(2).copied().unwrap_or_default();
                Target::Objects { group: parts[0], resource: parts[1], subresource, namespace, name }
            }
            _ => panic!("{asked}"),
        };
        match policy.authorize(identity, &Attributes { verb: words[0], target }) {
            Verdict::Allowed => "yes",
            Verdict::AllowedIf(_) => "if",
            Verdict::Denied => "no",
        }
    }

    #[test]
    fn each_identity_may_do_what_its_roles_say_and_nothing_else() {
        let policy = Policy::with(&[MACHINES]);
        let admin = Identity::member("admin", ADMINISTRATORS);
        let viewer = Identity::member("v", VIEWERS);
        let machine = Identity::member("machine:lab:m1", "machines");
        let impostor = Identity::member("machine:lab:m1", "others");
        let nameless = Identity::member("machine:lab", "machines");
        let nested = Identity::member("machine:lab:m1:m2", "machines");
        for (identity, asked, expected) in [
            (&admin, "delete /secrets a/b", "yes"),
            (&admin, "* */* /", "yes"),
            (&admin, "post /anything", "yes"),
            (&viewer, "list /configmaps /", "yes"),
            (&viewer, "get /configmaps/status a/b", "yes"),
            (&viewer, "get /secrets a/b", "no"),
            (&viewer, "list /* /", "no"),
            (&viewer, "list */* /", "no"),
            (&viewer, "watch example.org/secrets a/", "yes"),
            (&viewer, "create /configmaps a/", "no"),
            (&viewer, "* /configmaps a/", "no"),
            (&viewer, "create authorization.k8s.io/selfsubjectaccessreviews /", "yes"),
            (&viewer, "create authorization.k8s.io/subjectaccessreviews /", "no"),
            (&viewer, "get /metrics", "yes"),
            (&viewer, "post /metrics", "no"),
            (&machine, "get example.org/widgets lab/m1", "yes"),
            (&machine, "watch example.org/widgets lab/m1", "yes"),
            (&machine, "list example.org/widgets lab/m1", "yes"),
            (&machine, "list example.org/widgets lab/", "no"),
            (&machine, "list example.org/widgets /m1", "no"),
            (&machine, "get example.org/widgets lab/m2", "no"),
            (&machine, "get example.org/widgets prod/m1", "no"),
            (&machine, "patch example.org/widgets lab/m1", "no"),
            (&machine, "patch example.org/widgets/status lab/m1", "yes"),
            (&machine, "patch example.org/widgets/status lab/m2", "no"),
            (&machine, "update example.org/widgets/scale lab/m1", "no"),
            (&machine, "delete example.org/widgets lab/m1", "no"),
            (&machine, "create /events lab/", "if"),
            (&machine, "create /events prod/", "no"),
            (&machine, "get /secrets lab/m1", "no"),
            (&machine, "get /api", "yes"),
            (&machine, "get /apis/example.org/v1", "yes"),
            (&machine, "get /metrics", "no"),
            (&impostor, "get example.org/widgets lab/m1", "no"),
            (&nameless, "get example.org/widgets lab/", "no"),
            (&nested, "get example.org/widgets lab/m1:m2", "no"),
        ] {
            assert_eq!(decide(&policy, identity, asked), expected, "{} {asked}", identity.user);
        }
    }

    #[test]
    fn a_condition_is_about_the_asker_s_own_object() {
        let policy = Policy::with(&[MACHINES]);
        let target = Target::Objects { group: "", resource: "events", subresource: "", namespace: "lab", name: "" };
        let machine = Identity::member("machine:lab:m1", "machines");
        let Verdict::AllowedIf(conditions) = policy.authorize(&machine, &Attributes { verb: "create", target }) else {
            panic!("no conditions");
        };
        let about = |name: &str| json!({"involvedObject": {"kind": "Widget", "name": name}});
        assert!(conditions.iter().all(|condition| condition.holds(&about("m1"))));
        assert!(!conditions.iter().all(|condition| condition.holds(&about("m2"))));
        assert!(!conditions.iter().all(|condition| condition.holds(&json!({}))));
    }

    #[test]
    fn rules_are_told_for_the_namespace_that_was_asked_about() {
        let policy = Policy::with(&[MACHINES]);
        let machine = Identity::member("machine:lab:m1", "machines");
        let told = policy.tell(&machine, "lab");
        assert_eq!(told["resourceRules"].as_array().unwrap().len(), 4);
        assert_eq!(told["resourceRules"][1]["resourceNames"], json!(["m1"]));
        assert_eq!(policy.tell(&machine, "prod")["resourceRules"].as_array().unwrap().len(), 1);
        let viewer = policy.tell(&Identity::member("v", VIEWERS), "");
        assert_eq!(
            (&viewer["incomplete"], &viewer["evaluationError"]),
            (&json!(true), &json!("secrets are not among *"))
        );
    }
}
