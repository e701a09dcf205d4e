//! `kiln restore`: a backup back into a hub's data folder, whether it runs or not.
//!
//! A hub that runs is asked to restore itself, so that whoever watches it sees what changes; see
//! `kiln_apiserver::store::restore`.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use clap::{Args, ValueEnum};
use kiln_apiserver::store::OpenError;
use kiln_apiserver::store::backup::{BackupError, RestoredAuthority, RestoredTokens, hand_over, restore_backup};
use serde_json::Value;

use super::Outcome;
use super::backup::{data_dir, judge};
use super::output::{Failure, print};
use super::status::connection::Connection;

/// What `kiln restore` takes.
#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// A file written by `kiln backup`
    file: PathBuf,
    /// The hub's data folder; made with mode 0700 if it does not exist [KILN_DATA_DIR]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Replace the state that is in the folder, or that of the hub that runs there
    #[arg(long)]
    replace: bool,
    /// Which authority the hub has afterwards; a hub that runs keeps its own
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
    let (manifest, revision) = match restore_backup(&args.file, &folder, args.replace, authority, tokens) {
        Err(BackupError::Store(OpenError::InUse { .. })) => return restore_running(args, &folder),
        other => other.map_err(judge)?,
    };
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

/// Hands the backup's database to the hub that runs in the folder, and says what became of it.
fn restore_running(args: &RestoreArgs, folder: &Path) -> Result<Outcome, Failure> {
    if !args.replace {
        return Err(judge(BackupError::NotEmpty { folder: folder.to_owned() }));
    }
    if args.authority != AuthorityChoice::Keep {
        return Err(Failure::refused(anyhow!(
            "`{}` is in use by a hub that runs, which keeps its authority: stop it first, or leave out --authority",
            folder.display()
        )));
    }
    let (manifest, handed) = hand_over(&args.file, folder).map_err(judge)?;
    let path = format!("/restore?sha256={}&forgetTokens={}", handed.sha256, args.forget_tokens);
    let connection = Connection::new(None, Some(folder.to_owned()));
    let restored = connection.block_on(async |client| {
        let request =
            axum::http::Request::post(path).body(Vec::new()).map_err(|error| Failure::refused(anyhow!(error)))?;
        client.request::<Value>(request).await.map_err(|error| refused(error, folder))
    })?;
    // It has read the file, and removed it.
    drop(handed);
    let number = |key: &str| restored[key].as_u64().unwrap_or_default();
    print(&format!(
        "{}: restored revision {} of {} into the running hub: {} created, {} changed, {} deleted; revisions go on after {}\n",
        folder.display(),
        manifest.revision,
        manifest.created,
        number("created"),
        number("changed"),
        number("deleted"),
        number("revision")
    ))?;
    Ok(Outcome::Done)
}

fn refused(error: kube::Error, folder: &Path) -> Failure {
    match error {
        kube::Error::Api(status) if (400..500).contains(&status.code) => {
            Failure::refused(anyhow!("{}", status.message).context("the hub refused"))
        }
        kube::Error::Api(status) => Failure::Failed(anyhow!("{}", status.message).context("the hub failed")),
        other => Failure::Failed(anyhow!(other).context(format!(
            "`{}` is in use, and the hub there did not say that it restored anything: see its log",
            folder.display()
        ))),
    }
}
