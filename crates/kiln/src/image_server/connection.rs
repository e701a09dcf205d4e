//! One connection: read a request, ask for the answer, send it, again.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use kiln_image::ImageError;
use kiln_image::store::StoredImage;

use super::answer::{Answer, BodyPart, decide_answer};
use super::date::http_date;
use super::digests::sha256_of;
use super::request::{LONGEST_HEAD, Parsed, Request, parse_request};
use super::route::{Route, check_signature, parse_route, representation};
use super::wire::{Follows, Wire};
use super::{Running, Service};

/// How often an idle connection looks whether the server ends.
const GLANCE: Duration = Duration::from_millis(500);

/// Serves one peer until it leaves, errs or is too slow. `crowded` closes after one answer: others wait.
pub fn serve_connection(
    stream: TcpStream,
    peer: SocketAddr,
    service: &Arc<Service>,
    running: &Arc<Running>,
    crowded: bool,
) {
    let ending = &running.ending;
    let Ok(mut wire) = Wire::new(stream, service.tls.as_ref(), service.limits.stall) else { return };
    let mut received = Vec::new();
    loop {
        let (answer, image, request) = match read_request(&mut wire, &mut received, service, ending) {
            Ok(Incoming::Request(request)) => {
                let (answer, image) = answer_request(&request, service, running);
                (answer, image, Some(request))
            }
            Ok(Incoming::Refused(status, reason)) => {
                let mut answer = Answer::plain(status, reason);
                if status == 405 {
                    answer.headers.push(("Allow", "GET, HEAD".into()));
                }
                (answer, None, None)
            }
            Ok(Incoming::Closed) | Err(_) => break,
        };
        let keep = !crowded
            && !ending.load(Ordering::Relaxed)
            && request.as_ref().is_some_and(|request| request.keep_alive)
            && answer.status < 500;
        let started = Instant::now();
        let sent = send_answer(&mut wire, &answer, image.as_ref(), keep);
        let what = match &request {
            Some(request) => {
                let method = if request.head_only { "HEAD" } else { "GET" };
                format!("{method} {}", request.path.escape_default())
            }
            None => "-".into(),
        };
        let end = match &sent {
            Ok(()) => String::new(),
            Err(error) => format!(", not finished: {error}"),
        };
        let (bytes, took) = (answer.body_length(), started.elapsed().as_millis());
        (service.log)(&format!("{peer} {what} {} {bytes} bytes {took} ms{end}", answer.status));
        if !keep || sent.is_err() {
            break;
        }
    }
    wire.close();
}

enum Incoming {
    Request(Request),
    Refused(u16, &'static str),
    Closed,
}

/// Reads up to the end of a request's head. What follows it stays for the next call.
fn read_request(
    wire: &mut Wire,
    received: &mut Vec<u8>,
    service: &Service,
    ending: &AtomicBool,
) -> io::Result<Incoming> {
    let idle_end = Instant::now() + service.limits.idle;
    let mut deadline = (!received.is_empty()).then(|| Instant::now() + service.limits.request);
    loop {
        match parse_request(received) {
            Parsed::Complete(request, length) => {
                received.drain(..length);
                return Ok(Incoming::Request(request));
            }
            Parsed::Refused { status, reason } => return Ok(Incoming::Refused(status, reason)),
            Parsed::Incomplete => {}
        }
        let mut chunk = [0; 4096];
        let room = chunk.len().min(LONGEST_HEAD.saturating_sub(received.len()).max(1));
        let until = deadline.unwrap_or_else(|| idle_end.min(Instant::now() + GLANCE));
        match wire.read(&mut chunk[..room], until) {
            Ok(0) => return Ok(Incoming::Closed),
            Ok(read) => {
                received.extend_from_slice(&chunk[..read]);
                deadline.get_or_insert_with(|| Instant::now() + service.limits.request);
            }
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                if deadline.is_some() {
                    return Ok(Incoming::Refused(408, "the request took too long"));
                }
                if ending.load(Ordering::Relaxed) || Instant::now() >= idle_end {
                    return Ok(Incoming::Closed);
                }
            }
            Err(error) => return Err(error),
        }
    }
}

/// Finds what is asked for and decides the answer.
fn answer_request(request: &Request, service: &Arc<Service>, running: &Arc<Running>) -> (Answer, Option<StoredImage>) {
    let plain = |status, text: &str| {
        let answer = Answer::plain(status, text);
        (if request.head_only { answer.without_body() } else { answer }, None)
    };
    let route = parse_route(&request.path);
    let found = match &route {
        Some(Route::Health) => return plain(200, "ok"),
        Some(Route::Image(host, base, kind)) => {
            service.store.image(host, base).map(|image| image.filter(|image| image.kind == *kind))
        }
        Some(Route::Base(base, kind)) => {
            service.store.untouched(base).map(|image| image.filter(|image| image.kind == *kind))
        }
        None => Ok(None),
    };
    let mut image = match found {
        Ok(Some(image)) => image,
        Ok(None) => return plain(404, "there is nothing at this address"),
        Err(error) => {
            (service.log)(&format!("{}: {}", request.path.escape_default(), chain(&error)));
            return plain(500, "the store cannot give this file; the server's log says why");
        }
    };
    if image.confidential {
        let (expires, signature) = (request.parameter("expires"), request.parameter("signature"));
        if let Err(reason) = check_signature(&service.key, &request.path, expires, signature, unix_time()) {
            return plain(403, reason);
        }
    }
    // Only for whoever may have the image: nobody else can make the server read it.
    if let Some(Route::Image(host, base, _)) = &route {
        image.sha256 = sha256_of(&image, host, base, service, running);
    }
    (decide_answer(&request.conditions(), &representation(&image)), Some(image))
}

fn unix_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn chain(error: &ImageError) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

fn send_answer(wire: &mut Wire, answer: &Answer, image: Option<&StoredImage>, keep: bool) -> io::Result<()> {
    let (status, date) = (answer.status, http_date(unix_time()));
    let mut head = format!("HTTP/1.1 {status} {}\r\nServer: kiln\r\nDate: {date}\r\n", reason_phrase(status));
    for (name, value) in &answer.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str(if keep { "Connection: keep-alive\r\n\r\n" } else { "Connection: close\r\n\r\n" });
    wire.write(head.as_bytes(), if answer.body.is_empty() { Follows::Nothing } else { Follows::More })?;
    for (index, part) in answer.body.iter().enumerate() {
        let follows = if index + 1 < answer.body.len() { Follows::More } else { Follows::Nothing };
        match (part, image) {
            (BodyPart::Text(text), _) => wire.write(text, follows)?,
            (BodyPart::Bytes(range), Some(image)) => {
                for part in image.file_ranges(range.clone()) {
                    wire.send_file(part.file, part.range)?;
                }
            }
            (BodyPart::Bytes(_), None) => return Err(io::Error::other("an answer without its image")),
        }
    }
    Ok(())
}

fn reason_phrase(status: u16) -> &'static str {
    match status {
        200 => "OK",
        206 => "Partial Content",
        304 => "Not Modified",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        416 => "Range Not Satisfiable",
        431 => "Request Header Fields Too Large",
        505 => "HTTP Version Not Supported",
        _ => "Internal Server Error",
    }
}
