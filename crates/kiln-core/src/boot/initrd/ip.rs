//! The `ip=` argument.
//!
//! Three forms: `ip=METHOD`, `ip=INTERFACE:METHOD[:MTU[:MAC]]` and
//! `ip=ADDRESS:PEER:GATEWAY:NETMASK:HOSTNAME:INTERFACE:METHOD[:DNS1[:DNS2] | :MTU[:MAC]]`.
//! The second word decides: when it is a known method the argument has the second form, else the third. Hence
//! `ip=eno1:dchp` is taken for an address `eno1` and thrown away, while `ip=dchp` silently means `ip=auto`.

use std::net::IpAddr;

use super::finding::{Effect, nearest};
use super::profile::Method as FamilyMethod;
use super::reader::{Crash, REQUIRED_TIMEOUT, Reader, brackets};
use super::scan::{self, Words};

const METHODS: [&str; 13] =
    ["none", "off", "dhcp", "single-dhcp", "dhcp6", "auto6", "link6", "auto", "on", "any", "ibft", "fw", "dhcp,dhcp6"];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Method {
    None,
    Dhcp,
    Dhcp6,
    DhcpAndDhcp6,
    LinkLocal6,
    Auto,
    Firmware,
}

/// The words of one argument.
#[derive(Debug, Default)]
struct Ip<'a> {
    address: Option<(IpAddr, Option<u8>)>,
    peer: Option<&'a str>,
    gateway: Option<&'a str>,
    netmask: Option<&'a str>,
    hostname: Option<&'a str>,
    interface: Option<&'a str>,
    dns: Vec<IpAddr>,
    mtu: Option<&'a str>,
    mac: &'a str,
}

impl Reader {
    /// Reads the value of one `ip=`.
    pub(super) fn read_ip(&mut self, value: &str) -> Result<(), Crash> {
        if value.is_empty() {
            self.note(Effect::Ignored, "it is empty".to_owned(), Some("write `ip=auto` or `ip=dhcp`".to_owned()));
            return Ok(());
        }
        let Some((ip, method)) = self.split_ip(value) else { return Ok(()) };
        if ip.interface.is_none() && method == Method::Firmware {
            self.need_firmware();
            return Ok(());
        }
        let index = match ip.interface {
            Some(interface) => self.find_or_create(Some(interface), None)?,
            None => {
                let index = self.default_profile();
                self.trace(index);
                index
            }
        };
        self.explicit_ip.insert(index);
        self.set_address(index, &ip);
        self.set_method(index, method);
        self.set_rest(index, &ip);
        Ok(())
    }

    /// Splits the words; none when the argument is thrown away.
    fn split_ip<'a>(&mut self, value: &'a str) -> Option<(Ip<'a>, Method)> {
        let mut words = Words::new(value);
        let mut ip = Ip::default();
        let first = words.next(':');
        if words.rest().is_empty() {
            return Some((ip, self.method_or_auto(first.unwrap_or(""))));
        }
        let second = words.next(':');
        let method = match second.and_then(method) {
            Some(method) => {
                ip.interface = first;
                method
            }
            None => {
                if let Some(text) = first {
                    ip.address = scan::address_and_prefix(text);
                    if ip.address.is_none() {
                        self.refuse_address(value, text, second);
                        return None;
                    }
                    self.notice_lost_prefix(value, text);
                }
                ip.peer = second;
                ip.gateway = words.next(':');
                ip.netmask = words.next(':');
                ip.hostname = words.next(':');
                ip.interface = words.next(':');
                let method = words.next(':').unwrap_or("");
                self.method_or_auto(method)
            }
        };
        self.read_hostname(&mut ip);
        self.read_tail(&mut ip, words);
        Some((ip, method))
    }

    fn method_or_auto(&mut self, text: &str) -> Method {
        method(text).unwrap_or_else(|| {
            let meant = nearest(text, METHODS).map(|known| self.did_you_mean(text, known));
            let meant = meant
                .or_else(|| scan::is_interface_name(text).then(|| format!("for an interface write `ip={text}:dhcp`")));
            self.note(Effect::Reinterpreted, format!("`{text}` is no method and counts as `auto`"), meant);
            Method::Auto
        })
    }

    fn did_you_mean(&self, wrong: &str, right: &str) -> String {
        let end = self.argument.rfind(wrong).unwrap_or(self.argument.len());
        let rest = self.argument.get(end + wrong.len()..).unwrap_or("");
        format!("write `{}{right}{rest}`", &self.argument[..end])
    }

    fn refuse_address(&mut self, value: &str, address: &str, second: Option<&str>) {
        let second = second.unwrap_or("");
        let parts: Vec<&str> = value.split(':').collect();
        let mac = parts.get(..6).map(|parts| parts.join(":")).filter(|mac| scan::hardware_address(mac).is_some());
        let meant = match (nearest(second, METHODS), mac) {
            (Some(known), _) => Some(self.did_you_mean(second, known)),
            (None, Some(mac)) => {
                let rest = value.get(mac.len()..).unwrap_or("");
                Some(format!("write the MAC address with dashes: `ip={}{rest}`", mac.replace(':', "-")))
            }
            (None, None) => brackets(&self.argument),
        };
        let reason = if second.is_empty() {
            format!("`{address}` is not an IP address")
        } else {
            format!("`{second}` is no method, so `{address}` is taken for an IP address, which it is not")
        };
        self.note(Effect::Ignored, reason, meant);
    }

    /// `[2001:db8::1]/48`: the part behind the bracket is skipped.
    fn notice_lost_prefix(&mut self, value: &str, address: &str) {
        let behind = value.strip_prefix('[').and_then(|inner| inner.get(address.len() + 1..)).unwrap_or("");
        let behind = behind.split(':').next().unwrap_or("");
        if !behind.is_empty() && value.starts_with('[') {
            let reason = format!("`{behind}` behind the bracket is skipped");
            let meant = format!("write the prefix inside the brackets: `[{address}{behind}]`");
            self.note(Effect::Reinterpreted, reason, Some(meant));
        }
    }

    fn read_hostname(&mut self, ip: &mut Ip<'_>) {
        let Some(hostname) = ip.hostname else { return };
        if scan::is_hostname(hostname) {
            self.hostname = Some(hostname.to_owned());
        } else {
            ip.hostname = None;
            let reason = format!("`{hostname}` is not a hostname (letters, digits, `-` and `.`, at most 64)");
            self.note(Effect::PartlyIgnored, reason, None);
        }
    }

    /// What follows the method: name servers, or MTU and MAC address.
    fn read_tail<'a>(&mut self, ip: &mut Ip<'a>, mut words: Words<'a>) {
        let word = words.next(':');
        let Some(server) = word.and_then(scan::address) else {
            ip.mtu = word;
            ip.mac = words.rest();
            return;
        };
        ip.dns.push(server);
        let Some(second) = words.next(':') else { return };
        match scan::address(second) {
            Some(server) => ip.dns.push(server),
            None => self.note(Effect::PartlyIgnored, format!("`{second}` is not a name server's IP address"), None),
        }
        if !words.rest().is_empty() {
            let reason = format!("`{}` behind the second name server", words.rest());
            self.note(Effect::PartlyIgnored, reason, None);
        }
    }

    fn set_address(&mut self, index: usize, ip: &Ip<'_>) {
        let mask = ip.netmask.and_then(|mask| self.read_mask(mask, ip.address.map(|(address, _)| address)));
        let Some((address, prefix)) = ip.address else {
            if ip.netmask.is_some() {
                self.note(Effect::PartlyIgnored, "a netmask without an address".to_owned(), None);
            }
            return;
        };
        let prefix = mask.or(prefix).unwrap_or_else(|| self.guess_prefix(address));
        let profile = &mut self.profiles[index];
        profile.shared = false;
        let family = profile.family(address);
        family.method = FamilyMethod::Manual;
        family.may_fail = false;
        if !family.addresses.contains(&(address, prefix)) {
            family.addresses.push((address, prefix));
        }
    }

    fn read_mask(&mut self, mask: &str, address: Option<IpAddr>) -> Option<u8> {
        let longest = if address.is_some_and(|address| address.is_ipv4()) { 32 } else { 128 };
        let prefix = match mask.parse::<std::net::Ipv4Addr>() {
            Ok(dotted) if longest == 32 => {
                let prefix = scan::mask_prefix(dotted);
                if u32::from(dotted).leading_ones() != u32::from(prefix) {
                    self.note(
                        Effect::Reinterpreted,
                        format!("netmask `{mask}` has holes and counts as /{prefix}"),
                        None,
                    );
                }
                Some(prefix)
            }
            _ => scan::integer(mask, 10, 0, longest).map(|prefix| prefix as u8),
        };
        if prefix.is_none() {
            self.note(Effect::PartlyIgnored, format!("`{mask}` is not a netmask"), None);
        }
        prefix
    }

    fn guess_prefix(&mut self, address: IpAddr) -> u8 {
        let IpAddr::V4(v4) = address else { return 64 };
        let prefix = scan::class_prefix(v4);
        let reason = format!("{address} has no netmask and gets /{prefix} by its old address class");
        self.note(Effect::Reinterpreted, reason, Some("write the netmask in the fourth field".to_owned()));
        prefix
    }

    fn set_method(&mut self, index: usize, method: Method) {
        let profile = &mut self.profiles[index];
        let (ipv4, ipv6) = (&mut profile.ipv4, &mut profile.ipv6);
        match method {
            Method::None => {
                ipv6.disable_without_address();
                ipv4.disable_without_address();
            }
            Method::Dhcp => {
                ipv4.method = FamilyMethod::Auto;
                ipv4.may_fail = false;
                if ipv6.addresses.is_empty() {
                    ipv6.method = FamilyMethod::Auto;
                }
            }
            Method::Dhcp6 => {
                ipv6.method = FamilyMethod::Auto;
                ipv6.may_fail = false;
                ipv4.disable_without_address();
            }
            Method::LinkLocal6 => {
                ipv6.method = FamilyMethod::LinkLocal;
                ipv6.may_fail = false;
                ipv4.disable_without_address();
            }
            Method::DhcpAndDhcp6 => ipv6.required_timeout = Some(REQUIRED_TIMEOUT),
            Method::Auto => {}
            Method::Firmware => self.need_firmware(),
        }
        if !matches!(method, Method::Auto | Method::DhcpAndDhcp6) {
            self.profiles[index].ipv4.required_timeout = None;
        }
    }

    fn set_rest(&mut self, index: usize, ip: &Ip<'_>) {
        if let Some(peer) = ip.peer {
            self.note(Effect::PartlyIgnored, format!("the peer address `{peer}` is not implemented"), None);
        }
        match ip.gateway.map(|gateway| (gateway, scan::address(gateway))) {
            Some((_, Some(address))) => {
                let gateway = Some(address).filter(|address| !address.is_unspecified());
                self.profiles[index].family(address).gateway = gateway;
            }
            Some((gateway, None)) => {
                self.note(Effect::PartlyIgnored, format!("`{gateway}` is not a gateway's IP address"), None);
            }
            None => {}
        }
        let profile = &mut self.profiles[index];
        if let Some(hostname) = ip.hostname {
            profile.ipv4.dhcp_hostname = Some(hostname.to_owned());
            profile.ipv6.dhcp_hostname = Some(hostname.to_owned());
        }
        for server in &ip.dns {
            profile.family(*server).add_dns(*server);
        }
        if let Some(mtu) = ip.mtu {
            self.set_mtu(index, mtu);
        }
        if !ip.mac.is_empty() {
            let mac = scan::hardware_address_of(ip.mac, 6).unwrap_or_else(|| ip.mac.to_owned());
            self.profiles[index].wired().cloned_mac = Some(mac);
        }
    }

    /// Sets the MTU of a profile; even a wrong one leaves an Ethernet setting behind.
    pub(super) fn set_mtu(&mut self, index: usize, mtu: &str) {
        let wired = self.profiles[index].wired();
        match scan::integer(mtu, 10, 0, i64::from(u32::MAX)) {
            Some(mtu) => wired.mtu = mtu as u32,
            None => self.note(Effect::PartlyIgnored, format!("`{mtu}` is not an MTU"), None),
        }
    }
}

fn method(text: &str) -> Option<Method> {
    let text = text.trim_matches([' ', '\t', '\n', '\r', '\x0c']);
    Some(match text {
        "" | "auto" | "on" | "any" => Method::Auto,
        "none" | "off" => Method::None,
        "dhcp" | "single-dhcp" => Method::Dhcp,
        "dhcp6" | "auto6" => Method::Dhcp6,
        "link6" => Method::LinkLocal6,
        "ibft" | "fw" => Method::Firmware,
        _ if text.contains(',') => return combined(text),
        _ => return None,
    })
}

/// Several methods with commas between them: few combinations are known.
fn combined(text: &str) -> Option<Method> {
    let methods = text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(method);
    let mut methods = methods.collect::<Option<Vec<Method>>>()?;
    methods.sort();
    methods.dedup();
    if methods.contains(&Method::Auto) {
        methods.retain(|method| *method != Method::Dhcp6);
    }
    match methods[..] {
        [only] => Some(only),
        [Method::Dhcp, Method::Dhcp6] => Some(Method::DhcpAndDhcp6),
        _ => None,
    }
}
