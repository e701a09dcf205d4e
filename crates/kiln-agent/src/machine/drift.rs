//! Who touches what a config brought: a watch on the folders of its files, told in bursts.
//!
//! The kernel tells within moments (inotify); what it cannot tell, because a file system is shared or too many things happened, is
//! seen when the node looks again by itself ([`LOOK`]). Nothing is repaired: see [`kiln_core::machine::plan::drifted`].
//!
//! Watched are folders, not files: a file that is replaced is another file. Folders that are missing are waited for in the
//! innermost one that is there.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kiln_core::machine::unit::UNITS;
use kiln_core::machine::wish::Machine;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::Root;

/// How often a node looks without being told.
pub const LOOK: Duration = Duration::from_secs(600);
/// Whoever changes one file often changes another.
const QUIET: Duration = Duration::from_millis(300);
/// A burst is not waited for longer than this.
const LONGEST_BURST: Duration = Duration::from_secs(3);
/// More folders than this are looked at by the clock alone.
const MOST_FOLDERS: usize = 1024;

/// A watch on what a config brought. A thread waits for the kernel: tokio's `AsyncFd` has no constructor left that is neither
/// unsafe nor deprecated. It ends with the watch.
#[derive(Debug)]
pub struct Watch {
    told: Arc<Told>,
    /// The thread sees its other end close.
    _alive: PipeWriter,
}

/// What the thread says.
#[derive(Debug, Default)]
struct Told {
    /// Something was touched, and nobody has taken note to the end.
    touched: AtomicBool,
    news: Notify,
}

/// The names that count in a folder; none means all of them.
type Names = Option<BTreeSet<OsString>>;

impl Watch {
    /// Watches the files and units of a config.
    pub fn open(root: &Root, machine: &Machine) -> io::Result<Watch> {
        let events = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        let mut folders = HashMap::new();
        for (folder, names) in watched(root, machine).into_iter().take(MOST_FOLDERS) {
            let flags = AddWatchFlags::IN_CLOSE_WRITE
                | AddWatchFlags::IN_ATTRIB
                | AddWatchFlags::IN_CREATE
                | AddWatchFlags::IN_DELETE
                | AddWatchFlags::IN_MOVE
                | AddWatchFlags::IN_DELETE_SELF
                | AddWatchFlags::IN_MOVE_SELF
                | AddWatchFlags::IN_ONLYDIR;
            match events.add_watch(&folder, flags) {
                Ok(descriptor) => drop(folders.insert(descriptor, names)),
                // It went meanwhile, or the kernel has no more watches to give: the clock sees it.
                Err(error) => tracing::warn!(folder = %folder.display(), %error, "cannot be watched"),
            }
        }
        let (ends, alive) = io::pipe()?;
        let told = Arc::new(Told::default());
        let tells = told.clone();
        std::thread::Builder::new()
            .name("kiln-drift".into())
            .spawn(move || listen(&events, &ends, &folders, &tells))?;
        Ok(Watch { told, _alive: alive })
    }

    /// Comes back when something was touched and it is quiet again. The folders may be others then: open another watch.
    pub async fn changed(&self) {
        let Told { touched, news } = &*self.told;
        while !touched.load(Ordering::Relaxed) {
            news.notified().await;
        }
        let deadline = Instant::now() + LONGEST_BURST;
        while Instant::now() < deadline && timeout(QUIET, news.notified()).await.is_ok() {}
        touched.store(false, Ordering::Relaxed);
    }
}

/// Reads what the kernel tells until the watch is gone.
fn listen(events: &Inotify, ends: &PipeReader, folders: &HashMap<WatchDescriptor, Names>, told: &Told) {
    loop {
        let mut ready = [PollFd::new(events.as_fd(), PollFlags::POLLIN), PollFd::new(ends.as_fd(), PollFlags::POLLIN)];
        match poll(&mut ready, PollTimeout::NONE) {
            Err(Errno::EINTR) => continue,
            Err(_) => return,
            Ok(_) => {}
        }
        // Nothing is ever written there: it can only have closed.
        if ready[1].any() != Some(false) {
            return;
        }
        let events = match events.read_events() {
            Ok(events) => events,
            Err(Errno::EAGAIN | Errno::EINTR) => continue,
            Err(_) => return,
        };
        if events.iter().any(|event| counts(event, folders)) {
            told.touched.store(true, Ordering::Relaxed);
            told.news.notify_one();
        }
    }
}

fn counts(event: &InotifyEvent, folders: &HashMap<WatchDescriptor, Names>) -> bool {
    match (folders.get(&event.wd), &event.name) {
        // More has happened than the kernel keeps.
        _ if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) => true,
        (Some(Some(names)), Some(name)) => names.contains(name),
        // Of the folder itself.
        (Some(_), _) => true,
        (None, _) => false,
    }
}

/// The folders to watch, and the names that count in each.
fn watched(root: &Root, machine: &Machine) -> HashMap<PathBuf, Names> {
    let mut folders: HashMap<PathBuf, Names> = HashMap::new();
    for path in machine.paths() {
        let mut name = Path::new(&path);
        while let Some(parent) = name.parent() {
            let folder = root.at(&parent.to_string_lossy());
            if folder.is_dir() {
                if let (Some(name), Some(names)) =
                    (name.file_name(), folders.entry(folder).or_insert_with(|| Some(BTreeSet::new())))
                {
                    names.insert(name.to_owned());
                }
                break;
            }
            name = parent;
        }
    }
    if !machine.units.is_empty() {
        // What is enabled is a link in the folder of a target.
        let units = root.at(UNITS);
        let targets = std::fs::read_dir(&units).into_iter().flatten().flatten().map(|entry| entry.path());
        let targets = targets.filter(|path| path.extension().is_some_and(|kind| kind == "wants" || kind == "requires"));
        folders.extend(targets.filter(|path| path.is_dir()).chain([units]).map(|folder| (folder, None)));
    }
    folders
}
