//! Any bytes put over a small filesystem: reading and editing it end, and an edit that succeeds reads back.
//!
//! The first byte chooses the image: with checksums, so that they guard every structure, or without, so that damage
//! reaches what is behind them. Then follow pieces: two bytes of offset, one of length, the bytes.
//!
//! The images in `fuzz/images` were made with `mke2fs -t ext4 -b 1024 -I 256 -N 96 -O ^has_journal,^resize_inode,…` from a
//! folder as `/boot` is laid out, 256 KiB, and given a hashed directory by `e2fsck -fyD`.
#![no_main]

use std::io::Read;
use std::sync::LazyLock;

use kiln_image::compression::Decoder;
use kiln_image::ext4::{Ext4, FileKind};
use kiln_image::{ImageError, Patch, Patched, ReadAt};

static CHECKSUMS: LazyLock<Vec<u8>> = LazyLock::new(|| inflate(include_bytes!("../images/ext4-checksums.img.gz")));
static PLAIN: LazyLock<Vec<u8>> = LazyLock::new(|| inflate(include_bytes!("../images/ext4-plain.img.gz")));

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Some((choice, mut left)) = input.split_first() else { return };
    let image: &[u8] = if choice & 1 == 0 { &CHECKSUMS } else { &PLAIN };
    let mut patch = Patch::new();
    while let [low, high, length, rest @ ..] = left {
        // Offsets in units of four bytes reach the whole image; few fields are smaller.
        let offset = usize::from(u16::from_le_bytes([*low, *high])) * 4;
        let length = usize::from(*length).min(rest.len()).min(image.len() - offset);
        patch.write(offset as u64, &rest[..length]);
        left = &rest[length..];
    }
    let disk = Patched::with(image, patch);
    let _ = read(&disk);
    let _ = edit(&disk);
});

fn read<D: ReadAt>(disk: D) -> Result<(), ImageError> {
    let fs = Ext4::open(disk)?;
    let mut waiting = vec![Vec::new()];
    let mut left = 200;
    while let Some(folder) = waiting.pop() {
        for entry in fs.read_dir(&folder)? {
            let path = [&folder, b"/".as_slice(), &entry.name].concat();
            left -= 1;
            match entry.metadata.kind {
                _ if left < 0 => return Ok(()),
                FileKind::Directory => waiting.push(path),
                FileKind::Symlink => drop(fs.read_link(&path)?),
                FileKind::File => {
                    let mut bytes = Vec::new();
                    let file = fs.open_file(&path)?;
                    let _ = file.take(1 << 20).read_to_end(&mut bytes);
                }
                FileKind::Special => {}
            }
        }
    }
    Ok(())
}

fn edit<D: ReadAt>(disk: D) -> Result<(), ImageError> {
    let mut editor = Ext4::edit(&disk, 1_700_000_000)?;
    editor.create_dir("new", 0o755)?;
    editor.write_file("new/file", &[1; 5000], 0o600)?;
    editor.write_file("many/new", &[2; 10], 0o600)?;
    editor.append_file("grub2/grub.cfg", &[3; 3000])?;
    let _ = editor.remove_file("loader/entries/a.conf");
    let _ = editor.remove_dir_all("grub2");
    let patch = editor.finish()?;
    // A hostile image may share blocks among files, so only what the structure promises is asked for.
    Ext4::open(Patched::with(&disk, patch))?.metadata("new/file")?;
    Ok(())
}

fn inflate(image: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    Decoder::new(image).and_then(|mut decoder| decoder.read_to_end(&mut bytes)).expect("the image is in order");
    bytes
}
