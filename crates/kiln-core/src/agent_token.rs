//! Agent tokens: what the agent on a running node shows when it asks the hub for its network, and what it may say.
//!
//! A [`crate::signed_token`] with `ka1.` before it, whose message is `namespace/host/uid/generation`. One for an earlier
//! generation, or for a Host that was deleted meanwhile, is worth nothing: `kiln token agent --renew` counts the generation up.
//!
//! Also the bounds of what an agent sends: [`parse_report`] and [`parse_state`] read any bytes or say why not.

use crate::assignment::{NodeState, Phase, Report};
use crate::machine::{MachinePhase, MachineReport};
use crate::signed_token;

/// What every token begins with, so that scanners for leaked secrets recognise it.
pub const PREFIX: &str = "ka1.";
/// The annotation of a Host that counts the generations of its token.
pub const GENERATION_ANNOTATION: &str = "kiln.dev/agent-token-generation";
/// The longest report, in bytes.
pub const LONGEST_REPORT: usize = 256 << 10;
/// The longest state of a node, in bytes.
pub const LONGEST_STATE: usize = 4 << 20;
/// The longest text that is kept of a report.
const LONGEST_TEXT: usize = 2048;
/// How many lines of a report are kept.
const MOST_LINES: usize = 64;

/// Whom a token speaks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bearer {
    /// Namespace of the Host.
    pub namespace: String,
    /// Name of the Host.
    pub host: String,
    /// Of the Host.
    pub uid: String,
    /// Of the token.
    pub generation: u64,
}

impl Bearer {
    /// What the code is made over.
    pub fn message(&self) -> String {
        format!("{}/{}/{}/{}", self.namespace, self.host, self.uid, self.generation)
    }

    /// The token with this code. Secret.
    pub fn render(&self, code: &[u8]) -> String {
        signed_token::render(PREFIX, &self.message(), code)
    }
}

/// What a token says, not yet believed.
pub type Claim = signed_token::Claim<Bearer>;

impl Claim {
    /// Takes a token apart. Strict: one text for each claim; none for what is no agent token.
    pub fn parse(text: &str) -> Option<Claim> {
        let (message, code) = signed_token::parse(PREFIX, text)?;
        let mut parts = message.split('/').map(str::to_owned);
        let (namespace, host, uid, generation) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let bearer = Bearer { namespace, host, uid, generation: generation.parse().ok()? };
        let named = ![&bearer.namespace, &bearer.host, &bearer.uid].into_iter().any(String::is_empty);
        (named && bearer.message() == message).then_some(Claim { bearer, code })
    }
}

/// Why something an agent sent is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// Too many bytes.
    #[error("at most {0} bytes are taken")]
    TooLong(usize),
    /// Not what it should be.
    #[error("this is no {what}: {why}")]
    NotRead {
        /// `report`.
        what: &'static str,
        /// What the parser said.
        why: String,
    },
}

/// Reads a report. Long texts are cut, so that whatever keeps it stays small.
pub fn parse_report(bytes: &[u8]) -> Result<Report, Wrong> {
    if bytes.len() > LONGEST_REPORT {
        return Err(Wrong::TooLong(LONGEST_REPORT));
    }
    let mut report: Report = serde_json::from_slice(bytes)
        .map_err(|error| Wrong::NotRead { what: "report of a change", why: error.to_string() })?;
    cut(&mut report.revision);
    cut_lines(&mut report.changes);
    match &mut report.phase {
        Phase::RolledBack(why) | Phase::Refused(why) => cut(why),
        Phase::Drifted(lines) => cut_lines(lines),
        Phase::Planned | Phase::Trying | Phase::Applied => {}
    }
    Ok(report)
}

/// Reads a report about files and units, within the same bounds.
pub fn parse_machine_report(bytes: &[u8]) -> Result<MachineReport, Wrong> {
    if bytes.len() > LONGEST_REPORT {
        return Err(Wrong::TooLong(LONGEST_REPORT));
    }
    let mut report: MachineReport = serde_json::from_slice(bytes)
        .map_err(|error| Wrong::NotRead { what: "report of a machine", why: error.to_string() })?;
    cut(&mut report.revision);
    cut_lines(&mut report.changes);
    match &mut report.phase {
        MachinePhase::RolledBack(why) | MachinePhase::Refused(why) => cut(why),
        MachinePhase::Drifted(lines) => cut_lines(lines),
        MachinePhase::Planned | MachinePhase::Working | MachinePhase::Rebooting | MachinePhase::Applied => {}
    }
    Ok(report)
}

/// Reads the state of a node.
pub fn parse_state(bytes: &[u8]) -> Result<NodeState, Wrong> {
    if bytes.len() > LONGEST_STATE {
        return Err(Wrong::TooLong(LONGEST_STATE));
    }
    let wrong = |why: String| Wrong::NotRead { what: "state of a node", why };
    let mut state: NodeState = serde_json::from_slice(bytes).map_err(|error| wrong(error.to_string()))?;
    if !state.current.is_object() {
        return Err(wrong("`current` is no document".into()));
    }
    cut(&mut state.network_manager_version);
    cut(&mut state.agent_version);
    Ok(state)
}

fn cut_lines(lines: &mut Vec<String>) {
    lines.truncate(MOST_LINES);
    lines.iter_mut().for_each(cut);
}

fn cut(text: &mut String) {
    let end = (0..=LONGEST_TEXT.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text.truncate(end.unwrap_or(0));
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    use super::*;
    use crate::signed_token::LONGEST;

    #[test]
    fn a_token_is_one_text_and_its_code_is_never_printed() {
        let bearer = Bearer { namespace: "site".into(), host: "w0".into(), uid: "u-1".into(), generation: 7 };
        let text = bearer.render(&[0xab; 32]);
        let claim = Claim::parse(&text).unwrap();
        assert_eq!((&claim.bearer, claim.code.as_slice()), (&bearer, &[0xab; 32][..]));
        assert!(!format!("{claim:?}").contains("171"), "{claim:?}");
        let of = |message: &str| format!("ka1.{}.q6s", URL_SAFE_NO_PAD.encode(message));
        assert!(Claim::parse(&of("site/w0/u/7")).is_some());
        for wrong in [
            String::new(),
            "ka1.".into(),
            "ka1..".into(),
            text.replace("ka1", "kb1"),
            format!("{text}="),
            format!(" {text}"),
            format!("{text}.q6s"),
            of("site/w0/7"),
            of("site/w0/u/7/"),
            of("site/w0/u/07"),
            of("site/w0/u/+7"),
            of("/w0/u/7"),
            of("site//u/7"),
            of("site/w0//7"),
            of(&format!("site/{}/u/7", "w".repeat(LONGEST))),
        ] {
            assert_eq!(Claim::parse(&wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_agents_send_is_read_within_bounds() {
        let report = |phase: &str| format!(r#"{{"revision": "r", "phase": {phase}, "disruption": "none"}}"#);
        assert_eq!(parse_report(report("\"planned\"").as_bytes()).unwrap().phase, Phase::Planned);
        let long = format!("{{\"rolledBack\": \"{}\"}}", "é".repeat(LONGEST_TEXT));
        let Phase::RolledBack(why) = parse_report(report(&long).as_bytes()).unwrap().phase else { panic!("{long}") };
        assert_eq!(why.len(), LONGEST_TEXT);
        for (bytes, expected) in [
            (vec![b' '; LONGEST_REPORT + 1], "at most 262144 bytes are taken"),
            (b"{}".to_vec(), "this is no report of a change: missing field `revision` at line 1 column 2"),
        ] {
            assert_eq!(parse_report(&bytes).unwrap_err().to_string(), expected);
        }
        let machine = |phase: &str| format!(r#"{{"revision": "r", "phase": {phase}, "needs": "drain"}}"#);
        assert_eq!(parse_machine_report(machine("\"rebooting\"").as_bytes()).unwrap().phase, MachinePhase::Rebooting);
        let MachinePhase::RolledBack(why) = parse_machine_report(machine(&long).as_bytes()).unwrap().phase else {
            panic!("{long}")
        };
        assert_eq!(why.len(), LONGEST_TEXT);
        let many = serde_json::json!({"drifted": vec!["/etc/a is gone"; MOST_LINES + 1]}).to_string();
        let read = parse_machine_report(machine(&many).as_bytes()).unwrap();
        assert_eq!(read.phase, MachinePhase::Drifted(vec!["/etc/a is gone".into(); MOST_LINES]));
        for (bytes, expected) in [
            (vec![b' '; LONGEST_REPORT + 1], "at most 262144 bytes are taken"),
            (b"{}".to_vec(), "this is no report of a machine: missing field `revision` at line 1 column 2"),
        ] {
            assert_eq!(parse_machine_report(&bytes).unwrap_err().to_string(), expected);
        }
        for (text, expected) in [
            (r#"{"current": 7, "networkManagerVersion": "", "agentVersion": ""}"#, "`current` is no document"),
            ("[]", "invalid length 0"),
        ] {
            let said = parse_state(text.as_bytes()).unwrap_err().to_string();
            assert!(said.starts_with("this is no state of a node: ") && said.contains(expected), "{said}");
        }
    }
}
