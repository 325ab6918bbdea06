//! Stepping: without threads, the driver of the executor decides which task runs its next slice, and when.
//!
//! A simulation draws that from its seed, so that each order in which threads could do the work occurs for some seed.
//! Tests let each task run a slice between two turns.

use std::sync::Arc;

use super::{Class, Executor, Work};

/// The number of items in a slice: few, so that much can happen between two of them.
const SLICE: usize = 512;

impl Executor {
    fn waiting(&self) -> impl Iterator<Item = Arc<Work>> {
        self.prefetch.waiting().into_iter().chain(self.background.waiting())
    }

    /// The classes of the tasks that have not ended: prefetch first, then the oldest first.
    pub(crate) fn pending(&self) -> Vec<Class> {
        self.waiting().map(|work| work.class()).collect()
    }

    /// Runs one slice of the [pending](Executor::pending) task of index `nth`; false if there are fewer.
    pub(crate) fn step(&self, nth: usize) -> bool {
        let Some(work) = self.waiting().nth(nth) else { return false };
        work.run_slice(SLICE);
        true
    }

    /// Runs one slice of each task that is pending now, and all deletions.
    pub(crate) fn step_each(&self) {
        for work in self.waiting() {
            while !work.run_slice(SLICE) && work.class() == Class::Deletion {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Countdown;
    use super::super::{Dropped, Handle, spawn};
    use super::*;

    #[test]
    fn the_driver_says_which_task_goes_on() {
        let executor = Executor::without_threads();
        let begin = |class, left| -> Handle<Result<usize, String>> {
            let (handle, submitted) = spawn(&executor, class, Countdown::from(left));
            submitted.unwrap();
            handle
        };
        let (mut flush, mut merge) = (begin(Class::Flush, 5), begin(Class::Compaction, 1));
        assert_eq!(executor.pending(), [Class::Flush, Class::Compaction]);
        assert!(executor.step(1) && executor.step(1));
        assert_eq!(executor.pending(), [Class::Flush], "the merge was first");
        assert!(matches!(merge.try_take(), Ok(Some(Ok(2)))));
        assert_eq!(flush.try_take(), Ok(None));
        assert!(!executor.step(1), "there is one alone");
        while executor.step(0) {}
        assert!(matches!(flush.try_take(), Ok(Some(Ok(6)))));
    }

    #[test]
    fn closed_it_has_done_the_deletions_and_nothing_else() {
        let executor = Executor::without_threads();
        let (mut deletion, _) = spawn(&executor, Class::Deletion, Countdown::from(3));
        let (mut flush, _) = spawn(&executor, Class::Flush, Countdown::from(3));
        executor.close();
        assert!(matches!(deletion.try_take(), Ok(Some(Ok(4)))));
        assert_eq!(flush.try_take(), Err(Dropped));
        let (mut late, submitted) = spawn(&executor, Class::Flush, Countdown::from(0));
        submitted.unwrap();
        assert_eq!(late.try_take(), Err(Dropped));
    }
}
