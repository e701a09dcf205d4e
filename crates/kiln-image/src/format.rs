//! What kind of image a file is, judged by its content alone: names lie.
//!
//! [`recognise`] reads some kilobytes, inflating them where needed, and promises nothing about the rest. What Kiln cannot
//! work with is refused by its own name and with the way out.
//!
//! A hybrid ISO carries a partition table too and is an ISO; an initrd is cpio archives, compressed or not, so a compressed
//! archive is an initrd and not a compressed one.

use std::io::{self, Read};

use serde::Serialize;

use crate::compression::{Compression, Decoder};
use crate::read_at::Sequential;
use crate::{ImageError, ReadAt};

/// What is in an image file, compressed or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Content {
    /// A disk with a GUID partition table.
    RawDisk,
    /// A disk in QEMU's format.
    Qcow2,
    /// An ISO 9660 file system, of CoreOS or not.
    Iso,
    /// An initrd for PXE.
    Initrd,
}

impl Content {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Content::RawDisk => "raw disk",
            Content::Qcow2 => "qcow2 disk",
            Content::Iso => "ISO",
            Content::Initrd => "PXE initrd",
        }
    }
}

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format {
    /// What is in it.
    pub content: Content,
    /// What is around it: nothing, gzip, xz or zstd.
    pub compression: Compression,
}

/// How much of the content is looked at: the first descriptor of an ISO is the farthest.
const LOOKED_AT: u64 = 36 << 10;
const PART: &str = "image";

/// Judges a file.
pub fn recognise(file: &impl ReadAt) -> Result<Format, ImageError> {
    if file.is_empty() {
        return Err(ImageError::refused(PART, "the file is empty", "download or copy it again"));
    }
    let first = file.read_vec(0, file.len().min(6) as usize).map_err(ImageError::read(PART))?;
    let compression = Compression::sniff(&first);
    let start = match compression {
        Compression::None => start_of(Sequential::new(file)),
        Compression::Gzip | Compression::Xz | Compression::Zstd => {
            Decoder::new(Sequential::new(file)).and_then(start_of)
        }
        Compression::Lz4 | Compression::Lzo | Compression::Bzip2 | Compression::Lzma => {
            return Err(ImageError::refused(
                PART,
                format!("Kiln does not read {}", compression.name()),
                "compress it with gzip, xz or zstd, or not at all",
            ));
        }
    };
    let start = start.map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => ImageError::damaged(PART, error.to_string()),
        _ => ImageError::Read { what: PART.to_owned(), source: error },
    })?;
    match classify(&start)? {
        Content::Initrd => Ok(Format { content: Content::Initrd, compression: Compression::None }),
        content => Ok(Format { content, compression }),
    }
}

fn start_of(source: impl Read) -> io::Result<Vec<u8>> {
    let mut start = Vec::new();
    source.take(LOOKED_AT).read_to_end(&mut start)?;
    Ok(start)
}

fn classify(start: &[u8]) -> Result<Content, ImageError> {
    let at = |offset: usize, magic: &[u8]| start.get(offset..).is_some_and(|bytes| bytes.starts_with(magic));
    if at(0, b"QFI\xfb") {
        Ok(Content::Qcow2)
    } else if at(0x8001, b"CD001") {
        Ok(Content::Iso)
    } else if at(0, b"07070") {
        Ok(Content::Initrd)
    } else if at(512, b"EFI PART") || at(4096, b"EFI PART") {
        Ok(Content::RawDisk)
    } else {
        Err(unknown(start, at))
    }
}

/// What else people hand over.
fn unknown(start: &[u8], at: impl Fn(usize, &[u8]) -> bool) -> ImageError {
    const CONVERT: &str = "convert it first: `qemu-img convert -O qcow2 IMAGE NEW`";
    let refused = |problem: &str, fix: &str| ImageError::refused(PART, problem, fix);
    if start.is_empty() {
        refused("the compressed file has no content", "download or copy it again")
    } else if at(0, b"KDMV") || at(0, b"# Disk DescriptorFile") {
        refused("this is a VMDK", CONVERT)
    } else if at(0, b"vhdxfile") || at(0, b"conectix") {
        refused("this is a VHD", CONVERT)
    } else if at(0x40, b"\x7f\x10\xda\xbe") {
        refused("this is a VDI", CONVERT)
    } else if at(257, b"ustar") {
        refused("this is a tar archive", "unpack it and give the image in it")
    } else if at(0, b"PK\x03\x04") {
        refused("this is a zip archive", "unpack it and give the image in it")
    } else if at(0, b"hsqs") {
        refused("this is a squashfs root file system", "give the live ISO or the PXE initrd it belongs to")
    } else if at(0x438, b"\x53\xef") {
        refused("this is an ext4 file system without a disk around it", "give the whole disk image")
    } else if Compression::sniff(start) != Compression::None {
        refused("it is compressed twice", "decompress it once")
    } else if at(510, &[0x55, 0xaa]) {
        refused("this disk has no GUID partition table, so it is no CoreOS", "give a CoreOS image")
    } else {
        refused(
            "this is neither a raw disk, a qcow2, an ISO nor an initrd",
            "give a CoreOS image as it was downloaded: .raw, .qcow2, .iso or initrd.img, also as .gz, .xz or .zst",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(offset: usize, magic: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 40 << 10];
        bytes[offset..offset + magic.len()].copy_from_slice(magic);
        bytes
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        io::Write::write_all(&mut encoder, bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn images_are_known_by_their_content() {
        let mut hybrid = with(0x8001, b"CD001");
        hybrid[512..520].copy_from_slice(b"EFI PART");
        let files = [
            (with(512, b"EFI PART"), Content::RawDisk, Compression::None),
            (with(4096, b"EFI PART"), Content::RawDisk, Compression::None),
            (gzip(&with(512, b"EFI PART")), Content::RawDisk, Compression::Gzip),
            (with(0, b"QFI\xfb"), Content::Qcow2, Compression::None),
            (gzip(&with(0, b"QFI\xfb")), Content::Qcow2, Compression::Gzip),
            (hybrid, Content::Iso, Compression::None),
            (with(0, b"070701"), Content::Initrd, Compression::None),
            (gzip(&with(0, b"070701")), Content::Initrd, Compression::None),
        ];
        for (file, content, compression) in files {
            assert_eq!(recognise(&file).unwrap(), Format { content, compression });
        }
    }

    #[test]
    fn everything_else_is_refused_by_its_name() {
        let files: [(Vec<u8>, &str); 9] = [
            (Vec::new(), "image: the file is empty; download or copy it again"),
            (gzip(b""), "image: the compressed file has no content; download or copy it again"),
            (with(0, b"KDMV"), "image: this is a VMDK; convert it first: `qemu-img convert -O qcow2 IMAGE NEW`"),
            (with(257, b"ustar"), "image: this is a tar archive; unpack it and give the image in it"),
            (
                with(0x438, b"\x53\xef"),
                "image: this is an ext4 file system without a disk around it; give the whole disk image",
            ),
            (gzip(&gzip(b"a")), "image: it is compressed twice; decompress it once"),
            (b"BZh91AY".to_vec(), "image: Kiln does not read bzip2; compress it with gzip, xz or zstd, or not at all"),
            (
                b"{}".to_vec(),
                "image: this is neither a raw disk, a qcow2, an ISO nor an initrd; give a CoreOS image as it was downloaded: \
                 .raw, .qcow2, .iso or initrd.img, also as .gz, .xz or .zst",
            ),
            (gzip(b"abc")[..15].to_vec(), "image is damaged: the gzip data ends too early: the file was cut off"),
        ];
        for (file, expected) in files {
            assert_eq!(recognise(&file).unwrap_err().to_string(), expected);
        }
    }
}
