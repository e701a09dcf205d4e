//! The tokens a hub has, and which of them a name means.

use anyhow::anyhow;
use kiln_core::boot_token::BootRecord;
use kiln_core::timeline::Moment;
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams};
use serde_json::Value;

use crate::cli::output::Failure;
use crate::cli::status::connection::{self, unanswered};
use crate::hub::boot_secrets::parse_record;
use crate::hub::controllers::kinds::{HOST, SECRET};
use crate::hub::pools::held::annotation;
use crate::hub::pools::{HOST_LABEL, LABEL, POOL_LABEL};
use crate::hub::timeline::parse_time;

/// A token as the hub has it.
#[derive(Debug, Clone, PartialEq)]
pub struct Token {
    /// Where it is.
    pub namespace: String,
    /// The host or pool it is for.
    pub name: String,
    /// Its Secret.
    pub secret: String,
    /// Which one.
    pub uid: String,
    /// What is known of it.
    pub detail: Detail,
}

/// What is known of a token.
#[derive(Debug, Clone, PartialEq)]
pub enum Detail {
    /// Of a host; none when it cannot be made sense of.
    Host(Option<BootRecord>),
    /// Of a pool.
    Pool {
        /// When it was made.
        generated: Option<Moment>,
        /// Its end, if it has one; one that cannot be read is none.
        expires: Option<Option<Moment>>,
        /// Whether a machine has fetched with it.
        reached: bool,
    },
}

/// A host by its object.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedHost {
    /// Where it is.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// The pool it goes to, when the hub says so.
    pub pool: Option<String>,
}

/// What a name means.
#[derive(Debug, Clone, PartialEq)]
pub enum Target {
    /// One host.
    Host(NamedHost),
    /// One pool with its tokens.
    Pool {
        /// Where it is.
        namespace: String,
        /// Its name.
        name: String,
        /// What it has.
        tokens: Vec<Token>,
    },
}

/// The Secrets of a namespace, or of all when it is empty.
pub fn secrets(client: &Client, namespace: &str) -> Api<DynamicObject> {
    let resource = SECRET.resource();
    match namespace {
        "" => Api::all_with(client.clone(), &resource),
        namespace => Api::namespaced_with(client.clone(), namespace, &resource),
    }
}

/// Every Secret for nodes of these sorts.
pub async fn fetch_secrets(client: &Client, sorts: &str) -> Result<Vec<DynamicObject>, Failure> {
    let mut page = ListParams::default().labels(&format!("{LABEL} in ({sorts})")).limit(500);
    let (api, mut all) = (secrets(client, ""), Vec::new());
    loop {
        let list = api.list(&page).await.map_err(unanswered)?;
        all.extend(list.items);
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(all),
        }
    }
}

/// Every token, hosts first.
pub async fn fetch_tokens(client: &Client) -> Result<Vec<Token>, Failure> {
    let mut tokens: Vec<Token> = fetch_secrets(client, "boot-token,pool-token").await?.iter().map(token).collect();
    tokens.sort_by(|left, right| order(left).cmp(&order(right)));
    Ok(tokens)
}

fn order(token: &Token) -> (bool, &str, &str, &str) {
    (matches!(token.detail, Detail::Pool { .. }), &token.namespace, &token.name, &token.secret)
}

fn token(object: &DynamicObject) -> Token {
    let metadata = &object.metadata;
    let label = |key: &str| metadata.labels.as_ref().and_then(|labels| labels.get(key)).cloned().unwrap_or_default();
    let annotated = |key: &str| metadata.annotations.as_ref().and_then(|annotations| annotations.get(key));
    let is_pool = label(LABEL) == "pool-token";
    let whole = annotated(annotation::NODE_POOL).and_then(|text| text.split_once('/')).map(|(_, name)| name.to_owned());
    // Long names are cut in labels; whose the token is, its owner says.
    let owner = metadata.owner_references.iter().flatten().map(|owner| owner.name.clone()).next();
    Token {
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: match is_pool {
            true => whole.unwrap_or_else(|| label(POOL_LABEL)),
            false => owner.unwrap_or_else(|| label(HOST_LABEL)),
        },
        secret: metadata.name.clone().unwrap_or_default(),
        uid: metadata.uid.clone().unwrap_or_default(),
        detail: match is_pool {
            true => Detail::Pool {
                generated: annotated(annotation::GENERATED).and_then(|text| parse_time(text)),
                expires: annotated(annotation::EXPIRES).map(|text| parse_time(text)),
                reached: annotated(annotation::REACHED).is_some_and(|text| text == "True"),
            },
            false => Detail::Host(parse_record(&object.data["data"])),
        },
    }
}

/// The host that is called so.
pub async fn choose_host(client: &Client, name: &str) -> Result<NamedHost, Failure> {
    let hosts = connection::fetch_hosts(client).await?;
    let host = connection::choose(&hosts, name)?;
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &host.namespace, &HOST.resource());
    let object = api.get(&host.name).await.map_err(unanswered)?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    Ok(NamedHost {
        namespace: host.namespace.clone(),
        name: host.name.clone(),
        uid: object.metadata.uid.clone().unwrap_or_default(),
        pool: text(&object.data["spec"]["pool"]).or_else(|| text(&object.data["status"]["pool"])),
    })
}

/// What `NAME`, `NAMESPACE/NAME`, `host:NAME` or `pool:NAME` means.
pub async fn choose(client: &Client, name: &str) -> Result<Target, Failure> {
    if let Some(host) = name.strip_prefix("host:") {
        return Ok(Target::Host(choose_host(client, host).await?));
    }
    let (only_pool, wanted) = name.strip_prefix("pool:").map_or((false, name), |pool| (true, pool));
    let tokens: Vec<Token> =
        fetch_tokens(client).await?.into_iter().filter(|token| matches!(token.detail, Detail::Pool { .. })).collect();
    let pool = choose_pool(tokens, wanted)?;
    let host = if only_pool {
        None
    } else {
        choose_host(client, wanted).await.map(Some).or_else(|error| match pool {
            Some(_) => Ok(None),
            None => Err(error),
        })?
    };
    match (pool, host) {
        (Some(_), Some(_)) => Err(Failure::refused(anyhow!(
            "there is a host and a pool `{wanted}`; write host:{wanted} or pool:{wanted}"
        ))),
        (Some(pool), None) => Ok(pool),
        (None, Some(host)) => Ok(Target::Host(host)),
        (None, None) => Err(Failure::refused(anyhow!("no pool `{wanted}` has a token"))),
    }
}

/// The tokens of the pool that is called so, if any.
fn choose_pool(tokens: Vec<Token>, wanted: &str) -> Result<Option<Target>, Failure> {
    let called = |token: &Token| {
        token.name == wanted || wanted.split_once('/') == Some((token.namespace.as_str(), token.name.as_str()))
    };
    let tokens: Vec<Token> = tokens.into_iter().filter(called).collect();
    let Some(first) = tokens.first() else { return Ok(None) };
    let (namespace, name) = (first.namespace.clone(), first.name.clone());
    if tokens.iter().any(|token| token.namespace != namespace) {
        let mut namespaces: Vec<&str> = tokens.iter().map(|token| token.namespace.as_str()).collect();
        namespaces.dedup();
        let message =
            format!("there are pools `{wanted}` in the namespaces {}; write NAMESPACE/{wanted}", namespaces.join(", "));
        return Err(Failure::refused(anyhow!(message)));
    }
    Ok(Some(Target::Pool { namespace, name, tokens }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_chosen_by_name_when_that_is_enough() {
        let token = |namespace: &str, name: &str| Token {
            namespace: namespace.into(),
            name: name.into(),
            secret: "s".into(),
            uid: "u".into(),
            detail: Detail::Pool { generated: None, expires: None, reached: false },
        };
        let tokens = vec![token("a", "edge"), token("a", "edge"), token("b", "edge"), token("b", "np")];
        let chosen = |name: &str| match choose_pool(tokens.clone(), name) {
            Ok(Some(Target::Pool { namespace, name, tokens })) => format!("{namespace}/{name} {}", tokens.len()),
            Ok(other) => format!("{other:?}"),
            Err(Failure::Refused(error) | Failure::Failed(error)) => error.to_string(),
        };
        assert_eq!(chosen("np"), "b/np 1");
        assert_eq!(chosen("a/edge"), "a/edge 2");
        assert_eq!(chosen("edge"), "there are pools `edge` in the namespaces a, b; write NAMESPACE/edge");
        assert_eq!(chosen("none"), "None");
    }
}
