//! One document from many layers, as the hub composes it: addresses of pools, quarrels, order, older versions of the API.

use std::collections::BTreeMap;

use kube::api::PostParams;
use serde_json::{Value, json};

use super::agents::{Behaviour, Site};
use super::{mtu, settled_fleet};

/// Addresses given out, by node.
async fn given(site: &Site, policy: &str) -> BTreeMap<String, String> {
    let policy = site.api("NodeNetworkConfigurationPolicy").get(policy).await.unwrap();
    let pool = policy.data["status"]["kiln"]["allocations"]["storage"].as_object().cloned().unwrap_or_default();
    pool.into_iter().map(|(node, address)| (node, address.as_str().unwrap().to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_once_given_is_written_down_and_stays_its_nodes() {
    let site = Site::start("network-addresses", None).await;
    let mut agents = settled_fleet(&site, 3, |_| Behaviour::Good).await;
    let interface = json!({"name": "eth0", "type": "ethernet", "state": "up", "ipv4": {"enabled": true, "dhcp": false,
        "address": [{"ip": "{{ pool.storage }}", "prefix-length": "{{ pool.storage.prefix }}"}]}});
    let pool = json!({"name": "storage", "cidr": "10.20.0.0/29", "exclude": ["10.20.0.1-10.20.0.2"]});
    let spec = json!({"kiln": {"parameters": {"pools": [pool]}}, "desiredState": {"interfaces": [interface]}});
    site.policy("storage", spec).await;
    site.until_condition("storage", "Available", "3/3 nodes successfully configured").await;
    let first = given(&site, "storage").await;
    assert_eq!(first.keys().collect::<Vec<_>>(), ["w0", "w1", "w2"]);
    let mut different: Vec<&String> = first.values().collect();
    different.sort();
    different.dedup();
    assert_eq!(different.len(), 3, "nobody shares one: {first:?}");
    for (number, agent) in agents.iter().enumerate() {
        let address = &agent.network().await["interfaces"][0]["ipv4"]["address"][0];
        assert_eq!(*address, json!({"ip": first[&format!("w{number}")], "prefix-length": 29}));
    }
    // Another leader, a node that goes and one that comes: whoever has an address keeps it.
    site.replace_leader();
    drop(agents.remove(0));
    site.delete("Host", "w0").await;
    site.host("w3", json!({})).await;
    let _new = site.agent("w3", Behaviour::Good);
    site.until("the new one has an address", async || given(&site, "storage").await.contains_key("w3")).await;
    site.until_condition("storage", "Available", "3/3 nodes successfully configured").await;
    let second = given(&site, "storage").await;
    for node in ["w1", "w2"] {
        assert_eq!(second[node], first[node], "{node} keeps its own: {second:?}");
    }
    assert!(!first.values().any(|address| *address == second["w3"]), "a free one comes first: {second:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pools_network_lies_over_its_hosts_and_beneath_policies_and_the_host_says_whose_is_what() {
    let site = Site::start("network-pool-layer", None).await;
    let network = json!({"interfaces": [{"name": "eth0", "type": "ethernet", "mtu": 1450, "lldp": {"enabled": true}}]});
    site.create("Pool", json!({"metadata": {"name": "worker"}, "spec": {"network": network}})).await;
    let agents = settled_fleet(&site, 2, |_| Behaviour::Good).await;
    let shows = async |key: &str, wished: Value| {
        site.until(&format!("{key} is {wished}"), async || {
            let mut right = 0;
            for agent in &agents {
                right += usize::from(agent.network().await["interfaces"][0][key] == wished);
            }
            right == agents.len()
        })
        .await;
    };
    let owned = async |layers: &[&str]| {
        site.until(&format!("eth0 is owned by {layers:?}"), async || {
            site.host_status("w0").await["network"]["layers"]["eth0"] == json!(layers)
        })
        .await;
    };
    shows("mtu", json!(1450)).await;
    owned(&["host", "pool"]).await;
    site.policy("mtu", mtu(1400, json!({}))).await;
    shows("mtu", json!(1400)).await;
    shows("lldp", json!({"enabled": true})).await;
    owned(&["host", "policy/mtu", "pool"]).await;
    site.edit("Pool", "worker", json!({"spec": {"network": null}})).await;
    shows("lldp", Value::Null).await;
    shows("mtu", json!(1400)).await;
    owned(&["host", "policy/mtu"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_policies_that_quarrel_the_newer_one_is_refused_and_both_are_named() {
    let site = Site::start("network-quarrel", None).await;
    let agents = settled_fleet(&site, 1, |_| Behaviour::Good).await;
    site.policy("zz-older", mtu(1400, json!({}))).await;
    site.until_condition("zz-older", "Available", "1/1 nodes successfully configured").await;
    // Ages have seconds.
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    site.policy("aa-newer", mtu(9000, json!({}))).await;
    site.until_condition("aa-newer", "Degraded", "1/1 nodes failed to configure").await;
    let said = "Failing FailedToConfigure failure generating desiredState and capturedStates: interfaces[eth0].mtu: policy `zz-older` is older and wants `1400`, this one wants `9000`";
    until_enactment(&site, "aa-newer", |told| told == said).await;
    let enactment = site.enactment("w0", "aa-newer").await.unwrap();
    assert_eq!(enactment["metadata"]["labels"]["nmstate.io/policy"], "aa-newer");
    until_enactment(&site, "zz-older", |told| told == "Available SuccessfullyConfigured successfully reconciled").await;
    assert_eq!(agents[0].network().await["interfaces"][0]["mtu"], 1400);
    // With a higher priority it is no quarrel.
    let patch = json!({"spec": {"kiln": {"priority": 1}}});
    site.edit("NodeNetworkConfigurationPolicy", "aa-newer", patch).await;
    site.until_condition("aa-newer", "Available", "1/1 nodes successfully configured").await;
    assert_eq!(agents[0].network().await["interfaces"][0]["mtu"], 9000);
}

/// Waits until the enactment of a policy on w0 says this.
async fn until_enactment(site: &Site, policy: &str, wished: impl Fn(&str) -> bool) {
    site.until(&format!("the enactment of {policy} says so"), async || {
        site.enactments(policy).await.get("w0").is_some_and(|told| wished(told))
    })
    .await;
}

/// The policies a node was given, in the order they are laid over each other.
async fn order(site: &Site, host: &str) -> Vec<String> {
    let token = format!("Bearer {}", site.token(host).await);
    let answer = site.ask("GET", "/agent/v1/network", &[("authorization", token.as_str())], "").await;
    let policies = answer.json()["policies"].as_array().cloned().unwrap_or_default();
    policies.iter().map(|policy| policy["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_after_another_policy_waits_for_it_and_goes_with_it() {
    let site = Site::start("network-after", None).await;
    let _agents = settled_fleet(&site, 1, |_| Behaviour::Good).await;
    let lldp = |after: Value| {
        let interface = json!({"name": "eth0", "type": "ethernet", "state": "up", "lldp": {"enabled": true}});
        json!({"kiln": {"after": after}, "desiredState": {"interfaces": [interface]}})
    };
    // By name it would be first.
    site.policy("aa-second", lldp(json!(["zz-first"]))).await;
    site.until_condition("aa-second", "Degraded", "1/1 nodes failed to configure").await;
    until_enactment(&site, "aa-second", |told| told.ends_with("spec.kiln.after[0]: there is no policy `zz-first`"))
        .await;
    site.policy("zz-first", mtu(1400, json!({}))).await;
    for policy in ["aa-second", "zz-first"] {
        site.until_condition(policy, "Available", "1/1 nodes successfully configured").await;
    }
    assert_eq!(order(&site, "w0").await, ["zz-first", "aa-second"]);
    site.edit("NodeNetworkConfigurationPolicy", "aa-second", json!({"spec": {"kiln": {"after": null}}})).await;
    site.until("by name then", async || order(&site, "w0").await == ["aa-second", "zz-first"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_of_an_older_version_of_the_api_is_applied_like_any_other() {
    let site = Site::start("network-v1beta1", None).await;
    let agents = settled_fleet(&site, 1, |_| Behaviour::Good).await;
    let mut resource = kiln::hub::controllers::kinds::find("NodeNetworkConfigurationPolicy").unwrap().resource();
    resource.version = "v1beta1".into();
    resource.api_version = "nmstate.io/v1beta1".into();
    let api = kube::Api::<kube::api::DynamicObject>::all_with(site.lab.client.clone(), &resource);
    let policy = json!({"apiVersion": "nmstate.io/v1beta1", "kind": "NodeNetworkConfigurationPolicy",
        "metadata": {"name": "older"}, "spec": mtu(1400, json!({}))});
    api.create(&PostParams::default(), &serde_json::from_value(policy).unwrap()).await.unwrap();
    site.until_condition("older", "Available", "1/1 nodes successfully configured").await;
    assert_eq!(agents[0].network().await["interfaces"][0]["mtu"], 1400);
    // Read as it was written, its status is there too.
    let shown = api.get("older").await.unwrap();
    assert_eq!(shown.types.unwrap().api_version, "nmstate.io/v1beta1");
    assert!(super::agents::told(&serde_json::from_value(shown.data.clone()).unwrap()).starts_with("Available"));
}
