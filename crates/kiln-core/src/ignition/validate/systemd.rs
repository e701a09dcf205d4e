//! systemd units, their drop-ins, and spec 2's networkd units.

use super::{Check, is_true, items, place, text};
use crate::diagnostic::{Code, Diagnostic};
use crate::document::Node;
use crate::ignition::unit_file;

const NAME: Code = Code(427);
const SYNTAX: Code = Code(428);
const NO_INSTALL: Code = Code(429);

/// What the names of units end with.
pub(crate) const UNIT_TYPES: [&str; 12] = [
    "service",
    "socket",
    "device",
    "mount",
    "automount",
    "swap",
    "target",
    "path",
    "timer",
    "snapshot",
    "slice",
    "scope",
];
const NETWORKD_TYPES: [&str; 3] = ["link", "netdev", "network"];

pub(super) fn check(check: &mut Check<'_>) {
    let units = check.list(&["systemd", "units"]);
    for unit in units {
        check.unit(unit, &UNIT_TYPES);
        let enabled = is_true(unit, "enabled") || (check.is_v2() && is_true(unit, "enable"));
        if enabled {
            check.install_section(unit);
        }
    }
    let networkd = if check.is_v2() { check.list(&["networkd", "units"]) } else { &[] };
    for unit in networkd {
        check.unit(unit, &NETWORKD_TYPES);
    }
    if !check.is_v2() {
        check.unique_by(units, "name", "the unit");
    }
}

impl Check<'_> {
    fn unit(&mut self, unit: &Node, types: &[&str]) {
        let name = text(unit, "name");
        if !types.contains(&extension(name)) {
            let message = match name {
                "" => "a unit has no name".to_owned(),
                name => format!("the unit name `{name}` does not end with a unit type"),
            };
            self.report(
                Diagnostic::new(NAME, place(unit, "name"), message)
                    .cause(format!("Ignition accepts names that end with .{}", types.join(", .")))
                    .help(match name {
                        "" => format!("write the name, such as `example.{}`", types[0]),
                        name => format!("write `{}.{}`", name.trim_end_matches('.'), types[0]),
                    }),
            );
        }
        self.unit_text(unit, &format!("unit `{name}`"));
        let dropins = items(unit, "dropins");
        for dropin in dropins {
            self.dropin(dropin, name);
        }
        if !self.is_v2() {
            self.unique_by(dropins, "name", "the drop-in");
        }
    }

    fn dropin(&mut self, dropin: &Node, unit: &str) {
        let name = text(dropin, "name");
        if extension(name) != "conf" {
            self.report(
                Diagnostic::new(
                    NAME,
                    place(dropin, "name"),
                    format!("the drop-in name `{name}` of `{unit}` does not end with `.conf`"),
                )
                .cause("systemd reads only drop-ins whose names end with `.conf`")
                .help(if name.is_empty() {
                    "write `10-example.conf`".to_owned()
                } else {
                    format!("write `{name}.conf`")
                }),
            );
        }
        self.unit_text(dropin, &format!("drop-in `{name}` of `{unit}`"));
    }

    fn unit_text(&mut self, node: &Node, called: &str) {
        if let Err(error) = unit_file::sections(text(node, "contents")) {
            self.report(
                Diagnostic::new(SYNTAX, place(node, "contents"), format!("the {called} is not a unit file: line {}: {}", error.line, error.reason))
                    .cause("a unit file has sections such as `[Unit]` and, in them, lines of the form `Name=value`; Ignition refuses anything else")
                    .help(format!("correct line {} of the contents", error.line)),
            );
        }
    }

    fn install_section(&mut self, unit: &Node) {
        let contents = text(unit, "contents");
        let Ok(sections) = unit_file::sections(contents) else { return };
        if contents.is_empty() || sections.contains(&"Install") {
            return;
        }
        let name = text(unit, "name");
        self.report(
            Diagnostic::new(
                NO_INSTALL,
                place(unit, "contents"),
                format!("the unit `{name}` is enabled but has no `[Install]` section"),
            )
            .cause("enabling a unit means linking it where `[Install]` says; without it nothing starts the unit")
            .help("add `[Install]` with `WantedBy=multi-user.target`, or remove `enabled`"),
        );
    }
}

/// What follows the last dot of the last part of a path.
fn extension(name: &str) -> &str {
    name.rsplit('/').next().and_then(|name| name.rsplit_once('.')).map_or("", |(_, extension)| extension)
}
