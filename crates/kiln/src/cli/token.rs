//! `kiln token`: the tokens machines fetch their config with. Listed without their secrets, taken back, made new.
//!
//! A host has a boot token of its own; a pool has one that all its machines share. What is stored of a boot token is its hash,
//! so a new one is shown once, when it is made.

use std::path::PathBuf;

use anyhow::anyhow;
use clap::{Args, Subcommand};
use kiln_core::document::emit::to_yaml;
use kiln_core::pool_token::LIFETIME;
use kiln_core::timeline::Moment;
use kube::Client;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use serde_json::{Value, json};

use super::image::output_file::{Existing, OutputFile, Readers};
use super::output::{self, Failure};
use super::status::connection::Connection;
use super::{Outcome, PrintFormat};
use crate::hub::pools::held::annotation;
use crate::hub::timeline::{now, render_time};
use stored::{Detail, Target, Token};

mod agent;
pub(super) mod issue;
pub(super) mod stored;

/// The verbs of `kiln token`.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Show every token and where it stands; never the token itself
    List(ListArgs),
    /// Take a host's or a pool's token back: no machine gets a config with it from now on
    Revoke(RevokeArgs),
    /// Make a new token; a pool's old one stays valid for machines that boot just now
    Rotate(RotateArgs),
    /// Write the token with which the agent on a host's node speaks to the hub
    Agent(agent::AgentArgs),
}

/// What `kiln token list` takes.
#[derive(Debug, Args)]
pub struct ListArgs {
    #[command(flatten)]
    connection: Connection,
    /// How it is printed
    #[arg(short, long, value_enum, default_value = "human")]
    output: PrintFormat,
}

/// What `kiln token revoke` takes.
#[derive(Debug, Args)]
pub struct RevokeArgs {
    /// The host or pool: NAME or NAMESPACE/NAME; host:NAME or pool:NAME when both have the name
    name: String,
    #[command(flatten)]
    connection: Connection,
}

/// What `kiln token rotate` takes.
#[derive(Debug, Args)]
pub struct RotateArgs {
    /// The host or pool: NAME or NAMESPACE/NAME; host:NAME or pool:NAME when both have the name
    name: String,
    /// Write a host's new token to this file, readable by you alone, instead of standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Replace the file if it exists
    #[arg(long, requires = "out")]
    force: bool,
    #[command(flatten)]
    connection: Connection,
}

/// Runs one verb.
pub fn run(command: &TokenCommand) -> Result<Outcome, Failure> {
    match command {
        TokenCommand::List(args) => list(args)?,
        TokenCommand::Revoke(args) => args.connection.block_on(async |client| revoke(&client, &args.name).await)?,
        TokenCommand::Rotate(args) => rotate(args)?,
        TokenCommand::Agent(args) => agent::run(args)?,
    }
    Ok(Outcome::Done)
}

fn list(args: &ListArgs) -> Result<(), Failure> {
    let tokens = args.connection.block_on(async |client| stored::fetch_tokens(&client).await)?;
    let present = now();
    let values = || json!({"tokens": tokens.iter().map(|token| to_json(token, present)).collect::<Vec<_>>()});
    match args.output {
        PrintFormat::Human => output::print(&render_table(&tokens, present))?,
        PrintFormat::Json => output::print(&format!("{:#}\n", values()))?,
        PrintFormat::Yaml => output::print(&to_yaml(&values()))?,
    }
    Ok(())
}

async fn revoke(client: &Client, name: &str) -> Result<(), Failure> {
    match stored::choose(client, name).await? {
        Target::Host(host) => {
            let generation = issue::revoke(client, &host, now()).await?;
            output::print(&format!(
                "the boot token of {}/{} (generation {generation}) is revoked\n",
                host.namespace, host.name
            ))?;
        }
        Target::Pool { namespace, name, tokens } => {
            let api = stored::secrets(client, &namespace);
            for token in &tokens {
                let same = Preconditions { uid: Some(token.uid.clone()), resource_version: None };
                let options = DeleteParams { preconditions: Some(same), ..DeleteParams::default() };
                match api.delete(&token.secret, &options).await {
                    Err(kube::Error::Api(status)) if status.code == 404 => {}
                    other => {
                        drop(other.map_err(|error| anyhow!(error).context("the hub did not take the token back"))?)
                    }
                }
            }
            output::print(&format!(
                "{} of pool {namespace}/{name} revoked; the hub makes a new token and user-data\n",
                if tokens.len() == 1 { "1 token".to_owned() } else { format!("{} tokens", tokens.len()) }
            ))?;
        }
    }
    Ok(())
}

fn rotate(args: &RotateArgs) -> Result<(), Failure> {
    let existing = if args.force { Existing::Replace } else { Existing::Keep };
    args.connection.block_on(async |client| match stored::choose(&client, &args.name).await? {
        Target::Host(host) => {
            let file =
                args.out.as_deref().map(|path| OutputFile::create(path, existing, Readers::Owner)).transpose()?;
            let token = issue::issue(&client, &host, now()).await?;
            let text = format!("{}\n", token.text());
            match file {
                None => output::print(&text)?,
                Some(file) => {
                    std::io::Write::write_all(&mut file.file(), text.as_bytes())?;
                    file.finish()?;
                }
            }
            Ok(())
        }
        Target::Pool { namespace, name, tokens } => {
            if args.out.is_some() {
                return Err(Failure::refused(anyhow!(
                    "--out is for a host's token; a pool's is in its user-data Secret"
                )));
            }
            let api = stored::secrets(&client, &namespace);
            let current = tokens.iter().filter(|token| matches!(token.detail, Detail::Pool { expires: None, .. }));
            let mut rotated = 0;
            for token in current {
                // Without the time of its making the hub makes a new one at once.
                let patch = json!({"metadata": {"uid": token.uid, "annotations": {annotation::GENERATED: null}}});
                api.patch(&token.secret, &PatchParams::default(), &Patch::Merge(patch))
                    .await
                    .map_err(|error| anyhow!(error).context("the hub did not take the wish"))?;
                rotated += 1;
            }
            if rotated == 0 {
                return Err(Failure::refused(anyhow!("pool {namespace}/{name} has no token of its present config")));
            }
            output::print(&format!("pool {namespace}/{name} gets a new token; the one before is valid beside it\n"))?;
            Ok(())
        }
    })
}

const HEADING: [&str; 7] = ["FOR", "NAMESPACE", "NAME", "STATE", "ISSUED", "EXPIRES", "USED"];

fn render_table(tokens: &[Token], now: Moment) -> String {
    if tokens.is_empty() {
        return "there are no tokens; `kiln ignition pointer --host HOST` makes one\n".into();
    }
    let rows: Vec<[String; 7]> =
        std::iter::once(HEADING.map(String::from)).chain(tokens.iter().map(|token| row(token, now))).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..HEADING.len()).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("   ").trim_end());
        text.push('\n');
    }
    text
}

fn row(token: &Token, now: Moment) -> [String; 7] {
    let time = |moment: Option<Moment>| moment.map_or("-".to_owned(), render_time);
    let Facts { of, state, issued, expires, used } = facts(token, now);
    [
        of.into(),
        token.namespace.clone(),
        token.name.clone(),
        state.into(),
        time(issued),
        time(expires),
        used.unwrap_or("-".into()),
    ]
}

/// What is told of a token, in words.
struct Facts {
    of: &'static str,
    state: &'static str,
    issued: Option<Moment>,
    expires: Option<Moment>,
    used: Option<String>,
}

fn facts(token: &Token, now: Moment) -> Facts {
    match &token.detail {
        Detail::Host(None) => Facts { of: "host", state: "unreadable", issued: None, expires: None, used: None },
        Detail::Host(Some(record)) => Facts {
            of: "host",
            state: record.state(now).name(),
            issued: Some(record.issued),
            expires: Some(record.expires),
            used: record.used.map(|first| format!("{} by {}", render_time(first.at), first.source)),
        },
        Detail::Pool { generated, expires, reached } => Facts {
            of: "pool",
            state: match expires {
                None => "current",
                Some(end) if end.is_some_and(|end| end > now) => "outdated",
                Some(_) => "expired",
            },
            issued: *generated,
            expires: expires.unwrap_or_else(|| generated.map(|time| Moment(time.0.saturating_add(LIFETIME)))),
            used: reached.then(|| "yes".to_owned()),
        },
    }
}

/// A token for programs. Scripts rely on these names.
fn to_json(token: &Token, now: Moment) -> Value {
    let Facts { of, state, issued, expires, used } = facts(token, now);
    let mut value = json!({"for": of, "namespace": token.namespace, "name": token.name, "secret": token.secret, "state": state,
        "issued": issued.map(render_time), "expires": expires.map(render_time), "used": used});
    if let Detail::Host(Some(record)) = &token.detail {
        value["generation"] = json!(record.generation);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::boot_secrets::hash_token;
    use kiln_core::boot_token::{BootRecord, Use};

    fn token(name: &str, detail: Detail) -> Token {
        Token { namespace: "site".into(), name: name.into(), secret: "s".into(), uid: "u".into(), detail }
    }

    #[test]
    fn the_list_says_where_each_token_stands_and_never_what_it_is() {
        let start = Moment(1_767_225_600);
        let fresh = BootRecord::issue(hash_token("kiln-secret"), None, start, 86_400);
        let used =
            BootRecord { used: Some(Use { at: Moment(start.0 + 60), source: "192.0.2.7".parse().unwrap() }), ..fresh };
        let tokens = [
            token("w0", Detail::Host(Some(fresh))),
            token("w1", Detail::Host(Some(used))),
            token("w2", Detail::Host(None)),
            token("edge", Detail::Pool { generated: Some(start), expires: None, reached: true }),
            token(
                "edge",
                Detail::Pool { generated: Some(start), expires: Some(Some(Moment(start.0 + 7_200))), reached: false },
            ),
            token("edge", Detail::Pool { generated: None, expires: Some(None), reached: false }),
        ];
        let expected = "\
FOR    NAMESPACE   NAME   STATE        ISSUED                 EXPIRES                USED
host   site        w0     unused       2026-01-01T00:00:00Z   2026-01-02T00:00:00Z   -
host   site        w1     used         2026-01-01T00:00:00Z   2026-01-02T00:00:00Z   2026-01-01T00:01:00Z by 192.0.2.7
host   site        w2     unreadable   -                      -                      -
pool   site        edge   current      2026-01-01T00:00:00Z   2026-01-01T11:00:00Z   yes
pool   site        edge   outdated     2026-01-01T00:00:00Z   2026-01-01T02:00:00Z   -
pool   site        edge   expired      -                      -                      -
";
        assert_eq!(render_table(&tokens, Moment(start.0 + 3_600)), expected);
        let json = to_json(&tokens[0], start).to_string();
        assert!(!json.contains("kiln-secret") && !json.contains(&fresh.hash.to_string()), "{json}");
        assert_eq!(render_table(&[], start), "there are no tokens; `kiln ignition pointer --host HOST` makes one\n");
    }
}
