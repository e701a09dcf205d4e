//! Edits of a boot partition: network files, Ignition config, kernel arguments.
//!
//! [`plan_edit`] returns a [`Patch`] of the disk and writes nothing. It replaces what it is told to replace and keeps the
//! rest, so that the same edit of the same disk gives the same bytes. An edit that would have no effect at the first boot
//! is refused rather than made.
//!
//! What is taken out ([`Part::Remove`]) is wiped: its blocks become zeros. What is replaced is not, because the record of
//! the original would have to hold it all the same.

use super::{
    BootFacts, CopyNetwork, ENTRIES, FIRSTBOOT, IGNITION_DIR, IGNITION_FILE, KnownInitramfs, NETWORK_DIR, Places,
    SMALL, firstboot, layout, probe_boot, probe_files,
};
use crate::cpio::File;
use crate::ext4::{Editor, Ext4};
use crate::initrd::appended::{append_member, find_appended};
use crate::initrd::{self};
use crate::{Carried, Customization, ImageError, NamedFile, Patch, ReadAt, Window};

/// All files get this time (2020-01-01): the same edit must give the same bytes.
const TIMESTAMP: u32 = 1_577_836_800;
/// What directories, block maps and rounding may take beside the files themselves.
const SPACE_ASIDE: u64 = 64 << 10;

/// What becomes of one part of the boot partition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Part<T> {
    /// It stays as it is.
    #[default]
    Keep,
    /// It is taken out.
    Remove,
    /// It is replaced by this.
    Put(T),
}

/// What becomes of a boot partition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BootEdit {
    /// Network files.
    pub network: Part<Vec<NamedFile>>,
    /// The Ignition config.
    pub ignition: Part<Vec<u8>>,
    /// Kernel arguments to add to every entry.
    pub append_kargs: Vec<String>,
    /// Kernel arguments to take out of every entry.
    pub delete_kargs: Vec<String>,
    /// Arguments of the first boot: these are added, or all are taken out.
    pub firstboot_kargs: Part<Vec<String>>,
}

impl BootEdit {
    /// Puts what is wanted; what is not mentioned stays.
    pub fn put(wish: &Customization) -> BootEdit {
        let Customization { network, ignition, append_kargs, delete_kargs, firstboot_kargs } = wish;
        BootEdit {
            network: if network.is_empty() { Part::Keep } else { Part::Put(network.clone()) },
            ignition: ignition.clone().map_or(Part::Keep, Part::Put),
            append_kargs: append_kargs.clone(),
            delete_kargs: delete_kargs.clone(),
            firstboot_kargs: if firstboot_kargs.is_empty() { Part::Keep } else { Part::Put(firstboot_kargs.clone()) },
        }
    }

    /// Takes out everything that can be recognised: network files, Ignition config, arguments of the first boot.
    pub fn remove_all() -> BootEdit {
        BootEdit { network: Part::Remove, ignition: Part::Remove, firstboot_kargs: Part::Remove, ..BootEdit::default() }
    }

    /// Takes out the network files alone.
    pub fn remove_network() -> BootEdit {
        BootEdit { network: Part::Remove, ..BootEdit::default() }
    }
}

/// What an edit comes to.
#[derive(Debug, Clone, Default)]
pub struct Edited {
    /// Over the disk.
    pub patch: Patch,
    /// What the user should know about the result.
    pub notes: Vec<String>,
    /// What is in the edited disk, what it replaced included: the record of the original holds that.
    pub carries: Carried,
    /// What was taken out.
    pub removed: Carried,
}

/// Puts a customisation into a disk.
///
/// `known` is what [`KnownInitramfs::probe`] said about this disk before; without it the initramfs is asked when it matters.
pub fn plan_customization(
    disk: &impl ReadAt,
    wish: &Customization,
    known: Option<KnownInitramfs>,
) -> Result<Edited, ImageError> {
    wish.check()?;
    plan_edit(disk, &BootEdit::put(wish), known)
}

/// Decides what an edit of the boot partition changes on the disk.
pub fn plan_edit(disk: &impl ReadAt, edit: &BootEdit, known: Option<KnownInitramfs>) -> Result<Edited, ImageError> {
    let places = Places::find(disk)?;
    let fs = Ext4::open(places.window(disk)?)?;
    let facts = match known {
        Some(KnownInitramfs { has_network: false, .. }) => probe_files(&fs)?,
        _ => probe_boot(&fs)?,
    };
    refuse_what_nobody_would_read(&facts, edit)?;
    let mut plan = Planner { editor: Ext4::edit(places.window(disk)?, TIMESTAMP)?, facts, notes: Vec::new() };
    if edit.network == Part::Remove || edit.ignition == Part::Remove {
        plan.editor.wipe_freed();
    }
    match &edit.network {
        Part::Keep => plan.tell_kept_network(edit),
        Part::Remove => plan.remove_network()?,
        Part::Put(files) => {
            let layout = known.map_or_else(|| layout::probe(disk), |known| Ok(known.looks_in))?;
            plan.put_network(files, layout)?;
        }
    }
    plan.ignition(&edit.ignition)?;
    plan.kargs(&edit.append_kargs, &edit.delete_kargs)?;
    plan.firstboot(&edit.firstboot_kargs)?;
    let Planner { editor, notes, facts } = plan;
    let (carries, removed) = carried(&facts, edit);
    Ok(Edited { patch: editor.finish()?.shifted(places.boot.start), notes, carries, removed })
}

/// What the edited disk holds, and what it holds no more.
fn carried(facts: &BootFacts, edit: &BootEdit) -> (Carried, Carried) {
    let (mut carries, mut removed) = (Carried::default(), Carried::default());
    let of_network = if edit.network == Part::Remove { &mut removed } else { &mut carries };
    of_network.network = facts.all_network();
    let of_ignition = if edit.ignition == Part::Remove { &mut removed } else { &mut carries };
    of_ignition.config = facts.ignition.is_some();
    if let Part::Put(files) = &edit.network {
        carries.network.extend_from_slice(files);
    }
    carries.config |= matches!(edit.ignition, Part::Put(_));
    (carries, removed)
}

/// Without `ignition.firstboot` a boot is not the first one, and everything for the first one is skipped in silence.
fn refuse_what_nobody_would_read(facts: &BootFacts, edit: &BootEdit) -> Result<(), ImageError> {
    let puts = matches!(edit.network, Part::Put(_))
        || matches!(edit.ignition, Part::Put(_))
        || matches!(edit.firstboot_kargs, Part::Put(_));
    if puts && facts.firstboot.is_none() {
        return Err(ImageError::refused(
            "boot partition",
            "`/ignition.firstboot` is missing: this image was booted before, and network files and Ignition config would be \
             ignored without a word",
            "take the image as it was downloaded",
        ));
    }
    Ok(())
}

struct Planner<D> {
    editor: Editor<Window<D>>,
    facts: BootFacts,
    notes: Vec<String>,
}

impl<D: ReadAt> Planner<D> {
    /// Files that somebody else put there and that the edit does not speak of.
    fn tell_kept_network(&mut self, edit: &BootEdit) {
        let files = self.facts.all_network();
        if !files.is_empty() && *edit != BootEdit::default() {
            let names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
            self.notes.push(format!(
                "the image has network files that Kiln did not put there ({}); they stay",
                names.join(", ")
            ));
        }
    }

    fn put_network(&mut self, files: &[NamedFile], layout: CopyNetwork) -> Result<(), ImageError> {
        self.remove_network()?;
        let bytes = files.iter().map(|file| file.bytes.len() as u64).sum();
        self.check_space("network files", bytes)?;
        if layout != CopyNetwork::Initramfs {
            // Like coreos-installer: the folder is open, the files are not.
            self.editor.create_dir(NETWORK_DIR, 0o755)?;
            for file in files {
                self.editor.write_file(format!("{NETWORK_DIR}/{}", file.name), &file.bytes, 0o600)?;
            }
        }
        if layout != CopyNetwork::BootPartition {
            self.append_to_initramfs(files)?;
        }
        if layout == CopyNetwork::Unknown {
            self.notes.push(
                "the image's initramfs has no copy-network script that Kiln knows; the network files were put both on the \
                 boot partition and into the initramfs"
                    .to_owned(),
            );
        }
        Ok(())
    }

    fn append_to_initramfs(&mut self, files: &[NamedFile]) -> Result<(), ImageError> {
        let files: Vec<File> = files
            .iter()
            .map(|file| File::private(format!("{}{}", initrd::NETWORK_DIR, file.name), file.bytes.clone()))
            .collect();
        for path in self.facts.initramfs_paths() {
            let length = self.editor.metadata(&path)?.size;
            let member = append_member(length, &files)?;
            self.check_space("network files in the initramfs", member.len() as u64)?;
            self.editor.append_file(&path, &member)?;
        }
        Ok(())
    }

    fn remove_network(&mut self) -> Result<(), ImageError> {
        if self.editor.exists(NETWORK_DIR)? {
            self.editor.remove_dir_all(NETWORK_DIR)?;
        }
        if self.facts.initramfs_network.is_empty() {
            return Ok(());
        }
        for path in self.facts.initramfs_paths() {
            self.strip_initramfs(&path)?;
        }
        Ok(())
    }

    /// Cuts the network files off an initramfs that were appended to it.
    fn strip_initramfs(&mut self, path: &str) -> Result<(), ImageError> {
        let initramfs = self.editor.open_file(path)?;
        let Some(first) = find_appended(&initramfs)?.into_iter().find(|member| !member.embedded.network.is_empty())
        else {
            return Ok(());
        };
        self.editor.truncate_file(path, first.range.start)
    }

    fn ignition(&mut self, part: &Part<Vec<u8>>) -> Result<(), ImageError> {
        match part {
            Part::Keep => {
                if self.facts.ignition.is_some() {
                    self.notes
                        .push("the image has an Ignition config that Kiln did not put there; it stays".to_owned());
                }
            }
            Part::Remove => {
                if self.editor.exists(IGNITION_DIR)? {
                    self.editor.remove_dir_all(IGNITION_DIR)?;
                }
            }
            Part::Put(config) if self.facts.ignition.as_ref() == Some(config) => {}
            Part::Put(config) => {
                self.check_space("Ignition config", config.len() as u64)?;
                // Ignition configs hold secrets: only root may look (CVE-2021-3917).
                self.editor.create_dir(IGNITION_DIR, 0o700)?;
                self.editor.write_file(IGNITION_FILE, config, 0o600)?;
            }
        }
        Ok(())
    }

    fn kargs(&mut self, append: &[String], delete: &[String]) -> Result<(), ImageError> {
        if append.is_empty() && delete.is_empty() {
            return Ok(());
        }
        let entries = self.facts.entries.clone();
        let edited: Vec<_> =
            entries.iter().map(|(name, entry)| (name, entry, entry.edit_kargs(append, delete))).collect();
        for karg in delete {
            if edited.iter().all(|(_, _, edited)| edited.absent.contains(karg)) {
                let present = entries.last().map(|(_, entry)| entry.kargs().join(" ")).unwrap_or_default();
                return Err(ImageError::refused(
                    format!("kernel argument `{karg}`"),
                    format!("no boot entry has it (they have: {present})"),
                    "give one that is there, with its value",
                ));
            }
        }
        for karg in append {
            if edited.iter().any(|(_, _, edited)| edited.present.contains(karg)) {
                self.notes.push(format!("kernel argument `{karg}` was there already; it was not added again"));
            }
        }
        for (name, _, edited) in &edited {
            let path = format!("{ENTRIES}/{name}");
            if self.editor.read_file(&path, SMALL)? != edited.text.as_bytes() {
                let mode = self.editor.metadata(&path)?.mode;
                self.editor.write_file(&path, edited.text.as_bytes(), mode)?;
            }
        }
        Ok(())
    }

    fn firstboot(&mut self, part: &Part<Vec<String>>) -> Result<(), ImageError> {
        let Some(there) = self.facts.firstboot.clone() else { return Ok(()) };
        let kargs = match part {
            Part::Keep => return Ok(()),
            Part::Remove => Vec::new(),
            Part::Put(more) => {
                let mut kargs = there.clone();
                kargs.extend(more.iter().filter(|karg| !there.contains(karg)).cloned());
                kargs
            }
        };
        if kargs == there {
            return Ok(());
        }
        let mode = self.editor.metadata(FIRSTBOOT)?.mode;
        let text = self.editor.read_file(FIRSTBOOT, SMALL)?;
        let text = String::from_utf8(text).map_err(|_| ImageError::damaged(FIRSTBOOT, "it is not text (UTF-8)"))?;
        self.editor.write_file(FIRSTBOOT, firstboot::with_kargs(&text, &kargs).as_bytes(), mode)
    }

    fn check_space(&self, what: &str, bytes: u64) -> Result<(), ImageError> {
        let free = self.editor.free_bytes();
        if free < bytes.saturating_add(SPACE_ASIDE) {
            return Err(ImageError::refused(
                "boot partition",
                format!("it has {free} bytes free, too few for {bytes} bytes of {what}"),
                "make them smaller; a large Ignition config can be replaced by a pointer: `kiln ignition pointer`",
            ));
        }
        Ok(())
    }
}
