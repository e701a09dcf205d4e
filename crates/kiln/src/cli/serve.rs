//! `kiln serve`: the hub in one process, until it is asked to stop.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::Outcome;
use super::output::{Failure, complain};
use crate::hub::{self, HubConfig};

/// What `kiln serve` takes.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Folder for state, keys and the administrator's kubeconfig; made with mode 0700 if it does not exist
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    /// Address and port of the API (HTTPS); port 0 takes a free one
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:6443")]
    listen: SocketAddr,
    /// Name or address clients use, besides the one listened on; may be repeated
    #[arg(long, value_name = "NAME")]
    tls_name: Vec<String>,
}

/// Serves until SIGTERM or SIGINT.
pub fn run(args: &ServeArgs) -> Result<Outcome, Failure> {
    let config = HubConfig { data_dir: args.data_dir.clone(), listen: args.listen, tls_names: args.tls_name.clone() };
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_target(false).init();
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(hub::run(&config, |ready| {
        complain(&format!(
            "kiln {} serves https://{}\n  kubectl --kubeconfig {} get namespaces\n",
            env!("CARGO_PKG_VERSION"),
            ready.address,
            ready.kubeconfig.display()
        ));
    }))?;
    complain("kiln stopped; everything acknowledged is on the disk\n");
    Ok(Outcome::Done)
}
