//! Decisions about Secrets for nodes, step by step, with a clock and tokens of the test's own.

use std::cell::Cell;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kiln_core::provision::{FetchedBase, Inputs};
use serde_json::Value;

use super::*;
use crate::hub::pools::{LABEL, PAYLOAD_ANNOTATION, foreign_pools};

const START: i64 = 1_767_225_600;

/// Objects, and the Secrets that were made from them, without any API.
struct Site {
    cache: Cache,
    held: Held,
    secrets: BTreeMap<(String, String), Value>,
    bases: BTreeMap<ObjectId, FetchedBase>,
    provision: Provision,
    now: i64,
    tokens: Cell<u32>,
    revision: u32,
    writes: usize,
}

impl Site {
    fn new(objects: &[Value]) -> Site {
        let mut held = Held::default();
        held.retain(&HashSet::new());
        let mut site = Site {
            cache: Cache::default(),
            held,
            secrets: BTreeMap::new(),
            bases: BTreeMap::new(),
            provision: Provision::default(),
            now: START,
            tokens: Cell::new(0),
            revision: 0,
            writes: 0,
        };
        objects.iter().for_each(|object| site.apply(object));
        site
    }

    fn apply(&mut self, object: &Value) {
        let mut object = object.clone();
        self.revision += 1;
        object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        object["metadata"]["uid"] = json!(format!("uid-{name}"));
        self.cache.put(kinds::find(object["kind"].as_str().unwrap()).unwrap(), &object);
    }

    /// One look and one plan.
    fn plan(&mut self) -> Planned {
        let foreign = foreign_pools(&self.cache);
        let stored = self.held.stored();
        let previous = std::mem::take(&mut self.provision);
        let inputs = Inputs { bases: &self.bases, stored: &stored, previous: &previous, foreign: &foreign };
        self.provision = self.cache.world.judge_with(inputs).1;
        let endpoint = Endpoint { url: "https://hub.lab:8443".into(), authorities: None };
        let situation = Situation {
            provision: &self.provision,
            held: &self.held,
            cache: &self.cache,
            hashes: &BTreeMap::new(),
            problems: &BTreeMap::new(),
            endpoint: Some(&endpoint),
            now: Moment(self.now),
        };
        plan_secrets(&situation, &|| {
            self.tokens.set(self.tokens.get() + 1);
            format!("token-{}", self.tokens.get())
        })
    }

    /// Carries a plan out.
    fn carry_out(&mut self, planned: Planned) -> usize {
        let count = planned.changes.len();
        for ObjectChange { namespace, name, action, .. } in planned.changes {
            let place = (namespace, name);
            self.revision += 1;
            self.writes += 1;
            match action {
                Action::Create(mut object) => {
                    assert!(!self.secrets.contains_key(&place), "{place:?} exists");
                    object["metadata"]["uid"] = json!(format!("uid-{}", place.1));
                    object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
                    object["metadata"]["creationTimestamp"] = json!(render_time(Moment(self.now)));
                    self.held.put(&object);
                    self.secrets.insert(place, object);
                }
                Action::Patch(mut patch) => {
                    let object = self.secrets.get_mut(&place).unwrap();
                    let named = patch["metadata"]["resourceVersion"].take();
                    assert_eq!(named, object["metadata"]["resourceVersion"], "each write names its revision");
                    merge(object, &patch);
                    object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
                    self.held.put(object);
                }
                Action::Delete { .. } => {
                    self.held.remove(&place.0, &place.1);
                    self.secrets.remove(&place);
                }
            }
        }
        count
    }

    /// Takes an object away, and as the garbage collector does, what it owns.
    fn remove(&mut self, kind: &str, name: &str) {
        self.cache.remove(kinds::find(kind).unwrap(), "site", name);
        let uid = format!("uid-{name}");
        let owned = |secret: &Value| secret["metadata"]["ownerReferences"][0]["uid"] == uid.as_str();
        let gone: Vec<_> =
            self.secrets.iter().filter(|(_, secret)| owned(secret)).map(|(place, _)| place.clone()).collect();
        for place in gone {
            self.held.remove(&place.0, &place.1);
            self.secrets.remove(&place);
        }
    }

    /// Looks and writes until nothing is left to do.
    fn settle(&mut self) {
        for _ in 0..10 {
            let planned = self.plan();
            if self.carry_out(planned) == 0 {
                return;
            }
        }
        panic!("it never comes to rest");
    }

    fn of(&self, what: &str) -> Vec<&Value> {
        self.secrets.values().filter(|secret| secret["metadata"]["labels"][LABEL] == what).collect()
    }

    fn data(secret: &Value, key: &str) -> String {
        let text = secret["data"][key].as_str().unwrap_or_default();
        String::from_utf8(STANDARD.decode(text).unwrap()).unwrap()
    }

    fn report(&mut self) -> PoolReport {
        let reports = self.plan().reports;
        reports.into_values().next().unwrap()
    }
}

fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else { return *target = patch.clone() };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in patch {
        match value {
            Value::Null if key == "resourceVersion" => {}
            Value::Null => drop(target.as_object_mut().unwrap().shift_remove(key)),
            value => merge(&mut target[key], value),
        }
    }
}

fn pool(spec: Value) -> Value {
    json!({"apiVersion": "kiln.dev/v1alpha1", "kind": "Pool", "metadata": {"name": "edge", "namespace": "site"}, "spec": spec})
}

fn config_map(text: &str) -> Value {
    let config = format!(
        "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata: {{name: 50-motd, labels: {{machineconfiguration.openshift.io/role: worker}}}}\nspec:\n  config:\n    ignition: {{version: 3.2.0}}\n    storage: {{files: [{{path: /etc/motd, mode: 420, contents: {{source: \"data:,{text}\"}}}}]}}\n"
    );
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "config", "namespace": "site"}, "data": {"config": config}})
}

fn host(name: &str) -> Value {
    json!({"apiVersion": "kiln.dev/v1alpha1", "kind": "Host", "metadata": {"name": name, "namespace": "site"},
        "spec": {"pool": "edge", "macAddress": "52:54:00:00:00:01", "nodeLabels": {"zone": "a"}}})
}

fn edge() -> Site {
    Site::new(&[pool(json!({"config": [{"name": "config"}]})), config_map("one"), host("w0"), host("w1")])
}

#[test]
fn a_pool_gets_payload_overlays_token_and_user_data() {
    let mut site = edge();
    site.settle();
    let [payload] = site.of("payload")[..] else { panic!("{:?}", site.secrets.keys()) };
    assert_eq!(payload["type"], "kiln.dev/ignition-payload");
    let id = Site::data(payload, "id");
    assert_eq!(payload["metadata"]["name"], format!("payload-edge-{}", &id[..16]));
    assert_eq!(
        payload["metadata"]["ownerReferences"],
        json!([{"apiVersion": "kiln.dev/v1alpha1", "kind": "Pool", "name": "edge", "uid": "uid-edge"}])
    );
    let overlays = site.of("overlay");
    assert_eq!(overlays.len(), 2);
    assert_eq!(Site::data(overlays[0], "payload"), payload["metadata"]["name"].as_str().unwrap());
    assert!(Site::data(overlays[0], "files").contains("/etc/hostname"));
    let [token] = site.of("pool-token")[..] else { panic!() };
    assert_eq!(Site::data(token, "token"), "token-1");
    let annotations = &token["metadata"]["annotations"];
    assert_eq!(annotations[annotation::CONFIG], "true");
    assert_eq!(annotations[annotation::NODE_POOL], "site/edge");
    assert_eq!(annotations[annotation::GENERATED], "2026-01-01T00:00:00Z");
    assert_eq!(annotations[PAYLOAD_ANNOTATION], payload["metadata"]["name"]);
    assert_eq!((Site::data(token, "reason").as_str(), Site::data(token, "message").as_str()), ("AsExpected", ""));
    // Of nothing, as upstream hashes it: FNV-1a of no bytes, and of the text `null`.
    assert_eq!(Site::data(token, "additional-trust-bundle-hash"), "811c9dc5");
    assert_eq!(Site::data(token, "hc-configuration-hash"), "77074ba4");
    assert_eq!((&token["data"]["cloud-config-hash"], &token["data"]["os-stream"]), (&json!(""), &json!("")));
    let [user_data] = site.of("user-data")[..] else { panic!() };
    assert_eq!(Site::data(user_data, "disableTemplating"), STANDARD.encode("true"));
    let pointer: Value = serde_json::from_str(&Site::data(user_data, "value")).unwrap();
    let hash = token["metadata"]["name"].as_str().unwrap().rsplit('-').next().unwrap();
    assert_eq!(hash.len(), 8);
    assert_eq!(
        pointer["ignition"]["config"]["merge"][0],
        json!({"source": "https://hub.lab:8443/ignition", "httpHeaders": [
            {"name": "Authorization", "value": format!("Bearer {}", STANDARD.encode("token-1"))},
            {"name": "NodePool", "value": "site/edge"}, {"name": "TargetConfigVersionHash", "value": hash}]})
    );
    assert!(matches!(site.report().config, ConfigReport::Ready { since: Some(Moment(START)), .. }));
}

#[test]
fn a_token_is_rotated_and_the_one_before_stays_beside_it() {
    let mut site = edge();
    site.settle();
    assert_eq!(site.plan().next, Some(Moment(START + 19_800)));
    site.now += 19_800;
    site.settle();
    let [token] = site.of("pool-token")[..] else { panic!() };
    assert_eq!((Site::data(token, "token").as_str(), Site::data(token, "old_token").as_str()), ("token-2", "token-1"));
    let [user_data] = site.of("user-data")[..] else { panic!() };
    assert!(Site::data(user_data, "value").contains(&STANDARD.encode("token-2")));
    site.now += 40_000;
    site.settle();
    let [token] = site.of("pool-token")[..] else { panic!() };
    assert_eq!(Site::data(token, "token"), "token-3");
    assert!(token["data"]["old_token"].is_null(), "what is older than eleven hours has had its life");
}

#[test]
fn when_the_config_changes_the_old_token_gets_its_end_once() {
    let mut site = edge();
    site.settle();
    let old = site.of("pool-token")[0]["metadata"]["name"].as_str().unwrap().to_owned();
    let old_payload = site.of("payload")[0]["metadata"]["name"].as_str().unwrap().to_owned();
    site.apply(&config_map("two"));
    site.now += 100;
    site.settle();
    let get = |site: &Site, name: &str| site.secrets.get(&("site".to_owned(), name.to_owned())).cloned();
    let end = get(&site, &old).unwrap()["metadata"]["annotations"][annotation::EXPIRES].clone();
    assert_eq!(end, "2026-01-01T02:01:40Z");
    assert_eq!((site.of("pool-token").len(), site.of("user-data").len(), site.of("payload").len()), (2, 1, 2));
    site.now += 3_600;
    site.settle();
    assert_eq!(get(&site, &old).unwrap()["metadata"]["annotations"][annotation::EXPIRES], end, "it is not pushed back");
    site.now += 3_600;
    site.settle();
    assert_eq!((get(&site, &old), get(&site, &old_payload)), (None, None));
    assert_eq!((site.of("pool-token").len(), site.of("payload").len()), (1, 1));
}

#[test]
fn a_config_that_comes_back_keeps_its_token() {
    let mut site = edge();
    site.settle();
    let first = site.of("pool-token")[0]["metadata"]["name"].clone();
    site.apply(&config_map("two"));
    site.settle();
    site.apply(&config_map("one"));
    site.settle();
    let back = site.of("pool-token").into_iter().find(|token| token["metadata"]["name"] == first).unwrap();
    assert!(back["metadata"]["annotations"][annotation::EXPIRES].is_null());
    assert_eq!(Site::data(back, "token"), "token-1");
}

#[test]
fn what_is_right_is_not_written_and_only_changed_overlays_are() {
    let mut site = edge();
    for number in 2..200 {
        site.apply(&host(&format!("w{number}")));
    }
    site.settle();
    let before = site.writes;
    site.settle();
    assert_eq!(site.writes, before);
    let mut changed = host("w7");
    changed["spec"]["nodeLabels"]["zone"] = json!("b");
    site.apply(&changed);
    site.settle();
    assert_eq!(site.writes, before + 1);
}

#[test]
fn contents_of_a_secret_change_the_payload_and_a_broken_one_changes_nothing() {
    let mut site = Site::new(&[pool(json!({"ignition": {"secret": "base"}})), host("w0")]);
    site.settle();
    assert_eq!(site.report().config, ConfigReport::Pending);
    assert!(site.secrets.is_empty());
    let id = ObjectId { kind: "Pool".into(), namespace: "site".into(), name: "edge".into() };
    let base = |text: &str| FetchedBase::Ready { what: "Secret site/base".into(), bytes: text.as_bytes().into() };
    site.bases.insert(
        id.clone(),
        base(r#"{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/a","contents":{"source":"data:,1"}}]}}"#),
    );
    site.settle();
    let first = Site::data(site.of("payload")[0], "id");
    site.bases.insert(
        id.clone(),
        base(r#"{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/a","contents":{"source":"data:,2"}}]}}"#),
    );
    site.settle();
    let ids: Vec<String> = site.of("payload").into_iter().map(|secret| Site::data(secret, "id")).collect();
    assert!(ids.len() == 2 && ids.contains(&first));
    let writes = site.writes;
    site.bases.insert(id.clone(), base("not a config"));
    site.settle();
    assert_eq!(site.writes, writes);
    let ConfigReport::Failed(why) = site.report().config else { panic!() };
    assert!(why.starts_with("Secret site/base is no Ignition config: "), "{why}");
    site.bases.insert(id, FetchedBase::Failed("https://x: the server did not answer".into()));
    site.now += 19_800;
    site.settle();
    let live = site
        .of("pool-token")
        .into_iter()
        .filter(|token| token["metadata"]["annotations"][annotation::EXPIRES].is_null());
    let live: Vec<&Value> = live.collect();
    assert_eq!(live.len(), 1);
    assert!(!Site::data(live[0], "old_token").is_empty(), "tokens of the last good config are rotated on");
}

#[test]
fn everything_goes_with_the_pool_and_an_overlay_with_its_host() {
    let mut site = edge();
    site.settle();
    site.remove("Host", "w1");
    site.settle();
    assert_eq!(site.of("overlay").len(), 1);
    site.remove("Pool", "edge");
    site.settle();
    assert!(site.secrets.is_empty(), "{:?}", site.secrets.keys());
}

#[test]
fn a_kind_that_cannot_be_read_costs_nobody_its_config() {
    let mut site = edge();
    site.settle();
    let before = site.secrets.clone();
    // Forbidden looks like absent, but the garbage collector takes nothing.
    site.cache.remove(kinds::find("Pool").unwrap(), "site", "edge");
    site.settle();
    assert_eq!(site.secrets, before);
    site.cache.remove(kinds::find("Host").unwrap(), "site", "w0");
    site.settle();
    assert_eq!(site.secrets, before);
}

#[test]
fn a_host_that_goes_to_a_pool_nobody_declares_loses_its_overlay() {
    let mut site = edge();
    site.settle();
    let mut moved = host("w0");
    moved["spec"]["pool"] = json!("other");
    site.apply(&moved);
    site.settle();
    assert_eq!(site.of("overlay").len(), 1);
}

#[test]
fn a_host_beside_the_bare_metal_host_of_its_name_is_one_machine() {
    let mut site = edge();
    let beside = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": {"name": "w0", "namespace": "site",
        "annotations": {"bmac.agent-install.openshift.io/machine-config-pool": "edge"}}, "spec": {"online": true}});
    site.apply(&beside);
    site.settle();
    assert_eq!(site.provision.hosts.iter().map(|host| host.host.kind.as_str()).collect::<Vec<_>>(), ["Host", "Host"]);
}

#[test]
fn a_node_pool_that_updates_in_place_carries_its_payload_in_the_token() {
    let node_pool = json!({"apiVersion": "hypershift.openshift.io/v1beta1", "kind": "NodePool", "metadata": {"name": "np", "namespace": "site"},
        "spec": {"clusterName": "hc", "config": [{"name": "config"}], "management": {"upgradeType": "InPlace"}, "platform": {"type": "None"},
            "taints": [{"key": "edge", "value": "", "effect": "NoSchedule"}],
            "release": {"image": "quay.io/openshift-release-dev/ocp-release:4.14.3-x86_64"}}});
    let mut host = host("w0");
    host["spec"]["pool"] = json!("np");
    let mut site = Site::new(&[node_pool, config_map("one"), host]);
    site.settle();
    let [token] = site.of("pool-token")[..] else { panic!("{:?}", site.secrets.keys()) };
    assert_eq!(token["metadata"]["annotations"][annotation::UPGRADE_TYPE], "InPlace");
    assert_eq!(Site::data(token, "release-version"), "4.14.3");
    let unpack = |text: &str| {
        let bytes = STANDARD.decode(text).unwrap();
        String::from_utf8(kiln_core::ignition::unpack_gzip(&bytes).unwrap().into_owned()).unwrap()
    };
    assert!(unpack(&Site::data(token, "payload")).contains("/etc/motd"));
    assert!(unpack(&Site::data(token, "config")).contains("kind: MachineConfig"));
    let [overlay] = site.of("overlay")[..] else { panic!() };
    let files: Value = serde_json::from_str(&Site::data(overlay, "files")).unwrap();
    let drop_in =
        files.as_array().unwrap().iter().find(|file| file["path"].as_str().unwrap().ends_with("20-kiln.conf"));
    let text = kiln_core::ignition::data_url::decode(drop_in.unwrap()["contents"]["source"].as_str().unwrap()).unwrap();
    assert!(String::from_utf8(text).unwrap().contains("--register-with-taints=edge=:NoSchedule"));
    // Deleting the Secret is how a token is revoked: a new one comes, and the payload with it.
    let name = token["metadata"]["name"].as_str().unwrap().to_owned();
    site.held.remove("site", &name);
    site.secrets.remove(&("site".to_owned(), name));
    site.settle();
    let [token] = site.of("pool-token")[..] else { panic!() };
    assert_eq!(Site::data(token, "token"), "token-2");
    assert!(!Site::data(token, "payload").is_empty());
}

#[test]
fn pools_that_another_controller_drives_are_left_alone() {
    let mut node_pool = json!({"apiVersion": "hypershift.openshift.io/v1beta1", "kind": "NodePool",
        "metadata": {"name": "np", "namespace": "site", "managedFields": [{"manager": "hypershift-operator", "subresource": "status"}]},
        "spec": {"clusterName": "hc", "management": {"upgradeType": "Replace"}, "platform": {"type": "None"}, "release": {"image": "x"}}});
    let mut site = Site::new(std::slice::from_ref(&node_pool));
    site.settle();
    assert!(site.secrets.is_empty());
    node_pool["metadata"]["managedFields"] = Value::Null;
    site.apply(&node_pool);
    site.settle();
    assert_eq!(site.of("pool-token").len(), 1);
}
