//! What a changed file or unit takes: upstream's node disruption rules, those of the administrator and those built in.
//!
//! The rule with the longest path counts, on the boundary of a folder; of two with the same path the administrator's. What has
//! no rule takes a reboot, and a reboot takes a drain. [`parse_rules`] reads `spec.nodeDisruptionPolicy` of a
//! MachineConfiguration within upstream's bounds.
//!
//! Not here: profiles of NetworkManager, which are tried on the running node and need no rule.
//! What surprises: upstream looks into `registries.conf` whether its pods may stay. Here they always go first, as they do
//! there unless mirrors were only added.

use serde_json::{Map, Value};

use super::config::{SSH_KEYS, is_plain_path};
use super::unit::is_unit_name;
use super::{Action, FileRule, Needs, Rules, UnitRule};
use crate::payload::kubelet::DROP_IN;

/// How many files, and how many units, may have a rule.
const MOST_RULES: usize = 50;
/// How many actions a rule may have.
const MOST_ACTIONS: usize = 10;
/// The one file that upstream has a `Special` action for.
const REGISTRIES: &str = "/etc/containers/registries.conf";
const CRIO: &str = "crio.service";

impl Rules {
    /// What a change of a file takes.
    pub fn of_file(&self, path: &str) -> Vec<Action> {
        let own = self.files.iter().map(|rule| (rule.path.as_str(), rule.actions.clone()));
        // Of equal lengths the last one is taken, so the administrator's come last.
        let closest =
            built_in().into_iter().chain(own).filter(|(of, _)| covers(of, path)).max_by_key(|(of, _)| of.len());
        closest.map_or_else(|| vec![Action::Reboot], |(_, actions)| actions)
    }

    /// What a change of a unit takes.
    pub fn of_unit(&self, name: &str) -> Vec<Action> {
        let own = self.units.iter().find(|rule| rule.name == name);
        own.map_or_else(|| vec![Action::Reboot], |rule| rule.actions.clone())
    }
}

/// What all of them together take, in the order it is done: the drain, systemd's reload, then services; or drain and reboot.
pub fn combine(actions: impl IntoIterator<Item = Action>) -> Vec<Action> {
    let mut services: Vec<Action> = Vec::new();
    let (mut drain, mut daemon_reload) = (false, false);
    for action in actions {
        match action {
            Action::Reboot => return vec![Action::Drain, Action::Reboot],
            Action::None => {}
            Action::Drain => drain = true,
            Action::DaemonReload => daemon_reload = true,
            service => {
                if !services.contains(&service) {
                    services.push(service);
                }
            }
        }
    }
    let first = [(drain, Action::Drain), (daemon_reload, Action::DaemonReload)];
    first.into_iter().filter_map(|(taken, action)| taken.then_some(action)).chain(services).collect()
}

/// The strongest thing these actions are.
pub fn needs_of(actions: &[Action]) -> Needs {
    let needs = actions.iter().map(|action| match action {
        Action::None => Needs::Nothing,
        Action::DaemonReload | Action::Reload(_) | Action::Restart(_) => Needs::Service,
        Action::Drain => Needs::Drain,
        Action::Reboot => Needs::Reboot,
    });
    needs.max().unwrap_or_default()
}

/// Reads `spec.nodeDisruptionPolicy`; or every mistake in it, with its place.
pub fn parse_rules(value: &Value) -> Result<Rules, Vec<String>> {
    let mut reader = Reader::default();
    let rules = reader.rules(value);
    if reader.mistakes.is_empty() { Ok(rules) } else { Err(reader.mistakes) }
}

/// Upstream's own rules, and one for the file Kiln itself gives a kubelet: a label must not cost a reboot.
fn built_in() -> [(&'static str, Vec<Action>); 9] {
    let reload = || vec![Action::Reload(CRIO.to_owned())];
    [
        ("/var/lib/kubelet/config.json", vec![Action::None]),
        ("/etc/nmstate/openshift", vec![Action::None]),
        (SSH_KEYS, vec![Action::None]),
        (DROP_IN, vec![Action::DaemonReload, Action::Restart("kubelet.service".to_owned())]),
        ("/etc/machine-config-daemon/no-reboot/containers-gpg.pub", reload()),
        ("/etc/containers/policy.json", reload()),
        ("/etc/containers/registries.d", reload()),
        (REGISTRIES, vec![Action::Drain, Action::Reload(CRIO.to_owned())]),
        (
            "/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt",
            vec![Action::Restart("coreos-update-ca-trust.service".to_owned()), Action::Restart(CRIO.to_owned())],
        ),
    ]
}

fn covers(rule: &str, path: &str) -> bool {
    path.strip_prefix(rule).is_some_and(|below| below.is_empty() || below.starts_with('/'))
}

#[derive(Default)]
struct Reader {
    mistakes: Vec<String>,
}

impl Reader {
    fn wrong(&mut self, at: &str, why: impl std::fmt::Display) {
        self.mistakes.push(if at.is_empty() { why.to_string() } else { format!("{at}: {why}") });
    }

    fn rules(&mut self, value: &Value) -> Rules {
        let mut rules = Rules::default();
        if value.is_null() {
            return rules;
        }
        let Some(fields) = self.fields("", value, &["files", "units", "sshkey"]) else { return rules };
        for (at, entry) in self.list("files", fields.get("files"), MOST_RULES) {
            let Some(fields) = self.fields(&at, entry, &["path", "actions"]) else { continue };
            let path = self.text(&format!("{at}.path"), fields.get("path")).unwrap_or_default();
            if !path.is_empty() && !is_plain_path(&path) {
                self.wrong(
                    &format!("{at}.path"),
                    "write an absolute path without `.`, `..`, doubled or trailing slashes",
                );
            }
            if rules.files.iter().any(|rule| rule.path == path) {
                self.wrong(&format!("{at}.path"), format!("`{path}` has a rule already"));
            }
            let actions = self.actions(&format!("{at}.actions"), fields.get("actions"), path == REGISTRIES);
            rules.files.push(FileRule { path, actions });
        }
        for (at, entry) in self.list("units", fields.get("units"), MOST_RULES) {
            let Some(fields) = self.fields(&at, entry, &["name", "actions"]) else { continue };
            let name = self.unit(&format!("{at}.name"), fields.get("name"));
            if rules.units.iter().any(|rule| rule.name == name) {
                self.wrong(&format!("{at}.name"), format!("`{name}` has a rule already"));
            }
            let actions = self.actions(&format!("{at}.actions"), fields.get("actions"), false);
            rules.units.push(UnitRule { name, actions });
        }
        if let Some(keys) = fields.get("sshkey").filter(|keys| !keys.is_null())
            && let Some(fields) = self.fields("sshkey", keys, &["actions"])
        {
            let actions = self.actions("sshkey.actions", fields.get("actions"), false);
            rules.files.push(FileRule { path: SSH_KEYS.to_owned(), actions });
        }
        rules
    }

    /// `special`: whether upstream has its own action for this file.
    fn actions(&mut self, at: &str, value: Option<&Value>, special: bool) -> Vec<Action> {
        let entries = self.list(at, value, MOST_ACTIONS);
        let count = entries.len();
        if count == 0 && value.is_none_or(|value| value.is_null() || value.as_array().is_some_and(Vec::is_empty)) {
            self.wrong(at, "say at least one action; `None` for nothing");
        }
        let mut actions = Vec::new();
        for (at, entry) in entries {
            let Some(fields) = self.fields(&at, entry, &["type", "reload", "restart"]) else { continue };
            let kind = self.text(&format!("{at}.type"), fields.get("type")).unwrap_or_default();
            for (field, of) in [("reload", "Reload"), ("restart", "Restart")] {
                if kind != of && fields.get(field).is_some_and(|value| !value.is_null()) {
                    self.wrong(&format!("{at}.{field}"), format!("belongs to the type `{of}`"));
                }
            }
            match kind.as_str() {
                "" => {}
                "None" | "Reboot" => {
                    if count > 1 {
                        self.wrong(&format!("{at}.type"), format!("`{kind}` stands alone"));
                    }
                    actions.push(if kind == "None" { Action::None } else { Action::Reboot });
                }
                "Drain" => actions.push(Action::Drain),
                "DaemonReload" => actions.push(Action::DaemonReload),
                "Reload" => actions.push(Action::Reload(self.service(&at, "reload", fields))),
                "Restart" => actions.push(Action::Restart(self.service(&at, "restart", fields))),
                "Special" if special => actions.extend([Action::Drain, Action::Reload(CRIO.to_owned())]),
                "Special" => self.wrong(&format!("{at}.type"), format!("`Special` is for {REGISTRIES} alone")),
                _ => self.wrong(
                    &format!("{at}.type"),
                    format!("`{kind}` is none of None, Drain, Reload, Restart, DaemonReload, Reboot"),
                ),
            }
        }
        actions
    }

    fn service(&mut self, at: &str, field: &str, fields: &Map<String, Value>) -> String {
        let at = format!("{at}.{field}");
        let Some(value) = fields.get(field).filter(|value| !value.is_null()) else {
            self.wrong(&at, "say which service: `serviceName: crio.service`");
            return String::new();
        };
        let Some(fields) = self.fields(&at, value, &["serviceName"]) else { return String::new() };
        self.unit(&format!("{at}.serviceName"), fields.get("serviceName"))
    }

    fn unit(&mut self, at: &str, value: Option<&Value>) -> String {
        let Some(name) = self.text(at, value) else { return String::new() };
        if !is_unit_name(&name) {
            self.wrong(at, format!("`{}` is no name of a unit; write it as `crio.service`", name.escape_debug()));
        }
        name
    }

    fn text(&mut self, at: &str, value: Option<&Value>) -> Option<String> {
        match value {
            Some(Value::String(text)) if !text.is_empty() => Some(text.clone()),
            Some(Value::String(_) | Value::Null) | None => {
                self.wrong(at, "is missing");
                None
            }
            Some(_) => {
                self.wrong(at, "must be a text");
                None
            }
        }
    }

    fn list<'a>(&mut self, at: &str, value: Option<&'a Value>, most: usize) -> Vec<(String, &'a Value)> {
        match value {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(entries)) if entries.len() > most => {
                self.wrong(at, format!("has {} entries; at most {most} are taken", entries.len()));
                Vec::new()
            }
            Some(Value::Array(entries)) => {
                entries.iter().enumerate().map(|(index, entry)| (format!("{at}[{index}]"), entry)).collect()
            }
            Some(_) => {
                self.wrong(at, "must be a list");
                Vec::new()
            }
        }
    }

    fn fields<'a>(&mut self, at: &str, value: &'a Value, known: &[&str]) -> Option<&'a Map<String, Value>> {
        let Some(fields) = value.as_object() else {
            self.wrong(at, "must be an object");
            return None;
        };
        for field in fields.keys().filter(|field| !known.contains(&field.as_str())) {
            let place = if at.is_empty() { field.clone() } else { format!("{at}.{field}") };
            self.wrong(&place, format!("is not known; known here: {}", known.join(", ")));
        }
        Some(fields)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn reload() -> Vec<Action> {
        vec![Action::Reload(CRIO.to_owned())]
    }

    fn kubelet() -> Vec<Action> {
        vec![Action::DaemonReload, Action::Restart("kubelet.service".into())]
    }

    #[test]
    fn the_longest_rule_counts_and_the_administrators_before_upstreams() {
        let rules = Rules {
            files: [
                ("/etc", Action::Restart("a.service".into())),
                ("/etc/chrony", Action::None),
                ("/etc/containers/policy.json", Action::Drain),
            ]
            .map(|(path, action)| FileRule { path: path.into(), actions: vec![action] })
            .into(),
            units: Vec::new(),
        };
        for (path, own, built_in) in [
            ("/etc/chrony/a/b", vec![Action::None], vec![Action::Reboot]),
            ("/etc/chrony", vec![Action::None], vec![Action::Reboot]),
            ("/etc/chrony.conf", vec![Action::Restart("a.service".into())], vec![Action::Reboot]),
            ("/etcetera", vec![Action::Reboot], vec![Action::Reboot]),
            ("/etc/containers/policy.json", vec![Action::Drain], reload()),
            ("/etc/containers/registries.d/a.yaml", reload(), reload()),
            ("/etc/containers/registries.dd", vec![Action::Restart("a.service".into())], vec![Action::Reboot]),
            ("/etc/nmstate/openshift/cluster.yml", vec![Action::None], vec![Action::None]),
            ("/var/lib/kubelet/config.json", vec![Action::None], vec![Action::None]),
            (SSH_KEYS, vec![Action::None], vec![Action::None]),
            (DROP_IN, kubelet(), kubelet()),
        ] {
            assert_eq!((rules.of_file(path), Rules::default().of_file(path)), (own, built_in), "{path}");
        }
        let bundle = "/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt";
        let restart = ["coreos-update-ca-trust.service", CRIO].map(|name| Action::Restart(name.to_owned()));
        assert_eq!(Rules::default().of_file(bundle), restart);
        assert_eq!(rules.of_unit("a.service"), [Action::Reboot]);
    }

    #[test]
    fn actions_are_put_in_order_and_a_reboot_swallows_all() {
        use Action::{DaemonReload, Drain, None, Reboot, Reload, Restart};
        let a = || "a.service".to_owned();
        let b = || "b.service".to_owned();
        for (actions, expected, needs) in [
            (vec![], vec![], Needs::Nothing),
            (vec![None, None], vec![], Needs::Nothing),
            (vec![DaemonReload], vec![DaemonReload], Needs::Service),
            (
                vec![Restart(b()), None, Reload(a()), DaemonReload, Restart(b())],
                vec![DaemonReload, Restart(b()), Reload(a())],
                Needs::Service,
            ),
            (vec![Reload(a()), Drain, Drain], vec![Drain, Reload(a())], Needs::Drain),
            (vec![Reload(a()), None, Reboot, DaemonReload], vec![Drain, Reboot], Needs::Reboot),
        ] {
            let combined = combine(actions.clone());
            assert_eq!((&combined, needs_of(&combined)), (&expected, needs), "{actions:?}");
        }
    }

    #[test]
    fn upstreams_words_are_read() {
        let read = parse_rules(&json!({
            "files": [
                {"path": "/etc/chrony.conf", "actions": [
                    {"type": "Drain"}, {"type": "DaemonReload"},
                    {"type": "Reload", "reload": {"serviceName": "chronyd.service"}},
                    {"type": "Restart", "restart": {"serviceName": "crio.service"}},
                ]},
                {"path": "/etc/containers/registries.conf", "actions": [{"type": "Special"}]},
            ],
            "units": [{"name": "a.service", "actions": [{"type": "None"}]}],
            "sshkey": {"actions": [{"type": "Reboot"}]},
        }));
        let file = |path: &str, actions: Vec<Action>| FileRule { path: path.into(), actions };
        let expected = Rules {
            files: vec![
                file(
                    "/etc/chrony.conf",
                    vec![
                        Action::Drain,
                        Action::DaemonReload,
                        Action::Reload("chronyd.service".into()),
                        Action::Restart("crio.service".into()),
                    ],
                ),
                file(REGISTRIES, vec![Action::Drain, Action::Reload(CRIO.into())]),
                file(SSH_KEYS, vec![Action::Reboot]),
            ],
            units: vec![UnitRule { name: "a.service".into(), actions: vec![Action::None] }],
        };
        assert_eq!(read, Ok(expected.clone()));
        assert_eq!(expected.of_file(SSH_KEYS), [Action::Reboot]);
        for nothing in [json!(null), json!({}), json!({"files": null, "units": [], "sshkey": null})] {
            assert_eq!(parse_rules(&nothing), Ok(Rules::default()));
        }
    }

    #[test]
    fn every_mistake_is_named_with_its_place() {
        let read = parse_rules(&json!({
            "nodes": 1,
            "files": [
                {"path": "etc/a", "actions": []},
                {"path": "/a", "actions": [{"type": "None"}, {"type": "Drain"}]},
                {"path": "/a", "actions": [{"type": "Reload"}, {"type": "Drain", "restart": {"serviceName": "a.service"}}]},
                {"path": 7, "actions": [{"type": "Special"}, {"type": "Explode"}, "Drain", {}]},
                [],
            ],
            "units": [{"name": "crio", "actions": [{"type": "Restart", "restart": {"serviceName": "-x.service"}}]}],
            "sshkey": {},
        }));
        let expected = [
            "nodes: is not known; known here: files, units, sshkey",
            "files[0].path: write an absolute path without `.`, `..`, doubled or trailing slashes",
            "files[0].actions: say at least one action; `None` for nothing",
            "files[1].actions[0].type: `None` stands alone",
            "files[2].path: `/a` has a rule already",
            "files[2].actions[0].reload: say which service: `serviceName: crio.service`",
            "files[2].actions[1].restart: belongs to the type `Restart`",
            "files[3].path: must be a text",
            "files[3].actions[0].type: `Special` is for /etc/containers/registries.conf alone",
            "files[3].actions[1].type: `Explode` is none of None, Drain, Reload, Restart, DaemonReload, Reboot",
            "files[3].actions[2]: must be an object",
            "files[3].actions[3].type: is missing",
            "files[4]: must be an object",
            "units[0].name: `crio` is no name of a unit; write it as `crio.service`",
            "units[0].actions[0].restart.serviceName: `-x.service` is no name of a unit; write it as `crio.service`",
            "sshkey.actions: say at least one action; `None` for nothing",
        ];
        assert_eq!(read, Err(expected.map(str::to_owned).to_vec()));
        let rule = |index: usize| json!({"path": format!("/{index}"), "actions": vec![json!({"type": "Drain"}); 11]});
        let many: Vec<Value> = (0..51).map(rule).collect();
        assert_eq!(
            parse_rules(&json!({"files": many})),
            Err(vec!["files: has 51 entries; at most 50 are taken".into()])
        );
        assert_eq!(
            parse_rules(&json!({"files": [rule(0)], "units": {}})),
            Err(vec!["files[0].actions: has 11 entries; at most 10 are taken".into(), "units: must be a list".into()])
        );
        assert_eq!(parse_rules(&json!("a")), Err(vec!["must be an object".into()]));
    }
}
