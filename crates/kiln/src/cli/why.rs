//! `kiln why HOST`: the first stage a host has not reached, the likeliest cause and the next step.

use std::fmt::Write;

use clap::Args;
use kiln_core::document::emit::to_yaml;
use kiln_core::timeline::{Likelihood, Situation, Stage, Timeline, Why, why};
use serde_json::{Value, json};

use super::output::{self, Failure};
use super::status::connection::{self, Connection, Host};
use super::status::{render_entry, render_reports};
use super::{Outcome, PrintFormat};
use crate::hub::beacon::{read_boot, read_declared};
use crate::hub::mirror::DRIVEN;
use crate::hub::timeline::{now, read_timeline};

/// What `kiln why` takes.
#[derive(Debug, Args)]
pub struct WhyArgs {
    /// The host: NAME or NAMESPACE/NAME
    host: String,
    #[command(flatten)]
    connection: Connection,
    /// How it is printed
    #[arg(short, long, value_enum, default_value = "human")]
    output: PrintFormat,
}

/// Explains one host.
pub fn run(args: &WhyArgs) -> Result<Outcome, Failure> {
    let hosts = args.connection.block_on(async |client| connection::fetch_objects(&client).await)?;
    let (plain, specs): (Vec<Host>, Vec<Value>) = hosts.into_iter().unzip();
    let host = connection::choose(&plain, &args.host)?;
    let spec = plain.iter().position(|other| other == host).map_or(&Value::Null, |index| &specs[index]);
    let timeline = read_timeline(&host.status);
    let answer = why(&timeline, &situation(host, spec), now());
    match args.output {
        PrintFormat::Human => output::print(&render(host, &timeline, &answer))?,
        PrintFormat::Json => output::print(&format!("{:#}\n", to_json(host, &answer)))?,
        PrintFormat::Yaml => output::print(&to_yaml(&to_json(host, &answer)))?,
    }
    Ok(Outcome::Done)
}

fn situation(host: &Host, spec: &Value) -> Situation {
    let findings = host.status["findings"].as_array().into_iter().flatten();
    let errors: Vec<&Value> = findings.filter(|finding| finding["severity"] == "Error").collect();
    let text = |finding: &Value, key: &str| finding[key].as_str().unwrap_or_default().to_owned();
    Situation {
        host: host.name.clone(),
        errors: errors
            .iter()
            .map(|finding| format!("{}: {}", text(finding, "code"), text(finding, "message")))
            .collect(),
        fix: errors.first().and_then(|finding| finding["help"].as_str()).map(str::to_owned),
        has_bmc: spec["bmc"]["address"].is_string(),
        driven: DRIVEN.to_vec(),
        boot: read_boot(&host.status),
        declared: read_declared(spec),
    }
}

fn render(host: &Host, timeline: &Timeline, answer: &Why) -> String {
    let mut text = format!("{}/{}\n", host.namespace, host.name);
    for entry in timeline.entries() {
        text.push_str(&render_entry(entry));
    }
    text.push_str(&render_reports(&host.status));
    let Some(missing) = answer.missing else {
        text.push_str("\nnothing is missing: its Node is ready\n");
        return text;
    };
    let waiting = answer.waiting.map(|seconds| format!(", for {}", duration(seconds))).unwrap_or_default();
    let cause = match answer.likelihood {
        Likelihood::Known => "cause",
        Likelihood::Likely => "likely cause",
        Likelihood::Waiting => "so far",
    };
    let indented = |text: &str| text.replace('\n', "\n  ");
    let _ = writeln!(text, "\nmissing: {missing}{waiting}");
    let _ = writeln!(text, "{cause}: {}", indented(&answer.cause));
    let _ = writeln!(text, "next step: {}", indented(&answer.step));
    text
}

/// For programs. Scripts rely on these names.
fn to_json(host: &Host, answer: &Why) -> Value {
    let likelihood = match answer.likelihood {
        Likelihood::Known => "known",
        Likelihood::Likely => "likely",
        Likelihood::Waiting => "waiting",
    };
    json!({"namespace": host.namespace, "name": host.name, "missing": answer.missing.map(Stage::name),
        "waitingSeconds": answer.waiting, "likelihood": likelihood, "cause": answer.cause, "step": answer.step,
        "timeline": host.status["timeline"], "boot": host.status["boot"]})
}

/// `3 d 4 h`, `5 min`, `7 s`: as exact as anybody wants it.
pub fn duration(seconds: i64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min"),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_names_stage_cause_and_step() {
        let host = Host {
            namespace: "ztp".into(),
            name: "w0".into(),
            status: json!({"timeline": [{"stage": "Declared", "time": "2026-01-02T03:04:05Z", "source": "Host ztp/w0", "cause": "the object was created"}],
                "findings": [{"severity": "Warning", "code": "KLN0001", "message": "w"}, {"severity": "Error", "code": "KLN0315", "message": "twice", "help": "give one\nanother"}]}),
        };
        let timeline = read_timeline(&host.status);
        let then = crate::hub::timeline::parse_time("2026-01-02T05:05:05Z").unwrap();
        let answer = why(&timeline, &situation(&host, &Value::Null), then);
        let expected = "\
ztp/w0
  2026-01-02T03:04:05Z  Declared         the object was created (Host ztp/w0)

missing: PoweredOn, for 2 h 1 min
cause: KLN0315: twice
next step: give one
  another
";
        assert_eq!(render(&host, &timeline, &answer), expected);
        assert_eq!(to_json(&host, &answer)["waitingSeconds"], 7260);
    }

    #[test]
    fn durations_are_as_exact_as_anybody_wants_them() {
        for (seconds, expected) in [(7, "7 s"), (301, "5 min"), (7260, "2 h 1 min"), (273_601, "3 d 4 h")] {
            assert_eq!(duration(seconds), expected);
        }
    }
}
