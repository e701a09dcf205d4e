//! Whether a node gets the certificate it asks for.
//!
//! [`judge`] is total and deterministic: the request, what is declared and known of the host it claims to be, what the
//! cluster knows of the node, and the time come in; a [`Verdict`] that leaves no choice comes out, with the check that
//! decided by name. The checks of a request's shape are those of OpenShift's cluster-machine-approver; the rest binds a
//! request to one machine: its own single-use token, its own user or its own key.
//!
//! **Invariant:** what a node says of itself decides nothing. Names and addresses come from what was declared, or from
//! the connection over which the host showed its own token; never from the Node's status.
//! **Invariant:** there is no global stop. What one host asks for, however often, keeps nobody else from anything.
//!
//! Not here: signing, which is the cluster's, and renewals of client certificates, which kube-controller-manager approves.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::bootstrap_token;
use crate::timeline::Moment;

mod check;
mod content;

#[cfg(test)]
mod cases;

pub use check::{Check, Mode, Proof, Signer, Verdict};
pub use content::{
    Certificate, Content, ContentError, KeyHash, LARGEST_REQUEST, Names, WrongKeyHash, parse_certificate,
    parse_certificate_pem, parse_content,
};

/// What begins the name of every node.
pub const NODE_PREFIX: &str = "system:node:";
/// The group of all nodes.
pub const NODES: &str = "system:nodes";
const AUTHENTICATED: &str = "system:authenticated";
/// The user all OpenShift nodes share until they have a certificate.
pub const SHARED_USER: &str = "system:serviceaccount:openshift-machine-config-operator:node-bootstrapper";
const SHARED_GROUPS: [&str; 3] =
    ["system:serviceaccounts:openshift-machine-config-operator", "system:serviceaccounts", AUTHENTICATED];
const TOKEN_GROUP: &str = "system:bootstrappers";

/// How long after its config was fetched a node may ask for its first certificate, in seconds.
pub const WINDOW: i64 = 2 * 3600;
/// How far clocks may differ, in seconds.
const SKEW: i64 = 10;
/// Approvals per host and signer in [`BUDGET_SECONDS`].
pub const BUDGET: usize = 6;
/// In which time the budget counts.
pub const BUDGET_SECONDS: i64 = 3600;

/// A request for a certificate, in Kiln's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Name of the object.
    pub name: String,
    /// When it was made.
    pub created: Moment,
    /// Who shall sign.
    pub signer: Signer,
    /// Who asks, as the API server knows it.
    pub username: String,
    /// The groups of who asks.
    pub groups: Vec<String>,
    /// What the certificate is for.
    pub usages: Vec<String>,
    /// What is inside.
    pub content: Result<Content, ContentError>,
    /// Whether somebody approved or denied it already.
    pub decided: bool,
}

impl Request {
    /// The node it claims to be. Who asks counts more than what is asked for.
    pub fn claimed_node(&self) -> Option<&str> {
        let common_name = self.content.as_ref().ok().map(|content| content.common_name.as_str());
        let by_user = self.username.strip_prefix(NODE_PREFIX).filter(|_| self.signer == Signer::Serving);
        by_user.or_else(|| common_name?.strip_prefix(NODE_PREFIX)).filter(|node| !node.is_empty())
    }
}

/// Whom a request claims to be.
#[derive(Debug, Clone, Copy)]
pub enum Claim<'a> {
    /// No declared host.
    Nobody,
    /// This one.
    Host(&'a HostFacts),
    /// More than one host is called so.
    Several,
}

/// What is declared and known of a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostFacts {
    /// Name of its Node.
    pub node: String,
    /// What is done with its requests.
    pub mode: Mode,
    /// What must prove that it is this host.
    pub proof: Proof,
    /// DNS names and addresses that were declared.
    pub declared: Names,
    /// Whether it gets addresses that nobody can declare (DHCP).
    pub dynamic: bool,
    /// How it was provisioned; none when Kiln has not.
    pub provision: Option<Provision>,
    /// What was approved for it before.
    pub approved: Vec<Approved>,
    /// Requests a person vouches for, by name.
    pub vouched: BTreeSet<String>,
}

/// How far a host is provisioned.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Provision {
    /// Counts how often it was provisioned.
    pub generation: u64,
    /// When it fetched its config with its own token.
    pub fetched: Option<Moment>,
    /// From where.
    pub source: Option<IpAddr>,
    /// Keys it reported with its own token.
    pub keys: Vec<KeyHash>,
    /// The user its config gave to this host only.
    pub user: Option<String>,
    /// Its token was used by somebody else, too.
    pub alarm: Option<String>,
}

/// A certificate that was approved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approved {
    /// Name of the request.
    pub request: String,
    /// Who signed.
    pub signer: Signer,
    /// In which generation of the host.
    pub generation: u64,
    /// For which key.
    pub key: Option<KeyHash>,
    /// When.
    pub time: Moment,
    /// When the certificate ends, once it was seen.
    pub ends: Option<Moment>,
}

/// What the cluster knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterFacts {
    /// The Node of that name.
    pub node: Option<NodeFacts>,
    /// Other requests that wait.
    pub pending: Vec<Pending>,
    /// The certificate the kubelet serves now; needed when [`needs_current`] says so.
    pub current: Current,
}

/// A Node, as far as anybody asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeFacts {
    /// When it was made.
    pub created: Moment,
    /// Whether it is ready.
    pub ready: bool,
}

/// Another request that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    /// Name of the object.
    pub name: String,
    /// When it was made.
    pub created: Moment,
    /// Who shall sign.
    pub signer: Signer,
    /// Who asks.
    pub username: String,
    /// The common name it asks for.
    pub common_name: String,
    /// Its key.
    pub key: KeyHash,
}

/// What the kubelet serves now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Current {
    /// Nobody looked.
    #[default]
    Unknown,
    /// It could not be read, or the cluster's authority did not sign it: why.
    Unreadable(String),
    /// This certificate, signed by the cluster's authority.
    Served(Certificate),
}

/// Decides about one request.
pub fn judge(request: &Request, claim: Claim<'_>, cluster: &ClusterFacts, now: Moment) -> Verdict {
    if request.decided {
        return Verdict::leave(Check::Decided, "somebody has approved or denied it");
    }
    match &request.signer {
        Signer::Client if request.username.starts_with(NODE_PREFIX) => {
            return Verdict::leave(
                Check::Signer,
                "a node renews its own client certificate; kube-controller-manager approves that",
            );
        }
        Signer::Client | Signer::Serving => {}
        Signer::Other(signer) => return Verdict::leave(Check::Signer, format!("signer {signer} is not for kubelets")),
    }
    let host = match (request.claimed_node(), claim) {
        (None, _) => return Verdict::leave(Check::Foreign, "it does not ask to be a node"),
        (Some(node), Claim::Nobody) => {
            return Verdict::leave(Check::Foreign, format!("no host of this hub is called {node} in this cluster"));
        }
        (Some(node), Claim::Several) => {
            return Verdict::leave(
                Check::Foreign,
                format!("more than one host is called {node}; correct the declarations"),
            );
        }
        (Some(_), Claim::Host(host)) => host,
    };
    let verdict = match &request.content {
        Err(error) => Verdict::deny(Check::Content, error.to_string()),
        Ok(content) => {
            let judged = match request.signer {
                Signer::Serving => serving(request, content, host, cluster, now),
                _ => client(request, content, host, cluster, now),
            };
            judged.unwrap_or_else(|verdict| verdict)
        }
    };
    host.mode.settle(verdict, host.vouched.contains(&request.name))
}

/// Whether the certificate the kubelet serves now decides about a request, so that it is worth asking for.
pub fn needs_current(request: &Request, host: &HostFacts) -> bool {
    let undeclared = |content: &Content| !undeclared(&content.names, host).is_empty();
    request.signer == Signer::Serving && !request.decided && request.content.as_ref().is_ok_and(undeclared)
}

type Judged = Result<Verdict, Verdict>;

fn client(request: &Request, content: &Content, host: &HostFacts, cluster: &ClusterFacts, now: Moment) -> Judged {
    let own_user = host.provision.as_ref().and_then(|provision| provision.user.as_deref());
    let own = own_user == Some(request.username.as_str());
    client_requestor(request, own)?;
    let expected = format!("{NODE_PREFIX}{}", host.node);
    require(content.common_name == expected, Check::CommonName, || {
        format!("its common name is `{}` and not `{expected}`", content.common_name)
    })?;
    require(content.organizations == [NODES], Check::Organization, || {
        format!("its organizations are {:?} and not exactly [\"{NODES}\"]", content.organizations)
    })?;
    usages(request, "client auth")?;
    require(content.names.is_empty(), Check::Names, || {
        format!("a client certificate has no names, and it asks for {}", content.names)
    })?;
    plain_content(content)?;
    let provision = host.provision.as_ref();
    watched(provision)?;
    let proven_key = provision.is_some_and(|provision| provision.keys.contains(&content.key));
    superseded(request, content, proven_key, cluster)?;
    let Some((provision, fetched)) = provision.and_then(|provision| Some((provision, provision.fetched?))) else {
        return Err(Verdict::hold(Check::State, "the host has not fetched its config with its own token"));
    };
    let proof = prove(provision, host.proof, own, proven_key)?;
    let live = |approved: &&Approved| {
        approved.signer == Signer::Client
            && approved.ends.is_none_or(|ends| ends > now)
            && approved.request != request.name
    };
    let born = match cluster.node {
        None => Birth::First,
        Some(node) if fetched > node.created => Birth::Again,
        Some(node) => Birth::Recovery(node),
    };
    if let Birth::Recovery(node) = born {
        require(proven_key, Check::Node, || {
            "its Node exists and it was not provisioned since; only a key the host reported itself brings it back"
                .into()
        })?;
        require(!node.ready, Check::Node, || "its Node exists and is ready: it has a certificate".into())?;
        let other = host.approved.iter().find(live).filter(|approved| approved.key != Some(content.key));
        if let Some(other) = other {
            let message = format!("request {} was approved and its certificate may still be good", other.request);
            return Err(Verdict::deny(Check::Generation, message));
        }
    } else {
        window(request, fetched)?;
        let same_generation = host.approved.iter().filter(|approved| approved.generation == provision.generation);
        if let Some(other) = same_generation.filter(live).find(|approved| approved.key != Some(content.key)) {
            let message = format!(
                "request {} was approved in generation {} already, for another key; provision the host again",
                other.request, provision.generation
            );
            return Err(Verdict::deny(Check::Generation, message));
        }
    }
    budget(request, host, now)?;
    let message = match born {
        Birth::First => format!("{proof}, {} after it fetched its config", seconds(request.created.0 - fetched.0)),
        Birth::Again => format!("{proof}; provisioned again, its old Node is replaced"),
        Birth::Recovery(_) => format!("{proof}; its old certificate has ended"),
    };
    Ok(Verdict::Approve { check: proof.check(), message })
}

/// Whether a Node of that name exists already.
#[derive(Clone, Copy)]
enum Birth {
    First,
    Again,
    Recovery(NodeFacts),
}

fn client_requestor(request: &Request, own: bool) -> Result<(), Verdict> {
    let has = |group: &str| request.groups.iter().any(|known| known == group);
    let groups_fit = match request.username.as_str() {
        _ if own => has(AUTHENTICATED),
        SHARED_USER => request.groups.len() == SHARED_GROUPS.len() && SHARED_GROUPS.iter().all(|group| has(group)),
        user if user.starts_with(bootstrap_token::USER) => has(TOKEN_GROUP) && has(AUTHENTICATED),
        user => {
            let message =
                format!("{user} asks for it, who is neither this host's own user nor the nodes' bootstrap user");
            return Err(Verdict::deny(Check::Requestor, message));
        }
    };
    require(groups_fit, Check::Groups, || {
        format!("{} has the groups {:?}, which are not a bootstrap user's", request.username, request.groups)
    })
}

fn serving(request: &Request, content: &Content, host: &HostFacts, cluster: &ClusterFacts, now: Moment) -> Judged {
    let expected = format!("{NODE_PREFIX}{}", host.node);
    require(request.username == expected, Check::Requestor, || {
        format!("{} asks for it and not {expected}", request.username)
    })?;
    let has = |group: &str| request.groups.iter().any(|known| known == group);
    require(has(NODES) && has(AUTHENTICATED), Check::Groups, || {
        format!("{} has the groups {:?}, which are not a node's", request.username, request.groups)
    })?;
    require(content.common_name == expected, Check::CommonName, || {
        format!("its common name is `{}` and not `{expected}`", content.common_name)
    })?;
    require(content.organizations == [NODES], Check::Organization, || {
        format!("its organizations are {:?} and not exactly [\"{NODES}\"]", content.organizations)
    })?;
    usages(request, "server auth")?;
    require(content.names.others.is_empty(), Check::Names, || {
        format!("a kubelet serves DNS names and addresses, and it asks for {}", content.names)
    })?;
    require(!content.names.is_empty(), Check::Names, || "it asks for no name at all".into())?;
    plain_content(content)?;
    watched(host.provision.as_ref())?;
    superseded(request, content, false, cluster)?;
    let undeclared = undeclared(&content.names, host);
    let approval = if undeclared.is_empty() {
        Verdict::Approve { check: Check::Addresses, message: format!("{} are declared for this host", content.names) }
    } else {
        renewal(content, &undeclared, host, &cluster.current, now)?
    };
    budget(request, host, now)?;
    Ok(approval)
}

fn renewal(content: &Content, undeclared: &Names, host: &HostFacts, current: &Current, now: Moment) -> Judged {
    let looked = match current {
        Current::Served(served) if served.names == content.names && served.common_name == content.common_name => {
            if served.begins <= now && now < served.ends {
                let message =
                    format!("it renews the certificate its kubelet serves, for the same names: {}", content.names);
                return Ok(Verdict::Approve { check: Check::Renewal, message });
            }
            "the certificate it serves has these names but is not valid now".to_owned()
        }
        Current::Served(served) => format!("the certificate it serves is for {}", served.names),
        Current::Unreadable(why) => format!("the certificate it serves was not read: {why}"),
        Current::Unknown => "nobody looked at the certificate it serves".to_owned(),
    };
    let message = format!("{undeclared} is not declared for this host; {looked}");
    // With DHCP nobody could declare its addresses: a person may know better.
    match host.dynamic && undeclared.dns.is_empty() {
        true => Err(Verdict::hold(Check::Addresses, message)),
        false => Err(Verdict::deny(Check::Addresses, message)),
    }
}

/// The names of a request that were not declared for the host.
fn undeclared(names: &Names, host: &HostFacts) -> Names {
    let witnessed = host.provision.as_ref().and_then(|provision| provision.source).filter(|_| host.dynamic);
    let known = |address: &&IpAddr| host.declared.addresses.contains(*address) || witnessed == Some(**address);
    Names {
        dns: names.dns.iter().filter(|name| !host.declared.dns.contains(*name)).cloned().collect(),
        addresses: names.addresses.iter().filter(|address| !known(address)).copied().collect(),
        others: names.others.clone(),
    }
}

/// How a request was bound to one machine.
#[derive(Clone, Copy)]
enum Bond {
    User,
    Key,
    Fetch,
}

impl Bond {
    const fn check(self) -> Check {
        match self {
            Bond::User => Check::Identity,
            Bond::Key => Check::Key,
            Bond::Fetch => Check::State,
        }
    }
}

impl std::fmt::Display for Bond {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Bond::User => "asked by the host's own user",
            Bond::Key => "for the key the host reported",
            Bond::Fetch => "by a host that fetched its config with its own token",
        })
    }
}

fn prove(provision: &Provision, wanted: Proof, own: bool, proven_key: bool) -> Result<Bond, Verdict> {
    match (proven_key, own, provision.keys.is_empty()) {
        (true, ..) => Ok(Bond::Key),
        (false, _, false) => Err(Verdict::deny(Check::Key, "its key is not one the host reported")),
        (false, true, true) => Ok(Bond::User),
        (false, false, true) if provision.user.is_some() => {
            Err(Verdict::deny(Check::Identity, "the host has a user of its own, and another one asks for it"))
        }
        (false, false, true) if wanted == Proof::Fetched => Ok(Bond::Fetch),
        (false, false, true) => Err(Verdict::hold(
            Check::Identity,
            "a user that all nodes share asks for it, and the host has reported no key of its own",
        )),
    }
}

fn window(request: &Request, fetched: Moment) -> Result<(), Verdict> {
    require(request.created.0 >= fetched.0 - SKEW, Check::Window, || {
        "it was asked for before the host fetched its config: it is of an earlier life".into()
    })?;
    require(request.created.0 <= fetched.0 + WINDOW, Check::Window, || {
        let late = seconds(request.created.0 - fetched.0);
        format!(
            "it was asked for {late} after the host fetched its config; {} are allowed: provision it again",
            seconds(WINDOW)
        )
    })
}

fn watched(provision: Option<&Provision>) -> Result<(), Verdict> {
    match provision.and_then(|provision| provision.alarm.as_ref()) {
        Some(alarm) => Err(Verdict::hold(Check::Alarm, format!("the host's token was misused: {alarm}"))),
        None => Ok(()),
    }
}

fn plain_content(content: &Content) -> Result<(), Verdict> {
    require(content.strange_extension.is_none() && !content.more_subject, Check::Content, || {
        match &content.strange_extension {
            Some(extension) => format!("it asks for {extension}, which a kubelet does not"),
            None => "its subject has more than a common name and an organization".into(),
        }
    })?;
    require(content.proven, Check::Signature, || "its signature is not that of its key".into())
}

fn usages(request: &Request, purpose: &str) -> Result<(), Verdict> {
    let given: BTreeSet<&str> = request.usages.iter().map(String::as_str).collect();
    let needed = BTreeSet::from(["digital signature", purpose]);
    let more: Vec<&str> = given.difference(&needed).copied().collect();
    let fits = needed.is_subset(&given) && matches!(more[..], [] | ["key encipherment"]);
    require(fits && given.len() == request.usages.len(), Check::Usages, || {
        format!(
            "its usages are {:?}; allowed are digital signature and {purpose}, with or without key encipherment",
            request.usages
        )
    })
}

/// An older request of the same node by the same user gives way to the newest, unless it has proven its key and that is
/// another one: whoever shares the bootstrap user must not be able to push out the right request with a newer wrong one.
fn superseded(request: &Request, content: &Content, proven_key: bool, cluster: &ClusterFacts) -> Result<(), Verdict> {
    let newer = cluster.pending.iter().find(|other| {
        other.name != request.name
            && other.signer == request.signer
            && other.common_name == content.common_name
            && other.username == request.username
            && (other.created, &other.name) > (request.created, &request.name)
            && (other.key == content.key || !proven_key)
    });
    match newer {
        Some(newer) => {
            Err(Verdict::deny(Check::Superseded, format!("request {} of the same node is newer", newer.name)))
        }
        None => Ok(()),
    }
}

fn budget(request: &Request, host: &HostFacts, now: Moment) -> Result<(), Verdict> {
    let recent = |approved: &&Approved| {
        approved.signer == request.signer
            && approved.request != request.name
            && approved.time.0 > now.0 - BUDGET_SECONDS
    };
    match host.approved.iter().filter(recent).count() {
        used if used >= BUDGET => Err(Verdict::hold(
            Check::Budget,
            format!(
                "{used} requests of this host were approved within {}; somebody should look",
                seconds(BUDGET_SECONDS)
            ),
        )),
        _ => Ok(()),
    }
}

fn require(fits: bool, check: Check, message: impl FnOnce() -> String) -> Result<(), Verdict> {
    if fits { Ok(()) } else { Err(Verdict::deny(check, message())) }
}

/// `7 s`, `5 min`, `2 h`.
fn seconds(seconds: i64) -> String {
    match seconds.max(0) {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}
