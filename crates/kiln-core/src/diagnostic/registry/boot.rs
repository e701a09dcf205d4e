//! Codes about first boot and profiles (01xx).

super::codes! {
    0100 Error "a kernel argument stops nm-initrd-generator: no profile at all",
    0101 Error "a kernel argument has no effect",
    0102 Warning "a kernel argument is read differently than it looks",
    0103 Error "a profile from kernel arguments is not written",
    0104 Warning "a part of a kernel argument has no effect",
    0105 Note "the effect of a kernel argument depends on firmware",
    0120 Error "a MachineConfig keeps declared networks out of the installed system",
    0121 Error "NetworkManager ignores a keyfile because of its mode",
    0122 Warning "NetworkManager will choose another profile than the declared one",
    0123 Error "a kernel argument switches the copy of the network off",
    0124 Error "a profile needs a profile that does not exist",
    0125 Warning "a bond has no ports",
    0126 Note "hosts added to a pool later will lose their declared network",
    0127 Error "a forced profile lands in a file NetworkManager ignores",
    0128 Error "NetworkManager refuses a keyfile",
    0140 Warning "NetworkManager ignores a value of a keyfile",
}
