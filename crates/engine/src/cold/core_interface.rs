//! What the core asks of the cold messages: each call is answered from tables, and marks what it hands over.

use dwell_model::{Key, MessageId, Now, Number, QueueName, StateKind, Timestamp};
use dwell_store::core::{
    Cold, ColdCounts, ColdHead, ColdMessage, CopyAt, DeadProgress, DeadReader, DeadSearch, Died, Expired,
    Expiring, QueuePart,
};
use dwell_store::{Forecast, Result};

use super::section_order::SectionOrder;
use super::{ColdSet, FEWER, MIN_WINDOW, PER_SECTION, SectionRef};
use crate::journal::segment::BodyRef;
use crate::shard::overloaded;
use crate::table::SectionState;

impl Cold<BodyRef> for ColdSet {
    fn by_number(&mut self, number: Number) -> Result<Option<ColdMessage<BodyRef>>> {
        let found = self.home(number).and_then(|spot| self.hand_over_one(spot));
        self.tell(found)
    }

    fn by_id(
        &mut self,
        queue: &QueueName,
        id: MessageId,
        number: Number,
    ) -> Result<Option<ColdMessage<BodyRef>>> {
        let spot = match self.find_by_id(queue, id, number) {
            Ok(None) => self.home(number),
            found => found,
        };
        let found = spot.and_then(|spot| self.hand_over_one(spot));
        self.tell(found)
    }

    fn by_key(&mut self, queue: &QueueName, key: &Key) -> Result<Option<ColdMessage<BodyRef>>> {
        let found = self.key_home(queue, key).and_then(|spot| self.hand_over_one(spot));
        self.tell(found)
    }

    fn due(
        &mut self,
        queue: &QueueName,
        ready_until: Timestamp,
        into: &mut Vec<ColdMessage<BodyRef>>,
    ) -> Result<()> {
        if self.is_full && self.by_queue.contains_key(queue) {
            return Err(self.refuse_for_room());
        }
        let has_enough = self.has_handed_enough();
        let Some(queued) = self.by_queue.get_mut(queue) else { return Ok(()) };
        let most = self.window.min(MIN_WINDOW.max(PER_SECTION * queued.sections.len()));
        let usual = queued.window.min(most);
        queued.window = (2 * usual).min(most);
        let window = if has_enough { (usual / FEWER).max(1) } else { usual };
        if self.is_tight && self.again_ms.is_some() {
            self.prefetches.retain(|prefetch| prefetch.queue != *queue);
        } else {
            self.hand_over_read(queue, ready_until, window, into);
        }
        if !into.is_empty() {
            return Ok(());
        }
        let found = self.first_ready(queue, ready_until, window);
        if found.as_ref().is_ok_and(|found| self.is_too_tight_for(found, ready_until)) {
            return Err(self.refuse_for_room());
        }
        let found = found.map(|found| self.hand_over(found, into));
        self.tell(found)
    }

    fn head(&mut self, queue: &QueueName, ready_until: Timestamp) -> Result<ColdHead> {
        let found = self.next_ready(queue, ready_until);
        self.tell(found)
    }

    fn dead_by_key(
        &mut self,
        queue: &QueueName,
        key: &Key,
        after: Option<Died>,
        most: usize,
        search: &mut DeadSearch,
        into: &mut Vec<ColdMessage<BodyRef>>,
    ) -> Result<bool> {
        let is_all = self.search_dead_key(queue, key, after, most.max(1), search);
        if !self.tell(is_all)? {
            return Ok(false);
        }
        let Some((_, number)) = search.youngest.filter(|(died, _)| Some(*died) > after) else {
            return Ok(true);
        };
        let spot = self.found_dead(number);
        let Some(spot) = self.tell(spot)? else {
            // Another call has brought it back, or removed it: the youngest is one of the others.
            *search = DeadSearch { looked_at: search.looked_at, ..DeadSearch::default() };
            return Ok(false);
        };
        let found = self.hand_over_one(Some(spot));
        into.extend(self.tell(found)?);
        Ok(true)
    }

    fn expire(
        &mut self,
        now: Now,
        most: usize,
        expiring: &dyn Fn(&QueueName) -> Expiring,
        into: &mut Expired<BodyRef>,
    ) -> bool {
        self.expire_some(now, most, expiring, into)
    }

    fn is_behind_in(&self, queue: &QueueName, now: Now) -> bool {
        self.has_fresh_in(queue, now)
    }

    fn expire_unread(
        &mut self,
        queue: &QueueName,
        now: Now,
        expiring: &dyn Fn(&QueueName) -> Expiring,
        into: &mut Expired<BodyRef>,
    ) -> Result<()> {
        self.expire_aside(queue, now, expiring, into)
    }

    fn page(
        &mut self,
        queue: &QueueName,
        state: StateKind,
        ready_until: Timestamp,
        after: Option<(Timestamp, MessageId)>,
        count: usize,
        into: &mut Vec<ColdMessage<BodyRef>>,
    ) -> Result<()> {
        let found = self.first_after(queue, state, ready_until, after, count);
        if found.as_ref().is_ok_and(|found| self.is_too_tight_for(found, ready_until)) {
            return Err(overloaded());
        }
        let found = found.map(|found| self.hand_over(found, into));
        self.tell(found)
    }

    fn dead(
        &mut self,
        queue: &QueueName,
        reader: DeadReader,
        after: Option<Died>,
        anew: bool,
        most: usize,
        into: &mut Vec<ColdMessage<BodyRef>>,
    ) -> Result<DeadProgress> {
        if anew {
            self.end_stale_windows(queue, reader);
        }
        let handed_over = self.hand_over_dead(queue, reader, after, most, into);
        self.tell(handed_over)
    }

    fn retain_until(&mut self, until: Option<Died>) {
        self.retain_until = until;
    }

    fn passed_over(&self, queue: &QueueName) -> Option<u64> {
        self.passed_over.get(queue).copied()
    }

    fn try_passed_over(&mut self, queue: &QueueName) {
        self.forget_passed_over(queue);
    }

    fn counts(&mut self, queue: &QueueName, ready_until: Timestamp) -> Result<ColdCounts> {
        let found = self.count(queue, ready_until);
        self.tell(found)
    }

    fn forecast(
        &mut self,
        queue: &QueueName,
        ready_until: Timestamp,
        edges: &[Timestamp],
    ) -> Result<Forecast> {
        let found = self.due_by(queue, ready_until, edges);
        self.tell(found)
    }

    fn forget(&mut self, queue: &QueueName, which: QueuePart) {
        self.prefetches.retain(|prefetch| prefetch.queue != *queue);
        self.bodies.forget(queue);
        self.walks.retain(|walk| which == QueuePart::Pending || !walk.is_of(queue));
        if which == QueuePart::Dead {
            self.forget_passed_over(queue);
        }
        let Some(queued) = self.by_queue.get_mut(queue) else { return };
        if which == QueuePart::Pending {
            // None of its sections has any entry left: without this, the next take would find that out section by
            // section.
            queued.order = SectionOrder::default();
        }
        for at in &queued.sections {
            let file = self.files.get_mut(&at.file).expect("sections are those of files");
            let is_dead = file.file.sections()[at.section as usize].state == SectionState::Dead;
            if is_dead == (which == QueuePart::Dead) {
                file.clear_section(at.section as usize);
                file.sections[at.section as usize].bound = None;
            } else if which == QueuePart::Dead {
                file.clear_over(at.section as usize);
            }
        }
    }

    fn promote(&mut self, wall: Timestamp) {
        self.end_prefetches();
        self.promoted = self.promoted.max(wall);
        self.promoted_to = self.promoted_to.max(wall);
        for file in self.files.values_mut() {
            file.ready_until = file.ready_until.max(wall);
        }
        self.look_again_at_left();
    }

    fn put_back(&mut self, copy: CopyAt, died: Option<Died>) {
        self.end_prefetches();
        if let Some(died) = died {
            self.dead_is_back(copy, died);
        }
        let file = self.files.get_mut(&copy.file.get()).expect("a copy lies in a file");
        let section = file.file.section_of(copy.ordinal);
        if died.is_some() && file.file.sections()[section].state != SectionState::Dead {
            file.be_over(copy.ordinal);
            return;
        }
        let section = file.put_back(copy.ordinal) as u32;
        self.lower(SectionRef { file: copy.file.get(), section }, copy.ordinal);
    }

    fn promoted_to(&self) -> Timestamp {
        self.promoted_to
    }
}
