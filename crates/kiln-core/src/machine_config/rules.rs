//! What the machine-config-operator refuses in a MachineConfig or in the config rendered from several.

use super::Rendered;
use crate::diagnostic::{Code, Diagnostic, Severity};
use crate::document::Node;
use crate::ignition::Config;
use crate::source::Sourced;
use crate::world::MachineConfig;

/// Kernels a MachineConfig may ask for.
const KERNEL_TYPES: [&str; 4] = ["", "default", "realtime", "64k-pages"];

/// Extensions of RHCOS the operator knows.
const EXTENSIONS: [&str; 8] =
    ["ipsec", "kerberos", "kernel-devel", "sandboxed-containers", "sysstat", "two-node-ha", "usbguard", "wasm"];

/// Largest object etcd takes, in bytes.
const SIZE_LIMIT: usize = 1_572_864;

/// Where an operator is warned: four fifths of the limit.
const SIZE_WARNING: usize = SIZE_LIMIT / 5 * 4;

/// Parts of Ignition that only a new machine's first boot honours: path in the config and what it is called.
const FIRST_BOOT_ONLY: [(&[&str], &str); 8] = [
    (&["storage", "disks"], "disks"),
    (&["storage", "raid"], "RAID arrays"),
    (&["storage", "luks"], "LUKS volumes"),
    (&["storage", "filesystems"], "filesystems"),
    (&["storage", "directories"], "directories"),
    (&["storage", "links"], "links"),
    (&["kernelArguments"], "Ignition kernel arguments"),
    (&["passwd", "groups"], "groups"),
];

/// Whether a kernel type is other than the default.
pub(super) fn is_special_kernel(kernel: &Sourced<String>) -> bool {
    kernel.value == "realtime" || kernel.value == "64k-pages"
}

/// Checks one MachineConfig by itself.
pub(super) fn check(config: &MachineConfig, found: &mut Vec<Diagnostic>) {
    if let Some(kernel) = &config.kernel_type
        && !KERNEL_TYPES.contains(&kernel.as_str())
    {
        found.push(
            Diagnostic::new(Code(482), kernel.at, format!("there is no kernel type `{kernel}`"))
                .cause("the machine-config-operator knows `default`, `realtime` and `64k-pages` and refuses the pool")
                .help("write one of them or take `kernelType` out"),
        );
    }
    for extension in config.extensions.iter().filter(|extension| !EXTENSIONS.contains(&extension.as_str())) {
        found.push(
            Diagnostic::new(Code(483), extension.at, format!("there is no extension `{extension}`"))
                .cause("the machine-config-operator has a fixed list of extensions and refuses the pool")
                .help(format!("write one of {}", EXTENSIONS.join(", "))),
        );
    }
}

/// Checks what came out.
pub(super) fn check_rendered(pool: &str, rendered: &Rendered) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    check_files(&rendered.config, &mut found);
    check_first_boot_only(&rendered.config, &mut found);
    check_kernel(rendered, &mut found);
    check_size(pool, rendered, &mut found);
    found
}

/// Spec 2 MachineConfigs may only speak of the user `core`.
pub(super) fn check_spec2_users(config: &Config, found: &mut Vec<Diagnostic>) {
    for user in config.root.path(&["passwd", "users"]).map(Node::items).unwrap_or_default() {
        let name = user.get("name").and_then(Node::as_str).unwrap_or_default();
        if name != "core" {
            found.push(
                Diagnostic::new(Code(487), user.at, format!("the user `{name}` cannot be configured"))
                    .cause("in a spec 2 MachineConfig the machine-config-operator accepts only the user `core`")
                    .help("take the user out"),
            );
        }
    }
}

fn check_files(config: &Config, found: &mut Vec<Diagnostic>) {
    for file in config.root.path(&["storage", "files"]).map(Node::items).unwrap_or_default() {
        let path = file.get("path").and_then(Node::as_str).unwrap_or_default();
        if let Some(mode) = file.get("mode")
            && let Some(bits) = mode.as_integer().filter(|bits| *bits > 0o777)
        {
            let meant = decimal_meant_as_octal(bits);
            let help = match meant {
                Some(meant) => format!("write `mode: {meant}` (0{meant:o}); JSON and the number {bits} are decimal"),
                None => format!("write a mode up to 0777, such as `mode: {}` (0{:o})", bits & 0o777, bits & 0o777),
            };
            found.push(
                Diagnostic::new(Code(481), mode.at, format!("mode {bits} (0{bits:o}) of `{path}` exceeds 0777"))
                    .cause("the machine-config-operator refuses setuid, setgid and sticky bits: the pool is RenderDegraded")
                    .help(help),
            );
        }
        if let Some(append) = file.get("append").filter(|append| !append.items().is_empty()) {
            found.push(
                Diagnostic::new(Code(485), append.at, format!("`{path}` appends to a file"))
                    .cause("the machine-config-daemon writes whole files only and marks the node Unreconcilable")
                    .help("put the whole contents under `contents`"),
            );
        }
    }
}

/// 644 or 755 written without the leading zero: what the writer meant.
fn decimal_meant_as_octal(bits: i128) -> Option<i128> {
    let text = bits.to_string();
    i128::from_str_radix(&text, 8).ok().filter(|meant| *meant <= 0o777)
}

fn check_first_boot_only(config: &Config, found: &mut Vec<Diagnostic>) {
    for (path, name) in FIRST_BOOT_ONLY {
        let Some(part) = config.root.path(path) else { continue };
        if part.items().is_empty() && part.entries().iter().all(|entry| entry.value.items().is_empty()) {
            continue;
        }
        let at = part.items().first().map_or(part.at, |item| item.at);
        found.push(
            Diagnostic::new(Code(488), at, format!("{name} are honoured on new nodes only"))
                .cause(
                    "the machine-config-daemon applies files, units, kernel arguments of the MachineConfig and core's \
                     keys; a change of anything else makes running nodes Unreconcilable",
                )
                .help("decide on it before the first node of the pool is installed"),
        );
    }
}

fn check_kernel(rendered: &Rendered, found: &mut Vec<Diagnostic>) {
    let devel = rendered.extensions.iter().find(|extension| extension.value == "kernel-devel");
    if let (Some(kernel), Some(devel)) = (&rendered.kernel_type, devel) {
        found.push(
            Diagnostic::new(
                Code(484),
                devel.at,
                format!("kernel-devel cannot be installed with the `{kernel}` kernel"),
            )
            .cause("kernel-devel matches the default kernel only; the pool is RenderDegraded")
            .help("take the extension or the kernel type out")
            .related(kernel.at, "the kernel type"),
        );
    }
}

fn check_size(pool: &str, rendered: &Rendered, found: &mut Vec<Diagnostic>) {
    let size = rendered.config.root.to_json().to_string().len();
    if size < SIZE_WARNING {
        return;
    }
    let severity = if size > SIZE_LIMIT { Severity::Error } else { Severity::Warning };
    found.push(
        Diagnostic::new(Code(486), rendered.config.root.at, format!("the config of pool `{pool}` has {size} bytes"))
            .cause(format!("a rendered MachineConfig is one object in etcd, which takes at most {SIZE_LIMIT} bytes"))
            .help("compress large files (`compression: gzip`) or fetch them on the node instead")
            .severity(severity),
    );
}
