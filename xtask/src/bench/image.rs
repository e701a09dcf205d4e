//! `cargo xtask bench image`: a host's image with Kiln and in the usual way, in one run on one machine.
//!
//! The usual way is to inflate, edit, deflate and hash the whole image with pigz and sha256sum. Its edit is made by
//! debugfs through a FUSE export of qemu-storage-daemon, which takes hundredths of a second; guestfish starts a virtual
//! machine for it. Nothing here fails because something is slow: the table says what was met.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::coreos_image::{self, Images};
use super::{KILN, build, serving};
use crate::measure::{Cores, Figures, measure};
use crate::test::{build_coreos_installer, install_packages};

/// Programs that are measured or that measure, and their packages.
const PEERS: [(&str, &str); 9] = [
    ("/usr/bin/pigz", "pigz"),
    ("/usr/bin/igzip", "isal"),
    ("/usr/bin/openssl", "openssl"),
    ("/usr/sbin/debugfs", "e2fsprogs"),
    ("/usr/bin/qemu-storage-daemon", "qemu-utils"),
    ("/usr/sbin/nginx", "nginx-light"),
    ("/usr/bin/curl", "curl"),
    ("/usr/bin/taskset", "util-linux"),
    ("/usr/bin/pkg-config", "pkg-config"),
];

const INSTALLER: &str = "target/oracles/bin/coreos-installer";

pub fn run(hosts: u32, only_make: bool) -> Result<()> {
    ensure!(install_packages(&coreos_image::PROGRAMS)?, "the image cannot be made without these programs");
    let images = coreos_image::make(Path::new("target/bench/image"))?;
    if only_make {
        return Ok(());
    }
    ensure!(install_packages(&PEERS)?, "nothing to compare with");
    build_coreos_installer()?;
    build("release")?;
    let bench = Bench::new(images, hosts)?;
    println!("\n| what | wall s | CPU s | written MB | peak MB |\n|---|---|---|---|---|");
    let mut goals = Goals::default();
    bench.first_host(&mut goals)?;
    bench.verify()?;
    bench.further_hosts(&mut goals)?;
    bench.raw(&mut goals)?;
    bench.iso(&mut goals)?;
    bench.serving(&mut goals)?;
    goals.print();
    Ok(())
}

struct Bench {
    images: Images,
    hosts: u32,
    work: PathBuf,
    store: PathBuf,
}

impl Bench {
    fn new(images: Images, hosts: u32) -> Result<Bench> {
        let work = PathBuf::from("target/bench/image-work");
        let _ = fs::remove_dir_all(&work);
        let keyfiles = work.join("keyfiles");
        fs::create_dir_all(&keyfiles)?;
        for (name, text) in kiln_testimage::bond_vlan::KEYFILES {
            fs::write(keyfiles.join(name), text)?;
        }
        let networks = work.join("networks");
        fs::create_dir_all(&networks)?;
        for host in 0..hosts {
            fs::write(networks.join(format!("{host}.yaml")), network_of(host))?;
        }
        Ok(Bench { images, hosts, store: work.join("store"), work })
    }

    fn first_host(&self, goals: &mut Goals) -> Result<()> {
        let base = shown(&self.images.qcow2_gz);
        let work = shown(&self.work);
        let edit = self.write_edit_script()?;
        let mut usual = None;
        let (mut pigz, mut igzip) = (None, None);
        for _ in 0..2 {
            let inflate = shell("pigz -dc > .qcow2", &format!("pigz -dc {base} > {work}/usual.qcow2"))?;
            let edited = shell("qemu-storage-daemon + debugfs", &edit)?;
            let deflate = shell("pigz > .qcow2.gz", &format!("pigz -c {work}/usual.qcow2 > {work}/usual.gz"))?;
            let hash = shell("sha256sum", &format!("sha256sum {work}/usual.gz"))?;
            usual = better(usual, sum(&[inflate, edited, deflate, hash]));
            pigz = better(pigz, shell("pigz -dc > /dev/null", &format!("pigz -dc {base} > /dev/null"))?);
            igzip = better(igzip, shell("igzip -t", &format!("igzip -t {base}"))?);
        }
        for file in ["usual.qcow2", "usual.gz"] {
            fs::remove_file(self.work.join(file))?;
        }
        let (usual, pigz, igzip) = (chosen(usual)?, chosen(pigz)?, chosen(igzip)?);
        row("**the usual way, first host**", usual);
        let store = shown(&self.store);
        let name = base_name(&self.images.qcow2_gz)?;
        let kiln = best("**kiln image import + compose, first host**", 3, || {
            let _ = fs::remove_dir_all(&self.store);
            Ok(format!(
                "{KILN} image import {base} --link --store {store} && {KILN} image compose --store {store} --base {name} --host first --network-dir {work}/keyfiles"
            ))
        })?;
        let customize = best("kiln image customize .qcow2.gz -o .qcow2.gz", 3, || {
            Ok(format!("{KILN} image customize {base} --force -o {work}/customized.gz --network-dir {work}/keyfiles"))
        })?;
        fs::remove_file(self.work.join("customized.gz"))?;
        goals.ratio("first host / the usual way, wall", kiln.wall_seconds, usual.wall_seconds, 1.0 / 8.0);
        goals.ratio("first host / the usual way, CPU", kiln.cpu_seconds, usual.cpu_seconds, 1.0 / 10.0);
        goals.ratio("first host / `pigz -dc > /dev/null`, wall", kiln.wall_seconds, pigz.wall_seconds, 1.0);
        goals.told("first host / `igzip -t`, wall", kiln.wall_seconds / igzip.wall_seconds);
        goals.told("customize / the usual way, wall", customize.wall_seconds / usual.wall_seconds);
        goals.limit("import, memory, MB", kiln.peak_megabytes, 100.0);
        goals.limit("customize, memory, MB", customize.peak_megabytes, 100.0);
        Ok(())
    }

    /// Figures of a wrong file would be worth nothing: the first host's image is what it claims to be.
    fn verify(&self) -> Result<()> {
        let (store, work) = (shown(&self.store), shown(&self.work));
        let name = base_name(&self.images.qcow2_gz)?;
        let (offset, length) = self.images.boot;
        let script = format!(
            "set -e
{KILN} image compose --store {store} --base {name} --host first --network-dir {work}/keyfiles -o {work}/first.gz > {work}/said
grep -q $(sha256sum {work}/first.gz | cut -c 1-64) {work}/said
pigz -dc {work}/first.gz > {work}/first.qcow2
qemu-img check -q {work}/first.qcow2
qemu-img convert -O raw --image-opts driver=raw,offset={offset},size={length},file.driver=qcow2,file.file.driver=file,file.file.filename={work}/first.qcow2 {work}/first.boot
/usr/sbin/e2fsck -fn {work}/first.boot > /dev/null 2>&1
/usr/sbin/debugfs -R 'cat /coreos-firstboot-network/bond0.nmconnection' {work}/first.boot 2> /dev/null | cmp - {work}/keyfiles/bond0.nmconnection
{KILN} image reset {work}/first.gz -o {work}/original.gz > /dev/null
cmp {work}/original.gz {}
rm {work}/first.* {work}/original.gz",
            shown(&self.images.qcow2_gz)
        );
        let output = Command::new("sh").args(["-c", &script]).output()?;
        ensure!(output.status.success(), "the composed image is wrong: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    fn further_hosts(&self, goals: &mut Goals) -> Result<()> {
        let (store, work) = (shown(&self.store), shown(&self.work));
        let name = base_name(&self.images.qcow2_gz)?;
        let base_bytes = fs::metadata(&self.images.qcow2_gz)?.len();
        let before = stored(&self.store)?;
        let network = format!("{work}/networks/{{n}}.yaml");
        let compose = |host: &str| {
            measure(
                Cores::All,
                self.hosts,
                &[KILN, "image", "compose", "--store", &store, "--base", &name, "--host", host, "--network", &network],
            )
        };
        let new = compose("host-{n}")?;
        row(&format!("{} further hosts, kiln image compose each", self.hosts), new);
        let per_host = (stored(&self.store)? - before) as f64 / f64::from(self.hosts);
        let again = compose("host-{n}")?;
        row(&format!("the same {} hosts again", self.hosts), again);
        goals.limit("further host, CPU ms", new.cpu_seconds * 1e3 / f64::from(self.hosts), 20.0);
        goals.limit("further host, KiB stored", per_host / 1024.0, 32.0);
        goals.limit(&format!("{} hosts, s", self.hosts), new.wall_seconds, 15.0);
        goals.limit("compose, memory, MB", new.peak_megabytes, 100.0);
        // The base is linked into the store; its own bytes are not counted.
        goals.limit("stored per base beside the .gz, MB", before.saturating_sub(base_bytes) as f64 / 1e6, 1.0);
        Ok(())
    }

    fn raw(&self, goals: &mut Goals) -> Result<()> {
        let (store, work, raw) = (shown(&self.store), shown(&self.work), shown(&self.images.raw_gz));
        let name = base_name(&self.images.raw_gz)?;
        let import = shell("kiln image import raw.gz", &format!("{KILN} image import {raw} --link --store {store}"))?;
        goals.limit("import of raw.gz, memory, MB", import.peak_megabytes, 100.0);
        let before = stored(&self.store)?;
        let composed = best("kiln image compose, raw.gz", 3, || {
            Ok(format!("{KILN} image compose --store {store} --base {name} --host raw --network-dir {work}/keyfiles"))
        })?;
        let hash = best("openssl dgst -sha256 raw.gz", 3, || Ok(format!("openssl dgst -sha256 {raw}")))?;
        goals.ratio("raw.gz, compose / `openssl dgst`, wall", composed.wall_seconds, hash.wall_seconds, 1.2);
        goals.told("raw.gz, KiB stored per host", (stored(&self.store)? - before) as f64 / 1024.0);
        Ok(())
    }

    fn iso(&self, goals: &mut Goals) -> Result<()> {
        let (store, work, iso) = (shown(&self.store), shown(&self.work), shown(&self.images.iso));
        let name = base_name(&self.images.iso)?;
        let copy = format!("{work}/live.iso");
        fs::copy(&self.images.iso, &copy)?;
        let keyfiles: String = kiln_testimage::bond_vlan::KEYFILES
            .iter()
            .map(|(keyfile, _)| format!(" --network-keyfile {work}/keyfiles/{keyfile}"))
            .collect();
        let installer = best("coreos-installer iso customize, in place", 5, || {
            Ok(format!("{INSTALLER} iso reset {copy} && {INSTALLER} iso customize{keyfiles} {copy}"))
        })?;
        let reset = best("coreos-installer iso reset, in place", 5, || Ok(format!("{INSTALLER} iso reset {copy}")))?;
        let in_place = best("kiln image customize, ISO in place", 5, || {
            Ok(format!("{KILN} image customize {copy} -o {copy} --network-dir {work}/keyfiles"))
        })?;
        shell("kiln image import ISO", &format!("{KILN} image import {iso} --link --store {store}"))?;
        let before = stored(&self.store)?;
        let composed = best("kiln image compose, ISO", 5, || {
            Ok(format!("{KILN} image compose --store {store} --base {name} --host iso --network-dir {work}/keyfiles"))
        })?;
        let peer = installer.cpu_seconds - reset.cpu_seconds;
        goals.ratio("ISO, compose / coreos-installer in place, CPU", composed.cpu_seconds, peer, 1.0 / 5.0);
        goals.told("ISO, customize in place / coreos-installer in place, CPU", in_place.cpu_seconds / peer);
        goals.told("ISO, KiB stored per host", (stored(&self.store)? - before) as f64 / 1024.0);
        Ok(())
    }

    fn serving(&self, goals: &mut Goals) -> Result<()> {
        let compared = serving::compare(&self.store, &self.images.qcow2_gz, &self.work, "/images/first/base.qcow2.gz")?;
        goals.ratio("serving, kiln / nginx, server CPU per GB", compared.kiln, compared.nginx, 1.1);
        goals.limit("serving, memory, MB", compared.kiln_megabytes, 100.0);
        Ok(())
    }

    /// The edit of the usual way: the boot partition inside the qcow2 appears as a file, debugfs writes into it.
    fn write_edit_script(&self) -> Result<String> {
        let (offset, length) = self.images.boot;
        let work = fs::canonicalize(&self.work)?;
        let work = shown(&work);
        let mut commands = String::from("mkdir coreos-firstboot-network\n");
        for (name, _) in kiln_testimage::bond_vlan::KEYFILES {
            commands.push_str(&format!(
                "write {work}/keyfiles/{name} coreos-firstboot-network/{name}\nsif coreos-firstboot-network/{name} mode 0100600\n"
            ));
        }
        fs::write(self.work.join("debugfs.commands"), commands)?;
        fs::write(self.work.join("boot.part"), [])?;
        let script = format!(
            "set -e
qemu-storage-daemon --blockdev driver=file,node-name=file,filename={work}/usual.qcow2 \
  --blockdev driver=qcow2,node-name=disk,file=file \
  --blockdev driver=raw,node-name=boot,file=disk,offset={offset},size={length} \
  --export type=fuse,id=boot,node-name=boot,mountpoint={work}/boot.part,writable=on --pidfile {work}/daemon.pid &
daemon=$!
until [ $(stat -c %s {work}/boot.part) = {length} ]; do sleep 0.01; done
/usr/sbin/debugfs -w -f {work}/debugfs.commands {work}/boot.part
kill $daemon
wait $daemon || true
"
        );
        fs::write(self.work.join("edit.sh"), script)?;
        Ok(format!("sh {work}/edit.sh"))
    }
}

/// What was reached, beside what was asked for.
#[derive(Default)]
struct Goals {
    rows: Vec<String>,
}

impl Goals {
    fn ratio(&mut self, what: &str, kiln: f64, peer: f64, at_most: f64) {
        self.limit(what, kiln / peer, at_most);
    }

    fn limit(&mut self, what: &str, reached: f64, at_most: f64) {
        let met = if reached <= at_most { "yes" } else { "no" };
        self.rows.push(format!("| {what} | {reached:.3} | ≤ {at_most:.3} | {met} |"));
    }

    fn told(&mut self, what: &str, reached: f64) {
        self.rows.push(format!("| {what} | {reached:.3} | | |"));
    }

    fn print(&self) {
        println!("\n| what | reached | goal | met |\n|---|---|---|---|\n{}", self.rows.join("\n"));
    }
}

/// An nmstate document of a host's own: the same bond and VLAN with a static address.
fn network_of(host: u32) -> String {
    let address = format!("10.{}.{}.10", host / 250, host % 250);
    kiln_testimage::bond_vlan::NMSTATE.replace(
        "    dhcp: true\n",
        &format!("    dhcp: false\n    address:\n    - ip: {address}\n      prefix-length: 24\n"),
    )
}

fn shell(what: &str, script: &str) -> Result<Figures> {
    let figures = measure(Cores::All, 1, &["sh", "-c", script]).with_context(|| script.to_owned())?;
    row(what, figures);
    Ok(figures)
}

/// The best of several runs, as one row.
fn best(what: &str, runs: u32, mut script: impl FnMut() -> Result<String>) -> Result<Figures> {
    let mut best = None;
    for _ in 0..runs {
        let script = script()?;
        best = better(best, measure(Cores::All, 1, &["sh", "-c", &script]).with_context(|| script.clone())?);
    }
    let best = chosen(best)?;
    row(what, best);
    Ok(best)
}

fn better(best: Option<Figures>, next: Figures) -> Option<Figures> {
    best.filter(|best| best.wall_seconds <= next.wall_seconds).or(Some(next))
}

fn chosen(best: Option<Figures>) -> Result<Figures> {
    best.context("nothing was measured")
}

fn sum(steps: &[Figures]) -> Figures {
    let total = |number: fn(&Figures) -> f64| steps.iter().map(number).sum();
    Figures {
        wall_seconds: total(|figures| figures.wall_seconds),
        cpu_seconds: total(|figures| figures.cpu_seconds),
        written_megabytes: total(|figures| figures.written_megabytes),
        peak_megabytes: steps.iter().map(|figures| figures.peak_megabytes).fold(0.0, f64::max),
    }
}

fn row(what: &str, figures: Figures) {
    let Figures { wall_seconds, cpu_seconds, peak_megabytes, written_megabytes } = figures;
    println!("| {what} | {wall_seconds:.3} | {cpu_seconds:.3} | {written_megabytes:.1} | {peak_megabytes:.0} |");
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// What the store calls a base: the name of the imported file up to its format.
fn base_name(path: &Path) -> Result<String> {
    let name = path.file_name().and_then(|name| name.to_str()).context("the image has no name")?;
    Ok(name.split('.').next().unwrap_or(name).to_owned())
}

/// Bytes of all files below a folder.
fn stored(folder: &Path) -> Result<u64> {
    let mut total = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        total += if metadata.is_dir() { stored(&entry.path())? } else { metadata.len() };
    }
    Ok(total)
}
