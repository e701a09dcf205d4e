//! Waiting for the key the kubelet will ask a certificate for.

use std::thread;
use std::time::{Duration, Instant};

use kiln_core::beacon::kubelet_key::{LONGEST_FILE, kubelet_key};

use crate::folder::read_bounded;
use crate::root::Root;

/// The pending key first: the other one has its certificate already.
const FILES: [&str; 2] =
    ["/var/lib/kubelet/pki/kubelet-client.key.tmp", "/var/lib/kubelet/pki/kubelet-client-current.pem"];
/// The folder itself may not exist for minutes, so there is nothing to watch; the kubelet waits minutes for an approval.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// SHA-256 of the public half in hexadecimal, as soon as there is a key.
pub fn wait_for_key(root: &Root, deadline: Instant) -> Option<String> {
    loop {
        let keys = FILES.iter().filter_map(|path| read_bounded(&root.at(path), LONGEST_FILE).ok());
        if let Some(key) = keys.filter_map(|bytes| kubelet_key(&bytes)).next() {
            return Some(key.to_string());
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        thread::sleep(left.min(LOOK_AGAIN));
    }
}
