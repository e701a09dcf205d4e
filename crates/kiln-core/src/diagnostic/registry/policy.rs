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
    0609 Error "a field of `spec.kiln` that is refused",
    0610 Error "a template that stands for nothing",
    0611 Error "a policy that comes after nobody",
    0612 Error "policies that wait for each other",
    0613 Error "a pool with fewer addresses than nodes",
    0614 Error "one address for two nodes",
    0615 Error "one VLAN twice on an interface",
    0616 Warning "an interface larger than the one below it",
    0617 Error "a gateway that cannot be reached",
}
