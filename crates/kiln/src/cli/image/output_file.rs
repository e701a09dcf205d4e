//! The file a command writes: complete under its name, or not there at all.
//!
//! It is written without a name (`O_TMPFILE`) in its own folder, so that even `kill -9` leaves nothing behind; where a file
//! system cannot do that, under a name of its own, which the next run removes once its process is gone. When everything is
//! on disk it gets its name in one step.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag};

use super::super::output::Failure;

/// What may become of a file that is already there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// It stays, and the command is refused.
    Keep,
    /// It is replaced.
    Replace,
}

/// Who may read a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readers {
    /// Its owner alone (0600): there are secrets in it.
    Owner,
    /// Whoever the umask allows.
    Everybody,
}

impl Readers {
    fn mode(self) -> u32 {
        match self {
            Readers::Owner => 0o600,
            Readers::Everybody => 0o644,
        }
    }

    /// The mode of a file that takes the place of one with this mode. It never becomes wider.
    fn replacing(self, mode: u32) -> u32 {
        match self {
            Readers::Owner => mode & 0o600,
            Readers::Everybody => mode,
        }
    }
}

/// A file that has no name yet.
pub struct OutputFile {
    file: File,
    target: PathBuf,
    readers: Readers,
    /// The name it has for the time being, where it must have one.
    temporary: Option<PathBuf>,
}

impl OutputFile {
    /// Begins a file that will have this name.
    pub fn create(target: &Path, existing: Existing, readers: Readers) -> Result<Self, Failure> {
        let shown = target.display();
        // Who names a link means the file behind it.
        let target = fs::canonicalize(target).unwrap_or_else(|_| target.to_owned());
        match fs::metadata(&target) {
            Ok(found) if !found.is_file() => {
                return Err(Failure::refused(anyhow!("`{shown}` is not a plain file; choose another output")));
            }
            Ok(_) if existing == Existing::Keep => {
                return Err(Failure::refused(anyhow!(
                    "`{shown}` exists already; choose another output, or replace it with --force"
                )));
            }
            _ => {}
        }
        let (Some(folder), Some(name)) = (folder_of(&target), target.file_name()) else {
            return Err(Failure::refused(anyhow!("`{shown}` is not the name of a file")));
        };
        let marked = format!(".{}.kiln-", name.to_string_lossy());
        remove_leftovers(&folder, &marked);
        let temporary = folder.join(format!("{marked}{}", std::process::id()));
        let unnamed = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(OFlag::O_TMPFILE.bits())
            .mode(readers.mode())
            .open(&folder)
            // Without /proc the file could not get its name.
            .and_then(|file| fs::metadata(fd_path(&file)).map(|_| file));
        let (file, temporary) = match unnamed {
            Ok(file) => (file, None),
            Err(_) => {
                let mut create = OpenOptions::new();
                let create = create.read(true).write(true).create_new(true).mode(readers.mode()).open(&temporary);
                (
                    create.with_context(|| format!("cannot write into the folder `{}`", folder.display()))?,
                    Some(temporary),
                )
            }
        };
        Ok(OutputFile { file, target, readers, temporary })
    }

    /// Where the bytes go.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Gives the file its name. The permissions of a file it replaces are kept, if they do not show a secret.
    pub fn finish(mut self) -> Result<(), Failure> {
        self.name().with_context(|| format!("cannot write `{}`", self.target.display()))?;
        Ok(())
    }

    fn name(&mut self) -> io::Result<()> {
        if let Ok(replaced) = fs::metadata(&self.target) {
            let mode = self.readers.replacing(replaced.permissions().mode());
            self.file.set_permissions(fs::Permissions::from_mode(mode))?;
        }
        self.file.sync_all()?;
        let folder = folder_of(&self.target).unwrap_or_default();
        let temporary = match &self.temporary {
            Some(temporary) => temporary.clone(),
            None => {
                let name = self.target.file_name().unwrap_or_default().to_string_lossy();
                let temporary = folder.join(format!(".{name}.kiln-{}", std::process::id()));
                let _ = fs::remove_file(&temporary);
                nix::unistd::linkat(AT_FDCWD, &fd_path(&self.file), AT_FDCWD, &temporary, AtFlags::AT_SYMLINK_FOLLOW)?;
                self.temporary = Some(temporary.clone());
                temporary
            }
        };
        fs::rename(&temporary, &self.target)?;
        self.temporary = None;
        File::open(&folder)?.sync_all()
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            let _ = fs::remove_file(temporary);
        }
    }
}

/// A file without a name in the folder for temporary files: gone when it is closed, whatever ends the program.
pub fn unnamed_file(folder: &Path) -> io::Result<File> {
    let flags =
        OpenOptions::new().read(true).write(true).custom_flags(OFlag::O_TMPFILE.bits()).mode(0o600).open(folder);
    flags.or_else(|_| {
        let path = folder.join(format!(".kiln-{}", std::process::id()));
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        fs::remove_file(&path)?;
        Ok(file)
    })
}

/// The folder a file lies in.
pub fn folder_of(path: &Path) -> Option<PathBuf> {
    path.parent().map(|folder| if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder.to_owned() })
}

fn fd_path(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Removes what runs left behind that were killed. Those that still work are left alone.
fn remove_leftovers(folder: &Path, marked: &str) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(process) = name.to_str().and_then(|name| name.strip_prefix(marked)) else { continue };
        let Ok(process) = process.parse::<u32>() else { continue };
        let gone = fs::metadata(format!("/proc/{process}")).is_err_and(|error| error.kind() == ErrorKind::NotFound);
        if gone || process == std::process::id() {
            let _ = fs::remove_file(entry.path());
        }
    }
}
