//! Boots as they travel: `status.boot` of a Host, and what its spec declares that a report can be compared with.
//!
//! [`plan_report`] decides what a report makes of a Host: the timeline, `status.boot` and, for a key of the host's
//! kubelet, `status.provision.spki`. Pure; it is written by `hub::node::witness`.
//!
//! Not here: who may report, see [`super::node::beacon`]; what follows for people, see `kiln_core::timeline::why`.

use ipnet::IpNet;
use kiln_core::beacon::redact::redact;
use kiln_core::beacon::{Point, Report};
use kiln_core::timeline::first_boot::{Boot, Declared, Seen, WITNESS, Writer, arrival};
use kiln_core::timeline::{Entry, Moment, Stage};
use serde_json::{Value, json};

use super::approval::accept_key;
use super::timeline::{Update, parse_time, read_timeline, render_time};

/// A report that a token of the host's vouches for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reported {
    /// Namespace of the Host.
    pub namespace: String,
    /// Name of the Host.
    pub host: String,
    /// Of the token that was shown.
    pub generation: u64,
    /// When it arrived.
    pub at: Moment,
    /// What it says.
    pub report: Report,
    /// Whose files it speaks of.
    pub writers: Vec<Writer>,
}

/// What a report makes of a Host.
pub fn plan_report(host: &Value, reported: &Reported) -> Update {
    let (spec, status) = (&host["spec"], &host["status"]);
    let Reported { generation, at, report, writers, .. } = reported;
    // A newer token was used, so another boot is the host's.
    if status["provision"]["generation"].as_u64().is_some_and(|newer| newer > *generation) {
        return Update::default();
    }
    // A witness leaves secrets out; whoever reads a status need not trust it in that.
    let report = &Report { ignition_error: report.ignition_error.as_deref().map(redact), ..report.clone() };
    let mut boot = read_boot(status).unwrap_or_default();
    // The hash of a key has its own place.
    let said = Report { kubelet_key: None, ..report.clone() };
    let news = boot.take(*generation, Seen { time: *at, report: said }, writers);
    let mut patch = json!({});
    if news {
        patch["boot"] = render_boot(&boot);
    }
    if let Some(provision) =
        report.kubelet_key.as_ref().and_then(|key| with_key(&status["provision"], *generation, key))
    {
        patch["provision"] = provision;
    }
    // Of another boot than the one that is spoken of now: evidence and no event.
    let time = boot.at(report.point).filter(|seen| seen.report.boot_id == report.boot_id).map(|seen| seen.time);
    let entries = time.and_then(|time| entry(report, spec, status, time)).into_iter().collect();
    let patch = Some(patch).filter(|patch| patch.as_object().is_some_and(|fields| !fields.is_empty()));
    Update { entries, patch }
}

/// What a report says about the stages of a host. Those of the initramfs are evidence.
fn entry(report: &Report, spec: &Value, status: &Value, time: Moment) -> Option<Entry> {
    match report.point {
        Point::Network | Point::Leaving | Point::KubeletKey => None,
        Point::IgnitionFailed => {
            let fetched = read_timeline(status).reached(Stage::IgnitionFetched).is_some_and(|entry| entry.time <= time);
            let stage = if fetched { Stage::RealRoot } else { Stage::IgnitionFetched };
            let error = report.ignition_error.as_deref().unwrap_or("it did not say why");
            Some(Entry::failed(stage, time, WITNESS, format!("Ignition failed: {error}")))
        }
        Point::RealRoot => Some(match arrival(report, &read_declared(spec)) {
            Ok(words) => Entry::reached(Stage::RealRoot, time, WITNESS, words),
            Err(words) => Entry::failed(Stage::RealRoot, time, WITNESS, words),
        }),
    }
}

/// `status.provision` with a key of the host's kubelet. A key of an earlier generation is nobody's any more.
fn with_key(provision: &Value, generation: u64, key: &str) -> Option<Value> {
    let written = provision["generation"].as_u64().unwrap_or(0);
    if written > generation {
        return None;
    }
    // Before the fetch itself is written down: the keys of the generation before do not count.
    let anew = written < generation;
    let known = if anew { &Value::Null } else { provision };
    let keys = accept_key(known, key).ok()??;
    match anew {
        true => Some(json!({"generation": generation, "spki": keys, "alarm": null, "fetchedAt": null, "source": null})),
        false => Some(json!({"spki": keys})),
    }
}

/// `status.boot`. What cannot be read is left out: a report of a newer Kiln must not stop an older one.
pub fn read_boot(status: &Value) -> Option<Boot> {
    let boot = &status["boot"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let id = text(boot.get("id")?);
    let reports = |key: &str, of: Option<&str>| -> Vec<Seen> {
        let all = boot[key].as_array().into_iter().flatten();
        all.filter_map(|value| read_seen(value, of)).collect()
    };
    let writers = boot["writtenBy"].as_array().into_iter().flatten();
    Some(Boot {
        generation: boot["generation"].as_u64().unwrap_or(0),
        reports: reports("reports", Some(&id)),
        kept: reports("kept", None),
        writers: writers.map(|by| Writer { path: text(&by["path"]), object: text(&by["object"]) }).collect(),
        id,
    })
}

fn read_seen(value: &Value, boot: Option<&str>) -> Option<Seen> {
    let mut report = value.clone();
    if let Some(id) = boot {
        report.as_object_mut()?.insert("bootId".into(), id.into());
    }
    Some(Seen { time: parse_time(value["time"].as_str()?)?, report: serde_json::from_value(report).ok()? })
}

/// `status.boot`, whole: a merge patch replaces it.
pub fn render_boot(boot: &Boot) -> Value {
    let Boot { id, generation, reports, kept, writers } = boot;
    let list = |reports: &[Seen], with_id: bool| -> Value {
        let render = |Seen { time, report }: &Seen| {
            let mut value = serde_json::to_value(report).unwrap_or_default();
            value["time"] = render_time(*time).into();
            if let (false, Some(fields)) = (with_id, value.as_object_mut()) {
                fields.remove("bootId");
            }
            value
        };
        reports.iter().map(render).collect()
    };
    let writers: Value =
        writers.iter().map(|Writer { path, object }| json!({"path": path, "object": object})).collect();
    json!({"id": id, "generation": generation, "reports": list(reports, false), "kept": list(kept, true),
        "writtenBy": writers})
}

/// What a Host's spec declares of its network.
pub fn read_declared(spec: &Value) -> Declared {
    let mut declared = Declared::default();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for interface in list(&spec["network"]["interfaces"]) {
        if ["absent", "down", "ignore"].iter().any(|state| interface["state"] == *state) {
            continue;
        }
        for family in [&interface["ipv4"], &interface["ipv6"]] {
            if family["enabled"] != true {
                continue;
            }
            for address in list(&family["address"]) {
                let (ip, length) = (address["ip"].as_str(), address["prefix-length"].as_u64());
                let net = ip.and_then(|ip| IpNet::new(ip.parse().ok()?, u8::try_from(length?).ok()?).ok());
                declared.addresses.extend(net.map(|net| (text(&interface["name"]), net)));
            }
        }
    }
    for route in list(&spec["network"]["routes"]["config"]) {
        let default = ["0.0.0.0/0", "::/0"].iter().any(|all| route["destination"] == *all);
        if default && route["state"] != "absent" {
            declared.gateways.extend(route["next-hop-address"].as_str().map(str::to_owned));
        }
    }
    for nic in list(&spec["nics"]) {
        declared
            .macs
            .extend(nic["macAddress"].as_str().map(|mac| (Some(text(&nic["name"])), mac.to_ascii_lowercase())));
    }
    if let Some(mac) = spec["macAddress"].as_str().map(str::to_ascii_lowercase)
        && !declared.macs.iter().any(|(_, known)| *known == mac)
    {
        declared.macs.push((None, mac));
    }
    declared
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::timeline::render_timeline;
    use kiln_core::timeline::Timeline;

    fn report(point: &str, more: Value) -> Report {
        let mut report = json!({"point": point, "bootId": "b", "uptimeMs": 9000,
            "interfaces": [{"name": "eth0", "up": true, "addresses": ["10.0.11.11/24"]}],
            "defaultRoutes": [{"gateway": "10.0.11.1", "interface": "eth0"}]});
        for (key, value) in more.as_object().into_iter().flatten() {
            report[key] = value.clone();
        }
        Report::parse(report.to_string().as_bytes()).unwrap()
    }

    fn reported(report: Report) -> Reported {
        let at = Moment(1_700_000_000);
        Reported { namespace: "site".into(), host: "w0".into(), generation: 2, at, report, writers: vec![] }
    }

    fn host(status: Value) -> Value {
        let network = json!({"interfaces": [
            {"name": "eth0", "state": "up", "ipv4": {"enabled": true, "address": [{"ip": "10.0.11.11", "prefix-length": 24}]},
             "ipv6": {"enabled": false, "address": [{"ip": "fd00::1", "prefix-length": 64}]}},
            {"name": "eth1", "state": "down", "ipv4": {"enabled": true, "address": [{"ip": "10.9.9.9", "prefix-length": 24}]}}],
            "routes": {"config": [{"destination": "0.0.0.0/0", "next-hop-address": "10.0.11.1", "next-hop-interface": "eth0"},
                {"destination": "10.9.0.0/16", "next-hop-address": "10.0.11.9", "next-hop-interface": "eth0"}]}});
        json!({"spec": {"network": network, "macAddress": "52:54:00:00:00:0A", "nics": [{"name": "eth0", "macAddress": "52:54:00:00:00:0A"}]}, "status": status})
    }

    #[test]
    fn what_is_declared_is_read_as_far_as_a_machine_can_tell_it() {
        let declared = read_declared(&host(Value::Null)["spec"]);
        assert_eq!(declared.addresses, [("eth0".to_owned(), "10.0.11.11/24".parse().unwrap())]);
        assert_eq!(declared.gateways, ["10.0.11.1"]);
        assert_eq!(declared.macs, [(Some("eth0".to_owned()), "52:54:00:00:00:0a".to_owned())]);
        assert_eq!(read_declared(&json!({"network": 7, "nics": {}})), Declared::default());
    }

    #[test]
    fn each_point_becomes_what_it_stands_for() {
        let fetched = Timeline::of([Entry::reached(Stage::IgnitionFetched, Moment(1_699_999_990), "e", "c")]);
        let fetched = json!({"timeline": render_timeline(&fetched)});
        let wrong = json!({"interfaces": [{"name": "eth0", "up": true, "addresses": ["10.0.11.99/24"]}]});
        for (status, report, expected) in [
            (Value::Null, report("Network", Value::Null), None),
            (Value::Null, report("Leaving", Value::Null), None),
            (Value::Null, report("KubeletKey", Value::Null), None),
            (
                Value::Null,
                report("IgnitionFailed", json!({"ignitionError": "x509"})),
                Some("IgnitionFetched Failed Ignition failed: x509"),
            ),
            (
                fetched,
                report("IgnitionFailed", Value::Null),
                Some("RealRoot Failed Ignition failed: it did not say why"),
            ),
            (
                Value::Null,
                report("RealRoot", Value::Null),
                Some("RealRoot Reached eth0 has 10.0.11.11/24, default route via 10.0.11.1"),
            ),
            (
                Value::Null,
                report("RealRoot", wrong),
                Some(
                    "RealRoot Failed 10.0.11.11/24 is declared for eth0 and missing: eth0 has 10.0.11.99/24, default route via 10.0.11.1",
                ),
            ),
            // Of an earlier boot: evidence.
            (Value::Null, report("IgnitionFailed", json!({"kept": true, "bootId": "a"})), None),
        ] {
            let update = plan_report(&host(status), &reported(report.clone()));
            let told =
                update.entries.first().map(|entry| format!("{} {:?} {}", entry.stage, entry.outcome, entry.cause));
            assert_eq!(told.as_deref(), expected, "{report:?}");
            assert!(update.patch.is_some_and(|patch| patch["boot"]["generation"] == 2));
        }
    }

    #[test]
    fn no_secret_of_an_error_reaches_a_status() {
        let error = json!({"ignitionError": "the header Authorization: Bearer a1b2 was refused"});
        let update = plan_report(&host(Value::Null), &reported(report("IgnitionFailed", error)));
        assert_eq!(update.entries[0].cause, "Ignition failed: the header Authorization: Bearer … was refused");
        assert!(!update.patch.unwrap().to_string().contains("a1b2"));
    }

    #[test]
    fn a_boot_is_read_as_it_was_written_and_told_once() {
        let mut reported = reported(report("Leaving", json!({"hostname": "w0"})));
        reported.writers = vec![Writer { path: "/etc/x".into(), object: "MachineConfig m".into() }];
        let Update { patch: Some(patch), .. } = plan_report(&host(Value::Null), &reported) else { panic!("news") };
        let boot = read_boot(&patch).unwrap();
        assert_eq!(
            (boot.id.as_str(), boot.reports[0].report.boot_id.as_str(), &boot.writers),
            ("b", "b", &reported.writers)
        );
        assert_eq!(render_boot(&boot), patch["boot"]);
        assert_eq!(patch["boot"]["reports"][0]["time"], "2023-11-14T22:13:20Z");
        assert_eq!(plan_report(&host(patch.clone()), &reported), Update::default(), "the same again");
        let newer = json!({"provision": {"generation": 3}});
        assert_eq!(plan_report(&host(newer), &reported), Update::default(), "an older generation");
        assert_eq!(
            read_boot(&json!({"boot": {"id": "b", "reports": [7, {"time": "x"}, {"point": "Lost"}]}})).unwrap().reports,
            []
        );
    }

    #[test]
    fn a_key_counts_for_the_generation_it_was_reported_in() {
        let key = "ab".repeat(32);
        let reported = reported(report("KubeletKey", json!({"kubeletKey": key})));
        for (provision, expected) in [
            (json!({"generation": 2, "fetchedAt": "x"}), Some(json!({"spki": [key]}))),
            (json!({"generation": 2, "spki": [key]}), None),
            (
                json!({"generation": 1, "spki": ["cd"]}),
                Some(json!({"generation": 2, "spki": [key], "alarm": null, "fetchedAt": null, "source": null})),
            ),
            (json!({"generation": 3}), None),
        ] {
            let patch = plan_report(&host(json!({"provision": provision})), &reported).patch.unwrap_or_default();
            assert_eq!(patch.get("provision"), expected.as_ref(), "{provision}");
            assert!(!patch["boot"].to_string().contains(&key), "it has its own place");
        }
    }
}
