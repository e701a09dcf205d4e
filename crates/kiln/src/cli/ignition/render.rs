//! `kiln ignition render`: what the MachineConfigs of a pool become.
//!
//! The Ignition config goes to standard output; what a MachineConfig says besides Ignition is told on standard error,
//! or everything is one document with `-o json|yaml`.

use anyhow::anyhow;
use kiln_core::diagnostic::{Severity, attribute};
use kiln_core::document::emit;
use kiln_core::ignition::merge::references;
use kiln_core::ignition::validate::validate;
use kiln_core::machine_config::{self, Rendered};
use kiln_core::source::{Location, SourceMap, Sourced};
use serde_json::{Value, json};

use super::super::check::ReportFormat;
use super::super::{Outcome, PrintFormat, load, output, output::Failure, report};
use super::read::render_config;

/// Loads manifests, renders the pool, prints.
pub fn run(args: &super::RenderArgs) -> Result<Outcome, Failure> {
    if args.overlay {
        return print_overlay(args);
    }
    let load::Loaded { mut sources, documents, diagnostics: mut findings } = load::load(&args.paths)?;
    let (world, unread) = kiln_api::build_world(documents, &mut sources);
    findings.extend(unread);
    let declared = world.pools.iter().find(|pool| pool.meta.id.name == args.pool);
    let members = match declared {
        Some(pool) => machine_config::members(pool, &world.machine_configs),
        None => machine_config::members_of_role(&args.pool, &world.machine_configs),
    };
    let rendered = machine_config::render(&args.pool, &members);
    if let Some(rendered) = &rendered {
        findings.extend(rendered.diagnostics.iter().cloned());
        // Each MachineConfig may be right and the result still wrong.
        findings.extend(validate(&rendered.config));
        findings.extend(references(&rendered.config));
    }
    attribute(&mut findings, &world.objects, &sources);
    findings.sort_by_key(|finding| (finding.at, finding.code));
    report::print(&sources, &findings, ReportFormat::Human)?;
    if report::count(&findings, Severity::Error) > 0 {
        return Ok(Outcome::Refused);
    }
    let rendered = rendered.ok_or_else(|| {
        Failure::refused(anyhow!("no MachineConfig belongs to the pool `{}`, so there is nothing to render", args.pool))
    })?;
    match args.output {
        PrintFormat::Human => {
            output::complain(&tell_rest(&args.pool, &rendered, &sources));
            output::print(&render_config(&rendered.config))?;
        }
        PrintFormat::Json => output::print(&format!("{:#}\n", document(&args.pool, &rendered, &sources)))?,
        PrintFormat::Yaml => output::print(&emit::to_yaml(&document(&args.pool, &rendered, &sources)))?,
    }
    Ok(Outcome::Done)
}

fn print_overlay(args: &super::RenderArgs) -> Result<Outcome, Failure> {
    let machine_config = machine_config::overlay_machine_config(&args.pool);
    output::print(&match args.output {
        PrintFormat::Human | PrintFormat::Yaml => emit::to_yaml(&machine_config),
        PrintFormat::Json => format!("{machine_config:#}\n"),
    })?;
    Ok(Outcome::Done)
}

/// What a MachineConfig says besides Ignition, one comment per line.
fn tell_rest(pool: &str, rendered: &Rendered, sources: &SourceMap) -> String {
    let mut text = format!("# pool {pool}: {}\n", rendered.members.join(", "));
    let mut line = |name: &str, value: &Sourced<String>| {
        text.push_str(&format!("# {name} {value}  ({})\n", place(value.at, sources)));
    };
    rendered.kernel_arguments.iter().for_each(|argument| line("kernel argument", argument));
    rendered.extensions.iter().for_each(|extension| line("extension", extension));
    rendered.kernel_type.iter().for_each(|kernel| line("kernel type", kernel));
    rendered.os_image_url.iter().for_each(|image| line("OS image", image));
    if rendered.fips {
        text.push_str("# FIPS mode\n");
    }
    text
}

fn document(pool: &str, rendered: &Rendered, sources: &SourceMap) -> Value {
    let sourced = |value: &Sourced<String>| json!({ "value": value.value, "from": place(value.at, sources) });
    let list = |values: &[Sourced<String>]| values.iter().map(sourced).collect::<Vec<_>>();
    json!({
        "pool": pool,
        "machineConfigs": rendered.members,
        "kernelArguments": list(&rendered.kernel_arguments),
        "extensions": list(&rendered.extensions),
        "fips": rendered.fips,
        "kernelType": rendered.kernel_type.as_ref().map(sourced),
        "osImageURL": rendered.os_image_url.as_ref().map(sourced),
        "config": rendered.config.root.to_json(),
    })
}

fn place(at: Location, sources: &SourceMap) -> String {
    let at = sources.outer(at);
    format!("{}:{}", sources.file(at.file).name, sources.line_column(at).line)
}
