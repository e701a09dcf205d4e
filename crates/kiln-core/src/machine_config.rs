//! MachineConfigs rendered for a pool, by the machine-config-operator's rules.
