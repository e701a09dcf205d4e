//! What each host will have at each phase, and the steps that lead there.
//!
//! The stock result is what today's pipeline gives: the discovery network copied for the first boot, the pool's Ignition
//! config, and CoreOS's own decision between the two. The composed result is what Kiln puts there instead. Both come
//! from the same world, so that a reader sees what Kiln changes and why.
//!
//! **Invariant:** same world, same plan. A pool's config is rendered once per cluster, however many hosts it has.

use std::collections::HashMap;
use std::fmt;

use crate::boot::folder::NetworkFile;
use crate::boot::kargs::Kargs;
use crate::boot::simulate::{CopyLayout, FirstBoot, KernelArguments, Prediction, compose, simulate_with};
use crate::boot::teardown::RealRoot;
use crate::check::context::{Context, HostView, node_name};
use crate::check::{self, appended_kernel_arguments};
use crate::diagnostic::{Diagnostic, ObjectId};
use crate::keyfile::ConnectionFile;
use crate::machine_config;
use crate::network::merge::Merged;
use crate::nmstate::{assisted_view, bind_to_macs};
use crate::world::{Host, Role, World};

/// The plan of one host.
#[derive(Debug)]
pub struct HostPlan {
    /// The object that declares it.
    pub host: ObjectId,
    /// Name of its Node.
    pub node: String,
    /// What it is for, when declared.
    pub role: Option<Role>,
    /// The cluster it joins.
    pub cluster: Option<ObjectId>,
    /// The pool whose config it gets.
    pub pool: String,
    /// The profiles its network documents become, with the names they use.
    pub declared: Vec<ConnectionFile>,
    /// Its first boot on stock CoreOS.
    pub stock: Prediction,
    /// The real root as Kiln composes it.
    pub composed: Merged,
    /// Kernel arguments of the installed system.
    pub kernel_arguments: Vec<String>,
    /// What Kiln would do, in order.
    pub steps: Vec<Step>,
}

/// One thing Kiln would do. Whoever carries it out has nothing left to choose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Put the host's profiles into its discovery image.
    ComposeDiscoveryImage {
        /// How many profiles.
        profiles: usize,
    },
    /// Boot the image once through the management controller.
    BootFromMedia {
        /// Address of the controller.
        bmc: String,
    },
    /// No management controller is declared.
    BootByHand,
    /// Compare the machine that reports with what is declared.
    Validate,
    /// Write the installed system.
    Install {
        /// The disk hint, as `deviceName=/dev/sda`.
        disk: Option<String>,
    },
    /// Leave the profiles for the first boot, where either generation of image looks.
    WriteFirstBootNetwork {
        /// How many profiles.
        profiles: usize,
    },
    /// Serve the composed Ignition config.
    ServeIgnition {
        /// The pool it is composed from.
        pool: String,
        /// How many profiles it writes.
        profiles: usize,
    },
    /// Approve the node's certificates.
    ApproveCertificates {
        /// Name of the node.
        node: String,
    },
    /// Try, prove and commit a network policy.
    ApplyPolicy {
        /// Name of the policy.
        policy: String,
    },
}

/// A world with everything looked up, ready to plan any of its hosts.
pub struct Planner<'w> {
    context: Context<'w>,
    /// The real root that each pool's config writes, by pool and cluster: manifests of a cluster are its own.
    roots: HashMap<(&'w str, Option<usize>), RealRoot>,
    policies_of_host: HashMap<usize, Vec<&'w str>>,
    /// The arguments of every host that adds none.
    plain_arguments: KernelArguments,
    reading: Vec<Diagnostic>,
}

impl<'w> Planner<'w> {
    /// Looks everything up.
    pub fn new(world: &'w World) -> Self {
        let mut reading = Vec::new();
        let context = Context::new(world, &mut reading);
        let mut roots = HashMap::new();
        for view in &context.hosts {
            roots.entry((view.pool, view.cluster)).or_insert_with(|| real_root(&context, view));
        }
        let mut policies_of_host: HashMap<usize, Vec<&str>> = HashMap::new();
        for (policy, nodes) in world.policies.iter().zip(&context.nodes_of_policy) {
            for host in nodes.iter().filter_map(|node| context.nodes[*node].host) {
                policies_of_host.entry(host).or_default().push(&policy.meta.id.name);
            }
        }
        Planner {
            context,
            roots,
            policies_of_host,
            plain_arguments: KernelArguments::read(&first_boot_arguments(&[])),
            reading,
        }
    }

    /// What `kiln check` says about the same world.
    pub fn findings(&self) -> Vec<Diagnostic> {
        check::findings(&self.context, self.reading.clone())
    }

    /// The plans of all hosts in the order of the world, or only of those that are called so: by the name of the object,
    /// `namespace/name`, or the name of the node.
    pub fn plans(&self, name: Option<&str>) -> impl Iterator<Item = HostPlan> {
        let views = self.context.hosts.iter().enumerate();
        let wanted = views.filter(move |(_, view)| name.is_none_or(|name| is_called(view.host, name)));
        wanted.map(|(index, _)| self.plan_host(index))
    }

    fn plan_host(&self, index: usize) -> HostPlan {
        let view = &self.context.hosts[index];
        let kernel_arguments = appended_kernel_arguments(view.host);
        let real_root = self.roots.get(&(view.pool, view.cluster)).cloned().unwrap_or_default();
        let (mut declared, mut nics) = (Vec::new(), Vec::new());
        for document in self.context.documents(view) {
            declared.extend(document.files.iter().cloned());
            nics.extend(document.nics.iter().cloned());
        }
        let copied = assisted_view(&declared, &nics).files;
        let kargs = first_boot_arguments(&kernel_arguments);
        let arguments = match kernel_arguments.is_empty() {
            true => &self.plain_arguments,
            false => &KernelArguments::read(&kargs),
        };
        let boot = FirstBoot {
            kargs,
            copied_network: copied.iter().map(NetworkFile::from).collect(),
            written_to: CopyLayout::Boot,
            read_from: CopyLayout::Boot,
            real_root,
        };
        let stock = simulate_with(arguments, &boot);
        // First the names, which the pool's profiles use too; then the addresses, which are right on any machine.
        let Merged { files, decisions } = compose(&declared, &boot.real_root.system_connections);
        let composed = Merged { files: bind_to_macs(&files, &nics).0, decisions };
        let steps = self.steps(index, view, declared.len(), composed.files.len());
        HostPlan {
            host: view.host.meta.id.clone(),
            node: node_name(view.host).to_owned(),
            role: view.host.role.as_ref().map(|role| role.value),
            cluster: self.context.cluster(view).map(|cluster| cluster.meta.id.clone()),
            pool: view.pool.to_owned(),
            declared,
            stock,
            composed,
            kernel_arguments,
            steps,
        }
    }

    fn steps(&self, index: usize, view: &HostView<'w>, declared: usize, composed: usize) -> Vec<Step> {
        let disk = view.host.disk_hints.first().map(|(name, value)| format!("{name}={value}"));
        let boot = match &view.host.bmc {
            Some(bmc) => Step::BootFromMedia { bmc: bmc.address.value.clone() },
            None => Step::BootByHand,
        };
        let mut steps = vec![Step::ComposeDiscoveryImage { profiles: declared }, boot, Step::Validate];
        steps.push(Step::Install { disk });
        steps.push(Step::WriteFirstBootNetwork { profiles: declared });
        steps.push(Step::ServeIgnition { pool: view.pool.to_owned(), profiles: composed });
        steps.push(Step::ApproveCertificates { node: node_name(view.host).to_owned() });
        let policies = self.policies_of_host.get(&index).into_iter().flatten();
        steps.extend(policies.map(|policy| Step::ApplyPolicy { policy: (*policy).to_owned() }));
        steps
    }
}

fn is_called(host: &Host, name: &str) -> bool {
    let ObjectId { namespace, name: own, .. } = &host.meta.id;
    own == name || node_name(host) == name || name.split_once('/') == Some((namespace, own))
}

/// What the pool's MachineConfigs that reach a host write.
fn real_root(context: &Context, view: &HostView) -> RealRoot {
    let configs = context.pools.get(view.pool).map_or(&[][..], |pool| &pool.configs);
    let reaching: Vec<_> = configs.iter().copied().filter(|config| context.config_reaches(config, view)).collect();
    let rendered = machine_config::render(view.pool, &reaching);
    rendered.map_or_else(RealRoot::default, |rendered| RealRoot::from_config(&rendered.config))
}

/// The installer asks for the network at first boot; what the user appends stays for later boots too.
fn first_boot_arguments(appended: &[String]) -> Kargs {
    appended.iter().fold(Kargs::parse("rd.neednet=1"), |kargs, argument| kargs.and(argument))
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::ComposeDiscoveryImage { profiles: 0 } => f.write_str("boot image without a declared network: DHCP"),
            Step::ComposeDiscoveryImage { profiles } => {
                write!(f, "compose its discovery image with {}", counted(*profiles))
            }
            Step::BootFromMedia { bmc } => write!(f, "boot it once from virtual media through {bmc}"),
            Step::BootByHand => {
                f.write_str("wait until somebody boots it from the image: no management controller is declared")
            }
            Step::Validate => f.write_str("compare the machine that reports with what is declared"),
            Step::Install { disk: Some(disk) } => write!(f, "install to the disk with {disk}"),
            Step::Install { disk: None } => f.write_str("install to the first disk that fits: no hint is declared"),
            Step::WriteFirstBootNetwork { profiles: 0 } => {
                f.write_str("leave no profiles for the first boot: none are declared")
            }
            Step::WriteFirstBootNetwork { profiles } => {
                write!(f, "leave {} for the first boot, in /boot and in the initrd", counted(*profiles))
            }
            Step::ServeIgnition { pool, profiles: 0 } => write!(f, "serve the config of pool {pool} as it is"),
            Step::ServeIgnition { pool, profiles } => {
                write!(f, "serve the config of pool {pool} with {} merged into it", counted(*profiles))
            }
            Step::ApproveCertificates { node } => write!(f, "approve the certificates of node {node}"),
            Step::ApplyPolicy { policy } => write!(f, "try, prove and commit policy {policy}"),
        }
    }
}

fn counted(profiles: usize) -> String {
    if profiles == 1 { "1 profile".to_owned() } else { format!("{profiles} profiles") }
}
