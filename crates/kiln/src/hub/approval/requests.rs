//! CertificateSigningRequests and Nodes of a cluster, reduced to what is asked about. Pure.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kiln_core::certificate_request::{
    ContentError, LARGEST_REQUEST, NodeFacts, Pending, Request, Signer, parse_certificate_pem, parse_content,
};
use kiln_core::timeline::{Entry, Moment, Stage};
use serde_json::Value;

use crate::hub::timeline::parse_time;

/// A request with what became of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    /// The request.
    pub request: Request,
    /// `metadata.resourceVersion`.
    pub revision: String,
    /// Its conditions as they stand.
    pub conditions: Value,
    /// When it was approved, and the reason.
    pub approved: Option<(Moment, String)>,
    /// When the certificate ends that was issued.
    pub ends: Option<Moment>,
}

impl Asked {
    /// For the rules about other requests.
    pub fn pending(&self) -> Option<Pending> {
        let Request { name, created, signer, username, content, decided, .. } = &self.request;
        let content = content.as_ref().ok().filter(|_| !decided)?;
        Some(Pending {
            name: name.clone(),
            created: *created,
            signer: signer.clone(),
            username: username.clone(),
            common_name: content.common_name.clone(),
            key: content.key,
        })
    }

    /// The stage it stands for.
    pub fn stage(&self) -> Option<Stage> {
        stage_of(&self.request.signer)
    }

    /// Where an entry of a timeline comes from.
    pub fn source(&self) -> String {
        format!("CertificateSigningRequest {}", self.request.name)
    }

    /// What it proves about its host: it was approved, by whomever.
    pub fn entry(&self) -> Option<Entry> {
        let (time, reason) = self.approved.clone()?;
        Some(Entry::reached(self.stage()?, time, self.source(), reason))
    }
}

/// The stage a signer leads to.
pub fn stage_of(signer: &Signer) -> Option<Stage> {
    match signer {
        Signer::Client => Some(Stage::ClientCsr),
        Signer::Serving => Some(Stage::ServingCsr),
        Signer::Other(_) => None,
    }
}

/// Reduces a CertificateSigningRequest.
pub fn read_request(object: &Value) -> Asked {
    let (metadata, spec, status) = (&object["metadata"], &object["spec"], &object["status"]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let texts = |value: &Value| value.as_array().into_iter().flatten().map(text).collect();
    let condition = |kind: &str| status["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind);
    let signer = Signer::of(spec["signerName"].as_str().unwrap_or_default());
    let request = Request {
        name: text(&metadata["name"]),
        created: metadata["creationTimestamp"].as_str().and_then(parse_time).unwrap_or(Moment(0)),
        username: text(&spec["username"]),
        groups: texts(&spec["groups"]),
        usages: texts(&spec["usages"]),
        content: match &signer {
            // Nobody looks into what is for other signers.
            Signer::Other(_) => Err(ContentError::NotPem),
            _ => read_content(spec["request"].as_str().unwrap_or_default()),
        },
        decided: ["Approved", "Denied", "Failed"].into_iter().any(|kind| condition(kind).is_some()),
        signer,
    };
    let approved = condition("Approved").filter(|approved| matches!(approved["status"].as_str(), Some("True") | None));
    let time =
        |approved: &Value| parse_time(approved["lastTransitionTime"].as_str().or(approved["lastUpdateTime"].as_str())?);
    let certificate = status["certificate"].as_str().and_then(|text| STANDARD.decode(text).ok());
    Asked {
        approved: approved
            .and_then(|approved| Some((time(approved)?, approved["reason"].as_str().unwrap_or("Approved").to_owned()))),
        ends: certificate.and_then(|pem| parse_certificate_pem(&pem)).map(|certificate| certificate.ends),
        revision: text(&metadata["resourceVersion"]),
        conditions: status["conditions"].clone(),
        request,
    }
}

fn read_content(text: &str) -> Result<kiln_core::certificate_request::Content, ContentError> {
    // Base64 of the API around the PEM: four letters for three bytes.
    if text.len() > LARGEST_REQUEST / 3 * 4 + 4 {
        return Err(ContentError::TooLarge(text.len() / 4 * 3));
    }
    parse_content(&STANDARD.decode(text).map_err(|_| ContentError::NotPem)?)
}

/// A Node, reduced.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeRecord {
    /// `metadata.resourceVersion`.
    pub revision: String,
    /// For the rules.
    pub facts: NodeFacts,
    /// When it became ready, and the reason.
    pub ready: Option<(Moment, String)>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its taints.
    pub taints: Vec<Value>,
    /// What was applied to it, as a hash.
    pub applied: String,
}

/// The annotation that says which declaration a Node got.
pub const APPLIED: &str = "kiln.dev/applied";

/// Reduces a Node.
pub fn read_node(object: &Value) -> NodeRecord {
    let (metadata, status) = (&object["metadata"], &object["status"]);
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let ready = conditions.into_iter().find(|condition| condition["type"] == "Ready" && condition["status"] == "True");
    let ready = ready.and_then(|ready| {
        let time = parse_time(ready["lastTransitionTime"].as_str()?)?;
        Some((time, ready["reason"].as_str().unwrap_or("Ready").to_owned()))
    });
    let labels = metadata["labels"].as_object().into_iter().flatten();
    NodeRecord {
        revision: metadata["resourceVersion"].as_str().unwrap_or_default().to_owned(),
        facts: NodeFacts {
            created: metadata["creationTimestamp"].as_str().and_then(parse_time).unwrap_or(Moment(0)),
            ready: ready.is_some(),
        },
        ready,
        labels: labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect(),
        taints: object["spec"]["taints"].as_array().cloned().unwrap_or_default(),
        applied: metadata["annotations"][APPLIED].as_str().unwrap_or_default().to_owned(),
    }
}

impl NodeRecord {
    /// What it proves about its host, in the words the hub's own Nodes are observed with.
    pub fn entries(&self, name: &str) -> Vec<Entry> {
        let source = format!("Node {name}");
        let registered = Entry::reached(Stage::Registered, self.facts.created, source.clone(), "the Node was created");
        let ready = self.ready.clone().map(|(time, reason)| Entry::reached(Stage::Ready, time, source, reason));
        std::iter::once(registered).chain(ready).collect()
    }
}
