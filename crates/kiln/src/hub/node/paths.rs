//! Paths, headers and status codes of the node endpoints, to the letter of what machines know from elsewhere.
//!
//! `/ignition` is HyperShift's ignition server: any method; 401 `Unauthorized`, 511 `Token not found`, 500 `Invalid ignition payload`,
//! 200 with JSON. Ignition tries again after 5xx and gives up for ever after 4xx, which is why a token that is not good (yet) is
//! a 511. What HyperShift does not say stands in `X-Kiln-Reason` and `Retry-After`. The headers `NodePool` and
//! `TargetConfigVersionHash` change nothing there or here: the token alone selects the config.
//!
//! `/config/POOL` is the machine-config-server: GET and HEAD, negotiation by `Accept`, empty bodies with errors; but it wants a token
//! of that pool or of one of its hosts. 401: none; 403: the token of another pool; 511: as above.
//!
//! `/beacon` is [`beacon`](super::beacon)'s, `/agent/v1/network`, `/agent/v1/machine` and what is below them [`agent`](super::agent)'s.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{
    ACCEPT, ACCEPT_ENCODING, ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE,
    HeaderName, RETRY_AFTER, VARY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use kiln_apiserver::guard::Peer;
use kiln_core::beacon::BEACON_PATH;
use kiln_core::ignition::negotiation::{accepts_gzip, for_ignition, for_pool};
use tower::ServiceExt;

use super::NodeEndpoint;
use super::agent;
use super::beacon;
use super::body::Parts;
use super::fetch::{Asked, Denied, Served, Wanted, fetch};
use super::figures::Outcome;

/// Why a machine did not get its config.
const REASON: HeaderName = HeaderName::from_static("x-kiln-reason");
/// How many fields the asked spec version does not have.
const LOST: HeaderName = HeaderName::from_static("x-kiln-lost");

/// All of it, and health: for a listener of its own. Everything else is 404.
pub fn node_router(endpoint: Arc<NodeEndpoint>) -> Router {
    Router::new().fallback(answer).with_state(endpoint)
}

/// The node endpoints, and everything else (health, too) from `otherwise`.
pub fn beside(endpoint: Arc<NodeEndpoint>, otherwise: Router) -> Router {
    Router::new().fallback(answer_beside).with_state((endpoint, otherwise))
}

/// What a path stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Route<'a> {
    Ignition,
    Config(&'a str),
    Beacon,
    Agent(agent::Path),
    Live,
    Ready,
}

fn parse_route(path: &str) -> Option<Route<'_>> {
    if let Some(rest) = path.strip_prefix("/ignition") {
        let escaped = rest.to_ascii_lowercase();
        let plain = !rest.contains(['/', ' ']) && !escaped.contains("%2f") && !escaped.contains("%20");
        return plain.then_some(Route::Ignition);
    }
    if let Some(rest) = path.strip_prefix("/config/") {
        let pool = rest.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        return (!pool.is_empty()).then_some(Route::Config(pool));
    }
    match path {
        BEACON_PATH => Some(Route::Beacon),
        "/healthz" | "/livez" => Some(Route::Live),
        "/readyz" => Some(Route::Ready),
        _ => agent::Path::parse(path).map(Route::Agent),
    }
}

async fn answer_beside(
    State((endpoint, otherwise)): State<(Arc<NodeEndpoint>, Router)>,
    request: Request,
) -> Response<Body> {
    match parse_route(request.uri().path()) {
        Some(Route::Ignition | Route::Config(_) | Route::Beacon | Route::Agent(_)) => {
            answer(State(endpoint), request).await
        }
        // A router never fails.
        _ => otherwise.oneshot(request).await.unwrap_or_else(|never| match never {}),
    }
}

async fn answer(State(endpoint): State<Arc<NodeEndpoint>>, request: Request) -> Response<Body> {
    // The body of a fetch is not read: whatever a client sends there is left to the connection, which ends with the answer.
    let (head, body) = request.into_parts();
    let source =
        head.extensions.get::<Peer>().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.0.ip().to_canonical());
    match parse_route(head.uri.path()) {
        Some(Route::Ignition) => answer_ignition(&endpoint, &head.method, &head.headers, source).await,
        Some(Route::Config(pool)) => answer_config(&endpoint, &head.method, &head.headers, source, pool).await,
        Some(Route::Beacon) => beacon::answer(&endpoint, &head, body, source).await,
        Some(Route::Agent(path)) => agent::answer(&endpoint, path, &head, body, source).await,
        Some(Route::Live) => text(StatusCode::OK, "ok"),
        Some(Route::Ready) => match endpoint.check() {
            Ok(()) => text(StatusCode::OK, "ok"),
            Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "[-]ignition failed: reason withheld\n"),
        },
        None => {
            endpoint.figures.count(Outcome::NotFound);
            text(StatusCode::NOT_FOUND, "404 page not found\n")
        }
    }
}

async fn answer_ignition(
    endpoint: &Arc<NodeEndpoint>,
    method: &Method,
    headers: &HeaderMap,
    source: IpAddr,
) -> Response<Body> {
    let asked = Asked {
        authorization: one(headers, &AUTHORIZATION),
        source,
        version: Wanted::AtMost(for_ignition(all(headers, &ACCEPT).as_deref())),
        gzip: accepts_gzip(all(headers, &ACCEPT_ENCODING).as_deref()),
        body: method != Method::HEAD,
        pool: None,
    };
    match fetch(endpoint, &asked).await {
        Ok(served) => sent(endpoint, served, "application/json; charset=utf-8", asked.body),
        Err(denied) => {
            let (status, said) = match denied.outcome {
                Outcome::Unauthorized => (StatusCode::UNAUTHORIZED, "Unauthorized\n"),
                Outcome::Invalid => (StatusCode::INTERNAL_SERVER_ERROR, "Invalid ignition payload\n"),
                Outcome::Rate => (StatusCode::SERVICE_UNAVAILABLE, "Too many requests\n"),
                Outcome::Store => (StatusCode::SERVICE_UNAVAILABLE, "Try again\n"),
                _ => (StatusCode::NETWORK_AUTHENTICATION_REQUIRED, "Token not found\n"),
            };
            with_reason(text(status, said), denied)
        }
    }
}

async fn answer_config(
    endpoint: &Arc<NodeEndpoint>,
    method: &Method,
    headers: &HeaderMap,
    source: IpAddr,
    pool: &str,
) -> Response<Body> {
    let plain = |outcome: Outcome, status: StatusCode| {
        endpoint.figures.count(outcome);
        empty(status)
    };
    if method != Method::GET && method != Method::HEAD {
        let mut response = plain(Outcome::Method, StatusCode::METHOD_NOT_ALLOWED);
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    let Some(version) = for_pool(all(headers, &ACCEPT).as_deref()) else {
        return plain(Outcome::NotAcceptable, StatusCode::BAD_REQUEST);
    };
    let asked = Asked {
        authorization: one(headers, &AUTHORIZATION),
        source,
        version: Wanted::Exactly(version),
        gzip: accepts_gzip(all(headers, &ACCEPT_ENCODING).as_deref()),
        body: method == Method::GET,
        pool: Some(pool),
    };
    match fetch(endpoint, &asked).await {
        Ok(served) => sent(endpoint, served, "application/json", asked.body),
        Err(denied) => {
            let status = match denied.outcome {
                Outcome::Unauthorized => StatusCode::UNAUTHORIZED,
                Outcome::OtherPool => StatusCode::FORBIDDEN,
                Outcome::Invalid => StatusCode::INTERNAL_SERVER_ERROR,
                Outcome::Rate | Outcome::Store => StatusCode::SERVICE_UNAVAILABLE,
                _ => StatusCode::NETWORK_AUTHENTICATION_REQUIRED,
            };
            with_reason(empty(status), denied)
        }
    }
}

fn sent(endpoint: &NodeEndpoint, served: Served, media: &'static str, with_body: bool) -> Response<Body> {
    let Served { parts, gzip, lost } = served;
    let parts = Parts::new(parts);
    let length = parts.length();
    if with_body {
        endpoint.figures.sent(length);
    }
    let mut response = Response::new(if with_body { parts.into() } else { Body::empty() });
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    // It has secrets in it.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
    if gzip {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    if lost > 0 {
        headers.insert(LOST, HeaderValue::from(lost));
    }
    response
}

fn with_reason(mut response: Response<Body>, denied: Denied) -> Response<Body> {
    retry(&mut response, denied.outcome.name(), denied.retry_after);
    response
}

/// Says why, and when to come again.
pub(super) fn retry(response: &mut Response<Body>, reason: &'static str, seconds: Option<u64>) {
    let headers = response.headers_mut();
    headers.insert(REASON, HeaderValue::from_static(reason));
    if let Some(seconds) = seconds {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
}

/// As Go's `http.Error` says it.
pub(super) fn text(status: StatusCode, said: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(said.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
    response
}

pub(super) fn one<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Several lines of one header are one list.
fn all(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let lines: Vec<&str> = headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect();
    (!lines.is_empty()).then(|| lines.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_machines_know() {
        for (path, expected) in [
            ("/ignition", Some(Route::Ignition)),
            ("/ignition-x", Some(Route::Ignition)),
            ("/ignition.ign", Some(Route::Ignition)),
            ("/ignition/", None),
            ("/ignition/a", None),
            ("/ignition%2Fa", None),
            ("/ignition%20", None),
            ("/Ignition", None),
            ("/config/worker", Some(Route::Config("worker"))),
            ("/config/a/worker", Some(Route::Config("worker"))),
            ("/config/worker/", Some(Route::Config("worker"))),
            ("/config/", None),
            ("/config", None),
            ("/beacon", Some(Route::Beacon)),
            ("/beacon/", None),
            ("/agent/v1/network", Some(Route::Agent(agent::Path::Network))),
            ("/agent/v1/network/report", Some(Route::Agent(agent::Path::Report))),
            ("/agent/v1/network/state", Some(Route::Agent(agent::Path::State))),
            ("/agent/v1/network/seen", Some(Route::Agent(agent::Path::Seen))),
            ("/agent/v1/network/", None),
            ("/agent/v1", None),
            ("/healthz", Some(Route::Live)),
            ("/readyz", Some(Route::Ready)),
            ("/", None),
            ("/api", None),
        ] {
            assert_eq!(parse_route(path), expected, "{path}");
        }
    }
}
