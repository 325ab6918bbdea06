//! Lists the queues that a caller may know of, in pages.
//!
//! Ground rules:
//! 1. No name is revealed that the caller may not know of: neither in the page, nor in the cursor of the next one.
//! 2. A page has the requested number of queues, or is the last one.
//! 3. Names between those that the caller may know of are skipped, not read: a page costs what it shows, and one call
//!    for each prefix among the caller's scopes.

use dwell_model::QueueName;
use dwell_store::{QueueStats, Result, Store};

use crate::security::{Caller, KnownQueues, just_before};

/// The first `max` after `after` whose names begin with `prefix`, and whether there are more.
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
    while let KnownQueues::Behind(from) = caller.known_behind(at.as_ref()) {
        // One more than is shown, to know whether there is a next page.
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
