//! How many objects are judged for those who write.
//!
//! A folder of [`AT_ONCE`] objects is judged whole, and in the long run [`PER_SECOND`], whoever writes them; after more than that nobody
//! is judged until there was some rest. They are counted and not timed, so that the same folder gets the same answer on
//! every machine.

use std::time::{Duration, Instant};

/// So many at once.
const AT_ONCE: u32 = 500;
/// So many when it goes on.
const PER_SECOND: u32 = 100;

/// What is left.
#[derive(Debug)]
pub struct Allowance {
    left: f64,
    /// All were taken, and there are not half of them again.
    flooded: bool,
    counted: Option<Instant>,
}

impl Default for Allowance {
    fn default() -> Self {
        Allowance { left: AT_ONCE.into(), flooded: false, counted: None }
    }
}

impl Allowance {
    /// Whether one more may be judged; it is counted.
    pub fn take(&mut self, now: Instant) -> bool {
        let since = self.counted.map_or(Duration::ZERO, |counted| now.saturating_duration_since(counted));
        self.counted = Some(now);
        self.left = (self.left + since.as_secs_f64() * f64::from(PER_SECOND)).min(AT_ONCE.into());
        // Judging one in thirty of a flood would tell nobody anything, and needs the whole flood to be read.
        self.flooded = self.left < 1.0 || self.flooded && self.left < f64::from(AT_ONCE) / 2.0;
        if !self.flooded {
            self.left -= 1.0;
        }
        !self.flooded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_judged_and_a_flood_is_not_until_it_pauses() {
        let (mut allowance, start) = (Allowance::default(), Instant::now());
        let mut judged = |from: Duration, writes: u32, every: Duration| {
            (0..writes).filter(|number| allowance.take(start + from + every * *number)).count()
        };
        let second = Duration::from_secs(1);
        assert_eq!(judged(Duration::ZERO, 1000, Duration::ZERO), 500);
        assert_eq!(judged(second / 1000, 1000, second / 1000), 0);
        // Half of them are there again after two and a half seconds of fifty a second.
        assert!((24..=26).contains(&judged(second, 100, 20 * second / 1000)));
        // After a pause as before, and no more than that.
        assert_eq!(judged(100 * second, 1000, Duration::ZERO), 500);
    }
}
