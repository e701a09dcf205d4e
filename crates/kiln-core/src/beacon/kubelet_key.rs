//! The kubelet's pending key, named as a certificate request names it: SHA-256 of its public half.
//!
//! The kubelet writes `EC PRIVATE KEY` (SEC 1, RFC 5915), which carries the public point; from the point and the name of
//! the curve follows the SubjectPublicKeyInfo that will stand in its request. Nothing is computed with the private half.
//!
//! Not here: other kinds of key. client-go makes P-256 keys; P-384 is here because some build their own.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::certificate_request::KeyHash;

/// How much of a file is looked at. `kubelet-client-current.pem` has certificates before its key.
pub const LONGEST_FILE: usize = 64 * 1024;

const BEGIN: &str = "-----BEGIN EC PRIVATE KEY-----";
const END: &str = "-----END EC PRIVATE KEY-----";

/// A curve: its object identifier, the bytes of a point, and what stands before a point in a SubjectPublicKeyInfo.
struct Curve {
    identifier: &'static [u8],
    point: usize,
    head: &'static [u8],
}

const CURVES: [Curve; 2] = [
    Curve {
        identifier: b"\x2a\x86\x48\xce\x3d\x03\x01\x07",
        point: 65,
        head:
            b"\x30\x59\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07\x03\x42\x00",
    },
    Curve {
        identifier: b"\x2b\x81\x04\x00\x22",
        point: 97,
        head: b"\x30\x76\x30\x10\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x05\x2b\x81\x04\x00\x22\x03\x62\x00",
    },
];

/// The name of the first key in a PEM file; none when there is none, or not all of it yet.
pub fn kubelet_key(pem: &[u8]) -> Option<KeyHash> {
    let text = std::str::from_utf8(pem.get(..LONGEST_FILE.min(pem.len()))?).ok()?;
    let (_, rest) = text.split_once(BEGIN)?;
    let (body, _) = rest.split_once(END)?;
    let body: String = body.split_ascii_whitespace().collect();
    public_key(&STANDARD.decode(body).ok()?).map(|key| KeyHash::of(&key))
}

/// `ECPrivateKey ::= SEQUENCE { 1, privateKey, [0] curve OPTIONAL, [1] publicKey OPTIONAL }`
fn public_key(der: &[u8]) -> Option<Vec<u8>> {
    let (sequence, rest) = element(der, 0x30)?;
    rest.is_empty().then_some(())?;
    let (version, rest) = element(sequence, 0x02)?;
    (version == [1]).then_some(())?;
    let (_private, rest) = element(rest, 0x04)?;
    let (parameters, rest) = element(rest, 0xa0)?;
    let (curve, _) = element(parameters, 0x06)?;
    let (public, _) = element(rest, 0xa1)?;
    let (bits, _) = element(public, 0x03)?;
    let curve = CURVES.iter().find(|known| known.identifier == curve)?;
    // No unused bits, and the point is not compressed.
    let point = bits.strip_prefix(&[0]).filter(|point| point.len() == curve.point && point[0] == 4)?;
    Some([curve.head, point].concat())
}

/// One DER element with this tag at the beginning: its contents, and what follows.
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (first, rest) = der.split_first()?;
    (*first == tag).then_some(())?;
    let (length, rest) = rest.split_first()?;
    let (length, rest) = match *length {
        short @ 0..=0x7f => (usize::from(short), rest),
        0x81 => rest.split_first().map(|(length, rest)| (usize::from(*length), rest))?,
        0x82 => (usize::from(u16::from_be_bytes(rest.first_chunk().copied()?)), rest.get(2..)?),
        _ => return None,
    };
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `openssl ecparam -genkey -name prime256v1 -noout`, with `openssl pkey -pubout -outform DER | sha256sum`.
    const KEYS: [(&str, &str); 2] = [
        (include_str!("kubelet_key/p256.pem"), "745204a7f571df8ec8a56981b0327910b933ba95c79d2b7bcd0fa0209ef92a1c"),
        (include_str!("kubelet_key/p384.pem"), "681a913aa493fb39d665f8b6747a29fb311ad762cba0b1fc0eaf4891a8528344"),
    ];

    #[test]
    fn a_key_has_the_name_openssl_gives_it() {
        for (pem, hash) in KEYS {
            assert_eq!(kubelet_key(pem.as_bytes()).unwrap().to_string(), hash);
            let after_a_certificate = format!("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n{pem}");
            assert_eq!(kubelet_key(after_a_certificate.as_bytes()), kubelet_key(pem.as_bytes()));
        }
    }

    #[test]
    fn half_a_key_is_no_key() {
        let (pem, _) = KEYS[0];
        for end in 0..pem.trim_end().len() {
            assert_eq!(kubelet_key(&pem.as_bytes()[..end]), None, "{end}");
        }
        for other in ["", "-----BEGIN EC PRIVATE KEY----------END EC PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----"] {
            assert_eq!(kubelet_key(other.as_bytes()), None);
        }
    }
}
