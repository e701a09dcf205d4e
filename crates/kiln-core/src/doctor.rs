//! Known faults of the cluster that hosts join: what was found, why that is a fault, and what mends it.
//!
//! [`examine`] is total and deterministic: what was seen of a cluster comes in, [`Fault`]s with codes come out, the worst
//! first. Each fault names its objects, so that a reader who has never seen the cluster can go there.
//!
//! Not here: looking and mending, which `kiln doctor` does. Only what cannot make anything worse has a [`Mend`].

use crate::certificate_request::{NODE_PREFIX, Request, Signer};
use crate::diagnostic::registry::severity;
use crate::diagnostic::{Code, Severity};
use crate::timeline::Moment;

/// How long a request may wait before it counts as forgotten: a kubelet asks anew after a quarter of an hour.
pub const FORGOTTEN: i64 = 10 * 60;
/// How long a Node may be away before its certificate is suspected.
const AWAY: i64 = 5 * 60;
/// How many names a message lists.
const SHOWN: usize = 8;
/// The Secret the metrics of OVN's control plane are served with.
pub const OVN_SECRET: &str = "ovn-control-plane-metrics-cert";
/// Who mounts it.
pub const OVN_DEPLOYMENT: &str = "ovnkube-control-plane";

/// Everything that was seen.
#[derive(Debug, Clone, Default)]
pub struct Patient {
    /// Nodes of the cluster.
    pub nodes: Vec<NodeSigns>,
    /// Requests for certificates, decided or not.
    pub requests: Vec<Request>,
    /// Why the hub holds a request, by its name, as far as it does.
    pub held: Vec<(String, String)>,
    /// Certificates of hosts that have ended, as the hub remembers them: node and when.
    pub ended: Vec<(String, Moment)>,
    /// The hosted control plane, where it could be looked at.
    pub control_plane: Option<ControlPlane>,
    /// Configs that machines are booted with: where they are, and the authorities in them (DER).
    pub pointers: Vec<(String, Vec<Vec<u8>>)>,
    /// What the machine-config-server shows: where it is, and the certificate (DER).
    pub config_server: Option<(String, Vec<u8>)>,
}

/// A Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSigns {
    /// Its name.
    pub name: String,
    /// `True`, `False` or `Unknown`.
    pub ready: String,
    /// The condition's reason.
    pub reason: String,
    /// The condition's message.
    pub message: String,
    /// Since when.
    pub since: Moment,
}

/// The namespace in which a hosted control plane runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlPlane {
    /// Its name.
    pub namespace: String,
    /// Whether OVN's control plane runs there.
    pub has_ovn: bool,
    /// Whether the Secret is there.
    pub has_secret: bool,
}

/// Something Kiln can do about a fault without making anything worse.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mend {
    /// Make the Secret that is missing; one that is there is never touched.
    MakeOvnSecret {
        /// In which namespace of the management cluster.
        namespace: String,
    },
}

/// A fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Its code; `kiln explain` tells the long story.
    pub code: Code,
    /// What was found, with names and values.
    pub found: String,
    /// Why that is a fault.
    pub why: String,
    /// What to do.
    pub fix: String,
    /// What `--fix` does.
    pub mend: Option<Mend>,
}

impl Fault {
    /// How bad it is.
    pub fn severity(&self) -> Severity {
        severity(self.code)
    }
}

/// Looks for every known fault.
pub fn examine(patient: &Patient, now: Moment) -> Vec<Fault> {
    let ended = ended_certificates(patient, now);
    let suspects: Vec<&str> = ended.iter().map(|(node, _)| *node).collect();
    let mut faults = Vec::new();
    faults.extend(patient.control_plane.as_ref().and_then(ovn_secret));
    faults.extend(ended_fault(&ended));
    faults.extend(forgotten(patient, &suspects, now));
    faults.extend(network_plugin(patient));
    faults.extend(pointers(patient));
    faults.extend(server_names(patient));
    faults.sort_by_key(|fault| (std::cmp::Reverse(fault.severity()), fault.code));
    faults
}

fn ovn_secret(plane: &ControlPlane) -> Option<Fault> {
    let ControlPlane { namespace, has_ovn, has_secret } = plane;
    (*has_ovn && !has_secret).then(|| Fault {
        code: Code(801),
        found: format!("Deployment {namespace}/{OVN_DEPLOYMENT} has no Secret {namespace}/{OVN_SECRET}"),
        why: "its pods mount that Secret and wait in Init for it, so no node gets a network and all of them stay NotReady; \
              on a management cluster that is not OpenShift nobody makes it"
            .into(),
        fix: format!(
            "`kiln doctor --fix` makes it: a copy of openshift-ovn-kubernetes/{OVN_SECRET} of the hosted cluster, or a \
             certificate of its own for the metrics port"
        ),
        mend: Some(Mend::MakeOvnSecret { namespace: namespace.clone() }),
    })
}

/// Nodes whose certificate has ended: the hub remembers it, or a Node that is away asks for its first one again.
fn ended_certificates(patient: &Patient, now: Moment) -> Vec<(&str, String)> {
    let away = |node: &&NodeSigns| node.ready == "Unknown" && now.0 - node.since.0 > AWAY;
    let mut found: Vec<(&str, String)> = Vec::new();
    for node in patient.nodes.iter().filter(away) {
        let remembered = patient.ended.iter().any(|(name, ends)| *name == node.name && *ends <= now);
        let asks = patient.requests.iter().find(|request| {
            request.signer == Signer::Client
                && !request.decided
                && request.claimed_node() == Some(node.name.as_str())
                && !request.username.starts_with(NODE_PREFIX)
        });
        match (asks, remembered) {
            (Some(request), _) => found.push((&node.name, format!("request {} waits", request.name))),
            (None, true) => found.push((&node.name, "its last certificate has ended".into())),
            (None, false) => {}
        }
    }
    found
}

fn ended_fault(ended: &[(&str, String)]) -> Option<Fault> {
    let names: Vec<String> = ended.iter().map(|(node, why)| format!("{node} ({why})")).collect();
    (!names.is_empty()).then(|| Fault {
        code: Code(803),
        found: format!(
            "{} without a certificate: {}",
            are(names.len(), "node is away and begins anew", "nodes are away and begin anew"),
            list(&names)
        ),
        why: "a kubelet that was off while its client certificate ended cannot renew it; it asks as if it were new, and as its \
              Node exists nobody approves that by himself"
            .into(),
        fix: "if the machines are yours, approve the requests: `kiln approve HOST` for declared hosts, `kubectl certificate \
              approve NAME` for others; the hub approves by itself when the host reported its key"
            .into(),
        mend: None,
    })
}

fn forgotten(patient: &Patient, suspects: &[&str], now: Moment) -> Option<Fault> {
    let waits = |request: &&Request| {
        !request.decided
            && !matches!(request.signer, Signer::Other(_))
            && now.0 - request.created.0 > FORGOTTEN
            && !request.claimed_node().is_some_and(|node| suspects.contains(&node))
    };
    let told = |request: &Request| {
        let node = request.claimed_node().unwrap_or("no node");
        let held = patient.held.iter().find(|(name, _)| *name == request.name);
        let held = held.map_or_else(String::new, |(_, why)| format!(", held: {why}"));
        format!("{} ({node}, {} min{held})", request.name, (now.0 - request.created.0) / 60)
    };
    let names: Vec<String> = patient.requests.iter().filter(waits).map(told).collect();
    (!names.is_empty()).then(|| Fault {
        code: Code(802),
        found: format!("{} for a certificate and nobody decides: {}", are(names.len(), "request waits", "requests wait"), list(&names)),
        why: "a node has no identity until its client request is approved, and no logs or exec until its serving request is; \
              kubelets ask anew every quarter of an hour and the requests pile up"
            .into(),
        fix: "declare the machines as Hosts with a pool that has a kubeconfig, then the hub approves them; or approve those you \
              know with `kubectl certificate approve NAME`"
            .into(),
        mend: None,
    })
}

fn network_plugin(patient: &Patient) -> Option<Fault> {
    let plugin = |node: &&NodeSigns| {
        let message = node.message.to_ascii_lowercase();
        node.ready == "False"
            && ["cni", "networkpluginnotready", "network plugin"].iter().any(|word| message.contains(word))
    };
    let names: Vec<String> = patient.nodes.iter().filter(plugin).map(|node| node.name.clone()).collect();
    (!names.is_empty()).then(|| Fault {
        code: Code(804),
        found: format!("{} NotReady because the pods' network is missing: {}", are(names.len(), "node is", "nodes are"), list(&names)),
        why: "the kubelet runs, but no CNI configuration was written: the pods of the network plugin do not run on the node, or \
              wait for their control plane"
            .into(),
        fix: "`kubectl -n openshift-ovn-kubernetes get pods -o wide` shows the one on the node; if it waits for \
              ovnkube-control-plane, look for KLN0801 above"
            .into(),
        mend: None,
    })
}

fn pointers(patient: &Patient) -> Vec<Fault> {
    let Some((server, certificate)) = &patient.config_server else { return Vec::new() };
    let stale = |(_, authorities): &&(String, Vec<Vec<u8>>)| {
        !authorities.is_empty() && !authorities.iter().any(|authority| is_signed_by(certificate, authority))
    };
    let fault = |(pointer, _): &(String, Vec<Vec<u8>>)| {
        Fault {
        code: Code(805),
        found: format!("{pointer} trusts an authority that did not sign {server}"),
        why: "a machine that boots with it refuses the config server's certificate and retries for ever; the authority was \
              replaced after the config was saved"
            .into(),
        fix: "write the authority of today into it, or make it anew: `kiln ignition pointer`".into(),
        mend: None,
    }
    };
    patient.pointers.iter().filter(stale).map(fault).collect()
}

fn server_names(patient: &Patient) -> Option<Fault> {
    let (server, der) = patient.config_server.as_ref()?;
    let certificate = crate::certificate_request::parse_certificate(der)?;
    certificate.names.is_empty().then(|| Fault {
        code: Code(806),
        found: format!("the certificate in {server} has no names, only the common name `{}`", certificate.common_name),
        why:
            "Ignition and everything else written in Go since 2021 ignores common names: new machines refuse the server"
                .into(),
        fix: "delete the Secret so that the operator makes it anew, or issue one with the server's name and addresses"
            .into(),
        mend: None,
    })
}

/// Whether an authority signed a certificate.
fn is_signed_by(certificate: &[u8], authority: &[u8]) -> bool {
    use x509_parser::prelude::{FromDer, X509Certificate};
    let parsed = X509Certificate::from_der(certificate).ok().zip(X509Certificate::from_der(authority).ok());
    parsed.is_some_and(|((_, certificate), (_, authority))| {
        certificate.verify_signature(Some(authority.public_key())).is_ok()
    })
}

fn are(number: usize, one: &str, more: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { more })
}

fn list(names: &[String]) -> String {
    let shown = names.get(..names.len().min(SHOWN)).unwrap_or_default().join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificate_request::{ContentError, SHARED_USER, parse_content};
    use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair};

    const NOW: Moment = Moment(1_000_000);

    fn request(name: &str, node: &str, age: i64) -> Request {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, format!("system:node:{node}"));
        let pem = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
        Request {
            name: name.into(),
            created: Moment(NOW.0 - age),
            signer: Signer::Client,
            username: SHARED_USER.into(),
            groups: vec![],
            usages: vec![],
            content: parse_content(pem.as_bytes()),
            decided: false,
        }
    }

    fn node(name: &str, ready: &str, message: &str) -> NodeSigns {
        NodeSigns {
            name: name.into(),
            ready: ready.into(),
            reason: "r".into(),
            message: message.into(),
            since: Moment(NOW.0 - 3600),
        }
    }

    fn found(patient: &Patient) -> Vec<String> {
        examine(patient, NOW).iter().map(|fault| format!("{} {}", fault.code, fault.found)).collect()
    }

    #[test]
    fn the_secret_of_document_004_is_missed_only_where_it_is_mounted() {
        let plane = ControlPlane { namespace: "clusters-hc".into(), has_ovn: true, has_secret: false };
        let faults = examine(&Patient { control_plane: Some(plane.clone()), ..Patient::default() }, NOW);
        assert_eq!(
            faults[0].found,
            "Deployment clusters-hc/ovnkube-control-plane has no Secret clusters-hc/ovn-control-plane-metrics-cert"
        );
        assert_eq!((faults[0].code, faults[0].severity()), (Code(801), Severity::Error));
        assert_eq!(faults[0].mend, Some(Mend::MakeOvnSecret { namespace: "clusters-hc".into() }));
        for well in [ControlPlane { has_secret: true, ..plane.clone() }, ControlPlane { has_ovn: false, ..plane }] {
            assert_eq!(found(&Patient { control_plane: Some(well), ..Patient::default() }), Vec::<String>::new());
        }
    }

    #[test]
    fn requests_that_nobody_decides_are_named_and_young_ones_are_not() {
        let requests = vec![
            request("csr-old", "w0", 1200),
            request("csr-young", "w1", 60),
            Request { decided: true, ..request("csr-done", "w2", 1200) },
            Request {
                signer: Signer::of("example.com/x"),
                content: Err(ContentError::NotPem),
                ..request("csr-other", "w3", 1200)
            },
        ];
        let held = vec![("csr-old".to_owned(), "identity".to_owned())];
        assert_eq!(
            found(&Patient { requests, held, ..Patient::default() }),
            ["KLN0802 1 request waits for a certificate and nobody decides: csr-old (w0, 20 min, held: identity)"]
        );
        let many: Vec<Request> = (0..10).map(|number| request(&format!("csr-{number}"), "w0", 700)).collect();
        assert!(found(&Patient { requests: many, ..Patient::default() })[0].ends_with("csr-7 (w0, 11 min) and 2 more"));
    }

    #[test]
    fn a_node_that_was_off_too_long_begins_anew() {
        let nodes = vec![
            node("w0", "Unknown", "Kubelet stopped posting node status."),
            node("w1", "Unknown", ""),
            node("w2", "True", ""),
        ];
        let patient = Patient {
            nodes,
            requests: vec![request("csr-a", "w0", 1200)],
            ended: vec![("w1".into(), NOW), ("w2".into(), NOW)],
            ..Patient::default()
        };
        assert_eq!(
            found(&patient),
            [
                "KLN0803 2 nodes are away and begin anew without a certificate: w0 (request csr-a waits), w1 (its last certificate has ended)"
            ]
        );
    }

    #[test]
    fn a_node_without_a_pod_network_is_told_from_other_trouble() {
        let nodes = vec![
            node(
                "w0",
                "False",
                "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: No CNI configuration file in /etc/kubernetes/cni/net.d/",
            ),
            node("w1", "False", "PLEG is not healthy"),
            node("w2", "True", "cni is fine"),
        ];
        assert_eq!(
            found(&Patient { nodes, ..Patient::default() }),
            ["KLN0804 1 node is NotReady because the pods' network is missing: w0"]
        );
    }

    #[test]
    fn a_saved_config_with_an_authority_of_yesterday_is_found() {
        let authority = || {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            (params.self_signed(&key).unwrap().der().to_vec(), Issuer::new(params, key))
        };
        let ((today, issuer), (yesterday, _)) = (authority(), authority());
        let issue = |names: Vec<String>| {
            let mut params = CertificateParams::new(names).unwrap();
            params.distinguished_name = DistinguishedName::new();
            params.distinguished_name.push(DnType::CommonName, "system:machine-config-server");
            params.signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap().der().to_vec()
        };
        let mut patient = Patient {
            pointers: vec![
                ("Secret a/old".into(), vec![yesterday.clone()]),
                ("Secret a/new".into(), vec![yesterday, today]),
                ("Secret a/none".into(), vec![]),
            ],
            config_server: Some(("Secret mco/tls".into(), issue(vec!["api-int".into()]))),
            ..Patient::default()
        };
        assert_eq!(found(&patient), ["KLN0805 Secret a/old trusts an authority that did not sign Secret mco/tls"]);
        patient.pointers.clear();
        patient.config_server = Some(("Secret mco/tls".into(), issue(vec![])));
        assert_eq!(
            found(&patient),
            [
                "KLN0806 the certificate in Secret mco/tls has no names, only the common name `system:machine-config-server`"
            ]
        );
        patient.config_server = Some(("Secret mco/tls".into(), b"nonsense".to_vec()));
        assert_eq!(found(&patient), Vec::<String>::new());
    }
}
