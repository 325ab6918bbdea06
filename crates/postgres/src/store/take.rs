//! Takes that do not wait: one statement each, which begins where the last take of its queues ended.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use dwell_model::{MessageId, QueueName, Setting};
use dwell_store::{Delivery, Error, LeaseTerms, Result, Take};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::Inner;
use super::message::{column, delivered, shown, taken};
use super::put::names;
use super::refusal::{failed, refusal, unreadable};
use crate::floor::{Floor, Seal, TakeInProgress, Writers};
use crate::link::{Failure, locked};
use crate::values::Uuid;

/// The result of a take.
pub(super) struct TakeResult {
    pub(super) deliveries: Vec<Delivery>,
    /// The cap that kept back due messages, if nothing was handed out because of one.
    pub(super) capped: Option<Cap>,
}

/// The scope of a cap on leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cap {
    Queue,
    Store,
}

/// The floors of the takes of this process, and the seals that bound them.
#[derive(Default)]
pub(super) struct Floors(Mutex<KnownFloors>);

#[derive(Default)]
struct KnownFloors {
    /// Of messages and of leases.
    seals: (Seal, Seal),
    by_queue: HashMap<QueueName, (Floor, Floor)>,
    /// The server's clock at the last snapshot of writers; if it goes back, all floors are reset.
    now_ms: i64,
    /// The server that answered then.
    place: Option<String>,
    /// The number of lost connections when this was learnt.
    lost: u64,
}

/// The most queues with a stored floor; a take of any other begins at the start of the index.
const QUEUES: usize = 100_000;

impl Floors {
    /// Where a take of a queue begins, in ms since the epoch: for messages and for leases.
    pub(super) fn of(&self, queue: &QueueName, lost: u64) -> (i64, i64) {
        let known = self.known(lost);
        known.by_queue.get(queue).map_or((0, 0), |(messages, leases)| (messages.at_ms(), leases.at_ms()))
    }

    /// Begins a take; `lost` is the number of connections lost so far.
    fn begin(&self, lost: u64) -> (TakeInProgress, TakeInProgress) {
        let known = self.known(lost);
        (Floor::begin(&known.seals.0), Floor::begin(&known.seals.1))
    }

    /// What is known of the server; `lost` is the number of connections lost so far.
    fn known(&self, lost: u64) -> MutexGuard<'_, KnownFloors> {
        let mut known = locked(&self.0);
        if known.lost != lost {
            // Another server may answer, or the same one with an older state.
            *known = KnownFloors { lost, ..KnownFloors::default() };
        }
        known
    }

    /// Ends a take that returned these candidates for each of its queues.
    fn end(
        &self,
        queues: &[QueueName],
        (messages, leases): (TakeInProgress, TakeInProgress),
        next: &[i64],
        lost: u64,
    ) {
        let mut known = locked(&self.0);
        if known.lost != lost || next.len() < 2 * queues.len() {
            return;
        }
        for (index, queue) in queues.iter().enumerate() {
            if known.by_queue.len() >= QUEUES && !known.by_queue.contains_key(queue) {
                known.by_queue.clear();
            }
            let floors = known.by_queue.entry(queue.clone()).or_default();
            floors.0.end(messages, next[index]);
            floors.1.end(leases, next[queues.len() + index]);
        }
    }

    /// Adds a snapshot of the transactions that may still add messages, and of those that may add leases. Returns
    /// whether another server has answered than the last time.
    pub(super) fn look(&self, messages: Writers, leases: Writers, place: String, lost: u64) -> bool {
        let mut known = self.known(lost);
        let has_moved = known.place.as_ref().is_some_and(|known| *known != place);
        if has_moved || messages.now_ms < known.now_ms {
            // All is unknown on another server, and where the clock was stepped back.
            *known = KnownFloors { lost, ..KnownFloors::default() };
        }
        known.place = Some(place);
        known.now_ms = messages.now_ms;
        known.seals.0.look(messages);
        known.seals.1.look(leases);
        has_moved
    }

    /// The instant before which all messages are visible, or never will be.
    pub(super) fn sealed_ms(&self, lost: u64) -> i64 {
        self.known(lost).seals.0.at_ms()
    }

    pub(super) fn forget(&self, queue: &QueueName) {
        locked(&self.0).by_queue.remove(queue);
    }
}

impl Inner {
    /// Refuses an invalid take.
    pub(super) fn check_take(&self, take: &Take) -> Result<()> {
        take.lease_ms.map_or(Ok(()), |ms| Setting::LeaseMs(ms).check())?;
        self.limits.check_batch(take.queues.len())?;
        Ok(())
    }

    /// Takes what is due now, without waiting.
    pub(super) async fn take_now(&self, take: &Take) -> Result<TakeResult> {
        self.check_take(take)?;
        if take.max == 0 || take.queues.is_empty() {
            return Ok(TakeResult { deliveries: Vec::new(), capped: None });
        }
        let mut session = self.session(take.session).await?;
        let rows = loop {
            match self.take_rows(take, session).await {
                Err(Failure::Refused { code, .. }) if code == "session_lost" && session.is_some() => {
                    session = self.new_session(session).await?;
                }
                rows => break rows.map_err(|failure| failed(failure, None))?,
            }
        };
        let now = self.clock.now();
        let (mut deliveries, mut capped, mut unread) = (Vec::with_capacity(rows.len()), None, None);
        for row in &rows {
            if column::<Option<Uuid>>(row, "id")?.is_none() {
                capped = match column::<Option<i32>>(row, "capped")? {
                    Some(1) => Some(Cap::Queue),
                    Some(2) => Some(Cap::Store),
                    _ => None,
                };
                continue;
            }
            match taken(row, take.session, take.holder.as_ref(), now) {
                Ok(delivery) => {
                    self.has_seen(delivery.message.number);
                    deliveries.push(delivery);
                }
                Err(error) => unread = Some(error),
            }
        }
        // A message that cannot be read stays leased until its lease runs out, and
        // its attempts are spent in the end; the others are delivered.
        if let (true, Some(error)) = (deliveries.is_empty(), unread) {
            return Err(error);
        }
        deliveries.sort_by_key(|delivery: &Delivery| {
            let standing = &delivery.message.standing;
            (standing.priority, standing.due, delivery.message.id)
        });
        self.leases.granted(deliveries.len());
        Ok(TakeResult { capped: capped.filter(|_| deliveries.is_empty()), deliveries })
    }

    /// The refusal of a take that does not wait, when a cap kept messages back.
    pub(super) fn too_many_leased(&self, cap: Cap) -> Error {
        let limit = match cap {
            Cap::Queue => self.limits.leased_per_queue,
            Cap::Store => self.limits.leased,
        };
        Error::TooManyLeased { limit }
    }

    async fn take_rows(&self, take: &Take, session: Option<i64>) -> std::result::Result<Vec<Row>, Failure> {
        let mut queues = take.queues.clone();
        queues.sort();
        queues.dedup();
        let max = i32::try_from(take.max.min(self.limits.batch)).unwrap_or(i32::MAX);
        let bytes = take.max_bytes.map(|bytes| i64::try_from(bytes).unwrap_or(i64::MAX));
        let lease = take.lease_ms.map(|ms| i64::try_from(ms).unwrap_or(i64::MAX));
        let holder = take.holder.as_ref().map(|holder| holder.as_str());
        let lost = self.link.lost();
        let begun = self.floors.begin(lost);
        let (floors, lapse_floors): (Vec<i64>, Vec<i64>) =
            queues.iter().map(|queue| self.floors.of(queue, lost)).unzip();
        let counts = self.leases.must_be_counted(&self.limits, take.max);
        let name_list = names(&queues);
        let arguments = [
            (&name_list as _, Type::TEXT_ARRAY),
            (&max as _, Type::INT4),
            (&bytes as _, Type::INT8),
            (&lease as _, Type::INT8),
            (&session as _, Type::INT8),
            (&holder as _, Type::TEXT),
            (&floors as _, Type::INT8_ARRAY),
            (&lapse_floors as _, Type::INT8_ARRAY),
            (&counts as _, Type::BOOL),
            (&self.defaults as _, Type::JSONB),
        ];
        let rows = self.rows("take_1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)", &arguments, false).await?;
        self.has_taken();
        let next =
            rows.iter().rev().find_map(|row| row.try_get::<_, Option<Vec<i64>>>("next_floors").ok()?);
        if let Some(next) = next {
            self.floors.end(&queues, begun, &next, lost);
        }
        Ok(rows)
    }

    /// See [`Store::take_id`](dwell_store::Store::take_id).
    pub(super) async fn take_id(
        &self,
        queue: &QueueName,
        id: MessageId,
        terms: &LeaseTerms,
    ) -> Result<Delivery> {
        terms.lease_ms.map_or(Ok(()), |ms| Setting::LeaseMs(ms).check())?;
        let mut session = self.session(terms.session).await?;
        let (name, uuid) = (queue.as_str(), Uuid(id.as_bits()));
        let lease = terms.lease_ms.map(|ms| i64::try_from(ms).unwrap_or(i64::MAX));
        let holder = terms.holder.as_ref().map(|holder| holder.as_str());
        let counts = self.leases.must_be_counted(&self.limits, 1);
        let rows = loop {
            let arguments = [
                (&name as _, Type::TEXT),
                (&uuid as _, Type::UUID),
                (&lease as _, Type::INT8),
                (&session as _, Type::INT8),
                (&holder as _, Type::TEXT),
                (&counts as _, Type::BOOL),
                (&self.defaults as _, Type::JSONB),
            ];
            match self.rows("take_id_1($1, $2, $3, $4, $5, $6, $7)", &arguments, false).await {
                Err(Failure::Refused { code, .. }) if code == "session_lost" && session.is_some() => {
                    session = self.new_session(session).await?;
                }
                rows => break rows.map_err(|failure| failed(failure, Some(queue)))?,
            }
        };
        let row = rows.first().ok_or_else(|| unreadable("no answer"))?;
        match column::<Option<&str>>(row, "code")? {
            None | Some("") => {
                self.leases.granted(1);
                // Its lease has a deadline that waiting takes have to know, and it used up room.
                self.waiters.hint(queue);
                delivered(shown(queue, row, self.clock.now())?, row)
            }
            Some(code) => Err(refusal(code, column::<Option<&str>>(row, "info")?.unwrap_or_default(), queue)),
        }
    }
}
