//! `data:` URLs: contents written inside the config itself.
//!
//! Accepted is what the Go library Ignition uses accepts, which is narrower than browsers are: the prefix in lower case, a
//! media type of a known family or `x-…`, parameters with values, `;base64` last, base64 with its padding, and in plain data
//! only printable ASCII that needs no escape. Oddities of quoted parameter values are not reproduced to the last escape.

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig, general_purpose::STANDARD};

/// Go ignores stray bits in the last character but insists on padding.
const GO_STANDARD: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
);

/// Why a `data:` URL does not decode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DataUrlError {
    /// Does not begin with `data:`.
    #[error("it does not begin with `data:`")]
    Prefix,
    /// No comma between the header and the data.
    #[error("there is no comma in front of the data")]
    Comma,
    /// `data:foo/bar,`.
    #[error("its media type is not of the form `text/plain`, nor of a family Ignition knows")]
    MediaType,
    /// `;charset` without a value, or characters that need quoting.
    #[error("a parameter is not of the form `;name=value`")]
    Parameter,
    /// A character that must be escaped.
    #[error("the data contains {0:?}, which must be written as a percent escape")]
    Character(char),
    /// `%g1`.
    #[error("a `%` is not followed by two hex digits")]
    Escape,
    /// A character base64 does not have.
    #[error("the data contains {0:?}, which is not base64")]
    Base64Character(char),
    /// Wrong length or missing `=`.
    #[error("the base64 data has the wrong length or lacks its `=` padding")]
    Base64Length,
}

/// Whether a source is a `data:` URL in any letter case.
pub fn is_data_url(url: &str) -> bool {
    url.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("data:"))
}

/// The bytes a `data:` URL stands for.
pub fn decode(url: &str) -> Result<Vec<u8>, DataUrlError> {
    let header = url.strip_prefix("data:").ok_or(DataUrlError::Prefix)?;
    let (data, base64) = skip_header(header)?;
    if base64 {
        return decode_base64(data);
    }
    match data.chars().find(|letter| !is_url_character(*letter)) {
        Some(letter) => Err(DataUrlError::Character(letter)),
        None => unescape(data),
    }
}

/// A `data:` URL with base64 data: the shortest form for binary contents.
pub fn encode_base64(bytes: &[u8]) -> String {
    format!("data:;base64,{}", STANDARD.encode(bytes))
}

/// A `data:` URL with percent escapes: readable as long as the contents are mostly letters.
pub fn encode_plain(bytes: &[u8]) -> String {
    let mut url = String::from("data:,");
    for byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-_.!~*'()".contains(byte) {
            url.push(char::from(*byte));
        } else {
            url.push_str(&format!("%{byte:02X}"));
        }
    }
    url
}

/// What stands behind the comma, and whether it is base64.
fn skip_header(header: &str) -> Result<(&str, bool), DataUrlError> {
    let mut rest = skip_media_type(header)?;
    loop {
        if let Some(data) = rest.strip_prefix(',') {
            return Ok((data, false));
        }
        let parameter = match rest.strip_prefix(';') {
            Some(parameter) => parameter,
            None if rest.is_empty() => return Err(DataUrlError::Comma),
            None => return Err(DataUrlError::Parameter),
        };
        let (name, behind) = token(parameter);
        if name.is_empty() {
            return Err(DataUrlError::Parameter);
        }
        if let Some(data) = behind.strip_prefix(',') {
            return if name == "base64" { Ok((data, true)) } else { Err(DataUrlError::Parameter) };
        }
        let value = behind.strip_prefix('=').ok_or(DataUrlError::Parameter)?;
        rest = skip_parameter_value(value)?;
    }
}

fn skip_media_type(header: &str) -> Result<&str, DataUrlError> {
    if header.starts_with([';', ',']) {
        return Ok(header);
    }
    let (family, rest) = token(header);
    let Some(subtype) = rest.strip_prefix('/') else {
        return Err(if header.contains(',') { DataUrlError::MediaType } else { DataUrlError::Comma });
    };
    let families = ["text", "image", "audio", "video", "application", "message", "multipart", "x-", "X-"];
    if !families.iter().any(|known| family.starts_with(known)) {
        return Err(DataUrlError::MediaType);
    }
    Ok(token(subtype).1)
}

fn skip_parameter_value(value: &str) -> Result<&str, DataUrlError> {
    let Some(quoted) = value.strip_prefix('"') else {
        let (plain, rest) = token(value);
        if plain.is_empty() {
            return Err(DataUrlError::Parameter);
        }
        unescape(plain)?;
        return Ok(rest);
    };
    let mut letters = quoted.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Ok(&quoted[at + 1..]),
            '\\' if !letters.next().is_some_and(|(_, escaped)| "abfnrtv\\\"".contains(escaped)) => break,
            letter if !letter.is_ascii() => break,
            _ => {}
        }
    }
    Err(DataUrlError::Parameter)
}

/// The longest run of characters that need no quoting in a header, and what follows it.
fn token(text: &str) -> (&str, &str) {
    let is_token = |letter: char| letter.is_ascii_graphic() && !"()<>@,;:\\\"/[]?=".contains(letter);
    text.split_at(text.find(|letter| !is_token(letter)).unwrap_or(text.len()))
}

fn is_url_character(letter: char) -> bool {
    letter.is_ascii_graphic() && !"<>#\"{}|\\^[]`".contains(letter)
}

fn unescape(text: &str) -> Result<Vec<u8>, DataUrlError> {
    let mut bytes = text.bytes();
    let mut unescaped = Vec::with_capacity(text.len());
    let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16)).ok_or(DataUrlError::Escape);
    while let Some(byte) = bytes.next() {
        unescaped.push(match byte {
            b'%' => (digit(bytes.next())? * 16 + digit(bytes.next())?) as u8,
            plain => plain,
        });
    }
    Ok(unescaped)
}

fn decode_base64(data: &str) -> Result<Vec<u8>, DataUrlError> {
    let is_base64 = |letter: &char| letter.is_ascii_alphanumeric() || "+/=".contains(*letter);
    match data.chars().find(|letter| !is_base64(letter)) {
        Some(letter) => Err(DataUrlError::Base64Character(letter)),
        None => GO_STANDARD.decode(data).map_err(|_| DataUrlError::Base64Length),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn data_urls_decode_as_ignition_decodes_them() {
        for (url, expected) in [
            ("data:,", Ok("")),
            ("data:,a%20b%2f+c", Ok("a b/+c")),
            ("data:text/plain;charset=utf-8;base64,aGk=", Ok("hi")),
            ("data:;base64,aGk=", Ok("hi")),
            ("data:;base64,aGl=", Ok("hi")),
            ("data:x-kiln/anything,x", Ok("x")),
            ("data:text/,x", Ok("x")),
            ("data:text/plain;charset=\"utf-8\",x", Ok("x")),
            ("DATA:,x", Err(DataUrlError::Prefix)),
            ("data:", Err(DataUrlError::Comma)),
            ("data:text/plain", Err(DataUrlError::Comma)),
            ("data:text,x", Err(DataUrlError::MediaType)),
            ("data:font/woff,x", Err(DataUrlError::MediaType)),
            ("data:;charset,x", Err(DataUrlError::Parameter)),
            ("data:;base64;charset=utf-8,aGk=", Err(DataUrlError::Parameter)),
            ("data:;charset=a b,x", Err(DataUrlError::Parameter)),
            ("data:,a b", Err(DataUrlError::Character(' '))),
            ("data:,{}", Err(DataUrlError::Character('{'))),
            ("data:,é", Err(DataUrlError::Character('é'))),
            ("data:,%g1", Err(DataUrlError::Escape)),
            ("data:,%4", Err(DataUrlError::Escape)),
            ("data:;base64,aGk", Err(DataUrlError::Base64Length)),
            ("data:;base64,aGk-", Err(DataUrlError::Base64Character('-'))),
        ] {
            assert_eq!(decode(url), expected.map(|text| text.as_bytes().to_vec()), "{url}");
        }
    }

    proptest! {
        #[test]
        fn what_is_encoded_decodes_to_itself(bytes: Vec<u8>) {
            prop_assert_eq!(decode(&encode_base64(&bytes)), Ok(bytes.clone()));
            prop_assert_eq!(decode(&encode_plain(&bytes)), Ok(bytes));
        }

        #[test]
        fn no_url_makes_the_decoder_panic(url in "data:[a-z/;=\",%0-9\\\\é ]{0,30}") {
            let _ = decode(&url);
        }
    }
}
