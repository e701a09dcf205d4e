//! HTTPS with an authority of its own: everybody who comes in has a certificate of ours or a token.
//!
//! TLS 1.2 or later, HTTP/1.1 and HTTP/2. Connections are bounded in all and for each source, and so is every time a
//! client can make the server wait: handshake, headers, idleness, an answer that is not read. kubectl sends neither token
//! nor certificate over plain HTTP, so there is none.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

use crate::guard::Peer;
use crate::identity::Identity;
use crate::metrics::{Metrics, Turned};
use crate::rate_limit::{Full, Quota, Seldom, source_key};
use crate::server::{Server, stopped};
use activity::Activity;
use patient::Patient;

pub use authority::{Authority, Credentials, TlsError, VALIDITY};
pub use certificate::ServedCertificate;
pub use renewal::Renewal;

mod activity;
mod authority;
mod certificate;
mod patient;
mod renewal;

/// What the listener takes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Connections at a time.
    pub total: usize,
    /// Connections of one source at a time: fewer, so that one machine leaves some to the others.
    pub per_source: usize,
    /// How long a TLS handshake may take.
    pub handshake: Duration,
    /// How long the headers of a request over HTTP/1.1 may take to arrive, and how long such a connection may be idle
    /// between requests: hyper counts both with one clock.
    pub headers: Duration,
    /// How long a connection over HTTP/2 may be idle.
    pub idle: Duration,
    /// How long an answer may wait for its reader.
    pub unread: Duration,
    /// Requests at a time on one HTTP/2 connection.
    pub streams: u32,
    /// Bytes of a request's headers.
    pub header_bytes: usize,
    /// How long requests may take after the server was asked to stop.
    pub last_requests: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        ConnectionLimits {
            total: 10_000,
            per_source: 5_000,
            handshake: Duration::from_secs(10),
            headers: Duration::from_secs(30),
            idle: Duration::from_secs(120),
            unread: Duration::from_secs(60),
            streams: 250,
            header_bytes: 64 << 10,
            last_requests: Duration::from_secs(5),
        }
    }
}

/// How much of an answer is encrypted ahead of the socket: a record. With more, thousands that read slowly hold it all.
const ENCRYPTED_AHEAD: usize = 16 << 10;
/// How often a client with open requests over HTTP/2 is asked whether it is there.
const PING: Duration = Duration::from_secs(30);

/// Serves with the usual limits until `stopping` becomes true, then lets what has begun come to its end.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    config: Arc<rustls::ServerConfig>,
    stopping: watch::Receiver<bool>,
) {
    serve_within(ConnectionLimits::default(), Arc::default(), listener, router, config, stopping).await;
}

/// Serves within limits of its own, and counts who is turned away.
pub async fn serve_within(
    limits: ConnectionLimits,
    metrics: Arc<Metrics>,
    listener: TcpListener,
    router: Router,
    config: Arc<rustls::ServerConfig>,
    stopping: watch::Receiver<bool>,
) {
    let connections = Quota::new(limits.total);
    let serving = Serving { limits, connections, metrics, acceptor: TlsAcceptor::from(config), router };
    serving.run(listener, stopping).await;
}

/// Serves within the limits of `server`, and counts there. The router may have more paths than the server's own.
pub async fn serve_bounded(
    server: Arc<Server>,
    listener: TcpListener,
    router: Router,
    config: Arc<rustls::ServerConfig>,
) {
    let (limits, connections) = (server.limits.connections, Arc::clone(&server.guard.connections));
    let (metrics, stopping) = (Arc::clone(server.metrics()), server.stopping());
    Serving { limits, connections, metrics, acceptor: TlsAcceptor::from(config), router }.run(listener, stopping).await;
}

/// What connections share.
struct Serving {
    limits: ConnectionLimits,
    connections: Arc<Quota>,
    metrics: Arc<Metrics>,
    acceptor: TlsAcceptor,
    router: Router,
}

impl Serving {
    async fn run(self, listener: TcpListener, mut stopping: watch::Receiver<bool>) {
        let (graceful, complaints) = (GracefulShutdown::new(), Seldom::default());
        let serving = Arc::new(self);
        // Dropped at the end, with which whatever is still served ends, too.
        let (_open, cut) = watch::channel(());
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = stopped(&mut stopping) => break,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of file descriptors, most likely: waiting is better than spinning.
                    if let Some(more) = complaints.now(std::time::Instant::now()) {
                        tracing::warn!(%error, more, "cannot accept a connection");
                    }
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let held = match serving.connections.take(&source_key(peer.ip()), serving.limits.per_source) {
                Ok(held) => held,
                Err(full) => {
                    let whose = match full {
                        Full::Total => "there are too many connections",
                        Full::Key => "this source has too many connections",
                    };
                    serving.metrics.turn_away(Turned::Connections, peer, whose);
                    continue;
                }
            };
            let (serving, watcher, mut cut) = (Arc::clone(&serving), graceful.watcher(), cut.clone());
            tokio::spawn(async move {
                tokio::select! {
                    () = serving.serve_connection(stream, peer, watcher) => {}
                    _ = cut.changed() => {}
                }
                drop(held);
            });
        }
        drop(listener);
        if tokio::time::timeout(serving.limits.last_requests, graceful.shutdown()).await.is_err() {
            tracing::warn!("some requests did not end in time and are cut off");
        }
    }

    async fn serve_connection(&self, stream: TcpStream, peer: SocketAddr, watcher: Watcher) {
        // Answers are small; without this each waits for the acknowledgement of the one before.
        let _ = stream.set_nodelay(true);
        let limits = &self.limits;
        let bounded = self.acceptor.accept_with(stream, |tls| tls.set_buffer_limit(Some(ENCRYPTED_AHEAD)));
        let stream = match tokio::time::timeout(limits.handshake, bounded).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                return self.metrics.turn_away(Turned::Handshake, peer, format_args!("TLS handshake failed: {error}"));
            }
            Err(_) => return self.metrics.turn_away(Turned::Handshake, peer, "the TLS handshake took too long"),
        };
        let tls = stream.get_ref().1;
        let identity = tls.peer_certificates().and_then(|chain| authority::identity_of(chain.first()?));
        let http2 = tls.alpn_protocol() == Some(b"h2");
        let (router, activity) = (self.router.clone(), Activity::new());
        let requests = activity.clone();
        let service = hyper::service::service_fn(move |mut request: Request<hyper::body::Incoming>| {
            // Whatever a client might smuggle in, identity comes from the handshake alone.
            request.extensions_mut().remove::<Identity>();
            request.extensions_mut().insert(Peer(peer));
            if let Some(identity) = &identity {
                request.extensions_mut().insert(identity.clone());
            }
            let (open, router) = (requests.begin(), router.clone());
            async move { router.oneshot(request.map(Body::new)).await.map(|response| open.until_sent(response)) }
        });
        // The handshake says which protocol it is; guessing from the first bytes would wait for them without a limit.
        let ended = if http2 {
            let io = TokioIo::new(Patient::new(stream, limits.unread, activity.clone()));
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder
                .timer(TokioTimer::new())
                .max_concurrent_streams(limits.streams)
                .max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX))
                .keep_alive_interval(PING);
            tokio::select! {
                ended = watcher.watch(builder.serve_connection(io, service)) => ended,
                () = activity.idle(limits.idle) => return self.metrics.turn_away(Turned::Idle, peer, IDLE),
            }
        } else {
            let io = TokioIo::new(Patient::new(stream, limits.unread, activity.clone()));
            let mut builder = http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(limits.headers).max_buf_size(limits.header_bytes);
            watcher.watch(builder.serve_connection(io, service)).await
        };
        let Err(error) = ended else { return };
        match activity.why_given_up(&error, http2) {
            Some(Turned::Unread) => self.metrics.turn_away(Turned::Unread, peer, "it does not read its answer"),
            Some(Turned::Headers) => self.metrics.turn_away(Turned::Headers, peer, "headers took too long to arrive"),
            Some(Turned::Idle) => self.metrics.turn_away(Turned::Idle, peer, IDLE),
            Some(why) => self.metrics.turn_away(why, peer, format_args!("no HTTP that can be read: {error}")),
            None => tracing::debug!(%peer, %error, "connection ended"),
        }
    }
}

const IDLE: &str = "the connection was idle for too long";
