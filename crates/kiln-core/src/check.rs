//! Every rule about a world of manifests: what upstream will refuse, what will not come up, what was hardly meant.
//!
//! [`check`] is a function of the world alone: same world, same findings, in the order of their places. Its cost
//! grows with the number of objects, not with its square: whatever one object has to do with another is looked up
//! in the indexes of [`Context`], built once.
//!
//! One file per area, one small function per rule. Each rule has its codes in `diagnostic::registry`, and each code
//! a folder under `fixtures/check` that shows its exact words.
//!
//! Not here: what cannot be read at all (`kiln-api`), and printing (`kiln`).

mod addresses;
mod bmc;
mod cluster_network;
pub(crate) mod context;
mod discovery;
mod disks;
mod duplicates;
mod egress;
mod hostnames;
mod ingress;
mod kernel_arguments;
mod manifests;
mod overrides;
mod policies;
mod policy_conflicts;
mod policy_options;
mod pools;
mod profiles;
mod propagation;
mod proxies;
mod references;
mod remote;
mod secrets;
mod sizes;
mod words;

pub(crate) use propagation::appended_kernel_arguments;

use crate::diagnostic::Diagnostic;
use crate::world::World;
use context::Context;

type Rule = fn(&Context, &mut Vec<Diagnostic>);

const AREAS: &[&[Rule]] = &[
    references::RULES,
    secrets::RULES,
    discovery::RULES,
    duplicates::RULES,
    hostnames::RULES,
    kernel_arguments::RULES,
    bmc::RULES,
    disks::RULES,
    overrides::RULES,
    proxies::RULES,
    addresses::RULES,
    cluster_network::RULES,
    remote::RULES,
    ingress::RULES,
    egress::RULES,
    manifests::RULES,
    pools::RULES,
    propagation::RULES,
    profiles::RULES,
    policies::RULES,
    policy_conflicts::RULES,
    policy_options::RULES,
    sizes::RULES,
];

/// Everything the rules have to say about `world`, ordered by place.
pub fn check(world: &World) -> Vec<Diagnostic> {
    let mut reading = Vec::new();
    let context = Context::new(world, &mut reading);
    findings(&context, reading)
}

/// The same for a world that is joined already; `findings` is what joining it found.
pub(crate) fn findings(context: &Context, mut findings: Vec<Diagnostic>) -> Vec<Diagnostic> {
    for rule in AREAS.iter().copied().flatten() {
        rule(context, &mut findings);
    }
    // A finding without a place speaks of the whole input and stands first.
    findings.sort_by_key(|finding| (finding.at, finding.code));
    // A config that two pools take, or a document that two hosts share, is judged twice.
    findings.dedup();
    findings
}
