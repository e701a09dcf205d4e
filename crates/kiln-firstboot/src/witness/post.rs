//! Sending one report: TLS with the hub's own authorities, a whole deadline, and few, patient tries.
//!
//! A certificate that is not trusted is not tried again, unlike in Ignition: time will not mend it. The same goes for a
//! token nobody knows. What may pass (no route yet, a hub that starts, `Retry-After`) is tried until the time is over.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use kiln_core::beacon::Credentials;
use kiln_core::beacon::credentials::Address;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::answer::{Answer, LONGEST_ANSWER, parse_answer};

const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(4);
/// Where distributions keep the authorities everybody trusts.
const SYSTEM_AUTHORITIES: [&str; 2] = ["/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/certs/ca-certificates.crt"];

/// What became of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delivery {
    /// The hub has it.
    Taken { by: String },
    /// The hub does not want it.
    Refused { why: String },
    /// Nobody could be asked.
    Failed { why: String },
}

/// Why one try failed.
struct Failure {
    why: String,
    again: Again,
}

enum Again {
    /// As whoever else this machine may be.
    NotAsThis,
    /// What was sent is wrong.
    Never,
    Soon,
    After(Duration),
}

/// Sends, at the latest until the deadline. Resolving a name cannot be interrupted, so it happens elsewhere.
pub fn deliver_within(credentials: &[Credentials], body: String, deadline: Instant) -> Delivery {
    let (sender, receiver) = mpsc::channel();
    let credentials = credentials.to_vec();
    let hub = credentials.first().map_or(String::new(), |credentials| credentials.url.clone());
    thread::spawn(move || sender.send(deliver(&credentials, &body, deadline)));
    let left = deadline.saturating_duration_since(Instant::now());
    receiver.recv_timeout(left).unwrap_or_else(|_| Delivery::Failed { why: format!("{hub} did not answer in time") })
}

fn deliver(credentials: &[Credentials], body: &str, deadline: Instant) -> Delivery {
    let Some(mut current) = credentials.first() else {
        return Delivery::Failed {
            why: format!(
                "this machine knows no hub: it has no {}, and no pointer config",
                kiln_core::beacon::CREDENTIALS_PATH
            ),
        };
    };
    let mut others = credentials.iter().skip(1);
    let mut pause = FIRST_PAUSE;
    loop {
        let Failure { why, again } = match post(current, body, deadline) {
            Ok(()) => return Delivery::Taken { by: current.url.clone() },
            Err(failure) => failure,
        };
        let wait = match (again, others.next()) {
            (Again::NotAsThis, Some(next)) => {
                current = next;
                continue;
            }
            (Again::NotAsThis | Again::Never, _) => return Delivery::Refused { why },
            (Again::Soon, _) => pause,
            (Again::After(wait), _) => wait.max(pause),
        };
        if Instant::now() + wait >= deadline {
            return Delivery::Failed { why };
        }
        thread::sleep(wait);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn post(credentials: &Credentials, body: &str, deadline: Instant) -> Result<(), Failure> {
    let url = &credentials.url;
    let soon = |why: io::Error| Failure { why: format!("{url}: {why}"), again: Again::Soon };
    let never = |why: String| Failure { why: format!("{url}: {why}"), again: Again::NotAsThis };
    let address = credentials.address().ok_or_else(|| never("this is no https address".to_owned()))?;
    let config = tls_config(&credentials.authorities).map_err(never)?;
    let name = ServerName::try_from(address.host.clone()).map_err(|error| never(error.to_string()))?;
    let stream = Timed { stream: connect(&address, deadline).map_err(soon)?, deadline };
    let connection = ClientConnection::new(Arc::new(config), name).map_err(|error| never(error.to_string()))?;
    let mut stream = StreamOwned::new(connection, stream);
    match exchange(&mut stream, &address, &credentials.token, body) {
        Ok(answer) => judge(url, &answer),
        Err(error) if is_certificate(&error) => Err(never(error.to_string())),
        Err(error) => Err(soon(error)),
    }
}

fn judge(url: &str, answer: &Answer) -> Result<(), Failure> {
    let Answer { status, retry_after, said, is_whole: _ } = answer;
    let again = match status {
        200..=299 => return Ok(()),
        401 | 403 => Again::NotAsThis,
        429 | 500..=599 => retry_after.map_or(Again::Soon, Again::After),
        _ => Again::Never,
    };
    let said = if said.is_empty() { String::new() } else { format!(": {said}") };
    Err(Failure { why: format!("{url} answered {status}{said}"), again })
}

fn exchange(stream: &mut (impl Read + Write), address: &Address, token: &str, body: &str) -> io::Result<Answer> {
    let Address { host, port, path } = address;
    let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\nUser-Agent: kiln-firstboot/{}\r\n\r\n",
        body.len(),
        env!("CARGO_PKG_VERSION")
    );
    stream.write_all(head.as_bytes())?;
    // A hub that refuses may close before it has read everything; its answer counts.
    let sent = stream.write_all(body.as_bytes()).and_then(|()| stream.flush());
    let mut bytes = Vec::new();
    let mut part = [0; 4096];
    loop {
        let read = stream.read(&mut part);
        let ended = match &read {
            Ok(0) => true,
            Ok(count) => {
                bytes.extend_from_slice(&part[..*count]);
                bytes.len() >= LONGEST_ANSWER
            }
            Err(_) => true,
        };
        match parse_answer(&bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))? {
            Some(answer) if answer.is_whole || ended => return Ok(answer),
            _ if ended => {
                sent?;
                return Err(read.err().unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into()));
            }
            _ => {}
        }
    }
}

fn connect(address: &Address, deadline: Instant) -> io::Result<TcpStream> {
    let mut said = io::Error::from(io::ErrorKind::NotFound);
    for place in (address.host.as_str(), address.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&place, left(deadline)?) {
            Ok(stream) => return Ok(stream),
            Err(error) => said = with_place(&error, place),
        }
    }
    Err(said)
}

fn with_place(error: &io::Error, place: SocketAddr) -> io::Error {
    io::Error::new(error.kind(), format!("{place}: {error}"))
}

/// The hub's authorities, or those of the system when the pointer names none.
fn tls_config(authorities: &str) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    let given = CertificateDer::pem_slice_iter(authorities.as_bytes());
    roots.add_parsable_certificates(given.flatten());
    for bundle in SYSTEM_AUTHORITIES.iter().map(Path::new).filter(|_| authorities.trim().is_empty()) {
        roots.add_parsable_certificates(CertificateDer::pem_file_iter(bundle).into_iter().flatten().flatten());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| error.to_string())?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

fn is_certificate(error: &io::Error) -> bool {
    let error = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
    matches!(error, Some(rustls::Error::InvalidCertificate(_)))
}

fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// A stream that is over when the deadline is, however slowly bytes drip.
struct Timed {
    stream: TcpStream,
    deadline: Instant,
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(left(self.deadline)?))?;
        self.stream.read(buffer)
    }
}

impl Write for Timed {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(left(self.deadline)?))?;
        self.stream.write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
