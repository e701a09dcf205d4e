//! Sets of keyfiles in one text: `=== base bond0.nmconnection 0600`, the lines of the file, the next header.

use kiln_core::keyfile::{ConnectionFile, Keyfile};

/// The files under the headers that begin with `=== set`.
pub fn read_set(text: &str, set: &str) -> Vec<ConnectionFile> {
    let sections = text.split("=== ").skip(1).map(|section| section.split_once('\n').unwrap_or((section, "")));
    sections
        .filter_map(|(header, body)| {
            let mut words = header.split_whitespace();
            let (found, name, mode) = (words.next()?, words.next()?, words.next().unwrap_or("0600"));
            let file = || ConnectionFile {
                name: name.to_owned(),
                mode: u32::from_str_radix(mode, 8).unwrap(),
                keyfile: Keyfile::parse(body).unwrap_or_else(|error| panic!("{header}: {error}")),
            };
            (found == set).then(file)
        })
        .collect()
}
