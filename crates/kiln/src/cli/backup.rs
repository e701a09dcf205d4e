//! `kiln backup`: everything a hub keeps in one file, taken while it runs.

use std::path::PathBuf;

use clap::Args;
use kiln_apiserver::store::backup::{BackupError, WithAuthority, write_backup};

use super::Outcome;
use super::output::{Failure, print};

/// What `kiln backup` takes.
#[derive(Debug, Args)]
pub struct BackupArgs {
    /// The file to write; one that exists is replaced when the new one is complete
    file: PathBuf,
    /// The hub's data folder [KILN_DATA_DIR]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Put the authority and its key into the file, too: whoever has it can make credentials for anybody
    #[arg(long)]
    with_authority: bool,
}

/// Writes the backup and says what is in it.
pub fn run(args: &BackupArgs) -> Result<Outcome, Failure> {
    let folder = data_dir(args.data_dir.as_ref())?;
    let authority = if args.with_authority { WithAuthority::Yes } else { WithAuthority::No };
    let manifest = write_backup(&folder, &args.file, authority).map_err(judge)?;
    let bytes: u64 = manifest.parts.iter().map(|part| part.bytes).sum();
    print(&format!("{}: revision {}, {bytes} bytes\n", args.file.display(), manifest.revision))?;
    if manifest.sealed {
        print("Secrets in it are sealed: keep the encryption key, elsewhere\n")?;
    }
    Ok(Outcome::Done)
}

/// The folder from the flag or the variable.
pub(super) fn data_dir(flag: Option<&PathBuf>) -> Result<PathBuf, Failure> {
    flag.cloned()
        .or_else(|| std::env::var_os("KILN_DATA_DIR").map(PathBuf::from))
        .ok_or_else(|| Failure::refused(anyhow::anyhow!("no data folder: give --data-dir DIR or set KILN_DATA_DIR")))
}

/// Which failures are the input's.
pub(super) fn judge(error: BackupError) -> Failure {
    match error {
        BackupError::Database { .. } => Failure::from(error),
        BackupError::File { .. }
        | BackupError::NoStore { .. }
        | BackupError::Unreadable { .. }
        | BackupError::Damaged { .. }
        | BackupError::NotEmpty { .. }
        | BackupError::NoAuthority { .. }
        | BackupError::Store(_) => Failure::refused(error),
    }
}
