//! Codes about first boot and profiles (01xx).

super::codes! {}
