//! Files whose zeros take no room.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

/// Zeros are looked for in pieces of this size: the blocks of common file systems, many at a time.
const PIECE: usize = 64 << 10;

/// Writes one after the other and leaves holes where only zeros are written.
pub struct SparseFile {
    file: File,
    position: u64,
}

impl SparseFile {
    /// Starts an empty file.
    pub fn new(file: File) -> Self {
        SparseFile { file, position: 0 }
    }

    /// How many bytes the file will have.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Gives the file its length, which a hole at the end does not.
    pub fn finish(self) -> io::Result<File> {
        self.file.set_len(self.position)?;
        Ok(self.file)
    }
}

impl Write for SparseFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Pieces end at multiples of their size, wherever the bytes begin.
        let room = PIECE - (self.position % PIECE as u64) as usize;
        let piece = &bytes[..bytes.len().min(room)];
        if piece.iter().any(|&byte| byte != 0) {
            self.file.write_all_at(piece, self.position)?;
        }
        self.position += piece.len() as u64;
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_read_as_the_zeros_that_were_written() {
        let file = super::super::output_file::unnamed_file(&std::env::temp_dir()).unwrap();
        let mut sparse = SparseFile::new(file);
        let mut expected = vec![0; 300_000];
        expected[70_000..70_004].copy_from_slice(b"data");
        for chunk in expected.chunks(7_777) {
            sparse.write_all(chunk).unwrap();
        }
        let file = sparse.finish().unwrap();
        let mut read = vec![1; 300_000];
        file.read_exact_at(&mut read, 0).unwrap();
        assert!(read == expected);
        assert_eq!(file.metadata().unwrap().len(), 300_000);
    }
}
