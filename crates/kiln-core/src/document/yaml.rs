//! YAML text to [`Node`]s, within bounds.
