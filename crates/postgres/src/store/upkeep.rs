//! Periodic maintenance: once a second it folds counts, removes what is over, and gives space back. If no call was made
//! since the last run, it runs once in ten seconds.

use std::collections::{BTreeSet, HashMap};
use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};

use dwell_store::Result;
use tokio::sync::Notify;
use tokio_postgres::types::Type;

use super::Inner;
use super::message::column;
use super::refusal::{failed, unreadable};
use super::timer::Sleep;
use crate::floor::Writers;

const TICK_MS: u64 = 1_000;
const IDLE_TICKS: u64 = 10;

/// How many expired messages a run of the maintenance removes, in how many slices: takes pass over the rest.
const SLICES: usize = 10;
const SLICE: i32 = 1_000;

/// The most rounds of `IDLE_TICKS` between two attempts to give back the space of a table: about ten minutes.
const MOST_ROUNDS: u64 = 64;

/// When the next run of a periodic task is due, and a notification that a run has ended.
#[derive(Default)]
pub(super) struct Ticks {
    next_ms: AtomicU64,
    ended: Notify,
}

impl Ticks {
    /// Of a task that does not run yet.
    pub(super) fn of_none() -> Ticks {
        Ticks { next_ms: AtomicU64::new(u64::MAX), ended: Notify::new() }
    }

    /// Notes that a run has ended; the next one is due at the end of the sleep.
    pub(super) fn next(&self, inner: &Inner, ms: u64) -> Sleep {
        let next_ms = inner.clock.now().mono_ms.saturating_add(ms);
        self.next_ms.store(next_ms, Ordering::Relaxed);
        self.ended.notify_waiters();
        inner.timer.sleep_until(next_ms)
    }

    /// Notes that there is no further run.
    pub(super) fn end(&self) {
        self.next_ms.store(u64::MAX, Ordering::Relaxed);
        self.ended.notify_waiters();
    }

    /// Waits until every run that is due has ended.
    pub(super) async fn wait(&self, now_ms: u64) {
        loop {
            let ended = self.ended.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            if self.next_ms.load(Ordering::Relaxed) > now_ms {
                return;
            }
            ended.await;
        }
    }
}

/// Runs until the store is dropped.
pub(super) async fn run(inner: Weak<Inner>) {
    let mut ticks = 0_u64;
    let mut later = Later::default();
    loop {
        let sleep = {
            let Some(inner) = inner.upgrade() else { return };
            if inner.has_left.load(Ordering::Relaxed) {
                return;
            }
            inner.ticks.next(&inner, TICK_MS)
        };
        sleep.await;
        let Some(inner) = inner.upgrade() else { return };
        if inner.has_left.load(Ordering::Relaxed) {
            return;
        }
        ticks += 1;
        // After a leap of the clock this process would take its own session for dead.
        inner.beats.wait(inner.clock.now().mono_ms).await;
        // If a step fails, the next run repeats it.
        let has_called = inner.has_called.swap(false, Ordering::Relaxed);
        if has_called || ticks.is_multiple_of(IDLE_TICKS) {
            let _ = inner.look().await;
            let _ = inner.count_leases().await;
            let _ = inner.maintain().await;
        }
        if ticks.is_multiple_of(IDLE_TICKS) {
            let _ = inner.give_back_space(&mut later, ticks / IDLE_TICKS).await;
        }
    }
}

/// Tables whose space could not be given back: when to try again, and how many rounds lie between.
#[derive(Default)]
struct Later(HashMap<i32, (u64, u64)>);

impl Later {
    /// Forgets all tables but these, and returns those to be tried in this round.
    fn pick(&mut self, tables: Vec<i32>, round: u64) -> Vec<i32> {
        self.0.retain(|table, _| tables.contains(table));
        let is_time = |table: &i32| self.0.get(table).is_none_or(|(next, _)| *next <= round);
        tables.into_iter().filter(is_time).collect()
    }

    /// Notes an attempt in vain: the time to the next one doubles.
    fn postpone(&mut self, table: i32, round: u64) {
        let rounds = self.0.get(&table).map_or(1, |(_, rounds)| (rounds * 2).min(MOST_ROUNDS));
        self.0.insert(table, (round + rounds, rounds));
    }
}

impl Inner {
    /// Takes a snapshot of the transactions that may still add messages, so that takes know where to begin.
    pub(super) async fn look(&self) -> Result<()> {
        let lost = self.link.lost();
        let rows = self.rows_by_itself("writers_1()", &[]).await?;
        let row = rows.first().ok_or_else(|| unreadable("no look"))?;
        let writers = |name: &str| -> Result<Writers> {
            let open: Vec<String> = column(row, name)?;
            Ok(Writers { now_ms: column(row, "now_ms")?, open: open.into_iter().collect::<BTreeSet<_>>() })
        };
        let place: String = column(row, "place")?;
        if self.floors.look(writers("puts")?, writers("leases")?, place, lost) {
            self.link.has_moved();
        }
        Ok(())
    }

    /// Counts the leases, so that takes far from the caps need not.
    async fn count_leases(&self) -> Result<()> {
        self.leases.counted(None);
        let rows = self.rows_by_itself("leased_1()", &[]).await?;
        let count: i64 = column(rows.first().ok_or_else(|| unreadable("no count"))?, "f")?;
        self.leases.counted(u64::try_from(count).ok());
        Ok(())
    }

    async fn maintain(&self) -> Result<()> {
        for _ in 0..SLICES {
            let rows = self.rows_by_itself("maintain_1($1)", &[(&self.defaults as _, Type::JSONB)]).await?;
            let expired: Option<i32> = rows.first().map_or(Ok(None), |row| column(row, "expired"))?;
            if expired.is_none_or(|expired| expired < SLICE) {
                break;
            }
        }
        Ok(())
    }

    /// Gives back the space of tables that are empty. Each is a statement of its own, and so is its lock.
    async fn give_back_space(&self, later: &mut Later, round: u64) -> Result<()> {
        let sealed = self.floors.sealed_ms(self.link.lost());
        let rows = self.rows_by_itself("idle_1($1)", &[(&sealed as _, Type::INT8)]).await?;
        let tables = rows.iter().map(|row| column::<Option<i32>>(row, "f"));
        let tables = tables.filter_map(Result::transpose).collect::<Result<Vec<i32>>>()?;
        for table in later.pick(tables, round) {
            let rows = self.rows_by_itself("give_back_1($1)", &[(&table as _, Type::INT4)]).await;
            // Who holds a lock on it, such as pg_dump, delays this table alone.
            let is_done = rows.is_ok_and(|rows| rows.first().is_some_and(|row| column(row, "f") == Ok(true)));
            if !is_done {
                later.postpone(table, round);
            }
        }
        Ok(())
    }

    /// A call on behalf of the maintenance, which does not count as a call of the process.
    pub(super) async fn rows_by_itself(
        &self,
        call: &str,
        arguments: &[crate::link::Argument<'_>],
    ) -> Result<Vec<tokio_postgres::Row>> {
        self.noted(self.link.call(call, arguments, true).await).map_err(|failure| failed(failure, None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_is_needed_is_tried_less_and_less_often() {
        let mut later = Later::default();
        let mut tries = Vec::new();
        for round in 0..300 {
            for table in later.pick(vec![7, 100], round) {
                if table == 7 {
                    tries.push(round);
                    later.postpone(table, round);
                }
            }
        }
        assert_eq!(tries, [0, 1, 3, 7, 15, 31, 63, 127, 191, 255]);
        assert_eq!(later.pick(vec![100], 300), [100]);
        assert_eq!(later.pick(vec![7], 301), [7], "it was not there for a while");
    }
}
