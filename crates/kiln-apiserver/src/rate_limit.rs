//! Not too much for anybody: buckets of requests per second, and quotas of what is held at a time.
//!
//! Both know a bounded number of keys, so that a crowd of made-up addresses costs no more memory than a few. Buckets
//! are pure: the time is an argument.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// So many per second, and so many at once after a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Per second; 0 means without limit.
    pub per_second: u32,
    /// At once.
    pub burst: u32,
}

/// Keys that are told apart; later ones share a bucket until others are idle.
const MOST_KEYS: usize = 10_000;
/// How often idle keys are looked for when the table is full.
const SWEEP: Duration = Duration::from_secs(1);

/// One bucket for each key.
#[derive(Debug)]
pub struct RateLimiter {
    rate: Rate,
    most_keys: usize,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    buckets: HashMap<String, Bucket>,
    crowd: Option<Bucket>,
    swept: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    left: f64,
    at: Instant,
}

impl RateLimiter {
    /// Everybody has this rate.
    pub fn new(rate: Rate) -> RateLimiter {
        RateLimiter { rate, most_keys: MOST_KEYS, table: Mutex::default() }
    }

    /// Takes one; refused with the time after which there is one again.
    pub fn take(&self, key: &str, now: Instant) -> Result<(), Duration> {
        if self.rate.per_second == 0 {
            return Ok(());
        }
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let table = &mut *table;
        if !table.buckets.contains_key(key) && table.buckets.len() >= self.most_keys {
            let due = table.swept.is_none_or(|swept| now.saturating_duration_since(swept) >= SWEEP);
            if due {
                table.swept = Some(now);
                // A full bucket says the same as none.
                table.buckets.retain(|_, bucket| self.refilled(bucket, now) < f64::from(self.rate.burst));
            }
            if table.buckets.len() >= self.most_keys {
                return self.draw(table.crowd.get_or_insert(self.full(now)), now);
            }
        }
        let bucket = match table.buckets.get_mut(key) {
            Some(bucket) => bucket,
            None => table.buckets.entry(key.to_owned()).or_insert(self.full(now)),
        };
        self.draw(bucket, now)
    }

    fn full(&self, now: Instant) -> Bucket {
        Bucket { left: f64::from(self.rate.burst), at: now }
    }

    fn refilled(&self, bucket: &Bucket, now: Instant) -> f64 {
        let gained = now.saturating_duration_since(bucket.at).as_secs_f64() * f64::from(self.rate.per_second);
        (bucket.left + gained).min(f64::from(self.rate.burst))
    }

    fn draw(&self, bucket: &mut Bucket, now: Instant) -> Result<(), Duration> {
        let left = self.refilled(bucket, now);
        let (left, answer) = if left >= 1.0 {
            (left - 1.0, Ok(()))
        } else {
            (left, Err(Duration::from_secs_f64((1.0 - left) / f64::from(self.rate.per_second))))
        };
        *bucket = Bucket { left, at: now };
        answer
    }
}

/// Under which key an address is counted: IPv6 clients have a whole /64 to choose from.
pub fn source_key(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            format!("{a:x}:{b:x}:{c:x}:{d:x}::/64")
        }
    }
}

/// How many of something are held at a time, in all and by each key.
#[derive(Debug)]
pub struct Quota {
    total: usize,
    held: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    total: usize,
    keys: HashMap<String, usize>,
}

/// Which limit was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// That of everybody together.
    Total,
    /// That of this key.
    Key,
}

impl Quota {
    /// So many in all.
    pub fn new(total: usize) -> Arc<Quota> {
        Arc::new(Quota { total, held: Mutex::default() })
    }

    /// Takes one until the result is dropped.
    pub fn take(self: &Arc<Quota>, key: &str, most: usize) -> Result<Held, Full> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.total >= self.total {
            return Err(Full::Total);
        }
        if held.keys.get(key).is_some_and(|count| *count >= most) || most == 0 {
            return Err(Full::Key);
        }
        held.total += 1;
        *held.keys.entry(key.to_owned()).or_default() += 1;
        Ok(Held { quota: Arc::clone(self), key: key.to_owned() })
    }

    /// How many are held now.
    pub fn held(&self) -> usize {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).total
    }
}

/// One that is held.
#[derive(Debug)]
pub struct Held {
    quota: Arc<Quota>,
    key: String,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut held = self.quota.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.total -= 1;
        if let Some(count) = held.keys.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                held.keys.remove(&self.key);
            }
        }
    }
}

/// Lets a message through once in a while and counts the others, so that a flood does not fill the log.
#[derive(Debug, Default)]
pub struct Seldom(Mutex<(Option<Instant>, u64)>);

/// How often the same message is written.
const PAUSE: Duration = Duration::from_secs(10);

impl Seldom {
    /// Some with the number of those kept back, if it may be written now.
    pub fn now(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.0.is_some_and(|last| now.saturating_duration_since(last) < PAUSE) {
            state.1 += 1;
            return None;
        }
        state.0 = Some(now);
        Some(std::mem::take(&mut state.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate { per_second: 10, burst: 3 };

    #[test]
    fn a_bucket_gives_its_burst_and_then_its_rate() {
        let limiter = RateLimiter::new(RATE);
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        for (milliseconds, expected) in [
            (0, Ok(())),
            (0, Ok(())),
            (0, Ok(())),
            (0, Err(100)),
            (50, Err(50)),
            (100, Ok(())),
            (100, Err(100)),
            (10_000, Ok(())),
            (10_000, Ok(())),
            (10_000, Ok(())),
            (10_000, Err(100)),
        ] {
            let taken = limiter.take("a", at(milliseconds)).map_err(|wait| wait.as_secs_f64() * 1000.0);
            assert_eq!(taken.map_err(|wait| wait.round() as u64), expected, "at {milliseconds} ms");
        }
        assert_eq!(limiter.take("b", at(0)), Ok(()), "keys do not share");
    }

    #[test]
    fn a_crowd_of_keys_shares_one_bucket_and_memory_stays_bounded() {
        let limiter = RateLimiter { most_keys: 100, ..RateLimiter::new(RATE) };
        let now = Instant::now();
        for index in 0..100 {
            assert_eq!(limiter.take(&index.to_string(), now), Ok(()));
        }
        let crowd = (100..1000).filter(|index| limiter.take(&index.to_string(), now).is_ok()).count();
        assert_eq!(crowd, 3);
        assert_eq!(limiter.table.lock().unwrap().buckets.len(), 100);
        let later = now + Duration::from_secs(2);
        assert_eq!(limiter.take("new", later), Ok(()));
        assert_eq!(limiter.table.lock().unwrap().buckets.len(), 1, "idle keys were forgotten");
    }

    #[test]
    fn sources_are_told_apart_by_what_they_cannot_choose() {
        for (address, expected) in [
            ("192.0.2.7", "192.0.2.7"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ] {
            assert_eq!(source_key(address.parse().unwrap()), expected);
        }
    }

    #[test]
    fn a_quota_is_given_back_when_it_is_dropped() {
        let quota = Quota::new(3);
        let first = quota.take("a", 2).unwrap();
        let _second = quota.take("a", 2).unwrap();
        assert_eq!(quota.take("a", 2).unwrap_err(), Full::Key);
        let _third = quota.take("b", 2).unwrap();
        assert_eq!(quota.take("c", 2).unwrap_err(), Full::Total);
        drop(first);
        assert!(quota.take("a", 2).is_ok());
        assert_eq!(quota.held(), 2);
    }

    #[test]
    fn a_flood_of_messages_is_counted_instead_of_written() {
        let (seldom, now) = (Seldom::default(), Instant::now());
        assert_eq!(seldom.now(now), Some(0));
        assert_eq!(seldom.now(now), None);
        assert_eq!(seldom.now(now + PAUSE), Some(1));
    }
}
