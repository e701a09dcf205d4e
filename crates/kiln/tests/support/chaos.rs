//! A bad day between controllers and their API: answers that come late, twice, wrong, old or not at all.
//!
//! Wraps any router. The same seed throws the same dice, though the order of requests may differ from run to run.
//! What it does is allowed to a real API server and a real network, so whoever survives it survives those.

#![allow(
    dead_code,
    unused_macros,
    unused_imports,
    clippy::unwrap_used,
    reason = "each test file uses its part of this"
)]

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;
use futures::StreamExt;

/// How bad the day is.
#[derive(Debug, Clone)]
pub struct Chaos {
    dice: Arc<AtomicU64>,
    /// Earlier answers to lists.
    lists: Arc<Mutex<HashMap<String, Bytes>>>,
    /// Requests that were no watches.
    asked: Arc<AtomicU64>,
    /// What was done, to see that something was.
    pub harm: Arc<Harm>,
    /// Set to false, the day gets better.
    pub on: Arc<std::sync::atomic::AtomicBool>,
}

/// How often each harm was done.
#[derive(Debug, Default)]
pub struct Harm {
    pub refused: AtomicU64,
    pub lost_answers: AtomicU64,
    pub stale_lists: AtomicU64,
    pub gone: AtomicU64,
    pub dropped: AtomicU64,
    pub late: AtomicU64,
    pub stuttered: AtomicU64,
}

/// What each of [`Harm::counts`] is.
pub const HARMS: [&str; 7] = [
    "refused",
    "done without an answer",
    "listed as it was before",
    "gone",
    "cut off in a watch",
    "late",
    "slow in a watch",
];

/// Each of these tests on a good day and on a bad one, which the number begins: `Site::start` gets the chaos of the day.
macro_rules! on_each_day {
    ($seed:literal: $($name:ident),* $(,)?) => {
        mod on_a_good_day {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$name(super::Site::start(concat!(stringify!($name), "-good"), None).await).await;
            })*
        }
        mod on_a_bad_day {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                let chaos = super::chaos::Chaos::new($seed);
                let site = super::Site::start(concat!(stringify!($name), "-bad"), Some(chaos.clone())).await;
                super::$name(site).await;
                chaos.was_bad();
            })*
        }
    };
}
pub(crate) use on_each_day;

/// The router as it is on that day.
pub fn on_day(day: Option<&Chaos>, router: Router) -> Router {
    day.map_or(router.clone(), |chaos| chaos.over(router))
}

impl Chaos {
    pub fn new(seed: u64) -> Chaos {
        Chaos {
            dice: Arc::new(AtomicU64::new(seed)),
            lists: Arc::default(),
            asked: Arc::default(),
            harm: Arc::default(),
            on: Arc::new(true.into()),
        }
    }

    /// Whether the day was one: a day on which nothing happened shows nothing. What else happens is as the dice fall.
    pub fn was_bad(&self) {
        assert!(self.harm.refused.load(Ordering::Relaxed) > 0, "hardly anything was asked: {:?}", self.harm);
    }

    /// The router behind this day.
    pub fn over(&self, router: Router) -> Router {
        let chaos = self.clone();
        router.layer(axum::middleware::from_fn(move |request: Request, next: Next| {
            let chaos = chaos.clone();
            async move { chaos.pass(request, next).await }
        }))
    }

    /// A number below `sides`: splitmix64 over a shared counter.
    fn roll(&self, sides: u64) -> u64 {
        let mut value = self.dice.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (value ^ (value >> 31)) % sides
    }

    /// Waits for less than so many milliseconds. Half of that is enough to count.
    async fn wait(&self, below: u64, counter: &AtomicU64) {
        let pause = self.roll(below);
        if pause >= below / 2 {
            Harm::count(counter);
        }
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }

    async fn pass(&self, request: Request, next: Next) -> Response {
        if !self.on.load(Ordering::Relaxed) {
            return next.run(request).await;
        }
        self.wait(20, &self.harm.late).await;
        let query = request.uri().query().unwrap_or_default().to_owned();
        if query.contains("watch=true") || query.contains("watch=1") {
            return self.watch(request, next).await;
        }
        let reading = request.method() == Method::GET;
        let (path, mut die) = (format!("{}?{query}", request.uri().path()), self.roll(100));
        // However the dice fall, the sixth request is refused if none was before.
        let due = self.asked.fetch_add(1, Ordering::Relaxed) >= 5 && self.harm.refused.load(Ordering::Relaxed) == 0;
        if die < 12 || due {
            Harm::count(&self.harm.refused);
            let code = match (die % 4, reading) {
                (0, false) => 409,
                (0, true) | (1, _) => 429,
                (2, _) => 500,
                _ => 503,
            };
            return refusal(code);
        }
        die = self.roll(100);
        let answer = next.run(request).await;
        if !reading {
            // It was done, but nobody hears so.
            if die < 6 {
                Harm::count(&self.harm.lost_answers);
                return refusal(500);
            }
            return answer;
        }
        let (parts, body) = answer.into_parts();
        let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        let is_list = parts.status.is_success() && !query.contains("continue=");
        if !is_list {
            return Response::from_parts(parts, Body::from(bytes));
        }
        // A list that names no revision is the newest there is, at a real API server; who may be out relies on that.
        let slots = path.contains("/leases?");
        let earlier = {
            let mut lists = self.lists.lock().unwrap();
            let earlier = lists.get(&path).cloned();
            // Old answers stay for a while, so that they get really old.
            if earlier.is_none() || die < 50 {
                lists.insert(path, bytes.clone());
            }
            earlier
        };
        match earlier.filter(|_| die >= 70 && !slots) {
            Some(earlier) => {
                Harm::count(&self.harm.stale_lists);
                Response::from_parts(parts, Body::from(earlier))
            }
            None => Response::from_parts(parts, Body::from(bytes)),
        }
    }

    /// A watch that begins late, ends early, stutters, or is told that it missed too much.
    async fn watch(&self, request: Request, next: Next) -> Response {
        let die = self.roll(100);
        if die < 10 {
            Harm::count(&self.harm.gone);
            let event = concat!(
                r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","#,
                r#""message":"too old resource version","reason":"Expired","code":410}}"#,
                "\n"
            );
            return Response::new(Body::from(event));
        }
        if die < 18 {
            Harm::count(&self.harm.refused);
            return refusal(if die.is_multiple_of(2) { 429 } else { 500 });
        }
        let (parts, body) = next.run(request).await.into_parts();
        let mut left = self.roll(30);
        let chaos = self.clone();
        let frames = body.into_data_stream().then(move |frame| {
            let chaos = chaos.clone();
            async move {
                chaos.wait(15, &chaos.harm.stuttered).await;
                frame
            }
        });
        let (chaos, harm) = (self.clone(), Arc::clone(&self.harm));
        let frames = frames.take_while(move |_| {
            let goes_on = left > 0 || !chaos.on.load(Ordering::Relaxed);
            left = left.saturating_sub(1);
            if !goes_on {
                Harm::count(&harm.dropped);
            }
            std::future::ready(goes_on)
        });
        Response::from_parts(parts, Body::from_stream(frames))
    }
}

impl Harm {
    /// How often each was done, in the order of [`HARMS`].
    pub fn counts(&self) -> [u64; HARMS.len()] {
        let Harm { refused, lost_answers, stale_lists, gone, dropped, late, stuttered } = self;
        [refused, lost_answers, stale_lists, gone, dropped, late, stuttered].map(|count| count.load(Ordering::Relaxed))
    }

    fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

fn refusal(code: u16) -> Response {
    let reason = match code {
        409 => "Conflict",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        _ => "InternalError",
    };
    let body = format!(
        r#"{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure","message":"chaos","reason":"{reason}","code":{code}}}"#
    );
    Response::builder().status(code).header("content-type", "application/json").body(Body::from(body)).unwrap()
}
