//! `kiln doctor CLUSTER`: known faults of the cluster that hosts join, and `--fix` for those that can be mended safely.
//!
//! What is a fault is decided by `kiln_core::doctor`. Nothing is written without `--fix`, and what is there is never changed.

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use kiln_core::diagnostic::Severity;
use kiln_core::doctor::{Fault, Patient, examine};
use kiln_core::document::emit::to_yaml;
use kube::Client;
use serde_json::{Value, json};

use super::output::{self, Failure};
use super::status::connection::Connection;
use super::{Outcome, PrintFormat};
use crate::hub::timeline::now;
use mend::mend;
use observe::{Clusters, observe_patient, target};

mod mend;
mod observe;

/// What `kiln doctor` takes.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// The cluster: NAME or NAMESPACE/NAME, with its kubeconfig in the hub's Secret NAME-admin-kubeconfig
    cluster: String,
    /// Kubeconfig of the cluster itself; no hub is asked then unless one is named
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Kubeconfig of the hub [default: KUBECONFIG, then ~/.kube/config]
    #[arg(long, value_name = "FILE", conflicts_with = "data_dir")]
    hub_kubeconfig: Option<PathBuf>,
    /// Use the hub's kubeconfig that `kiln serve` wrote into this folder
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Kubeconfig of the cluster in which the hosted control plane runs [default: the hub]
    #[arg(long, value_name = "FILE")]
    management_kubeconfig: Option<PathBuf>,
    /// Namespace of the hosted control plane [default: NAMESPACE-NAME, as HyperShift names it]
    #[arg(long, value_name = "NAMESPACE")]
    control_plane_namespace: Option<String>,
    /// Mend what can be mended without making anything worse
    #[arg(long)]
    fix: bool,
    /// How it is printed
    #[arg(short, long, value_enum, default_value = "human")]
    output: PrintFormat,
}

/// Looks, tells, and mends if asked to. Errors that are left are a refusal.
pub fn run(args: &DoctorArgs) -> Result<Outcome, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (patient, faults, mended) = runtime.block_on(examine_and_mend(args))?;
    match args.output {
        PrintFormat::Human => output::print(&render(&args.cluster, &patient, &faults, &mended))?,
        PrintFormat::Json => output::print(&format!("{:#}\n", to_json(&faults, &mended)))?,
        PrintFormat::Yaml => output::print(&to_yaml(&to_json(&faults, &mended)))?,
    }
    let left =
        faults.iter().zip(&mended).any(|(fault, mended)| fault.severity() == Severity::Error && mended.is_none());
    Ok(if left { Outcome::Refused } else { Outcome::Done })
}

/// What was seen, what is wrong with it, and what was done about each.
async fn examine_and_mend(args: &DoctorArgs) -> Result<(Patient, Vec<Fault>, Vec<Option<String>>), Failure> {
    let (namespace, name) = match args.cluster.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, args.cluster.as_str()),
    };
    let hub = hub(args).await?;
    let (namespace, target) = match &args.kubeconfig {
        Some(file) => {
            let client = Connection::new(Some(file.clone()), None).client().await?;
            (namespace.unwrap_or("clusters").to_owned(), client)
        }
        None => {
            let hub = hub.as_ref().ok_or_else(|| Failure::refused(anyhow!("no hub and no --kubeconfig was named")))?;
            target(hub, namespace, name).await?
        }
    };
    let management = match &args.management_kubeconfig {
        Some(file) => Some(Connection::new(Some(file.clone()), None).client().await?),
        None => hub.clone(),
    };
    let control_plane = args.control_plane_namespace.clone().unwrap_or_else(|| format!("{namespace}-{name}"));
    let clusters = Clusters { hub, target, management, control_plane };
    let patient = observe_patient(&clusters).await?;
    let faults = examine(&patient, now());
    let mut mended = Vec::with_capacity(faults.len());
    for fault in &faults {
        mended.push(match &fault.mend {
            Some(wanted) if args.fix => Some(mend(&clusters, wanted).await?),
            _ => None,
        });
    }
    Ok((patient, faults, mended))
}

/// The hub, unless the cluster's own kubeconfig is enough.
async fn hub(args: &DoctorArgs) -> Result<Option<Client>, Failure> {
    let named = args.hub_kubeconfig.is_some() || args.data_dir.is_some();
    if args.kubeconfig.is_some() && !named {
        return Ok(None);
    }
    let hub = Connection::new(args.hub_kubeconfig.clone(), args.data_dir.clone());
    Ok(Some(hub.client().await?))
}

fn render(cluster: &str, patient: &Patient, faults: &[Fault], mended: &[Option<String>]) -> String {
    let mut text = String::new();
    for (fault, mended) in faults.iter().zip(mended) {
        let Fault { code, found, why, fix, .. } = fault;
        let _ = writeln!(text, "{}[{code}]: {found}\n  why: {why}", severity(fault));
        let _ = match mended {
            Some(done) => writeln!(text, "  mended: {done}\n"),
            None => writeln!(text, "  fix: {fix}\n"),
        };
    }
    let waiting = patient.requests.iter().filter(|request| !request.decided).count();
    let looked = format!("{cluster}: {} nodes, {waiting} requests that wait", patient.nodes.len());
    let _ = match faults.len() {
        0 => writeln!(text, "{looked}; no known fault was found"),
        1 => writeln!(text, "{looked}; 1 fault, `kiln explain CODE` tells its story"),
        number => writeln!(text, "{looked}; {number} faults, `kiln explain CODE` tells their stories"),
    };
    text
}

fn severity(fault: &Fault) -> &'static str {
    match fault.severity() {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "note",
    }
}

/// For programs. Scripts rely on these names.
fn to_json(faults: &[Fault], mended: &[Option<String>]) -> Value {
    let faults = faults.iter().zip(mended).map(|(fault, mended)| {
        json!({"code": fault.code.to_string(), "severity": severity(fault), "found": fault.found, "why": fault.why,
            "fix": fault.fix, "mendable": fault.mend.is_some(), "mended": mended})
    });
    json!({"faults": faults.collect::<Vec<_>>()})
}
