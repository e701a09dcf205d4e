//! A server's certificate that can be replaced while it serves: connections that have begun keep the old one.

use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::TlsError;

/// The certificate that is shown from now on.
#[derive(Debug)]
pub struct ServedCertificate(ArcSwap<CertifiedKey>);

impl ServedCertificate {
    /// A certificate chain and its key, in PEM.
    pub fn parse(chain: &[u8], key: &[u8]) -> Result<Arc<ServedCertificate>, TlsError> {
        Ok(Arc::new(ServedCertificate(ArcSwap::from_pointee(parse(chain, key)?))))
    }

    /// Shows another one from now on; what cannot be used changes nothing.
    pub fn replace(&self, chain: &[u8], key: &[u8]) -> Result<(), TlsError> {
        self.0.store(Arc::new(parse(chain, key)?));
        Ok(())
    }

    /// A listener for machines that fetch once: they show no certificate, speak HTTP/1.1 and do not come back, so that there
    /// is nothing to resume.
    pub fn server_config(self: &Arc<ServedCertificate>) -> Result<Arc<rustls::ServerConfig>, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::Setup(error.to_string()))?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(self) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }
}

impl ResolvesServerCert for ServedCertificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

fn parse(chain: &[u8], key: &[u8]) -> Result<CertifiedKey, TlsError> {
    let setup = |what: &str, why: &dyn std::fmt::Display| TlsError::Setup(format!("{what}: {why}"));
    let chain = CertificateDer::pem_slice_iter(chain)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| setup("the certificate cannot be read", &error))?;
    if chain.is_empty() {
        return Err(TlsError::Setup("there is no certificate in the file".into()));
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| setup("the key cannot be read", &error))?;
    CertifiedKey::from_der(chain, key, &rustls::crypto::ring::default_provider())
        .map_err(|error| setup("the certificate and the key do not fit", &error))
}

#[cfg(test)]
mod tests {
    use super::super::{Authority, Credentials};
    use super::*;
    use crate::testing::TempDir;

    #[test]
    fn a_certificate_that_does_not_fit_its_key_replaces_nothing() {
        let folder = TempDir::new("served-certificate");
        let authority = Authority::open(folder.path()).unwrap();
        let issue = |name: &str| authority.issue_server(&[name.to_owned(), "192.0.2.1".into()]).unwrap();
        let (Credentials { certificate, key }, other) = (issue("a.example"), issue("b.example"));
        let served = ServedCertificate::parse(certificate.as_bytes(), key.as_bytes()).unwrap();
        let first = served.0.load_full();
        let refused = served.replace(certificate.as_bytes(), other.key.as_bytes()).unwrap_err().to_string();
        assert!(refused.starts_with("cannot set up TLS: the certificate and the key do not fit: "), "{refused}");
        let refused = served.replace(b"", key.as_bytes()).unwrap_err().to_string();
        assert_eq!(refused, "cannot set up TLS: there is no certificate in the file");
        assert!(Arc::ptr_eq(&first, &served.0.load_full()));
        served.replace(other.certificate.as_bytes(), other.key.as_bytes()).unwrap();
        assert!(!Arc::ptr_eq(&first, &served.0.load_full()));
        assert_eq!(served.server_config().unwrap().send_tls13_tickets, 0);
    }
}
