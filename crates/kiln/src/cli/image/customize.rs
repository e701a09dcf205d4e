//! `kiln image customize`: one image in, one image out.
//!
//! The result is written under its name only when it is complete. An existing file is replaced with `--force` or when it is
//! the input itself. gzip stays gzip; xz and zstd come out plain or as gzip, as the name of the output says.

use std::path::Path;

use anyhow::anyhow;
use kiln_core::document::emit::to_yaml;
use kiln_image::compression::Compression;
use kiln_image::customize::{Change, Composition, Original, Packing, plan};
use serde_json::json;

use super::super::{Outcome, PrintFormat, output, output::Failure};
use super::open::{Gzip, OpenImage, failure, open};
use super::output_file::{Existing, folder_of};
use super::progress::Progress;
use super::write::{Written, write};
use super::{CustomizeArgs, wish};

/// Reads the wish, decides, writes, tells.
pub fn run(args: &CustomizeArgs) -> Result<Outcome, Failure> {
    let Some(wish) = wish::read(&args.wish)? else {
        output::complain(&format!("`{}` was not written\n", args.output.display()));
        return Ok(Outcome::Refused);
    };
    if wish.is_empty() {
        return Err(Failure::refused(anyhow!(
            "nothing to do; say what goes into the image: --network, --network-dir, --ignition, --karg-append, --karg-delete or \
             --force-persist-ip"
        )));
    }
    let (written, notes) = change_file(&args.image, &args.output, args.force, Change::Customize(&wish))?;
    for note in &notes {
        output::complain(&format!("note: {note}\n"));
    }
    let line = cluster_os_image(&args.output, args.url.as_deref(), &written.sha256);
    if args.output.as_os_str() == "-" {
        output::complain(&format!("sha256 {}\n", written.sha256));
        return Ok(Outcome::Done);
    }
    let document = json!({
        "output": args.output.display().to_string(),
        "bytes": written.bytes,
        "sha256": written.sha256,
        "clusterOSImage": line,
        "notes": notes,
    });
    output::print(&match args.format {
        PrintFormat::Human => format!(
            "wrote {} ({})\nsha256 {}\n\nIn install-config.yaml, platform.baremetal:\n    clusterOSImage: {line}\n",
            args.output.display(),
            indicatif::HumanBytes(written.bytes),
            written.sha256
        ),
        PrintFormat::Json => format!("{document:#}\n"),
        PrintFormat::Yaml => to_yaml(&document),
    })?;
    Ok(Outcome::Done)
}

/// Changes an image file. Returns what was written and what the user should know.
pub fn change_file(
    input: &Path,
    target: &Path,
    force: bool,
    change: Change<'_>,
) -> Result<(Written, Vec<String>), Failure> {
    let (written, notes, _) = change_image(input, target, force, change)?;
    Ok((written, notes))
}

/// The same, with what the result has to do with the original.
pub fn change_image(
    input: &Path,
    target: &Path,
    force: bool,
    change: Change<'_>,
) -> Result<(Written, Vec<String>, Original), Failure> {
    let in_place = same_file(input, target);
    let wanted = wanted_packing(target)?;
    let existing = if force || in_place { Existing::Replace } else { Existing::Keep };
    // Refused before minutes of work, not after them.
    if existing == Existing::Keep && target.as_os_str() != "-" && target.exists() {
        return Err(Failure::refused(anyhow!(
            "`{}` exists already; choose another output, or replace it with --force",
            target.display()
        )));
    }
    let folder = match target.as_os_str() == "-" {
        true => std::env::temp_dir(),
        false => folder_of(target).unwrap_or_default(),
    };
    let gzip = if wanted == Wanted::Plain && !in_place { Gzip::Inflate } else { Gzip::Keep };
    let image = open(input, &folder, gzip)?;
    if in_place && matches!(image.compression, Compression::Xz | Compression::Zstd) {
        return Err(Failure::refused(anyhow!(
            "`{}` is compressed with {}, which Kiln does not write; give another output: -o NAME.gz",
            input.display(),
            image.compression.name()
        )));
    }
    let composition = compose(&image, change, &format!("`{}` was not written", target.display()))?;
    let plain = image.format.compression == Compression::None && composition.packing == Packing::AsIs;
    let packing = if plain && wanted == Wanted::Gzip { Packing::Gzip } else { composition.packing };
    let written = write(&composition, packing, Some(image.file.file()), target, existing)?;
    Ok((written, composition.notes, composition.original))
}

fn compose<'a>(image: &'a OpenImage, change: Change<'_>, context: &str) -> Result<Composition<'a>, Failure> {
    let mut bar: Option<Progress> = None;
    let mut progress = |done, total| bar.get_or_insert_with(|| Progress::new("reading", total)).set(done);
    plan(&image.file, image.format, change, &mut progress).map_err(|error| failure(error, context.to_owned()))
}

/// What the name of an output asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Gzip,
    Plain,
    /// The name says nothing.
    AsInput,
}

fn wanted_packing(target: &Path) -> Result<Wanted, Failure> {
    let ending = target.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    match ending.as_str() {
        "gz" => Ok(Wanted::Gzip),
        "xz" | "zst" | "zstd" | "bz2" => Err(Failure::refused(anyhow!(
            "Kiln does not write .{ending}: `{}`; give a name that ends in .gz, or in none of these",
            target.display()
        ))),
        "raw" | "qcow2" | "img" | "iso" => Ok(Wanted::Plain),
        _ => Ok(Wanted::AsInput),
    }
}

/// Whether two names lead to one file.
pub fn same_file(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}

/// What install-config.yaml wants to know about an image that is served.
fn cluster_os_image(target: &Path, url: Option<&str>, sha256: &str) -> String {
    let base = url.unwrap_or("http://HOST:PORT/").trim_end_matches('/');
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    format!("{base}/{name}?sha256={sha256}")
}
