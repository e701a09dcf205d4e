//! A folder of imported bases and of what each host adds to them.
//!
//! ```text
//! key                        the key that signs URLs of images with secrets (0600, made on first use)
//! lock                       held while a folder of a base is made, shown or taken away
//! bases/NAME/base.json       what was imported: kind, length, sha256, identity
//! bases/NAME/image           the imported file (a copy, or a hard link with `--link`)
//! bases/NAME/shared          bytes that replace a part of the base in the images of all hosts
//! bases/NAME/prepared        what composing needs, so that the base itself need not be read or inflated
//! hosts/HOST/BASE.image      one line of JSON (size, sha256, list of pieces), then the host's own bytes
//! hosts/HOST/BASE.sha256     entity tag and sha256, where the sum was taken after composing
//! ```
//!
//! Folders are 0700 and files 0600: keyfiles and Ignition configs hold passwords and keys. Everything is written under
//! a name that begins with a dot, synced and renamed, so a kill at any time leaves a store that can be used; a base
//! appears as a whole folder or not at all. An image is one file, so that its list of pieces and its bytes never
//! belong to two different compositions. Nothing is kept open between calls: whoever looks again sees what is there.
//!
//! Not here: HTTP, see `kiln::image_server`.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

mod assembly;
mod compose;
mod import;
mod key;
mod name;
mod pages;
mod prepare;
mod prepared;
mod record;
mod staging;
mod stored_image;
mod sum;
mod verify;
mod write;

pub use assembly::Assembly;
pub use compose::{ComposedImage, Hashing};
pub use import::{Form, ImportOptions, Placement, Progress};
pub use key::UrlKey;
pub use name::{BaseName, HostName};
pub use record::{BaseKind, BaseRecord, FileRecord, ImageRecord, Piece, PieceOf};
pub use stored_image::{FileRange, StoredImage};

use crate::error::ImageError;

/// A store on disk.
#[derive(Debug, Clone)]
pub struct Store {
    root: PathBuf,
}

impl Store {
    /// The store in this folder, which must be one.
    pub fn open(root: &Path) -> Result<Store, ImageError> {
        if !root.join("bases").is_dir() {
            return Err(ImageError::refused(
                format!("store `{}`", root.display()),
                "there is no store in this folder",
                "import a base first: kiln image import IMAGE --store DIR",
            ));
        }
        Ok(Store { root: root.to_path_buf() })
    }

    /// The store in this folder, made if it is not there.
    pub fn create(root: &Path) -> Result<Store, ImageError> {
        let store = Store { root: root.to_path_buf() };
        for folder in [root.to_path_buf(), store.root.join("hosts"), store.root.join("bases")] {
            write::create_folder(&folder)?;
        }
        Ok(store)
    }

    /// The key that signs URLs, made on first use.
    pub fn url_key(&self) -> Result<UrlKey, ImageError> {
        UrlKey::of_store(&self.root)
    }

    /// What is known about a base.
    pub fn base(&self, name: &BaseName) -> Result<Option<BaseRecord>, ImageError> {
        match read_if_there(&self.base_folder(name).join("base.json"))? {
            Some(bytes) => record::parse_json(&format!("base `{name}` of the store"), &bytes).map(Some),
            None => Ok(None),
        }
    }

    /// The names of all bases, sorted.
    pub fn base_names(&self) -> Result<Vec<BaseName>, ImageError> {
        let mut names: Vec<BaseName> =
            folder_entries(&self.root.join("bases"))?.iter().filter_map(|name| name.parse().ok()).collect();
        names.sort();
        Ok(names)
    }

    /// Which images there are: host and base, sorted.
    pub fn image_names(&self) -> Result<Vec<(HostName, BaseName)>, ImageError> {
        let mut names = Vec::new();
        for host in folder_entries(&self.root.join("hosts"))? {
            let Ok(host) = host.parse::<HostName>() else { continue };
            for entry in folder_entries(&self.host_folder(&host))? {
                if let Some(Ok(base)) = entry.strip_suffix(".image").map(str::parse) {
                    names.push((host.clone(), base));
                }
            }
        }
        names.sort();
        Ok(names)
    }

    /// A host's image, ready to be read or served.
    pub fn image(&self, host: &HostName, base: &BaseName) -> Result<Option<StoredImage>, ImageError> {
        let Some(base_record) = self.base(base)? else { return Ok(None) };
        let Some(own) = open_if_there(&self.image_path(host, base))? else { return Ok(None) };
        let mut image = StoredImage::open(&self.base_folder(base), base, &base_record, host, own)?;
        if image.sha256.is_none() {
            image.sha256 = self.remembered_sha256(host, base, &image.etag)?;
        }
        Ok(Some(image))
    }

    /// The base itself, as it was imported.
    pub fn untouched(&self, base: &BaseName) -> Result<Option<StoredImage>, ImageError> {
        let Some(record) = self.base(base)? else { return Ok(None) };
        StoredImage::untouched(&self.base_folder(base), &record).map(Some)
    }

    /// Forgets one image of a host, or all of them. True when there was something to forget.
    pub fn forget_host(&self, host: &HostName, base: Option<&BaseName>) -> Result<bool, ImageError> {
        let folder = self.host_folder(host);
        let mut found = false;
        // Images before sums: whoever remembers a sum writes it and then looks for the image, so one of the two sees the other.
        for ending in ["image", "sha256"] {
            for entry in folder_entries(&folder)? {
                let Some(of) = entry.strip_suffix(ending).and_then(|name| name.strip_suffix('.')) else { continue };
                if base.is_none_or(|base| base.as_str() == of) {
                    found |= remove_if_there(&folder.join(&entry))? && ending == "image";
                }
            }
        }
        // Fails while another image is there, and then it must stay.
        let _ = fs::remove_dir(&folder);
        Ok(found)
    }

    /// Forgets a base. Refused while a host's image is made of it. True when there was something to forget.
    pub fn forget_base(&self, base: &BaseName) -> Result<bool, ImageError> {
        let users: Vec<String> =
            self.image_names()?.into_iter().filter_map(|(host, of)| (of == *base).then(|| host.to_string())).collect();
        if let Some(first) = users.first() {
            return Err(ImageError::refused(
                format!("base `{base}` of the store"),
                format!("the images of {} hosts are made of it, `{first}` among them", users.len()),
                "forget them first: kiln image forget --store DIR --host HOST",
            ));
        }
        let _held = write::hold_bases(&self.root)?;
        write::remove_folder(&self.base_folder(base))
    }

    fn base_folder(&self, base: &BaseName) -> PathBuf {
        self.root.join("bases").join(base.as_str())
    }

    fn host_folder(&self, host: &HostName) -> PathBuf {
        self.root.join("hosts").join(host.as_str())
    }

    fn image_path(&self, host: &HostName, base: &BaseName) -> PathBuf {
        self.host_folder(host).join(format!("{base}.image"))
    }
}

/// True when it was there. Another process may forget the same image.
fn remove_if_there(path: &Path) -> Result<bool, ImageError> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(cannot_write(path)(error)),
    }
}

fn open_if_there(path: &Path) -> Result<Option<File>, ImageError> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(ImageError::Read { what: format!("`{}`", path.display()), source }),
    }
}

fn read_if_there(path: &Path) -> Result<Option<Vec<u8>>, ImageError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(ImageError::Read { what: format!("`{}`", path.display()), source }),
    }
}

/// Names in a folder, unfinished ones left out. A folder that is not there has none.
fn folder_entries(folder: &Path) -> Result<Vec<String>, ImageError> {
    let cannot_read = |source| ImageError::Read { what: format!("`{}`", folder.display()), source };
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(cannot_read(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        if let Ok(name) = entry.map_err(cannot_read)?.file_name().into_string()
            && !name.starts_with('.')
        {
            names.push(name);
        }
    }
    Ok(names)
}

fn cannot_write(path: &Path) -> impl FnOnce(io::Error) -> ImageError {
    let what = format!("`{}`", path.display());
    move |source| ImageError::Write { what, source }
}
