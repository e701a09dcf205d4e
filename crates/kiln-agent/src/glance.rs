//! A look at the network that asks NetworkManager nothing: the kernel, the profiles on the disk, and the notes NetworkManager keeps
//! for its own next start (`/run/NetworkManager/devices/INDEX`: whether it manages a device, and which profile is in force on it).
//!
//! Of a hundred interfaces NetworkManager takes longer to tell than everything else takes together. A plan made of a glance counts
//! when it is empty: then kernel and files are what was asked for. Otherwise whoever plans looks again, properly
//! ([`crate::observe`]). Anything unusual is a reason not to glance.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use kiln_core::change::{Held, Observed, Place};
use kiln_core::keyfile::{ConnectionFile, Keyfile};
use kiln_core::network::profile::uuid_of;

use crate::files::{Folders, read_image};
use crate::observe::read_running_kernel;

const NOTES: &str = "/run/NetworkManager/devices";

/// What is there at first sight. None: look properly.
pub fn glance() -> Option<Observed> {
    let mut current = read_running_kernel().ok()?;
    let mut in_force = HashMap::new();
    for interface in current["interfaces"].as_array_mut()? {
        let name = interface["name"].as_str()?.to_owned();
        let index = nix::net::if_::if_nametoindex(name.as_str()).ok()?;
        let Some(note) = read_note(&Path::new(NOTES).join(index.to_string())) else { continue };
        if interface["state"] != "ignore" {
            interface["state"] = match &note {
                Note { managed: false, .. } => "ignore",
                Note { profile: None, .. } => "down",
                Note { profile: Some(_), .. } => "up",
            }
            .into();
        }
        if let Some(uuid) = note.profile {
            in_force.insert(uuid, name);
        }
    }
    Some(Observed { current, profiles: read_profiles(&Folders::default(), in_force)? })
}

#[derive(Debug, PartialEq, Eq)]
struct Note {
    managed: bool,
    /// UUID of the profile in force.
    profile: Option<String>,
}

fn read_note(path: &Path) -> Option<Note> {
    let note = Keyfile::parse_bytes(&read_image(path).ok()??.bytes).ok()?;
    Some(Note {
        managed: note.get("device", "managed")? == "true",
        profile: note.get("device", "connection-uuid").map(String::from).filter(|uuid| !uuid.is_empty()),
    })
}

/// Every profile. None when NetworkManager would pass over one of them.
fn read_profiles(folders: &Folders, mut in_force: HashMap<String, String>) -> Option<Vec<Held>> {
    let mut profiles = Vec::new();
    // A runtime profile stands before a persistent one with its UUID.
    for place in [Place::Runtime, Place::Persistent] {
        for entry in fs::read_dir(folders.folder(place)).into_iter().flatten() {
            let path = entry.ok()?.path();
            let (_, name) = folders.locate(&path)?;
            if name.starts_with('.') {
                continue;
            }
            let image = read_image(&path).ok()??;
            if image.mode & 0o077 != 0 {
                return None;
            }
            let file = ConnectionFile { name, mode: image.mode, keyfile: Keyfile::parse_bytes(&image.bytes).ok()? };
            let active_on = in_force.remove(&uuid_of(&file).to_string());
            profiles.push(Held { place: Some(place), file, active_on });
        }
    }
    profiles.sort_by(|a, b| (&a.file.name, a.place).cmp(&(&b.file.name, b.place)));
    Some(profiles)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_and_profiles_are_read_or_not_trusted() {
        let folder = std::env::temp_dir().join(format!("kiln-glance-{}", std::process::id()));
        let folders = Folders { persistent: folder.join("etc"), runtime: folder.join("run"), ..Folders::default() };
        fs::create_dir_all(&folders.persistent).unwrap();
        fs::create_dir_all(&folders.runtime).unwrap();
        let note = |text: &str| {
            fs::write(folder.join("note"), text).unwrap();
            read_note(&folder.join("note"))
        };
        let managed = |profile: Option<&str>| Some(Note { managed: true, profile: profile.map(str::to_owned) });
        assert_eq!(note("[device]\nmanaged=true\nconnection-uuid=u\nnm-owned=true\n"), managed(Some("u")));
        assert_eq!(note("[device]\nmanaged=true\n"), managed(None));
        assert_eq!(note("[device]\nmanaged=false\n"), Some(Note { managed: false, profile: None }));
        assert_eq!(note("something else"), None);

        let uuid = "a1000000-0000-4000-8000-000000000001";
        let write = |place: &Path, name: &str, mode: u32| {
            let image = crate::files::Image { bytes: format!("[connection]\nuuid={uuid}\n").into_bytes(), mode };
            crate::files::write_image(&place.join(name), Some(&image)).unwrap();
        };
        let read = || read_profiles(&folders, HashMap::from([(uuid.to_owned(), "br0".to_owned())]));
        write(&folders.persistent, "a.nmconnection", 0o600);
        write(&folders.persistent, ".b.swp", 0o644);
        assert_eq!(read().unwrap()[0].active_on.as_deref(), Some("br0"));
        write(&folders.runtime, "a.nmconnection", 0o600);
        let shadowed: Vec<_> = read().unwrap().into_iter().map(|held| (held.place, held.active_on.is_some())).collect();
        assert_eq!(shadowed, [(Some(Place::Persistent), false), (Some(Place::Runtime), true)]);
        write(&folders.persistent, "open.nmconnection", 0o644);
        assert!(read().is_none(), "NetworkManager passes over what others may read");
        fs::remove_dir_all(folder).unwrap();
    }
}
