//! Beacons: what a machine says about its own first boot, while it is in it.
//!
//! The witness in the initramfs and in the real root makes a [`Report`] and posts it; the hub reads it with
//! [`Report::parse`]. Both sides keep the bounds below, so that neither a broken machine nor a hostile one can fill a
//! status or a console.
//!
//! Not here: who collects it (`kiln-firstboot`), who authenticates it and draws conclusions (the hub).

use serde::{Deserialize, Serialize};

pub mod block;
pub mod credentials;
pub mod kubelet_key;
pub mod redact;

/// Where the hub takes reports, below its node address.
pub const BEACON_PATH: &str = "/beacon";
/// The file in the real root (and in Ignition's config) that tells the witness where to report, as [`Credentials`].
pub const CREDENTIALS_PATH: &str = "/etc/kiln/beacon.json";
/// The folder of the boot partition that keeps reports nobody took, a file each.
pub const KEPT_FOLDER: &str = "kiln-witness";
/// How large a report may be, in bytes of JSON.
pub const LONGEST_REPORT: usize = 64 * 1024;
/// How many interfaces, routes, profiles and reasons are told.
const MOST_ITEMS: usize = 64;
/// How long one text may be, in bytes.
const LONGEST_TEXT: usize = 2048;

/// Where to report and as whom. Its file is readable by root only.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Credentials {
    /// `https://hub:22624/beacon`.
    pub url: String,
    /// PEM of the authorities its certificate may be from.
    pub authorities: String,
    /// The bearer token.
    pub token: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credentials({}, …)", self.url)
    }
}

/// How far a boot has come when it is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Point {
    /// In the initramfs: the network was tried, Ignition is about to fetch.
    Network,
    /// In the initramfs: Ignition failed.
    IgnitionFailed,
    /// In the initramfs: Ignition is done, the network is about to be handed over to the real root.
    Leaving,
    /// The real root runs.
    RealRoot,
    /// The real root runs and its kubelet has made the key it will ask a certificate for.
    KubeletKey,
}

impl Point {
    /// Whether the machine is still in its initramfs.
    pub fn is_in_initramfs(self) -> bool {
        matches!(self, Point::Network | Point::IgnitionFailed | Point::Leaving)
    }
}

/// One report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// How far it has come.
    pub point: Point,
    /// The kernel's id of this boot: reports with the same one are of the same boot.
    pub boot_id: String,
    /// Milliseconds since the kernel started.
    pub uptime_ms: u64,
    /// The machine's name for itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// All interfaces but the loopback.
    #[serde(default)]
    pub interfaces: Vec<Interface>,
    /// Default routes, the preferred one first.
    #[serde(default)]
    pub default_routes: Vec<DefaultRoute>,
    /// The profiles NetworkManager was given, and what became of each.
    #[serde(default)]
    pub profiles: Vec<Profile>,
    /// What is, or will be, decided about keeping the initramfs network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub propagation: Option<Handover>,
    /// Ignition's last error, without secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignition_error: Option<String>,
    /// SHA-256 of the SubjectPublicKeyInfo of the kubelet's pending key, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubelet_key: Option<String>,
    /// Nobody took it when it was made: it was kept on the boot partition and is delivered late, perhaps by another boot.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub kept: bool,
}

/// One interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Interface {
    /// `bond0.110`.
    pub name: String,
    /// `52:54:00:00:00:01`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// Whether it has a carrier.
    pub up: bool,
    /// `10.0.11.11/24`; link-local ones are left out.
    #[serde(default)]
    pub addresses: Vec<String>,
}

/// A way out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DefaultRoute {
    /// The gateway; none when the link itself is the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// The interface.
    pub interface: String,
}

/// One profile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Profile {
    /// Its file.
    pub path: String,
    /// The interface it came up on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chosen_for: Option<String>,
    /// Why it was chosen, or why not.
    pub why: String,
}

/// What becomes of the initramfs network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Handover {
    /// `stock`, `force` or `merge`.
    pub policy: String,
    /// One word: `copied`, `forced`, `merged`, `blocked`, `forbidden`, `default` or `nothing`.
    pub outcome: String,
    /// The files of the real root that stand in the way.
    #[serde(default)]
    pub blocked_by: Vec<String>,
    /// Each decision and its reason.
    #[serde(default)]
    pub reasons: Vec<String>,
}

/// Why bytes are no report.
#[derive(Debug, thiserror::Error)]
pub enum WrongReport {
    /// Too many bytes.
    #[error("a report has at most {LONGEST_REPORT} bytes")]
    TooLong,
    /// No JSON of this form.
    #[error("this is no report of a boot: {0}")]
    Json(#[from] serde_json::Error),
}

impl Report {
    /// Reads a report and cuts it to its bounds. Fields of newer witnesses are left out.
    pub fn parse(bytes: &[u8]) -> Result<Report, WrongReport> {
        if bytes.len() > LONGEST_REPORT {
            return Err(WrongReport::TooLong);
        }
        Ok(serde_json::from_slice::<Report>(bytes)?.bounded(MOST_ITEMS, LONGEST_TEXT))
    }

    /// As it is posted and kept: cut to its bounds, and further until it fits.
    pub fn render(self) -> String {
        serde_json::to_string(&self.within(LONGEST_REPORT)).unwrap_or_default()
    }

    /// Cut further until its JSON has at most so many bytes.
    pub fn within(self, bytes: usize) -> Report {
        let mut report = self;
        let (mut items, mut letters) = (MOST_ITEMS, LONGEST_TEXT);
        loop {
            report = report.bounded(items, letters);
            let length = serde_json::to_string(&report).map_or(0, |text| text.len());
            if length <= bytes || letters == 0 {
                return report;
            }
            (items, letters) = (items / 2, letters / 2);
        }
    }

    /// The name of the file that keeps it. One report per boot and point is kept, the latest.
    pub fn file_name(&self) -> String {
        let id: String = self.boot_id.chars().filter(char::is_ascii_alphanumeric).take(32).collect();
        format!("{id}-{:?}.json", self.point)
    }

    /// Lists and texts within these bounds, texts in one line.
    fn bounded(mut self, items: usize, letters: usize) -> Report {
        let shorten = |text: &mut String| shorten(text, letters);
        self.interfaces.truncate(items);
        self.default_routes.truncate(items);
        self.profiles.truncate(items);
        let texts = self.interfaces.iter_mut().flat_map(|interface| {
            interface.addresses.truncate(items);
            interface.addresses.iter_mut().chain([&mut interface.name]).chain(&mut interface.mac)
        });
        texts.for_each(shorten);
        let routes = self.default_routes.iter_mut();
        routes.flat_map(|route| route.gateway.iter_mut().chain([&mut route.interface])).for_each(shorten);
        for profile in &mut self.profiles {
            profile.chosen_for.iter_mut().chain([&mut profile.path, &mut profile.why]).for_each(shorten);
        }
        if let Some(handover) = &mut self.propagation {
            handover.blocked_by.truncate(items);
            handover.reasons.truncate(items);
            let lists = handover.blocked_by.iter_mut().chain(&mut handover.reasons);
            lists.chain([&mut handover.policy, &mut handover.outcome]).for_each(shorten);
        }
        let single = self.hostname.iter_mut().chain(&mut self.ignition_error).chain(&mut self.kubelet_key);
        single.chain([&mut self.boot_id]).for_each(shorten);
        self
    }
}

/// Cuts a text between letters, and makes it one line without anything that a terminal obeys.
fn shorten(text: &mut String, letters: usize) {
    if text.contains(char::is_control) {
        *text = text.replace(char::is_control, " ");
    }
    if text.len() > letters {
        let end = (0..=letters).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn report() -> Report {
        Report {
            point: Point::Leaving,
            boot_id: "6b0fbdb1-96b5-4a51-9d6b-7e3a4d7f3a10".into(),
            uptime_ms: 8120,
            hostname: Some("worker-0".into()),
            interfaces: vec![Interface {
                name: "bond0.110".into(),
                mac: Some("52:54:00:00:00:01".into()),
                up: true,
                addresses: vec!["10.0.11.11/24".into()],
            }],
            default_routes: vec![DefaultRoute { gateway: Some("10.0.11.1".into()), interface: "bond0.110".into() }],
            profiles: vec![Profile { path: "/run/x".into(), chosen_for: None, why: "mode 0644".into() }],
            propagation: Some(Handover {
                policy: "stock".into(),
                outcome: "blocked".into(),
                blocked_by: vec!["/etc/NetworkManager/system-connections/dummy0.nmconnection".into()],
                reasons: vec!["nothing is propagated".into()],
            }),
            ignition_error: None,
            kubelet_key: None,
            kept: false,
        }
    }

    #[test]
    fn a_report_is_read_as_it_was_written_and_newer_fields_are_left_out() {
        let text = report().render();
        assert_eq!(Report::parse(text.as_bytes()).unwrap(), report());
        let newer = text.replacen('{', r#"{"phaseOfMoon": 7,"#, 1);
        assert_eq!(Report::parse(newer.as_bytes()).unwrap(), report());
        assert_eq!(report().file_name(), "6b0fbdb196b54a519d6b7e3a4d7f3a10-Leaving.json");
    }

    #[test]
    fn what_is_no_report_is_refused() {
        for (bytes, said) in [
            ("", "this is no report of a boot: EOF"),
            (r#"{"point": "Lost", "bootId": "", "uptimeMs": 1}"#, "unknown variant `Lost`"),
            (r#"{"point": "RealRoot", "uptimeMs": 1}"#, "missing field `bootId`"),
            (r#"{"point": "RealRoot", "bootId": "", "uptimeMs": -1}"#, "invalid value"),
        ] {
            let error = Report::parse(bytes.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(said), "{bytes}: {error}");
        }
        let long = format!("{}{}", report().render(), " ".repeat(LONGEST_REPORT));
        assert!(matches!(Report::parse(long.as_bytes()), Err(WrongReport::TooLong)));
        assert!(Report::parse("[".repeat(LONGEST_REPORT).as_bytes()).is_err());
    }

    #[test]
    fn nothing_a_machine_says_commands_a_terminal() {
        let mut hostile = report();
        hostile.interfaces[0].name = "eth0\u{1b}[2J".into();
        hostile.ignition_error = Some("failed\n\rat \u{9b}1m".into());
        let read = Report::parse(serde_json::to_string(&hostile).unwrap().as_bytes()).unwrap();
        assert_eq!(
            (read.interfaces[0].name.as_str(), read.ignition_error.as_deref()),
            ("eth0 [2J", Some("failed  at  1m"))
        );
    }

    #[test]
    fn however_much_there_is_to_tell_a_report_stays_within_its_bounds() {
        let mut long = report();
        long.interfaces = vec![Interface { addresses: vec!["ä".repeat(5000); 90], ..long.interfaces[0].clone() }; 90];
        long.profiles = vec![Profile { why: "w".repeat(5000), ..long.profiles[0].clone() }; 500];
        long.propagation.as_mut().unwrap().reasons = vec!["r".repeat(5000); 500];
        let text = long.render();
        assert!(text.len() <= LONGEST_REPORT, "{}", text.len());
        let read = Report::parse(text.as_bytes()).unwrap();
        assert_eq!((read.point, read.boot_id), (Point::Leaving, report().boot_id));
        assert!(read.interfaces[0].addresses[0].starts_with('ä') && read.profiles[0].why.starts_with('w'));
    }
}
