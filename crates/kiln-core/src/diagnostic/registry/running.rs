//! Codes about clusters that run (08xx), which `kiln doctor` finds.

super::codes! {
    0801 Error "OVN's control plane waits for a Secret nobody makes",
    0802 Warning "certificate requests that nobody decides",
    0803 Error "nodes whose certificate has ended",
    0804 Error "nodes without a pod network",
    0805 Warning "a saved config with an authority of yesterday",
    0806 Error "a config server's certificate without names",
}
