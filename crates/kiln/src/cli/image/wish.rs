//! What the options of `customize` and `compose` ask for, read and judged before an image is touched.

use std::path::Path;

use anyhow::anyhow;
use kiln_core::boot::folder::{Content, Folder, NetworkFile};
use kiln_core::diagnostic::Severity;
use kiln_core::ignition::{unpack_gzip, validate::validate};
use kiln_core::source::SourceMap;
use kiln_image::{Customization, NamedFile};

use super::super::boot::read::read_folder;
use super::super::check::ReportFormat;
use super::super::ignition::read::{parse_config, read_bytes};
use super::super::net::render::render_files;
use super::super::{output, output::Failure, report};
use super::WishArgs;

/// The argument that lets a network given at first boot win over "Ignition brought one of its own".
const FORCE_PERSIST_IP: &str = "coreos.force_persist_ip";

/// Reads everything the options name. None when something is refused; what, has then been printed.
pub fn read(args: &WishArgs) -> Result<Option<Customization>, Failure> {
    let WishArgs { network, network_dir, ignition, karg_append, karg_delete, force_persist_ip } = args;
    let network = match (network, network_dir) {
        (Some(path), _) => read_network(path)?,
        (None, Some(folder)) => read_network_dir(folder)?,
        (None, None) => Some(Vec::new()),
    };
    let ignition = match ignition {
        Some(path) => read_ignition(path)?.map(Some),
        None => Some(None),
    };
    let (Some(network), Some(ignition)) = (network, ignition) else { return Ok(None) };
    let wish = Customization {
        network,
        ignition,
        append_kargs: karg_append.clone(),
        delete_kargs: karg_delete.clone(),
        firstboot_kargs: force_persist_ip.then(|| FORCE_PERSIST_IP.to_owned()).into_iter().collect(),
    };
    wish.check().map_err(Failure::refused)?;
    Ok(Some(wish))
}

fn read_network(path: &Path) -> Result<Option<Vec<NamedFile>>, Failure> {
    let files = render_files(&[path.to_owned()])?;
    Ok(files.map(|files| {
        files.into_iter().map(|file| NamedFile { bytes: file.keyfile.render().into_bytes(), name: file.name }).collect()
    }))
}

/// The first boot copies what is there and asks nothing; so everything it would trip over is refused here.
fn read_network_dir(folder: &Path) -> Result<Option<Vec<NamedFile>>, Failure> {
    let mut network = Vec::new();
    let mut refused = false;
    for NetworkFile { name, content, .. } in read_folder(folder)? {
        let path = folder.join(&name);
        let mut refuse = |reason: String| {
            refused = true;
            output::complain(&format!("error: {}: {reason}\n", path.display()));
        };
        if name.starts_with('.') {
            refuse("the first boot counts files whose name begins with a dot but does not copy them; remove it".into());
            continue;
        }
        // The mode here is of no matter: it is 0600 in the image.
        let file = NetworkFile { name, mode: 0o600, content };
        match (file.load(Folder::Run), file.content) {
            (Ok(_), Content::Bytes(bytes)) => network.push(NamedFile { name: file.name, bytes }),
            (_, Content::Directory) => {
                refuse("the first boot fails on a folder among the keyfiles (cp without -r); remove it".into());
            }
            (Err(reason), _) => refuse(format!("NetworkManager would not load it: {reason}")),
            (Ok(_), Content::Profile(_) | Content::Remote(_)) => {}
        }
    }
    if refused {
        return Ok(None);
    }
    if network.is_empty() {
        return Err(Failure::refused(anyhow!("`{}` has no keyfiles; leave --network-dir out", folder.display())));
    }
    Ok(Some(network))
}

fn read_ignition(path: &Path) -> Result<Option<Vec<u8>>, Failure> {
    let mut sources = SourceMap::default();
    let mut findings = Vec::new();
    let packed = read_bytes(path)?;
    let config = parse_config(path, &packed, &mut sources, &mut findings)?;
    findings.extend(config.as_ref().map(validate).unwrap_or_default());
    findings.sort_by_key(|finding| finding.at);
    report::print(&sources, &findings, ReportFormat::Human)?;
    if config.is_none() || report::count(&findings, Severity::Error) > 0 {
        output::complain(&format!("{}: Ignition would refuse this config\n", path.display()));
        return Ok(None);
    }
    // Ignition takes gzip from a URL, but not from the file that the first boot hands it.
    Ok(Some(unpack_gzip(&packed).map_err(Failure::refused)?.into_owned()))
}
