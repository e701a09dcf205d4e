//! Signed URLs: an image with secrets is given only to whoever got its address from `kiln image compose`.
//!
//! The signature covers the path and the time until which it holds, and is compared in constant time. The time comes
//! in as an argument: this file reads no clock.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::{cannot_write, read_if_there, write};
use crate::error::ImageError;

/// The store's secret. It prints as dots.
#[derive(Clone)]
pub struct UrlKey([u8; 32]);

impl std::fmt::Debug for UrlKey {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("UrlKey(…)")
    }
}

impl UrlKey {
    /// A key that is known already.
    pub fn new(bytes: [u8; 32]) -> Self {
        UrlKey(bytes)
    }

    /// The key of a store, made when there is none. Two processes that make it at once get the same one.
    pub(super) fn of_store(root: &Path) -> Result<Self, ImageError> {
        let path = root.join("key");
        if let Some(bytes) = read_if_there(&path)? {
            return Self::parse(&path, &bytes);
        }
        let mut bytes = [0; 32];
        File::open("/dev/urandom")
            .and_then(|mut source| source.read_exact(&mut bytes))
            .map_err(ImageError::read("`/dev/urandom`"))?;
        let unfinished = write::unfinished_beside(&path);
        write::replace_file(&unfinished, &[&bytes])?;
        // Unlike a rename, a link fails when another process was quicker.
        let linked = fs::hard_link(&unfinished, &path);
        let _ = fs::remove_file(&unfinished);
        match linked {
            Ok(()) => Ok(UrlKey(bytes)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Self::parse(&path, &fs::read(&path).map_err(ImageError::read(path.display().to_string()))?)
            }
            Err(error) => Err(cannot_write(&path)(error)),
        }
    }

    fn parse(path: &Path, bytes: &[u8]) -> Result<Self, ImageError> {
        bytes.try_into().map(UrlKey).map_err(|_| {
            ImageError::refused(
                format!("key `{}`", path.display()),
                format!("it has {} bytes instead of 32", bytes.len()),
                "remove it; the next command makes a new one, and URLs printed before stop working",
            )
        })
    }

    /// The signature of a path until a time (seconds since 1970), in hexadecimal digits.
    pub fn sign(&self, path: &str, expires: u64) -> String {
        hex(&self.mac(path, expires).finalize().into_bytes())
    }

    /// Whether the signature is the one of this path and time. Says nothing about whether that time is over.
    pub fn verify(&self, path: &str, expires: u64, signature: &str) -> bool {
        parse_hex(signature).is_some_and(|signature| self.mac(path, expires).verify_slice(&signature).is_ok())
    }

    fn mac(&self, path: &str, expires: u64) -> Hmac<Sha256> {
        // A key of the block's length is taken as it is, which is what `new_from_slice` does with zeros added.
        let mut block = [0; 64];
        block[..32].copy_from_slice(&self.0);
        let mut mac = Hmac::<Sha256>::new(&block.into());
        mac.update(path.as_bytes());
        mac.update(b"\n");
        mac.update(expires.to_string().as_bytes());
        mac
    }
}

/// Lower-case hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes from hexadecimal digits; at most 64 of them.
pub(super) fn parse_hex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || text.len() > 128 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_holds_for_its_path_and_time_only() {
        let key = UrlKey::new([7; 32]);
        let signature = key.sign("/images/n1/b.qcow2.gz", 1000);
        // printf '/images/n1/b.qcow2.gz\n1000' | openssl dgst -sha256 -mac HMAC -macopt hexkey:0707…07
        assert_eq!(signature, "74725cedc5cdc96f6503e6a21e5389167a96a3a2edb5965ebc21e5895ff51651");
        assert!(key.verify("/images/n1/b.qcow2.gz", 1000, &signature));
        assert!(key.verify("/images/n1/b.qcow2.gz", 1000, &signature.to_uppercase()));
        assert!(!key.verify("/images/n2/b.qcow2.gz", 1000, &signature));
        assert!(!key.verify("/images/n1/b.qcow2.gz", 1001, &signature));
        assert!(!key.verify("/images/n1/b.qcow2.gz", 1000, &signature[..62]));
        assert!(!key.verify("/images/n1/b.qcow2.gz", 1000, ""));
        assert!(!key.verify("/images/n1/b.qcow2.gz", 1000, "zz"));
        assert!(!UrlKey::new([8; 32]).verify("/images/n1/b.qcow2.gz", 1000, &signature));
        assert_eq!(format!("{key:?}"), "UrlKey(…)");
    }
}
