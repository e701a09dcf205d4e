//! Policies against each other: two that want different things of one interface, and one that builds on another's.
//!
//! Policies are applied one after the other on a node, in no promised order, and each re-applied at its own time: the
//! last one wins, until the other comes again. Nodes that get the same policies are looked at once.
//! Where `spec.kiln` gives one a higher priority, puts one after the other, or is written at all about name servers, Kiln applies
//! them and there is no quarrel.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::Rule;
use super::addresses::{NetworkFacts, ports};
use super::context::Context;
use super::words::counted;
use crate::diagnostic::{Code, Diagnostic};
use crate::document::{Node, Value};
use crate::source::Location;

pub(super) const RULES: &[Rule] = &[fights_and_order];

/// Policies that meet on some nodes.
struct Meeting {
    policies: Vec<usize>,
    /// How many declared nodes; 0 when they meet on nodes that are not declared.
    nodes: usize,
    /// One of the nodes, for what its host declares itself.
    sample: Option<usize>,
}

fn fights_and_order(context: &Context, findings: &mut Vec<Diagnostic>) {
    let facts: Vec<Option<NetworkFacts>> =
        context.world.policies.iter().map(|policy| policy.desired.as_ref().map(NetworkFacts::read)).collect();
    let mut told = HashSet::new();
    for meeting in meetings(context) {
        fights(context, &facts, &meeting, &mut told, findings);
        foundations(context, &facts, &meeting, &mut told, findings);
        name_servers(context, &meeting, &mut told, findings);
    }
}

fn meetings(context: &Context) -> Vec<Meeting> {
    let mut of_node: Vec<Vec<usize>> = vec![Vec::new(); context.nodes.len()];
    for (policy, nodes) in context.nodes_of_policy.iter().enumerate() {
        nodes.iter().for_each(|node| of_node[*node].push(policy));
    }
    let mut meetings: BTreeMap<Vec<usize>, (usize, Option<usize>)> = BTreeMap::new();
    for (node, policies) in of_node.into_iter().enumerate().filter(|(_, policies)| policies.len() > 1) {
        let (count, sample) = meetings.entry(policies).or_insert((0, None));
        *count += 1;
        sample.get_or_insert(node);
    }
    // Nodes that are not declared: whatever a selector asks for, some node has it, and no more is known of it.
    let mut by_label: HashMap<(&str, &str), Vec<usize>> = HashMap::new();
    let mut everywhere = Vec::new();
    for (index, policy) in context.world.policies.iter().enumerate() {
        match policy.node_selector.iter().next() {
            Some((key, value)) => by_label.entry((key, value)).or_default().push(index),
            None => everywhere.push(index),
        }
    }
    for (policy, nodes) in
        context.world.policies.iter().zip(&context.nodes_of_policy).filter(|(_, nodes)| nodes.is_empty())
    {
        let _ = nodes;
        let has = |key: &str, value: &str| policy.node_selector.get(key).is_some_and(|found| found.value == value);
        let labels =
            policy.node_selector.iter().filter_map(|(key, value)| by_label.get(&(key.as_str(), value.as_str())));
        let mut same: Vec<usize> = labels
            .flatten()
            .chain(&everywhere)
            .copied()
            .filter(|other| context.world.policies[*other].node_selector.iter().all(|(key, value)| has(key, value)))
            .collect();
        same.sort_unstable();
        same.dedup();
        if same.len() > 1 {
            meetings.entry(same).or_insert((0, None));
        }
    }
    meetings.into_iter().map(|(policies, (nodes, sample))| Meeting { policies, nodes, sample }).collect()
}

type Told = HashSet<(u16, Location, Location)>;

fn fights(
    context: &Context,
    facts: &[Option<NetworkFacts>],
    meeting: &Meeting,
    told: &mut Told,
    findings: &mut Vec<Diagnostic>,
) {
    let mut first: HashMap<&str, (usize, &Node)> = HashMap::new();
    for policy in &meeting.policies {
        for interface in
            facts[*policy].iter().flat_map(|facts| &facts.interfaces).filter(|interface| !interface.name.contains("{{"))
        {
            let (other, node) = *first.entry(interface.name).or_insert((*policy, interface.node));
            if other == *policy || priority(context, other) != priority(context, *policy) {
                continue;
            }
            let Some((path, one, two)) = difference(node, interface.node, String::new()) else { continue };
            if !told.insert((600, one.at, two.at)) {
                continue;
            }
            let policies = &context.world.policies;
            let (a, b) = (&policies[other].meta, &policies[*policy].meta);
            findings.push(
                Diagnostic::new(
                    Code(600),
                    two.at,
                    format!(
                        "policies `{}` and `{}` want different things of interface `{}`{}: `{path}` is {} and {}",
                        a.id.name,
                        b.id.name,
                        interface.name,
                        on(meeting),
                        shown(one),
                        shown(two)
                    ),
                )
                .cause(
                    "both select the same nodes; each is applied whenever it changes and whenever the handler starts, \
                    so the last one wins until the other comes again",
                )
                .help(format!(
                    "describe `{}` in one policy only, or let `nodeSelector` of the two select different nodes",
                    interface.name
                ))
                .related(one.at, format!("policy `{}`", a.id.name)),
            );
        }
    }
}

fn priority(context: &Context, policy: usize) -> i64 {
    context.policies_read[policy].as_ref().map_or(0, |policy| policy.options.priority)
}

fn on(meeting: &Meeting) -> String {
    match meeting.nodes {
        0 => String::new(),
        count => format!(" on {}", counted(count, "declared node")),
    }
}

fn name_servers(context: &Context, meeting: &Meeting, told: &mut Told, findings: &mut Vec<Diagnostic>) {
    let of = |policy: &usize| context.world.policies[*policy].desired.as_ref()?.path(&["dns-resolver", "config"]);
    let mut speakers = meeting.policies.iter().filter_map(|policy| Some((policy, of(policy)?)));
    let Some((first, one)) = speakers.next() else { return };
    for (policy, two) in speakers {
        if [first, policy].into_iter().any(|policy| context.world.policies[*policy].kiln.is_some()) {
            continue;
        }
        let Some((path, one, two)) = difference(one, two, String::new()) else { continue };
        if !told.insert((600, one.at, two.at)) {
            continue;
        }
        let (a, b) = (&context.world.policies[*first].meta, &context.world.policies[*policy].meta);
        findings.push(
            Diagnostic::new(
                Code(600),
                two.at,
                format!(
                    "policies `{}` and `{}` want different name resolution{}: `dns-resolver.config.{path}` is {} and \
                    {}",
                    a.id.name,
                    b.id.name,
                    on(meeting),
                    shown(one),
                    shown(two)
                ),
            )
            .cause(
                "name servers belong to the whole node, not to an interface: each policy replaces what the other \
                wrote",
            )
            .help("write `dns-resolver` in one policy only")
            .related(one.at, format!("policy `{}`", a.id.name)),
        );
    }
}

fn foundations(
    context: &Context,
    facts: &[Option<NetworkFacts>],
    meeting: &Meeting,
    told: &mut Told,
    findings: &mut Vec<Diagnostic>,
) {
    let mut made_by: HashMap<&str, (usize, &Node)> = HashMap::new();
    for policy in &meeting.policies {
        for interface in
            facts[*policy].iter().flat_map(|facts| &facts.interfaces).filter(|interface| is_virtual(interface.kind))
        {
            made_by.entry(interface.name).or_insert((*policy, interface.node));
        }
    }
    let host = meeting.sample.and_then(|node| context.nodes[node].host).map(|host| &context.hosts[host]);
    let declared: HashSet<&str> = host
        .into_iter()
        .flat_map(|host| context.documents(host))
        .flat_map(|document| &document.facts.interfaces)
        .map(|interface| interface.name)
        .collect();
    for policy in &meeting.policies {
        let Some(facts) = &facts[*policy] else { continue };
        let own: HashSet<&str> = facts.interfaces.iter().map(|interface| interface.name).collect();
        for interface in &facts.interfaces {
            let base = interface.node.path(&["vlan", "base-iface"]);
            for below in base.into_iter().chain(ports(interface.node)) {
                let Some(name) = below.as_str().filter(|name| !own.contains(name) && !declared.contains(name)) else {
                    continue;
                };
                let Some((other, node)) = made_by.get(name).filter(|(other, _)| other != policy) else { continue };
                let follows = context.policies_read[*policy]
                    .as_ref()
                    .is_ok_and(|read| read.options.after.contains(&context.world.policies[*other].meta.id.name));
                if follows {
                    continue;
                }
                if !told.insert((605, below.at, node.at)) {
                    continue;
                }
                let (a, b) = (&context.world.policies[*other].meta, &context.world.policies[*policy].meta);
                findings.push(
                    Diagnostic::new(
                        Code(605),
                        below.at,
                        format!(
                            "`{}` of policy `{}` stands on `{name}`, which policy `{}` makes",
                            interface.name, b.id.name, a.id.name
                        ),
                    )
                    .cause(
                        "policies are applied in no promised order, after a reboot too: when this one comes first, \
                        its base is missing and it fails",
                    )
                    .help(format!(
                        "move `{}` into policy `{}`, so that both are applied together",
                        interface.name, a.id.name
                    ))
                    .related(node.at, format!("`{name}` is made here")),
                );
            }
        }
    }
}

fn is_virtual(kind: &str) -> bool {
    !matches!(kind, "" | "ethernet" | "infiniband" | "unknown")
}

/// The first value that both have and that differs: its path and both sides.
fn difference<'n>(one: &'n Node, two: &'n Node, path: String) -> Option<(String, &'n Node, &'n Node)> {
    match (&one.value, &two.value) {
        (Value::Mapping(entries), Value::Mapping(_)) => entries.iter().find_map(|entry| {
            let other = two.get(&entry.key.value)?;
            let path =
                if path.is_empty() { entry.key.value.to_string() } else { format!("{path}.{}", entry.key.value) };
            difference(&entry.value, other, path)
        }),
        (Value::String(text), _) | (_, Value::String(text)) if text.contains("{{") => None,
        (Value::Sequence(_), Value::Sequence(_)) => (sorted(one) != sorted(two)).then_some((path, one, two)),
        _ => (one.to_json() != two.to_json()).then_some((path, one, two)),
    }
}

/// The order of addresses, ports and servers is no quarrel.
fn sorted(list: &Node) -> Vec<String> {
    let mut items: Vec<String> = list.items().iter().map(|item| item.to_json().to_string()).collect();
    items.sort_unstable();
    items
}

/// A value short enough for a message.
fn shown(node: &Node) -> String {
    let text = node.to_json().to_string();
    if text.chars().count() > 60 {
        format!("`{}…`", text.chars().take(60).collect::<String>())
    } else {
        format!("`{text}`")
    }
}
