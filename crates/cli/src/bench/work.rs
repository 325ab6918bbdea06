//! The threads of a bench: those that put, and those that take and ack.

use super::peer::{Wire, body};
use super::tally::Tally;
use super::{Wish, rest};
use crate::exit::Failure;

/// How long a thread rests after a refusal, in milliseconds.
const REFUSED_MS: u64 = 20;

/// How long to wait for messages that were put, are due, and do not come.
const MISSING_US: u64 = 30_000_000;

/// Puts until enough was put, or for as long as was asked for.
pub(super) fn produce(mut wire: impl Wire, wish: &Wish, tally: &Tally) -> Result<(), Failure> {
    let _over = Over(tally);
    let mut next_us = 0.0;
    loop {
        if let Some(rate) = wish.rate {
            wait_until(next_us, tally);
            next_us += wish.batch as f64 * wish.connections as f64 / f64::from(rate) * 1e6;
        }
        let is_over = wish.for_ms.is_some_and(|ms| tally.now_us() >= ms.saturating_mul(1_000));
        if is_over || tally.is_stopped() {
            return Ok(());
        }
        let count = tally.claim(wish.batch);
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

fn wait_until(us: f64, tally: &Tally) {
    loop {
        let left_ms = (us - tally.now_us() as f64) / 1_000.0;
        if left_ms < 1.0 || tally.is_stopped() {
            return;
        }
        rest((left_ms as u64).clamp(1, super::TICK_MS));
    }
}

/// However it ends, it puts no more.
struct Over<'a>(&'a Tally);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.has_put();
    }
}

/// Takes and acks until all that was put has come.
pub(super) fn consume(mut wire: impl Wire, wish: &Wish, tally: &Tally) -> Result<(), Failure> {
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

/// Whether all that was put is acked, or the rest is long overdue.
fn all_came(tally: &Tally, delay_us: u64) -> bool {
    let counts = tally.counts();
    let last_us = counts.acked.last_us.max(counts.put.last_us.saturating_add(delay_us));
    counts.acked.messages >= counts.put.messages || tally.now_us() > last_us.saturating_add(MISSING_US)
}
