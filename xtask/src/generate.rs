//! Files that are made from the code: man pages, completions, the list of diagnostics, the CRDs.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::CommandFactory;
use clap_complete::Shell;
use kiln::cli::Cli;
use kiln_core::diagnostic::registry;
use kiln_core::document::emit::to_yaml;

/// Writes the files, or with `check` fails when one differs.
pub fn run(check: bool) -> Result<()> {
    let mut stale = Vec::new();
    for (path, bytes) in contents()? {
        if fs::read(&path).ok().as_deref() == Some(bytes.as_slice()) {
            continue;
        }
        if !check {
            fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
            fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
        }
        stale.push(path.display().to_string());
    }
    if check {
        ensure!(stale.is_empty(), "run `cargo xtask gen`: these files are not up to date: {}", stale.join(", "));
    } else {
        println!("{} files written", stale.len());
    }
    Ok(())
}

fn contents() -> Result<Vec<(PathBuf, Vec<u8>)>> {
    let mut files = Vec::new();
    let mut command = Cli::command();
    command.build();
    man_pages(&command, "kiln", &mut files)?;
    for (shell, name) in [(Shell::Bash, "kiln.bash"), (Shell::Zsh, "_kiln"), (Shell::Fish, "kiln.fish")] {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut Cli::command(), "kiln", &mut script);
        files.push((Path::new("docs/completions").join(name), script));
    }
    files.push((PathBuf::from("docs/diagnostics/README.md"), diagnostics_index().into_bytes()));
    definitions(&mut files)?;
    Ok(files)
}

/// One file per kind; the dialects' are a kustomization of their own, because other operators often own them.
fn definitions(files: &mut Vec<(PathBuf, Vec<u8>)>) -> Result<()> {
    let head = "# Written by `cargo xtask gen`.\napiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n";
    let mut lists = [("deploy/crds", head.to_owned()), ("deploy/crds/dialects", head.to_owned())];
    for definition in kiln_api::definitions::definitions()? {
        let name = format!("{}.yaml", definition.name);
        let (folder, list) = &mut lists[usize::from(!definition.native)];
        *list += &format!("- {name}\n");
        files.push((Path::new(folder).join(name), to_yaml(&definition.manifest).into_bytes()));
    }
    for (folder, list) in lists {
        files.push((Path::new(folder).join("kustomization.yaml"), list.into_bytes()));
    }
    Ok(())
}

fn man_pages(command: &clap::Command, name: &str, files: &mut Vec<(PathBuf, Vec<u8>)>) -> Result<()> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone().display_name(name)).render(&mut page)?;
    files.push((Path::new("docs/man").join(format!("{name}.1")), page));
    for child in command.get_subcommands().filter(|child| child.get_name() != "help") {
        man_pages(child, &format!("{name}-{}", child.get_name()), files)?;
    }
    Ok(())
}

fn diagnostics_index() -> String {
    let mut text = String::from(
        "# Diagnostics\n\nWritten by `cargo xtask gen`. `kiln explain CODE` prints the same stories.\n\n\
         | code | severity | what it says |\n|---|---|---|\n",
    );
    for known in registry::all() {
        let code = known.code.to_string();
        text += &format!("| [{code}]({code}.md) | {:?} | {} |\n", known.severity, known.title);
    }
    text
}
