//! `report`: the witness of a first boot. It tells the hub, whoever reads its output (its units: the console) and,
//! when nobody listens, the boot partition.
//!
//! **Invariant:** it never fails a boot and never holds one up: everything happens in a thread that is given up when
//! its time is over, and no outcome is an error.
//! Not here: what may be said and how, see `kiln_core::beacon`.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use kiln_core::beacon::block::render_block;
use kiln_core::beacon::credentials::LONGEST_CONFIG;
use kiln_core::beacon::{CREDENTIALS_PATH, Credentials, KEPT_FOLDER, Point, Report};
use kiln_core::boot::handover::Policy;

use crate::boot_partition::{Access, BootPartition};
use crate::folder::read_bounded;
use crate::root::Root;
use post::{Delivery, deliver_within};

pub mod answer;
mod collect;
mod ignition_log;
mod interfaces;
mod kept;
mod kubelet;
mod post;

/// How long sending may take, once there is something to send.
pub const SENDING: Duration = Duration::from_secs(20);
/// How long the kubelet may take to make a key.
pub const WAITING_FOR_KEY: Duration = Duration::from_secs(600);
/// For mounting and writing after sending failed.
const KEEPING: Duration = Duration::from_secs(5);

/// What is reported and where.
#[derive(Debug, Clone)]
pub struct Task {
    /// The machine.
    pub root: Root,
    /// Its boot partition, when that is a folder.
    pub boot: Option<PathBuf>,
    /// How far the boot has come.
    pub point: Point,
    /// The policy the network will be handed over by.
    pub policy: Policy,
    /// How long sending may take; with [`Point::KubeletKey`], how long the key may take.
    pub time_limit: Duration,
}

/// Reports, within its time. What a person should see goes to `output`.
pub fn report(task: &Task, output: &mut dyn Write) {
    let (sender, receiver) = mpsc::channel();
    let limit = task.time_limit + KEEPING + if task.point == Point::KubeletKey { SENDING } else { Duration::ZERO };
    let task = task.clone();
    thread::spawn(move || sender.send(observe_and_send(&task)));
    let said = receiver.recv_timeout(limit);
    let _ = output
        .write_all(said.unwrap_or_else(|_| "kiln: the report took too long and was given up\n".to_owned()).as_bytes());
}

/// Sends what earlier boots could not.
pub fn deliver(root: &Root, boot: Option<&Path>, time_limit: Duration, output: &mut dyn Write) {
    let (sender, receiver) = mpsc::channel();
    let (root, boot) = (root.clone(), boot.map(Path::to_owned));
    thread::spawn(move || {
        let deadline = Instant::now() + time_limit;
        let credentials = find_credentials(&root, boot.as_deref());
        sender.send(send_kept(&root, boot.as_deref(), &credentials, deadline))
    });
    let said = receiver.recv_timeout(time_limit + KEEPING);
    let _ =
        writeln!(output, "kiln: {}", said.unwrap_or_else(|_| "delivering took too long and was given up".to_owned()));
}

fn observe_and_send(task: &Task) -> String {
    let Task { root, boot, point, policy, time_limit } = task;
    let mut kubelet_key = None;
    if *point == Point::KubeletKey {
        kubelet_key = kubelet::wait_for_key(root, Instant::now() + *time_limit);
        if kubelet_key.is_none() {
            return "kiln: the kubelet made no key in time: nothing to report\n".to_owned();
        }
    }
    let sending = if *point == Point::KubeletKey { SENDING } else { *time_limit };
    let deadline = Instant::now() + sending;
    let report = Report { kubelet_key, ..collect::collect(root, *point, *policy) };
    let credentials = find_credentials(root, boot.as_deref());
    let delivery = deliver_within(&credentials, report.clone().render(), deadline);
    let told = match &delivery {
        // While a machine boots from its own disk, stock scripts mount the boot partition, and a mount here would make
        // one of them fail: kept reports wait for the real root or for a live image.
        Delivery::Taken { by } if point.is_in_initramfs() && !root.is_live() => format!("taken by {by}"),
        Delivery::Taken { by } => {
            let kept = send_kept(root, boot.as_deref(), &credentials, deadline);
            format!("taken by {by}; {kept}")
        }
        Delivery::Refused { why } | Delivery::Failed { why } => match keep(root, boot.as_deref(), &report) {
            Ok(()) => format!("{why}; kept on the boot partition for the next boot"),
            Err(error) => format!("{why}; nor can it be kept: {error}"),
        },
    };
    render_block(&report, &told)
}

fn keep(root: &Root, boot: Option<&Path>, report: &Report) -> Result<(), String> {
    let partition = BootPartition::open(root, boot, Access::Write).map_err(|error| error.to_string())?;
    kept::keep(&partition.folder().join(KEPT_FOLDER), report).map_err(|error| error.to_string())
}

/// Sends kept reports and says how many; the partition is opened for writing only when there are any.
fn send_kept(root: &Root, boot: Option<&Path>, credentials: &[Credentials], deadline: Instant) -> String {
    let folder = |access| BootPartition::open(root, boot, access);
    let waiting = folder(Access::Read).map(|partition| kept::list(&partition.folder().join(KEPT_FOLDER)).len());
    match waiting {
        Ok(0) | Err(_) => return "no report of an earlier boot waits".to_owned(),
        Ok(_) => {}
    }
    let partition = match folder(Access::Write) {
        Ok(partition) => partition,
        Err(error) => return error.to_string(),
    };
    let mut taken = 0;
    for path in kept::list(&partition.folder().join(KEPT_FOLDER)) {
        let gone = match kept::read(&path) {
            Some(report) => match deliver_within(credentials, report.render(), deadline) {
                Delivery::Taken { .. } => {
                    taken += 1;
                    true
                }
                Delivery::Refused { .. } => false,
                Delivery::Failed { .. } => break,
            },
            // Nobody will ever take it.
            None => true,
        };
        if gone {
            let _ = fs::remove_file(&path);
        }
    }
    format!("{taken} reports of earlier boots were delivered")
}

/// Everything on this machine that says where to report and as whom, the best first.
fn find_credentials(root: &Root, boot: Option<&Path>) -> Vec<Credentials> {
    let read =
        |path: PathBuf, parse: fn(&[u8]) -> Option<Credentials>| parse(&read_bounded(&path, LONGEST_CONFIG).ok()?);
    let mut found: Vec<Credentials> = [
        read(root.at(CREDENTIALS_PATH), Credentials::parse),
        read(root.real(CREDENTIALS_PATH), Credentials::parse),
        read(root.at("/run/ignition.json"), Credentials::from_config),
        read(root.at("/usr/lib/ignition/user.ign"), Credentials::from_pointer),
        read(root.at("/config.ign"), Credentials::from_pointer),
    ]
    .into_iter()
    .flatten()
    .collect();
    if found.is_empty()
        && let Ok(partition) = BootPartition::open(root, boot, Access::Read)
    {
        found.extend(read(partition.folder().join("ignition/config.ign"), Credentials::from_pointer));
    }
    found.dedup();
    found
}
