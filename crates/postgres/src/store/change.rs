//! Cancel and reschedule.

use dwell_model::QueueName;
use dwell_store::{Cancelled, Error, Rescheduled, Result, Target, When};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::Inner;
use super::message::{by_item, column, instant};
use super::put::{targets, unknown_level, when};
use super::refusal::{expires_before_due, failed, refusal, unreadable};
use super::settle::named;
use crate::link::Failure;

impl Inner {
    /// See [`Store::cancel`](dwell_store::Store::cancel).
    pub(super) async fn cancel(&self, queue: &QueueName, wanted: &[Target]) -> Vec<Result<Cancelled>> {
        let none = vec![None; wanted.len()];
        let answers = match self.change(queue, wanted, &none, &vec![None; wanted.len()]).await {
            Ok(rows) => by_item(wanted.len(), &rows, |_, row| cancelled(queue, row), missing),
            Err(failure) => vec![Err(failed(failure, Some(queue))); wanted.len()],
        };
        self.waiters.hint(queue);
        answers
    }

    /// See [`Store::reschedule`](dwell_store::Store::reschedule).
    pub(super) async fn reschedule(
        &self,
        queue: &QueueName,
        moves: &[(Target, When)],
    ) -> Vec<Result<Rescheduled>> {
        let wanted: Vec<Target> = moves.iter().map(|(target, _)| target.clone()).collect();
        let (kinds, values): (Vec<_>, Vec<_>) = moves.iter().map(|(_, at)| when(*at)).unzip();
        let kinds: Vec<Option<i16>> = kinds.into_iter().map(Some).collect();
        let answers = match self.change(queue, &wanted, &kinds, &values).await {
            Ok(rows) => {
                let read = |index: usize, row: &Row| match moves.get(index) {
                    Some((_, at)) => rescheduled(queue, *at, row),
                    None => Err(missing()),
                };
                by_item(moves.len(), &rows, read, missing)
            }
            Err(failure) => vec![Err(failed(failure, Some(queue))); moves.len()],
        };
        self.waiters.hint(queue);
        for answer in &answers {
            if let Ok(Rescheduled::Moved(_, due)) = answer {
                self.notify_due(queue, *due);
            }
        }
        answers
    }

    async fn change(
        &self,
        queue: &QueueName,
        wanted: &[Target],
        kinds: &Vec<Option<i16>>,
        values: &Vec<Option<i64>>,
    ) -> std::result::Result<Vec<Row>, Failure> {
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let (ids, keys) = targets(wanted);
        let name = queue.as_str();
        let arguments = [
            (&name as _, Type::TEXT),
            (&ids as _, Type::UUID_ARRAY),
            (&keys as _, Type::BYTEA_ARRAY),
            (kinds as _, Type::INT2_ARRAY),
            (values as _, Type::INT8_ARRAY),
            (&self.defaults as _, Type::JSONB),
        ];
        self.rows("change_1($1, $2, $3, $4, $5, $6)", &arguments, false).await
    }
}

fn missing() -> Error {
    unreadable("no answer to an item")
}

fn cancelled(queue: &QueueName, row: &Row) -> Result<Cancelled> {
    match (column::<&str>(row, "code")?, column::<Option<&str>>(row, "what")?) {
        ("", Some("cancelled")) => Ok(Cancelled::Cancelled(named(row)?)),
        ("", Some("leased")) => Ok(Cancelled::Leased(named(row)?)),
        ("", Some("dead")) => Ok(Cancelled::Dead(named(row)?)),
        ("", Some("not_found")) => Ok(Cancelled::NotFound),
        (code, _) => Err(refusal(code, column::<Option<&str>>(row, "info")?.unwrap_or_default(), queue)),
    }
}

fn rescheduled(queue: &QueueName, at: When, row: &Row) -> Result<Rescheduled> {
    let info: Option<&str> = column(row, "info")?;
    let info = info.unwrap_or_default();
    match (column::<&str>(row, "code")?, column::<Option<&str>>(row, "what")?) {
        ("", Some("moved")) => Ok(Rescheduled::Moved(named(row)?, instant(column(row, "due")?)?)),
        ("", Some("leased")) => Ok(Rescheduled::Leased(named(row)?)),
        ("", Some("dead")) => Ok(Rescheduled::Dead(named(row)?)),
        ("", Some("not_found")) => Ok(Rescheduled::NotFound),
        ("unknown_level", _) => Err(unknown_level(at, info).unwrap_or_else(missing)),
        ("expires_before_due", _) => {
            let (expires, due) = info.split_once(' ').unwrap_or_default();
            let expires = expires.parse().map_err(|_| missing()).and_then(instant)?;
            Err(expires_before_due(expires, due))
        }
        (code, _) => Err(refusal(code, info, queue)),
    }
}
