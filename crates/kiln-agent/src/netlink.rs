//! A socket that says when the kernel's links, addresses, routes or rules change. What changed is not read: whoever is
//! told looks for himself. And one question to it: whether a neighbour answers.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::ReceiveTimeout;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, sendto, socket,
};
use nix::sys::time::{TimeVal, TimeValLike};
use tokio::net::UdpSocket;

/// RTMGRP_LINK, IPV4_IFADDR, IPV4_ROUTE, IPV4_RULE, IPV6_IFADDR, IPV6_ROUTE, and group 19, IPV6_RULE.
const GROUPS: u32 = 0x1 | 0x10 | 0x40 | 0x80 | 0x100 | 0x400 | (1 << 18);

/// The socket. Tokio's `AsyncFd` has no constructor left that is neither unsafe nor deprecated; its UDP socket waits for and
/// reads datagrams of any family.
#[derive(Debug)]
pub struct Events(UdpSocket);

impl Events {
    /// Opens it in the network namespace of this process.
    pub fn open() -> io::Result<Events> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkRoute)?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, GROUPS))?;
        Ok(Events(UdpSocket::from_std(socket.into())?))
    }

    /// Waits for an event and takes all that are there. A full buffer (ENOBUFS) is an event too.
    pub async fn next(&self) -> io::Result<()> {
        self.0.readable().await?;
        let mut buffer = [0_u8; 16 * 1024];
        // Bounded, so that a storm of routes cannot hold the caller for ever.
        for _ in 0..1024 {
            match self.0.try_recv(&mut buffer) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.raw_os_error() == Some(Errno::ENOBUFS as i32) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Whether a neighbour answers ARP or neighbour discovery now: the kernel is told to ask, and watched for the answer.
pub async fn neighbour_answers(address: IpAddr, interface: &str) -> bool {
    let Ok(index) = nix::net::if_::if_nametoindex(interface) else { return false };
    // "Use" starts the resolution of one that is not known, "probe" asks one that is.
    let begun = Instant::now();
    let _ = exchange(&neighbour_message(Ask::Use, address, index));
    let _ = exchange(&neighbour_message(Ask::Probe, address, index));
    while begun.elapsed() < Duration::from_millis(600) {
        match exchange(&neighbour_message(Ask::Get, address, index)).ok().as_deref().and_then(neighbour_state) {
            Some(REACHABLE | PERMANENT | NO_ARP) => return true,
            Some(FAILED) => return false,
            _ => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
    false
}

const REACHABLE: u16 = 0x02;
const PROBE: u16 = 0x10;
const FAILED: u16 = 0x20;
const NO_ARP: u16 = 0x40;
const PERMANENT: u16 = 0x80;

/// What is asked about a neighbour.
#[derive(Debug, Clone, Copy)]
enum Ask {
    Use,
    Probe,
    Get,
}

fn neighbour_message(ask: Ask, address: IpAddr, index: u32) -> Vec<u8> {
    // RTM_NEWNEIGH or RTM_GETNEIGH; NLM_F_REQUEST with ACK, and CREATE or REPLACE
    let (kind, flags, state, neighbour_flags): (u16, u16, u16, u8) = match ask {
        Ask::Use => (28, 0x1 | 0x4 | 0x400, 0, 1),
        Ask::Probe => (28, 0x1 | 0x4 | 0x100, PROBE, 0),
        Ask::Get => (30, 0x1, 0, 0),
    };
    let (family, octets): (u8, Vec<u8>) = match address {
        IpAddr::V4(address) => (2, address.octets().to_vec()),
        IpAddr::V6(address) => (10, address.octets().to_vec()),
    };
    let mut message = vec![0; 4];
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend([0; 8]);
    message.extend([family, 0, 0, 0]);
    message.extend(index.to_ne_bytes());
    message.extend(state.to_ne_bytes());
    message.extend([neighbour_flags, 0]);
    message.extend((4 + octets.len() as u16).to_ne_bytes());
    // NDA_DST
    message.extend(1_u16.to_ne_bytes());
    message.extend(octets);
    let length = message.len() as u32;
    message[..4].copy_from_slice(&length.to_ne_bytes());
    message
}

/// The state in an RTM_NEWNEIGH answer.
fn neighbour_state(answer: &[u8]) -> Option<u16> {
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    let state = u16::from_ne_bytes(answer.get(24..26)?.try_into().ok()?);
    (kind == 28).then_some(state)
}

/// Everything the kernel has of one sort: the request's type and the length of its header, which stays empty.
pub fn dump(kind: u16, header: usize) -> io::Result<Vec<u8>> {
    // What a node with a hundred thousand routes says; more is cut off.
    const LARGEST: usize = 32 << 20;
    let socket = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkRoute)?;
    // A kernel that does not answer must not hold anybody up.
    setsockopt(&socket, ReceiveTimeout, &TimeVal::seconds(5))?;
    let mut request = vec![0; 16 + header];
    let length = request.len() as u32;
    request[..4].copy_from_slice(&length.to_ne_bytes());
    request[4..6].copy_from_slice(&kind.to_ne_bytes());
    // NLM_F_REQUEST and NLM_F_DUMP
    request[6..8].copy_from_slice(&0x301_u16.to_ne_bytes());
    sendto(socket.as_raw_fd(), &request, &NetlinkAddr::new(0, 0), MsgFlags::empty())?;
    let mut all = Vec::new();
    let mut buffer = vec![0_u8; 64 * 1024];
    while all.len() < LARGEST {
        let length = recv(socket.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
        let last = buffer.get(4..6).and_then(|kind| kind.try_into().ok()).map(u16::from_ne_bytes);
        match last {
            // NLMSG_DONE is a datagram of its own, or ends the last one, where the reader passes over it.
            Some(3) | None => break,
            // NLMSG_ERROR
            Some(2) => return Err(io::Error::other("the kernel refused a dump")),
            Some(_) => all.extend_from_slice(&buffer[..length]),
        }
        if length == 0 || ends_with_done(&buffer[..length]) {
            break;
        }
    }
    Ok(all)
}

fn ends_with_done(mut bytes: &[u8]) -> bool {
    while let (Some(length), Some(kind)) = (bytes.first_chunk(), bytes.get(4..).and_then(|rest| rest.first_chunk())) {
        if u16::from_ne_bytes(*kind) == 3 {
            return true;
        }
        let length = (u32::from_ne_bytes(*length) as usize).max(16).next_multiple_of(4);
        bytes = bytes.get(length..).unwrap_or_default();
    }
    false
}

/// Sends a request that asks for an acknowledgement, and takes that for its end.
pub fn acknowledge(message: &[u8]) -> io::Result<()> {
    let answer = exchange(message)?;
    // NLMSG_ERROR, whose code is 0 for "done" and negative otherwise.
    let kind = answer.get(4..6).and_then(|kind| kind.try_into().ok()).map(u16::from_ne_bytes);
    let code = answer.get(16..20).and_then(|code| code.try_into().ok()).map(i32::from_ne_bytes);
    match (kind, code) {
        (Some(2), Some(0)) => Ok(()),
        (Some(2), Some(code)) => Err(io::Error::from_raw_os_error(code.saturating_neg())),
        _ => Err(io::Error::other("the kernel did not acknowledge a request")),
    }
}

/// The kernel answers while it takes the message, so nothing has to be waited for.
fn exchange(message: &[u8]) -> io::Result<Vec<u8>> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkRoute)?;
    sendto(socket.as_raw_fd(), message, &NetlinkAddr::new(0, 0), MsgFlags::empty())?;
    let mut buffer = vec![0_u8; 4096];
    let length = recv(socket.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
    buffer.truncate(length);
    Ok(buffer)
}
