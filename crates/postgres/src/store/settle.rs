//! Settling messages, ending leases, and giving back messages that were not received.

use dwell_model::{Limits, MessageId, QueueName, Receipt};
use dwell_store::{Action, Error, LeaseRef, Result, Settle, Settled};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::Inner;
use super::message::{by_item, column, instant, reason};
use super::put::uuids;
use super::refusal::{failed, refusal, unreadable};
use crate::link::Failure;
use crate::values::Uuid;

const ACK: i16 = 0;
const RETRY: i16 = 1;
const RELEASE: i16 = 2;
const BURY: i16 = 3;
const EXTEND: i16 = 4;
const GIVE_BACK: i16 = 5;

/// Settlements as arguments of a SQL function.
#[derive(Default)]
struct Columns<'a> {
    queues: Vec<&'a str>,
    ids: Vec<Uuid>,
    tokens: Vec<Uuid>,
    actions: Vec<i16>,
    values: Vec<Option<i64>>,
    errors: Vec<Option<&'a [u8]>>,
    priorities: Vec<Option<i64>>,
    randoms: Vec<i64>,
}

impl<'a> Columns<'a> {
    fn push(&mut self, receipt: &'a Receipt, action: i16) {
        self.queues.push(receipt.queue.as_str());
        self.ids.push(Uuid(receipt.id.as_bits()));
        self.tokens.push(Uuid(receipt.token.0));
        self.actions.push(action);
        self.values.push(None);
        self.errors.push(None);
        self.priorities.push(None);
        self.randoms.push(0);
    }

    fn settle(&mut self, settle: &'a Settle, random: u32) {
        let number = match &settle.action {
            Action::Ack => ACK,
            Action::Retry { .. } => RETRY,
            Action::Release { .. } => RELEASE,
            Action::Bury { .. } => BURY,
            Action::Extend { .. } => EXTEND,
        };
        self.push(&settle.receipt, number);
        let (value, text, level) = match &settle.action {
            Action::Ack => (None, None, None),
            Action::Retry { after_ms, error, priority } => (*after_ms, error.as_deref(), *priority),
            Action::Release { after_ms, priority } => (*after_ms, None, *priority),
            Action::Bury { reason, priority } => (None, reason.as_deref(), *priority),
            Action::Extend { lease_ms } => (*lease_ms, None, None),
        };
        let last = self.values.len() - 1;
        // A number too large for SQL is out of range there too. Its sum with the clock must not overflow.
        self.values[last] = value.map(|ms| i64::try_from(ms).unwrap_or(i64::MAX).min(1 << 60));
        self.errors[last] = text.map(str::as_bytes);
        self.priorities[last] = level.map(i64::from);
        self.randoms[last] = random.into();
    }
}

impl Inner {
    /// See [`Store::settle`](dwell_store::Store::settle).
    pub(super) async fn settle(&self, settles: Vec<Settle>) -> Vec<Result<Settled>> {
        if settles.is_empty() {
            return Vec::new();
        }
        let mut columns = Columns::default();
        settles.iter().for_each(|settle| columns.settle(settle, self.random()));
        let answers = match self.settle_rows(&columns).await {
            Ok(rows) => {
                let read = |index: usize, row: &Row| match settles.get(index) {
                    Some(settle) => settled(settle, row),
                    None => Err(unreadable("an item")),
                };
                by_item(settles.len(), &rows, read, || unreadable("no answer to an item"))
            }
            Err(failure) => vec![Err(failed(failure, None)); settles.len()],
        };
        // Each settlement may have made a message ready, or room for another lease.
        for (settle, answer) in settles.iter().zip(&answers) {
            if matches!(answer, Ok(_) | Err(Error::OutcomeUnknown { .. })) {
                self.waiters.hint_room(&settle.receipt.queue);
            }
            match answer {
                Ok(Settled::Ready) => self.hints.notify(&settle.receipt.queue),
                Ok(Settled::Scheduled(due)) => self.notify_due(&settle.receipt.queue, *due),
                _ => {}
            }
        }
        answers
    }

    async fn settle_rows(&self, columns: &Columns<'_>) -> std::result::Result<Vec<Row>, Failure> {
        let is_all_acks = columns.actions.iter().all(|action| *action == ACK);
        let actions = (!is_all_acks).then_some(&columns.actions);
        let arguments = [
            (&columns.queues as _, Type::TEXT_ARRAY),
            (&columns.ids as _, Type::UUID_ARRAY),
            (&columns.tokens as _, Type::UUID_ARRAY),
            (&actions as _, Type::INT2_ARRAY),
            (&columns.values as _, Type::INT8_ARRAY),
            (&columns.errors as _, Type::BYTEA_ARRAY),
            (&columns.priorities as _, Type::INT8_ARRAY),
            (&columns.randoms as _, Type::INT8_ARRAY),
            (&self.defaults as _, Type::JSONB),
        ];
        self.rows("settle_1($1, $2, $3, $4, $5, $6, $7, $8, $9)", &arguments, false).await
    }

    /// Gives back messages that were handed out but not received, without spending an attempt. If that fails now, they
    /// are ready again when their leases run out.
    pub(super) async fn give_back(&self, receipts: &[Receipt]) {
        if receipts.is_empty() {
            return;
        }
        let mut columns = Columns::default();
        receipts.iter().for_each(|receipt| columns.push(receipt, GIVE_BACK));
        let _ = self.settle_rows(&columns).await;
        for receipt in receipts {
            self.waiters.hint_room(&receipt.queue);
            self.hints.notify(&receipt.queue);
        }
    }

    /// See [`Store::expire_lease`](dwell_store::Store::expire_lease).
    pub(super) async fn expire_lease(&self, queue: &QueueName, leases: &[LeaseRef]) -> Vec<Result<Settled>> {
        let ids = uuids(leases.iter().map(|lease| &lease.id));
        let takes: Vec<i32> =
            leases.iter().map(|lease| i32::try_from(lease.takes).unwrap_or(i32::MAX)).collect();
        let name = queue.as_str();
        let arguments = [
            (&name as _, Type::TEXT),
            (&ids as _, Type::UUID_ARRAY),
            (&takes as _, Type::INT4_ARRAY),
            (&self.defaults as _, Type::JSONB),
        ];
        let answers = match self.rows("expire_lease_1($1, $2, $3, $4)", &arguments, false).await {
            Ok(rows) => {
                let read = |index: usize, row: &Row| match (leases.get(index), column::<&str>(row, "code")?) {
                    (Some(_), "") => outcome(row),
                    (Some(lease), "lease_changed") => {
                        let takes = column::<&str>(row, "info")?.parse().unwrap_or(0);
                        Err(Error::LeaseChanged { id: lease.id, takes })
                    }
                    (_, code) => {
                        let info: Option<&str> = column(row, "info")?;
                        Err(refusal(code, info.unwrap_or_default(), queue))
                    }
                };
                by_item(leases.len(), &rows, read, || unreadable("no answer to an item"))
            }
            Err(failure) => vec![Err(failed(failure, Some(queue))); leases.len()],
        };
        self.waiters.hint_room(queue);
        if answers.iter().any(Result::is_ok) {
            self.hints.notify(queue);
        }
        answers
    }
}

fn settled(settle: &Settle, row: &Row) -> Result<Settled> {
    let code: &str = column(row, "code")?;
    if code.is_empty() {
        return outcome(row);
    }
    let info: Option<&str> = column(row, "info")?;
    let invalid = match (code, &settle.action) {
        (
            "error_text_too_long",
            Action::Retry { error: Some(text), .. } | Action::Bury { reason: Some(text), .. },
        ) => Limits::check_error_text(text).err(),
        ("invalid_setting", Action::Extend { lease_ms: Some(ms) }) => {
            dwell_model::Setting::LeaseMs(*ms).check().err()
        }
        _ => None,
    };
    Err(invalid.map_or_else(|| refusal(code, info.unwrap_or_default(), &settle.receipt.queue), Error::from))
}

fn outcome(row: &Row) -> Result<Settled> {
    let value: Option<i64> = column(row, "value")?;
    let value = || value.ok_or_else(|| unreadable("a settlement"));
    match column::<&str>(row, "what")? {
        "gone" => Ok(Settled::Gone),
        "scheduled" => Ok(Settled::Scheduled(instant(value()?)?)),
        "ready" => Ok(Settled::Ready),
        "dead" => Ok(Settled::Dead(reason(value()?)?)),
        "leased" => Ok(Settled::Leased(instant(value()?)?)),
        _ => Err(unreadable("a settlement")),
    }
}

/// The id of the message in a row of `change_1`.
pub(super) fn named(row: &Row) -> Result<MessageId> {
    super::message::id(column(row, "id")?)
}
