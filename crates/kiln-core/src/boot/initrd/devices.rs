//! The arguments about devices: `bridge=`, `bond=`, `team=`, `vlan=`, `ib.pkey=`, `rd.znet=`, `rd.ethtool=`.

use super::bond;
use super::finding::Effect;
use super::profile::Kind;
use super::reader::{Crash, Reader};
use super::scan::{self, Words};

/// Options of s390 network devices that NetworkManager takes.
const S390_OPTIONS: [&str; 31] = [
    "portno",
    "layer2",
    "portname",
    "protocol",
    "priority_queueing",
    "buffer_count",
    "isolation",
    "total",
    "inter",
    "inter_jumbo",
    "route4",
    "route6",
    "fake_broadcast",
    "broadcast_mode",
    "canonical_macaddr",
    "checksumming",
    "sniffer",
    "large_send",
    "ipato_enable",
    "ipato_invert4",
    "ipato_add4",
    "ipato_invert6",
    "ipato_add6",
    "vipa_add4",
    "vipa_add6",
    "rxip_add4",
    "rxip_add6",
    "lancmd_timeout",
    "ctcprot",
    "bridge_role",
    "hw_trap",
];

impl Reader {
    /// `bridge=NAME:PORTS`, `team=NAME:PORTS`, `bond=NAME:PORTS:OPTIONS:MTU`.
    pub(super) fn read_controller(&mut self, value: &str, kind: Kind, default: &str) -> Result<(), Crash> {
        let mut words = Words::new(value);
        let name = words.next(':');
        if name.is_none() {
            self.note(Effect::Reinterpreted, format!("it has no name and gets `{default}`"), None);
        }
        let ports = words.next(':');
        let index = self.find_or_create(Some(name.unwrap_or(default)), Some(kind))?;
        let uuid = self.profiles[index].uuid;
        if kind == Kind::Bond {
            self.read_bond_options(index, words.next(':').unwrap_or(""));
            if let Some(mtu) = words.next(':') {
                self.set_mtu(index, mtu);
            }
        }
        let mut ports = Words::new(ports.unwrap_or(""));
        loop {
            let port = ports.next(',').unwrap_or_else(|| {
                self.note(Effect::Reinterpreted, "a port without a name counts as `eth0`".to_owned(), None);
                "eth0"
            });
            let port = self.find_or_create(Some(port), None)?;
            self.profiles[port].controller = Some((kind, uuid));
            if ports.rest().is_empty() {
                break;
            }
        }
        self.notice_extra(words.rest());
        Ok(())
    }

    fn read_bond_options(&mut self, index: usize, options: &str) {
        let mut options = Words::new(options);
        while !options.rest().is_empty() {
            let option = options.next(',').unwrap_or("");
            let mut option = Words::new(option);
            let name = option.next('=').unwrap_or("");
            let value = option.rest();
            match bond::refusal(name, value) {
                Some((reason, meant)) => self.note(Effect::PartlyIgnored, reason, meant),
                None => {
                    let options = self.profiles[index].bond.get_or_insert_default();
                    options.insert(name.to_owned(), value.to_owned());
                }
            }
        }
    }

    /// `vlan=NAME:PARENT`: the id is the digits at the end of the name.
    pub(super) fn read_vlan(&mut self, value: &str) -> Result<(), Crash> {
        let mut words = Words::new(value);
        let Some(name) = words.next(':') else {
            self.note(Effect::Fatal, "the VLAN has no name".to_owned(), Some("write `vlan=NAME:PARENT`".to_owned()));
            return Err(Crash);
        };
        let parent = words.next(':');
        let digits = &name[name.trim_end_matches(|character: char| character.is_ascii_digit()).len()..];
        let index = self.find_or_create(Some(name), Some(Kind::Vlan))?;
        let id = scan::integer(digits, 10, 0, 4095);
        if id.is_none() {
            let reason =
                format!("the VLAN id is the number at the end of the name, and `{name}` ends in none from 0 to 4094");
            let meant = "end the name with the id: `vlan=eno1.100:eno1` or `vlan=vlan100:eno1`".to_owned();
            self.note(Effect::Reinterpreted, reason, Some(meant));
        }
        let vlan = self.profiles[index].vlan.get_or_insert_default();
        vlan.parent = parent.map(str::to_owned);
        if let Some(id) = id {
            vlan.id = id as u32;
        }
        self.notice_extra(words.rest());
        let parent = parent.map(str::to_owned);
        if !self.vlan_parents.contains(&parent) {
            self.vlan_parents.push(parent);
        }
        Ok(())
    }

    /// `ib.pkey=PARENT.KEY`.
    pub(super) fn read_partition(&mut self, value: &str) -> Result<(), Crash> {
        let mut words = Words::new(value);
        let name = words.next(':').unwrap_or("");
        let Some((parent, key)) = name.split_once('.') else {
            self.note(
                Effect::Ignored,
                "it needs a parent and a key".to_owned(),
                Some("write `ib.pkey=ib0.8004`".to_owned()),
            );
            return Ok(());
        };
        let Some(number) = scan::integer(key, 16, 0, 0xffff) else {
            self.note(Effect::Ignored, format!("`{key}` is not a hexadecimal key up to ffff"), None);
            return Ok(());
        };
        let index = self.find_or_create(Some(name), Some(Kind::Infiniband))?;
        let infiniband = self.profiles[index].infiniband.get_or_insert_default();
        infiniband.partition = Some((parent.to_owned(), number as u16));
        self.notice_extra(words.rest());
        Ok(())
    }

    /// `rd.znet_ifname=NAME:SUBCHANNELS`.
    pub(super) fn read_znet_name(&mut self, value: &str) {
        let mut words = Words::new(value);
        match words.next(':') {
            Some(name) => drop(self.znet.names.insert(words.rest().to_owned(), name.to_owned())),
            None => self.note(Effect::Ignored, "it names no interface".to_owned(), None),
        }
    }

    /// `rd.znet=TYPE,SUBCHANNELS,OPTIONS`: adds to a profile that other arguments made.
    pub(super) fn add_znet(&mut self, value: &str) -> Result<(), Crash> {
        let mut words = Words::new(value);
        let nettype = words.next(',');
        let (Some(first), Some(second)) = (words.next(','), words.next(',')) else {
            self.note(Effect::Ignored, "without two subchannels no device is known".to_owned(), None);
            return Ok(());
        };
        let mut subchannels = vec![first.to_owned(), second.to_owned()];
        let ctc = nettype == Some("ctc");
        if !ctc {
            subchannels.extend(words.next(',').map(str::to_owned));
        }
        let name = self.znet_interface(ctc, &subchannels);
        let Some(index) = self.find(Some(&name), Some(Kind::Ethernet))? else {
            self.note(Effect::Ignored, format!("no other argument makes a profile for its interface `{name}`"), None);
            return Ok(());
        };
        let wired = self.profiles[index].wired();
        wired.s390_nettype = nettype.map(str::to_owned);
        wired.s390_subchannels = subchannels;
        while let Some(option) = words.next(',') {
            let Some((name, value)) = option.split_once('=') else {
                self.note(Effect::PartlyIgnored, format!("option `{option}` has no value"), None);
                continue;
            };
            if is_s390_option(name, value) {
                self.profiles[index].wired().s390_options.insert(name.to_owned(), value.to_owned());
            } else {
                self.profiles[index].wired().s390_options.remove(name);
                self.note(Effect::PartlyIgnored, format!("`{option}` is no option of an s390 device"), None);
            }
        }
        Ok(())
    }

    /// The name udev will give the device.
    fn znet_interface(&mut self, ctc: bool, subchannels: &[String]) -> String {
        let count = if ctc { &mut self.znet.ctc_devices } else { &mut self.znet.ethernet_devices };
        let index = *count;
        if !self.znet.predictable_names {
            *count += 1;
        }
        if let Some(name) = self.znet.names.remove(&subchannels.join(",")) {
            return name;
        }
        if self.znet.predictable_names {
            let first = subchannels[0].as_str();
            let bus = first.trim_start_matches(['.', '0']);
            let bus = if bus.is_empty() { &first[first.len() - 1..] } else { bus };
            format!("{}c{bus}", if ctc { "sl" } else { "en" })
        } else {
            format!("{}{index}", if ctc { "ctc" } else { "eth" })
        }
    }

    /// `rd.ethtool=INTERFACE:AUTONEG:SPEED`.
    pub(super) fn read_ethtool(&mut self, value: &str) -> Result<(), Crash> {
        let mut words = Words::new(value);
        let Some(interface) = words.next(':') else {
            self.note(Effect::Ignored, "it names no interface".to_owned(), None);
            return Ok(());
        };
        let (negotiate_text, speed_text) = (words.next(':'), words.next(':'));
        let negotiate = negotiate_text.and_then(scan::boolean);
        if let (Some(text), None) = (negotiate_text, negotiate) {
            self.note(Effect::PartlyIgnored, format!("`{text}` is neither on nor off"), None);
        }
        let speed = speed_text.and_then(|speed| scan::integer(speed, 10, 0, i64::from(u32::MAX)));
        if let (Some(text), None) = (speed_text, speed) {
            self.note(Effect::PartlyIgnored, format!("`{text}` is not a speed in Mb/s"), None);
        }
        let speed = speed.unwrap_or(0) as u32;
        if speed == 0 && negotiate == Some(false) {
            self.note(Effect::PartlyIgnored, "auto-negotiation can only be off when a speed is given".to_owned(), None);
        }
        let index = self.find_or_create(Some(interface), Some(Kind::Ethernet))?;
        if negotiate.is_some() || speed != 0 {
            let wired = self.profiles[index].wired();
            wired.auto_negotiate = negotiate.unwrap_or(false);
            wired.speed = speed;
            wired.full_duplex = speed != 0;
        }
        self.notice_extra(words.rest());
        Ok(())
    }

    fn notice_extra(&mut self, rest: &str) {
        if !rest.is_empty() {
            self.note(Effect::PartlyIgnored, format!("`{rest}` at its end is one field too many"), None);
        }
    }
}

fn is_s390_option(name: &str, value: &str) -> bool {
    match name {
        "bridge_role" => matches!(value, "primary" | "secondary" | "none"),
        _ => S390_OPTIONS.contains(&name) && !value.is_empty(),
    }
}
