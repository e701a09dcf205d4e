//! Codes about Ignition and MachineConfigs (04xx).

super::codes! {}
