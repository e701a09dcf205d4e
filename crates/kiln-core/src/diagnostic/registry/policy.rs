//! Codes about day-2 policies (06xx).

super::codes! {}
