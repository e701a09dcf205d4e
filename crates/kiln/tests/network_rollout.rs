//! Day 2 from outside: policies, Hosts and scripted agents that speak `/agent/v1/network`. The agents are simulated: they
//! change no network, they only say what a node would say, at the times it would say it. Real ones are in another test.

#![allow(clippy::unwrap_used, reason = "a test fails loudly")]

#[path = "support/agents.rs"]
mod agents;
#[path = "support/chaos.rs"]
mod chaos;
#[path = "network_rollout/hub_view.rs"]
mod hub_view;
#[path = "network_rollout/layers.rs"]
mod layers;
#[path = "support/nodes.rs"]
mod nodes;
#[path = "support/served.rs"]
mod served;

use agents::{Agent, Behaviour, Site};
use kiln::hub::network::records::render_micro;
use kiln::hub::timeline::parse_time;
use kiln_core::timeline::Moment;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn one_policy_reaches_one_node_and_is_available() {
    let site = Site::start("network-one", None).await;
    site.host("w0", json!({})).await;
    site.policy("mtu", json!({"desiredState": {"interfaces": [{"name": "eth0", "type": "ethernet", "mtu": 1400}]}}))
        .await;
    let agent = site.agent("w0", Behaviour::Good);
    site.until_condition("mtu", "Available", "1/1 nodes successfully configured").await;
    let enactment = site.enactment("w0", "mtu").await.unwrap();
    assert_eq!(agents::told(&enactment), "Available SuccessfullyConfigured successfully reconciled");
    assert_eq!(enactment["metadata"]["labels"]["nmstate.io/node"], "w0");
    assert_eq!(enactment["metadata"]["labels"]["nmstate.io/policy"], "mtu");
    assert_eq!(enactment["status"]["policyGeneration"], 1);
    assert_eq!(enactment["status"]["desiredState"]["interfaces"][0]["mtu"], 1400);
    site.until("the slot ends", async || site.slots().await.is_empty()).await;
    let status = site.host_status("w0").await;
    assert_eq!(status["network"]["applied"]["policies"], json!([{"name": "mtu", "generation": 1}]));
    let entries = status["timeline"].as_array().unwrap().clone();
    let changed = entries.iter().find(|entry| entry["stage"] == "Changed").unwrap();
    assert_eq!(changed["cause"], "mtu (generation 1) applied in 12 ms, 3 ms of outage");
    assert_eq!(agent.network().await["interfaces"][0]["mtu"], 1400);
}

/// A policy over all nodes that gives them an MTU.
fn mtu(mtu: u64, more: serde_json::Value) -> serde_json::Value {
    let mut spec =
        json!({"desiredState": {"interfaces": [{"name": "eth0", "type": "ethernet", "state": "up", "mtu": mtu}]}});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    spec
}

async fn fleet(site: &Site, count: usize, behaviour: impl Fn(usize) -> Behaviour) -> Vec<Agent> {
    let mut agents = Vec::new();
    for number in 0..count {
        let name = format!("w{number}");
        site.host(&name, json!({"zone": if number.is_multiple_of(2) { "a" } else { "b" }})).await;
        agents.push(site.agent(&name, behaviour(number)));
    }
    // A policy that comes first must not find half of them.
    site.until("every agent speaks", async || {
        let mut spoken = 0;
        for number in 0..count {
            spoken += usize::from(!site.host_status(&format!("w{number}")).await["network"]["report"].is_null());
        }
        spoken == count
    })
    .await;
    agents
}

/// The same, when everybody has its own network and nobody is out.
async fn settled_fleet(site: &Site, count: usize, behaviour: impl Fn(usize) -> Behaviour) -> Vec<Agent> {
    let agents = fleet(site, count, behaviour).await;
    site.until("they have their own networks", async || {
        let mut settled = 0;
        for number in 0..count {
            let status = site.host_status(&format!("w{number}")).await;
            settled += usize::from(status["network"]["report"]["phase"] == "applied");
        }
        settled == count && site.slots().await.is_empty()
    })
    .await;
    site.watchman.lock().unwrap().forget();
    agents
}

async fn canaries_go_first_then_wave_after_wave_and_never_more_than_the_budget(site: Site) {
    let _agents = settled_fleet(&site, 7, |_| Behaviour::Slow(40)).await;
    let rollout = json!({"maxUnavailable": 2, "kiln": {"rollout": {"canary": {"count": 1}, "by": "zone"}}});
    site.policy("mtu", mtu(1400, rollout)).await;
    site.until_condition("mtu", "Available", "7/7 nodes successfully configured").await;
    let watchman = site.watchman.lock().unwrap().clone();
    assert!(watchman.most <= 2, "{watchman:?}");
    assert_eq!(watchman.order[0], "w0", "{watchman:?}");
    let zone = |name: &String| name[1..].parse::<usize>().unwrap() % 2;
    let zones: Vec<usize> = watchman.order.iter().map(zone).collect();
    assert_eq!(zones, [0, 0, 0, 0, 1, 1, 1], "{watchman:?}");
}

async fn a_failure_halts_the_policy_and_an_edit_goes_over_it(site: Site) {
    let _agents = settled_fleet(&site, 4, |_| Behaviour::Refuses(9000)).await;
    site.policy("mtu", mtu(9000, json!({"maxUnavailable": 1}))).await;
    site.until_condition("mtu", "Degraded", "1/4 nodes failed to configure, 3 nodes aborted configuration").await;
    let failing = "Failing FailedToConfigure the gateway did not answer";
    site.until("enactments say the same", async || {
        let told = site.enactments("mtu").await;
        let aborted = told.values().filter(|said| said.starts_with("Aborted ConfigurationAborted")).count();
        aborted == 3 && told.values().any(|said| said == failing)
    })
    .await;
    let told = site.enactments("mtu").await;
    let failed = told.iter().find(|(_, said)| *said == failing).unwrap().0.clone();
    let status = site.host_status(&failed).await;
    let entries = status["timeline"].as_array().unwrap().clone();
    let cause = "mtu (generation 1) rolled back in 12 ms, 3 ms of outage: the gateway did not answer";
    assert!(entries.iter().any(|entry| entry["outcome"] == "Failed" && entry["cause"] == cause), "{entries:?}");
    site.edit("NodeNetworkConfigurationPolicy", "mtu", json!({"spec": mtu(1400, json!({}))})).await;
    site.until_condition("mtu", "Available", "4/4 nodes successfully configured").await;
    assert!(site.most_out() <= 1, "{:?}", site.watchman.lock().unwrap());
}

async fn with_revert_nodes_that_have_it_get_back_what_they_had(site: Site) {
    // The first two take it, the third does not.
    let agents =
        settled_fleet(&site, 4, |number| if number < 2 { Behaviour::Good } else { Behaviour::Refuses(9000) }).await;
    let options = json!({"maxUnavailable": 1, "kiln": {"rollout": {"onFailure": "Revert"}}});
    site.policy("mtu", mtu(9000, options)).await;
    site.until("it is taken back", async || {
        site.api("NodeNetworkConfigurationPolicy").get("mtu").await.unwrap().data["status"]["kiln"]["withdrawn"] == 1
    })
    .await;
    site.until("nobody has it", async || {
        let mut left = 0;
        for agent in &agents {
            left += usize::from(agent.network().await["interfaces"][0]["mtu"] == 9000);
        }
        left == 0 && site.slots().await.is_empty()
    })
    .await;
    site.until_condition("mtu", "Degraded", "nodes aborted configuration").await;
    assert!(site.most_out() <= 1);
}

async fn an_edit_goes_over_what_is_under_way(site: Site) {
    let _agents = settled_fleet(&site, 4, |_| Behaviour::Slow(300)).await;
    site.policy("mtu", mtu(1300, json!({"maxUnavailable": 2}))).await;
    site.until("two are at it", async || site.slots().await.len() == 2).await;
    for mtu_now in [1350, 1400] {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        site.edit("NodeNetworkConfigurationPolicy", "mtu", json!({"spec": mtu(mtu_now, json!({}))})).await;
    }
    site.until_condition("mtu", "Available", "4/4 nodes successfully configured").await;
    assert!(site.most_out() <= 2, "{:?}", site.watchman.lock().unwrap());
    site.until("no slot is left", async || site.slots().await.is_empty()).await;
}

async fn a_deleted_policy_is_undone_and_its_enactments_go(site: Site) {
    let agents = settled_fleet(&site, 3, |_| Behaviour::Good).await;
    site.policy("mtu", mtu(1400, json!({}))).await;
    site.until_condition("mtu", "Available", "3/3 nodes successfully configured").await;
    site.delete("NodeNetworkConfigurationPolicy", "mtu").await;
    site.until("it is undone", async || {
        let mut left = site.enactments("mtu").await.len();
        for agent in &agents {
            left += usize::from(agent.network().await["interfaces"][0]["mtu"] == 1400);
        }
        left == 0
    })
    .await;
    assert!(site.most_out() <= 2, "half of them at most");
}

async fn a_leader_that_begins_goes_on_where_the_one_before_was(site: Site) {
    let _agents = settled_fleet(&site, 6, |_| Behaviour::Slow(150)).await;
    site.policy("mtu", mtu(1400, json!({"maxUnavailable": 1}))).await;
    for _ in 0..4 {
        site.until("a slot", async || !site.slots().await.is_empty()).await;
        site.replace_leader();
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    site.until_condition("mtu", "Available", "6/6 nodes successfully configured").await;
    assert!(site.most_out() <= 1, "{:?}", site.watchman.lock().unwrap());
    site.until("no slot is left", async || site.slots().await.is_empty()).await;
}

async fn a_paused_policy_waits_and_goes_on_when_it_is_let(site: Site) {
    let _agents = settled_fleet(&site, 2, |_| Behaviour::Good).await;
    site.policy("mtu", mtu(1400, json!({"kiln": {"paused": true}}))).await;
    site.until("both wait", async || {
        let told = site.enactments("mtu").await;
        told.len() == 2 && told.values().all(|said| said == "Pending MaxUnavailableLimitReached policy mtu is paused")
    })
    .await;
    site.edit("NodeNetworkConfigurationPolicy", "mtu", json!({"spec": {"kiln": null}})).await;
    site.until_condition("mtu", "Available", "2/2 nodes successfully configured").await;
}

async fn a_host_that_is_deleted_while_it_tries_gives_its_slot_back(site: Site) {
    let _agents = fleet(&site, 3, |number| if number == 0 { Behaviour::DiesTrying } else { Behaviour::Good }).await;
    site.until("they have their own networks", async || {
        site.slots().await.is_empty() || site.slots().await == ["slot-site.w0"]
    })
    .await;
    site.policy("mtu", mtu(1400, json!({"maxUnavailable": 1}))).await;
    site.until("it holds a slot", async || site.slots().await == ["slot-site.w0"]).await;
    site.delete("Host", "w0").await;
    site.until_condition("mtu", "Available", "2/2 nodes successfully configured").await;
    site.until("the slot is gone", async || site.slots().await.is_empty()).await;
}

async fn a_node_that_dies_in_its_try_frees_its_slot_for_the_edited_policy(site: Site) {
    // Whoever tries an MTU of 9000 is never heard of again.
    let agents = settled_fleet(&site, 3, |_| Behaviour::DiesWith(9000)).await;
    site.policy("mtu", mtu(9000, json!({"maxUnavailable": 1}))).await;
    site.until("one of them tries", async || !site.watchman.lock().unwrap().order.is_empty()).await;
    let dead = site.watchman.lock().unwrap().order[0].clone();
    let slot = format!("slot-site.{dead}");
    let lease = async || site.api("Lease").get(&slot).await.unwrap();
    let taken = async || lease().await.metadata.annotations.unwrap().contains_key("kiln.dev/taken");
    site.until("its slot is written down as taken", taken).await;
    let report = async || site.host_status(&dead).await["network"]["report"].clone();
    site.until("its last word is that it tries", async || report().await["phase"] == "trying").await;
    // Its time goes by: the slot was taken so long ago that it is over since that word.
    let heard = parse_time(report().await["at"].as_str().unwrap()).unwrap();
    let lasts = lease().await.data["spec"]["leaseDurationSeconds"].as_i64().unwrap();
    let taken = render_micro(Moment(heard.0 - lasts));
    site.edit("Lease", &slot, json!({"spec": {"renewTime": taken}})).await;
    site.until_condition("mtu", "Degraded", "1/3 nodes failed to configure, 2 nodes aborted configuration").await;
    let lost = "Failing FailedToConfigure the node was lost while it tried the change";
    site.until("it is told", async || site.enactments("mtu").await.get(&dead).is_some_and(|said| said == lost)).await;
    assert_eq!(site.watchman.lock().unwrap().order, [dead.as_str()], "nobody follows it into the same");
    // Edited, the two that live get it one after the other, although the dead one has not come back.
    site.edit("NodeNetworkConfigurationPolicy", "mtu", json!({"spec": mtu(1400, json!({}))})).await;
    site.until("those that live have it", async || {
        let mut done = 0;
        for agent in &agents {
            done += usize::from(agent.network().await["interfaces"][0]["mtu"] == 1400);
        }
        done == 2 && site.slots().await == [slot.as_str()]
    })
    .await;
    assert_eq!(site.most_out(), 2, "the dead one and one at a time: {:?}", site.watchman.lock().unwrap());
    assert_eq!(site.watchman.lock().unwrap().order.len(), 3);
}

chaos::on_each_day!(11:
    a_node_that_dies_in_its_try_frees_its_slot_for_the_edited_policy,
    canaries_go_first_then_wave_after_wave_and_never_more_than_the_budget,
    a_failure_halts_the_policy_and_an_edit_goes_over_it,
    an_edit_goes_over_what_is_under_way,
    with_revert_nodes_that_have_it_get_back_what_they_had,
    a_deleted_policy_is_undone_and_its_enactments_go,
    a_leader_that_begins_goes_on_where_the_one_before_was,
    a_paused_policy_waits_and_goes_on_when_it_is_let,
    a_host_that_is_deleted_while_it_tries_gives_its_slot_back,
);

#[tokio::test(flavor = "multi_thread")]
async fn only_the_hosts_own_token_opens_anything_and_strangers_write_nothing() {
    let site = Site::start("network-tokens", None).await;
    site.host("w0", json!({})).await;
    site.host("w1", json!({})).await;
    let (own, other) = (site.token("w0").await, site.token("w1").await);
    let forged = format!("{}x", &own[..own.len() - 1]);
    let mixed = format!("{}.{}", own.rsplit_once('.').unwrap().0, other.rsplit_once('.').unwrap().1);
    // The controllers have said what they have to say about the new hosts.
    let before = loop {
        let before = site.lab.revision();
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
        if site.lab.revision() == before {
            break before;
        }
    };
    for token in ["", "ka1.", "nonsense", &forged, &mixed, &own.replace("ka1.", "kb1.")] {
        let authorization = format!("Bearer {token}");
        for (method, path) in [
            ("GET", "/agent/v1/network"),
            ("POST", "/agent/v1/network/report"),
            ("POST", "/agent/v1/network/state"),
            ("GET", "/agent/v1/network/seen"),
        ] {
            let answer = site.ask(method, path, &[("authorization", &authorization)], "{}").await;
            assert_eq!((answer.status, answer.text().as_str()), (401, "Unauthorized\n"), "{method} {path} {token}");
        }
    }
    assert_eq!(site.lab.revision(), before, "nothing was written");
    let good = format!("Bearer {own}");
    let header = [("authorization", good.as_str())];
    for (method, path, body, status, reason) in [
        ("POST", "/agent/v1/network", "", 405, "method"),
        ("GET", "/agent/v1/network/report", "", 405, "method"),
        ("POST", "/agent/v1/network/report", "{}", 400, "not-read"),
        ("POST", "/agent/v1/network/state", "[]", 400, "not-read"),
        ("GET", "/agent/v1/network/seen", "", 200, "served"),
    ] {
        let answer = site.ask(method, path, &header, body).await;
        assert_eq!(
            (answer.status, answer.header("x-kiln-reason")),
            (status, reason),
            "{method} {path}: {}",
            answer.text()
        );
    }
    let long = " ".repeat(kiln_core::agent_token::LONGEST_REPORT + 1);
    assert_eq!(site.ask("POST", "/agent/v1/network/report", &header, &long).await.status, 413);
    let seen = site.ask("GET", "/agent/v1/network/seen", &header, "").await.json();
    assert_eq!(seen, json!({"source": "192.0.2.1", "reached": []}));
    assert!(site.host_status("w1").await["network"].is_null(), "the other host was not spoken for");
    // Counted up, every token from before is worth nothing.
    site.edit("Host", "w0", json!({"metadata": {"annotations": {"kiln.dev/agent-token-generation": "2"}}})).await;
    assert_eq!(site.ask("GET", "/agent/v1/network/seen", &header, "").await.status, 401);
    let figures = site.endpoint.render_figures();
    assert!(figures.contains("kiln_agent_requests_total{outcome=\"unauthorized\"} 25\n"), "{figures}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_waits_for_news_and_a_state_is_published() {
    let site = Site::start("network-polls", None).await;
    site.host("w0", json!({})).await;
    let token = format!("Bearer {}", site.token("w0").await);
    let header = [("authorization", token.as_str())];
    let first = site.ask("GET", "/agent/v1/network?wait=20", &header, "").await;
    assert_eq!(first.status, 200, "{}", first.text());
    assert!(first.json()["permit"]["wait"].is_string(), "{}", first.text());
    let etag = first.header("etag").to_owned();
    let known = [("authorization", token.as_str()), ("if-none-match", etag.as_str())];
    let began = std::time::Instant::now();
    let same = site.ask("GET", "/agent/v1/network?wait=1", &known, "").await;
    assert_eq!((same.status, same.header("etag"), same.text().as_str()), (304, etag.as_str(), ""));
    assert!(began.elapsed() >= std::time::Duration::from_millis(900));
    let (news, ()) = tokio::join!(site.ask("GET", "/agent/v1/network?wait=30", &known, ""), async {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        site.policy("mtu", mtu(1400, json!({}))).await;
    });
    assert_eq!(news.status, 200);
    assert_eq!(news.json()["policies"], json!([{"name": "mtu", "generation": 1}]));
    let state = json!({"current": {"interfaces": [{"name": "eth0", "type": "ethernet"}]}, "networkManagerVersion": "1.42.4", "agentVersion": "0.1.0"});
    let answer = site.ask("POST", "/agent/v1/network/state", &header, &state.to_string()).await;
    assert_eq!((answer.status, answer.text().as_str()), (204, ""));
    let stored = site.api("NodeNetworkState").get("w0").await.unwrap();
    assert_eq!(stored.data["status"]["currentState"], state["current"]);
    assert_eq!(stored.data["status"]["hostNetworkManagerVersion"], "1.42.4");
    let revision = stored.metadata.resource_version.clone();
    site.ask("POST", "/agent/v1/network/state", &header, &state.to_string()).await;
    assert_eq!(site.api("NodeNetworkState").get("w0").await.unwrap().metadata.resource_version, revision, "no change");
}

/// A scripted agent over a real connection, until the policy `mtu` is in force; it publishes a state first.
async fn speak(hub: kiln_agent::hub::Hub) {
    use kiln_agent::hub::News;
    use kiln_core::assignment::{Disruption, NodeState, Permit, Phase, Report};
    let current = json!({"interfaces": [{"name": "eth0", "type": "ethernet", "state": "up"}]});
    let (network_manager_version, agent_version) = ("1.42.4".into(), "0.1.0".into());
    hub.publish(&NodeState { current, network_manager_version, agent_version, applied: None }).await.unwrap();
    hub.sees_node().await.unwrap();
    let mut known: Option<String> = None;
    loop {
        let news = hub.assignment(known.as_deref(), std::time::Duration::from_secs(20)).await.unwrap();
        let News::Assignment(assignment, tag) = news else { continue };
        known = Some(tag);
        let phases = match assignment.permit {
            Permit::Wait(_) => vec![Phase::Planned],
            Permit::Go(_) => vec![Phase::Trying, Phase::Applied],
        };
        for phase in &phases {
            let report = Report {
                revision: assignment.revision.clone(),
                phase: phase.clone(),
                disruption: Disruption::LinkBounce,
                changes: vec!["~ eth0".into()],
                took: None,
                outage: Some(0),
            };
            hub.report(&report).await.unwrap();
        }
        if phases.len() == 2 && !assignment.policies.is_empty() {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_waits_for_a_policy_and_shows_what_became_of_it() {
    use std::os::unix::fs::PermissionsExt;
    let Some(kubectl) = kiln_testimage::oracle::kubectl("kubectl_waits_for_a_policy_and_shows_what_became_of_it")
    else {
        return;
    };
    let folder = kiln_testimage::temp_dir::TempDir::new("network-kubectl");
    let hub = served::Hub::start(folder.path());
    let run = |arguments: &[&str], input: &str| {
        use std::io::Write;
        let mut child = std::process::Command::new(&kubectl)
            .env("KUBECONFIG", hub.data.join("kubeconfig"))
            .env("HOME", &hub.data)
            .args(arguments)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{arguments:?}: {text}");
        text
    };
    let host = json!({"apiVersion": "kiln.dev/v1alpha1", "kind": "Host", "metadata": {"name": "w0", "namespace": "default"},
        "spec": {"network": {"interfaces": [{"name": "eth0", "type": "ethernet", "state": "up"}]}}});
    run(&["apply", "-f", "-"], &host.to_string());
    let file = folder.path().join("w0.token");
    let path = file.display().to_string();
    let (code, said, complained) = hub.kiln(&["token", "agent", "w0", "--output", &path]);
    assert_eq!(code, 0, "{said}{complained}");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let token = std::fs::read_to_string(&file).unwrap();
    assert!(!said.contains(token.trim()) && token.starts_with("ka1."), "{said}");
    let (code, ..) = hub.kiln(&["token", "agent", "w0", "--output", &path]);
    assert_eq!(code, 1, "a file is not replaced");
    let address = format!("https://{}", hub.address());
    let agent = kiln_agent::hub::Hub::new(&address, &folder.path().join("ca.crt"), token.trim()).unwrap();
    let speaking = tokio::spawn(speak(agent.clone()));
    let policy = json!({"apiVersion": "nmstate.io/v1", "kind": "NodeNetworkConfigurationPolicy", "metadata": {"name": "mtu"},
        "spec": mtu(1400, json!({}))});
    run(&["apply", "-f", "-"], &policy.to_string());
    run(&["wait", "--for=condition=Available", "nncp/mtu", "--timeout=60s"], "");
    speaking.await.unwrap();
    let shown = run(&["get", "nncp,nnce,nns", "--no-headers"], "");
    for (name, columns) in [
        ("nodenetworkconfigurationpolicy.nmstate.io/mtu", "Available SuccessfullyConfigured"),
        ("nodenetworkconfigurationenactment.nmstate.io/w0.mtu", "Available 0s SuccessfullyConfigured"),
        ("nodenetworkstate.nmstate.io/w0", ""),
    ] {
        let line = shown.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name} in {shown}"));
        let words: Vec<&str> = line.split_whitespace().skip(1).filter(|word| !word.ends_with('s')).collect();
        let wished: Vec<&str> = columns.split_whitespace().filter(|word| !word.ends_with('s')).collect();
        assert!(words.starts_with(&wished), "{line}");
    }
    // Renewed, the old token is worth nothing.
    let (code, said, complained) = hub.kiln(&["token", "agent", "w0", "--output", &path, "--force", "--renew"]);
    assert_eq!(code, 0, "{said}{complained}");
    assert!(agent.sees_node().await.is_err());
    let renewed = std::fs::read_to_string(&file).unwrap();
    let agent = kiln_agent::hub::Hub::new(&address, &folder.path().join("ca.crt"), renewed.trim()).unwrap();
    agent.sees_node().await.unwrap();
}
