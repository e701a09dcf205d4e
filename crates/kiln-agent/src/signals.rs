//! What NetworkManager and the kernel say by themselves: [`changes`] for whoever watches the node, [`States`] for whoever
//! waits for an activation.
//!
//! A task reads each stream all the time, because zbus stops reading the bus when a queue is full: a try would then wait
//! for an answer that nobody reads.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures::{Stream, StreamExt};
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use zbus::message::Type;
use zbus::{MatchRule, Message, MessageStream};

use crate::AgentError;
use crate::netlink::Events;
use crate::nm::{CallError, NetworkManager, told};

/// One item for each burst of events. The stream ends with the connection to the bus, and may be asked again after that.
pub async fn changes(nm: &NetworkManager) -> Result<impl Stream<Item = ()> + Send + Unpin + use<>, AgentError> {
    let mut signals = subscribe(nm, None, None).await?;
    let events = Events::open().map_err(|error| AgentError::Kernel(error.to_string()))?;
    // One place: who is late finds one item, not a thousand.
    let (said, heard) = mpsc::channel(1);
    tokio::spawn(async move {
        loop {
            tokio::select! {
                () = said.closed() => break,
                signal = signals.next() => if signal.is_none() { break },
                event = events.next() => if event.is_err() { break },
            }
            let _ = said.try_send(());
        }
    });
    // Whoever waits for a burst to be over asks once more after the end, where a bare unfold panics.
    let heard = futures::stream::unfold(heard, async |mut heard| heard.recv().await.map(|()| ((), heard)));
    Ok(Box::pin(heard.fuse()))
}

/// The last states and reasons NetworkManager told of its active connections and devices, since [`States::follow`].
#[derive(Debug)]
pub struct States {
    known: Arc<Mutex<Known>>,
    changed: Arc<Notify>,
    tasks: Vec<JoinHandle<()>>,
}

/// Numbers by path on the bus.
#[derive(Debug, Default, Clone)]
pub struct Known {
    /// State and reason of active connections.
    pub active: HashMap<String, (u32, u32)>,
    /// State and reason of devices, and the reason of their last failure.
    pub devices: HashMap<String, (u32, u32)>,
    /// Reasons of devices that failed (state 120).
    pub failures: HashMap<String, u32>,
}

impl States {
    /// Begins to listen.
    pub async fn follow(nm: &NetworkManager) -> Result<States, AgentError> {
        let known = Arc::new(Mutex::new(Known::default()));
        let changed = Arc::new(Notify::new());
        let mut tasks = Vec::new();
        for interface in ["org.freedesktop.NetworkManager.Connection.Active", "org.freedesktop.NetworkManager.Device"] {
            let mut signals = subscribe(nm, Some(interface), Some("StateChanged")).await?;
            let (known, changed) = (known.clone(), changed.clone());
            tasks.push(tokio::spawn(async move {
                while let Some(signal) = signals.next().await {
                    let Ok(message) = signal else { continue };
                    note(&mut known.lock().unwrap_or_else(PoisonError::into_inner), &message);
                    changed.notify_waiters();
                }
            }));
        }
        if let Ok(events) = Events::open() {
            let changed = changed.clone();
            tasks.push(tokio::spawn(async move {
                while events.next().await.is_ok() {
                    changed.notify_waiters();
                }
            }));
        }
        Ok(States { known, changed, tasks })
    }

    /// What is known now.
    pub fn known(&self) -> Known {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// News from now on: taken before a look, it also tells of what happened during the look.
    pub fn news(&self) -> Notified<'_> {
        self.changed.notified()
    }
}

impl Drop for States {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

fn note(known: &mut Known, message: &Message) {
    let header = message.header();
    let (Some(path), Some(interface)) = (header.path(), header.interface()) else { return };
    let body = message.body();
    if interface.as_str().ends_with(".Active") {
        if let Ok((state, reason)) = body.deserialize::<(u32, u32)>() {
            known.active.insert(path.to_string(), (state, reason));
        }
    } else if let Ok((state, _, reason)) = body.deserialize::<(u32, u32, u32)>() {
        if state == 120 {
            known.failures.insert(path.to_string(), reason);
        }
        known.devices.insert(path.to_string(), (state, reason));
    }
}

async fn subscribe(
    nm: &NetworkManager,
    interface: Option<&'static str>,
    member: Option<&'static str>,
) -> Result<MessageStream, AgentError> {
    let rule = || -> zbus::Result<MatchRule<'static>> {
        let mut rule = MatchRule::builder().msg_type(Type::Signal).path_namespace("/org/freedesktop/NetworkManager")?;
        if let Some(interface) = interface {
            rule = rule.interface(interface)?;
        }
        if let Some(member) = member {
            rule = rule.member(member)?;
        }
        Ok(rule.build())
    };
    let failed = |error: zbus::Error| told("its signals", CallError::from(error));
    MessageStream::for_match_rule(rule().map_err(failed)?, &nm.bus, Some(256)).await.map_err(failed)
}
