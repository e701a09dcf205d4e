//! The same edits on filesystems of many makes, and the refusals of those that cannot be edited.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use kiln_image::ImageError;
use kiln_image::ext4::{Editor, Ext4};
use kiln_image::read_at::ImageFile;
use kiln_testimage::run;

use super::oracle::{Scratch, debugfs, debugfs_write, e2fsck_is_clean, have_e2fsprogs};
use super::tree::{self, Node, Tree, assert_same, noise, sample};

/// What ext4 has and ext2 has not.
pub const EXT2: &[&str] =
    &["-b", "1024", "-O", "^has_journal,^extent,^huge_file,^flex_bg,^metadata_csum,^64bit,^dir_nlink,^extra_isize"];

/// Names, sizes in MiB and options of mke2fs.
pub const MAKES: [(&str, u64, &[&str]); 17] = [
    ("CoreOS", 384, &["-L", "boot", "-O", "metadata_csum_seed"]),
    ("CoreOS with small inodes", 384, &["-I", "128", "-O", "metadata_csum_seed"]),
    ("1 KiB blocks without a seed", 32, &["-b", "1024"]),
    ("2 KiB blocks", 32, &["-b", "2048", "-O", "metadata_csum_seed"]),
    ("4 KiB blocks", 64, &["-b", "4096"]),
    ("large inodes", 64, &["-b", "4096", "-I", "1024"]),
    ("32-bit descriptors", 64, &["-b", "1024", "-O", "^64bit"]),
    ("only descriptors have checksums", 64, &["-b", "1024", "-O", "^metadata_csum,uninit_bg"]),
    ("64-bit, only descriptors have checksums", 64, &["-b", "1024", "-O", "64bit,^metadata_csum,uninit_bg"]),
    ("no checksums", 64, &["-b", "1024", "-O", "^metadata_csum,^uninit_bg"]),
    ("no journal", 32, &["-O", "^has_journal"]),
    ("orphan file and verity", 64, &["-b", "4096", "-O", "orphan_file,verity,metadata_csum_seed"]),
    ("no kinds in directories", 32, &["-O", "^filetype"]),
    ("each group has its own tables", 64, &["-b", "1024", "-O", "^flex_bg,^resize_inode"]),
    ("descriptors spread", 64, &["-b", "1024", "-O", "meta_bg,^resize_inode"]),
    ("64 KiB blocks", 64, &["-b", "65536"]),
    ("small", 4, &["-b", "1024"]),
];

#[test]
fn every_make_of_ext4_stays_clean_and_holds_what_was_written() {
    if !have_e2fsprogs("every_make_of_ext4_stays_clean_and_holds_what_was_written") {
        return;
    }
    let scratch = Scratch::new();
    let folder = scratch.folder.join("start");
    let start = sample(300);
    tree::write(&start, &folder);
    for (name, size, options) in MAKES {
        let image = scratch.mke2fs(size << 20, options, Some(&folder));
        assert_same(&start, &tree::read_ext4(&Ext4::open(scratch.disk(&image)).unwrap()), name);
        let mut model = start.clone();
        let mut editor = Ext4::edit(scratch.disk(&image), 1_700_000_000).unwrap();
        edit(&mut editor, &mut model);
        assert_same(&model, &tree::read_ext4(&editor), name);
        let patch = editor.finish().unwrap();
        let mut again = Ext4::edit(scratch.disk(&image), 1_700_000_000).unwrap();
        edit(&mut again, &mut start.clone());
        assert!(again.finish().unwrap() == patch, "{name}: the same edit gave other bytes");
        scratch.apply(&image, &patch);
        e2fsck_is_clean(&image, name);
        judge_by_debugfs(&scratch, &image, &model, name);
        let stat = String::from_utf8(debugfs(&image, "stat /coreos-firstboot-network/eth0.nmconnection")).unwrap();
        assert!(stat.contains("Type: regular    Mode:  0600"), "{name}: {stat}");
        assert!(stat.contains("User:     0   Group:     0"), "{name}: {stat}");
        std::fs::remove_file(image).unwrap();
    }
}

/// What customising an image does, and a little of everything else.
fn edit(editor: &mut Editor<ImageFile>, model: &mut Tree) {
    editor.create_dir("/coreos-firstboot-network", 0o755).unwrap();
    model.insert("coreos-firstboot-network".into(), Node::Directory);
    for name in ["eth0", "bond0", "vlan"] {
        let path = format!("coreos-firstboot-network/{name}.nmconnection");
        editor.write_file(&path, name.repeat(70).as_bytes(), 0o600).unwrap();
        model.insert(path, Node::File(name.repeat(70).into()));
    }
    editor.write_file("/loader/entries/a.conf", &noise(9000), 0o644).unwrap();
    model.insert("loader.0/entries/a.conf".into(), Node::File(noise(9000)));
    let mut initramfs = noise(700_001);
    for length in [1, 3000, 400_000] {
        editor.append_file("ostree/abc/initramfs", &noise(length)).unwrap();
        initramfs.extend(noise(length));
    }
    model.insert("ostree/abc/initramfs".into(), Node::File(initramfs));
    let Some(Node::File(mut sparse)) = model.remove("sparse") else { panic!("no sparse file") };
    editor.append_file("sparse", b"the end").unwrap();
    sparse.extend(b"the end");
    model.insert("sparse".into(), Node::File(sparse));
    editor.remove_file("grub2/grub.cfg").unwrap();
    editor.remove_file("grub2/far").unwrap();
    editor.remove_dir_all("many").unwrap();
    model.retain(|path, _| !path.starts_with("grub2/") && !path.starts_with("many"));
    for number in 0..120 {
        let path = format!("empty/{number}-{}", "n".repeat(200));
        editor.write_file(&path, &[], 0o644).unwrap();
        model.insert(path, Node::File(Vec::new()));
    }
}

#[test]
fn what_is_removed_or_cut_off_is_wiped_when_asked_and_only_that() {
    if !have_e2fsprogs("what_is_removed_or_cut_off_is_wiped_when_asked_and_only_that") {
        return;
    }
    let scratch = Scratch::new();
    let folder = scratch.folder.join("start");
    let secret: &[u8] = b"psk=correct horse battery staple";
    let large = [noise(30_000), secret.to_vec(), noise(5_000)].concat();
    let start = Tree::from([
        ("d".to_owned(), Node::Directory),
        ("d/removed".to_owned(), Node::File(secret.repeat(300))),
        ("d/cut".to_owned(), Node::File(large.clone())),
        ("kept".to_owned(), Node::File(noise(100_000))),
    ]);
    tree::write(&start, &folder);
    for (name, size, options) in [MAKES[0], MAKES[4], MAKES[9]] {
        let base = scratch.mke2fs(size << 20, options, Some(&folder));
        for wipes in [false, true] {
            let image = scratch.copy(&base);
            let mut editor = Ext4::edit(scratch.disk(&image), 1_700_000_000).unwrap();
            if wipes {
                editor.wipe_freed();
            }
            editor.truncate_file("d/cut", 29_999).unwrap();
            editor.remove_file("d/removed").unwrap();
            // Some of the blocks are taken again, and keep what is in them now.
            editor.write_file("new", &noise(7_000), 0o600).unwrap();
            scratch.apply(&image, &editor.finish().unwrap());
            e2fsck_is_clean(&image, name);
            let model = Tree::from([
                ("d".to_owned(), Node::Directory),
                ("d/cut".to_owned(), Node::File(large[..29_999].to_vec())),
                ("kept".to_owned(), Node::File(noise(100_000))),
                ("new".to_owned(), Node::File(noise(7_000))),
            ]);
            judge_by_debugfs(&scratch, &image, &model, name);
            let bytes = std::fs::read(&image).unwrap();
            let found = bytes.windows(secret.len()).any(|window| window == secret);
            assert_eq!(found, !wipes, "{name}");
        }
    }
}

pub fn judge_by_debugfs(scratch: &Scratch, image: &Path, model: &Tree, what: &str) {
    let out = scratch.folder.join("rdump");
    std::fs::create_dir_all(&out).unwrap();
    debugfs(image, &format!("rdump / {}", out.display()));
    assert_same(model, &tree::read(&out).0, what);
    std::fs::remove_dir_all(out).unwrap();
}

#[test]
fn a_hashed_directory_takes_and_loses_names() {
    if !have_e2fsprogs("a_hashed_directory_takes_and_loses_names") {
        return;
    }
    let scratch = Scratch::new();
    let makes: [(usize, &[&str]); 3] =
        [(5000, &["-b", "1024"]), (1500, &["-b", "4096"]), (1500, &["-b", "1024", "-O", "^metadata_csum"])];
    for (count, options) in makes {
        let folder = scratch.folder.join(&format!("start-{}", options.len() * count));
        let start = sample(count);
        tree::write(&start, &folder);
        let options = [options, &["-N", "8192"]].concat();
        let image = scratch.mke2fs(64 << 20, &options, Some(&folder));
        // Only the kernel and `e2fsck -D` make hashed directories.
        let status = Command::new("/usr/sbin/e2fsck").args(["-fyD"]).arg(&image).output().unwrap().status;
        assert!(matches!(status.code(), Some(0 | 1)), "{status}");
        let flags = String::from_utf8(debugfs(&image, "stat /many")).unwrap();
        assert!(flags.contains("Flags: 0x81000"), "{flags}");
        let mut model = start.clone();
        let mut editor = Ext4::edit(scratch.disk(&image), 1_700_000_000).unwrap();
        let names: Vec<String> = editor.read_dir("many").unwrap().iter().map(|entry| entry.text()).collect();
        assert_eq!(names.len(), count);
        editor.remove_file("many/a-rather-long-file-name-01234").unwrap();
        model.remove("many/a-rather-long-file-name-01234");
        let removed = scratch.copy(&image);
        scratch.apply(&removed, &editor.finish().unwrap());
        e2fsck_is_clean(&removed, "a name less");
        let mut editor = Ext4::edit(scratch.disk(&removed), 1_700_000_000).unwrap();
        for number in 0..200 {
            let path = format!("many/{number}-{}", "n".repeat(200));
            editor.write_file(&path, b"new", 0o644).unwrap();
            model.insert(path, Node::File(b"new".to_vec()));
        }
        scratch.apply(&removed, &editor.finish().unwrap());
        e2fsck_is_clean(&removed, "names more");
        // Dumping thousands of files takes debugfs long; the names tell enough.
        let listed = String::from_utf8(debugfs(&removed, "ls -p /many")).unwrap();
        let listed = listed.lines().filter_map(|line| line.split('/').nth(5)).filter(|name| !name.starts_with('.'));
        let listed: BTreeSet<&str> = listed.collect();
        let expected: BTreeSet<&str> = model.keys().filter_map(|path| path.strip_prefix("many/")).collect();
        assert_eq!(listed, expected);
    }
}

#[test]
fn a_full_filesystem_says_how_much_is_missing_and_stays_as_it_was() {
    if !have_e2fsprogs("a_full_filesystem_says_how_much_is_missing_and_stays_as_it_was") {
        return;
    }
    let scratch = Scratch::new();
    let image = scratch.mke2fs(4 << 20, &["-b", "1024"], None);
    let mut editor = Ext4::edit(scratch.disk(&image), 1_700_000_000).unwrap();
    let free = editor.free_bytes();
    let message = editor.write_file("large", &vec![1; free as usize + 5000], 0o644).unwrap_err().to_string();
    assert_eq!(
        message,
        "ext4 filesystem: it is full: 5120 more bytes are needed than are free; remove files that are not needed, or \
         use an image with a larger boot partition"
    );
    assert!(editor.finish().unwrap().is_empty());
    let mut editor = Ext4::edit(scratch.disk(&image), 1_700_000_000).unwrap();
    editor.write_file("small", &[2; 3000], 0o644).unwrap();
    let left = editor.free_bytes() as usize;
    editor.write_file("filling", &vec![1; left], 0o644).unwrap();
    assert_eq!(editor.free_bytes(), 0);
    // A file that is replaced may use the blocks it has; one byte more than that is refused.
    editor.write_file("small", &[3; 3072], 0o644).unwrap();
    assert!(editor.write_file("small", &[3; 3073], 0o644).unwrap_err().to_string().contains("1024 more bytes"));
    assert!(editor.append_file("small", &[3]).unwrap_err().to_string().contains("1024 more bytes"));
    assert!(editor.create_dir("folder", 0o755).unwrap_err().to_string().contains("1024 more bytes"));
    editor.write_file("empty", &[], 0o644).unwrap();
    assert_eq!(editor.read_file("small", 4096).unwrap(), [3; 3072]);
    scratch.apply(&image, &editor.finish().unwrap());
    e2fsck_is_clean(&image, "full");
    let image = scratch.mke2fs(4 << 20, &["-b", "1024", "-N", "32"], None);
    let mut editor = Ext4::edit(scratch.disk(&image), 1_700_000_000).unwrap();
    // Eleven inodes are the filesystem's own.
    for number in 12..=32 {
        editor.write_file(format!("{number}"), &[], 0o644).unwrap();
    }
    let message = editor.write_file("33", &[], 0o644).unwrap_err().to_string();
    assert!(message.contains("all of its 32 inodes are in use"), "{message}");
    scratch.apply(&image, &editor.finish().unwrap());
    e2fsck_is_clean(&image, "no inode is left");
}

#[test]
fn what_cannot_be_edited_safely_is_refused() {
    if !have_e2fsprogs("what_cannot_be_edited_safely_is_refused") {
        return;
    }
    let scratch = Scratch::new();
    let cases: [(&[&str], &str, &str); 13] = [
        (&["-O", "bigalloc"], "", "its features bigalloc cannot"),
        (&["-O", "quota"], "", "its features quota cannot"),
        (&["-O", "quota,project"], "", "its features quota, project cannot"),
        (&["-O", "encrypt"], "", "its features encrypt cannot"),
        (&["-O", "casefold"], "", "its features casefold cannot"),
        (&["-O", "inline_data"], "", "its features inline_data cannot"),
        (&["-O", "mmp"], "", "its features mmp cannot"),
        (&["-O", "^extent,^64bit"], "", "it has no extents (ext2 or ext3)"),
        (&[], "feature +needs_recovery", "its journal holds changes"),
        (&[], "ssv state 2", "it is marked as not clean"),
        (&[], "ssv last_orphan 12", "deleted while open (orphans)"),
        (&["-O", "orphan_file"], "feature orphan_present", "deleted while open (orphans)"),
        (&[], "ssv feature_ro_compat 0x100000", "its features 0x100000 cannot"),
    ];
    for (options, change, expected) in cases {
        let image = scratch.mke2fs(64 << 20, options, None);
        if !change.is_empty() {
            debugfs_write(&image, change);
        }
        let message = Ext4::edit(scratch.disk(&image), 0).unwrap_err().to_string();
        assert!(message.contains(expected), "{options:?} {change}: {message}");
        let read = Ext4::open(scratch.disk(&image)).unwrap().read_dir("/");
        assert!(read.is_ok(), "{options:?} {change}: {read:?}");
    }
    let image = scratch.mke2fs(64 << 20, &[], None);
    debugfs_write(&image, "ssv feature_incompat 0x80000000");
    let message = Ext4::open(scratch.disk(&image)).unwrap_err().to_string();
    assert!(message.contains("its features 0x80000000 are not known"), "{message}");
    run(Command::new("mke2fs").args(["-q", "-F", "-O", "journal_dev"]).arg(&image));
    assert!(matches!(Ext4::open(scratch.disk(&image)), Err(ImageError::Refused { .. })));
}

#[test]
fn ext2_without_extents_is_read() {
    if !have_e2fsprogs("ext2_without_extents_is_read") {
        return;
    }
    let scratch = Scratch::new();
    let folder = scratch.folder.join("start");
    let mut start = sample(200);
    // Double indirect from 268 KiB on, triple indirect from 64 MiB on.
    start.insert("long".into(), Node::File([vec![0; 68 << 20], noise(100_000)].concat()));
    tree::write(&start, &folder);
    let image = scratch.mke2fs(96 << 20, EXT2, Some(&folder));
    assert_same(&start, &tree::read_ext4(&Ext4::open(scratch.disk(&image)).unwrap()), "ext2");
    // A filesystem that got extents later still has files without; they are edited and removed, too.
    run(Command::new("tune2fs").args(["-O", "extent"]).arg(&image));
    let mut editor = Ext4::edit(scratch.disk(&image), 1_700_000_000).unwrap();
    for path in ["long", "sparse", "ostree/abc/initramfs"] {
        editor.append_file(path, b"more").unwrap();
        let Some(Node::File(bytes)) = start.get_mut(path) else { panic!("{path} is no file") };
        bytes.extend(b"more");
    }
    editor.write_file("grub2/grub.cfg", b"new", 0o644).unwrap();
    start.insert("grub2/grub.cfg".into(), Node::File(b"new".to_vec()));
    editor.remove_dir_all("many").unwrap();
    start.retain(|path, _| !path.starts_with("many"));
    scratch.apply(&image, &editor.finish().unwrap());
    e2fsck_is_clean(&image, "converted");
    judge_by_debugfs(&scratch, &image, &start, "converted");
}

#[test]
fn other_names_and_attributes_of_a_file_survive_or_go_with_it() {
    if !have_e2fsprogs("other_names_and_attributes_of_a_file_survive_or_go_with_it") {
        return;
    }
    let scratch = Scratch::new();
    let folder = scratch.folder.join("start");
    tree::write(&sample(3), &folder);
    std::fs::hard_link(folder.join("grub2/grub.cfg"), folder.join("empty/also")).unwrap();
    let label = "system_u:object_r:boot_t:s0";
    // Long values lie in a block of their own.
    let (short, long) =
        (format!("ea_set {{}} security.selinux {label}"), format!("ea_set {{}} user.long {}", "v".repeat(700)));
    for options in [&["-b", "1024"] as &[&str], &["-b", "1024", "-I", "128"], &["-b", "4096", "-O", "^metadata_csum"]] {
        // The first and the last moment a file can have.
        for timestamp in [0, u32::MAX] {
            let image = scratch.mke2fs(16 << 20, options, Some(&folder));
            for path in ["/grub2/grub.cfg", "/loader.0/entries/a.conf", "/many", "/sparse"] {
                debugfs_write(&image, &short.replace("{}", path));
                debugfs_write(&image, &long.replace("{}", path));
            }
            let mut editor = Ext4::edit(scratch.disk(&image), timestamp).unwrap();
            editor.write_file("grub2/grub.cfg", b"both", 0o640).unwrap();
            assert_eq!(editor.read_file("empty/also", 9).unwrap(), b"both");
            editor.append_file("loader/entries/a.conf", &[b'x'; 4000]).unwrap();
            editor.remove_file("sparse").unwrap();
            editor.remove_dir_all("many").unwrap();
            editor.create_dir("new", 0o700).unwrap();
            scratch.apply(&image, &editor.finish().unwrap());
            e2fsck_is_clean(&image, "changed");
            for path in ["/grub2/grub.cfg", "/loader.0/entries/a.conf"] {
                let list = String::from_utf8(debugfs(&image, &format!("ea_list {path}"))).unwrap();
                assert!(list.contains(label) && list.contains("user.long (700)"), "{path}: {list}");
            }
            let mut editor = Ext4::edit(scratch.disk(&image), timestamp).unwrap();
            editor.remove_dir_all("grub2").unwrap();
            assert_eq!(editor.metadata("empty/also").unwrap().links, 1);
            editor.remove_file("empty/also").unwrap();
            editor.remove_dir_all("loader.0").unwrap();
            scratch.apply(&image, &editor.finish().unwrap());
            e2fsck_is_clean(&image, "removed");
        }
    }
}
