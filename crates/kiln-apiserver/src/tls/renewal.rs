//! A server's certificate of its own authority, signed anew long before it ends, without a restart.

use std::sync::Arc;

use time::{Duration, OffsetDateTime};

use super::{Authority, Credentials, ServedCertificate, TlsError};

/// A certificate and who signs the next one.
#[derive(Debug)]
pub struct Renewal {
    authority: Authority,
    names: Vec<String>,
    validity: Duration,
    certificate: Arc<ServedCertificate>,
    signed: OffsetDateTime,
}

impl Renewal {
    /// Signs the first one, for these names and so long.
    pub fn begin(authority: Authority, names: Vec<String>, validity: Duration) -> Result<Renewal, TlsError> {
        let Credentials { certificate, key } = authority.issue_server_for(&names, validity)?;
        let certificate = ServedCertificate::parse(certificate.as_bytes(), key.as_bytes())?;
        Ok(Renewal { authority, names, validity, certificate, signed: OffsetDateTime::now_utc() })
    }

    /// What the listener needs, now and for good.
    pub fn server_config(&self) -> Result<Arc<rustls::ServerConfig>, TlsError> {
        self.authority.server_config_with(&self.certificate)
    }

    /// Never ends. Signs anew after a third of the time, and calls `renewed` each time it did.
    ///
    /// The clock is looked at often instead of slept for months: a machine that was suspended meanwhile has slept less than
    /// its clock says.
    pub async fn run(mut self, mut renewed: impl FnMut(&Authority)) {
        let look = (self.validity / 100_i32).clamp(Duration::milliseconds(100), Duration::hours(1)).unsigned_abs();
        loop {
            tokio::time::sleep(look).await;
            let now = OffsetDateTime::now_utc();
            if !is_due(self.signed, self.validity, now) {
                continue;
            }
            match self.sign() {
                Ok(()) => {
                    self.signed = now;
                    tracing::info!("the certificate of the API was made anew");
                    renewed(&self.authority);
                }
                Err(error) => {
                    tracing::error!(%error, "the certificate of the API was not made anew; it is tried again")
                }
            }
        }
    }

    fn sign(&self) -> Result<(), TlsError> {
        let Credentials { certificate, key } = self.authority.issue_server_for(&self.names, self.validity)?;
        self.certificate.replace(certificate.as_bytes(), key.as_bytes())
    }
}

/// Also when the clock was put back: what was signed in the future is not valid yet.
fn is_due(signed: OffsetDateTime, validity: Duration, now: OffsetDateTime) -> bool {
    now >= signed + validity / 3_i32 || now < signed - Duration::hours(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_signed_anew_long_before_it_ends() {
        let signed = OffsetDateTime::UNIX_EPOCH + Duration::days(1000);
        let year = Duration::days(365);
        for (days, expected) in [(0, false), (100, false), (121, false), (122, true), (400, true), (-1, true)] {
            assert_eq!(is_due(signed, year, signed + Duration::days(days)), expected, "after {days} days");
        }
    }
}
