//! Places, bounds and refusals of the YAML reader.

use proptest::prelude::*;

use super::*;
use crate::diagnostic::Code;
use crate::source::SourceMap;

fn parse(text: &str) -> (Vec<Node>, Vec<Diagnostic>, SourceMap) {
    let mut sources = SourceMap::default();
    let file = sources.add("t.yaml", text);
    let (documents, diagnostics) = parse_yaml(file, sources.file(file));
    (documents, diagnostics, sources)
}

/// The documents as JSON lines; anything reported fails the test.
fn json(text: &str) -> String {
    let (documents, diagnostics, _) = parse(text);
    assert_eq!(diagnostics, [], "{text}");
    documents.iter().map(|document| document.to_json().to_string()).collect::<Vec<_>>().join("\n")
}

/// The findings as `line:column CODE message | help`.
fn findings(text: &str) -> Vec<String> {
    let (_, diagnostics, sources) = parse(text);
    let tell = |found: &Diagnostic| {
        let at = sources.line_column(found.at.expect("a place"));
        let help = found.help.as_deref().unwrap_or("-");
        format!("{}:{} {} {} | {help}", at.line, at.column, found.code, found.message)
    };
    diagnostics.iter().map(tell).collect()
}

/// Every key and value with its place and the text it covers, one per line.
fn places(text: &str) -> String {
    fn walk(node: &Node, sources: &SourceMap, lines: &mut Vec<String>) {
        lines.push(place(node.at, sources, "="));
        for entry in node.entries() {
            lines.push(place(entry.key.at, sources, ":"));
            walk(&entry.value, sources, lines);
        }
        for item in node.items() {
            walk(item, sources, lines);
        }
    }
    fn place(at: Location, sources: &SourceMap, mark: &str) -> String {
        let source = sources.file(at.file);
        let text = &source.text[at.span.start as usize..at.span.end as usize];
        let at = sources.line_column(at);
        format!("{}:{}{mark}{text:?}", at.line, at.column)
    }
    let (documents, diagnostics, sources) = parse(text);
    assert_eq!(diagnostics, [], "{text}");
    let mut lines = Vec::new();
    documents.iter().for_each(|document| walk(document, &sources, &mut lines));
    lines.join(" ")
}

#[test]
fn keys_and_values_know_their_places() {
    let table = [
        ("a: b\n", r#"1:1="a: b" 1:1:"a" 1:4="b""#),
        ("a:\n  b: c  # d\n", r#"1:1="a:\n  b: c" 1:1:"a" 2:3="b: c" 2:3:"b" 2:6="c""#),
        ("a:\nb: ~\n", r#"1:1="a:\nb: ~" 1:1:"a" 1:2="" 2:1:"b" 2:4="~""#),
        ("- a\n- - b\n  - c\n", r#"1:1="- a\n- - b\n  - c" 1:3="a" 2:3="- b\n  - c" 2:5="b" 3:5="c""#),
        ("a:\n- b\n- c: d\n", r#"1:1="a:\n- b\n- c: d" 1:1:"a" 2:1="- b\n- c: d" 2:3="b" 3:3="c: d" 3:3:"c" 3:6="d""#),
        (
            "{a: [1, 2 ], b: {} }",
            r#"1:1="{a: [1, 2 ], b: {} }" 1:2:"a" 1:5="[1, 2 ]" 1:6="1" 1:9="2" 1:14:"b" 1:17="{}""#,
        ),
        ("a: \"b \\\" c\"  # d\n", r#"1:1="a: \"b \\\" c\"" 1:1:"a" 1:4="\"b \\\" c\"""#),
        ("a: 'b '' c'  # d\n", r#"1:1="a: 'b '' c'" 1:1:"a" 1:4="'b '' c'""#),
        ("'a': &x !!str b\n", r#"1:1="'a': &x !!str b" 1:1:"'a'" 1:15="b""#),
        (
            "a: &x\n  b: c\nd: *x # e\n",
            r#"1:1="a: &x\n  b: c\nd: *x" 1:1:"a" 2:3="b: c" 2:3:"b" 2:6="c" 3:1:"d" 3:4="*x" 2:3:"b" 2:6="c""#,
        ),
        ("a: |\n  b\n\n  c\n\nd: e\n", r#"1:1="a: |\n  b\n\n  c\n\nd: e" 1:1:"a" 2:3="b\n\n  c" 6:1:"d" 6:4="e""#),
        ("a: b\n  c\n", r#"1:1="a: b\n  c" 1:1:"a" 1:4="b\n  c""#),
        (
            "ä: ö\nü: [ß, \"é\"] # €\n€: x\n",
            r#"1:1="ä: ö\nü: [ß, \"é\"] # €\n€: x" 1:1:"ä" 1:4="ö" 2:1:"ü" 2:4="[ß, \"é\"]" 2:5="ß" 2:8="\"é\"" 3:1:"€" 3:4="x""#,
        ),
        ("a: b\r\nc: d\r\n", "1:1=\"a: b\\r\\nc: d\" 1:1:\"a\" 1:4=\"b\" 2:1:\"c\" 2:4=\"d\""),
        (
            "a: 1\n---\nb: ü\n---\nc: 3\n",
            r#"1:1="a: 1" 1:1:"a" 1:4="1" 3:1="b: ü" 3:1:"b" 3:4="ü" 5:1="c: 3" 5:1:"c" 5:4="3""#,
        ),
    ];
    for (text, expected) in table {
        assert_eq!(places(text), expected, "{text}");
    }
}

#[test]
fn streams_are_cut_into_documents() {
    let table = [
        ("", ""),
        ("# only a comment\n", ""),
        ("---\n---\n# c\n---\n", ""),
        ("a: 1", r#"{"a":1}"#),
        ("---\na: 1\n---\nb: 2\n", "{\"a\":1}\n{\"b\":2}"),
        ("--- {a: 1}\n--- # c\nb: 2\n...\n", "{\"a\":1}\n{\"b\":2}"),
        ("%YAML 1.1\n---\na: 1\n", r#"{"a":1}"#),
        ("# c\n%YAML 1.1\n# d\n---\na: 1\n---\nb: 2\n", "{\"a\":1}\n{\"b\":2}"),
        ("a: 1\n...\n---\nb: 2\n", "{\"a\":1}\n{\"b\":2}"),
        ("\u{feff}a: 1\n", r#"{"a":1}"#),
        ("a: |\n  ---\n  x\n", r#"{"a":"---\nx\n"}"#),
        ("a: ---b\n", r#"{"a":"---b"}"#),
        ("- a\n", r#"["a"]"#),
        ("text\n", r#""text""#),
        ("{\"a\": [1, true, null, \"x\\u00e9\"]}", r#"{"a":[1,true,null,"xé"]}"#),
    ];
    for (text, expected) in table {
        assert_eq!(json(text), expected, "{text}");
    }
}

#[test]
fn block_and_quoted_text_is_kept() {
    let table = [
        ("a: |\n  x\n   y\n\n  z\n\n", "x\n y\n\nz\n"),
        ("a: |-\n  x\n", "x"),
        ("a: |+\n  x\n\n", "x\n\n"),
        ("a: >\n  x\n  y\n\n  z\n", "x y\nz\n"),
        ("a: >-\n  x\n  y\n", "x y"),
        ("a: |2\n   x\n", " x\n"),
        ("a: 'it''s\n  x'\n", "it's x"),
        ("a: \"b\\n\\tc\\x41\\u00fc\\\\\"\n", "b\n\tcAü\\"),
        ("a: b c\n  d\n\n  e\n", "b c d\ne"),
        ("a: b #c\n", "b"),
        ("a: b#c\n", "b#c"),
        ("a: http://x:80/y\n", "http://x:80/y"),
        ("a: fd00::1\n", "fd00::1"),
    ];
    for (text, expected) in table {
        let (documents, diagnostics, _) = parse(text);
        assert_eq!(diagnostics, [], "{text}");
        assert_eq!(documents[0].get("a").and_then(Node::as_str), Some(expected), "{text}");
    }
}

#[test]
fn merge_keys_and_aliases_follow_the_kubernetes_reader() {
    let table = [
        ("d: &d {a: 1, b: 2}\nx: {<<: *d, b: 3}\n", r#"{"d":{"a":1,"b":2},"x":{"a":1,"b":3}}"#),
        ("x:\n  <<: [{a: 1}, {a: 2, b: 2}]\n", r#"{"x":{"a":1,"b":2}}"#),
        ("x: {\"<<\": 1}\n", r#"{"x":{"<<":1}}"#),
        ("a: &a [1, 2]\nb: *a\n", r#"{"a":[1,2],"b":[1,2]}"#),
        ("a: &a 1\nb: &a 2\nc: *a\n", r#"{"a":1,"b":2,"c":2}"#),
        ("? a\n: 1\n8080: x\n0.5: yy\nno: z\n", r#"{"a":1,"8080":"x","0.5":"yy","false":"z"}"#),
        ("a: !custom {b: !!str 1}\n", r#"{"a":{"b":"1"}}"#),
    ];
    for (text, expected) in table {
        assert_eq!(json(text), expected, "{text}");
    }
}

#[test]
fn what_is_wrong_is_said_with_place_and_edit() {
    let quotes = "put the value in quotes";
    let align = "align the line with the other keys or items of its level";
    let close = "close the bracket, separate the items with `,`, and put texts that contain brackets in quotes";
    let colon = "put the value in quotes if the colon belongs to it; otherwise align the key with its neighbours";
    let tab =
        "2:2 KLN0001 a tab is used for indentation | indent with spaces; YAML does not allow tabs there".to_owned();
    let table = [
        ("a:\n\tb: c\n", tab.clone()),
        ("a:\n\t- b\n", tab),
        ("a: 'x\nb: c\n", "1:4 KLN0001 the text that begins with ' is never closed | add the closing '".into()),
        ("a: \"x\n---\nb: c\n", "1:4 KLN0001 the text that begins with \" is never closed | add the closing \"".into()),
        ("a: \"\\q\"\n", "1:4 KLN0001 a backslash in this quoted text begins no escape that YAML knows | write \\\\ for a backslash, or use single quotes".into()),
        ("a: b: c\n", format!("1:5 KLN0001 a second `: ` stands in this value, or the line is indented wrongly | {colon}")),
        ("a: 1\n b: 2\n", format!("2:3 KLN0001 a second `: ` stands in this value, or the line is indented wrongly | {colon}")),
        ("a:\n  - b\n c: 1\n", format!("3:2 KLN0001 the indentation does not fit the lines above | {align}")),
        ("- a\nb: c\n", format!("2:1 KLN0001 the indentation does not fit the lines above | {align}")),
        ("a: [1, 2\nb: c\n", format!("2:2 KLN0001 a `[` or `{{` is not closed, or a `,` is missing | {close}")),
        ("a: {b: 1\n", format!("2:1 KLN0001 a `[` or `{{` is not closed, or a `,` is missing | {close}")),
        ("a: 1\nb\n", "3:1 KLN0001 a line is neither `key: value` nor a list item | add the missing `:` with a space behind it".into()),
        ("a: @b\n", format!("1:4 KLN0001 a value cannot begin with @ | {quotes}")),
        ("a: *b\n", "1:4 KLN0001 `*b` repeats an anchor that this document does not have | define it above with `&b`, or put the value in quotes if it is meant as text; anchors do not reach over `---`".into()),
        ("a: &a [*a]\n", "1:8 KLN0004 `*a` stands inside the value it repeats | remove the alias; a value cannot contain itself".into()),
        ("a: 1\na: 2\n", "2:1 KLN0005 `a` is written twice; this one is used | remove one of the two".into()),
        ("a: 1\n<<: {a: 2}\n", "1:1 KLN0005 `a` is replaced by the value merged below | move the `<<` line to the top of the mapping".into()),
        ("a: !!int x\n", "1:10 KLN0006 `x` is tagged !!int but is no whole number | remove the tag or correct the value".into()),
        ("[a]: 1\n", "1:1 KLN0007 a list is used as a key | write the key as text; put it in quotes if it begins with `{`, `[` or `?`".into()),
        ("~: 1\n", "1:1 KLN0007 nothing is used as a key | write the key as text; put it in quotes if it begins with `{`, `[` or `?`".into()),
        ("<<: 1\n", "1:5 KLN0008 the value of the merge key `<<` is no mapping | point it at a mapping, as in `<<: *defaults`, or put the key in quotes if it is meant as text".into()),
        ("a: {{ b }}\n", "1:4 KLN0022 this is a template, not a manifest | render it first, for example `helm template . | kiln check -`".into()),
    ];
    for (text, expected) in table {
        assert_eq!(findings(text), [expected], "{text}");
    }
}

#[test]
fn a_broken_document_leaves_the_others() {
    let (documents, diagnostics, _) = parse("a: 1\n---\nb: [\n---\nc: 'x\n---\nd: 4\n");
    assert_eq!(documents.iter().map(|d| d.to_json().to_string()).collect::<Vec<_>>(), [r#"{"a":1}"#, r#"{"d":4}"#]);
    assert_eq!(diagnostics.len(), 2);
}

#[test]
fn depth_values_and_repetition_are_bounded() {
    let deep_block: String = (0..=MAX_DEPTH).map(|level| format!("{}a:\n", " ".repeat(level))).collect();
    let deep_flow = "[".repeat(100_000);
    let deep_dashes = "- ".repeat(100_000);
    let nested = "values are nested more than 128 levels deep";
    for (name, text, expected) in
        [("block", deep_block, nested), ("flow", deep_flow, nested), ("dashes", deep_dashes, nested)]
    {
        let (documents, diagnostics, _) = parse(&text);
        assert_eq!(documents, [], "{name}");
        assert_eq!(diagnostics.iter().map(|found| found.message.as_str()).collect::<Vec<_>>(), [expected], "{name}");
    }
    // Aliases must not get around the depth: each line nests the one above 100 levels deeper.
    let mut ladder = String::from("a0: &a0 x\n");
    for step in 1..4 {
        ladder.push_str(&format!("a{step}: &a{step} {}*a{}{}\n", "[".repeat(100), step - 1, "]".repeat(100)));
    }
    let found = &parse(&ladder).1[0];
    assert_eq!((found.code, found.message.as_str()), (Code(3), nested));
    // A long text repeated often weighs as much as many values.
    let heavy = format!("a: &a {}\nb: [{}]\n", "x".repeat(1 << 20), "*a, ".repeat(100));
    assert_eq!(parse(&heavy).1[0].message, "`*a` repeats too much: the rest of the file was not read");
}

#[test]
fn a_text_over_the_limit_is_refused() {
    let (documents, diagnostics, _) = parse(&" ".repeat(MAX_FILE_BYTES + 1));
    assert_eq!(documents, []);
    assert_eq!(diagnostics[0].message, "the file has 67108865 bytes and was not read");
}

#[test]
fn a_large_mapping_with_duplicates_is_settled() {
    let text: String = (0..2000).map(|number| format!("k{}: {number}\n", number % 1000)).collect();
    let (documents, diagnostics, _) = parse(&text);
    assert_eq!((documents[0].entries().len(), diagnostics.len()), (1000, 1000));
    assert_eq!(documents[0].get("k7").and_then(Node::as_integer), Some(1007));
}

/// Fragments that have a meaning to YAML, to be strung together at random.
const FRAGMENTS: [&str; 40] = [
    "a", "b: ", "- ", "? ", ": ", ":", "\n", "\n  ", "\n    ", "\n- ", "\t", " ", "{", "}", "[", "]", ", ", "\"", "'",
    "\\", "|\n", ">-\n", "|2\n", "&a ", "*a", "!!str ", "!!int ", "! ", "%", "# c", "\n---\n", "\n...\n", "<<: ",
    "\u{feff}", "ü", "\u{2028}", "\r\n", "\0", "@", "0x1",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_text_makes_the_reader_panic(text in any::<String>()) {
        check_places(&text);
    }

    #[test]
    fn no_string_of_yaml_fragments_makes_the_reader_panic(parts in prop::collection::vec(0..FRAGMENTS.len(), 0..30)) {
        check_places(&parts.iter().map(|part| FRAGMENTS[*part]).collect::<String>());
    }

    #[test]
    fn no_damaged_manifest_makes_the_reader_panic(at in 0usize..200, remove in 0usize..4, put in 0..FRAGMENTS.len()) {
        let manifest = "apiVersion: v1\nkind: A\nmetadata: {name: \"ä\", labels: &l {a: b}}\nspec:\n- |\n  x\n- *l\n- 'y'\n---\nb: 1\n";
        let start = manifest.floor_char_boundary(at);
        let end = manifest.floor_char_boundary(start + remove);
        check_places(&format!("{}{}{}", &manifest[..start], FRAGMENTS[put], &manifest[end..]));
    }

    #[test]
    fn both_readers_agree(lines in plain_yaml(3)) {
        compare_readers(&(lines.join("\n") + "\n"));
    }

    /// JSON is YAML: whatever can be written as JSON is read back.
    #[test]
    fn json_is_read_back(value in json_values()) {
        prop_assert_eq!(json(&format!("--- {value}")), if value.is_null() { String::new() } else { value.to_string() });
    }
}

/// What the fast reader gives for each document is what the scanner gives, without a finding.
fn compare_readers(text: &str) -> usize {
    let mut sources = SourceMap::default();
    let file = sources.add("t.yaml", text);
    let mut fast_ones = 0;
    for span in split_documents(text) {
        let piece = build::Piece { file, base: span.start, text: &text[span.start as usize..span.end as usize] };
        if let Some((fast, values)) = fast::read_plain_document(&piece) {
            let (mut budget, mut findings) = (build::Budget::default(), Vec::new());
            let slow = build::build(&piece, &mut budget, &mut findings);
            assert_eq!((slow, findings), (vec![fast], vec![]), "{text:?}");
            assert!(budget.take(MAX_NODES - values) && !budget.take(1), "{values} values in {text:?}");
            fast_ones += 1;
        }
    }
    fast_ones
}

/// A manifest of harmless parts, for which the fast reader is meant.
fn plain_yaml(depth: u32) -> BoxedStrategy<Vec<String>> {
    let scalar = prop_oneof![
        "[a-z0-9./_-]{1,8}",
        "[a-zä0-9:#{}\\[\\],.& -]{1,10}",
        "\"[a-z: #,ä\\\\n]{0,8}\"",
        "'[a-z: #,{}\"]{0,8}'",
        Just("[1, a b, {c: d, \"e\": 'f'}]".to_owned()),
        Just("{a: [], b: {}, c: de:ad:00}".to_owned()),
        Just(String::new()),
        Just("yes # comment".to_owned()),
    ];
    let lines = scalar.prop_map(|text| vec![text]);
    let literal = prop::collection::vec("[ a-z:#-]{0,8}", 1..4).prop_map(|body| {
        std::iter::once("|".to_owned()).chain(body.into_iter().map(|line| format!("  {line}"))).collect()
    });
    if depth == 0 {
        return prop_oneof![4 => lines, 1 => literal].boxed();
    }
    let indent = |lines: Vec<String>| lines.into_iter().map(|line| format!("  {line}")).collect::<Vec<_>>();
    let mapping = prop::collection::vec(("[a-z./\"' -]{1,6}", plain_yaml(depth - 1), any::<bool>()), 1..5).prop_map(
        move |entries| {
            let lines = entries.into_iter().flat_map(|(key, value, flat)| {
                let scalar = value.len() == 1 || value[0] == "|";
                let mut lines = vec![if scalar { format!("{key}: {}", value[0]) } else { format!("{key}:") }];
                lines.extend(if scalar {
                    value[1..].to_vec()
                } else if flat {
                    value
                } else {
                    indent(value)
                });
                lines
            });
            lines.collect()
        },
    );
    let list = prop::collection::vec(plain_yaml(depth - 1), 1..4).prop_map(|items| {
        let lines = items.into_iter().flat_map(|item| {
            item.into_iter().enumerate().map(|(index, line)| format!("{} {line}", if index == 0 { "-" } else { " " }))
        });
        lines.collect()
    });
    prop_oneof![1 => lines, 4 => mapping, 3 => list].boxed()
}

#[test]
fn ordinary_manifests_are_read_fast() {
    let manifests = "apiVersion: metal3.io/v1alpha1\nkind: BareMetalHost\nmetadata:\n  name: w1\n  annotations:\n    bmac.agent-install.openshift.io/role: \"worker\"\n  labels: {a: b, c: \"d\"}\nspec:\n  online: true # comment\n  bmc:\n    address: redfish+http://1.2.3.4:80/x\n  list:\n  - name: eth0\n    mac: 52:54:00:00:00:01\n  - [1, 2]\n  empty:\n  text: |\n    a\n\n     b\n---\n# next\nkind: 'B'\nitems:\n  - a\n  - - b\n    - {}\n";
    assert_eq!(compare_readers(manifests), 2);
}

/// Every place lies in the text, on character boundaries, and inside its parent unless an alias brought it.
fn check_places(text: &str) {
    compare_readers(text);
    let (documents, diagnostics, _) = parse(text);
    fn walk(node: &Node, text: &str) {
        assert!(
            text.get(node.at.span.start as usize..node.at.span.end as usize).is_some(),
            "{:?} in {text:?}",
            node.at
        );
        for entry in node.entries() {
            assert!(text.get(entry.key.at.span.start as usize..entry.key.at.span.end as usize).is_some());
            walk(&entry.value, text);
        }
        node.items().iter().for_each(|item| walk(item, text));
    }
    documents.iter().for_each(|document| walk(document, text));
    for found in diagnostics {
        let at = found.at.expect("a place").span;
        assert!(text.get(at.start as usize..at.end as usize).is_some(), "{at:?} in {text:?}");
    }
}

fn json_values() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(serde_json::Value::from),
        any::<i64>().prop_map(serde_json::Value::from),
        "[ -~äöü€\\n]{0,12}".prop_map(serde_json::Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(serde_json::Value::from),
            prop::collection::btree_map("[a-z:#\\-{]{1,6}", inner, 0..5).prop_map(|map| map.into_iter().collect()),
        ]
    })
}
