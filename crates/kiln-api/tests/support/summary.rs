//! The world in a few lines: what a person would want to see to believe that a document was understood.

use std::fmt::{Display, Write};

use kiln_core::diagnostic::{Diagnostic, Severity};
use kiln_core::source::{Location, SourceMap, Sourced};
use kiln_core::world::{LabelSelector, Labels, Meta, Reference, World};

/// One line per thing, then the findings with their places.
pub fn describe(world: &World, findings: &[Diagnostic], sources: &SourceMap) -> String {
    let mut text = String::new();
    objects(world, &mut text);
    machines(world, &mut text);
    clusters(world, &mut text);
    pools(world, &mut text);
    small_things(world, &mut text);
    text.push_str("findings:\n");
    for finding in findings {
        describe_finding(finding, sources, &mut text);
    }
    text
}

struct Line(String);

impl Line {
    fn new(what: &str, meta: &Meta) -> Self {
        Line(format!("{what} {}", name(meta)))
    }

    fn with(mut self, key: &str, value: Option<impl Display>) -> Self {
        if let Some(value) = value {
            write!(self.0, " {key}={value}").unwrap();
        }
        self
    }

    fn all<T: Display>(self, key: &str, values: impl IntoIterator<Item = T>) -> Self {
        let values: Vec<String> = values.into_iter().map(|value| value.to_string()).collect();
        let joined = (!values.is_empty()).then(|| format!("[{}]", values.join(", ")));
        self.with(key, joined)
    }

    fn end(self, text: &mut String) {
        writeln!(text, "{}", self.0).unwrap();
    }
}

fn objects(world: &World, text: &mut String) {
    for object in &world.objects {
        let id = &object.id;
        let within = object.within.as_ref().map(|within| format!(" within {} {}", within.kind, within.name));
        let place = if id.namespace.is_empty() { id.name.clone() } else { format!("{}/{}", id.namespace, id.name) };
        writeln!(text, "object {} {} {place}{}", object.api_version, id.kind, within.unwrap_or_default()).unwrap();
    }
}

fn machines(world: &World, text: &mut String) {
    for host in &world.hosts {
        let bmc = host.bmc.as_ref().map(|bmc| {
            let insecure = bmc.insecure.as_ref().is_some_and(|insecure| insecure.value);
            format!("{} ({}{})", bmc.address, or_none(&bmc.credentials), if insecure { ", insecure" } else { "" })
        });
        Line::new("host", &host.meta)
            .with("hostname", host.hostname.as_ref())
            .with("role", host.role.as_ref().map(|role| format!("{:?}", role.value)))
            .with("mac", host.boot_mac.as_ref())
            .with("bmc", bmc)
            .with("discovery", host.discovery.as_ref().map(reference))
            .with("cluster", host.cluster.as_ref().map(reference))
            .with("pool", host.pool.as_ref())
            .with("site", host.site.as_ref())
            .with("installer-args", host.installer_args.as_ref())
            .with("ignition-override", host.ignition_override.as_ref())
            .with("node-labels", labels(&host.node_labels))
            .all("disk", host.disk_hints.iter().map(|(name, hint)| format!("{name}:{hint}")))
            .with("inspection", host.inspection_disabled.then_some("disabled"))
            .with("boot-mode", host.boot_mode.as_ref())
            .all("kargs", &host.kernel_arguments)
            .all("nics", host.nics.iter().map(|nic| format!("{}={}", nic.name, nic.mac)))
            .with("network", host.network.as_ref().map(|node| node.to_json()))
            .with("ignition", host.ignition.as_ref().map(|node| node.to_json()))
            .with("network-secret", host.network_secret.as_ref().map(reference))
            .end(text);
    }
    for network in &world.host_networks {
        Line::new("network", &network.meta)
            .with("labels", labels(&network.meta.labels))
            .all("nics", network.interfaces.iter().map(|nic| format!("{}={}", nic.name, nic.mac)))
            .with("document", network.document.as_ref().map(|node| node.to_json()))
            .end(text);
    }
    for discovery in &world.discoveries {
        Line::new("discovery", &discovery.meta)
            .with("cluster", discovery.cluster.as_ref().map(reference))
            .with("pull-secret", discovery.pull_secret.as_ref().map(reference))
            .with("networks", selector(&discovery.network_selector))
            .all("ntp", &discovery.ntp_sources)
            .with("no-proxy", discovery.proxy.as_ref().and_then(|proxy| proxy.no_proxy.as_ref()))
            .with("ignition-override", discovery.ignition_override.as_ref())
            .all("kargs", discovery.kernel_arguments.iter().map(|(operation, value)| format!("{operation} {value}")))
            .with("architecture", discovery.architecture.as_ref())
            .with("os-image", discovery.os_image_version.as_ref())
            .with("ssh-key", discovery.ssh_key.as_ref())
            .with("trust-bundle", discovery.trust_bundle.as_ref().map(|bundle| bundle.len()))
            .with("mirror", discovery.mirror_registry.as_ref().map(reference))
            .end(text);
    }
}

fn clusters(world: &World, text: &mut String) {
    for cluster in &world.clusters {
        let networks = cluster.cluster_networks.iter().map(|(network, prefix)| match prefix {
            Some(prefix) => format!("{network} per node /{prefix}"),
            None => network.to_string(),
        });
        let agents = [&cluster.control_plane_agents, &cluster.worker_agents, &cluster.arbiter_agents];
        Line::new("cluster", &cluster.meta)
            .with("deployment-ref", cluster.deployment_ref.as_ref().map(reference))
            .with("image-set", cluster.image_set.as_ref().map(reference))
            .all("api-vips", &cluster.api_vips)
            .all("ingress-vips", &cluster.ingress_vips)
            .all("cluster-networks", networks)
            .all("service-networks", &cluster.service_networks)
            .all("machine-networks", &cluster.machine_networks)
            .with("network-type", cluster.network_type.as_ref())
            .with("user-managed-networking", cluster.user_managed_networking.as_ref())
            .with("user-managed-load-balancer", cluster.user_managed_load_balancer.then_some(true))
            .all("agents", agents.into_iter().flatten())
            .all("manifests", cluster.manifest_maps.iter().map(reference))
            .with("install-config", cluster.install_config_overrides.as_ref())
            .with("ignored-validations", cluster.ignored_host_validations.as_ref())
            .with("no-proxy", cluster.proxy.as_ref().and_then(|proxy| proxy.no_proxy.as_ref()))
            .all("deprecated", cluster.deprecated.iter().map(|(old, new)| format!("{old} -> {new}")))
            .end(text);
    }
    let joined = world.clusters.iter().filter_map(|cluster| cluster.deployment.as_ref()).map(|found| ("joined", found));
    for (state, deployment) in joined.chain(world.deployments.iter().map(|alone| ("alone", alone))) {
        Line::new("deployment", &deployment.meta)
            .with("state", Some(state))
            .with("cluster-name", deployment.cluster_name.as_ref())
            .with("base-domain", deployment.base_domain.as_ref())
            .with("pull-secret", deployment.pull_secret.as_ref().map(reference))
            .with("installed", deployment.installed.as_ref())
            .with("install-ref", deployment.install_ref.as_ref().map(reference))
            .end(text);
    }
    for service in &world.services {
        let images = service.os_images.iter().map(|image| {
            let architecture = image.architecture.as_ref().map(|text| text.value.as_str()).unwrap_or("?");
            format!("{} {architecture}", image.openshift_version)
        });
        Line::new("service", &service.meta)
            .all("images", images)
            .with("environment", service.environment_map.as_ref().map(reference))
            .end(text);
    }
    for set in &world.image_sets {
        Line::new("image-set", &set.meta).with("release", set.release_image.as_ref()).end(text);
    }
}

fn pools(world: &World, text: &mut String) {
    for pool in &world.pools {
        Line::new("pool", &pool.meta)
            .with("origin", Some(format!("{:?}", pool.origin)))
            .with("configs", selector(&pool.config_selector))
            .with("nodes", selector(&pool.node_selector))
            .all("config-maps", pool.config_maps.iter().map(reference))
            .with("replicas", pool.replicas.as_ref())
            .with("platform", pool.platform.as_ref())
            .with("upgrade", pool.upgrade_type.as_ref())
            .with("auto-repair", pool.auto_repair.as_ref())
            .with("cluster", pool.cluster_name.as_ref())
            .with("release", pool.release_image.as_ref())
            .with("max-unavailable", pool.max_unavailable.as_ref())
            .with("node-labels", labels(&pool.node_labels))
            .with("within", pool.within.as_ref().map(|within| &within.name))
            .end(text);
    }
    for config in &world.machine_configs {
        Line::new("machine-config", &config.meta)
            .with("role", config.role.as_ref())
            .with("config", config.config.as_ref().map(|node| node.to_json()))
            .all("kargs", &config.kernel_arguments)
            .all("extensions", &config.extensions)
            .with("fips", config.fips.as_ref())
            .with("kernel", config.kernel_type.as_ref())
            .with("os-image", config.os_image_url.as_ref())
            .with("within", config.within.as_ref().map(|within| &within.name))
            .end(text);
    }
    for policy in &world.policies {
        Line::new("policy", &policy.meta)
            .with("nodes", labels(&policy.node_selector))
            .with("captures", labels(&policy.captures))
            .with("desired", policy.desired.as_ref().map(|node| node.to_json()))
            .with("max-unavailable", policy.max_unavailable.as_ref())
            .with("kiln", policy.kiln.as_ref().map(|node| node.to_json()))
            .end(text);
    }
}

fn small_things(world: &World, text: &mut String) {
    for ingress in &world.ingresses {
        Line::new("ingress", &ingress.meta)
            .with("domain", ingress.domain.as_ref())
            .with("nodes", ingress.node_selector.as_ref().and_then(selector))
            .with("replicas", ingress.replicas.as_ref())
            .with("within", ingress.within.as_ref().map(|within| &within.name))
            .end(text);
    }
    for policy in &world.disruption_policies {
        Line::new("disruption", &policy.meta)
            .with("policy", policy.policy.as_ref().map(|node| node.to_json()))
            .with("within", policy.within.as_ref().map(|within| &within.name))
            .end(text);
    }
    for egress in &world.egress_ips {
        Line::new("egress", &egress.meta).all("addresses", &egress.addresses).end(text);
    }
    for node in &world.nodes {
        Line::new("node", &node.meta)
            .with("labels", labels(&node.meta.labels))
            .with("within", node.within.as_ref().map(|within| &within.name))
            .end(text);
    }
    for site in &world.sites {
        Line::new("site", &site.meta).all("subnets", &site.subnets).all("gateways", &site.gateways).end(text);
    }
    for secret in &world.secrets {
        let keys = secret.keys.iter().map(|key| {
            let docker = key.docker_config.map(|docker| if docker { " docker" } else { " not-docker" });
            format!("{}{}{}", key.name, if key.empty { " empty" } else { "" }, docker.unwrap_or_default())
        });
        Line::new("secret", &secret.meta).with("type", secret.kind.as_ref()).all("keys", keys).end(text);
    }
    for map in &world.config_maps {
        Line::new("config-map", &map.meta).all("keys", map.data.keys()).end(text);
    }
    for namespace in &world.namespaces {
        Line::new("namespace", namespace).end(text);
    }
    for provisioning in &world.provisionings {
        Line::new("provisioning", &provisioning.meta)
            .with("all-namespaces", provisioning.watch_all_namespaces.as_ref())
            .end(text);
    }
}

fn describe_finding(finding: &Diagnostic, sources: &SourceMap, text: &mut String) {
    let severity = match finding.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "note",
    };
    let at = finding.at.map(|at| place(sources, at)).unwrap_or_default();
    writeln!(text, "{at} {severity} {}: {}", finding.code, finding.message).unwrap();
    for related in &finding.related {
        writeln!(text, "    {} {}", place(sources, related.at), related.message).unwrap();
    }
    for (what, sentence) in [("cause", &finding.cause), ("help", &finding.help)] {
        if let Some(sentence) = sentence {
            writeln!(text, "    {what}: {sentence}").unwrap();
        }
    }
}

fn place(sources: &SourceMap, at: Location) -> String {
    let position = sources.line_column(sources.outer(at));
    format!("{}:{}", position.line, position.column)
}

fn name(meta: &Meta) -> String {
    if meta.id.namespace.is_empty() { meta.id.name.clone() } else { format!("{}/{}", meta.id.namespace, meta.id.name) }
}

fn reference(reference: &Reference) -> String {
    if reference.namespace.is_empty() {
        reference.name.clone()
    } else {
        format!("{}/{}", reference.namespace, reference.name)
    }
}

fn or_none(written: &Option<Reference>) -> String {
    written.as_ref().map_or("none".to_owned(), reference)
}

fn labels(labels: &Labels) -> Option<String> {
    let pairs: Vec<String> = labels.iter().map(|(key, Sourced { value, .. })| format!("{key}={value}")).collect();
    (!pairs.is_empty()).then(|| format!("{{{}}}", pairs.join(", ")))
}

fn selector(selector: &LabelSelector) -> Option<String> {
    let expressions: Vec<String> = selector
        .expressions
        .iter()
        .map(|requirement| {
            let values: Vec<&str> = requirement.values.iter().map(|value| value.value.as_str()).collect();
            format!("{} {} [{}]", requirement.key, requirement.operator, values.join(", "))
        })
        .collect();
    (!selector.is_empty()).then(|| [labels(&selector.labels).unwrap_or_default(), expressions.join(" and ")].join(""))
}
