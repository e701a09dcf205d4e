//! Kernel arguments that the initramfs drops or reads differently, which nobody would hear of at boot.
//!
//! All arguments of one machine are judged together, because they speak of each other (a VLAN of its bond's name).

use super::Rule;
use super::context::Context;
use super::overrides::installer_args;
use super::propagation::appended;
use crate::boot::initrd::{diagnose, generate};
use crate::boot::kargs::Kargs;
use crate::diagnostic::Diagnostic;
use crate::source::Location;

pub(super) const RULES: &[Rule] = &[of_hosts, of_discovery_images, of_machine_configs];

/// An argument and where it stands.
type Placed = (String, Location);

fn of_hosts(context: &Context, findings: &mut Vec<Diagnostic>) {
    for host in &context.world.hosts {
        let installer = host.installer_args.iter().flat_map(|text| {
            let given = installer_args(text).unwrap_or_default();
            appended(&given).map(|argument| (argument.to_owned(), text.at)).collect::<Vec<Placed>>()
        });
        let own = host.kernel_arguments.iter().map(|argument| (argument.value.clone(), argument.at));
        judge(&installer.chain(own).collect::<Vec<Placed>>(), findings);
    }
}

fn of_discovery_images(context: &Context, findings: &mut Vec<Diagnostic>) {
    for discovery in &context.world.discoveries {
        let added = discovery.kernel_arguments.iter().filter(|(operation, _)| operation.value != "delete");
        judge(&added.map(|(_, value)| (value.value.clone(), value.at)).collect::<Vec<Placed>>(), findings);
    }
}

fn of_machine_configs(context: &Context, findings: &mut Vec<Diagnostic>) {
    for config in &context.world.machine_configs {
        let own = config.kernel_arguments.iter().map(|argument| (argument.value.clone(), argument.at));
        judge(&own.collect::<Vec<Placed>>(), findings);
    }
}

fn judge(arguments: &[Placed], findings: &mut Vec<Diagnostic>) {
    if arguments.is_empty() {
        return;
    }
    let line: Vec<&str> = arguments.iter().map(|(argument, _)| argument.as_str()).collect();
    for dropped in generate(&Kargs::parse(&line.join(" "))).dropped {
        let first = dropped.argument.split(' ').next().unwrap_or_default();
        let place = arguments.iter().find(|(argument, _)| argument.contains(first)).or(arguments.first());
        let at = place.map(|(_, at)| *at);
        findings.extend(diagnose(&[dropped], at));
    }
}
