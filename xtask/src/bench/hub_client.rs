//! A client that costs little: prepared requests over kept-alive TLS connections, answers read as bytes.
//!
//! No types of Kubernetes and no parsing of answers: on two cores a client that decodes objects would be what is
//! measured. Its own CPU time is reported beside the server's.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Where the server is, how to recognise it and how to be recognised.
#[derive(Clone)]
pub struct Endpoint {
    pub address: std::net::SocketAddr,
    pub tls: Arc<ClientConfig>,
    /// Empty when the certificate says who asks.
    pub token: String,
}

/// One kept-alive connection.
pub struct Connection {
    stream: TlsStream<TcpStream>,
    token: String,
    buffer: Vec<u8>,
}

/// A request; `path` has its query.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    pub method: &'a str,
    pub path: &'a str,
    pub media: &'a str,
    pub body: &'a [u8],
}

impl<'a> Request<'a> {
    pub fn get(path: &'a str) -> Request<'a> {
        Request { method: "GET", path, media: "application/json", body: b"" }
    }

    pub fn post(path: &'a str, body: &'a [u8]) -> Request<'a> {
        Request { method: "POST", path, media: "application/json", body }
    }
}

impl Connection {
    pub async fn open(endpoint: &Endpoint) -> Result<Connection> {
        let stream = TcpStream::connect(endpoint.address).await?;
        stream.set_nodelay(true)?;
        // An address, not `localhost`: a real server that listens on one makes a certificate for that only.
        let name = ServerName::from(endpoint.address.ip());
        let stream = TlsConnector::from(Arc::clone(&endpoint.tls)).connect(name, stream).await?;
        Ok(Connection { stream, token: endpoint.token.clone(), buffer: Vec::new() })
    }

    /// Sends a request and reads the whole answer into memory that is used again. Gives its status and its body.
    pub async fn call(&mut self, request: Request<'_>) -> Result<(u16, &[u8])> {
        self.send(request).await?;
        let head = self.read_head().await?;
        let body = match head.length {
            Length::Known(length) => {
                while self.buffer.len() < head.end + length {
                    self.fill().await?;
                }
                head.end..head.end + length
            }
            Length::Chunked => self.read_chunks(head.end).await?,
        };
        Ok((head.status, &self.buffer[body]))
    }

    /// As [`Self::call`], for requests that must succeed.
    pub async fn done(&mut self, request: Request<'_>) -> Result<&[u8]> {
        let what = format!("{} {}", request.method, request.path);
        let (status, body) = self.call(request).await?;
        ensure!((200..300).contains(&status), "{what}: {status} {}", String::from_utf8_lossy(body));
        Ok(body)
    }

    /// Begins a watch: returns when the server has begun to answer.
    pub async fn watch(&mut self, path: &str) -> Result<()> {
        self.send(Request::get(path)).await?;
        let head = self.read_head().await?;
        ensure!(head.status == 200, "{path}: {}", head.status);
        self.buffer.drain(..head.end);
        Ok(())
    }

    /// Reads what a watch sends until `marker` has come; what came before is forgotten.
    pub async fn read_until(&mut self, marker: &[u8]) -> Result<()> {
        loop {
            if let Some(at) = find(&self.buffer, marker) {
                self.buffer.drain(..at + marker.len());
                return Ok(());
            }
            // A marker may come in two parts.
            let kept = self.buffer.len().saturating_sub(marker.len());
            self.buffer.drain(..kept);
            self.fill().await?;
        }
    }

    async fn send(&mut self, request: Request<'_>) -> Result<()> {
        self.buffer.clear();
        let Request { method, path, media, body } = request;
        let mut bytes = Vec::with_capacity(256 + body.len());
        bytes.extend_from_slice(
            format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\naccept: application/json\r\n").as_bytes(),
        );
        if !self.token.is_empty() {
            bytes.extend_from_slice(format!("authorization: Bearer {}\r\n", self.token).as_bytes());
        }
        bytes.extend_from_slice(format!("content-type: {media}\r\ncontent-length: {}\r\n\r\n", body.len()).as_bytes());
        bytes.extend_from_slice(body);
        self.stream.write_all(&bytes).await?;
        self.stream.flush().await?;
        Ok(())
    }

    async fn fill(&mut self) -> Result<()> {
        self.buffer.reserve(64 << 10);
        let read = self.stream.read_buf(&mut self.buffer).await?;
        ensure!(read > 0, "the server closed the connection");
        Ok(())
    }

    async fn read_head(&mut self) -> Result<Head> {
        loop {
            if let Some(at) = find(&self.buffer, b"\r\n\r\n") {
                return Head::parse(&self.buffer[..at], at + 4);
            }
            self.fill().await?;
        }
    }

    /// Removes the framing of chunks in place.
    async fn read_chunks(&mut self, start: usize) -> Result<std::ops::Range<usize>> {
        let (mut end, mut at) = (start, start);
        loop {
            let line = loop {
                match find(&self.buffer[at..], b"\r\n") {
                    Some(length) => break length,
                    None => self.fill().await?,
                }
            };
            let size = std::str::from_utf8(&self.buffer[at..at + line])?;
            let size = usize::from_str_radix(size.split(';').next().unwrap_or_default().trim(), 16)?;
            at += line + 2;
            while self.buffer.len() < at + size + 2 {
                self.fill().await?;
            }
            self.buffer.copy_within(at..at + size, end);
            (end, at) = (end + size, at + size + 2);
            if size == 0 {
                return Ok(start..end);
            }
        }
    }
}

struct Head {
    status: u16,
    length: Length,
    end: usize,
}

enum Length {
    Known(usize),
    Chunked,
}

impl Head {
    fn parse(bytes: &[u8], end: usize) -> Result<Head> {
        let text = std::str::from_utf8(bytes)?;
        let mut lines = text.lines();
        let status =
            lines.next().and_then(|line| line.split(' ').nth(1)).context("an answer without status")?.parse()?;
        let mut length = None;
        for line in lines {
            let Some((name, value)) = line.split_once(':') else { continue };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = Some(Length::Known(value.trim().parse()?)),
                "transfer-encoding" => length = Some(Length::Chunked),
                _ => {}
            }
        }
        match length {
            Some(length) => Ok(Head { status, length, end }),
            None => bail!("an answer without length: {text}"),
        }
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    // The first byte decides nearly always.
    let (first, rest) = wanted.split_first()?;
    let mut from = 0;
    while let Some(at) = bytes[from..].iter().position(|byte| byte == first) {
        let after = from + at + 1;
        if bytes[after..].starts_with(rest) {
            return Some(from + at);
        }
        from = after;
    }
    None
}

/// How long many requests took.
pub struct Load {
    pub seconds: f64,
    /// Sorted.
    pub each: Vec<Duration>,
}

impl Load {
    pub fn per_second(&self) -> f64 {
        self.each.len() as f64 / self.seconds
    }

    /// In milliseconds.
    pub fn quantile(&self, share: f64) -> f64 {
        quantile(&self.each, share)
    }
}

/// A quantile of sorted durations in milliseconds.
pub fn quantile(sorted: &[Duration], share: f64) -> f64 {
    let at = ((sorted.len() as f64 * share) as usize).min(sorted.len().saturating_sub(1));
    sorted.get(at).map_or(0.0, |time| time.as_secs_f64() * 1e3)
}

/// Sends `count` requests over `clients` connections; each takes the next number.
pub async fn load(
    endpoint: &Endpoint,
    clients: usize,
    count: usize,
    make: impl Fn(usize) -> Made + Send + Sync + 'static,
) -> Result<Load> {
    let (next, make) = (Arc::new(AtomicUsize::new(0)), Arc::new(make));
    let mut connections = Vec::new();
    for _ in 0..clients {
        connections.push(Connection::open(endpoint).await?);
    }
    let start = Instant::now();
    let tasks: Vec<_> = connections
        .into_iter()
        .map(|mut connection| {
            let (next, make) = (Arc::clone(&next), Arc::clone(&make));
            tokio::spawn(async move {
                let mut each = Vec::new();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return Ok::<_, anyhow::Error>(each);
                    }
                    let made = make(number);
                    let sent = Instant::now();
                    connection.done(made.request()).await?;
                    each.push(sent.elapsed());
                }
            })
        })
        .collect();
    let mut each = Vec::with_capacity(count);
    for task in tasks {
        each.extend(task.await??);
    }
    let seconds = start.elapsed().as_secs_f64();
    each.sort_unstable();
    Ok(Load { seconds, each })
}

/// A request that owns its parts.
pub struct Made {
    pub method: &'static str,
    pub path: String,
    pub media: &'static str,
    pub body: Vec<u8>,
}

impl Made {
    pub fn request(&self) -> Request<'_> {
        Request { method: self.method, path: &self.path, media: self.media, body: &self.body }
    }
}
