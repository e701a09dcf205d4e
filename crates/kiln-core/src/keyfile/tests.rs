//! Keyfiles against GLib's rules, and the round trip as a property.

use super::*;
use proptest::prelude::*;

#[test]
fn texts_are_normalised_without_losing_anything() {
    let cases = [
        ("", ""),
        ("[a]\nk=v\n", "[a]\nk=v\n"),
        ("[a]\r\nk = v\r\n", "[a]\nk=v\n"),
        ("[a]\nk=v", "[a]\nk=v\n"),
        ("  [a]  \n\n\n  k=  v  \n", "[a]\nk=v  \n"),
        // one group, the last value counts
        ("[a]\nk=1\n[b]\nk=2\n[a]\nk=3\nm=4\n", "[a]\nk=3\nm=4\n\n[b]\nk=2\n"),
        // comments: above a header, inside a group, at the end
        ("# top\n\n[a]\n# in\nk=v\n\n# of b\n[b]\n\n# end\n", "# top\n\n[a]\n# in\nk=v\n\n# of b\n[b]\n\n# end\n"),
        ("# only a comment\n", "# only a comment\n"),
        ("# of a\n[a]\nk=v\n", "# of a\n[a]\nk=v\n"),
        ("# top\n\n\n# of a\n[a]\nk=v\n", "# top\n\n# of a\n[a]\nk=v\n"),
        ("# one\n\n# two\n\n", "# one\n# two\n"),
        ("[a]\n\n# about k\nk=v\n", "[a]\n# about k\nk=v\n"),
        // unknown keys, locales, blanks in keys, `=` in values
        ("[a]\nname[de]=x\nodd key=b=c\n", "[a]\nname[de]=x\nodd key=b=c\n"),
        ("[a]\n;k=v\n", "[a]\n;k=v\n"),
    ];
    for (text, expected) in cases {
        assert_eq!(Keyfile::parse(text).map(|keyfile| keyfile.render()).as_deref(), Ok(expected), "{text:?}");
    }
}

#[test]
fn refusals_say_the_line_and_the_repair() {
    let cases = [
        ("k=v", "line 1: `k` stands before the first group; put a line such as `[connection]` above it"),
        ("[a]\nnonsense", "line 2: `nonsense` is neither `key=value` nor `[group]`; start comments with `#`"),
        ("[a]\n\n; old style", "line 3: `; old style`: a comment starts with `#`, not with `;`"),
        ("[a", "line 1: `[a` is not a group; close it with `]` at the end"),
        ("[a]x", "line 1: `[a]x` is not a group; close it with `]` at the end"),
        ("[]", "line 1: `[]` is not a group name; it must not be empty nor have `[`, `]` or control characters"),
        ("[a[b]", "line 1: `[a[b]` is not a group name; it must not be empty nor have `[`, `]` or control characters"),
        ("[a]\n=v", "line 2: `=v` has no key; write `key=v`"),
        ("[a]\nk[=v", "line 2: `k[` is not a key name; `[` and `]` may only enclose a locale at its end"),
        ("[a]\nk=\0", "line 2: it has a NUL byte; is this really a text file?"),
    ];
    for (text, expected) in cases {
        assert_eq!(Keyfile::parse(text).map_err(|error| error.to_string()), Err(expected.to_owned()), "{text:?}");
    }
    let long = "#".repeat(LONGEST_TEXT + 1);
    let refused = Keyfile::parse(&long).map_err(|error| error.to_string());
    assert_eq!(refused, Err("line 1: the text has 1048577 bytes; a keyfile may have 1048576".to_owned()));
    let latin = Keyfile::parse_bytes(b"[a]\nk=caf\xe9\n").map_err(|error| error.to_string());
    assert_eq!(latin, Err("line 2: it is not UTF-8; save the file as UTF-8".to_owned()));
}

#[test]
fn values_are_escaped_and_unescaped_as_glib_does() {
    let cases = [
        ("plain", "plain"),
        ("  two blanks", "\\s\\stwo blanks"),
        ("\ttab\tinside", "\\ttab\tinside"),
        ("a\nb\rc\\d", "a\\nb\\rc\\\\d"),
        ("blank at end ", "blank at end "),
        ("a;b", "a;b"),
        ("#not a comment", "#not a comment"),
        ("", ""),
    ];
    for (value, raw) in cases {
        let mut keyfile = Keyfile::default();
        keyfile.set("g", "k", value);
        assert_eq!(keyfile.render(), format!("[g]\nk={raw}\n"));
        assert_eq!(keyfile.get("g", "k").as_deref(), Some(value));
    }
    let keyfile = Keyfile::parse("[g]\nbad=a\\qb\ncut=a\\\nlist=a\\;b;c").unwrap();
    assert_eq!(keyfile.get("g", "bad"), None);
    assert_eq!(keyfile.get("g", "cut"), None);
    assert_eq!(keyfile.get("g", "list"), None, "`\\;` is an escape of lists only");
    assert_eq!(keyfile.get_list("g", "list"), Some(vec!["a;b".to_owned(), "c".to_owned()]));
    assert_eq!(keyfile.raw("g", "bad"), Some("a\\qb"));
}

#[test]
fn lists_are_closed_with_a_semicolon_and_read_without_it() {
    let cases: [(&str, &[&str]); 5] = [
        ("192.0.2.1;192.0.2.2;", &["192.0.2.1", "192.0.2.2"]),
        ("192.0.2.1;192.0.2.2", &["192.0.2.1", "192.0.2.2"]),
        ("", &[]),
        ("a;;b", &["a", "", "b"]),
        (";", &[""]),
    ];
    for (raw, expected) in cases {
        let keyfile = Keyfile::parse(&format!("[ipv4]\ndns={raw}\n")).unwrap();
        assert_eq!(keyfile.get_list("ipv4", "dns").unwrap(), expected, "{raw}");
    }
    let mut keyfile = Keyfile::default();
    keyfile.set_list("ipv4", "dns-search", ["example.net", " odd;one"]);
    assert_eq!(keyfile.render(), "[ipv4]\ndns-search=example.net;\\sodd\\;one;\n");
}

#[test]
fn setting_keeps_the_place_and_removing_keeps_the_group() {
    let mut keyfile = Keyfile::parse("[a]\n# why\nx=1\ny=2\n\n[b]\nz=3\n").unwrap();
    keyfile.set("a", "x", "9");
    keyfile.set("c", "new", "1");
    keyfile.remove("b", "z");
    assert_eq!(keyfile.render(), "[a]\n# why\nx=9\ny=2\n\n[b]\n\n[c]\nnew=1\n");
    assert_eq!(keyfile.groups().collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(keyfile.keys("a").collect::<Vec<_>>(), ["x", "y"]);
    keyfile.remove_group("b");
    assert_eq!(keyfile.groups().collect::<Vec<_>>(), ["a", "c"]);
}

#[test]
fn names_without_a_spelling_cannot_break_the_file() {
    let mut keyfile = Keyfile::default();
    keyfile.set("a]\n[b", "k=1\nm", "v");
    keyfile.set("a]\n[b", "#", "v");
    keyfile.set("", "", "v");
    assert_eq!(keyfile.render(), "[a___b]\nk_1_m=v\n_=v\n\n[_]\n_=v\n");
}

#[test]
fn files_networkmanager_skips_say_why() {
    let cases = [
        ("a.nmconnection", 0o600, None),
        ("a", 0o400, None),
        ("a.nmconnection", 0o644, Some(Ignored::Mode(0o644))),
        ("a.nmconnection", 0o601, Some(Ignored::Mode(0o601))),
        (".a.nmconnection", 0o600, Some(Ignored::Hidden)),
        ("a.nmconnection~", 0o600, Some(Ignored::Leftover)),
        ("a.rpmnew", 0o600, Some(Ignored::Leftover)),
        ("a.backup", 0o600, Some(Ignored::Leftover)),
        ("a.rpmsave", 0o600, None),
        ("a.bak", 0o600, None),
        ("ca.pem", 0o600, Some(Ignored::Certificate)),
    ];
    for (name, mode, expected) in cases {
        let file = ConnectionFile { name: name.to_owned(), mode, keyfile: Keyfile::default() };
        assert_eq!(file.ignored(), expected, "{name} {mode:o}");
    }
}

proptest! {
    #[test]
    fn parse_after_render_gives_the_same_keyfile(
        entries in prop::collection::vec(("\\PC{0,6}|[a-c]", "\\PC{0,6}|[a-c\\[\\]]{1,4}", "(?s).{0,20}"), 0..12)
    ) {
        let mut keyfile = Keyfile::default();
        for (group, key, value) in &entries {
            keyfile.set(group, key, value);
        }
        prop_assert_eq!(Keyfile::parse(&keyfile.render()), Ok(keyfile));
    }

    #[test]
    fn any_text_that_parses_renders_to_something_stable(text in "([\\[\\]a-c=#; \\t\\r\\\\\n]|\\PC){0,80}") {
        if let Ok(keyfile) = Keyfile::parse(&text) {
            let rendered = keyfile.render();
            prop_assert_eq!(Keyfile::parse(&rendered).map(|again| (again.render(), again)), Ok((rendered, keyfile)));
        }
    }

    #[test]
    fn values_and_lists_come_back(values in prop::collection::vec("[^\\x00\\x0c]{0,12}", 1..5)) {
        let mut keyfile = Keyfile::default();
        keyfile.set("g", "value", &values[0]);
        keyfile.set_list("g", "list", &values);
        let read = Keyfile::parse(&keyfile.render()).unwrap();
        prop_assert_eq!(read.get("g", "value"), Some(Cow::Borrowed(values[0].as_str())));
        prop_assert_eq!(read.get_list("g", "list"), Some(values));
    }
}
