//! NetworkManager over D-Bus, with few round trips: one question for everything it knows, one call for all files.
//!
//! Works with NetworkManager from 1.42 on: only calls and properties that version has.
//! Every call has a time limit. What a signal says is a reason to look, never taken for the truth.
//!
//! Not here: what to ask for, see [`crate::attempt`].

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use zbus::zvariant::{DynamicType, ObjectPath, OwnedObjectPath, OwnedValue, Type};

use crate::AgentError;

mod objects;

const SERVICE: &str = "org.freedesktop.NetworkManager";
const ROOT: &str = "/org/freedesktop/NetworkManager";
const SETTINGS: &str = "/org/freedesktop/NetworkManager/Settings";

/// The longest NetworkManager may take for one answer. Activations are answered at once, they go on afterwards.
const ANSWER: Duration = Duration::from_secs(25);

/// Device states from here on accept ports and have their static addresses.
pub const IP_CONFIG: u32 = 70;
/// Of devices: done.
pub const DEVICE_ACTIVATED: u32 = 100;
/// Of active connections: on the way.
pub const ACTIVATING: u32 = 1;
/// Of active connections: done.
pub const ACTIVATED: u32 = 2;

type Properties = HashMap<String, OwnedValue>;

/// Why a call did not work.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The bus, or what came over it.
    #[error("{0}")]
    Bus(Box<zbus::Error>),
    /// NetworkManager said no.
    #[error("{message}")]
    Said {
        /// `org.freedesktop.NetworkManager.Device.NotActive`.
        name: String,
        /// For people.
        message: String,
    },
    /// The bus is gone.
    #[error("the connection to the system bus has ended")]
    Ended,
    /// Nothing came.
    #[error("no answer within {} s", ANSWER.as_secs())]
    Late,
}

impl From<zbus::Error> for CallError {
    fn from(error: zbus::Error) -> Self {
        CallError::Bus(Box::new(error))
    }
}

impl CallError {
    /// Whether NetworkManager's error has this name, without its long beginning.
    pub fn is(&self, short: &str) -> bool {
        matches!(self, CallError::Said { name, .. } if name.rsplit('.').next() == Some(short))
    }
}

/// A connection to NetworkManager.
#[derive(Debug, Clone)]
pub struct NetworkManager {
    pub(crate) bus: zbus::Connection,
}

/// Everything NetworkManager said about itself at one moment.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// `1.42.4`.
    pub version: String,
    /// Checkpoints that wait, anybody's.
    pub checkpoints: Vec<Checkpoint>,
    /// Its devices.
    pub devices: Vec<Device>,
    /// What is active or being activated.
    pub active: Vec<Active>,
    /// Its profiles.
    pub profiles: Vec<Profile>,
    /// Capabilities: 1 team, 2 OVS.
    pub capabilities: Vec<u32>,
}

/// A checkpoint that waits. Nothing in it says whose it is.
#[derive(Debug, Clone)]
pub struct Checkpoint {
    /// On the bus.
    pub path: OwnedObjectPath,
    /// When it was made, in milliseconds since the boot.
    pub created: i64,
    /// The seconds it was given last.
    pub timeout: u32,
}

/// A device of NetworkManager.
#[derive(Debug, Clone)]
pub struct Device {
    /// On the bus.
    pub path: OwnedObjectPath,
    /// Of the kernel.
    pub interface: String,
    /// NMDeviceState.
    pub state: u32,
    /// NMDeviceStateReason of its last change.
    pub reason: u32,
    /// Whether NetworkManager looks after it.
    pub managed: bool,
    /// Whether the kernel has it.
    pub real: bool,
}

/// A profile that is in force on a device.
#[derive(Debug, Clone)]
pub struct Active {
    /// On the bus.
    pub path: OwnedObjectPath,
    /// Of the profile.
    pub uuid: String,
    /// The profile on the bus.
    pub profile: OwnedObjectPath,
    /// The devices.
    pub devices: Vec<OwnedObjectPath>,
    /// NMActiveConnectionState.
    pub state: u32,
}

/// A profile.
#[derive(Debug, Clone)]
pub struct Profile {
    /// On the bus.
    pub path: OwnedObjectPath,
    /// Its file; none for one in memory only.
    pub filename: Option<PathBuf>,
    /// NMSettingsConnectionFlags: 1 unsaved, 2 generated, 4 volatile, 8 external.
    pub flags: u32,
}

impl Snapshot {
    /// The device of an interface the kernel has, else the one that is only planned.
    pub fn device(&self, interface: &str) -> Option<&Device> {
        let mut named = self.devices.iter().filter(|device| device.interface == interface);
        let first = named.next()?;
        Some(if first.real { first } else { named.find(|device| device.real).unwrap_or(first) })
    }

    /// The profile that is in force on an interface.
    pub fn active_on(&self, interface: &str) -> Option<&Active> {
        self.active.iter().find(|active| self.interface_of(active) == Some(interface))
    }

    /// The interface a profile is in force on.
    pub fn interface_of(&self, active: &Active) -> Option<&str> {
        let device = self.devices.iter().find(|device| active.devices.contains(&device.path))?;
        Some(&device.interface)
    }
}

impl NetworkManager {
    /// Connects to the system bus.
    pub async fn connect() -> Result<NetworkManager, AgentError> {
        let connecting = tokio::time::timeout(ANSWER, zbus::Connection::system());
        let bus = match connecting.await {
            Ok(Ok(bus)) => bus,
            Ok(Err(error)) => return Err(told("the system bus", error.into())),
            Err(_) => return Err(told("the system bus", CallError::Late)),
        };
        Ok(NetworkManager { bus })
    }

    /// Connects to NetworkManager if it runs. Asking it anything could start it, and before it has started, files are enough.
    pub async fn connect_if_running() -> Option<NetworkManager> {
        let nm = NetworkManager::connect().await.ok()?;
        let asking = nm.bus.call_method(
            Some("org.freedesktop.DBus"),
            "/org/freedesktop/DBus",
            Some("org.freedesktop.DBus"),
            "NameHasOwner",
            &(SERVICE,),
        );
        let answer = tokio::time::timeout(ANSWER, asking).await.ok()?.ok()?;
        answer.body().deserialize::<bool>().ok()?.then_some(nm)
    }

    /// Its version.
    pub async fn version(&self) -> Result<String, AgentError> {
        let asked = (SERVICE, "Version");
        let value: OwnedValue = self
            .call(ROOT, "org.freedesktop.DBus.Properties", "Get", &asked)
            .await
            .map_err(|error| told("its version", error))?;
        Ok(String::try_from(value).unwrap_or_default())
    }

    /// Everything it knows, in one question.
    pub async fn snapshot(&self) -> Result<Snapshot, AgentError> {
        self.call("/org/freedesktop", "org.freedesktop.DBus.ObjectManager", "GetManagedObjects", &())
            .await
            .map_err(|error| told("its devices and profiles", error))
    }

    /// Makes it read files again; those that are gone, it forgets. Says which it would not take.
    pub async fn load(&self, paths: &[PathBuf]) -> Result<Vec<String>, AgentError> {
        let names: Vec<&str> = paths.iter().filter_map(|path| path.to_str()).collect();
        let (_, failures): (bool, Vec<String>) = self
            .call(SETTINGS, "org.freedesktop.NetworkManager.Settings", "LoadConnections", &(names,))
            .await
            .map_err(|error| told("loading profiles", error))?;
        // One that is gone is always among the failures when it was none before.
        Ok(failures.into_iter().filter(|name| Path::new(name).exists()).collect())
    }

    /// The profile with a UUID.
    pub async fn profile(&self, uuid: &str) -> Result<OwnedObjectPath, CallError> {
        self.call(SETTINGS, "org.freedesktop.NetworkManager.Settings", "GetConnectionByUuid", &(uuid,)).await
    }

    /// Settings of a profile, without secrets.
    pub async fn settings(&self, profile: &ObjectPath<'_>) -> Result<HashMap<String, Properties>, CallError> {
        self.call(profile.as_str(), "org.freedesktop.NetworkManager.Settings.Connection", "GetSettings", &()).await
    }

    /// Begins to bring a profile up; None lets NetworkManager find or make the device.
    pub async fn activate(
        &self,
        profile: &ObjectPath<'_>,
        device: Option<&ObjectPath<'_>>,
    ) -> Result<OwnedObjectPath, CallError> {
        let nothing = ObjectPath::from_static_str_unchecked("/");
        let body = (profile, device.unwrap_or(&nothing), &nothing);
        self.call(ROOT, SERVICE, "ActivateConnection", &body).await
    }

    /// Gives a device the changed settings of its profile.
    pub async fn reapply(&self, device: &ObjectPath<'_>) -> Result<(), CallError> {
        let same: HashMap<&str, HashMap<&str, zbus::zvariant::Value<'_>>> = HashMap::new();
        self.call(device.as_str(), "org.freedesktop.NetworkManager.Device", "Reapply", &(same, 0_u64, 0_u32)).await
    }

    /// Disconnects a device; one that NetworkManager made disappears.
    pub async fn disconnect(&self, device: &ObjectPath<'_>) -> Result<(), CallError> {
        self.call(device.as_str(), "org.freedesktop.NetworkManager.Device", "Disconnect", &()).await
    }

    /// Makes a checkpoint of all devices. Flags 0: the others make a rollback harm what strangers did meanwhile.
    pub async fn checkpoint(&self, timeout: Duration) -> Result<OwnedObjectPath, CallError> {
        let seconds = seconds(timeout);
        let devices: Vec<ObjectPath<'_>> = Vec::new();
        self.call(ROOT, SERVICE, "CheckpointCreate", &(devices, seconds, 0_u32)).await
    }

    /// Keeps what was done since the checkpoint.
    pub async fn commit(&self, checkpoint: &ObjectPath<'_>) -> Result<(), CallError> {
        self.call(ROOT, SERVICE, "CheckpointDestroy", &(checkpoint,)).await
    }

    /// Goes back to the checkpoint.
    pub async fn roll_back(&self, checkpoint: &ObjectPath<'_>) -> Result<HashMap<String, u32>, CallError> {
        self.call(ROOT, SERVICE, "CheckpointRollback", &(checkpoint,)).await
    }

    /// Gives the checkpoint so much time from now on.
    pub async fn extend(&self, checkpoint: &ObjectPath<'_>, timeout: Duration) -> Result<(), CallError> {
        self.call(ROOT, SERVICE, "CheckpointAdjustRollbackTimeout", &(checkpoint, seconds(timeout))).await
    }

    async fn call<Body, Answer>(
        &self,
        path: &str,
        interface: &str,
        member: &str,
        body: &Body,
    ) -> Result<Answer, CallError>
    where
        Body: Serialize + DynamicType,
        Answer: DeserializeOwned + Type,
    {
        let calling = self.bus.call_method(Some(SERVICE), path, Some(interface), member, body);
        match tokio::time::timeout(ANSWER, calling).await {
            Err(_) => Err(CallError::Late),
            Ok(Err(zbus::Error::MethodError(name, message, _))) => {
                Err(CallError::Said { name: name.to_string(), message: message.unwrap_or_default() })
            }
            Ok(Err(error)) => Err(error.into()),
            Ok(Ok(message)) => Ok(message.body().deserialize()?),
        }
    }
}

/// As NetworkManager counts the time of a checkpoint; 0 would be for ever.
pub fn seconds(timeout: Duration) -> u32 {
    u32::try_from(timeout.as_millis().div_ceil(1000)).unwrap_or(u32::MAX).max(1)
}

/// An error with what was asked for.
pub fn told(doing: impl Into<String>, source: CallError) -> AgentError {
    AgentError::NetworkManager { doing: doing.into(), source }
}
