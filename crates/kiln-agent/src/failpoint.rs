//! Dying at a named step, so that tests can show what is left behind. In release builds it does nothing.
//!
//! [`TRYING`] and [`RETURNING`] have every step of a try of the network: a step that is missing there fails every test that
//! reaches it, and a test that dies at each of them fails for one that is never reached.

/// From the first look to the commit, in order. `file` and `stage` are numbered: `file-0`.
pub const TRYING: [&str; 12] = [
    "asked",
    "checkpoint",
    "journal",
    "file",
    "files",
    "loaded",
    "hostname",
    "stage",
    "stages",
    "verified",
    "proved",
    "committed",
];

/// The way back, in order. The last is reached by who recovers, not by who tries.
pub const RETURNING: [&str; 6] =
    ["failed", "restored-files", "restored-loaded", "restored-checkpoint", "restored-active", "recovered"];

/// Ends the process without any cleaning up when `KILN_AGENT_DIE_AT` names this step.
pub fn reach(step: &str) {
    #[cfg(debug_assertions)]
    {
        let name = step.trim_end_matches(|letter: char| letter.is_ascii_digit()).trim_end_matches('-');
        let known = TRYING.contains(&name) || RETURNING.contains(&name) || name.starts_with("machine-");
        assert!(known, "step `{step}` is in no list of steps");
        if std::env::var_os("KILN_AGENT_DIE_AT").is_some_and(|wanted| wanted == step) {
            std::process::abort();
        }
    }
    tracing::debug!(step, "reached");
}
