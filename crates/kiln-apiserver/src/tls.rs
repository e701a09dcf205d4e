//! HTTPS with an authority of its own: everybody who comes in has a certificate of ours or a token.
//!
//! TLS 1.2 or later, HTTP/1.1 and HTTP/2. Handshakes, headers and the number of connections are bounded, so that clients
//! that are slow or many cost little. kubectl sends neither token nor certificate over plain HTTP, so there is none.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

use crate::identity::Identity;
use crate::server::stopped;

pub use authority::{Authority, Credentials, TlsError};

mod authority;

/// Connections at a time.
const MOST_CONNECTIONS: usize = 10_000;
/// Handshake, and each request's headers.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long requests may take after the server was asked to stop.
const LAST_REQUESTS: Duration = Duration::from_secs(5);
/// Requests at a time on one HTTP/2 connection.
const MOST_STREAMS: u32 = 250;

/// Serves until `stopping` becomes true, then lets what has begun come to its end.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    config: Arc<rustls::ServerConfig>,
    mut stopping: watch::Receiver<bool>,
) {
    let acceptor = TlsAcceptor::from(config);
    let connections = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let graceful = GracefulShutdown::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stopped(&mut stopping) => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, most likely: waiting is better than spinning.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Ok(permit) = Arc::clone(&connections).try_acquire_owned() else {
            tracing::warn!(%peer, "connection refused: there are {MOST_CONNECTIONS}");
            continue;
        };
        let (acceptor, router, watcher) = (acceptor.clone(), router.clone(), graceful.watcher());
        tokio::spawn(async move {
            serve_connection(stream, peer, acceptor, router, watcher).await;
            drop(permit);
        });
    }
    drop(listener);
    if tokio::time::timeout(LAST_REQUESTS, graceful.shutdown()).await.is_err() {
        tracing::warn!("some requests did not end in time");
    }
}

async fn serve_connection(
    stream: TcpStream,
    peer: SocketAddr,
    acceptor: TlsAcceptor,
    router: Router,
    watcher: hyper_util::server::graceful::Watcher,
) {
    // Answers are small; without this each waits for the acknowledgement of the one before.
    let _ = stream.set_nodelay(true);
    let stream = match tokio::time::timeout(PATIENCE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%peer, %error, "TLS handshake failed"),
        Err(_) => return tracing::debug!(%peer, "TLS handshake took too long"),
    };
    let identity = stream.get_ref().1.peer_certificates().and_then(|chain| authority::identity_of(chain.first()?));
    let service = hyper::service::service_fn(move |mut request: Request<hyper::body::Incoming>| {
        // Whatever a client might smuggle in, identity comes from the handshake alone.
        request.extensions_mut().remove::<Identity>();
        if let Some(identity) = &identity {
            request.extensions_mut().insert(identity.clone());
        }
        router.clone().oneshot(request.map(Body::new))
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(PATIENCE);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MOST_STREAMS)
        .keep_alive_interval(Duration::from_secs(30));
    let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
    if let Err(error) = watcher.watch(connection).await {
        tracing::debug!(%peer, %error, "connection ended");
    }
}
