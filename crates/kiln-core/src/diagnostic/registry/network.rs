//! Codes about network documents (02xx).

super::codes! {}
