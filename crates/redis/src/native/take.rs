//! Handing messages out: due ones in their order, or one by its id.
//!
//! A take from one partition is one script. For several, all are asked for their first messages; then each hands out
//! its share of the first ones overall. Between the two, other takes may have been served: then the order across
//! partitions is that of a moment ago.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::Ordering;
use std::time::Duration;

use dwell_model::{Invalid, LeaseToken, MessageId, QueueName, Receipt, Setting, State, Timestamp};
use dwell_store::{Delivery, Error, LeaseTerms, Result, Take};
use futures_util::future::join_all;

use super::Inner;
use super::inspect::{NAMES, QUEUE, Retries, ScriptLimit, late};
use super::layout::{Partition, id_bytes};
use super::message::{ScriptMessage, held, id, instant, shown};
use super::pack::{Fields, PackReply};
use super::partition::{NoAnswer, PartitionAnswer, share, unreadable, with_partitions};
use super::script_call::locked;
use super::scripts::Script;

/// The maximum number of messages that one script hands out.
const CHUNK: usize = 128;

/// The approximate memory of a header in addition to its text, in bytes.
const HEADER: usize = 80;

/// The minimum number of times that a take may learn of a queue's number of partitions, or of room for more leases,
/// before it gives up.
const LEARNT: usize = 16;

/// The time limit of a count of leases, in ms; queues that have not answered by then are counted again later.
const COUNT_MS: u64 = 2_000;
const COUNT_AGAIN_MS: u64 = 10_000;

/// When all leases are granted, up to this many queues are counted at each take. A count of more queues is repeated
/// no sooner than as many ms later: whatever number of takes is refused, counting costs Redis the same.
const FEW_QUEUES: u64 = 16;

/// How long the last count of a queue that does not answer is used, in ms.
const LAST_COUNT_MS: u64 = 5 * 60 * 1_000;

/// How long, in ms, until a take that waits for a lease to end asks again. It is notified of leases that this process
/// ends, and mostly of those of its queue; this is for the others.
const ROOM_AGAIN_MS: i64 = 1_000;

/// The number of leased messages in the whole store, as far as this process knows.
#[derive(Debug, Default)]
pub(super) struct LeaseCount {
    /// The last count, plus what this process has done since; `None` before the first count.
    known: Option<i64>,
    /// Leases that takes under way may be granted.
    reserved: i64,
    /// When to count again, if some queues were not counted.
    again_ms: Option<u64>,
    /// The earliest time of the next count.
    good_until_ms: u64,
    /// The last count of each queue that had leases, and when it was made.
    of_each: HashMap<QueueName, (u64, u64)>,
    /// The number of leases that this process was granted since it began.
    granted: u64,
}

/// The number of leases, as far as queues have answered.
struct QueueLeaseCount {
    of_each: HashMap<QueueName, (u64, u64)>,
    queues: u64,
    /// All queues have answered.
    is_whole: bool,
}

/// The outcome of a take.
#[derive(Debug, Default)]
pub(super) struct TakeResult {
    pub(super) deliveries: Vec<Delivery>,
    /// When there may be more, if nothing happens before; and the server's clock at the reply.
    pub(super) next: Option<(Timestamp, Timestamp)>,
    /// A message is due, and no lease may be granted: the cap, of the store or of a queue.
    pub(super) cap: Option<usize>,
    /// A script has reached the limit of one call, and there may be more to hand out.
    on: bool,
}

/// Queues that have messages for takes that wait here but may grant no lease, in order of arrival.
#[derive(Debug, Default)]
pub(super) struct CappedQueues {
    order: VecDeque<QueueName>,
    names: HashSet<QueueName>,
    /// How many times leases have ended here.
    pub(super) ended: u64,
}

impl CappedQueues {
    fn add(&mut self, queue: &QueueName) {
        if self.names.insert(queue.clone()) {
            self.order.push_back(queue.clone());
        }
    }
}

/// A message that could be handed out.
struct HeadMessage {
    priority: u32,
    due: Timestamp,
    id: MessageId,
    len: usize,
    partition: usize,
    /// Its index in its partition's order.
    rank: usize,
}

/// The maximum number of queues per take: each of them is asked separately, and one that is waited on has a
/// subscription and is asked at intervals.
const QUEUES: usize = 1_024;

fn header_bytes(delivery: &Delivery) -> usize {
    let headers = &delivery.message.headers;
    headers.size() + HEADER * headers.iter().count()
}

pub(super) fn check_lease(lease_ms: Option<u64>) -> Result<()> {
    lease_ms.map_or(Ok(()), |ms| Ok(Setting::LeaseMs(ms).check()?))
}

impl Inner {
    /// Checks that are made before any call to Redis.
    pub(super) fn check_take(&self, take: &Take) -> Result<()> {
        check_lease(take.lease_ms)?;
        let (len, limit) = (take.queues.len(), self.limits.batch.min(QUEUES));
        if len <= limit { Ok(()) } else { Err(Invalid::BatchTooLarge { len, limit }.into()) }
    }

    /// Hands out what is due now. `waits` says that the take would wait for more; such a take is not refused for lack
    /// of leases.
    pub(super) async fn take(&self, take: &Take, waits: bool) -> Result<TakeResult> {
        let ended = locked(&self.held_up).ended;
        let mut taken = self.take_some(take, waits).await?;
        if let (Some(limit), true) = (taken.cap, taken.deliveries.is_empty()) {
            if take.wait_ms == 0 {
                return Err(Error::TooManyLeased { limit });
            }
            self.hold_up(&take.queues, ended);
        }
        taken.cap = taken.cap.filter(|_| taken.deliveries.is_empty());
        Ok(taken)
    }

    async fn take_some(&self, take: &Take, waits: bool) -> Result<TakeResult> {
        self.check_take(take)?;
        let mut named = HashSet::new();
        let queues: Vec<_> = take.queues.iter().filter(|queue| named.insert(*queue)).collect();
        let max = take.max.min(self.limits.batch);
        if queues.is_empty() || max == 0 {
            return Ok(TakeResult::default());
        }
        let mut taken = TakeResult::default();
        let mut bytes_left = take.max_bytes;
        // Scripts do not count headers, so a round may exceed the limit by them: no other round follows then.
        let mut headers: usize = 0;
        // Learning a number of partitions is not a round: the smallest batch still returns what is due.
        let (mut rounds, mut learnt) = (0, 0);
        while rounds < self.limits.batch && learnt < LEARNT.max(self.limits.batch) {
            let wanted = CHUNK.min(max - taken.deliveries.len());
            if wanted == 0 {
                break;
            }
            let round = match self
                .round(take, &queues, wanted, bytes_left, !taken.deliveries.is_empty(), waits)
                .await
            {
                Ok(round) => round,
                Err(NoAnswer::Partitions) => {
                    learnt += 1;
                    continue;
                }
                // What was handed out is returned.
                Err(NoAnswer::Failed(_)) if !taken.deliveries.is_empty() => break,
                Err(NoAnswer::Failed(error)) => return Err(error),
            };
            // A repeated call returns its first answer: if that had found nothing, it may only report that there is
            // something by now.
            let is_learnt = round.on && round.deliveries.is_empty();
            (rounds, learnt) = (rounds + usize::from(!is_learnt), learnt + usize::from(is_learnt));
            if let Some(left) = &mut bytes_left {
                let bytes: usize = round.deliveries.iter().map(|delivery| delivery.message.body.len()).sum();
                *left = left.saturating_sub(bytes);
            }
            headers = headers.saturating_add(round.deliveries.iter().map(header_bytes).sum());
            let is_enough = take.max_bytes.is_some_and(|most| headers > most);
            let is_last = is_enough || (round.deliveries.len() < wanted && !round.on);
            if taken.deliveries.is_empty() {
                taken.deliveries = round.deliveries;
            } else {
                taken.deliveries.extend(round.deliveries);
            }
            (taken.next, taken.cap) = (round.next, round.cap);
            if is_last {
                break;
            }
        }
        Ok(taken)
    }

    async fn round(
        &self,
        take: &Take,
        queues: &[&QueueName],
        wanted: usize,
        bytes: Option<usize>,
        some: bool,
        waits: bool,
    ) -> std::result::Result<TakeResult, NoAnswer> {
        let room = self.reserve(wanted).await;
        let round = self.round_within(take, queues, (room, wanted), bytes, some, waits).await;
        let granted = round.as_ref().map_or(0, |round| round.deliveries.len());
        self.leases_granted(room, granted).await;
        round
    }

    async fn round_within(
        &self,
        take: &Take,
        queues: &[&QueueName],
        (room, wanted): (usize, usize),
        bytes: Option<usize>,
        some: bool,
        waits: bool,
    ) -> std::result::Result<TakeResult, NoAnswer> {
        let places = queues.iter().flat_map(|queue| {
            let partitions = self.partitions(queue);
            Partition::all(queue, partitions).into_iter().map(move |at| (at, partitions))
        });
        let places: Vec<_> = places.collect();
        // Until the outcome is known, the directory keeps the entries of these.
        let _binding = match take.session {
            true => Some(self.enter_session_leases(places.iter().map(|(at, _)| at)).await?),
            false => None,
        };
        if let ([(at, partitions)], true) = (&places[..], room > 0) {
            let arguments = self.asked(take, at, *partitions, waits).with("max", room).with("want", wanted);
            let arguments = arguments.maybe("bytes", bytes).flag("some", some);
            let answered = self.on(at, *partitions, Script::Take, arguments).await?;
            let next = self.next(&answered);
            let cap = answered.reply.get("full").is_set().then_some(self.limits.leased_per_queue);
            let on = answered.reply.get("on").is_set();
            let deliveries = deliveries(&at.queue, &answered)?;
            if next.is_some() || !deliveries.is_empty() {
                self.note_used(&at.queue);
            }
            return Ok(TakeResult { deliveries, next, cap, on });
        }
        // With several queues, one that is out of order does not hold up the others: it is waited for only where they
        // have nothing.
        let mut peeks: Vec<Option<PartitionAnswer>> = places.iter().map(|_| None).collect();
        let mut failed = None;
        let several = [Retries::Once, Retries::Usual];
        let pace = ScriptLimit::new();
        for patience in if queues.len() > 1 { &several[..] } else { &several[1..] } {
            let asked = places.iter().zip(&peeks).filter(|(_, peek)| peek.is_none());
            let asked = asked.map(|((at, partitions), _)| {
                let arguments =
                    self.asked(take, at, *partitions, waits).with("max", room.max(1)).flag("peek", true);
                let asked = async move {
                    let asked = self.on_within(at, *partitions, Script::Take, arguments, *patience);
                    match patience {
                        // A node that does not answer does not hold up the messages of the others.
                        Retries::Once => tokio::time::timeout(QUEUE, asked)
                            .await
                            .unwrap_or_else(|_| Err(late(at.queue.as_str()).into())),
                        Retries::Usual | Retries::Brief => asked.await,
                    }
                };
                pace.with(1, asked)
            });
            let asked = join_all(asked.collect::<Vec<_>>()).await;
            failed = None;
            for (peek, answered) in peeks.iter_mut().filter(|peek| peek.is_none()).zip(asked) {
                match answered {
                    Ok(answered) => *peek = Some(answered),
                    Err(NoAnswer::Failed(error)) if queues.len() > 1 => failed = Some(error),
                    Err(fault) => return Err(fault),
                }
            }
            let has_heads = |peek: &PartitionAnswer| !peek.reply.get("ids").items().is_empty();
            if failed.is_none() || peeks.iter().flatten().any(has_heads) {
                break;
            }
        }
        if room < wanted && peeks.iter().flatten().any(|peek| peek.lapsed > 0) {
            // There is more room than before: start again.
            return Err(NoAnswer::Partitions);
        }
        let mut heads = Vec::new();
        for (partition, peek) in peeks.iter().enumerate() {
            let Some(peek) = peek else { continue };
            if self.next(peek).is_some() {
                self.note_used(&places[partition].0.queue);
            }
            let ids = peek.reply.get("ids").items().iter();
            for (rank, (id, item)) in ids.zip(peek.reply.get("items").items()).enumerate() {
                let head = head(id, item, partition, rank);
                heads.push(head.ok_or_else(|| unreadable(&places[partition].0.queue))?);
            }
        }
        if let (true, Some(error)) = (heads.is_empty(), failed) {
            return Err(error.into());
        }
        let soonest = peeks.iter().flatten().filter_map(|peek| self.next(peek));
        let soonest = soonest.min_by_key(|(next, now)| next.as_ms() - now.as_ms());
        let is_full = peeks.iter().flatten().any(|peek| peek.reply.get("full").is_set());
        let cap = is_full.then_some(self.limits.leased_per_queue);
        if room == 0 && !heads.is_empty() {
            let now = peeks.iter().flatten().map(|peek| peek.now).next();
            let next = now.map(|now| (later(now, ROOM_AGAIN_MS), now));
            return Ok(TakeResult { next, cap: Some(self.limits.leased), ..TakeResult::default() });
        }
        if heads.is_empty() {
            return Ok(TakeResult { next: soonest, cap, ..TakeResult::default() });
        }
        if queues.len() == 1 {
            // Partitions take turns for messages that are due at the same instant, and each take begins with another
            // one.
            let turn = self.takes.load(Ordering::Relaxed) as usize;
            let place = |head: &HeadMessage| head.partition.wrapping_add(turn) % places.len();
            heads.sort_by_key(|head| (head.priority, head.due, head.rank, place(head)));
        } else {
            heads.sort_by_key(|head| (head.priority, head.due, head.id));
        }
        // For each partition, the number of its messages and their bytes.
        let mut shares = vec![(0_usize, 0_usize); places.len()];
        let mut total: usize = 0;
        for (index, head) in heads.iter().take(room).enumerate() {
            total = total.saturating_add(head.len);
            if (index > 0 || some) && bytes.is_some_and(|most| total > most) {
                break;
            }
            let (count, length) = &mut shares[head.partition];
            (*count, *length) = (*count + 1, length.saturating_add(head.len));
        }
        // The first message is handed out whatever its size. Other takes may have taken it since, or any of these:
        // the messages behind them are held to the same number of bytes then.
        let first = heads.first().map(|head| head.partition);
        let shares = shares.into_iter().enumerate().filter(|(_, (count, _))| *count > 0);
        let shares: Vec<_> =
            shares.map(|(index, share)| (&places[index], share, Some(index) != first)).collect();
        let takes = shares.iter().map(|((at, partitions), (count, length), is_behind)| {
            let arguments = self.asked(take, at, *partitions, false).with("max", *count);
            let arguments = arguments.maybe("bytes", bytes.map(|_| *length)).flag("some", some || *is_behind);
            self.on(at, *partitions, Script::Take, arguments)
        });
        let (mut all, mut on) = (Vec::new(), false);
        let mut failed = None;
        for (((at, _), ..), answered) in shares.iter().zip(join_all(takes.collect::<Vec<_>>()).await) {
            match answered {
                Ok(answered) => {
                    on |= answered.reply.get("on").is_set();
                    match deliveries(&at.queue, &answered) {
                        Ok(deliveries) => all.extend(deliveries),
                        Err(error) => failed = Some(error.into()),
                    }
                }
                Err(fault) => failed = Some(fault),
            }
        }
        // What one partition has handed out is not lost because another one did not answer.
        if let (true, Some(fault)) = (all.is_empty(), failed) {
            return Err(fault);
        }
        all.sort_by_key(|delivery| {
            let standing = &delivery.message.standing;
            (standing.priority, standing.due, delivery.message.id)
        });
        Ok(TakeResult { deliveries: all, next: soonest, cap, on })
    }

    /// When there may be more, by a script's reply, and its clock.
    pub(super) fn next(&self, answered: &PartitionAnswer) -> Option<(Timestamp, Timestamp)> {
        let now = answered.now;
        let next = instant(answered.reply.get("next"))?;
        let is_full = answered.reply.get("full").is_set() || answered.reply.get("capped").is_set();
        match is_full {
            true => Some((next.min(later(now, ROOM_AGAIN_MS)), now)),
            false => Some((next, now)),
        }
    }

    fn asked(&self, take: &Take, at: &Partition, partitions: u16, waits: bool) -> Fields {
        let waiting = if waits { self.waiters.count(&at.queue) } else { 0 };
        let mut token = self.wire.process.to_vec();
        // 48 bits of takes, and 16 of messages in each: no process lives long enough to exhaust them.
        token.extend_from_slice(&self.takes.fetch_add(1, Ordering::Relaxed).to_be_bytes()[2..]);
        Fields::new()
            .with("token", &token[..])
            .with("cap", share(self.limits.leased_per_queue, partitions))
            .maybe("lease", take.lease_ms)
            .maybe("session", take.session.then_some(&self.wire.process[..]))
            .maybe("holder", take.holder.as_ref().map(|holder| holder.as_str()))
            .maybe("wait", Some(waiting).filter(|waiting| *waiting > 0))
            .with("process", &self.wire.process[..])
    }

    /// See [`Store::take_id`](dwell_store::Store::take_id).
    pub(super) async fn take_id(
        &self,
        queue: &QueueName,
        message: MessageId,
        terms: LeaseTerms,
    ) -> Result<Delivery> {
        let LeaseTerms { lease_ms, session, holder } = terms;
        check_lease(lease_ms)?;
        let room = self.reserve(1).await;
        let taken = with_partitions!(self, queue, |partitions| {
            let at = Partition::of_id(queue, message.shard(), partitions);
            let _binding = match session {
                true => Some(self.enter_session_leases([&at]).await?),
                false => None,
            };
            let mut token = self.wire.process.to_vec();
            token.extend_from_slice(&self.takes.fetch_add(1, Ordering::Relaxed).to_be_bytes()[2..]);
            token.extend_from_slice(&[0, 0]);
            let arguments = Fields::new()
                .with("id", &id_bytes(message)[..])
                .with("token", &token[..])
                .maybe("lease", lease_ms)
                .maybe("session", session.then_some(&self.wire.process[..]))
                .maybe("holder", holder.as_ref().map(|holder| holder.as_str()))
                .with("cap", share(self.limits.leased_per_queue, partitions))
                .flag("full", room == 0);
            let answered = self.on(&at, partitions, Script::TakeId, arguments).await?;
            let refused = answered.reply.get("refused");
            let named = || id(refused.at(1)).ok_or_else(|| unreadable(queue));
            Ok(match refused.at(0).text() {
                None => {
                    let shown = shown(queue, answered.reply.get("item"), answered.now)?;
                    delivered(queue, shown, answered.now)
                }
                Some("missing") => Err(Error::MessageNotFound { queue: queue.clone() }),
                Some("leased") => Err(Error::Leased { id: named()? }),
                Some("key") => Err(Error::KeyTaken { id: named()? }),
                Some("own") => {
                    let limit = refused.at(1).uint().ok_or_else(|| unreadable(queue))?;
                    Err(Error::TooManyLeased { limit: usize::try_from(limit).unwrap_or(usize::MAX) })
                }
                Some("cap") => Err(Error::TooManyLeased { limit: self.limits.leased }),
                Some("queue") => Err(Error::TooManyLeased { limit: self.limits.leased_per_queue }),
                Some(_) => Err(unreadable(queue)),
            })
        })
        .and_then(|taken| taken);
        self.leases_granted(room, usize::from(taken.is_ok())).await;
        taken
    }

    /// Reserves up to `wanted` leases, and returns how many may be granted. They count until
    /// [`Inner::leases_granted`] reports the outcome.
    async fn reserve(&self, wanted: usize) -> usize {
        let limit = i64::try_from(self.limits.leased).unwrap_or(i64::MAX);
        let wanted_leases = i64::try_from(wanted).unwrap_or(i64::MAX);
        let free = |leased: &LeaseCount| limit - leased.known.unwrap_or(limit) - leased.reserved;
        let mut leased = self.leased.lock().await;
        let ended = self.ended.swap(0, Ordering::Relaxed);
        if let Some(known) = &mut leased.known {
            *known = known.saturating_sub_unsigned(ended).max(0);
        }
        // Leases run out, and other processes settle: only a count shows that. Where some queues have not answered,
        // and there is room by what is known, no take waits for them: they are counted again at a beat.
        if free(&leased) < wanted_leases && leased.good_until_ms <= self.wire.mono_ms() {
            let counted = self.count(std::mem::take(&mut leased.of_each)).await;
            self.note_counted(&mut leased, counted, 0);
        }
        let room = free(&leased).clamp(0, wanted_leases);
        leased.reserved += room;
        usize::try_from(room).unwrap_or(0)
    }

    /// Counts again, where some queues have not answered in time.
    pub(super) async fn count_again(&self) {
        let (before, granted) = {
            let leased = self.leased.lock().await;
            if leased.again_ms.is_none_or(|again_ms| again_ms > self.wire.mono_ms()) {
                return;
            }
            (leased.of_each.clone(), leased.granted)
        };
        let counted = self.count(before).await;
        let mut leased = self.leased.lock().await;
        // Some of the leases that were granted meanwhile were counted as well: the cap is not exceeded by that.
        let meanwhile = leased.granted - granted;
        self.note_counted(&mut leased, counted, meanwhile);
    }

    /// Asks all queues for the number of their leased messages.
    ///
    /// One that does not answer keeps its last count for some minutes. One with foreign data under its keys counts as
    /// having none: its error must not hold up the messages of the others.
    async fn count(&self, before: HashMap<QueueName, (u64, u64)>) -> QueueLeaseCount {
        let began_ms = self.wire.mono_ms();
        let (mut of_each, mut queues, mut is_whole, mut after) = (HashMap::new(), 0_u64, true, None);
        let kept = |of: &(u64, u64)| began_ms.saturating_sub(of.1) < LAST_COUNT_MS;
        loop {
            let left_ms = COUNT_MS.saturating_sub(self.wire.mono_ms() - began_ms);
            let page = self.survey(after.as_ref(), NAMES, Retries::Once);
            let page = tokio::time::timeout(Duration::from_millis(left_ms), page).await;
            let Ok(Ok(page)) = page else {
                is_whole = false;
                let behind = before.iter().filter(|(queue, of)| Some(*queue) > after.as_ref() && kept(of));
                of_each.extend(behind.map(|(queue, of)| (queue.clone(), *of)));
                break;
            };
            queues += page.queues.len() as u64;
            for (queue, stats) in page.queues {
                is_whole &= stats.is_ok();
                let of = match stats {
                    Ok(stats) => Some((stats.counts.leased, began_ms)).filter(|(leased, _)| *leased > 0),
                    Err(Error::ForeignData { .. }) => None,
                    Err(_) => before.get(&queue).copied().filter(kept),
                };
                of_each.extend(of.map(|of| (queue, of)));
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        QueueLeaseCount { of_each, queues, is_whole }
    }

    fn note_counted(&self, leased: &mut LeaseCount, counted: QueueLeaseCount, meanwhile: u64) {
        // Leases that ended meanwhile were counted or not: if not, the next count corrects it.
        {
            let _held_up = locked(&self.held_up);
            self.lease_counts.fetch_add(1, Ordering::SeqCst);
            self.ended.store(0, Ordering::Relaxed);
        }
        let QueueLeaseCount { of_each, queues, is_whole } = counted;
        let sum = of_each.values().fold(meanwhile, |sum, (leased, _)| sum.saturating_add(*leased));
        let now_ms = self.wire.mono_ms();
        leased.known = Some(i64::try_from(sum).unwrap_or(i64::MAX));
        leased.of_each = of_each;
        leased.again_ms = (!is_whole).then(|| now_ms + COUNT_AGAIN_MS);
        leased.good_until_ms = if queues > FEW_QUEUES { now_ms + queues.min(COUNT_AGAIN_MS) } else { now_ms };
    }

    async fn leases_granted(&self, reserved: usize, granted: usize) {
        let mut leased = self.leased.lock().await;
        leased.reserved -= reserved as i64;
        if let Some(known) = &mut leased.known {
            *known += granted as i64;
        }
        leased.granted += granted as u64;
    }

    /// How many times leases were counted: for [`Inner::leases_ended`], before a call that may end some.
    pub(super) fn lease_counts(&self) -> u64 {
        self.lease_counts.load(Ordering::SeqCst)
    }

    /// Leases of a queue have ended: there is room for as many others, and takes that wait for it here are notified.
    ///
    /// If leases were counted after `counts`, it is unknown whether these were included; then the next count corrects
    /// it.
    pub(super) fn leases_ended(&self, queue: &QueueName, ended: u64, counts: u64) {
        let told: Vec<QueueName> = {
            let mut held_up = locked(&self.held_up);
            if self.lease_counts() == counts {
                self.ended.fetch_add(ended, Ordering::Relaxed);
            }
            held_up.ended += ended;
            let CappedQueues { order, names, .. } = &mut *held_up;
            let own = names.remove(queue).then(|| queue.clone());
            let others = std::iter::from_fn(|| {
                let next = order.pop_front()?;
                Some(names.remove(&next).then_some(next))
            });
            let most = usize::try_from(ended).unwrap_or(usize::MAX);
            own.into_iter().chain(others.flatten().take(most)).collect()
        };
        told.iter().for_each(|queue| self.waiters.hint(queue));
    }

    /// Takes wait for leases to end on these queues, which were asked after `ended` leases had ended here.
    pub(super) fn hold_up(&self, queues: &[QueueName], ended: u64) {
        let mut held_up = locked(&self.held_up);
        if held_up.ended != ended {
            // Some ended meanwhile, and these queues were not notified.
            drop(held_up);
            return queues.iter().for_each(|queue| self.waiters.hint(queue));
        }
        queues.iter().for_each(|queue| held_up.add(queue));
    }
}

fn later(now: Timestamp, ms: i64) -> Timestamp {
    now.saturating_after(ms.unsigned_abs())
}

fn head(named: &PackReply, item: &PackReply, partition: usize, rank: usize) -> Option<HeadMessage> {
    Some(HeadMessage {
        id: id(named)?,
        priority: item.at(0).uint()?.try_into().ok()?,
        due: instant(item.at(1))?,
        len: item.at(2).uint()?.try_into().ok()?,
        partition,
        rank,
    })
}

fn deliveries(queue: &QueueName, answered: &PartitionAnswer) -> Result<Vec<Delivery>> {
    let items = answered.reply.get("items").items();
    let (mut deliveries, mut unread) = (Vec::with_capacity(items.len()), None);
    for item in items {
        match held(queue, item, answered.now).and_then(|shown| delivered(queue, shown, answered.now)) {
            Ok(delivery) => deliveries.push(delivery),
            Err(error) => unread = Some(error),
        }
    }
    // A message that cannot be read stays leased until its lease runs out, and is dead in the end; the others are
    // returned.
    match unread {
        Some(error) if deliveries.is_empty() => Err(error),
        _ => Ok(deliveries),
    }
}

fn delivered(queue: &QueueName, shown: ScriptMessage, now: Timestamp) -> Result<Delivery> {
    let message = shown.message;
    let State::Leased(lease) = message.standing.state else { return Err(unreadable(queue)) };
    let ready_since =
        message.standing.due.max(message.created).max(shown.made_ready.unwrap_or(Timestamp::MIN));
    Ok(Delivery {
        receipt: Receipt { queue: queue.clone(), id: message.id, token: LeaseToken(lease.token.0) },
        lease_until: lease.deadline,
        taken_at: now,
        lateness_ms: now.ms_since(ready_since),
        message,
    })
}
