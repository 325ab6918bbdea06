//! The progress of a job, for a shard that holds puts back until the job is further.
//!
//! The job reports its progress after every few messages; a shard that has nothing else to do sleeps meanwhile, and
//! sets the progress from which on it wants to be woken. Each writes its own word and then reads the other's, with all
//! four in one order: so either the job sees what is wanted, or the shard sees that it is reached.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use dwell_time::Notifier;

/// The progress of a finished job.
pub(super) const WHOLE: u32 = 1_000;
/// The progress after which the shard is woken: often enough that no put waits long, rarely enough that waking costs
/// little.
const STEP: u32 = 10;
/// No thread wants to be woken.
const NEVER: u32 = u32::MAX;

/// See the module.
#[derive(Debug)]
pub(crate) struct FlushProgress {
    /// In thousandths.
    done: AtomicU32,
    /// The progress from which on the shard wants to be woken.
    wanted: AtomicU32,
    notifier: Option<Arc<dyn Notifier>>,
}

impl FlushProgress {
    /// No progress yet. Without a notifier no thread sleeps.
    pub(super) fn new(notifier: Option<Arc<dyn Notifier>>) -> FlushProgress {
        FlushProgress { done: AtomicU32::new(0), wanted: AtomicU32::new(NEVER), notifier }
    }

    /// The progress in thousandths.
    pub(super) fn done(&self) -> u32 {
        self.done.load(Ordering::SeqCst)
    }

    /// Sets the progress in thousandths, and wakes the shard if it waits for that.
    pub(super) fn set(&self, done: u32) {
        let done = done.min(WHOLE);
        self.done.store(done, Ordering::SeqCst);
        if done >= self.wanted.load(Ordering::SeqCst) {
            self.wanted.store(NEVER, Ordering::SeqCst);
            if let Some(notifier) = &self.notifier {
                notifier.notify();
            }
        }
    }

    /// Notifies when the progress is beyond `seen`; at once if it already is.
    pub(super) fn notify_beyond(&self, seen: u32) {
        let wanted = seen.saturating_add(STEP);
        self.wanted.store(wanted, Ordering::SeqCst);
        if self.done() >= wanted
            && let Some(notifier) = &self.notifier
        {
            notifier.notify();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[derive(Debug)]
    struct ProgressSender(mpsc::Sender<()>);

    impl Notifier for ProgressSender {
        fn notify(&self) {
            self.0.send(()).unwrap();
        }
    }

    #[test]
    fn tells_once_and_only_who_asked() {
        let (tell, told) = mpsc::channel();
        let progress = FlushProgress::new(Some(Arc::new(ProgressSender(tell))));
        progress.set(100);
        assert!(told.try_recv().is_err(), "nobody has asked");
        progress.notify_beyond(100);
        progress.set(100 + STEP - 1);
        assert!(told.try_recv().is_err(), "it is not much further");
        progress.set(100 + STEP);
        progress.set(WHOLE);
        assert_eq!(told.try_iter().count(), 1);
        progress.notify_beyond(100);
        assert_eq!(told.try_iter().count(), 1, "it is further than what was seen");
    }

    /// Crash story: 1. A put is held at 10 thousandths. 2. The job sets 20 and sees that no thread waits. 3. The shard
    /// sets that it waits for 20, and sleeps although they are done.
    #[test]
    fn nobody_waits_for_what_is_done() {
        let (tell, told) = mpsc::channel();
        let progress = Arc::new(FlushProgress::new(Some(Arc::new(ProgressSender(tell)))));
        let job = thread::spawn({
            let progress = Arc::clone(&progress);
            move || (1..=WHOLE).for_each(|done| progress.set(done))
        });
        let mut seen = progress.done();
        while seen + STEP <= WHOLE {
            progress.notify_beyond(seen);
            told.recv_timeout(std::time::Duration::from_secs(20)).expect("the job goes on to its end");
            seen = progress.done();
        }
        job.join().unwrap();
    }
}
