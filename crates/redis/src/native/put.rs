//! Putting messages.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use dwell_model::{DEFAULT_PRIORITY, Invalid, Limits, MessageId, Number, QueueName, Setting, Timestamp};
use dwell_store::{Error, OnConflict, Put, PutAnswer, PutOutcome, Result, When};

use super::Inner;
use super::inspect::Retries;
use super::layout::{
    FRESH_BODY, Partition, block_of, field_of, id_bytes, id_of, id_put_with, number_of, of_idempotency_key,
    of_key, place_in_block,
};
use super::message::{attempt_number, id, instant, packed_headers};
use super::pack::{Beside, Fields, Pack, PackReply};
use super::partition::{BODIES, NoAnswer, foreign_item, refused_instant, share, unreadable, when};
use super::scripts::Script;

/// The maximum number of messages that one script puts, of at most [`BODIES`] bytes; [`fresh`](PutItem::is_fresh) ones
/// may be more.
const CHUNK: usize = 28;
const CHUNK_FRESH: usize = 128;

/// How a try to put ended.
enum PutState {
    Answered(Result<PutAnswer>),
    /// Its number is in use by another message, in a partition that has seen numbers up to this one, if it reports
    /// that.
    Renumber(u64),
}

/// A message to be put.
struct PutItem {
    put: Put,
    number: u64,
    /// Why every store would refuse it.
    invalid: Option<Invalid>,
}

impl PutItem {
    /// Whether it has only a short body and an instant. Such messages are put together, in a record of the shortest
    /// form.
    fn is_fresh(&self) -> bool {
        let put = &self.put;
        self.invalid.is_none()
            && put.body.len() <= FRESH_BODY
            && put.priority == DEFAULT_PRIORITY
            && put.headers.is_empty()
            && (&put.key, &put.idempotency_key, put.lease_ms, put.max_attempts, put.expires)
                == (&None, &None, None, None, None)
    }
}

impl Inner {
    /// See [`Store::put`](dwell_store::Store::put).
    pub(super) async fn put(&self, puts: Vec<Put>) -> Vec<Result<PutAnswer>> {
        let numbers = match self.numbers(puts.len()).await {
            Ok(numbers) => numbers,
            Err(error) => return vec![Err(error); puts.len()],
        };
        let item = |(put, number): (Put, u64)| {
            let invalid = self.limits.check_body(put.body.len()).err();
            let invalid = invalid.or_else(|| put.lease_ms.and_then(|ms| Setting::LeaseMs(ms).check().err()));
            PutItem { put, number, invalid }
        };
        let mut items: Vec<_> = puts.into_iter().zip(numbers).map(item).collect();
        let mut answers: Vec<Option<Result<PutAnswer>>> = vec![None; items.len()];
        for _ in 0..16 {
            let left: Vec<_> = (0..items.len()).filter(|index| answers[*index].is_none()).collect();
            if left.is_empty() {
                break;
            }
            // Near the limit of queues, the order of the puts matters.
            let alone = self.is_near_queue_limit(items.len());
            if alone {
                // Empty queues must not take the place of others.
                self.retire_bare().await;
            }
            // The known number of partitions may change on the way: a message goes into the partition that follows from
            // the number of partitions which its script receives.
            let mut groups: BTreeMap<(usize, &QueueName, u16, u16), Vec<usize>> = BTreeMap::new();
            for index in left {
                let put = &items[index].put;
                let turn = if alone { index } else { 0 };
                let partitions = self.partitions(&put.queue);
                let part = self.partition_of(put, partitions);
                groups.entry((turn, &put.queue, part, partitions)).or_default().push(index);
            }
            let (mut renumber, mut highest) = (Vec::new(), 0);
            for ((_, queue, part, partitions), indexes) in groups {
                let at = Partition::new(queue, part);
                for chunk in chunks(&items, &indexes) {
                    match self
                        .put_chunk(&at, partitions, chunk.iter().map(|index| &items[*index]).collect())
                        .await
                    {
                        Ok(outcomes) => {
                            for (index, outcome) in chunk.iter().zip(outcomes) {
                                match outcome {
                                    PutState::Answered(answer) => answers[*index] = Some(answer),
                                    PutState::Renumber(seen) => {
                                        highest = seen.max(highest);
                                        renumber.push(*index);
                                    }
                                }
                            }
                        }
                        Err(NoAnswer::Partitions) => break,
                        Err(NoAnswer::Failed(error)) => {
                            chunk.iter().for_each(|index| answers[*index] = Some(Err(error.clone())));
                        }
                    }
                }
            }
            if !renumber.is_empty() {
                self.drop_numbers(highest).await;
                match self.numbers(renumber.len()).await {
                    Ok(numbers) => {
                        renumber.iter().zip(numbers).for_each(|(index, n)| items[*index].number = n)
                    }
                    Err(error) => {
                        renumber.iter().for_each(|index| answers[*index] = Some(Err(error.clone())))
                    }
                }
            }
        }
        let unsettled = || {
            Err(Error::Unavailable { reason: "the queue's number of partitions changes all the time".into() })
        };
        answers.into_iter().map(|answer| answer.unwrap_or_else(unsettled)).collect()
    }

    fn partition_of(&self, put: &Put, partitions: u16) -> u16 {
        match (&put.key, &put.idempotency_key) {
            _ if partitions == 1 => 0,
            (Some(key), _) => of_key(key, partitions),
            (None, Some(idempotency_key)) => of_idempotency_key(idempotency_key, partitions),
            (None, None) => (self.turn.fetch_add(1, Ordering::Relaxed) % usize::from(partitions)) as u16,
        }
    }

    /// The outcomes of its items, or of the first of them.
    async fn put_chunk(
        &self,
        at: &Partition,
        partitions: u16,
        items: Vec<&PutItem>,
    ) -> std::result::Result<Vec<PutState>, NoAnswer> {
        if partitions > 1
            && items.iter().any(|item| item.put.idempotency_key.is_some() && item.put.key.is_some())
        {
            let mut outcomes = Vec::with_capacity(items.len());
            for item in items {
                match self.put_under_idempotency_key(at, partitions, item).await {
                    Ok(outcome) => outcomes.push(outcome),
                    Err(NoAnswer::Failed(error)) => outcomes.push(PutState::Answered(Err(error))),
                    // What was put stays put; the rest go where they belong by now.
                    Err(NoAnswer::Partitions) if !outcomes.is_empty() => break,
                    Err(NoAnswer::Partitions) => return Err(NoAnswer::Partitions),
                }
            }
            return Ok(outcomes);
        }
        self.put_there(at, partitions, &items).await
    }

    /// A keyed message lies with its key, and its idempotency key is remembered with that, perhaps in another
    /// partition.
    ///
    /// 1. That partition is asked whether the idempotency key was used for another message. 2. The message is put,
    ///    and its own partition remembers the idempotency key with it. 3. The answer is stored in the partition of
    ///    the idempotency key.
    ///
    /// A process that dies between 2 and 3, or cannot do 3, leaves the idempotency key known where the same message
    /// would be put again. The answer is always that of 2: a failover of the message's partition loses both
    /// together, and the other partition would go on answering for a message that is not there.
    async fn put_under_idempotency_key(
        &self,
        at: &Partition,
        partitions: u16,
        item: &PutItem,
    ) -> std::result::Result<PutState, NoAnswer> {
        let (Some(idempotency_key), Some(_)) = (&item.put.idempotency_key, &item.put.key) else {
            let mut outcomes = self.put_there(at, partitions, &[item]).await?;
            return outcomes.pop().ok_or_else(|| unreadable(&at.queue).into());
        };
        let home = Partition::new(&at.queue, of_idempotency_key(idempotency_key, partitions));
        if home != *at {
            let asked = Fields::new()
                .with("t", idempotency_key.as_str())
                .with("g", digest(&item.put))
                .flag("bad", true);
            let asked = Fields::new().with("items", vec![asked]).flag("past", true);
            let reply = self.put_items(&home, partitions, asked).await?;
            let known = reply.0.get("items").at(0);
            if is_mismatch(known) {
                return Ok(self.outcome(&home, item, known, reply.1));
            }
        }
        let outcome = self.put_there(at, partitions, &[item]).await?.pop();
        let outcome = outcome.ok_or_else(|| unreadable(&at.queue))?;
        if let (true, PutState::Answered(Ok(answer))) = (home != *at, &outcome) {
            let copy = Fields::new().with("t", idempotency_key.as_str()).with("g", digest(&item.put));
            let copy = copy.with("r", packed_answer(answer));
            let copy = Fields::new().with("items", vec![copy]).flag("past", true);
            // The message is put, whatever the outcome of this.
            let _ = self.put_items(&home, partitions, copy).await;
        }
        Ok(outcome)
    }

    async fn put_there(
        &self,
        at: &Partition,
        partitions: u16,
        items: &[&PutItem],
    ) -> std::result::Result<Vec<PutState>, NoAnswer> {
        let numbers: Vec<_> = items.iter().map(|item| item.number).collect();
        self.enter_blocks(at, &numbers).await?;
        let fields = match items.iter().all(|item| item.is_fresh()) {
            true => packed_fresh(items, at.index),
            false => Fields::new().with("items", items.iter().map(|item| packed(item)).collect::<Vec<_>>()),
        };
        let (reply, now) = self.put_items(at, partitions, with_numbers(fields, items)).await?;
        if reply.get("past").is_set() {
            let past = reply.get("past").items().iter();
            let past: Vec<u16> = past.filter_map(|partitions| partitions.uint()?.try_into().ok()).collect();
            return self.put_unless_known(at, partitions, items, &past).await;
        }
        self.outcomes(at, items, &reply, now)
    }

    /// Looks the idempotency keys up where earlier numbers of partitions have put them, and puts those that are unknown
    /// there.
    async fn put_unless_known(
        &self,
        at: &Partition,
        partitions: u16,
        items: &[&PutItem],
        past: &[u16],
    ) -> std::result::Result<Vec<PutState>, NoAnswer> {
        let mut homes: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        for (index, item) in items.iter().enumerate() {
            let Some(idempotency_key) = &item.put.idempotency_key else { continue };
            for partitions in past {
                homes.entry(of_idempotency_key(idempotency_key, *partitions)).or_default().push(index);
                if let Some(key) = &item.put.key {
                    homes.entry(of_key(key, *partitions)).or_default().push(index);
                }
            }
        }
        let mut outcomes: Vec<Option<PutState>> = items.iter().map(|_| None).collect();
        for (number, indexes) in homes {
            let puts =
                indexes.iter().map(|index| &items[*index].put).filter(|put| put.idempotency_key.is_some());
            let digests: Vec<_> = puts.clone().map(digest).collect();
            let keys = puts.filter_map(|put| put.idempotency_key.as_ref());
            let keys: Vec<_> = keys.map(|key| Pack::from(key.as_str())).collect();
            let home = Partition::new(&at.queue, number);
            let asked = Fields::new().with("idempotency_keys", keys).with("digests", digests);
            let answered = self.ask(&home, Script::Recall, asked).await?;
            for (index, known) in indexes.iter().zip(answered.reply.get("known").items()) {
                // Only the partition of the message itself knows that a failover has lost it.
                if is_mismatch(known) || (is_known(known) && shard_of(known) == Some(number)) {
                    outcomes[*index] = Some(self.outcome(&home, items[*index], known, answered.now));
                }
            }
        }
        let left: Vec<_> = (0..items.len()).filter(|index| outcomes[*index].is_none()).collect();
        if !left.is_empty() {
            let left_items: Vec<_> = left.iter().map(|index| items[*index]).collect();
            let fields = left_items.iter().map(|item| packed(item)).collect::<Vec<_>>();
            let fields = with_numbers(Fields::new().with("items", fields).flag("past", true), &left_items);
            let (reply, now) = self.put_items(at, partitions, fields).await?;
            for (index, outcome) in left.into_iter().zip(self.outcomes(at, &left_items, &reply, now)?) {
                outcomes[index] = Some(outcome);
            }
        }
        Ok(outcomes.into_iter().flatten().collect())
    }

    fn outcomes(
        &self,
        at: &Partition,
        items: &[&PutItem],
        reply: &PackReply,
        now: Timestamp,
    ) -> std::result::Result<Vec<PutState>, NoAnswer> {
        if reply.get("all").uint() == Some(items.len() as u64) {
            let outcomes = items.iter().map(|item| self.outcome(at, item, &PackReply::Bool(true), now));
            return Ok(outcomes.collect());
        }
        let replies = reply.get("items").items();
        if replies.len() != items.len() {
            return Err(unreadable(&at.queue).into());
        }
        let outcomes = items.iter().zip(replies);
        Ok(outcomes.map(|(item, reply)| self.outcome(at, item, reply, now)).collect())
    }

    /// Calls the script that puts, registers the queue where it asks for that, and returns its reply.
    async fn put_items(
        &self,
        at: &Partition,
        partitions: u16,
        items: Fields,
    ) -> std::result::Result<(PackReply, Timestamp), NoAnswer> {
        let remembered = share(self.limits.idempotency_keys_per_queue, partitions);
        let mut fields = items.with("shard", u32::from(at.index)).with("idempotency_keys", remembered);
        let (unregistered, mut entered, mut counted) = (fields.clone(), 0, false);
        // One lane for all tries: an earlier one that arrives late is refused, and puts nothing in addition.
        let lane = self.wire.lane(Script::Put);
        loop {
            let fields_now = fields.clone();
            let answered =
                self.on_lane(lane.as_ref(), at, partitions, Script::Put, fields_now, Retries::Usual).await?;
            if answered.reply.get("enter").is_set() {
                if entered == 16 {
                    let reason =
                        format!("others let go of queue '{}' each time that it is registered", at.queue);
                    return Err(Error::Unavailable { reason: reason.into() }.into());
                }
                let registration = self.enter(&at.queue).await?;
                fields = unregistered.clone().maybe("reg", registration.reg).flag("full", registration.full);
                (entered, counted) = (entered + 1, false);
            } else if answered.reply.get("others").is_set() && !counted {
                let others = self.pending_besides(at, partitions).await?;
                fields = fields.with("others", others);
                counted = true;
            } else {
                if answered.reply.get("bare").is_set() {
                    self.note_bare(&at.queue).await;
                } else {
                    self.note_used(&at.queue);
                }
                return Ok((answered.reply, answered.now));
            }
        }
    }

    /// The number of messages that are pending in the other partitions of a queue.
    async fn pending_besides(&self, at: &Partition, partitions: u16) -> std::result::Result<u64, NoAnswer> {
        let mut pending = 0;
        for other in Partition::all(&at.queue, partitions) {
            if other == *at {
                continue;
            }
            let reply = self.on(&other, partitions, Script::Stats, Fields::new()).await?.reply;
            pending += reply.get("scheduled").uint().unwrap_or(0) + reply.get("ready").uint().unwrap_or(0);
        }
        Ok(pending)
    }

    fn outcome(&self, at: &Partition, item: &PutItem, reply: &PackReply, now: Timestamp) -> PutState {
        if reply.at(0).text() == Some("number") {
            return PutState::Renumber(reply.at(1).uint().unwrap_or(0));
        }
        let answer = match reply {
            PackReply::Bool(true) | PackReply::Int(_) | PackReply::Float(_) => created(at, item, reply),
            _ => answer(item, reply, now, &self.limits),
        };
        PutState::Answered(answer.unwrap_or_else(|| Err(unreadable(&item.put.queue))))
    }
}

fn chunks(items: &[PutItem], indexes: &[usize]) -> Vec<Vec<usize>> {
    let mut chunks: Vec<Vec<usize>> = Vec::new();
    let (mut bytes, mut most) = (0, 0);
    for index in indexes {
        let item = &items[*index];
        let len = item.put.body.len();
        if !item.is_fresh() {
            most = CHUNK;
        }
        match chunks.last_mut() {
            Some(chunk) if chunk.len() < most && bytes + len <= BODIES => chunk.push(*index),
            _ => {
                chunks.push(vec![*index]);
                bytes = 0;
                most = if item.is_fresh() { CHUNK_FRESH } else { CHUNK };
            }
        }
        bytes += len;
    }
    chunks
}

/// The script's arguments for items that are all [`fresh`](PutItem::is_fresh): what it stores, as far as it is known
/// here.
fn packed_fresh(items: &[&PutItem], shard: u16) -> Fields {
    let bodies: usize = items.iter().map(|item| item.put.body.len()).sum();
    let (mut bytes, mut ends) =
        (Vec::with_capacity(bodies + items.len() * 30), Vec::with_capacity(2 * items.len()));
    let mut delays = Vec::new();
    let mut first: Option<Timestamp> = None;
    let mut dues: Vec<(u64, Vec<u8>, Timestamp)> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let When::At(due) = item.put.when else {
            delays.resize(index, Pack::Bool(false));
            delays.push(match item.put.when {
                When::AfterMs(delay_ms) => delay_ms.into(),
                When::Level(level) => Pack::Int(-1 - i64::from(level)),
                When::Now | When::At(_) => Pack::Int(0),
            });
            ends.push(bytes.len());
            bytes.extend_from_slice(&field_of(item.number));
            bytes.extend_from_slice(&item.put.body);
            ends.push(bytes.len());
            continue;
        };
        let id = id_put_with(due, shard, item.number);
        bytes.extend_from_slice(due.as_ms().to_string().as_bytes());
        ends.push(bytes.len());
        bytes.extend_from_slice(&id);
        bytes.extend_from_slice(&item.put.body);
        ends.push(bytes.len());
        first = first.into_iter().chain([due]).min();
        let block = block_of(item.number);
        if dues.last().is_none_or(|(last, ..)| *last != block) {
            dues.push((block, Vec::with_capacity(7 * items.len()), due));
        }
        if let Some((_, of_block, latest)) = dues.last_mut() {
            of_block.push(place_in_block(item.number));
            of_block.extend_from_slice(&id[..6]);
            *latest = due.max(*latest);
        }
    }
    let fields = Fields::new().with("count", items.len()).beside(Beside::new(bytes, ends));
    if !delays.is_empty() {
        delays.resize(items.len(), Pack::Bool(false));
        return fields.with("delays", delays);
    }
    let of_block = |(block, dues, latest): (u64, Vec<u8>, Timestamp)| {
        [Pack::from(block.to_string().as_str()), Bytes::from(dues).into(), latest.as_ms().into()]
    };
    let dues: Vec<Pack> = dues.into_iter().flat_map(of_block).collect();
    fields.with("dues", dues).maybe("first", first.map(|first| first.as_ms()))
}

/// Adds the lowest and the highest of their numbers.
fn with_numbers(fields: Fields, items: &[&PutItem]) -> Fields {
    let numbers = items.iter().map(|item| item.number);
    fields.maybe("least", numbers.clone().min()).maybe("most", numbers.max())
}

fn packed(item: &PutItem) -> Pack {
    let put = &item.put;
    let idempotency_key = put.idempotency_key.as_ref();
    let fields = Fields::new()
        .maybe("t", idempotency_key.map(|idempotency_key| idempotency_key.as_str()))
        .maybe("g", idempotency_key.map(|_| digest(put)));
    if item.invalid.is_some() {
        return fields.flag("bad", true).into();
    }
    let conflict: u32 = match put.on_conflict {
        OnConflict::Reject => 0,
        OnConflict::Replace => 1,
        OnConflict::Keep => 2,
    };
    let fields = when(fields, put.when)
        .with("n", &field_of(item.number)[..])
        .with("b", put.body.clone())
        .maybe("k", put.key.as_ref().map(|key| key.as_str()))
        .with("c", conflict)
        .maybe("h", packed_headers(&put.headers))
        .maybe("p", Some(put.priority).filter(|priority| *priority != DEFAULT_PRIORITY))
        .maybe("L", put.lease_ms)
        .maybe("M", put.max_attempts.map(attempt_number))
        .maybe("x", put.expires.map(|expires| expires.as_ms()));
    fields.into()
}

/// The digest of a put as it is stored with its idempotency key.
fn digest(put: &Put) -> Pack {
    Pack::from(&put.digest().0.to_be_bytes()[..])
}

/// Whether an idempotency key is known: by the answer to its put, or as that of another put.
fn is_known(known: &PackReply) -> bool {
    known.at(0).text() == Some("ok")
}

/// The number of the partition where the message of a known answer was put: its id has it.
fn shard_of(known: &PackReply) -> Option<u16> {
    let id = known.at(1).bytes()?;
    let shard = id.get(6..8)?.try_into().ok().map(u16::from_be_bytes)?;
    shard.checked_sub(0x8000)
}

/// Whether the idempotency key was used for a put of other content.
fn is_mismatch(known: &PackReply) -> bool {
    known.at(0).text() == Some("mismatch")
}

fn packed_answer(answer: &PutAnswer) -> Pack {
    let (outcome, replaced) = match answer.outcome {
        PutOutcome::Created => (0, None),
        PutOutcome::Replaced(id) => (1, Some(id)),
        PutOutcome::Kept => (2, None),
    };
    let id = |id: MessageId| Pack::from(&id_bytes(id)[..]);
    let mut items = vec![Pack::from("ok"), id(answer.id), Pack::Int(answer.due.as_ms()), Pack::Int(outcome)];
    items.extend(replaced.map(id));
    Pack::Array(items)
}

/// Reads the answer to a message that was put in the shortest form: its instant, where only the script knew it.
fn created(at: &Partition, item: &PutItem, reply: &PackReply) -> Option<Result<PutAnswer>> {
    let due = match (item.put.when, reply) {
        (When::At(due), PackReply::Bool(true)) => due,
        (_, reply) => instant(reply)?,
    };
    let id = id_of(&id_put_with(due, at.index, item.number))?;
    let number = Number::new(item.number).ok()?;
    Some(Ok(PutAnswer { id, number, due, outcome: PutOutcome::Created }))
}

/// Reads the answer to one put; `None` if it is in no form of ours.
fn answer(item: &PutItem, reply: &PackReply, now: Timestamp, limits: &Limits) -> Option<Result<PutAnswer>> {
    let queue = || item.put.queue.clone();
    Some(match reply.at(0).text()? {
        "ok" => {
            let message = id(reply.at(1))?;
            let outcome = match reply.at(3).int()? {
                0 => PutOutcome::Created,
                1 => PutOutcome::Replaced(id(reply.at(4))?),
                2 => PutOutcome::Kept,
                _ => return None,
            };
            let number = Number::new(number_of(message)).ok()?;
            Ok(PutAnswer { id: message, number, due: instant(reply.at(2))?, outcome })
        }
        "mismatch" => Err(Error::IdempotencyMismatch { id: id(reply.at(1))? }),
        "bad" => Err(item.invalid.clone()?.into()),
        "key" => Err(Error::KeyTaken { id: id(reply.at(1))? }),
        "leased" => Err(Error::Leased { id: id(reply.at(1))? }),
        "foreign" => Err(foreign_item(reply)?),
        "queues" => Err(Error::TooManyQueues { limit: limits.queues }),
        "idempotency_keys" => {
            let (queue, limit) = (queue(), limits.idempotency_keys_per_queue);
            let reason = format!(
                "as many idempotency keys of queue '{queue}' are remembered as may be, {limit}, each for its idempotency_ms"
            );
            Err(Error::Overloaded { reason: reason.into() })
        }
        "pending" => Err(Error::QueueFull { queue: queue(), limit: reply.at(1).uint()? }),
        "expires" => {
            let (expires, due) = (item.put.expires?, instant(reply.at(1))?);
            Err(Invalid::ExpiresBeforeDue { expires, due }.into())
        }
        _ => Err(refused_instant(reply, item.put.when, now)?),
    })
}
