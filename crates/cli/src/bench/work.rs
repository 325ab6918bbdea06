//! The threads of a bench: those that put, and those that take and ack.

use super::peer::{PeerConnection, body};
use super::tally::BenchCounters;
use super::{BenchOptions, rest};
use crate::exit::Failure;

/// The pause of a thread after a refusal, in milliseconds.
const REFUSED_MS: u64 = 20;

/// How long to wait for messages that are overdue.
const MISSING_US: u64 = 30_000_000;

/// When a thread puts, and how many messages, so that all threads together keep a rate.
#[derive(Clone, Copy, Debug, PartialEq)]
struct PutRate {
    batch: usize,
    /// When its next call is due. A call is made when the time that its messages take has passed, and the threads call
    /// in turn: so never more has been put than the rate allows since the beginning.
    next_us: f64,
    every_us: f64,
}

/// With a rate, the number of calls per second of each thread, if there are enough messages for them.
const CALLS_A_SECOND: usize = 10;

impl PutRate {
    /// The pace of the thread with index `at`.
    fn new(wish: &BenchOptions, at: usize) -> PutRate {
        let Some(rate) = wish.rate else { return PutRate { batch: wish.batch, next_us: 0.0, every_us: 0.0 } };
        let batch = wish.batch.min(rate as usize / wish.connections / CALLS_A_SECOND).max(1);
        let call_us = batch as f64 / f64::from(rate) * 1e6;
        PutRate { batch, next_us: call_us * (at + 1) as f64, every_us: call_us * wish.connections as f64 }
    }
}

/// Puts until the limit of messages or time is reached, as the thread with index `at`.
pub(super) fn produce(
    mut wire: impl PeerConnection,
    wish: &BenchOptions,
    at: usize,
    tally: &BenchCounters,
) -> Result<(), Failure> {
    let _over = Over(tally);
    let mut pace = PutRate::new(wish, at);
    loop {
        if wish.rate.is_some() {
            // There is no reason to wait past the end.
            let end_us = wish.for_ms.map_or(f64::INFINITY, |ms| ms as f64 * 1_000.0);
            wait_until(pace.next_us.min(end_us), tally);
            pace.next_us += pace.every_us;
        }
        let is_over = wish.for_ms.is_some_and(|ms| tally.now_us() >= ms.saturating_mul(1_000));
        if is_over || tally.is_stopped() {
            return Ok(());
        }
        let count = tally.claim(pace.batch);
        if count == 0 {
            return Ok(());
        }
        let began_us = tally.now_us();
        let bodies = (0..count).map(|_| body(wish.body, began_us)).collect();
        if !tally.put(began_us, wire.put(bodies, wish.delay_ms)?) {
            rest(REFUSED_MS);
        }
    }
}

fn wait_until(us: f64, tally: &BenchCounters) {
    loop {
        let left_ms = (us - tally.now_us() as f64) / 1_000.0;
        if left_ms <= 0.0 || tally.is_stopped() {
            return;
        }
        rest((left_ms as u64).clamp(1, super::TICK_MS));
    }
}

/// Records the end of the thread, however it ends.
struct Over<'a>(&'a BenchCounters);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.has_put();
    }
}

/// Takes and acks until all messages that were put have arrived.
pub(super) fn consume(
    mut wire: impl PeerConnection,
    wish: &BenchOptions,
    tally: &BenchCounters,
) -> Result<(), Failure> {
    let delay_us = wish.delay_ms.saturating_mul(1_000);
    loop {
        if tally.is_stopped() || (tally.is_all_put() && all_came(tally, delay_us)) {
            return Ok(());
        }
        let taken = match wire.take(wish.batch)? {
            Ok(taken) => taken,
            Err(code) => {
                tally.refused(code);
                rest(REFUSED_MS);
                continue;
            }
        };
        if taken.is_empty() {
            continue;
        }
        tally.taken(taken.iter().map(|taken| Some(taken.sent_us?.saturating_add(delay_us))));
        let began_us = tally.now_us();
        let answers = wire.ack(taken.into_iter().map(|taken| taken.held).collect())?;
        tally.acked(began_us, answers);
    }
}

/// Whether all messages that were put are acked, or the rest is long overdue.
fn all_came(tally: &BenchCounters, delay_us: u64) -> bool {
    let counts = tally.counts();
    let last_us = counts.acked.last_us.max(counts.put.last_us.saturating_add(delay_us));
    counts.acked.messages >= counts.put.messages || tally.now_us() > last_us.saturating_add(MISSING_US)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_more_is_put_than_the_rate_allows_since_the_beginning() {
        for (rate, batch, connections) in
            [(200, 64, 4), (1, 64, 4), (7, 1, 3), (100_000, 64, 4), (50, 1_000, 1)]
        {
            let wish = BenchOptions {
                queue: None,
                beanstalkd: None,
                connections,
                batch,
                body: 16,
                delay_ms: 0,
                messages: None,
                for_ms: None,
                rate: Some(rate),
                put_only: true,
            };
            let mut calls: Vec<(f64, usize)> = (0..connections)
                .map(|at| PutRate::new(&wish, at))
                .flat_map(|pace| {
                    (0..20).map(move |call| (pace.next_us + pace.every_us * f64::from(call), pace.batch))
                })
                .collect();
            calls.sort_by(|a, b| a.0.total_cmp(&b.0));
            let mut put = 0;
            for (us, batch) in calls {
                put += batch;
                let allowed = us / 1e6 * f64::from(rate);
                assert!((put as f64 - allowed).abs() < 0.01, "{put} by {us} us at {rate} a second");
            }
        }
    }
}
