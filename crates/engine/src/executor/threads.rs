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

/// The nice value of background work, where the calling thread serves.
#[cfg(target_os = "linux")]
pub(super) fn background_nice() -> i32 {
    rustix::process::getpriority_process(None).unwrap_or(0) + NICE
}

#[cfg(not(target_os = "linux"))]
pub(super) fn background_nice() -> i32 {
    0
}

/// Lowers the priority of the calling thread to `nice`, below those that serve: where every core is busy, a due
/// message, or a put that waits for its answer, comes before background work.
///
/// A thread inherits the nice value of the one that starts it, which may be doing background work itself; so the value
/// is absolute. On Linux each thread has its own, and 0 names the calling one (setpriority(2)).
#[cfg(target_os = "linux")]
pub(super) fn give_way(nice: i32) {
    // If the system refuses, only the priority is lost.
    let _ = rustix::process::setpriority_process(None, nice);
}

#[cfg(not(target_os = "linux"))]
pub(super) fn give_way(_: i32) {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_thread_of_a_niced_thread_has_the_same_nice_value() {
        let own = rustix::process::getpriority_process(None).unwrap();
        let nice = background_nice();
        let (tell, told) = mpsc::channel();
        let work = move || {
            give_way(nice);
            let inner = tell.clone();
            let work = move || {
                give_way(nice);
                inner.send(rustix::process::getpriority_process(None).unwrap()).unwrap();
            };
            SystemThreads.spawn("gives-way-too", Box::new(work)).unwrap().join().unwrap();
            tell.send(rustix::process::getpriority_process(None).unwrap()).unwrap();
        };
        SystemThreads.spawn("gives-way", Box::new(work)).unwrap().join().unwrap();
        let expected = (own + NICE).min(19);
        assert_eq!(told.iter().collect::<Vec<_>>(), [expected; 2], "19 is as far as it goes");
        assert_eq!(rustix::process::getpriority_process(None).unwrap(), own);
    }
}
