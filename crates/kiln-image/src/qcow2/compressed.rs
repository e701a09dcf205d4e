//! Compressed clusters: each is a stream of its own and becomes exactly one cluster.
//!
//! Output is bounded by the cluster, input by what the entry of the L2 table can say: two clusters.
//! The length in the entry counts sectors, so bytes of the next compressed cluster may follow the stream.

use std::io::{self, Read};

use flate2::{Decompress, FlushDecompress, Status};
use ruzstd::decoding::StreamingDecoder;

use super::header::Compression;

/// qemu compresses with windows of at most 8 MiB; the decoder takes that much memory before it knows the content.
const MAX_ZSTD_WINDOW: u64 = 8 << 20;

/// Unpacks one cluster. An error says what is wrong with the stream, not where it is.
pub(super) fn decompress(compression: Compression, packed: &[u8], cluster: &mut [u8]) -> io::Result<()> {
    match compression {
        Compression::Deflate => inflate(packed, cluster),
        Compression::Zstd => StreamingDecoder::new_with_max_window_size(packed, MAX_ZSTD_WINDOW)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?
            .read_exact(cluster),
    }
}

fn inflate(packed: &[u8], cluster: &mut [u8]) -> io::Result<()> {
    let mut stream = Decompress::new(false);
    loop {
        let (read, written) = (stream.total_in() as usize, stream.total_out() as usize);
        let status = stream.decompress(&packed[read..], &mut cluster[written..], FlushDecompress::None)?;
        if stream.total_out() as usize == cluster.len() {
            return Ok(());
        }
        let stuck = (read, written) == (stream.total_in() as usize, stream.total_out() as usize);
        if status == Status::StreamEnd || stuck {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the compressed bytes end too early"));
        }
    }
}
