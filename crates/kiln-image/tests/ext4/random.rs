//! Random sequences of edits: Kiln, a model in memory, debugfs and the kernel hold the same tree afterwards.

use std::process::Command;

use kiln_image::ImageError;
use kiln_image::ext4::Ext4;
use kiln_testimage::run;
use proptest::prelude::*;

use super::features::{MAKES, judge_by_debugfs};
use super::oracle::{Scratch, debugfs_script, e2fsck_is_clean, have_e2fsprogs};
use super::tree::{self, Node, Tree, assert_same, noise, sample};

/// One edit. Numbers choose among the files or directories that exist by then.
#[derive(Debug, Clone)]
enum Edit {
    Create { parent: usize, name: String, length: usize },
    CreateDir { parent: usize, name: String },
    Replace { file: usize, length: usize },
    Append { file: usize, length: usize },
    Truncate { file: usize, length: usize },
    Remove { file: usize },
    RemoveDir { folder: usize },
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![4 => "[a-z]{1,12}", 2 => "[a-z]{30,90}", 1 => "[a-z]{250,255}"]
}

fn length() -> impl Strategy<Value = usize> {
    prop_oneof![2 => Just(0), 6 => 1usize..5000, 3 => 1000usize..100_000, 1 => 100_000usize..3_000_000]
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        8 => (any::<usize>(), name(), length()).prop_map(|(parent, name, length)| Edit::Create { parent, name, length }),
        3 => (any::<usize>(), name()).prop_map(|(parent, name)| Edit::CreateDir { parent, name }),
        3 => (any::<usize>(), length()).prop_map(|(file, length)| Edit::Replace { file, length }),
        4 => (any::<usize>(), length()).prop_map(|(file, length)| Edit::Append { file, length }),
        2 => (any::<usize>(), length()).prop_map(|(file, length)| Edit::Truncate { file, length }),
        3 => any::<usize>().prop_map(|file| Edit::Remove { file }),
        1 => any::<usize>().prop_map(|folder| Edit::RemoveDir { folder }),
    ]
}

/// The requests that make debugfs do the same.
struct Script<'a> {
    scratch: &'a Scratch,
    requests: Vec<String>,
}

impl Script<'_> {
    fn write(&mut self, path: &str, bytes: &[u8]) {
        let source = self.scratch.folder.join(&format!("source-{}", self.requests.len()));
        std::fs::write(&source, bytes).unwrap();
        self.requests.push(format!("write {} {path}", source.display()));
    }
}

fn choose(tree: &Tree, index: usize, kind: fn(&Node) -> bool) -> Option<String> {
    let paths: Vec<&String> = tree.iter().filter(|(_, node)| kind(node)).map(|(path, _)| path).collect();
    paths.get(index.checked_rem(paths.len())?).map(|path| (*path).clone())
}

fn is_folder(node: &Node) -> bool {
    matches!(node, Node::Directory)
}

fn is_file(node: &Node) -> bool {
    matches!(node, Node::File(_))
}

/// A full filesystem is no failure: nothing has changed then.
fn done(result: Result<(), ImageError>) -> bool {
    match result {
        Ok(()) => true,
        Err(ImageError::Refused { problem, .. }) if problem.contains("full") || problem.contains("inodes") => false,
        Err(error) => panic!("{error}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 60, failure_persistence: None, ..Default::default() })]

    #[test]
    fn random_edits_agree_with_debugfs(
        make in 2usize..MAKES.len(),
        edits in prop::collection::vec(edit(), 20..160),
    ) {
        if !have_e2fsprogs("random_edits_agree_with_debugfs") {
            return Ok(());
        }
        let scratch = Scratch::new();
        let (label, size, options) = MAKES[make];
        let folder = scratch.folder.join("start");
        let mut model = sample(60);
        tree::write(&model, &folder);
        let image = scratch.mke2fs(size.min(32) << 20, options, Some(&folder));
        let judged = scratch.copy(&image);
        let mut script = Script { scratch: &scratch, requests: Vec::new() };
        let mut editor = Ext4::edit(scratch.disk(&image), 1_700_000_000).unwrap();
        for edit in edits {
            apply(edit, &mut editor, &mut model, &mut script);
        }
        assert_same(&model, &tree::read_ext4(&editor), label);
        scratch.apply(&image, &editor.finish().unwrap());
        e2fsck_is_clean(&image, label);
        judge_by_debugfs(&scratch, &image, &model, label);
        debugfs_script(&scratch, &judged, &script.requests);
        judge_by_debugfs(&scratch, &judged, &model, "debugfs itself");
    }
}

fn apply<D: kiln_image::ReadAt>(
    edit: Edit,
    editor: &mut kiln_image::ext4::Editor<D>,
    model: &mut Tree,
    script: &mut Script<'_>,
) {
    let join = |parent: Option<String>, name: String| parent.map_or(name.clone(), |parent| format!("{parent}/{name}"));
    match edit {
        Edit::Create { parent, name, length } => {
            let path = join(choose(model, parent, is_folder), name);
            if !model.contains_key(&path) && done(editor.write_file(&path, &noise(length), 0o600)) {
                script.write(&path, &noise(length));
                model.insert(path, Node::File(noise(length)));
            }
        }
        Edit::CreateDir { parent, name } => {
            let path = join(choose(model, parent, is_folder), name);
            if !model.contains_key(&path) && done(editor.create_dir(&path, 0o700)) {
                script.requests.push(format!("mkdir {path}"));
                model.insert(path, Node::Directory);
            }
        }
        Edit::Replace { file, length } => {
            let Some(path) = choose(model, file, is_file) else { return };
            if done(editor.write_file(&path, &noise(length), 0o644)) {
                script.requests.push(format!("rm {path}"));
                script.write(&path, &noise(length));
                model.insert(path, Node::File(noise(length)));
            }
        }
        Edit::Append { file, length } => {
            let Some(path) = choose(model, file, is_file) else { return };
            let Some(Node::File(bytes)) = model.get_mut(&path) else { return };
            if done(editor.append_file(&path, &noise(length))) {
                bytes.extend(noise(length));
                script.requests.push(format!("rm {path}"));
                script.write(&path, bytes);
            }
        }
        Edit::Truncate { file, length } => {
            let Some(path) = choose(model, file, is_file) else { return };
            let Some(Node::File(bytes)) = model.get_mut(&path) else { return };
            editor.truncate_file(&path, length as u64).unwrap();
            bytes.truncate(length);
            script.requests.push(format!("rm {path}"));
            script.write(&path, bytes);
        }
        Edit::Remove { file } => {
            let Some(path) = choose(model, file, is_file) else { return };
            editor.remove_file(&path).unwrap();
            script.requests.push(format!("rm {path}"));
            model.remove(&path);
        }
        Edit::RemoveDir { folder } => {
            let Some(path) = choose(model, folder, is_folder) else { return };
            editor.remove_dir_all(&path).unwrap();
            let within = |other: &str| other == path || other.starts_with(&format!("{path}/"));
            for (other, node) in model.iter().rev().filter(|(other, _)| within(other)) {
                script.requests.push(format!("{} {other}", if is_folder(node) { "rmdir" } else { "rm" }));
            }
            model.retain(|other, _| !within(other));
        }
    }
}

#[test]
fn the_kernel_reads_and_writes_what_was_edited() {
    const TEST: &str = "the_kernel_reads_and_writes_what_was_edited";
    if !have_e2fsprogs(TEST) {
        return;
    }
    let scratch = Scratch::new();
    let start = sample(300);
    tree::write(&start, &scratch.folder.join("start"));
    for (label, options) in [("CoreOS", MAKES[0].2), ("no checksums", MAKES[9].2)] {
        let image = scratch.mke2fs(64 << 20, options, Some(&scratch.folder.join("start")));
        if !mounted(&scratch, &image, "true") {
            // Nothing was edited yet: it is this machine that does not mount. No package would change that, so this is told
            // and not a failure even where all oracles are required.
            eprintln!("skipped: {TEST}: this machine does not let us mount a file (run it as root with loop devices)");
            return;
        }
        // The kernel hashes a directory that outgrows its block.
        let fill = "mkdir hashed; for i in $(seq 2000); do echo $i > hashed/a-rather-long-name-$i; done";
        assert!(mounted(&scratch, &image, fill));
        let mut model = start.clone();
        model.insert("hashed".into(), Node::Directory);
        for number in 1..=2000 {
            model.insert(format!("hashed/a-rather-long-name-{number}"), Node::File(format!("{number}\n").into()));
        }
        let mut editor = Ext4::edit(scratch.disk(&image), 1_700_000_000).unwrap();
        for number in 0..150 {
            let path = format!("hashed/{number}-{}", "n".repeat(100));
            editor.write_file(&path, &noise(number * 10), 0o600).unwrap();
            model.insert(path, Node::File(noise(number * 10)));
        }
        editor.append_file("ostree/abc/initramfs", &noise(1_000_000)).unwrap();
        model.insert("ostree/abc/initramfs".into(), Node::File([noise(700_001), noise(1_000_000)].concat()));
        editor.remove_dir_all("many").unwrap();
        model.retain(|path, _| !path.starts_with("many"));
        scratch.apply(&image, &editor.finish().unwrap());
        e2fsck_is_clean(&image, label);
        let out = scratch.folder.join("out");
        assert!(mounted(&scratch, &image, &format!("cp -a . {}", out.display())), "{label}: not mounted");
        let (seen, owners) = tree::read(&out);
        assert_same(&model, &seen, label);
        assert_eq!(owners[&format!("hashed/7-{}", "n".repeat(100))], (0o600, 0));
        std::fs::remove_dir_all(&out).unwrap();
        let more = "rm hashed/*9; for i in $(seq 300); do echo $i > hashed/later-$i; done; mkdir -p x/y; cp -r grub2 x";
        assert!(mounted(&scratch, &image, more), "{label}: not written");
        e2fsck_is_clean(&image, label);
    }
}

/// Runs a command within the mounted image, in a mount namespace of its own. False where mounting fails.
fn mounted(scratch: &Scratch, image: &std::path::Path, command: &str) -> bool {
    let place = scratch.folder.join("mounted");
    std::fs::create_dir_all(&place).unwrap();
    let line =
        "mount -t ext4 -o loop \"$1\" \"$2\" || exit 77; (cd \"$2\" && eval \"$3\"); ok=$?; umount \"$2\"; exit $ok";
    let mut shell = Command::new("unshare");
    shell.args(["--mount", "sh", "-c", line, "sh"]).arg(image).arg(&place).arg(command);
    let output = shell.output();
    match output {
        Ok(output) if output.status.success() => true,
        Ok(output) if output.status.code() != Some(77) && output.status.code() != Some(1) => {
            panic!("{command}: {}", String::from_utf8_lossy(&output.stderr))
        }
        _ => false,
    }
}

#[test]
fn the_initramfs_of_a_release_is_appended_to_where_it_lies() {
    if !have_e2fsprogs("the_initramfs_of_a_release_is_appended_to_where_it_lies") {
        return;
    }
    let scratch = Scratch::new();
    let folder = scratch.folder.join("start");
    let start = Tree::from([("initramfs".to_owned(), Node::File(noise(90_000_123)))]);
    tree::write(&start, &folder);
    let image = scratch.mke2fs(384 << 20, MAKES[0].2, Some(&folder));
    let mut editor = Ext4::edit(scratch.disk(&image), 1_700_000_000).unwrap();
    editor.append_file("initramfs", &noise(4000)).unwrap();
    let patch = editor.finish().unwrap();
    assert!(patch.byte_count() < 4000 + 8192, "{} bytes changed", patch.byte_count());
    scratch.apply(&image, &patch);
    e2fsck_is_clean(&image, "appended");
    let out = scratch.folder.join("dumped");
    run(Command::new("debugfs").args(["-R", &format!("dump initramfs {}", out.display())]).arg(&image));
    assert!(std::fs::read(out).unwrap() == [noise(90_000_123), noise(4000)].concat());
}
