//! A kubectl that is new enough for the hub's tests. Debian 12 has 1.20, the release after it has 1.32.
//!
//! apt fetches the package from the next release with the machine's own mirror and the archive's signature, in a
//! folder of its own: the machine's packages stay as they are, and nobody needs to be root for it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use kiln_testimage::oracle;

use crate::execute;

const RELEASE: &str = "trixie";
const OLDEST_MINOR: u32 = 29;
const SIGNER: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Puts kubectl into `target/oracles/bin`, once. Where that fails, an installed one that is new enough will do.
pub fn fetch() -> Result<()> {
    let program = Path::new("target/oracles/bin/kubectl");
    if is_new_enough(program) {
        return Ok(());
    }
    let Err(error) = download(program) else { return Ok(()) };
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let installed = std::env::split_paths(&folders).map(|folder| folder.join("kubectl")).find(|it| is_new_enough(it));
    let installed = installed.with_context(|| {
        format!(
            "{error:#}: kubectl 1.{OLDEST_MINOR} or later is needed; put one on the PATH or name it with KILN_KUBECTL"
        )
    })?;
    println!("{error:#}: the tests use {}", installed.display());
    Ok(())
}

fn is_new_enough(program: &Path) -> bool {
    program.is_file() && oracle::kubectl_minor(program) >= OLDEST_MINOR
}

fn download(program: &Path) -> Result<()> {
    ensure!(Path::new("/usr/bin/apt-get").exists(), "this machine has no apt-get to fetch kubectl with");
    ensure!(Path::new(SIGNER).exists(), "{SIGNER} is missing (apt-get install debian-archive-keyring)");
    let folder = std::env::current_dir()?.join("target/oracles/kubectl");
    // What an interrupted run left is not trusted.
    let _ = fs::remove_dir_all(&folder);
    for needed in ["lists/partial", "cache/archives/partial", "root"] {
        fs::create_dir_all(folder.join(needed))?;
    }
    // An installed kubectl must not count: only the archive's version can be fetched.
    fs::write(folder.join("status"), "")?;
    fs::write(folder.join("sources.list"), format!("deb [signed-by={SIGNER}] {} {RELEASE} main\n", mirror()?))?;
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.current_dir(&folder).args(["-q", "-o", "Acquire::Retries=3"]);
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
    install(&folder.join("root/usr/bin/kubectl"), program)?;
    let _ = fs::remove_dir_all(&folder);
    Ok(())
}

/// Only a program that runs gets its place, and it gets it whole.
fn install(fetched: &Path, program: &Path) -> Result<()> {
    ensure!(is_new_enough(fetched), "the package of {RELEASE} has no kubectl 1.{OLDEST_MINOR} or later");
    let place: PathBuf = program.with_extension("new");
    fs::create_dir_all("target/oracles/bin")?;
    fs::copy(fetched, &place).context("cannot keep kubectl")?;
    fs::rename(&place, program).context("cannot keep kubectl")
}

/// The Debian mirror this machine uses.
fn mirror() -> Result<String> {
    let output = Command::new("apt-get")
        .args(["indextargets", "--format", "$(REPO_URI) $(CODENAME) $(COMPONENT)"])
        .output()
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default();
    let main = output.lines().filter(|line| line.ends_with(" main") && !line.contains("-security"));
    let mut mirrors = main.filter_map(|line| line.split(' ').next()).filter(|uri| uri.contains("debian"));
    mirrors.next().map(str::to_owned).context("apt-get on this machine knows no mirror of Debian")
}
