//! Threads for what nobody waits for: controllers, the rules' look at the whole world, certificates, garbage collection.
//!
//! They are a runtime of their own with a lower priority. While clients keep all processors busy, theirs is the
//! time; when they pause, the controllers have all of it. Nothing is starved: the kernel gives these threads about a tenth
//! of a busy processor.

use std::io;

use rustix::process::{getpriority_process, setpriority_process};
use tokio::runtime::{Builder, Handle, Runtime};

/// How much nicer these threads are than the others: about a tenth of their weight.
const NICE: i32 = 10;

/// The runtime; what runs on it ends when this is dropped.
#[derive(Debug)]
pub struct Background {
    /// Where to spawn.
    pub handle: Handle,
    runtime: Option<Runtime>,
}

impl Background {
    /// Starts its thread. Threads it makes later, also those that look at the world, inherit the priority.
    pub fn start() -> io::Result<Background> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("background")
            .on_thread_start(|| {
                // Without it everything works, only less politely.
                let _ = getpriority_process(None).and_then(|own| setpriority_process(None, own + NICE));
            })
            .on_thread_park(super::memory::give_back_when_idle)
            .enable_all()
            .build()?;
        Ok(Background { handle: runtime.handle().clone(), runtime: Some(runtime) })
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // Waiting for threads is not allowed where this is dropped.
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn its_threads_and_those_they_start_are_nicer_than_others() {
        let background = Background::start().unwrap();
        let nice = || getpriority_process(None).unwrap();
        let theirs = background.handle.spawn(async move { (nice(), std::thread::spawn(nice).join().unwrap()) });
        // The kernel knows no nicer thread than 19.
        let wished = (nice() + NICE).min(19);
        assert_eq!(theirs.await.unwrap(), (wished, wished));
    }
}
