//! Kiln's keyfiles before the real NetworkManager: it reads what was meant, and skips what Kiln says it skips.

#[path = "support/networkmanager.rs"]
mod networkmanager;

use kiln_core::keyfile::{ConnectionFile, Keyfile};

fn ethernet(id: &str, interface: &str) -> Keyfile {
    let mut keyfile = Keyfile::default();
    keyfile.set("connection", "id", id);
    keyfile.set("connection", "type", "ethernet");
    keyfile.set("connection", "interface-name", interface);
    keyfile
}

#[test]
fn nasty_values_come_back_from_networkmanager() {
    let nasty = [
        " leading blank",
        "\tleading tab",
        "back\\slash",
        "semi;colon",
        "#hash",
        "quo\"te'",
        "a=b",
        "[x]",
        "trailing ",
        "ünïcödé ☃",
        "\\s",
        "tab\tinside",
        "percent%41",
    ];
    let files: Vec<_> = nasty
        .iter()
        .enumerate()
        .map(|(number, id)| {
            let mut keyfile = ethernet(id, &format!("eth{number}"));
            keyfile.set("connection", "stable-id", id);
            keyfile.set("ipv4", "method", "auto");
            keyfile.set_list("ipv4", "dns-search", ["one.example", "two.example"]);
            keyfile.set_list("connection", "permissions", Vec::<&str>::new());
            ConnectionFile::new(format!("{number}.nmconnection"), keyfile)
        })
        .collect();
    let Some(loaded) = networkmanager::load("nasty_values_come_back_from_networkmanager", &files) else { return };
    loaded.assert_clean(&files);
    for (number, id) in nasty.iter().enumerate() {
        let file = format!("{number}.nmconnection");
        assert_eq!(loaded.value(&file, "connection.id"), *id);
        assert_eq!(loaded.value(&file, "connection.stable-id"), *id);
        assert_eq!(loaded.value(&file, "ipv4.dns-search"), "one.example,two.example");
    }
}

#[test]
fn networkmanager_skips_exactly_the_files_kiln_says_it_skips() {
    let names = [
        ("good.nmconnection", 0o600),
        ("readable.nmconnection", 0o644),
        ("group.nmconnection", 0o640),
        ("read-only.nmconnection", 0o400),
        ("no-ending", 0o600),
        (".hidden.nmconnection", 0o600),
        ("a~", 0o600),
        ("a.backup", 0o600),
        ("a.rpmnew", 0o600),
        ("a.rpmsave", 0o600),
        ("a.bak", 0o600),
        ("a.123456", 0o600),
        ("a.pem", 0o600),
        ("a.der", 0o600),
        ("a.b-c_de", 0o600),
    ];
    let files: Vec<_> = names
        .iter()
        .map(|(name, mode)| ConnectionFile { name: (*name).to_owned(), mode: *mode, keyfile: ethernet(name, "eth0") })
        .collect();
    let Some(loaded) = networkmanager::load("networkmanager_skips_exactly_the_files_kiln_says_it_skips", &files) else {
        return;
    };
    let mut expected: Vec<_> =
        files.iter().filter(|file| file.ignored().is_none()).map(|file| file.name.as_str()).collect();
    expected.sort_unstable();
    assert_eq!(loaded.profiles.keys().collect::<Vec<_>>(), expected);
    assert_eq!(loaded.warnings.len(), 2, "{:#?}", loaded.warnings);
    for warning in loaded.warnings {
        assert!(warning.contains("are insecure"), "{warning}");
    }
}
