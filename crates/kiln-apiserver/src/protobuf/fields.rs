//! The fields of the messages that are read: number, name in JSON, kind. From the `generated.proto` files of Kubernetes.

use FieldKind::{Binary, BinaryMap, Boolean, Integer, Message, Messages, MicroTime, Text, TextMap, Texts, Time};

/// What a field holds.
#[derive(Debug, Clone, Copy)]
pub(super) enum FieldKind {
    Text,
    Texts,
    Binary,
    Integer,
    Boolean,
    /// Whole seconds.
    Time,
    /// Six digits after the second, as leases have them.
    MicroTime,
    TextMap,
    BinaryMap,
    Message(&'static str),
    Messages(&'static str),
}

type Field = (u64, &'static str, FieldKind);

/// The fields of a message; top-level kinds are messages of the same name.
pub(super) fn message(name: &str) -> Option<&'static [Field]> {
    MESSAGES.iter().find(|(known, _)| *known == name).map(|(_, fields)| *fields)
}

const META: Field = (1, "metadata", Message("ObjectMeta"));

const MESSAGES: &[(&str, &[Field])] = &[
    (
        "ObjectMeta",
        &[
            (1, "name", Text),
            (2, "generateName", Text),
            (3, "namespace", Text),
            (5, "uid", Text),
            (6, "resourceVersion", Text),
            (7, "generation", Integer),
            (8, "creationTimestamp", Time),
            (9, "deletionTimestamp", Time),
            (10, "deletionGracePeriodSeconds", Integer),
            (11, "labels", TextMap),
            (12, "annotations", TextMap),
            (13, "ownerReferences", Messages("OwnerReference")),
            (14, "finalizers", Texts),
        ],
    ),
    (
        "OwnerReference",
        &[
            (1, "kind", Text),
            (3, "name", Text),
            (4, "uid", Text),
            (5, "apiVersion", Text),
            (6, "controller", Boolean),
            (7, "blockOwnerDeletion", Boolean),
        ],
    ),
    ("Namespace", &[META, (2, "spec", Message("NamespaceSpec")), (3, "status", Message("NamespaceStatus"))]),
    ("NamespaceSpec", &[(1, "finalizers", Texts)]),
    ("NamespaceStatus", &[(1, "phase", Text)]),
    ("ConfigMap", &[META, (2, "data", TextMap), (3, "binaryData", BinaryMap), (4, "immutable", Boolean)]),
    (
        "Secret",
        &[META, (2, "data", BinaryMap), (3, "type", Text), (4, "stringData", TextMap), (5, "immutable", Boolean)],
    ),
    (
        "Event",
        &[
            META,
            (2, "involvedObject", Message("ObjectReference")),
            (3, "reason", Text),
            (4, "message", Text),
            (5, "source", Message("EventSource")),
            (6, "firstTimestamp", Time),
            (7, "lastTimestamp", Time),
            (8, "count", Integer),
            (9, "type", Text),
            (10, "eventTime", MicroTime),
            (11, "series", Message("EventSeries")),
            (12, "action", Text),
            (13, "related", Message("ObjectReference")),
            (14, "reportingComponent", Text),
            (15, "reportingInstance", Text),
        ],
    ),
    (
        "ObjectReference",
        &[
            (1, "kind", Text),
            (2, "namespace", Text),
            (3, "name", Text),
            (4, "uid", Text),
            (5, "apiVersion", Text),
            (6, "resourceVersion", Text),
            (7, "fieldPath", Text),
        ],
    ),
    (
        "events.k8s.io/v1 Event",
        &[
            META,
            (2, "eventTime", MicroTime),
            (3, "series", Message("EventSeries")),
            (4, "reportingController", Text),
            (5, "reportingInstance", Text),
            (6, "action", Text),
            (7, "reason", Text),
            (8, "regarding", Message("ObjectReference")),
            (9, "related", Message("ObjectReference")),
            (10, "note", Text),
            (11, "type", Text),
            (12, "deprecatedSource", Message("EventSource")),
            (13, "deprecatedFirstTimestamp", Time),
            (14, "deprecatedLastTimestamp", Time),
            (15, "deprecatedCount", Integer),
        ],
    ),
    ("EventSource", &[(1, "component", Text), (2, "host", Text)]),
    ("EventSeries", &[(1, "count", Integer), (2, "lastObservedTime", MicroTime)]),
    ("Lease", &[META, (2, "spec", Message("LeaseSpec"))]),
    (
        "LeaseSpec",
        &[
            (1, "holderIdentity", Text),
            (2, "leaseDurationSeconds", Integer),
            (3, "acquireTime", MicroTime),
            (4, "renewTime", MicroTime),
            (5, "leaseTransitions", Integer),
            (6, "strategy", Text),
            (7, "preferredHolder", Text),
        ],
    ),
    (
        "CertificateSigningRequest",
        &[META, (2, "spec", Message("SigningSpec")), (3, "status", Message("SigningStatus"))],
    ),
    (
        "SigningSpec",
        &[
            (1, "request", Binary),
            (2, "username", Text),
            (3, "uid", Text),
            (4, "groups", Texts),
            (5, "usages", Texts),
            (7, "signerName", Text),
            (8, "expirationSeconds", Integer),
        ],
    ),
    ("SigningStatus", &[(1, "conditions", Messages("SigningCondition")), (2, "certificate", Binary)]),
    (
        "SigningCondition",
        &[
            (1, "type", Text),
            (2, "reason", Text),
            (3, "message", Text),
            (4, "lastUpdateTime", Time),
            (5, "lastTransitionTime", Time),
            (6, "status", Text),
        ],
    ),
    ("Scale", &[META, (2, "spec", Message("ScaleSpec")), (3, "status", Message("ScaleStatus"))]),
    ("ScaleSpec", &[(1, "replicas", Integer)]),
    ("ScaleStatus", &[(1, "replicas", Integer), (2, "selector", Text)]),
    ("SelfSubjectReview", &[META]),
    ("SelfSubjectAccessReview", &[META, (2, "spec", Message("AccessSpec"))]),
    ("SubjectAccessReview", &[META, (2, "spec", Message("AccessSpec"))]),
    ("LocalSubjectAccessReview", &[META, (2, "spec", Message("AccessSpec"))]),
    (
        "AccessSpec",
        &[
            (1, "resourceAttributes", Message("ResourceAttributes")),
            (2, "nonResourceAttributes", Message("NonResourceAttributes")),
            (3, "user", Text),
            (4, "groups", Texts),
        ],
    ),
    (
        "ResourceAttributes",
        &[
            (1, "namespace", Text),
            (2, "verb", Text),
            (3, "group", Text),
            (4, "version", Text),
            (5, "resource", Text),
            (6, "subresource", Text),
            (7, "name", Text),
        ],
    ),
    ("NonResourceAttributes", &[(1, "path", Text), (2, "verb", Text)]),
    ("SelfSubjectRulesReview", &[META, (2, "spec", Message("RulesSpec"))]),
    ("RulesSpec", &[(1, "namespace", Text)]),
    (
        "DeleteOptions",
        &[
            (1, "gracePeriodSeconds", Integer),
            (2, "preconditions", Message("Preconditions")),
            (3, "orphanDependents", Boolean),
            (4, "propagationPolicy", Text),
            (5, "dryRun", Texts),
        ],
    ),
    ("Preconditions", &[(1, "uid", Text), (2, "resourceVersion", Text)]),
];
