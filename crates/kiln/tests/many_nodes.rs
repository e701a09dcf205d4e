//! A rollout to two hundred nodes by the hub itself, over its API and its endpoint for agents. The agents are simulated, as in
//! `network_rollout`: they change no network. Whether the budget holds is looked at where it counts, at the nodes, at every
//! instant: each says when it goes out and when it is back. A thousand nodes and bad days are simulated beside the decision
//! itself, in `kiln_core::rollout`.

#![allow(clippy::unwrap_used, reason = "a test fails loudly")]

#[path = "support/agents.rs"]
mod agents;
#[path = "support/chaos.rs"]
mod chaos;
#[path = "support/nodes.rs"]
mod nodes;

use std::time::{Duration, Instant};

use agents::{Agent, Behaviour, Site};
use kube::api::ListParams;
use serde_json::json;

const NODES: usize = 200;
const BUDGET: usize = 12;
/// Far more than it takes, for a machine that does other things, too.
const LONGEST: Duration = Duration::from_secs(600);

/// Waits until this many hosts have said that they have what they shall have.
async fn until_applied(site: &Site, policy: Option<&str>) {
    let deadline = Instant::now() + LONGEST;
    loop {
        let hosts = site.api("Host").list(&ListParams::default()).await.unwrap();
        let done = hosts.items.iter().filter(|host| {
            let network = &host.data["status"]["network"];
            let policies = network["applied"]["policies"].as_array().map_or(0, Vec::len);
            network["report"]["phase"] == "applied" && policies == usize::from(policy.is_some())
        });
        let done = done.count();
        if done == NODES && site.slots().await.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "{done} of {NODES} have it");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_nodes_are_changed_wave_by_wave_within_the_budget() {
    let site = Site::start("many-nodes", None).await;
    let zone = |number: usize| format!("z{}", number % 4);
    let mut fleet: Vec<Agent> = Vec::new();
    for number in 0..NODES {
        let name = format!("w{number:04}");
        site.host(&name, json!({ "zone": zone(number) })).await;
        fleet.push(site.agent(&name, Behaviour::Slow(50)));
    }
    until_applied(&site, None).await;
    site.watchman.lock().unwrap().forget();

    let network = json!({"interfaces": [{"name": "eth0", "type": "ethernet", "state": "up", "mtu": 1400}]});
    let rollout = json!({"rollout": {"canary": {"count": 2}, "by": "zone"}});
    site.policy("mtu", json!({"desiredState": network, "maxUnavailable": BUDGET, "kiln": rollout})).await;
    let began = Instant::now();
    until_applied(&site, Some("mtu")).await;
    let took = began.elapsed();

    let watchman = site.watchman.lock().unwrap().clone();
    println!("{NODES} simulated nodes in {:.1} s, at most {} of {BUDGET} out", took.as_secs_f64(), watchman.most);
    assert!(watchman.most <= BUDGET && watchman.most > 1, "{} were out", watchman.most);
    assert_eq!(watchman.order.len(), NODES, "each went once");
    let canaries: Vec<&str> = watchman.order[..2].iter().map(String::as_str).collect();
    assert!(canaries.contains(&"w0000") && canaries.contains(&"w0001"), "{canaries:?}");
    let zones: Vec<usize> = watchman.order[2..].iter().map(|name| name[1..].parse::<usize>().unwrap() % 4).collect();
    assert!(zones.is_sorted(), "a wave began before the one before was done");
    site.until_condition("mtu", "Available", &format!("{NODES}/{NODES} nodes successfully configured")).await;
}
