//! The smallest program that serves the API: `serve DIR ADDR:PORT`, with the administrator's certificate in DIR.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use kiln_apiserver::identity::ADMINISTRATORS;
use kiln_apiserver::tls::{self, Authority};
use kiln_apiserver::{Limits, Server, Tokens, router};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, folder, address] = arguments.as_slice() else { return Err("usage: serve DIR ADDR:PORT".into()) };
    let folder = Path::new(folder);
    std::fs::create_dir_all(folder)?;
    let server = Server::open(folder, Tokens::default(), Limits::default()).await?;
    let authority = Authority::open(folder)?;
    let admin = authority.issue_client("admin", ADMINISTRATORS)?;
    std::fs::write(folder.join("admin.crt"), admin.certificate)?;
    std::fs::write(folder.join("admin.key"), admin.key)?;
    tokio::spawn(Arc::clone(&server).run_janitor());
    let listener = tokio::net::TcpListener::bind(address).await?;
    let config = authority.server_config(&["localhost".into(), "127.0.0.1".into()])?;
    tls::serve(listener, router(Arc::clone(&server)), config, server.stopping()).await;
    server.close().await;
    Ok(())
}
