//! The small values of networking, each with one door.
//!
//! Whoever holds an [`InterfaceName`] or a [`VlanId`] never checks again: it was proven when it was parsed.
//! Addresses with a prefix length are `ipnet::IpNet`, which has the same property.
//!
//! Surprising: the kernel judges interface names byte by byte with Latin-1 rules, so `à` (bytes C3 A0) counts as having
//! white space while `é` is fine; and a name with `%` is a pattern, never a name.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

#[cfg(test)]
mod tests;

/// Why a small value was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// Not six pairs of hexadecimal digits.
    #[error("`{0}` is not a MAC address; write six pairs of hexadecimal digits, as in 52:54:00:12:34:56")]
    Mac(String),
    /// The kernel would refuse it.
    #[error("`{name}` is not an interface name: {reason}")]
    InterfaceName {
        /// What was written.
        name: String,
        /// Which rule it breaks.
        reason: &'static str,
    },
    /// Not a number from 1 to 4094.
    #[error("`{0}` is not a VLAN id; choose one from 1 to 4094 (0 and 4095 are reserved)")]
    VlanId(String),
    /// Not a number the kernel takes.
    #[error("`{0}` is not an MTU; choose a number of bytes from 68 to 2147483647")]
    Mtu(String),
    /// Not one of the seven modes.
    #[error(
        "`{0}` is not a bond mode; choose one of balance-rr, active-backup, balance-xor, broadcast, 802.3ad, balance-tlb, balance-alb, or its number 0 to 6"
    )]
    BondMode(String),
    /// Not a UUID in its usual spelling.
    #[error("`{0}` is not a UUID; write 32 hexadecimal digits as in 6b0b1d6e-6d2c-4f0e-8a52-0f0c6a3f2b11")]
    Uuid(String),
}

/// The name of a network interface by the kernel's rules (`dev_valid_name`, and what registering it refuses).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InterfaceName(Box<str>);

impl FromStr for InterfaceName {
    type Err = ValueError;
    fn from_str(name: &str) -> Result<Self, ValueError> {
        // 0x0b and 0xa0 are white space to the kernel though not to ASCII.
        let kernel_space = |byte: u8| byte.is_ascii_whitespace() || byte == 0x0b || byte == 0xa0;
        let reason = match name {
            "" => "it is empty",
            "." | ".." => "the kernel reserves `.` and `..`",
            "all" | "default" | "bonding_masters" => "the kernel keeps its own settings under that name",
            _ if name.len() > 15 => "it is longer than 15 bytes",
            _ if name.contains(['/', ':']) => "`/` and `:` are not allowed",
            _ if name.contains('%') => "`%` makes it a pattern for the kernel",
            _ if name.contains('\0') => "it has a NUL byte",
            _ if name.bytes().any(kernel_space) => "white space is not allowed",
            _ => return Ok(InterfaceName(name.into())),
        };
        Err(ValueError::InterfaceName { name: name.to_owned(), reason })
    }
}

impl InterfaceName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for InterfaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An Ethernet address. Printed in lower case with colons; read in either case with `:` or `-`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddress([u8; 6]);

impl FromStr for MacAddress {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        let refuse = || ValueError::Mac(text.to_owned());
        let separator = if text.contains('-') { '-' } else { ':' };
        let mut bytes = [0; 6];
        let mut parts = text.split(separator);
        for byte in &mut bytes {
            let pair = parts.next().filter(|pair| pair.len() == 2).ok_or_else(refuse)?;
            let digits = pair.bytes().all(|digit| digit.is_ascii_hexdigit());
            *byte = u8::from_str_radix(pair, 16).ok().filter(|_| digits).ok_or_else(refuse)?;
        }
        if parts.next().is_some() { Err(refuse()) } else { Ok(MacAddress(bytes)) }
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// An 802.1Q VLAN id, 1 to 4094.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VlanId(u16);

impl FromStr for VlanId {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        decimal(text).and_then(|id| VlanId::try_from(id).ok()).ok_or_else(|| ValueError::VlanId(text.to_owned()))
    }
}

impl TryFrom<u32> for VlanId {
    type Error = ValueError;
    fn try_from(id: u32) -> Result<Self, ValueError> {
        match u16::try_from(id) {
            Ok(id @ 1..=4094) => Ok(VlanId(id)),
            _ => Err(ValueError::VlanId(id.to_string())),
        }
    }
}

impl VlanId {
    /// The number.
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl fmt::Display for VlanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The largest packet of a link in bytes, within what the kernel accepts for Ethernet-like devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mtu(u32);

impl FromStr for Mtu {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        decimal(text).and_then(|mtu| Mtu::try_from(mtu).ok()).ok_or_else(|| ValueError::Mtu(text.to_owned()))
    }
}

impl TryFrom<u32> for Mtu {
    type Error = ValueError;
    fn try_from(mtu: u32) -> Result<Self, ValueError> {
        if (68..=0x7fff_ffff).contains(&mtu) { Ok(Mtu(mtu)) } else { Err(ValueError::Mtu(mtu.to_string())) }
    }
}

impl Mtu {
    /// The number of bytes.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Mtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How a bond uses its ports. Printed by name; read by name or by the kernel's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BondMode {
    /// Packets go round all ports.
    BalanceRoundRobin,
    /// One port works, the others wait.
    ActiveBackup,
    /// The port follows from a hash of the addresses.
    BalanceXor,
    /// Every packet on every port.
    Broadcast,
    /// LACP: the switch takes part.
    Lacp,
    /// Sends on all ports by load, receives on one.
    BalanceTransmitLoad,
    /// Balances receiving too, by answering ARP.
    BalanceAdaptiveLoad,
}

const BOND_MODES: [(BondMode, &str); 7] = [
    (BondMode::BalanceRoundRobin, "balance-rr"),
    (BondMode::ActiveBackup, "active-backup"),
    (BondMode::BalanceXor, "balance-xor"),
    (BondMode::Broadcast, "broadcast"),
    (BondMode::Lacp, "802.3ad"),
    (BondMode::BalanceTransmitLoad, "balance-tlb"),
    (BondMode::BalanceAdaptiveLoad, "balance-alb"),
];

impl FromStr for BondMode {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        let known = |(number, (_, name)): &(usize, (BondMode, &str))| text == *name || text == number.to_string();
        let found = BOND_MODES.into_iter().enumerate().find(known);
        found.map(|(_, (mode, _))| mode).ok_or_else(|| ValueError::BondMode(text.to_owned()))
    }
}

impl BondMode {
    /// The name the kernel and NetworkManager use.
    pub const fn name(self) -> &'static str {
        // The table is in the order of the variants, which is the order of the kernel's numbers.
        BOND_MODES[self as usize].1
    }
}

impl fmt::Display for BondMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The UUID of a connection profile. Printed in lower case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionUuid(Uuid);

/// The name space in which NetworkManager derives UUIDs for profiles that have none.
const NETWORKMANAGER: Uuid = Uuid::from_u128(0xb425_e9fb_7598_44b4_9e3b_5a2e_3aaa_4905);

impl ConnectionUuid {
    /// The UUID NetworkManager gives a keyfile at this absolute path when the file has no `uuid=`.
    pub fn of_path(path: &str) -> Self {
        ConnectionUuid(Uuid::new_v3(&NETWORKMANAGER, format!("keyfile\0{path}\0").as_bytes()))
    }
}

impl FromStr for ConnectionUuid {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        // The uuid crate also reads braces, URNs and bare digits; NetworkManager does not.
        let hyphenated = Some(text).filter(|text| text.len() == 36);
        let parsed = hyphenated.and_then(|text| Uuid::try_parse(text).ok());
        parsed.map(ConnectionUuid).ok_or_else(|| ValueError::Uuid(text.to_owned()))
    }
}

impl fmt::Display for ConnectionUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

/// A number in plain digits: no sign, no blanks.
fn decimal(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}
