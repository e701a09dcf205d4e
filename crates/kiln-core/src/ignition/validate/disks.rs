//! Disks with their partitions, RAID arrays and file systems.

use std::collections::HashMap;

use super::{Check, integer, is_true, items, place, text};
use crate::diagnostic::{Code, Diagnostic, Severity};
use crate::document::Node;

const FILE_SYSTEM: Code = Code(423);
const PARTITION: Code = Code(424);
const RAID: Code = Code(425);
const WIPED: Code = Code(436);
const SPEC_TWO: Code = Code(438);
const SAME_MOUNT_POINT: Code = Code(440);

pub(super) fn check(check: &mut Check<'_>) {
    let disks = check.list(&["storage", "disks"]);
    for disk in disks {
        check.disk(disk);
    }
    let arrays = check.list(&["storage", "raid"]);
    for array in arrays {
        check.raid(array);
    }
    check.unique_by(disks, "device", "the disk");
    check.unique_by(arrays, "name", "the RAID array");
    if check.is_v2() {
        check.spec_two_filesystems();
    } else {
        check.filesystems(disks);
    }
}

impl Check<'_> {
    fn disk(&mut self, disk: &Node) {
        let partitions = items(disk, "partitions");
        for partition in partitions {
            self.partition(partition);
        }
        if text(disk, "device").is_empty() {
            let at = place(disk, "device");
            self.partition_finding(
                at,
                "a disk has no device".into(),
                "Ignition must know which disk to change",
                "add `\"device\": \"/dev/disk/by-…\"`".into(),
            );
            return;
        }
        self.path(disk, "device", "disk");
        self.unique(
            partitions.iter().filter_map(|partition| {
                Some((integer(partition, "number").filter(|number| *number != 0)?.to_string(), partition))
            }),
            "the partition number",
        );
        let labels =
            partitions.iter().filter_map(|partition| Some((partition.get("label")?.as_str()?.to_owned(), partition)));
        if !self.is_v2() {
            self.unique(labels, "the partition label");
        }
        self.overlaps(partitions);
        self.removed_and_automatic(disk, partitions);
    }

    fn partition(&mut self, partition: &Node) {
        let number = integer(partition, "number").unwrap_or(0);
        let label = partition.get("label").and_then(Node::as_str);
        if partition.get("shouldExist").and_then(Node::as_bool) == Some(false) {
            let filled = |key: &&str| !text(partition, key).is_empty();
            let other =
                ["label", "startMiB", "sizeMiB", "start", "size"].into_iter().find(|key| partition.get(key).is_some());
            if let Some(key) = other.or_else(|| ["typeGuid", "guid"].into_iter().find(filled)) {
                self.partition_finding(
                    place(partition, key),
                    format!("partition {number} should not exist, but has `{key}`"),
                    "a partition to be deleted is known by its number alone",
                    format!("remove `{key}`"),
                );
            }
        }
        if number == 0 && label.is_none() && !self.is_v2() {
            self.partition_finding(
                partition.at,
                "a partition has neither a number nor a label".into(),
                "Ignition must be able to find the partition again",
                "add `\"number\": 1` or `\"label\": \"…\"`".into(),
            );
        }
        let label = label.unwrap_or_default();
        if label.len() > 36 {
            self.partition_finding(
                place(partition, "label"),
                format!("the partition label `{label}` has {} bytes, more than 36", label.len()),
                "a GPT entry has room for 36 characters, and Ignition counts bytes",
                "shorten the label".into(),
            );
        } else if label.contains(':') {
            self.partition_finding(
                place(partition, "label"),
                format!("the partition label `{label}` contains a colon"),
                "sgdisk, which Ignition calls, would cut the label there",
                format!("write `{}`", label.replace(':', "-")),
            );
        }
        for key in ["guid", "typeGuid"] {
            let guid = text(partition, key);
            if !guid.is_empty() && !is_guid(guid) {
                self.partition_finding(
                    place(partition, key),
                    format!("`{key}` is `{guid}`, which is not a GUID"),
                    "a GUID has the form 01234567-89AB-CDEF-EDCB-A98765432101",
                    format!("write a GUID, or remove `{key}`"),
                );
            }
        }
    }

    /// Only partitions with a fixed start and size can be compared; a size of 0 (the rest) counts as one unit.
    fn overlaps(&mut self, partitions: &[Node]) {
        let (start_key, size_key) = if self.is_v2() && partitions.iter().all(|p| p.get("startMiB").is_none()) {
            ("start", "size")
        } else {
            ("startMiB", "sizeMiB")
        };
        let mut fixed: Vec<(i128, i128, &Node)> = partitions
            .iter()
            .filter_map(|partition| {
                let (start, size) = (integer(partition, start_key)?, integer(partition, size_key)?);
                (start != 0).then_some((start, if size == 0 { start } else { start + size - 1 }, partition))
            })
            .collect();
        fixed.sort_by_key(|(start, end, _)| (*start, *end));
        let mut reach: Option<(i128, &Node)> = None;
        for (start, end, partition) in fixed {
            if let Some((last, other)) = reach.filter(|(last, _)| start <= *last) {
                let finding = Diagnostic::new(PARTITION, place(partition, start_key), format!("two partitions overlap: one begins at {start}, another ends at {last}"))
                    .cause("start and size are counted from the beginning of the disk; the last unit of one may not be in another")
                    .help(format!("write `\"{start_key}\": {}` or make the other partition smaller", last + 1))
                    .related(other.at, "the other partition");
                self.report(finding);
            }
            if reach.is_none_or(|(last, _)| end > last) {
                reach = Some((end, partition));
            }
        }
    }

    fn removed_and_automatic(&mut self, disk: &Node, partitions: &[Node]) {
        let removed =
            partitions.iter().any(|partition| partition.get("shouldExist").and_then(Node::as_bool) == Some(false));
        let automatic = partitions.iter().find(|partition| integer(partition, "number").unwrap_or(0) == 0);
        if let (true, Some(automatic)) = (removed, automatic) {
            let message =
                format!("the disk `{}` has a partition to delete and one without a number", text(disk, "device"));
            self.partition_finding(
                automatic.at,
                message,
                "the free number would depend on the order of deleting and adding",
                "give every partition of the disk a number".into(),
            );
        }
    }

    fn partition_finding(&mut self, at: crate::source::Location, message: String, cause: &str, help: String) {
        self.report(Diagnostic::new(PARTITION, at, message).cause(cause).help(help));
    }

    fn raid(&mut self, array: &Node) {
        let (name, level) = (text(array, "name"), text(array, "level"));
        let devices = items(array, "devices");
        let mut report = |key: &str, message: String, cause: &str, help: &str, severity: Severity| {
            self.report(Diagnostic::new(RAID, place(array, key), message).cause(cause).help(help).severity(severity));
        };
        if name.is_empty() {
            report(
                "name",
                "a RAID array has no name".into(),
                "Ignition accepts the config and fails to make the array at boot",
                "add `\"name\": \"…\"`",
                Severity::Warning,
            );
        }
        match level {
            "linear" | "raid0" | "0" | "stripe" if integer(array, "spares").unwrap_or(0) != 0 => {
                report(
                    "spares",
                    format!("the RAID array `{name}` of level {level} has spares"),
                    "linear and striped arrays have no redundancy, so a spare could never step in",
                    "remove `spares`",
                    Severity::Error,
                );
            }
            "linear" | "raid0" | "0" | "stripe" | "raid1" | "1" | "mirror" | "raid4" | "4" | "raid5" | "5"
            | "raid6" | "6" | "raid10" | "10" => {}
            level => {
                let message = match level {
                    "" => format!("the RAID array `{name}` has no level"),
                    level => format!("`{level}` is not a RAID level Ignition knows"),
                };
                report(
                    "level",
                    message,
                    "the levels are linear, raid0, raid1, raid4, raid5, raid6 and raid10",
                    "write for example `\"level\": \"raid1\"`",
                    Severity::Error,
                );
            }
        }
        if devices.is_empty() {
            report(
                "devices",
                format!("the RAID array `{name}` has no devices"),
                "an array is made of at least one device",
                "add `\"devices\": [\"/dev/disk/by-…\"]`",
                Severity::Error,
            );
        }
        for device in devices {
            self.path_text(device.as_str().unwrap_or_default(), device.at, "a device of the RAID array");
        }
        if !self.is_v2() {
            self.unique_texts(devices, "the device");
        }
    }

    fn filesystems(&mut self, disks: &[Node]) {
        let filesystems = self.list(&["storage", "filesystems"]);
        for filesystem in filesystems {
            self.path(filesystem, "device", "file system");
            if !text(filesystem, "path").is_empty() {
                self.path(filesystem, "path", "file system");
            }
            self.format(filesystem);
            self.label(filesystem);
            self.whole_disk(filesystem, disks);
        }
        self.unique_by(filesystems, "device", "the file system on");
        self.mount_points(filesystems);
    }

    fn format(&mut self, filesystem: &Node) {
        let format = text(filesystem, "format");
        let known: &[&str] = if self.since_3(3) {
            &["ext4", "btrfs", "xfs", "swap", "vfat", "none"]
        } else {
            &["ext4", "btrfs", "xfs", "swap", "vfat"]
        };
        if !format.is_empty() && !known.contains(&format) {
            let cause = format!("the formats of spec {} are {}", self.version, known.join(", "));
            self.report(
                Diagnostic::new(
                    FILE_SYSTEM,
                    place(filesystem, "format"),
                    format!("`{format}` is not a file system Ignition can make"),
                )
                .cause(cause)
                .help("write for example `xfs`"),
            );
        }
        let needs_format = ["path", "label", "uuid"]
            .into_iter()
            .find(|key| !text(filesystem, key).is_empty())
            .or_else(|| is_true(filesystem, "wipeFilesystem").then_some("wipeFilesystem"))
            .or_else(|| ["options", "mountOptions"].into_iter().find(|key| !items(filesystem, key).is_empty()));
        if let (true, Some(key)) = (format.is_empty(), needs_format) {
            self.report(
                Diagnostic::new(
                    FILE_SYSTEM,
                    place(filesystem, key),
                    format!("the file system on `{}` has `{key}` but no format", text(filesystem, "device")),
                )
                .cause("without a format Ignition neither makes nor mounts the file system")
                .help("add `\"format\": \"xfs\"` (or what the device holds)"),
            );
        }
    }

    fn label(&mut self, filesystem: &Node) {
        let (format, label) = (text(filesystem, "format"), text(filesystem, "label"));
        if let Some(longest) = longest_label(format).filter(|longest| label.len() > *longest) {
            self.report(
                Diagnostic::new(
                    FILE_SYSTEM,
                    place(filesystem, "label"),
                    format!("the label `{label}` has {} bytes, more than {longest}", label.len()),
                )
                .cause(format!("{format} has room for {longest} bytes"))
                .help("shorten the label"),
            );
        }
    }

    fn whole_disk(&mut self, filesystem: &Node, disks: &[Node]) {
        let device = text(filesystem, "device");
        let Some(disk) = disks.iter().find(|disk| text(disk, "device") == device) else { return };
        let message = if !items(disk, "partitions").is_empty() {
            format!("the file system is made on the whole disk `{device}`, over its partitions")
        } else if is_true(disk, "wipeTable") && !is_true(filesystem, "wipeFilesystem") {
            format!("`wipeTable` of the disk `{device}` also wipes the file system on it")
        } else {
            return;
        };
        self.report(
            Diagnostic::new(WIPED, place(filesystem, "device"), message)
                .cause("disks are changed first, file systems are made afterwards on whatever device is named")
                .help("name a partition, such as `/dev/disk/by-partlabel/data`, or remove the disk entry")
                .related(disk.at, "the disk"),
        );
    }

    fn mount_points(&mut self, filesystems: &[Node]) {
        let mut seen: HashMap<&str, &Node> = HashMap::new();
        for filesystem in filesystems {
            let path = text(filesystem, "path");
            if path.is_empty() {
                continue;
            }
            if let Some(first) = seen.insert(path, filesystem) {
                self.report(
                    Diagnostic::new(
                        SAME_MOUNT_POINT,
                        place(filesystem, "path"),
                        format!("two file systems are mounted at `{path}`"),
                    )
                    .cause("the later mount hides the earlier one, and files of the config land on whichever is on top")
                    .help("give one of them another `path`, or none")
                    .related(first.at, "also mounted there"),
                );
            }
        }
    }

    fn spec_two_filesystems(&mut self) {
        for filesystem in self.list(&["storage", "filesystems"]) {
            let (mount, path) = (filesystem.get("mount"), filesystem.get("path"));
            if mount.is_some() == path.is_some() {
                self.report(
                    Diagnostic::new(
                        SPEC_TWO,
                        filesystem.at,
                        format!("the file system `{}` needs either `mount` or `path`", text(filesystem, "name")),
                    )
                    .cause("spec 2 either mounts a device or uses what is already mounted at a path")
                    .help("keep one of the two"),
                );
            }
            if path.is_some() {
                self.path(filesystem, "path", "file system");
            }
            if let Some(mount) = mount {
                self.path(mount, "device", "file system");
                if !matches!(text(mount, "format"), "ext4" | "btrfs" | "xfs" | "swap" | "vfat") {
                    self.report(
                        Diagnostic::new(
                            FILE_SYSTEM,
                            place(mount, "format"),
                            format!("`{}` is not a file system Ignition can make", text(mount, "format")),
                        )
                        .cause("the formats of spec 2 are ext4, btrfs, xfs, swap and vfat")
                        .help("write for example `xfs`"),
                    );
                }
                self.label(mount);
            }
        }
    }
}

fn longest_label(format: &str) -> Option<usize> {
    Some(match format {
        "ext4" => 16,
        "btrfs" => 256,
        "xfs" => 12,
        "swap" => 15,
        "vfat" => 11,
        _ => return None,
    })
}

fn is_guid(text: &str) -> bool {
    let lengths = text.split('-').map(str::len);
    lengths.eq([8, 4, 4, 4, 12]) && text.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
}
