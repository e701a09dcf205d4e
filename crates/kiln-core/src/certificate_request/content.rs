//! What is inside a certificate request: PKCS #10 in PEM, read within bounds.
//!
//! [`parse_content`] is strict where leniency would let two readers see two different requests: one PEM block and nothing
//! around it, one common name, one list of extensions, and no extension that a kubelet does not send. The signature is
//! checked here too, because it is what proves that whoever asks has the key: [`Content::proven`].
//!
//! x509-parser does the reading, as in the API server; a second reader of our own would only be another opinion.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::cri_attributes::ParsedCriAttribute;
use x509_parser::extensions::{GeneralName, ParsedExtension, SubjectAlternativeName};
use x509_parser::oid_registry::{OID_X509_COMMON_NAME, OID_X509_ORGANIZATION_NAME};
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::X509Name;

use crate::small_set::SmallSet;
use crate::timeline::Moment;

/// The largest request that is read, in bytes of PEM. A kubelet's has less than one thousand.
pub const LARGEST_REQUEST: usize = 16 * 1024;
/// The largest certificate that is read, in bytes of PEM or DER.
pub const LARGEST_CERTIFICATE: usize = 64 * 1024;
/// How many names a request may have.
pub const MOST_NAMES: usize = 128;

const BEGIN: &str = "-----BEGIN CERTIFICATE REQUEST-----";
const END: &str = "-----END CERTIFICATE REQUEST-----";

/// SHA-256 of a public key as it stands in a request (SubjectPublicKeyInfo in DER).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyHash([u8; 32]);

impl KeyHash {
    /// Of the DER bytes of a SubjectPublicKeyInfo.
    pub fn of(public_key: &[u8]) -> KeyHash {
        KeyHash(Sha256::digest(public_key).into())
    }
}

impl fmt::Display for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// A text that is no hash of a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a key is named by the SHA-256 of its public half: 64 hexadecimal digits")]
pub struct WrongKeyHash;

impl FromStr for KeyHash {
    type Err = WrongKeyHash;
    fn from_str(text: &str) -> Result<KeyHash, WrongKeyHash> {
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(WrongKeyHash);
        }
        let mut hash = [0; 32];
        for (index, byte) in hash.iter_mut().enumerate() {
            let pair = text.get(2 * index..2 * index + 2).ok_or(WrongKeyHash)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| WrongKeyHash)?;
        }
        Ok(KeyHash(hash))
    }
}

/// The names of a request or a certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    /// DNS names in small letters, without a dot at the end.
    pub dns: SmallSet<String>,
    /// Addresses.
    pub addresses: SmallSet<IpAddr>,
    /// Everything else (e-mail, URI, …), as people write it. A kubelet has none.
    pub others: SmallSet<String>,
}

impl Names {
    /// Whether there is no name at all.
    pub fn is_empty(&self) -> bool {
        self.dns.is_empty() && self.addresses.is_empty() && self.others.is_empty()
    }

    /// Adds an address or a DNS name, as people write it.
    pub fn add(&mut self, name: &str) {
        match name.parse() {
            Ok(address) => drop(self.addresses.insert(address)),
            Err(_) => drop(self.dns.insert(plain(name))),
        }
    }
}

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses = self.addresses.iter().map(IpAddr::to_string);
        let all: Vec<String> = self.dns.iter().cloned().chain(addresses).chain(self.others.iter().cloned()).collect();
        f.write_str(if all.is_empty() { "nothing" } else { "" })?;
        f.write_str(&all.join(", "))
    }
}

/// A DNS name as it is compared.
pub(super) fn plain(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

/// What a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// The common name.
    pub common_name: String,
    /// The organizations, in order.
    pub organizations: Vec<String>,
    /// Its subject has something else as well.
    pub more_subject: bool,
    /// Its names.
    pub names: Names,
    /// An extension a kubelet does not ask for.
    pub strange_extension: Option<String>,
    /// Its public key.
    pub key: KeyHash,
    /// Whether the signature is that of the key.
    pub proven: bool,
}

/// Why a request cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContentError {
    /// More than anybody needs.
    #[error("it has {0} bytes; at most {LARGEST_REQUEST} are read")]
    TooLarge(usize),
    /// Not one PEM block.
    #[error("it is not one block `{BEGIN}` and nothing else")]
    NotPem,
    /// Not a request, or something behind it.
    #[error("it is not a PKCS #10 request in DER")]
    NotDer,
    /// More than one way to read it.
    #[error("it has {0}, which two readers may read in two ways")]
    Ambiguous(&'static str),
}

/// Reads a request.
pub fn parse_content(pem: &[u8]) -> Result<Content, ContentError> {
    if pem.len() > LARGEST_REQUEST {
        return Err(ContentError::TooLarge(pem.len()));
    }
    let der = unwrap_pem(pem, BEGIN, END).ok_or(ContentError::NotPem)?;
    let (rest, request) = X509CertificationRequest::from_der(&der).map_err(|_| ContentError::NotDer)?;
    if !rest.is_empty() {
        return Err(ContentError::NotDer);
    }
    let info = &request.certification_request_info;
    let (common_name, organizations, more_subject) = subject(&info.subject)?;
    let mut lists = info.iter_attributes().filter_map(|attribute| match attribute.parsed_attribute() {
        ParsedCriAttribute::ExtensionRequest(list) => Some(list),
        _ => None,
    });
    let extensions = lists.next().map_or(&[][..], |list| list.extensions.as_slice());
    if lists.next().is_some() {
        return Err(ContentError::Ambiguous("two lists of extensions"));
    }
    let (mut names, mut strange_extension) = (None, None);
    for extension in extensions {
        match extension.parsed_extension() {
            ParsedExtension::SubjectAlternativeName(_) if names.is_some() => {
                return Err(ContentError::Ambiguous("two lists of names"));
            }
            ParsedExtension::SubjectAlternativeName(list) => names = Some(read_names(list)?),
            ParsedExtension::KeyUsage(usage) if !usage.key_cert_sign() && !usage.crl_sign() => {}
            ParsedExtension::ExtendedKeyUsage(_) => {}
            ParsedExtension::BasicConstraints(constraints) if !constraints.ca => {}
            ParsedExtension::BasicConstraints(_) => strange_extension = Some("the rights of an authority".to_owned()),
            _ => strange_extension = Some(format!("extension {}", extension.oid)),
        }
    }
    Ok(Content {
        common_name,
        organizations,
        more_subject,
        names: names.unwrap_or_default(),
        strange_extension,
        key: KeyHash::of(info.subject_pki.raw),
        proven: request.verify_signature().is_ok(),
    })
}

fn subject(name: &X509Name<'_>) -> Result<(String, Vec<String>, bool), ContentError> {
    let (mut common_names, mut organizations, mut more) = (Vec::new(), Vec::new(), false);
    for attribute in name.iter_attributes() {
        let text =
            || attribute.as_str().map(str::to_owned).map_err(|_| ContentError::Ambiguous("a subject that is no text"));
        match attribute.attr_type() {
            kind if *kind == OID_X509_COMMON_NAME => common_names.push(text()?),
            kind if *kind == OID_X509_ORGANIZATION_NAME => organizations.push(text()?),
            _ => more = true,
        }
    }
    if common_names.len() > 1 {
        return Err(ContentError::Ambiguous("two common names"));
    }
    Ok((common_names.pop().unwrap_or_default(), organizations, more))
}

fn read_names(list: &SubjectAlternativeName<'_>) -> Result<Names, ContentError> {
    if list.general_names.len() > MOST_NAMES {
        return Err(ContentError::Ambiguous("more names than are read"));
    }
    let mut names = Names::default();
    for name in &list.general_names {
        match name {
            // An address as a DNS name stays a DNS name: nobody declares one.
            GeneralName::DNSName(name) => drop(names.dns.insert(plain(name))),
            GeneralName::IPAddress(bytes) => match address(bytes) {
                Some(address) => drop(names.addresses.insert(address)),
                None => return Err(ContentError::Ambiguous("an address that is none")),
            },
            GeneralName::RFC822Name(name) => drop(names.others.insert(format!("e-mail {name}"))),
            GeneralName::URI(name) => drop(names.others.insert(format!("URI {name}"))),
            GeneralName::Invalid(..) => return Err(ContentError::Ambiguous("a name that is no text")),
            _ => drop(names.others.insert("a name of another sort".to_owned())),
        }
    }
    Ok(names)
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

/// A certificate that was issued, as far as anybody asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// The common name.
    pub common_name: String,
    /// Its names.
    pub names: Names,
    /// Its public key.
    pub key: KeyHash,
    /// From when it counts.
    pub begins: Moment,
    /// Until when it counts.
    pub ends: Moment,
}

/// Reads a certificate in DER. None for what is no certificate, or none that can be read in one way only.
pub fn parse_certificate(der: &[u8]) -> Option<Certificate> {
    let (_, certificate) = X509Certificate::from_der(der.get(..der.len().min(LARGEST_CERTIFICATE))?).ok()?;
    let (common_name, _, _) = subject(certificate.subject()).ok()?;
    let names = match certificate.subject_alternative_name().ok()? {
        Some(list) => read_names(list.value).ok()?,
        None => Names::default(),
    };
    let validity = certificate.validity();
    Some(Certificate {
        common_name,
        names,
        key: KeyHash::of(certificate.public_key().raw),
        begins: Moment(validity.not_before.timestamp()),
        ends: Moment(validity.not_after.timestamp()),
    })
}

/// Reads the first certificate of a PEM text: what a signer puts into `status.certificate`.
pub fn parse_certificate_pem(pem: &[u8]) -> Option<Certificate> {
    let text = std::str::from_utf8(pem.get(..pem.len().min(LARGEST_CERTIFICATE))?).ok()?;
    let (_, text) = text.split_once("-----BEGIN CERTIFICATE-----")?;
    let (body, _) = text.split_once("-----END CERTIFICATE-----")?;
    parse_certificate(&decode(body)?)
}

/// The bytes of a text that is one PEM block.
fn unwrap_pem(pem: &[u8], begin: &str, end: &str) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(pem).ok()?.trim();
    decode(text.strip_prefix(begin)?.strip_suffix(end)?)
}

fn decode(body: &str) -> Option<Vec<u8>> {
    let digits: String = body.split_ascii_whitespace().collect();
    STANDARD.decode(digits).ok()
}
