//! The HTTP server of a store: threads and sockets around decisions made elsewhere.
//!
//! [`range`], [`answer`], [`request`] and [`route`] decide and touch nothing; [`connection`] and [`wire`] move bytes.
//! One thread serves one connection, and there are at most as many as [`Limits`] says; whoever comes later waits in the
//! kernel's queue, and connections are then closed after each answer so that the queue moves. A peer that is slow with
//! its request, stalls while reading or stays idle is dropped. No request can end the accepting thread.
//!
//! Nothing of the store is kept between requests: a host composed meanwhile is served at once. What an image is missing a
//! sha256 for gets it in the background ([`digests`]). Base ranges go from the
//! page cache to the socket by `sendfile`; with TLS they are read and encrypted.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use kiln_image::store::{Store, UrlKey};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

pub mod answer;
pub mod connection;
mod date;
pub mod digests;
pub mod range;
pub mod request;
pub mod route;
pub mod tls;
pub mod wire;

/// How much one peer, and all of them, may take.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections served at once.
    pub connections: usize,
    /// For a whole request head, the TLS handshake included.
    pub request: Duration,
    /// Between two requests of one connection.
    pub idle: Duration,
    /// For a reader that takes nothing at all.
    pub stall: Duration,
    /// For answers under way when the server ends.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Limits { connections: 1024, request: seconds(20), idle: seconds(75), stall: seconds(60), grace: seconds(20) }
    }
}

/// What is served, how, and where it is told.
pub struct Service {
    /// The images.
    pub store: Store,
    /// What signs the URLs of images with secrets.
    pub key: UrlKey,
    /// With it, connections are encrypted.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Bounds.
    pub limits: Limits,
    /// Takes one line per request, without the query: signatures stay out of logs.
    pub log: Box<dyn Fn(&str) + Send + Sync>,
}

/// A listening server.
pub struct Server {
    listener: TcpListener,
    service: Arc<Service>,
    running: Arc<Running>,
}

impl Server {
    /// Listens, but does not answer yet.
    pub fn bind(address: SocketAddr, service: Service) -> io::Result<Server> {
        let listener = TcpListener::bind(address)?;
        // A peer can vanish between poll and accept; accept must not wait for the next one then.
        listener.set_nonblocking(true)?;
        Ok(Server { listener, service: Arc::new(service), running: Arc::default() })
    }

    /// Where it listens.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Accepts connections until `stop` becomes readable.
    pub fn run(&self, stop: impl AsFd) {
        while !self.wait(stop.as_fd()) {
            match self.listener.accept() {
                Ok((stream, peer)) => self.start(stream, peer),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => {
                    // Out of descriptors or memory: what is being served frees some.
                    (self.service.log)(&format!("cannot accept a connection: {error}"));
                    thread::sleep(Duration::from_millis(50));
                }
            }
        }
        self.running.ending.store(true, Ordering::Relaxed);
    }

    /// Lets answers under way finish, for as long as [`Limits::grace`] says.
    pub fn finish(&self) {
        let end = Instant::now() + self.service.limits.grace;
        while self.running.active.load(Ordering::Acquire) > 0 && Instant::now() < end {
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits for a peer, as long as there is a thread for it. True when it is time to stop.
    fn wait(&self, stop: BorrowedFd<'_>) -> bool {
        let full = self.running.active.load(Ordering::Acquire) >= self.service.limits.connections;
        let mut watched = [PollFd::new(stop, PollFlags::POLLIN), PollFd::new(self.listener.as_fd(), PollFlags::POLLIN)];
        let (watched, timeout) = if full { (&mut watched[..1], 20u16) } else { (&mut watched[..], 1000) };
        match poll(watched, PollTimeout::from(timeout)) {
            Ok(_) => watched[0].any().unwrap_or(false),
            Err(_) => false,
        }
    }

    fn start(&self, stream: TcpStream, peer: SocketAddr) {
        let guard = Running::enter(&self.running);
        let service = Arc::clone(&self.service);
        let crowded = self.running.active.load(Ordering::Relaxed) > self.service.limits.connections / 4 * 3;
        let spawned = thread::Builder::new().name("connection".into()).stack_size(256 * 1024).spawn(move || {
            connection::serve_connection(stream, peer, &service, &guard.0, crowded);
        });
        if let Err(error) = spawned {
            (self.service.log)(&format!("cannot start a thread for {peer}: {error}"));
        }
    }
}

/// What the threads and the accepting one share.
#[derive(Debug, Default)]
pub struct Running {
    active: AtomicUsize,
    ending: AtomicBool,
    digests: digests::Digests,
}

impl Running {
    fn enter(running: &Arc<Running>) -> Entered {
        running.active.fetch_add(1, Ordering::AcqRel);
        Entered(Arc::clone(running))
    }
}

/// Counted as active until it is dropped, also by a thread that panics.
struct Entered(Arc<Running>);

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Ordering::AcqRel);
    }
}
