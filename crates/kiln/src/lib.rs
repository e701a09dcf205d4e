//! The `kiln` program: the command line, the hub, the image server and later the agent, over `kiln-core`, `kiln-api`,
//! `kiln-image` and `kiln-apiserver`.

pub mod cli;
pub mod hub;
pub mod image_server;
