//! A stream that gives up on a client which stops reading.
//!
//! hyper bounds how long headers take to arrive, but not how long an answer may wait for its reader. Answers wait in
//! memory: a client that asks for a large list and never reads it would hold it for ever.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use super::activity::Activity;

/// A stream with a bound on how long a write may wait.
pub(super) struct Patient<S> {
    stream: S,
    writing: Patience,
    activity: Activity,
}

struct Patience {
    most: Duration,
    timer: Pin<Box<Sleep>>,
    waiting: bool,
}

impl Patience {
    fn new(most: Duration) -> Patience {
        Patience { most, timer: Box::pin(sleep(most)), waiting: false }
    }

    /// Something happened.
    fn reset(&mut self) {
        self.waiting = false;
    }

    /// Nothing happened: an error when that has been so for too long.
    fn wait<T>(&mut self, context: &mut Context<'_>, what: &str) -> Poll<io::Result<T>> {
        if !self.waiting {
            self.waiting = true;
            self.timer.as_mut().reset(Instant::now() + self.most);
        }
        ready!(self.timer.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, what.to_owned())))
    }
}

impl<S> Patient<S> {
    pub(super) fn new(stream: S, writing: Duration, activity: Activity) -> Patient<S> {
        Patient { stream, writing: Patience::new(writing), activity }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.activity.hear();
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> Patient<S> {
    fn judge<T>(&mut self, polled: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if polled.is_pending() {
            let waited = self.writing.wait(context, "the client does not read its answer");
            if waited.is_ready() {
                self.activity.give_up_reader();
            }
            return waited;
        }
        self.writing.reset();
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge(polled, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        self.judge(polled, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_shutdown(context);
        self.judge(polled, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, buffers);
        self.judge(polled, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn a_client_that_does_not_read_is_given_up() {
        let (_client, server) = duplex(8);
        let mut server = Patient::new(server, Duration::from_millis(50), Activity::new());
        let stuck = server.write_all(&[0; 100]).await.unwrap_err();
        assert_eq!(stuck.to_string(), "the client does not read its answer");
    }

    #[tokio::test]
    async fn a_slow_client_that_makes_progress_is_served() {
        let (mut client, server) = duplex(8);
        let mut server = Patient::new(server, Duration::from_millis(200), Activity::new());
        let writing = tokio::spawn(async move { server.write_all(&[0; 64]).await });
        let mut total = 0;
        while total < 64 {
            tokio::time::sleep(Duration::from_millis(30)).await;
            total += client.read(&mut [0; 8]).await.unwrap();
        }
        writing.await.unwrap().unwrap();
    }
}
