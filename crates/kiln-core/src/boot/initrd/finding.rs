//! What the generator does with an argument without telling: drops it, reads it differently, loses the profile.

use crate::diagnostic::{Code, Diagnostic};
use crate::source::Location;

/// What became of an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// The program crashes on it or gives up: nothing is written at all.
    Fatal,
    /// NetworkManager's own check refuses the profile it made: its file is not written.
    ProfileLost,
    /// The whole argument has no effect.
    Ignored,
    /// It means something else than it seems to say.
    Reinterpreted,
    /// A part of it has no effect.
    PartlyIgnored,
    /// Its effect depends on the machine's firmware, which is not known here.
    Firmware,
}

/// An argument that does not do what it seems to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dropped {
    /// The argument as written: `ip=eno1:dchp`.
    pub argument: String,
    /// What became of it.
    pub effect: Effect,
    /// Why, in plain words.
    pub reason: String,
    /// What to write instead, when it can be guessed.
    pub meant: Option<String>,
}

/// Diagnostics for what was dropped or reinterpreted, all at the place the command line stands at.
pub fn diagnose(dropped: &[Dropped], at: Option<Location>) -> Vec<Diagnostic> {
    dropped.iter().map(|dropped| diagnostic(dropped, at)).collect()
}

fn diagnostic(Dropped { argument, effect, reason, meant }: &Dropped, at: Option<Location>) -> Diagnostic {
    let (code, message, cause) = match effect {
        Effect::Fatal => (
            Code(100),
            format!("kernel argument `{argument}` stops nm-initrd-generator: {reason}"),
            "it then leaves no profile for any interface, whatever the other arguments say",
        ),
        Effect::Ignored => (
            Code(101),
            format!("kernel argument `{argument}` has no effect: {reason}"),
            "nm-initrd-generator ignores what it does not understand and still ends successfully",
        ),
        Effect::Reinterpreted => (
            Code(102),
            format!("kernel argument `{argument}` is read differently: {reason}"),
            "nm-initrd-generator guesses instead of refusing",
        ),
        Effect::ProfileLost => (
            Code(103),
            format!("kernel argument `{argument}` makes a profile that is not written: {reason}"),
            "nm-initrd-generator checks each profile with NetworkManager's own rules and skips the file when one is broken",
        ),
        Effect::PartlyIgnored => (
            Code(104),
            format!("a part of kernel argument `{argument}` has no effect: {reason}"),
            "nm-initrd-generator ignores what it does not understand and still ends successfully",
        ),
        Effect::Firmware => (
            Code(105),
            format!("the effect of kernel argument `{argument}` cannot be foreseen: {reason}"),
            "nm-initrd-generator reads /sys/firmware of the machine it runs on",
        ),
    };
    let diagnostic = Diagnostic::new(code, at, message).cause(cause);
    diagnostic.help(meant.as_deref().unwrap_or(
        "correct the argument or remove it; `kiln boot simulate --kargs \"…\"` shows what becomes of a command line",
    ))
}

/// The known word that a misspelt one most probably stands for.
pub(super) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let allowed = if word.len() < 3 {
        0
    } else if word.len() < 8 {
        1
    } else {
        2
    };
    known
        .into_iter()
        .map(|known| (strsim::damerau_levenshtein(word, known), known))
        .filter(|(distance, _)| (1..=allowed).contains(distance))
        .min()
        .map(|(_, known)| known)
}
