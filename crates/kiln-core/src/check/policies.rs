//! Network policies one by one: names, selectors, budgets, templates, and the primary interface.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;

use ipnet::IpNet;

use super::Rule;
use super::addresses::{NetworkFacts, ports};
use super::context::{Context, node_name};
use super::words::{counted, listed};
use crate::diagnostic::{Code, Diagnostic, Severity};
use crate::document::Node;
use crate::world::Policy;

pub(super) const RULES: &[Rule] = &[
    names,
    selector_values,
    policies_of_no_node,
    templates,
    desired_states,
    budgets,
    shared_budgets,
    primary_interfaces,
];

fn names(context: &Context, findings: &mut Vec<Diagnostic>) {
    for policy in &context.world.policies {
        let name = &policy.meta.id.name;
        let reason = match name.len() {
            64.. => format!("it has {} characters", name.len()),
            _ if !is_label_value(name) => "it is not a label value".to_owned(),
            _ => continue,
        };
        findings.push(
            Diagnostic::new(
                Code(602),
                policy.meta.at,
                format!("the name of policy `{name}` will be refused: {reason}"),
            )
            .cause(
                "the name becomes a label of every enactment: at most 63 letters, digits, `-`, `_` and `.`, with a \
                letter or digit at both ends",
            )
            .help(format!(
                "write:\nmetadata:\n  name: {}",
                name.chars().take(63).collect::<String>().trim_matches(['-', '_', '.'])
            )),
        );
    }
}

/// Empty, or at most 63 letters, digits, `-`, `_`, `.` with letters or digits at the ends.
fn is_label_value(value: &str) -> bool {
    let inner = value.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
    let ends = value.bytes().next().into_iter().chain(value.bytes().last()).all(|byte| byte.is_ascii_alphanumeric());
    value.len() <= 63 && inner && ends
}

fn selector_values(context: &Context, findings: &mut Vec<Diagnostic>) {
    for policy in &context.world.policies {
        for (key, value) in &policy.node_selector {
            if is_label_value(value) {
                continue;
            }
            findings.push(
                Diagnostic::new(
                    Code(603),
                    value.at,
                    format!(
                        "policy `{}` selects nodes by `{key}: {value}`, and no label can have that value",
                        policy.meta.id.name
                    ),
                )
                .cause(
                    "the selector of a policy knows equality only; lists and expressions are taken for a value, and \
                    the API server refuses what is not a label value",
                )
                .help(format!(
                    "write one value, for example:\nspec:\n  nodeSelector:\n    {key}: \"{}\"\nor one policy per value",
                    label_value_in(key, value)
                )),
            );
        }
    }
}

/// The first label value inside what was written; a role label has an empty one.
fn label_value_in(key: &str, written: &str) -> String {
    if key.starts_with("node-role.kubernetes.io/") {
        return String::new();
    }
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    let mut words =
        written.split([',', '[', ']', '{', '}', '(', ')', '"', '\'', '|', ' ']).filter(|word| !word.is_empty());
    let word = words.next().unwrap_or("value");
    let value: String = word.chars().map(|letter| if allowed(letter) { letter } else { '-' }).take(63).collect();
    let value = value.trim_matches(['-', '_', '.']);
    if value.is_empty() { "value".to_owned() } else { value.to_owned() }
}

fn policies_of_no_node(context: &Context, findings: &mut Vec<Diagnostic>) {
    if context.nodes.is_empty() {
        return;
    }
    let known: HashSet<&str> = context.nodes.iter().flat_map(|node| node.labels.keys().copied()).collect();
    for (policy, nodes) in context.world.policies.iter().zip(&context.nodes_of_policy) {
        let Some((key, value)) = policy.node_selector.iter().next().filter(|_| nodes.is_empty()) else { continue };
        let unknown = policy
            .node_selector
            .keys()
            .any(|key| !known.contains(key.as_str()) && !key.starts_with("node-role.kubernetes.io/"));
        let labels = policy.node_selector.iter().map(|(key, value)| format!("{key}={value}"));
        findings.push(
            Diagnostic::new(
                Code(601),
                policy.node_selector_at.unwrap_or(value.at),
                format!("policy `{}` selects no declared node: none will have {}", policy.meta.id.name, listed(labels)),
            )
            .severity(if unknown { Severity::Note } else { Severity::Warning })
            .cause("a policy that selects nothing is `Ignored` with reason NoMatchingNode, and nothing else tells")
            .help(match policy.node_selector.get("kubernetes.io/hostname") {
                Some(_) => format!(
                    "write the name of a declared node ({}):\nspec:\n  nodeSelector:\n    kubernetes.io/hostname: …",
                    listed(context.nodes.iter().map(|node| node.name))
                ),
                None => format!(
                    "correct `spec.nodeSelector`, or give a host the label:\nmetadata:\n  annotations:\n    \
                    bmac.agent-install.openshift.io.node-label.{key}: \"{value}\""
                ),
            }),
        );
    }
}

fn templates(context: &Context, findings: &mut Vec<Diagnostic>) {
    for policy in &context.world.policies {
        let Some((_, capture)) = policy.captures.iter().next() else { continue };
        findings.push(
            Diagnostic::new(
                Code(604),
                capture.at,
                format!(
                    "policy `{}` captures {} from the running node ({}); what it will do cannot be said here",
                    policy.meta.id.name,
                    counted(policy.captures.len(), "value"),
                    listed(policy.captures.keys())
                ),
            )
            .cause(
                "captures are resolved against the live state of each node, once, and stay as they are until the \
                policy is made anew; `capture` cannot be edited later",
            )
            .help("nothing to do; interfaces named by a template are not compared with other policies"),
        );
    }
}

/// What is wrong with a desired state whoever applies it. A policy or a pool changes a running node, so it may leave out what
/// a whole document must say: the other findings of the renderer are about documents that make keyfiles.
const WRONG_ANYWHERE: [u16; 8] = [201, 212, 214, 217, 218, 225, 227, 232];

/// Nothing upstream reads a desired state before the nodes do.
fn desired_states(context: &Context, findings: &mut Vec<Diagnostic>) {
    // What templates stand for is known where a policy is composed for a node.
    let plain = |desired: &&Node| !desired.to_json().to_string().contains("{{");
    let policies = context.world.policies.iter().filter(|policy| policy.captures.is_empty());
    let policies = policies.filter_map(|policy| policy.desired.as_ref()).filter(plain);
    for desired in policies.chain(context.world.pools.iter().filter_map(|pool| pool.network.as_ref())) {
        let found = crate::nmstate::render(desired).diagnostics.into_iter();
        // nmstate refuses to render more than it refuses to read, and only the latter concerns a running node.
        let unreadable = || nmstate::NetworkState::new_from_json(&desired.to_json().to_string()).is_err();
        let wrong = |code: u16| WRONG_ANYWHERE.contains(&code) || (code == 200 && unreadable());
        findings.extend(found.filter(|finding| wrong(finding.code.0)));
    }
}

/// What `maxUnavailable` means for a number of nodes.
fn budget(policy: &Policy, nodes: usize) -> Result<usize, String> {
    let text = policy.max_unavailable.as_ref().map_or("50%", |text| text.value.as_str());
    let number = |text: &str| text.parse::<u32>().map_err(|_| text.to_owned());
    let count = match text.strip_suffix('%') {
        Some(percent) => (number(percent).map_err(|_| text.to_owned())? as usize * nodes).div_ceil(100),
        None => number(text)? as usize,
    };
    Ok(count.clamp(1, nodes.max(1)))
}

fn budgets(context: &Context, findings: &mut Vec<Diagnostic>) {
    for (policy, nodes) in context.world.policies.iter().zip(&context.nodes_of_policy) {
        let Some(text) = &policy.max_unavailable else { continue };
        let name = &policy.meta.id.name;
        match budget(policy, nodes.len()) {
            Err(_) => findings.push(
                Diagnostic::new(
                    Code(608),
                    text.at,
                    format!("`maxUnavailable: {text}` of policy `{name}` is neither a number nor a percentage"),
                )
                .cause(
                    "a budget that cannot be read is replaced by the default, 50% of the nodes, without a condition \
                    that says so",
                )
                .help("write:\nspec:\n  maxUnavailable: 1\nor a percentage such as \"20%\""),
            ),
            Ok(_) if matches!(text.as_str(), "0" | "0%") => findings.push(
                Diagnostic::new(
                    Code(608),
                    text.at,
                    format!("`maxUnavailable: {text}` of policy `{name}` still takes one node at a time"),
                )
                .cause("the budget is at least 1; there is no way to pause a policy with it")
                .help("write 1, or remove the policy until it shall be applied:\nspec:\n  maxUnavailable: 1"),
            ),
            Ok(count) if nodes.len() > 1 && count >= nodes.len() => findings.push(
                Diagnostic::new(
                    Code(606),
                    text.at,
                    format!("policy `{name}` may change all {} nodes it selects at the same time", nodes.len()),
                )
                .cause(
                    "with `maxUnavailable` as large as the selection a mistake reaches every node before the first \
                    one is judged",
                )
                .help("write:\nspec:\n  maxUnavailable: 1"),
            ),
            Ok(_) => {}
        }
    }
}

fn shared_budgets(context: &Context, findings: &mut Vec<Diagnostic>) {
    let mut by_selection: BTreeMap<&[usize], Vec<&Policy>> = BTreeMap::new();
    for (policy, nodes) in context.world.policies.iter().zip(&context.nodes_of_policy) {
        if nodes.len() > 1 {
            by_selection.entry(nodes).or_default().push(policy);
        }
    }
    for (nodes, policies) in by_selection.into_iter().filter(|(_, policies)| policies.len() > 1) {
        let budgets: Vec<usize> = policies.iter().filter_map(|policy| budget(policy, nodes.len()).ok()).collect();
        let together: usize = budgets.iter().sum();
        let alone = budgets.iter().any(|budget| *budget >= nodes.len());
        if together < nodes.len() || alone {
            continue;
        }
        findings.push(
            Diagnostic::new(
                Code(606),
                policies[0].meta.at,
                format!(
                    "policies {} together may change all {} nodes they select at the same time",
                    listed(policies.iter().map(|policy| &policy.meta.id.name)),
                    nodes.len()
                ),
            )
            .severity(Severity::Note)
            .cause(
                "the budget `maxUnavailable` (50% unless written) counts for each policy alone; several policies add \
                up",
            )
            .help("apply them one after the other, or write on each:\nspec:\n  maxUnavailable: 1")
            .related(policies[1].meta.at, "another policy for the same nodes"),
        );
    }
}

fn primary_interfaces(context: &Context, findings: &mut Vec<Diagnostic>) {
    for (policy, nodes) in context.world.policies.iter().zip(&context.nodes_of_policy) {
        let Some(desired) = &policy.desired else { continue };
        let wanted = NetworkFacts::read(desired);
        let mut lost: BTreeMap<(crate::source::Location, String), Vec<Lost>> = BTreeMap::new();
        for host in nodes.iter().filter_map(|node| context.nodes[*node].host).map(|host| &context.hosts[host]) {
            for document in context.documents(host) {
                let Some(primary) = document.facts.primary() else { continue };
                let own = document.facts.addresses.iter().filter(|address| address.interface == primary);
                for address in own {
                    let Some(Taken { at, what, controller }) = taken_away(&wanted, primary, address.net.addr()) else {
                        continue;
                    };
                    let moved = controller.map(|controller| moved_routes(&document.facts, primary, controller));
                    lost.entry((at, format!("{what} `{primary}`"))).or_default().push(Lost {
                        host: &host.host.meta.id.name,
                        node: node_name(host.host),
                        address: address.net,
                        moved_routes: moved.unwrap_or_default(),
                    });
                }
            }
        }
        for ((at, what), hosts) in lost {
            let Lost { host, node, address, moved_routes } = &hosts[0];
            let family = if address.addr().is_ipv4() { "ipv4" } else { "ipv6" };
            findings.push(
                Diagnostic::new(
                    Code(607),
                    at,
                    format!(
                        "policy `{}` {what}, the primary interface of {}, and leaves out its address {}",
                        policy.meta.id.name,
                        listed(hosts.iter().map(|lost| lost.host)),
                        address.addr()
                    ),
                )
                .cause(
                    "what a policy says about an interface replaces what was there; without its address the node \
                    loses the way to the API server, and the change is rolled back after the probes fail",
                )
                .help(format!(
                    "leave the interface out of the policy; or write one policy per node that repeats its declared \
                    address where the interface (or the bridge or bond above it) is described, for host \
                    `{host}`:\nnodeSelector:\n  kubernetes.io/hostname: {node}\n…\n{family}:\n  enabled: true\n  dhcp: false\n  address:\n  - ip: {}\n    \
                    prefix-length: {}{moved_routes}",
                    address.addr(),
                    address.prefix_len()
                )),
            );
        }
    }
}

/// An address that a host will lose.
struct Lost<'w> {
    node: &'w str,
    host: &'w str,
    address: IpNet,
    /// What to write so that its routes follow the address, or nothing.
    moved_routes: String,
}

/// Default routes of a NIC, taken from it and given to the interface it becomes a port of.
fn moved_routes(facts: &NetworkFacts, primary: &str, controller: &str) -> String {
    let routes = facts.default_routes.iter().filter(|route| route.interface == primary);
    let edits: String = routes
        .filter_map(|route| {
            let (destination, gateway) = (route.destination, route.gateway?);
            Some(format!(
                "\n  - destination: {destination}\n    next-hop-interface: {primary}\n    state: absent\n  - \
                destination: {destination}\n    next-hop-address: {gateway}\n    next-hop-interface: {controller}"
            ))
        })
        .collect();
    if edits.is_empty() {
        return edits;
    }
    format!("\nand move the routes of `{primary}` to `{controller}`:\nroutes:\n  config:{edits}")
}

/// How a policy takes an address from an interface.
struct Taken<'w> {
    at: crate::source::Location,
    what: &'static str,
    /// The interface whose port it becomes.
    controller: Option<&'w str>,
}

fn taken_away<'w>(wanted: &NetworkFacts<'w>, primary: &str, address: IpAddr) -> Option<Taken<'w>> {
    let ipv4 = address.is_ipv4();
    if wanted.addresses.iter().any(|kept| kept.net.addr() == address) {
        return None;
    }
    for interface in &wanted.interfaces {
        if let Some(port) = ports(interface.node).into_iter().find(|port| port.as_str() == Some(primary)) {
            return Some(Taken { at: port.at, what: "makes a port of", controller: Some(interface.name) });
        }
        if interface.name != primary {
            continue;
        }
        if let Some(state) =
            interface.node.get("state").filter(|state| matches!(state.as_str(), Some("absent" | "down")))
        {
            return Some(Taken { at: state.at, what: "takes down", controller: None });
        }
        let family = interface.node.get(if ipv4 { "ipv4" } else { "ipv6" });
        let Some(family) = family else { continue };
        let off = family.get("enabled").and_then(Node::as_bool) == Some(false);
        let replaced = family.get("address").is_some() || family.get("dhcp").and_then(Node::as_bool) == Some(true);
        if off || replaced {
            return Some(Taken { at: family.at, what: "redefines", controller: None });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{is_label_value, label_value_in};

    #[test]
    fn a_repaired_selector_has_a_value_a_label_can_have() {
        for (key, written, expected) in [
            ("kubernetes.io/hostname", "worker-0,worker-1", "worker-0"),
            ("zone", "[\"north\"]", "north"),
            ("zone", "a b", "a"),
            ("zone", "-a/b", "a-b"),
            ("zone", "*", "value"),
            ("node-role.kubernetes.io/worker", "!", ""),
        ] {
            assert_eq!(label_value_in(key, written), expected, "{written}");
            assert!(is_label_value(expected), "{expected}");
        }
    }

    #[test]
    fn label_values_follow_the_rules_of_kubernetes() {
        for (value, fine) in [
            ("", true),
            ("worker-0.example.com", true),
            ("a_b", true),
            ("-a", false),
            ("a b", false),
            ("[a,b]", false),
            (&"a".repeat(64), false),
        ] {
            assert_eq!(is_label_value(value), fine, "{value}");
        }
    }
}
