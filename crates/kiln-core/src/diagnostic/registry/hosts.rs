//! Codes about hosts and discovery (03xx).

super::codes! {}
