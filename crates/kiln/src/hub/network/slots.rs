//! Giving slots and ending them: the writes that must not be guessed about.
//!
//! A slot whose making was not answered counts as made until the API says otherwise. A slot is ended in the state it was
//! judged in, and one of a Host that is gone only after the API was asked for that Host: a list may be old.

use kiln_core::rollout::{Ended, Holder};
use kiln_core::timeline::Moment;
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, PostParams, Preconditions};
use serde_json::Value;

use super::records::{SlotRecord, render_slot};
use super::seen::{Shared, What};
use crate::hub::controllers::cache::MANAGER;
use crate::hub::controllers::kinds::{HOST, LEASE};

/// The slots of a hub.
pub(super) struct Slots<'a> {
    pub(super) client: &'a Client,
    pub(super) namespace: &'a str,
    pub(super) shared: &'a Shared,
}

impl Slots<'_> {
    fn api(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), self.namespace, &LEASE.resource())
    }

    fn know(&self, lease: &Value) {
        self.shared.update(|seen| seen.put(What::Slots, lease));
    }

    fn forget(&self, name: &str) {
        self.shared.update(|seen| seen.forget_slot(&format!("{}/{name}", self.namespace)));
    }

    /// Gives a slot. Says whether the API said so.
    pub(super) async fn give(&self, host: &str, holder: &Holder, now: Moment, seconds: i64) -> bool {
        let mut lease = render_slot(host, holder, now, seconds);
        let Ok(object) = serde_json::from_value::<DynamicObject>(lease.clone()) else { return false };
        let options = PostParams { field_manager: Some(MANAGER.into()), ..PostParams::default() };
        let name = object.metadata.name.clone().unwrap_or_default();
        let made = match self.api().create(&options, &object).await {
            Err(kube::Error::Api(status)) if status.code == 409 => self.api().get(&name).await,
            other => other,
        };
        match made {
            Ok(made) => {
                self.know(&serde_json::to_value(made).unwrap_or_default());
                true
            }
            Err(error) => {
                tracing::debug!(%error, host, "whether a slot was given is not known; it counts");
                lease["metadata"]["namespace"] = self.namespace.into();
                self.know(&lease);
                false
            }
        }
    }

    /// Ends a slot, if it is still as it was. Says whether it is gone.
    pub(super) async fn end(&self, record: &SlotRecord, why: Ended) -> bool {
        match self.try_end(record, why).await {
            Ok(gone) => gone,
            Err(error) => {
                tracing::debug!(%error, slot = record.at.name, "a slot was not ended; it is planned again");
                false
            }
        }
    }

    /// Asks for a slot that nobody was heard of for long: somebody may have taken the record away.
    pub(super) async fn verify(&self, record: &SlotRecord) {
        if let Ok(None) = self.api().get_opt(&record.at.name).await {
            self.forget(&record.at.name);
        }
    }

    async fn try_end(&self, record: &SlotRecord, why: Ended) -> Result<bool, kube::Error> {
        let name = record.at.name.as_str();
        let Some(lease) = self.api().get_opt(name).await? else {
            self.forget(name);
            return Ok(true);
        };
        let value = serde_json::to_value(&lease).unwrap_or_default();
        if SlotRecord::read(&value).is_none_or(|present| present.slot != record.slot) {
            self.know(&value);
            return Ok(false);
        }
        if why == Ended::Gone {
            let (namespace, host) = record.slot.node.split_once('/').unwrap_or_default();
            let hosts: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &HOST.resource());
            let there = hosts.get_opt(host).await?;
            // A host without an agent's word holds nothing either.
            if there.is_some_and(|there| !there.data["status"]["network"]["agent"].is_null()) {
                return Ok(false);
            }
        }
        let same = Preconditions { uid: lease.metadata.uid, resource_version: lease.metadata.resource_version };
        let options = DeleteParams { preconditions: Some(same), ..DeleteParams::default() };
        match self.api().delete(name, &options).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(error),
        }
        self.forget(name);
        Ok(true)
    }
}
