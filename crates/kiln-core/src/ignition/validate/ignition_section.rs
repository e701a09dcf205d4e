//! The `ignition` section and the kernel arguments.

use super::resource::{Source, not_a_url};
use super::{Check, items};
use crate::diagnostic::{Code, Diagnostic};
use crate::document::Node;
use crate::ignition::go_url;

const PROXY: Code = Code(430);
const PLAINTEXT_PROXY: Code = Code(431);
const KERNEL_ARGUMENTS: Code = Code(432);

pub(super) fn check(check: &mut Check<'_>) {
    check.references();
    check.authorities();
    check.proxy();
    check.kernel_arguments();
}

impl Check<'_> {
    fn references(&mut self) {
        let Some(config) = self.root.path(&["ignition", "config"]) else { return };
        let merged = items(config, if self.is_v2() { "append" } else { "merge" });
        // A config to merge without a source was nothing to do in 3.0 and is a mistake since.
        let source = if self.since_3(1) { Source::Required } else { Source::Optional };
        for reference in merged {
            self.resource(reference, source, "config to merge");
        }
        if !self.is_v2() {
            self.unique_by(merged, "source", "the config to merge");
        }
        if let Some(reference) = config.get("replace") {
            self.resource(reference, Source::Optional, "config to replace this one with");
        }
    }

    fn authorities(&mut self) {
        let authorities = self.list(&["ignition", "security", "tls", "certificateAuthorities"]);
        for authority in authorities {
            self.resource(authority, Source::Required, "certificate authority");
        }
        self.unique_by(authorities, "source", "the certificate authority");
    }

    fn proxy(&mut self) {
        let Some(proxy) = self.root.path(&["ignition", "proxy"]) else { return };
        for key in ["httpProxy", "httpsProxy"] {
            let Some(node) = proxy.get(key) else { continue };
            self.proxy_url(key, node);
        }
        self.unique_texts(items(proxy, "noProxy"), "the exception");
    }

    fn proxy_url(&mut self, key: &str, node: &Node) {
        let url = node.as_str().unwrap_or_default();
        let finding = match go_url::parse(url) {
            Err(reason) => not_a_url(node.at, url, &reason),
            Ok(parsed) => match (parsed.scheme.as_str(), key) {
                ("http", "httpsProxy") => {
                    Diagnostic::new(PLAINTEXT_PROXY, node.at, "HTTPS resources are fetched through a plaintext proxy")
                        .cause("the request to open a tunnel, and credentials for the proxy, travel unencrypted")
                        .help("write an `https:` URL if the proxy has one; otherwise this is fine on a trusted network")
                }
                ("http" | "https", _) => return,
                _ => Diagnostic::new(PROXY, node.at, format!("`{key}` is `{url}`, which is not an http or https URL"))
                    .cause("Ignition knows proxies that speak HTTP, and wants the scheme written")
                    .help(if url.is_empty() {
                        format!("remove `{key}`")
                    } else {
                        format!("write `http://{}`", url.rsplit("//").next().unwrap_or(url))
                    }),
            },
        };
        self.report(finding);
    }

    /// The two lists share one key space: an argument cannot be wanted and unwanted.
    fn kernel_arguments(&mut self) {
        let Some(arguments) = self.root.get("kernelArguments") else { return };
        let (wanted, unwanted) = (items(arguments, "shouldExist"), items(arguments, "shouldNotExist"));
        self.unique_texts(wanted, "the kernel argument");
        self.unique_texts(unwanted, "the kernel argument");
        for node in unwanted {
            if let Some(other) = wanted.iter().find(|other| other.as_str() == node.as_str()) {
                let name = node.as_str().unwrap_or_default();
                self.report(
                    Diagnostic::new(
                        KERNEL_ARGUMENTS,
                        node.at,
                        format!("the kernel argument `{name}` should exist and should not exist"),
                    )
                    .cause("Ignition refuses an argument that is in both lists")
                    .help("remove it from one of the lists")
                    .related(other.at, "wanted here"),
                );
            }
        }
        for node in wanted.iter().chain(unwanted).filter(|node| text_has_space(node)) {
            let name = node.as_str().unwrap_or_default();
            self.report(
                Diagnostic::new(KERNEL_ARGUMENTS, node.at, format!("`{name}` is several kernel arguments in one string"))
                    .severity(crate::diagnostic::Severity::Warning)
                    .cause("the whole string is compared with each single argument of the command line, so it is never found there")
                    .help("write each argument as a string of its own"),
            );
        }
    }
}

fn text_has_space(node: &Node) -> bool {
    node.as_str().is_some_and(|text| text.contains(' ') && !text.contains('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_argument_may_contain_spaces() {
        let at = crate::source::SourceMap::default().add("x", "");
        let at = crate::source::Location { file: at, span: crate::source::Span::default() };
        let node = |text: &str| Node { at, value: crate::document::Value::String(text.into()) };
        assert!(text_has_space(&node("a b")));
        assert!(!text_has_space(&node("dyndbg=\"file x +p\"")));
    }
}
