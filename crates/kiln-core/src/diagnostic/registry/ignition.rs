//! Codes about Ignition and MachineConfigs (04xx).

super::codes! {
    0400 Error "the text is not JSON",
    0401 Warning "a key is written twice in one object",
    0402 Error "the document is larger than Kiln reads",
    0403 Warning "the text is not UTF-8",
    0404 Error "the Ignition spec version is missing or unknown",
    0405 Error "a Butane config where an Ignition config is expected",
    0406 Error "a field has the wrong type",
    0407 Warning "an unknown key is ignored",
    0408 Warning "a key is written in another letter case",
    0409 Warning "a field needs a newer Ignition spec",
}
