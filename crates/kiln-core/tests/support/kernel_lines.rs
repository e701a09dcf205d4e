//! Kernel command lines for the comparison with nm-initrd-generator: every form of every argument, then mixtures.

/// All fixed lines, and so many more pseudo-random ones.
pub fn all(extra: usize) -> Vec<String> {
    let mut lines = Vec::new();
    interface_methods(&mut lines);
    static_addresses(&mut lines);
    controllers(&mut lines);
    lines.extend(SINGLE.iter().map(|line| (*line).to_owned()));
    let mut random = Random(0x6b69_6c6e);
    lines.extend((0..250).map(|_| mixture(&mut random)));
    lines.extend((0..100).map(|_| garbled(&mut random)));
    // Another seed: lines found interesting here move to SINGLE.
    let mut random = Random(0xfeed_beef);
    lines.extend((0..extra).map(|index| if index % 2 == 0 { mixture(&mut random) } else { garbled(&mut random) }));
    lines
}

const METHODS: [&str; 18] = [
    "none",
    "off",
    "dhcp",
    "single-dhcp",
    "dhcp6",
    "auto6",
    "link6",
    "auto",
    "on",
    "any",
    "ibft",
    "fw",
    "dhcp,dhcp6",
    "dhcp6,dhcp",
    "auto,dhcp6",
    "dhcp,auto",
    "dhcp,",
    "dchp",
];

fn interface_methods(lines: &mut Vec<String>) {
    for method in METHODS {
        lines.push(format!("ip={method}"));
        for interface in ["eth0", "ib0", "52-54-00-12-34-56"] {
            lines.push(format!("ip={interface}:{method}"));
        }
        lines.push(format!("ip=eth0:{method}:9000 rd.neednet=1"));
        lines.push(format!("ip=eth0:{method}::52:54:00:12:34:56 nameserver=192.0.2.53 nameserver=2001:db8::53"));
    }
}

fn static_addresses(lines: &mut Vec<String>) {
    let addresses = [
        "",
        "192.0.2.5",
        "192.0.2.5/25",
        "10.0.0.1",
        "172.16.0.1",
        "[2001:db8::5]",
        "[2001:db8::5/48]",
        "[2001:db8::5]/48",
    ];
    for address in addresses {
        for (gateway, netmask) in [("", ""), ("192.0.2.1", "255.255.255.0"), ("[2001:db8::1]", "56"), ("gw", "mask")] {
            for tail in ["none", "dhcp", "auto6", "", "none:192.0.2.53", "off:1400:52:54:00:aa:bb:cc"] {
                lines.push(format!("ip={address}::{gateway}:{netmask}:node1:eth0:{tail}"));
            }
        }
        lines.push(format!("ip={address}::192.0.2.1:24:node_1::none"));
    }
}

fn controllers(lines: &mut Vec<String>) {
    for kind in ["bond", "bridge", "team"] {
        for value in [
            "",
            "c0",
            "c0:",
            "c0:eth1",
            "c0:eth1,eth2",
            ":eth1",
            "c0:c0",
            "c0:,",
            "c0:eth1,,eth2,",
            "c0:ib0",
            "c0:eth1:mode=1:9000:more",
            "aa:bb",
        ] {
            lines.push(format!("{kind}={value}"));
            lines.push(format!("{kind}={value} ip=c0:dhcp rd.neednet=1"));
        }
    }
    for options in BOND_OPTIONS {
        lines.push(format!("bond=bond0:eth1,eth2:{options}"));
    }
    for mode in 0..7 {
        for options in [
            "miimon=100",
            "primary=eth1",
            "lacp_rate=fast",
            "lacp_rate=slow",
            "arp_interval=100,arp_ip_target=192.0.2.1",
            "packets_per_slave=2,tlb_dynamic_lb=0,ad_user_port_key=3",
        ] {
            lines.push(format!("bond=bond0:eth1,eth2:mode={mode},{options}"));
        }
    }
}

const BOND_OPTIONS: [&str; 34] = [
    "mode=active-backup",
    "mode=actve-backup",
    "mode=7",
    "mode=",
    "mode",
    "miimon=0,updelay=100",
    "miimon=0,downdelay=100",
    "miimon=100,updelay=200,downdelay=200",
    "miimon=-1",
    "miimon=99999999999",
    "arp_interval=100",
    "arp_ip_target=192.0.2.1",
    "arp_interval=100,arp_ip_target=192.0.2.1;192.0.2.2",
    "arp_interval=100,arp_ip_target=[192.0.2.1,192.0.2.2]",
    "arp_interval=100,arp_ip_target=192.0.2.1,miimon=100",
    "arp_validate=filter_backup,arp_all_targets=all",
    "mode=802.3ad,ad_actor_system=52:54:00:11:22:33",
    "mode=802.3ad,ad_actor_system=52-54-00-11-22-33,ad_actor_sys_prio=0",
    "mode=802.3ad,ad_actor_sys_prio=5,ad_select=bandwidth,lacp_rate=1,min_links=1",
    "num_grat_arp=2,num_unsol_na=3",
    "num_grat_arp=2,num_unsol_na=2",
    "num_grat_arp=256",
    "mode=2,balance-slb=1",
    "mode=2,balance-slb=1,xmit_hash_policy=layer2",
    "mode=2,balance-slb=1,xmit_hash_policy=vlan+srcmac",
    "balance-slb=1",
    "mode=1,active_slave=eth1",
    "mode=1,primary=this_is_too_long_a_name",
    "mode=1,primary=eth1,primary_reselect=better,fail_over_mac=follow,resend_igmp=4",
    "peer_notif_delay=150,miimon=100",
    "peer_notif_delay=200,miimon=100",
    "lp_interval=0,use_carrier=2,all_slaves_active=1",
    "xmit_hash_policy=layer3+4,,miimon=50",
    "[mode=1,miimon=3],updelay=3",
];

const SINGLE: &[&str] = &[
    "ip=eth0:dhcp systemd.hostname=münchen",
    "bond=b%0:eth0 ip=eno%1:dhcp",
    "rd.net.dhcp.vendor-class=\\075\\000x rd.net.dhcp.vendor-class=\\400 ip=auto",
    "\"ip=eth0:dhcp\" ip=\"eth1:dhcp\"",
    "",
    "quiet",
    "--",
    "-x --foo",
    "ip",
    "ip=",
    "ip=:",
    "ip=::",
    "ip=eno1:typo",
    "ip=garbage",
    "ip=[",
    "ip=[]",
    "ip=[]:dhcp",
    "ip=[eth0]:dhcp",
    "ip=[eth0]x:dhcp",
    "ip=[eth0:dhcp",
    "[ip]=dhcp",
    "[ip=dhcp",
    "ip=a[b:c]d:dhcp",
    "ip=eth0:dhcp ip=eth0:none",
    "ip=eth0:none ip=eth0:dhcp6",
    "ip=192.0.2.5::192.0.2.1:24:a:eth0:none ip=[2001:db8::5]::[2001:db8::1]:64:b:eth0:none",
    "ip=192.0.2.5::192.0.2.1:24::eth0:none ip=192.0.2.6::192.0.2.2:24::eth0:none",
    "ip=192.0.2.5::192.0.2.1:24::eth0:none ip=192.0.2.5:::24::eth0:none",
    "ip=192.0.2.5:192.0.2.9:192.0.2.1:24::eth0:none",
    "ip=192.0.2.5::192.0.2.1:24:host.example.com:eth0:none:192.0.2.53:2001:db8::1",
    "ip=192.0.2.5::192.0.2.1:24:host-:eth0:none:192.0.2.53:192.0.2.54:extra",
    "ip=192.0.2.5::192.0.2.1:24:a..b:eth0:none:192.0.2.53:bad",
    "ip=192.0.2.5::192.0.2.1:255.0.255.0::eth0:none",
    "ip=192.0.2.5::192.0.2.1:33::eth0:none",
    "ip=192.0.2.5/33:::::eth0:none",
    "ip=0.0.0.0:::0::eth0:none",
    "ip=192.0.2.05:::24::eth0:none",
    "ip=[::1.2.3.4]:::::eth0:none",
    "ip=[::ffff:1.2.3.4]:::::eth0:none",
    "ip=[::]:::::eth0:none",
    "ip=[fe80::1%eth0]:::::eth0:none",
    "ip=[2001:db8:0:0:1::1]:::129::eth0:none",
    "ip=2001:db8::5:::::eth0:none",
    "ip=aa:bb:cc:dd:ee:ff:dhcp",
    "ip=a-b-c-d-e-f-0:dhcp",
    "ip=0-1-2-3-4-5-6-7:dhcp",
    "ip=80-00-02-08-fe-80-00-00-00-00-00-00-00-02-c9-03-00-00-0f-65:dhcp",
    "ip=this_is_a_very_long_name:dhcp",
    "ip=this_is_a_very_long_name:dhcp ip=other_very_long_name:none",
    "ip=this_is_a_very_long_name:dhcp ip=eth0:dhcp",
    "ip=eth0:dhcp ip=this_is_a_very_long_name:none",
    "ip=all:dhcp",
    "ip=default:dhcp",
    "ip=lo:dhcp",
    "ip=a/b:dhcp",
    "ip=.:dhcp ip=..:dhcp",
    "ip=.x:dhcp ip=x~:dhcp ip=~:dhcp ip=#x:dhcp",
    "ip=eth0:dhcp:abc",
    "ip=eth0:dhcp:0",
    "ip=eth0:dhcp:4294967295",
    "ip=eth0:dhcp:4294967296",
    "ip=eth0:dhcp:1500:random",
    "ip=eth0:dhcp:1500:RANDOM",
    "ip=eth0:dhcp:1500:zz",
    "ip=ib0:dhcp:2044:aa:bb:cc:dd:ee:ff",
    "ip=::192.0.2.1:::eth0:dhcp",
    "ip=eth0:dhcp:192.0.2.53:192.0.2.53",
    "ip=eth0:none:[2001:db8::53]:192.0.2.53",
    "ip=::::node2:eth0:dhcp",
    "ip=::::node2::dhcp ip=::::node3:eth1:auto6",
    "vlan",
    "vlan=",
    "vlan=:eth0",
    "vlan=vlan5",
    "vlan=vlan5:eth0",
    "vlan=eth0.5:eth0 ip=eth0.5:dhcp",
    "vlan=eth0.5:eth0 ip=eth0:dhcp",
    "vlan=5:eth0:x",
    "vlan=vlan:eth0",
    "vlan=vlan0:eth0",
    "vlan=vlan4094:eth0",
    "vlan=vlan4095:eth0",
    "vlan=vlan4096:eth0",
    "vlan=v99999999999:eth0",
    "vlan=vlan5:52-54-00-12-34-56",
    "vlan=vlan5:very/bad/parent ip=eth0:dhcp",
    "vlan=vlan5:bond0 bond=bond0:eth1,eth2:mode=802.3ad ip=vlan5:dhcp",
    "vlan=vlan5:vlan5",
    "vlan=this_is_too_long_for_a_name5:eth0",
    "vlan=52-54-00-12-34-56:eth0",
    "vlan=vlan5:all",
    "vlan=vlan6:eth0 vlan=vlan7:eth0 vlan=vlan6:eth1",
    "ib.pkey",
    "ib.pkey=ib0",
    "ib.pkey=ib0.8004",
    "ib.pkey=ib0.8004:x ip=ib0.8004:dhcp",
    "ib.pkey=ib0.4",
    "ib.pkey=ib0.zz",
    "ib.pkey=ib0.10000",
    "ib.pkey=ib0.0x8004",
    "ip=eth0.8004:dhcp ib.pkey=eth0.8004",
    "ib.pkey=.8004",
    "bootdev=eth0 rd.route=192.0.2.0/24:192.0.2.1",
    "bootdev= ip=eth1:dhcp",
    "bootdev",
    "bootdev=bond0 bond=bond0:eth1",
    "nameserver=192.0.2.53",
    "nameserver=192.0.2.53 ip=auto nameserver=[2001:db8::53] nameserver=192.0.2.53",
    "nameserver=192.0.2.53,192.0.2.54 ip=auto",
    "nameserver ip=auto nameserver=[]",
    "rd.route=192.0.2.0/24:192.0.2.1:eth9 rd.route=[2001:db8:1::/48]:[fe80::1]:eth9",
    "rd.route=192.0.2.7/24 rd.route=192.0.2.7/24",
    "rd.route=:192.0.2.1",
    "rd.route=",
    "rd.route=0.0.0.0/0:0.0.0.0 ip=eth0:dhcp",
    "rd.route=192.0.2.0/24:[fe80::1]",
    "rd.route=192.0.2.0/33 rd.route=foo:bar",
    "rd.route=192.0.2.0/24:192.0.2.1 bond=bond0:eth1",
    "rd.peerdns=0 ip=auto",
    "rd.peerdns=maybe ip=auto rd.neednet=nope",
    "rd.neednet",
    "rd.neednet=0",
    "rd.neednet=1 ip=ib0:dhcp bond=bond0:eth1",
    "rd.iscsi.ibft rd.iscsi.ibft=1 rd.iscsi.ibft=0",
    "rd.net.timeout.dhcp=30 rd.net.dhcp.retry=3 ip=auto",
    "rd.net.timeout.dhcp=infinity rd.net.dhcp.retry=9 ip=auto",
    "rd.net.timeout.dhcp=0 rd.net.dhcp.retry=x ip=auto",
    "rd.net.dhcp.vendor-class=a,b;c\\d ip=eth0:none ip=eth1:dhcp",
    "rd.net.timeout.carrier=30",
    "rd.net.timeout.carrier=0 rd.net.timeout.carrier=x",
    "BOOTIF=01-52-54-00-11-22-33",
    "bootif=52:54:00:11:22:33 ip=auto",
    "BOOTIF=01-52-54-00-11-22-33 rd.bootif=0 ip=auto",
    "BOOTIF=01-52-54-00-11-22-33 ip=eth0:dhcp",
    "BOOTIF=garbage ip=auto",
    "BOOTIF=02-52-54-00-11-22-33 ip=52-54-00-11-22-33:dhcp",
    "BOOTIF=00:52:54:00:11:22:33 ip=52-54-00-11-22-33:dhcp",
    "rd.znet=qeth,0.0.f5f0,0.0.f5f1,0.0.f5f2,layer2=1,portno=0,bad,x=1 ip=encf5f0:dhcp",
    "rd.znet=ctc,0.0.0000,0.0.0001,protocol=bar net.ifnames=0 ip=ctc0:dhcp rd.ethtool=eth0:on:100:x",
];

struct Random(u64);

impl Random {
    /// xorshift64*.
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }
}

/// One to six arguments, each put together from plausible parts.
fn mixture(random: &mut Random) -> String {
    let count = 1 + random.below(6);
    (0..count).map(|_| plausible(random)).collect::<Vec<_>>().join(" ")
}

const INTERFACES: [&str; 12] = [
    "eth0",
    "eth1",
    "eno1",
    "bond0",
    "br0",
    "vlan5",
    "eth0.100",
    "ib0",
    "ib0.8004",
    "52-54-00-12-34-56",
    "",
    "encf5f0",
];
const ADDRESSES: [&str; 14] = [
    "",
    "192.0.2.5",
    "192.0.2.5/25",
    "10.1.2.3",
    "[2001:db8::5]",
    "[2001:db8::5/48]",
    "[2001:db8::5]/48",
    "2001:db8::5",
    "0.0.0.0",
    "[::]",
    "[fe80::1]",
    "host",
    "192.0.2.0/24",
    "[2001:db8:7::/56]",
];

const NUMBERS: [&str; 12] =
    ["0", "1", "30", "-1", "+5", "0x10", "010", "2147483647", "2147483648", "99999999999999999999", "infinity", ""];

fn plausible(random: &mut Random) -> String {
    let interface = random.pick(&INTERFACES);
    let other = random.pick(&INTERFACES);
    let address = random.pick(&ADDRESSES);
    let gateway = random.pick(&ADDRESSES);
    let method = random.pick(&METHODS);
    match random.below(26) {
        0 => format!("ip={method}"),
        1 | 2 => format!("ip={interface}:{method}"),
        3 => format!(
            "ip={interface}:{method}:{}:{}",
            random.pick(&["1500", "9000", "", "x"]),
            random.pick(&["", "52:54:00:aa:bb:cc", "stable", "junk"])
        ),
        4..=7 => {
            let mask = random.pick(&["", "24", "255.255.255.128", "64", "x", "128"]);
            let host = random.pick(&["", "node1", "node1.example.com", "bad_host"]);
            let tail = random.pick(&[
                "",
                ":192.0.2.53",
                ":192.0.2.53:192.0.2.54",
                ":[2001:db8::53]",
                ":1400",
                ":1400:52:54:00:aa:bb:dd",
            ]);
            format!("ip={address}::{gateway}:{mask}:{host}:{interface}:{method}{tail}")
        }
        8 | 9 => format!("bond={interface}:{other},{}:{}", random.pick(&INTERFACES), random.pick(&BOND_OPTIONS)),
        10 => format!("bridge={interface}:{other}"),
        11 => format!("team={interface}:{other},{}", random.pick(&INTERFACES)),
        12 | 13 => format!("vlan={}:{other}", random.pick(&["vlan5", "vlan6", "eth0.100", "vlan4095", "5", "foo"])),
        14 => format!("rd.route={address}:{gateway}:{interface}"),
        15 => format!("nameserver={address}"),
        16 => format!(
            "BOOTIF={}",
            random.pick(&["01-52-54-00-12-34-56", "52:54:00:12:34:56", "junk", "01-52-54-00-00-00-01"])
        ),
        17 => format!("bootdev={interface}"),
        18 => format!(
            "rd.ethtool={interface}:{}:{}",
            random.pick(&["on", "off", "", "x"]),
            random.pick(&["100", "0", "", "x"])
        ),
        19 => format!(
            "rd.znet={},{},{},{}",
            random.pick(&["qeth", "lcs", "ctc", "", "foo"]),
            random.pick(&["0.0.f5f0", "0.0.0000", "f5f0", ""]),
            random.pick(&["0.0.f5f1", "x", "0.0.0001"]),
            random.pick(&[
                "0.0.f5f2,layer2=1,portno=0",
                "layer2=1",
                "",
                "0.0.f5f2,portname=foo,bad=1,layer2=",
                "protocol=1,ctcprot=2"
            ]),
        ),
        20 => format!("rd.net.timeout.dhcp={}", random.pick(&NUMBERS)),
        21 => format!("rd.net.dhcp.retry={}", random.pick(&NUMBERS)),
        22 => format!("rd.net.timeout.carrier={}", random.pick(&NUMBERS)),
        23 => format!(
            "rd.net.dhcp.vendor-class={}",
            random.pick(&["kiln", "", "a\\b", "\\075\\000x", "\\", "é", "a;b", "#x"])
        ),
        24 => format!(
            "{}={}",
            random.pick(&["rd.peerdns", "rd.neednet", "rd.bootif", "rd.iscsi.ibft", "net.ifnames"]),
            random.pick(&["0", "1", "no", "YES", "off", "", "x"])
        ),
        _ => random
            .pick(&[
                "rd.neednet=1",
                "rd.neednet",
                "rd.bootif=0",
                "net.ifnames=0",
                "ib.pkey=ib0.8004",
                "ib.pkey=ib0.12",
                "rd.znet_ifname=eth0:0.0.f5f0,0.0.f5f1,0.0.f5f2",
                "quiet",
                "root=LABEL=x",
                "ip=80-00-02-08-fe-80-00-00-00-00-00-00-00-02-c9-03-00-00-0f-65:dhcp",
                "bootdev=80-00-02-08-fe-80-00-00-00-00-00-00-00-02-c9-03-00-00-0f-65",
                "ip=ctc0:dhcp",
                "ip=slcf5f0:dhcp",
                "ip=enc0:dhcp",
                "vlan=vlan7",
                "bond",
                "team=",
                "bridge=:",
            ])
            .to_owned(),
    }
}

/// A plausible line with a few characters changed, doubled or taken out.
fn garbled(random: &mut Random) -> String {
    let alphabet: Vec<char> = "abe019:[],;./=-%_ \\'\"#~x*+@{}é".chars().collect();
    let mut line: Vec<char> = mixture(random).chars().collect();
    for _ in 0..1 + random.below(4) {
        if line.is_empty() {
            break;
        }
        let at = random.below(line.len());
        let character = alphabet[random.below(alphabet.len())];
        match random.below(4) {
            0 => drop(line.remove(at)),
            1 => line.insert(at, character),
            2 => line[at] = character,
            _ => line.truncate(at),
        }
    }
    line.into_iter().collect()
}
