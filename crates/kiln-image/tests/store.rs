//! A store of every kind of base: what it composes is what `customize` makes of the same image, at a fraction of the cost.

#![allow(clippy::unwrap_used, reason = "a test fails loudly")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use kiln_image::customize::{Change, plan};
use kiln_image::digest::hex;
use kiln_image::format::recognise;
use kiln_image::read_at::ImageFile;
use kiln_image::store::{BaseKind, BaseName, Form, Hashing, HostName, ImportOptions, Placement, Store, StoredImage};
use kiln_image::{Customization, NamedFile, ReadAt};
use kiln_testimage::{
    CopyNetwork, Disk, Initramfs, LiveIso, Packing, Qcow2Options, TempDir, disk, live_iso, pack, require_all, run,
    to_qcow2,
};
use sha2::{Digest, Sha256};

const QEMU: (&str, &str) = ("qemu-img", "qemu-utils");

fn base() -> BaseName {
    "base".parse().unwrap()
}

fn host(name: &str) -> HostName {
    name.parse().unwrap()
}

fn wish(number: usize) -> Customization {
    let file = |index: usize| NamedFile {
        name: format!("eno{index}.nmconnection"),
        bytes: format!(
            "[connection]\nid=eno{index}\ntype=ethernet\n[ipv4]\nmethod=manual\naddress1=10.0.{number}.{index}/24\n"
        )
        .into_bytes(),
    };
    Customization { network: (0..4).map(file).collect(), ..Customization::default() }
}

fn rich_wish() -> Customization {
    Customization {
        ignition: Some(br#"{"ignition":{"version":"3.4.0"}}"#.to_vec()),
        append_kargs: vec!["console=ttyS0".into()],
        firstboot_kargs: vec!["coreos.force_persist_ip".into()],
        ..wish(7)
    }
}

fn whole(image: &StoredImage) -> Vec<u8> {
    image.read_vec(0, image.size as usize).unwrap()
}

fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// What `kiln image customize` would write.
fn customized(path: &Path, wish: &Customization) -> Vec<u8> {
    let file = ImageFile::new(fs::File::open(path).unwrap()).unwrap();
    let format = recognise(&file).unwrap();
    let composition = plan(&file, format, Change::Customize(wish), &mut |_, _| {}).unwrap();
    composition.image.read_vec(0, composition.image.len() as usize).unwrap()
}

fn import(folder: &TempDir, image: &Path, form: Form) -> (Store, BaseKind) {
    let store = Store::create(&folder.join("store")).unwrap();
    let options = ImportOptions { form, ..ImportOptions::default() };
    let record = store.import(image, &base(), options, &mut |_, _| {}).unwrap();
    let stored = fs::read(folder.join("store/bases/base/image")).unwrap();
    assert_eq!(record.sha256, sha256(&stored));
    (store, record.kind)
}

/// Composes hosts and compares each with what `customize` makes of the plain file.
fn check(store: &Store, stored: &Path, wishes: &[Customization]) -> Vec<u8> {
    let mut last = Vec::new();
    for (number, wish) in wishes.iter().enumerate() {
        let host = host(&format!("n{number}"));
        let composed = store.compose(&host, &base(), wish, false, Hashing::Always).unwrap();
        let image = store.image(&host, &base()).unwrap().unwrap();
        last = whole(&image);
        assert!(last == customized(stored, wish), "host {number} differs from what customize writes");
        let sum = sha256(&last);
        assert_eq!(composed.record.sha256.as_ref(), Some(&sum));
        assert_eq!(image.sha256.map(|sum| hex(&sum)), Some(sum.clone()));
        assert_eq!((composed.record.size, image.etag), (last.len() as u64, sum));
        if let Some((inflated_sum, length)) = composed.inflated {
            let mut inflated = Vec::new();
            // A reader of single members: it must see everything.
            std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(last.as_slice()), &mut inflated).unwrap();
            assert_eq!((sha256(&inflated), inflated.len() as u64), (inflated_sum, length));
        }
        let again = store.compose(&host, &base(), wish, false, Hashing::Always).unwrap();
        assert_eq!(again.record.sha256, composed.record.sha256);
    }
    last
}

fn disk_file(folder: &TempDir, disk: &Disk) -> PathBuf {
    let raw = folder.join("disk.raw");
    disk.write(&raw);
    raw
}

fn qcow2_file(folder: &TempDir, disk: &Disk) -> PathBuf {
    let qcow2 = folder.join("disk.qcow2");
    to_qcow2(&disk_file(folder, disk), &qcow2, &Qcow2Options::default());
    qcow2
}

fn packed(folder: &TempDir, packing: Packing, file: &Path) -> PathBuf {
    let path = folder.join("packed");
    pack(packing, file, &path);
    path
}

/// Programs for a disk, and these.
fn available(test: &str, more: &[(&str, &str)]) -> bool {
    require_all(test, &[disk::PROGRAMS, more].concat())
}

#[test]
fn a_compressed_qcow2_gets_a_tail_and_stays_one_member() {
    let name = "a_compressed_qcow2_gets_a_tail_and_stays_one_member";
    if !available(name, &[QEMU]) {
        return;
    }
    for copy_network in [CopyNetwork::BootPartition, CopyNetwork::Initramfs] {
        let mut disk = Disk::default();
        disk.boot.initramfs = Initramfs { copy_network, ..Initramfs::default() };
        let folder = TempDir::new("store");
        let gz = packed(&folder, Packing::Gzip(6), &qcow2_file(&folder, &disk));
        let (store, kind) = import(&folder, &gz, Form::AsItCame);
        assert_eq!(kind, BaseKind::Qcow2Gz);
        let last = check(&store, &gz, &[wish(1), wish(2), rich_wish()]);
        let composed = folder.write("composed.qcow2.gz", &last);
        run(Command::new("gzip").arg("-t").arg(&composed));
        let qcow2 = folder.join("composed.qcow2");
        kiln_testimage::unpack(&composed, &qcow2);
        run(Command::new("qemu-img").args(["check", "-q"]).arg(&qcow2));
        // Beside the base: little. Per host: less.
        let size = |path: &str| fs::metadata(folder.join(path)).unwrap().len();
        assert!(size("store/bases/base/prepared") + size("store/bases/base/shared") < 1 << 20);
        assert!(size("store/hosts/n0/base.image") < 48 << 10, "{}", size("store/hosts/n0/base.image"));
        assert_eq!(store.image_names().unwrap().len(), 3);
    }
}

#[test]
fn usual_edits_inflate_nothing_and_unusual_ones_find_what_they_need() {
    let name = "usual_edits_inflate_nothing_and_unusual_ones_find_what_they_need";
    if !available(name, &[QEMU]) {
        return;
    }
    let folder = TempDir::new("store");
    let gz = packed(&folder, Packing::Gzip(6), &qcow2_file(&folder, &Disk::default()));
    let (store, _) = import(&folder, &gz, Form::AsItCame);
    // Where the base's own bytes are gone, whatever reads them fails.
    let stored = folder.join("store/bases/base/image");
    let good = fs::read(&stored).unwrap();
    let modified = fs::metadata(&stored).unwrap().modified().unwrap();
    fs::write(&stored, vec![0; good.len()]).unwrap();
    fs::File::open(&stored).unwrap().set_modified(modified).unwrap();
    for (number, wish) in [wish(1), rich_wish()].iter().enumerate() {
        store.compose(&host(&format!("n{number}")), &base(), wish, false, Hashing::WhereUsual).unwrap();
    }
    let large = Customization { ignition: Some(vec![b' '; 6 << 20]), ..wish(3) };
    fs::write(&stored, &good).unwrap();
    fs::File::open(&stored).unwrap().set_modified(modified).unwrap();
    check(&store, &gz, &[large]);
}

#[test]
fn other_forms_of_disks_are_composed_alike() {
    let name = "other_forms_of_disks_are_composed_alike";
    if !available(name, &[QEMU, Packing::Xz(1).program(), Packing::Zstd(1).program()]) {
        return;
    }
    let wishes = [wish(1), rich_wish(), Customization::default()];
    let folder = TempDir::new("store");
    let raw = disk_file(&folder, &Disk::default());
    let qcow2 = qcow2_file(&folder, &Disk::default());
    let cases = [
        (raw.clone(), Packing::None, Form::AsItCame, BaseKind::Raw),
        (raw.clone(), Packing::Gzip(1), Form::AsItCame, BaseKind::RawGz),
        (raw.clone(), Packing::Xz(0), Form::AsItCame, BaseKind::Raw),
        (raw, Packing::Gzip(1), Form::Plain, BaseKind::Raw),
        (qcow2.clone(), Packing::None, Form::AsItCame, BaseKind::Qcow2),
        (qcow2.clone(), Packing::Gzip(1), Form::Plain, BaseKind::Qcow2),
        (qcow2.clone(), Packing::None, Form::Gzip, BaseKind::Qcow2Gz),
        (qcow2, Packing::Zstd(1), Form::Gzip, BaseKind::Qcow2Gz),
    ];
    for (file, packing, form, expected) in cases {
        let inner = TempDir::new("store-form");
        let image = packed(&inner, packing, &file);
        let (store, kind) = import(&inner, &image, form);
        assert_eq!(kind, expected, "{packing:?} {form:?}");
        check(&store, &inner.join("store/bases/base/image"), &wishes);
    }
}

#[test]
fn isos_and_initrds_take_what_belongs_into_them() {
    let name = "isos_and_initrds_take_what_belongs_into_them";
    if !require_all(name, live_iso::PROGRAMS) {
        return;
    }
    let folder = TempDir::new("store");
    let iso = folder.join("live.iso");
    LiveIso::default().write(&iso);
    let (store, kind) = import(&folder, &iso, Form::AsItCame);
    assert_eq!(kind, BaseKind::LiveIso);
    let large = Customization { ignition: Some(kiln_testimage::filling::filling(1, 900_000)), ..wish(1) };
    check(&store, &iso, &[wish(1), large]);
    let unhashed = store.compose(&host("n5"), &base(), &wish(5), true, Hashing::WhereUsual).unwrap();
    assert_eq!(unhashed.record.sha256, None);
    assert!(unhashed.record.etag.starts_with("pieces-"), "{}", unhashed.record.etag);

    let folder = TempDir::new("store");
    let initrd = folder.write("initrd.img", Initramfs { live: true, ..Initramfs::default() }.bytes());
    let (store, kind) = import(&folder, &initrd, Form::AsItCame);
    assert_eq!(kind, BaseKind::Initrd);
    let with_ignition = Customization { ignition: Some(b"{}".to_vec()), ..wish(2) };
    check(&store, &initrd, &[wish(1), with_ignition]);
    let error = store.compose(&host("n1"), &base(), &rich_wish(), false, Hashing::WhereUsual).unwrap_err();
    assert_eq!(
        error.to_string(),
        "kernel argument `console=ttyS0`: an initrd has no kernel arguments; whoever loads it gives them; write it into the \
         boot loader's configuration, e.g. the `kernel` line of iPXE"
    );
}

#[test]
fn what_cannot_be_used_is_refused_and_leaves_nothing() {
    let name = "what_cannot_be_used_is_refused_and_leaves_nothing";
    if !available(name, &[QEMU]) {
        return;
    }
    let folder = TempDir::new("store");
    let store = Store::create(&folder.join("store")).unwrap();
    let import =
        |path: &Path, options| store.import(path, &base(), options, &mut |_, _| {}).map_err(|error| error.to_string());
    let as_it_came = ImportOptions::default();
    let raw = disk_file(&folder, &Disk::default());
    let gz = packed(&folder, Packing::Gzip(1), &raw);
    let cut = folder.write("cut.gz", &fs::read(&gz).unwrap()[..100_000]);
    assert!(import(&cut, as_it_came).unwrap_err().contains("is damaged"));
    let text = folder.write("text", "hello");
    assert!(import(&text, as_it_came).unwrap_err().starts_with("image: this is neither a raw disk"));
    let mut booted = Disk::default();
    booted.boot.already_booted = true;
    let other = TempDir::new("store-booted");
    let error = import(&disk_file(&other, &booted), as_it_came).unwrap_err();
    assert!(error.contains("this image was booted before"), "{error}");
    let edited = folder.write("edited", customized(&gz, &wish(1)));
    assert_eq!(
        import(&edited, as_it_came).unwrap_err(),
        "disk: it has been customised before; import the original: `kiln image reset IMAGE`"
    );
    let edited = folder.write("edited", customized(&raw, &wish(1)));
    assert_eq!(
        import(&edited, as_it_came).unwrap_err(),
        "disk: it has been customised before; import the original: `kiln image reset IMAGE`"
    );
    let link = ImportOptions { placement: Placement::Link, form: Form::Gzip };
    assert_eq!(
        import(&raw, link).unwrap_err(),
        "--link: the image is stored in another form than it came in; leave it out"
    );
    assert_eq!(fs::read_dir(folder.join("store/bases")).unwrap().count(), 0);
    let error = store.compose(&host("n1"), &base(), &wish(1), false, Hashing::WhereUsual).unwrap_err().to_string();
    assert_eq!(
        error,
        "base `base`: the store has no such base (it has: none); import it first: kiln image import IMAGE --store DIR"
    );
}

#[test]
fn a_linked_base_that_was_changed_is_noticed() {
    let name = "a_linked_base_that_was_changed_is_noticed";
    if !available(name, &[]) {
        return;
    }
    let folder = TempDir::new("store");
    let raw = disk_file(&folder, &Disk::default());
    let store = Store::create(&folder.join("store")).unwrap();
    let options = ImportOptions { placement: Placement::Link, ..ImportOptions::default() };
    store.import(&raw, &base(), options, &mut |_, _| {}).unwrap();
    store.compose(&host("n1"), &base(), &wish(1), false, Hashing::WhereUsual).unwrap();
    let again = store.import(&raw, &base(), options, &mut |_, _| {}).unwrap_err().to_string();
    assert_eq!(
        again,
        "base `base`: the store has a base of this name; choose another name with --name, or forget it first: \
         kiln image forget --store DIR --base NAME"
    );
    let error = store.forget_base(&base()).unwrap_err().to_string();
    assert_eq!(
        error,
        "base `base` of the store: the images of 1 hosts are made of it, `n1` among them; forget them first: \
         kiln image forget --store DIR --host HOST"
    );
    let mut bytes = fs::read(&raw).unwrap();
    bytes[5_000_000] ^= 1;
    fs::write(&raw, bytes).unwrap();
    let error = store.image(&host("n1"), &base()).unwrap_err().to_string();
    assert!(error.contains("the file has been changed since it was imported"), "{error}");
    assert!(store.forget_host(&host("n1"), Some(&base())).unwrap());
    assert!(!store.forget_host(&host("n1"), None).unwrap());
    assert!(store.forget_base(&base()).unwrap());
    assert!(!store.forget_base(&base()).unwrap());
}

#[test]
fn only_the_owner_reads_the_store_and_a_dead_import_is_swept_away() {
    use std::os::unix::fs::PermissionsExt;
    let name = "only_the_owner_reads_the_store_and_a_dead_import_is_swept_away";
    if !available(name, &[]) {
        return;
    }
    let folder = TempDir::new("store");
    let raw = disk_file(&folder, &Disk::default());
    let store = Store::create(&folder.join("store")).unwrap();
    let bases = folder.join("store/bases");
    // What a killed import leaves: a folder out of sight with a lock that nobody holds, or with none.
    let just_begun = bases.join(".unfinished-3-0-base");
    fs::create_dir(&just_begun).unwrap();
    let dead = bases.join(".unfinished-1-0-base");
    fs::create_dir(&dead).unwrap();
    fs::write(dead.join("lock"), "").unwrap();
    fs::write(dead.join("image"), "half").unwrap();
    let alive = bases.join(".unfinished-2-0-base");
    fs::create_dir(&alive).unwrap();
    fs::write(alive.join("lock"), "").unwrap();
    let lock = fs::File::open(alive.join("lock")).unwrap();
    lock.lock().unwrap();
    assert_eq!(store.base_names().unwrap(), []);
    store.import(&raw, &base(), ImportOptions::default(), &mut |_, _| {}).unwrap();
    assert!(!dead.exists() && !just_begun.exists() && alive.exists());
    store.compose(&host("n1"), &base(), &wish(1), true, Hashing::WhereUsual).unwrap();
    let key = store.url_key().unwrap();
    assert_eq!(key.sign("/x", 1), Store::open(&folder.join("store")).unwrap().url_key().unwrap().sign("/x", 1));
    let mode = |path: &str| fs::metadata(folder.join(path)).unwrap().permissions().mode() & 0o777;
    for secret in
        ["key", "lock", "hosts/n1/base.image", "bases/base/image", "bases/base/base.json", "bases/base/prepared"]
    {
        assert_eq!(mode(&format!("store/{secret}")), 0o600, "{secret}");
    }
    for secret in ["", "hosts", "hosts/n1", "bases", "bases/base"] {
        assert_eq!(mode(&format!("store/{secret}")), 0o700, "{secret}");
    }
}

#[test]
fn a_damaged_store_gives_errors_and_no_panic() {
    let name = "a_damaged_store_gives_errors_and_no_panic";
    if !available(name, &[QEMU]) {
        return;
    }
    let folder = TempDir::new("store");
    let gz = packed(&folder, Packing::Gzip(1), &qcow2_file(&folder, &Disk::default()));
    let (store, _) = import(&folder, &gz, Form::AsItCame);
    store.compose(&host("n1"), &base(), &wish(1), false, Hashing::WhereUsual).unwrap();
    let image = folder.join("store/hosts/n1/base.image");
    let good = fs::read(&image).unwrap();
    let line = good.iter().position(|&byte| byte == b'\n').unwrap();
    let text = String::from_utf8(good[..line].to_vec()).unwrap();
    let with = |text: String| [text.as_bytes(), &good[line..]].concat();
    let damages = [
        (Vec::new(), "is damaged"),
        (good[..line / 2].to_vec(), "is damaged"),
        (good[..good.len() - 1].to_vec(), "a piece lies outside its file"),
        (with(text.replace("\"format\":1", "\"format\":9")), "it has format 9, this Kiln knows format 1"),
        (with(text.replace("\"own\",0", "\"own\",18446744073709551615")), "a piece lies outside its file"),
        (with(text.replacen("\"size\":", "\"size\":1", 1)), "its pieces do not add up to its size"),
    ];
    for (bytes, expected) in damages {
        fs::write(&image, bytes).unwrap();
        let error = store.image(&host("n1"), &base()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let prepared = folder.join("store/bases/base/prepared");
    let good = fs::read(&prepared).unwrap();
    for length in [0, 10, good.len() / 2, good.len() - 1] {
        fs::write(&prepared, &good[..length]).unwrap();
        let composed = store.compose(&host("n1"), &base(), &rich_wish(), false, Hashing::WhereUsual);
        assert!(composed.is_err(), "{length} bytes are enough");
    }
}
