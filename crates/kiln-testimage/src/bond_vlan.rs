//! The network of the bond-and-VLAN image as keyfiles written by hand, and what says the same to nmstate.

/// An LACP bond of two ports and VLAN 110 on it with DHCP: file name and contents.
pub const KEYFILES: [(&str, &str); 4] = [
    (
        "bond0.nmconnection",
        "[connection]\nid=bond0\ntype=bond\ninterface-name=bond0\n[bond]\nmiimon=1\nmode=802.3ad\n[ipv4]\nmethod=disabled\n[ipv6]\nmethod=disabled\n",
    ),
    (
        "bond0-slave-1.nmconnection",
        "[connection]\nid=bond0-slave-1\ntype=ethernet\ninterface-name=eno2\nmaster=bond0\nslave-type=bond\n",
    ),
    (
        "bond0-slave-2.nmconnection",
        "[connection]\nid=bond0-slave-2\ntype=ethernet\ninterface-name=eno3\nmaster=bond0\nslave-type=bond\n",
    ),
    (
        "bond0.110.nmconnection",
        "[connection]\nid=bond0.110\ntype=vlan\ninterface-name=bond0.110\nmulti-connect=1\n[vlan]\nflags=1\nid=110\nparent=bond0\n[ipv4]\nmay-fail=false\nmethod=auto\n[ipv6]\nmethod=disabled\n",
    ),
];

/// The same network as an nmstate document.
pub const NMSTATE: &str = "\
interfaces:
- name: bond0
  type: bond
  state: up
  ipv4:
    enabled: false
  ipv6:
    enabled: false
  link-aggregation:
    mode: 802.3ad
    options:
      miimon: '1'
    port: [eno2, eno3]
- name: bond0.110
  type: vlan
  state: up
  vlan:
    base-iface: bond0
    id: 110
  ipv4:
    enabled: true
    dhcp: true
  ipv6:
    enabled: false
";
