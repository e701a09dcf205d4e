//! Whether a connection has requests, since when it has none, and why it was given up.
//!
//! hyper asks idle HTTP/2 clients for signs of life and keeps them as long as they answer, so bytes on the wire say
//! nothing. What counts is requests: from their arrival to the last byte of the answer's body, or until it is dropped.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::Response;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::time::{Instant, sleep_until};

use crate::metrics::Turned;

/// The requests of one connection.
#[derive(Debug, Clone)]
pub(super) struct Activity(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Whether bytes came that are not part of a request yet.
    heard: AtomicBool,
    /// Whether an answer waited too long for its reader.
    unread: AtomicBool,
}

#[derive(Debug)]
struct State {
    open: usize,
    /// When the last one ended.
    since: Instant,
}

impl Activity {
    pub(super) fn new() -> Activity {
        let state = Mutex::new(State { open: 0, since: Instant::now() });
        Activity(Arc::new(Shared { state, heard: false.into(), unread: false.into() }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes have arrived.
    pub(super) fn hear(&self) {
        self.0.heard.store(true, Ordering::Relaxed);
    }

    /// An answer was not read in time.
    pub(super) fn give_up_reader(&self) {
        self.0.unread.store(true, Ordering::Relaxed);
    }

    /// Which limit ended the connection; none when none did. hyper has one clock for headers of HTTP/1.1 that do not end
    /// and for a connection between two requests: what was heard tells them apart.
    pub(super) fn why_given_up(&self, error: &hyper::Error, http2: bool) -> Option<Turned> {
        if self.0.unread.load(Ordering::Relaxed) {
            return Some(Turned::Unread);
        }
        match (error.is_timeout() && !http2, error.is_parse()) {
            (true, _) if self.0.heard.load(Ordering::Relaxed) => Some(Turned::Headers),
            (true, _) => Some(Turned::Idle),
            (false, true) => Some(Turned::Malformed),
            (false, false) => None,
        }
    }

    /// A request has arrived; it ends when the result is dropped.
    pub(super) fn begin(&self) -> Open {
        self.lock().open += 1;
        self.0.heard.store(false, Ordering::Relaxed);
        Open(self.clone())
    }

    /// Returns when there has been no request for so long.
    pub(super) async fn idle(&self, most: Duration) {
        loop {
            let until = {
                let state = self.lock();
                let since = if state.open > 0 { Instant::now() } else { state.since };
                since + most
            };
            if until <= Instant::now() {
                return;
            }
            sleep_until(until).await;
        }
    }
}

/// A request that has not ended.
#[derive(Debug)]
pub(super) struct Open(Activity);

impl Drop for Open {
    fn drop(&mut self) {
        // Its body is not the beginning of another request.
        self.0.0.heard.store(false, Ordering::Relaxed);
        let mut state = self.0.lock();
        state.open -= 1;
        state.since = Instant::now();
    }
}

impl Open {
    /// The request ends with the body of its answer.
    pub(super) fn until_sent(self, response: Response<Body>) -> Response<Body> {
        response.map(|body| Body::new(Counted { body, _open: self }))
    }
}

struct Counted {
    body: Body,
    _open: Open,
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_connection_is_idle_only_without_requests() {
        let (activity, brief) = (Activity::new(), Duration::from_millis(50));
        let open = activity.begin();
        let answer = open.until_sent(Response::new(Body::from("a")));
        let waited = tokio::time::timeout(Duration::from_millis(200), activity.idle(brief)).await;
        assert!(waited.is_err(), "an answer is still being sent");
        drop(answer);
        let ended = Instant::now();
        activity.idle(brief).await;
        assert!(ended.elapsed() >= brief);
    }
}
