//! An image before it is stored: pieces in order, and the host's own bytes.

use std::ops::Range;

use sha2::{Digest, Sha256};

use super::record::{BaseRecord, ImageRecord, Piece, PieceOf};
use super::{BaseName, HostName, Store, cannot_write, key::hex, write};
use crate::error::ImageError;
use crate::segment::Segment;

/// Pieces in the order in which they make up an image.
#[derive(Debug, Clone, Default)]
pub struct Assembly {
    pieces: Vec<Piece>,
    own: Vec<u8>,
    /// sha256 of all bytes, when it is known.
    pub sha256: Option<[u8; 32]>,
    /// Whether somebody's secret is among the own bytes.
    pub confidential: bool,
}

impl Assembly {
    /// The segments of an edit.
    pub fn from_segments(segments: &[Segment]) -> Assembly {
        let mut assembly = Assembly::default();
        for segment in segments {
            match segment {
                Segment::Base(range) => assembly.push(PieceOf::Base, range.clone()),
                Segment::Own(bytes) => assembly.push_own(bytes),
            }
        }
        assembly
    }

    /// Goes on with bytes of the base, or with what all hosts share.
    pub fn push(&mut self, of: PieceOf, range: Range<u64>) {
        if !range.is_empty() {
            self.pieces.push(Piece(of, range.start, range.end));
        }
    }

    /// Goes on with bytes of the host's own.
    pub fn push_own(&mut self, bytes: &[u8]) {
        let start = self.own.len() as u64;
        self.own.extend_from_slice(bytes);
        self.push(PieceOf::Own, start..self.own.len() as u64);
    }
}

impl Store {
    /// Stores a host's image, in place of an earlier one.
    pub fn put_image(
        &self,
        host: &HostName,
        base: &BaseName,
        record: &BaseRecord,
        image: &Assembly,
    ) -> Result<ImageRecord, ImageError> {
        let Assembly { pieces, own, sha256, confidential } = image;
        let etag = match sha256 {
            Some(sum) => hex(sum),
            None => etag_of_pieces(&record.identity, pieces, own),
        };
        let image = ImageRecord::new(record.identity.clone(), pieces.clone(), *sha256, etag, *confidential);
        let path = self.image_path(host, base);
        let mut line = serde_json::to_vec(&image).map_err(|error| cannot_write(&path)(std::io::Error::other(error)))?;
        line.push(b'\n');
        // A `forget` may take the empty folder away between the two steps.
        let mut attempts = 0;
        loop {
            write::create_folder(&self.host_folder(host))?;
            match write::replace_file(&path, &[&line, own]) {
                Err(ImageError::Write { source, .. })
                    if source.kind() == std::io::ErrorKind::NotFound && attempts < 3 =>
                {
                    attempts += 1;
                }
                other => return other.map(|()| image),
            }
        }
    }
}

/// Names the contents without reading the base: which import, which of its ranges, which bytes between them.
fn etag_of_pieces(identity: &str, pieces: &[Piece], own: &[u8]) -> String {
    let mut sum = Sha256::new();
    sum.update(identity);
    for Piece(of, start, end) in pieces {
        sum.update([*of as u8]);
        sum.update(start.to_le_bytes());
        sum.update(end.to_le_bytes());
    }
    sum.update(own);
    format!("pieces-{}", hex(&sum.finalize()))
}
