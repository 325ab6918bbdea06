//! A thread that reads ahead: whoever serves sends it what will be wanted soon, and finds it read.
//!
//! It does one errand after the other, in the order of their coming, and ends with the last that could send any.

use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};

/// What can be done ahead. Nobody waits for its end: it says itself what came of it.
pub(crate) trait Errand: Send + Sync {
    fn run(&self);
}

/// The thread.
#[derive(Debug)]
pub(crate) struct Errands {
    thread: Option<Thread>,
}

type Thread = (Sender<Arc<dyn Errand>>, JoinHandle<()>);

impl Errands {
    /// Begins the thread; nothing if the system has none left, and where a model checker would not see it.
    pub(crate) fn begin() -> Option<Arc<Errands>> {
        if cfg!(shuttle) {
            return None;
        }
        let (send, errands) = mpsc::channel::<Arc<dyn Errand>>();
        let run = move || errands.into_iter().for_each(|errand| errand.run());
        let thread = thread::Builder::new().name("dwell-ahead".to_owned()).spawn(run).ok()?;
        Some(Arc::new(Errands { thread: Some((send, thread)) }))
    }

    /// Has it done. Should the thread be gone, it is not.
    pub(crate) fn send(&self, errand: Arc<dyn Errand>) {
        if let Some((send, _)) = &self.thread {
            let _ = send.send(errand);
        }
    }
}

impl Drop for Errands {
    fn drop(&mut self) {
        if let Some((send, thread)) = self.thread.take() {
            drop(send);
            // A thread that has panicked has done nothing.
            let _ = thread.join();
        }
    }
}
