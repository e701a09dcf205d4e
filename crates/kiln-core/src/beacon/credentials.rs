//! Where a witness may report and as whom: read from its own file or from Ignition configs that lie on the machine.
//!
//! A machine that was not provisioned yet has only its pointer config; the hub that serves the config also takes
//! reports, so the pointer's address, authorities and bearer token are enough. Later the host's own file is in the
//! config that Ignition fetched, and then in the real root.
//!
//! Not here: reading files and connecting. Only `https` is taken: a report has names and addresses in it.

use serde::Deserialize;

use super::{BEACON_PATH, CREDENTIALS_PATH, Credentials};
use crate::ignition::data_url;
use crate::ignition::unpack_gzip;

/// How many bytes of a config are read.
pub const LONGEST_CONFIG: usize = 32 << 20;
/// How long an address or a token may be.
const LONGEST_WORD: usize = 8192;
const LONGEST_AUTHORITIES: usize = 1 << 20;
/// The port of `https`.
const HTTPS: u16 = 443;

/// An `https` address in its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// A name or an IP address, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// From the first `/` on.
    pub path: String,
}

impl Credentials {
    /// Reads the witness's own file.
    pub fn parse(bytes: &[u8]) -> Option<Credentials> {
        let credentials: Credentials = serde_json::from_slice(bytes).ok()?;
        credentials.is_usable().then_some(credentials)
    }

    /// Reads a pointer config: the origin of the first config it refers to, with the bearer token of that reference.
    pub fn from_pointer(bytes: &[u8]) -> Option<Credentials> {
        let Pointer { ignition } = serde_json::from_slice(bytes.get(..LONGEST_CONFIG.min(bytes.len()))?).ok()?;
        let Config { replace, merge } = ignition.config.unwrap_or_default();
        let authorities = ignition.security.and_then(|security| security.tls).map(|tls| tls.certificate_authorities);
        let authorities: Vec<String> =
            authorities.into_iter().flatten().filter_map(|resource| resource.text()).collect();
        let references = replace.into_iter().chain(merge.into_iter().flatten());
        references.filter_map(|reference| reference.credentials(&authorities)).find(Credentials::is_usable)
    }

    /// Reads the witness's file out of a config that would write it.
    pub fn from_config(bytes: &[u8]) -> Option<Credentials> {
        let Written { storage } = serde_json::from_slice(bytes.get(..LONGEST_CONFIG.min(bytes.len()))?).ok()?;
        let file = storage?.files?.into_iter().find(|file| file.path == CREDENTIALS_PATH)?;
        Credentials::parse(file.contents?.text()?.as_bytes())
    }

    /// The parts of its address.
    pub fn address(&self) -> Option<Address> {
        parse_address(&self.url)
    }

    fn is_usable(&self) -> bool {
        let Credentials { url: _, authorities, token } = self;
        // What goes into a header must not end it.
        let token_fits =
            !token.is_empty() && token.len() <= LONGEST_WORD && token.bytes().all(|byte| byte.is_ascii_graphic());
        self.address().is_some() && authorities.len() <= LONGEST_AUTHORITIES && token_fits
    }
}

fn parse_address(url: &str) -> Option<Address> {
    let rest = url.get(..8).filter(|scheme| scheme.eq_ignore_ascii_case("https://")).and(url.get(8..))?;
    if url.len() > LONGEST_WORD || !url.bytes().all(|byte| byte.is_ascii_graphic()) {
        return None;
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    if authority.contains('@') {
        return None;
    }
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            (host, port.strip_prefix(':').or(port.is_empty().then_some(""))?)
        }
        None => authority.split_once(':').unwrap_or((authority, "")),
    };
    let port = if port.is_empty() { HTTPS } else { port.parse().ok()? };
    let path = path.split('#').next().unwrap_or_default();
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    (!host.is_empty()).then(|| Address { host: host.to_owned(), port, path })
}

/// What is read of a pointer config; everything else is passed over.
#[derive(Deserialize)]
struct Pointer {
    ignition: Ignition,
}

#[derive(Deserialize)]
struct Ignition {
    config: Option<Config>,
    security: Option<Security>,
}

#[derive(Deserialize, Default)]
struct Config {
    replace: Option<Resource>,
    merge: Option<Vec<Resource>>,
}

#[derive(Deserialize)]
struct Security {
    tls: Option<Tls>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Tls {
    #[serde(default)]
    certificate_authorities: Vec<Resource>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Resource {
    source: Option<String>,
    http_headers: Option<Vec<Header>>,
}

#[derive(Deserialize)]
struct Header {
    name: String,
    value: Option<String>,
}

#[derive(Deserialize)]
struct Written {
    storage: Option<Storage>,
}

#[derive(Deserialize)]
struct Storage {
    files: Option<Vec<File>>,
}

#[derive(Deserialize)]
struct File {
    path: String,
    contents: Option<Resource>,
}

impl Resource {
    /// The text of a data URL.
    fn text(&self) -> Option<String> {
        let bytes = data_url::decode(self.source.as_deref()?).ok()?;
        String::from_utf8(unpack_gzip(&bytes).ok()?.into_owned()).ok()
    }

    fn credentials(&self, authorities: &[String]) -> Option<Credentials> {
        let source = self.source.as_deref()?;
        parse_address(source)?;
        let origin = source.get(8..)?.split(['/', '?', '#']).next()?;
        let headers = self.http_headers.iter().flatten();
        let token = headers.filter(|header| header.name.eq_ignore_ascii_case("authorization")).find_map(|header| {
            let (scheme, token) = header.value.as_deref()?.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned())
        })?;
        Some(Credentials { url: format!("https://{origin}{BEACON_PATH}"), authorities: authorities.join("\n"), token })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_says_where_its_hub_is_and_who_the_machine_is() {
        let pem = "-----BEGIN CERTIFICATE-----\n";
        let resource = r#"{"source": "https://10.0.0.1:22624/ignition?x=1", "httpHeaders": [
            {"name": "Accept"}, {"name": "authorization", "value": "Bearer dG9rZW4="}]}"#;
        let authorities = format!(
            r#""security": {{"tls": {{"certificateAuthorities": [{{"source": "{}"}}, {{}}]}}}}"#,
            data_url::encode_base64(pem.as_bytes())
        );
        let expected = Credentials {
            url: "https://10.0.0.1:22624/beacon".into(),
            authorities: pem.into(),
            token: "dG9rZW4=".into(),
        };
        for config in
            [format!(r#"{{"merge": [{{"source": "data:,"}}, {resource}]}}"#), format!(r#"{{"replace": {resource}}}"#)]
        {
            let pointer = format!(r#"{{"ignition": {{"version": "3.2.0", "config": {config}, {authorities}}}}}"#);
            assert_eq!(Credentials::from_pointer(pointer.as_bytes()).as_ref(), Some(&expected), "{pointer}");
        }
        let written = data_url::encode_base64(serde_json::to_string(&expected).unwrap().as_bytes());
        let config = format!(
            r#"{{"storage": {{"files": [{{"path": "/a"}}, {{"path": "{CREDENTIALS_PATH}", "contents": {{"source": "{written}"}}}}]}}}}"#
        );
        assert_eq!(Credentials::from_config(config.as_bytes()), Some(expected));
    }

    #[test]
    fn what_cannot_be_used_is_none() {
        for pointer in [
            "",
            "{}",
            r#"{"ignition": {}}"#,
            r#"{"ignition": {"config": {"replace": {"source": "https://h/i"}}}}"#,
            r#"{"ignition": {"config": {"replace": {"source": "http://h/i", "httpHeaders": [{"name": "Authorization", "value": "Bearer a"}]}}}}"#,
            r#"{"ignition": {"config": {"replace": {"source": "https://h/i", "httpHeaders": [{"name": "Authorization", "value": "Bearer a\r\nx: y"}]}}}}"#,
        ] {
            assert_eq!(Credentials::from_pointer(pointer.as_bytes()), None, "{pointer}");
        }
        assert_eq!(Credentials::parse(br#"{"url": "ftp://h/", "authorities": "", "token": "a"}"#), None);
    }

    #[test]
    fn addresses_have_a_host_a_port_and_a_path() {
        let address = |host: &str, port, path: &str| Some(Address { host: host.into(), port, path: path.into() });
        for (url, expected) in [
            ("https://hub", address("hub", 443, "/")),
            ("HTTPS://hub:22624/beacon", address("hub", 22624, "/beacon")),
            ("https://[fd00::1]:1/a?b#c", address("fd00::1", 1, "/a?b")),
            ("https://[fd00::1]", address("fd00::1", 443, "/")),
            ("https://hub?q", address("hub", 443, "/?q")),
            ("https://", None),
            ("https://user:word@hub/", None),
            ("https://hub:99999/", None),
            ("https://[fd00::1]x/", None),
            ("https://hub/ x", None),
            ("https:/", None),
        ] {
            assert_eq!(parse_address(url), expected, "{url}");
        }
    }
}
