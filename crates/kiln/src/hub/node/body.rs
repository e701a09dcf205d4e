//! A body of several parts that are shared: nothing is copied for a machine, and the length is known before.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use http_body::{Frame, SizeHint};

/// The parts that are still to be sent.
pub struct Parts {
    parts: VecDeque<Bytes>,
    left: u64,
}

impl Parts {
    /// These parts, one after the other.
    pub fn new(parts: Vec<Bytes>) -> Parts {
        let left = parts.iter().map(|part| part.len() as u64).sum();
        Parts { parts: parts.into(), left }
    }

    /// How many bytes there are.
    pub fn length(&self) -> u64 {
        self.left
    }
}

impl From<Parts> for Body {
    fn from(parts: Parts) -> Body {
        Body::new(parts)
    }
}

impl HttpBody for Parts {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let part = self.parts.pop_front();
        if let Some(part) = &part {
            self.left -= part.len() as u64;
        }
        Poll::Ready(part.map(|part| Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.parts.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn parts_come_in_order_and_their_length_is_known_before() {
        let parts = Parts::new(["ab", "", "c"].map(|text| Bytes::from_static(text.as_bytes())).into());
        assert_eq!((parts.length(), parts.size_hint().exact()), (3, Some(3)));
        assert_eq!(axum::body::to_bytes(parts.into(), 10).await.unwrap(), "abc");
        assert!(Parts::new(Vec::new()).is_end_stream());
    }
}
