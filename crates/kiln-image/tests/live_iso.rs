//! Live ISOs and PXE initrds, judged by the real coreos-installer and by xorriso.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use kiln_image::Segment;
use kiln_image::cpio::File;
use kiln_image::customization::{Customization, NamedFile};
use kiln_image::initrd::appended::append_member;
use kiln_image::initrd::{Take, read_embedded};
use kiln_image::iso9660::{Iso, Record, SECTOR};
use kiln_image::live_iso::{LiveIso, Plan};
use kiln_testimage::{Headers, TempDir, coreos_installer, live_iso, require, require_all, run, skip};

const KEYFILE: &str = "[connection]\nid=eno1\ntype=ethernet\n";
const CONFIG: &str = r#"{"ignition":{"version":"3.4.0"}}"#;

/// A folder for ISOs, and the judge.
struct Bench {
    folder: TempDir,
    installer: PathBuf,
}

impl Bench {
    fn new(test: &str) -> Option<Self> {
        if !require_all(test, live_iso::PROGRAMS) {
            return None;
        }
        Some(Bench { installer: coreos_installer(test)?, folder: TempDir::new("live-iso") })
    }

    fn iso(&self, headers: Headers) -> Vec<u8> {
        let path = self.folder.join("base.iso");
        kiln_testimage::LiveIso { headers, ..Default::default() }.write(&path);
        fs::read(path).unwrap()
    }

    /// What coreos-installer prints about these bytes.
    fn ask(&self, iso: &[u8], arguments: &[&str]) -> Vec<u8> {
        let path = self.folder.write("asked", iso);
        run(Command::new(&self.installer).args(arguments).arg(path))
    }

    /// The ISO after coreos-installer worked on it.
    fn treat(&self, iso: &[u8], arguments: &[&str]) -> Vec<u8> {
        self.ask(iso, arguments);
        fs::read(self.folder.join("asked")).unwrap()
    }

    /// The network files that coreos-installer takes out of an ISO or a PXE initrd.
    fn extract_network(&self, image: &[u8], kind: &str) -> BTreeMap<String, String> {
        let target = self.folder.join("extracted");
        let _ = fs::remove_dir_all(&target);
        fs::create_dir(&target).unwrap();
        let verb = if kind == "iso" { "extract" } else { "unwrap" };
        let path = self.folder.write("asked", image);
        let mut command = Command::new(&self.installer);
        let output = command.args([kind, "network", verb, "-C", target.to_str().unwrap()]).arg(path).output().unwrap();
        let problem = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() || problem.starts_with("Error: No embedded network settings"), "{problem}");
        read_folder(&target)
    }

    fn minimal_iso(&self, iso: &[u8]) -> Vec<u8> {
        let target = self.folder.join("minimal.iso");
        let _ = fs::remove_file(&target);
        let source = self.folder.write("full.iso", iso);
        run(Command::new(&self.installer).args(["iso", "extract", "minimal-iso"]).arg(source).arg(&target));
        fs::read(target).unwrap()
    }
}

fn read_folder(folder: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| (entry.file_name().into_string().unwrap(), fs::read_to_string(entry.path()).unwrap())).collect()
}

fn apply(plan: &Plan, base: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for segment in plan.segments() {
        match segment {
            Segment::Base(range) => bytes.extend_from_slice(&base[range.start as usize..range.end as usize]),
            Segment::Own(own) => bytes.extend_from_slice(&own),
        }
    }
    assert_eq!(bytes.len() as u64, plan.length());
    bytes
}

fn customized(iso: &[u8], wish: &Customization) -> Vec<u8> {
    apply(&LiveIso::open(iso).unwrap().plan(wish).unwrap(), iso)
}

fn reset(iso: &[u8]) -> Vec<u8> {
    apply(&LiveIso::open(iso).unwrap().plan_reset().unwrap(), iso)
}

fn wish() -> Customization {
    Customization {
        network: vec![NamedFile { name: "eno1.nmconnection".into(), bytes: KEYFILE.into() }],
        ignition: Some(CONFIG.into()),
        append_kargs: vec!["console=ttyS0".into()],
        delete_kargs: vec!["mitigations=auto,nosmt".into()],
        firstboot_kargs: vec!["coreos.force_persist_ip".into()],
    }
}

/// Text that does not become much shorter by compression.
fn large_config(length: usize) -> Vec<u8> {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        b'0' + (state >> 58) as u8
    };
    (0..length).map(|_| next()).collect()
}

#[test]
fn what_kiln_embeds_is_read_by_coreos_installer_and_reset_by_both() {
    let Some(bench) = Bench::new("what_kiln_embeds_is_read_by_coreos_installer_and_reset_by_both") else { return };
    for headers in [Headers::Json, Headers::KargsJson, Headers::IgnitionAndKargs] {
        let base = bench.iso(headers);
        let iso = customized(&base, &wish());
        assert_eq!(bench.ask(&iso, &["iso", "ignition", "show"]), CONFIG.as_bytes());
        let network = bench.extract_network(&iso, "iso");
        assert_eq!(network, BTreeMap::from([("eno1.nmconnection".into(), KEYFILE.into())]));
        let kargs = "coreos.liveiso=fedora-coreos-44.20261101.3.0 ignition.firstboot ignition.platform.id=metal console=ttyS0 coreos.force_persist_ip\n";
        assert_eq!(String::from_utf8(bench.ask(&iso, &["iso", "kargs", "show"])).unwrap(), kargs);
        // The same wish on a customised ISO gives the same bytes; reset gives the original, whoever does it.
        assert!(customized(&iso, &wish()) == iso, "{headers:?}");
        assert!(reset(&iso) == base, "{headers:?}");
        assert!(bench.treat(&iso, &["iso", "reset"]) == base, "{headers:?}");
        let plan = LiveIso::open(iso.as_slice()).unwrap().plan_without_network().unwrap();
        let without = apply(&plan, &iso);
        assert_eq!(bench.ask(&without, &["iso", "ignition", "show"]), CONFIG.as_bytes());
        assert_eq!(bench.extract_network(&without, "iso"), BTreeMap::new());
        assert_eq!(String::from_utf8(bench.ask(&without, &["iso", "kargs", "show"])).unwrap(), kargs);
    }
}

#[test]
fn what_coreos_installer_embeds_is_read_by_kiln() {
    let Some(bench) = Bench::new("what_coreos_installer_embeds_is_read_by_kiln") else { return };
    let base = bench.iso(Headers::Json);
    let keyfile = bench.folder.write("eth0.nmconnection", KEYFILE);
    let config = bench.folder.write("config.ign", CONFIG);
    let iso = bench.treat(&base, &["iso", "network", "embed", "-k", keyfile.to_str().unwrap()]);
    let iso = bench.treat(&iso, &["iso", "ignition", "embed", "-i", config.to_str().unwrap()]);
    let iso = bench.treat(&iso, &["iso", "kargs", "modify", "-a", "a=b", "-d", "ignition.firstboot"]);
    let live = LiveIso::open(iso.as_slice()).unwrap();
    let embedded = live.embedded().unwrap();
    assert_eq!(embedded.ignition, Some(CONFIG.into()));
    assert_eq!(embedded.network, BTreeMap::from([("eth0.nmconnection".into(), KEYFILE.into())]));
    let kargs = live.kargs().unwrap().unwrap();
    assert_eq!(kargs.current, kargs.default.replace("ignition.firstboot ", "") + " a=b");
    let room = live.room().unwrap();
    assert!(room.capacity == 262_144 && (100..1000).contains(&room.used) && !room.is_grown, "{room:?}");
    assert!(reset(&iso) == base);
}

#[test]
fn a_large_config_grows_the_iso_and_reset_takes_it_back() {
    let test = "a_large_config_grows_the_iso_and_reset_takes_it_back";
    let Some(bench) = Bench::new(test) else { return };
    if require(test, "xorriso", "xorriso").is_none() {
        return;
    }
    for headers in [Headers::Json, Headers::IgnitionAndKargs] {
        let mut base = bench.iso(headers);
        // The MBR of an isohybrid ISO: one entry that spans the file.
        base[446..462].copy_from_slice(&[0x80, 0, 1, 0, 0, 0x3f, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let sectors = (base.len() / 512) as u32;
        base[458..462].copy_from_slice(&sectors.to_le_bytes());
        base[510..512].copy_from_slice(&[0x55, 0xaa]);
        base.extend_from_slice(b"some bytes behind the volume");

        let small_wish = wish();
        let small = customized(&base, &small_wish);
        let large = large_config(700_000);
        let wanted = Customization { ignition: Some(large.clone()), ..wish() };
        let iso = customized(&small, &wanted);
        assert!(iso == customized(&base, &wanted), "growing depends on what was there");
        assert_eq!(bench.ask(&iso, &["iso", "ignition", "show"]), large);
        let live = LiveIso::open(iso.as_slice()).unwrap();
        assert_eq!(live.embedded().unwrap().ignition, Some(large.clone()));
        let room = live.room().unwrap();
        assert!(room.is_grown && room.capacity.is_multiple_of(256 << 10) && room.capacity >= room.used, "{room:?}");
        assert_eq!(iso[458..462], ((iso.len() / 512) as u32).to_le_bytes());

        // Another reader finds the new file in every tree.
        for tree in ["norock", "nojoliet"] {
            let path = bench.folder.write("grown.iso", &iso);
            let target = bench.folder.join("ignition.img");
            let _ = fs::remove_file(&target);
            let mut command = Command::new("xorriso");
            command.args(["-osirrox", "on", "-read_fs", tree, "-indev"]).arg(path);
            run(command.args(["-extract", "/images/ignition.img"]).arg(&target));
            let bytes = fs::read(target).unwrap();
            assert_eq!(bytes.len() as u64, room.capacity);
            assert_eq!(read_embedded(bytes.as_slice(), Take::All).unwrap().ignition, Some(large.clone()));
        }

        assert!(reset(&iso) == base);
        assert!(customized(&iso, &small_wish) == small, "it shrinks again");
        let larger = Customization { ignition: Some(large_config(1_500_000)), ..Default::default() };
        assert!(reset(&customized(&iso, &larger)) == base);
        // Another tool's work on the grown ISO does not stand in the way.
        let treated = bench.treat(&iso, &["iso", "reset"]);
        assert!(treated != base && LiveIso::open(treated.as_slice()).unwrap().embedded().unwrap().is_empty());
        assert!(reset(&treated) == base);
        let config = bench.folder.write("config.ign", CONFIG);
        let treated = bench.treat(&iso, &["iso", "ignition", "embed", "-f", "-i", config.to_str().unwrap()]);
        assert_eq!(LiveIso::open(treated.as_slice()).unwrap().embedded().unwrap().ignition, Some(CONFIG.into()));
        assert!(reset(&treated) == base);
    }
}

#[test]
fn what_cannot_be_honoured_is_refused() {
    let Some(bench) = Bench::new("what_cannot_be_honoured_is_refused") else { return };
    let network = Customization { network: wish().network, ..Default::default() };
    let kargs = |count: usize| Customization { append_kargs: vec!["x".repeat(count)], ..Default::default() };
    let refusal = |iso: &[u8], wish: &Customization| LiveIso::open(iso).unwrap().plan(wish).unwrap_err().to_string();
    let path = bench.folder.join("old.iso");
    kiln_testimage::LiveIso { headers: Headers::Ignition, features: false, ..Default::default() }.write(&path);
    let old = fs::read(&path).unwrap();
    assert_eq!(
        refusal(&old, &network),
        "network files: the live system of this ISO does not read them from its initrd (coreos/features.json has no live-initrd-network); use an ISO from 2022 or later, or put the files into the Ignition config"
    );
    assert_eq!(
        refusal(&old, &kargs(1)),
        "kernel arguments: this ISO has no place for them (neither coreos/kargs.json nor a coreKarg header); use an ISO from 2021 or later"
    );
    let iso = bench.iso(Headers::Json);
    let room = LiveIso::open(iso.as_slice()).unwrap().kargs().unwrap().unwrap();
    let longest = room.capacity - room.default.len() - 1;
    customized(&iso, &kargs(longest));
    assert_eq!(
        refusal(&iso, &kargs(longest + 1)),
        "kernel arguments: together with the default they have 1139 bytes, the ISO has room for 1138; append fewer, or delete some of the default"
    );
    let deleted = Customization { delete_kargs: vec!["nosuch".into()], ..Default::default() };
    let plan = LiveIso::open(iso.as_slice()).unwrap().plan(&deleted).unwrap();
    assert_eq!(plan.notes, ["kernel argument `nosuch` was not there to be deleted"]);
    assert!(plan.patch.is_empty());
}

#[test]
fn an_area_described_by_its_length_or_by_a_header_alone_is_used() {
    let Some(bench) = Bench::new("an_area_described_by_its_length_or_by_a_header_alone_is_used") else { return };
    let mut base = bench.iso(Headers::Json);
    let json = br#"{"file":"images/ignition.img","length":262144}"#;
    let records = Iso::open(base.as_slice()).unwrap().records("coreos/igninfo.json").unwrap();
    assert_eq!(records.len(), 2);
    for record in records {
        let (content, place) = (record.offset as usize, record.location_at() as usize);
        base[content..content + json.len()].copy_from_slice(json);
        let location = Record::location((record.offset / SECTOR) as u32, json.len() as u32);
        base[place..place + 16].copy_from_slice(&location);
    }
    // 786432 and 1048576: as many digits as before, and one more.
    for length in [700_000, 1_200_000] {
        let large = large_config(length);
        let iso = customized(&base, &Customization { ignition: Some(large.clone()), ..Default::default() });
        assert_eq!(bench.ask(&iso, &["iso", "ignition", "show"]), large);
        assert_eq!(LiveIso::open(iso.as_slice()).unwrap().embedded().unwrap().ignition, Some(large));
        assert!(reset(&iso) == base);
    }

    // Without the file of that name only the old header says where the area is; coreos-installer no longer asks it.
    let mut base = bench.iso(Headers::IgnitionAndKargs);
    for record in Iso::open(base.as_slice()).unwrap().records("images/ignition.img").unwrap() {
        let name = record.at as usize + 33;
        let length = usize::from(base[record.at as usize]) - 33;
        base[name..name + length].fill(b'Z');
    }
    let wanted = Customization { network: Vec::new(), ..wish() };
    let iso = customized(&base, &wanted);
    assert_eq!(LiveIso::open(iso.as_slice()).unwrap().embedded().unwrap().ignition, Some(CONFIG.into()));
    assert!(iso != base && reset(&iso) == base);
    let large = Customization { ignition: Some(large_config(700_000)), ..Default::default() };
    let problem = LiveIso::open(base.as_slice()).unwrap().plan(&large).unwrap_err().to_string();
    assert!(problem.contains("cannot grow"), "{problem}");
}

/// Layouts of real ISOs from 2020 to 2023, which lie in the source of coreos-installer; `cargo xtask test` puts them beside it.
fn real_layouts(installer: &Path) -> Vec<(String, Vec<u8>)> {
    let folder = installer.parent().unwrap().join("../iso-layouts");
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut layouts: Vec<_> = entries
        .map(|entry| (entry.file_name().into_string().unwrap(), entry.path()))
        .filter(|(name, _)| name.starts_with("embed-areas"))
        .map(|(name, path)| {
            let mut iso = Vec::new();
            let file = fs::File::open(path).unwrap();
            kiln_image::compression::Decoder::new(file).unwrap().read_to_end(&mut iso).unwrap();
            (name, iso)
        })
        .collect();
    layouts.sort();
    layouts
}

#[test]
fn real_layouts_are_customised_and_reset() {
    let test = "real_layouts_are_customised_and_reset";
    let Some(bench) = Bench::new(test) else { return };
    let layouts = real_layouts(&bench.installer);
    if layouts.is_empty() {
        skip(test, "the ISO layouts of coreos-installer's source are not there (cargo xtask test fetches them)");
    }
    for (name, base) in layouts {
        let live = LiveIso::open(base.as_slice()).unwrap();
        let release = live.release().unwrap();
        assert!(["rhcos", "fedora-coreos"].contains(&release.name.as_str()), "{release:?}");
        assert!(release.version.split('.').count() > 2, "{release:?}");
        assert!(live.embedded().unwrap().is_empty(), "{name}");
        let kargs = live.kargs().unwrap();
        assert_eq!(kargs.is_some(), !name.contains("2020-09") && !name.contains("2023-03.s390x"), "{name}");
        let mut wanted = Customization { ignition: Some(CONFIG.into()), ..Default::default() };
        if live.features().live_initrd_network {
            wanted.network = wish().network;
        }
        if kargs.is_some() {
            wanted.append_kargs = vec!["a=b".into()];
        }
        let iso = customized(&base, &wanted);
        assert_eq!(bench.ask(&iso, &["iso", "ignition", "show"]), CONFIG.as_bytes(), "{name}");
        if let Some(kargs) = kargs {
            let shown = bench.ask(&iso, &["iso", "kargs", "show"]);
            assert_eq!(String::from_utf8(shown).unwrap(), format!("{} a=b\n", kargs.default), "{name}");
        }
        assert_eq!(bench.extract_network(&iso, "iso").len(), wanted.network.len(), "{name}");
        assert!(reset(&iso) == base, "{name}");

        let large = Customization { ignition: Some(large_config(400_000)), ..wanted };
        let grown = live.plan(&large);
        if name.contains("s390x") {
            let problem = grown.unwrap_err().to_string();
            assert!(problem.contains("the area is a part of a boot image here and cannot grow"), "{problem}");
            continue;
        }
        let iso = apply(&grown.unwrap(), &base);
        assert_eq!(bench.ask(&iso, &["iso", "ignition", "show"]), large.ignition.unwrap(), "{name}");
        assert!(reset(&iso) == base, "{name}");
        if live.has_miniso().unwrap() {
            // A minimal ISO comes out of an ISO that coreos-installer reset, grown or not.
            assert!(bench.minimal_iso(&bench.treat(&iso, &["iso", "reset"])) == bench.minimal_iso(&base), "{name}");
        }
    }
}

#[test]
fn pxe_archives_are_exchanged_with_coreos_installer() {
    let Some(bench) = Bench::new("pxe_archives_are_exchanged_with_coreos_installer") else { return };
    let initramfs = kiln_testimage::Initramfs { live: true, ..Default::default() }.bytes();
    let files =
        [File::private("config.ign", CONFIG), File::private("etc/coreos-firstboot-network/a.nmconnection", KEYFILE)];
    let member = append_member(initramfs.len() as u64, &files).unwrap();
    for initrd in [append_member(0, &files).unwrap(), [initramfs.clone(), member].concat()] {
        assert_eq!(bench.ask(&initrd, &["pxe", "ignition", "unwrap"]), CONFIG.as_bytes());
        let network = bench.extract_network(&initrd, "pxe");
        assert_eq!(network, BTreeMap::from([("a.nmconnection".into(), KEYFILE.into())]));
    }
    let keyfile = bench.folder.write("b.nmconnection", KEYFILE);
    let wrapped = run(Command::new(&bench.installer).args(["pxe", "network", "wrap", "-k"]).arg(keyfile));
    let initrd = [initramfs, wrapped].concat();
    let embedded = read_embedded(initrd.as_slice(), Take::Known).unwrap();
    assert_eq!(embedded.network, BTreeMap::from([("b.nmconnection".into(), KEYFILE.into())]));
}

#[test]
fn changed_isos_are_refused_or_planned_but_never_panic() {
    let Some(bench) = Bench::new("changed_isos_are_refused_or_planned_but_never_panic") else { return };
    let base = bench.iso(Headers::Json);
    let grown = customized(&base, &Customization { ignition: Some(large_config(400_000)), ..Default::default() });
    for iso in [base, grown] {
        let mut changed = iso.clone();
        let end = iso.len();
        // MBR, headers, descriptors and directories; the JSON file of kernel arguments; the undo record at the end.
        let json = iso.windows(9).position(|text| text == b"\"default\"").unwrap();
        let places = (440..512).step_by(5).chain((32_672..100_000).step_by(61)).chain((end - 2048..end).step_by(5));
        for (number, place) in places.chain((json - 4..json + 600).step_by(7)).enumerate() {
            for value in [0xff, iso[place] ^ 1 << (number % 8)] {
                changed[place] = value;
                if let Ok(live) = LiveIso::open(changed.as_slice()) {
                    let _ = (live.kargs(), live.room(), live.plan_reset());
                    if let Ok(plan) = live.plan(&wish()) {
                        assert!(plan.kept <= changed.len() as u64);
                    }
                }
            }
            changed[place] = iso[place];
        }
        for cut in [0, 100, 32_768, 40_000, 300_000] {
            let problem = LiveIso::open(&iso[..cut]).map(|live| live.volume_id().to_owned()).unwrap_err().to_string();
            assert!(problem.contains("damaged"), "{problem}");
        }
    }
}
