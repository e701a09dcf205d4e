//! The folders of a first boot, read as `kiln-firstboot` reads them on the machine.

use std::path::Path;

use kiln_core::boot::folder::NetworkFile;
use kiln_core::boot::teardown::RealRoot;
use kiln_firstboot::folder;

use super::super::output::Failure;

/// The parts of a root file system that decide about propagation.
pub fn read_real_root(root: &Path) -> Result<RealRoot, Failure> {
    require_folder(root)?;
    folder::read_real_root(root).map_err(Failure::refused)
}

/// Every entry of a folder, sorted by name.
pub fn read_folder(folder: &Path) -> Result<Vec<NetworkFile>, Failure> {
    require_folder(folder)?;
    // On the machine `cp` fails at such a link; here somebody can mend it.
    let entries = std::fs::read_dir(folder)?.flatten();
    if let Some(link) = entries.map(|entry| entry.path()).find(|path| !path.exists()) {
        return Err(Failure::refused(anyhow::anyhow!("`{}` is a link that leads nowhere; remove it", link.display())));
    }
    folder::read_folder(folder).map_err(Failure::refused)
}

/// On a machine a folder may be missing; one that somebody names must be there.
fn require_folder(folder: &Path) -> Result<(), Failure> {
    if folder.is_dir() {
        return Ok(());
    }
    Err(Failure::refused(anyhow::anyhow!("`{}` is not a folder", folder.display())))
}
