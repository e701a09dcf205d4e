//! `kiln image inspect`: what an image is and what has been put into it.

use std::fmt::Write;

use kiln_core::document::emit::to_yaml;
use kiln_image::coreos::CopyNetwork;
use kiln_image::inspect::{Customized, Disk, Inspection, Iso, Place, inspect};

use super::super::{Outcome, PrintFormat, output, output::Failure};
use super::InspectArgs;
use super::open::{Gzip, failure, open};

/// Reads and prints.
pub fn run(args: &InspectArgs) -> Result<Outcome, Failure> {
    let image = open(&args.image, &std::env::temp_dir(), Gzip::Keep)?;
    let mut inspection = inspect(&image.file, image.format, image.compression)
        .map_err(|error| failure(error, format!("`{}` cannot be inspected", args.image.display())))?;
    inspection.file_bytes = std::fs::metadata(&args.image)?.len();
    output::print(&match args.format {
        PrintFormat::Human => render(&inspection).unwrap_or_default(),
        PrintFormat::Json => format!("{:#}\n", serde_json::to_value(&inspection)?),
        PrintFormat::Yaml => to_yaml(&serde_json::to_value(&inspection)?),
    })?;
    Ok(Outcome::Done)
}

/// Writing to a string does not fail.
fn render(inspection: &Inspection) -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    let Inspection { content, compression, file_bytes, disk_bytes, system, disk, live_iso, customized } = inspection;
    let within = compression.map(|compression| format!(" in {compression}")).unwrap_or_default();
    writeln!(text, "{}{within}, {}", content.name(), size(*file_bytes))?;
    if let Some(system) = system {
        let version = system.version.as_deref().map(|version| format!(" {version}")).unwrap_or_default();
        let stream = system.stream.map(|stream| format!(", stream {stream}")).unwrap_or_default();
        writeln!(text, "{}{version}{stream}", system.name)?;
    }
    if let Some(disk) = disk {
        render_disk(&mut text, disk, *disk_bytes)?;
    }
    if let Some(iso) = live_iso {
        render_iso(&mut text, iso)?;
    }
    render_customized(&mut text, customized)?;
    Ok(text)
}

fn render_disk(text: &mut String, disk: &Disk, bytes: Option<u64>) -> std::fmt::Result {
    let bytes = bytes.map(|bytes| format!("{}, ", size(bytes))).unwrap_or_default();
    writeln!(text, "\ndisk: {bytes}sectors of {} bytes", disk.sector_size)?;
    for partition in &disk.partitions {
        writeln!(
            text,
            "  {} {:<12} {:>10} at {}",
            partition.number,
            partition.name,
            size(partition.bytes),
            size(partition.start)
        )?;
    }
    writeln!(
        text,
        "boot partition: ext4, blocks of {} bytes, {} free",
        disk.boot_block_size,
        size(disk.boot_free_bytes)
    )?;
    let script = match disk.copy_network {
        CopyNetwork::BootPartition => "read from /boot/coreos-firstboot-network",
        CopyNetwork::Initramfs => "read from the initramfs",
        CopyNetwork::Unknown => "unknown: no script in the initramfs that Kiln knows",
    };
    writeln!(text, "network files of the first boot: {script}")?;
    if !disk.platforms.is_empty() {
        writeln!(text, "platforms: {}", disk.platforms.join(", "))?;
    }
    for entry in &disk.boot_entries {
        writeln!(text, "boot entry {}: {}", entry.name, entry.kernel_arguments.join(" "))?;
    }
    if !disk.first_boot_pending {
        writeln!(text, "this image was booted before: network files and Ignition config put into it would be ignored")?;
    }
    Ok(())
}

fn render_iso(text: &mut String, iso: &Iso) -> std::fmt::Result {
    let grown = if iso.area_grown { ", made larger by Kiln" } else { "" };
    writeln!(text, "\nlive ISO {}", iso.label)?;
    writeln!(text, "area for Ignition and network: {} of {} used{grown}", size(iso.area_used), size(iso.area_bytes))?;
    if !iso.reads_network {
        writeln!(text, "network files: the ISO does not say that it reads them")?;
    }
    match &iso.kernel_arguments {
        Some(kargs) => writeln!(text, "kernel arguments: {kargs}")?,
        None => writeln!(text, "kernel arguments: the ISO has no place for them")?,
    }
    if iso.has_miniso {
        writeln!(text, "a minimal ISO can be made of it")?;
    }
    Ok(())
}

fn render_customized(text: &mut String, customized: &Customized) -> std::fmt::Result {
    if customized.is_empty() {
        return writeln!(text, "\nnot customised");
    }
    writeln!(text, "\ncustomised:")?;
    for file in &customized.network {
        let place = match file.place {
            Place::BootPartition => "boot partition",
            Place::Initramfs => "initramfs",
        };
        writeln!(text, "  network file {} ({} bytes, {place})", file.name, file.bytes)?;
    }
    if let Some(bytes) = customized.ignition_bytes {
        writeln!(text, "  Ignition config ({bytes} bytes)")?;
    }
    let mut list = |what: &str, kargs: &[String]| match kargs {
        [] => Ok(()),
        kargs => writeln!(text, "  {what}: {}", kargs.join(" ")),
    };
    list("kernel arguments added", &customized.appended_kernel_arguments)?;
    list("kernel arguments taken away", &customized.deleted_kernel_arguments)?;
    list("kernel arguments of the first boot", &customized.first_boot_kernel_arguments)?;
    let reset = match customized.remembers_original {
        true => "`kiln image reset` gives the original bytes back",
        false => "the image does not remember its original: `kiln image reset` takes out what it recognises",
    };
    writeln!(text, "{reset}")
}

fn size(bytes: u64) -> String {
    indicatif::BinaryBytes(bytes).to_string()
}
