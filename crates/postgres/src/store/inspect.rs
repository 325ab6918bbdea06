//! Get, locate, list, peek, stats, queues, forecasts.

use dwell_model::{Cursor, Message, MessageId, Number, QueueName, StateKind, Timestamp};
use dwell_store::{Error, Forecast, Page, QueueStats, Result, StateCounts, Target};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::Inner;
use super::message::{by_item, column, id, instant, shown};
use super::put::{names, targets};
use super::refusal::{failed, refusal, unreadable};
use super::settings;
use crate::values::{Json, Uuid};

fn state_number(state: StateKind) -> i32 {
    match state {
        StateKind::Scheduled => 1,
        StateKind::Ready => 2,
        StateKind::Leased => 3,
        StateKind::Dead => 4,
    }
}

impl Inner {
    /// See [`Store::get`](dwell_store::Store::get).
    pub(super) async fn get(&self, queue: &QueueName, wanted: &[Target], dead: bool) -> Vec<Result<Message>> {
        if wanted.is_empty() {
            return Vec::new();
        }
        let (ids, keys) = targets(wanted);
        let name = queue.as_str();
        let arguments = [
            (&name as _, Type::TEXT),
            (&ids as _, Type::UUID_ARRAY),
            (&keys as _, Type::BYTEA_ARRAY),
            (&dead as _, Type::BOOL),
            (&self.defaults as _, Type::JSONB),
        ];
        match self.rows("get_1($1, $2, $3, $4, $5)", &arguments, true).await {
            Ok(rows) => {
                let read = |_: usize, row: &Row| match column::<Option<&str>>(row, "code")? {
                    None | Some("") => shown(queue, row, self.clock.now()),
                    Some(code) => Err(self.unless_waited_on(refusal(code, "", queue), queue)),
                };
                by_item(wanted.len(), &rows, read, || unreadable("no answer to an item"))
            }
            Err(failure) => vec![Err(failed(failure, Some(queue))); wanted.len()],
        }
    }

    /// A queue that takes of this process wait on is known, even if it has no messages.
    fn unless_waited_on(&self, error: Error, queue: &QueueName) -> Error {
        match error {
            Error::UnknownQueue { queue: named } if self.waiters.count(queue) > 0 => {
                Error::MessageNotFound { queue: named }
            }
            error => error,
        }
    }

    /// See [`Store::locate`](dwell_store::Store::locate).
    pub(super) async fn locate(&self, numbers: &[Number]) -> Vec<Result<Option<(QueueName, MessageId)>>> {
        // The cast is lossless: a number is below 2^53.
        let wanted: Vec<i64> = numbers.iter().map(|number| number.get() as i64).collect();
        let arguments = [(&wanted as _, Type::INT8_ARRAY), (&self.defaults as _, Type::JSONB)];
        let rows = match self.rows("locate_1($1, $2)", &arguments, true).await {
            Ok(rows) => rows,
            Err(failure) => {
                let error = failed(failure, None);
                return vec![Err(error); numbers.len()];
            }
        };
        let mut found = vec![Ok(None); numbers.len()];
        for row in &rows {
            if let Ok(Some(item)) = column::<Option<i32>>(row, "item")
                && let Some(index) = usize::try_from(item).ok().and_then(|item| item.checked_sub(1))
                && let Some(answer) = found.get_mut(index)
            {
                *answer = located(row).map(Some);
            }
        }
        found
    }

    /// See [`Store::list`](dwell_store::Store::list).
    pub(super) async fn list(
        &self,
        queue: &QueueName,
        state: StateKind,
        after: Option<Cursor>,
        max: usize,
    ) -> Result<Page> {
        let max = i32::try_from(max.min(self.limits.batch)).unwrap_or(i32::MAX);
        let name = queue.as_str();
        let (state, bytes) = (state_number(state), Page::MAX_BYTES as i64);
        let (due, last) = (after.map(|at| at.due.as_ms()), after.map(|at| Uuid(at.id.as_bits())));
        let arguments = [
            (&name as _, Type::TEXT),
            (&state as _, Type::INT4),
            (&due as _, Type::INT8),
            (&last as _, Type::UUID),
            (&max as _, Type::INT4),
            (&bytes as _, Type::INT8),
            (&self.defaults as _, Type::JSONB),
        ];
        let mut page = Page { messages: Vec::new(), unread: Vec::new(), next: None };
        let rows = match self.rows("list_1($1, $2, $3, $4, $5, $6, $7)", &arguments, true).await {
            Ok(rows) => rows,
            Err(failure) => {
                let error = failed(failure, Some(queue));
                let is_waited_on =
                    matches!(error, Error::UnknownQueue { .. }) && self.waiters.count(queue) > 0;
                return if is_waited_on { Ok(page) } else { Err(error) };
            }
        };
        for row in &rows {
            let Some(Uuid(bits)) = column::<Option<Uuid>>(row, "id")? else { continue };
            let at = id(Uuid(bits))?;
            if column::<Option<i32>>(row, "item")?.is_none() {
                page.next = Some(Cursor { due: instant(column(row, "due")?)?, id: at });
                continue;
            }
            match shown(queue, row, self.clock.now()) {
                Ok(message) => page.messages.push(message),
                Err(error) => page.unread.push((at, error)),
            }
        }
        Ok(page)
    }

    /// See [`Store::peek`](dwell_store::Store::peek).
    pub(super) async fn peek(&self, queue: &QueueName, state: StateKind) -> Result<Option<Message>> {
        let (name, state) = (queue.as_str(), state_number(state));
        let arguments =
            [(&name as _, Type::TEXT), (&state as _, Type::INT4), (&self.defaults as _, Type::JSONB)];
        let rows = match self.rows("peek_1($1, $2, $3)", &arguments, true).await {
            Ok(rows) => rows,
            Err(failure) => match failed(failure, Some(queue)) {
                Error::UnknownQueue { .. } if self.waiters.count(queue) > 0 => return Ok(None),
                error => return Err(error),
            },
        };
        for row in &rows {
            if column::<Option<i32>>(row, "item")?.is_some() {
                return shown(queue, row, self.clock.now()).map(Some);
            }
        }
        Ok(None)
    }

    /// See [`Store::stats`](dwell_store::Store::stats).
    pub(super) async fn stats(&self, queue: &QueueName) -> Result<QueueStats> {
        let name = queue.as_str();
        let floor = self.floors.of(queue, self.link.lost()).0;
        let arguments =
            [(&name as _, Type::TEXT), (&floor as _, Type::INT8), (&self.defaults as _, Type::JSONB)];
        let rows = self.rows("stats_1($1, $2, $3)", &arguments, true).await;
        let rows = rows.map_err(|failure| failed(failure, Some(queue)))?;
        let row = rows.first().ok_or_else(|| unreadable("no stats"))?;
        match column::<&str>(row, "code")? {
            "" => self.read_stats(queue, row),
            "unknown_queue" if self.waiters.count(queue) > 0 => Ok(self.bare_stats(queue)),
            code => Err(refusal(code, "", queue)),
        }
    }

    /// The stats of a queue that has only waiting takes.
    pub(super) fn bare_stats(&self, queue: &QueueName) -> QueueStats {
        QueueStats {
            name: queue.clone(),
            counts: StateCounts::default(),
            waiting: self.waiters.count(queue),
            next_due: None,
            settings: self.limits.defaults.clone(),
            own: dwell_model::OwnSettings::default(),
            unread: None,
        }
    }

    fn read_stats(&self, queue: &QueueName, row: &Row) -> Result<QueueStats> {
        // Counts are stored apart from the messages, and may lag behind for a moment; a negative count is reported as zero.
        let count = |name: &str| column::<i64>(row, name).map(|count| u64::try_from(count).unwrap_or(0));
        let now = instant(column(row, "now_ms")?)?;
        let Json(own) = column(row, "own")?;
        let own = settings::read(&own, now, &self.limits.defaults).ok_or_else(|| unreadable("settings"))?;
        Ok(QueueStats {
            name: queue.clone(),
            counts: StateCounts {
                scheduled: count("scheduled")?,
                ready: count("ready")?,
                ready_urgent: count("ready_urgent")?,
                leased: count("leased")?,
                dead: count("dead")?,
            },
            waiting: self.waiters.count(queue),
            next_due: column::<Option<i64>>(row, "next_due")?.map(instant).transpose()?,
            settings: own.over(&self.limits.defaults),
            own,
            unread: None,
        })
    }

    /// See [`Store::queues`](dwell_store::Store::queues).
    pub(super) async fn queues(&self, after: Option<&QueueName>, max: usize) -> Result<Vec<QueueStats>> {
        let (name, most) = (after.map(QueueName::as_str), i32::try_from(max).unwrap_or(i32::MAX));
        let arguments =
            [(&name as _, Type::TEXT), (&most as _, Type::INT4), (&self.defaults as _, Type::JSONB)];
        let rows = self.rows("queues_1($1, $2, $3)", &arguments, true).await;
        let rows = rows.map_err(|failure| failed(failure, None))?;
        let mut page = Vec::new();
        for row in &rows {
            let Some(name) = column::<Option<&str>>(row, "name")? else { continue };
            let queue = QueueName::new(name).map_err(|_| unreadable("a queue"))?;
            page.push(self.read_stats(&queue, row)?);
        }
        // Queues that have only waiting takes of this process. Those beyond the end of a full page belong to the next page.
        let end = page.last().filter(|_| page.len() >= max).map(|last: &QueueStats| last.name.clone());
        for queue in self.waiters.names() {
            let is_after = after.is_none_or(|after| queue > *after);
            let is_before = end.as_ref().is_none_or(|end| queue < *end);
            if is_after && is_before && page.iter().all(|stats| stats.name != queue) {
                page.push(self.bare_stats(&queue));
            }
        }
        page.sort_by(|a, b| a.name.cmp(&b.name));
        page.truncate(max);
        Ok(page)
    }

    /// See [`Store::forecast`](dwell_store::Store::forecast).
    pub(super) async fn forecast(
        &self,
        queues: Option<&[QueueName]>,
        edges: &[Timestamp],
    ) -> Result<Forecast> {
        Forecast::check(edges)?;
        let mut wanted = queues.map(names);
        let edges: Vec<i64> = edges.iter().map(|edge| edge.as_ms()).collect();
        loop {
            let arguments = [
                (&wanted as _, Type::TEXT_ARRAY),
                (&edges as _, Type::INT8_ARRAY),
                (&self.defaults as _, Type::JSONB),
            ];
            let rows = self.rows("forecast_1($1, $2, $3)", &arguments, true).await;
            let rows = rows.map_err(|failure| failed(failure, None))?;
            let row = rows.first().ok_or_else(|| unreadable("no forecast"))?;
            let code: &str = column(row, "code")?;
            if code.is_empty() {
                let due_by: Vec<i64> = column(row, "due_by")?;
                let count = |count: i64| u64::try_from(count).unwrap_or(0);
                return Ok(Forecast {
                    scheduled: count(column(row, "scheduled")?),
                    due_by: due_by.into_iter().map(count).collect(),
                    within: 0,
                });
            }
            let named = QueueName::new(column(row, "info")?).map_err(|_| unreadable("a queue"))?;
            match &mut wanted {
                // A queue that is known only by its waiting takes has no messages to count.
                Some(wanted) if self.waiters.count(&named) > 0 => {
                    wanted.retain(|name| *name != named.as_str())
                }
                _ => return Err(refusal(code, "", &named)),
            }
        }
    }
}

fn located(row: &Row) -> Result<(QueueName, MessageId)> {
    let queue = QueueName::new(column(row, "queue")?).map_err(|_| unreadable("a queue"))?;
    Ok((queue, id(column(row, "id")?)?))
}
