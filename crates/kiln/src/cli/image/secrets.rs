//! What in an image is a secret: whoever reads the image learns it.

use kiln_core::network::is_secret;
use kiln_image::Carried;

/// Whether there is one. An Ignition config is: it holds keys, tokens and hashes.
pub fn has_secrets(carried: &Carried) -> bool {
    let secret_line = |line: &str| secret_key(line).is_some();
    carried.config || carried.network.iter().any(|file| String::from_utf8_lossy(&file.bytes).lines().any(secret_line))
}

/// What stands before the `=` of a keyfile's line, if a secret follows it.
pub fn secret_key(line: &str) -> Option<&str> {
    line.split_once('=').map(|(key, _)| key).filter(|key| is_secret(key.trim()))
}

#[cfg(test)]
mod tests {
    use kiln_image::NamedFile;

    use super::*;

    #[test]
    fn passwords_and_ignition_configs_are_secrets() {
        let with = |text: &str| Carried {
            network: vec![NamedFile { name: "a.nmconnection".into(), bytes: text.into() }],
            config: false,
        };
        assert!(!has_secrets(&Carried::default()));
        assert!(!has_secrets(&with("[connection]\nid=a\n[802-1x]\npassword-flags=1\n")));
        assert!(has_secrets(&with("[wifi-security]\npsk = hunter2\n")));
        assert!(has_secrets(&with("[802-1x]\nprivate-key-password=x\n")));
        assert!(has_secrets(&Carried { config: true, ..Carried::default() }));
    }
}
