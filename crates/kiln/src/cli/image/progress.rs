//! Progress bars: on a terminal, for work of more than a second, with throughput.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Work that is told from its first byte and shown from its first second.
const SHOWN_AFTER: Duration = Duration::from_secs(1);

/// One bar, gone when it is dropped.
pub struct Progress {
    bar: ProgressBar,
    started: Instant,
    shown: bool,
}

impl Progress {
    /// So many bytes are to be done.
    pub fn new(doing: &'static str, total: u64) -> Self {
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::hidden());
        let template = "{msg} {wide_bar} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}";
        bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_message(doing);
        Progress { bar, started: Instant::now(), shown: false }
    }

    /// So many bytes are done in all.
    pub fn set(&mut self, done: u64) {
        self.bar.set_position(done);
        if !self.shown && self.started.elapsed() >= SHOWN_AFTER {
            self.shown = true;
            // Draws nothing where standard error is no terminal.
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }

    /// So many more bytes are done.
    pub fn advance(&mut self, bytes: u64) {
        self.set(self.bar.position() + bytes);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
