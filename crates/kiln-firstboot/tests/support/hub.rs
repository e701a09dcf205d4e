//! A TLS server that gives the answers it was told, one per connection, and remembers what it was sent.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use kiln_core::beacon::{Credentials, Report};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

pub struct Hub {
    url: String,
    authority: String,
    received: Receiver<(String, Report)>,
}

impl Hub {
    pub fn start(answers: &[&str]) -> Hub {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.subject_alt_names.push(SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST)));
        let certificate = params.signed_by(&key, &issuer).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], PrivateKeyDer::Pkcs8(key.serialize_der().into()))
            .unwrap();
        let config = Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://{}/beacon", listener.local_addr().unwrap());
        let answers: Vec<String> = answers.iter().map(|answer| (*answer).to_owned()).collect();
        let (sender, received) = channel();
        thread::spawn(move || {
            let mut answers = answers.into_iter();
            for stream in listener.incoming() {
                let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
                let mut stream = StreamOwned::new(connection, stream.unwrap());
                // A client that does not trust this hub never gets as far as a request.
                let Some(request) = read_request(&mut stream) else { continue };
                let Some(answer) = answers.next() else { return };
                stream.write_all(format!("HTTP/1.1 {answer}\r\n").as_bytes()).unwrap();
                stream.conn.send_close_notify();
                let _ = stream.flush();
                if sender.send(request).is_err() {
                    return;
                }
            }
        });
        Hub { url, authority: issuer.pem(), received }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn authority(&self) -> &str {
        &self.authority
    }

    pub fn credentials(&self, token: &str) -> Credentials {
        Credentials { url: self.url.clone(), authorities: self.authority.clone(), token: token.to_owned() }
    }

    /// The next request: its head and the report in it.
    pub fn received(&self) -> (String, Report) {
        self.received.recv_timeout(Duration::from_secs(60)).unwrap()
    }
}

fn read_request(stream: &mut impl Read) -> Option<(String, Report)> {
    let mut bytes = Vec::new();
    let mut part = [0; 4096];
    loop {
        let count = stream.read(&mut part).ok().filter(|count| *count > 0)?;
        bytes.extend_from_slice(&part[..count]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length: usize =
            head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap().parse().unwrap();
        if body.len() >= length {
            return Some((format!("{head}\r\n"), Report::parse(body.as_bytes()).unwrap()));
        }
    }
}
