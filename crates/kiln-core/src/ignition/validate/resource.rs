//! Things to fetch: file contents, merged configs, certificates, key files.

use super::{Check, items, place, text};
use crate::diagnostic::{Code, Diagnostic, Severity};
use crate::document::Node;
use crate::ignition::data_url::{self, is_data_url};
use crate::ignition::files::{Contents, contents};
use crate::ignition::go_url;
use crate::source::Location;

const HASH: Code = Code(415);
const URL: Code = Code(416);
const DATA_URL: Code = Code(417);
const COMPRESSION: Code = Code(421);
const HEADERS: Code = Code(422);
const SOURCE_REQUIRED: Code = Code(433);
const FAILS_AT_BOOT: Code = Code(434);

/// Whether a resource may be without a source.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// There must be one.
    Required,
    /// Nothing to fetch is fine.
    Optional,
}

impl Check<'_> {
    /// One resource object.
    pub(super) fn resource(&mut self, node: &Node, source: Source, called: &str) {
        let url = text(node, "source");
        if !url.is_empty() {
            self.url(url, place(node, "source"), called);
        } else if source == Source::Required {
            self.report(
                Diagnostic::new(SOURCE_REQUIRED, place(node, "source"), format!("the {called} has no source"))
                    .cause("Ignition must know where to fetch it from")
                    .help("add `\"source\": \"https://…\"` or a `data:` URL, or remove the whole entry"),
            );
        }
        self.compression(node);
        self.verification(node, called);
        self.headers(node, url);
        self.inline_contents(node, called);
    }

    fn url(&mut self, url: &str, at: Location, called: &str) {
        match go_url::parse(url) {
            Err(reason) => self.report(not_a_url(at, url, &reason)),
            Ok(_) if is_data_url(url) => {
                if let Err(error) = data_url::decode(url) {
                    self.report(
                        Diagnostic::new(DATA_URL, at, format!("the `data:` URL of the {called} does not decode: {error}"))
                            .cause("Ignition decodes `data:` URLs when it reads the config and refuses the whole config if one is broken")
                            .help("write `data:;base64,` and the base64 of the contents, with its `=` padding"),
                    );
                }
            }
            Ok(parsed) => self.scheme(&parsed, url, at),
        }
    }

    fn scheme(&mut self, parsed: &go_url::GoUrl<'_>, url: &str, at: Location) {
        let known = self.schemes();
        let scheme = parsed.scheme.as_str();
        if !known.contains(&scheme) {
            let message = match scheme {
                "" => format!("`{}` is not a URL: it has no scheme", shortened(url)),
                scheme => format!("spec {} cannot fetch from `{scheme}:` URLs", self.version),
            };
            self.report(
                Diagnostic::new(URL, at, message)
                    .cause(format!("the schemes of spec {} are {}", self.version, known.join(", ")))
                    .help(match scheme {
                        "gs" => "raise `ignition.version` to 3.2.0".to_owned(),
                        "arn" => "raise `ignition.version` to 3.4.0, or write an `s3:` URL".to_owned(),
                        "" => format!("write `https://{}`", shortened(url.trim_start_matches('/'))),
                        _ => "serve it by https".to_owned(),
                    }),
            );
        }
        if scheme == "arn" && known.contains(&scheme) && !is_s3_arn(parsed.opaque) {
            self.report(
                Diagnostic::new(URL, at, format!("`{}` is not the ARN of an S3 object", shortened(url)))
                    .cause("Ignition knows `arn:PARTITION:s3:::BUCKET/KEY` and access points with an object path")
                    .help("write `arn:aws:s3:::bucket/key`"),
            );
        }
        if matches!(scheme, "s3" | "arn") && go_url::query_value(parsed.query, "versionId").as_deref() == Some("") {
            self.report(
                Diagnostic::new(URL, at, "the query parameter `versionId` is empty")
                    .cause("S3 has no version without a name")
                    .help("write the version, or remove `versionId`"),
            );
        }
    }

    fn schemes(&self) -> &'static [&'static str] {
        match (self.is_v2(), self.version.minor()) {
            (true, _) => &["http", "https", "tftp", "s3", "oem", "data"],
            (false, 0 | 1) => &["http", "https", "tftp", "s3", "data"],
            (false, 2 | 3) => &["http", "https", "tftp", "s3", "gs", "data"],
            (false, _) => &["http", "https", "tftp", "s3", "arn", "gs", "data"],
        }
    }

    fn compression(&mut self, node: &Node) {
        let method = text(node, "compression");
        if matches!(method, "" | "gzip") {
            return;
        }
        self.report(
            Diagnostic::new(
                COMPRESSION,
                place(node, "compression"),
                format!("`{method}` is not a compression Ignition knows"),
            )
            .cause("Ignition knows `gzip` and, for none, the empty string")
            .help("write `gzip` and compress the contents with it"),
        );
    }

    fn verification(&mut self, node: &Node, called: &str) {
        let Some(hash) = node.path(&["verification", "hash"]) else { return };
        let written = hash.as_str().unwrap_or_default();
        // Spec 3.0 checked this for file contents only.
        if node.get("source").is_none() && !self.is_v2() && (self.since_3(1) || called.starts_with("contents")) {
            self.report(
                Diagnostic::new(HASH, hash.at, format!("the {called} has a hash but no source"))
                    .cause("there is nothing to verify")
                    .help("add the `source`, or remove `verification`"),
            );
        }
        let cause = match self.since_3(1) {
            true => "a hash is written `sha512-` and 128 hex digits, or `sha256-` and 64",
            false => "a hash is written `sha512-` and 128 hex digits; sha256 needs spec 3.1.0",
        };
        let (problem, severity) = match self.hash_problem(written) {
            Some(problem) => (problem, Severity::Error),
            None if written
                .split_once('-')
                .is_some_and(|(_, sum)| !sum.bytes().all(|byte| byte.is_ascii_hexdigit())) =>
            {
                ("contains characters that are not hex digits, so that it never matches".to_owned(), Severity::Warning)
            }
            None => return,
        };
        self.report(
            Diagnostic::new(HASH, hash.at, format!("the hash `{}` {problem}", shortened(written)))
                .cause(cause)
                .help("write what `sha512sum FILE` prints, behind `sha512-`; the sum is that of the decompressed contents")
                .severity(severity),
        );
    }

    fn hash_problem(&self, written: &str) -> Option<String> {
        let Some((function, sum)) = written.split_once('-') else {
            return Some("has no `-` between the function and the sum".to_owned());
        };
        let digits = match function {
            "sha512" => 128,
            "sha256" if self.since_3(1) => 64,
            _ => return Some(format!("is made with `{function}`, which spec {} does not know", self.version)),
        };
        (sum.len() != digits).then(|| format!("has {} characters behind `{function}-` instead of {digits}", sum.len()))
    }

    fn headers(&mut self, node: &Node, url: &str) {
        let headers = items(node, "httpHeaders");
        if headers.is_empty() {
            return;
        }
        let scheme = go_url::parse(url).map(|url| url.scheme).unwrap_or_default();
        if !matches!(scheme.as_str(), "http" | "https") {
            self.report(
                Diagnostic::new(
                    HEADERS,
                    place(node, "httpHeaders"),
                    "HTTP headers are given for something not fetched by HTTP",
                )
                .cause("`httpHeaders` needs a source with the scheme http or https")
                .help("remove `httpHeaders`"),
            );
        }
        for header in headers {
            let (problem, key, help) = if text(header, "name").is_empty() {
                ("has no name".to_owned(), "name", "write the name, such as `Authorization`")
            } else if header.get("value").and_then(Node::as_str) == Some("") {
                (
                    format!("`{}` has an empty value", text(header, "name")),
                    "value",
                    "write the value, or leave `value` out to remove an inherited header",
                )
            } else {
                continue;
            };
            self.report(
                Diagnostic::new(HEADERS, place(header, key), format!("an HTTP header {problem}"))
                    .cause("Ignition accepts headers with a name and a value, or with a name alone when merging")
                    .help(help),
            );
        }
        self.unique_by(headers, "name", "the HTTP header");
    }

    /// What Ignition finds out only at boot although it is all in the config.
    fn inline_contents(&mut self, node: &Node, called: &str) {
        if text(node, "compression") != "gzip" || data_url::decode(text(node, "source")).is_err() {
            return;
        }
        if let Contents::Unreadable(reason) = contents(Some(node)) {
            self.report(
                Diagnostic::new(
                    FAILS_AT_BOOT,
                    place(node, "source"),
                    format!("the {called} cannot be unpacked: {reason}"),
                )
                .cause("`compression` is `gzip`; Ignition unpacks the contents at boot and stops if it cannot")
                .help("remove `compression` if the contents are not compressed, or compress them with gzip"),
            );
        }
    }
}

pub(super) fn not_a_url(at: Location, url: &str, reason: &str) -> Diagnostic {
    Diagnostic::new(URL, at, format!("`{}` is not a URL: {reason}", shortened(url)))
        .cause("Ignition reads URLs with Go's parser and refuses what that cannot take apart")
        .help("correct the URL; write `%20` for a space and put IPv6 addresses in brackets")
}

/// `PARTITION:s3:REGION:ACCOUNT:RESOURCE` with a key behind the bucket or the access point.
fn is_s3_arn(opaque: &str) -> bool {
    let parts: Vec<&str> = opaque.splitn(5, ':').collect();
    let [_, service, _, _, resource] = parts[..] else { return false };
    let needed = if resource.starts_with("accesspoint/") { 2 } else { 1 };
    service == "s3" && opaque.matches('/').count() >= needed
}

fn shortened(text: &str) -> String {
    if text.chars().count() <= 60 { text.to_owned() } else { text.chars().take(59).chain(['…']).collect() }
}
