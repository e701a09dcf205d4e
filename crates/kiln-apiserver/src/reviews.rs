//! Questions about the asker: who am I, may I? Answered from [`Identity`], nothing is stored.

use serde_json::{Value, json};

use crate::identity::{ADMINISTRATORS, Identity, VIEWERS};

/// The review with its status filled in.
pub fn answer(kind: &str, mut review: Value, identity: &Identity) -> Value {
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
        "SelfSubjectRulesReview" => rules(identity),
        "SelfSubjectAccessReview" => access(&spec, identity),
        _ => access(&spec, &asked_about(&spec)),
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

fn access(spec: &Value, identity: &Identity) -> Value {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let asked = &spec["resourceAttributes"];
    let allowed = if asked.is_object() {
        identity.may(&text(&asked["verb"]), &text(&asked["group"]), &text(&asked["resource"]))
    } else {
        // Everybody who was recognised may read discovery; there is nothing else.
        text(&spec["nonResourceAttributes"]["verb"]) == "get" || identity.groups.iter().any(|g| g == ADMINISTRATORS)
    };
    json!({"allowed": allowed})
}

fn rules(identity: &Identity) -> Value {
    let member = |name: &str| identity.groups.iter().any(|group| group == name);
    let mut resources =
        vec![json!({"verbs": ["create"], "apiGroups": ["authorization.k8s.io", "authentication.k8s.io"],
        "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"]})];
    let mut others =
        vec![json!({"verbs": ["get"], "nonResourceURLs": ["/api", "/api/*", "/apis", "/apis/*", "/healthz",
        "/livez", "/openapi", "/openapi/*", "/readyz", "/version"]})];
    if member(ADMINISTRATORS) {
        resources.push(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}));
        others.push(json!({"verbs": ["*"], "nonResourceURLs": ["*"]}));
    } else if member(VIEWERS) {
        resources.push(json!({"verbs": ["get", "list", "watch"], "apiGroups": ["*"], "resources": ["*"]}));
    }
    json!({"resourceRules": resources, "nonResourceRules": others, "incomplete": false})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reviews_say_what_the_server_would_do() {
        let viewer = Identity::member("v", VIEWERS);
        let ask =
            |verb: &str| json!({"spec": {"resourceAttributes": {"verb": verb, "group": "", "resource": "configmaps"}}});
        assert_eq!(answer("SelfSubjectAccessReview", ask("list"), &viewer)["status"]["allowed"], true);
        assert_eq!(answer("SelfSubjectAccessReview", ask("delete"), &viewer)["status"]["allowed"], false);
        let mut other = ask("delete");
        other["spec"]["groups"] = json!([ADMINISTRATORS]);
        assert_eq!(answer("SubjectAccessReview", other, &viewer)["status"]["allowed"], true);
        assert_eq!(answer("SelfSubjectReview", json!(null), &viewer)["status"]["userInfo"]["username"], "v");
    }
}
