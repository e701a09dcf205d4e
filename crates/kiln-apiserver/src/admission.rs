//! A place for rules this crate knows nothing of: whoever opens the server may judge what is written.
//!
//! An [`Admission`] is asked after an object was found valid by its schema, on create, update, patch and apply, also for
//! a dry run; not for a status, not for an object that is on its way out, and not for a change of nothing unless that
//! is a dry run: a dry run is how people ask what there is to say. What it refuses is answered as the server's own validation is; what it only warns of goes into `Warning` headers, which
//! kubectl prints.
//!
//! It is asked while a client waits: it must be bounded in time and must not wait for anything. What takes longer than a
//! millisecond or two goes [`aside`]. Not everything does: to hand a thread's work to another one costs as much as a
//! short review, and each of many threads keeps memory.

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

/// Does what takes a while. On a runtime with several threads the others take over what would wait behind it.
pub fn aside<T>(work: impl FnOnce() -> T) -> T {
    match tokio::runtime::Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(tokio::runtime::RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
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
        let verdict = admission.review(&review);
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

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use serde_json::json;

    use super::*;
    use crate::Tokens;
    use crate::server::{CreateRequest, Limits, Outcome, PatchBody, UpdateRequest, system_context};
    use crate::testing::TempDir;

    /// Refuses what says so, warns as often as it says, and remembers what it was asked.
    #[derive(Debug, Default)]
    struct Judge(Mutex<Vec<String>>);

    impl Admission for Judge {
        fn review(&self, review: &Review<'_>) -> Verdict {
            let old = review.before.map_or("none".into(), |before| before["data"].to_string());
            let asked = format!("{} {} {old} {}", review.resource.kind, review.user, review.object["data"]);
            self.0.lock().unwrap().push(asked);
            let warnings = review.object["data"]["warnings"].as_str().and_then(|text| text.parse().ok()).unwrap_or(0);
            let refuses = review.object["data"]["refuse"] == "yes";
            Verdict {
                causes: refuses
                    .then(|| Cause::invalid("data.refuse", &"yes".into(), "as it says"))
                    .into_iter()
                    .collect(),
                warnings: (0..warnings).map(|number| format!("warning {number}")).collect(),
            }
        }
    }

    struct Judged {
        server: Arc<Server>,
        judge: Arc<Judge>,
        _folder: TempDir,
    }

    impl Judged {
        async fn start() -> Judged {
            let folder = TempDir::new("admission");
            let server = Server::open(folder.path(), Tokens::default(), Limits::default()).await.unwrap();
            let judge = Arc::new(Judge::default());
            assert!(server.judge_with(Arc::clone(&judge) as Arc<dyn Admission>));
            assert!(!server.judge_with(Arc::new(Judge::default())), "the first one stays");
            Judged { server, judge, _folder: folder }
        }

        async fn create(&self, name: &str, data: Value, dry_run: bool) -> Result<Outcome, ApiError> {
            let registry = self.server.registry();
            let resource = registry.find("", "v1", "configmaps").unwrap();
            let body = json!({"metadata": {"name": name}, "data": data});
            let context = system_context();
            self.server.create(CreateRequest { resource, namespace: "default", body, dry_run, context }).await
        }

        async fn patch(&self, name: &str, patch: Value, dry_run: bool) -> Result<Outcome, ApiError> {
            let registry = self.server.registry();
            let resource = registry.find("", "v1", "configmaps").unwrap();
            let request = UpdateRequest {
                resource,
                namespace: "default",
                name,
                part: Part::Main,
                dry_run,
                context: system_context(),
            };
            self.server.patch(request, PatchBody::Merge(patch)).await
        }

        fn asked(&self) -> Vec<String> {
            std::mem::take(&mut *self.judge.0.lock().unwrap())
        }
    }

    #[tokio::test]
    async fn what_is_refused_is_not_stored_and_says_where_and_why() {
        let judged = Judged::start().await;
        let refused = judged.create("no", json!({"refuse": "yes"}), false).await.unwrap_err();
        assert_eq!((refused.code, refused.reason), (422, "Invalid"));
        assert_eq!(refused.message, "ConfigMap \"no\" is invalid: data.refuse: Invalid value: \"yes\": as it says");
        assert_eq!(refused.details.causes[0].field, "data.refuse");
        assert_eq!(judged.asked(), ["ConfigMap system:apiserver none {\"refuse\":\"yes\"}"]);
        assert_eq!(judged.patch("no", json!({}), false).await.unwrap_err().code, 404, "it was not stored");
    }

    #[tokio::test]
    async fn nobody_is_asked_about_a_change_of_nothing_unless_it_is_a_dry_run() {
        let judged = Judged::start().await;
        judged.create("a", json!({"k": "1"}), false).await.unwrap();
        judged.asked();
        judged.patch("a", json!({"data": {"k": "1"}}), false).await.unwrap();
        assert_eq!(judged.asked(), [] as [String; 0]);
        judged.patch("a", json!({"data": {"k": "1"}}), true).await.unwrap();
        judged.patch("a", json!({"data": {"k": "2"}}), false).await.unwrap();
        let [dry, real] = judged.asked().try_into().unwrap();
        assert_eq!(dry, "ConfigMap system:apiserver {\"k\":\"1\"} {\"k\":\"1\"}");
        assert_eq!(real, "ConfigMap system:apiserver {\"k\":\"1\"} {\"k\":\"2\"}");
    }

    #[tokio::test]
    async fn nobody_is_asked_about_what_is_on_its_way_out() {
        let judged = Judged::start().await;
        judged.create("a", json!({}), false).await.unwrap();
        judged.patch("a", json!({"metadata": {"finalizers": ["example.org/f"]}}), false).await.unwrap();
        let registry = judged.server.registry();
        let resource = registry.find("", "v1", "configmaps").unwrap();
        judged.server.delete(resource, "default", "a", &crate::server::DeleteOptions::default()).await.unwrap();
        judged.asked();
        judged.patch("a", json!({"data": {"refuse": "yes"}}), false).await.unwrap();
        assert_eq!(judged.asked(), [] as [String; 0]);
    }

    #[tokio::test]
    async fn warnings_are_given_up_to_a_bound() {
        let judged = Judged::start().await;
        let few = judged.create("few", json!({"warnings": "2"}), false).await.unwrap();
        assert_eq!(few.warnings, ["warning 0", "warning 1"]);
        let many = judged.create("many", json!({"warnings": "40"}), true).await.unwrap();
        assert_eq!((many.warnings.len(), many.warnings.last().map(String::as_str)), (33, Some("and 8 more")));
    }
}
