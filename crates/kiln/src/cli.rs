//! The command line: what can be typed, and which file answers it.
//!
//! Exit codes: 0 done, 1 refused (the input is wrong or missing), 2 Kiln or the machine failed, or clap refused the
//! command line.

use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

mod access;
mod agent;
mod approve;
mod backup;
mod boot;
mod check;
mod completions;
mod crds;
mod doctor;
mod explain;
mod firstboot;
mod ignition;
mod image;
pub mod load;
mod net;
pub mod output;
mod plan;
mod report;
mod restore;
mod serve;
mod status;
mod token;
mod watch;
mod why;

/// Fires bare machines into cluster nodes and keeps their network right.
#[derive(Debug, Parser)]
#[command(name = "kiln", version, propagate_version = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Find every problem in folders of manifests, before anything boots
    ///
    /// Findings for people go to standard error, findings for programs (json, sarif, github) to standard output.
    Check(check::CheckArgs),
    /// Show each host's network at every phase and the steps Kiln would take
    Plan(plan::PlanArgs),
    /// Tell the long story of one diagnostic
    Explain(explain::ExplainArgs),
    /// Change the network of this running machine, prove it, or put it back
    #[command(subcommand)]
    Agent(agent::AgentCommand),
    /// Turn nmstate YAML into NetworkManager keyfiles and back, merge and compare
    #[command(subcommand)]
    Net(net::NetCommand),
    /// Predict the first boot of a stock CoreOS machine
    #[command(subcommand)]
    Boot(boot::BootCommand),
    /// Copy, hand over and report the network of a first boot, in the machine's initramfs
    #[command(subcommand)]
    Firstboot(kiln_firstboot::FirstbootCommand),
    /// Validate, merge, convert and render Ignition configs
    #[command(subcommand)]
    Ignition(ignition::IgnitionCommand),
    /// Put a machine's network, Ignition config and kernel arguments into CoreOS images
    #[command(subcommand)]
    Image(image::ImageCommand),
    /// Run the hub: a Kubernetes-compatible API with its state in one folder
    ///
    /// Writes DIR/kubeconfig for the administrator. SIGTERM or Ctrl-C ends it gracefully.
    Serve(serve::ServeArgs),
    /// Print the CustomResourceDefinitions of Kiln's kinds, for a real cluster
    Crds(crds::CrdsArgs),
    /// Write everything a hub keeps into one file, also while it runs
    Backup(backup::BackupArgs),
    /// Put a backup back: into a running hub, or into the data folder of one that does not run
    Restore(restore::RestoreArgs),
    /// Show every host of a hub and where it stands, or one host with all that is known
    Status(status::StatusArgs),
    /// Explain why a host is not ready: missing stage, likeliest cause, next step
    Why(why::WhyArgs),
    /// Let people and programs use the hub's API, and take that back
    #[command(subcommand)]
    Access(access::AccessCommand),
    /// List, take back and make the tokens machines fetch their config with
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Vouch for a certificate request of a host that waits for a person
    Approve(approve::ApproveArgs),
    /// Look for known faults in the cluster that hosts join, and mend those that can be mended safely
    Doctor(doctor::DoctorArgs),
    /// Show changes of hosts as they happen, until Ctrl-C
    Watch(watch::WatchArgs),
    /// Print shell completions
    Completions(completions::CompletionsArgs),
}

/// How a command that did not fail ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Everything was done.
    Done,
    /// The input is wrong; what is wrong has been printed.
    Refused,
}

/// A structured output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PrintFormat {
    /// For reading.
    Human,
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
}

/// Parses the command line, runs the command, prints what went wrong and says how it ended.
pub fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Check(args) => check::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Agent(command) => agent::run(&command),
        Command::Net(command) => net::run(&command),
        Command::Boot(command) => boot::run(&command),
        Command::Firstboot(command) => firstboot::run(&command),
        Command::Ignition(command) => ignition::run(&command),
        Command::Image(command) => image::run(&command),
        Command::Serve(args) => serve::run(&args),
        Command::Crds(args) => crds::run(&args),
        Command::Backup(args) => backup::run(&args),
        Command::Restore(args) => restore::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Why(args) => why::run(&args),
        Command::Access(command) => access::run(&command),
        Command::Token(command) => token::run(&command),
        Command::Approve(args) => approve::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Watch(args) => watch::run(&args),
        Command::Completions(args) => completions::run(&args),
    };
    match outcome {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Refused) => ExitCode::from(1),
        Err(failure) => output::print_failure(&failure),
    }
}
