//! Starting the executor's threads: by the system, or by a test that lets some fail.

use std::fmt::Debug;
use std::io;
use std::thread::{self, JoinHandle};

/// The nice value of threads for background work: beside a serving thread about a third of a core, where both want
/// it.
#[cfg(target_os = "linux")]
const NICE: i32 = 5;

/// Starts threads.
pub trait Spawner: Debug + Send + Sync {
    /// Starts a thread of that name.
    ///
    /// # Errors
    /// The system cannot start another thread. The work is dropped then.
    fn spawn(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>>;
}

/// The threads of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemThreads;

impl Spawner for SystemThreads {
    fn spawn(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>> {
        thread::Builder::new().name(name.to_owned()).spawn(work)
    }
}

/// Lowers the priority of the calling thread below those that serve: where every core is busy, a due message, or a
/// put that waits for its answer, comes before background work.
///
/// On Linux each thread has its own nice value, and 0 names the calling one (setpriority(2)).
#[cfg(target_os = "linux")]
pub(super) fn give_way() {
    // If the system refuses, only the priority is lost.
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
