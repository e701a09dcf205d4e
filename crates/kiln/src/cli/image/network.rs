//! `kiln image network`: the network files in an image.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, anyhow};
use kiln_image::NamedFile;
use kiln_image::customize::Change;
use kiln_image::inspect::network_files;

use super::super::{Outcome, output, output::Failure};
use super::customize::change_file;
use super::open::{Gzip, failure, open};
use super::secrets::secret_key;
use super::{NetworkArgs, NetworkVerb};

/// Runs one verb.
pub fn run(args: &NetworkArgs) -> Result<Outcome, Failure> {
    match &args.verb {
        NetworkVerb::List => {
            let names: String = read(&args.image)?.iter().map(|file| format!("{}\n", file.name)).collect();
            output::print(&names)?;
        }
        NetworkVerb::Show { show_secrets } => {
            for NamedFile { name, bytes } in read(&args.image)? {
                let text = String::from_utf8_lossy(&bytes);
                let text = if *show_secrets { text.into_owned() } else { without_secrets(&text) };
                output::print(&format!("# {name}\n{text}{}\n", if text.ends_with('\n') { "" } else { "\n" }))?;
            }
        }
        NetworkVerb::Extract { dir } => extract(&read(&args.image)?, dir)?,
        NetworkVerb::Remove { output: target, force } => {
            let target = target.as_ref().unwrap_or(&args.image);
            if read(&args.image)?.is_empty() {
                return Err(Failure::refused(anyhow!("`{}` has no network files", args.image.display())));
            }
            let (written, notes) = change_file(&args.image, target, *force, Change::RemoveNetwork)?;
            for note in &notes {
                output::complain(&format!("note: {note}\n"));
            }
            output::print(&format!("wrote {}\nsha256 {}\n", target.display(), written.sha256))?;
        }
    }
    Ok(Outcome::Done)
}

fn read(path: &Path) -> Result<Vec<NamedFile>, Failure> {
    let image = open(path, &std::env::temp_dir(), Gzip::Keep)?;
    network_files(&image.file, image.format)
        .map_err(|error| failure(error, format!("`{}` cannot be read", path.display())))
}

/// Every line stays, but what follows `psk=` and the like.
fn without_secrets(text: &str) -> String {
    let line = |line: &str| match secret_key(line) {
        Some(key) => format!("{key}=…\n"),
        None => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

/// Writes the files into a folder that has nothing else.
fn extract(files: &[NamedFile], folder: &Path) -> Result<(), Failure> {
    let shown = folder.display();
    if let Ok(mut entries) = fs::read_dir(folder)
        && entries.next().is_some()
    {
        return Err(Failure::refused(anyhow!("`{shown}` is not empty; give a new or an empty folder")));
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot make the folder `{shown}`"))?;
    for NamedFile { name, bytes } in files {
        // A name from outside must not lead elsewhere.
        if name.contains('/') || name == ".." || name == "." {
            return Err(Failure::refused(anyhow!(
                "the image has a network file of the name `{name}`, which is no file name"
            )));
        }
        let path = folder.join(name);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        file.and_then(|mut file| file.write_all(bytes))
            .with_context(|| format!("cannot write `{}`", path.display()))?;
        output::print(&format!("wrote {}\n", path.display()))?;
    }
    Ok(())
}
