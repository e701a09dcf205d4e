//! Each door with what it lets in and the exact words for what it does not.

use super::*;

/// Parses, and gives what would be printed: the value or the refusal.
fn read<T: FromStr<Err = ValueError> + fmt::Display>(text: &str) -> String {
    text.parse::<T>().map_or_else(|refusal| refusal.to_string(), |value| value.to_string())
}

#[test]
fn interface_names_follow_the_kernel() {
    let fine = ["eth0", "bond0.110", "...", "a@b", "-", "é", "☃", "123456789012345", "a\\b", "\"", "a\u{1}b"];
    for name in fine {
        assert_eq!(read::<InterfaceName>(name), name);
    }
    let refused = [
        ("", "`` is not an interface name: it is empty"),
        (".", "`.` is not an interface name: the kernel reserves `.` and `..`"),
        ("all", "`all` is not an interface name: the kernel keeps its own settings under that name"),
        ("1234567890123456", "`1234567890123456` is not an interface name: it is longer than 15 bytes"),
        ("ünïcödé-länger", "`ünïcödé-länger` is not an interface name: it is longer than 15 bytes"),
        ("a/b", "`a/b` is not an interface name: `/` and `:` are not allowed"),
        ("a:1", "`a:1` is not an interface name: `/` and `:` are not allowed"),
        ("eth%d", "`eth%d` is not an interface name: `%` makes it a pattern for the kernel"),
        ("a b", "`a b` is not an interface name: white space is not allowed"),
        ("à", "`à` is not an interface name: white space is not allowed"),
        ("a\u{b}", "`a\u{b}` is not an interface name: white space is not allowed"),
        ("a\0", "`a\0` is not an interface name: it has a NUL byte"),
    ];
    for (name, expected) in refused {
        assert_eq!(read::<InterfaceName>(name), expected);
    }
}

#[test]
fn mac_addresses_are_printed_in_one_way() {
    for text in ["52:54:00:AB:cd:01", "52-54-00-ab-CD-01"] {
        assert_eq!(read::<MacAddress>(text), "52:54:00:ab:cd:01");
    }
    for text in ["", "52:54:00:ab:cd", "52:54:00:ab:cd:01:02", "52:54:00:ab:cd:1", "52:54:00:ab:cd:+1", "525400abcd01"]
    {
        let expected =
            format!("`{text}` is not a MAC address; write six pairs of hexadecimal digits, as in 52:54:00:12:34:56");
        assert_eq!(read::<MacAddress>(text), expected);
    }
}

#[test]
fn vlan_ids_and_mtus_have_bounds() {
    for text in ["1", "110", "4094"] {
        assert_eq!(read::<VlanId>(text), text);
    }
    for text in ["", "0", "4095", "-1", "+5", "70000", "99999999999", "1a"] {
        let expected = format!("`{text}` is not a VLAN id; choose one from 1 to 4094 (0 and 4095 are reserved)");
        assert_eq!(read::<VlanId>(text), expected);
    }
    for text in ["68", "1500", "9000", "2147483647"] {
        assert_eq!(read::<Mtu>(text), text);
    }
    for text in ["", "0", "67", "2147483648", "1500 "] {
        let expected = format!("`{text}` is not an MTU; choose a number of bytes from 68 to 2147483647");
        assert_eq!(read::<Mtu>(text), expected);
    }
    assert_eq!(VlanId::try_from(110).map(VlanId::get), Ok(110));
    assert_eq!(Mtu::try_from(1500).map(Mtu::get), Ok(1500));
}

#[test]
fn bond_modes_are_read_by_name_and_number() {
    let modes = [
        ("0", "balance-rr"),
        ("1", "active-backup"),
        ("2", "balance-xor"),
        ("3", "broadcast"),
        ("4", "802.3ad"),
        ("5", "balance-tlb"),
        ("6", "balance-alb"),
    ];
    for (number, name) in modes {
        assert_eq!((read::<BondMode>(number), read::<BondMode>(name)), (name.to_owned(), name.to_owned()));
    }
    for text in ["", "7", "lacp", "01", "Active-Backup"] {
        let expected = format!(
            "`{text}` is not a bond mode; choose one of balance-rr, active-backup, balance-xor, broadcast, 802.3ad, \
             balance-tlb, balance-alb, or its number 0 to 6"
        );
        assert_eq!(read::<BondMode>(text), expected);
    }
}

#[test]
fn uuids_are_printed_in_lower_case() {
    assert_eq!(read::<ConnectionUuid>("AAAAAAAA-BBBB-4CCC-8DDD-EEEEEEEEEEEE"), "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee");
    for text in ["", "not-a-uuid", "aaaaaaaabbbb4ccc8dddeeeeeeeeeeee", "{aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee}"] {
        let expected =
            format!("`{text}` is not a UUID; write 32 hexadecimal digits as in 6b0b1d6e-6d2c-4f0e-8a52-0f0c6a3f2b11");
        assert_eq!(read::<ConnectionUuid>(text), expected);
    }
}

#[test]
fn a_profile_without_uuid_gets_the_one_networkmanager_derives() {
    // Seen in NetworkManager 1.42.4; the oracle test repeats the question.
    let uuid = ConnectionUuid::of_path("/etc/NetworkManager/system-connections/ok.nmconnection");
    assert_eq!(uuid.to_string(), "8da08901-1794-3b98-a9a5-1b10914e5ba2");
}
