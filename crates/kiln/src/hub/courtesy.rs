//! Controllers that let clients go first.
//!
//! Of ten thousand hosts that are created at once each is read and judged by the controllers while thousands more are on
//! their way; that took almost half of the hub's processor time, and clients had to wait for it in spite of a lower priority
//! ([`super::background`]). So, while clients write at full speed, the watches of the controllers pause, and what they missed
//! comes in few large pieces. So do those of certificates; what machines fetch is not delayed.
//!
//! Nothing is starved: of a time that is busy throughout, a tenth is theirs. [`Pace`] decides, [`Courtesy`] waits.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use futures::StreamExt;
use kiln_apiserver::Server;

/// How often clients' writes are counted.
const STEP: Duration = Duration::from_millis(20);
/// So many writes in a step are full speed: five hundred a second.
const MANY: u64 = 10;
/// The longest pause.
const LONGEST: Duration = Duration::from_secs(2);
/// How long the way is free after it.
const FREE: Duration = Duration::from_millis(220);

/// Whether it is the controllers' turn.
#[derive(Debug, Default)]
struct Pace {
    /// When writes were counted, and how many there were in all.
    counted: Option<(Instant, u64)>,
    busy: bool,
    /// Since when the controllers wait.
    since: Option<Instant>,
    free_until: Option<Instant>,
}

impl Pace {
    /// `writes` is how many there have been in all.
    fn may_go(&mut self, now: Instant, writes: u64) -> bool {
        match self.counted {
            Some((then, _)) if now.duration_since(then) < STEP => {}
            Some((then, before)) => {
                let steps = now.duration_since(then).as_secs_f64() / STEP.as_secs_f64();
                self.busy = writes.saturating_sub(before) as f64 >= steps * MANY as f64;
                self.counted = Some((now, writes));
            }
            None => self.counted = Some((now, writes)),
        }
        if !self.busy || self.free_until.is_some_and(|until| now < until) {
            self.since = None;
            return true;
        }
        let since = *self.since.get_or_insert(now);
        if now.duration_since(since) >= LONGEST {
            (self.since, self.free_until) = (None, Some(now + FREE));
            return true;
        }
        false
    }
}

/// What the watches share.
pub struct Courtesy {
    pace: Mutex<Pace>,
    writes: Box<dyn Fn() -> u64 + Send + Sync>,
}

impl Courtesy {
    /// `writes` says how many writes of clients there have been.
    pub fn new(writes: impl Fn() -> u64 + Send + Sync + 'static) -> Arc<Courtesy> {
        Arc::new(Courtesy { pace: Mutex::default(), writes: Box::new(writes) })
    }

    /// Towards the clients of a server.
    pub fn towards_clients(server: &Server) -> Arc<Courtesy> {
        let metrics = Arc::clone(server.metrics());
        Courtesy::new(move || metrics.client_writes())
    }

    /// An API whose watches say nothing while it is the clients' turn.
    pub fn pause_watches(self: &Arc<Courtesy>, api: Router) -> Router {
        let courtesy = Arc::clone(self);
        api.layer(from_fn(move |request: Request, next: Next| {
            let courtesy = Arc::clone(&courtesy);
            async move {
                let watches = request.uri().query().is_some_and(|query| query.contains("watch=true"));
                let answer = next.run(request).await;
                if !watches {
                    return answer;
                }
                answer.map(|events| {
                    Body::from_stream(events.into_data_stream().then(move |event| {
                        let courtesy = Arc::clone(&courtesy);
                        async move {
                            courtesy.wait().await;
                            event
                        }
                    }))
                })
            }
        }))
    }

    /// Until it is the controllers' turn.
    async fn wait(&self) {
        let may_go = || {
            let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
            pace.may_go(Instant::now(), (self.writes)())
        };
        while !may_go() {
            tokio::time::sleep(STEP).await;
        }
    }
}

impl fmt::Debug for Courtesy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Courtesy").field(&self.pace).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of so many milliseconds are the controllers', with so many writes each second.
    fn free(rate: u64, milliseconds: u64) -> u64 {
        let (start, mut pace) = (Instant::now(), Pace::default());
        let may_go = |at: &u64| pace.may_go(start + Duration::from_millis(*at), at * rate / 1000);
        (0..milliseconds).filter(may_go).count() as u64
    }

    #[test]
    fn clients_go_first_and_controllers_always_have_a_share() {
        for rate in [0, 1, 100, 400] {
            assert_eq!(free(rate, 10_000), 10_000, "{rate} writes a second");
        }
        for rate in [600, 3000, 50_000] {
            let free = free(rate, 100_000);
            assert!((8_000..12_000).contains(&free), "{free} of 100000 ms at {rate} writes a second");
        }
    }

    #[tokio::test]
    async fn a_watch_pauses_while_clients_write_and_a_list_does_not() {
        use axum::http::Uri;
        use tower::ServiceExt as _;
        let (begun, last) = (Instant::now(), Duration::from_millis(300));
        // A thousand writes a second, for a while.
        let writes = move || begun.elapsed().min(last).as_millis() as u64;
        let api = Courtesy::new(writes).pause_watches(Router::new().fallback(|| async { "event" }));
        let ask = async |uri: &'static str| {
            let mut request = Request::new(Body::empty());
            *request.uri_mut() = Uri::from_static(uri);
            let answer = api.clone().oneshot(request).await.unwrap();
            axum::body::to_bytes(answer.into_body(), 100).await.unwrap();
            begun.elapsed()
        };
        ask("/hosts?watch=true").await;
        tokio::time::sleep(STEP).await;
        assert!(ask("/hosts").await < last);
        assert!(ask("/hosts?watch=true").await >= last);
    }

    #[test]
    fn a_pause_ends_with_the_burst() {
        let (start, mut pace) = (Instant::now(), Pace::default());
        let at = |milliseconds: u64| start + Duration::from_millis(milliseconds);
        assert!(pace.may_go(at(0), 0));
        assert!(!pace.may_go(at(20), 100));
        assert!(!pace.may_go(at(39), 100), "within a step nothing is known anew");
        assert!(pace.may_go(at(40), 101));
        // Nobody asked for a minute: what was written in it says nothing about now, unless it was much.
        assert!(pace.may_go(at(60_040), 5_000));
        assert!(!pace.may_go(at(60_060), 5_010));
    }
}
