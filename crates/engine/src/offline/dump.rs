//! A dump of all messages of a directory.

use std::path::Path;

use dwell_model::{Message, Now, QueueName, StateKind};
use dwell_store::Error;

use super::enter;
use super::loaded::{LoadedDirectory, UnrecordedLog};
use super::open_file_limit::with_few;
use crate::OpenError;
use crate::disk::Disk;
use crate::journal::segment::BodyRef;

/// The number of messages that are read at a time.
const PAGE: usize = 500;
/// The number of shown messages that stay in memory.
const KEPT: usize = 4 * PAGE;
/// The number of messages that are examined for eviction.
const LOOKED_AT: usize = 16 * PAGE;

/// A filter of messages.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Filter {
    /// Messages of this queue.
    pub queue: Option<QueueName>,
    /// Messages in this state.
    pub state: Option<StateKind>,
}

/// Passes each message to `each` as an opening at `now` would find it, by queue, state, due and id; returns their
/// number. `each` returns false to stop. Changes nothing. Reads the journal and every table once, bodies only of
/// the messages that are wanted.
///
/// # Errors
/// [`OpenError`], as an opening would, and [`OpenError::Damaged`] where a message cannot be read.
pub fn dump(
    disk: &(impl Disk + Clone),
    dir: &Path,
    now: Now,
    filter: &Filter,
    each: &mut dyn FnMut(&Message) -> bool,
) -> Result<u64, OpenError> {
    with_few(disk, |few| dumped(few.disk(), dir, now, filter, each))
}

fn dumped(
    disk: &dyn Disk,
    dir: &Path,
    now: Now,
    filter: &Filter,
    each: &mut dyn FnMut(&Message) -> bool,
) -> Result<u64, OpenError> {
    let (_lock, _) = enter(disk, dir)?;
    let mut stored = LoadedDirectory::read(disk, dir)?;
    stored.open(now);
    let damaged = |reason: String| OpenError::damaged(dir, 0, reason);
    let mut shown = 0;
    for queue in queues(&mut stored, now, filter).map_err(|error| damaged(error.to_string()))? {
        for state in StateKind::ALL {
            if filter.state.is_some_and(|wanted| wanted != state) {
                continue;
            }
            let mut cursor = None;
            loop {
                let (core, cold) = stored.step.both();
                let page = core.list(&queue, state, cursor, PAGE, now, &mut UnrecordedLog(cold));
                let page = page.map_err(|error| damaged(error.to_string()))?;
                let gave_up = core.gave_up();
                core.evict(KEPT, LOOKED_AT, cold);
                if gave_up {
                    continue;
                }
                let places: Vec<_> =
                    page.messages.iter().map(|message| (message.number, &message.body)).collect();
                let bodies = BodyRef::read_all(&places);
                for (message, body) in page.messages.into_iter().zip(bodies) {
                    let body = body.map_err(|error| damaged(error.to_string()))?;
                    shown += 1;
                    if !each(&message.with_body(body)) {
                        return Ok(shown);
                    }
                }
                cursor = page.next;
                if cursor.is_none() {
                    break;
                }
            }
        }
    }
    Ok(shown)
}

fn queues(stored: &mut LoadedDirectory, now: Now, filter: &Filter) -> Result<Vec<QueueName>, Error> {
    let (core, cold) = stored.step.both();
    let mut names = Vec::new();
    loop {
        let page = core.queues(names.last(), 1_000, now, &mut UnrecordedLog(cold));
        if core.gave_up() {
            continue;
        }
        if page.is_empty() {
            break;
        }
        names.extend(page.into_iter().map(|stats| stats.name));
    }
    names.retain(|name| filter.queue.as_ref().is_none_or(|wanted| wanted == name));
    Ok(names)
}
