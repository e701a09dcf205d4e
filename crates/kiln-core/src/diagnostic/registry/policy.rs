//! Codes about day-2 policies (06xx).

super::codes! {
    0600 Error "two policies that fight over one interface",
    0601 Warning "a policy that selects no declared node",
    0602 Error "a policy name that is refused",
    0603 Error "a node selector value no label can have",
    0604 Note "a policy that depends on the running node",
    0605 Warning "a policy that builds on another policy's interface",
    0606 Warning "policies that may change every node at once",
    0607 Error "a policy that takes the primary interface's address away",
    0608 Warning "a budget that does not mean what it says",
}
