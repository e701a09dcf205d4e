//! `kiln image import`: a base image is read once and prepared for all its hosts.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::Args;
use kiln_core::document::emit::to_yaml;
use kiln_image::store::{BaseName, Form, ImportOptions, Placement, Store};
use serde_json::json;

use super::super::{Outcome, PrintFormat, output, output::Failure};
use super::open::failure;
use super::progress::Progress;

/// What `kiln image import` takes.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// Raw disk, qcow2, live ISO or PXE initrd, also compressed
    image: PathBuf,
    /// Folder of the store; made if it is not there
    #[arg(long, value_name = "DIR")]
    store: PathBuf,
    /// Name of the base in the store and in URLs [default: the file's name without its extensions]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Link the file into the store instead of copying it; nobody may change it afterwards
    #[arg(long)]
    link: bool,
    /// Store it uncompressed, for clients that take no .gz
    #[arg(long, conflicts_with = "gzip")]
    plain: bool,
    /// Store it as .gz, compressed once
    #[arg(long)]
    gzip: bool,
    /// How the result is described
    #[arg(long, value_enum, default_value = "human")]
    format: PrintFormat,
}

/// Runs the verb.
pub fn run(args: &ImportArgs) -> Result<Outcome, Failure> {
    let ImportArgs { image, store, name, link, plain, gzip, format } = args;
    let shown = image.display();
    let name: BaseName = match name {
        Some(name) => name.parse().map_err(Failure::refused)?,
        None => name_of(image)?,
    };
    match std::fs::metadata(image) {
        Ok(found) if found.is_file() => {}
        Ok(_) => return Err(Failure::refused(anyhow!("`{shown}` is not a plain file; give an image file"))),
        Err(error) => return Err(Failure::refused(anyhow!(error).context(format!("cannot read `{shown}`")))),
    }
    let context = || format!("`{shown}` was not imported");
    let opened = Store::create(store).map_err(|error| failure(error, context()))?;
    let options = ImportOptions {
        placement: if *link { Placement::Link } else { Placement::Copy },
        form: match (plain, gzip) {
            (true, _) => Form::Plain,
            (false, true) => Form::Gzip,
            (false, false) => Form::AsItCame,
        },
    };
    let mut bar: Option<Progress> = None;
    let mut progress = |done, total| bar.get_or_insert_with(|| Progress::new("importing", total)).set(done);
    let record = opened.import(image, &name, options, &mut progress).map_err(|error| failure(error, context()))?;
    drop(bar);
    let file_name = format!("{name}{}", record.kind.extension());
    let document = json!({
        "base": name.to_string(),
        "file": file_name,
        "bytes": record.file.length,
        "sha256": record.sha256,
        "path": format!("/bases/{file_name}"),
    });
    output::print(&match format {
        PrintFormat::Human => format!(
            "imported {file_name} ({})\nsha256 {}\n\nFor each host:\n    kiln image compose --store {} --base {name} --host HOST \
             --network FILE\n",
            indicatif::HumanBytes(record.file.length),
            record.sha256,
            store.display()
        ),
        PrintFormat::Json => format!("{document:#}\n"),
        PrintFormat::Yaml => to_yaml(&document),
    })?;
    Ok(Outcome::Done)
}

/// The file's name without what tells its format.
fn name_of(image: &Path) -> Result<BaseName, Failure> {
    const ENDINGS: [&str; 10] = [".gz", ".xz", ".zst", ".zstd", ".qcow2", ".raw", ".img", ".iso", ".qcow", ".bin"];
    let file = image.file_name().unwrap_or_default().to_string_lossy();
    let mut name = file.as_ref();
    while let Some(shorter) =
        ENDINGS.iter().find_map(|ending| name.strip_suffix(ending)).filter(|name| !name.is_empty())
    {
        name = shorter;
    }
    name.parse()
        .map_err(|_| Failure::refused(anyhow!("`{file}` does not make a name for a base; give one: --name NAME")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_is_called_like_its_file() {
        let table = [
            ("/a/rhcos-4.20.3-x86_64-openstack.x86_64.qcow2.gz", "rhcos-4.20.3-x86_64-openstack.x86_64"),
            ("fedora-coreos-44-live.iso", "fedora-coreos-44-live"),
            ("metal.raw.xz", "metal"),
            ("initrd.img", "initrd"),
            ("plain", "plain"),
        ];
        for (file, name) in table {
            assert_eq!(name_of(Path::new(file)).unwrap().as_str(), name);
        }
        let Err(Failure::Refused(error)) = name_of(Path::new("my image.iso")) else { panic!() };
        assert_eq!(error.to_string(), "`my image.iso` does not make a name for a base; give one: --name NAME");
    }
}
