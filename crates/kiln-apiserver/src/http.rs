//! The HTTP face of the server: one entry for all paths, thin over [`Server`].
//!
//! Identity comes from the transport (a client certificate, or whoever embeds the router) as an [`Identity`] in the
//! request's extensions, or from a bearer token. Without one only the health paths answer. Everybody else is paced,
//! authorized, counted and, when they write or are denied, told in the audit log: see [`crate::guard`].

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{ACCEPT, AUTHORIZATION};
use axum::http::{HeaderMap, HeaderValue, Method};
use axum::response::Response;
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::guard::{Peer, Record};
use crate::health::{self, Probe};
use crate::identity::Identity;
use crate::openapi_v2::protobuf;
use crate::policy::{Attributes, Condition, Target, Verdict};
use crate::request::{Form, ObjectPath, Query, Route, parse_accept, parse_path};
use crate::selector::FieldSelector;
use crate::server::Server;
use crate::{discovery, openapi, openapi_v2, reviews};
use answer::Answer;

mod answer;
mod body;
mod list_body;
mod objects;
mod restore;
mod tokens;

/// The version of the API that is spoken, for clients that warn about differences.
pub const KUBERNETES_VERSION: (&str, &str, &str) = ("1", "32", "v1.32.0+kiln");

/// Everything under `/api`, `/apis`, `/openapi`, `/version` and the health paths.
pub fn router(server: Arc<Server>) -> Router {
    Router::new().fallback(handle).with_state(server)
}

async fn handle(State(server): State<Arc<Server>>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let query = Query::parse(request.uri().query().unwrap_or_default());
    let route = parse_path(&path);
    if matches!(route, Some(Route::Health)) {
        let probe = if path.starts_with("/livez") { Probe::Live } else { Probe::Ready };
        let (code, text) = health::render(&path, &server.check(probe, health::asked(&path)), &query);
        return Answer::text(code, text).into_response();
    }
    let peer = request.extensions().get::<Peer>().copied();
    let mut record = Record::begin(&server.guard, peer, &path, &query);
    let id = record.id.clone();
    let result = answer(&server, request, route, &query, &mut record).await;
    let mut answer = result.unwrap_or_else(|error| Answer::refusal(&error));
    record.name = answer.take_name();
    record.finish(answer.code());
    let mut response = answer.into_response();
    if let Ok(id) = HeaderValue::from_str(&id) {
        response.headers_mut().insert("audit-id", id);
    }
    response
}

async fn answer(
    server: &Arc<Server>,
    request: Request,
    route: Option<Route>,
    query: &Query,
    record: &mut Record<'_>,
) -> Result<Answer, ApiError> {
    record.verb = method_verb(request.method());
    if let Some(Route::Objects(path)) = &route {
        record.verb = verb(request.method(), path, query).unwrap_or(record.verb);
        record.path = Some(path.clone());
    }
    let identity = authenticate(server, &request)?;
    record.identity = Some(identity.clone());
    server.guard.pace(&identity)?;
    let form = parse_accept(header(request.headers(), &ACCEPT));
    let route = route.ok_or_else(ApiError::no_such_path)?;
    if let Route::Objects(path) = route {
        return answer_objects(server, identity, path, query, form?, request, record).await;
    }
    let attributes = Attributes { verb: record.verb, target: Target::Path(request.uri().path()) };
    if server.guard.policy.authorize(&identity, &attributes) != Verdict::Allowed {
        let (user, verb, path) = (&identity.user, record.verb, request.uri().path());
        return Err(ApiError::forbidden(format!("forbidden: User \"{user}\" cannot {verb} path \"{path}\"")));
    }
    if let Route::Tokens(id) = &route {
        record.writes = request.method() != Method::GET;
        return tokens::answer(server, id.as_deref(), request).await;
    }
    if route == Route::Restore {
        record.writes = true;
        return restore::answer(server, request.method(), query).await;
    }
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return Err(ApiError::method_not_allowed());
    }
    if route == Route::OpenApiV2 {
        return answer_openapi_v2(server, header(request.headers(), &ACCEPT));
    }
    answer_path(server, route, form?)
}

/// As protobuf for whoever asks for that, and as JSON for everybody else.
fn answer_openapi_v2(server: &Server, accept: &str) -> Result<Answer, ApiError> {
    let document = openapi_v2::document(&server.registry());
    let mut choices = accept.split(',').map(|choice| choice.split(';').next().unwrap_or_default().trim());
    if choices.any(|media| [protobuf::MEDIA_TYPE, protobuf::OLD_MEDIA_TYPE].contains(&media)) {
        // Never the old name: the clients that ask for it cannot read it in an answer.
        return Ok(Answer::bytes_as(protobuf::encode(&document).into(), protobuf::MEDIA_TYPE));
    }
    parse_accept(accept).map(|_| Answer::json(200, &document))
}

fn answer_path(server: &Server, route: Route, form: Form) -> Result<Answer, ApiError> {
    let registry = server.registry();
    let aggregated = |core: bool, version: &str| {
        let kind = format!("application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList");
        Ok(Answer::json_as(&discovery::aggregated(&registry, core, version), &kind))
    };
    let value = match (route, form) {
        (Route::CoreVersions, Form::Discovery(version)) => return aggregated(true, version),
        (Route::Groups, Form::Discovery(version)) => return aggregated(false, version),
        (Route::CoreVersions, _) => discovery::core_versions(),
        (Route::Groups, _) => discovery::group_list(&registry),
        (Route::Group(group), _) => discovery::group(&registry, &group).ok_or_else(ApiError::no_such_path)?,
        (Route::Resources(group, version), _) => {
            discovery::resource_list(&registry, &group, &version).ok_or_else(ApiError::no_such_path)?
        }
        (Route::OpenApiIndex, _) => openapi::index(&registry),
        (Route::OpenApi(group, version), _) => {
            openapi::document(&registry, &group, &version).ok_or_else(ApiError::no_such_path)?
        }
        (Route::Version, _) => version(),
        (Route::Metrics, _) => return Ok(Answer::text(200, server.render_metrics())),
        (Route::Index, _) => json!({"paths": ["/api", "/apis", "/healthz", "/livez", "/metrics", "/openapi/v2",
            "/openapi/v3", "/readyz", "/restore", "/tokens", "/version"]}),
        (Route::Health | Route::OpenApiV2 | Route::Tokens(_) | Route::Restore | Route::Objects(_), _) => {
            return Err(ApiError::no_such_path());
        }
    };
    Ok(Answer::json(200, &value))
}

async fn answer_objects(
    server: &Arc<Server>,
    identity: Identity,
    path: ObjectPath,
    query: &Query,
    form: Form,
    request: Request,
    record: &mut Record<'_>,
) -> Result<Answer, ApiError> {
    let review = discovery::REVIEWS.iter().find(|(group, _, plural, _)| *group == path.group && *plural == path.plural);
    let registry = server.registry();
    let resource = registry.find(&path.group, &path.version, &path.plural);
    record.served = review.is_some() || resource.is_some();
    let verb = verb(request.method(), &path, query)?;
    record.writes = review.is_none() && !["get", "list", "watch"].contains(&verb);
    let conditions = authorize(server, &identity, verb, &path, query)?;
    if let Some((_, kind, ..)) = review.filter(|_| path.version == "v1") {
        if verb != "create" {
            return Err(ApiError::method_not_allowed());
        }
        let body = body::read(server, request).await?;
        let policy = &server.guard.policy;
        return Ok(Answer::json(201, &reviews::answer(policy, kind, body::object(&body)?, &identity)));
    }
    let resource = resource.ok_or_else(ApiError::no_such_path)?;
    if path.namespace.is_some() && !resource.namespaced {
        return Err(ApiError::no_such_path());
    }
    let call = objects::Call { server, identity, conditions, resource, path: &path, query, form };
    let answer = call.answer(verb, request).await?;
    Ok(answer.warned(resource.deprecation.as_deref()))
}

/// The API verb of a request.
fn verb(method: &Method, path: &ObjectPath, query: &Query) -> Result<&'static str, ApiError> {
    let named = path.name.is_some();
    Ok(match (method, named) {
        (&Method::GET | &Method::HEAD, _) if query.flag("watch") => "watch",
        (&Method::GET | &Method::HEAD, true) => "get",
        (&Method::GET | &Method::HEAD, false) => "list",
        (&Method::POST, false) => "create",
        (&Method::PUT, true) => "update",
        (&Method::PATCH, true) => "patch",
        (&Method::DELETE, true) => "delete",
        (&Method::DELETE, false) => "deletecollection",
        _ => return Err(ApiError::method_not_allowed()),
    })
}

/// The verb of what is no object.
fn method_verb(method: &Method) -> &'static str {
    match *method {
        Method::GET => "get",
        Method::HEAD => "head",
        Method::POST => "post",
        Method::PUT => "put",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "other",
    }
}

fn authenticate(server: &Server, request: &Request) -> Result<Identity, ApiError> {
    let peer = request.extensions().get::<Peer>().copied();
    let token = header(request.headers(), &AUTHORIZATION).strip_prefix("Bearer ").map(str::trim);
    let known = match request.extensions().get::<Identity>() {
        Some(identity) => Some(identity.clone()),
        None => token.and_then(|token| server.guard.recognise(token)),
    };
    let identity = known.ok_or_else(|| server.guard.stranger(peer))?;
    // Ignoring these would do as oneself what was meant to be done as somebody with fewer rights.
    if request.headers().keys().any(|name| name.as_str().starts_with("impersonate-")) {
        return Err(ApiError::forbidden("impersonation is not served: leave out --as and --as-group"));
    }
    Ok(identity)
}

/// Refuses, or gives what an object that is sent must say.
fn authorize(
    server: &Server,
    identity: &Identity,
    verb: &str,
    path: &ObjectPath,
    query: &Query,
) -> Result<Vec<Condition>, ApiError> {
    let selected = selected_name(path, query);
    let target = Target::Objects {
        group: &path.group,
        resource: &path.plural,
        subresource: path.subresource.as_deref().unwrap_or_default(),
        namespace: path.namespace.as_deref().unwrap_or_default(),
        name: selected.as_deref().unwrap_or_default(),
    };
    match server.guard.policy.authorize(identity, &Attributes { verb, target }) {
        Verdict::Allowed => Ok(Vec::new()),
        // Only a new object is read as a whole before it is decided about.
        Verdict::AllowedIf(conditions) if verb == "create" => Ok(conditions),
        Verdict::AllowedIf(_) | Verdict::Denied => Err(denied(identity, verb, path, None)),
    }
}

/// The one object a request can reach: from the path, or because a field selector lets only one name through.
fn selected_name(path: &ObjectPath, query: &Query) -> Option<String> {
    if path.name.is_some() {
        return path.name.clone();
    }
    let selector = FieldSelector::parse(query.get("fieldSelector")?).ok()?;
    let mut names = selector.requirements().iter().filter(|wanted| wanted.equal && wanted.path == "metadata.name");
    names.next().map(|wanted| wanted.value.clone())
}

fn denied(identity: &Identity, verb: &str, path: &ObjectPath, unmet: Option<&Condition>) -> ApiError {
    let scope = match &path.namespace {
        Some(namespace) => format!("in the namespace \"{namespace}\""),
        None => "at the cluster scope".into(),
    };
    let name = path.name.as_deref().unwrap_or_default();
    let named = crate::error::Named { group: &path.group, resource: &path.plural, name };
    let subresource = path.subresource.as_ref().map(|sub| format!("/{sub}")).unwrap_or_default();
    let unless = unmet.map(|unmet| format!(" unless {} is {:?}", unmet.field, unmet.value)).unwrap_or_default();
    let message = format!(
        "{} is forbidden: User \"{}\" cannot {verb} resource \"{}{subresource}\" in API group \"{}\" {scope}{unless}",
        ApiError::not_found(named).message.trim_end_matches(" not found").trim_end_matches(" \"\""),
        identity.user,
        path.plural,
        path.group
    );
    ApiError::forbidden(message).about(named)
}

fn header<'a>(headers: &'a HeaderMap, name: &axum::http::HeaderName) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn version() -> Value {
    let (major, minor, git) = KUBERNETES_VERSION;
    json!({"major": major, "minor": minor, "gitVersion": git, "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH)})
}
