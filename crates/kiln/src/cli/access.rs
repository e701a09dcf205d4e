//! `kiln access`: who may use the hub's API besides its administrator. Granted as a kubeconfig, listed, taken back.
//!
//! What the hub keeps of a grant is the hash of its token, so the kubeconfig is written once, to a file that only its owner
//! can read. Not on Kubernetes: there the cluster has accounts and roles of its own.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::anyhow;
use axum::http::Request;
use clap::{Args, Subcommand, ValueEnum};
use kiln_apiserver::identity::{ADMINISTRATORS, VIEWERS};
use kiln_core::document::emit::to_yaml;
use kube::Client;
use serde_json::{Value, json};

use super::image::output_file::{Existing, OutputFile, Readers};
use super::output::{self, Failure};
use super::status::connection::Connection;
use super::{Outcome, PrintFormat};
use crate::hub::kubeconfig;

/// Seconds of a day.
const DAY: u64 = 24 * 3600;

/// The verbs of `kiln access`.
#[derive(Debug, Subcommand)]
pub enum AccessCommand {
    /// Let somebody in: writes a kubeconfig for kubectl, oc and kiln
    Grant(GrantArgs),
    /// Show who was let in, as what and until when
    List(ListArgs),
    /// Take a grant back, from now on
    Revoke(RevokeArgs),
}

/// What somebody may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Role {
    /// Read everything but Secrets.
    Viewer,
    /// Everything.
    Admin,
}

/// What `kiln access grant` takes.
#[derive(Debug, Args)]
pub struct GrantArgs {
    /// The name that stands in the audit log
    user: String,
    /// What they may do
    #[arg(long, value_enum, default_value = "viewer")]
    role: Role,
    /// For how many days; 0 means until it is taken back
    #[arg(long, value_name = "DAYS", default_value = "30", value_parser = clap::value_parser!(u64).range(..=3650))]
    days: u64,
    /// Write the kubeconfig to this file, readable by you alone
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    connection: Connection,
}

/// What `kiln access list` takes.
#[derive(Debug, Args)]
pub struct ListArgs {
    #[command(flatten)]
    connection: Connection,
    /// How it is printed
    #[arg(short, long, value_enum, default_value = "human")]
    output: PrintFormat,
}

/// What `kiln access revoke` takes.
#[derive(Debug, Args)]
pub struct RevokeArgs {
    /// What `kiln access list` shows as ID
    id: String,
    #[command(flatten)]
    connection: Connection,
}

/// Runs one verb.
pub fn run(command: &AccessCommand) -> Result<Outcome, Failure> {
    match command {
        AccessCommand::Grant(args) => grant(args)?,
        AccessCommand::List(args) => list(args)?,
        AccessCommand::Revoke(args) => {
            args.connection.block_on(async |client| ask(&client, "DELETE", &path_of(&args.id)?, &Value::Null).await)?;
            output::print(&format!("{} is revoked\n", args.id))?;
        }
    }
    Ok(Outcome::Done)
}

fn grant(args: &GrantArgs) -> Result<(), Failure> {
    let existing = if args.force { Existing::Replace } else { Existing::Keep };
    // Before the token is made: one that cannot be written is lost.
    let file = OutputFile::create(&args.out, existing, Readers::Owner)?;
    let group = match args.role {
        Role::Viewer => VIEWERS,
        Role::Admin => ADMINISTRATORS,
    };
    let mut wish = json!({"user": args.user, "groups": [group]});
    if args.days > 0 {
        wish["lifetimeSeconds"] = (args.days * DAY).into();
    }
    let (granted, address) = args
        .connection
        .block_on_address(async |client, address| Ok((ask(&client, "POST", "/tokens", &wish).await?, address)))?;
    let text = |key: &str| granted[key].as_str().unwrap_or_default();
    let authorities = String::from_utf8(address.authorities.unwrap_or_default()).unwrap_or_default();
    let config = kubeconfig::render_with_token(&address.url, &authorities, &args.user, text("token"));
    file.file().write_all(config.as_bytes())?;
    file.finish()?;
    let until = granted["expires"].as_str().map_or_else(|| "it is revoked".to_owned(), str::to_owned);
    output::print(&format!("{}: {} for {} until {until}\n", args.out.display(), text("id"), args.user))?;
    Ok(())
}

fn list(args: &ListArgs) -> Result<(), Failure> {
    let known = args.connection.block_on(async |client| ask(&client, "GET", "/tokens", &Value::Null).await)?;
    match args.output {
        PrintFormat::Human => output::print(&render_table(&known["items"]))?,
        PrintFormat::Json => output::print(&format!("{known:#}\n"))?,
        PrintFormat::Yaml => output::print(&to_yaml(&known))?,
    }
    Ok(())
}

fn render_table(items: &Value) -> String {
    let mut table = format!("{:<12}  {:<24}  {:<24}  {}\n", "ID", "USER", "GROUPS", "UNTIL");
    for item in items.as_array().into_iter().flatten() {
        let text = |key: &str| item[key].as_str().unwrap_or("-");
        let groups: Vec<&str> = item["groups"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        table += &format!("{:<12}  {:<24}  {:<24}  {}\n", text("id"), text("user"), groups.join(","), text("expires"));
    }
    table
}

/// An id is a few hexadecimal digits; anything else would be another path.
fn path_of(id: &str) -> Result<String, Failure> {
    match id.chars().all(|c| c.is_ascii_alphanumeric()) && !id.is_empty() {
        true => Ok(format!("/tokens/{id}")),
        false => Err(Failure::refused(anyhow!("`{id}` is no id; `kiln access list` shows them"))),
    }
}

async fn ask(client: &Client, method: &str, path: &str, body: &Value) -> Result<Value, Failure> {
    let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json").body(bytes);
    let request = request.map_err(|error| Failure::refused(anyhow!(error)))?;
    client.request::<Value>(request).await.map_err(|error| match &error {
        kube::Error::Api(status) if status.code == 404 && status.message.starts_with("there is no token") => {
            Failure::refused(anyhow!("{}; `kiln access list` shows those there are", status.message))
        }
        kube::Error::Api(status) if status.code == 404 => Failure::refused(anyhow!(
            "this API is not an embedded hub of Kiln: on Kubernetes, access is granted with its own accounts and roles"
        )),
        kube::Error::Api(status) if (400..500).contains(&status.code) => {
            Failure::refused(anyhow!("{}", status.message).context("the hub refused"))
        }
        _ => Failure::Failed(anyhow!(error).context("the hub did not answer")),
    })
}
