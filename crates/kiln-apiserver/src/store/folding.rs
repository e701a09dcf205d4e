//! Folding the write-ahead log into the database, beside the writer.
//!
//! Left to itself SQLite folds (it says checkpoint) on the connection that commits, and with one writer everybody waits
//! meanwhile. Here a connection on a thread of its own copies the pages and waits for the disk. What was committed
//! during that is little; the writer copies it itself between two commits, because only when nothing is left does the log
//! begin again at its start. So the log stays small, and its file is written over instead of growing, which costs the
//! disk less.
//!
//! Bounded: a log of [`MOST`] pages makes the writer wait. Only somebody else who reads the database, as `kiln backup`
//! does, keeps it from beginning again, for as long as they read.
//!
//! What is durable does not depend on any of this: a commit is in the log, and on the disk, before it is answered.

use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;

use rusqlite::Connection;

/// Pages in the log after which it is folded: 4 MB.
const ENOUGH: usize = 1000;
/// Pages in the log after which the writer waits until it is folded: 32 MB.
const MOST: usize = 8000;
/// What is left to the writer, in pages.
const REST: i64 = 100;
/// How often the other thread tries to leave no more than that.
const PASSES: usize = 4;
/// Bytes of a page.
const PAGE: usize = 4096;
/// Pages that change with an object besides those it fills: of the tree it is in, and the one before and after it.
const OF_THE_TREE: usize = 3;

/// The thread that folds, and how much there is to do.
#[derive(Debug)]
pub(super) struct Folding {
    /// Taken when it ends.
    requests: Option<Sender<()>>,
    done: Receiver<()>,
    thread: Option<JoinHandle<()>>,
    /// Pages in the log, roughly: SQLite tells only who folds.
    pages: usize,
    under_way: bool,
}

impl Folding {
    /// Starts the thread for a database. What its log has from before is folded first.
    pub(super) fn start(database: &Path) -> io::Result<Folding> {
        let (requests, asked) = channel();
        let (tell, done) = channel();
        let path = database.to_owned();
        let thread =
            std::thread::Builder::new().name("store-fold".into()).spawn(move || fold_for(&path, &asked, &tell))?;
        let mut folding = Folding { requests: Some(requests), done, thread: Some(thread), pages: 0, under_way: false };
        folding.ask();
        Ok(folding)
    }

    /// To be called between two transactions, with how many objects the last one wrote and their bytes.
    pub(super) fn after_commit(&mut self, writer: &Connection, objects: usize, bytes: usize) {
        self.pages += bytes / PAGE + objects * OF_THE_TREE;
        if !self.under_way {
            if self.pages >= ENOUGH {
                self.ask();
            }
            return;
        }
        let waited = if self.pages >= MOST { self.done.recv().map_err(Into::into) } else { self.done.try_recv() };
        if waited == Err(TryRecvError::Empty) {
            return;
        }
        // Also when the thread is gone: then the writer does everything.
        self.under_way = false;
        self.pages = match fold(writer) {
            Ok(Folded { left: 0 }) => 0,
            // Somebody reads. Not with every commit again.
            Ok(_) => ENOUGH / 2,
            Err(error) => {
                tracing::warn!(%error, "the write-ahead log was not folded; it is tried again");
                ENOUGH / 2
            }
        };
    }

    /// Ends the thread. Its connection is closed when this returns.
    pub(super) fn end(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed, and lost nothing.
            let _ = thread.join();
        }
    }

    fn ask(&mut self) {
        self.under_way = true;
        // An error means that the thread is gone, which the next commit learns.
        let _ = self.requests.as_ref().map(|requests| requests.send(()));
    }
}

fn fold_for(path: &Path, asked: &Receiver<()>, tell: &Sender<()>) {
    let connection = match Connection::open(path) {
        Ok(connection) => connection,
        Err(error) => return tracing::warn!(%error, "no second connection to the database: the writer folds its log"),
    };
    while asked.recv().is_ok() {
        for _ in 0..PASSES {
            match fold(&connection) {
                Ok(Folded { left }) if left > REST => {}
                Ok(_) => break,
                Err(error) => {
                    tracing::warn!(%error, "the write-ahead log was not folded; the writer tries");
                    break;
                }
            }
        }
        if tell.send(()).is_err() {
            return;
        }
    }
}

struct Folded {
    /// Pages that are in the log only.
    left: i64,
}

/// Copies what nobody's reading forbids; waits for nobody but the disk.
fn fold(connection: &Connection) -> rusqlite::Result<Folded> {
    connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| {
        let (busy, logged, copied): (bool, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        // Where somebody else folds at the moment the numbers say nothing.
        Ok(Folded { left: if busy { i64::MAX } else { logged - copied } })
    })
}
