//! Memory nobody uses goes back to the system.
//!
//! The allocator (mimalloc, see `main.rs`) gives back what a thread has freed when that thread asks for more some time later. A
//! thread that is done does not ask, so a hub at rest kept a third of its memory for nothing. The allocator does give back all
//! it can before it says that it cannot find what it was asked for: that is how it is asked here, without unsafe code.

use std::cell::Cell;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// How often a thread that is about to wait gives back.
const EVERY: Duration = Duration::from_secs(1);

/// As much as there are addresses (256 TiB, some of which are always taken), so that it is never found and nothing is touched.
/// Of twice as much the allocator would say no without looking.
const IMPOSSIBLE: usize = (1 << 48) - (1 << 32);

/// Gives back what this thread has freed, and what threads that have ended left behind.
pub fn give_back() {
    let _ = black_box(Vec::<u8>::new().try_reserve_exact(black_box(IMPOSSIBLE)));
}

/// The same, now and then, for threads of a runtime that wait for work.
pub fn give_back_when_idle() {
    thread_local! {
        static LAST: Cell<Option<Instant>> = const { Cell::new(None) };
    }
    let now = Instant::now();
    if LAST.get().is_none_or(|last| now.duration_since(last) >= EVERY) {
        LAST.set(Some(now));
        give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_impossible() {
        assert!(Vec::<u8>::new().try_reserve_exact(IMPOSSIBLE).is_err());
        give_back_when_idle();
    }
}
