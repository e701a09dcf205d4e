//! What a user wants in an image, whatever the image's format is.
//!
//! A value of [`Customization`] says everything; the code of each format decides where it goes. It replaces what an
//! earlier customisation put there and never adds to it, so the same wish always gives the same image.
//!
//! Not here: nmstate and the meaning of keyfiles and Ignition configs. They arrive rendered and judged.

use std::collections::BTreeSet;
use std::fmt;

use crate::ImageError;

/// A file with its name and without a folder.
#[derive(Clone, PartialEq, Eq)]
pub struct NamedFile {
    /// A plain name such as `bond0.nmconnection`.
    pub name: String,
    /// What is in it.
    pub bytes: Vec<u8>,
}

/// Keyfiles hold passwords: only the size is ever shown.
impl fmt::Debug for NamedFile {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} ({} bytes)", self.name, self.bytes.len())
    }
}

/// What is put into an image for one machine.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Customization {
    /// NetworkManager keyfiles for the first boot.
    pub network: Vec<NamedFile>,
    /// The Ignition config of the first boot.
    pub ignition: Option<Vec<u8>>,
    /// Kernel arguments of every boot, added at the end.
    pub append_kargs: Vec<String>,
    /// Kernel arguments to take away.
    pub delete_kargs: Vec<String>,
    /// Kernel arguments of the first boot alone, such as `coreos.force_persist_ip`.
    pub firstboot_kargs: Vec<String>,
}

/// Ignition configs hold secrets too.
impl fmt::Debug for Customization {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Customization")
            .field("network", &self.network)
            .field("ignition", &self.ignition.as_ref().map(|config| format!("{} bytes", config.len())))
            .field("append_kargs", &self.append_kargs)
            .field("delete_kargs", &self.delete_kargs)
            .field("firstboot_kargs", &self.firstboot_kargs)
            .finish()
    }
}

/// What an image holds that not everybody may read: whoever has the image has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Carried {
    /// Network files, in which there may be passwords.
    pub network: Vec<NamedFile>,
    /// Whether there is an Ignition config, or anything else that an installer put there.
    pub config: bool,
}

impl Carried {
    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.network.is_empty() && !self.config
    }

    /// What a wish brings.
    pub fn of(wish: &Customization) -> Carried {
        Carried { network: wish.network.clone(), config: wish.ignition.is_some() }
    }

    /// Both.
    pub fn and(mut self, other: Carried) -> Carried {
        self.network.extend(other.network);
        self.config |= other.config;
        self
    }
}

/// What a keyfile's name may not exceed: the longest file name of ext4 and of the node's tmpfs.
const LONGEST_NAME: usize = 255;

impl Customization {
    /// Whether nothing is wanted.
    pub fn is_empty(&self) -> bool {
        *self == Customization::default()
    }

    /// Refuses wishes that no format could honour. Every planner calls it first.
    pub fn check(&self) -> Result<(), ImageError> {
        let mut names = BTreeSet::new();
        for NamedFile { name, .. } in &self.network {
            check_name(name)?;
            if !names.insert(name) {
                return Err(ImageError::refused(
                    format!("network file `{name}`"),
                    "the name is given twice",
                    "give each file its own name",
                ));
            }
        }
        self.append_kargs.iter().chain(&self.delete_kargs).try_for_each(|karg| check_karg(karg))?;
        self.firstboot_kargs.iter().try_for_each(|karg| check_firstboot_karg(karg))
    }
}

fn check_name(name: &str) -> Result<(), ImageError> {
    let refuse = |problem: &str, fix: &str| Err(ImageError::refused(format!("network file `{name}`"), problem, fix));
    if name.starts_with('.') {
        // `ls -A` sees them and throws the generated profiles away, `cp dir/*` does not copy them.
        return refuse("the first boot does not copy files whose name begins with a dot", "rename it");
    }
    if name.is_empty() || name.contains(['/', '\0', '\n']) {
        return refuse("this is not a file name", "give a name without folders, such as `eno1.nmconnection`");
    }
    if name.len() > LONGEST_NAME {
        return refuse("the name has more than 255 bytes", "choose a shorter one");
    }
    Ok(())
}

/// The kernel splits its command line at blanks outside double quotes.
fn check_karg(karg: &str) -> Result<(), ImageError> {
    let refuse = |problem: &str, fix: &str| Err(ImageError::refused(format!("kernel argument `{karg}`"), problem, fix));
    if karg.is_empty() {
        return refuse("it is empty", "leave it out");
    }
    if karg.chars().any(char::is_control) {
        return refuse("it contains a control character", "remove it");
    }
    let mut quoted = false;
    for character in karg.chars() {
        match character {
            '"' => quoted = !quoted,
            ' ' if !quoted => {
                return refuse(
                    "the kernel would read more than one argument",
                    "give each argument by itself, or quote the value: key=\"a b\"",
                );
            }
            _ => {}
        }
    }
    if quoted { refuse("its double quotes do not pair", "add the missing quote") } else { Ok(()) }
}

/// These stand between double quotes in a file that GRUB sources.
fn check_firstboot_karg(karg: &str) -> Result<(), ImageError> {
    check_karg(karg)?;
    if karg.contains(['"', '$', '\\', '`', ' ']) {
        return Err(ImageError::refused(
            format!("kernel argument `{karg}`"),
            "GRUB would read blanks, quotes, `$` and `\\` in an argument of the first boot by its own rules",
            "give it as a permanent kernel argument instead",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> NamedFile {
        NamedFile { name: name.to_owned(), bytes: b"psk=hunter2".to_vec() }
    }

    #[test]
    fn wishes_that_cannot_be_honoured_are_refused_with_the_reason() {
        let refusals = [
            (
                Customization { network: vec![named(".eno1.nmconnection")], ..Default::default() },
                "network file `.eno1.nmconnection`: the first boot does not copy files whose name begins with a dot; rename it",
            ),
            (
                Customization { network: vec![named("a/b")], ..Default::default() },
                "network file `a/b`: this is not a file name; give a name without folders, such as `eno1.nmconnection`",
            ),
            (
                Customization { network: vec![named("a"), named("a")], ..Default::default() },
                "network file `a`: the name is given twice; give each file its own name",
            ),
            (
                Customization { append_kargs: vec!["a b".to_owned()], ..Default::default() },
                "kernel argument `a b`: the kernel would read more than one argument; give each argument by itself, or quote the value: key=\"a b\"",
            ),
            (
                Customization { delete_kargs: vec!["a=\"b".to_owned()], ..Default::default() },
                "kernel argument `a=\"b`: its double quotes do not pair; add the missing quote",
            ),
            (
                Customization { firstboot_kargs: vec!["ip=$x".to_owned()], ..Default::default() },
                "kernel argument `ip=$x`: GRUB would read blanks, quotes, `$` and `\\` in an argument of the first boot by its own rules; give it as a permanent kernel argument instead",
            ),
        ];
        for (customization, expected) in refusals {
            assert_eq!(customization.check().unwrap_err().to_string(), expected);
        }
        let fine = Customization {
            append_kargs: vec!["dyndbg=\"file a +p\"".to_owned()],
            network: vec![named("a")],
            ..Default::default()
        };
        fine.check().unwrap();
        assert!(!format!("{fine:?}").contains("hunter2"));
    }
}
