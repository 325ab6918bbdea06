//! The message of an entry: as it is in its table, and as it is handed over.

use std::num::NonZeroU32;
use std::sync::Arc;

use dwell_model::{Message, MessageId, Now, Rules, Settings, Standing, State, Timestamp, as_of};
use dwell_store::core::{ColdMessage, CopyAt};

use super::EntryRef;
use crate::journal::segment::{BodyRef, Segment};
use crate::table::TableEntry;

/// A message as it is handed over: dead if it is over, else ready if it is due by `ready_until`. What expires by then is
/// dead even if it is not over: its expiry is among those that could not be read.
pub(super) fn cold_message(
    spot: EntryRef,
    found: TableEntry,
    segment: &Arc<Segment>,
    ready_until: Timestamp,
    is_over: bool,
) -> ColdMessage<BodyRef> {
    let ready_since = found.entry.ready_since;
    let mut message = message(found, segment);
    let Standing { state, expires, .. } = &message.standing;
    let is_pending = matches!(state, State::Scheduled | State::Ready);
    let died_unread = !is_over && is_pending && expires.is_some_and(|expires| expires <= ready_until);
    let is_over = is_over || died_unread;
    if is_over {
        message.standing = expired(&message.standing);
    } else if message.standing.state == State::Scheduled && message.standing.due <= ready_until {
        message.standing.state = State::Ready;
    }
    let file = NonZeroU32::new(spot.file).expect("files are counted from 1");
    let copy = CopyAt { file, ordinal: spot.ordinal };
    ColdMessage { message, ready_since, copy, over_by: is_over.then_some(ready_until), died_unread }
}

/// The standing of a message without a holder, once its expiry has come.
pub(crate) fn expired(standing: &Standing) -> Standing {
    let wall = standing.expires.expect("what is over has an expiry");
    // The limit of attempts applies to leases that run out, and what is over has died, whatever its queue's settings
    // say about later messages.
    let (id, settings) = (MessageId::new(wall, 0, 0, 0), Settings::default());
    as_of(standing, Now { wall, mono_ms: 0 }, Rules::of(id, None, &settings)).expect("nothing drops it")
}

/// The message of an entry.
pub(crate) fn message(found: TableEntry, segment: &Arc<Segment>) -> Message<BodyRef> {
    let TableEntry { entry, body, .. } = found;
    Message {
        id: entry.id,
        number: entry.number,
        queue: entry.queue,
        body: BodyRef { segment: Arc::clone(segment), at: body.at, len: body.len },
        key: entry.key,
        headers: entry.headers,
        created: entry.created,
        lease_ms: entry.lease_ms,
        max_attempts: entry.max_attempts,
        standing: entry.standing,
    }
}
