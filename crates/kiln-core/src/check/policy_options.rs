//! What Kiln adds to policies: fields of `spec.kiln`, templates, order, pools, and the networks all of it makes together.
//!
//! The same functions decide in the hub: what is said here is what a node would be refused for.

use std::collections::{BTreeMap, HashSet};

use super::Rule;
use super::context::{Context, HostView};
use super::words::{counted, listed, nearest};
use crate::diagnostic::{Code, Diagnostic};
use crate::document::{Node, Value};
use crate::policy::{self, Allocations, Captured, Composed, FlawKind, NetworkPolicy, PolicyError};
use crate::source::Location;
use crate::world;

pub(super) const RULES: &[Rule] = &[refusals, chosen_nodes, order, pools, fleets];

/// How many nodes are composed: the hub judges the world at every change. What is wrong with a policy mostly shows on the
/// first of them; `kiln net preview` looks at all.
const MAX_NODES: usize = 250;

/// The place of `spec.kiln.after[0]` in a document, or of what is nearest above it.
pub(super) fn place(root: &Node, path: &str) -> Location {
    let (mut node, mut rest) = (root, path);
    loop {
        rest = rest.trim_start_matches('.');
        if let Some((index, after)) = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            let item = index.parse::<usize>().ok().and_then(|index| node.items().get(index));
            let Some(item) = item else { return node.at };
            (node, rest) = (item, after);
            continue;
        }
        // Names of labels and nodes have dots of their own: the longest key that fits is meant.
        let fits = |key: &str| {
            let after = rest.strip_prefix(key);
            after.filter(|after| after.is_empty() || after.starts_with(['.', '[']))
        };
        let entries = node.entries().iter().filter(|entry| fits(&entry.key.value).is_some());
        let Some(entry) = entries.max_by_key(|entry| entry.key.value.len()) else { return node.at };
        rest = fits(&entry.key.value).unwrap_or_default();
        if rest.is_empty() && matches!(entry.value.value, Value::Mapping(_) | Value::Sequence(_)) {
            return entry.key.at;
        }
        node = &entry.value;
        if rest.is_empty() {
            return node.at;
        }
    }
}

fn at(context: &Context, policy: usize, path: &str) -> Location {
    let policy = &context.world.policies[policy];
    context.written(&policy.meta.id).map_or(policy.meta.at, |root| place(root, path))
}

fn readings<'c>(context: &'c Context) -> impl Iterator<Item = (usize, &'c NetworkPolicy)> {
    context.policies_read.iter().enumerate().filter_map(|(index, read)| Some((index, read.as_ref().ok()?)))
}

fn refusals(context: &Context, findings: &mut Vec<Diagnostic>) {
    for (index, read) in context.policies_read.iter().enumerate() {
        let Err(error) = read else { continue };
        let name = &context.world.policies[index].meta.id.name;
        match error {
            PolicyError::Template { at: field, why } => findings.push(
                Diagnostic::new(
                    Code(610),
                    at(context, index, field),
                    format!("a template of policy `{name}` stands for nothing: {why}"),
                )
                .cause(
                    "templates are filled in for each node; one that no node can fill in refuses the policy everywhere",
                )
                .help(
                    "write {{ node.name }}, {{ node.labels.KEY }}, {{ table.NAME }}, {{ pool.NAME }} or {{ capture.NAME.… }}, and \
                    declare the name:\nspec:\n  kiln:\n    parameters:\n      tables:\n      - name: NAME\n        values: \
                    {NODE: VALUE}",
                ),
            ),
            PolicyError::Malformed { at: field, why } if field.starts_with("spec.kiln") => findings.push(
                Diagnostic::new(
                    Code(609),
                    at(context, index, field),
                    format!("policy `{name}` is refused: `{field}` {}", said(why)),
                )
                .cause("`spec.kiln` is read strictly, because a field that is passed over would change nodes nobody meant")
                .help("`kubectl explain nncp.spec.kiln` lists the fields and what they take"),
            ),
            // The rest is upstream's and has rules of its own.
            _ => {}
        }
    }
}

/// Makes a half sentence of what is said about a field.
fn said(why: &str) -> String {
    let verbs = ["must", "is", "has", "needs", "mixes", "nests", "lists", "holds"];
    match verbs.iter().any(|verb| why.starts_with(verb)) {
        true => why.to_owned(),
        false => format!("is wrong: {why}"),
    }
}

fn chosen_nodes(context: &Context, findings: &mut Vec<Diagnostic>) {
    if context.nodes.is_empty() {
        return;
    }
    for (index, policy) in readings(context) {
        let written = &context.world.policies[index];
        let nobody = context.nodes_of_policy[index].is_empty();
        // The rule about `nodeSelector` speaks when that alone chooses nobody.
        if !nobody || written.kiln.as_ref().and_then(|kiln| kiln.get("nodes")).is_none() {
            continue;
        }
        findings.push(
            Diagnostic::new(
                Code(601),
                at(context, index, "spec.kiln.nodes"),
                format!("policy `{}` selects no declared node", policy.name),
            )
            .cause("`spec.kiln.nodes` and `spec.nodeSelector` must both choose a node; a policy that selects nothing is `Ignored`")
            .help(format!(
                "correct `spec.kiln.nodes`; declared are {}",
                listed(context.nodes.iter().take(10).map(|node| node.name))
            )),
        );
    }
}

fn order(context: &Context, findings: &mut Vec<Diagnostic>) {
    let all: Vec<NetworkPolicy> = readings(context).map(|(_, policy)| policy.clone()).collect();
    let position = |name: &str| context.world.policies.iter().position(|policy| policy.meta.id.name == name);
    for (index, policy) in readings(context) {
        for (item, name) in policy.options.after.iter().enumerate().filter(|(_, name)| position(name).is_none()) {
            let known = context.world.policies.iter().map(|policy| policy.meta.id.name.as_str());
            let known = known.filter(|known| *known != policy.name);
            let hint = nearest(name, known.clone()).map(|name| format!("write `{name}`"));
            findings.push(
                Diagnostic::new(
                    Code(611),
                    at(context, index, &format!("spec.kiln.after[{item}]")),
                    format!("policy `{}` comes after `{name}`, and there is no such policy", policy.name),
                )
                .cause("a policy waits for those it names; one that names nobody is refused on every node")
                .help(hint.unwrap_or_else(|| match known.clone().next() {
                    Some(_) => format!("name one of {}, or remove the entry", listed(known)),
                    None => "remove the entry".to_owned(),
                })),
            );
        }
    }
    for circle in policy::cycles(&all) {
        let [first, second, ..] = &circle[..] else { continue };
        let (Some(one), Some(two)) = (position(first), position(second)) else { continue };
        let finding = Diagnostic::new(
            Code(612),
            at(context, one, "spec.kiln.after"),
            format!("policies wait for each other: {}", circle.join(" after ")),
        )
        .cause("none of them can be first, so all of them are refused on every node, and those that come after them")
        .help(format!(
            "remove one of the entries, for example `{first}` from `spec.kiln.after` of the one that closes the circle"
        ));
        findings.push(match one == two {
            true => finding,
            false => finding.related(at(context, two, "spec.kiln.after"), format!("policy `{second}`")),
        });
    }
}

fn labels_of(context: &Context) -> Vec<BTreeMap<String, String>> {
    let owned = |(key, value): (&&str, &&str)| ((*key).to_owned(), (*value).to_owned());
    context.nodes.iter().map(|node| node.labels.iter().map(owned).collect()).collect()
}

fn allocations(context: &Context, labels: &[BTreeMap<String, String>]) -> (Allocations, Vec<(String, PolicyError)>) {
    let all: Vec<NetworkPolicy> = readings(context).map(|(_, policy)| policy.clone()).collect();
    policy::allocate(&all, context.nodes.iter().map(|node| node.name).zip(labels), &Allocations::new())
}

fn pools(context: &Context, findings: &mut Vec<Diagnostic>) {
    if readings(context).all(|(_, policy)| policy.options.parameters.pools.is_empty()) {
        return;
    }
    let labels = labels_of(context);
    for (name, error) in allocations(context, &labels).1 {
        let PolicyError::Exhausted { at: field, pool, nodes } = &error else { continue };
        let Some(index) = context.world.policies.iter().position(|policy| policy.meta.id.name == name) else {
            continue;
        };
        findings.push(
            Diagnostic::new(
                Code(613),
                at(context, index, field),
                format!(
                    "pool `{pool}` of policy `{name}` is too small: {} of {} get no address ({})",
                    nodes.len(),
                    counted(context.nodes_of_policy[index].len(), "node"),
                    listed(nodes.iter().take(5))
                ),
            )
            .cause("no address is given twice, and one that was given stays with its node; without one the policy is refused on the node")
            .help("widen `cidr` or `ranges`, shorten `exclude`, or choose fewer nodes"),
        );
    }
}

/// The document of the Pool a host is in.
fn network_of_pool<'c>(context: &'c Context, host: &HostView) -> Option<&'c Node> {
    let of_host = |pool: &&world::Pool| {
        let id = &pool.meta.id;
        id.name == host.pool && id.namespace == host.host.meta.id.namespace
    };
    context.world.pools.iter().filter(of_host).find_map(|pool| pool.network.as_ref())
}

fn fleets(context: &Context, findings: &mut Vec<Diagnostic>) {
    let all: Vec<NetworkPolicy> = readings(context).map(|(_, policy)| policy.clone()).collect();
    // Captures depend on the running node; the rule about them says so.
    let known: Vec<NetworkPolicy> = all.into_iter().filter(|policy| policy.captures.is_empty()).collect();
    if known.is_empty() {
        return;
    }
    let labels = labels_of(context);
    let (allocations, _) = allocations(context, &labels);
    let touched: HashSet<usize> = context.nodes_of_policy.iter().flatten().copied().collect();
    let captured = Captured::new();
    let mut composed: Vec<(&str, Composed)> = Vec::new();
    for (index, node) in context.nodes.iter().enumerate().filter(|(index, _)| touched.contains(index)).take(MAX_NODES) {
        let host = node.host.map(|host| &context.hosts[host]);
        let base = host.and_then(|host| host.host.network.as_ref()).map(Node::to_json);
        let pool = host.and_then(|host| network_of_pool(context, host)).map(Node::to_json);
        let seen = policy::Node {
            name: node.name,
            labels: &labels[index],
            base: base.as_ref(),
            pool: pool.as_ref(),
            current: None,
            captured: &captured,
            allocations: &allocations,
        };
        composed.push((node.name, policy::compose(&seen, &known)));
    }
    let mut told: HashSet<(u16, Location, Option<Location>)> = HashSet::new();
    for flaw in policy::lint(composed.iter().map(|(name, composed)| (*name, &composed.network))) {
        let owner = |(node, field): &(String, String)| {
            let (_, composed) = composed.iter().find(|(name, _)| name == node)?;
            let name = composed.owners.get(field)?.strip_prefix("policy/")?;
            context.world.policies.iter().position(|policy| policy.meta.id.name == name)
        };
        let owners: Vec<usize> = flaw.fields.iter().filter_map(owner).collect();
        // What a host declares itself is judged where hosts are.
        let Some(first) = owners.first().copied() else { continue };
        let meta = |policy: usize| &context.world.policies[policy].meta;
        let at = at(context, first, "spec.desiredState");
        let other = owners.get(1).copied().filter(|other| *other != first);
        let related = other.map(|other| self::at(context, other, "spec.desiredState"));
        let (code, cause, help) = match &flaw.kind {
            FlawKind::SameAddress { .. } => (
                Code(614),
                "nmstate applies it on both; each then takes the other's traffic, in turns",
                "give each node its own address:\nspec:\n  kiln:\n    parameters:\n      pools:\n      - name: NAME\n        \
                cidr: 192.0.2.0/24\nand write \"{{ pool.NAME }}\" where the address stands",
            ),
            FlawKind::SameVlan { .. } => (
                Code(615),
                "the kernel has each id once on an interface; the second one fails, and the change is rolled back",
                "remove one of the two, or give it another id",
            ),
            FlawKind::LargerThanBelow { .. } => (
                Code(616),
                "frames that do not fit through the interface below are dropped",
                "raise `mtu` of the interface below in the same policy, or lower this one",
            ),
            FlawKind::GatewayOutside { .. } => (
                Code(617),
                "the kernel refuses a next hop it cannot reach directly, and nmstate does not say so before",
                "correct `next-hop-address`, or give the interface an address of the gateway's subnet",
            ),
        };
        if !told.insert((code.0, at, related)) {
            continue;
        }
        let finding = Diagnostic::new(code, at, format!("with policy `{}`: {flaw}", meta(first).id.name));
        let finding = finding.cause(cause).help(help);
        findings.push(match (other, related) {
            (Some(other), Some(place)) => finding.related(place, format!("policy `{}`", meta(other).id.name)),
            _ => finding,
        });
    }
}
