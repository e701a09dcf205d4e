//! The certificate authority: made on the first start, kept in the data folder, signs the server and its administrators.

use std::fs;
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::{ResolvesServerCert, WebPkiClientVerifier};
use time::{Duration, OffsetDateTime};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::ServedCertificate;
use crate::identity::Identity;

/// How long the authority is valid.
const AUTHORITY_DAYS: i64 = 3650;
/// How long what it signs is valid.
pub const VALIDITY: Duration = Duration::days(365);

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read or written.
    #[error("cannot use `{}`", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A certificate cannot be made, or that of the authority not be read.
    #[error("cannot make a certificate")]
    Certificate {
        /// Why.
        #[from]
        source: rcgen::Error,
    },
    /// rustls refused.
    #[error("cannot set up TLS: {0}")]
    Setup(String),
}

/// A certificate authority with its key.
#[derive(Debug)]
pub struct Authority {
    certificate_pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, in PEM.
#[derive(Clone)]
pub struct Credentials {
    /// The certificate.
    pub certificate: String,
    /// The key. Secret.
    pub key: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("certificate", &self.certificate).field("key", &"…").finish()
    }
}

impl Authority {
    /// Reads `ca.crt` and `ca.key`, or makes them.
    pub fn open(folder: &Path) -> Result<Authority, TlsError> {
        let (certificate_path, key_path) = (folder.join("ca.crt"), folder.join("ca.key"));
        if certificate_path.exists() && key_path.exists() {
            let read = |path: &Path| {
                fs::read_to_string(path).map_err(|source| TlsError::File { path: path.to_owned(), source })
            };
            let certificate_pem = read(&certificate_path)?;
            let key = KeyPair::from_pem(&read(&key_path)?)?;
            let issuer = Issuer::from_ca_cert_pem(&certificate_pem, key)?;
            return Ok(Authority { certificate_pem, issuer });
        }
        let key = KeyPair::generate()?;
        let mut params = params("kiln", None, Duration::days(AUTHORITY_DAYS))?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        let certificate_pem = params.self_signed(&key)?.pem();
        // The key first: a certificate without its key is made anew.
        write_private(&key_path, &key.serialize_pem())?;
        write_private(&certificate_path, &certificate_pem)?;
        Ok(Authority { certificate_pem, issuer: Issuer::new(params, key) })
    }

    /// The authority's own certificate, in PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate_pem
    }

    /// A client certificate for a member of one group. rcgen writes one value per attribute, hence one group.
    pub fn issue_client(&self, user: &str, group: &str) -> Result<Credentials, TlsError> {
        let mut params = params(user, Some(group), VALIDITY)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params)
    }

    /// A certificate for a server of these names and addresses.
    pub fn issue_server(&self, names: &[String]) -> Result<Credentials, TlsError> {
        self.issue_server_for(names, VALIDITY)
    }

    /// The same for so long.
    pub fn issue_server_for(&self, names: &[String], validity: Duration) -> Result<Credentials, TlsError> {
        let mut params = params("kiln-apiserver", None, validity)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        for name in names {
            params.subject_alt_names.push(match name.parse::<IpAddr>() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) => SanType::DnsName(name.as_str().try_into()?),
            });
        }
        self.sign(params)
    }

    /// What the listener needs: a certificate for these names, and clients may show one of ours.
    pub fn server_config(&self, names: &[String]) -> Result<Arc<rustls::ServerConfig>, TlsError> {
        let Credentials { certificate, key } = self.issue_server(names)?;
        self.server_config_with(&ServedCertificate::parse(certificate.as_bytes(), key.as_bytes())?)
    }

    /// The same with a certificate that can be replaced.
    pub fn server_config_with(
        &self,
        certificate: &Arc<ServedCertificate>,
    ) -> Result<Arc<rustls::ServerConfig>, TlsError> {
        let setup = |why: String| TlsError::Setup(why);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = rustls::RootCertStore::empty();
        roots.add(parse_certificate(&self.certificate_pem)?).map_err(|error| setup(error.to_string()))?;
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            // A token will do instead.
            .allow_unauthenticated()
            .build()
            .map_err(|error| setup(error.to_string()))?;
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| setup(error.to_string()))?
            .with_client_cert_verifier(clients)
            .with_cert_resolver(Arc::clone(certificate) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    fn sign(&self, params: CertificateParams) -> Result<Credentials, TlsError> {
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Credentials { certificate, key: key.serialize_pem() })
    }
}

/// The user (common name) and the groups (organizations) of a client certificate that was verified.
pub(super) fn identity_of(certificate: &CertificateDer<'_>) -> Option<Identity> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let subject = parsed.subject();
    let user = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
    let mut groups: Vec<String> =
        subject.iter_organization().filter_map(|name| name.as_str().ok()).map(str::to_owned).collect();
    if !groups.iter().any(|group| group == "system:authenticated") {
        groups.push("system:authenticated".into());
    }
    Some(Identity { user, groups })
}

fn params(common_name: &str, organization: Option<&str>, validity: Duration) -> Result<CertificateParams, TlsError> {
    let mut params = CertificateParams::new(Vec::new())?;
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    if let Some(organization) = organization {
        name.push(DnType::OrganizationName, organization);
    }
    params.distinguished_name = name;
    let now = OffsetDateTime::now_utc();
    // Clocks differ.
    params.not_before = now - Duration::hours(1);
    params.not_after = now + validity;
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

fn parse_certificate(pem: &str) -> Result<CertificateDer<'static>, TlsError> {
    CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|error| TlsError::Setup(error.to_string()))
}

/// Writes a file that nobody else may read, under a temporary name first.
fn write_private(path: &Path, text: &str) -> Result<(), TlsError> {
    let failed = |source| TlsError::File { path: path.to_owned(), source };
    let temporary = path.with_extension("new");
    let mut file =
        fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary).map_err(failed)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
    fs::rename(&temporary, path).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;

    #[test]
    fn an_authority_is_made_once_and_its_clients_are_recognised() {
        let folder = TempDir::new("authority");
        let first = Authority::open(folder.path()).unwrap();
        let again = Authority::open(folder.path()).unwrap();
        assert_eq!(first.certificate(), again.certificate());
        let credentials = again.issue_client("admin", crate::identity::ADMINISTRATORS).unwrap();
        let certificate = parse_certificate(&credentials.certificate).unwrap();
        assert_eq!(identity_of(&certificate).unwrap(), Identity::member("admin", crate::identity::ADMINISTRATORS));
        assert!(!format!("{credentials:?}").contains("PRIVATE KEY"));
    }
}
