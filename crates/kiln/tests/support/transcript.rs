//! Transcripts of a shell: commands with what they print, read from a file and written back.

use std::sync::LazyLock;

use regex::Regex;

/// A command and its output, or lines that only explain (an empty script).
#[derive(Debug, PartialEq)]
pub struct Step {
    /// What the shell runs.
    pub script: String,
    /// What it prints, and the code it ends with.
    pub printed: String,
}

/// Reads a transcript: `$ ` begins a command, `> ` continues it, `# ` explains, the rest is output.
pub fn parse_transcript(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let (mut in_command, mut explaining) = (false, false);
    for line in text.lines() {
        let continued = explaining && line.starts_with('#');
        explaining = line.starts_with("# ");
        let command = line.strip_prefix("$ ");
        let more = line.strip_prefix("> ").filter(|_| in_command);
        match (command, more, steps.last_mut()) {
            (Some(script), ..) => {
                steps.push(Step { script: script.into(), printed: String::new() });
                in_command = true;
            }
            (_, Some(script), Some(step)) => {
                step.script.push('\n');
                step.script.push_str(script);
            }
            (_, _, Some(step)) if continued || (!explaining && !step.script.is_empty()) => {
                step.printed.push_str(line);
                step.printed.push('\n');
                in_command = false;
            }
            _ => {
                steps.push(Step { script: String::new(), printed: format!("{line}\n") });
                in_command = false;
            }
        }
    }
    // An empty line before an explanation belongs to the layout, not to the output.
    for step in &mut steps {
        let kept = step.printed.trim_end_matches('\n').len();
        let ending = if kept == 0 { "" } else { "\n" };
        step.printed.replace_range(kept.., ending);
    }
    steps.retain(|step| !(step.script.is_empty() && step.printed.is_empty()));
    steps
}

/// Writes a transcript.
pub fn render_transcript(steps: &[Step]) -> String {
    let mut text = String::new();
    let mut explained = false;
    for Step { script, printed } in steps {
        if script.is_empty() {
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(printed);
            explained = true;
            continue;
        }
        if explained {
            text.push('\n');
        }
        explained = false;
        text.push_str(&format!("$ {}\n{printed}", script.replace('\n', "\n> ")));
    }
    text
}

/// Replaces what differs from run to run.
pub fn normalise(text: &str) -> String {
    static RULES: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
        [
            (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UID"),
            // A date in the past is part of a fixture.
            (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
            (r"(resourceVersion.?:) ?.\d+(.)", "$1 ${2}RV$2"),
            (r"(Resource Version:\s+)\d+", "${1}RV"),
            (r"127\.0\.0\.1:\d+", "127.0.0.1:PORT"),
            // Ages, and the padding after them.
            (r"(?m)(^|\s)(\d+d(\d+h)?|\d+h(\d+m)?|\d+m(\d+s)?|\d+s)(  +|$)", "${1}AGE$6"),
            (r"(?m)(^|\s)AGE   +", "${1}AGE  "),
            (r"\d+d \(x(\d+) over \d+d\)", "AGE (x$1 over AGE)"),
            (r"kubectl/v\S+", "kubectl/VERSION"),
            (r"(Client Version|Kustomize Version): \S+", "$1: VERSION"),
            (r"\x1b\[[0-9;]*m", ""),
        ]
        .map(|(pattern, with)| (Regex::new(pattern).unwrap(), with))
        .into()
    });
    let mut text = text.to_owned();
    for (rule, with) in RULES.iter() {
        text = rule.replace_all(&text, *with).into_owned();
    }
    // What ends a line in silence does not survive editors.
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let text = lines.join("\n");
    let text = text.trim_end();
    if text.is_empty() { String::new() } else { format!("{text}\n") }
}

#[test]
fn transcripts_are_read_back_as_written() {
    let text = "# about\n# more\n\n# first\n\n$ a\n> b\nout\n\nput\n[1]\n$ c\n\n# next\n\n$ d\nx\n";
    let steps = parse_transcript(text);
    assert_eq!(steps[2], Step { script: "a\nb".into(), printed: "out\n\nput\n[1]\n".into() });
    assert_eq!(steps[3], Step { script: "c".into(), printed: String::new() });
    assert_eq!(render_transcript(&steps), text);
    assert_eq!(normalise("a  12s   x\nb  3m2s\n"), "a  AGE  x\nb  AGE\n");
    assert_eq!(
        normalise("  resourceVersion: \"17\"\n\"resourceVersion\":\"17\""),
        "  resourceVersion: \"RV\"\n\"resourceVersion\": \"RV\"\n"
    );
}
