//! How the executor's threads are started: by the system, or by a test that lets some fail.

use std::fmt::Debug;
use std::io;
use std::thread::{self, JoinHandle};

/// What the scheduler gives a thread of background work beside one that serves: about a third, where both want a core.
#[cfg(target_os = "linux")]
const NICE: i32 = 5;

/// Who starts threads.
pub trait Spawner: Debug + Send + Sync {
    /// Starts a thread of that name.
    ///
    /// # Errors
    /// The system has none left. The work is dropped then.
    fn spawn(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>>;
}

/// The system's threads.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemThreads;

impl Spawner for SystemThreads {
    fn spawn(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>> {
        thread::Builder::new().name(name.to_owned()).spawn(work)
    }
}

/// From here on the calling thread gives way to those that serve: where every core is busy, a message that is due, or a put
/// that waits for its answer, goes before a file that nobody asks for yet.
///
/// On Linux a thread has a nice value of its own, and 0 names the calling one (setpriority(2)).
#[cfg(target_os = "linux")]
pub(super) fn give_way() {
    // It only costs others their lead, should the system refuse.
    let _ = rustix::process::nice(NICE);
}

#[cfg(not(target_os = "linux"))]
pub(super) fn give_way() {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn gives_way_alone() {
        let own = rustix::process::getpriority_process(None).unwrap();
        let (tell, told) = mpsc::channel();
        let work = move || {
            give_way();
            tell.send(rustix::process::getpriority_process(None).unwrap()).unwrap();
        };
        SystemThreads.spawn("gives-way", Box::new(work)).unwrap().join().unwrap();
        assert_eq!(told.recv().unwrap(), (own + NICE).min(19), "19 is as far as it goes");
        assert_eq!(rustix::process::getpriority_process(None).unwrap(), own);
    }
}
