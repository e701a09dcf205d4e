//! Taking an image into the store: read once, checked, and prepared for composing.
//!
//! A .gz is inflated once and its inflated form is not stored; everything that composing will need is found in the same
//! pass or read again from a checkpoint. xz and zstd cannot be spliced, so such images are stored inflated, or as .gz.
//! An import that is killed leaves nothing that anybody would see; the next one removes it.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::prepare::{self, Ready};
use super::record::{BaseKind, BaseRecord, FileRecord};
use super::staging::Staging;
use super::write::replace_file;
use super::{BaseName, Store, cannot_write};
use crate::compression::{Compression, Decoder};
use crate::digest::Sha256;
use crate::error::ImageError;
use crate::format::{Content, Format, recognise};
use crate::read_at::{ImageFile, ReadAt, Sequential};

/// No CoreOS image is larger; one that claims to be is a trap for the disk it is inflated to.
const INFLATED_LIMIT: u64 = 1 << 40;

/// How the file gets into the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Placement {
    /// A copy: nobody else writes to it.
    #[default]
    Copy,
    /// A hard link: no second gigabyte, on the same file system only. A change of the file is noticed.
    Link,
}

/// In which form a base is stored and served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Form {
    /// As it came; xz and zstd inflated.
    #[default]
    AsItCame,
    /// Not compressed: for those who take no .gz.
    Plain,
    /// Compressed with gzip.
    Gzip,
}

/// What an import may be told.
#[derive(Debug, Clone, Copy, Default)]
pub struct ImportOptions {
    /// Copy or link.
    pub placement: Placement,
    /// Compressed or not.
    pub form: Form,
}

/// Is told how many bytes of the file are done, of all.
pub type Progress<'p> = &'p mut (dyn FnMut(u64, u64) + Send);

impl Store {
    /// Takes an image in under a name.
    pub fn import(
        &self,
        source: &Path,
        name: &BaseName,
        options: ImportOptions,
        progress: Progress<'_>,
    ) -> Result<BaseRecord, ImageError> {
        if self.base(name)?.is_some() {
            return Err(ImageError::refused(
                format!("base `{name}`"),
                "the store has a base of this name",
                "choose another name with --name, or forget it first: kiln image forget --store DIR --base NAME",
            ));
        }
        let file = open_source(source)?;
        let format = recognise(&file)?;
        let (kind, way) = decide_way(format, options)?;
        let staging = Staging::begin(self, name)?;
        let (stored, placed_sha256) = way.place(&staging, source, &file, kind, progress)?;
        let ready = match placed_sha256 {
            // A .gz that stays as it is: hashed in the pass that inflates it, while it is copied.
            None => prepare::prepare_while_copying(&staging, source, &file, kind, options.placement, progress)?,
            Some(sha256) => prepare::prepare(&stored, kind, sha256, progress)?,
        };
        self.publish(staging, kind, source, ready)
    }

    /// Takes a file in as it is, with nothing prepared for composing.
    pub fn add_base(
        &self,
        name: &BaseName,
        kind: BaseKind,
        source: &Path,
        placement: Placement,
    ) -> Result<BaseRecord, ImageError> {
        let staging = Staging::begin(self, name)?;
        let file = open_source(source)?;
        let (_, sha256) = Way::Place(placement).place(&staging, source, &file, BaseKind::Raw, &mut |_, _| {})?;
        let sha256 = sha256.unwrap_or_default();
        self.publish(staging, kind, source, Ready { sha256, shared: Vec::new(), prepared: Vec::new() })
    }

    fn publish(&self, staging: Staging, kind: BaseKind, source: &Path, ready: Ready) -> Result<BaseRecord, ImageError> {
        let Ready { sha256, shared, prepared } = ready;
        let stored = staging.path("image");
        let file = File::open(&stored).and_then(|file| FileRecord::of(&file)).map_err(cannot_read(&stored))?;
        if !shared.is_empty() {
            replace_file(&staging.path("shared"), &[&shared])?;
        }
        replace_file(&staging.path("prepared"), &[&prepared])?;
        // Images refer to the base and to what all hosts share: another import with the same of both fits them, too.
        let mut identity = Sha256::new();
        identity.update(sha256.as_bytes());
        identity.update(&shared);
        let record = BaseRecord::new(kind, file, sha256, identity.finish(), source.display().to_string());
        staging.publish(&record)?;
        Ok(record)
    }
}

/// How the file becomes the stored one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Place(Placement),
    Inflate,
    Deflate,
    Repack,
}

/// Decides what is stored.
fn decide_way(format: Format, options: ImportOptions) -> Result<(BaseKind, Way), ImageError> {
    let plain = match format.content {
        Content::RawDisk => BaseKind::Raw,
        Content::Qcow2 => BaseKind::Qcow2,
        Content::Iso => BaseKind::LiveIso,
        Content::Initrd => BaseKind::Initrd,
    };
    let packed = match format.content {
        Content::RawDisk => Some(BaseKind::RawGz),
        Content::Qcow2 => Some(BaseKind::Qcow2Gz),
        // Machines boot from these: a boot loader does not unpack them.
        Content::Iso | Content::Initrd => None,
    };
    let as_it_is = Way::Place(options.placement);
    let decision = match (options.form, format.compression, packed) {
        (Form::Gzip, _, None) => {
            return Err(ImageError::refused(
                "--gzip",
                format!("a machine cannot boot from a compressed {}", format.content.name()),
                "leave it out",
            ));
        }
        (Form::Plain | Form::AsItCame, Compression::None, _) => (plain, as_it_is),
        (Form::AsItCame | Form::Gzip, Compression::Gzip, Some(packed)) => (packed, as_it_is),
        (Form::Gzip, Compression::None, Some(packed)) => (packed, Way::Deflate),
        (Form::Gzip, _, Some(packed)) => (packed, Way::Repack),
        (Form::Plain | Form::AsItCame, _, _) => (plain, Way::Inflate),
    };
    match (options.placement, decision.1) {
        (Placement::Link, Way::Inflate | Way::Deflate | Way::Repack) => {
            Err(ImageError::refused("--link", "the image is stored in another form than it came in", "leave it out"))
        }
        _ => Ok(decision),
    }
}

impl Way {
    /// Puts the image into the folder. Gives its sha256, unless it is a .gz that stays as it is.
    fn place(
        self,
        staging: &Staging,
        source: &Path,
        file: &ImageFile,
        kind: BaseKind,
        progress: Progress<'_>,
    ) -> Result<(PathBuf, Option<String>), ImageError> {
        let path = staging.path("image");
        let gz = matches!(kind, BaseKind::Qcow2Gz | BaseKind::RawGz);
        let total = file.len();
        let mut input = Counted { inner: Sequential::new(file), done: 0, total, progress };
        let sha256 = match self {
            Way::Place(_) if gz => return Ok((path, None)),
            Way::Place(Placement::Link) => {
                link(source, &path)?;
                copy(&mut input, io::sink(), source, &path)?
            }
            Way::Place(Placement::Copy) => copy_and_sync(&mut input, staging.create("image")?, source, &path)?,
            Way::Inflate => {
                let decoder = Decoder::new(input).map_err(cannot_read(source))?;
                copy_and_sync(decoder, staging.create("image")?, source, &path)?
            }
            Way::Deflate => deflate(input, staging.create("image")?, source, &path)?,
            Way::Repack => {
                let decoder = Decoder::new(input).map_err(cannot_read(source))?;
                deflate(decoder, staging.create("image")?, source, &path)?
            }
        };
        Ok((path, Some(sha256)))
    }
}

/// Counts what is read.
struct Counted<'p, R> {
    inner: R,
    done: u64,
    total: u64,
    progress: Progress<'p>,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.done += read as u64;
        (self.progress)(self.done, self.total);
        Ok(read)
    }
}

pub(super) fn link(source: &Path, path: &Path) -> Result<(), ImageError> {
    fs::hard_link(source, path).map_err(|error| match error.kind() {
        io::ErrorKind::CrossesDevices => ImageError::refused(
            "--link",
            format!("`{}` lies on another file system than the store", source.display()),
            "leave --link out, and the image is copied",
        ),
        _ => cannot_write(path)(error),
    })
}

fn copy(mut input: impl Read, mut output: impl Write, source: &Path, path: &Path) -> Result<String, ImageError> {
    let mut sum = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let read = input.read(&mut buffer).map_err(cannot_read(source))?;
        if read == 0 {
            return Ok(sum.finish());
        }
        sum.update(&buffer[..read]);
        output.write_all(&buffer[..read]).map_err(cannot_write(path))?;
    }
}

fn copy_and_sync(input: impl Read, output: File, source: &Path, path: &Path) -> Result<String, ImageError> {
    let mut holes = Holes { file: &output, length: 0 };
    let sum = copy(input, &mut holes, source, path)?;
    let length = holes.length;
    output.set_len(length).and_then(|()| output.sync_all()).map_err(cannot_write(path))?;
    Ok(sum)
}

/// Leaves out zeros, so that ten gigabytes of an empty disk take no room, and stops where no CoreOS image goes on.
struct Holes<'f> {
    file: &'f File,
    length: u64,
}

impl Write for Holes<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.length > INFLATED_LIMIT {
            return Err(io::Error::other(format!("the image inflates to more than {INFLATED_LIMIT} bytes")));
        }
        let bytes = &bytes[..bytes.len().min(64 << 10)];
        if bytes.iter().any(|&byte| byte != 0) {
            self.file.write_all_at(bytes, self.length)?;
        }
        self.length += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Compresses, and hashes what comes out.
fn deflate(input: impl Read, output: File, source: &Path, path: &Path) -> Result<String, ImageError> {
    struct Hashed<'f>(&'f File, Sha256);
    impl Write for Hashed<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let written = self.0.write(bytes)?;
            self.1.update(&bytes[..written]);
            Ok(written)
        }
        fn flush(&mut self) -> io::Result<()> {
            self.0.flush()
        }
    }
    let mut encoder = flate2::write::GzEncoder::new(Hashed(&output, Sha256::new()), flate2::Compression::default());
    copy(input, &mut encoder, source, path)?;
    let hashed = encoder.finish().map_err(cannot_write(path))?;
    output.sync_all().map_err(cannot_write(path))?;
    Ok(hashed.1.finish())
}

fn open_source(source: &Path) -> Result<ImageFile, ImageError> {
    File::open(source).and_then(ImageFile::new).map_err(cannot_read(source))
}

pub(super) fn cannot_read(path: &Path) -> impl FnOnce(io::Error) -> ImageError {
    ImageError::read(format!("`{}`", path.display()))
}
