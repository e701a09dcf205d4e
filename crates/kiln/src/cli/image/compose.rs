//! `kiln image compose`: one host's image from a base in the store.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::anyhow;
use clap::Args;
use kiln_core::document::emit::to_yaml;
use kiln_image::Carried;
use kiln_image::customize::{Composition, Original, Packing};
use kiln_image::store::{BaseName, ComposedImage, Hashing, HostName, Store};
use serde_json::json;

use super::super::{Outcome, PrintFormat, output, output::Failure};
use super::open::failure;
use super::output_file::Existing;
use super::secrets::has_secrets;
use super::write::write;
use crate::image_server::route::{image_path, signed_query};

/// What `kiln image compose` takes.
#[derive(Debug, Args)]
pub struct ComposeArgs {
    /// Folder of the store
    #[arg(long, value_name = "DIR")]
    store: PathBuf,
    /// Name of the base
    #[arg(long, value_name = "NAME")]
    base: String,
    /// Name of the host
    #[arg(long, value_name = "NAME")]
    host: String,
    #[command(flatten)]
    wish: super::WishArgs,
    /// Also write the whole image to a file; `-` is standard output
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
    /// Replace an existing OUT
    #[arg(long, requires = "output")]
    force: bool,
    /// Where `kiln image serve` is reached, for the URL
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// How long the URL of an image with secrets works: seconds, or a number with s, m, h or d
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = parse_duration)]
    expires: Duration,
    /// Take the sha256 of a live ISO or plain raw disk, too, which reads all of it
    #[arg(long)]
    sha256: bool,
    /// How the result is described
    #[arg(long, value_enum, default_value = "human")]
    format: PrintFormat,
}

/// Runs the verb.
pub fn run(args: &ComposeArgs) -> Result<Outcome, Failure> {
    let base: BaseName = args.base.parse().map_err(Failure::refused)?;
    let host: HostName = args.host.parse().map_err(Failure::refused)?;
    let context = || format!("the image of host `{host}` was not composed");
    let Some(wish) = super::wish::read(&args.wish)? else {
        output::complain(&format!("{}\n", context()));
        return Ok(Outcome::Refused);
    };
    let store = Store::open(&args.store).map_err(Failure::refused)?;
    let confidential = has_secrets(&Carried::of(&wish));
    let hashing = if args.sha256 { Hashing::Always } else { Hashing::WhereUsual };
    let composed =
        store.compose(&host, &base, &wish, confidential, hashing).map_err(|error| failure(error, context()))?;
    for note in &composed.notes {
        output::complain(&format!("note: {note}\n"));
    }
    let mut sha256 = composed.record.sha256.clone();
    if let Some(target) = &args.output {
        let image = store
            .image(&host, &base)
            .map_err(|error| failure(error, context()))?
            .ok_or_else(|| anyhow!("the image of host `{host}` was forgotten by another process"))?;
        let whole = Composition {
            image: Box::new(image),
            packing: Packing::AsIs,
            notes: Vec::new(),
            original: Original::Remembered,
            carries: Carried { config: confidential, ..Carried::default() },
            segments: None,
        };
        let existing = if args.force { Existing::Replace } else { Existing::Keep };
        sha256 = Some(write(&whole, Packing::AsIs, None, target, existing)?.sha256);
    }
    let path = image_path(&host, &base, composed.kind);
    let url = address(args, &store, &path, confidential)?;
    let text = describe(args, &composed, sha256.as_deref(), &url);
    match args.output.as_ref().is_some_and(|target| target.as_os_str() == "-") {
        true => output::complain(&text),
        false => output::print(&text)?,
    }
    Ok(Outcome::Done)
}

/// The address with its signature, if it needs one.
fn address(args: &ComposeArgs, store: &Store, path: &str, confidential: bool) -> Result<String, Failure> {
    let server = args.url.as_deref().unwrap_or("http://HOST:PORT").trim_end_matches('/');
    if !confidential {
        return Ok(format!("{server}{path}"));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let expires = now.saturating_add(args.expires.as_secs());
    Ok(format!("{server}{path}?{}", signed_query(&store.url_key()?, path, expires)))
}

fn describe(args: &ComposeArgs, composed: &ComposedImage, sha256: Option<&str>, url: &str) -> String {
    let record = &composed.record;
    let line = sha256.map(|sum| format!("{url}{}sha256={sum}", if url.contains('?') { '&' } else { '?' }));
    let document = json!({
        "host": args.host,
        "base": args.base,
        "bytes": record.size,
        "sha256": sha256,
        "inflatedSha256": composed.inflated.as_ref().map(|(sum, _)| sum),
        "inflatedBytes": composed.inflated.as_ref().map(|(_, bytes)| bytes),
        "confidential": record.confidential,
        "url": url,
        "clusterOSImage": line,
        "notes": composed.notes,
    });
    match args.format {
        PrintFormat::Json => format!("{document:#}\n"),
        PrintFormat::Yaml => to_yaml(&document),
        PrintFormat::Human => {
            let size = indicatif::HumanBytes(record.size);
            let mut text = format!("composed {}{} for {} ({size})\n", args.base, composed.kind.extension(), args.host);
            if let Some(sum) = sha256 {
                text.push_str(&format!("sha256 {sum}\n"));
            }
            if let Some((sum, _)) = &composed.inflated {
                text.push_str(&format!("sha256 {sum} (uncompressed)\n"));
            }
            text.push_str(&format!("url {url}\n"));
            if let Some(line) = line {
                text.push_str(&format!("\nIn install-config.yaml, platform.baremetal:\n    clusterOSImage: {line}\n"));
            }
            text
        }
    }
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.char_indices().next_back() {
        Some((at, 's')) => (&text[..at], 1),
        Some((at, 'm')) => (&text[..at], 60),
        Some((at, 'h')) => (&text[..at], 3600),
        Some((at, 'd')) => (&text[..at], 86_400),
        _ => (text, 1),
    };
    let seconds = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    // Ten thousand years are enough for anybody.
    match seconds.filter(|&seconds| (1..315_576_000_000).contains(&seconds)) {
        Some(seconds) => Ok(Duration::from_secs(seconds)),
        None => Err("give a number of seconds, or a number with s, m, h or d, such as 24h".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        for (text, seconds) in [("90", 90), ("90s", 90), ("5m", 300), ("24h", 86_400), ("7d", 604_800)] {
            assert_eq!(parse_duration(text), Ok(Duration::from_secs(seconds)));
        }
        for text in ["", "h", "0", "-1", "1.5h", "1w", "99999999999999999999d", "ä"] {
            assert!(parse_duration(text).unwrap_err().starts_with("give a number of seconds"), "{text}");
        }
    }
}
