//! ext4 images made by mke2fs, edited by Kiln, judged by e2fsck, debugfs and the kernel.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr, reason = "a test fails loudly")]

mod ext4 {
    mod features;
    mod hostile;
    pub mod oracle;
    mod random;
    mod tree;
}

use ext4::oracle::{Scratch, debugfs, e2fsck_is_clean, have_e2fsprogs};
use kiln_image::ext4::{Ext4, FileKind};

#[test]
fn a_directory_with_files_is_made_on_the_boot_partition_of_coreos() {
    if !have_e2fsprogs("a_directory_with_files_is_made_on_the_boot_partition_of_coreos") {
        return;
    }
    let scratch = Scratch::new();
    let image = scratch.mke2fs(384 << 20, &["-L", "boot", "-O", "metadata_csum_seed"], None);
    let mut editor = Ext4::edit(scratch.disk(&image), 1_700_000_000).unwrap();
    assert_eq!((editor.label().as_str(), editor.block_size()), ("boot", 1024));
    editor.create_dir("/coreos-firstboot-network", 0o755).unwrap();
    for name in ["eth0", "bond0", "vlan7"] {
        let path = format!("/coreos-firstboot-network/{name}.nmconnection");
        editor.write_file(&path, name.repeat(500).as_bytes(), 0o600).unwrap();
        assert_eq!(editor.read_file(&path, 1 << 20).unwrap(), name.repeat(500).as_bytes());
    }
    let patch = editor.finish().unwrap();
    scratch.apply(&image, &patch);
    e2fsck_is_clean(&image, "CoreOS");
    assert_eq!(debugfs(&image, "cat /coreos-firstboot-network/bond0.nmconnection"), "bond0".repeat(500).as_bytes());
    let metadata =
        Ext4::open(scratch.disk(&image)).unwrap().metadata("coreos-firstboot-network/eth0.nmconnection").unwrap();
    assert_eq!((metadata.kind, metadata.mode, metadata.uid, metadata.gid), (FileKind::File, 0o600, 0, 0));
}
