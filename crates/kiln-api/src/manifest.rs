//! The shapes many kinds share: the outer frame of a manifest, references, selectors, proxies.

use kiln_core::diagnostic::Diagnostic;
use kiln_core::document::Node;
use kiln_core::source::Sourced;
use kiln_core::world::{IgnitionSource, LabelSelector, Meta, Proxy, Reference, Requirement, Taint};
use serde::Deserialize;

use crate::carried::Carried;
use crate::value;

/// The frame of a custom resource around its spec. Name and kind were read before, from the document itself.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Manifest<Spec> {
    api_version: Carried,
    kind: Carried,
    metadata: ObjectMeta,
    spec: Option<Spec>,
    status: Carried,
}

impl<Spec: Default> Manifest<Spec> {
    pub(crate) fn into_spec(self) -> Spec {
        let Manifest { api_version: Carried, kind: Carried, metadata, spec, status: Carried } = self;
        metadata.carried();
        spec.unwrap_or_default()
    }
}

/// `metav1.ObjectMeta`, for the names of its fields alone: [`crate::metadata`] reads them.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ObjectMeta {
    annotations: Carried,
    creation_timestamp: Carried,
    deletion_grace_period_seconds: Carried,
    deletion_timestamp: Carried,
    finalizers: Carried,
    generate_name: Carried,
    generation: Carried,
    labels: Carried,
    managed_fields: Carried,
    name: Carried,
    namespace: Carried,
    owner_references: Carried,
    resource_version: Carried,
    self_link: Carried,
    uid: Carried,
}

impl ObjectMeta {
    pub(crate) fn carried(self) {
        let ObjectMeta {
            annotations: Carried,
            creation_timestamp: Carried,
            deletion_grace_period_seconds: Carried,
            deletion_timestamp: Carried,
            finalizers: Carried,
            generate_name: Carried,
            generation: Carried,
            labels: Carried,
            managed_fields: Carried,
            name: Carried,
            namespace: Carried,
            owner_references: Carried,
            resource_version: Carried,
            self_link: Carried,
            uid: Carried,
        } = self;
    }
}

/// `{name: …}`: an object in the referrer's namespace.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct LocalReference {
    pub(crate) name: Option<Sourced<String>>,
}

impl LocalReference {
    pub(crate) fn convert(self) -> Option<Reference> {
        let LocalReference { name } = self;
        local(name)
    }
}

/// `{name: …, namespace: …}`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NamespacedReference {
    name: Option<Sourced<String>>,
    namespace: Option<Sourced<String>>,
}

impl NamespacedReference {
    pub(crate) fn convert(self) -> Option<Reference> {
        let NamespacedReference { name, namespace } = self;
        let reference = local(name)?;
        Some(Reference { namespace: namespace.map(|text| text.value).unwrap_or_default(), ..reference })
    }
}

/// A name alone, as in `credentialsName: …`. An empty one refers to nothing.
pub(crate) fn local(name: Option<Sourced<String>>) -> Option<Reference> {
    let name = name.filter(|name| !name.is_empty())?;
    Some(Reference { namespace: String::new(), at: name.at, name: name.value })
}

/// A taint as NodePool and Pool have it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct TaintEntry {
    effect: Option<Sourced<String>>,
    key: Option<Sourced<String>>,
    value: Option<Sourced<String>>,
}

impl TaintEntry {
    pub(crate) fn convert(self) -> Option<Taint> {
        let TaintEntry { effect, key, value } = self;
        Some(Taint {
            key: key?.value,
            value: value.map(|value| value.value).unwrap_or_default(),
            effect: effect?.value,
        })
    }
}

/// Where a pool of another dialect gets its base config: said by annotations.
pub(crate) fn annotated_ignition(meta: &Meta) -> Option<IgnitionSource> {
    let written = |key: &str| meta.annotations.get(key).filter(|value| !value.is_empty()).cloned();
    let upstream = written("kiln.dev/ignition-upstream")
        .map(|url| IgnitionSource::Upstream { url, authority: local(written("kiln.dev/ignition-ca")) });
    let secret = || local(written("kiln.dev/ignition-secret")).map(IgnitionSource::Secret);
    let config_map = || local(written("kiln.dev/ignition-config-map")).map(IgnitionSource::ConfigMap);
    upstream.or_else(secret).or_else(config_map)
}

/// `metav1.LabelSelector`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Selector {
    match_labels: Option<Node>,
    match_expressions: Vec<Expression>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Expression {
    key: Option<Sourced<String>>,
    operator: Option<Sourced<String>>,
    values: Vec<Sourced<String>>,
}

/// An absent selector says nothing, like an empty one.
pub(crate) fn selector(written: Option<Sourced<Selector>>, findings: &mut Vec<Diagnostic>) -> LabelSelector {
    let Some(Sourced { value: Selector { match_labels, match_expressions }, at }) = written else {
        return LabelSelector::default();
    };
    let expressions = match_expressions.into_iter().filter_map(|Expression { key, operator, values }| {
        Some(Requirement { key: key?, operator: operator?, values })
    });
    LabelSelector {
        labels: value::labels(match_labels.as_ref(), findings),
        expressions: expressions.collect(),
        at: Some(at),
    }
}

/// `httpProxy`, `httpsProxy`, `noProxy`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ProxySettings {
    http_proxy: Option<Sourced<String>>,
    https_proxy: Option<Sourced<String>>,
    no_proxy: Option<Sourced<String>>,
}

impl ProxySettings {
    pub(crate) fn convert(self) -> Proxy {
        let ProxySettings { http_proxy, https_proxy, no_proxy } = self;
        Proxy { http: http_proxy, https: https_proxy, no_proxy }
    }
}
