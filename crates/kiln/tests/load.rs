//! Folders of manifests, good and bad, read from a real file system.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a helper that fails is a failed test"
)]

use std::fs;
use std::path::{Path, PathBuf};

use kiln::cli::load::{Loaded, load};
use kiln::cli::output::Failure;
use kiln_core::document::Node;

/// A fresh folder with the given files.
fn folder(test: &str, files: &[(&str, &[u8])]) -> PathBuf {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("load").join(test);
    if root.exists() {
        fs::remove_dir_all(&root).unwrap();
    }
    fs::create_dir_all(&root).unwrap();
    for (name, content) in files {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    root
}

fn load_one(path: &Path) -> Loaded {
    match load(&[path.to_owned()]) {
        Ok(loaded) => loaded,
        Err(Failure::Refused(error) | Failure::Failed(error)) => panic!("{error:#}"),
    }
}

/// `file:line:column CODE message`, with file names relative to the folder.
fn findings(loaded: &Loaded, root: &Path) -> Vec<String> {
    let prefix = format!("{}/", root.display());
    let tell = |text: &str| text.replace(&prefix, "").replace(&root.display().to_string(), "ROOT");
    loaded
        .diagnostics
        .iter()
        .map(|found| match found.at {
            Some(at) => {
                let place = loaded.sources.line_column(at);
                let name = &loaded.sources.file(at.file).name;
                tell(&format!("{name}:{}:{} {} {}", place.line, place.column, found.code, found.message))
            }
            None => tell(&format!("{} {}", found.code, found.message)),
        })
        .collect()
}

/// `Kind/namespace/name` of each document.
fn objects(loaded: &Loaded) -> Vec<String> {
    let text = |document: &Node, path: &[&str]| document.path(path).and_then(Node::as_str).unwrap_or("").to_owned();
    let object = |document: &Node| {
        let (kind, namespace) = (text(document, &["kind"]), text(document, &["metadata", "namespace"]));
        format!("{kind}/{namespace}/{}", text(document, &["metadata", "name"]))
    };
    loaded.documents.iter().map(object).collect()
}

fn object(kind: &str, name: &str) -> Vec<u8> {
    format!("apiVersion: v1\nkind: {kind}\nmetadata: {{name: {name}}}\n").into_bytes()
}

/// Checks what is found in a folder.
fn expect(test: &str, files: &[(&str, &[u8])], expected_objects: &[&str], expected_findings: &[&str]) {
    let root = folder(test, files);
    let loaded = load_one(&root);
    assert_eq!(findings(&loaded, &root), expected_findings, "{test}");
    assert_eq!(objects(&loaded), expected_objects, "{test}");
}

#[test]
fn files_are_read_in_order_and_hidden_ones_are_left_out() {
    expect(
        "order",
        &[
            ("b.yaml", &object("B", "b")),
            ("a/z.yml", &object("Z", "z")),
            ("a/c.json", br#"{"apiVersion": "v1", "kind": "C", "metadata": {"name": "c"}}"#),
            ("notes.txt", b"not: [read"),
            (".git/config.yaml", b"not: [read"),
            (".hidden.yaml", b"not: [read"),
        ],
        &["C//c", "Z//z", "B//b"],
        &[],
    );
}

#[test]
fn lists_are_unfolded() {
    let list = b"apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: A, metadata: {name: a}}\n- {apiVersion: v1, kind: BList, items: [{apiVersion: v1, kind: B, metadata: {name: b}}]}\n";
    expect("list", &[("l.yaml", list)], &["A//a", "B//b"], &[]);
}

#[test]
fn a_folder_without_manifests_is_an_error() {
    expect("empty", &[], &[], &["KLN0020 no manifests found in `ROOT`"]);
    expect("only-text", &[("a.txt", b"x")], &[], &["KLN0020 no manifests found in `ROOT`"]);
    expect("empty-file", &[("a.yaml", b"# nothing\n---\n")], &[], &["KLN0020 no manifests found in `ROOT`"]);
}

#[test]
fn an_empty_file_is_called_empty() {
    let root = folder("empty-alone", &[("a.yaml", b""), ("b.yaml", b"# nothing\n---\n")]);
    for name in ["a.yaml", "b.yaml"] {
        let expected = format!("KLN0020 `{name}` is empty: it holds no manifest");
        assert_eq!(findings(&load_one(&root.join(name)), &root), [expected]);
    }
}

#[test]
fn a_path_that_does_not_exist_is_refused() {
    let path = folder("missing", &[]).join("nowhere");
    match load(std::slice::from_ref(&path)) {
        Err(Failure::Refused(error)) => assert_eq!(
            format!("{error:#}"),
            format!("cannot read `{}`: No such file or directory (os error 2)", path.display())
        ),
        other => panic!("{other:?}"),
    }
}

#[test]
fn files_that_are_not_text_are_named() {
    let good = object("A", "a");
    expect(
        "binary",
        &[("a.yaml", &good), ("b.yaml", b"\x7fELF\0\0"), ("c.yaml", b"a: \xff\n"), ("d.yaml", b"\xff\xfea\0:\0")],
        &["A//a"],
        &[
            "b.yaml:1:1 KLN0021 the file is not text: byte 4 is a NUL byte",
            "c.yaml:1:1 KLN0021 the file is not text: byte 3 does not belong to UTF-8",
            "d.yaml:1:1 KLN0021 the file is not text: byte 3 is a NUL byte",
        ],
    );
}

#[test]
fn a_file_of_a_hundred_megabytes_is_refused_unread() {
    let root = folder("huge", &[]);
    fs::File::create(root.join("huge.yaml")).unwrap().set_len(100 << 20).unwrap();
    let loaded = load_one(&root);
    assert_eq!(findings(&loaded, &root), ["huge.yaml:1:1 KLN0002 the file has 104857600 bytes and was not read"]);
    assert_eq!(objects(&loaded), [""; 0]);
}

#[test]
fn a_yaml_bomb_ends_with_one_error() {
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for level in 1..20 {
        let below = level - 1;
        bomb.push_str(&format!("a{level}: &a{level} [{}]\n", vec![format!("*a{below}"); 9].join(", ")));
    }
    expect(
        "bomb",
        &[("bomb.yaml", bomb.as_bytes())],
        &[],
        &["bomb.yaml:7:10 KLN0004 `*a5` repeats too much: the rest of the file was not read"],
    );
}

#[test]
fn a_broken_document_does_not_hide_its_neighbours() {
    let text = b"apiVersion: v1\nkind: A\nmetadata: {name: a}\n---\nkind: [\n---\napiVersion: v1\nkind: B\nmetadata: {name: b}\n";
    expect(
        "broken",
        &[("a.yaml", text)],
        &["A//a", "B//b"],
        &["a.yaml:6:1 KLN0001 a `[` or `{` is not closed, or a `,` is missing"],
    );
}

#[test]
fn a_template_is_one_finding() {
    let helm = b"{{- if .Values.x }}\napiVersion: v1\nkind: {{ .Values.kind }}\nmetadata:\n  name: {{ .Release.Name }}\n{{- end }}\n---\nkind: {{ x }}\n";
    let quoted = b"apiVersion: v1\nkind: A\nmetadata:\n  name: \"{{ name }}\"\n---\napiVersion: v1\nkind: B\nmetadata: {name: \"{{ x }}\"}\n";
    expect(
        "template",
        &[("helm.yaml", helm), ("quoted.yaml", quoted)],
        &[],
        &[
            "helm.yaml:1:1 KLN0022 this is a template, not a manifest",
            "quoted.yaml:4:9 KLN0022 this is a template, not a manifest",
        ],
    );
}

#[test]
fn a_document_that_is_no_object_is_carried_for_the_reader_of_kinds_to_judge() {
    expect("values", &[("values.yaml", b"replicas: 3\n")], &["//"], &[]);
}

#[test]
fn a_kustomization_decides_what_belongs_to_a_folder() {
    expect(
        "kustomize",
        &[
            (
                "kustomization.yaml",
                b"namespace: ztp\nresources:\n- a.yaml\n- sub\n- https://example.com/x.yaml\n- gone.yaml\n- plain\nnamePrefix: x-\npatches:\n- path: p.yaml\nlabels: []\n",
            ),
            ("a.yaml", b"apiVersion: v1\nkind: A\nmetadata:\n  name: a\n  namespace: other\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: ztp}\n"),
            ("unlisted.yaml", &object("U", "u")),
            ("sub/kustomization.yml", b"resources: [b.yaml]\ngenerators: [site.yaml]\n"),
            ("sub/b.yaml", &object("B", "b")),
            ("sub/site.yaml", &object("SiteConfig", "s")),
            ("plain/c.yaml", &object("C", "c")),
        ],
        &["A/ztp/a", "Namespace//ztp", "B/ztp/b", "SiteConfig/ztp/s"],
        &[
            "kustomization.yaml:5:3 KLN0026 the remote resource `https://example.com/x.yaml` was not read",
            "kustomization.yaml:6:3 KLN0023 `gone.yaml` does not exist",
            "kustomization.yaml:7:3 KLN0023 the folder `plain` has no kustomization.yaml",
            "kustomization.yaml:8:1 KLN0024 `namePrefix`, `patches` are not applied",
        ],
    );
}

#[test]
fn kustomizations_that_include_each_other_are_reported_and_read_once() {
    expect(
        "circle",
        &[
            ("a/kustomization.yaml", b"resources: [../b, a.yaml]\n"),
            ("a/a.yaml", &object("A", "a")),
            ("b/kustomization.yaml", b"resources: [../a, b.yaml]\n"),
            ("b/b.yaml", &object("B", "b")),
            ("c/kustomization.yaml", b"resources: [.]\n"),
        ],
        &["B//b", "A//a"],
        &[
            "b/kustomization.yaml:1:13 KLN0025 the kustomization in `a` includes itself through this entry",
            "c/kustomization.yaml:1:13 KLN0025 the kustomization in `c` includes itself through this entry",
        ],
    );
}

#[test]
fn a_base_is_read_through_its_overlay() {
    expect(
        "overlay",
        &[
            ("base/kustomization.yaml", b"resources: [a.yaml]\n"),
            ("base/a.yaml", &object("A", "a")),
            ("overlay/kustomization.yaml", b"namespace: prod\nresources: [../base]\n"),
        ],
        &["A/prod/a"],
        &[],
    );
}

#[test]
fn generated_config_maps_and_secrets_exist_under_their_plain_name() {
    let root = folder(
        "generators",
        &[
            (
                "kustomization.yaml",
                b"configMapGenerator:\n- name: manifests\n  namespace: ztp\n  literals: [a=1=2]\n  files: [m.yaml, other=m.yaml, gone.yaml]\nsecretGenerator:\n- name: bmc\n  type: Opaque\n  envs: [bmc.env]\ngeneratorOptions: {disableNameSuffixHash: true}\n",
            ),
            ("m.yaml", b"kind: MachineConfig\n"),
            ("bmc.env", b"# login\nusername=root\npassword=a=b\n"),
        ],
    );
    let loaded = load_one(&root);
    assert_eq!(findings(&loaded, &root), ["kustomization.yaml:5:33 KLN0023 `gone.yaml` does not exist"]);
    let json: Vec<String> = loaded.documents.iter().map(|document| document.to_json().to_string()).collect();
    assert_eq!(
        json,
        [
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"manifests","namespace":"ztp"},"data":{"a":"1=2","m.yaml":"kind: MachineConfig\n","other":"kind: MachineConfig\n"}}"#,
            r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"bmc"},"stringData":{"username":"root","password":"a=b"},"type":"Opaque"}"#,
        ]
    );
    let at = loaded.documents[0].path(&["data", "m.yaml"]).unwrap().at;
    assert_eq!(loaded.sources.file(at.file).text, "kind: MachineConfig\n");
}

#[cfg(unix)]
#[test]
fn links_in_a_circle_and_broken_links_are_safe() {
    let root = folder("links", &[("a/a.yaml", &object("A", "a"))]);
    std::os::unix::fs::symlink("..", root.join("a/up")).unwrap();
    std::os::unix::fs::symlink("a/a.yaml", root.join("same.yaml")).unwrap();
    std::os::unix::fs::symlink("nowhere", root.join("z.yaml")).unwrap();
    let loaded = load_one(&root);
    assert_eq!(objects(&loaded), ["A//a"]);
    let root_name = root.display();
    assert_eq!(
        loaded.diagnostics.iter().map(|found| found.message.as_str()).collect::<Vec<_>>(),
        [format!("`{root_name}/z.yaml` cannot be read: No such file or directory (os error 2)")]
    );
}

#[test]
fn a_path_given_twice_is_read_once() {
    let root = folder("twice", &[("a.yaml", &object("A", "a"))]);
    let Ok(loaded) = load(&[root.clone(), root.join("a.yaml")]) else { panic!("refused") };
    assert_eq!(objects(&loaded), ["A//a"]);
    assert_eq!(findings(&loaded, &root), [""; 0]);
}

#[test]
fn a_link_that_leads_nowhere_is_reported() {
    let root = folder("dangling", &[("a.yaml", &object("Namespace", "a"))]);
    std::os::unix::fs::symlink("missing.yaml", root.join("b.yaml")).unwrap();
    let loaded = load_one(&root);
    let expected = ["b.yaml:1:1 KLN0029 `b.yaml` cannot be read: No such file or directory (os error 2)"];
    assert_eq!(findings(&loaded, &root), expected);
    assert_eq!(objects(&loaded), ["Namespace//a"]);
}

#[test]
fn reading_stops_when_there_is_too_much() {
    let root = folder("too_much", &[]);
    // Holes in a file take no room on disk; each is just small enough to be looked at.
    for number in 0..5 {
        fs::File::create(root.join(format!("{number}.yaml"))).unwrap().set_len(64 << 20).unwrap();
    }
    let found = findings(&load_one(&root), &root);
    assert_eq!(found.last().unwrap(), "KLN0028 reading stopped at `4.yaml`: there is too much to read");
}
