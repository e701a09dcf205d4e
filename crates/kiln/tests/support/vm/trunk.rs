//! The switch port of a virtual machine with two NICs: an 802.1Q trunk in this process.
//!
//! Frames of one VLAN are untagged and handed to QEMU's user network, where 10.0.11.1 is this machine's loopback; answers
//! are tagged again. Only ARP and TCP to the hub's port pass: the machine reaches nothing else. LACP is not spoken, as by a
//! switch port that is not set up for it; the bond then uses one NIC. QEMU and this process talk over datagram sockets in
//! a folder, so that no privilege and no port is needed.

use std::collections::HashMap;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The tag that is taken off and put on.
const VLAN: u16 = 110;
/// The gateway of the user network.
const GATEWAY: [u8; 4] = [10, 0, 11, 1];
const LARGEST_FRAME: usize = 65_536;
const TAGGED: [u8; 2] = [0x81, 0x00];
const ARP: [u8; 2] = [0x08, 0x06];
const IPV4: [u8; 2] = [0x08, 0x00];
const TCP: u8 = 6;

/// Two NICs and a network behind them.
pub struct Trunk {
    folder: PathBuf,
    macs: [&'static str; 2],
    /// How many tagged frames went to the hub.
    pub passed: Arc<AtomicU64>,
}

impl Trunk {
    /// Forwards until the process ends.
    pub fn start(folder: &Path, macs: [&'static str; 2], hub_port: u16) -> Trunk {
        let bind = |name: &str| Arc::new(UnixDatagram::bind(folder.join(name)).unwrap());
        let nics = [bind("switch-0"), bind("switch-1")];
        let network = bind("switch-net");
        let known = Arc::new(std::sync::Mutex::new(HashMap::<[u8; 6], usize>::new()));
        let passed = Arc::new(AtomicU64::new(0));
        for (port, nic) in nics.iter().enumerate() {
            let (nic, network, known, passed) = (nic.clone(), network.clone(), known.clone(), passed.clone());
            let to = folder.join("net");
            std::thread::spawn(move || {
                let mut buffer = [0; LARGEST_FRAME];
                while let Ok(length) = nic.recv(&mut buffer) {
                    let Some(frame) = untag(&buffer[..length]) else { continue };
                    if let Ok(source) = frame[6..12].try_into() {
                        known.lock().unwrap().insert(source, port);
                    }
                    if may_pass(&frame, hub_port) {
                        passed.fetch_add(1, Ordering::Relaxed);
                        let _ = network.send_to(&frame, &to);
                    }
                }
            });
        }
        let to = [folder.join("nic-0"), folder.join("nic-1")];
        std::thread::spawn(move || {
            let mut buffer = [0; LARGEST_FRAME];
            while let Ok(length) = network.recv(&mut buffer) {
                let Some(frame) = tag(&buffer[..length]) else { continue };
                let known =
                    frame[..6].try_into().ok().and_then(|mac: [u8; 6]| known.lock().unwrap().get(&mac).copied());
                for (port, nic) in nics.iter().enumerate() {
                    if known.is_none_or(|known| known == port) {
                        let _ = nic.send_to(&frame, &to[port]);
                    }
                }
            }
        });
        Trunk { folder: folder.to_owned(), macs, passed }
    }

    /// The NICs, which the kernel calls eno2 and eno3, and the user network.
    pub fn qemu_arguments(&self) -> Vec<String> {
        let wire = |id: &str, own: &str, other: &str| {
            let path = |name: &str| self.folder.join(name).display().to_string();
            let _ = std::fs::remove_file(path(own));
            let (own, other) = (path(own), path(other));
            format!("dgram,id={id},local.type=unix,local.path={own},remote.type=unix,remote.path={other}")
        };
        let mut arguments = vec![
            "-netdev".to_owned(),
            wire("wire", "net", "switch-net"),
            "-netdev".to_owned(),
            "user,id=user,net=10.0.11.0/24,host=10.0.11.1".to_owned(),
        ];
        for netdev in ["wire", "user"] {
            arguments.extend(["-netdev".to_owned(), format!("hubport,id=hub-{netdev},hubid=0,netdev={netdev}")]);
        }
        for (number, mac) in self.macs.iter().enumerate() {
            let name = format!("nic-{number}");
            arguments.extend(["-netdev".to_owned(), wire(&name, &name, &format!("switch-{number}"))]);
            let index = number + 2;
            arguments.push("-device".to_owned());
            arguments.push(format!("virtio-net-pci,netdev={name},mac={mac},romfile=,acpi-index={index}"));
        }
        arguments
    }
}

/// The frame without its tag, if it has the right one.
fn untag(frame: &[u8]) -> Option<Vec<u8>> {
    let id = u16::from_be_bytes(frame.get(14..16)?.try_into().ok()?) & 0x0fff;
    (frame[12..14] == TAGGED && id == VLAN).then(|| [&frame[..12], &frame[16..]].concat())
}

fn tag(frame: &[u8]) -> Option<Vec<u8>> {
    Some([frame.get(..12)?, &TAGGED, &VLAN.to_be_bytes(), &frame[12..]].concat())
}

/// Whether an untagged frame is about the hub.
fn may_pass(frame: &[u8], hub_port: u16) -> bool {
    match frame.get(12..14) {
        Some(kind) if kind == ARP => true,
        Some(kind) if kind == IPV4 => {
            let ports = 14 + usize::from(frame.get(14).map_or(0, |byte| byte & 0x0f)) * 4;
            frame.get(30..34) == Some(&GATEWAY)
                && frame.get(23) == Some(&TCP)
                && frame.get(ports + 2..ports + 4) == Some(&hub_port.to_be_bytes())
        }
        _ => false,
    }
}
