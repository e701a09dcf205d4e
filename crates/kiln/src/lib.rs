//! The `kiln` program: the command line, and later the hub and the agent, over `kiln-core` and `kiln-api`.

pub mod cli;
pub mod image_server;
