//! A resolver that answers: the question is for the name servers of the root, which needs no name to exist anywhere, and any
//! answer will do, also a refusal.

use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};

use futures::stream::{FuturesUnordered, StreamExt};
use tokio::net::UdpSocket;

/// Resolvers that are asked at most.
const MOST: usize = 6;

/// Whether one of the resolvers in force answers.
pub async fn ask_resolvers() -> bool {
    let mut asked: FuturesUnordered<_> = resolvers().into_iter().map(ask).collect();
    while let Some(answer) = asked.next().await {
        if answer.is_ok() {
            return true;
        }
    }
    false
}

async fn ask(resolver: IpAddr) -> io::Result<()> {
    static NUMBER: AtomicU16 = AtomicU16::new(0);
    let id = NUMBER.fetch_add(1, Ordering::Relaxed) ^ std::process::id() as u16;
    let any: IpAddr = if resolver.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0)).await?;
    socket.connect(SocketAddr::new(resolver, 53)).await?;
    socket.send(&query(id)).await?;
    let mut buffer = [0_u8; 1500];
    loop {
        let length = socket.recv(&mut buffer).await?;
        if answers(id, &buffer[..length]) {
            return Ok(());
        }
    }
}

/// A question for `. IN NS`, recursion desired.
pub fn query(id: u16) -> [u8; 17] {
    let [high, low] = id.to_be_bytes();
    [high, low, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1]
}

/// Whether a datagram is an answer to it, whatever it says.
pub fn answers(id: u16, datagram: &[u8]) -> bool {
    datagram.len() >= 12 && datagram[..2] == id.to_be_bytes() && datagram[2] & 0x80 != 0
}

/// Name servers of resolv.conf; behind the stub of systemd-resolved the real ones, which the stub may answer for.
fn resolvers() -> Vec<IpAddr> {
    let stub = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 53));
    let mut found = parse(&read("/etc/resolv.conf"));
    if found.contains(&stub) {
        let real = parse(&read("/run/systemd/resolve/resolv.conf"));
        if !real.is_empty() {
            found = real;
        }
    }
    found
}

fn parse(text: &str) -> Vec<IpAddr> {
    let servers = text.lines().filter_map(|line| line.trim().strip_prefix("nameserver"));
    // A scope (`fe80::1%eth0`) cannot be kept in an address; such a resolver is left out.
    servers.filter_map(|server| server.trim().parse().ok()).take(MOST).collect()
}

fn read(path: &str) -> String {
    let mut text = Vec::new();
    // No file, no resolver.
    let _ = File::open(path).and_then(|file| file.take(64 << 10).read_to_end(&mut text));
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_servers_are_read_and_bounded() {
        let text =
            "# x\nsearch example.org\nnameserver 192.0.2.53\n nameserver\t2001:db8::53 \nnameserver fe80::1%eth0\n";
        assert_eq!(parse(text), ["192.0.2.53".parse::<IpAddr>().unwrap(), "2001:db8::53".parse().unwrap()]);
        assert_eq!(parse(&"nameserver 192.0.2.1\n".repeat(1000)).len(), MOST);
    }

    #[test]
    fn any_answer_to_our_question_passes() {
        let mut answer = query(0x1234).to_vec();
        assert!(!answers(0x1234, &answer), "the question itself is no answer");
        answer[2] |= 0x80;
        answer[3] = 5; // refused
        assert!(answers(0x1234, &answer));
        assert!(!answers(0x1235, &answer));
        assert!(!answers(0x1234, &answer[..11]));
    }
}
