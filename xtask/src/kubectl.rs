//! A kubectl that is new enough for the hub's tests. Debian 12 has 1.20, the release after it has 1.32.
//!
//! apt fetches the package from the next release with the machine's own mirror and the archive's signature, in a
//! folder of its own: the machine's packages stay as they are.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::execute;

const RELEASE: &str = "trixie";

/// Puts kubectl into `target/oracles/bin`, once.
pub fn fetch() -> Result<()> {
    let program = Path::new("target/oracles/bin/kubectl");
    if program.exists() {
        return Ok(());
    }
    let folder = std::env::current_dir()?.join("target/oracles/kubectl");
    for needed in ["lists/partial", "cache/archives/partial", "root"] {
        fs::create_dir_all(folder.join(needed))?;
    }
    // An installed kubectl must not count: only the archive's version can be fetched.
    fs::write(folder.join("status"), "")?;
    let signer = "/usr/share/keyrings/debian-archive-keyring.gpg";
    fs::write(folder.join("sources.list"), format!("deb [signed-by={signer}] {} {RELEASE} main\n", mirror()?))?;
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.current_dir(&folder).arg("-q");
        for (option, value) in [
            ("Dir::Etc::SourceList", folder.join("sources.list").display().to_string()),
            ("Dir::Etc::SourceParts", "-".into()),
            ("Dir::State::Lists", folder.join("lists").display().to_string()),
            ("Dir::State::status", folder.join("status").display().to_string()),
            ("Dir::Cache", folder.join("cache").display().to_string()),
            ("APT::Sandbox::User", "root".into()),
            ("Acquire::Check-Valid-Until", "false".into()),
        ] {
            command.arg("-o").arg(format!("{option}={value}"));
        }
        execute(command.args(arguments))
    };
    apt(&["update"])?;
    apt(&["download", "kubectl"])?;
    let package = fs::read_dir(&folder)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .context("apt-get downloaded no package")?;
    execute(Command::new("dpkg-deb").arg("-x").arg(package).arg(folder.join("root")))?;
    fs::create_dir_all("target/oracles/bin")?;
    fs::copy(folder.join("root/usr/bin/kubectl"), program).context("the package has no kubectl")?;
    Ok(())
}

/// The Debian mirror this machine uses.
fn mirror() -> Result<String> {
    let output = Command::new("apt-get")
        .args(["indextargets", "--format", "$(REPO_URI) $(CODENAME) $(COMPONENT)"])
        .output()
        .context("cannot run apt-get")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let main = text.lines().filter(|line| line.ends_with(" main") && !line.contains("-security"));
    let mirror = main.filter_map(|line| line.split(' ').next()).next().unwrap_or_default().to_owned();
    ensure!(!mirror.is_empty(), "apt-get knows no mirror: run apt-get update");
    Ok(mirror)
}
