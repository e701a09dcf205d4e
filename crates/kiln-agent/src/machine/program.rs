//! The programs a machine is changed with: `systemctl`, `rpm-ostree`, `restorecon`. Fixed places, arguments as they are, no
//! shell, an end to waiting and to what is read of their output.

use std::io::Read;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::Root;
use crate::AgentError;

/// Where programs are.
const FOLDERS: [&str; 2] = ["/usr/bin", "/usr/sbin"];
/// How much of an output is kept.
const LONGEST_OUTPUT: u64 = 1 << 20;
/// How often it is looked whether a program has ended.
const PAUSE: Duration = Duration::from_millis(10);
/// Who ended may have left children behind that hold its output open.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// A program that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    /// Whether with exit code 0.
    pub success: bool,
    /// What it printed.
    pub output: String,
    /// What it complained about.
    pub complaint: String,
}

impl Ran {
    /// The last line it complained with, for people.
    pub fn why(&self) -> String {
        const SHOWN: usize = 300;
        let line = self.complaint.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it did not say why");
        line.trim().chars().filter(|letter| !letter.is_control()).take(SHOWN).collect()
    }
}

/// Where a program is, if the machine has it.
pub fn find(root: &Root, name: &str) -> Option<PathBuf> {
    FOLDERS.iter().map(|folder| root.at(folder).join(name)).find(|path| path.is_file())
}

/// Runs a program to its end, or ends it after `limit`.
pub async fn run(root: &Root, name: &'static str, arguments: &[&str], limit: Duration) -> Result<Ran, AgentError> {
    let failed = move |doing: String| AgentError::Program { program: name, why: doing };
    let path = find(root, name).ok_or_else(|| failed(format!("it is in none of {}", FOLDERS.join(", "))))?;
    let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
    tracing::debug!(name, ?arguments, "running");
    let ended = tokio::task::spawn_blocking(move || wait(path, &arguments, limit)).await;
    ended.map_err(|error| failed(error.to_string()))?.map_err(failed)
}

/// The same, and failing is an error.
pub async fn succeed(root: &Root, name: &'static str, arguments: &[&str], limit: Duration) -> Result<Ran, AgentError> {
    let ran = run(root, name, arguments, limit).await?;
    match ran.success {
        true => Ok(ran),
        false => {
            let shown = arguments.iter().filter(|argument| **argument != "--").copied().collect::<Vec<_>>().join(" ");
            Err(AgentError::Program { program: name, why: format!("`{name} {shown}` failed: {}", ran.why()) })
        }
    }
}

fn wait(path: PathBuf, arguments: &[String], limit: Duration) -> Result<Ran, String> {
    let mut command = Command::new(path);
    command.args(arguments).env("LC_ALL", "C").env("SYSTEMD_PAGER", "").env("SYSTEMD_COLORS", "0");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().map_err(|error| format!("it cannot be started: {error}"))?;
    let output = child.stdout.take().map(gather);
    let complaint = child.stderr.take().map(gather);
    let deadline = Instant::now() + limit;
    let status = loop {
        match child.try_wait().map_err(|error| error.to_string())? {
            Some(status) => break status,
            None if Instant::now() >= deadline => {
                end(&mut child);
                return Err(format!("it did not end within {} s", limit.as_secs()));
            }
            None => std::thread::sleep(PAUSE),
        }
    };
    let text = |read: Option<mpsc::Receiver<Vec<u8>>>| {
        let bytes = read.and_then(|read| read.recv_timeout(LAST_WORDS).ok()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    Ok(Ran { success: status.success(), output: text(output), complaint: text(complaint) })
}

/// Reads beside, so that a full pipe stops nobody.
fn gather(mut from: impl Read + Send + 'static) -> mpsc::Receiver<Vec<u8>> {
    let (said, heard) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What cannot be read is missing in a message, nothing more.
        let _ = from.by_ref().take(LONGEST_OUTPUT).read_to_end(&mut bytes);
        let _ = said.send(bytes);
        let _ = std::io::copy(&mut from, &mut std::io::sink());
    });
    heard
}

/// Ends a program and everything it started.
fn end(child: &mut Child) {
    if let Ok(id) = i32::try_from(child.id()) {
        let _ = killpg(Pid::from_raw(id), Signal::SIGKILL);
    }
    let _ = child.wait();
}
