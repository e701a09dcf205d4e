//! `kiln restore`: a backup back into a data folder whose hub does not run.

use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, ValueEnum};
use kiln_apiserver::store::backup::{RestoredAuthority, RestoredTokens, restore_backup};

use super::Outcome;
use super::backup::{data_dir, judge};
use super::output::{Failure, print};

/// What `kiln restore` takes.
#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// A file written by `kiln backup`
    file: PathBuf,
    /// The hub's data folder; made with mode 0700 if it does not exist [KILN_DATA_DIR]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Replace the state that is in the folder
    #[arg(long)]
    replace: bool,
    /// Which authority the hub has afterwards
    #[arg(long, value_enum, default_value_t = AuthorityChoice::Keep)]
    authority: AuthorityChoice,
    /// Forget all tokens: those that were revoked after the backup would be valid again
    #[arg(long)]
    forget_tokens: bool,
}

/// Which authority a restored hub has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum AuthorityChoice {
    /// That of the folder, otherwise that of the backup, otherwise a new one
    Keep,
    /// That of the backup
    Backup,
    /// A new one: every certificate issued before is worthless
    New,
}

/// Restores and says where revisions go on.
pub fn run(args: &RestoreArgs) -> Result<Outcome, Failure> {
    let folder = data_dir(args.data_dir.as_ref())?;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder)
        .with_context(|| format!("cannot make the data folder `{}`", folder.display()))
        .map_err(Failure::refused)?;
    let authority = match args.authority {
        AuthorityChoice::Keep => RestoredAuthority::Keep,
        AuthorityChoice::Backup => RestoredAuthority::FromBackup,
        AuthorityChoice::New => RestoredAuthority::New,
    };
    let tokens = if args.forget_tokens { RestoredTokens::Forget } else { RestoredTokens::Keep };
    let (manifest, revision) = restore_backup(&args.file, &folder, args.replace, authority, tokens).map_err(judge)?;
    print(&format!(
        "{}: restored revision {} of {}; revisions go on after {revision}\n",
        folder.display(),
        manifest.revision,
        manifest.created
    ))?;
    if manifest.sealed {
        print("Secrets in it are sealed: start the hub with the key they were sealed with\n")?;
    }
    Ok(Outcome::Done)
}
