//! What NetworkManager says about all its objects, read without what nobody asks for.
//!
//! For each interface it has some ninety properties, of which fifteen count here. Taking the others apart, too, took more time
//! than everything else a plan that finds nothing to do takes; so they are walked over as bytes.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use zbus::zvariant::{ObjectPath, OwnedObjectPath, OwnedValue, Signature, Type};

use super::{Active, Checkpoint, Device, Profile, SERVICE, Snapshot};

/// Properties of the interfaces that are read.
const MANAGER: &[&str] = &["Version", "Capabilities"];
const CHECKPOINT: &[&str] = &["Created", "RollbackTimeout"];
const DEVICE: &[&str] = &["Interface", "State", "StateReason", "Managed", "Real"];
const ACTIVE: &[&str] = &["Uuid", "Connection", "Devices", "State"];
const PROFILE: &[&str] = &["Filename", "Flags"];

impl Type for Snapshot {
    const SIGNATURE: &'static Signature =
        <HashMap<OwnedObjectPath, HashMap<String, HashMap<String, OwnedValue>>> as Type>::SIGNATURE;
}

impl<'de> Deserialize<'de> for Snapshot {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Snapshot, D::Error> {
        deserializer.deserialize_map(Objects)
    }
}

/// All objects, by path.
struct Objects;

impl<'de> Visitor<'de> for Objects {
    type Value = Snapshot;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("objects by path")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut objects: A) -> Result<Snapshot, A::Error> {
        let mut snapshot = Snapshot::default();
        while let Some(path) = objects.next_key::<ObjectPath<'de>>()? {
            objects.next_value_seed(Interfaces { path: &path, snapshot: &mut snapshot })?;
        }
        Ok(snapshot)
    }
}

/// The interfaces of one object, by name.
struct Interfaces<'a> {
    path: &'a ObjectPath<'a>,
    snapshot: &'a mut Snapshot,
}

impl<'de> DeserializeSeed<'de> for Interfaces<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Interfaces<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interfaces by name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut interfaces: A) -> Result<(), A::Error> {
        let Interfaces { path, snapshot } = self;
        let path = || OwnedObjectPath::from(path.to_owned());
        while let Some(name) = interfaces.next_key::<&str>()? {
            match name.strip_prefix(SERVICE) {
                Some("") => {
                    let mut of = interfaces.next_value_seed(Wanted(MANAGER))?;
                    snapshot.version = of.take("Version").unwrap_or_default();
                    snapshot.capabilities = of.take("Capabilities").unwrap_or_default();
                }
                Some(".Checkpoint") => {
                    let mut of = interfaces.next_value_seed(Wanted(CHECKPOINT))?;
                    let created = of.take("Created").unwrap_or_default();
                    let timeout = of.take("RollbackTimeout").unwrap_or_default();
                    snapshot.checkpoints.push(Checkpoint { path: path(), created, timeout });
                }
                Some(".Device") => {
                    let mut of = interfaces.next_value_seed(Wanted(DEVICE))?;
                    let reason: (u32, u32) = of.take("StateReason").unwrap_or_default();
                    snapshot.devices.push(Device {
                        path: path(),
                        interface: of.take("Interface").unwrap_or_default(),
                        state: of.take("State").unwrap_or_default(),
                        reason: reason.1,
                        managed: of.take("Managed").unwrap_or_default(),
                        real: of.take("Real").unwrap_or_default(),
                    });
                }
                Some(".Connection.Active") => {
                    let mut of = interfaces.next_value_seed(Wanted(ACTIVE))?;
                    if let (Some(uuid), Some(profile)) = (of.take("Uuid"), of.take("Connection")) {
                        let devices = of.take("Devices").unwrap_or_default();
                        let state = of.take("State").unwrap_or_default();
                        snapshot.active.push(Active { path: path(), uuid, profile, devices, state });
                    }
                }
                Some(".Settings.Connection") => {
                    let mut of = interfaces.next_value_seed(Wanted(PROFILE))?;
                    let filename: Option<String> = of.take("Filename");
                    let filename = filename.filter(|name| !name.is_empty()).map(PathBuf::from);
                    let flags = of.take("Flags").unwrap_or_default();
                    snapshot.profiles.push(Profile { path: path(), filename, flags });
                }
                _ => {
                    interfaces.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

/// Some properties of an interface.
struct Wanted(&'static [&'static str]);

/// Those that were there.
struct Found(HashMap<&'static str, OwnedValue>);

impl Found {
    fn take<T: TryFrom<OwnedValue>>(&mut self, name: &str) -> Option<T> {
        T::try_from(self.0.remove(name)?).ok()
    }
}

impl<'de> DeserializeSeed<'de> for Wanted {
    type Value = Found;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Found, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Wanted {
    type Value = Found;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("properties by name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut properties: A) -> Result<Found, A::Error> {
        let mut found = HashMap::with_capacity(self.0.len());
        while let Some(name) = properties.next_key::<&str>()? {
            match self.0.iter().find(|wanted| **wanted == name) {
                Some(wanted) => {
                    found.insert(*wanted, properties.next_value()?);
                }
                None => {
                    properties.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(Found(found))
    }
}

#[cfg(test)]
mod tests {
    use zbus::zvariant::serialized::Context;
    use zbus::zvariant::{LE, Value, to_bytes};

    use super::*;

    type Written<'a> = HashMap<ObjectPath<'a>, HashMap<&'a str, HashMap<&'a str, Value<'a>>>>;

    #[test]
    fn what_counts_is_found_among_what_does_not() {
        let object = |path: &'static str| ObjectPath::from_static_str(path).unwrap();
        let addresses = vec![HashMap::from([("address", Value::from("192.0.2.1")), ("prefix", Value::from(24_u32))])];
        let written: Written<'_> = HashMap::from([
            (
                object("/nm"),
                HashMap::from([
                    ("org.freedesktop.NetworkManager", HashMap::from([("Version", "1.42.4".into())])),
                    ("org.freedesktop.NetworkManager.Other", HashMap::from([("Version", "2".into())])),
                ]),
            ),
            (
                object("/nm/Devices/7"),
                HashMap::from([
                    (
                        "org.freedesktop.NetworkManager.Device",
                        HashMap::from([
                            ("Interface", "br0".into()),
                            ("State", 100_u32.into()),
                            ("StateReason", (100_u32, 40_u32).into()),
                            ("Real", true.into()),
                            ("AddressData", Value::from(addresses)),
                            ("Nothing", Value::from(Vec::<HashMap<String, Value<'_>>>::new())),
                        ]),
                    ),
                    ("org.freedesktop.NetworkManager.Device.Bridge", HashMap::from([("HwAddress", "02".into())])),
                ]),
            ),
            (
                object("/nm/Checkpoint/1"),
                HashMap::from([(
                    "org.freedesktop.NetworkManager.Checkpoint",
                    HashMap::from([("Created", 7_i64.into()), ("RollbackTimeout", 60_u32.into())]),
                )]),
            ),
            (
                object("/nm/Active/3"),
                HashMap::from([(
                    "org.freedesktop.NetworkManager.Connection.Active",
                    HashMap::from([
                        ("Uuid", "u".into()),
                        ("Connection", object("/nm/Settings/9").into()),
                        ("Devices", Value::from(vec![object("/nm/Devices/7")])),
                        ("State", 2_u32.into()),
                    ]),
                )]),
            ),
            (
                object("/nm/Settings/9"),
                HashMap::from([(
                    "org.freedesktop.NetworkManager.Settings.Connection",
                    HashMap::from([("Filename", "/etc/a.nmconnection".into()), ("Flags", 8_u32.into())]),
                )]),
            ),
        ]);
        let bytes = to_bytes(Context::new_dbus(LE, 0), &written).unwrap();
        let (snapshot, _): (Snapshot, _) = bytes.deserialize().unwrap();
        assert_eq!(snapshot.version, "1.42.4");
        let checkpoint = &snapshot.checkpoints[0];
        assert_eq!((checkpoint.path.as_str(), checkpoint.created, checkpoint.timeout), ("/nm/Checkpoint/1", 7, 60));
        let device = snapshot.device("br0").unwrap();
        assert_eq!((device.path.as_str(), device.state, device.reason), ("/nm/Devices/7", 100, 40));
        assert!(device.real && !device.managed);
        let active = snapshot.active_on("br0").unwrap();
        assert_eq!((active.uuid.as_str(), active.profile.as_str(), active.state), ("u", "/nm/Settings/9", 2));
        let profile = &snapshot.profiles[0];
        assert_eq!((profile.filename.as_ref().unwrap().to_str(), profile.flags), (Some("/etc/a.nmconnection"), 8));
        assert_eq!((snapshot.devices.len(), snapshot.active.len(), snapshot.profiles.len()), (1, 1, 1));
    }
}
