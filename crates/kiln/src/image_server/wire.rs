//! A connection's bytes: plain TCP with `sendfile`, or TLS with ordinary reads.
//!
//! Every wait has an end: reads by a deadline that the caller sets, writes by the time a peer may take nothing.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::sendfile::sendfile;
use nix::sys::socket::{MsgFlags, send};
use socket2::SockRef;

/// What TLS reads and encrypts at once.
const CHUNK: usize = 64 * 1024;

/// One peer.
pub enum Wire {
    /// Readable by everybody on the way.
    Plain(Timed),
    /// Encrypted.
    Tls(Box<rustls::StreamOwned<rustls::ServerConnection, Timed>>),
}

/// Whether more bytes follow at once, so that small ones travel with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Follows {
    /// More bytes of the same answer.
    More,
    /// Nothing for now.
    Nothing,
}

impl Wire {
    /// Takes an accepted connection. The handshake of TLS happens with the first read.
    pub fn new(stream: TcpStream, tls: Option<&Arc<rustls::ServerConfig>>, stall: Duration) -> io::Result<Wire> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(stall))?;
        let timed = Timed { stream, deadline: Instant::now() };
        Ok(match tls {
            None => Wire::Plain(timed),
            Some(config) => {
                let connection = rustls::ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
                Wire::Tls(Box::new(rustls::StreamOwned::new(connection, timed)))
            }
        })
    }

    /// Reads what is there, or waits for it until the deadline.
    pub fn read(&mut self, buffer: &mut [u8], deadline: Instant) -> io::Result<usize> {
        match self {
            Wire::Plain(timed) => {
                timed.deadline = deadline;
                timed.read(buffer)
            }
            Wire::Tls(stream) => {
                stream.sock.deadline = deadline;
                stream.read(buffer)
            }
        }
    }

    /// Sends bytes.
    pub fn write(&mut self, mut bytes: &[u8], follows: Follows) -> io::Result<()> {
        match self {
            Wire::Plain(timed) => {
                let flags = MsgFlags::MSG_NOSIGNAL
                    | if follows == Follows::More {
                        MsgFlags::from_bits_retain(nix::libc::MSG_MORE)
                    } else {
                        MsgFlags::empty()
                    };
                while !bytes.is_empty() {
                    let sent = retry(|| send(timed.stream.as_raw_fd(), bytes, flags))?;
                    bytes = bytes.get(sent..).unwrap_or_default();
                }
                Ok(())
            }
            Wire::Tls(stream) => {
                stream.write_all(bytes)?;
                if follows == Follows::Nothing { stream.flush() } else { Ok(()) }
            }
        }
    }

    /// Sends a range of a file. The file's own position is neither used nor moved.
    pub fn send_file(&mut self, file: &File, range: Range<u64>) -> io::Result<()> {
        match self {
            Wire::Plain(timed) => {
                let mut at = i64::try_from(range.start).map_err(io::Error::other)?;
                let end = i64::try_from(range.end).map_err(io::Error::other)?;
                // Otherwise the kernel sends each few pages as a packet of their own: seven times the CPU time.
                SockRef::from(&timed.stream).set_tcp_cork(true)?;
                while at < end {
                    // The kernel sends at most 2 GiB at once.
                    let count = usize::try_from((end - at).min(1 << 30)).map_err(io::Error::other)?;
                    if retry(|| sendfile(&timed.stream, file, Some(&mut at), count))? == 0 {
                        return Err(shortened());
                    }
                }
                // Pushes what has not filled a packet.
                SockRef::from(&timed.stream).set_tcp_cork(false)
            }
            Wire::Tls(stream) => {
                let mut buffer = vec![0; CHUNK];
                let mut at = range.start;
                while at < range.end {
                    let take = usize::try_from((range.end - at).min(CHUNK as u64)).map_err(io::Error::other)?;
                    let read = file.read_at(&mut buffer[..take], at)?;
                    if read == 0 {
                        return Err(shortened());
                    }
                    stream.write_all(&buffer[..read])?;
                    at += read as u64;
                }
                stream.flush()
            }
        }
    }

    /// Says goodbye where the protocol has a word for it.
    pub fn close(&mut self) {
        if let Wire::Tls(stream) = self {
            stream.conn.send_close_notify();
            let _ = stream.flush();
        }
    }
}

fn shortened() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "a file of the store has become shorter")
}

fn retry(mut call: impl FnMut() -> nix::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(nix::errno::Errno::EINTR) => {}
            other => return other.map_err(io::Error::from),
        }
    }
}

/// A stream whose reads end at a deadline, however many there are: a peer that sends a byte now and then gains nothing.
#[derive(Debug)]
pub struct Timed {
    stream: TcpStream,
    deadline: Instant,
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        match self.stream.read(buffer) {
            // What a socket's time-out is called differs between systems.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(io::ErrorKind::TimedOut.into()),
            other => other,
        }
    }
}

impl Write for Timed {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.stream.write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
