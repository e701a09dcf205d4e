//! Questions about identities: who am I, may I? Answered by [`Policy`], which also decides about requests; nothing is
//! stored.

use serde_json::{Value, json};

use crate::identity::Identity;
use crate::policy::{Attributes, Policy, Target, Verdict};

/// The review with its status filled in.
pub fn answer(policy: &Policy, kind: &str, mut review: Value, identity: &Identity) -> Value {
    if !review.is_object() {
        review = json!({});
    }
    let spec = review["spec"].clone();
    review["kind"] = kind.into();
    review["apiVersion"] =
        if kind == "SelfSubjectReview" { "authentication.k8s.io/v1" } else { "authorization.k8s.io/v1" }.into();
    if !review["metadata"].is_object() {
        review["metadata"] = json!({});
    }
    review["status"] = match kind {
        "SelfSubjectReview" => json!({"userInfo": {"username": identity.user, "groups": identity.groups}}),
        "SelfSubjectRulesReview" => policy.tell(identity, spec["namespace"].as_str().unwrap_or_default()),
        "SelfSubjectAccessReview" => access(policy, &spec, identity),
        _ => access(policy, &spec, &asked_about(&spec)),
    };
    review
}

fn asked_about(spec: &Value) -> Identity {
    let groups = spec["groups"].as_array().into_iter().flatten();
    Identity {
        user: spec["user"].as_str().unwrap_or_default().into(),
        groups: groups.filter_map(|group| group.as_str().map(str::to_owned)).collect(),
    }
}

fn access(policy: &Policy, spec: &Value, identity: &Identity) -> Value {
    let asked = &spec["resourceAttributes"];
    let target = if asked.is_object() {
        Target::Objects {
            group: text(asked, "group"),
            resource: text(asked, "resource"),
            subresource: text(asked, "subresource"),
            namespace: text(asked, "namespace"),
            name: text(asked, "name"),
        }
    } else {
        Target::Path(text(&spec["nonResourceAttributes"], "path"))
    };
    let verb = text(if asked.is_object() { asked } else { &spec["nonResourceAttributes"] }, "verb");
    match policy.authorize(identity, &Attributes { verb, target }) {
        Verdict::Allowed => json!({"allowed": true}),
        Verdict::AllowedIf(conditions) => {
            let told: Vec<String> =
                conditions.iter().map(|condition| format!("{} is {:?}", condition.field, condition.value)).collect();
            json!({"allowed": true, "reason": format!("if {}", told.join(" and "))})
        }
        Verdict::Denied => json!({"allowed": false}),
    }
}

fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object[key].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{ADMINISTRATORS, VIEWERS};

    #[test]
    fn reviews_say_what_the_server_would_do() {
        let policy = Policy::default();
        let viewer = Identity::member("v", VIEWERS);
        let ask =
            |verb: &str| json!({"spec": {"resourceAttributes": {"verb": verb, "group": "", "resource": "configmaps"}}});
        let answer = |kind: &str, review: Value| answer(&policy, kind, review, &viewer);
        assert_eq!(answer("SelfSubjectAccessReview", ask("list"))["status"]["allowed"], true);
        assert_eq!(answer("SelfSubjectAccessReview", ask("delete"))["status"]["allowed"], false);
        let mut other = ask("delete");
        other["spec"]["groups"] = json!([ADMINISTRATORS]);
        assert_eq!(answer("SubjectAccessReview", other)["status"]["allowed"], true);
        assert_eq!(answer("SelfSubjectReview", json!(null))["status"]["userInfo"]["username"], "v");
        let path = |path: &str| json!({"spec": {"nonResourceAttributes": {"verb": "get", "path": path}}});
        assert_eq!(answer("SelfSubjectAccessReview", path("/metrics"))["status"]["allowed"], true);
        assert_eq!(answer("SelfSubjectAccessReview", path("/secret"))["status"]["allowed"], false);
    }
}
