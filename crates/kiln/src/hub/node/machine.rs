//! `/agent/v1/machine`: what the agent on a running node asks about its files and units, and what it tells.
//!
//! | request | answer |
//! |---|---|
//! | `GET /agent/v1/machine?wait=SECONDS` with `If-None-Match` | 200 a [`MachineAssignment`](kiln_core::machine::MachineAssignment) and its `ETag`; 304 the same as before; 404 none: nobody keeps this node's files. Waits for a change |
//! | `GET /agent/v1/machine/config?revision=R` | 200 the config of that revision; 409 something else is assigned by now |
//! | `POST /agent/v1/machine/report` | 204 when the [`MachineReport`](kiln_core::machine::MachineReport) is written on the Host |
//!
//! The config is what `/ignition` gives a new machine in its place, in the version it was written in; only without what a
//! machine gets once, to say who it is: no boot token is made or used for it, and no credentials are added. Everything else is
//! as with [`agent`](super::agent).

use std::net::IpAddr;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, VARY};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, Response};
use kiln_core::agent_token::{LONGEST_REPORT, parse_machine_report};
use kiln_core::assignment::Permit;
use kiln_core::ignition::negotiation::accepts_gzip;
use kiln_core::payload::digest::sha256_hex;
use serde_json::Value;

use super::NodeEndpoint;
use super::agent::outcome::Outcome;
use super::agent::table::Desk;
use super::agent::{Answer, Speaker, Subject, answered, poll, read, refused, unwritten, wrong};
use super::fetch::{Asked, Wanted, compose};
use super::paths::one;
use super::prepared::MOST_BYTES;
use crate::hub::machines::records::MachineSecret;
use crate::hub::machines::report::plan_report;
use crate::hub::timeline::{now, update};

/// What a path stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Path {
    /// The assignment.
    Assignment,
    /// The config.
    Config,
    /// How far the node is.
    Report,
}

impl Path {
    pub(super) fn parse(rest: &str) -> Option<Path> {
        Some(match rest {
            "" => Path::Assignment,
            "/config" => Path::Config,
            "/report" => Path::Report,
            _ => return None,
        })
    }

    pub(super) const fn method(self) -> Method {
        match self {
            Path::Assignment | Path::Config => Method::GET,
            Path::Report => Method::POST,
        }
    }
}

pub(super) async fn serve(
    endpoint: &Arc<NodeEndpoint>,
    path: Path,
    speaker: &Speaker,
    head: &Parts,
    body: Body,
    source: IpAddr,
) -> Result<Answer, Answer> {
    match path {
        Path::Assignment => poll(endpoint, speaker, head, Subject::Machine).await,
        Path::Config => config(endpoint, speaker, head, source).await,
        Path::Report => {
            let bytes = read(endpoint, body, LONGEST_REPORT).await?;
            let report = parse_machine_report(&bytes).map_err(wrong)?;
            let at = now();
            let told = |host: &Value| plan_report(host, &report, at);
            let written = update(&endpoint.client, &speaker.namespace, &speaker.host, told).await;
            written.map_err(|error| unwritten(&error))?;
            Ok(answered(Outcome::Taken, ""))
        }
    }
}

/// What the node gets now, and what names it.
pub(super) fn offer(desk: &Desk) -> Option<(String, String)> {
    let record = desk.get().machine?;
    let permit = match &record.assignment.permit {
        Permit::Wait(why) => format!("wait {why}"),
        Permit::Go(_) => "go".to_owned(),
    };
    let etag = &sha256_hex(&format!("machine {} {permit}", record.assignment.revision))[..32];
    Some((format!("\"{etag}\""), record.text.clone()))
}

async fn config(
    endpoint: &Arc<NodeEndpoint>,
    speaker: &Speaker,
    head: &Parts,
    source: IpAddr,
) -> Result<Answer, Answer> {
    let assigned = endpoint.agents.table().desk(&speaker.id()).get().machine;
    let assigned = assigned.ok_or_else(|| refused(Outcome::NotAssigned, "nobody keeps the files of this host"))?;
    if revision(head.uri.query()) != Some(&assigned.assignment.revision) {
        return Err(refused(Outcome::Superseded, "something else is assigned by now; ask for the assignment"));
    }
    let MachineSecret { payload: wanted, overlay: laid_over, .. } = &*assigned;
    let found = {
        let table = endpoint.table();
        let overlay = table.overlay(&speaker.namespace, &speaker.host).filter(|overlay| overlay.id == *laid_over);
        overlay.and_then(|overlay| {
            let payload = table.payload(&speaker.namespace, &overlay.payload)?;
            (payload.id == *wanted).then_some((overlay, payload))
        })
    };
    // Whoever watches sees one before the other.
    let (overlay, payload) = found.ok_or_else(|| refused(Outcome::Busy, "Try again"))?;
    let invalid = || refused(Outcome::Invalid, "the config cannot be made");
    let version = payload.source.as_ref().map_err(|_| invalid())?.version;
    let asked = Asked {
        authorization: None,
        source,
        version: Wanted::Exactly(version),
        gzip: accepts_gzip(one(&head.headers, &ACCEPT_ENCODING)),
        body: true,
        pool: None,
    };
    let served = compose(endpoint, &payload, Some(&overlay), &asked).await.map_err(|_| invalid())?;
    if served.parts.iter().map(Bytes::len).sum::<usize>() > MOST_BYTES {
        return Err(refused(Outcome::Invalid, "the config is too large"));
    }
    Ok(Answer::config(served))
}

/// `revision=R` of a query.
fn revision(query: Option<&str>) -> Option<&str> {
    query.into_iter().flat_map(|query| query.split('&')).find_map(|pair| pair.strip_prefix("revision="))
}

/// A config on its way.
pub(super) fn sent(parts: Vec<Bytes>, gzip: bool) -> Response<Body> {
    let parts = super::body::Parts::new(parts);
    let length = parts.length();
    let mut response = Response::new(Body::from(parts));
    let headers = response.headers_mut();
    headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    if gzip {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_queries_are_read_to_the_letter() {
        for (rest, expected) in [
            ("", Some(Path::Assignment)),
            ("/config", Some(Path::Config)),
            ("/report", Some(Path::Report)),
            ("/", None),
            ("s", None),
        ] {
            assert_eq!(Path::parse(rest), expected, "{rest}");
        }
        for (query, expected) in [
            (None, None),
            (Some("revision=a"), Some("a")),
            (Some("x=1&revision=b"), Some("b")),
            (Some("revision"), None),
        ] {
            assert_eq!(revision(query), expected, "{query:?}");
        }
    }
}
