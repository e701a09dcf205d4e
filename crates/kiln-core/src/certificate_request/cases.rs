//! Every rule of the approver with a request that passes and one that fails it. The requests are real ones.

use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DistinguishedName, DnType, IsCa, KeyPair, KeyUsagePurpose,
    SanType,
};

use super::*;

const FETCHED: i64 = 1_000_000;
const NOW: i64 = FETCHED + 120;

/// A request with everything it is judged by. Each case changes one thing.
struct Scene {
    request: Request,
    host: HostFacts,
    known: Known,
    cluster: ClusterFacts,
    now: i64,
    key: KeyPair,
}

#[derive(Clone, Copy, PartialEq)]
enum Known {
    One,
    Nobody,
    Several,
}

/// What goes into a request.
struct Wish<'a> {
    common_name: &'a str,
    organization: Option<&'a str>,
    unit: Option<&'a str>,
    names: &'a [&'a str],
    adjust: fn(&mut CertificateParams),
}

const NODE: Wish =
    Wish { common_name: "system:node:w0", organization: Some("system:nodes"), unit: None, names: &[], adjust: |_| {} };

fn pem(wish: &Wish, key: &KeyPair) -> String {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    let mut subject = DistinguishedName::new();
    if !wish.common_name.is_empty() {
        subject.push(DnType::CommonName, wish.common_name);
    }
    wish.organization.into_iter().for_each(|name| subject.push(DnType::OrganizationName, name));
    wish.unit.into_iter().for_each(|name| subject.push(DnType::OrganizationalUnitName, name));
    params.distinguished_name = subject;
    params.subject_alt_names = wish.names.iter().map(|name| san(name)).collect();
    (wish.adjust)(&mut params);
    params.serialize_request(key).unwrap().pem().unwrap()
}

fn san(name: &str) -> SanType {
    match (name.parse(), name.split_once(':')) {
        (Ok(address), _) => SanType::IpAddress(address),
        (_, Some(("mailto", mail))) => SanType::Rfc822Name(mail.try_into().unwrap()),
        (_, Some(("https", _))) => SanType::URI(name.try_into().unwrap()),
        _ => SanType::DnsName(name.try_into().unwrap()),
    }
}

fn hash(key: &KeyPair) -> KeyHash {
    use rcgen::PublicKeyData;
    KeyHash::of(&key.subject_public_key_info())
}

impl Scene {
    /// A host that fetched its config two minutes ago and asks with the shared user, for the key it reported.
    fn client() -> Scene {
        let key = KeyPair::generate().unwrap();
        let request = Request {
            name: "csr-a".into(),
            created: Moment(FETCHED + 60),
            signer: Signer::Client,
            username: SHARED_USER.into(),
            groups: SHARED_GROUPS.map(String::from).into(),
            usages: vec!["digital signature".into(), "client auth".into()],
            content: parse_content(pem(&NODE, &key).as_bytes()),
            decided: false,
        };
        let provision = Provision {
            generation: 3,
            fetched: Some(Moment(FETCHED)),
            source: Some([192, 0, 2, 7].into()),
            keys: vec![hash(&key)],
            user: None,
            alarm: None,
        };
        let mut declared = Names::default();
        ["w0", "w0.lab.example", "192.0.2.10", "2001:db8::10"].iter().for_each(|name| declared.add(name));
        let host = HostFacts { node: "w0".into(), declared, provision: Some(provision), ..HostFacts::default() };
        Scene { request, host, known: Known::One, cluster: ClusterFacts::default(), now: NOW, key }
    }

    /// A node that asks for the names it was declared with.
    fn serving() -> Scene {
        let mut scene = Scene::client();
        scene.request.signer = Signer::Serving;
        scene.request.username = "system:node:w0".into();
        scene.request.groups = vec![NODES.into(), AUTHENTICATED.into()];
        scene.request.usages = vec!["digital signature".into(), "server auth".into()];
        scene.ask(&Wish { names: &["w0", "192.0.2.10"], ..NODE });
        scene.cluster.node = Some(NodeFacts { created: Moment(FETCHED + 90), ready: false });
        scene
    }

    fn ask(&mut self, wish: &Wish) {
        self.request.content = parse_content(pem(wish, &self.key).as_bytes());
    }

    fn provision(&mut self) -> &mut Provision {
        self.host.provision.as_mut().unwrap()
    }

    fn approved(&mut self, change: impl FnOnce(&mut Approved)) {
        let mut approved = Approved {
            request: "csr-before".into(),
            signer: self.request.signer.clone(),
            generation: 3,
            key: Some(KeyHash::of(b"another")),
            time: Moment(FETCHED + 30),
            ends: None,
        };
        change(&mut approved);
        self.host.approved.push(approved);
    }

    fn pending(&mut self, change: impl FnOnce(&mut Pending)) {
        let mut pending = Pending {
            name: "csr-b".into(),
            created: Moment(self.request.created.0 + 10),
            signer: self.request.signer.clone(),
            username: self.request.username.clone(),
            common_name: "system:node:w0".into(),
            key: hash(&self.key),
        };
        change(&mut pending);
        self.cluster.pending.push(pending);
    }

    fn served(&mut self, names: &[&str], change: impl FnOnce(&mut Certificate)) {
        let mut certificate = Certificate {
            common_name: "system:node:w0".into(),
            names: Names::default(),
            key: KeyHash::of(b"old"),
            begins: Moment(FETCHED - 1000),
            ends: Moment(NOW + 1000),
        };
        names.iter().for_each(|name| certificate.names.add(name));
        change(&mut certificate);
        self.cluster.current = Current::Served(certificate);
    }

    fn judge(&self) -> Verdict {
        let claim = match self.known {
            Known::One => Claim::Host(&self.host),
            Known::Nobody => Claim::Nobody,
            Known::Several => Claim::Several,
        };
        judge(&self.request, claim, &self.cluster, Moment(self.now))
    }
}

type Case = (&'static str, fn(&mut Scene), &'static str);

fn check_cases(scene: fn() -> Scene, cases: &[Case]) {
    let mut wrong = Vec::new();
    for (name, change, expected) in cases {
        let mut scene = scene();
        change(&mut scene);
        let verdict = scene.judge();
        let told = format!("{} {}", verdict.name(), verdict.check());
        if told != *expected {
            wrong.push(format!("{name}: expected {expected}, got {told}: {}", verdict.message()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[rustfmt::skip]
const CLIENT: &[Case] = &[
    ("the key the host reported", |_| {}, "Approved key"),
    ("one of several reported keys", |scene| scene.provision().keys.insert(0, KeyHash::of(b"first boot")), "Approved key"),
    ("another key than the reported one", |scene| scene.provision().keys = vec![KeyHash::of(b"other")], "Denied key"),
    ("nothing reported, shared user", |scene| scene.provision().keys.clear(), "Held identity"),
    ("nothing reported, but a fetch is proof enough for the pool", |scene| { scene.provision().keys.clear(); scene.host.proof = Proof::Fetched; }, "Approved state"),
    ("a fetch is proof enough, but another key was reported", |scene| { scene.provision().keys = vec![KeyHash::of(b"x")]; scene.host.proof = Proof::Fetched; }, "Denied key"),
    ("the host's own user", |scene| own_user(scene, "kiln:host:lab:w0"), "Approved identity"),
    ("the host's own user with a wrong key", |scene| { own_user(scene, "kiln:host:lab:w0"); scene.provision().keys = vec![KeyHash::of(b"x")]; }, "Denied key"),
    ("another host's own user", |scene| { own_user(scene, "kiln:host:lab:w0"); scene.request.username = "kiln:host:lab:w1".into(); }, "Denied requestor"),
    ("the shared user, though the host has its own", |scene| { own_user(scene, "system:bootstrap:abcdef"); scene.request.username = SHARED_USER.into(); scene.request.groups = SHARED_GROUPS.map(String::from).into(); scene.host.proof = Proof::Fetched; }, "Denied identity"),
    ("another bootstrap token, though the host has its own", |scene| { own_user(scene, "system:bootstrap:abcdef"); scene.request.username = "system:bootstrap:fedcba".into(); scene.request.groups = vec!["system:bootstrappers".into(), AUTHENTICATED.into()]; }, "Denied identity"),
    ("the host's own user without being recognised", |scene| { own_user(scene, "kiln:host:lab:w0"); scene.request.groups = vec!["x".into()]; }, "Denied groups"),
    ("a bootstrap token with the reported key", |scene| bootstrap_token(scene, &["system:bootstrappers", "system:authenticated"]), "Approved key"),
    ("a bootstrap token without its group", |scene| bootstrap_token(scene, &["system:authenticated"]), "Denied groups"),
    ("an administrator", |scene| { scene.request.username = "kubernetes-admin".into(); scene.request.groups = vec!["system:masters".into()]; }, "Denied requestor"),
    ("one group more than the bootstrapper has", |scene| scene.request.groups.push("system:masters".into()), "Denied groups"),
    ("one group less than the bootstrapper has", |scene| drop(scene.request.groups.pop()), "Denied groups"),
    ("groups in another order", |scene| scene.request.groups.reverse(), "Approved key"),
    ("key encipherment as well", |scene| scene.request.usages.push("key encipherment".into()), "Approved key"),
    ("server auth as well", |scene| scene.request.usages.push("server auth".into()), "Denied usages"),
    ("no client auth", |scene| scene.request.usages = vec!["digital signature".into()], "Denied usages"),
    ("a usage twice", |scene| scene.request.usages.push("client auth".into()), "Denied usages"),
    ("no organization", |scene| scene.ask(&Wish { organization: None, ..NODE }), "Denied organization"),
    ("masters as organization", |scene| scene.ask(&Wish { organization: Some("system:masters"), ..NODE }), "Denied organization"),
    ("a unit in the subject", |scene| scene.ask(&Wish { unit: Some("lab"), ..NODE }), "Denied content"),
    ("a DNS name", |scene| scene.ask(&Wish { names: &["w0"], ..NODE }), "Denied names"),
    ("an address", |scene| scene.ask(&Wish { names: &["192.0.2.10"], ..NODE }), "Denied names"),
    ("an e-mail address", |scene| scene.ask(&Wish { names: &["mailto:root@w0"], ..NODE }), "Denied names"),
    ("a key usage a kubelet could ask for", |scene| scene.ask(&Wish { adjust: |params| params.key_usages = vec![KeyUsagePurpose::DigitalSignature], ..NODE }), "Approved key"),
    ("a key usage for signing certificates", |scene| scene.ask(&Wish { adjust: |params| params.key_usages = vec![KeyUsagePurpose::KeyCertSign], ..NODE }), "Denied content"),
    ("an extension nobody knows", |scene| scene.ask(&Wish { adjust: |params| params.custom_extensions = vec![CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 99999, 1], vec![5, 0])], ..NODE }), "Denied content"),
    ("a common name that is no node", |scene| scene.ask(&Wish { common_name: "w0", ..NODE }), "Left foreign"),
    ("a node without a name", |scene| scene.ask(&Wish { common_name: "system:node:", ..NODE }), "Left foreign"),
    ("a node nobody declared", |scene| scene.known = Known::Nobody, "Left foreign"),
    ("a name two hosts have", |scene| scene.known = Known::Several, "Left foreign"),
    ("the host in capital letters", |scene| scene.ask(&Wish { common_name: "system:node:W0", ..NODE }), "Denied common-name"),
    ("what cannot be read", |scene| scene.request.content = parse_content(b"-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n"), "Left foreign"),
    ("a signature of another key", |scene| scene.request.content.as_mut().unwrap().proven = false, "Denied signature"),
    ("approved by somebody", |scene| scene.request.decided = true, "Left decided"),
    ("another signer", |scene| scene.request.signer = Signer::of("kubernetes.io/kube-apiserver-client"), "Left signer"),
    ("a node that renews", |scene| scene.request.username = "system:node:w0".into(), "Left signer"),
    ("a host Kiln has not provisioned", |scene| scene.host.provision = None, "Held state"),
    ("a host that has not fetched its config", |scene| scene.provision().fetched = None, "Held state"),
    ("the token was used from a second address", |scene| scene.provision().alarm = Some("second source 192.0.2.66".into()), "Held alarm"),
    ("nine seconds before the fetch, clocks differ", |scene| scene.request.created = Moment(FETCHED - 9), "Approved key"),
    ("eleven seconds before the fetch", |scene| scene.request.created = Moment(FETCHED - 11), "Denied window"),
    ("the last second of the window", |scene| scene.request.created = Moment(FETCHED + WINDOW), "Approved key"),
    ("a second after the window", |scene| scene.request.created = Moment(FETCHED + WINDOW + 1), "Denied window"),
    ("approved in this generation for another key", |scene| scene.approved(|_| {}), "Denied generation"),
    ("approved in this generation for the same key", |scene| { let key = hash(&scene.key); scene.approved(|approved| approved.key = Some(key)); }, "Approved key"),
    ("approved in the generation before", |scene| scene.approved(|approved| approved.generation = 2), "Approved key"),
    ("approved in this generation, but that certificate has ended", |scene| scene.approved(|approved| approved.ends = Some(Moment(NOW))), "Approved key"),
    ("a serving certificate in this generation is no matter", |scene| scene.approved(|approved| approved.signer = Signer::Serving), "Approved key"),
    ("this very request was approved and the answer was lost", |scene| scene.approved(|approved| approved.request = "csr-a".into()), "Approved key"),
    ("its Node is older than the fetch: provisioned again", |scene| scene.cluster.node = Some(NodeFacts { created: Moment(FETCHED - 1), ready: true }), "Approved key"),
    ("its Node is younger than the fetch, is away and its certificate ended", |scene| { recovery(scene); scene.approved(|approved| approved.ends = Some(Moment(NOW - 1))); }, "Approved key"),
    ("recovery long after the window", |scene| { recovery(scene); scene.now += 90 * 86_400; scene.request.created = Moment(scene.now - 5); }, "Approved key"),
    ("its Node is ready", |scene| { recovery(scene); scene.cluster.node.as_mut().unwrap().ready = true; }, "Denied node"),
    ("recovery without a key of its own", |scene| { recovery(scene); scene.provision().keys.clear(); scene.host.proof = Proof::Fetched; }, "Denied node"),
    ("recovery while the certificate is good", |scene| { recovery(scene); scene.approved(|approved| approved.ends = Some(Moment(NOW + 1))); }, "Denied generation"),
    ("a newer request with the same key", |scene| scene.pending(|_| {}), "Denied superseded"),
    ("an older request of the same node", |scene| scene.pending(|pending| pending.created = Moment(FETCHED)), "Approved key"),
    ("a newer request of another node", |scene| scene.pending(|pending| pending.common_name = "system:node:w1".into()), "Approved key"),
    ("a newer request by another user", |scene| scene.pending(|pending| pending.username = "system:bootstrap:abc".into()), "Approved key"),
    ("a newer request with a wrong key does not push out the right one", |scene| scene.pending(|pending| pending.key = KeyHash::of(b"x")), "Approved key"),
    ("a newer request for another signer", |scene| scene.pending(|pending| pending.signer = Signer::Serving), "Approved key"),
    ("the last of the budget", |scene| spend(scene, BUDGET - 1), "Approved key"),
    ("no budget left", |scene| spend(scene, BUDGET), "Held budget"),
    ("the budget of an hour ago", |scene| { spend(scene, BUDGET); scene.host.approved.iter_mut().for_each(|approved| approved.time = Moment(NOW - BUDGET_SECONDS)); }, "Approved key"),
    ("mode hold", |scene| scene.host.mode = Mode::Hold, "Held mode"),
    ("mode hold, a person vouches", |scene| { scene.host.mode = Mode::Hold; vouch(scene, "csr-a"); }, "Approved key"),
    ("mode hold, a person vouches for another request", |scene| { scene.host.mode = Mode::Hold; vouch(scene, "csr-z"); }, "Held mode"),
    ("mode hold, what fails is denied, whoever vouches", |scene| { scene.host.mode = Mode::Hold; vouch(scene, "csr-a"); scene.provision().keys = vec![KeyHash::of(b"x")]; }, "Denied key"),
    ("mode auto, a person vouches for what is held", |scene| { vouch(scene, "csr-a"); scene.provision().keys.clear(); }, "Approved identity"),
    ("mode manual", |scene| scene.host.mode = Mode::Manual, "Held mode"),
    ("mode manual, a person vouches", |scene| { scene.host.mode = Mode::Manual; vouch(scene, "csr-a"); }, "Approved key"),
    ("mode manual denies nothing", |scene| { scene.host.mode = Mode::Manual; scene.request.usages.clear(); }, "Held usages"),
    ("mode observe approves nothing, whoever vouches", |scene| { scene.host.mode = Mode::Observe; vouch(scene, "csr-a"); }, "Held mode"),
    ("mode observe denies nothing", |scene| { scene.host.mode = Mode::Observe; scene.request.usages.clear(); }, "Held usages"),
    ("mode observe leaves alone what is not Kiln's", |scene| { scene.host.mode = Mode::Observe; scene.known = Known::Nobody; }, "Left foreign"),
];

fn own_user(scene: &mut Scene, user: &str) {
    scene.provision().keys.clear();
    scene.provision().user = Some(user.into());
    scene.request.username = user.into();
    scene.request.groups = vec![AUTHENTICATED.into()];
}

fn bootstrap_token(scene: &mut Scene, groups: &[&str]) {
    scene.request.username = "system:bootstrap:abcdef".into();
    scene.request.groups = groups.iter().map(|group| (*group).to_owned()).collect();
}

fn recovery(scene: &mut Scene) {
    scene.cluster.node = Some(NodeFacts { created: Moment(FETCHED + 30), ready: false });
}

fn spend(scene: &mut Scene, times: usize) {
    let key = hash(&scene.key);
    for _ in 0..times {
        scene.approved(|approved| approved.key = Some(key));
    }
}

fn vouch(scene: &mut Scene, request: &str) {
    scene.host.vouched.insert(request.into());
}

#[test]
fn a_client_certificate_is_for_the_machine_it_was_declared_for() {
    check_cases(Scene::client, CLIENT);
}

#[rustfmt::skip]
const SERVING: &[Case] = &[
    ("declared names", |_| {}, "Approved addresses"),
    ("a declared address of the other family", |scene| scene.ask(&Wish { names: &["w0", "2001:db8::10"], ..NODE }), "Approved addresses"),
    ("a declared name in other letters", |scene| scene.ask(&Wish { names: &["W0.Lab.Example", "192.0.2.10"], ..NODE }), "Approved addresses"),
    ("an address of somebody else", |scene| scene.ask(&Wish { names: &["w0", "192.0.2.99"], ..NODE }), "Denied addresses"),
    ("a name of somebody else", |scene| scene.ask(&Wish { names: &["api.lab.example", "192.0.2.10"], ..NODE }), "Denied addresses"),
    ("an address that the Node's status has", |scene| { scene.ask(&Wish { names: &["w0", "192.0.2.7"], ..NODE }); }, "Denied addresses"),
    ("DHCP: the address it fetched its config from", |scene| { scene.host.dynamic = true; scene.ask(&Wish { names: &["w0", "192.0.2.7"], ..NODE }); }, "Approved addresses"),
    ("DHCP: another address waits for a person", |scene| { scene.host.dynamic = true; scene.ask(&Wish { names: &["w0", "192.0.2.8"], ..NODE }); }, "Held addresses"),
    ("DHCP: a person vouches for it", |scene| { scene.host.dynamic = true; vouch(scene, "csr-a"); scene.ask(&Wish { names: &["w0", "192.0.2.8"], ..NODE }); }, "Approved addresses"),
    ("DHCP: another name is denied all the same", |scene| { scene.host.dynamic = true; scene.ask(&Wish { names: &["api", "192.0.2.8"], ..NODE }); }, "Denied addresses"),
    ("no name", |scene| scene.ask(&NODE), "Denied names"),
    ("a URI", |scene| scene.ask(&Wish { names: &["w0", "https://w0/"], ..NODE }), "Denied names"),
    ("another node asks", |scene| scene.request.username = "system:node:w1".into(), "Denied requestor"),
    ("the shared user asks", |scene| scene.request.username = SHARED_USER.into(), "Denied requestor"),
    ("not in the group of nodes", |scene| scene.request.groups = vec![AUTHENTICATED.into()], "Denied groups"),
    ("more groups than it needs", |scene| scene.request.groups.push("rack:7".into()), "Approved addresses"),
    ("the common name of another node", |scene| scene.ask(&Wish { common_name: "system:node:w1", names: &["w0"], ..NODE }), "Denied common-name"),
    ("no organization", |scene| scene.ask(&Wish { organization: None, names: &["w0"], ..NODE }), "Denied organization"),
    ("key encipherment as well", |scene| scene.request.usages.push("key encipherment".into()), "Approved addresses"),
    ("client auth as well", |scene| scene.request.usages.push("client auth".into()), "Denied usages"),
    ("no server auth", |scene| scene.request.usages = vec!["digital signature".into(), "client auth".into()], "Denied usages"),
    ("an authority", |scene| scene.ask(&Wish { names: &["w0"], adjust: |params| params.custom_extensions = vec![CustomExtension::from_oid_content(&[2, 5, 29, 19], vec![0x30, 3, 1, 1, 0xff])], ..NODE }), "Denied content"),
    ("what cannot be read", |scene| scene.request.content = parse_content(b"no PEM"), "Denied content"),
    ("a signature of another key", |scene| scene.request.content.as_mut().unwrap().proven = false, "Denied signature"),
    ("a node nobody declared", |scene| scene.known = Known::Nobody, "Left foreign"),
    ("denied by somebody", |scene| scene.request.decided = true, "Left decided"),
    ("the token was used from a second address", |scene| scene.provision().alarm = Some("x".into()), "Held alarm"),
    ("a node that joined before it was declared", |scene| scene.host.provision = None, "Approved addresses"),
    ("renewal: undeclared, but the names it serves", |scene| { undeclared_names(scene); scene.served(&["w0", "192.0.2.99"], |_| {}); }, "Approved renewal"),
    ("renewal: other names than it serves", |scene| { undeclared_names(scene); scene.served(&["w0"], |_| {}); }, "Denied addresses"),
    ("renewal: fewer names than it serves", |scene| { undeclared_names(scene); scene.served(&["w0", "192.0.2.99", "192.0.2.98"], |_| {}); }, "Denied addresses"),
    ("renewal: what it serves has ended", |scene| { undeclared_names(scene); scene.served(&["w0", "192.0.2.99"], |served| served.ends = Moment(NOW)); }, "Denied addresses"),
    ("renewal: what it serves has not begun", |scene| { undeclared_names(scene); scene.served(&["w0", "192.0.2.99"], |served| served.begins = Moment(NOW + 1)); }, "Denied addresses"),
    ("renewal: what it serves is another node's", |scene| { undeclared_names(scene); scene.served(&["w0", "192.0.2.99"], |served| served.common_name = "system:node:w1".into()); }, "Denied addresses"),
    ("renewal: what it serves was not signed by the cluster", |scene| { undeclared_names(scene); scene.cluster.current = Current::Unreadable("unknown issuer".into()); }, "Denied addresses"),
    ("a newer request of the same node", |scene| scene.pending(|_| {}), "Denied superseded"),
    ("an older request of the same node", |scene| scene.pending(|pending| pending.created = Moment(FETCHED)), "Approved addresses"),
    ("no budget left", |scene| spend(scene, BUDGET), "Held budget"),
    ("the client's budget is another", |scene| { spend(scene, BUDGET); scene.host.approved.iter_mut().for_each(|approved| approved.signer = Signer::Client); }, "Approved addresses"),
    ("mode hold", |scene| scene.host.mode = Mode::Hold, "Held mode"),
    ("mode observe", |scene| scene.host.mode = Mode::Observe, "Held mode"),
];

fn undeclared_names(scene: &mut Scene) {
    scene.ask(&Wish { names: &["w0", "192.0.2.99"], ..NODE });
}

#[test]
fn a_serving_certificate_is_for_declared_names_only() {
    check_cases(Scene::serving, SERVING);
    const { assert!(CLIENT.len() + SERVING.len() >= 60) };
}

#[test]
fn the_reason_can_be_acted_upon() {
    let told = |scene: Scene| scene.judge().message().to_owned();
    assert_eq!(told(Scene::client()), "for the key the host reported, 60 s after it fetched its config");
    assert_eq!(told(Scene::serving()), "w0, 192.0.2.10 are declared for this host");
    let mut late = Scene::client();
    late.request.created = Moment(FETCHED + 3 * WINDOW);
    assert_eq!(
        told(late),
        "it was asked for 6 h after the host fetched its config; 2 h are allowed: provision it again"
    );
    let mut foreign = Scene::serving();
    undeclared_names(&mut foreign);
    foreign.served(&["w0"], |_| {});
    assert_eq!(told(foreign), "192.0.2.99 is not declared for this host; the certificate it serves is for w0");
    let mut observed = Scene::client();
    observed.host.mode = Mode::Observe;
    observed.provision().keys = vec![KeyHash::of(b"x")];
    assert_eq!(told(observed), "the pool is only observed; it would be denied: its key is not one the host reported");
}

#[test]
fn only_undeclared_names_are_worth_a_look_at_what_the_kubelet_serves() {
    let mut scene = Scene::serving();
    assert!(!needs_current(&scene.request, &scene.host));
    undeclared_names(&mut scene);
    assert!(needs_current(&scene.request, &scene.host));
    scene.request.decided = true;
    assert!(!needs_current(&scene.request, &scene.host));
    assert!(!needs_current(&Scene::client().request, &Scene::client().host));
}

#[test]
fn what_can_be_read_in_two_ways_is_not_read() {
    let key = KeyPair::generate().unwrap();
    let good = pem(&NODE, &key);
    assert!(parse_content(good.as_bytes()).is_ok_and(|content| content.proven));
    assert!(parse_content(format!("\n{good}\n\n").as_bytes()).is_ok(), "blank lines around it are nothing");
    let error = |text: &str| parse_content(text.as_bytes()).unwrap_err().to_string();
    let not_pem = "it is not one block `-----BEGIN CERTIFICATE REQUEST-----` and nothing else";
    assert_eq!(error(&format!("{good}{good}")), not_pem);
    assert_eq!(error(&format!("# a comment\n{good}")), not_pem);
    assert_eq!(error(&good.replace("CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST")), not_pem);
    assert_eq!(error(&"x".repeat(LARGEST_REQUEST + 1)), "it has 16385 bytes; at most 16384 are read");
    let cut = good.lines().take(3).collect::<Vec<_>>().join("\n") + "\n-----END CERTIFICATE REQUEST-----";
    assert_eq!(error(&cut), "it is not a PKCS #10 request in DER");
    let twice = Wish {
        common_name: "system:node:w0",
        adjust: |params| {
            params.distinguished_name.push(DnType::CustomDnType(vec![2, 5, 4, 3]), "system:node:w1");
        },
        ..NODE
    };
    assert_eq!(error(&pem(&twice, &key)), "it has two common names, which two readers may read in two ways");
}

#[test]
fn a_certificate_that_was_issued_is_read_back() {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["w0".to_owned(), "192.0.2.10".to_owned()]).unwrap();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "system:node:w0");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&key).unwrap();
    let read = parse_certificate_pem(certificate.pem().as_bytes()).unwrap();
    assert_eq!(read.names.to_string(), "w0, 192.0.2.10");
    assert_eq!((read.common_name.as_str(), read.key), ("system:node:w0", hash(&key)));
    assert_eq!(parse_certificate(certificate.der()), Some(read));
    assert_eq!(parse_certificate(b"\x30\x03abc"), None);
}

#[test]
fn a_hash_of_a_key_is_read_as_it_was_written() {
    let hash = KeyHash::of(b"key");
    assert_eq!(hash.to_string().parse(), Ok(hash));
    for wrong in ["", "ab", &"g".repeat(64), &"é".repeat(32), &hash.to_string()[1..]] {
        assert_eq!(wrong.parse::<KeyHash>(), Err(WrongKeyHash), "{wrong}");
    }
}
