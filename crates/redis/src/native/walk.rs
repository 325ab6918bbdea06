//! Walks through the leased messages of a queue, by (due, id).
//!
//! Leases are ordered by their deadlines, and no key in Redis orders them by (due, id): another index would cost each
//! take and each ack. So the first page of a walk reads all leases, in short scripts, and this process remembers
//! their places: each later page costs what it holds. Messages are read again for their page, and those that are not
//! leased any more, or have another place by now, are skipped.
//!
//! A caller who continues from where a page of this process ended uses the remembered places, once and within ten
//! seconds; every other call reads all leases again. So a message that does not change during a walk is seen once,
//! and one that was leased after the walk began may be missing.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use dwell_model::{Cursor, MessageId, QueueName, StateKind};
use dwell_store::{Page, Target};

use super::Inner;
use super::inspect::{Listed, MergedPage, fitting};
use super::layout::{Partition, id_bytes};
use super::message::{id, instant};
use super::pack::Fields;
use super::partition::{NoAnswer, unreadable};
use super::script_call::locked;
use super::scripts::Script;

/// The maximum number of leases that one call reads; fewer where their records have to be read.
const LEASES: usize = 256;
/// If none of a page's messages is leased any more, this many are read per step; after `STEPS` steps the page is
/// empty, and the next one continues.
const GONE: usize = 64;
const STEPS: usize = 16;
/// How long a caller may take to ask for the next page, in ms.
const KEPT_MS: u64 = 10_000;
/// The maximum number of remembered messages, over all walks.
const REMEMBERED: usize = 1_000_000;
/// The maximum number of places at which walks through one queue may have paused.
const PAUSED: usize = 1_000;

/// The place of a leased message, and the length of its body.
type LeasedPosition = (Cursor, u32);

/// The walks that callers of this process may continue.
#[derive(Debug, Default)]
pub(super) struct LeasedWalks(HashMap<QueueName, LeasedWalk>);

/// The leased messages of a queue, as of the begin of a walk.
#[derive(Debug)]
struct LeasedWalk {
    /// In order.
    places: Arc<[LeasedPosition]>,
    /// The ends of pages whose next page was not asked for yet.
    paused: BTreeSet<Cursor>,
    /// When the reading began.
    began_ms: u64,
    used_ms: u64,
}

impl LeasedWalks {
    /// The remembered places for a caller who continues from where a page ended.
    fn go_on(&mut self, queue: &QueueName, after: &Cursor, now_ms: u64) -> Option<Arc<[LeasedPosition]>> {
        self.forget(now_ms);
        let walk = self.0.get_mut(queue)?;
        walk.used_ms = now_ms;
        // Another caller that continues from there may have begun later than what is remembered.
        walk.paused.remove(after).then(|| Arc::clone(&walk.places))
    }

    /// What was just read is also valid for walks that began before; and what another walk has begun to read since,
    /// for this one.
    fn begin(&mut self, queue: &QueueName, places: Arc<[LeasedPosition]>, began_ms: u64, now_ms: u64) {
        self.forget(now_ms);
        if self.0.get(queue).is_some_and(|walk| walk.began_ms > began_ms) {
            return;
        }
        let before = self.0.remove(queue).map(|walk| walk.paused);
        let others: usize = self.0.values().map(|walk| walk.places.len()).sum();
        if places.len() + others <= REMEMBERED {
            let walk = LeasedWalk { places, paused: before.unwrap_or_default(), began_ms, used_ms: now_ms };
            self.0.insert(queue.clone(), walk);
        }
    }

    /// A page ended here.
    fn pause(&mut self, queue: &QueueName, at: Cursor) {
        if let Some(walk) = self.0.get_mut(queue) {
            if walk.paused.len() >= PAUSED {
                walk.paused.clear();
            }
            walk.paused.insert(at);
        }
    }

    /// Drops the walks that were not continued for long.
    fn forget(&mut self, now_ms: u64) {
        self.0.retain(|_, walk| now_ms.saturating_sub(walk.used_ms) < KEPT_MS);
    }
}

impl Inner {
    /// A page of the leased messages of a queue, and whether the queue is empty.
    pub(super) async fn list_leased(
        &self,
        queue: &QueueName,
        partitions: u16,
        after: Option<Cursor>,
        max: usize,
    ) -> std::result::Result<(Page, bool), NoAnswer> {
        let known = after.and_then(|after| locked(&self.walks).go_on(queue, &after, self.wire.mono_ms()));
        let (places, mut bare) = match known {
            Some(places) => (places, false),
            None => {
                let began_ms = self.wire.mono_ms();
                let (places, bare) = self.places_of_leased(queue, partitions).await?;
                locked(&self.walks).begin(queue, Arc::clone(&places), began_ms, self.wire.mono_ms());
                (places, bare)
            }
        };
        let begin = places.partition_point(|(place, _)| Some(*place) <= after);
        let (mut left, mut page) =
            (&places[begin..], Page { messages: Vec::new(), unread: Vec::new(), next: None });
        // Messages that are no longer leased leave a page empty, and its reader would come again for nothing.
        let mut steps = 0;
        while page.messages.is_empty()
            && page.unread.is_empty()
            && !left.is_empty()
            && max > 0
            && steps < STEPS
        {
            let most = if steps == 0 { max } else { max.max(GONE) };
            let fits = fitting(left.iter().map(|(_, length)| *length as usize), most);
            steps += 1;
            let (some, behind) = left.split_at(fits);
            left = behind;
            let targets: Vec<_> = some.iter().map(|(place, _)| Target::Id(place.id)).collect();
            let (found, has_nothing) = self.find(queue, partitions, &targets, false).await?;
            bare = has_nothing;
            let found = found.into_iter().zip(some).filter_map(|(message, (place, _))| match message? {
                Ok(message) => {
                    let is_here = message.standing.state.kind() == StateKind::Leased
                        && message.standing.due == place.due;
                    is_here.then(|| Listed::from(message))
                }
                Err(error) => Some(Listed { at: *place, message: Some(Err(error)) }),
            });
            let mut merged = MergedPage::new(max);
            merged.add(found.collect());
            let next = some.last().map(|(place, _)| *place).filter(|_| !left.is_empty());
            merged.more |= !left.is_empty();
            page = merged.into_page();
            page.next = page.next.or(next);
        }
        if let Some(next) = page.next {
            locked(&self.walks).pause(queue, next);
        }
        Ok((page, bare))
    }

    /// The places of all leased messages of a queue, and whether the queue is empty.
    async fn places_of_leased(
        &self,
        queue: &QueueName,
        partitions: u16,
    ) -> std::result::Result<(Arc<[LeasedPosition]>, bool), NoAnswer> {
        let (mut places, mut bare) = (Vec::new(), true);
        for at in Partition::all(queue, partitions) {
            let mut from: Option<(i64, MessageId)> = None;
            loop {
                let arguments = Fields::new()
                    .with("state", 2_u32)
                    .with("max", LEASES)
                    .maybe("score", from.map(|(deadline, _)| deadline))
                    .maybe("after", from.map(|(_, id)| id_bytes(id).to_vec()).as_deref());
                let answered = self.on(&at, partitions, Script::List, arguments).await?;
                bare &= answered.reply.get("bare").is_set();
                for reply in answered.reply.get("refs").items() {
                    let place = || Some((reply.at(0).int()?, id(reply.at(1))?, instant(reply.at(2))?));
                    let (deadline, id, due) = place().ok_or_else(|| unreadable(queue))?;
                    from = Some((deadline, id));
                    let length = reply.at(3).uint().and_then(|length| u32::try_from(length).ok());
                    places.push((Cursor { due, id }, length.ok_or_else(|| unreadable(queue))?));
                }
                if !answered.reply.get("more_left").is_set() {
                    break;
                }
            }
        }
        places.sort_unstable();
        // A message whose lease was extended meanwhile was met twice.
        places.dedup_by_key(|(place, _)| *place);
        Ok((places.into(), bare))
    }

    /// Drops the walks that were not continued for long.
    pub(super) fn forget_walks(&self) {
        locked(&self.walks).forget(self.wire.mono_ms());
    }
}

#[cfg(test)]
mod tests {
    use dwell_model::Timestamp;

    use super::super::layout::{id_of, id_put_with};
    use super::*;

    fn place(number: u64) -> Cursor {
        let due = Timestamp::from_ms(number as i64).unwrap();
        Cursor { due, id: id_of(&id_put_with(due, 0, number)).unwrap() }
    }

    fn places(numbers: impl Iterator<Item = u64>) -> Arc<[LeasedPosition]> {
        numbers.map(|number| (place(number), 1)).collect()
    }

    #[test]
    fn who_comes_from_where_a_page_ended_goes_on_once_and_in_time() {
        let (mut walks, queue) = (LeasedWalks::default(), QueueName::new("orders").unwrap());
        assert!(walks.go_on(&queue, &place(2), 0).is_none());
        walks.begin(&queue, places(1..9), 0, 0);
        assert!(walks.go_on(&queue, &place(2), 0).is_none(), "no page ended there");
        walks.pause(&queue, place(2));
        walks.pause(&queue, place(4));
        assert_eq!(walks.go_on(&queue, &place(2), 5).unwrap().len(), 8);
        assert!(walks.go_on(&queue, &place(2), 5).is_none(), "it may be another walk that came as far");
        // Another walk begins, and the one that paused before sees no less than there was.
        walks.begin(&queue, places(1..20), 6, 6);
        // A walk that began before that and has read for longer does not replace it.
        walks.begin(&queue, places(1..3), 5, 7);
        assert_eq!(walks.go_on(&queue, &place(4), 7).unwrap().len(), 19);
        walks.pause(&queue, place(6));
        assert!(walks.go_on(&queue, &place(6), 7 + KEPT_MS).is_none(), "it is too long ago");
        assert!(walks.0.is_empty());
    }

    #[test]
    fn what_is_remembered_has_a_bound() {
        let (mut walks, name) = (LeasedWalks::default(), |text| QueueName::new(text).unwrap());
        walks.begin(&name("a"), places(1..10), 0, 0);
        walks.begin(&name("b"), places(1..REMEMBERED as u64), 0, 0);
        assert_eq!(walks.0.keys().collect::<Vec<_>>(), [&name("a")]);
        for number in 0..=PAUSED as u64 {
            walks.pause(&name("a"), place(number));
        }
        assert!(walks.0[&name("a")].paused.len() <= PAUSED);
    }
}
