//! `kiln status`: every host and where it stands, or one host with all that is known of it.

use std::fmt::Write;

use anyhow::anyhow;
use clap::Args;
use kiln_core::document::emit::to_yaml;
use kiln_core::timeline::first_boot::told;
use serde_json::{Value, json};

use super::output::{self, Failure};
use super::{Outcome, PrintFormat};
use crate::hub::beacon::read_boot;
use crate::hub::timeline::{read_timeline, render_time};
use connection::{Connection, Host};

pub mod connection;

/// What `kiln status` takes.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Only this host, with everything known of it: NAME or NAMESPACE/NAME
    host: Option<String>,
    #[command(flatten)]
    connection: Connection,
    /// How it is printed
    #[arg(short, long, value_enum, default_value = "human")]
    output: PrintFormat,
}

/// Prints. A host that is declared wrongly is not a failure of this command; a host that is not there is a refusal.
pub fn run(args: &StatusArgs) -> Result<Outcome, Failure> {
    let hosts = args.connection.block_on(async |client| connection::fetch_hosts(&client).await)?;
    match &args.host {
        Some(name) => print_one(connection::choose(&hosts, name)?, args.output)?,
        None => print_all(&hosts, args.output)?,
    }
    Ok(Outcome::Done)
}

fn print_all(hosts: &[Host], format: PrintFormat) -> Result<(), Failure> {
    let values = || json!({"hosts": hosts.iter().map(to_json).collect::<Vec<_>>()});
    match format {
        PrintFormat::Human => output::print(&render_table(hosts))?,
        PrintFormat::Json => output::print(&format!("{:#}\n", values()))?,
        PrintFormat::Yaml => output::print(&to_yaml(&values()))?,
    }
    Ok(())
}

fn print_one(host: &Host, format: PrintFormat) -> Result<(), Failure> {
    match format {
        PrintFormat::Human => output::print(&render_host(host))?,
        PrintFormat::Json => output::print(&format!("{:#}\n", to_json(host)))?,
        PrintFormat::Yaml => output::print(&to_yaml(&to_json(host)))?,
    }
    Ok(())
}

/// A host for programs. Scripts rely on these names.
fn to_json(host: &Host) -> Value {
    let status = &host.status;
    json!({"namespace": host.namespace, "name": host.name, "stage": status["stage"],
        "conditions": status["conditions"], "findings": status["findings"], "timeline": status["timeline"], "boot": status["boot"]})
}

fn render_table(hosts: &[Host]) -> String {
    if hosts.is_empty() {
        return "no hosts are declared; apply a BareMetalHost, an NMStateConfig or a Host\n".into();
    }
    let heading = ["NAMESPACE", "HOST", "STAGE", "VALID", "READY", "FINDINGS"].map(String::from);
    let rows: Vec<[String; 6]> = std::iter::once(heading).chain(hosts.iter().map(row)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..6).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        let line = cells.collect::<Vec<_>>().join("   ");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn row(host: &Host) -> [String; 6] {
    let stage = host.status["stage"].as_str().unwrap_or("-").to_owned();
    let findings = host.status["findings"].as_array().map_or(&[][..], Vec::as_slice);
    let count = |severity: &str| findings.iter().filter(|finding| finding["severity"] == severity).count();
    let told: Vec<String> = [("Error", "error"), ("Warning", "warning"), ("Note", "note")]
        .into_iter()
        .map(|(severity, word)| (count(severity), word))
        .filter(|(number, _)| *number > 0)
        .map(|(number, word)| format!("{number} {word}{}", if number == 1 { "" } else { "s" }))
        .collect();
    let told = if told.is_empty() { "-".to_owned() } else { told.join(", ") };
    [host.namespace.clone(), host.name.clone(), stage, condition(host, "Valid"), condition(host, "Ready"), told]
}

fn condition(host: &Host, kind: &str) -> String {
    let conditions = host.status["conditions"].as_array().into_iter().flatten();
    let found = conditions.into_iter().find(|condition| condition["type"] == kind);
    found.and_then(|condition| condition["status"].as_str()).unwrap_or("-").to_owned()
}

fn render_host(host: &Host) -> String {
    let mut text = String::new();
    let stage = host.status["stage"].as_str().unwrap_or("not looked at yet");
    let _ = writeln!(text, "{}/{}   {stage}", host.namespace, host.name);
    for condition in host.status["conditions"].as_array().into_iter().flatten() {
        let word = |key: &str| condition[key].as_str().unwrap_or_default();
        let _ = writeln!(text, "  {}: {} ({}): {}", word("type"), word("status"), word("reason"), word("message"));
    }
    let timeline = read_timeline(&host.status);
    if !timeline.entries().is_empty() {
        text.push_str("\ntimeline\n");
    }
    for entry in timeline.entries() {
        text.push_str(&render_entry(entry));
    }
    text.push_str(&render_reports(&host.status));
    let findings = host.status["findings"].as_array().map_or(&[][..], Vec::as_slice);
    if !findings.is_empty() {
        text.push_str("\nfindings\n");
    }
    for finding in findings {
        let word = |key: &str| finding[key].as_str().unwrap_or_default();
        let _ = writeln!(text, "  {}[{}]: {}", word("severity").to_lowercase(), word("code"), word("message"));
        if !word("field").is_empty() {
            let _ = writeln!(text, "    at {}", word("field"));
        }
        if !word("help").is_empty() {
            let _ = writeln!(text, "    help: {}", word("help").replace('\n', "\n    "));
        }
    }
    text
}

/// One line of a timeline.
pub fn render_entry(entry: &kiln_core::timeline::Entry) -> String {
    let failed = match entry.outcome {
        kiln_core::timeline::Outcome::Reached => "",
        kiln_core::timeline::Outcome::Failed => "failed: ",
    };
    let time = render_time(entry.time);
    format!("  {time}  {:<16} {failed}{} ({})\n", entry.stage, entry.cause, entry.source)
}

/// What the machine said about its newest boot, a line for each report.
pub fn render_reports(status: &Value) -> String {
    let Some(boot) = read_boot(status) else { return String::new() };
    let mut text = String::from("\nreports of its newest boot\n");
    for (seen, late) in boot
        .kept
        .iter()
        .map(|seen| (seen, ", kept by an earlier boot"))
        .chain(boot.reports.iter().map(|seen| (seen, "")))
    {
        let (time, point) = (render_time(seen.time), format!("{:?}", seen.report.point));
        let _ = writeln!(
            text,
            "  {time}  {point:<16} {} (after {} s{late})",
            told(&seen.report),
            seen.report.uptime_ms / 1000
        );
    }
    text
}

/// Names of hosts for a message, not more than fit.
pub fn names(hosts: &[Host]) -> String {
    const SHOWN: usize = 10;
    let shown: Vec<String> = hosts.iter().take(SHOWN).map(|host| format!("{}/{}", host.namespace, host.name)).collect();
    let more = hosts.len().saturating_sub(SHOWN);
    if more == 0 { shown.join(", ") } else { format!("{} and {more} more", shown.join(", ")) }
}

/// A host that is not there.
pub fn no_such_host(name: &str, hosts: &[Host]) -> Failure {
    Failure::refused(match hosts {
        [] => anyhow!("there is no host `{name}`: no hosts are declared"),
        hosts => anyhow!("there is no host `{name}`; there are {}", names(hosts)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str, status: Value) -> Host {
        Host { namespace: "ztp".into(), name: name.into(), status }
    }

    fn refused() -> Host {
        host(
            "worker-0",
            json!({"stage": "Declared",
                "conditions": [
                    {"type": "Ready", "status": "False", "reason": "StageMissing", "message": "waits for PoweredOn"},
                    {"type": "Valid", "status": "False", "reason": "FindingsOfSeverityError", "message": "KLN0315: twice"}],
                "findings": [
                    {"code": "KLN0315", "severity": "Error", "message": "twice", "field": "spec.bootMACAddress", "help": "give\nanother"},
                    {"code": "KLN0501", "severity": "Note", "message": "n"}],
                "timeline": [{"stage": "Declared", "time": "2026-01-02T03:04:05Z", "source": "BareMetalHost ztp/worker-0", "cause": "the object was created"}]}),
        )
    }

    #[test]
    fn the_table_has_a_line_per_host() {
        let hosts = [refused(), host("b", Value::Null)];
        let expected = "\
NAMESPACE   HOST       STAGE      VALID   READY   FINDINGS
ztp         worker-0   Declared   False   False   1 error, 1 note
ztp         b          -          -       -       -
";
        assert_eq!(render_table(&hosts), expected);
        assert_eq!(render_table(&[]), "no hosts are declared; apply a BareMetalHost, an NMStateConfig or a Host\n");
    }

    #[test]
    fn one_host_is_told_whole() {
        let expected = "\
ztp/worker-0   Declared
  Ready: False (StageMissing): waits for PoweredOn
  Valid: False (FindingsOfSeverityError): KLN0315: twice

timeline
  2026-01-02T03:04:05Z  Declared         the object was created (BareMetalHost ztp/worker-0)

findings
  error[KLN0315]: twice
    at spec.bootMACAddress
    help: give
    another
  note[KLN0501]: n
";
        assert_eq!(render_host(&refused()), expected);
    }
}
