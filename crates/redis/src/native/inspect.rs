//! Reading: messages, pages of them, queues.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use dwell_model::{Cursor, Message, MessageId, Number, OwnSettings, QueueName, StateKind, Timestamp};
use dwell_store::{Error, Page, QueueStats, Result, StateCounts, Target};
use futures_util::future::{join_all, try_join_all};
use futures_util::stream::{self, StreamExt as _};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::Inner;
use super::change::{named, place};
use super::layout::{Partition, block_of, field_of, id_bytes};
use super::message::{id, instant, place_of_record, shown};
use super::pack::{Fields, PackReply};
use super::partition::{BODIES, NoAnswer, foreign_item, unreadable, with_partitions};
use super::script_call::locked;
use super::scripts::Script;
use crate::AddressKind;

/// The maximum number of messages that one call reads.
const CHUNK: usize = 64;
/// The maximum number of names that one call to the directory returns.
pub(super) const NAMES: usize = 256;
/// The maximum number of number blocks that one call looks up: each may be used by 256 partitions.
const BLOCKS: usize = 16;

/// The maximum number of partitions that are searched for a number at a time.
const SIDE_BY_SIDE: usize = 16;

/// The maximum number of scripts that one call has under way, over all queues and their partitions.
const SCRIPTS: usize = 256;
/// How long a script without an answer delays the sending of others: its node may be away.
const UNANSWERED: Duration = Duration::from_millis(250);

/// How long a list, or a take over several queues, waits for one of them.
pub(super) const QUEUE: Duration = Duration::from_secs(2);
/// How long the directory has to answer, to show that a cluster serves, before the cluster itself is asked.
const DIRECTORY: Duration = Duration::from_millis(500);

/// Where messages with some numbers are, or why that is unknown.
type Located = Vec<(Number, Result<(QueueName, MessageId)>)>;

/// The combined reply of the partitions of a queue; the default where there are none.
pub(super) struct QueueView {
    pub(super) bare: bool,
    pub(super) counts: StateCounts,
    pub(super) next_due: Option<Timestamp>,
    pub(super) own: OwnSettings,
    pub(super) waiting: u64,
    /// The server's clock.
    pub(super) now: Timestamp,
}

impl Default for QueueView {
    fn default() -> QueueView {
        QueueView {
            bare: true,
            counts: StateCounts::default(),
            next_due: None,
            own: OwnSettings::default(),
            waiting: 0,
            now: Timestamp::MIN,
        }
    }
}

/// The limit on the scripts that a call over many queues or partitions has under way.
pub(super) struct ScriptLimit {
    room: Semaphore,
    scripts: u32,
}

impl ScriptLimit {
    pub(super) fn new() -> ScriptLimit {
        ScriptLimit::of(SCRIPTS as u32)
    }

    /// At most `scripts` at a time.
    pub(super) fn of(scripts: u32) -> ScriptLimit {
        ScriptLimit { room: Semaphore::new(scripts as usize), scripts }
    }

    /// Runs a call that needs `scripts` scripts when there is room for them.
    pub(super) async fn with<T>(&self, scripts: u16, call: impl Future<Output = T>) -> T {
        let scripts = u32::from(scripts).clamp(1, self.scripts);
        // The semaphore is never closed.
        let room = self.room.acquire_many(scripts).await;
        let mut call = std::pin::pin!(call);
        match timeout(UNANSWERED, &mut call).await {
            Ok(answer) => answer,
            Err(_) => {
                drop(room);
                call.await
            }
        }
    }
}

impl Inner {
    /// See [`Store::get`](dwell_store::Store::get).
    pub(super) async fn get(
        &self,
        queue: &QueueName,
        targets: Vec<Target>,
        dead: bool,
    ) -> Vec<Result<Message>> {
        let found =
            with_partitions!(self, queue, |partitions| self.find(queue, partitions, &targets, dead).await);
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
        partitions: u16,
        targets: &[Target],
        dead: bool,
    ) -> std::result::Result<(Vec<Option<Result<Message>>>, bool), NoAnswer> {
        let mut groups: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        for (index, target) in targets.iter().enumerate() {
            let part = Some(place(target, partitions)).filter(|part| *part < partitions).unwrap_or(0);
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
                let arguments = Fields::new().with("items", items).with("bytes", BODIES).flag("dead", dead);
                let answered = self.on(&at, partitions, Script::Get, arguments).await?;
                bare &= answered.reply.get("bare").is_set();
                // The first message is answered whatever its size.
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
        if bare && partitions > 1 && found.iter().any(Option::is_none) {
            bare = self.tell(queue, partitions).await?.bare;
        }
        Ok((found, bare))
    }

    /// See [`Store::locate`](dwell_store::Store::locate).
    pub(super) async fn locate(&self, numbers: &[Number]) -> Vec<Result<Option<(QueueName, MessageId)>>> {
        let mut of_blocks: BTreeMap<u64, BTreeSet<Number>> = BTreeMap::new();
        for number in numbers {
            of_blocks.entry(block_of(number.get())).or_default().insert(*number);
        }
        let end_ms = self.wire.mono_ms() + self.wire.link.address().retry_ms;
        let mut located = HashMap::new();
        let blocks: Vec<u64> = of_blocks.keys().copied().collect();
        for chunk in blocks.chunks(BLOCKS) {
            let asked = Fields::new().with("blocks", chunk.to_vec());
            let reply = match self.wire.directory(Script::Blocks, asked).await {
                Ok(reply) => reply,
                Err(error) => {
                    let unknown = numbers.iter().filter(|number| block_of(number.get()) >= chunk[0]);
                    located.extend(unknown.map(|number| (*number, Err(error.clone()))));
                    break;
                }
            };
            for (block, parts) in chunk.iter().zip(reply.get("parts").items()) {
                let parts = parts.items().iter();
                let parts = parts.filter_map(|entry| entry.text().and_then(Partition::of_entry)).collect();
                let numbers = of_blocks[block].iter().copied().collect();
                located.extend(self.locate_among(parts, numbers, end_ms).await);
            }
        }
        let place = |number: &Number| located.get(number).cloned().map_or(Ok(None), |place| place.map(Some));
        numbers.iter().map(place).collect()
    }

    /// Finds numbers of one block among the partitions that use it.
    ///
    /// A partition that cannot be asked does not affect the numbers that another one has; its error is the answer for
    /// those that none has, after it was retried while time is left.
    async fn locate_among(&self, mut parts: Vec<Partition>, numbers: Vec<Number>, end_ms: u64) -> Located {
        let (mut left, mut places, mut failed) = (numbers, Located::new(), None);
        for patience in [Retries::Once, Retries::Usual] {
            let is_last = patience == Retries::Usual || self.wire.mono_ms() >= end_ms;
            let numbers = left.clone();
            let asked = stream::iter(std::mem::take(&mut parts)).map(|at| {
                let numbers = &numbers;
                async move {
                    let mut found = Vec::new();
                    for some in numbers.chunks(CHUNK) {
                        match self.locate_in(&at, some, patience).await {
                            Ok(some) => found.extend(some),
                            Err(error) => return (at, found, Some(error)),
                        }
                    }
                    (at, found, None)
                }
            });
            let mut asked = std::pin::pin!(asked.buffer_unordered(SIDE_BY_SIDE));
            while !left.is_empty() {
                let left_ms =
                    (end_ms + self.wire.link.address().timeout_ms).saturating_sub(self.wire.mono_ms());
                let next = timeout(Duration::from_millis(left_ms), asked.next()).await;
                let (at, found, refused) = match next {
                    Ok(Some(one)) => one,
                    Ok(None) => break,
                    // A node that does not answer may have hundreds of them: they are not waited for one after the
                    // other.
                    Err(_) => {
                        parts.clear();
                        failed = Some(late("a partition that may have it"));
                        break;
                    }
                };
                for (number, id) in found {
                    left.retain(|other| *other != number);
                    places.push((number, id.map(|id| (at.queue.clone(), id))));
                }
                match refused {
                    Some(error) if error.is_retryable() && !is_last => parts.push(at),
                    Some(error) => failed = Some(error),
                    None => {}
                }
            }
            if left.is_empty() || parts.is_empty() {
                break;
            }
        }
        if let Some(error) = failed {
            places.extend(left.into_iter().map(|number| (number, Err(error.clone()))));
        }
        places
    }

    /// Those of some numbers that one partition has.
    async fn locate_in(
        &self,
        at: &Partition,
        numbers: &[Number],
        patience: Retries,
    ) -> Result<Vec<(Number, Result<MessageId>)>> {
        let named = |number: &Number| Fields::new().with("n", &field_of(number.get())[..]);
        let items: Vec<_> = numbers.iter().map(named).collect();
        let arguments = Fields::new().with("items", items).flag("brief", true);
        let arguments = arguments.with("shard", u32::from(at.index));
        let asked = self.ask_within(at, Script::Get, arguments, patience).await;
        let answered = asked.map_err(|fault| match fault {
            NoAnswer::Failed(error) => error,
            NoAnswer::Partitions => unreadable(&at.queue),
        })?;
        let replies = answered.reply.get("items").items();
        let located = numbers.iter().zip(replies).filter_map(|(number, reply)| {
            let refused = foreign_item(reply).map(Err);
            Some((*number, refused.or_else(|| id(reply.at(0)).map(Ok))?))
        });
        Ok(located.collect())
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
        let (page, bare) = with_partitions!(self, queue, |partitions| match state {
            StateKind::Leased => self.list_leased(queue, partitions, after, max).await,
            _ => self.list_kept(queue, partitions, state, after, max).await,
        })?;
        if bare && self.waiters.count(queue) == 0 {
            return Err(Error::UnknownQueue { queue: queue.clone() });
        }
        Ok(if max == 0 { Page { messages: Vec::new(), unread: Vec::new(), next: after } } else { page })
    }

    /// A page of messages in (due, id) order: the first ones of all partitions, merged.
    ///
    /// Each partition is asked for its share of the page, and again as long as what it has may belong there. What is
    /// read and does not fit is dropped at once, so a page costs the memory of a page, whatever the number of
    /// partitions.
    async fn list_kept(
        &self,
        queue: &QueueName,
        partitions: u16,
        state: StateKind,
        after: Option<Cursor>,
        max: usize,
    ) -> std::result::Result<(Page, bool), NoAnswer> {
        if max == 0 {
            let bare = self.tell(queue, partitions).await?.bare;
            return Ok((Page { messages: Vec::new(), unread: Vec::new(), next: None }, bare));
        }
        let code: u32 = match state {
            StateKind::Scheduled => 0,
            StateKind::Ready => 1,
            StateKind::Leased => 2,
            StateKind::Dead => 3,
        };
        let asked = async |at: Partition, after: Option<Cursor>, count: usize, bytes: usize| {
            let arguments = Fields::new()
                .with("state", code)
                .with("max", count)
                .with("bytes", bytes)
                .maybe("due", after.map(|cursor| cursor.due.as_ms()))
                .maybe("id", after.map(|cursor| id_bytes(cursor.id).to_vec()).as_deref());
            let answered = self.on(&at, partitions, Script::List, arguments).await?;
            let items = answered.reply.get("items").items().iter();
            let listed = items.map(|item| Listed::read(queue, item, answered.now));
            Ok::<_, NoAnswer>((at, listed.collect::<Result<Vec<_>>>()?, answered.reply))
        };
        let mut page = MergedPage::new(max);
        let mut bare = true;
        let mut left: Vec<_> = Partition::all(queue, partitions).into_iter().map(|at| (at, after)).collect();
        while !left.is_empty() {
            let count = page.room().div_ceil(left.len()).clamp(1, CHUNK);
            let bytes = (Page::MAX_BYTES / left.len()).min(BODIES);
            let parts =
                std::mem::take(&mut left).into_iter().map(|(at, after)| asked(at, after, count, bytes));
            let mut parts = std::pin::pin!(stream::iter(parts).buffer_unordered(SIDE_BY_SIDE));
            while let Some(part) = parts.next().await {
                let (at, listed, reply) = part?;
                bare &= is_bare(&reply);
                let last = listed.last().map(|listed| listed.at);
                page.add(listed);
                if let (Some(last), true) = (last, reply.get("more_left").is_set()) {
                    left.push((at, Some(last)));
                }
            }
            let (end, before) = (page.end(), left.len());
            left.retain(|(_, after)| end.is_none() || *after < end);
            page.more |= left.len() < before;
        }
        Ok((page.into_page(), bare))
    }

    /// See [`Store::stats`](dwell_store::Store::stats).
    pub(super) async fn stats(&self, queue: &QueueName) -> Result<QueueStats> {
        let stats = self.stats_within(queue, Retries::Usual).await?;
        self.note_used(queue);
        Ok(stats)
    }

    async fn stats_within(&self, queue: &QueueName, patience: Retries) -> Result<QueueStats> {
        let told =
            with_partitions!(self, queue, |partitions| self.tell_within(queue, partitions, patience).await)?;
        let waiting = self.waiters.count(queue);
        if told.bare && waiting == 0 {
            return Err(Error::UnknownQueue { queue: queue.clone() });
        }
        Ok(self.stats_of(queue, told))
    }

    pub(super) fn stats_of(&self, queue: &QueueName, told: QueueView) -> QueueStats {
        QueueStats {
            name: queue.clone(),
            counts: told.counts,
            waiting: self.waiters.count(queue) + told.waiting,
            next_due: told.next_due,
            settings: told.own.over(&self.limits.defaults),
            own: told.own,
            unread: None,
        }
    }

    pub(super) async fn tell(
        &self,
        queue: &QueueName,
        partitions: u16,
    ) -> std::result::Result<QueueView, NoAnswer> {
        self.tell_within(queue, partitions, Retries::Usual).await
    }

    async fn tell_within(
        &self,
        queue: &QueueName,
        partitions: u16,
        patience: Retries,
    ) -> std::result::Result<QueueView, NoAnswer> {
        let parts = Partition::all(queue, partitions);
        let pace = ScriptLimit::new();
        let asked = parts.iter().map(|at| {
            let arguments = Fields::new().with("process", &self.wire.process[..]);
            pace.with(1, self.on_within(at, partitions, Script::Stats, arguments, patience))
        });
        let mut told = QueueView::default();
        let mut versions = Vec::new();
        for (index, answered) in try_join_all(asked.collect::<Vec<_>>()).await?.into_iter().enumerate() {
            let reply = answered.reply;
            let count = |name| reply.get(name).uint().unwrap_or(0);
            versions.push(count("version"));
            told.bare &= reply.get("bare").is_set();
            if reply.get("trash").is_set() {
                // The process that has set it aside may have ended since.
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
        // A change of settings was interrupted, or is in progress: complete it in either case.
        if patience != Retries::Once && versions.iter().any(|version| *version < versions[0]) {
            self.mend_settings(queue).await?;
        }
        Ok(told)
    }

    /// See [`Store::queues`](dwell_store::Store::queues). A queue with foreign data under its keys, and one that
    /// cannot be asked, is listed with the reason.
    pub(super) async fn queues(&self, after: Option<QueueName>, max: usize) -> Result<Vec<QueueStats>> {
        let max = max.min(self.limits.batch);
        let mut listed = Vec::new();
        let (mut after, mut asked) = (after, 0);
        while listed.len() < max {
            // A caller that wants one queue asks for one name, and for more at a time where those are empty by now.
            asked = (max - listed.len()).max(asked * 2).min(NAMES);
            let page = self.survey(after.as_ref(), asked, Retries::Brief).await?;
            for (queue, stats) in page.queues.into_iter().take(max - listed.len()) {
                let unread = |error| {
                    let nothing = self.stats_of(&queue, QueueView::default());
                    QueueStats { unread: Some(error), ..nothing }
                };
                listed.push(stats.unwrap_or_else(unread));
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        Ok(listed)
    }

    /// See [`Store::ready`](dwell_store::Store::ready): one script. On a cluster the node with the directory may be
    /// away while the queues of other nodes are served: then the state of the cluster decides.
    pub(super) async fn ready(&self) -> Result<()> {
        let link = &self.wire.link;
        let asked =
            self.wire.directory_within(Script::Names, Fields::new().with("max", 0_u32), Retries::Once);
        if link.address().kind() != AddressKind::Cluster {
            return asked.await.map(drop);
        }
        let late = || late("the directory");
        let asked = timeout(DIRECTORY, asked).await.unwrap_or_else(|_| Err(late()));
        match asked.map(drop) {
            Err(error) if error.is_retryable() && !link.cluster_serves().await => Err(error),
            Err(error) if !error.is_retryable() => Err(error),
            _ => Ok(()),
        }
    }

    /// A page of the queues that are not empty, from at most `max` names; each queue is asked separately.
    pub(super) async fn survey(
        &self,
        after: Option<&QueueName>,
        max: usize,
        patience: Retries,
    ) -> Result<Survey> {
        let arguments = Fields::new().maybe("after", after.map(|name| name.as_str())).with("max", max);
        let of_directory = if patience == Retries::Brief { Retries::Usual } else { patience };
        let reply = self.wire.directory_within(Script::Names, arguments, of_directory).await?;
        self.note_count(&reply);
        let names = reply.get("names").items().iter();
        let names: Vec<_> = names.filter_map(|name| QueueName::new(name.text()?).ok()).collect();
        // A name that is not valid for a queue counts for where the page ends.
        let mut is_last = reply.get("names").items().len() < max;
        let mut end = names.last().cloned();
        // Queues that takes of this process wait on count as well, up to where this page ends.
        let within = |name: &QueueName| Some(name) > after && (is_last || Some(name) <= end.as_ref());
        let mut all = self.waiters.names(within);
        all.extend(names);
        if all.len() > max {
            let mut some = all.into_iter();
            all = some.by_ref().take(max).collect();
            (is_last, end) = (false, all.last().cloned());
        }
        let pace = ScriptLimit::new();
        let asked = all.iter().map(|queue| {
            let asked = async move {
                let asked = self.stats_within(queue, patience);
                match patience {
                    Retries::Brief => {
                        timeout(QUEUE, asked).await.unwrap_or_else(|_| Err(late(queue.as_str())))
                    }
                    Retries::Once | Retries::Usual => asked.await,
                }
            };
            pace.with(self.partitions(queue), asked)
        });
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

/// Some queues, and the cursor from which to continue.
pub(super) struct Survey {
    pub(super) queues: Vec<(QueueName, Result<QueueStats>)>,
    pub(super) next: Option<QueueName>,
}

/// How long a call is retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retries {
    /// For as long as the address says.
    Usual,
    /// Not at all: there are others to ask.
    Once,
    /// For a moment: a broken connection is made again, and a node that is away is not waited for.
    Brief,
}

/// An item of a list: a message, or why it cannot be read; or a dead message past its retention, which is not shown.
pub(super) struct Listed {
    pub(super) at: Cursor,
    pub(super) message: Option<Result<Message>>,
}

impl Listed {
    /// Reads an item of `list.lua`. One that cannot be read keeps its place; where the place cannot be read either,
    /// the list cannot continue behind it.
    fn read(queue: &QueueName, item: &PackReply, now: Timestamp) -> Result<Listed> {
        let place = || Some(Cursor { due: instant(item.at(2))?, id: id(item.at(3))? });
        if item.at(0).text() == Some("past") {
            return place().map(|at| Listed { at, message: None }).ok_or_else(|| unreadable(queue));
        }
        if let Some(error) = foreign_item(item) {
            return place().map(|at| Listed { at, message: Some(Err(error.clone())) }).ok_or(error);
        }
        match shown(queue, item, now) {
            Ok(shown) => Ok(Listed::from(shown.message)),
            Err(error) => {
                let at = place_of_record(item).ok_or_else(|| error.clone())?;
                Ok(Listed { at, message: Some(Err(error)) })
            }
        }
    }
}

impl From<Message> for Listed {
    fn from(message: Message) -> Listed {
        Listed { at: Cursor { due: message.standing.due, id: message.id }, message: Some(Ok(message)) }
    }
}

/// A page that is merged from the items of some partitions, or from what is found at remembered places.
pub(super) struct MergedPage {
    max: usize,
    listed: Vec<Listed>,
    /// The first item that did not fit: nothing from there on is on this page, though it may fit once others are
    /// gone.
    cut: Option<Cursor>,
    /// There are more items behind this page.
    pub(super) more: bool,
}

impl MergedPage {
    pub(super) fn new(max: usize) -> MergedPage {
        MergedPage { max, listed: Vec::new(), cut: None, more: false }
    }

    /// Adds the items of a partition, in any order. Those that do not fit are dropped: they come with a later page.
    pub(super) fn add(&mut self, mut listed: Vec<Listed>) {
        self.listed.append(&mut listed);
        self.listed.sort_by_key(|listed| listed.at);
        if let Some(cut) = self.cut {
            self.listed.truncate(self.listed.partition_point(|listed| listed.at < cut));
        }
        let lengths =
            self.listed.iter().map(|listed| listed.message.iter().flatten().map(|one| one.body.len()).sum());
        let fits = fitting(lengths, self.max);
        if let Some(first) = self.listed.get(fits) {
            (self.cut, self.more) = (Some(first.at), true);
            self.listed.truncate(fits);
        }
    }

    /// How many more items it may hold; a full page returns its whole size, for all of its items may be displaced.
    fn room(&self) -> usize {
        Some(self.max.saturating_sub(self.listed.len())).filter(|room| *room > 0).unwrap_or(self.max)
    }

    /// The cursor from which on nothing can be on this page, if that is known.
    fn end(&self) -> Option<Cursor> {
        let is_full = self.listed.len() >= self.max;
        let last = self.listed.last().map(|listed| listed.at).filter(|_| is_full);
        self.cut.into_iter().chain(last).min()
    }

    pub(super) fn into_page(self) -> Page {
        let next = self.listed.last().map(|listed| listed.at).filter(|_| self.more);
        let (mut messages, mut unread) = (Vec::with_capacity(self.listed.len()), Vec::new());
        for Listed { at, message } in self.listed {
            match message {
                Some(Ok(message)) => messages.push(message),
                Some(Err(error)) => unread.push((at.id, error)),
                None => {}
            }
        }
        Page { messages, unread, next }
    }
}

/// How many bodies of these lengths a page of at most `max` items holds: at least one, whatever its size.
pub(super) fn fitting(lengths: impl ExactSizeIterator<Item = usize>, max: usize) -> usize {
    let (mut bytes, all) = (0_usize, lengths.len());
    let fits = lengths.take(max).take_while(|length| {
        bytes = bytes.saturating_add(*length);
        bytes <= Page::MAX_BYTES
    });
    fits.count().max(1).min(all)
}

pub(super) fn late(what: &str) -> Error {
    Error::Unavailable { reason: format!("{what} has not answered in time").into() }
}

/// Whether a reply says that its partition is empty.
pub(super) fn is_bare(reply: &PackReply) -> bool {
    reply.get("bare").is_set()
}

#[cfg(test)]
mod tests {
    use super::super::layout::{id_of, id_put_with};
    use super::*;

    fn unread(number: u64) -> Listed {
        let due = Timestamp::from_ms(number as i64).unwrap();
        let id = id_of(&id_put_with(due, 0, number)).unwrap();
        Listed { at: Cursor { due, id }, message: Some(Err(Error::Closed)) }
    }

    fn message(number: u64, length: usize) -> Listed {
        use dwell_model::{Counts, Headers, Standing, State};
        let Listed { at, .. } = unread(number);
        let standing = Standing {
            state: State::Ready,
            due: at.due,
            priority: 1_024,
            attempts: 0,
            expires: None,
            keyless: false,
            counts: Counts::default(),
            last_error: None,
            holder: None,
        };
        Listed::from(Message {
            id: at.id,
            number: Number::new(number).unwrap(),
            queue: QueueName::new("q").unwrap(),
            body: vec![0; length].into(),
            key: None,
            headers: Headers::default(),
            created: at.due,
            lease_ms: None,
            max_attempts: None,
            standing,
        })
    }

    fn numbers(page: &Page) -> Vec<i64> {
        page.unread.iter().map(|(id, _)| id.due_at_put().as_ms()).collect()
    }

    #[test]
    fn a_page_of_several_parts_has_what_comes_first_of_all_and_goes_on_behind_it() {
        let mut page = MergedPage::new(3);
        page.add(vec![unread(1), unread(5), unread(9)]);
        assert_eq!(page.end(), Some(unread(9).at), "it is full, and earlier ones may come");
        page.add(vec![unread(2)]);
        assert_eq!((page.end(), page.more), (Some(unread(5).at), true));
        page.add(vec![unread(7)]);
        let page = page.into_page();
        assert_eq!(numbers(&page), [1, 2, 5]);
        assert_eq!(page.next, Some(unread(5).at));
    }

    #[test]
    fn what_did_not_fit_once_is_not_passed_over_by_what_is_smaller() {
        let mut page = MergedPage::new(10);
        page.add(vec![message(1, 10), message(3, Page::MAX_BYTES - 10)]);
        page.add(vec![message(2, 10)]);
        assert_eq!((page.end(), page.more), (Some(message(3, 0).at), true));
        page.add(vec![message(4, 10)]);
        let page = page.into_page();
        let shown: Vec<u64> = page.messages.iter().map(|message| message.number.get()).collect();
        assert_eq!((shown, page.next), (vec![1, 2], Some(message(2, 0).at)));
    }
}
