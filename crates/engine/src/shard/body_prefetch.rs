//! Prefetch of bodies for the next take of a queue, while the caller processes the last one.
//!
//! A backlog is taken in the order of due and lies in the journal in the order of its puts, so each body costs a
//! system call, and together they cost a take more than the rest of it. Read in between, they cost the caller
//! nothing.
//!
//! # Ground rules
//! 1. What was read is a hint. The caller looks for the number of each message among what was read, and reads the
//!    body itself if it is not there, or could not be read.
//! 2. One batch of bodies at a time, bounded in number and bytes. It is cancelled when another begins.
//! 3. Places are released as they are read: a prefetch that is no longer wanted holds no segment.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::vec::IntoIter;

use bytes::Bytes;
use dwell_model::{Number, QueueName};
use dwell_store::core::Core;

use crate::cold::MAX_GAP;
use crate::executor::{Class, Executor, Task, spawn_detached};
use crate::journal::segment::BodyRef;

/// The minimum number of messages of a take: with fewer it reads them itself before another thread is awake.
const MIN_TAKEN: usize = 64;
/// The maximum number of bodies that are prefetched,
const MAX_BODIES: usize = 1024;
/// and of their bytes.
const MAX_BYTES: usize = 1024 * 1024;
/// The number of bodies that are read between two checks whether more are wanted.
const AT_A_TIME: usize = 64;

/// Prefetches bodies.
#[derive(Debug)]
pub(crate) struct BodyPrefetch {
    executor: Arc<Executor>,
    /// The last prefetch, and its queue.
    last: Option<(QueueName, Arc<PendingBodies>)>,
}

/// A batch of bodies that is being read.
#[derive(Debug, Default)]
pub(crate) struct PendingBodies(Mutex<PendingState>);

#[derive(Debug, Default)]
struct PendingState {
    wanted: VecDeque<(Number, BodyRef)>,
    read: Vec<(Number, Bytes)>,
    is_over: bool,
}

impl BodyPrefetch {
    /// Prefetches on `executor`.
    pub(crate) fn new(executor: Arc<Executor>) -> BodyPrefetch {
        BodyPrefetch { executor, last: None }
    }

    /// A take of `queue` alone was handed `handed` messages: begins to read those that come next, and returns what
    /// was read for this take.
    pub(crate) fn go_on(
        &mut self,
        core: &Core<BodyRef>,
        queue: &QueueName,
        handed: usize,
    ) -> Option<Arc<PendingBodies>> {
        if handed < MIN_TAKEN {
            return None;
        }
        let (mut bytes, most) = (0, handed.min(MAX_BODIES));
        let next = core.upcoming(queue, most).take_while(|(_, body)| {
            bytes += body.len as usize;
            bytes <= MAX_BYTES
        });
        let wanted: VecDeque<(Number, BodyRef)> = next.map(|(number, body)| (number, body.clone())).collect();
        let before = self.last.take();
        if wanted.len() >= MIN_TAKEN {
            let reading =
                Arc::new(PendingBodies(Mutex::new(PendingState { wanted, ..PendingState::default() })));
            let reads = ReadBodies(Arc::clone(&reading));
            if spawn_detached(&self.executor, Class::Prefetch, reads).is_ok() {
                self.last = Some((queue.clone(), reading));
            }
        }
        let (of, before) = before?;
        if of == *queue {
            return Some(before);
        }
        before.give_up();
        None
    }
}

impl Drop for BodyPrefetch {
    fn drop(&mut self) {
        if let Some((_, last)) = self.last.take() {
            last.give_up();
        }
    }
}

/// Reads bodies until all are read, or the prefetch is cancelled.
struct ReadBodies(Arc<PendingBodies>);

impl Task for ReadBodies {
    type Output = ();

    fn slice(&mut self, most: usize) -> Option<()> {
        let mut pieces = 0..most.div_ceil(AT_A_TIME);
        let has_more = pieces.all(|_| self.0.read_some());
        (!has_more).then_some(())
    }

    fn panicked(self) {}
}

impl PendingBodies {
    fn state(&self) -> MutexGuard<'_, PendingState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads some more; false if nothing is left, or the prefetch was cancelled.
    fn read_some(&self) -> bool {
        let some: Vec<(Number, BodyRef)> = {
            let mut state = self.state();
            let count = state.wanted.len().min(AT_A_TIME);
            state.wanted.drain(..count).collect()
        };
        if some.is_empty() {
            return false;
        }
        let places: Vec<(Number, &BodyRef)> = some.iter().map(|(number, place)| (*number, place)).collect();
        let bodies = BodyRef::read_all(&places);
        let read = some.iter().zip(bodies).filter_map(|((number, _), body)| Some((*number, body.ok()?)));
        let mut state = self.state();
        if state.is_over {
            return false;
        }
        state.read.extend(read);
        true
    }

    fn give_up(&self) {
        let mut state = self.state();
        state.is_over = true;
        state.wanted.clear();
    }

    /// Takes what was read so far, and cancels the rest.
    pub(crate) fn take(&self) -> IntoIter<(Number, Bytes)> {
        self.give_up();
        std::mem::take(&mut self.state().read).into_iter()
    }
}

/// The body of `number`, if it is at or near the front of those that were read.
pub(crate) fn next_body(read: &mut IntoIter<(Number, Bytes)>, number: Number) -> Option<Bytes> {
    let at = read.as_slice().iter().take(MAX_GAP).position(|(other, _)| *other == number)?;
    read.nth(at).map(|(_, body)| body)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use dwell_model::{Limits, Now, Timestamp};
    use dwell_store::core::{CoreConfig, Durability, Log, PutRecord, Record};
    use dwell_store::{Put, Take};

    use super::*;
    use crate::disk::{Disk, MemoryDisk};
    use crate::journal::format::SegmentName;
    use crate::journal::segment::Segment;

    const NOW: Now = Now { wall: Timestamp::MIN, mono_ms: 0 };

    /// Bodies one after another, as in a segment.
    struct Bodies {
        segment: Arc<Segment>,
        end: u32,
    }

    impl Bodies {
        fn new() -> Bodies {
            let (disk, dir) = (MemoryDisk::new(), Path::new("/d"));
            disk.create_dir(dir).unwrap();
            let file = disk.create(&dir.join("bodies")).unwrap();
            let name = SegmentName { directory: 1, shard: 0, segment: 1 };
            Bodies { segment: Arc::new(Segment::new(name, dir, file)), end: 0 }
        }
    }

    impl Log<BodyRef> for Bodies {
        fn put(&mut self, record: &PutRecord, body: &Bytes) -> BodyRef {
            let checksum = self.segment.salt.body_checksum(record.number.get(), body);
            let bytes = [&checksum.to_le_bytes(), &body[..]].concat();
            self.segment.file.write_at(&bytes, u64::from(self.end)).unwrap();
            let place = BodyRef { segment: Arc::clone(&self.segment), at: self.end, len: body.len() as u32 };
            self.end += bytes.len() as u32;
            place
        }

        fn record(&mut self, _: &Record, _: Durability) {}
    }

    fn queue(name: &str) -> QueueName {
        name.parse().unwrap()
    }

    fn body(number: u64) -> Bytes {
        format!("body {number}").into()
    }

    /// Two queues with `count` messages each, with alternating numbers: the odd ones in `a`.
    fn filled(count: u64) -> (Core<BodyRef>, Bodies) {
        let (mut core, mut bodies) = (Core::new(CoreConfig::new(Limits::default(), 1)), Bodies::new());
        for number in 1..=2 * count {
            let name = if number % 2 == 1 { "a" } else { "b" };
            let put = Put::new(queue(name), body(number)).at(Timestamp::MIN);
            core.put(vec![put], NOW, &mut bodies).pop().unwrap().unwrap();
        }
        (core, bodies)
    }

    fn take(core: &mut Core<BodyRef>, bodies: &mut Bodies, name: &str, count: usize) -> Vec<Number> {
        let taken = core.take(&Take::from(queue(name)).max(count), NOW, bodies).unwrap();
        taken.into_iter().map(|delivery| delivery.message.number).collect()
    }

    fn ahead() -> (Arc<Executor>, BodyPrefetch) {
        let executor = Executor::without_threads();
        (Arc::clone(&executor), BodyPrefetch::new(executor))
    }

    /// Waits until all that was requested before is read.
    fn wait(executor: &Executor) {
        while executor.step(0) {}
    }

    #[test]
    fn the_next_take_finds_its_bodies_read() {
        let (executor, mut ahead) = ahead();
        let (mut core, mut bodies) = filled(400);
        take(&mut core, &mut bodies, "a", 100);
        assert!(ahead.go_on(&core, &queue("a"), 100).is_none(), "nothing was read before the first take");
        wait(&executor);
        let numbers = take(&mut core, &mut bodies, "a", 100);
        let mut read = ahead.go_on(&core, &queue("a"), 100).unwrap().take();
        assert_eq!(read.as_slice().len(), 100);
        for number in numbers {
            assert_eq!(next_body(&mut read, number), Some(body(number.get())));
        }
    }

    #[test]
    fn few_messages_and_those_of_another_queue_are_read_by_who_takes_them() {
        let (_executor, mut ahead) = ahead();
        let (mut core, mut bodies) = filled(400);
        take(&mut core, &mut bodies, "a", MIN_TAKEN - 1);
        assert!(ahead.go_on(&core, &queue("a"), MIN_TAKEN - 1).is_none() && ahead.last.is_none());
        take(&mut core, &mut bodies, "a", 100);
        ahead.go_on(&core, &queue("a"), 100);
        take(&mut core, &mut bodies, "b", 100);
        let of_a = Arc::clone(&ahead.last.as_ref().unwrap().1);
        assert!(ahead.go_on(&core, &queue("b"), 100).is_none());
        assert!(of_a.state().is_over && of_a.state().wanted.is_empty(), "its places are let go of");
    }

    #[test]
    fn a_body_that_cannot_be_read_is_left_to_who_wants_it() {
        let (executor, mut ahead) = ahead();
        let (mut core, mut bodies) = filled(200);
        take(&mut core, &mut bodies, "a", 100);
        let damaged =
            core.upcoming(&queue("a"), 2).nth(1).map(|(number, place)| (number, place.clone())).unwrap();
        bodies.segment.file.write_at(b"other", u64::from(damaged.1.at) + 4).unwrap();
        ahead.go_on(&core, &queue("a"), 100);
        wait(&executor);
        let numbers = take(&mut core, &mut bodies, "a", 100);
        let mut read = ahead.go_on(&core, &queue("a"), 100).unwrap().take();
        for number in numbers {
            let expected = (number != damaged.0).then(|| body(number.get()));
            assert_eq!(next_body(&mut read, number), expected);
        }
    }

    #[test]
    fn nothing_is_read_any_more_once_it_is_dropped() {
        let (executor, mut ahead) = ahead();
        let (mut core, mut bodies) = filled(400);
        take(&mut core, &mut bodies, "a", 100);
        ahead.go_on(&core, &queue("a"), 100);
        let reading = Arc::clone(&ahead.last.as_ref().unwrap().1);
        drop(ahead);
        wait(&executor);
        assert_eq!(Arc::strong_count(&reading), 1);
        assert!(reading.state().read.is_empty());
    }
}
