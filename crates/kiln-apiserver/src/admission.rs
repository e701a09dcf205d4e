//! A place for rules this crate knows nothing of: whoever opens the server may judge what is written.
//!
//! An [`Admission`] is asked after an object was found valid by its schema, on create, update, patch and apply, also for
//! a dry run; not for a status, not for an object that is on its way out, and not for a change of nothing unless that
//! is a dry run: a dry run is how people ask what there is to say. What it refuses is answered as the server's own validation is; what it only warns of goes into `Warning` headers, which
//! kubectl prints.
//!
//! It is asked while a client waits: it must be bounded in time and must not wait for anything.

use serde_json::Value;

use crate::change::{Part, Planned, WriteContext};
use crate::error::{ApiError, Cause};
use crate::resource::Resource;
use crate::server::Server;

/// Judges objects.
pub trait Admission: std::fmt::Debug + Send + Sync {
    /// What is to be said about an object that would be stored.
    fn review(&self, review: &Review<'_>) -> Verdict;
}

/// What would be stored.
#[derive(Debug, Clone, Copy)]
pub struct Review<'a> {
    /// Everything that is stored already.
    pub server: &'a Server,
    /// The kind.
    pub resource: &'a Resource,
    /// The object as it is; none for a new one.
    pub before: Option<&'a Value>,
    /// The object as it would be.
    pub object: &'a Value,
    /// Who writes.
    pub user: &'a str,
}

/// What is said about it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Verdict {
    /// Why it is refused; empty when it is not.
    pub causes: Vec<Cause>,
    /// What the client should know.
    pub warnings: Vec<String>,
}

/// Warnings per answer: headers are bounded, and nobody reads more.
const MOST_WARNINGS: usize = 32;

impl Server {
    /// Asks whoever judges, adds the warnings, and refuses what is refused.
    pub(crate) fn admit(
        &self,
        resource: &Resource,
        before: Option<&Value>,
        part: Part,
        planned: &mut Planned,
        (context, dry_run): (&WriteContext, bool),
    ) -> Result<(), ApiError> {
        let Some(admission) = self.admission().filter(|_| part == Part::Main) else { return Ok(()) };
        if !planned.object["metadata"]["deletionTimestamp"].is_null()
            || !dry_run && before.is_some_and(|before| crate::change::is_unchanged(before, &planned.object))
        {
            return Ok(());
        }
        let review = Review { server: self, resource, before, object: &planned.object, user: &context.user };
        // Judging costs CPU time: on a runtime with several threads the others take over what waits here.
        let verdict = match tokio::runtime::Handle::try_current().map(|handle| handle.runtime_flavor()) {
            Ok(tokio::runtime::RuntimeFlavor::MultiThread) => tokio::task::block_in_place(|| admission.review(&review)),
            _ => admission.review(&review),
        };
        if !verdict.causes.is_empty() {
            let name = planned.object["metadata"]["name"].as_str().unwrap_or_default();
            return Err(ApiError::invalid(resource.named_kind(name), verdict.causes));
        }
        let more = verdict.warnings.len().saturating_sub(MOST_WARNINGS);
        planned.warnings.extend(verdict.warnings.into_iter().take(MOST_WARNINGS));
        if more > 0 {
            planned.warnings.push(format!("and {more} more"));
        }
        Ok(())
    }
}
