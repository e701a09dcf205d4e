//! `kiln image list` and `kiln image forget`: what a store holds, and less of it.

use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use kiln_core::document::emit::to_yaml;
use kiln_image::store::Store;
use serde_json::{Value, json};

use super::super::{Outcome, PrintFormat, output, output::Failure};
use super::open::failure;
use crate::image_server::route::image_path;

/// What `kiln image list` takes.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Folder of the store
    #[arg(long, value_name = "DIR")]
    store: PathBuf,
    /// How it is printed
    #[arg(long, value_enum, default_value = "human")]
    format: PrintFormat,
}

/// What `kiln image forget` takes.
#[derive(Debug, Args)]
pub struct ForgetArgs {
    /// Folder of the store
    #[arg(long, value_name = "DIR")]
    store: PathBuf,
    /// Host whose image is forgotten: all of them, or the one of --base
    #[arg(long, value_name = "NAME", required_unless_present = "base")]
    host: Option<String>,
    /// Base that is forgotten, once no host's image is made of it
    #[arg(long, value_name = "NAME")]
    base: Option<String>,
}

/// Runs `list`.
pub fn list(args: &ListArgs) -> Result<Outcome, Failure> {
    let cannot = |error| failure(error, format!("the store `{}` cannot be listed", args.store.display()));
    let store = Store::open(&args.store).map_err(Failure::refused)?;
    let mut text = String::new();
    let (mut bases, mut images): (Vec<Value>, Vec<Value>) = (Vec::new(), Vec::new());
    for name in store.base_names().map_err(cannot)? {
        let Some(record) = store.base(&name).map_err(cannot)? else { continue };
        let file = format!("{name}{}", record.kind.extension());
        text.push_str(&format!(
            "base   {file}  {}  sha256 {}\n",
            indicatif::HumanBytes(record.file.length),
            record.sha256
        ));
        bases.push(
            json!({ "name": name.to_string(), "file": file, "bytes": record.file.length, "sha256": record.sha256 }),
        );
    }
    for (host, base) in store.image_names().map_err(cannot)? {
        match store.image(&host, &base) {
            Ok(Some(image)) => {
                let path = image_path(&host, &base, image.kind);
                let sha256 = image.sha256.map(|sum| kiln_image::digest::hex(&sum));
                let known = sha256.as_ref().map_or(String::new(), |sum| format!("  sha256 {sum}"));
                text.push_str(&format!("image  {path}  {}{known}\n", indicatif::HumanBytes(image.size)));
                images.push(json!({ "host": host.to_string(), "base": base.to_string(), "path": path, "bytes": image.size, "sha256": sha256 }));
            }
            Ok(None) => {}
            // One image that cannot be used must not hide the others.
            Err(error) => output::complain(&format!("error: {error}\n")),
        }
    }
    let document = json!({ "bases": bases, "images": images });
    output::print(&match args.format {
        PrintFormat::Human => text,
        PrintFormat::Json => format!("{document:#}\n"),
        PrintFormat::Yaml => to_yaml(&document),
    })?;
    Ok(Outcome::Done)
}

/// Runs `forget`.
pub fn forget(args: &ForgetArgs) -> Result<Outcome, Failure> {
    let store = Store::open(&args.store).map_err(Failure::refused)?;
    let base = args.base.as_ref().map(|base| base.parse()).transpose().map_err(Failure::refused)?;
    let host = args.host.as_ref().map(|host| host.parse()).transpose().map_err(Failure::refused)?;
    let found = match (&host, &base) {
        (Some(host), base) => store.forget_host(host, base.as_ref()),
        (None, Some(base)) => store.forget_base(base),
        (None, None) => Ok(false),
    };
    match found.map_err(|error| failure(error, "nothing was forgotten".into()))? {
        true => Ok(Outcome::Done),
        false => Err(Failure::refused(anyhow!("the store has nothing of this name; see `kiln image list`"))),
    }
}
