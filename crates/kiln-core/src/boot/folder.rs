//! A folder of network files as the boot scripts and NetworkManager see it.
//!
//! The scripts count and copy files without looking into them; NetworkManager loads only what passes its own rules.
//! The distance between the two is what makes a file that is never loaded stop the network of a machine.

use crate::keyfile::{ConnectionFile, Keyfile, KeyfileError};
use crate::network::profile::{Profile, Refusal};

/// One entry of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkFile {
    /// Name within the folder.
    pub name: String,
    /// Permission bits.
    pub mode: u32,
    /// What is there.
    pub content: Content,
}

/// What an entry of a folder is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// A file whose bytes are known.
    Bytes(Vec<u8>),
    /// A keyfile that was read or made before.
    Profile(Keyfile),
    /// A file that Ignition fetches from this URL at boot.
    Remote(String),
    /// A folder.
    Directory,
}

/// Which of NetworkManager's folders a file lies in; they differ in what they accept as a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Folder {
    /// `/run/NetworkManager/system-connections`.
    Run,
    /// `/etc/NetworkManager/system-connections`.
    Etc,
}

/// Why NetworkManager does not load a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotLoaded {
    /// The folder accepts only one ending.
    #[error("below /run only files ending in .nmconnection are loaded")]
    Ending,
    /// Not a keyfile.
    #[error("it is not a keyfile: {0}")]
    Text(#[from] KeyfileError),
    /// It does not read it, or what it reads is no profile.
    #[error("{0}")]
    Refused(Refusal),
    /// A folder.
    #[error("it is a folder")]
    Directory,
    /// Nobody knows yet what will be in it.
    #[error("its contents come from {0} at boot and are not known here")]
    Remote(String),
}

impl NetworkFile {
    /// The profile NetworkManager would load from it, or why it would not.
    pub fn load(&self, folder: Folder) -> Result<ConnectionFile, NotLoaded> {
        let file = self.parse()?;
        match Profile::refusal(&file) {
            _ if folder == Folder::Run && !self.name.ends_with(".nmconnection") => Err(NotLoaded::Ending),
            Some(refusal) => Err(NotLoaded::Refused(refusal)),
            None => Ok(file),
        }
    }

    /// The profile that is written in it, whether or not NetworkManager would load it.
    pub fn parse(&self) -> Result<ConnectionFile, NotLoaded> {
        let keyfile = match &self.content {
            Content::Directory => return Err(NotLoaded::Directory),
            Content::Remote(url) => return Err(NotLoaded::Remote(url.clone())),
            Content::Bytes(bytes) => Keyfile::parse_bytes(bytes)?,
            Content::Profile(keyfile) => keyfile.clone(),
        };
        Ok(ConnectionFile { name: self.name.clone(), mode: self.mode, keyfile })
    }

    /// The bytes of the file; none for a folder, and for what is only fetched at boot.
    pub fn bytes(&self) -> Option<Vec<u8>> {
        match &self.content {
            Content::Bytes(bytes) => Some(bytes.clone()),
            Content::Profile(keyfile) => Some(keyfile.render().into_bytes()),
            Content::Remote(_) | Content::Directory => None,
        }
    }

    /// Whether the shell's `*` leaves it out.
    pub fn is_hidden(&self) -> bool {
        self.name.starts_with('.')
    }
}

impl From<&ConnectionFile> for NetworkFile {
    fn from(file: &ConnectionFile) -> Self {
        let ConnectionFile { name, mode, keyfile } = file;
        NetworkFile { name: name.clone(), mode: *mode, content: Content::Profile(keyfile.clone()) }
    }
}
