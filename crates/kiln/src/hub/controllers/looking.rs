//! The thread on which the controllers look at the world.
//!
//! A look takes seconds of CPU and hundreds of megabytes when there are ten thousand hosts. On a thread of its own nobody
//! waits for it, and all that it took is given back when it is over.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tokio::sync::oneshot;

use crate::hub::memory::give_back;

/// Does something on a thread of its own. None when it panicked, which has been printed, or when there is no thread to be had.
pub async fn look<T: Send + 'static>(job: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (answer, answered) = oneshot::channel();
    let thread = std::thread::Builder::new().name("look".into()).spawn(move || {
        // Whoever waits for a look that panicked hears of it by its missing answer.
        if let Ok(seen) = catch_unwind(AssertUnwindSafe(job)) {
            let _ = answer.send(seen);
        }
        give_back();
    });
    if let Err(error) = thread {
        tracing::error!(%error, "no thread to look at the world on");
    }
    answered.await.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_look_that_panics_is_one_missing_answer() {
        assert_eq!(look(|| 1).await, Some(1));
        assert_eq!(look(|| [1][std::env::args().count() + 1]).await, None);
        assert_eq!(look(|| std::thread::current().name().map(str::to_owned)).await, Some(Some("look".into())));
    }
}
