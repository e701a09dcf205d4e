//! Codes about reading input (00xx).

super::codes! {}
