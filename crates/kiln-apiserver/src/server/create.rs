//! `create`.

use std::sync::Arc;

use serde_json::Value;

use super::{NAMESPACES, Outcome, Server, Written, write_error};
use crate::change::{NewPlace, Part, WriteContext, plan_create};
use crate::error::ApiError;
use crate::registry::DEFINITIONS;
use crate::resource::Resource;
use crate::store::{Draft, Key, Write, WriteError};

/// A request to create an object.
#[derive(Debug)]
pub struct CreateRequest<'a> {
    /// Which kind.
    pub resource: &'a Resource,
    /// From the path; empty for cluster-wide resources.
    pub namespace: &'a str,
    /// The object.
    pub body: Value,
    /// Whether to store nothing.
    pub dry_run: bool,
    /// Who writes.
    pub context: WriteContext,
}

/// How often a name is made up before the client is told that it exists.
const TRIES: usize = 8;

impl Server {
    /// Creates an object.
    pub async fn create(&self, request: CreateRequest<'_>) -> Result<Outcome, ApiError> {
        let CreateRequest { resource, namespace, mut body, dry_run, context } = request;
        let requires = Server::requirements(resource, namespace);
        let generated = body["metadata"]["name"].as_str().unwrap_or_default().is_empty();
        for attempt in 1.. {
            let (uid, suffix) = (uuid::Uuid::new_v4().to_string(), random_suffix());
            let place = NewPlace { namespace, uid: &uid, suffix: &suffix };
            // Only a made-up name is tried again.
            let given = if generated { body.clone() } else { std::mem::take(&mut body) };
            let mut planned = plan_create(resource, given, place, &context)?;
            let name = planned.object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            // Asked now for the sake of the answer, and again by the store at the moment it counts.
            let refused = |error| write_error(error, resource, &name);
            self.store.snapshot().require(&requires).map_err(refused)?;
            self.admit(resource, None, Part::Main, &mut planned, (&context, dry_run))?;
            let key = self.key(resource, namespace, &name);
            if dry_run {
                if self.store.snapshot().get(&key).is_some() {
                    return Err(ApiError::already_exists(resource.named(&name)));
                }
                return Ok(Outcome {
                    object: Written::DryRun(planned.object),
                    warnings: planned.warnings,
                    created: true,
                });
            }
            let write =
                Write::Create { key, draft: Draft::new(&resource.stored(&planned.object)), requires: requires.clone() };
            match self.store.write(write).await {
                Err(WriteError::Exists) if generated && attempt < TRIES => {}
                Err(error) => return Err(write_error(error, resource, &name)),
                Ok(stored) => {
                    self.after_write(&resource.collection);
                    return Ok(Outcome { object: Written::Stored(stored), warnings: planned.warnings, created: true });
                }
            }
        }
        Err(ApiError::internal("no free name was found"))
    }

    /// What must exist, and must not be on its way out, when the object is written: its namespace, and the definition of
    /// a kind that has one.
    fn requirements(resource: &Resource, namespace: &str) -> Vec<Key> {
        let mut requires = Vec::new();
        // The definition first, as a real server does.
        if !resource.builtin {
            requires.push(Key::new(&Arc::from(DEFINITIONS), "", &resource.collection));
        }
        if resource.namespaced {
            requires.push(Key::new(&Arc::from(NAMESPACES), "", namespace));
        }
        requires
    }
}

/// Five letters that spell nothing.
fn random_suffix() -> String {
    const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    uuid::Uuid::new_v4().as_bytes().iter().take(5).map(|byte| char::from(LETTERS[usize::from(*byte) % 27])).collect()
}
