//! Codes about images and sizes (07xx).

super::codes! {
    0700 Error "a discovery image without room for its networks",
    0702 Note "a config larger than the platform's user-data",
}
