//! What a request for a representation is answered: status, headers and the bytes of the body.
//!
//! [`decide_answer`] is pure and knows neither sockets nor files, so whoever speaks HTTP (the threads here, the hub
//! later) gives the same answers. The order of the preconditions is that of RFC 9110, section 13.2.2.
//!
//! There is never a `Content-Encoding`: `curl --compressed` would inflate a `.gz` that its user hashes and unpacks.
//! There is no `Last-Modified` either, so a date in `If-Range` never matches and the client gets the whole.

use std::fmt::Write;
use std::ops::Range;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;

use super::range::{Selection, select_ranges};

/// What can be fetched, as far as HTTP is concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Representation {
    /// How many bytes it has.
    pub size: u64,
    /// The strong entity tag without its quotes; letters, digits and hyphens.
    pub etag: String,
    /// sha256 of all bytes, when it is known.
    pub sha256: Option<[u8; 32]>,
    /// The media type.
    pub content_type: &'static str,
    /// Whether caches on the way must not keep it.
    pub confidential: bool,
}

/// The request, as far as the answer depends on it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Conditions<'r> {
    /// `HEAD`: headers only, and ranges do not apply.
    pub head_only: bool,
    /// `Range`.
    pub range: Option<&'r str>,
    /// `If-Range`.
    pub if_range: Option<&'r str>,
    /// `If-Match`.
    pub if_match: Option<&'r str>,
    /// `If-None-Match`.
    pub if_none_match: Option<&'r str>,
}

/// A complete answer but for the headers of the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// Headers in the order they are sent, `Content-Length` among them.
    pub headers: Vec<(&'static str, String)>,
    /// What follows the headers; empty for `HEAD`.
    pub body: Vec<BodyPart>,
}

/// A stretch of the body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BodyPart {
    /// These bytes.
    Text(Vec<u8>),
    /// This range of the representation.
    Bytes(Range<u64>),
}

impl Answer {
    /// A short text for people.
    pub fn plain(status: u16, text: &str) -> Answer {
        let text = format!("{text}\n").into_bytes();
        let headers =
            vec![("Content-Type", "text/plain; charset=utf-8".into()), ("Content-Length", text.len().to_string())];
        Answer { status, headers, body: vec![BodyPart::Text(text)] }
    }

    /// Without its body, as `HEAD` wants it; the headers stay.
    pub fn without_body(mut self) -> Answer {
        self.body.clear();
        self
    }

    /// How many bytes the body has.
    pub fn body_length(&self) -> u64 {
        self.body
            .iter()
            .map(|part| match part {
                BodyPart::Text(text) => text.len() as u64,
                BodyPart::Bytes(range) => range.end - range.start,
            })
            .sum()
    }
}

/// Decides everything about the answer to `GET` or `HEAD` of something that exists.
pub fn decide_answer(conditions: &Conditions, representation: &Representation) -> Answer {
    let etag = &representation.etag;
    if conditions.if_match.is_some_and(|list| !lists_tag(list, etag, Comparison::Strong)) {
        return finish(Answer::plain(412, "the file is another one by now: If-Match does not match"), conditions);
    }
    if conditions.if_none_match.is_some_and(|list| lists_tag(list, etag, Comparison::Weak)) {
        return Answer { status: 304, headers: common_headers(representation), body: Vec::new() };
    }
    let range = match (conditions.range, conditions.if_range) {
        (Some(range), None) if !conditions.head_only => Some(range),
        (Some(range), Some(tag)) if !conditions.head_only && is_tag(tag, etag, Comparison::Strong) => Some(range),
        _ => None,
    };
    let selection = range.map_or(Selection::Whole, |range| select_ranges(range, representation.size));
    let mut headers = common_headers(representation);
    let answer = match selection {
        Selection::Whole => {
            headers.push(("Content-Type", representation.content_type.into()));
            headers.push(("Content-Length", representation.size.to_string()));
            Answer { status: 200, headers, body: vec![BodyPart::Bytes(0..representation.size)] }
        }
        Selection::Unsatisfiable => {
            let mut answer = Answer::plain(416, &format!("the file has {} bytes", representation.size));
            answer.headers.push(("Content-Range", format!("bytes */{}", representation.size)));
            answer.headers.push(("Accept-Ranges", "bytes".into()));
            answer
        }
        Selection::Parts(parts) => match parts.as_slice() {
            [part] => {
                headers.push(("Content-Type", representation.content_type.into()));
                headers.push(("Content-Range", content_range(part, representation.size)));
                headers.push(("Content-Length", (part.end - part.start).to_string()));
                Answer { status: 206, headers, body: vec![BodyPart::Bytes(part.clone())] }
            }
            parts => multipart(parts, representation, headers),
        },
    };
    finish(answer, conditions)
}

fn finish(answer: Answer, conditions: &Conditions) -> Answer {
    if conditions.head_only { answer.without_body() } else { answer }
}

fn common_headers(representation: &Representation) -> Vec<(&'static str, String)> {
    let mut headers = vec![("Accept-Ranges", "bytes".into()), ("ETag", format!("\"{}\"", representation.etag))];
    if let Some(sha256) = &representation.sha256 {
        headers.push(("Repr-Digest", format!("sha-256=:{}:", BASE64.encode(sha256))));
    }
    if representation.confidential {
        headers.push(("Cache-Control", "private, no-store".into()));
    }
    headers
}

fn content_range(range: &Range<u64>, size: u64) -> String {
    format!("bytes {}-{}/{size}", range.start, range.end - 1)
}

/// Several ranges as `multipart/byteranges`. The parts carry their lengths, so the boundary need not be searched for.
fn multipart(
    parts: &[Range<u64>],
    representation: &Representation,
    mut headers: Vec<(&'static str, String)>,
) -> Answer {
    let boundary = format!("kiln-{}", representation.etag);
    let mut body = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        let mut text = String::new();
        let line_end = if index == 0 { "" } else { "\r\n" };
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "{line_end}--{boundary}\r\nContent-Type: {}\r\nContent-Range: {}\r\n\r\n",
            representation.content_type,
            content_range(part, representation.size)
        );
        body.push(BodyPart::Text(text.into_bytes()));
        body.push(BodyPart::Bytes(part.clone()));
    }
    body.push(BodyPart::Text(format!("\r\n--{boundary}--\r\n").into_bytes()));
    let mut answer = Answer { status: 206, headers: Vec::new(), body };
    headers.push(("Content-Type", format!("multipart/byteranges; boundary={boundary}")));
    headers.push(("Content-Length", answer.body_length().to_string()));
    answer.headers = headers;
    answer
}

/// How entity tags are compared (RFC 9110, section 8.8.3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    /// A weak tag never matches.
    Strong,
    /// `W/` is not looked at.
    Weak,
}

fn lists_tag(list: &str, etag: &str, comparison: Comparison) -> bool {
    // No tag of ours has a comma in it, so splitting at commas inside foreign tags finds nothing wrong.
    list.trim() == "*" || list.split(',').any(|element| is_tag(element.trim(), etag, comparison))
}

fn is_tag(text: &str, etag: &str, comparison: Comparison) -> bool {
    let text = match (text.strip_prefix("W/"), comparison) {
        (Some(_), Comparison::Strong) => return false,
        (Some(rest), Comparison::Weak) => rest,
        (None, _) => text,
    };
    text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) == Some(etag)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn representation() -> Representation {
        Representation {
            size: 1000,
            etag: "abc".into(),
            sha256: Some([0; 32]),
            content_type: "application/gzip",
            confidential: false,
        }
    }

    /// Status, `Content-Range` or `-`, and the ranges sent.
    fn summary(conditions: &Conditions) -> String {
        let answer = decide_answer(conditions, &representation());
        let header = |name: &str| answer.headers.iter().find(|(key, _)| *key == name).map(|(_, value)| value.clone());
        if answer.status != 304 && !conditions.head_only {
            assert_eq!(header("Content-Length").unwrap(), answer.body_length().to_string());
        }
        assert_eq!(header("Content-Encoding"), None);
        let ranges: Vec<String> = answer
            .body
            .iter()
            .filter_map(|part| match part {
                BodyPart::Bytes(range) => Some(format!("{range:?}")),
                BodyPart::Text(_) => None,
            })
            .collect();
        format!("{} {} {}", answer.status, header("Content-Range").unwrap_or("-".into()), ranges.join(","))
    }

    #[test]
    fn preconditions_come_in_the_order_of_the_standard() {
        let none = Conditions::default();
        let table = [
            (none, "200 - 0..1000"),
            (Conditions { head_only: true, range: Some("bytes=0-1"), ..none }, "200 - "),
            (Conditions { range: Some("bytes=0-1"), ..none }, "206 bytes 0-1/1000 0..2"),
            (Conditions { range: Some("bytes=0-1,-1"), ..none }, "206 - 0..2,999..1000"),
            (Conditions { range: Some("bytes=1000-"), ..none }, "416 bytes */1000 "),
            (Conditions { range: Some("pages=1"), ..none }, "200 - 0..1000"),
            (Conditions { range: Some("bytes=0-1"), if_range: Some("\"abc\""), ..none }, "206 bytes 0-1/1000 0..2"),
            (Conditions { range: Some("bytes=0-1"), if_range: Some("\"old\""), ..none }, "200 - 0..1000"),
            (Conditions { range: Some("bytes=0-1"), if_range: Some("W/\"abc\""), ..none }, "200 - 0..1000"),
            (
                Conditions { range: Some("bytes=0-1"), if_range: Some("Sun, 06 Nov 1994 08:49:37 GMT"), ..none },
                "200 - 0..1000",
            ),
            (Conditions { range: Some("bytes=1000-"), if_range: Some("\"old\""), ..none }, "200 - 0..1000"),
            (Conditions { if_none_match: Some("\"abc\""), ..none }, "304 - "),
            (Conditions { if_none_match: Some("W/\"abc\""), range: Some("bytes=0-1"), ..none }, "304 - "),
            (Conditions { if_none_match: Some("\"x\", \"abc\""), head_only: true, ..none }, "304 - "),
            (Conditions { if_none_match: Some("*"), ..none }, "304 - "),
            (Conditions { if_none_match: Some("\"x\""), ..none }, "200 - 0..1000"),
            (Conditions { if_none_match: Some("abc"), ..none }, "200 - 0..1000"),
            (
                Conditions { if_match: Some("\"x\", \"abc\""), range: Some("bytes=-1"), ..none },
                "206 bytes 999-999/1000 999..1000",
            ),
            (Conditions { if_match: Some("*"), ..none }, "200 - 0..1000"),
            (Conditions { if_match: Some("W/\"abc\""), ..none }, "412 - "),
            (Conditions { if_match: Some("\"x\""), if_none_match: Some("\"abc\""), ..none }, "412 - "),
        ];
        for (conditions, expected) in table {
            assert_eq!(summary(&conditions), expected, "{conditions:?}");
        }
    }

    #[test]
    fn several_ranges_are_one_multipart_body() {
        let answer =
            decide_answer(&Conditions { range: Some("bytes=0-1,500-501"), ..Conditions::default() }, &representation());
        let mut body = String::new();
        for part in &answer.body {
            match part {
                BodyPart::Text(text) => body.push_str(std::str::from_utf8(text).unwrap()),
                BodyPart::Bytes(range) => body.push_str(&format!("<{range:?}>")),
            }
        }
        assert_eq!(
            body,
            "--kiln-abc\r\nContent-Type: application/gzip\r\nContent-Range: bytes 0-1/1000\r\n\r\n<0..2>\r\n\
             --kiln-abc\r\nContent-Type: application/gzip\r\nContent-Range: bytes 500-501/1000\r\n\r\n<500..502>\r\n\
             --kiln-abc--\r\n"
        );
        assert_eq!(answer.headers[3], ("Content-Type", "multipart/byteranges; boundary=kiln-abc".into()));
    }

    #[test]
    fn secrets_are_not_cached_and_digests_are_told() {
        let mut file = representation();
        file.confidential = true;
        let headers = decide_answer(&Conditions::default(), &file).headers;
        assert!(headers.contains(&("Cache-Control", "private, no-store".into())));
        assert!(headers.contains(&("Repr-Digest", "sha-256=:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=:".into())));
        file.sha256 = None;
        assert!(!decide_answer(&Conditions::default(), &file).headers.iter().any(|(name, _)| *name == "Repr-Digest"));
    }
}
