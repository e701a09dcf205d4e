//! How a change of the network is proved, as options of a command.

use std::time::Duration;

use clap::Args;
use kiln_core::assignment::{Probe, Proof};

/// What must hold before a change is kept.
#[derive(Debug, Args)]
pub struct ProofArgs {
    /// What must work: gateway, dns (if they did before), tcp:HOST:PORT, ping:ADDRESS or a URL (in any case); may be given often
    #[arg(long, value_name = "PROBE", value_parser = parse_probe, default_values = ["gateway", "dns"])]
    probe: Vec<Probe>,
    /// How long the probes must go on passing, such as 2s or 500ms
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "2s")]
    soak: Duration,
    /// How long the probes have to pass after the change
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "20s")]
    timeout: Duration,
    /// When NetworkManager goes back by itself, should this program die
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "60s")]
    checkpoint: Duration,
}

impl ProofArgs {
    /// The same in the agent's words.
    pub fn proof(&self) -> Proof {
        let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Proof {
            probes: self.probe.clone(),
            within: milliseconds(self.timeout),
            soak: milliseconds(self.soak),
            checkpoint: milliseconds(self.checkpoint),
        }
    }
}

fn parse_probe(text: &str) -> Result<Probe, String> {
    let at = |rest: &str, probe: fn(String) -> Probe| match rest.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => Ok(probe(rest.to_owned())),
        _ => Err(format!("`{rest}` is not HOST:PORT")),
    };
    match text.split_once(':') {
        None if text == "gateway" => Ok(Probe::Gateway),
        None if text == "dns" => Ok(Probe::Dns),
        Some(("tcp", rest)) => at(rest, Probe::Tcp),
        Some(("ping", rest)) if !rest.is_empty() => Ok(Probe::Ping(rest.to_owned())),
        Some(("http" | "https", rest)) if rest.starts_with("//") => Ok(Probe::Http(text.to_owned())),
        _ => Err("it is none of gateway, dns, tcp:HOST:PORT, ping:ADDRESS, http://…, https://…".to_owned()),
    }
}

/// `2s`, `500ms`, `1m`; a plain number is seconds.
fn parse_time(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|unit: char| unit.is_ascii_alphabetic());
    let number: u64 = digits.parse().map_err(|_| format!("`{text}` is no time such as 2s or 500ms"))?;
    let milliseconds = match &text[digits.len()..] {
        "ms" => Some(1),
        "" | "s" => Some(1000),
        "m" => Some(60_000),
        _ => None,
    };
    let milliseconds = milliseconds.ok_or_else(|| format!("`{text}`: units are ms, s and m"))?;
    // A day is more than any change of a network needs.
    let total = number.saturating_mul(milliseconds);
    if total > 86_400_000 { Err(format!("`{text}` is more than a day")) } else { Ok(Duration::from_millis(total)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_are_read() {
        for (text, expected) in [
            ("gateway", Ok(Probe::Gateway)),
            ("dns", Ok(Probe::Dns)),
            ("tcp:api.example.org:6443", Ok(Probe::Tcp("api.example.org:6443".to_owned()))),
            ("tcp:[2001:db8::1]:6443", Ok(Probe::Tcp("[2001:db8::1]:6443".to_owned()))),
            ("tcp:host", Err("`host` is not HOST:PORT".to_owned())),
            ("ping:192.0.2.1", Ok(Probe::Ping("192.0.2.1".to_owned()))),
            ("https://a.example.org/x", Ok(Probe::Http("https://a.example.org/x".to_owned()))),
            ("arp:1", Err("it is none of gateway, dns, tcp:HOST:PORT, ping:ADDRESS, http://…, https://…".to_owned())),
        ] {
            assert_eq!(parse_probe(text), expected, "{text}");
        }
    }

    #[test]
    fn times_are_read() {
        for (text, expected) in [
            ("2s", Ok(2000)),
            ("500ms", Ok(500)),
            ("1m", Ok(60_000)),
            ("0", Ok(0)),
            ("2h", Err("`2h`: units are ms, s and m".to_owned())),
            ("s", Err("`s` is no time such as 2s or 500ms".to_owned())),
            ("99999999m", Err("`99999999m` is more than a day".to_owned())),
        ] {
            assert_eq!(parse_time(text), expected.map(Duration::from_millis), "{text}");
        }
    }
}
