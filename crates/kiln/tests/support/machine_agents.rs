//! Scripted agents that speak `/agent/v1/machine`. Simulated: no file is written anywhere. Of its config such a node has one
//! file, `/etc/app.conf`, and its text says what a change to it takes: `service-1`, `reboot-2`; `bad-…` does not work.

#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses its part of this")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use kiln_core::assignment::Permit;
use kiln_core::machine::MachineAssignment;
use serde_json::{Value, json};

use super::agents::{Site, Watchman};
use super::nodes::{self, Answer};

/// The file.
pub const FILE: &str = "/etc/app.conf";

/// A scripted agent; it ends when it is dropped.
pub struct MachineAgent {
    text: Arc<Mutex<String>>,
    task: tokio::task::JoinHandle<()>,
}

impl MachineAgent {
    /// Starts one on a node whose file has this text.
    pub async fn start(site: &Site, host: &str, text: &str) -> MachineAgent {
        let text = Arc::new(Mutex::new(text.to_owned()));
        let script = Script {
            token: format!("Bearer {}", site.token(host).await),
            router: site.router.clone(),
            host: host.to_owned(),
            watchman: Arc::clone(&site.watchman),
            text: Arc::clone(&text),
        };
        MachineAgent { text, task: tokio::spawn(script.run()) }
    }

    /// What the node's file says.
    pub fn text(&self) -> String {
        self.text.lock().unwrap().clone()
    }
}

impl Drop for MachineAgent {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Script {
    token: String,
    router: Router,
    host: String,
    watchman: Arc<Mutex<Watchman>>,
    text: Arc<Mutex<String>>,
}

impl Script {
    async fn run(self) {
        // The hub hears of an agent when it asks for its network.
        while self.send("GET", "/agent/v1/network", "", Value::Null).await.status >= 429 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let (mut etag, mut last) = (String::new(), Value::Null);
        loop {
            let answer = self.send("GET", "/agent/v1/machine?wait=2", &etag, Value::Null).await;
            if answer.status != 200 {
                tokio::time::sleep(Duration::from_millis(if answer.status == 304 { 0 } else { 20 })).await;
                continue;
            }
            etag = answer.header("etag").to_owned();
            let assignment: MachineAssignment = serde_json::from_slice(&answer.body).unwrap();
            // How it ended is said once more: the hub may not have heard.
            if last["revision"] == assignment.revision.as_str() && last["phase"] != "planned" {
                self.tell(&last).await;
                continue;
            }
            let path = format!("/agent/v1/machine/config?revision={}", assignment.revision);
            let config = self.send("GET", &path, "", Value::Null).await;
            if config.status != 200 {
                // What is assigned by now is asked for.
                assert!([409, 429, 500, 503].contains(&config.status), "{}: {}", config.status, config.text());
                etag.clear();
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
            // The pool may be known before its MachineConfig is: there is nothing to follow yet.
            let Some(wanted) = find_file(&config.json(), FILE) else {
                etag.clear();
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            };
            last = self.follow(&assignment, &wanted).await;
        }
    }

    /// Says what would change, or does it. Gives what it said last.
    async fn follow(&self, assignment: &MachineAssignment, wanted: &str) -> Value {
        let same = *self.text.lock().unwrap() == wanted;
        let needs = match wanted.split('-').next() {
            _ if same => "nothing",
            Some("none") => "nothing",
            Some(needs @ ("drain" | "reboot")) => needs,
            _ => "service",
        };
        let changes = if same { json!([]) } else { json!([format!("~ {FILE}")]) };
        let said = |phase: Value| json!({"revision": assignment.revision, "phase": phase, "needs": needs, "changes": changes, "took": 12});
        let planned = said("planned".into());
        if matches!(assignment.permit, Permit::Wait(_)) {
            self.tell(&planned).await;
            return planned;
        }
        if needs != "nothing" {
            self.watchman.lock().unwrap().leave(&self.host);
            self.tell(&said("working".into())).await;
            tokio::time::sleep(Duration::from_millis(150)).await;
        }
        let last = match wanted.starts_with("bad") {
            true => said(json!({"rolledBack": "crio.service did not start"})),
            false => {
                *self.text.lock().unwrap() = wanted.to_owned();
                said("applied".into())
            }
        };
        // It works again before anybody hears of it.
        self.watchman.lock().unwrap().back(&self.host);
        self.tell(&last).await;
        last
    }

    /// Says something until it is heard.
    async fn tell(&self, report: &Value) {
        loop {
            let answer = self.send("POST", "/agent/v1/machine/report", "", report.clone()).await;
            if answer.status == 204 {
                return;
            }
            assert!(answer.status >= 429, "{}: {}", answer.status, answer.text());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn send(&self, method: &str, path: &str, etag: &str, body: Value) -> Answer {
        let headers = [("authorization", self.token.as_str()), ("if-none-match", etag)];
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        nodes::send(&self.router, method, path, &headers, body, "192.0.2.1").await
    }
}

/// The text of a file in a config.
pub fn file(config: &Value, path: &str) -> String {
    find_file(config, path).unwrap_or_else(|| panic!("{path} in {config}"))
}

fn find_file(config: &Value, path: &str) -> Option<String> {
    let files = config["storage"]["files"].as_array().cloned().unwrap_or_default();
    let file = files.iter().find(|file| file["path"] == path)?;
    Some(file["contents"]["source"].as_str().unwrap().strip_prefix("data:,").unwrap().to_owned())
}
