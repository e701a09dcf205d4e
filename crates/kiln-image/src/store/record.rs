//! The JSON of the store: what was imported, and of which pieces an image is made.
//!
//! Unknown fields are refused by the `format` number, not one by one: a store of a newer Kiln says so.

use std::ops::Range;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::key::{hex, parse_hex};
use crate::error::ImageError;

/// The number that changes when an older Kiln could not read the store any more.
const FORMAT: u32 = 1;

/// What a base is, and so how hosts' images are made of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BaseKind {
    /// A deflated qcow2: a host adds a tail.
    Qcow2Gz,
    /// A plain qcow2: a host adds a tail.
    Qcow2,
    /// A deflated raw disk: a host's blocks are spliced into the middle.
    RawGz,
    /// A plain raw disk: a host's blocks lie over it.
    Raw,
    /// A live ISO: a host's embed areas lie over it.
    LiveIso,
    /// An initrd for PXE: a host adds a member.
    Initrd,
}

impl BaseKind {
    /// How a file of this kind is called.
    pub fn extension(self) -> &'static str {
        match self {
            BaseKind::Qcow2Gz => ".qcow2.gz",
            BaseKind::Qcow2 => ".qcow2",
            BaseKind::RawGz => ".raw.gz",
            BaseKind::Raw => ".raw",
            BaseKind::LiveIso => ".iso",
            BaseKind::Initrd => ".img",
        }
    }

    /// What a file of this name is.
    pub fn of_file_name(name: &str) -> Option<BaseKind> {
        // Longer extensions first.
        let kinds = [Self::Qcow2Gz, Self::RawGz, Self::Qcow2, Self::Raw, Self::LiveIso, Self::Initrd];
        kinds.into_iter().find(|kind| name.ends_with(kind.extension()))
    }

    /// Its media type.
    pub fn content_type(self) -> &'static str {
        match self {
            BaseKind::Qcow2Gz | BaseKind::RawGz => "application/gzip",
            BaseKind::Qcow2 | BaseKind::Raw | BaseKind::LiveIso | BaseKind::Initrd => "application/octet-stream",
        }
    }
}

/// `bases/NAME/base.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BaseRecord {
    format: u32,
    /// What it is.
    pub kind: BaseKind,
    /// The stored file.
    pub file: FileRecord,
    /// sha256 of the stored file, in hexadecimal digits.
    pub sha256: String,
    /// Names this import: images of another one do not fit.
    pub identity: String,
    /// Where the image came from: the path that was given, for people.
    pub source: String,
}

/// How a file looked when its contents were known. A linked base can be changed by its owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    /// Its length in bytes.
    pub length: u64,
    /// When it was last written: seconds and nanoseconds since 1970.
    pub modified: (i64, i64),
}

/// The first line of `hosts/HOST/BASE.image`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ImageRecord {
    format: u32,
    /// The import it belongs to.
    pub base_identity: String,
    /// How many bytes the image has.
    pub size: u64,
    /// sha256 of the image in hexadecimal digits, unless nobody has read it through yet.
    pub sha256: Option<String>,
    /// The strong entity tag: the sha256 of the image, or of what the image is made of.
    pub etag: String,
    /// Whether somebody's secret is in it, so that its URL must be signed.
    pub confidential: bool,
    /// What follows what.
    pub pieces: Vec<Piece>,
}

/// A stretch of an image: which bytes of which file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece(pub PieceOf, pub u64, pub u64);

/// The file a piece lies in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum PieceOf {
    /// The imported file.
    Base = 0,
    /// What all hosts of the base share.
    Shared = 1,
    /// The host's own bytes.
    Own = 2,
}

impl Piece {
    /// Which bytes of its file.
    pub fn range(&self) -> Range<u64> {
        self.1..self.2
    }
}

impl BaseRecord {
    /// A record of today's format.
    pub fn new(kind: BaseKind, file: FileRecord, sha256: String, identity: String, source: String) -> Self {
        BaseRecord { format: FORMAT, kind, file, sha256, identity, source }
    }
}

impl ImageRecord {
    /// A record of today's format.
    pub fn new(
        base_identity: String,
        pieces: Vec<Piece>,
        sha256: Option<[u8; 32]>,
        etag: String,
        confidential: bool,
    ) -> Self {
        let size = pieces.iter().map(|piece| piece.2 - piece.1).sum();
        ImageRecord {
            format: FORMAT,
            base_identity,
            size,
            sha256: sha256.map(|sum| hex(&sum)),
            etag,
            confidential,
            pieces,
        }
    }
}

/// A sha256 from its hexadecimal digits.
pub(super) fn parse_sha256(text: &str) -> Option<[u8; 32]> {
    parse_hex(text)?.try_into().ok()
}

/// Reads a record, whose format must be today's.
pub(super) fn parse_json<T: DeserializeOwned>(what: &str, bytes: &[u8]) -> Result<T, ImageError> {
    #[derive(Deserialize)]
    struct Version {
        format: u32,
    }
    let damaged = |error: serde_json::Error| ImageError::damaged(what, error.to_string());
    let version: Version = serde_json::from_slice(bytes).map_err(damaged)?;
    if version.format != FORMAT {
        return Err(ImageError::refused(
            what,
            format!("it has format {}, this Kiln knows format {FORMAT}", version.format),
            "use the Kiln that wrote it, or import and compose again into a new store",
        ));
    }
    serde_json::from_slice(bytes).map_err(damaged)
}
