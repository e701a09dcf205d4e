//! `ignition.firstboot`: the file whose presence makes a boot the first one, and the kernel arguments it may carry.
//!
//! GRUB sources it. Only assignments to `ignition_network_kcmdline` are understood; everything else in it stays.

const VARIABLE: &str = "ignition_network_kcmdline";

/// The arguments of the last assignment, which is the one GRUB ends up with.
pub fn kargs(text: &str) -> Vec<String> {
    text.lines()
        .rev()
        .find_map(value)
        .map(|value| value.split_whitespace().map(str::to_owned).collect())
        .unwrap_or_default()
}

/// The text with these arguments instead.
pub fn with_kargs(text: &str, kargs: &[String]) -> String {
    let mut result: String = text.split_inclusive('\n').filter(|line| value(line).is_none()).collect();
    if !kargs.is_empty() {
        if !result.is_empty() && !result.ends_with('\n') {
            result.push('\n');
        }
        result.push_str(&format!("set {VARIABLE}=\"{}\"\n", kargs.join(" ")));
    }
    result
}

fn value(line: &str) -> Option<&str> {
    let line = line.trim();
    let assignment = line.strip_prefix("set ").unwrap_or(line).trim_start();
    let value = assignment.strip_prefix(VARIABLE)?.strip_prefix('=')?.trim();
    let unquoted = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
    Some(unquoted('"').or_else(|| unquoted('\'')).unwrap_or(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_replaced_and_the_rest_stays() {
        let texts = [
            ("", "set ignition_network_kcmdline=\"a b\"\n"),
            ("# kept", "# kept\nset ignition_network_kcmdline=\"a b\"\n"),
            ("set ignition_network_kcmdline='ip=dhcp'\nset x=1\n", "set x=1\nset ignition_network_kcmdline=\"a b\"\n"),
            ("ignition_network_kcmdline=old\r\n", "set ignition_network_kcmdline=\"a b\"\n"),
        ];
        for (text, expected) in texts {
            assert_eq!(with_kargs(text, &["a".to_owned(), "b".to_owned()]), expected);
        }
        assert_eq!(with_kargs("set ignition_network_kcmdline=\"x\"\n", &[]), "");
        assert_eq!(kargs("set ignition_network_kcmdline=\"ip=dhcp rd.neednet=1\"\n"), ["ip=dhcp", "rd.neednet=1"]);
        assert_eq!(kargs("set ignition_network_kcmdline='x'"), ["x"]);
        assert_eq!(kargs("set other=\"x\"\n"), Vec::<String>::new());
    }
}
