//! Revive and discard of dead messages.

use dwell_model::{MessageId, QueueName};
use dwell_store::{BulkOutcome, Error, Result, Selection, When};
use tokio_postgres::types::Type;

use super::Inner;
use super::message::{column, id};
use super::put::{unknown_level, uuids, when};
use super::refusal::{failed, refusal, unreadable};
use crate::link::Failure;
use crate::values::Uuid;

/// The progress of a bulk operation, which runs in slices.
#[derive(Default)]
struct Walk {
    /// Only messages that were dead when the first slice began are processed.
    before: Option<i64>,
    /// The last message that was processed: its death and its id.
    after: Option<(i64, Uuid)>,
}

impl Inner {
    /// See [`Store::revive`](dwell_store::Store::revive).
    pub(super) async fn revive(&self, queue: &QueueName, which: Selection, at: When) -> Result<BulkOutcome> {
        let swept = self.sweep(queue, which, Some(at)).await;
        self.waiters.hint(queue);
        self.hints.notify(queue);
        swept
    }

    /// See [`Store::discard`](dwell_store::Store::discard).
    pub(super) async fn discard(&self, queue: &QueueName, which: Selection) -> Result<BulkOutcome> {
        self.sweep(queue, which, None).await
    }

    async fn sweep(&self, queue: &QueueName, which: Selection, at: Option<When>) -> Result<BulkOutcome> {
        let (ids, mut left) = match which {
            Selection::Ids(ids) => {
                self.limits.check_batch(ids.len())?;
                (Some(ids), u64::MAX)
            }
            Selection::Oldest(most) => (None, most),
            Selection::All => (None, u64::MAX),
        };
        let mut swept = BulkOutcome::default();
        let mut walk = Walk::default();
        loop {
            let is_first = walk.before.is_none();
            match self.slice(queue, ids.as_deref(), left, &mut walk, at, &mut swept).await {
                Ok(Some(turns)) => left = left.saturating_sub(turns),
                Ok(None) => return Ok(swept),
                Err(failure) => {
                    let error = match (&failure, at) {
                        (Failure::Refused { code, info, .. }, Some(at)) if code == "unknown_level" => {
                            unknown_level(at, info).unwrap_or_else(|| unreadable("a refusal"))
                        }
                        _ => failed(failure, Some(queue)),
                    };
                    return Err(match is_first || swept.done == 0 {
                        true => error,
                        false => Error::OutcomeUnknown {
                            reason: format!("{} are done, and then: {error}", swept.done).into(),
                            needs_reopen: false,
                        },
                    });
                }
            }
        }
    }

    /// Runs one slice; returns the number of messages processed, and `None` after the last slice.
    async fn slice(
        &self,
        queue: &QueueName,
        ids: Option<&[MessageId]>,
        most: u64,
        walk: &mut Walk,
        at: Option<When>,
        swept: &mut BulkOutcome,
    ) -> std::result::Result<Option<u64>, Failure> {
        let (kind, value) = at.map(when).map_or((None, None), |(kind, value)| (Some(i32::from(kind)), value));
        let named = ids.map(uuids);
        let (name, most) = (queue.as_str(), i64::try_from(most).unwrap_or(i64::MAX));
        let (died, last) = walk.after.unzip();
        let arguments = [
            (&name as _, Type::TEXT),
            (&named as _, Type::UUID_ARRAY),
            (&most as _, Type::INT8),
            (&walk.before as _, Type::INT8),
            (&died as _, Type::INT8),
            (&last as _, Type::UUID),
            (&kind as _, Type::INT4),
            (&value as _, Type::INT8),
            (&self.defaults as _, Type::JSONB),
        ];
        let rows = self.rows("sweep_dead_1($1, $2, $3, $4, $5, $6, $7, $8, $9)", &arguments, false).await?;
        let unreadable = |_: Error| Failure::Unknown { reason: "an answer that cannot be read".to_owned() };
        let mut turns = 0;
        for row in &rows {
            if let Some(refused) = column::<Option<Uuid>>(row, "id").map_err(unreadable)? {
                let refused = id(refused).map_err(unreadable)?;
                turns += 1;
                swept.refused_in_all += 1;
                if swept.refused.len() < BulkOutcome::MAX_REFUSED {
                    let code: &str = column(row, "code").map_err(unreadable)?;
                    let info: Option<&str> = column(row, "info").map_err(unreadable)?;
                    swept.refused.push((refused, refusal(code, info.unwrap_or_default(), queue)));
                }
                continue;
            }
            let done: i64 = column::<Option<i64>>(row, "done").map_err(unreadable)?.unwrap_or(0);
            swept.done += u64::try_from(done).unwrap_or(0);
            turns += u64::try_from(done).unwrap_or(0);
            if column::<Option<bool>>(row, "is_more").map_err(unreadable)? == Some(true) {
                walk.before = walk.before.or(column(row, "now_ms").map_err(unreadable)?);
                let died: Option<i64> = column(row, "died").map_err(unreadable)?;
                let last: Option<Uuid> = column(row, "last").map_err(unreadable)?;
                walk.after = died.zip(last);
                return Ok(Some(turns));
            }
        }
        Ok(None)
    }
}
