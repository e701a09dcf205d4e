//! qemu-img and qemu-io as makers and judges of qcow2 files, and properties on the files they make.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use kiln_testimage::{TempDir, require_all, run};
use proptest::prelude::*;

use super::header::{Header, entries};
use super::refcounts::Refcounts;
use super::undo::read_refcount_table;
use super::*;
use crate::patch::Patch;

const PROGRAMS: &[(&str, &str)] = &[("qemu-img", "qemu-utils"), ("qemu-io", "qemu-utils")];

/// Not a multiple of any cluster but the smallest.
const GUEST: usize = (5 << 20) + 1536;

/// A different image for each way qemu writes them: name, options of `qemu-img convert`, commands of qemu-io afterwards.
const VARIANTS: &[(&str, &[&str], &[&str])] = &[
    ("512", &["-o", "cluster_size=512"], &[]),
    ("512-v2", &["-o", "cluster_size=512,compat=0.10"], &[]),
    ("4k", &["-o", "cluster_size=4k"], &["write -z 8k 64k", "write -z -u 1M 64k", "write -P 7 3M 1k"]),
    ("4k-v2", &["-o", "cluster_size=4k,compat=0.10"], &[]),
    ("64k", &[], &["write -z 128k 64k", "write -z -u 1M 256k", "discard 2M 128k"]),
    ("64k-v2", &["-o", "compat=0.10"], &[]),
    ("2M", &["-o", "cluster_size=2M"], &["write -z 2M 2M"]),
    ("2M-v2", &["-o", "cluster_size=2M,compat=0.10"], &[]),
    ("512-deflate", &["-c", "-o", "cluster_size=512"], &[]),
    ("4k-deflate", &["-c", "-o", "cluster_size=4k"], &["write -P 3 100k 9k"]),
    ("64k-deflate", &["-c"], &["write -P 3 100k 9k", "write -z 1M 64k"]),
    ("64k-deflate-v2", &["-c", "-o", "compat=0.10"], &[]),
    ("2M-deflate", &["-c", "-o", "cluster_size=2M"], &[]),
    ("64k-zstd", &["-c", "-o", "compression_type=zstd"], &["write -P 3 100k 9k"]),
    ("2M-zstd", &["-c", "-o", "compression_type=zstd,cluster_size=2M"], &[]),
    ("preallocated", &["-o", "preallocation=metadata"], &[]),
    ("lazy", &["-o", "lazy_refcounts=on"], &[]),
    ("refcounts-1", &["-o", "refcount_bits=1,cluster_size=4k"], &[]),
    ("refcounts-1-deflate", &["-c", "-o", "refcount_bits=1,cluster_size=4k"], &[]),
    ("refcounts-2-deflate", &["-c", "-o", "refcount_bits=2,cluster_size=4k"], &[]),
    ("refcounts-4", &["-o", "refcount_bits=4,cluster_size=512"], &[]),
    ("refcounts-8", &["-o", "refcount_bits=8"], &[]),
    ("refcounts-32", &["-o", "refcount_bits=32,cluster_size=1k"], &[]),
    ("refcounts-64", &["-o", "refcount_bits=64,cluster_size=512"], &[]),
    ("refcounts-64-deflate", &["-c", "-o", "refcount_bits=64"], &[]),
];

#[test]
fn every_kind_of_image_is_read_edited_undone_and_stays_whole() {
    if !require_all("every_kind_of_image_is_read_edited_undone_and_stays_whole", PROGRAMS) {
        return;
    }
    let folder = TempDir::new("qcow2-variants");
    let raw = folder.write("raw", guest_bytes());
    for (seed, (name, options, commands)) in VARIANTS.iter().enumerate() {
        let image = make(&folder, name, &raw, options, commands);
        check_variant(&folder, name, &image, seed as u64 + 1);
        fs::remove_file(image).unwrap();
    }
}

fn check_variant(folder: &TempDir, name: &str, image: &Path, seed: u64) {
    // What the guest sees, by qemu's own reading: the commands have changed it since.
    let plain = folder.join("plain");
    run(Command::new("qemu-img").args(["convert", "-O", "raw"]).arg(image).arg(&plain));
    let guest = fs::read(&plain).unwrap();
    let base = fs::read(image).unwrap();
    let read = Qcow2::open(&base).unwrap();
    assert!(read.read_vec(0, guest.len()).unwrap() == guest, "{name}: the guest's bytes differ from qemu's");
    assert_eq!(read.len(), guest.len() as u64, "{name}");

    let tail_base = TailBase::read(&base).unwrap_or_else(|error| panic!("{name}: {error}"));
    let stored = serde_json::to_vec(&tail_base).unwrap();
    let tail_base = serde_json::from_slice::<TailBase>(&stored).unwrap();
    assert!(tail_base.records_undo(), "{name}");
    assert_eq!(tail_base.length(), base.len() as u64);
    let mut random = Random(seed);
    let mut headers = Vec::new();
    for round in 0..2 {
        let mut patch = random.patch(guest.len() as u64);
        // The same few bytes may have been there before.
        patch.write(4321, &[!guest[4321]]);
        let tail = tail_base.plan(&base, &patch).unwrap_or_else(|error| panic!("{name}: {error}"));
        let edited = apply(&base, &tail);
        let mut expected = guest.clone();
        patch.apply(0, &mut expected);
        fs::write(&plain, &expected).unwrap();
        let path = folder.write("edited.qcow2", &edited);
        check(&path, &format!("{name}, edit {round}"));
        compare(&plain, &path);

        let undo = Qcow2::undo(&edited).unwrap().unwrap();
        let mut undone = edited[..undo.length as usize].to_vec();
        undone[..undo.header.len()].copy_from_slice(&undo.header);
        assert!(undone == base, "{name}: undone, but not the original");
        let again = TailBase::read(&original(&edited).unwrap()).unwrap();
        assert_eq!(again, tail_base, "{name}");
        assert!(again.plan(&original(&edited).unwrap(), &patch).unwrap() == tail, "{name}: a second edit differs");
        headers.push(tail.header);

        // A guest that mounts what was edited writes into it; the file is no longer what Kiln made of the original.
        let place = guest.iter().zip(&expected).position(|(old, new)| old != new).unwrap() & !511;
        io(&path, &[&format!("write -P 77 {place} 512")]);
        expected[place..place + 512].fill(77);
        assert_written_since(&path, name);
        // What the edit set free is taken again, and nothing may be counted wrong.
        fs::write(&path, &edited).unwrap();
        io(&path, &["write -P 165 0 300k", "write -P 90 2500k 700k", "discard 1M 2M", "write -P 17 1500k 64k"]);
        check(&path, &format!("{name}, edit {round}, written to"));
        expected = guest.clone();
        patch.apply(0, &mut expected);
        expected[..300 << 10].fill(165);
        let written = fs::read(&path).unwrap();
        let view = Qcow2::open(&written).unwrap();
        assert!(view.read_vec(0, 1 << 20).unwrap() == expected[..1 << 20], "{name}");
        assert!(
            view.read_vec(3 << 20, 2 << 20).unwrap()[128 << 10..] == expected[(3 << 20) + (128 << 10)..5 << 20],
            "{name}"
        );
        assert_written_since(&path, name);
    }
    assert!(headers.iter().all(|header| *header == headers[0]), "{name}: the header depends on the edit");
}

fn assert_written_since(image: &Path, name: &str) {
    assert_eq!(
        Qcow2::undo(&fs::read(image).unwrap()).map(|undo| undo.is_some()).map_err(|error| error.to_string()),
        Err("qcow2 header: the file was written to after Kiln edited it, by a virtual machine or another program; \
             take the original image instead"
            .to_string()),
        "{name}"
    );
}

#[test]
fn what_cannot_be_read_or_edited_is_refused_with_the_reason() {
    if !require_all("what_cannot_be_read_or_edited_is_refused_with_the_reason", PROGRAMS) {
        return;
    }
    let folder = TempDir::new("qcow2-refused");
    let create = |options: &[&str]| {
        let path = folder.join("image.qcow2");
        let _ = fs::remove_file(&path);
        run(Command::new("qemu-img").args(["create", "-q", "-f", "qcow2"]).args(options).arg(&path).arg("1M"));
        path
    };
    let error = |path: &Path| TailBase::read(&fs::read(path).unwrap()).unwrap_err().to_string();
    let copy = "make a plain copy: `qemu-img convert -O qcow2 IMAGE NEW`";

    let raw = folder.write("base.raw", [0; 4096]);
    let backing = create(&["-F", "raw", "-b", raw.to_str().unwrap()]);
    let expected = format!("qcow2 header: part of the disk is in the backing file `{}`; {copy}", raw.display());
    assert_eq!(error(&backing), expected);
    let data_file = format!("data_file={}", folder.join("data").display());
    let data_file = create(&["-o", &data_file]);
    assert_eq!(error(&data_file), format!("qcow2 header: the disk is in an external data file; {copy}"));
    let secret = [
        "--object",
        "secret,id=key,data=kiln",
        "-o",
        "encrypt.format=luks,encrypt.key-secret=key,encrypt.iter-time=10",
    ];
    assert_eq!(error(&create(&secret)), format!("qcow2 header: the disk is encrypted (LUKS); {copy}"));
    let extended = create(&["-o", "extended_l2=on,cluster_size=128k"]);
    assert_eq!(error(&extended), format!("qcow2 header: extended L2 entries (subclusters) are not supported; {copy}"));
    let mut unknown = fs::read(create(&[])).unwrap();
    unknown[72] = 0x80;
    let unknown = TailBase::read(&unknown).unwrap_err().to_string();
    assert_eq!(unknown, format!("qcow2 header: incompatible features 0x8000000000000000 are not known; {copy}"));

    // These can be read all the same.
    let snapshot = create(&[]);
    run(Command::new("qemu-img").args(["snapshot", "-c", "before"]).arg(&snapshot));
    let leave = "leave them behind: `qemu-img convert -O qcow2 IMAGE NEW`";
    let expected = format!("qcow2 header: the image has 1 internal snapshots, which share its clusters; {leave}");
    assert_eq!(error(&snapshot), expected);
    let read = Qcow2::open(fs::read(&snapshot).unwrap()).unwrap();
    assert_eq!(read.read_vec(0, 1 << 20).unwrap(), vec![0; 1 << 20]);
    let bitmap = create(&[]);
    run(Command::new("qemu-img").args(["bitmap", "--add"]).arg(&bitmap).arg("dirty"));
    let expected = format!("qcow2 header: the image has 1 dirty bitmaps, which an edit would make wrong; {leave}");
    assert_eq!(error(&bitmap), expected);
    let repair = "repair it first: `qemu-img check -r all IMAGE`";
    let mut bytes = fs::read(create(&[])).unwrap();
    bytes[79] = 1;
    let expected = "the image was not closed properly and its refcounts may be wrong";
    assert_eq!(TailBase::read(&bytes).unwrap_err().to_string(), format!("qcow2 header: {expected}; {repair}"));
    bytes[79] = 2;
    let expected = format!("qcow2 header: qemu marked the image as corrupt; {repair}");
    assert_eq!(TailBase::read(&bytes).unwrap_err().to_string(), expected);
    assert_eq!(Qcow2::open(&bytes).unwrap().len(), 1 << 20);
    assert_eq!(Qcow2::undo(&bytes).unwrap(), None);

    bytes[79] = 0;
    let edited = apply(&bytes, &TailBase::read(&bytes).unwrap().plan(&bytes, &Patch::new()).unwrap());
    let expected = "qcow2 header: Kiln edited the image before; reset it first: `kiln image reset`";
    assert_eq!(TailBase::read(&edited).unwrap_err().to_string(), expected);
    let mut counts = bytes.clone();
    counts[0x20000..0x20010].fill(0);
    let expected = format!("qcow2 refcounts: cluster 3 is used more often than they say; {repair}");
    let plan = TailBase::read(&counts).unwrap().plan(&counts, &Patch::new());
    assert_eq!(plan.unwrap_err().to_string(), expected);
    let mut beyond = bytes.clone();
    beyond[0x20000 + 2 * 100] = 1;
    let expected = format!("qcow2 refcounts: clusters behind the end of the file are in use, up to 101; {copy}");
    assert_eq!(TailBase::read(&beyond).unwrap_err().to_string(), expected);
    let mut patch = Patch::new();
    patch.write((1 << 20) - 1, &[1, 2]);
    let plan = TailBase::read(&bytes).unwrap().plan(&bytes, &patch);
    let expected = "qcow2 disk is damaged: it ends before 1048577, where the edit goes to";
    assert_eq!(plan.unwrap_err().to_string(), expected);
}

#[test]
fn counts_that_never_repeat_do_not_fill_the_memory() {
    let name = "counts_that_never_repeat_do_not_fill_the_memory";
    if !require_all(name, &[("qemu-img", "qemu-utils")]) {
        return;
    }
    let folder = TempDir::new("qcow2-counts");
    let path = folder.join("image");
    let options = ["create", "-q", "-f", "qcow2", "-o", "cluster_size=2M,refcount_bits=1"];
    run(Command::new("qemu-img").args(options).arg(&path).arg("1G"));
    let mut image = fs::read(&path).unwrap();
    let header = Header::parse(&image, image.len() as u64).unwrap();
    let block = entries(&read_refcount_table(&image, &header).unwrap())[0] as usize;
    image[block..block + (2 << 20)].fill(0x55);
    let problem = TailBase::read(&image).unwrap_err().to_string();
    assert!(problem.starts_with("qcow2 refcounts: more than 2097152 neighbouring clusters"), "{problem}");
}

#[test]
fn a_full_header_leaves_no_room_for_the_record_but_for_the_edit() {
    if !require_all("a_full_header_leaves_no_room_for_the_record_but_for_the_edit", PROGRAMS) {
        return;
    }
    let folder = TempDir::new("qcow2-full-header");
    let raw = folder.write("raw", guest_bytes());
    let image = make(&folder, "full", &raw, &["-o", "cluster_size=4k"], &[]);
    let mut base = fs::read(&image).unwrap();
    // An unknown extension up to the end of the cluster, and a header whose free bytes are not zero.
    let end = Header::parse(&base[..4096], base.len() as u64).unwrap().extensions_end;
    let mut full = base.clone();
    full[end..end + 4].copy_from_slice(b"TEST");
    full[end + 4..end + 8].copy_from_slice(&(4096 - end as u32 - 8 - 16).to_be_bytes());
    base[end + 20] = 1;
    for base in [full, base] {
        let tail_base = TailBase::read(&base).unwrap();
        assert!(!tail_base.records_undo());
        let mut patch = Patch::new();
        patch.write(70_000, b"kiln");
        let edited = apply(&base, &tail_base.plan(&base, &patch).unwrap());
        check(&folder.write("edited.qcow2", &edited), "full header");
        assert_eq!(Qcow2::undo(&edited).unwrap(), None);
        assert_eq!(Qcow2::open(&edited).unwrap().read_vec(70_000, 4).unwrap(), b"kiln");
    }
}

#[test]
fn clusters_that_stay_as_they_were_are_not_written() {
    if !require_all("clusters_that_stay_as_they_were_are_not_written", PROGRAMS) {
        return;
    }
    let folder = TempDir::new("qcow2-same");
    let raw = folder.write("raw", guest_bytes());
    let base = fs::read(make(&folder, "same", &raw, &[], &[])).unwrap();
    let tail_base = TailBase::read(&base).unwrap();
    let guest = Qcow2::open(&base).unwrap();
    let mut patch = Patch::new();
    patch.write(0, &guest.read_vec(0, GUEST).unwrap());
    let tail = tail_base.plan(&base, &patch).unwrap();
    assert_eq!(tail.bytes.len() - tail.tables, 12);
    patch.write(17, b"x");
    let tail = tail_base.plan(&base, &patch).unwrap();
    assert_eq!(tail.bytes.len() - tail.tables, 65536 + 12);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_edit_of_any_image_counts_every_cluster_once_per_use(
        seed in 1u64.., which in 0..3usize,
    ) {
        let Some(bases) = small_bases() else { return Ok(()) };
        let base = &bases[which];
        let guest = Qcow2::open(base).unwrap();
        let mut expected = guest.read_vec(0, guest.len() as usize).unwrap();
        let patch = Random(seed).patch(guest.len());
        patch.apply(0, &mut expected);
        let tail = TailBase::read(base).unwrap().plan(base, &patch).unwrap();
        let edited = apply(base, &tail);
        let read = Qcow2::open(&edited).unwrap();
        prop_assert!(read.read_vec(0, expected.len()).unwrap() == expected);
        prop_assert_eq!(uses(&edited), counts(&edited));
        let undone = original(&edited).unwrap();
        prop_assert!(undone.read_vec(0, base.len()).unwrap() == *base);
    }

    #[test]
    fn damaged_images_are_refused_or_read_and_never_more(
        seed in 1u64.., which in 0..3usize, places in prop::collection::vec((0u32..100, any::<u8>()), 1..8), cut in 0u64..40,
    ) {
        let Some(bases) = small_bases() else { return Ok(()) };
        let mut image = bases[which].clone();
        let header = Header::parse(&image, image.len() as u64).unwrap();
        let tables = [0, header.l1_offset, header.refcount_table_offset, header.cluster_size() * 2, header.cluster_size() * 4];
        let mut random = Random(seed);
        for (place, byte) in places {
            let start = tables[random.below(tables.len() as u64) as usize] as usize;
            let length = image.len();
            image[(start + place as usize).min(length - 1)] = byte;
        }
        if cut < 10 {
            image.truncate(random.below(image.len() as u64) as usize);
        }
        exercise(&image, &random.patch(64 << 10));
    }
}

/// Everything that can be done with a file from outside. Nothing of it may panic.
fn exercise(image: &Vec<u8>, patch: &Patch) {
    if let Ok(guest) = Qcow2::open(image) {
        let mut buffer = vec![0; 100_000];
        for start in [0, guest.len() / 2, guest.len().saturating_sub(100_000)] {
            let take = (guest.len() - start).min(100_000) as usize;
            let _ = guest.read_exact_at(start, &mut buffer[..take]);
        }
    }
    if let Ok(base) = TailBase::read(image)
        && let Ok(tail) = base.plan(image, patch)
    {
        let edited = apply(image, &tail);
        assert_eq!(Qcow2::open(&edited).unwrap().len(), Qcow2::open(image).unwrap().len());
        let undo = Qcow2::undo(&edited).unwrap();
        assert_eq!(undo.is_some(), base.records_undo());
    }
    let _ = Qcow2::undo(image);
}

/// How often each cluster is used, by walking all tables.
fn uses(image: &Vec<u8>) -> BTreeMap<u64, u64> {
    let guest = Qcow2::open(image).unwrap();
    let header = &guest.header;
    let size = header.cluster_size();
    let mut uses = BTreeMap::from([(0, 1)]);
    let mut use_range = |offset: u64, length: u64| {
        for cluster in offset / size..(offset + length).div_ceil(size) {
            *uses.entry(cluster).or_insert(0) += 1;
        }
    };
    use_range(header.l1_offset, u64::from(header.l1_size) * 8);
    use_range(header.refcount_table_offset, u64::from(header.refcount_table_clusters) * size);
    for block in entries(&read_refcount_table(image, header).unwrap()).into_iter().filter(|&block| block != 0) {
        use_range(block, size);
    }
    for table in guest.l1.iter().map(|entry| entry & OFFSET_MASK).filter(|&table| table != 0) {
        use_range(table, size);
    }
    for number in 0..guest.len().div_ceil(size) {
        match guest.cluster(number).unwrap() {
            Cluster::Unallocated | Cluster::Zero { reserved: None } => {}
            Cluster::Data { offset } | Cluster::Zero { reserved: Some(offset) } => use_range(offset, size),
            Cluster::Compressed { offset, length } => use_range(offset, length),
        }
    }
    uses
}

fn counts(image: &Vec<u8>) -> BTreeMap<u64, u64> {
    let header = Header::parse(&Header::read_bytes(image).unwrap(), image.len() as u64).unwrap();
    let counts = Refcounts::read(image, &header, &entries(&read_refcount_table(image, &header).unwrap())).unwrap();
    (0..counts.end()).map(|cluster| (cluster, counts.of(cluster))).filter(|&(_, count)| count != 0).collect()
}

/// Small images that qemu-img made once.
fn small_bases() -> Option<&'static [Vec<u8>; 3]> {
    static BASES: std::sync::OnceLock<Option<[Vec<u8>; 3]>> = std::sync::OnceLock::new();
    let make_bases = || {
        require_all("qcow2 properties", PROGRAMS).then(|| {
            let folder = TempDir::new("qcow2-small");
            let raw = folder.write("raw", &guest_bytes()[..600 << 10]);
            let small = ["-o", "cluster_size=4k"];
            let packed = ["-c", "-o", "cluster_size=4k,refcount_bits=64"];
            let tiny = ["-o", "cluster_size=512,compat=0.10"];
            let zeros = ["write -z 8k 16k", "write -z -u 40k 16k", "write -P 9 100k 1k"];
            [
                fs::read(make(&folder, "small", &raw, &small, &zeros)).unwrap(),
                fs::read(make(&folder, "packed", &raw, &packed, &["write -P 9 100k 1k"])).unwrap(),
                fs::read(make(&folder, "tiny", &raw, &tiny, &[])).unwrap(),
            ]
        })
    };
    BASES.get_or_init(make_bases).as_ref()
}

fn make(folder: &TempDir, name: &str, raw: &Path, options: &[&str], commands: &[&str]) -> PathBuf {
    let image = folder.join(&format!("{name}.qcow2"));
    run(Command::new("qemu-img").args(["convert", "-f", "raw", "-O", "qcow2"]).args(options).arg(raw).arg(&image));
    if !commands.is_empty() {
        io(&image, commands);
    }
    image
}

fn io(image: &Path, commands: &[&str]) {
    let mut command = Command::new("qemu-io");
    command.args(["-f", "qcow2", "-d", "unmap"]);
    command.args(commands.iter().flat_map(|line| ["-c", line]));
    let printed = run(command.arg(image));
    let printed = String::from_utf8_lossy(&printed);
    assert!(!printed.contains("failed"), "{printed}");
}

/// qemu-img ends with another status than 0 for errors and for leaks.
fn check(image: &Path, what: &str) {
    let printed = run(Command::new("qemu-img").args(["check", "-f", "qcow2"]).arg(image));
    let printed = String::from_utf8_lossy(&printed);
    assert!(printed.starts_with("No errors were found on the image.\n"), "{what}: {printed}");
}

fn compare(raw: &Path, image: &Path) {
    let mut command = Command::new("qemu-img");
    let printed = run(command.args(["compare", "-f", "raw", "-F", "qcow2"]).arg(raw).arg(image));
    assert_eq!(String::from_utf8_lossy(&printed), "Images are identical.\n");
}

fn apply(base: &[u8], tail: &Tail) -> Vec<u8> {
    assert_eq!(tail.offset, base.len() as u64);
    let mut edited = base.to_vec();
    edited[..tail.header.len()].copy_from_slice(&tail.header);
    edited.extend_from_slice(&tail.bytes);
    edited
}

/// Noise, text and nothing, in stretches of all sizes.
fn guest_bytes() -> Vec<u8> {
    let mut bytes = vec![0; GUEST];
    let mut random = Random(42);
    let mut at = 0;
    while at < GUEST {
        let end = (at + 512 * (1 + random.below(300) as usize)).min(GUEST);
        match random.below(4) {
            0 => bytes[at..end].fill_with(|| random.next() as u8),
            1 => bytes[at..end].fill_with(|| b"kiln "[random.below(5) as usize]),
            2 => bytes[at..end].fill(at as u8),
            _ => {}
        }
        at = end;
    }
    bytes
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 24
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// A few short pieces, sometimes a long one, sometimes zeros.
    fn patch(&mut self, guest: u64) -> Patch {
        let mut patch = Patch::new();
        for _ in 0..1 + self.below(6) {
            let length = if self.below(5) == 0 { 1 + self.below(150_000) } else { 1 + self.below(3000) }.min(guest);
            let offset = self.below(guest - length + 1);
            let bytes: Vec<u8> = match self.below(4) {
                0 => vec![0; length as usize],
                _ => (0..length).map(|_| self.next() as u8).collect(),
            };
            patch.write(offset, &bytes);
        }
        patch
    }
}
