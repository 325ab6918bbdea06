//! The queues that a caller may know of, in pages.
//!
//! Ground rules:
//! 1. No name goes out that the caller may not know of: not in the page, and not as the place where the next one begins.
//! 2. A page has as many as were asked for, or is the last one.
//! 3. What lies between the names that the caller may know of is passed over, not read: a page costs what it shows, and a
//!    question for each beginning of names that a scope of the caller's has.

use dwell_model::QueueName;
use dwell_store::{QueueStats, Result, Store};

use crate::security::{Caller, Known, just_before};

/// The first `max` behind `after` whose names begin with `prefix`, and whether there are more.
pub(super) async fn page(
    store: &dyn Store,
    caller: &Caller,
    prefix: &str,
    after: Option<QueueName>,
    max: usize,
) -> Result<(Vec<QueueStats>, bool)> {
    let mut known: Vec<QueueStats> = Vec::new();
    let is_shown = |name: &QueueName| name.as_str().starts_with(prefix) && caller.may_something(name);
    let is_past = |name: &QueueName| name.as_str() > prefix && !name.as_str().starts_with(prefix);
    let mut at = after.max(just_before(prefix));
    while let Known::Behind(from) = caller.known_behind(at.as_ref()) {
        // One more than is shown tells whether there is a next page.
        let wanted = (max + 1 - known.len()).min(store.limits().batch).max(1);
        let found = store.queues(from, wanted).await?;
        let is_last = found.len() < wanted || found.last().is_some_and(|last| is_past(&last.name));
        at = found.last().map(|last| last.name.clone());
        known.extend(found.into_iter().filter(|queue| is_shown(&queue.name)));
        if known.len() > max {
            known.truncate(max);
            return Ok((known, true));
        }
        if is_last {
            break;
        }
    }
    Ok((known, false))
}
