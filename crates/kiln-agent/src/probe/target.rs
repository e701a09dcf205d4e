//! One thing that is asked, prepared so that asking again costs nothing but the asking: a name is resolved until it was once,
//! because a resolver that is gone later is the DNS probe's to tell.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use kiln_core::assignment::Probe;
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::OnceCell;

use super::gateway::Ways;
use super::http::Request;
use super::{dns, icmp};
use crate::HubProbe;

/// A probe with what was found out for it.
pub struct Target {
    probe: Probe,
    way: Way,
}

enum Way {
    /// Whichever they are at the moment.
    Gateway(Ways),
    /// Any resolver in force.
    Dns,
    /// Given by the caller.
    Hub(HubProbe),
    /// The same, about a port of this node.
    FromHub(u16, HubProbe),
    /// A connection to one of these.
    Tcp(OnceCell<Vec<SocketAddr>>),
    /// A GET.
    Http(OnceCell<Request>),
    /// An echo.
    Ping(OnceCell<IpAddr>),
}

impl std::fmt::Debug for Target {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.name())
    }
}

impl Target {
    /// None for the hub when there is none.
    pub fn new(probe: Probe, hub: Option<HubProbe>) -> Option<Target> {
        let way = match &probe {
            Probe::Gateway => Way::Gateway(Ways::default()),
            Probe::Dns => Way::Dns,
            Probe::Hub => Way::Hub(hub?),
            Probe::FromHub(port) => Way::FromHub(*port, hub?),
            Probe::ApiServer(_) | Probe::Tcp(_) => Way::Tcp(OnceCell::new()),
            Probe::Http(_) => Way::Http(OnceCell::new()),
            Probe::Ping(_) => Way::Ping(OnceCell::new()),
        };
        Some(Target { probe, way })
    }

    /// For people.
    pub fn name(&self) -> String {
        name(&self.probe)
    }

    /// Whether somebody named it, perhaps because only the new network reaches it: it must answer afterwards in any case.
    pub fn is_named(&self) -> bool {
        match self.probe {
            Probe::Tcp(_) | Probe::Http(_) | Probe::Ping(_) | Probe::FromHub(_) => true,
            Probe::Gateway | Probe::Dns | Probe::Hub | Probe::ApiServer(_) => false,
        }
    }

    /// Whether it is asked over a connection that may be slow by nature, and there is only one way to find out.
    pub fn may_be_slow(&self) -> bool {
        matches!(self.probe, Probe::Hub | Probe::FromHub(_))
    }

    /// The time between two tries. The hub has work with each port, for every node that tries.
    pub const fn pause(&self) -> Duration {
        Duration::from_millis(if matches!(self.probe, Probe::FromHub(_)) { 500 } else { 100 })
    }

    /// Whether it answers now. The caller limits the time.
    pub async fn ask(&self) -> bool {
        match (&self.way, &self.probe) {
            (Way::Gateway(ways), _) => ways.answer().await,
            (Way::Dns, _) => dns::ask_resolvers().await,
            (Way::Hub(ask), _) => ask(None).await,
            (Way::FromHub(port, ask), _) => ask(Some(*port)).await,
            (Way::Tcp(known), Probe::ApiServer(at) | Probe::Tcp(at)) => {
                match known.get_or_try_init(|| async { resolve(at).await.ok_or(()) }).await {
                    Ok(addresses) => connect(addresses).await.is_some(),
                    Err(()) => false,
                }
            }
            (Way::Http(known), Probe::Http(url)) => {
                match known.get_or_try_init(|| async { Request::prepare(url).await.ok_or(()) }).await {
                    Ok(request) => request.answered().await,
                    Err(()) => false,
                }
            }
            (Way::Ping(known), Probe::Ping(address)) => {
                match known.get_or_try_init(|| async { find_host(address).await.ok_or(()) }).await {
                    Ok(address) => icmp::ping(*address, None).await.is_ok(),
                    Err(()) => false,
                }
            }
            (Way::Tcp(_) | Way::Http(_) | Way::Ping(_), _) => false,
        }
    }
}

/// What a probe is called in messages.
pub fn name(probe: &Probe) -> String {
    match probe {
        Probe::Gateway => "the default gateway".to_owned(),
        Probe::Dns => "DNS".to_owned(),
        Probe::Hub => "the hub".to_owned(),
        Probe::FromHub(port) => format!("port {port} from the hub"),
        Probe::ApiServer(at) => format!("the API server at {at}"),
        Probe::Tcp(at) => format!("TCP {at}"),
        Probe::Http(url) => without_password(url),
        Probe::Ping(address) => format!("ping {address}"),
    }
}

/// A URL as it may be shown.
pub fn without_password(url: &str) -> String {
    match url.split_once("://") {
        Some((scheme, rest)) => {
            let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
            let begin = rest[..end].rfind('@').map_or(0, |at| at + 1);
            format!("{scheme}://{}", &rest[begin..])
        }
        None => url.to_owned(),
    }
}

/// A connection to the first address that takes one, and no more of it.
pub async fn connect(addresses: &[SocketAddr]) -> Option<TcpStream> {
    for address in addresses {
        if let Ok(Ok(stream)) = tokio::time::timeout(Duration::from_millis(700), TcpStream::connect(address)).await {
            return Some(stream);
        }
    }
    None
}

/// At most four addresses of `HOST:PORT`.
pub async fn resolve(at: &str) -> Option<Vec<SocketAddr>> {
    let found: Vec<SocketAddr> = lookup_host(at).await.ok()?.take(4).collect();
    (!found.is_empty()).then_some(found)
}

/// An address, or that of a name.
async fn find_host(address: &str) -> Option<IpAddr> {
    match address.parse() {
        Ok(address) => Some(address),
        Err(_) => resolve(&format!("{address}:0")).await?.first().map(SocketAddr::ip),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_in_a_url_is_not_shown() {
        for (url, shown) in [
            ("http://user:secret@host/x@y", "http://host/x@y"),
            ("https://host:8443/?a@b", "https://host:8443/?a@b"),
            ("host", "host"),
        ] {
            assert_eq!(name(&Probe::Http(url.to_owned())), shown);
        }
    }
}
