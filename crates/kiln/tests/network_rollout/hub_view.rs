//! What the hub itself sees of a node, and how busy it may be: ports it reaches, reports it has no place for yet.

use std::time::Duration;

use axum::body::Body;
use serde_json::json;

use super::agents::{Behaviour, Site};
use super::{mtu, nodes, settled_fleet};

/// A policy that wants these ports of its nodes reached.
fn reached(mtu_now: u64, ports: &[u16]) -> serde_json::Value {
    let probes: Vec<_> = ports.iter().map(|port| json!({"type": "FromHub", "target": format!(":{port}")})).collect();
    mtu(mtu_now, json!({"kiln": {"probes": probes}}))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hub_dials_the_ports_that_policies_name_and_nothing_else() {
    let site = Site::start("network-ports", None).await;
    site.host("w0", json!({})).await;
    let service = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let other = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let (open, unnamed) = (service.local_addr().unwrap().port(), other.local_addr().unwrap().port());
    let token = format!("Bearer {}", site.token("w0").await);
    let header = [("authorization", token.as_str())];
    let ask = async |query: &str| {
        let path = format!("/agent/v1/network/seen{query}");
        nodes::send(&site.router, "GET", &path, &header, Body::empty(), "127.0.0.1").await
    };
    assert_eq!(ask(&format!("?port={open}")).await.status, 409, "nothing is assigned yet");
    let mut spec = reached(1400, &[closed]);
    // The number is as good as the text.
    spec["kiln"]["probes"].as_array_mut().unwrap().push(json!({"type": "FromHub", "target": open}));
    site.policy("mtu", spec).await;
    let asks = async || site.ask("GET", "/agent/v1/network?wait=2", &header, "").await;
    site.until("the assignment names them", async || {
        let answer = asks().await;
        answer.status == 200
            && answer.json()["proof"]["probes"] == json!([{"fromHub": closed}, {"fromHub": open}, "hub"])
    })
    .await;
    let seen = ask(&format!("?port={open}")).await;
    assert_eq!((seen.status, seen.json()), (200, json!({"source": "127.0.0.1", "reached": [open]})));
    assert_eq!(ask("").await.json(), json!({"source": "127.0.0.1", "reached": []}));
    let lost = ask(&format!("?port={closed}")).await;
    assert_eq!((lost.status, lost.header("x-kiln-reason")), (503, "not-seen"));
    assert!(lost.text().starts_with(&format!("the hub does not reach 127.0.0.1 port {closed}: ")), "{}", lost.text());
    for query in [format!("?port={unnamed}"), format!("?port=127.0.0.1:{open}"), "?port=0".into(), "?port=".into()] {
        let refused = ask(&query).await;
        assert_eq!((refused.status, refused.header("x-kiln-reason")), (409, "superseded"), "{query}");
    }
    assert!(
        tokio::time::timeout(Duration::from_millis(100), other.accept()).await.is_err(),
        "nobody dialled what no policy names"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_the_hub_cannot_look_behind_is_rolled_back() {
    let site = Site::start("network-from-hub", None).await;
    let _agents = settled_fleet(&site, 2, |_| Behaviour::Good).await;
    let service = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = service.local_addr().unwrap().port();
    site.policy("mtu", reached(1400, &[port])).await;
    site.until_condition("mtu", "Available", "2/2 nodes successfully configured").await;
    drop(service);
    site.edit("NodeNetworkConfigurationPolicy", "mtu", json!({"spec": reached(1300, &[port])})).await;
    site.until_condition("mtu", "Degraded", "1/2 nodes failed to configure, 1 nodes aborted configuration").await;
    let failing = format!("Failing FailedToConfigure port {port} from the hub did not answer");
    site.until("the port is named", async || site.enactments("mtu").await.values().any(|said| *said == failing)).await;
}

/// A body that never comes.
fn endless() -> Body {
    Body::from_stream(futures::stream::pending::<Result<Vec<u8>, std::io::Error>>())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_that_finds_no_place_is_told_to_come_again_and_a_slow_one_that_it_was_slow() {
    let site = Site::start("network-busy", None).await;
    site.host("w0", json!({})).await;
    let token = format!("Bearer {}", site.token("w0").await);
    let header = [("authorization", token.as_str())];
    site.ask("GET", "/agent/v1/network?wait=2", &header, "").await;
    let report = json!({"revision": "r1", "phase": "applied", "disruption": "none"}).to_string();
    let say = async || site.ask("POST", "/agent/v1/network/report", &header, &report).await;
    let slow: Vec<_> = (0..32)
        .map(|_| {
            let (router, token) = (site.router.clone(), token.clone());
            tokio::spawn(async move {
                let header = [("authorization", token.as_str())];
                nodes::send(&router, "POST", "/agent/v1/network/state", &header, endless(), "192.0.2.1").await
            })
        })
        .collect();
    // Every place is taken when all of them are past their token.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let busy = say().await;
    assert_eq!((busy.status, busy.header("x-kiln-reason")), (503, "busy"), "{}", busy.text());
    assert_eq!(busy.header("retry-after"), "5");
    for answer in slow {
        let answer = answer.await.unwrap();
        assert_eq!((answer.status, answer.header("x-kiln-reason")), (408, "slow"), "{}", answer.text());
    }
    assert_eq!(say().await.status, 204, "nothing was lost");
    assert_eq!(site.host_status("w0").await["network"]["report"]["revision"], "r1");
}
