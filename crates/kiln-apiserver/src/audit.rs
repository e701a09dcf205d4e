//! The audit log: one line of JSON for every write and every refusal of identity or right.
//!
//! A line is written before its request is answered, so that it survives a kill of the process (not of the machine:
//! lines are not synced one by one). Never in it: bodies, headers, tokens, anything of an object but its name. When the
//! disk fails, requests go on; each lost line is counted and the failure is in the ordinary log.
//!
//! What the server does by itself (the first namespaces, garbage collection, emptying a namespace) is told under a user of
//! its own, after it was done: a kill in between loses the line.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use serde_json::{Value, json};
use time::OffsetDateTime;
use time::macros::format_description;

use crate::rate_limit::Seldom;

/// How large the log becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditLimits {
    /// Bytes of a file, after which a new one is begun.
    pub bytes: u64,
    /// Old files that are kept besides the one that is written.
    pub keep: usize,
}

impl Default for AuditLimits {
    fn default() -> Self {
        AuditLimits { bytes: 64 << 20, keep: 5 }
    }
}

/// What is told of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry<'a> {
    /// When it was answered.
    pub time: OffsetDateTime,
    /// The id the client got in `Audit-Id`.
    pub id: &'a str,
    /// Who; empty for strangers.
    pub user: &'a str,
    /// Their groups.
    pub groups: &'a [String],
    /// The verb.
    pub verb: &'a str,
    /// The API group.
    pub group: &'a str,
    /// The plural, or the path of what is no object.
    pub resource: &'a str,
    /// For example `status`.
    pub subresource: &'a str,
    /// The namespace.
    pub namespace: &'a str,
    /// The object.
    pub name: &'a str,
    /// The status of the answer; 499 when the client left before it.
    pub code: u16,
    /// The client's address; empty for clients in the process.
    pub source: &'a str,
    /// Whether nothing was to be stored.
    pub dry_run: bool,
}

/// The open log.
#[derive(Debug)]
pub struct AuditLog {
    path: PathBuf,
    limits: AuditLimits,
    current: Mutex<Option<Current>>,
    failures: AtomicU64,
    complaints: Seldom,
}

#[derive(Debug)]
struct Current {
    file: File,
    bytes: u64,
}

impl AuditLog {
    /// Opens or creates the file, with mode 0600.
    pub fn open(path: &Path, limits: AuditLimits) -> io::Result<AuditLog> {
        let current = Mutex::new(Some(open(path)?));
        let (failures, complaints) = (AtomicU64::new(0), Seldom::default());
        Ok(AuditLog { path: path.to_owned(), limits, current, failures, complaints })
    }

    /// Writes a line. A failure is counted and told, and does not stop the request.
    pub fn write(&self, entry: &AuditEntry<'_>) {
        let line = render_entry(entry);
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = self.append(&mut current, line.as_bytes()) {
            // Opened anew next time: it may have been moved, or the disk may have room again.
            *current = None;
            self.failures.fetch_add(1, Ordering::Relaxed);
            if let Some(more) = self.complaints.now(Instant::now()) {
                let path = self.path.display();
                tracing::error!(%error, %path, more, "a line of the audit log is lost; requests go on");
            }
        }
    }

    /// Lines that were lost.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    fn append(&self, current: &mut Option<Current>, line: &[u8]) -> io::Result<()> {
        let open_now = match current.take() {
            Some(known) => known,
            None => open(&self.path)?,
        };
        let full = open_now.bytes > 0 && open_now.bytes + line.len() as u64 > self.limits.bytes;
        let file = current.insert(if full { self.rotate()? } else { open_now });
        file.file.write_all(line)?;
        file.bytes += line.len() as u64;
        Ok(())
    }

    fn rotate(&self) -> io::Result<Current> {
        let numbered = |number: usize| {
            let mut name = self.path.clone().into_os_string();
            name.push(format!(".{number}"));
            PathBuf::from(name)
        };
        for number in (1..self.limits.keep).rev() {
            match fs::rename(numbered(number), numbered(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        if self.limits.keep > 0 {
            fs::rename(&self.path, numbered(1))?
        } else {
            fs::remove_file(&self.path)?
        }
        open(&self.path)
    }
}

fn open(path: &Path) -> io::Result<Current> {
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
    let bytes = file.metadata()?.len();
    Ok(Current { file, bytes })
}

/// The line. Absent things are left out; texts a client made up are cut.
fn render_entry(entry: &AuditEntry<'_>) -> String {
    let AuditEntry {
        time,
        id,
        user,
        groups,
        verb,
        group,
        resource,
        subresource,
        namespace,
        name,
        code,
        source,
        dry_run,
    } = entry;
    let format = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:6]Z");
    let mut line = json!({"time": time.format(format).unwrap_or_default(), "id": id});
    let texts = [
        ("user", *user),
        ("verb", verb),
        ("group", group),
        ("resource", resource),
        ("subresource", subresource),
        ("namespace", namespace),
        ("name", name),
        ("source", source),
    ];
    for (key, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
        line[key] = Value::from(cut(text));
    }
    if !groups.is_empty() {
        line["groups"] = groups.iter().take(32).map(|group| cut(group)).collect();
    }
    line["code"] = (*code).into();
    if *dry_run {
        line["dryRun"] = true.into();
    }
    format!("{line}\n")
}

fn cut(text: &str) -> &str {
    text.char_indices().nth(300).map_or(text, |(end, _)| &text[..end])
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::testing::TempDir;

    fn entry<'a>(name: &'a str, groups: &'a [String]) -> AuditEntry<'a> {
        AuditEntry {
            time: OffsetDateTime::UNIX_EPOCH,
            id: "i1",
            user: "admin",
            groups,
            verb: "create",
            group: "",
            resource: "secrets",
            subresource: "",
            namespace: "lab",
            name,
            code: 201,
            source: "192.0.2.1:5",
            dry_run: false,
        }
    }

    #[test]
    fn a_line_says_who_did_what_and_cannot_be_broken_by_a_name() {
        let groups = ["system:masters".to_owned()];
        assert_eq!(
            render_entry(&entry("a\n\"b", &groups)),
            "{\"time\":\"1970-01-01T00:00:00.000000Z\",\"id\":\"i1\",\"user\":\"admin\",\"verb\":\"create\",\"resource\":\"secrets\",\
             \"namespace\":\"lab\",\"name\":\"a\\n\\\"b\",\"source\":\"192.0.2.1:5\",\"groups\":[\"system:masters\"],\"code\":201}\n"
        );
        assert!(render_entry(&entry(&"ü".repeat(100_000), &groups)).len() < 1000);
    }

    #[test]
    fn the_log_is_private_and_turns_over_by_size_with_a_bounded_number_of_files() {
        let folder = TempDir::new("audit");
        let path = folder.path().join("audit.log");
        let log = AuditLog::open(&path, AuditLimits { bytes: 400, keep: 2 }).unwrap();
        for index in 0..20 {
            log.write(&entry(&format!("n{index}"), &[]));
        }
        let mut files: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap()).collect();
        files.sort_by_key(|file| file.file_name());
        let names: Vec<_> = files.iter().map(|file| file.file_name().into_string().unwrap()).collect();
        assert_eq!(names, ["audit.log", "audit.log.1", "audit.log.2"]);
        for file in &files {
            let metadata = file.metadata().unwrap();
            assert!(metadata.len() <= 400 && metadata.permissions().mode() & 0o777 == 0o600, "{metadata:?}");
        }
        assert!(fs::read_to_string(&path).unwrap().ends_with("\"code\":201}\n"));
        assert!(fs::read_to_string(&path).unwrap().contains("n19"));
        assert_eq!(log.failures(), 0);
        let again = AuditLog::open(&path, AuditLimits::default()).unwrap();
        let before = fs::read_to_string(&path).unwrap();
        again.write(&entry("later", &[]));
        assert!(fs::read_to_string(&path).unwrap().starts_with(&before), "an old log is continued");
    }

    #[test]
    fn a_full_disk_is_counted_and_the_next_line_tries_again() {
        // Every write to this device fails with "no space left".
        let log = AuditLog::open(Path::new("/dev/full"), AuditLimits::default()).unwrap();
        log.write(&entry("a", &[]));
        log.write(&entry("b", &[]));
        assert_eq!(log.failures(), 2);
    }
}
