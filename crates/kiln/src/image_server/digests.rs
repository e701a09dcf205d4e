//! sha256 of images that were composed without one (live ISOs, plain raw disks), taken in the background.
//!
//! The first request for such an image asks for it; answers have a `Repr-Digest` from then on when it is known. One image is
//! read at a time, by a thread that ends when there is nothing more to do. What is found is kept in the store, so that it
//! is found once; only where the store cannot be written is it kept in memory.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use kiln_image::digest::{Sha256, unhex};
use kiln_image::store::{BaseName, HostName, StoredImage};
use kiln_image::{ImageError, ReadAt};

use super::{Running, Service};

/// Images that may wait; whoever comes then is asked for again at the next request.
const WAITING: usize = 1024;
/// Sums kept in memory.
const KEPT: usize = 4096;
/// What is read at once.
const PIECE: usize = 256 << 10;

/// What is known and what is wanted.
#[derive(Debug, Default)]
pub struct Digests {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Job>,
    /// The tag of the image that is being read.
    reading: Option<String>,
    /// By tag, where the store could not keep them.
    kept: BTreeMap<String, [u8; 32]>,
}

#[derive(Debug)]
struct Job {
    host: HostName,
    base: BaseName,
    etag: String,
}

impl Digests {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sha256 of a host's image; if it is not known, it will be.
pub fn sha256_of(
    image: &StoredImage,
    host: &HostName,
    base: &BaseName,
    service: &Arc<Service>,
    running: &Arc<Running>,
) -> Option<[u8; 32]> {
    if image.sha256.is_some() {
        return image.sha256;
    }
    let mut state = running.digests.state();
    if let Some(sum) = state.kept.get(&image.etag) {
        return Some(*sum);
    }
    let asked = state.reading.as_ref() == Some(&image.etag) || state.waiting.iter().any(|job| job.etag == image.etag);
    if !asked && state.waiting.len() < WAITING {
        state.waiting.push_back(Job { host: host.clone(), base: base.clone(), etag: image.etag.clone() });
        if state.reading.is_none() {
            // Taken until the thread takes it over, so that there is only one.
            state.reading = Some(String::new());
            drop(state);
            start(service, running);
        }
    }
    None
}

fn start(service: &Arc<Service>, running: &Arc<Running>) {
    let (of_thread, of_running) = (Arc::clone(service), Arc::clone(running));
    let spawned = thread::Builder::new().name("digests".into()).spawn(move || work(&of_thread, &of_running));
    if let Err(error) = spawned {
        running.digests.state().reading = None;
        (service.log)(&format!("cannot start a thread for sha256 sums: {error}"));
    }
}

fn work(service: &Service, running: &Running) {
    while let Some(Job { host, base, etag }) = next(running) {
        match read(service, running, &host, &base, &etag) {
            Ok(Some(sum)) => keep(service, running, &host, &base, etag, sum),
            Ok(None) => {}
            Err(error) => (service.log)(&format!("no sha256 of {base} for {host}: {error}")),
        }
    }
}

fn next(running: &Running) -> Option<Job> {
    let mut state = running.digests.state();
    let job = if running.ending.load(Ordering::Relaxed) { None } else { state.waiting.pop_front() };
    state.reading = job.as_ref().map(|job| job.etag.clone());
    job
}

/// Reads an image through. None when it is another one by now, or the server ends.
fn read(
    service: &Service,
    running: &Running,
    host: &HostName,
    base: &BaseName,
    etag: &str,
) -> Result<Option<[u8; 32]>, ImageError> {
    let Some(image) = service.store.image(host, base)?.filter(|image| image.etag == etag) else { return Ok(None) };
    if image.sha256.is_some() {
        return Ok(None);
    }
    let mut sum = Sha256::new();
    let mut buffer = vec![0; PIECE];
    let mut at = 0;
    while at < image.size {
        if running.ending.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let length = (image.size - at).min(PIECE as u64) as usize;
        image.read_exact_at(at, &mut buffer[..length]).map_err(ImageError::read("the image"))?;
        sum.update(&buffer[..length]);
        at += length as u64;
    }
    Ok(unhex(&sum.finish()).and_then(|sum| sum.try_into().ok()))
}

fn keep(service: &Service, running: &Running, host: &HostName, base: &BaseName, etag: String, sum: [u8; 32]) {
    let Err(error) = service.store.remember_sha256(host, base, &etag, &sum) else { return };
    (service.log)(&format!("the sha256 of {base} for {host} is kept in memory only: {error}"));
    let mut state = running.digests.state();
    if state.kept.len() >= KEPT {
        state.kept.clear();
    }
    state.kept.insert(etag, sum);
}
