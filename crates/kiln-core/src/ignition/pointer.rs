//! Pointer configs: the few lines of Ignition that make a machine fetch its real config.
//!
//! The shape is that of HyperShift's user-data and of the installer's stub: trusted authorities as a data URL, one
//! reference with its request headers. The text is a config like any other: parse and validate it with
//! [`super::config`] before it is used.
//!
//! Not here: reading the header values and the PEM file, see `kiln::cli::ignition::pointer`.
//! What surprises: Ignition drops all headers on a redirect, and prints the whole config, headers included, to the
//! console when a stage fails: a token in a pointer must be short-lived.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use super::SpecVersion;
use crate::diagnostic::{Code, Diagnostic};

/// What the fetched config does to the one that points at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reference {
    /// It is laid over it.
    Merge,
    /// It takes its place.
    Replace,
}

/// A request header.
#[derive(Clone, PartialEq, Eq)]
pub struct Header {
    /// `Authorization`.
    pub name: String,
    /// Often a secret.
    pub value: String,
}

impl std::fmt::Debug for Header {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: …", self.name)
    }
}

/// `ignition.proxy`, which came with spec 3.1.0.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PointerProxy {
    /// For `http://`.
    pub http: Option<String>,
    /// For `https://`.
    pub https: Option<String>,
    /// What is reached without.
    pub except: Vec<String>,
}

impl PointerProxy {
    /// Reads `ignition.proxy` of a pointer; none when it names no proxy.
    pub fn parse(proxy: &Value) -> Option<PointerProxy> {
        let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let except = proxy["noProxy"].as_array().into_iter().flatten().filter_map(text).collect();
        let proxy = PointerProxy { http: text(&proxy["httpProxy"]), https: text(&proxy["httpsProxy"]), except };
        (proxy.http.is_some() || proxy.https.is_some()).then_some(proxy)
    }

    fn render(&self) -> Value {
        let mut proxy = json!({});
        for (key, value) in [("httpProxy", &self.http), ("httpsProxy", &self.https)] {
            if let Some(value) = value {
                proxy[key] = json!(value);
            }
        }
        if !self.except.is_empty() {
            proxy["noProxy"] = json!(self.except);
        }
        proxy
    }
}

/// What the pointer has to say.
#[derive(Debug, Clone)]
pub struct PointerRequest {
    /// Where the real config is.
    pub source: String,
    /// Merge or replace.
    pub reference: Reference,
    /// PEM bundle of the authorities to trust besides the system's.
    pub authorities: Option<Vec<u8>>,
    /// Request headers, in order.
    pub headers: Vec<Header>,
    /// `sha512-…` or `sha256-…` of the real config.
    pub verification: Option<String>,
    /// The proxy the machine fetches through.
    pub proxy: Option<PointerProxy>,
    /// The spec version to write: it must be one the machine's Ignition knows.
    pub version: SpecVersion,
}

/// The JSON text of the pointer, or why there can be none.
pub fn render_pointer(request: &PointerRequest) -> Result<String, Box<Diagnostic>> {
    if !request.headers.is_empty() && request.version < SpecVersion::V3_1 {
        let refusal = Diagnostic::new(Code(471), None, format!("spec {} has no request headers", request.version))
            .cause(
                "`httpHeaders` came with spec 3.1.0; an older Ignition ignores them and the server refuses the request",
            )
            .help("write the pointer with `--spec 3.1.0` or newer");
        return Err(Box::new(refusal));
    }
    let mut resource = json!({ "source": request.source });
    if !request.headers.is_empty() {
        let headers = request.headers.iter().map(|header| json!({ "name": header.name, "value": header.value }));
        resource["httpHeaders"] = headers.collect();
    }
    if let Some(hash) = &request.verification {
        resource["verification"] = json!({ "hash": hash });
    }
    let mut ignition = json!({ "version": request.version.to_string() });
    if let Some(pem) = &request.authorities {
        if !String::from_utf8_lossy(pem).contains("-----BEGIN CERTIFICATE-----") {
            let refusal =
                Diagnostic::new(Code(472), None, "the authorities are not a PEM bundle: no certificate in it")
                    .cause(
                        "Ignition adds only PEM certificates to its trusted authorities and stops when there is none",
                    )
                    .help("convert a DER file with `openssl x509 -inform der -in ca.der -out ca.pem`");
            return Err(Box::new(refusal));
        }
        let source = format!("data:text/plain;base64,{}", BASE64.encode(pem));
        ignition["security"] = json!({ "tls": { "certificateAuthorities": [{ "source": source }] } });
    }
    ignition["config"] = match (request.reference, request.version) {
        (Reference::Merge, SpecVersion::V2_2) => json!({ "append": [resource] }),
        (Reference::Merge, _) => json!({ "merge": [resource] }),
        (Reference::Replace, _) => json!({ "replace": resource }),
    };
    // An older Ignition has no word for it and would refuse the whole pointer.
    if let Some(proxy) = request.proxy.as_ref().filter(|_| request.version >= SpecVersion::V3_1) {
        ignition["proxy"] = proxy.render();
    }
    Ok(format!("{:#}\n", Value::from_iter([("ignition", ignition)])))
}

/// Whether a header given in plain sight is one that must not be: argv is readable by every user of the machine and
/// ends up in shell histories.
pub fn looks_secret(header: &Header) -> bool {
    let name = header.name.to_ascii_lowercase();
    let value = header.value.trim_start().to_ascii_lowercase();
    ["authorization", "proxy-authorization", "cookie"].contains(&name.as_str())
        || ["token", "secret", "password", "api-key", "apikey"].iter().any(|word| name.contains(word))
        || ["bearer ", "basic "].iter().any(|scheme| value.starts_with(scheme))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> PointerRequest {
        PointerRequest {
            source: "https://10.0.0.1:8443/ignition".into(),
            reference: Reference::Merge,
            authorities: Some(b"-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n".to_vec()),
            headers: vec![
                Header { name: "Authorization".into(), value: "Bearer abc".into() },
                Header { name: "NodePool".into(), value: "clusters/pool".into() },
            ],
            verification: None,
            proxy: None,
            version: SpecVersion::V3_2,
        }
    }

    #[test]
    fn a_pointer_has_the_shape_of_hosted_user_data() {
        let text = render_pointer(&request()).unwrap();
        let value: Value = serde_json::from_str(&text).unwrap();
        let pem =
            "data:text/plain;base64,LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkFBPT0KLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=";
        assert_eq!(
            value,
            json!({ "ignition": {
                "version": "3.2.0",
                "security": { "tls": { "certificateAuthorities": [{ "source": pem }] } },
                "config": { "merge": [{
                    "source": "https://10.0.0.1:8443/ignition",
                    "httpHeaders": [
                        { "name": "Authorization", "value": "Bearer abc" },
                        { "name": "NodePool", "value": "clusters/pool" },
                    ],
                }] },
            } })
        );
    }

    #[test]
    fn a_replacing_pointer_carries_its_hash() {
        let request = PointerRequest {
            reference: Reference::Replace,
            authorities: None,
            headers: Vec::new(),
            verification: Some("sha512-00".into()),
            ..request()
        };
        let value: Value = serde_json::from_str(&render_pointer(&request).unwrap()).unwrap();
        assert_eq!(
            value,
            json!({ "ignition": { "version": "3.2.0", "config": { "replace": {
                "source": "https://10.0.0.1:8443/ignition", "verification": { "hash": "sha512-00" },
            } } } })
        );
    }

    #[test]
    fn what_cannot_be_pointed_is_refused_with_the_reason() {
        let old = PointerRequest { version: SpecVersion::V3_0, ..request() };
        let refused = |request: &PointerRequest| {
            let refusal = render_pointer(request).unwrap_err();
            format!("{} {}", refusal.code, refusal.message)
        };
        assert_eq!(refused(&old), "KLN0471 spec 3.0.0 has no request headers");
        let der = PointerRequest { authorities: Some(vec![0x30, 0x82]), ..request() };
        assert_eq!(refused(&der), "KLN0472 the authorities are not a PEM bundle: no certificate in it");
    }

    #[test]
    fn headers_that_carry_secrets_are_recognised() {
        let table = [
            ("Authorization", "x", true),
            ("X-Auth-Token", "x", true),
            ("X-Anything", "Bearer abc", true),
            ("NodePool", "clusters/pool", false),
            ("TargetConfigVersionHash", "bb196408", false),
        ];
        for (name, value, secret) in table {
            let header = Header { name: name.into(), value: value.into() };
            assert_eq!(looks_secret(&header), secret, "{name}");
        }
    }

    #[test]
    fn a_pointer_names_the_proxy_and_what_is_reached_without() {
        let proxy = PointerProxy {
            http: Some("http://proxy.lab:3128".into()),
            https: None,
            except: vec!["10.0.0.0/8".into(), ".lab".into()],
        };
        let with = |version| {
            let request = PointerRequest { proxy: Some(proxy.clone()), headers: Vec::new(), version, ..request() };
            let pointer: Value = serde_json::from_str(&render_pointer(&request).unwrap()).unwrap();
            pointer["ignition"]["proxy"].clone()
        };
        let written = with(SpecVersion::V3_2);
        assert_eq!(written, json!({"httpProxy": "http://proxy.lab:3128", "noProxy": ["10.0.0.0/8", ".lab"]}));
        assert_eq!(PointerProxy::parse(&written), Some(proxy.clone()));
        assert_eq!(with(SpecVersion::V3_0), Value::Null);
        assert_eq!(PointerProxy::parse(&json!({"noProxy": ["a"]})), None);
    }
}
