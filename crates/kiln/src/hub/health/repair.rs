//! What a repair does: a new token and pointer for a host that begins anew, or a power cycle by its BareMetalHost.
//!
//! The power cycle is asked for as metal3 has it: the annotation [`REBOOT`] with a name of its own keeps the machine off until
//! it is taken away, which is done once the machine is off, or after [`PATIENCE`] when nobody obeys.
//! A new token makes the old one worthless at once; the pointer with it is kept in a Secret that goes when the host is well.
//!
//! Nothing is kept in the process: `status.provision.wanted` says what was done and what is still to come.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kiln_core::boot_token::{BootRecord, LIFETIME_SECONDS};
use kiln_core::health::Remedy;
use kiln_core::ignition::SpecVersion;
use kiln_core::ignition::pointer::{Header, PointerRequest, Reference, render_pointer};
use kiln_core::provision::names;
use kiln_core::timeline::Moment;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PostParams};
use kube::{Client, Error};
use serde_json::{Value, json};

use super::parameters;
use crate::hub::approval::fleet::HostRecord;
use crate::hub::boot_secrets::{
    BOOT_TOKEN, BOOT_TOKEN_TYPE, HOST_LABEL, IGNITION_LABEL, hash_token, make_token, parse_record, render_record,
};
use crate::hub::controllers::kinds::{HOST, SECRET, Watched, find};
use crate::hub::pools::release::revoke;
use crate::hub::pools::{Endpoint, fetch_proxy, label};
use crate::hub::timeline::{now, parse_time};

/// The annotation of a BareMetalHost that asks for a power cycle. The part behind the slash says who asks.
pub const REBOOT: &str = "reboot.metal3.io/kiln";
/// The annotation of a BareMetalHost that keeps a machine off which is not in service.
pub const OFF: &str = "reboot.metal3.io/kiln-out-of-service";
/// How long somebody has to obey it, in seconds.
const PATIENCE: i64 = 600;
/// The value of [`IGNITION_LABEL`] on a host's pointer.
const USER_DATA: &str = "boot-user-data";

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    /// In words, for the timeline.
    pub words: String,
    action: &'static str,
    reboot: Option<Reboot>,
    user_data: Option<String>,
}

/// Where a power cycle stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reboot {
    /// The annotation is set.
    Asked,
    /// The machine was off, and is let on again.
    Done,
    /// Nobody obeyed.
    Unanswered,
    /// There is no BareMetalHost to ask by.
    NoBareMetalHost,
}

impl Reboot {
    const ALL: [Reboot; 4] = [Reboot::Asked, Reboot::Done, Reboot::Unanswered, Reboot::NoBareMetalHost];

    /// The word in a status.
    pub const fn name(self) -> &'static str {
        match self {
            Reboot::Asked => "Asked",
            Reboot::Done => "Done",
            Reboot::Unanswered => "Unanswered",
            Reboot::NoBareMetalHost => "NoBareMetalHost",
        }
    }

    fn of(wanted: &Value) -> Option<Reboot> {
        Reboot::ALL.into_iter().find(|state| wanted["reboot"] == state.name())
    }
}

impl Done {
    /// Adds it to `status.provision.wanted`. What another attempt left there goes.
    pub fn write(&self, wanted: &mut Value) {
        wanted["action"] = self.action.into();
        wanted["reboot"] = self.reboot.map(Reboot::name).into();
        wanted["userData"] = self.user_data.clone().into();
    }
}

/// What a person can do about a host that is being repaired.
pub fn advice(host: &HostRecord) -> Option<String> {
    let (namespace, name) = &host.place;
    let wanted = &host.wanted;
    match (wanted["action"].as_str()?, Reboot::of(wanted), wanted["userData"].as_str()) {
        ("PowerCycle", Some(Reboot::NoBareMetalHost), _) => Some(format!(
            "there is no BareMetalHost {namespace}/{name} to cycle its power by: do it by hand, as with `ipmitool -I lanplus -H BMC chassis power cycle`"
        )),
        ("PowerCycle", Some(Reboot::Unanswered), _) => Some(format!(
            "nobody obeyed the annotation {REBOOT} of BareMetalHost {namespace}/{name}: is metal3 running, and does it reach the machine's controller?"
        )),
        ("Reprovision", _, Some(secret)) => Some(format!(
            "boot it with its new pointer: `kubectl get secret -n {namespace} {secret} -o go-template='{{{{.data.value|base64decode}}}}'`"
        )),
        ("Reprovision", ..) => {
            Some(format!("boot it with a new pointer: `kiln ignition pointer --host {namespace}/{name}` makes one"))
        }
        _ => None,
    }
}

/// Whether something must still be done for a repair.
pub fn is_under_way(host: &HostRecord) -> bool {
    Reboot::of(&host.wanted) == Some(Reboot::Asked)
}

/// Repairs a host.
pub async fn execute(
    hub: &Client,
    endpoint: Option<&Endpoint>,
    host: &HostRecord,
    remedy: Remedy,
) -> Result<Done, Error> {
    match (remedy, endpoint) {
        (Remedy::Repower, _) => repower(hub, host).await,
        (_, Some(endpoint)) => reprovision(hub, endpoint, host).await,
        (_, None) => {
            revoke(hub, &host.place.0, &host.place.1, now()).await?;
            let words = "its token is revoked; a person must make another".to_owned();
            Ok(Done { words, action: "Reprovision", reboot: None, user_data: None })
        }
    }
}

async fn repower(hub: &Client, host: &HostRecord) -> Result<Done, Error> {
    let done =
        |reboot: Reboot, words: String| Done { words, action: "PowerCycle", reboot: Some(reboot), user_data: None };
    let (namespace, name) = &host.place;
    let absent = || done(Reboot::NoBareMetalHost, format!("there is no BareMetalHost {namespace}/{name}"));
    let Some(machines) = machines(hub, namespace) else { return Ok(absent()) };
    let patch = json!({"metadata": {"annotations": {REBOOT: r#"{"mode":"hard"}"#}}});
    match machines.patch(name, &parameters(), &Patch::Merge(patch)).await {
        Ok(_) => Ok(done(Reboot::Asked, format!("BareMetalHost {namespace}/{name} has the annotation {REBOOT}"))),
        Err(Error::Api(status)) if status.code == 404 => Ok(absent()),
        Err(error) => Err(error),
    }
}

/// Lets a machine on again that was to be off. Gives the new state when there is one.
pub async fn follow_up(hub: &Client, host: &HostRecord, now: Moment) -> Result<Option<&'static str>, Error> {
    let (namespace, name) = &host.place;
    let Some(machines) = machines(hub, namespace).filter(|_| is_under_way(host)) else { return Ok(None) };
    let Some(machine) = machines.get_opt(name).await? else { return Ok(Some(Reboot::NoBareMetalHost.name())) };
    let state = judge_reboot(&machine.data["status"], host.wanted["since"].as_str().and_then(parse_time), now);
    if let Some(state) = state {
        machines.patch(name, &parameters(), &Patch::Merge(let_on())).await?;
        return Ok(Some(state.name()));
    }
    Ok(None)
}

fn judge_reboot(status: &Value, asked: Option<Moment>, now: Moment) -> Option<Reboot> {
    let in_time = asked.is_some_and(|asked| now.0 < asked.0.saturating_add(PATIENCE));
    match (status["poweredOn"] == false, in_time) {
        (true, _) => Some(Reboot::Done),
        (false, true) => None,
        (false, false) => Some(Reboot::Unanswered),
    }
}

/// A new token in place of the old one, and the pointer with it in a Secret.
async fn reprovision(hub: &Client, endpoint: &Endpoint, host: &HostRecord) -> Result<Done, Error> {
    let (namespace, name) = &host.place;
    // Without random numbers there is no token; the old one goes all the same.
    let Some(token) = make_token() else {
        revoke(hub, namespace, name, now()).await?;
        let words = "its token is revoked; this system has no random numbers for another".to_owned();
        return Ok(Done { words, action: "Reprovision", reboot: None, user_data: None });
    };
    let proxy = match &host.pool {
        Some(pool) => fetch_proxy(hub, namespace, pool).await?,
        None => None,
    };
    let header = |name: &str, value: String| Header { name: name.into(), value };
    let mut headers = vec![header("Authorization", format!("Bearer {}", STANDARD.encode(token.text())))];
    headers.extend(host.pool.as_ref().map(|pool| header("NodePool", format!("{namespace}/{pool}"))));
    let pointer = render_pointer(&PointerRequest {
        source: format!("{}/ignition", endpoint.url.trim_end_matches('/')),
        reference: Reference::Merge,
        authorities: endpoint.authorities.clone(),
        headers,
        verification: None,
        proxy,
        version: SpecVersion::V3_2,
    });
    let api: Api<DynamicObject> = Api::namespaced_with(hub.clone(), namespace, &SECRET.resource());
    let secret = names::boot_token(name);
    let existing = api.get_opt(&secret).await?;
    let previous = existing.as_ref().and_then(|secret| parse_record(&secret.data["data"]));
    let record = BootRecord::issue(hash_token(token.text()), previous.as_ref(), now(), LIFETIME_SECONDS);
    // What the one before was used for goes with it.
    let mut data = render_record(&record);
    data["payload"] = Value::Null;
    put(&api, host, &secret, (BOOT_TOKEN, BOOT_TOKEN_TYPE), data, existing).await?;
    let user_data = match pointer {
        Ok(pointer) => {
            let secret = names::boot_user_data(name);
            let existing = api.get_opt(&secret).await?;
            let data = json!({"value": STANDARD.encode(pointer)});
            put(&api, host, &secret, (USER_DATA, "kiln.dev/boot-user-data"), data, existing).await?;
            Some(secret)
        }
        // The endpoint's authorities cannot be pointed at: `kiln ignition pointer` says why.
        Err(_) => None,
    };
    let words = format!("generation {} begins with a new token", record.generation);
    Ok(Done { words, action: "Reprovision", reboot: None, user_data })
}

/// Makes a Secret of a host, or changes the one there is.
async fn put(
    api: &Api<DynamicObject>,
    host: &HostRecord,
    name: &str,
    (sort, kind): (&str, &str),
    mut data: Value,
    existing: Option<DynamicObject>,
) -> Result<(), Error> {
    if let Some(existing) = existing {
        let patch = json!({"metadata": {"resourceVersion": existing.metadata.resource_version}, "data": data});
        return api.patch(name, &parameters(), &Patch::Merge(patch)).await.map(drop);
    }
    if let Some(entries) = data.as_object_mut() {
        entries.retain(|_, value| !value.is_null());
    }
    let (namespace, of) = &host.place;
    let object = json!({"apiVersion": "v1", "kind": "Secret", "type": kind,
        "metadata": {"name": name, "namespace": namespace, "labels": {IGNITION_LABEL: sort, HOST_LABEL: label(of)},
            "ownerReferences": [{"apiVersion": HOST.api_version(), "kind": "Host", "name": of, "uid": host.uid}]},
        "data": data});
    let object = serde_json::from_value(object).map_err(Error::SerdeError)?;
    api.create(&PostParams::default(), &object).await.map(drop)
}

/// A host that is well, or out of service, needs no pointer any more, and nothing keeps its machine off.
pub async fn clean_up(hub: &Client, host: &HostRecord) -> Result<(), Error> {
    if let Some(machines) = machines(hub, &host.place.0).filter(|_| is_under_way(host)) {
        gone(machines.patch(&host.place.1, &parameters(), &Patch::Merge(let_on())).await.map(drop))?;
    }
    let Some(secret) = host.wanted["userData"].as_str() else { return Ok(()) };
    let api: Api<DynamicObject> = Api::namespaced_with(hub.clone(), &host.place.0, &SECRET.resource());
    gone(api.delete(secret, &DeleteParams::default()).await.map(drop))
}

/// Switches the machine of a host off that goes out of service, if there is a BareMetalHost to do it by: metal3 keeps it off
/// for as long as the annotation is there.
pub async fn keep_off(hub: &Client, namespace: &str, host: &str) -> Result<(), Error> {
    annotate_off(hub, namespace, host, r#"{"mode":"soft"}"#.into()).await
}

/// Lets the machine of a host on again that comes back into service.
pub async fn keep_off_no_more(hub: &Client, namespace: &str, host: &str) -> Result<(), Error> {
    annotate_off(hub, namespace, host, Value::Null).await
}

async fn annotate_off(hub: &Client, namespace: &str, host: &str, value: Value) -> Result<(), Error> {
    let Some(machines) = machines(hub, namespace) else { return Ok(()) };
    let patch = json!({"metadata": {"annotations": {OFF: value}}});
    gone(machines.patch(host, &parameters(), &Patch::Merge(patch)).await.map(drop))
}

fn let_on() -> Value {
    json!({"metadata": {"annotations": {REBOOT: null}}})
}

/// What is gone already need not be changed.
fn gone(result: Result<(), Error>) -> Result<(), Error> {
    match result {
        Err(Error::Api(status)) if status.code == 404 => Ok(()),
        other => other,
    }
}

/// BareMetalHosts of a namespace.
fn machines(hub: &Client, namespace: &str) -> Option<Api<DynamicObject>> {
    find("BareMetalHost").map(|kind: &Watched| Api::namespaced_with(hub.clone(), namespace, &kind.resource()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::approval::fleet::read_host;

    #[test]
    fn a_machine_is_let_on_again_when_it_was_off_or_nobody_obeyed() {
        let asked = Some(Moment(1000));
        for (status, now, expected) in [
            (json!({"poweredOn": true}), 1001, None),
            (Value::Null, 1599, None),
            (json!({"poweredOn": false}), 1001, Some(Reboot::Done)),
            (json!({"poweredOn": true}), 1600, Some(Reboot::Unanswered)),
        ] {
            assert_eq!(judge_reboot(&status, asked, Moment(now)), expected, "{status}");
        }
        assert_eq!(judge_reboot(&Value::Null, None, Moment(0)), Some(Reboot::Unanswered));
    }

    #[test]
    fn whoever_must_lend_a_hand_is_told_how() {
        let told = |wanted: Value| {
            let host =
                json!({"metadata": {"name": "w0", "namespace": "lab"}, "status": {"provision": {"wanted": wanted}}});
            advice(&read_host(&host)).unwrap_or_default()
        };
        assert_eq!(
            told(json!({"action": "PowerCycle", "reboot": "NoBareMetalHost"})),
            "there is no BareMetalHost lab/w0 to cycle its power by: do it by hand, as with `ipmitool -I lanplus -H BMC chassis power cycle`"
        );
        assert_eq!(
            told(json!({"action": "Reprovision", "userData": "boot-user-data-w0"})),
            "boot it with its new pointer: `kubectl get secret -n lab boot-user-data-w0 -o go-template='{{.data.value|base64decode}}'`"
        );
        assert_eq!(
            told(json!({"action": "Reprovision"})),
            "boot it with a new pointer: `kiln ignition pointer --host lab/w0` makes one"
        );
        assert_eq!((told(json!({"action": "PowerCycle", "reboot": "Done"})), told(Value::Null)), Default::default());
    }
}
