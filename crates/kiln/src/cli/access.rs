//! `kiln access`: who may use the hub's API besides its administrator. Granted as a kubeconfig, listed, taken back.
//!
//! What the hub keeps of a grant is the hash of its token, so the kubeconfig is written once, to a file that only its owner
//! can read. Not on Kubernetes: there the cluster has accounts and roles of its own.

use std::io::Write as _;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::anyhow;
use axum::http::Request;
use clap::{Args, Subcommand, ValueEnum};
use kiln_apiserver::identity::{ADMINISTRATORS, AUTHENTICATED, Identity, VIEWERS};
use kiln_core::document::emit::to_yaml;
use kube::Client;
use kube::api::{Api, DynamicObject};
use serde_json::{Value, json};

use super::image::output_file::{Existing, OutputFile, Readers};
use super::output::{self, Failure};
use super::status::connection::Connection;
use super::{Outcome, PrintFormat};
use crate::hub::controllers::kinds::HOST;
use crate::hub::kubeconfig;
use crate::hub::policy::host_identity;

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
    /// What one machine may do: read its own Host and write its status.
    Host,
}

/// The Host an identity is for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct HostName {
    namespace: String,
    name: String,
}

impl FromStr for HostName {
    type Err = String;

    /// A colon would make the user another host's, so only letters that names of objects have are taken.
    fn from_str(text: &str) -> Result<HostName, String> {
        let is_name = |part: &str| {
            !part.is_empty() && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-".contains(c))
        };
        match text.split_once('/') {
            Some((namespace, name)) if is_name(namespace) && is_name(name) => {
                Ok(HostName { namespace: namespace.into(), name: name.into() })
            }
            _ => Err("NAMESPACE/NAME of a Host is wanted, as in lab/worker-7".into()),
        }
    }
}

/// What `kiln access grant` takes.
#[derive(Debug, Args)]
pub struct GrantArgs {
    /// The name that stands in the audit log; a host is called after its object
    #[arg(required_unless_present = "host", conflicts_with = "host")]
    user: Option<String>,
    /// What they may do
    #[arg(long, value_enum, default_value = "viewer")]
    role: Role,
    /// With `--role host`: which Host the identity is for
    #[arg(long, value_name = "NAMESPACE/NAME", required_if_eq("role", "host"))]
    host: Option<HostName>,
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
    let identity = identity(args)?;
    // The server adds the group of everybody.
    let groups: Vec<&String> = identity.groups.iter().filter(|group| *group != AUTHENTICATED).collect();
    let mut wish = json!({"user": identity.user, "groups": groups});
    if args.days > 0 {
        wish["lifetimeSeconds"] = (args.days * DAY).into();
    }
    let (granted, address) = args.connection.block_on_address(async |client, address| {
        if let Some(host) = &args.host {
            look_for(&client, host).await?;
        }
        Ok((ask(&client, "POST", "/tokens", &wish).await?, address))
    })?;
    let text = |key: &str| granted[key].as_str().unwrap_or_default();
    let authorities = String::from_utf8(address.authorities.unwrap_or_default()).unwrap_or_default();
    let config = kubeconfig::render_with_token(&address.url, &authorities, &identity.user, text("token"));
    file.file().write_all(config.as_bytes())?;
    file.finish()?;
    let until = granted["expires"].as_str().map_or_else(|| "it is revoked".to_owned(), str::to_owned);
    output::print(&format!("{}: {} for {} until {until}\n", args.out.display(), text("id"), identity.user))?;
    Ok(())
}

fn identity(args: &GrantArgs) -> Result<Identity, Failure> {
    let user = args.user.as_deref().unwrap_or_default();
    match (args.role, &args.host) {
        (Role::Viewer, None) => Ok(Identity::member(user, VIEWERS)),
        (Role::Admin, None) => Ok(Identity::member(user, ADMINISTRATORS)),
        (Role::Host, Some(HostName { namespace, name })) => Ok(host_identity(namespace, name)),
        _ => Err(Failure::refused(anyhow!("--host names the Host of `--role host`, and goes with no other role"))),
    }
}

/// Refuses a Host that is not there: whoever gets that name later would share it with the one who was let in today.
async fn look_for(client: &Client, HostName { namespace, name }: &HostName) -> Result<(), Failure> {
    let hosts: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &HOST.resource());
    match hosts.get_opt(name).await {
        Ok(Some(_)) => Ok(()),
        Ok(None) => {
            Err(Failure::refused(anyhow!("there is no Host {namespace}/{name}; `kiln status` shows those there are")))
        }
        Err(error) => Err(Failure::Failed(anyhow!(error).context("the hub did not show the Host"))),
    }
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
