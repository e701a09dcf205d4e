//! `hosts/HOST/BASE.sha256`: the sha256 of an image that was composed without one, found out later.
//!
//! It lies in a file of its own, so that whoever took the sum cannot put an old image over a new one; the entity tag in it
//! says of which image it is.

use std::fs;
use std::path::PathBuf;

use super::record::parse_sha256;
use super::{BaseName, HostName, Store, read_if_there, write};
use crate::digest::hex;
use crate::error::ImageError;

impl Store {
    /// Remembers the sha256 of a host's image. `etag` is the tag of the image that was read.
    pub fn remember_sha256(
        &self,
        host: &HostName,
        base: &BaseName,
        etag: &str,
        sha256: &[u8; 32],
    ) -> Result<(), ImageError> {
        let line = format!("{etag} {}\n", hex(sha256));
        let path = self.sum_path(host, base);
        write::replace_file(&path, &[line.as_bytes()])?;
        if self.image(host, base)?.is_none() {
            // The image was forgotten meanwhile, and whoever forgot it may not have seen this file.
            let _ = fs::remove_file(&path);
            let _ = fs::remove_dir(self.host_folder(host));
        }
        Ok(())
    }

    /// What was remembered of the image with this tag. A file that says something else counts for nothing.
    pub(super) fn remembered_sha256(
        &self,
        host: &HostName,
        base: &BaseName,
        etag: &str,
    ) -> Result<Option<[u8; 32]>, ImageError> {
        let line = read_if_there(&self.sum_path(host, base))?;
        let text = line.and_then(|line| String::from_utf8(line).ok()).unwrap_or_default();
        Ok(text.trim_end().split_once(' ').filter(|(tag, _)| *tag == etag).and_then(|(_, sum)| parse_sha256(sum)))
    }

    pub(super) fn sum_path(&self, host: &HostName, base: &BaseName) -> PathBuf {
        self.host_folder(host).join(format!("{base}.sha256"))
    }
}
