//! The fields of the messages that are read: number, name in JSON, kind. From the `generated.proto` files of Kubernetes.

use FieldKind::{
    Binary, BinaryMap, Boolean, Count, Flag, Integer, Message, Messages, MicroTime, QuantityMap, Text, TextMap, Texts,
    Time,
};

/// What a field holds.
#[derive(Debug, Clone, Copy)]
pub(super) enum FieldKind {
    Text,
    Texts,
    Binary,
    Integer,
    Boolean,
    /// A number that Go writes also when nobody set it; JSON leaves out 0.
    Count,
    /// A boolean that Go writes also when nobody set it; JSON leaves out false.
    Flag,
    /// Whole seconds.
    Time,
    /// Six digits after the second, as leases have them.
    MicroTime,
    TextMap,
    BinaryMap,
    /// Amounts by name. An amount is a message with its text (`16Gi`) and becomes that text.
    QuantityMap,
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
            (7, "generation", Count),
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
    ("NamespaceStatus", &[(1, "phase", Text), (2, "conditions", Messages("NamespaceCondition"))]),
    (
        "NamespaceCondition",
        &[
            (1, "type", Text),
            (2, "status", Text),
            (4, "lastTransitionTime", Time),
            (5, "reason", Text),
            (6, "message", Text),
        ],
    ),
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
            (8, "count", Count),
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
            (15, "deprecatedCount", Count),
        ],
    ),
    ("EventSource", &[(1, "component", Text), (2, "host", Text)]),
    ("EventSeries", &[(1, "count", Integer), (2, "lastObservedTime", MicroTime)]),
    ("Node", &[META, (2, "spec", Message("NodeSpec")), (3, "status", Message("NodeStatus"))]),
    (
        "NodeSpec",
        &[
            (1, "podCIDR", Text),
            (2, "externalID", Text),
            (3, "providerID", Text),
            (4, "unschedulable", Flag),
            (5, "taints", Messages("Taint")),
            (6, "configSource", Message("NodeConfigSource")),
            (7, "podCIDRs", Texts),
        ],
    ),
    ("Taint", &[(1, "key", Text), (2, "value", Text), (3, "effect", Text), (4, "timeAdded", Time)]),
    ("NodeConfigSource", &[(2, "configMap", Message("ConfigMapNodeConfigSource"))]),
    (
        "ConfigMapNodeConfigSource",
        &[
            (1, "namespace", Text),
            (2, "name", Text),
            (3, "uid", Text),
            (4, "resourceVersion", Text),
            (5, "kubeletConfigKey", Text),
        ],
    ),
    (
        "NodeStatus",
        &[
            (1, "capacity", QuantityMap),
            (2, "allocatable", QuantityMap),
            (3, "phase", Text),
            (4, "conditions", Messages("NodeCondition")),
            (5, "addresses", Messages("NodeAddress")),
            (6, "daemonEndpoints", Message("NodeDaemonEndpoints")),
            (7, "nodeInfo", Message("NodeSystemInfo")),
            (8, "images", Messages("ContainerImage")),
            (9, "volumesInUse", Texts),
            (10, "volumesAttached", Messages("AttachedVolume")),
            (11, "config", Message("NodeConfigStatus")),
            (12, "runtimeHandlers", Messages("NodeRuntimeHandler")),
            (13, "features", Message("NodeFeatures")),
            (14, "declaredFeatures", Texts),
        ],
    ),
    (
        "NodeCondition",
        &[
            (1, "type", Text),
            (2, "status", Text),
            (3, "lastHeartbeatTime", Time),
            (4, "lastTransitionTime", Time),
            (5, "reason", Text),
            (6, "message", Text),
        ],
    ),
    ("NodeAddress", &[(1, "type", Text), (2, "address", Text)]),
    ("NodeDaemonEndpoints", &[(1, "kubeletEndpoint", Message("DaemonEndpoint"))]),
    // The one field of all that begins with a capital letter in JSON.
    ("DaemonEndpoint", &[(1, "Port", Integer)]),
    (
        "NodeSystemInfo",
        &[
            (1, "machineID", Text),
            (2, "systemUUID", Text),
            (3, "bootID", Text),
            (4, "kernelVersion", Text),
            (5, "osImage", Text),
            (6, "containerRuntimeVersion", Text),
            (7, "kubeletVersion", Text),
            (8, "kubeProxyVersion", Text),
            (9, "operatingSystem", Text),
            (10, "architecture", Text),
            (11, "swap", Message("NodeSwapStatus")),
        ],
    ),
    ("NodeSwapStatus", &[(1, "capacity", Integer)]),
    ("ContainerImage", &[(1, "names", Texts), (2, "sizeBytes", Count)]),
    ("AttachedVolume", &[(1, "name", Text), (2, "devicePath", Text)]),
    (
        "NodeConfigStatus",
        &[
            (1, "assigned", Message("NodeConfigSource")),
            (2, "active", Message("NodeConfigSource")),
            (3, "lastKnownGood", Message("NodeConfigSource")),
            (4, "error", Text),
        ],
    ),
    ("NodeRuntimeHandler", &[(1, "name", Text), (2, "features", Message("NodeRuntimeHandlerFeatures"))]),
    ("NodeRuntimeHandlerFeatures", &[(1, "recursiveReadOnlyMounts", Boolean), (2, "userNamespaces", Boolean)]),
    ("NodeFeatures", &[(1, "supplementalGroupsPolicy", Boolean), (2, "containerUlimits", Boolean)]),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_that_is_named_is_there_and_has_each_number_once() {
        for (name, fields) in MESSAGES {
            for (index, (number, field, kind)) in fields.iter().enumerate() {
                let twice = fields[..index].iter().any(|(other, known, _)| other == number || known == field);
                assert!(!twice, "{name}.{field}");
                if let Message(inner) | Messages(inner) = kind {
                    assert!(message(inner).is_some(), "{name}.{field}: {inner}");
                }
            }
        }
    }

    #[test]
    fn every_kind_that_comes_with_the_server_is_read_but_for_definitions() {
        for resource in crate::definition::builtin_resources() {
            let known = message(&format!("{} {}", resource.api_version(), resource.kind)).or(message(&resource.kind));
            assert_eq!(known.is_some(), resource.kind != "CustomResourceDefinition", "{}", resource.kind);
        }
    }
}
