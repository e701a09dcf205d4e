//! Why a first-boot step did not do its work.

use std::io;
use std::path::{Path, PathBuf};

/// Why nothing was done, or not all. Names the place, the cause and what to do.
#[derive(Debug, thiserror::Error)]
pub enum FirstbootError {
    /// A file or folder cannot be used.
    #[error("cannot {doing} `{}`: {cause}", path.display())]
    File {
        /// `read`, `write`, ….
        doing: &'static str,
        /// Which.
        path: PathBuf,
        /// What the kernel said.
        cause: io::Error,
    },
    /// `cp` stops here too.
    #[error("`{}` is a folder, and only files can be copied; the network of this boot is incomplete. Remove the folder from the image", path.display())]
    Folder {
        /// Which.
        path: PathBuf,
    },
    /// `cp` has nothing to copy then, and stops.
    #[error("`{}` has only hidden files, which are never copied; remove them or rename them to NAME.nmconnection", path.display())]
    OnlyHidden {
        /// The folder.
        path: PathBuf,
    },
    /// This is somebody's running system.
    #[error(
        "this is no initramfs (`{}` does not exist): it would take the network of a running machine away. Give a folder with --root DIR",
        path.display()
    )]
    NoInitramfs {
        /// What an initramfs has.
        path: PathBuf,
    },
    /// No file system of the kinds known was on the device.
    #[error("cannot mount the boot partition `{}`: {cause}", device.display())]
    Mount {
        /// The device.
        device: PathBuf,
        /// What the kernel said last.
        cause: io::Error,
    },
}

/// Says which file an error is about.
pub fn at(doing: &'static str, path: &Path) -> impl Fn(io::Error) -> FirstbootError {
    move |cause| FirstbootError::File { doing, path: path.to_owned(), cause }
}
