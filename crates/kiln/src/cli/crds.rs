//! `kiln crds`: the definitions of Kiln's kinds, for a real cluster.

use anyhow::Context;
use clap::{Args, ValueEnum};
use kiln_api::definitions::definitions;
use kiln_core::document::emit::to_yaml;
use serde_json::{Value, json};

use super::Outcome;
use super::output::{self, Failure};

/// What `kiln crds` takes.
#[derive(Debug, Args)]
pub struct CrdsArgs {
    /// Only Kiln's own kinds (the default): on OpenShift the dialect kinds belong to other operators
    #[arg(long, conflicts_with = "all")]
    native: bool,
    /// Kiln's own kinds and those of the dialects, for a cluster that has none of them
    #[arg(long)]
    all: bool,
    /// How they are printed
    #[arg(short, long, value_enum, default_value = "yaml")]
    output: CrdFormat,
}

/// How definitions are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CrdFormat {
    /// One document each.
    Yaml,
    /// One List.
    Json,
}

/// Prints them.
pub fn run(args: &CrdsArgs) -> Result<Outcome, Failure> {
    let all = definitions().context("the definitions in this program cannot be read")?;
    // `--native` says what happens anyway, for scripts that want to be clear.
    let chosen: Vec<Value> =
        all.into_iter().filter(|definition| args.all || definition.native).map(|d| d.manifest).collect();
    let text = match args.output {
        CrdFormat::Yaml => chosen.iter().map(|manifest| format!("---\n{}", to_yaml(manifest))).collect(),
        CrdFormat::Json => {
            let list = json!({"apiVersion": "v1", "kind": "List", "items": chosen});
            serde_json::to_string_pretty(&list)? + "\n"
        }
    };
    output::print(&text)?;
    Ok(Outcome::Done)
}
