//! Codes about network documents (02xx).

super::codes! {
    0200 Error "nmstate refuses the network document",
}
