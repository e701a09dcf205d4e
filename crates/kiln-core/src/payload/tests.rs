//! Payloads: inputs in, the very config out.

use super::*;
use crate::diagnostic::ObjectId;
use crate::document::yaml::parse_yaml;
use crate::source::{FileId, Location, Sourced, Span};
use crate::world::Meta;

fn at() -> Location {
    let mut sources = SourceMap::default();
    let file: FileId = sources.add("test", "x");
    Location { file, span: Span::new(0, 1) }
}

fn machine_config(name: &str, yaml: &str) -> MachineConfig {
    let mut sources = SourceMap::default();
    let file = sources.add("test", yaml);
    let (mut documents, _) = parse_yaml(file, sources.file(file));
    MachineConfig {
        meta: Meta {
            id: ObjectId { kind: "MachineConfig".into(), namespace: String::new(), name: name.into() },
            at: at(),
            labels: Default::default(),
            annotations: Default::default(),
        },
        role: Some(Sourced::new("worker".into(), at())),
        config: documents.pop(),
        kernel_arguments: Vec::new(),
        extensions: Vec::new(),
        fips: None,
        kernel_type: None,
        os_image_url: None,
        within: None,
    }
}

fn motd(text: &str) -> MachineConfig {
    let yaml = format!(
        "ignition: {{version: 3.2.0}}\nstorage: {{files: [{{path: /etc/motd, mode: 420, contents: {{source: \"data:,{text}\"}}}}]}}\n"
    );
    machine_config("50-motd", &yaml)
}

fn json(payload: &Payload) -> Value {
    serde_json::from_str(&payload.text).unwrap()
}

#[test]
fn a_pool_without_a_base_gets_what_its_manifests_give() {
    let config = motd("hello");
    let rendered = render_pool(None, &render_part("p", &[&config], &[])).unwrap();
    assert_eq!(
        json(&rendered.whole),
        json!({"ignition": {"version": "3.2.0"}, "storage": {"files": [
            {"path": "/etc/motd", "mode": 420, "contents": {"source": "data:,hello"}, "overwrite": true}]}})
    );
    assert_eq!((rendered.whole.version, rendered.bare == rendered.whole), (SpecVersion::V3_2, true));
}

#[test]
fn the_digest_follows_contents_and_not_the_order_of_objects() {
    let (one, two, other) = (motd("a"), machine_config("60", "ignition: {version: 3.2.0}"), motd("b"));
    assert_eq!(part_id(&[&one, &two], &[]), part_id(&[&two, &one], &[]));
    assert_ne!(part_id(&[&one], &[]), part_id(&[&other], &[]));
    let part = part_id(&[&one], &[]);
    assert_ne!(payload_id(None, part), payload_id(Some(b""), part));
    assert_ne!(payload_id(Some(b"secret 1"), part), payload_id(Some(b"secret 2"), part));
    let mut arguments = motd("a");
    arguments.kernel_arguments.push(Sourced::new("quiet".into(), at()));
    let mut extensions = motd("a");
    extensions.extensions.push(Sourced::new("quiet".into(), at()));
    assert_ne!(part_id(&[&arguments], &[]), part_id(&[&extensions], &[]));
}

#[test]
fn the_pools_config_is_laid_over_the_base_and_inherits_no_compression() {
    let base = json!({"ignition": {"version": "3.4.0"}, "storage": {"files": [
        {"path": "/etc/motd", "contents": {"source": "data:;base64,H4sIAAAAAAAAAwMAAAAAAAAAAAA=", "compression": "gzip"}},
        {"path": "/etc/kept", "contents": {"source": "data:,kept"}}]}});
    let config = motd("mine");
    let base = base.to_string();
    let part = render_part("p", &[&config], &[]);
    let rendered = render_pool(Some(Base { what: "base", bytes: base.as_bytes() }), &part).unwrap();
    let files = json(&rendered.whole)["storage"]["files"].clone();
    let motd = files.as_array().unwrap().iter().find(|file| file["path"] == "/etc/motd").unwrap().clone();
    assert_eq!(motd["contents"], json!({"source": "data:,mine"}));
    assert_eq!(files.as_array().unwrap().len(), 2);
    assert_eq!(rendered.whole.version, SpecVersion::V3_2, "nothing in it needs more");
}

#[test]
fn kernel_arguments_need_spec_3_3_and_the_rest_is_told() {
    let mut config = motd("x");
    for argument in ["nosmt", "quiet", "nosmt"] {
        config.kernel_arguments.push(Sourced::new(argument.into(), at()));
    }
    config.extensions.push(Sourced::new("usbguard".into(), at()));
    config.fips = Some(Sourced::new(true, at()));
    let rendered = render_pool(None, &render_part("p", &[&config], &[])).unwrap();
    assert_eq!(json(&rendered.whole)["kernelArguments"], json!({"shouldExist": ["nosmt", "quiet"]}));
    assert_eq!(rendered.whole.version, SpecVersion::V3_3);
    assert_eq!(rendered.notes, ["extensions usbguard", "FIPS mode"]);
}

#[test]
fn kubelet_configs_become_files() {
    let kubelet = [KubeletConfig { name: "pods".into(), settings: json!({"maxPods": 500}) }];
    let part = render_part("p", &[], &kubelet);
    let rendered = render_pool(None, &part).unwrap();
    assert_eq!(json(&rendered.whole)["storage"]["files"][0]["path"], "/etc/kubernetes/kubelet.conf.d/50-pods.conf");
    assert_ne!(part.id, render_part("p", &[], &[]).id);
}

#[test]
fn what_cannot_be_served_is_refused_with_the_reason() {
    let part = render_part("p", &[], &[]);
    let refused = |bytes: &[u8]| render_pool(Some(Base { what: "Secret a/b", bytes }), &part).unwrap_err().to_string();
    assert!(refused(b"hello").starts_with("Secret a/b is no Ignition config: KLN"), "{}", refused(b"hello"));
    assert_eq!(refused(&[0xff, 0xfe]), "Secret a/b is no Ignition config: it is not UTF-8 text");
    let doubled = br#"{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/a"},{"path":"/a"}]}}"#;
    let text = refused(doubled);
    assert!(text.starts_with("Ignition would refuse the rendered config: KLN"), "{text}");
    let broken = machine_config("x", "ignition: {version: 9.9.9}");
    let text = render_pool(None, &render_part("p", &[&broken], &[])).unwrap_err().to_string();
    assert!(text.starts_with("the pool's manifests cannot be rendered: KLN0404: "), "{text}");
}

#[test]
fn packing_gives_the_same_bytes_each_time_and_has_a_bound() {
    let rendered = render_pool(None, &render_part("p", &[&motd("x")], &[])).unwrap();
    let packed = pack(&rendered.whole).unwrap();
    assert_eq!(packed, pack(&rendered.whole).unwrap());
    assert_eq!(unpack_gzip(&packed).unwrap(), rendered.whole.text.as_bytes());
    let mut state = 1_u64;
    let noise: String = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'!' + (state >> 33) as u8 % 90)
    })
    .take(1_300_000)
    .collect();
    let large = Payload { text: noise, ..rendered.whole };
    assert!(matches!(pack(&large), Err(PayloadError::TooLarge { packed }) if packed > LARGEST_PACKED));
}

#[test]
fn a_host_with_a_user_of_its_own_does_not_get_the_shared_token() {
    let path = crate::bootstrap_token::PATHS[0];
    let kubeconfig = "clusters: [{name: c, cluster: {server: 'https://api.lab'}}]\nusers: [{name: u, user: {token: shared-secret}}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n";
    let base = |contents: &str| {
        json!({"ignition": {"version": "3.2.0"}, "storage": {"files": [{"path": path, "mode": 384,
            "contents": {"source": encode_base64(contents.as_bytes())}}, {"path": "/etc/motd"}]}})
        .to_string()
    };
    let render = |contents: &str, part: &Part| {
        render_pool(Some(Base { what: "base", bytes: base(contents).as_bytes() }), part).unwrap()
    };
    let part = render_part("p", &[], &[]);
    let shared = render(kubeconfig, &part);
    assert!(shared.bare.text.contains(path) && shared.kubeconfigs.is_empty());
    let own = render(kubeconfig, &part.clone().with_own_user());
    assert_ne!(own.whole.id, shared.whole.id, "who asks is part of the config");
    assert!(own.whole.text.contains(path) && !own.bare.text.contains(path));
    assert_eq!(own.kubeconfigs[path]["clusters"][0]["cluster"]["server"], "https://api.lab");
    assert!(!own.kubeconfigs[path].to_string().contains("secret") && own.notes.is_empty());
    let without = render("{}", &part.with_own_user());
    assert!(without.bare.text.contains(path) && without.kubeconfigs.is_empty());
    assert_eq!(without.notes.len(), 1, "{:?}", without.notes);
}
