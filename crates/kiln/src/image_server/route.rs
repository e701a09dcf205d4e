//! Which path means what, and who may have it.
//!
//! `/images/HOST/BASE.EXTENSION` is a host's image, `/bases/BASE.EXTENSION` the base as it was imported, `/healthz`
//! says that the server is there. Nothing is listed. An image with secrets needs a signature and the time until which
//! it holds; without them the answer does not tell whether the image exists.

use kiln_image::store::{BaseKind, BaseName, HostName, StoredImage, UrlKey};

use super::answer::Representation;

/// What a path means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// The server's own health.
    Health,
    /// A host's image.
    Image(HostName, BaseName, BaseKind),
    /// A base as it was imported.
    Base(BaseName, BaseKind),
}

/// Finds out what a path means; `None` for nothing.
pub fn parse_route(path: &str) -> Option<Route> {
    let mut parts = path.strip_prefix('/')?.split('/');
    let route = match (parts.next()?, parts.next(), parts.next()) {
        ("healthz", None, None) => Route::Health,
        ("bases", Some(file), None) => {
            let (base, kind) = parse_file_name(file)?;
            Route::Base(base, kind)
        }
        ("images", Some(host), Some(file)) => {
            let (base, kind) = parse_file_name(file)?;
            Route::Image(host.parse().ok()?, base, kind)
        }
        _ => return None,
    };
    parts.next().is_none().then_some(route)
}

fn parse_file_name(file: &str) -> Option<(BaseName, BaseKind)> {
    let kind = BaseKind::of_file_name(file)?;
    Some((file.strip_suffix(kind.extension())?.parse().ok()?, kind))
}

/// The path under which a host's image is served.
pub fn image_path(host: &HostName, base: &BaseName, kind: BaseKind) -> String {
    format!("/images/{host}/{base}{}", kind.extension())
}

/// The query that opens an image with secrets until a time (seconds since 1970).
pub fn signed_query(key: &UrlKey, path: &str, expires: u64) -> String {
    format!("expires={expires}&signature={}", key.sign(path, expires))
}

/// Whether the query's parameters open this path now; if not, why.
pub fn check_signature(
    key: &UrlKey,
    path: &str,
    expires: Option<&str>,
    signature: Option<&str>,
    now: u64,
) -> Result<(), &'static str> {
    let (Some(expires), Some(signature)) = (expires, signature) else {
        return Err("this address needs a signature: use the one that `kiln image compose` prints");
    };
    let Some(time) = parse_time(expires) else { return Err("`expires` is not a time in seconds since 1970") };
    if !key.verify(path, time, signature) {
        return Err("the signature does not belong to this address");
    }
    if time <= now {
        return Err("this address has expired: `kiln image compose` prints a new one");
    }
    Ok(())
}

/// The one way to write a number, so that one signature has one address.
fn parse_time(text: &str) -> Option<u64> {
    text.parse().ok().filter(|time: &u64| time.to_string() == text)
}

/// An image as HTTP sees it.
pub fn representation(image: &StoredImage) -> Representation {
    Representation {
        size: image.size,
        etag: image.etag.clone(),
        sha256: image.sha256,
        content_type: image.kind.content_type(),
        confidential: image.confidential,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_mean_images_or_nothing() {
        let image =
            |host: &str, base: &str, kind| Some(Route::Image(host.parse().unwrap(), base.parse().unwrap(), kind));
        let base = |base: &str, kind| Some(Route::Base(base.parse().unwrap(), kind));
        let table = [
            ("/healthz", Some(Route::Health)),
            ("/images/n1/rhcos-4.20.qcow2.gz", image("n1", "rhcos-4.20", BaseKind::Qcow2Gz)),
            ("/images/n1.example.com/live.iso", image("n1.example.com", "live", BaseKind::LiveIso)),
            ("/images/n1/metal.raw.gz", image("n1", "metal", BaseKind::RawGz)),
            ("/images/n1/metal.raw", image("n1", "metal", BaseKind::Raw)),
            ("/images/n1/a.qcow2", image("n1", "a", BaseKind::Qcow2)),
            ("/images/n1/initrd.img", image("n1", "initrd", BaseKind::Initrd)),
            ("/bases/a.qcow2.qcow2.gz", base("a.qcow2", BaseKind::Qcow2Gz)),
            ("/bases/.qcow2.gz", None),
            ("/bases/a.txt", None),
            ("/bases/", None),
            ("/bases", None),
            ("/", None),
            ("", None),
            ("images/n1/a.iso", None),
            ("/images/../a.iso", None),
            ("/images/n1/../a.iso", None),
            ("/images/n1/%2e%2e.iso", None),
            ("/images/n1/a.iso/", None),
            ("/images//n1/a.iso", None),
            ("/images/n1/a.iso/b", None),
            ("/healthz/", None),
        ];
        for (path, expected) in table {
            assert_eq!(parse_route(path), expected, "{path}");
        }
    }

    #[test]
    fn an_address_with_a_secret_opens_until_its_time_and_nowhere_else() {
        let key = UrlKey::new([1; 32]);
        let path = "/images/n1/a.iso";
        let signature = key.sign(path, 100);
        let check = |path, expires, signature, now| check_signature(&key, path, expires, signature, now);
        assert_eq!(signed_query(&key, path, 100), format!("expires=100&signature={signature}"));
        assert_eq!(check(path, Some("100"), Some(&signature), 99), Ok(()));
        let needs = Err("this address needs a signature: use the one that `kiln image compose` prints");
        let other = Err("the signature does not belong to this address");
        assert_eq!(check(path, None, Some(&signature), 99), needs);
        assert_eq!(check(path, Some("100"), None, 99), needs);
        assert_eq!(
            check(path, Some("100"), Some(&signature), 100),
            Err("this address has expired: `kiln image compose` prints a new one")
        );
        assert_eq!(check("/images/n2/a.iso", Some("100"), Some(&signature), 99), other);
        assert_eq!(check(path, Some("101"), Some(&signature), 99), other);
        assert_eq!(check(path, Some("100"), Some(&signature[1..]), 99), other);
        assert_eq!(check(path, Some("100"), Some(""), 99), other);
        for odd in ["0100", "+100", "", "1e2", "99999999999999999999999"] {
            assert_eq!(
                check(path, Some(odd), Some(&signature), 99),
                Err("`expires` is not a time in seconds since 1970"),
                "{odd}"
            );
        }
    }
}
