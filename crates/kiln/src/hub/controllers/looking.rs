//! The thread on which the controllers look at the world.
//!
//! A look takes seconds of CPU and hundreds of megabytes when there are ten thousand hosts. On a thread of its own nobody
//! waits for it; on always the same thread the memory of the last look is there for the next one, while each of a pool
//! of threads would keep that much for itself.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};

use tokio::sync::oneshot;

type Job = Box<dyn FnOnce() + Send>;

/// The thread; it ends when this is dropped and its last look is over.
#[derive(Debug)]
pub struct Looking {
    jobs: Sender<Job>,
}

impl Looking {
    /// Starts it.
    pub fn start() -> std::io::Result<Looking> {
        let (jobs, queue) = channel::<Job>();
        std::thread::Builder::new().name("look".into()).spawn(move || {
            for job in queue {
                // Whoever waits for a look that panicked hears of it by its missing answer.
                let _ = catch_unwind(AssertUnwindSafe(job));
            }
        })?;
        Ok(Looking { jobs })
    }

    /// Does something there. None when it panicked, which has been printed.
    pub async fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        let job = move || drop(answer.send(job()));
        self.jobs.send(Box::new(job)).ok()?;
        answered.await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_look_that_panics_is_one_missing_answer() {
        let looking = Looking::start().unwrap();
        assert_eq!(looking.run(|| 1).await, Some(1));
        assert_eq!(looking.run(|| [1][std::env::args().count() + 1]).await, None);
        assert_eq!(looking.run(|| std::thread::current().name().map(str::to_owned)).await, Some(Some("look".into())));
    }
}
