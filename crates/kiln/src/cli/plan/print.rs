//! One host's plan as text or JSON.

use kiln_core::boot::simulate::Phase;
use kiln_core::keyfile::ConnectionFile;
use kiln_core::network::profile::Profile;
use kiln_core::plan::HostPlan;
use kiln_core::world::Role;
use serde_json::{Value, json};

/// The plan for reading.
pub fn render_human(plan: &HostPlan) -> String {
    let HostPlan { host, node, role, cluster, pool, declared, stock, composed, kernel_arguments, steps } = plan;
    let mut text = format!("{} {}/{}", host.kind, host.namespace, host.name);
    text += &format!(": node {node}, {}, pool {pool}", role_name(*role));
    if let Some(cluster) = cluster {
        text += &format!(", cluster {}", cluster.name);
    }
    text += "\n\n  discovery\n";
    text += &profile_lines(declared.iter());
    if declared.is_empty() {
        text += "    nothing is declared: every NIC asks for an address by DHCP\n";
    }
    if !kernel_arguments.is_empty() {
        text += &format!("\n  kernel arguments\n    {}\n", kernel_arguments.join(" "));
    }
    text += "\n  first boot, initramfs\n";
    text += &phase_lines(&stock.initramfs);
    text += "\n  real root, on stock CoreOS\n";
    text += &phase_lines(&stock.real_root);
    if !stock.lost.is_empty() {
        text += &format!("    LOST: {}\n", stock.lost.join(", "));
    }
    text += "\n  real root, composed by Kiln (base: the pool's profiles, overlay: the host's)\n";
    text += &profile_lines(composed.files.iter());
    if composed.files.is_empty() {
        text += "    nothing of its own\n";
    }
    for decision in &composed.decisions {
        text += &format!("    because {decision}\n");
    }
    text += "\n  steps\n";
    for (number, step) in steps.iter().enumerate() {
        text += &format!("    {}. {step}\n", number + 1);
    }
    text + "\n"
}

fn phase_lines(phase: &Phase) -> String {
    let mut text = profile_lines(phase.loaded.iter());
    if text.is_empty() {
        text += "    no profiles\n";
    }
    for choice in &phase.choices {
        text += &format!("    {choice}\n");
    }
    for reason in &phase.reasons {
        text += &format!("    because {reason}\n");
    }
    text
}

/// `bond0.110.nmconnection  vlan bond0.110  192.0.2.7/24`.
fn profile_lines<'a>(files: impl Iterator<Item = &'a ConnectionFile>) -> String {
    files.map(|file| format!("    {}\n", profile_line(file))).collect()
}

fn profile_line(file: &ConnectionFile) -> String {
    let profile = Profile::read(file);
    let kind = profile.kind.unwrap_or_default();
    let interface = match (profile.interface, profile.mac) {
        (Some(name), _) => name.to_string(),
        (None, Some(mac)) => mac.to_string(),
        (None, None) => "any NIC".to_owned(),
    };
    let mut line = format!("{}  {kind} {interface}", file.name);
    if let Some(controller) = profile.controller {
        line += &format!(", port of {controller}");
    }
    for address in profile.ipv4.addresses.iter().chain(&profile.ipv6.addresses) {
        line += &format!(", {address}");
    }
    for (family, settings) in [("ipv4", &profile.ipv4), ("ipv6", &profile.ipv6)] {
        if settings.method.as_deref() == Some("auto") {
            line += &format!(", {family} automatic");
        }
    }
    line
}

fn role_name(role: Option<Role>) -> &'static str {
    match role {
        Some(Role::Master) => "master",
        Some(Role::Worker) => "worker",
        Some(Role::Arbiter) => "arbiter",
        Some(Role::Auto) => "role left to the installer",
        None => "no role declared",
    }
}

/// Scripts rely on these names.
pub fn to_json(plan: &HostPlan) -> Value {
    let HostPlan { host, node, role, cluster, pool, declared, stock, composed, kernel_arguments, steps } = plan;
    json!({
        "kind": host.kind,
        "namespace": host.namespace,
        "name": host.name,
        "node": node,
        "role": role.map(|role| role_name(Some(role))),
        "cluster": cluster.as_ref().map(|cluster| &cluster.name),
        "pool": pool,
        "kernelArguments": kernel_arguments,
        "discovery": files_json(declared),
        "stock": {
            "initramfs": phase_json(&stock.initramfs),
            "realRoot": phase_json(&stock.real_root),
            "lost": stock.lost,
        },
        "composed": {
            "profiles": files_json(&composed.files),
            "decisions": composed.decisions.iter().map(ToString::to_string).collect::<Vec<String>>(),
        },
        "steps": steps.iter().map(ToString::to_string).collect::<Vec<String>>(),
    })
}

fn phase_json(phase: &Phase) -> Value {
    json!({
        "profiles": phase.profiles.iter().map(|profile| json!({
            "file": profile.name,
            "loaded": profile.not_loaded.is_none(),
        })).collect::<Vec<Value>>(),
        "choices": phase.choices.iter().map(ToString::to_string).collect::<Vec<String>>(),
        "reasons": phase.reasons,
    })
}

fn files_json(files: &[ConnectionFile]) -> Vec<Value> {
    files.iter().map(|file| json!({"file": file.name, "text": file.keyfile.render()})).collect()
}
