//! A sync that goes on while the next batch is built.
//!
//! A batch whose answers wait for its sync leaves the shard's thread with nothing to do for as long as the disk takes. If
//! other commands wait by then, another thread sees to the sync, and the shard runs them meanwhile.
//!
//! # Ground rules
//! 1. One sync at a time, and what was begun is ended before anything is answered: an answer to a later command may
//!    depend on it.
//! 2. A sync makes durable what was written when it began, and no more.
//! 3. A sync that failed is not repeated, and no other is begun.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

use super::command::Effect;
use super::inbox::Inbox;
use crate::disk::DiskFile;

/// What a sync is about.
#[derive(Debug)]
pub(crate) struct Unsynced {
    pub(crate) file: Arc<dyn DiskFile>,
    /// The sequence of the last batch in it.
    pub(crate) sequence: u64,
}

/// A sync that has begun, and the answers that wait for it.
pub(crate) struct Syncing {
    pub(crate) sequence: u64,
    pub(crate) effects: Vec<Effect>,
}

/// Who syncs while the shard goes on.
#[derive(Debug)]
pub(crate) enum Syncer {
    /// Nobody: syncs are waited for where they are needed.
    Nobody,
    /// Whoever drives the shard's turns: as if a thread did, now at once, now at the last moment.
    Turns { waits: Option<Waiting> },
    Thread(Thread),
}

/// A sync that is played.
#[derive(Debug)]
pub(crate) enum Waiting {
    Done(io::Result<()>),
    Late(Arc<dyn DiskFile>),
}

/// A thread that syncs one file after the other.
#[derive(Debug)]
pub(crate) struct Thread {
    files: Option<Sender<Arc<dyn DiskFile>>>,
    ended: Receiver<io::Result<()>>,
    handle: Option<JoinHandle<()>>,
    inbox: Arc<Inbox>,
}

impl Syncer {
    /// A thread of its own; nobody if the system has none left.
    pub(crate) fn thread(inbox: Arc<Inbox>) -> Syncer {
        let (files, todo) = mpsc::channel::<Arc<dyn DiskFile>>();
        let (tell, ended) = mpsc::channel();
        let work = move || {
            for file in todo {
                let outcome = file.sync();
                // Whoever is told may look whether anybody else has it open.
                drop(file);
                if tell.send(outcome).is_err() {
                    return;
                }
            }
        };
        match thread::Builder::new().name("dwell-sync".to_owned()).spawn(work) {
            Ok(handle) => {
                Syncer::Thread(Thread { files: Some(files), ended, handle: Some(handle), inbox })
            }
            Err(_) => Syncer::Nobody,
        }
    }

    /// Whether somebody syncs meanwhile, and other commands wait for the shard: those in `mine`, or in the inbox.
    pub(crate) fn is_worth_it(&self, mine: bool) -> bool {
        match self {
            Syncer::Nobody => false,
            Syncer::Turns { .. } => mine,
            Syncer::Thread(thread) => mine || !thread.inbox.is_empty(),
        }
    }

    /// Begins a sync. The one before has [ended](Syncer::end).
    pub(crate) fn begin(&mut self, unsynced: Unsynced) {
        let Unsynced { file, sequence } = unsynced;
        match self {
            Syncer::Nobody => unreachable!("nobody is asked to sync"),
            Syncer::Turns { waits } => {
                let is_late = sequence % 2 == 0;
                *waits = Some(if is_late { Waiting::Late(file) } else { Waiting::Done(file.sync()) });
            }
            Syncer::Thread(thread) => {
                // Should it be gone, its end says so.
                let _ = thread.files.as_ref().map(|files| files.send(file));
            }
        }
    }

    /// Waits for the end of the sync that was begun.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        let gone = || io::Error::other("the thread that syncs has panicked");
        match self {
            Syncer::Nobody => unreachable!("nobody was asked to sync"),
            Syncer::Turns { waits } => match waits.take().expect("a sync was begun") {
                Waiting::Done(outcome) => outcome,
                Waiting::Late(file) => file.sync(),
            },
            Syncer::Thread(thread) => thread.ended.recv().unwrap_or_else(|_| Err(gone())),
        }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        drop(self.files.take());
        if let Some(handle) = self.handle.take() {
            // One that has panicked has synced nothing.
            let _ = handle.join();
        }
    }
}
