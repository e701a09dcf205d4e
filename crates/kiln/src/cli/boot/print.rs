//! A prediction as text, JSON or YAML.

use kiln_core::boot::simulate::{Phase, PhaseProfile, Prediction};
use kiln_core::boot::teardown::Propagation;
use kiln_core::document::emit::to_yaml;
use kiln_core::network::merge::Merged;
use serde_json::{Value, json};

use super::PrintFormat;

/// The whole prediction.
pub fn render(prediction: &Prediction, composed: &Merged, format: PrintFormat) -> String {
    match format {
        PrintFormat::Human => render_human(prediction, composed),
        PrintFormat::Json => format!("{:#}\n", to_json(prediction, composed)),
        PrintFormat::Yaml => to_yaml(&to_json(prediction, composed)),
    }
}

fn render_human(prediction: &Prediction, composed: &Merged) -> String {
    let mut text = String::new();
    for phase in [&prediction.kernel_arguments, &prediction.initramfs, &prediction.real_root] {
        text += &render_phase(phase);
    }
    if let Some(hostname) = &prediction.hostname {
        text += &format!("hostname: {hostname}\n");
    }
    text += "\nwith Kiln's composition the real root has\n";
    if composed.files.is_empty() {
        text += "  nothing of its own\n";
    }
    for file in &composed.files {
        text += &format!("  {}\n", file.name);
    }
    for decision in &composed.decisions {
        text += &format!("  because {decision}\n");
    }
    text + &format!("\n{}\n", verdict(prediction))
}

fn render_phase(phase: &Phase) -> String {
    let mut text = format!("{}\n", phase.name);
    if phase.profiles.is_empty() {
        text += "  no profiles\n";
    }
    for PhaseProfile { name, mode, not_loaded } in &phase.profiles {
        let loaded = if not_loaded.is_none() { "" } else { "  not loaded" };
        text += &format!("  {mode:04o} {name}{loaded}\n");
    }
    for choice in &phase.choices {
        text += &format!("  {choice}\n");
    }
    for reason in &phase.reasons {
        text += &format!("  because {reason}\n");
    }
    text + "\n"
}

fn verdict(prediction: &Prediction) -> String {
    let verdict = match (&prediction.lost[..], &prediction.propagation) {
        ([], _) if prediction.only_default => {
            "nothing was asked for, so nothing is lost: NetworkManager makes its own default profiles"
        }
        ([], _) if prediction.declared().is_empty() => "the initramfs loads no profile, so there is none to lose",
        ([], Propagation::Copied { .. }) => "the real root has every profile of the initramfs",
        ([], _) => "nothing is copied, but the real root has a profile of its own in every file the initramfs has",
        (lost, _) => {
            let them = if lost.len() == 1 { "it" } else { "them" };
            return format!(
                "verdict: stock CoreOS loses {} between initramfs and real root; Kiln's composition keeps {them}",
                lost.join(", ")
            );
        }
    };
    format!("verdict: {verdict}")
}

/// Scripts rely on these names.
fn to_json(prediction: &Prediction, composed: &Merged) -> Value {
    let Prediction { kernel_arguments, initramfs, real_root, propagation, hostname, dropped, lost, .. } = prediction;
    json!({
        "phases": [phase_json(kernel_arguments), phase_json(initramfs), phase_json(real_root)],
        "propagation": propagation.name(),
        "blockedBy": match propagation {
            Propagation::Blocked { by } => by.as_slice(),
            _ => &[],
        },
        "hostname": hostname,
        "dropped": dropped.iter().map(|dropped| json!({
            "argument": dropped.argument,
            "reason": dropped.reason,
            "meant": dropped.meant,
        })).collect::<Vec<Value>>(),
        "lost": lost,
        "composed": {
            "profiles": composed.files.iter().map(|file| json!({
                "file": file.name,
                "text": file.keyfile.render(),
            })).collect::<Vec<Value>>(),
            "decisions": composed.decisions.iter().map(ToString::to_string).collect::<Vec<String>>(),
        },
    })
}

fn phase_json(phase: &Phase) -> Value {
    json!({
        "phase": phase.name,
        "profiles": phase.profiles.iter().map(|profile| json!({
            "file": profile.name,
            "mode": format!("{:04o}", profile.mode),
            "loaded": profile.not_loaded.is_none(),
            "notLoadedBecause": profile.not_loaded.as_ref().map(ToString::to_string),
            "text": phase.loaded.iter().find(|file| file.name == profile.name).map(|file| file.keyfile.render()),
        })).collect::<Vec<Value>>(),
        "choices": phase.choices.iter().map(ToString::to_string).collect::<Vec<String>>(),
        "reasons": phase.reasons,
    })
}
