//! Names of units and where their files lie.

use crate::ignition::validate::UNIT_TYPES;

/// Where units and their drop-ins are written.
pub const UNITS: &str = "/etc/systemd/system/";
/// The longest name systemd takes.
const LONGEST_NAME: usize = 255;

/// The file of a unit.
pub fn unit_path(name: &str) -> String {
    format!("{UNITS}{name}")
}

/// The file of a unit's drop-in.
pub fn drop_in_path(unit: &str, name: &str) -> String {
    format!("{UNITS}{unit}.d/{name}")
}

/// Whether it is the name of a unit that can stand in a command line and in a path.
///
/// systemd also has the units `-.mount` and `-.slice`: they are not taken, as they look like options.
pub fn is_unit_name(name: &str) -> bool {
    let known = |(stem, kind): (&str, &str)| !stem.is_empty() && UNIT_TYPES.contains(&kind);
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b":-_.\\@".contains(&byte);
    name.len() <= LONGEST_NAME
        && !name.starts_with(['-', '.'])
        && name.bytes().all(plain)
        && name.rsplit_once('.').is_some_and(known)
}

/// Whether it is the name of a drop-in that systemd reads.
pub fn is_drop_in_name(name: &str) -> bool {
    name.len() <= LONGEST_NAME
        && !name.starts_with(['-', '.'])
        && !name.contains(|letter: char| letter == '/' || letter.is_control())
        && name.ends_with(".conf")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_are_safe_in_paths_and_command_lines_are_units() {
        for name in ["crio.service", "getty@tty1.service", "a@.socket", r"var-lib-a\x2db.mount", "x.y.timer"] {
            assert!(is_unit_name(name), "{name}");
        }
        let long = format!("{}.service", "a".repeat(248));
        for name in
            ["", "crio", ".service", "-.mount", "--now.service", "a/b.service", "a b.service", "a.service\n", &long]
        {
            assert!(!is_unit_name(name), "{name}");
        }
        for name in ["10-kiln.conf", "a b.conf"] {
            assert!(is_drop_in_name(name), "{name}");
        }
        for name in ["", ".conf", "-a.conf", "a/../b.conf", "a.conf.bak", "a\0.conf"] {
            assert!(!is_drop_in_name(name), "{name}");
        }
    }

    #[test]
    fn units_lie_below_etc() {
        assert_eq!(unit_path("crio.service"), "/etc/systemd/system/crio.service");
        assert_eq!(drop_in_path("crio.service", "a.conf"), "/etc/systemd/system/crio.service.d/a.conf");
    }
}
