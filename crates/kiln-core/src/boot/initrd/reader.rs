//! Reads the arguments in the generator's order: globals first, then profiles, then what applies to all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::finding::{Dropped, Effect, nearest};
use super::profile::{Family, Infiniband, Kind, Method, Profile, Wired};
use super::scan::{self, Words};

/// Milliseconds the generator waits for IPv4 when IPv6 is ready first.
pub(super) const REQUIRED_TIMEOUT: u32 = 20_000;

/// Arguments the generator knows; used to recognise misspelt ones.
const KNOWN: [&str; 25] = [
    "BOOTIF",
    "bond",
    "bootdev",
    "bridge",
    "ib.pkey",
    "ip",
    "nameserver",
    "net.ifnames",
    "rd.bootif",
    "rd.ethtool",
    "rd.iscsi.ibft",
    "rd.neednet",
    "rd.net.dhcp.retry",
    "rd.net.dhcp.vendor-class",
    "rd.net.timeout.carrier",
    "rd.net.timeout.dhcp",
    "rd.peerdns",
    "rd.route",
    "rd.znet",
    "rd.znet_ifname",
    "team",
    "vlan",
    // Known to newer NetworkManagers or to other readers of the line, hence no misspelling of a known one.
    "rd.net.dhcp.dscp",
    "rd.net.dns",
    "ifname",
];

/// The generator ended by a segmentation fault: nothing is written at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Crash;

/// Everything that was read so far.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) profiles: Vec<Profile>,
    pub(super) hostname: Option<String>,
    /// Seconds; 0 when the command line does not say.
    pub(super) carrier_timeout: i64,
    pub(super) dropped: Vec<Dropped>,
    /// The argument being read.
    pub(super) argument: String,
    pub(super) explicit_ip: BTreeSet<usize>,
    pub(super) vlan_parents: Vec<Option<String>>,
    default: Option<usize>,
    bootdev: Option<usize>,
    globals: Globals,
    pub(super) znet: Znet,
}

/// Values every profile starts with.
#[derive(Debug, Default)]
struct Globals {
    ignore_auto_dns: bool,
    dhcp_timeout: u32,
    vendor_class: Option<String>,
}

/// What `rd.znet` needs to know the names of devices.
#[derive(Debug, Default)]
pub(super) struct Znet {
    pub(super) predictable_names: bool,
    pub(super) names: BTreeMap<String, String>,
    pub(super) ctc_devices: u32,
    pub(super) ethernet_devices: u32,
}

/// Arguments that are applied when all profiles are known.
#[derive(Debug, Default)]
struct Deferred {
    routes: Vec<String>,
    name_servers: Vec<String>,
    znets: Vec<String>,
    bootdev: Option<String>,
    boot_interface: Option<String>,
    ignore_boot_interface: bool,
    need_network: bool,
}

impl Reader {
    /// Reads all arguments.
    pub(super) fn read(words: &[String]) -> (Reader, Result<(), Crash>) {
        let mut reader = Reader {
            profiles: Vec::new(),
            hostname: None,
            carrier_timeout: 0,
            dropped: Vec::new(),
            argument: String::new(),
            explicit_ip: BTreeSet::new(),
            vlan_parents: Vec::new(),
            default: None,
            bootdev: None,
            globals: Globals::default(),
            znet: Znet { predictable_names: true, ..Znet::default() },
        };
        reader.read_globals(words);
        let outcome = reader.read_profiles(words);
        (reader, outcome)
    }

    /// Records what happened to the argument being read.
    pub(super) fn note(&mut self, effect: Effect, reason: String, meant: Option<String>) {
        let quoted = || {
            let hint = "leave out the quotes: nm-initrd-generator gets them as part of the argument";
            self.argument.contains('"').then(|| hint.to_owned())
        };
        let meant = meant.or_else(quoted);
        self.dropped.push(Dropped { argument: self.argument.clone(), effect, reason, meant });
    }

    fn read_globals(&mut self, words: &[String]) {
        let (mut timeout, mut tries) = (90, 1);
        for word in words {
            self.argument.clone_from(word);
            let mut argument = Words::new(word);
            let tag = argument.next('=');
            let value = argument.rest();
            match tag {
                Some("net.ifnames") => self.znet.predictable_names = value != "0",
                Some("rd.peerdns") => self.globals.ignore_auto_dns = !self.flag(value),
                Some("rd.net.timeout.dhcp") if value == "infinity" => timeout = i64::from(i32::MAX),
                Some("rd.net.timeout.dhcp") => timeout = self.number(value, 1, timeout),
                Some("rd.net.dhcp.retry") => tries = self.number(value, 1, tries),
                Some("rd.net.dhcp.vendor-class") => self.read_vendor_class(value),
                Some("rd.net.timeout.carrier") => self.carrier_timeout = self.number(value, 0, 0),
                _ => {}
            }
        }
        let product = timeout.saturating_mul(tries).clamp(1, i64::from(i32::MAX));
        self.globals.dhcp_timeout = product as u32;
    }

    /// A boolean; anything unknown is true.
    fn flag(&mut self, value: &str) -> bool {
        let known = scan::boolean(value);
        if known.is_none() && !value.is_empty() {
            self.note(Effect::Reinterpreted, format!("`{value}` is neither true nor false and counts as true"), None);
        }
        known.unwrap_or(true)
    }

    fn number(&mut self, value: &str, minimum: i64, otherwise: i64) -> i64 {
        scan::integer(value, 10, minimum, i64::from(i32::MAX)).unwrap_or_else(|| {
            let reason = format!("`{value}` is not a whole number from {minimum} to {}", i32::MAX);
            self.note(Effect::Ignored, reason, None);
            otherwise
        })
    }

    fn read_vendor_class(&mut self, value: &str) {
        let bytes = scan::unescape_octal(value);
        if bytes.is_empty() || bytes.len() > 255 || bytes.contains(&0) {
            self.note(Effect::Ignored, "a vendor class needs 1 to 255 bytes and no NUL".to_owned(), None);
        } else {
            self.globals.vendor_class = Some(value.to_owned());
        }
    }

    fn read_profiles(&mut self, words: &[String]) -> Result<(), Crash> {
        let mut deferred = Deferred::default();
        for word in words {
            self.argument.clone_from(word);
            let mut argument = Words::new(word);
            let tag = argument.next('=');
            if let Some(tag) = tag {
                self.read_argument(tag, argument.rest(), &mut deferred)?;
            }
        }
        self.silence_vlan_parents()?;
        self.apply_boot_interface(&deferred)?;
        self.apply_need_of_network(&deferred)?;
        for route in &deferred.routes {
            self.argument = format!("rd.route={route}");
            self.add_route(route)?;
        }
        for server in &deferred.name_servers {
            self.argument = format!("nameserver={server}");
            self.add_name_server(server);
        }
        for znet in &deferred.znets {
            self.argument = format!("rd.znet={znet}");
            self.add_znet(znet)?;
        }
        Ok(())
    }

    fn read_argument(&mut self, tag: &str, value: &str, deferred: &mut Deferred) -> Result<(), Crash> {
        match tag {
            "ip" => self.read_ip(value)?,
            "rd.route" => deferred.routes.push(value.to_owned()),
            "bridge" => self.read_controller(value, Kind::Bridge, "br0")?,
            "bond" => self.read_controller(value, Kind::Bond, "bond0")?,
            "team" => self.read_controller(value, Kind::Team, "team0")?,
            "vlan" => self.read_vlan(value)?,
            "ib.pkey" => self.read_partition(value)?,
            "bootdev" => deferred.bootdev = Some(value.to_owned()),
            "nameserver" => deferred.name_servers.extend(Words::new(value).next('\0').map(str::to_owned)),
            "rd.iscsi.ibft" if self.flag(value) => self.need_firmware(),
            "rd.bootif" => deferred.ignore_boot_interface = !self.flag(value),
            "rd.neednet" => deferred.need_network = self.flag(value),
            "rd.znet" => deferred.znets.push(value.to_owned()),
            "rd.znet_ifname" => self.read_znet_name(value),
            "rd.ethtool" => self.read_ethtool(value)?,
            _ if tag.eq_ignore_ascii_case("BOOTIF") => deferred.boot_interface = Some(value.to_owned()),
            _ if KNOWN.contains(&tag) => {}
            _ => self.suspect_misspelling(tag, value),
        }
        Ok(())
    }

    fn suspect_misspelling(&mut self, tag: &str, value: &str) {
        if let Some(inner) = tag.strip_prefix('"').filter(|inner| KNOWN.contains(inner)) {
            self.note(Effect::Ignored, format!("nm-initrd-generator sees `\"{inner}`, quote and all"), None);
            return;
        }
        // Short keys of other programs differ from `ip` by one letter too easily.
        if tag.len() < 4 {
            return;
        }
        if let Some(known) = nearest(tag, KNOWN) {
            let meant = format!("write `{known}={value}`");
            let reason = format!("nm-initrd-generator knows no argument called `{tag}`");
            self.note(Effect::Ignored, reason, Some(meant));
        }
    }

    pub(super) fn need_firmware(&mut self) {
        let reason =
            "it takes its settings from the machine's firmware (iBFT, device tree), which only the machine knows";
        self.note(Effect::Firmware, reason.to_owned(), None);
    }

    /// The parent of a VLAN carries no address of its own unless an `ip=` says so.
    fn silence_vlan_parents(&mut self) -> Result<(), Crash> {
        for parent in std::mem::take(&mut self.vlan_parents) {
            let index = self.find_or_create(parent.as_deref(), None)?;
            if !self.explicit_ip.contains(&index) {
                self.profiles[index].ipv4.method = Method::Disabled;
                self.profiles[index].ipv6.method = Method::Disabled;
            }
        }
        Ok(())
    }

    fn apply_boot_interface(&mut self, deferred: &Deferred) -> Result<(), Crash> {
        let Some(value) = deferred.boot_interface.as_deref().filter(|_| !deferred.ignore_boot_interface) else {
            return Ok(());
        };
        self.argument = format!("BOOTIF={value}");
        let mut mac = value;
        if scan::hardware_address_of(value, 6).is_none() {
            // Boot loaders put the hardware type in front: 01 for Ethernet.
            let bare = ["01-", "01:", "00-", "00:"].iter().find_map(|prefix| value.strip_prefix(prefix));
            mac = bare.filter(|bare| scan::hardware_address_of(bare, 6).is_some()).unwrap_or(value);
        }
        let index = match self.find(None, Some(Kind::Ethernet))? {
            Some(index) => index,
            None => self.default_profile(),
        };
        let canonical = scan::hardware_address_of(mac, 6).unwrap_or_else(|| mac.to_owned());
        let profile = &mut self.profiles[index];
        let other_mac = profile.wired().mac.as_ref().is_some_and(|known| *known != canonical);
        if profile.interface.is_some() || other_mac {
            let created =
                self.create(Some("bootif_connection"), "BOOTIF Connection", None, Some(&canonical), Kind::Ethernet);
            self.profiles[created].from_boot_loader = true;
            self.trace(created);
        } else {
            profile.wired().mac = Some(canonical);
            self.trace(index);
        }
        Ok(())
    }

    fn apply_need_of_network(&mut self, deferred: &Deferred) -> Result<(), Crash> {
        if let Some(bootdev) = &deferred.bootdev {
            self.argument = format!("bootdev={bootdev}");
            let index = self.find_or_create(Some(bootdev), None)?;
            self.bootdev = Some(index);
            self.wait_for(index);
        }
        if deferred.need_network {
            if self.profiles.is_empty() {
                self.default_profile();
            }
            for index in 0..self.profiles.len() {
                self.wait_for(index);
            }
        }
        Ok(())
    }

    fn wait_for(&mut self, index: usize) {
        if self.profiles[index].kind == Kind::Ethernet {
            self.profiles[index].wait_device = true;
        }
    }

    fn add_route(&mut self, route: &str) -> Result<(), Crash> {
        let mut words = Words::new(route);
        let (net, gateway, interface) = (words.next(':'), words.next(':'), words.next(':'));
        let index = match (interface, self.bootdev) {
            (Some(_), _) => self.find_or_create(interface, None)?,
            (None, Some(bootdev)) => bootdev,
            (None, None) => match self.find(None, None)? {
                Some(index) => index,
                None => self.default_profile(),
            },
        };
        self.trace(index);
        let (mut target, mut via) = (None, None);
        if let Some(net) = net {
            target = scan::address_and_prefix(net);
            if target.is_none() {
                self.note(Effect::Ignored, format!("`{net}` is not a network"), brackets(&self.argument));
                return Ok(());
            }
        }
        if let Some(gateway) = gateway {
            via = scan::address(gateway).filter(|via| target.is_none_or(|(net, _)| net.is_ipv4() == via.is_ipv4()));
            if via.is_none() {
                let reason = format!("`{gateway}` is not a gateway of the route's address family");
                self.note(Effect::Ignored, reason, brackets(&self.argument));
                return Ok(());
            }
        }
        let (net, prefix) = match (target, via) {
            (Some(target), _) => target,
            (None, Some(via)) => (zero(via), None),
            (None, None) => {
                self.note(Effect::Ignored, "it names neither a network nor a gateway".to_owned(), None);
                return Ok(());
            }
        };
        let prefix = prefix.unwrap_or(scan::longest_prefix(net));
        let via = via.filter(|via| !via.is_unspecified());
        let routes = &mut self.profiles[index].family(net).routes;
        if !routes.contains(&(net, prefix, via)) {
            routes.push((net, prefix, via));
        }
        Ok(())
    }

    fn add_name_server(&mut self, server: &str) {
        let Some(address) = scan::address(server) else {
            self.note(Effect::Ignored, format!("`{server}` is not one IP address"), None);
            return;
        };
        let mut used = false;
        for profile in &mut self.profiles {
            let family = profile.family(address);
            if matches!(family.method, Method::Auto | Method::Manual) {
                family.add_dns(address);
                profile.arguments.push(self.argument.clone());
                used = true;
            }
        }
        if !used {
            let version = if address.is_ipv4() { "IPv4" } else { "IPv6" };
            self.note(
                Effect::Ignored,
                format!("no profile has {version} switched on, and a name server alone makes none"),
                None,
            );
        }
    }

    /// The profile bound to no interface, made when it is missing.
    pub(super) fn default_profile(&mut self) -> usize {
        let index = self.default.unwrap_or_else(|| {
            let index = self.create(Some("default_connection"), "Wired Connection", None, None, Kind::Ethernet);
            self.profiles[index].become_kind(Kind::Ethernet);
            self.profiles[index].shared = true;
            index
        });
        self.default = Some(index);
        index
    }

    /// The profile of an interface (a name or a MAC address). Without a usable one: the first of this type, or the first that is no port.
    pub(super) fn find(&mut self, interface: Option<&str>, kind: Option<Kind>) -> Result<Option<usize>, Crash> {
        let found = match self.identify(interface) {
            (None, None) => self.first_of(kind)?,
            (name, mac) => {
                let key = name.or(mac);
                self.profiles.iter().position(|profile| profile.name.is_some() && profile.name == key)
            }
        };
        if let (Some(index), Some(kind)) = (found, kind) {
            self.profiles[index].become_kind(kind);
        }
        Ok(found)
    }

    /// [`Reader::find`], making the profile when it is missing.
    pub(super) fn find_or_create(&mut self, interface: Option<&str>, kind: Option<Kind>) -> Result<usize, Crash> {
        let (name, mac) = self.identify(interface);
        if let (Some(interface), None, None) = (interface, &name, &mac) {
            let reason = format!(
                "`{interface}` is neither an interface name (1 to 15 bytes without `/`, `:` or space) nor a MAC address, \
                 so the argument goes to whatever profile came first"
            );
            self.note(Effect::Reinterpreted, reason, None);
        }
        if let Some(index) = self.find(interface, kind)? {
            self.trace(index);
            return Ok(index);
        }
        let infiniband = name.as_ref().is_some_and(|name| name.starts_with("ib"))
            || mac.as_ref().is_some_and(|mac| scan::hardware_address_of(mac, 20).is_some());
        let kind = kind.unwrap_or(if infiniband { Kind::Infiniband } else { Kind::Ethernet });
        let key = name.as_deref().or(mac.as_deref());
        let index = self.create(key, key.unwrap_or("Wired Connection"), name.as_deref(), mac.as_deref(), kind);
        self.profiles[index].become_kind(kind);
        self.trace(index);
        Ok(index)
    }

    fn identify(&self, interface: Option<&str>) -> (Option<String>, Option<String>) {
        match interface {
            Some(name) if scan::is_interface_name(name) => (Some(name.to_owned()), None),
            Some(mac) => (None, scan::hardware_address(mac)),
            None => (None, None),
        }
    }

    fn first_of(&self, kind: Option<Kind>) -> Result<Option<usize>, Crash> {
        for (index, profile) in self.profiles.iter().enumerate() {
            // The generator looks the nameless profile up by its missing name.
            profile.name.as_ref().ok_or(Crash)?;
            let fits = kind.map_or(profile.controller.is_none(), |kind| profile.kind == kind);
            if fits {
                return Ok(Some(index));
            }
        }
        Ok(None)
    }

    fn create(
        &mut self,
        name: Option<&str>,
        id: &str,
        interface: Option<&str>,
        mac: Option<&str>,
        kind: Kind,
    ) -> usize {
        let family = Family {
            method: Method::Auto,
            addresses: Vec::new(),
            gateway: None,
            dns: Vec::new(),
            routes: Vec::new(),
            may_fail: true,
            ignore_auto_dns: self.globals.ignore_auto_dns,
            dhcp_timeout: self.globals.dhcp_timeout,
            dhcp_hostname: None,
            vendor_class: None,
            required_timeout: None,
        };
        let infiniband = (kind == Kind::Infiniband).then(|| Infiniband {
            datagram: true,
            mac: mac.map(str::to_owned),
            partition: None,
        });
        let wired = (kind != Kind::Infiniband && mac.is_some())
            .then(|| Wired { mac: mac.map(str::to_owned), ..Wired::default() });
        self.profiles.push(Profile {
            name: name.map(str::to_owned),
            id: id.to_owned(),
            uuid: Profile::uuid_of(name),
            kind,
            interface: interface.map(str::to_owned),
            shared: false,
            wait_device: false,
            from_boot_loader: false,
            controller: None,
            wired,
            infiniband,
            bond: None,
            bridge: false,
            team: false,
            vlan: None,
            ipv4: Family {
                vendor_class: self.globals.vendor_class.clone(),
                required_timeout: Some(REQUIRED_TIMEOUT),
                ..family.clone()
            },
            ipv6: family,
            arguments: Vec::new(),
        });
        self.profiles.len() - 1
    }

    /// Remembers that the argument being read shaped a profile.
    pub(super) fn trace(&mut self, index: usize) {
        let arguments = &mut self.profiles[index].arguments;
        if arguments.last() != Some(&self.argument) {
            arguments.push(self.argument.clone());
        }
    }
}

/// The hint for IPv6 addresses that were cut at their first colon.
pub(super) fn brackets(argument: &str) -> Option<String> {
    let plain = !argument.contains('[') && argument.matches(':').count() > 2 && argument.contains("::");
    plain.then(|| "an IPv6 address in brackets, such as `[2001:db8::1]`".to_owned())
}

fn zero(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED),
    }
}
