//! Image files as commands take them: recognised by content, inflated where they cannot be edited as they are.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use anyhow::{Context, anyhow};
use kiln_image::compression::{Compression, Decoder};
use kiln_image::format::{Content, Format, recognise};
use kiln_image::read_at::{ImageFile, Sequential};
use kiln_image::{ImageError, ReadAt};

use super::super::output::Failure;
use super::output_file::unnamed_file;
use super::progress::Progress;

/// No CoreOS image is larger; a file that claims to be is a trap for the disk it is inflated to.
const INFLATED_LIMIT: u64 = 1 << 40;

/// An image that can be worked with.
pub struct OpenImage {
    /// The file, or what it inflated to.
    pub file: ImageFile,
    /// What [`OpenImage::file`] is.
    pub format: Format,
    /// How the file that was named is compressed.
    pub compression: Compression,
}

/// What is done with images that are compressed with gzip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gzip {
    /// They are worked with as they are.
    Keep,
    /// They are inflated first, like all others.
    Inflate,
}

/// Opens an image. What must be inflated goes to a nameless file in the folder.
pub fn open(path: &Path, folder: &Path, gzip: Gzip) -> Result<OpenImage, Failure> {
    let shown = path.display();
    let file = File::open(path).with_context(|| format!("cannot read `{shown}`")).map_err(Failure::Refused)?;
    if file.metadata().with_context(|| format!("cannot read `{shown}`"))?.is_dir() {
        return Err(Failure::refused(anyhow!("`{shown}` is a folder; give an image file")));
    }
    let file = ImageFile::new(file).with_context(|| format!("cannot read `{shown}`"))?;
    let format = recognise(&file).map_err(|error| failure(error, format!("`{shown}` cannot be used")))?;
    let stays = match format.compression {
        Compression::None => true,
        Compression::Gzip => gzip == Gzip::Keep && format.content != Content::Iso,
        _ => false,
    };
    if stays {
        return Ok(OpenImage { file, format, compression: format.compression });
    }
    let inflated = inflate(&file, folder).map_err(|error| match error {
        Inflating::Image(error) => failure(error, format!("`{shown}` cannot be inflated")),
        Inflating::Folder(error) => Failure::Failed(
            anyhow!(error).context(format!("cannot inflate `{shown}` into the folder `{}`", folder.display())),
        ),
    })?;
    let plain = Format { compression: Compression::None, ..format };
    Ok(OpenImage { file: inflated, format: plain, compression: format.compression })
}

/// An error of the image's, which is the user's to repair, or of the machine's.
pub fn failure(error: ImageError, context: String) -> Failure {
    match &error {
        ImageError::Read { .. } | ImageError::Write { .. } => Failure::Failed(anyhow!(error).context(context)),
        ImageError::Damaged { .. } | ImageError::Refused { .. } => Failure::Refused(anyhow!(error).context(context)),
    }
}

enum Inflating {
    Image(ImageError),
    Folder(std::io::Error),
}

/// Zeros stay holes, so that ten gigabytes of an empty disk take no room.
fn inflate(file: &ImageFile, folder: &Path) -> Result<ImageFile, Inflating> {
    let cannot_read = |error: std::io::Error| {
        Inflating::Image(match error.kind() {
            std::io::ErrorKind::InvalidData | std::io::ErrorKind::UnexpectedEof => {
                ImageError::damaged("image", error.to_string())
            }
            _ => ImageError::Read { what: "image".to_owned(), source: error },
        })
    };
    let mut target = super::sparse::SparseFile::new(unnamed_file(folder).map_err(Inflating::Folder)?);
    let mut progress = Progress::new("inflating", file.len());
    let counted = Counted { inner: Sequential::new(file), progress: &mut progress };
    let mut decoder = Decoder::new(counted).map_err(cannot_read)?;
    let mut buffer = vec![0; 1 << 20];
    loop {
        let count = decoder.read(&mut buffer).map_err(cannot_read)?;
        if count == 0 {
            break;
        }
        target.write_all(&buffer[..count]).map_err(Inflating::Folder)?;
        if target.position() > INFLATED_LIMIT {
            let problem = format!("it inflates to more than {INFLATED_LIMIT} bytes");
            return Err(Inflating::Image(ImageError::refused("image", problem, "give a CoreOS image")));
        }
    }
    target.finish().and_then(ImageFile::new).map_err(Inflating::Folder)
}

/// Tells the bar how much of the compressed file was read.
struct Counted<'a, R> {
    inner: R,
    progress: &'a mut Progress,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.progress.advance(count as u64);
        Ok(count)
    }
}
