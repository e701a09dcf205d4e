//! Codes about images and sizes (07xx).

super::codes! {}
