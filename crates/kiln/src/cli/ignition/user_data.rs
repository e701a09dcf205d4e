//! `kiln ignition pointer --host|--pool|--name`: user-data for machines of this hub, and the command that makes them.
//!
//! A host gets a boot token of its own: its hash is written to the hub, its text stands in the pointer and nowhere else. The
//! machines of `--pool` share the token in the pool's user-data Secret. Pointers are written to files that only their owner
//! reads; commands name these files.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kiln_core::boot_token::BootToken;
use kiln_core::diagnostic::{Diagnostic, Severity};
use kiln_core::ignition::pointer::{Header, PointerProxy, PointerRequest, Reference, render_pointer};
use kiln_core::provision::names;
use kiln_core::source::SourceMap;
use kiln_core::user_data::{Machines, Platform, check_size, names_from, render_create};
use kube::Client;

use super::PointerArgs;
use super::read::read_bytes;
use crate::cli::check::ReportFormat;
use crate::cli::image::output_file::{Existing, OutputFile, Readers};
use crate::cli::output::{self, Failure, complain};
use crate::cli::status::connection::{Address, unanswered};
use crate::cli::token::issue::issue;
use crate::cli::token::stored::{NamedHost, choose_host, fetch_secrets, secrets};
use crate::cli::{Outcome, report};
use crate::hub::boot_secrets::decode_text;
use crate::hub::pools::fetch_proxy;
use crate::hub::pools::held::annotation;
use crate::hub::timeline::now;

/// Makes pointers and says how they are used.
pub fn run(args: &PointerArgs) -> Result<Outcome, Failure> {
    let platform = args.platform.as_deref().map(str::parse::<Platform>).transpose().map_err(Failure::refused)?;
    let machines = machines(args)?;
    args.connection.block_on_address(async |client, address| match &args.pool {
        Some(pool) => of_pool(args, &client, pool, platform, &machines).await,
        None => of_hosts(args, &client, &address, platform, &machines).await,
    })
}

/// The machines that are spoken of.
fn machines(args: &PointerArgs) -> Result<Vec<String>, Failure> {
    let counted = args.name.as_deref().map(|pattern| names_from(pattern, usize::from(args.count))).transpose();
    let mut machines = args.hosts.clone();
    machines.extend(counted.map_err(Failure::refused)?.unwrap_or_default());
    Ok(machines)
}

async fn of_pool(
    args: &PointerArgs,
    client: &Client,
    pool: &str,
    platform: Option<Platform>,
    machines: &[String],
) -> Result<Outcome, Failure> {
    let all = fetch_secrets(client, "user-data").await?;
    let called = |secret: &&kube::api::DynamicObject| {
        let annotations = secret.metadata.annotations.as_ref();
        let whole = annotations.and_then(|annotations| annotations.get(annotation::NODE_POOL));
        whole.is_some_and(|whole| whole == pool || whole.split_once('/').is_some_and(|(_, name)| name == pool))
    };
    let found: Vec<_> = all.iter().filter(called).collect();
    let [secret] = found[..] else {
        return Err(Failure::refused(match found.len() {
            0 => {
                anyhow!("pool `{pool}` has no user-data: the hub has no such pool, or has not rendered its config yet")
            }
            _ => anyhow!("there are {} pools `{pool}`; write NAMESPACE/{pool}", found.len()),
        }));
    };
    let text =
        decode_text(&secret.data["data"], "value").ok_or_else(|| anyhow!("the pool's user-data has no pointer"))?;
    if refuses(platform, &text)? {
        return Ok(Outcome::Refused);
    }
    let name = pool.rsplit('/').next().unwrap_or(pool);
    let Some(path) = target(args, platform, name, false) else {
        output::print(&text)?;
        return Ok(Outcome::Done);
    };
    write(args, &path, &text)?;
    let machines = if machines.is_empty() { vec![format!("{name}-1")] } else { machines.to_vec() };
    tell(args, platform, &machines, &path)?;
    Ok(Outcome::Done)
}

async fn of_hosts(
    args: &PointerArgs,
    client: &Client,
    address: &Address,
    platform: Option<Platform>,
    machines: &[String],
) -> Result<Outcome, Failure> {
    let endpoint = args.endpoint.as_deref().unwrap_or(&address.url).trim_end_matches('/').to_owned();
    let authorities = match &args.ca {
        Some(path) => Some(read_bytes(path)?),
        None => address.authorities.clone(),
    };
    // First everything that can be refused, then the tokens.
    let mut hosts = Vec::new();
    for machine in machines {
        hosts.push(choose_host(client, machine).await?);
    }
    warn_of(&endpoint, client, &hosts).await?;
    for host in &hosts {
        let path = target(args, platform, &host.name, hosts.len() > 1);
        let existing = if args.force { Existing::Replace } else { Existing::Keep };
        let file = path.as_deref().map(|path| OutputFile::create(path, existing, Readers::Owner)).transpose()?;
        // Its size does not depend on which token it is.
        let proxy = match &host.pool {
            Some(pool) => fetch_proxy(client, &host.namespace, pool).await.map_err(unanswered)?,
            None => None,
        };
        let pointer = |token: &BootToken| pointer(args, &endpoint, authorities.clone(), host, proxy.clone(), token);
        let trial = pointer(&BootToken::of_random([0; 32]));
        match trial {
            Err(refusal) => {
                report::print(&SourceMap::default(), &[*refusal], ReportFormat::Human)?;
                return Ok(Outcome::Refused);
            }
            Ok(trial) if refuses(platform, &trial)? => return Ok(Outcome::Refused),
            Ok(_) => {}
        }
        let token = issue(client, host, now()).await?;
        let text = pointer(&token).map_err(|refusal| anyhow!(refusal.message))?;
        match (file, path) {
            (Some(file), Some(path)) => {
                file.file().write_all(text.as_bytes())?;
                file.finish()?;
                tell(args, platform, std::slice::from_ref(&host.name), &path)?;
            }
            _ => output::print(&text)?,
        }
    }
    Ok(Outcome::Done)
}

fn pointer(
    args: &PointerArgs,
    endpoint: &str,
    authorities: Option<Vec<u8>>,
    host: &NamedHost,
    proxy: Option<PointerProxy>,
    token: &BootToken,
) -> Result<String, Box<Diagnostic>> {
    let header = |name: &str, value: String| Header { name: name.into(), value };
    let mut headers = vec![header("Authorization", format!("Bearer {}", STANDARD.encode(token.text())))];
    if let Some(pool) = &host.pool {
        headers.push(header("NodePool", format!("{}/{pool}", host.namespace)));
    }
    render_pointer(&PointerRequest {
        source: format!("{endpoint}/ignition"),
        reference: if args.replace { Reference::Replace } else { Reference::Merge },
        authorities,
        headers,
        verification: None,
        proxy,
        version: args.spec.parse().unwrap_or(kiln_core::ignition::SpecVersion::V3_2),
    })
}

/// What will not work, though nothing here stops it.
async fn warn_of(endpoint: &str, client: &Client, hosts: &[NamedHost]) -> Result<(), Failure> {
    let rest = endpoint.strip_prefix("https://").unwrap_or_default();
    if ["127.", "localhost", "[::1]"].iter().any(|local| rest.starts_with(local)) {
        complain(&format!(
            "warning: the pointer names {endpoint}, which machines other than this one do not reach; give --endpoint URL\n"
        ));
    }
    for host in hosts {
        let overlay = secrets(client, &host.namespace).get_opt(&names::overlay(&host.name)).await;
        if overlay.is_ok_and(|overlay| overlay.is_none()) {
            let pool = host.pool.as_deref().unwrap_or("worker");
            complain(&format!(
                "warning: the hub has no config for host {}/{} yet, and its machine will wait for one: declare pool `{pool}` (`kubectl get pools,nodepools -A`)\n",
                host.namespace, host.name
            ));
        }
    }
    Ok(())
}

/// Whether the platform takes no user-data of this size; it was said then.
fn refuses(platform: Option<Platform>, text: &str) -> Result<bool, Failure> {
    let Some(finding) = platform.and_then(|platform| check_size(platform, text)) else { return Ok(false) };
    let refused = finding.severity == Severity::Error;
    report::print(&SourceMap::default(), &[finding], ReportFormat::Human)?;
    Ok(refused)
}

/// Where a pointer goes; none is standard output. A command needs a file to name.
fn target(args: &PointerArgs, platform: Option<Platform>, name: &str, several: bool) -> Option<PathBuf> {
    let file = format!("{name}.ign");
    match &args.out {
        Some(path) if path == Path::new("-") => None,
        Some(path) if several || path.is_dir() => Some(path.join(file)),
        Some(path) => Some(path.clone()),
        None if platform.is_some() || several => Some(PathBuf::from(file)),
        None => None,
    }
}

fn write(args: &PointerArgs, path: &Path, text: &str) -> Result<(), Failure> {
    let existing = if args.force { Existing::Replace } else { Existing::Keep };
    let file = OutputFile::create(path, existing, Readers::Owner)?;
    file.file().write_all(text.as_bytes())?;
    file.finish()
}

/// What was written, and how it is used.
fn tell(args: &PointerArgs, platform: Option<Platform>, machines: &[String], path: &Path) -> Result<(), Failure> {
    let shown = path.display().to_string();
    complain(&format!("wrote {shown}\n"));
    let Some(platform) = platform else { return Ok(()) };
    let create = render_create(platform, Machines { names: machines, file: &shown, image: args.image.as_deref() });
    for command in &create.commands {
        output::print(&format!("{command}\n"))?;
    }
    if !create.unknown.is_empty() {
        complain(&format!("replace {}\n", create.unknown.join(", ")));
    }
    Ok(())
}
