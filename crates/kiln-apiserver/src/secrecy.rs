//! Objects that must not be readable in a copied database: keys, and bytes sealed with AES-256-GCM.
//!
//! Two keys: the *data key* is random, seals objects and is stored in the database, itself sealed under the *outer key*,
//! which never is in the database: it comes from a key file or, through PBKDF2, from a passphrase. A wrong outer key is
//! recognised because the data key does not open. What is sealed is bound to its collection, namespace and name: moved
//! to another row it does not open either.
//!
//! Protects a copy of the database or of a backup that was taken without the key. Does not protect from somebody who
//! reads the key file, the process's memory or the API with an administrator's identity.

use std::fs;
use std::io::{self, Read, Write};
use std::num::NonZeroU32;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::pbkdf2;
use ring::rand::{SecureRandom, SystemRandom};

/// What begins sealed bytes; JSON begins with a brace.
const MARK: u8 = 1;
/// Rounds of PBKDF2-HMAC-SHA256 for a new passphrase.
pub(crate) const ROUNDS: u32 = 600_000;
/// More are not believed: a damaged number must not keep the server from starting for hours.
const MOST_ROUNDS: u32 = 20_000_000;
/// Bytes of a passphrase at least.
const SHORTEST_PASSPHRASE: usize = 12;
/// Bytes of a key file or passphrase file at most.
const LARGEST_FILE: u64 = 4096;

/// What is sealed, and with what.
#[derive(Debug, Clone)]
pub struct Secrecy {
    /// The collections whose objects are sealed, for example `secrets`.
    pub collections: Vec<String>,
    /// Where the outer key comes from.
    pub unlock: Unlock,
    /// The one before: what is still sealed with it is sealed anew.
    pub previous: Option<Unlock>,
}

/// Where an outer key comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unlock {
    /// 32 bytes in base64.
    KeyFile {
        /// The file.
        path: PathBuf,
        /// Whether to make it where nothing is sealed yet.
        make: bool,
    },
    /// A passphrase, without the end of its line.
    PassphraseFile {
        /// The file.
        path: PathBuf,
    },
}

impl Unlock {
    /// The file.
    pub fn path(&self) -> &Path {
        match self {
            Unlock::KeyFile { path, .. } | Unlock::PassphraseFile { path } => path,
        }
    }
}

/// Why sealed objects stay closed.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The database is sealed and nobody said with what.
    #[error("the database holds sealed objects: name its key file or passphrase file")]
    Needed,
    /// The file is not there, though the database was sealed with one.
    #[error("the key of the database is missing: `{}` cannot be read; bring it back, sealed objects cannot be read without it", path.display())]
    Missing {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file cannot be written.
    #[error("cannot write the key file `{}`", path.display())]
    Write {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Others may read the file.
    #[error("`{}` has mode {mode:04o}: others may read it; chmod 0600 it first", path.display())]
    Mode {
        /// Which file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The file is not what it should be.
    #[error("`{}` is not {expected}", path.display())]
    Format {
        /// Which file.
        path: PathBuf,
        /// What it should be.
        expected: &'static str,
    },
    /// The key is that of another database, or an old one.
    #[error("`{}` is not the key of this database: name the right one, or the old one as the previous key to change keys", path.display())]
    Wrong {
        /// Which file.
        path: PathBuf,
    },
    /// The system has no random numbers.
    #[error("the system gives no random numbers")]
    Random,
}

/// A key. Never printed.
#[derive(Clone)]
pub(crate) struct Key32([u8; 32]);

impl Key32 {
    pub(crate) fn random() -> Result<Key32, KeyError> {
        random().map(Key32)
    }

    fn cipher(&self) -> Option<LessSafeKey> {
        UnboundKey::new(&AES_256_GCM, &self.0).ok().map(LessSafeKey::new)
    }
}

impl std::fmt::Debug for Key32 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("…")
    }
}

pub(crate) fn random<const N: usize>() -> Result<[u8; N], KeyError> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| KeyError::Random)?;
    Ok(bytes)
}

/// How the outer key is made, as the database remembers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Derivation {
    /// Empty for key files.
    pub(crate) salt: Vec<u8>,
    /// 0 for key files.
    pub(crate) rounds: u32,
}

impl Derivation {
    /// For a database that is sealed now.
    pub(crate) fn new(unlock: &Unlock) -> Result<Derivation, KeyError> {
        Ok(match unlock {
            Unlock::KeyFile { .. } => Derivation { salt: Vec::new(), rounds: 0 },
            Unlock::PassphraseFile { .. } => Derivation { salt: random::<16>()?.to_vec(), rounds: ROUNDS },
        })
    }
}

/// Reads the outer key. None: the file is of the other sort than what the database was sealed with.
pub(crate) fn read_outer_key(unlock: &Unlock, derivation: &Derivation) -> Result<Option<Key32>, KeyError> {
    let text = read_private(unlock.path())?;
    match (unlock, NonZeroU32::new(derivation.rounds)) {
        (Unlock::KeyFile { path, .. }, None) => {
            let expected = "32 bytes in base64, as written by `head -c 32 /dev/urandom | base64`";
            let wrong = || KeyError::Format { path: path.clone(), expected };
            let bytes = STANDARD.decode(text.trim_ascii()).map_err(|_| wrong())?;
            Ok(Some(Key32(bytes.try_into().map_err(|_| wrong())?)))
        }
        (Unlock::PassphraseFile { path }, Some(rounds)) => {
            let passphrase = text.trim_ascii_end();
            if passphrase.len() < SHORTEST_PASSPHRASE {
                let expected = "a passphrase of at least 12 bytes";
                return Err(KeyError::Format { path: path.clone(), expected });
            }
            if rounds.get() > MOST_ROUNDS {
                return Ok(None);
            }
            let mut key = [0; 32];
            pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, rounds, &derivation.salt, passphrase, &mut key);
            Ok(Some(Key32(key)))
        }
        _ => Ok(None),
    }
}

/// Makes the key file unless it is there.
pub(crate) fn make_key_file(path: &Path) -> Result<(), KeyError> {
    let failed = |source| KeyError::Write { path: path.to_owned(), source };
    let mut file = match fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        other => other.map_err(failed)?,
    };
    let text = format!("{}\n", STANDARD.encode(random::<32>()?));
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // The name must be on the disk before anything is sealed with the key.
    fs::File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)
}

fn read_private(path: &Path) -> Result<Vec<u8>, KeyError> {
    let missing = |source| KeyError::Missing { path: path.to_owned(), source };
    let file = fs::File::open(path).map_err(missing)?;
    let mode = file.metadata().map_err(missing)?.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(KeyError::Mode { path: path.to_owned(), mode });
    }
    let mut bytes = Vec::new();
    file.take(LARGEST_FILE).read_to_end(&mut bytes).map_err(missing)?;
    Ok(bytes)
}

/// Seals and opens under one key.
#[derive(Debug)]
pub(crate) struct Sealer {
    cipher: LessSafeKey,
    collections: Vec<String>,
}

impl Sealer {
    pub(crate) fn new(key: &Key32, collections: &[String]) -> Result<Sealer, KeyError> {
        let cipher = key.cipher().ok_or(KeyError::Random)?;
        Ok(Sealer { cipher, collections: collections.to_vec() })
    }

    pub(crate) fn collections(&self) -> &[String] {
        &self.collections
    }

    /// Whether objects of this collection are sealed.
    pub(crate) fn seals(&self, collection: &str) -> bool {
        self.collections.iter().any(|known| known == collection)
    }

    /// Nonces are random: one key is good for billions of seals, and a rotation makes a new one.
    pub(crate) fn seal(&self, place: [&str; 3], plain: &[u8]) -> Result<Vec<u8>, KeyError> {
        seal(&self.cipher, &bound_to(place), plain)
    }

    /// None when the bytes were changed, moved, or sealed under another key.
    pub(crate) fn open(&self, place: [&str; 3], sealed: &[u8]) -> Option<Vec<u8>> {
        open(&self.cipher, &bound_to(place), sealed)
    }
}

/// Whether these bytes are sealed.
pub(crate) fn is_sealed(bytes: &[u8]) -> bool {
    bytes.first() == Some(&MARK)
}

/// The data key sealed under the outer key.
pub(crate) fn wrap(outer: &Key32, data: &Key32) -> Result<Vec<u8>, KeyError> {
    seal(&outer.cipher().ok_or(KeyError::Random)?, b"kiln data key", &data.0)
}

/// None when the outer key is another one.
pub(crate) fn unwrap(outer: &Key32, wrapped: &[u8]) -> Option<Key32> {
    open(&outer.cipher()?, b"kiln data key", wrapped)?.try_into().ok().map(Key32)
}

/// Names have no NUL in them, so no two places read the same.
fn bound_to(place: [&str; 3]) -> Vec<u8> {
    place.join("\0").into_bytes()
}

fn seal(cipher: &LessSafeKey, bound: &[u8], plain: &[u8]) -> Result<Vec<u8>, KeyError> {
    let nonce = random::<NONCE_LEN>()?;
    let mut sealed = Vec::with_capacity(1 + NONCE_LEN + plain.len() + AES_256_GCM.tag_len());
    sealed.extend_from_slice(plain);
    cipher
        .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(bound), &mut sealed)
        .map_err(|_| KeyError::Random)?;
    sealed.splice(0..0, std::iter::once(MARK).chain(nonce));
    Ok(sealed)
}

fn open(cipher: &LessSafeKey, bound: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
    let (&MARK, rest) = sealed.split_first()? else { return None };
    let (nonce, text) = rest.split_at_checked(NONCE_LEN)?;
    let mut text = text.to_vec();
    let plain =
        cipher.open_in_place(Nonce::try_assume_unique_for_key(nonce).ok()?, Aad::from(bound), &mut text).ok()?;
    Some(plain.to_vec())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use proptest::prelude::*;

    use super::*;
    use crate::testing::TempDir;

    fn sealer() -> Sealer {
        Sealer::new(&Key32([7; 32]), &["secrets".into()]).unwrap()
    }

    #[test]
    fn sealed_bytes_open_in_their_own_place_only() {
        let sealed = sealer().seal(["secrets", "a", "b"], b"hunter2").unwrap();
        assert!(is_sealed(&sealed) && !sealed.windows(7).any(|window| window == b"hunter2"));
        assert_eq!(sealer().open(["secrets", "a", "b"], &sealed).unwrap(), b"hunter2");
        for place in [["secrets", "a", "c"], ["secrets", "c", "b"], ["others", "a", "b"], ["secrets", "", "ab"]] {
            assert_eq!(sealer().open(place, &sealed), None, "{place:?}");
        }
        let other = Sealer::new(&Key32([8; 32]), &[]).unwrap();
        assert_eq!(other.open(["secrets", "a", "b"], &sealed), None);
        assert_ne!(sealed, sealer().seal(["secrets", "a", "b"], b"hunter2").unwrap(), "nonces differ");
    }

    #[test]
    fn a_data_key_opens_with_its_outer_key_only() {
        let (outer, data) = (Key32([1; 32]), Key32([2; 32]));
        let wrapped = wrap(&outer, &data).unwrap();
        assert_eq!(unwrap(&outer, &wrapped).unwrap().0, data.0);
        assert!(unwrap(&data, &wrapped).is_none());
        assert_eq!(format!("{outer:?}"), "…");
    }

    #[test]
    fn key_files_are_private_and_whole() {
        let folder = TempDir::new("key");
        let path = folder.path().join("key");
        let unlock = Unlock::KeyFile { path: path.clone(), make: true };
        let derivation = Derivation::new(&unlock).unwrap();
        let read = || read_outer_key(&unlock, &derivation).map(|key| key.unwrap().0).map_err(|error| error.to_string());
        let end = |text: Result<[u8; 32], String>| text.unwrap_err().replace(&path.display().to_string(), "F");
        assert!(end(read()).starts_with("the key of the database is missing: `F` cannot be read"));
        make_key_file(&path).unwrap();
        let first = read().unwrap();
        make_key_file(&path).unwrap();
        assert_eq!(read().unwrap(), first, "a key is never overwritten");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(end(read()), "`F` has mode 0640: others may read it; chmod 0600 it first");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "c2hvcnQ=\n").unwrap();
        assert!(end(read()).starts_with("`F` is not 32 bytes in base64"));
    }

    #[test]
    fn a_passphrase_gives_the_same_key_with_the_same_salt() {
        let folder = TempDir::new("passphrase");
        let path = folder.path().join("passphrase");
        fs::write(&path, "correct horse battery\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
        let unlock = Unlock::PassphraseFile { path };
        let with = |salt: &[u8]| {
            read_outer_key(&unlock, &Derivation { salt: salt.to_vec(), rounds: 1000 }).unwrap().unwrap().0
        };
        assert_eq!(with(b"salt"), with(b"salt"));
        assert_ne!(with(b"salt"), with(b"pepper"));
        let of_a_key_file = Derivation { salt: Vec::new(), rounds: 0 };
        assert!(read_outer_key(&unlock, &of_a_key_file).unwrap().is_none());
    }

    proptest! {
        #[test]
        fn no_bytes_make_opening_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = sealer().open(["secrets", "a", "b"], &bytes);
        }
    }
}
