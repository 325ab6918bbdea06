//! Walks through the leased messages of a queue, by (due, id).
//!
//! Leases lie by their deadlines, and nothing in Redis lies by (due, id): another index would cost each take and each ack. So the
//! first page of a walk looks at all that are leased, in short scripts, and this process remembers where they stand: each page
//! behind it costs what it holds. Messages are read anew for their page, and those that are not leased any more, or that stand
//! elsewhere by now, are passed over.
//!
//! Who goes on from where a page of this process ended goes on by what is remembered, once and within ten seconds; everybody else
//! makes all be looked at. So what does not change during a walk is seen, once, and what is leased since the walk began may be
//! missing.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use dwell_model::{Cursor, MessageId, QueueName, StateKind};
use dwell_store::{Page, Target};

use super::Inner;
use super::inspect::{Listed, Merged, fitting};
use super::layout::{Partition, id_bytes};
use super::message::{id, instant};
use super::pack::Fields;
use super::partition::{Fault, unreadable};
use super::scripts::Script;
use super::wire::locked;

/// How many leases one call looks at; fewer where their records have to be read.
const LEASES: usize = 256;
/// Where none of those is leased any more that a page would hold, so many are looked at in one step; after so many steps the page is
/// empty, and the next one goes on.
const GONE: usize = 64;
const STEPS: usize = 16;
/// For so long somebody may take to come for the next page.
const KEPT_MS: u64 = 10_000;
/// How many messages are remembered, in all walks together.
const REMEMBERED: usize = 1_000_000;
/// In how many places walks through one queue may have paused.
const PAUSED: usize = 1_000;

/// Where a leased message stands, and how long its body is.
type Place = (Cursor, u32);

/// The walks that callers of this process may go on with.
#[derive(Debug, Default)]
pub(super) struct Walks(HashMap<QueueName, Walk>);

/// What is leased in a queue, as of when somebody began a walk.
#[derive(Debug)]
struct Walk {
    /// In their order.
    places: Arc<[Place]>,
    /// Where pages have ended that nobody has come for since.
    paused: BTreeSet<Cursor>,
    /// When it was begun to look.
    began_ms: u64,
    used_ms: u64,
}

impl Walks {
    /// What is remembered for somebody who comes from where a page ended.
    fn go_on(&mut self, queue: &QueueName, after: &Cursor, now_ms: u64) -> Option<Arc<[Place]>> {
        self.forget(now_ms);
        let walk = self.0.get_mut(queue)?;
        walk.used_ms = now_ms;
        // Another one that comes from there may have begun later than what is remembered.
        walk.paused.remove(after).then(|| Arc::clone(&walk.places))
    }

    /// What was looked at just now is as good for those who began before; and what somebody else has begun to look at since, for
    /// these.
    fn begin(&mut self, queue: &QueueName, places: Arc<[Place]>, began_ms: u64, now_ms: u64) {
        self.forget(now_ms);
        if self.0.get(queue).is_some_and(|walk| walk.began_ms > began_ms) {
            return;
        }
        let before = self.0.remove(queue).map(|walk| walk.paused);
        let others: usize = self.0.values().map(|walk| walk.places.len()).sum();
        if places.len() + others <= REMEMBERED {
            let walk = Walk { places, paused: before.unwrap_or_default(), began_ms, used_ms: now_ms };
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

    /// Forgets those that nobody has gone on with for long.
    fn forget(&mut self, now_ms: u64) {
        self.0.retain(|_, walk| now_ms.saturating_sub(walk.used_ms) < KEPT_MS);
    }
}

impl Inner {
    /// A page of the leased messages of a queue, and whether it has nothing.
    pub(super) async fn list_leased(
        &self,
        queue: &QueueName,
        spread: u16,
        after: Option<Cursor>,
        max: usize,
    ) -> std::result::Result<(Page, bool), Fault> {
        let known = after.and_then(|after| locked(&self.walks).go_on(queue, &after, self.wire.mono_ms()));
        let (places, mut bare) = match known {
            Some(places) => (places, false),
            None => {
                let began_ms = self.wire.mono_ms();
                let (places, bare) = self.places_of_leased(queue, spread).await?;
                locked(&self.walks).begin(queue, Arc::clone(&places), began_ms, self.wire.mono_ms());
                (places, bare)
            }
        };
        let begin = places.partition_point(|(place, _)| Some(*place) <= after);
        let (mut left, mut page) =
            (&places[begin..], Page { messages: Vec::new(), unread: Vec::new(), next: None });
        // Those that are leased no more leave a page empty, and whoever reads it would come again for nothing.
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
            let (found, has_nothing) = self.find(queue, spread, &targets, false).await?;
            bare = has_nothing;
            let found = found.into_iter().zip(some).filter_map(|(message, (place, _))| match message? {
                Ok(message) => {
                    let is_here = message.standing.state.kind() == StateKind::Leased
                        && message.standing.due == place.due;
                    is_here.then(|| Listed::from(message))
                }
                Err(error) => Some(Listed { at: *place, message: Some(Err(error)) }),
            });
            let mut merged = Merged::new(max);
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

    /// Where all leased messages of a queue stand, and whether it has nothing.
    async fn places_of_leased(
        &self,
        queue: &QueueName,
        spread: u16,
    ) -> std::result::Result<(Arc<[Place]>, bool), Fault> {
        let (mut places, mut bare) = (Vec::new(), true);
        for at in Partition::all(queue, spread) {
            let mut from: Option<(i64, MessageId)> = None;
            loop {
                let arguments = Fields::new()
                    .with("state", 2_u32)
                    .with("max", LEASES)
                    .maybe("score", from.map(|(deadline, _)| deadline))
                    .maybe("after", from.map(|(_, id)| id_bytes(id).to_vec()).as_deref());
                let answered = self.on(&at, spread, Script::List, arguments).await?;
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
        // One whose lease was extended meanwhile was met twice.
        places.dedup_by_key(|(place, _)| *place);
        Ok((places.into(), bare))
    }

    /// Forgets walks that nobody goes on with.
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

    fn places(numbers: impl Iterator<Item = u64>) -> Arc<[Place]> {
        numbers.map(|number| (place(number), 1)).collect()
    }

    #[test]
    fn who_comes_from_where_a_page_ended_goes_on_once_and_in_time() {
        let (mut walks, queue) = (Walks::default(), QueueName::new("orders").unwrap());
        assert!(walks.go_on(&queue, &place(2), 0).is_none());
        walks.begin(&queue, places(1..9), 0, 0);
        assert!(walks.go_on(&queue, &place(2), 0).is_none(), "no page ended there");
        walks.pause(&queue, place(2));
        walks.pause(&queue, place(4));
        assert_eq!(walks.go_on(&queue, &place(2), 5).unwrap().len(), 8);
        assert!(walks.go_on(&queue, &place(2), 5).is_none(), "it may be another walk that came as far");
        // Somebody else begins, and the one who paused before sees no less than there was.
        walks.begin(&queue, places(1..20), 6, 6);
        // Who began before that and has looked for longer does not know better.
        walks.begin(&queue, places(1..3), 5, 7);
        assert_eq!(walks.go_on(&queue, &place(4), 7).unwrap().len(), 19);
        walks.pause(&queue, place(6));
        assert!(walks.go_on(&queue, &place(6), 7 + KEPT_MS).is_none(), "it is too long ago");
        assert!(walks.0.is_empty());
    }

    #[test]
    fn what_is_remembered_has_a_bound() {
        let (mut walks, name) = (Walks::default(), |text| QueueName::new(text).unwrap());
        walks.begin(&name("a"), places(1..10), 0, 0);
        walks.begin(&name("b"), places(1..REMEMBERED as u64), 0, 0);
        assert_eq!(walks.0.keys().collect::<Vec<_>>(), [&name("a")]);
        for number in 0..=PAUSED as u64 {
            walks.pause(&name("a"), place(number));
        }
        assert!(walks.0[&name("a")].paused.len() <= PAUSED);
    }
}
