//! Ignition configs: validation, merge, conversion, pointers.
