//! One profile while the command line is read: the settings nm-initrd-generator keeps in memory.
//!
//! The fields are the generator's, not ours: a setting that exists but is empty still becomes an empty group in the file.

use std::collections::BTreeMap;
use std::net::IpAddr;

use uuid::Uuid;

/// Profiles are named by version 5 UUIDs below this one: the generator's are random, ours must be repeatable.
const NAMESPACE: Uuid = Uuid::from_u128(0x6b69_6c6e_0000_5000_8000_696e_6974_7264);

/// `connection.type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Ethernet,
    Infiniband,
    Bond,
    Bridge,
    Team,
    Vlan,
}

impl Kind {
    /// As it is written into a keyfile.
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Ethernet => "ethernet",
            Kind::Infiniband => "infiniband",
            Kind::Bond => "bond",
            Kind::Bridge => "bridge",
            Kind::Team => "team",
            Kind::Vlan => "vlan",
        }
    }
}

/// One profile.
#[derive(Debug, Clone)]
pub(super) struct Profile {
    /// What its file is called; the generator makes a nameless one when the interface it was told makes no sense.
    pub(super) name: Option<String>,
    pub(super) id: String,
    pub(super) uuid: Uuid,
    pub(super) kind: Kind,
    pub(super) interface: Option<String>,
    /// Several devices may use it at once (3) instead of one (1).
    pub(super) shared: bool,
    pub(super) wait_device: bool,
    /// Made for `BOOTIF` alone: every other profile wins over it.
    pub(super) from_boot_loader: bool,
    pub(super) controller: Option<(Kind, Uuid)>,
    pub(super) wired: Option<Wired>,
    pub(super) infiniband: Option<Infiniband>,
    /// Option and value; always holds `mode`.
    pub(super) bond: Option<BTreeMap<String, String>>,
    /// Whether there is a bridge setting and whether its STP was switched off.
    pub(super) bridge: bool,
    pub(super) team: bool,
    pub(super) vlan: Option<Vlan>,
    pub(super) ipv4: Family,
    pub(super) ipv6: Family,
    /// The arguments that shaped it, for messages.
    pub(super) arguments: Vec<String>,
}

/// The Ethernet setting, which virtual devices may have too.
#[derive(Debug, Clone, Default)]
pub(super) struct Wired {
    pub(super) mtu: u32,
    pub(super) mac: Option<String>,
    pub(super) cloned_mac: Option<String>,
    pub(super) auto_negotiate: bool,
    pub(super) speed: u32,
    pub(super) full_duplex: bool,
    pub(super) s390_nettype: Option<String>,
    pub(super) s390_subchannels: Vec<String>,
    pub(super) s390_options: BTreeMap<String, String>,
}

/// The InfiniBand setting.
#[derive(Debug, Clone, Default)]
pub(super) struct Infiniband {
    pub(super) datagram: bool,
    pub(super) mac: Option<String>,
    pub(super) partition: Option<(String, u16)>,
}

/// The VLAN setting.
#[derive(Debug, Clone, Default)]
pub(super) struct Vlan {
    pub(super) parent: Option<String>,
    pub(super) id: u32,
}

/// `ipv4.method` or `ipv6.method`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    Auto,
    Manual,
    Disabled,
    LinkLocal,
}

/// The IPv4 or the IPv6 setting.
#[derive(Debug, Clone)]
pub(super) struct Family {
    pub(super) method: Method,
    pub(super) addresses: Vec<(IpAddr, u8)>,
    pub(super) gateway: Option<IpAddr>,
    pub(super) dns: Vec<IpAddr>,
    pub(super) routes: Vec<(IpAddr, u8, Option<IpAddr>)>,
    pub(super) may_fail: bool,
    pub(super) ignore_auto_dns: bool,
    pub(super) dhcp_timeout: u32,
    pub(super) dhcp_hostname: Option<String>,
    pub(super) vendor_class: Option<String>,
    pub(super) required_timeout: Option<u32>,
}

impl Family {
    /// Adds a name server once.
    pub(super) fn add_dns(&mut self, server: IpAddr) {
        if !self.dns.contains(&server) {
            self.dns.push(server);
        }
    }

    /// Switches the family off, unless an address was given.
    pub(super) fn disable_without_address(&mut self) {
        if self.addresses.is_empty() {
            self.method = Method::Disabled;
        }
    }
}

impl Profile {
    /// The UUID of the profile with this name.
    pub(super) fn uuid_of(name: Option<&str>) -> Uuid {
        Uuid::new_v5(&NAMESPACE, name.unwrap_or_default().as_bytes())
    }

    /// The settings of one family.
    pub(super) fn family(&mut self, address: IpAddr) -> &mut Family {
        if address.is_ipv4() { &mut self.ipv4 } else { &mut self.ipv6 }
    }

    /// Its name for messages.
    pub(super) fn shown_name(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.id)
    }

    /// The Ethernet setting, made when it is missing.
    pub(super) fn wired(&mut self) -> &mut Wired {
        self.wired.get_or_insert_default()
    }

    /// Gives the profile a type and the setting that belongs to it.
    pub(super) fn become_kind(&mut self, kind: Kind) {
        self.kind = kind;
        match kind {
            Kind::Ethernet => {
                self.wired.get_or_insert_default();
            }
            Kind::Infiniband => {
                self.infiniband.get_or_insert_default();
            }
            Kind::Bond => {
                self.bond.get_or_insert_with(|| BTreeMap::from([("mode".to_owned(), "balance-rr".to_owned())]));
            }
            Kind::Bridge => self.bridge = true,
            Kind::Team => self.team = true,
            Kind::Vlan => {
                self.vlan.get_or_insert_default();
            }
        }
    }
}
