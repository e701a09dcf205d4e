//! The HTTP face of the server: one entry for all paths, thin over [`Server`].
//!
//! Identity comes from the transport (a client certificate, or whoever embeds the router) as an [`Identity`] in the
//! request's extensions, or from a bearer token. Without one only the health paths answer.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{ACCEPT, AUTHORIZATION};
use axum::http::{HeaderMap, Method};
use axum::response::Response;
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::identity::Identity;
use crate::request::{Form, ObjectPath, Query, Route, parse_accept, parse_path};
use crate::server::Server;
use crate::{discovery, openapi, reviews};
use answer::Answer;

mod answer;
mod body;
mod list_body;
mod objects;

/// The version of the API that is spoken, for clients that warn about differences.
pub const KUBERNETES_VERSION: (&str, &str, &str) = ("1", "32", "v1.32.0+kiln");

/// Everything under `/api`, `/apis`, `/openapi`, `/version` and the health paths.
pub fn router(server: Arc<Server>) -> Router {
    Router::new().fallback(handle).with_state(server)
}

async fn handle(State(server): State<Arc<Server>>, request: Request) -> Response {
    match answer(&server, request).await {
        Ok(answer) => answer.into_response(),
        Err(error) => Answer::refusal(&error).into_response(),
    }
}

async fn answer(server: &Arc<Server>, request: Request) -> Result<Answer, ApiError> {
    let route = parse_path(request.uri().path()).ok_or_else(ApiError::no_such_path);
    if matches!(route, Ok(Route::Health)) {
        return Ok(Answer::text("ok"));
    }
    let identity = authenticate(server, &request)?;
    let query = Query::parse(request.uri().query().unwrap_or_default());
    let form = parse_accept(header(request.headers(), &ACCEPT));
    if let Route::Objects(path) = route.as_ref().map_err(Clone::clone)? {
        return answer_objects(server, identity, path.clone(), query, form?, request).await;
    }
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return Err(ApiError::method_not_allowed());
    }
    let registry = server.registry();
    let aggregated = |core: bool, version: &str| {
        let kind = format!("application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList");
        Ok(Answer::json_as(&discovery::aggregated(&registry, core, version), &kind))
    };
    let value = match (route?, form?) {
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
        (Route::Index, _) => json!({"paths": ["/api", "/apis", "/healthz", "/openapi/v3", "/version"]}),
        (Route::Health | Route::Objects(_), _) => return Err(ApiError::no_such_path()),
    };
    Ok(Answer::json(200, &value))
}

async fn answer_objects(
    server: &Arc<Server>,
    identity: Identity,
    path: ObjectPath,
    query: Query,
    form: Form,
    request: Request,
) -> Result<Answer, ApiError> {
    let review = discovery::REVIEWS.iter().find(|(group, _, plural, _)| *group == path.group && *plural == path.plural);
    let verb = verb(request.method(), &path, &query)?;
    authorize(&identity, verb, &path)?;
    if let Some((_, kind, ..)) = review.filter(|_| path.version == "v1") {
        if verb != "create" {
            return Err(ApiError::method_not_allowed());
        }
        let body = body::read(server, request).await?;
        return Ok(Answer::json(201, &reviews::answer(kind, body::object(&body)?, &identity)));
    }
    let registry = server.registry();
    let resource = registry.find(&path.group, &path.version, &path.plural).ok_or_else(ApiError::no_such_path)?;
    if path.namespace.is_some() && !resource.namespaced {
        return Err(ApiError::no_such_path());
    }
    let call = objects::Call { server, identity, resource, path: &path, query: &query, form };
    call.answer(verb, request).await
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

fn authenticate(server: &Server, request: &Request) -> Result<Identity, ApiError> {
    if let Some(identity) = request.extensions().get::<Identity>() {
        return Ok(identity.clone());
    }
    let token = header(request.headers(), &AUTHORIZATION).strip_prefix("Bearer ").map(str::trim);
    token.and_then(|token| server.tokens.find(token)).cloned().ok_or_else(ApiError::unauthorized)
}

fn authorize(identity: &Identity, verb: &str, path: &ObjectPath) -> Result<(), ApiError> {
    if identity.may(verb, &path.group, &path.plural) {
        return Ok(());
    }
    let scope = match &path.namespace {
        Some(namespace) => format!("in the namespace \"{namespace}\""),
        None => "at the cluster scope".into(),
    };
    let name = path.name.as_deref().unwrap_or_default();
    let named = crate::error::Named { group: &path.group, resource: &path.plural, name };
    let message = format!(
        "{} is forbidden: User \"{}\" cannot {verb} resource \"{}\" in API group \"{}\" {scope}",
        ApiError::not_found(named).message.trim_end_matches(" not found").trim_end_matches(" \"\""),
        identity.user,
        path.plural,
        path.group
    );
    Err(ApiError::forbidden(message).about(named))
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
