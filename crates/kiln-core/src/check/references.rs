//! References that lead nowhere, and objects that stand where nobody looks (rule R9).
//!
//! A folder rarely holds everything: Secrets come from a vault, ClusterImageSets live on the hub. What is merely
//! not here is a note; what is here but out of reach (another namespace, another name) is more than that.

use std::collections::BTreeSet;

use super::Rule;
use super::context::{Context, namespace};
use super::words::{counted, full_name, listed, nearest};
use crate::diagnostic::{Code, Diagnostic, Severity};
use crate::source::Location;
use crate::world::{Cluster, Deployment};

pub(super) const RULES: &[Rule] = &[
    discovery_of_host,
    cluster_of_discovery,
    image_set_of_cluster,
    os_image_of_cluster,
    manifests_of_cluster,
    namespaces_the_operator_watches,
    mistyped_namespaces,
    cluster_scoped_objects_with_namespace,
    fields_that_are_gone,
    installed_false,
    deprecated_fields,
];

fn discovery_of_host(context: &Context, findings: &mut Vec<Diagnostic>) {
    let elsewhere: std::collections::HashMap<&str, &crate::world::Meta> =
        context.world.discoveries.iter().map(|found| (found.meta.id.name.as_str(), &found.meta)).collect();
    for view in context.hosts.iter().filter(|view| view.discovery.is_none()) {
        let host = view.host;
        let Some(reference) = &host.discovery else { continue };
        let own = namespace(reference, &host.meta);
        let at = reference.at;
        findings.push(match elsewhere.get(reference.name.as_str()) {
            Some(other) => Diagnostic::new(
                Code(302),
                at,
                format!(
                    "host `{}` is in namespace `{own}`, but InfraEnv `{}` is in namespace `{}`",
                    host.meta.id.name, reference.name, other.id.namespace
                ),
            )
            .cause(
                "the label `infraenvs.agent-install.openshift.io` names an InfraEnv of the host's own namespace; \
                another one is never looked at, and the host is never booted",
            )
            .help(format!(
                "give both the same namespace, for example on the host:\nmetadata:\n  name: {}\n  namespace: {}",
                host.meta.id.name, other.id.namespace
            ))
            .related(other.at, "the InfraEnv of that name"),
            None => {
                let near = context.discoveries.keys().filter(|(space, _)| *space == own).map(|(_, name)| *name);
                let near: BTreeSet<&str> = near.collect();
                let meant = nearest(&reference.name, near);
                Diagnostic::new(
                    Code(301),
                    at,
                    format!(
                        "host `{}` names InfraEnv `{own}/{}`, which these manifests do not declare",
                        host.meta.id.name, reference.name
                    ),
                )
                .cause("without its InfraEnv there is no discovery image, so the host is never booted")
                .help(match meant {
                    Some(meant) => format!(
                        "did you mean:\nmetadata:\n  labels:\n    infraenvs.agent-install.openshift.io: {meant}"
                    ),
                    None => format!(
                        "add the InfraEnv `{}` in namespace `{own}`, or check that the hub already has it",
                        reference.name
                    ),
                })
            }
        });
    }
}

/// Every ClusterDeployment, with or without an AgentClusterInstall.
pub(super) fn deployments<'c>(context: &'c Context) -> impl Iterator<Item = &'c Deployment> {
    let joined = context.world.clusters.iter().filter_map(|cluster| cluster.deployment.as_ref());
    joined.chain(&context.world.deployments)
}

fn cluster_of_discovery(context: &Context, findings: &mut Vec<Diagnostic>) {
    let deployments: BTreeSet<(&str, &str)> = deployments(context)
        .map(|deployment| (deployment.meta.id.namespace.as_str(), deployment.meta.id.name.as_str()))
        .collect();
    for discovery in &context.world.discoveries {
        let Some(reference) = &discovery.cluster else { continue };
        let space = namespace(reference, &discovery.meta);
        if deployments.contains(&(space, reference.name.as_str())) {
            continue;
        }
        let same_name = deployments.iter().find(|(_, name)| *name == reference.name);
        let near = nearest(&reference.name, deployments.iter().filter(|(of, _)| *of == space).map(|(_, name)| *name));
        findings.push(
            Diagnostic::new(
                Code(328),
                reference.at,
                format!(
                    "InfraEnv `{}` joins cluster `{}`, which these manifests do not declare",
                    discovery.meta.id.name,
                    full_name(space, &reference.name)
                ),
            )
            .cause("`spec.clusterRef` names a ClusterDeployment; while it is missing no image is made for the InfraEnv")
            .help(match (same_name, near) {
                (Some((space, name)), _) => format!(
                    "a ClusterDeployment of that name is in namespace `{space}`:\nspec:\n  clusterRef:\n    name: \
                    {name}\n    namespace: {space}"
                ),
                (None, Some(name)) => {
                    format!("did you mean:\nspec:\n  clusterRef:\n    name: {name}\n    namespace: {space}")
                }
                (None, None) => format!(
                    "add the ClusterDeployment `{}` in namespace `{space}`, or check that the hub already has it",
                    reference.name
                ),
            }),
        );
    }
}

fn image_set_of_cluster(context: &Context, findings: &mut Vec<Diagnostic>) {
    let known: BTreeSet<&str> = context.world.image_sets.iter().map(|set| set.meta.id.name.as_str()).collect();
    for cluster in &context.world.clusters {
        let Some(reference) = cluster.image_set.as_ref().filter(|reference| !known.contains(reference.name.as_str()))
        else {
            continue;
        };
        let finding = Diagnostic::new(
            Code(306),
            reference.at,
            format!(
                "cluster `{}` installs from ClusterImageSet `{}`, which is not among these manifests",
                cluster.meta.id.name, reference.name
            ),
        )
        .cause(
            "ClusterImageSets are cluster-scoped objects of the hub; the installation waits until the one it names \
            exists",
        );
        findings.push(match nearest(&reference.name, known.iter().copied()) {
            Some(meant) => finding
                .severity(Severity::Warning)
                .help(format!("did you mean:\nspec:\n  imageSetRef:\n    name: {meant}")),
            None => finding.help(format!(
                "check that the hub has it (`oc get clusterimageset {0}`), or add:\napiVersion: \
                hive.openshift.io/v1\nkind: ClusterImageSet\nmetadata:\n  name: {0}\nspec:\n  releaseImage: \
                quay.io/openshift-release-dev/ocp-release:VERSION-x86_64",
                reference.name
            )),
        });
    }
}

fn os_image_of_cluster(context: &Context, findings: &mut Vec<Diagnostic>) {
    let sets = super::context::named(&context.world.image_sets, |set| &set.meta);
    for service in context.world.services.iter().filter(|service| !service.os_images.is_empty()) {
        let offered: Vec<&str> = service.os_images.iter().map(|image| image.openshift_version.as_str()).collect();
        for cluster in &context.world.clusters {
            let release = cluster.image_set.as_ref().and_then(|set| sets.get(&("", set.name.as_str())));
            let release = release.and_then(|set| set.release_image.as_ref());
            let Some((release, wanted)) = release.and_then(|image| Some((image, minor_version(image)?))) else {
                continue;
            };
            if offered.iter().any(|version| minor_of(version).as_deref() == Some(wanted.as_str())) {
                continue;
            }
            findings.push(
                Diagnostic::new(
                    Code(307),
                    service.meta.at,
                    format!(
                        "the discovery service offers OS images for {}, but cluster `{}` installs {wanted}",
                        listed(&offered),
                        cluster.meta.id.name
                    ),
                )
                .cause(
                    "discovery images are built from the entry of `spec.osImages` that has the cluster's minor \
                    version; without one the InfraEnv gets no image",
                )
                .help(format!(
                    "add to AgentServiceConfig `{}`:\nspec:\n  osImages:\n  - openshiftVersion: \"{wanted}\"\n    \
                    cpuArchitecture: x86_64\n    version: RHCOS_VERSION\n    url: https://…/rhcos-live.x86_64.iso",
                    service.meta.id.name
                ))
                .related(release.at, format!("the release image of version {wanted}")),
            );
        }
    }
}

/// `4.9` of `quay.io/…:4.9.13-x86_64`; nothing for a digest.
fn minor_version(image: &str) -> Option<String> {
    let (_, tag) = image.rsplit_once(':')?;
    if image.contains('@') { None } else { minor_of(tag) }
}

fn minor_of(version: &str) -> Option<String> {
    let mut parts = version.split(['.', '-']);
    let (major, minor) = (parts.next()?.parse::<u32>().ok()?, parts.next()?.parse::<u32>().ok()?);
    Some(format!("{major}.{minor}"))
}

fn manifests_of_cluster(context: &Context, findings: &mut Vec<Diagnostic>) {
    for cluster in &context.world.clusters {
        for reference in &cluster.manifest_maps {
            let space = cluster.meta.id.namespace.as_str();
            if context.config_maps.contains_key(&(space, reference.name.as_str())) {
                continue;
            }
            let near = context.config_maps.keys().filter(|(of, _)| *of == space).map(|(_, name)| *name);
            let near: BTreeSet<&str> = near.collect();
            findings.push(
                Diagnostic::new(
                    Code(308),
                    reference.at,
                    format!(
                        "cluster `{}` wants the manifests of ConfigMap `{space}/{}`, which is not declared",
                        cluster.meta.id.name, reference.name
                    ),
                )
                .cause(
                    "a missing manifest ConfigMap is only reported once the cluster is otherwise ready to install, \
                    after all hosts were discovered",
                )
                .help(match nearest(&reference.name, near) {
                    Some(meant) => format!("did you mean:\nspec:\n  manifestsConfigMapRefs:\n  - name: {meant}"),
                    None => format!(
                        "add a ConfigMap `{}` to namespace `{space}`, or remove it from `spec.manifestsConfigMapRefs`",
                        reference.name
                    ),
                }),
            );
        }
    }
}

const OPERATOR_NAMESPACE: &str = "openshift-machine-api";

fn namespaces_the_operator_watches(context: &Context, findings: &mut Vec<Diagnostic>) {
    let outside: Vec<_> = context
        .world
        .hosts
        .iter()
        .filter(|host| host.meta.id.kind == "BareMetalHost" && host.meta.id.namespace != OPERATOR_NAMESPACE)
        .collect();
    let Some(first) = outside.first() else { return };
    let edit = "apiVersion: metal3.io/v1alpha1\nkind: Provisioning\nmetadata:\n  name: \
        provisioning-configuration\nspec:\n  watchAllNamespaces: true";
    let cause = "the baremetal operator looks at `openshift-machine-api` only, unless `watchAllNamespaces` is \
        true; elsewhere a BareMetalHost gets no status at all";
    let names = listed(outside.iter().map(|host| &host.meta.id.namespace).collect::<BTreeSet<_>>());
    let hosts = counted(outside.len(), "host");
    match context.world.provisionings.first() {
        None => findings.push(
            Diagnostic::new(
                Code(309),
                first.meta.at,
                format!("{hosts} outside `{OPERATOR_NAMESPACE}` (in {names}): the hub must watch all namespaces"),
            )
            .severity(Severity::Note)
            .cause(cause)
            .help(format!("check that the hub's Provisioning says:\n{edit}")),
        ),
        Some(provisioning) if !provisioning.watch_all_namespaces.as_ref().is_some_and(|watch| watch.value) => findings
            .push(
                Diagnostic::new(
                    Code(309),
                    provisioning.watch_all_namespaces.as_ref().map_or(provisioning.meta.at, |watch| watch.at),
                    format!(
                        "Provisioning `{}` does not watch all namespaces, and leaves out {hosts} in {names}",
                        provisioning.meta.id.name
                    ),
                )
                .cause(cause)
                .help(format!("write:\n{edit}"))
                .related(first.meta.at, "a host nobody will look at"),
            ),
        Some(_) => {}
    }
}

fn mistyped_namespaces(context: &Context, findings: &mut Vec<Diagnostic>) {
    let declared: BTreeSet<&str> = context.world.namespaces.iter().map(|meta| meta.id.name.as_str()).collect();
    let mut told = BTreeSet::new();
    let metas = context.world.hosts.iter().map(|host| &host.meta);
    let metas = metas.chain(context.world.host_networks.iter().map(|network| &network.meta));
    let metas = metas.chain(context.world.discoveries.iter().map(|discovery| &discovery.meta));
    let metas = metas.chain(context.world.clusters.iter().map(|cluster| &cluster.meta));
    let metas = metas.chain(context.world.secrets.iter().map(|secret| &secret.meta));
    for meta in metas.chain(context.world.config_maps.iter().map(|map| &map.meta)) {
        let space = meta.id.namespace.as_str();
        if space.is_empty() || declared.contains(space) || told.contains(space) {
            continue;
        }
        let Some(meant) = nearest(space, declared.iter().copied()) else { continue };
        told.insert(space);
        findings.push(
            Diagnostic::new(
                Code(310),
                context
                    .written(&meta.id)
                    .and_then(|root| root.path(&["metadata", "namespace"]))
                    .map_or(meta.at, |namespace| namespace.at),
                format!(
                    "{} `{}` is in namespace `{space}`, but only `{meant}` is declared",
                    meta.id.kind, meta.id.name
                ),
            )
            .cause(
                "an object in a namespace that does not exist is refused; in one that happens to exist it is found by \
                nobody",
            )
            .help(format!("write:\nmetadata:\n  name: {}\n  namespace: {meant}", meta.id.name)),
        );
    }
}

const CLUSTER_SCOPED: &[&str] = &[
    "ManagedCluster",
    "ClusterImageSet",
    "AgentServiceConfig",
    "MachineConfig",
    "MachineConfigPool",
    "NodeNetworkConfigurationPolicy",
    "EgressIP",
    "Namespace",
    "Node",
    "Provisioning",
    "KubeletConfig",
    "NodeNetworkState",
    "NodeNetworkConfigurationEnactment",
    "CertificateSigningRequest",
    "CustomResourceDefinition",
    "Site",
    "Image",
];

fn cluster_scoped_objects_with_namespace(context: &Context, findings: &mut Vec<Diagnostic>) {
    for object in &context.world.objects {
        let namespace = object
            .root
            .path(&["metadata", "namespace"])
            .filter(|node| node.as_str().is_some_and(|text| !text.is_empty()));
        let Some(namespace) = namespace.filter(|_| CLUSTER_SCOPED.contains(&object.id.kind.as_str())) else { continue };
        findings.push(
            Diagnostic::new(
                Code(311),
                namespace.at,
                format!(
                    "{} `{}` has namespace `{}`, but the kind is cluster-scoped",
                    object.id.kind,
                    object.id.name,
                    namespace.as_str().unwrap_or_default()
                ),
            )
            .cause(
                "the API server drops the namespace of a cluster-scoped object; tools that compare files with the \
                cluster report a difference for ever",
            )
            .help("remove the line `namespace:` from `metadata`"),
        );
    }
}

/// Fields that once existed and are now dropped without a word: kind, path, what took over.
const GONE: &[(&str, &[&str], &str)] = &[(
    "InfraEnv",
    &["spec", "agentLabelSelector"],
    "remove `agentLabelSelector`; hosts are bound by the label `infraenvs.agent-install.openshift.io` of the \
    BareMetalHost, and agents are labelled with `spec.agentLabels`",
)];

fn fields_that_are_gone(context: &Context, findings: &mut Vec<Diagnostic>) {
    for object in &context.world.objects {
        for (_, path, help) in GONE.iter().filter(|(kind, ..)| *kind == object.id.kind) {
            let Some((last, parents)) = path.split_last() else { continue };
            let parent = object.root.path(parents);
            let entry = parent.and_then(|parent| parent.entries().iter().find(|entry| &*entry.key.value == *last));
            let Some(entry) = entry else { continue };
            findings.push(
                Diagnostic::new(
                    Code(312),
                    entry.key.at,
                    format!("`{}` of {} `{}` no longer exists", path.join("."), object.id.kind, object.id.name),
                )
                .cause("the field became status-only; the API server prunes it, so it has no effect at all")
                .help(*help),
            );
        }
    }
}

fn installed_false(context: &Context, findings: &mut Vec<Diagnostic>) {
    for deployment in deployments(context) {
        if let Some(installed) = deployment.installed.as_ref().filter(|installed| !installed.value) {
            findings.push(
                Diagnostic::new(
                    Code(313),
                    installed.at,
                    format!("ClusterDeployment `{}` says `installed: false`", deployment.meta.id.name),
                )
                .cause(
                    "once the cluster is installed the hub sets `installed: true`, and Hive refuses to let it go \
                    back: applying this file again (as every GitOps tool does) then fails",
                )
                .help("remove the line `installed: false`; it is the default before the installation"),
            );
        }
    }
}

fn deprecated_fields(context: &Context, findings: &mut Vec<Diagnostic>) {
    for cluster in &context.world.clusters {
        for (field, successor) in &cluster.deprecated {
            let at: Location = field.at;
            findings.push(
                Diagnostic::new(
                    Code(314),
                    at,
                    format!("cluster `{}` uses `{field}`, which is deprecated", cluster.meta.id.name),
                )
                .cause("the old field is still honoured as long as the new one is empty")
                .help(format!("replace `{field}` by:\n{}", in_new_words(cluster, successor))),
            );
        }
    }
}

/// The same value in the field that came later.
fn in_new_words(cluster: &Cluster, successor: &str) -> String {
    let items: Vec<String> = match successor {
        "apiVIPs" => cluster.api_vips.iter().map(|vip| format!("  - {vip}")).collect(),
        "ingressVIPs" => cluster.ingress_vips.iter().map(|vip| format!("  - {vip}")).collect(),
        _ => cluster.manifest_maps.iter().map(|map| format!("  - name: {}", map.name)).collect(),
    };
    format!("spec:\n  {successor}:\n{}", items.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::minor_version;

    #[test]
    fn the_minor_version_is_read_from_a_tag_and_never_from_a_digest() {
        for (image, expected) in [
            ("quay.io/openshift-release-dev/ocp-release:4.9.13-x86_64", Some("4.9")),
            ("registry.local:5000/ocp:4.14.0-rc.1", Some("4.14")),
            ("quay.io/ocp@sha256:4.9", None),
            ("quay.io/ocp:latest", None),
            ("quay.io/ocp", None),
        ] {
            assert_eq!(minor_version(image).as_deref(), expected, "{image}");
        }
    }
}
