//! URLs as Go's `net/url` takes them apart, as far as a verdict depends on it.
//!
//! Go is lenient about paths and queries and strict about hosts and escapes. A URL that other parsers accept may stop a
//! boot, and the other way round; so the rules are restated here rather than taken from a crate with other rules.

/// What validation asks about a URL.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct GoUrl<'a> {
    /// In lower case; empty if the text has none.
    pub scheme: String,
    /// What follows the scheme when that is not a slash: `arn:aws:…`.
    pub opaque: &'a str,
    /// What follows the question mark.
    pub query: &'a str,
}

/// Takes a URL apart, or says why Go would not.
pub(super) fn parse(url: &str) -> Result<GoUrl<'_>, String> {
    if let Some(control) = url.chars().find(|letter| letter.is_ascii_control()) {
        return Err(format!("it contains the control character U+{:04X}", u32::from(control)));
    }
    let (url, fragment) = url.split_once('#').unwrap_or((url, ""));
    check_escapes(fragment, "fragment")?;
    let (scheme, rest) = split_scheme(url)?;
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let found = |opaque| GoUrl { scheme: scheme.to_ascii_lowercase(), opaque, query };
    if !rest.starts_with('/') {
        if scheme.is_empty() && rest.split('/').next().is_some_and(|first| first.contains(':')) {
            return Err("its first part contains a colon but is no scheme".to_owned());
        }
        return Ok(found(rest));
    }
    let path = match rest.strip_prefix("//") {
        Some(authority) if !scheme.is_empty() || !rest.starts_with("///") => {
            let (authority, path) = authority.split_at(authority.find('/').unwrap_or(authority.len()));
            check_authority(authority)?;
            path
        }
        _ => rest,
    };
    check_escapes(path, "path")?;
    Ok(found(""))
}

/// The first value of a query parameter, as Go's `Query().Get` finds it; broken pairs do not count.
pub(super) fn query_value(query: &str, name: &str) -> Option<String> {
    query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')).find_map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (unescape_query(key)? == name.as_bytes())
            .then(|| unescape_query(value))?
            .map(|value| String::from_utf8_lossy(&value).into_owned())
    })
}

fn split_scheme(url: &str) -> Result<(&str, &str), String> {
    for (at, byte) in url.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at == 0 => return Err("it has nothing in front of the first colon".to_owned()),
            b':' => return Ok((&url[..at], &url[at + 1..])),
            _ => break,
        }
    }
    Ok(("", url))
}

fn check_authority(authority: &str) -> Result<(), String> {
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (user, host),
        None => ("", authority),
    };
    let allowed_in_user = |letter: char| letter.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(letter);
    if let Some(letter) = user.chars().find(|letter| !allowed_in_user(*letter)) {
        return Err(format!("its user name contains {letter:?}"));
    }
    check_escapes(user, "user name")?;
    if host.starts_with('[') {
        return check_bracketed_host(host);
    }
    if let Some((_, port)) = host.rsplit_once(':') {
        check_port(port)?;
    }
    check_host(host)
}

fn check_bracketed_host(host: &str) -> Result<(), String> {
    let Some((inside, port)) = host.rsplit_once(']') else {
        return Err("the bracket around its address is not closed".to_owned());
    };
    match port.strip_prefix(':') {
        Some(port) => check_port(port)?,
        None if !port.is_empty() => return Err(format!("`{port}` behind the bracket is no port")),
        None => {}
    }
    match inside.split_once("%25") {
        Some((address, zone)) => check_host(address).and_then(|()| check_escapes(zone, "zone")),
        None => check_host(inside),
    }
}

fn check_port(port: &str) -> Result<(), String> {
    if port.bytes().all(|byte| byte.is_ascii_digit()) { Ok(()) } else { Err(format!("`{port}` is no port number")) }
}

/// In a host Go allows escapes only for what is not ASCII, and forbids most punctuation.
fn check_host(host: &str) -> Result<(), String> {
    check_escapes(host, "host")?;
    for escape in host.split('%').skip(1) {
        if !escape.starts_with("25") && escape.starts_with(['0', '1', '2', '3', '4', '5', '6', '7']) {
            return Err(format!("its host contains the escape `%{}`", &escape[..2]));
        }
    }
    let allowed = |letter: char| {
        !letter.is_ascii() || letter.is_ascii_alphanumeric() || "-_.~!$&'()*+,;=:[]<>\"%".contains(letter)
    };
    match host.chars().find(|letter| !allowed(*letter)) {
        Some(letter) => Err(format!("its host contains {letter:?}")),
        None => Ok(()),
    }
}

fn check_escapes(text: &str, part: &str) -> Result<(), String> {
    let broken = |escape: &str| escape.len() < 2 || !escape.as_bytes()[..2].iter().all(u8::is_ascii_hexdigit);
    match text.split('%').skip(1).find(|escape| broken(escape)) {
        Some(_) => Err(format!("a `%` in its {part} is not followed by two hex digits")),
        None => Ok(()),
    }
}

fn unescape_query(text: &str) -> Option<Vec<u8>> {
    check_escapes(text, "").ok()?;
    let mut parts = text.split('%');
    let mut bytes: Vec<u8> = parts.next()?.bytes().collect();
    for part in parts {
        bytes.push(u8::from_str_radix(&part[..2], 16).ok()?);
        bytes.extend(part[2..].bytes());
    }
    Some(bytes.into_iter().map(|byte| if byte == b'+' { b' ' } else { byte }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn urls_are_taken_apart_as_go_does() {
        for (url, expected) in [
            ("http://example.com/a b?x=%zz", Ok(("http", "", "x=%zz"))),
            ("HTTP:a", Ok(("http", "a", ""))),
            ("arn:aws:s3:::b/k?versionId=1", Ok(("arn", "aws:s3:::b/k", "versionId=1"))),
            ("http://[fe80::1%25eth0]:80/", Ok(("http", "", ""))),
            ("/a", Ok(("", "", ""))),
            ("://a", Err("it has nothing in front of the first colon")),
            ("1http://a", Err("its first part contains a colon but is no scheme")),
            ("http://a b/", Err("its host contains ' '")),
            ("http://a:x/", Err("`x` is no port number")),
            ("http://[::1/", Err("the bracket around its address is not closed")),
            ("http://[::1]x/", Err("`x` behind the bracket is no port")),
            ("http://%6d/", Err("its host contains the escape `%6d`")),
            ("http://a/%zz", Err("a `%` in its path is not followed by two hex digits")),
            ("http://u v@a/", Err("its user name contains ' '")),
            ("http://a/\n", Err("it contains the control character U+000A")),
        ] {
            let found = parse(url);
            let shown = found.as_ref().map(|url| (url.scheme.as_str(), url.opaque, url.query)).map_err(String::as_str);
            assert_eq!(shown, expected, "{url}");
        }
        assert_eq!(query_value("a=1&version%49d=5+6&versionId=7", "versionId"), Some("5 6".into()));
        assert_eq!(query_value("a;versionId=1", "versionId"), None);
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(url in "[a-z:/@%\\[\\]?#é0-9=;&]{0,20}") {
            if let Ok(url) = parse(&url) {
                let _ = query_value(url.query, "a");
            }
        }
    }
}
