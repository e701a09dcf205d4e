//! Codes about cluster network (05xx).

super::codes! {}
