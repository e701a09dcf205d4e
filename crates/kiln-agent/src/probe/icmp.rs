//! An ICMP echo, over a raw socket (root) or a ping socket.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU16, Ordering};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;

/// Sends an echo and waits for its reply; the caller limits the time.
pub async fn ping(address: IpAddr, interface: Option<&str>) -> io::Result<()> {
    static NUMBER: AtomicU16 = AtomicU16::new(0);
    let sequence = NUMBER.fetch_add(1, Ordering::Relaxed);
    let id = std::process::id() as u16;
    let (domain, protocol) = match address {
        IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4),
        IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6),
    };
    let socket = match Socket::new(domain, Type::RAW, Some(protocol)) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Socket::new(domain, Type::DGRAM, Some(protocol))?,
        other => other?,
    };
    socket.set_nonblocking(true)?;
    if let Some(interface) = interface {
        socket.bind_device(Some(interface.as_bytes()))?;
    }
    let mut to = SocketAddr::new(address, 0);
    if let (SocketAddr::V6(to), Some(interface)) = (&mut to, interface)
        && to.ip().is_unicast_link_local()
    {
        to.set_scope_id(nix::net::if_::if_nametoindex(interface)?);
    }
    socket.send_to(&echo_request(address, id, sequence), &to.into())?;
    // Tokio's UDP socket reads datagrams of any protocol.
    let socket = UdpSocket::from_std(std::net::UdpSocket::from(OwnedFd::from(socket)))?;
    let mut bytes = [0_u8; 1500];
    loop {
        let length = socket.recv(&mut bytes).await?;
        if is_reply(address, id, sequence, &bytes[..length]) {
            return Ok(());
        }
    }
}

/// The bytes of an echo request.
pub fn echo_request(address: IpAddr, id: u16, sequence: u16) -> Vec<u8> {
    let kind = if address.is_ipv4() { 8 } else { 128 };
    let mut packet = vec![kind, 0, 0, 0];
    packet.extend(id.to_be_bytes());
    packet.extend(sequence.to_be_bytes());
    packet.extend(b"kiln probes here");
    // The kernel fills it in for version 6.
    if address.is_ipv4() {
        let sum = packet.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum::<u32>();
        let folded = (sum & 0xffff) + (sum >> 16);
        let checksum = !((folded & 0xffff) + (folded >> 16)) as u16;
        packet[2..4].copy_from_slice(&checksum.to_be_bytes());
    }
    packet
}

/// Whether a packet is the reply. A ping socket has changed the id, and then only our replies come; a raw one gives the IP
/// header with version 4.
pub fn is_reply(address: IpAddr, id: u16, sequence: u16, packet: &[u8]) -> bool {
    let (message, raw) = match address {
        IpAddr::V4(address) if packet.first().is_some_and(|first| first >> 4 == 4) => {
            let header = usize::from(packet[0] & 15) * 4;
            if packet.get(12..16) != Some(&address.octets()[..]) {
                return false;
            }
            (packet.get(header..).unwrap_or_default(), true)
        }
        IpAddr::V4(_) => (packet, false),
        IpAddr::V6(_) => (packet, true),
    };
    let kind = if address.is_ipv4() { 0 } else { 129 };
    message.len() >= 8
        && message[0] == kind
        && message[6..8] == sequence.to_be_bytes()
        && (!raw || message[4..6] == id.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_reply_to_our_echo_counts() {
        let address: IpAddr = "192.0.2.1".parse().unwrap();
        let request = echo_request(address, 7, 9);
        let sum: u32 = request.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff, "the checksum is right");
        let mut packet = vec![0x45];
        packet.extend([0; 11]);
        packet.extend([192, 0, 2, 1, 0, 0, 0, 0]);
        packet.extend(&request);
        assert!(!is_reply(address, 7, 9, &packet), "our own request, as seen on loopback");
        packet[20] = 0;
        assert!(is_reply(address, 7, 9, &packet));
        assert!(!is_reply(address, 7, 8, &packet));
        assert!(!is_reply(address, 6, 9, &packet));
        assert!(!is_reply("192.0.2.2".parse().unwrap(), 7, 9, &packet));
        for length in 0..packet.len() {
            let _ = is_reply(address, 7, 9, &packet[..length]);
        }
    }
}
