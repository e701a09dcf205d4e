//! `kiln image`: CoreOS images, customised without root, loop devices or an appliance.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{Outcome, PrintFormat, output::Failure};

mod clone;
mod compose;
mod customize;
mod import;
mod inspect;
mod network;
mod open;
pub(super) mod output_file;
mod progress;
mod reset;
mod secrets;
mod serve;
mod sparse;
mod stored;
mod wish;
mod write;

/// The verbs of `kiln image`.
#[derive(Debug, Subcommand)]
pub enum ImageCommand {
    /// Show what an image is and what has been put into it
    Inspect(InspectArgs),
    /// Write a copy of an image with a machine's network, Ignition config and kernel arguments
    ///
    /// The format is recognised by content: raw disk, qcow2, live ISO or PXE initrd, each also compressed. The result
    /// replaces what an earlier customisation put into the image; it never adds to it.
    Customize(CustomizeArgs),
    /// List, show, extract or remove the network files in an image
    Network(NetworkArgs),
    /// Give an image back its original bytes
    Reset(ResetArgs),
    /// Take an image into a store, from which each further host costs kilobytes
    Import(import::ImportArgs),
    /// Compose one host's image from a base in the store
    Compose(compose::ComposeArgs),
    /// Serve the images of a store over HTTP
    Serve(serve::ServeArgs),
    /// List the bases and images of a store
    List(stored::ListArgs),
    /// Remove a host's images, or a base, from a store
    Forget(stored::ForgetArgs),
}

/// What goes into an image; the same for files and for the store.
#[derive(Debug, Args)]
pub struct WishArgs {
    /// nmstate YAML or NMStateConfig, rendered to keyfiles for the first boot
    #[arg(long, value_name = "FILE", conflicts_with = "network_dir")]
    network: Option<PathBuf>,
    /// Folder of NetworkManager keyfiles for the first boot; written with mode 0600 whatever they have here
    #[arg(long, value_name = "DIR")]
    network_dir: Option<PathBuf>,
    /// Ignition config of the first boot
    #[arg(long, value_name = "FILE")]
    ignition: Option<PathBuf>,
    /// Kernel argument to add to every boot
    #[arg(long, value_name = "ARG")]
    karg_append: Vec<String>,
    /// Kernel argument to take away from every boot
    #[arg(long, value_name = "ARG")]
    karg_delete: Vec<String>,
    /// Keep the network of the first boot on the installed system even if Ignition brings its own
    #[arg(long)]
    force_persist_ip: bool,
}

/// What `kiln image inspect` takes.
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// Raw disk, qcow2, live ISO or PXE initrd, also compressed
    image: PathBuf,
    /// How it is printed
    #[arg(long, value_enum, default_value = "human")]
    format: PrintFormat,
}

/// What `kiln image customize` takes.
#[derive(Debug, Args)]
pub struct CustomizeArgs {
    /// Raw disk, qcow2, live ISO or PXE initrd, also compressed
    #[arg(value_name = "IN")]
    image: PathBuf,
    /// Where the result goes; a name ending in .gz is compressed; `-` is standard output
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
    #[command(flatten)]
    wish: WishArgs,
    /// Replace an existing OUT (IN itself never needs it)
    #[arg(long)]
    force: bool,
    /// Where OUT will be served from, for the clusterOSImage line
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// How the result is described
    #[arg(long, value_enum, default_value = "human")]
    format: PrintFormat,
}

/// What `kiln image network` takes.
#[derive(Debug, Args)]
pub struct NetworkArgs {
    /// Raw disk, qcow2, live ISO or PXE initrd, also compressed
    image: PathBuf,
    #[command(subcommand)]
    verb: NetworkVerb,
}

/// What can be done with the network files in an image.
#[derive(Debug, Subcommand)]
pub enum NetworkVerb {
    /// Print the names
    List,
    /// Print the files; secrets are hidden
    Show {
        /// Print passwords and keys too
        #[arg(long)]
        show_secrets: bool,
    },
    /// Write the files to a folder, mode 0600
    Extract {
        /// A new or empty folder
        dir: PathBuf,
    },
    /// Take the network files out of the image
    Remove {
        /// Where the result goes instead of replacing the image
        #[arg(short, long, value_name = "OUT")]
        output: Option<PathBuf>,
        /// Replace an existing OUT
        #[arg(long)]
        force: bool,
    },
}

/// What `kiln image reset` takes.
#[derive(Debug, Args)]
pub struct ResetArgs {
    /// A customised image
    image: PathBuf,
    /// Where the result goes instead of replacing the image
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
    /// Replace an existing OUT
    #[arg(long)]
    force: bool,
}

/// Runs one verb.
pub fn run(command: &ImageCommand) -> Result<Outcome, Failure> {
    match command {
        ImageCommand::Inspect(args) => inspect::run(args),
        ImageCommand::Customize(args) => customize::run(args),
        ImageCommand::Network(args) => network::run(args),
        ImageCommand::Reset(args) => reset::run(args),
        ImageCommand::Import(args) => import::run(args),
        ImageCommand::Compose(args) => compose::run(args),
        ImageCommand::Serve(args) => serve::run(args),
        ImageCommand::List(args) => stored::list(args),
        ImageCommand::Forget(args) => stored::forget(args),
    }
}
