//! Damaged and hostile images: an answer or a clear error, never a panic, never a long run.

use std::io::Read;

use kiln_image::ext4::{Ext4, FileKind};
use kiln_image::{ImageError, Patch, Patched, ReadAt};

use super::features::EXT2;
use super::oracle::{Scratch, debugfs_write, have_e2fsprogs};
use super::tree::{self, sample};

#[test]
fn corrupted_and_truncated_images_are_answered() {
    if !have_e2fsprogs("corrupted_and_truncated_images_are_answered") {
        return;
    }
    let scratch = Scratch::new();
    let folder = scratch.folder.join("start");
    tree::write(&sample(40), &folder);
    let mut found = (0, 0);
    for options in [&["-b", "1024"] as &[&str], &["-b", "1024", "-O", "^metadata_csum,^uninit_bg"], EXT2] {
        let image = scratch.mke2fs(3 << 20, options, Some(&folder));
        let bytes = std::fs::read(&image).unwrap();
        let used: Vec<usize> = (0..bytes.len() / 1024)
            .filter(|block| bytes[block * 1024..][..1024].iter().any(|byte| *byte != 0))
            .collect();
        let mut random = Random(7);
        for _ in 0..1200 {
            let mut patch = Patch::new();
            for _ in 0..1 + random.below(6) {
                let block = used[random.below(used.len())] * 1024;
                let value = [0, 1, 0xFF, 0x7F, random.below(256) as u8][random.below(5)];
                let length = 1 + random.below(4);
                // The first bytes of a block matter most.
                let within = if random.below(2) == 0 { random.below(128) } else { random.below(1020) };
                patch.write((block + within) as u64, &vec![value; length]);
            }
            let damaged = Patched::with(&bytes, patch);
            match exercise(&damaged) {
                Ok(()) => found.0 += 1,
                Err(_) => found.1 += 1,
            }
        }
        for length in (0..bytes.len()).step_by(37_000) {
            exercise(&bytes[..length]).unwrap_err();
        }
    }
    assert!(found.0 > 100 && found.1 > 100, "fine and damaged: {found:?}");
}

#[test]
fn a_superblock_of_countless_groups_costs_neither_memory_nor_time() {
    if !have_e2fsprogs("a_superblock_of_countless_groups_costs_neither_memory_nor_time") {
        return;
    }
    let scratch = Scratch::new();
    let image = scratch.mke2fs(64 << 20, &["-b", "1024", "-O", "^metadata_csum,^uninit_bg"], None);
    let bytes = std::fs::read(&image).unwrap();
    let number = |at: usize| u32::from_le_bytes(bytes[1024 + at..1028 + at].try_into().unwrap());
    let groups = (number(4) - 1).div_ceil(8);
    let mut patch = Patch::new();
    patch.write(1024, &(groups * number(0x28)).to_le_bytes());
    patch.write(1024 + 0x20, &8u32.to_le_bytes());
    let problem = Ext4::open(Patched::with(&bytes, patch)).map(|fs| fs.label()).unwrap_err().to_string();
    let expected = "ext4 superblock: 8192 groups are more than the boot partition of a CoreOS has; give an image as it was downloaded";
    assert_eq!(problem, expected);
}

/// Reads all there is to read, and edits a little.
fn exercise<D: ReadAt + ?Sized>(disk: &D) -> Result<(), ImageError> {
    let fs = Ext4::open(disk)?;
    let mut waiting = vec![String::new()];
    let mut left = 500;
    while let Some(folder) = waiting.pop() {
        for entry in fs.read_dir(&folder)? {
            let path = format!("{folder}/{}", entry.text());
            left -= 1;
            match entry.metadata.kind {
                _ if left < 0 => return Ok(()),
                FileKind::Directory => waiting.push(path),
                FileKind::Symlink => drop(fs.read_link(&path)?),
                FileKind::File => {
                    let mut bytes = Vec::new();
                    let mut file = fs.open_file(&path)?.take(1 << 20);
                    file.read_to_end(&mut bytes).map_err(ImageError::read("file"))?;
                }
                FileKind::Special => {}
            }
        }
    }
    let mut editor = Ext4::edit(disk, 1_700_000_000)?;
    editor.create_dir("new", 0o755)?;
    editor.write_file("new/file", &[1; 5000], 0o600)?;
    editor.write_file("grub2/grub.cfg", &[2; 9000], 0o600)?;
    editor.append_file("ostree/abc/initramfs", &[3; 3000])?;
    editor.remove_file("loader/entries/a.conf")?;
    editor.remove_dir_all("many")?;
    editor.finish().map(drop)
}

#[test]
fn an_edit_that_met_damage_midway_cannot_be_finished() {
    if !have_e2fsprogs("an_edit_that_met_damage_midway_cannot_be_finished") {
        return;
    }
    let scratch = Scratch::new();
    let folder = scratch.folder.join("start");
    tree::write(&sample(40), &folder);
    let image = scratch.mke2fs(4 << 20, &["-b", "1024", "-O", "^metadata_csum,^uninit_bg"], Some(&folder));
    // Two files in the same blocks: when one of them is gone, the blocks of the other are free.
    debugfs_write(&image, "copy_inode /grub2/grub.cfg /loader.0/entries/a.conf");
    let mut editor = Ext4::edit(scratch.disk(&image), 0).unwrap();
    editor.remove_file("grub2/grub.cfg").unwrap();
    let message = editor.write_file("loader/entries/a.conf", b"new", 0o644).unwrap_err().to_string();
    assert!(message.ends_with(" is damaged: a file uses it, but it is marked as free"), "{message}");
    let message = editor.write_file("other", b"new", 0o644).unwrap_err().to_string();
    assert!(message.contains("an edit of it failed midway"), "{message}");
    let message = editor.finish().unwrap_err().to_string();
    assert!(message.contains("an edit of it failed midway"), "{message}");
}

#[test]
fn links_in_circles_end() {
    if !have_e2fsprogs("links_in_circles_end") {
        return;
    }
    let scratch = Scratch::new();
    let folder = scratch.folder.join("start");
    std::fs::create_dir_all(&folder).unwrap();
    std::os::unix::fs::symlink("b", folder.join("a")).unwrap();
    std::os::unix::fs::symlink("/a/c", folder.join("b")).unwrap();
    let image = scratch.mke2fs(4 << 20, &[], Some(&folder));
    let message = Ext4::open(scratch.disk(&image)).unwrap().metadata("a").unwrap_err().to_string();
    assert!(message.contains("it leads through more than 16 symbolic links"), "{message}");
}

/// xorshift
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % bound
    }
}
