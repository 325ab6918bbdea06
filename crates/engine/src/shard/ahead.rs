//! Bodies that the next take of a queue is going to want, read by a thread while the caller is busy with those it has.
//!
//! A backlog is taken in the order of due and lies in the journal in the order of its puts, so each body is a call of the
//! operating system for itself, and all of them cost a take more than the rest of it. While nobody waits for them they
//! cost its caller nothing.
//!
//! # Ground rules
//! 1. What was read is a hint. Whoever was handed a message looks for its number among what was read, and reads its
//!    body where it is not there, or could not be read.
//! 2. One batch of bodies at a time, bounded in number and bytes. It is given up when another begins.
//! 3. Places are let go of as they are read: what nobody asks for keeps no segment.

use std::collections::VecDeque;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::vec::IntoIter;

use bytes::Bytes;
use dwell_model::{Number, QueueName};
use dwell_store::core::Core;

use crate::journal::segment::Place;

/// A take of fewer messages reads them itself before another thread is awake.
const FEWEST: usize = 64;
/// So many are read ahead at most,
const MOST: usize = 1024;
/// of so many bytes.
const MOST_BYTES: usize = 1024 * 1024;
/// So many are read before it is looked whether anybody wants more.
const AT_A_TIME: usize = 64;
/// What was read stands in the order of the take; between two that are there may be so many that are not.
const BETWEEN: usize = 8;

/// Reads bodies ahead, in a thread that ends with this.
#[derive(Debug)]
pub(crate) struct Ahead {
    reader: Option<(Sender<Arc<Reading>>, JoinHandle<()>)>,
    /// What is read, or was, and for which queue.
    last: Option<(QueueName, Arc<Reading>)>,
}

/// Bodies on their way.
#[derive(Debug, Default)]
pub(crate) struct Reading(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    wanted: VecDeque<(Number, Place)>,
    read: Vec<(Number, Bytes)>,
    is_over: bool,
}

impl Ahead {
    /// Begins the thread; without one nothing is read ahead.
    pub(crate) fn begin() -> Ahead {
        let (send, wanted) = mpsc::channel::<Arc<Reading>>();
        let read = move || wanted.into_iter().for_each(|reading| reading.read());
        let thread = thread::Builder::new().name("dwell-ahead".to_owned()).spawn(read);
        Ahead { reader: thread.ok().map(|thread| (send, thread)), last: None }
    }

    /// A take of `queue` alone was handed so many messages: begins to read those that come next, and gives what was read
    /// for this one.
    pub(crate) fn go_on(
        &mut self,
        core: &Core<Place>,
        queue: &QueueName,
        handed: usize,
    ) -> Option<Arc<Reading>> {
        let (send, _) = self.reader.as_ref().filter(|_| handed >= FEWEST)?;
        let (mut bytes, most) = (0, handed.min(MOST));
        let next = core.upcoming(queue).take(most).take_while(|(_, body)| {
            bytes += body.len as usize;
            bytes <= MOST_BYTES
        });
        let wanted: VecDeque<(Number, Place)> = next.map(|(number, body)| (number, body.clone())).collect();
        let before = self.last.take();
        if wanted.len() >= FEWEST {
            let reading = Arc::new(Reading(Mutex::new(State { wanted, ..State::default() })));
            // Should the thread be gone, nothing is read.
            let _ = send.send(Arc::clone(&reading));
            self.last = Some((queue.clone(), reading));
        }
        let (of, before) = before?;
        if of == *queue {
            return Some(before);
        }
        before.give_up();
        None
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        if let Some((_, last)) = self.last.take() {
            last.give_up();
        }
        if let Some((send, thread)) = self.reader.take() {
            drop(send);
            // A thread that has panicked has read nothing.
            let _ = thread.join();
        }
    }
}

impl Reading {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread: reads until all is read, or nobody wants it.
    fn read(&self) {
        loop {
            let some: Vec<(Number, Place)> = {
                let mut state = self.state();
                let count = state.wanted.len().min(AT_A_TIME);
                state.wanted.drain(..count).collect()
            };
            if some.is_empty() {
                return;
            }
            let places: Vec<(Number, &Place)> = some.iter().map(|(number, place)| (*number, place)).collect();
            let bodies = Place::read_all(&places);
            let read = some.iter().zip(bodies).filter_map(|((number, _), body)| Some((*number, body.ok()?)));
            let mut state = self.state();
            if state.is_over {
                return;
            }
            state.read.extend(read);
        }
    }

    fn give_up(&self) {
        let mut state = self.state();
        state.is_over = true;
        state.wanted.clear();
    }

    /// What was read so far. No more is.
    pub(crate) fn take(&self) -> IntoIter<(Number, Bytes)> {
        self.give_up();
        std::mem::take(&mut self.state().read).into_iter()
    }
}

/// The body of `number`, if it is the next of those that were read, or nearly.
pub(crate) fn next_body(read: &mut IntoIter<(Number, Bytes)>, number: Number) -> Option<Bytes> {
    let at = read.as_slice().iter().take(BETWEEN).position(|(other, _)| *other == number)?;
    read.nth(at).map(|(_, body)| body)
}
