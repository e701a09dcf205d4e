//! The bootstrap users of hosts: the Secret on the cluster that makes a host's own token good.
//!
//! It is made when the host has fetched the config with the token in it, and goes when the host has its certificate, when
//! its boot token was misused, when the time to ask is over, or when the host begins anew. By itself it ends at the end of
//! that time, whatever happens to the hub.
//!
//! Needs two rights on the cluster, create and delete of Secrets in `kube-system`; what is there is never read. Which token it
//! is follows from the hub's key and the host's boot token, so that a user somebody wrote into a Host's status gets no
//! token made.

use std::collections::HashMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::future::BoxFuture;
use kiln_core::beacon_token::Bearer;
use kiln_core::bootstrap_token::{BootstrapToken, GROUP, secret_name};
use kiln_core::certificate_request::{HostFacts, Provision, Signer, WINDOW};
use kiln_core::provision::names;
use kiln_core::timeline::{Entry, Moment, Stage};
use kube::api::{Api, DeleteParams, DynamicObject, PostParams};
use kube::{Client, Error};
use serde_json::{Value, json};

use super::cluster::each;
use super::connect::Connected;
use super::fleet::Member;
use super::{Approver, answered, as_value};
use crate::hub::boot_secrets::parse_record;
use crate::hub::controllers::kinds::SECRET;
use crate::hub::following::Place;
use crate::hub::node::beacon::key::{self, BeaconKey};
use crate::hub::timeline::{Update, now, record, render_time, update};

/// Where clusters keep bootstrap tokens.
const NAMESPACE: &str = "kube-system";

/// What is to be done about a host's user.
#[derive(Debug, PartialEq, Eq)]
enum Wish<'a> {
    /// Its token must be good.
    Make(&'a str),
    /// It is not needed any more.
    Remove(&'a str),
}

/// The users whose tokens this process made, and what was said of those it could not make.
#[derive(Debug, Default)]
pub struct Users {
    made: HashMap<Place, String>,
    told: HashMap<Place, String>,
}

fn wish(facts: &HostFacts, now: Moment) -> Option<Wish<'_>> {
    let provision = facts.provision.as_ref()?;
    // A user of another kind is somebody else's to make.
    let user = provision.user.as_deref().filter(|user| secret_name(user).is_some())?;
    let Provision { generation, fetched, alarm, .. } = provision;
    let issued = |approved: &kiln_core::certificate_request::Approved| {
        approved.signer == Signer::Client && approved.generation == *generation && approved.ends.is_some()
    };
    let in_time = fetched.is_some_and(|fetched| now.0 < fetched.0 + WINDOW);
    let needed = in_time && alarm.is_none() && !facts.approved.iter().any(issued);
    Some(if needed { Wish::Make(user) } else { Wish::Remove(user) })
}

/// A host, and the user it has now or why that is not as it should be.
type Attended<'a> = (&'a Member, Result<Option<String>, String>);

/// Makes and removes what the hosts of a cluster need. What fails is said in the host's timeline and tried again.
pub async fn attend<'a>(
    approver: &Approver,
    connected: &Connected,
    members: impl Iterator<Item = &'a Member>,
    users: &mut Users,
) {
    let mut before = std::mem::take(&mut users.made);
    let mut work: Vec<BoxFuture<'_, Attended<'_>>> = Vec::new();
    for member in members {
        let place = &member.host.place;
        match wish(&member.facts, now()) {
            Some(Wish::Make(user)) if before.get(place).is_some_and(|made| made == user) => {
                users.made.extend(before.remove_entry(place));
            }
            Some(Wish::Make(user)) => work.push(Box::pin(async move {
                (member, make(approver, connected, member, user).await.map(|()| Some(user.to_owned())))
            })),
            Some(Wish::Remove(user)) => {
                work.push(Box::pin(
                    async move { (member, remove(approver, connected, member, user).await.map(|()| None)) },
                ))
            }
            None => {}
        }
    }
    for (member, done) in each(work).await {
        let place = &member.host.place;
        match done {
            Ok(made) => {
                users.told.remove(place);
                users.made.extend(made.map(|user| (place.clone(), user)));
            }
            Err(why) => {
                approver.figures.failure();
                if users.told.insert(place.clone(), why.clone()).as_ref() != Some(&why) {
                    tracing::warn!(host = %format!("{}/{}", place.0, place.1), why, "its bootstrap user is not as it should be; it is tried again");
                    let entry = Entry::failed(Stage::ClientCsr, now(), "hub", format!("its bootstrap user: {why}"));
                    let _ = record(&approver.hub, &place.0, &place.1, &entry).await;
                }
            }
        }
    }
    // Those of an earlier life.
    for user in before.into_values() {
        let _ = delete(&connected.client, &user).await;
    }
}

async fn make(approver: &Approver, connected: &Connected, member: &Member, user: &str) -> Result<(), String> {
    let token = token_of(approver, member).await?;
    if token.user() != user {
        return Err("the hub's key or the host's boot token changed since it fetched its config".into());
    }
    let expires = member.facts.provision.as_ref().and_then(|provision| provision.fetched);
    let object = secret(&token, &member.host.place, Moment(expires.map_or(0, |fetched| fetched.0 + WINDOW)));
    let object: DynamicObject = serde_json::from_value(object).map_err(|error| error.to_string())?;
    match answered(secrets(&connected.client).create(&PostParams::default(), &object)).await {
        Ok(_) => {
            tracing::info!(host = %format!("{}/{}", member.host.place.0, member.host.place.1), user, "its bootstrap token is good now");
            Ok(())
        }
        // This hub made it before it was started anew.
        Err(Error::Api(status)) if status.code == 409 => Ok(()),
        Err(error) => Err(format!("the cluster does not take its Secret: {error}")),
    }
}

async fn remove(approver: &Approver, connected: &Connected, member: &Member, user: &str) -> Result<(), String> {
    let failed = |error: Error| error.to_string();
    delete(&connected.client, user).await.map_err(failed)?;
    let (namespace, name) = &member.host.place;
    let plan = |object: &Value| Update {
        patch: (object["status"]["provision"]["bootstrapUser"] == user)
            .then(|| json!({"provision": {"bootstrapUser": null}})),
        ..Update::default()
    };
    answered(update(&approver.hub, namespace, name, plan)).await.map(drop).map_err(failed)
}

async fn delete(cluster: &Client, user: &str) -> Result<(), Error> {
    let Some(name) = secret_name(user) else { return Ok(()) };
    match answered(secrets(cluster).delete(&name, &DeleteParams::default())).await {
        Err(Error::Api(status)) if status.code == 404 => Ok(()),
        other => other.map(drop),
    }
}

/// The token the host got with its config.
async fn token_of(approver: &Approver, member: &Member) -> Result<BootstrapToken, String> {
    let (namespace, host) = &member.host.place;
    let read = async |namespace: &str, name: &str| {
        let api: Api<DynamicObject> = Api::namespaced_with(approver.hub.clone(), namespace, &SECRET.resource());
        let found = answered(api.get(name)).await;
        found.map(as_value).map_err(|error| format!("Secret {namespace}/{name} of the hub: {error}"))
    };
    let of_hub = approver.hub.default_namespace();
    let key = read(of_hub, key::SECRET).await?;
    let key = BeaconKey::read(&key, of_hub).ok_or("the hub's key cannot be read")?;
    let boot_token = read(namespace, &names::boot_token(host)).await?;
    let record = parse_record(&boot_token["data"]).filter(|record| record.revoked.is_none());
    let record = record.ok_or("the host's boot token was revoked")?;
    let bearer = Bearer { namespace: namespace.clone(), host: host.clone(), generation: record.generation };
    Ok(key.bootstrap_token(&bearer, &record.hash))
}

fn secret(token: &BootstrapToken, (namespace, host): &Place, expires: Moment) -> Value {
    let data = [
        ("token-id", token.id()),
        ("token-secret", token.secret()),
        ("usage-bootstrap-authentication", "true"),
        ("auth-extra-groups", GROUP),
        ("expiration", &render_time(expires)),
        ("description", &format!("Kiln: host {namespace}/{host}, until it has its certificate")),
    ];
    let data: serde_json::Map<String, Value> =
        data.iter().map(|(key, text)| ((*key).to_owned(), STANDARD.encode(text).into())).collect();
    json!({"apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": format!("bootstrap-token-{}", token.id()), "namespace": NAMESPACE}, "data": data})
}

fn secrets(cluster: &Client) -> Api<DynamicObject> {
    Api::namespaced_with(cluster.clone(), NAMESPACE, &SECRET.resource())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_core::certificate_request::Approved;

    #[test]
    fn a_token_is_good_from_the_fetch_to_the_certificate() {
        let user = "system:bootstrap:abcdef";
        let provision = |alarm: Option<&str>, fetched: Option<i64>| Provision {
            generation: 2,
            fetched: fetched.map(Moment),
            user: Some(user.into()),
            alarm: alarm.map(str::to_owned),
            ..Provision::default()
        };
        let approved = |signer: Signer, generation: u64, ends: Option<i64>| Approved {
            request: "csr".into(),
            signer,
            generation,
            key: None,
            time: Moment(1000),
            ends: ends.map(Moment),
        };
        let (make, remove) = (Wish::Make(user), Wish::Remove(user));
        for (provision, approved, expected) in [
            (provision(None, Some(1000)), vec![], &make),
            (provision(None, Some(1000)), vec![approved(Signer::Client, 2, None)], &make),
            (provision(None, Some(1000)), vec![approved(Signer::Client, 1, Some(9000))], &make),
            (provision(None, Some(1000)), vec![approved(Signer::Client, 2, Some(9000))], &remove),
            (provision(Some("twice"), Some(1000)), vec![], &remove),
            (provision(None, None), vec![], &remove),
            (provision(None, Some(1000 - WINDOW)), vec![], &remove),
        ] {
            let facts = HostFacts { provision: Some(provision), approved, ..HostFacts::default() };
            assert_eq!(wish(&facts, Moment(1000)).as_ref(), Some(expected), "{facts:?}");
        }
        assert_eq!(wish(&HostFacts::default(), Moment(1000)), None);
        let theirs = Provision { user: Some("system:serviceaccount:lab:w0".into()), ..provision(None, Some(1000)) };
        assert_eq!(wish(&HostFacts { provision: Some(theirs), ..HostFacts::default() }, Moment(1000)), None);
    }
}
