//! `/livez`, `/readyz` and `/healthz`: named checks, told to everybody; their reasons only to the log.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use crate::request::Query;

/// Which question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// Should the process be restarted?
    Live,
    /// Should it get requests?
    Ready,
}

/// What a check found: nothing, or why not.
pub type CheckResult = Result<(), String>;

type CheckFunction = Box<dyn Fn() -> CheckResult + Send + Sync>;

/// Whether a check that fails makes the server unready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    /// It does.
    Decides,
    /// It says something about a part, to those who ask for it by its name: `/readyz/NAME`.
    Informs,
}

struct Check {
    name: String,
    weight: Weight,
    run: CheckFunction,
}

/// Checks that whoever embeds the server adds to readiness.
#[derive(Default)]
pub struct Checks(Mutex<Vec<Check>>);

impl fmt::Debug for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let checks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        f.debug_list().entries(checks.iter().map(|check| &check.name)).finish()
    }
}

impl Checks {
    /// Adds one; it must be quick, it runs for every probe.
    pub fn add(&self, name: &str, weight: Weight, check: impl Fn() -> CheckResult + Send + Sync + 'static) {
        let check = Check { name: name.to_owned(), weight, run: Box::new(check) };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(check);
    }

    /// What those find now that decide, or are asked for by name.
    pub fn results(&self, asked: &str) -> Vec<(String, CheckResult)> {
        let checks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let chosen = checks.iter().filter(|check| check.weight == Weight::Decides || check.name == asked);
        chosen.map(|check| (check.name.clone(), (check.run)())).collect()
    }
}

/// The check a path asks for: `store` in `/readyz/store`, empty for all.
pub fn asked(path: &str) -> &str {
    path.trim_matches('/').split_once('/').map_or("", |(_, one)| one)
}

/// The answer: 200 and `ok`, or 500 and which checks failed.
pub fn render(path: &str, results: &[(String, CheckResult)], query: &Query) -> (u16, String) {
    let (probe, one) = (path.trim_matches('/').split('/').next().unwrap_or_default(), asked(path));
    let excluded = query.get("exclude").unwrap_or_default();
    let chosen: Vec<_> = results.iter().filter(|(check, _)| one.is_empty() || check == one).collect();
    if chosen.is_empty() {
        return (404, format!("there is no check {one:?}\n"));
    }
    let failed = chosen.iter().any(|(check, result)| result.is_err() && check != excluded);
    let code = if failed { 500 } else { 200 };
    // An empty value is enough: kubectl get --raw '/readyz?verbose'.
    if !failed && !query.has("verbose") {
        return (code, "ok".into());
    }
    let mut text = String::new();
    for (check, result) in chosen {
        text.push_str(&match result {
            _ if check == excluded => format!("[+]{check} excluded: ok\n"),
            Ok(()) => format!("[+]{check} ok\n"),
            Err(_) => format!("[-]{check} failed: reason withheld\n"),
        });
    }
    text.push_str(&format!("{probe} check {}\n", if failed { "failed" } else { "passed" }));
    (code, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_name_what_failed_and_keep_the_reason_to_themselves() {
        let good = vec![("ping".to_owned(), Ok(())), ("store".to_owned(), Ok(()))];
        let bad = vec![("ping".to_owned(), Ok(())), ("store".to_owned(), Err("disk /dev/sda is full".to_owned()))];
        for (path, results, query, expected) in [
            ("/readyz", &good, "", (200, "ok")),
            ("/readyz", &good, "verbose", (200, "[+]ping ok\n[+]store ok\nreadyz check passed\n")),
            ("/readyz", &bad, "", (500, "[+]ping ok\n[-]store failed: reason withheld\nreadyz check failed\n")),
            ("/readyz", &bad, "exclude=store", (200, "ok")),
            ("/livez/ping", &bad, "", (200, "ok")),
            ("/livez/store", &bad, "", (500, "[-]store failed: reason withheld\nlivez check failed\n")),
            ("/livez/nothing", &bad, "", (404, "there is no check \"nothing\"\n")),
        ] {
            let (code, text) = render(path, results, &Query::parse(query));
            assert_eq!((code, text.as_str()), expected, "{path}?{query}");
        }
    }
}
