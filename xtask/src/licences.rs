//! Every dependency's licence must be one we take. `deny.toml` says the same for those who have cargo-deny.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::cargo;

const TAKEN: [&str; 11] = [
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "MIT",
    "MIT-0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "0BSD",
    "ISC",
    "Zlib",
    "MPL-2.0",
    "Unicode-3.0",
];

/// What Kiln is built for. Packages that only other systems would use are in no program.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";

/// Fails with the list of packages whose licence is not taken.
pub fn check() -> Result<()> {
    let output = cargo()
        .args(["metadata", "--format-version", "1", "--locked", "--filter-platform", PLATFORM])
        .output()
        .context("cannot run cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let refused: Vec<String> = metadata["packages"]
        .as_array()
        .context("cargo metadata lists no packages")?
        .iter()
        .filter(|package| !is_taken(package["license"].as_str().unwrap_or("")))
        .map(|package| format!("{} ({})", package["name"], package["license"]))
        .collect();
    ensure!(refused.is_empty(), "licences we do not take: {}", refused.join(", "));
    Ok(())
}

/// Evaluates an SPDX expression of `OR`, `AND` and one level of parentheses.
fn is_taken(expression: &str) -> bool {
    let expression = expression.replace('/', " OR ");
    let choice = |text: &str| text.split(" OR ").any(|licence| TAKEN.contains(&licence.trim()));
    expression.split(" AND ").all(|part| choice(part.trim().trim_start_matches('(').trim_end_matches(')')))
}

#[cfg(test)]
mod tests {
    use super::is_taken;

    #[test]
    fn expressions_are_read_as_spdx_means_them() {
        for (expression, taken) in [
            ("MIT OR Apache-2.0", true),
            ("MIT/Apache-2.0", true),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
            ("MIT AND GPL-3.0-only", false),
            ("GPL-2.0-only OR MIT", true),
            ("LGPL-3.0-only", false),
            ("", false),
        ] {
            assert_eq!(is_taken(expression), taken, "{expression}");
        }
    }
}
