//! Profiles of a configured machine, made fit to be kept: cleaned keyfiles and the nmstate document that means the same.
//!
//! "Configure it once on the hardware with nmcli, test it, then keep it." Everything a profile says ends up in the
//! document or in a finding; the cleaned keyfiles always keep it. Rendering the document gives profiles of the same
//! meaning again.
//!
//! Not here: reading the machine. NetworkManager writes profiles it made itself below `/run`, marked in a `[.nmmeta]`
//! group; they mirror what others configured and are left out.

use serde_json::{Map, Value};

use crate::diagnostic::{Code, Diagnostic};
use crate::document::emit::to_yaml;
use crate::keyfile::ConnectionFile;

mod clean;
mod interface;
mod ip;
mod profile;
mod routes;

use interface::Ports;
use profile::Profile;

/// What was captured.
#[derive(Debug, Clone)]
pub struct Captured {
    /// Cleaned keyfiles, sorted by name.
    pub keyfiles: Vec<ConnectionFile>,
    /// The nmstate document as YAML.
    pub document: String,
    /// What was left out, and what the document cannot say. Profiles have no place in a text: messages name the file.
    pub diagnostics: Vec<Diagnostic>,
}

/// Cleans profiles and says in nmstate's words what they mean.
pub fn capture(files: &[ConnectionFile]) -> Captured {
    let mut diagnostics = Vec::new();
    let mut keyfiles: Vec<ConnectionFile> =
        files.iter().filter_map(|file| clean::clean(file, &mut diagnostics)).collect();
    keyfiles.sort_by(|a, b| a.name.cmp(&b.name));
    let document = document(&keyfiles, &mut diagnostics);
    Captured { keyfiles, document: to_yaml(&document), diagnostics }
}

/// What profiles say, as a document. What nmstate has no words for is left out.
pub(crate) fn describe_profiles(files: &[ConnectionFile]) -> Value {
    document(files, &mut Vec::new())
}

/// Everything that is gathered over all profiles.
#[derive(Default)]
struct Gathered {
    routes: Vec<Value>,
    rules: Vec<Value>,
    name_servers: ip::NameServers,
}

fn document(files: &[ConnectionFile], diagnostics: &mut Vec<Diagnostic>) -> Value {
    let all: Vec<Profile<'_>> = files.iter().map(Profile::new).collect();
    let chosen = one_per_interface(&all, diagnostics);
    let ports = Ports::new(&all);
    let mut gathered = Gathered::default();
    let mut interfaces = Vec::new();
    let (mut said, mut unsaid) = (Vec::new(), Vec::new());
    for profile in chosen {
        match interface::interface(profile, &ports, &mut gathered) {
            Some(interface) => {
                interfaces.push(interface);
                said.push(profile);
            }
            None => unsaid.push(unsayable(profile)),
        }
    }
    // Only now: a bridge says the settings of its ports, wherever they stand.
    diagnostics.extend(said.into_iter().flat_map(Profile::unsaid).chain(unsaid));
    let mut document = Map::new();
    let config = |entries: Vec<Value>| serde_json::json!({ "config": entries });
    if let Some(name_servers) = gathered.name_servers.into_value(diagnostics) {
        document.insert("dns-resolver".to_owned(), serde_json::json!({ "config": name_servers }));
    }
    if !gathered.rules.is_empty() {
        document.insert("route-rules".to_owned(), config(gathered.rules));
    }
    if !gathered.routes.is_empty() {
        document.insert("routes".to_owned(), config(gathered.routes));
    }
    document.insert("interfaces".to_owned(), interfaces.into());
    document.into()
}

/// The profile NetworkManager would prefer, as far as files can tell, for each interface.
fn one_per_interface<'p, 'f>(all: &'p [Profile<'f>], diagnostics: &mut Vec<Diagnostic>) -> Vec<&'p Profile<'f>> {
    let mut chosen: Vec<&Profile<'_>> = Vec::new();
    for profile in all {
        let rival = chosen.iter_mut().find(|other| other.name().is_some() && other.name() == profile.name());
        let Some(rival) = rival else {
            chosen.push(profile);
            continue;
        };
        let (winner, loser) = if profile.priority() > rival.priority() { (profile, *rival) } else { (*rival, profile) };
        *rival = winner;
        let interface = winner.name().unwrap_or_default();
        let message =
            format!("{} and {} both want `{interface}`; the document has {}", winner.file, loser.file, winner.file);
        diagnostics.push(
            Diagnostic::new(Code(0244), None, message)
                .cause("an interface is described once in nmstate; the higher autoconnect-priority decides, then the file name")
                .help(format!("delete the profile that is not used: nmcli connection delete {}", loser.uuid())),
        );
    }
    chosen
}

fn unsayable(profile: &Profile<'_>) -> Diagnostic {
    let kind = profile.kind();
    let message = match kind.as_str() {
        "ethernet" => format!("{}: the profile fits any NIC, which nmstate cannot say", profile.file),
        _ => format!("{}: nmstate has no words for a profile of type {kind}", profile.file),
    };
    Diagnostic::new(Code(0242), None, message)
        .cause("the captured document covers ethernet, bond, VLAN, bridge and dummy interfaces")
        .help("use `-o keyfiles`, which keeps the profile")
}
