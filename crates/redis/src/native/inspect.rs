//! Reading: messages, pages of them, queues.

use std::collections::{BTreeMap, BTreeSet};

use dwell_model::{Cursor, Message, MessageId, Number, OwnSettings, QueueName, StateKind, Timestamp};
use dwell_store::{Error, Page, QueueStats, Result, StateCounts, Target};
use futures_util::future::{join_all, try_join_all};

use super::Inner;
use super::change::{named, place};
use super::layout::{Partition, block_of, field_of, id_bytes};
use super::message::{id, instant, shown};
use super::pack::{Fields, Reply};
use super::partition::{BODIES, Fault, foreign_item, spreading, unreadable};
use super::scripts::Script;
use super::wire::locked;

/// How many messages one call reads.
const CHUNK: usize = 64;
/// How many names one call to the directory brings.
const NAMES: usize = 256;
/// How many blocks of numbers one call looks up: each may be used by 256 partitions.
const BLOCKS: usize = 16;

/// What the partitions of a queue say of it together; of none: nothing.
pub(super) struct Told {
    pub(super) bare: bool,
    pub(super) counts: StateCounts,
    pub(super) next_due: Option<Timestamp>,
    pub(super) own: OwnSettings,
    pub(super) waiting: u64,
    /// The server's clock.
    pub(super) now: Timestamp,
}

impl Default for Told {
    fn default() -> Told {
        Told {
            bare: true,
            counts: StateCounts::default(),
            next_due: None,
            own: OwnSettings::default(),
            waiting: 0,
            now: Timestamp::MIN,
        }
    }
}

impl Inner {
    /// See [`Store::get`](dwell_store::Store::get).
    pub(super) async fn get(&self, queue: &QueueName, targets: Vec<Target>) -> Vec<Result<Message>> {
        let found = spreading!(self, queue, |spread| self.find(queue, spread, &targets).await);
        let (found, bare) = match found {
            Ok(found) => found,
            Err(error) => return vec![Err(error); targets.len()],
        };
        let unknown = bare && self.waiters.count(queue) == 0;
        let missing = || match unknown {
            true => Error::UnknownQueue { queue: queue.clone() },
            false => Error::MessageNotFound { queue: queue.clone() },
        };
        found.into_iter().map(|message| message.unwrap_or_else(|| Err(missing()))).collect()
    }

    pub(super) async fn find(
        &self,
        queue: &QueueName,
        spread: u16,
        targets: &[Target],
    ) -> std::result::Result<(Vec<Option<Result<Message>>>, bool), Fault> {
        let mut groups: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        for (index, target) in targets.iter().enumerate() {
            let part = Some(place(target, spread)).filter(|part| *part < spread).unwrap_or(0);
            groups.entry(part).or_default().push(index);
        }
        let mut found = vec![None; targets.len()];
        let mut bare = true;
        for (part, indexes) in groups {
            let at = Partition::new(queue, part);
            let mut left = &indexes[..];
            while !left.is_empty() {
                let chunk = &left[..left.len().min(CHUNK)];
                let items: Vec<_> = chunk.iter().map(|index| named(&targets[*index])).collect();
                let arguments = Fields::new().with("items", items).with("bytes", BODIES);
                let answered = self.on(&at, spread, Script::Get, arguments).await?;
                bare &= answered.reply.get("bare").is_set();
                // The first one is answered whatever its size.
                let upto = answered.reply.get("upto").uint().map_or(chunk.len(), |upto| upto.max(1) as usize);
                let (chunk, behind) = left.split_at(upto.min(chunk.len()));
                left = behind;
                for (reply, index) in answered.reply.get("items").items().iter().zip(chunk) {
                    if reply.is_set() {
                        let read = || shown(queue, reply, answered.now).map(|shown| shown.message);
                        found[*index] = Some(foreign_item(reply).map_or_else(read, Err));
                    }
                }
            }
        }
        if bare && spread > 1 && found.iter().any(Option::is_none) {
            bare = self.tell(queue, spread).await?.bare;
        }
        Ok((found, bare))
    }

    /// See [`Store::locate`](dwell_store::Store::locate).
    pub(super) async fn locate(&self, numbers: &[Number]) -> Result<Vec<Option<(QueueName, MessageId)>>> {
        let blocks: BTreeSet<u64> = numbers.iter().map(|number| block_of(number.get())).collect();
        let blocks: Vec<u64> = blocks.into_iter().collect();
        let mut found = BTreeMap::new();
        for chunk in blocks.chunks(BLOCKS) {
            let reply =
                self.wire.directory(Script::Blocks, Fields::new().with("blocks", chunk.to_vec())).await?;
            for (block, parts) in chunk.iter().zip(reply.get("parts").items()) {
                let of_block = numbers.iter().copied().filter(|number| block_of(number.get()) == *block);
                let of_block: Vec<_> = of_block.collect();
                for entry in parts.items() {
                    let Some(at) = entry.text().and_then(Partition::of_entry) else { continue };
                    for some in of_block.chunks(CHUNK) {
                        for (number, id) in self.locate_in(&at, some).await? {
                            found.insert(number, (at.queue.clone(), id));
                        }
                    }
                }
            }
        }
        Ok(numbers.iter().map(|number| found.get(number).cloned()).collect())
    }

    /// Those of some numbers that a partition has.
    async fn locate_in(&self, at: &Partition, numbers: &[Number]) -> Result<Vec<(Number, MessageId)>> {
        let named = |number: &Number| Fields::new().with("n", &field_of(number.get())[..]);
        let items: Vec<_> = numbers.iter().map(named).collect();
        let arguments = Fields::new().with("items", items).flag("brief", true);
        let arguments = arguments.with("shard", u32::from(at.index));
        let answered = self.ask(at, Script::Get, arguments).await.map_err(|fault| match fault {
            Fault::Failed(error) => error,
            Fault::Spread => unreadable(&at.queue),
        })?;
        let replies = answered.reply.get("items").items();
        Ok(numbers
            .iter()
            .zip(replies)
            .filter_map(|(number, reply)| Some((*number, id(reply.at(0))?)))
            .collect())
    }

    /// See [`Store::list`](dwell_store::Store::list).
    pub(super) async fn list(
        &self,
        queue: &QueueName,
        state: StateKind,
        after: Option<Cursor>,
        max: usize,
    ) -> Result<Page> {
        let max = max.min(self.limits.batch);
        let (page, bare) = spreading!(self, queue, |spread| match state {
            StateKind::Leased => self.list_leased(queue, spread, after, max).await,
            _ => self.list_kept(queue, spread, state, after, max).await,
        })?;
        if bare && self.waiters.count(queue) == 0 {
            return Err(Error::UnknownQueue { queue: queue.clone() });
        }
        Ok(if max == 0 { Page { messages: Vec::new(), next: after } } else { page })
    }

    async fn list_kept(
        &self,
        queue: &QueueName,
        spread: u16,
        state: StateKind,
        after: Option<Cursor>,
        max: usize,
    ) -> std::result::Result<(Page, bool), Fault> {
        let code: u32 = match state {
            StateKind::Scheduled => 0,
            StateKind::Ready => 1,
            StateKind::Leased => 2,
            StateKind::Dead => 3,
        };
        let asked = async |at: Partition| {
            // A page of a partition, in parts that no script takes long over.
            let (mut messages, mut after, mut more, mut bare, mut bytes) = (Vec::new(), after, true, true, 0);
            while more && messages.len() < max && bytes < Page::MAX_BYTES {
                let arguments = Fields::new()
                    .with("state", code)
                    .with("max", CHUNK.min(max - messages.len()))
                    .with("bytes", BODIES.min(Page::MAX_BYTES - bytes))
                    .maybe("due", after.map(|cursor| cursor.due.as_ms()))
                    .maybe("id", after.map(|cursor| id_bytes(cursor.id).to_vec()).as_deref());
                let answered = self.on(&at, spread, Script::List, arguments).await?;
                bare = answered.reply.get("bare").is_set();
                more = answered.reply.get("more_left").is_set();
                for item in answered.reply.get("items").items() {
                    let message = shown(queue, item, answered.now)?.message;
                    bytes += message.body.len();
                    after = Some(Cursor { due: message.standing.due, id: message.id });
                    messages.push(message);
                }
            }
            if max == 0 {
                let stats = self.on(&at, spread, Script::Stats, Fields::new()).await?;
                bare = stats.reply.get("bare").is_set();
            }
            Ok::<_, Fault>((messages, more, bare))
        };
        let parts = {
            let asked: Vec<_> = Partition::all(queue, spread).into_iter().map(asked).collect();
            try_join_all(asked).await?
        };
        let bare = parts.iter().all(|(_, _, bare)| *bare);
        let more = parts.iter().any(|(_, more, _)| *more);
        let messages = parts.into_iter().flat_map(|(messages, _, _)| messages).collect();
        Ok((cut(messages, more, max), bare))
    }

    /// See [`Store::stats`](dwell_store::Store::stats).
    pub(super) async fn stats(&self, queue: &QueueName) -> Result<QueueStats> {
        let stats = self.stats_within(queue, Patience::Usual).await?;
        self.note_used(queue);
        Ok(stats)
    }

    async fn stats_within(&self, queue: &QueueName, patience: Patience) -> Result<QueueStats> {
        let told = spreading!(self, queue, |spread| self.tell_within(queue, spread, patience).await)?;
        let waiting = self.waiters.count(queue);
        if told.bare && waiting == 0 {
            return Err(Error::UnknownQueue { queue: queue.clone() });
        }
        Ok(self.stats_of(queue, told))
    }

    pub(super) fn stats_of(&self, queue: &QueueName, told: Told) -> QueueStats {
        QueueStats {
            name: queue.clone(),
            counts: told.counts,
            waiting: self.waiters.count(queue) + told.waiting,
            next_due: told.next_due,
            settings: told.own.over(&self.limits.defaults),
            own: told.own,
        }
    }

    pub(super) async fn tell(&self, queue: &QueueName, spread: u16) -> std::result::Result<Told, Fault> {
        self.tell_within(queue, spread, Patience::Usual).await
    }

    async fn tell_within(
        &self,
        queue: &QueueName,
        spread: u16,
        patience: Patience,
    ) -> std::result::Result<Told, Fault> {
        let parts = Partition::all(queue, spread);
        let asked = parts.iter().map(|at| {
            let arguments = Fields::new().with("process", &self.wire.process[..]);
            self.on_within(at, spread, Script::Stats, arguments, patience)
        });
        let mut told = Told::default();
        let mut versions = Vec::new();
        for (index, answered) in try_join_all(asked.collect::<Vec<_>>()).await?.into_iter().enumerate() {
            let reply = answered.reply;
            let count = |name| reply.get(name).uint().unwrap_or(0);
            versions.push(count("version"));
            told.bare &= reply.get("bare").is_set();
            if reply.get("trash").is_set() {
                // Whoever has set it aside may have ended since.
                locked(&self.trash).insert(parts[index].clone());
            }
            told.counts.scheduled += count("scheduled");
            told.counts.ready += count("ready");
            told.counts.ready_urgent += count("urgent");
            told.counts.leased += count("leased");
            told.counts.dead += count("dead");
            told.waiting = told.waiting.max(count("waiting"));
            told.next_due = told.next_due.into_iter().chain(instant(reply.get("next"))).min();
            if index == 0 {
                let own = super::settings::read(reply.get("own"), answered.now, &self.limits.defaults);
                told.own = own.ok_or_else(|| unreadable(queue))?;
                told.now = answered.now;
            }
        }
        // A change of settings was broken off, or is under way: either way it is to be.
        if patience == Patience::Usual && versions.iter().any(|version| *version < versions[0]) {
            self.mend_settings(queue).await?;
        }
        Ok(told)
    }

    /// See [`Store::queues`](dwell_store::Store::queues). A queue under whose keys lies what is not ours is listed with
    /// nothing: asked alone, it says so.
    pub(super) async fn queues(&self, after: Option<QueueName>, max: usize) -> Result<Vec<QueueStats>> {
        let max = max.min(self.limits.batch);
        let mut listed = Vec::new();
        let mut after = after;
        while listed.len() < max {
            let page = self.survey(after.as_ref(), Patience::Usual).await?;
            for (queue, stats) in page.queues.into_iter().take(max - listed.len()) {
                listed.push(match stats {
                    Ok(stats) => stats,
                    Err(Error::ForeignData { .. }) => self.stats_of(&queue, Told::default()),
                    Err(error) => return Err(error),
                });
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        Ok(listed)
    }

    /// A page of the queues that have something, each asked by itself.
    pub(super) async fn survey(&self, after: Option<&QueueName>, patience: Patience) -> Result<Survey> {
        let arguments = Fields::new().maybe("after", after.map(|name| name.as_str())).with("max", NAMES);
        let reply = self.wire.directory_within(Script::Names, arguments, patience).await?;
        self.note_count(&reply);
        let names = reply.get("names").items().iter();
        let names: Vec<_> = names.filter_map(|name| QueueName::new(name.text()?).ok()).collect();
        // What is no name of a queue counts for where the page ends.
        let is_last = reply.get("names").items().len() < NAMES;
        let end = names.last().cloned();
        // Those that takes of this process wait on count as well, up to where this page ends.
        let within = |name: &&QueueName| Some(*name) > after && (is_last || Some(*name) <= end.as_ref());
        let mut all: BTreeSet<QueueName> = self.waiters.names().iter().filter(within).cloned().collect();
        all.extend(names);
        let asked = all.iter().map(|queue| self.stats_within(queue, patience));
        let answers = join_all(asked.collect::<Vec<_>>()).await;
        let mut queues = Vec::with_capacity(all.len());
        for (queue, stats) in all.into_iter().zip(answers) {
            match stats {
                Err(Error::UnknownQueue { .. }) => {
                    locked(&self.bare).insert(queue);
                }
                stats => queues.push((queue, stats)),
            }
        }
        Ok(Survey { queues, next: end.filter(|_| !is_last) })
    }
}

/// Some queues, and from where to go on.
pub(super) struct Survey {
    pub(super) queues: Vec<(QueueName, Result<QueueStats>)>,
    pub(super) next: Option<QueueName>,
}

/// How long a call is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    /// As the address says.
    Usual,
    /// Once: there are others to ask.
    Once,
}

/// The first `max` messages, by (due, id), of the pages of some partitions; `more` if any of them has more.
pub(super) fn cut(mut messages: Vec<Message>, more: bool, max: usize) -> Page {
    messages.sort_by_key(|message| (message.standing.due, message.id));
    let fits = fitting(messages.iter().map(|message| message.body.len()), max);
    let more = more || fits < messages.len();
    messages.truncate(fits);
    let last = messages.last().filter(|_| more);
    let next = last.map(|message| Cursor { due: message.standing.due, id: message.id });
    Page { messages, next }
}

/// How many bodies of these lengths a page of at most `max` holds: one, whatever its size.
pub(super) fn fitting(lengths: impl ExactSizeIterator<Item = usize>, max: usize) -> usize {
    let (mut bytes, all) = (0_usize, lengths.len());
    let fits = lengths.take(max).take_while(|length| {
        bytes = bytes.saturating_add(*length);
        bytes <= Page::MAX_BYTES
    });
    fits.count().max(1).min(all)
}

/// Whether a reply says that its partition has nothing.
pub(super) fn is_bare(reply: &Reply) -> bool {
    reply.get("bare").is_set()
}
