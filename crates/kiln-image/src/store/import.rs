//! Taking a file into the store: copied or linked, hashed, described.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;

use sha2::{Digest, Sha256};

use super::record::{BaseKind, BaseRecord, FileRecord};
use super::staging::Staging;
use super::{BaseName, Store, cannot_write};
use crate::error::ImageError;

/// How the file gets into the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Placement {
    /// A copy: nobody else writes to it.
    #[default]
    Copy,
    /// A hard link: no second gigabyte, on the same file system only. A change of the file is noticed.
    Link,
}

impl Store {
    /// Takes a file in as it is, with nothing prepared for composing.
    pub fn add_base(
        &self,
        name: &BaseName,
        kind: BaseKind,
        source: &Path,
        placement: Placement,
    ) -> Result<BaseRecord, ImageError> {
        let staging = Staging::begin(self, name)?;
        let sha256 = place(&staging, source, placement)?;
        let file = FileRecord::of(&File::open(staging.path("image")).map_err(cannot_read(source))?)
            .map_err(cannot_read(source))?;
        let record = BaseRecord::new(kind, file, sha256, sha256, source.display().to_string());
        staging.publish(&record)?;
        Ok(record)
    }
}

/// Puts the file into the folder and gives its sha256.
fn place(staging: &Staging, source: &Path, placement: Placement) -> Result<[u8; 32], ImageError> {
    let mut input = File::open(source).map_err(cannot_read(source))?;
    let mut copy = match placement {
        Placement::Copy => Some(staging.create("image")?),
        Placement::Link => {
            let path = staging.path("image");
            fs::hard_link(source, &path).map_err(cannot_write(&path))?;
            None
        }
    };
    let mut sum = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let read = input.read(&mut buffer).map_err(cannot_read(source))?;
        if read == 0 {
            break;
        }
        sum.update(&buffer[..read]);
        if let Some(copy) = &mut copy {
            copy.write_all(&buffer[..read]).map_err(cannot_write(&staging.path("image")))?;
        }
    }
    if let Some(copy) = copy {
        copy.sync_all().map_err(cannot_write(&staging.path("image")))?;
    }
    Ok(sum.finalize().into())
}

fn cannot_read(path: &Path) -> impl FnOnce(std::io::Error) -> ImageError {
    ImageError::read(format!("`{}`", path.display()))
}
