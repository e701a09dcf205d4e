//! Random access to bytes: files, slices, disks inside containers.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};

/// Bytes that can be read anywhere. A read past the end is [`io::ErrorKind::UnexpectedEof`] and reads nothing useful.
pub trait ReadAt {
    /// How many bytes there are.
    fn len(&self) -> u64;

    /// Fills the buffer from this place on.
    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A copy of some bytes. The length is checked against [`ReadAt::len`] before memory is taken.
    fn read_vec(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        check_range(offset, length, self.len())?;
        let mut bytes = vec![0; length];
        self.read_exact_at(offset, &mut bytes)?;
        Ok(bytes)
    }
}

/// Refuses a range that does not lie within so many bytes.
pub fn check_range(offset: u64, length: usize, available: u64) -> io::Result<()> {
    match offset.checked_add(length as u64) {
        Some(end) if end <= available => Ok(()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

impl<T: ReadAt + ?Sized> ReadAt for &T {
    fn len(&self) -> u64 {
        (**self).len()
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        (**self).read_exact_at(offset, buffer)
    }
}

impl<T: ReadAt + ?Sized> ReadAt for Box<T> {
    fn len(&self) -> u64 {
        (**self).len()
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        (**self).read_exact_at(offset, buffer)
    }
}

impl ReadAt for [u8] {
    fn len(&self) -> u64 {
        self.len() as u64
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        check_range(offset, buffer.len(), self.len() as u64)?;
        let start = offset as usize;
        buffer.copy_from_slice(&self[start..start + buffer.len()]);
        Ok(())
    }
}

impl ReadAt for Vec<u8> {
    fn len(&self) -> u64 {
        self.as_slice().len() as u64
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.as_slice().read_exact_at(offset, buffer)
    }
}

/// A regular file or a block device. The length is taken once.
#[derive(Debug)]
pub struct ImageFile {
    file: File,
    length: u64,
}

impl ImageFile {
    /// Takes an open file.
    pub fn new(mut file: File) -> io::Result<Self> {
        let length = file.seek(SeekFrom::End(0))?;
        Ok(ImageFile { file, length })
    }

    /// The file itself.
    pub fn file(&self) -> &File {
        &self.file
    }
}

impl ReadAt for ImageFile {
    fn len(&self) -> u64 {
        self.length
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }
}

/// Anything that can be read and positioned, for callers that have no file.
#[derive(Debug)]
pub struct Seekable<T> {
    inner: Mutex<T>,
    length: u64,
}

impl<T: Read + Seek> Seekable<T> {
    /// Takes a reader. The length is taken once.
    pub fn new(mut inner: T) -> io::Result<Self> {
        let length = inner.seek(SeekFrom::End(0))?;
        Ok(Seekable { inner: Mutex::new(inner), length })
    }
}

impl<T: Read + Seek> ReadAt for Seekable<T> {
    fn len(&self) -> u64 {
        self.length
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        check_range(offset, buffer.len(), self.length)?;
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.seek(SeekFrom::Start(offset))?;
        inner.read_exact(buffer)
    }
}

/// A part of something larger: a partition of a disk, a file of an ISO.
#[derive(Debug, Clone)]
pub struct Window<D> {
    inner: D,
    start: u64,
    length: u64,
}

impl<D: ReadAt> Window<D> {
    /// The window must lie within what it looks at.
    pub fn new(inner: D, start: u64, length: u64) -> io::Result<Self> {
        match start.checked_add(length) {
            Some(end) if end <= inner.len() => Ok(Window { inner, start, length }),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl<D: ReadAt> ReadAt for Window<D> {
    fn len(&self) -> u64 {
        self.length
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        check_range(offset, buffer.len(), self.length)?;
        self.inner.read_exact_at(self.start + offset, buffer)
    }
}

/// Reads one after the other, for decoders that want a stream.
#[derive(Debug)]
pub struct Sequential<D> {
    inner: D,
    position: u64,
}

impl<D: ReadAt> Sequential<D> {
    /// Starts at the first byte.
    pub fn new(inner: D) -> Self {
        Sequential { inner, position: 0 }
    }
}

impl<D: ReadAt> Read for Sequential<D> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.inner.len().saturating_sub(self.position);
        let take = left.min(buffer.len() as u64) as usize;
        self.inner.read_exact_at(self.position, &mut buffer[..take])?;
        self.position += take as u64;
        Ok(take)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_reads_past_its_end() {
        let bytes: Vec<u8> = (0..10).collect();
        let window = Window::new(&bytes, 2, 4).unwrap();
        assert_eq!(window.read_vec(1, 3).unwrap(), [3, 4, 5]);
        assert_eq!(window.read_vec(2, 3).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(window.read_vec(u64::MAX, 3).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(Window::new(&bytes, 8, 3).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        let seekable = Seekable::new(io::Cursor::new(bytes)).unwrap();
        assert_eq!(seekable.read_vec(7, 3).unwrap(), [7, 8, 9]);
        assert_eq!(seekable.read_vec(8, 3).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        let mut text = Vec::new();
        Sequential::new(&seekable).read_to_end(&mut text).unwrap();
        assert_eq!(text, (0..10).collect::<Vec<u8>>());
    }
}
