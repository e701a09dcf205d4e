//! A list as a body: the objects' bytes one after the other, in pieces as the client takes them.
//!
//! They are unpacked one by one, nothing is parsed and nothing encoded again, and a list of ten thousand objects is never in memory as a whole: its
//! pieces are made when the connection has room for them.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::HttpBody;
use bytes::Bytes;
use http_body::{Frame, SizeHint};

use crate::store::Stored;

/// Bytes of a piece: a few TLS records.
const PIECE: usize = 64 << 10;

/// Head, objects with commas between them, end.
#[derive(Debug)]
pub(super) struct ListBody {
    items: Vec<Arc<Stored>>,
    /// The next object; one more than there are when everything was sent.
    next: usize,
    /// What begins the next piece.
    piece: Vec<u8>,
    remaining: usize,
}

impl ListBody {
    /// `head` ends with the bracket that opens the items.
    pub(super) fn new(head: String, items: Vec<Arc<Stored>>) -> ListBody {
        let commas = items.len().saturating_sub(1);
        let objects = items.iter().map(|stored| stored.json.len()).sum::<usize>();
        let remaining = head.len() + objects + commas + END.len();
        ListBody { items, next: 0, piece: head.into_bytes(), remaining }
    }
}

const END: &[u8] = b"]}";

impl HttpBody for ListBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = &mut *self;
        if this.next > this.items.len() {
            return Poll::Ready(None);
        }
        let mut piece = std::mem::take(&mut this.piece);
        piece.reserve(this.remaining.min(PIECE + (4 << 10)).saturating_sub(piece.len()));
        while let Some(stored) = this.items.get(this.next) {
            if piece.len() >= PIECE {
                break;
            }
            if this.next > 0 {
                piece.push(b',');
            }
            stored.json.append_to(&mut piece);
            this.next += 1;
        }
        if this.next == this.items.len() {
            piece.extend_from_slice(END);
            this.next += 1;
        }
        this.remaining = this.remaining.saturating_sub(piece.len());
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(piece)))))
    }

    fn is_end_stream(&self) -> bool {
        self.next > self.items.len()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.remaining as u64)
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;
    use crate::store::{Draft, Key, Store, StoreLimits, Write};
    use crate::testing::TempDir;

    #[tokio::test]
    async fn a_list_in_pieces_is_the_list_and_as_long_as_was_said() {
        let folder = TempDir::new("list-body");
        let store = Store::open(folder.path(), StoreLimits::default()).unwrap();
        let mut items = Vec::new();
        for number in 0..40 {
            let name = format!("n{number}");
            let object = serde_json::json!({"metadata": {"name": name}, "data": "x".repeat(number * 250)});
            let key = Key::new(&"things".into(), "ns", &name);
            items.push(
                store.write(Write::Create { key, draft: Draft::new(&object), requires: Vec::new() }).await.unwrap(),
            );
        }
        for count in [0, 1, 2, 40] {
            let body = ListBody::new("{\"items\":[".into(), items[..count].to_vec());
            let promised = body.size_hint().exact().unwrap();
            let bytes = body.collect().await.unwrap().to_bytes();
            assert_eq!(bytes.len() as u64, promised, "{count} items");
            let list: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
            let expected: Vec<_> = items[..count].iter().map(|stored| stored.value()).collect();
            assert_eq!(list["items"], serde_json::Value::from(expected), "{count} items");
        }
        store.close().await;
    }
}
