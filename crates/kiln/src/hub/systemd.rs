//! Telling systemd how far the hub is (`Type=notify`): one datagram to the socket it names, nothing without one.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// How far the hub is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It answers.
    Ready,
    /// It has been asked to end.
    Stopping,
}

/// Tells. A failure is told in the log: the hub works without systemd knowing.
pub fn tell(state: State) {
    if let Some(socket) = std::env::var_os("NOTIFY_SOCKET")
        && let Err(error) = send(socket.as_bytes(), state)
    {
        tracing::warn!(%error, "systemd could not be told that the hub is {state:?}");
    }
}

fn send(socket: &[u8], state: State) -> io::Result<()> {
    let address = match socket {
        // An abstract name, written with an at sign.
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        path => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(path))?,
    };
    let text: &[u8] = match state {
        State::Ready => b"READY=1\n",
        State::Stopping => b"STOPPING=1\n",
    };
    UnixDatagram::unbound()?.send_to_addr(text, &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systemd_hears_of_it_on_either_kind_of_socket() {
        let name = format!("kiln-notify-{}", std::process::id());
        let path = std::env::temp_dir().join(&name);
        let by_path = UnixDatagram::bind(&path).unwrap();
        let by_name = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        for (socket, address) in [(by_path, path.as_os_str().as_bytes().to_vec()), (by_name, format!("@{name}").into())]
        {
            send(&address, State::Ready).unwrap();
            send(&address, State::Stopping).unwrap();
            let mut text = [0; 32];
            let mut receive = || {
                let length = socket.recv(&mut text).unwrap();
                String::from_utf8_lossy(&text[..length]).into_owned()
            };
            assert_eq!((receive(), receive()), ("READY=1\n".into(), "STOPPING=1\n".into()));
        }
        std::fs::remove_file(&path).unwrap();
    }
}
