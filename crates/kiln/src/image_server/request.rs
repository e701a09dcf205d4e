//! The head of one HTTP/1.x request: what the server needs of it, and why it is refused.
//!
//! [`parse_request`] is pure: bytes received so far in, one of three answers out. Requests with a body are refused, so
//! whatever follows the head is the next request. Names of files need no percent-encoding, so none is undone.

use super::answer::Conditions;

/// A head longer than this is refused.
pub const LONGEST_HEAD: usize = 16 * 1024;

/// More header fields than this are refused.
const MOST_FIELDS: usize = 64;

/// What was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Only the headers of the answer are wanted.
    pub head_only: bool,
    /// The path, beginning with a slash.
    pub path: String,
    /// What follows the question mark.
    pub query: Option<String>,
    /// Whether the connection stays open after the answer.
    pub keep_alive: bool,
    range: Option<String>,
    if_range: Option<String>,
    if_match: Option<String>,
    if_none_match: Option<String>,
}

impl Request {
    /// The part that [`super::answer::decide_answer`] looks at.
    pub fn conditions(&self) -> Conditions<'_> {
        Conditions {
            head_only: self.head_only,
            range: self.range.as_deref(),
            if_range: self.if_range.as_deref(),
            if_match: self.if_match.as_deref(),
            if_none_match: self.if_none_match.as_deref(),
        }
    }

    /// The value of a query parameter, undecoded.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.query.as_deref()?.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
    }
}

/// What the bytes received so far are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parsed {
    /// The beginning of a request.
    Incomplete,
    /// A request, and how many bytes it took.
    Complete(Request, usize),
    /// Something else. The connection is of no use afterwards.
    Refused {
        /// The status to answer.
        status: u16,
        /// Why.
        reason: &'static str,
    },
}

/// Reads one request from the bytes received so far.
pub fn parse_request(bytes: &[u8]) -> Parsed {
    let refused = |status, reason| Parsed::Refused { status, reason };
    let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
    let mut head = httparse::Request::new(&mut fields);
    let length = match head.parse(&bytes[..bytes.len().min(LONGEST_HEAD)]) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if bytes.len() < LONGEST_HEAD => return Parsed::Incomplete,
        Ok(httparse::Status::Partial) => return refused(431, "the request's head is longer than 16 KiB"),
        Err(httparse::Error::TooManyHeaders) => return refused(431, "the request has more than 64 header fields"),
        Err(httparse::Error::Version) => return refused(505, "this server speaks HTTP/1.1"),
        Err(_) => return refused(400, "this is not an HTTP request"),
    };
    let (Some(method), Some(target), Some(version)) = (head.method, head.path, head.version) else {
        return refused(400, "this is not an HTTP request");
    };
    let Ok(fields) = Fields::collect(head.headers) else {
        return refused(400, "a header field that counts is given twice or is not text");
    };
    if fields.transfer_encoding.is_some() || fields.content_length.is_some_and(|length| length.trim() != "0") {
        return refused(413, "requests must not have a body");
    }
    if version == 1 && fields.host.is_none() {
        return refused(400, "the request has no Host field");
    }
    let head_only = match method {
        "GET" => false,
        "HEAD" => true,
        _ => return refused(405, "only GET and HEAD are answered"),
    };
    let Some((path, query)) = split_target(target) else {
        return refused(400, "the request's target is not a path");
    };
    let connection = |token: &str| {
        fields.connection.is_some_and(|list| list.split(',').any(|word| word.trim().eq_ignore_ascii_case(token)))
    };
    let keep_alive = if version == 1 { !connection("close") } else { connection("keep-alive") };
    let own = |value: Option<&str>| value.map(str::to_string);
    let request = Request {
        head_only,
        path: path.to_string(),
        query: query.map(str::to_string),
        keep_alive,
        range: own(fields.range),
        if_range: own(fields.if_range),
        if_match: own(fields.if_match),
        if_none_match: own(fields.if_none_match),
    };
    Parsed::Complete(request, length)
}

/// The fields that matter, each at most once.
#[derive(Debug, Default)]
struct Fields<'b> {
    host: Option<&'b str>,
    connection: Option<&'b str>,
    content_length: Option<&'b str>,
    transfer_encoding: Option<&'b str>,
    range: Option<&'b str>,
    if_range: Option<&'b str>,
    if_match: Option<&'b str>,
    if_none_match: Option<&'b str>,
}

impl<'b> Fields<'b> {
    /// Refuses a field that stands there twice: two proxies could believe two different ones.
    fn collect(headers: &[httparse::Header<'b>]) -> Result<Self, ()> {
        let mut fields = Fields::default();
        for header in headers {
            let place = match header.name.to_ascii_lowercase().as_str() {
                "host" => &mut fields.host,
                "connection" => &mut fields.connection,
                "content-length" => &mut fields.content_length,
                "transfer-encoding" => &mut fields.transfer_encoding,
                "range" => &mut fields.range,
                "if-range" => &mut fields.if_range,
                "if-match" => &mut fields.if_match,
                "if-none-match" => &mut fields.if_none_match,
                _ => continue,
            };
            let value = std::str::from_utf8(header.value).map_err(|_| ())?;
            if place.replace(value.trim()).is_some() {
                return Err(());
            }
        }
        Ok(fields)
    }
}

/// Path and query of `/path?query` or `http://host/path?query`.
fn split_target(target: &str) -> Option<(&str, Option<&str>)> {
    let path = match target.strip_prefix("http://").or_else(|| target.strip_prefix("https://")) {
        Some(rest) => &rest[rest.find('/')?..],
        None => target,
    };
    if !path.starts_with('/') {
        return None;
    }
    Some(match path.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (path, None),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Parsed {
        parse_request(text.replace('\n', "\r\n").as_bytes())
    }

    #[test]
    fn a_request_is_read_and_the_next_one_left_alone() {
        let text = "GET /images/n1/b.qcow2.gz?expires=5&signature=ab HTTP/1.1\nHost: a\nRange: bytes=0-1\n\nGET /";
        let Parsed::Complete(request, length) = parsed(text) else { panic!("{:?}", parsed(text)) };
        assert_eq!(length, text.replace('\n', "\r\n").len() - 5);
        assert_eq!(
            (request.path.as_str(), request.head_only, request.keep_alive),
            ("/images/n1/b.qcow2.gz", false, true)
        );
        assert_eq!(request.conditions().range, Some("bytes=0-1"));
        assert_eq!(request.parameter("expires"), Some("5"));
        assert_eq!(request.parameter("signature"), Some("ab"));
        assert_eq!(request.parameter("sign"), None);
    }

    #[test]
    fn connections_stay_open_as_the_version_says() {
        let table = [
            ("GET / HTTP/1.1\nHost: a\n\n", true),
            ("GET / HTTP/1.1\nHost: a\nConnection: TE, Close\n\n", false),
            ("GET / HTTP/1.0\n\n", false),
            ("GET / HTTP/1.0\nConnection: Keep-Alive\n\n", true),
            ("HEAD http://a:80/x HTTP/1.1\nHost: a\n\n", true),
        ];
        for (text, expected) in table {
            let Parsed::Complete(request, _) = parsed(text) else { panic!("{text}") };
            assert_eq!(request.keep_alive, expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_request_is_refused_with_a_reason() {
        let long = format!("GET /{} HTTP/1.1\nHost: a\n\n", "a".repeat(LONGEST_HEAD));
        let many = format!("GET / HTTP/1.1\nHost: a\n{}\n", "A: b\n".repeat(70));
        let table = [
            ("", None),
            ("GET / HT", None),
            ("GET / HTTP/1.1\nHost: a\n", None),
            ("\x16\x03\x01\x02\x00", Some(400)),
            ("GET / HTTP/2.0\n\n", Some(505)),
            ("GET / HTTP/1.1\n\n", Some(400)),
            ("GET x HTTP/1.1\nHost: a\n\n", Some(400)),
            ("GET * HTTP/1.1\nHost: a\n\n", Some(400)),
            ("GET / HTTP/1.1\nHost: a\nHost: b\n\n", Some(400)),
            ("GET / HTTP/1.1\nHost: a\nContent-Length: 0\n\n", Some(0)),
            ("GET / HTTP/1.1\nHost: a\nContent-Length: 1\n\nx", Some(413)),
            ("GET / HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n", Some(413)),
            ("POST / HTTP/1.1\nHost: a\n\n", Some(405)),
            (&long, Some(431)),
            (&many, Some(431)),
        ];
        for (text, expected) in table {
            let status = match parsed(text) {
                Parsed::Incomplete => None,
                Parsed::Complete(..) => Some(0),
                Parsed::Refused { status, .. } => Some(status),
            };
            assert_eq!(status, expected, "{text}");
        }
    }
}
