//! The retry ladder: a lane's own delays before the next attempts of a failed message.

use std::time::Duration;

use dwell_model::{MessageId, Setting, parse_duration_ms};

use crate::{Error, Result, jitter};

/// Delays before the second attempt, the third, and so on; the last one repeats.
///
/// Each is shortened by up to 20 %, by a hash of the message's id and attempt, so that messages that failed together
/// are retried apart. A lane without a ladder uses the backoff of its queue.
///
/// The number of attempts is the message's or the queue's `max_attempts`, not the length of the ladder.
///
/// ```
/// use dwell_delivery::Ladder;
///
/// let ladder = Ladder::parse(["1s", "5s", "30s", "2m", "10m", "1h", "2h"])?;
/// assert_eq!(ladder.longest_ms(9), 7_200_000);
/// # Ok::<(), dwell_delivery::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ladder {
    /// Never empty.
    steps_ms: Vec<u64>,
}

impl Ladder {
    /// The maximum number of steps.
    pub const MAX_STEPS: usize = 100;
    /// The maximum share that a delay is shortened by, in percent.
    pub const JITTER_PERCENT: u32 = 20;

    /// A ladder of these delays. Delays are rounded up to milliseconds.
    ///
    /// # Errors
    /// [`Error::InvalidLadder`] if there is none or more than [`Ladder::MAX_STEPS`], or if one is longer than a backoff may be
    /// ([`Setting::MAX_BACKOFF_MS`]).
    pub fn new(steps: impl IntoIterator<Item = Duration>) -> Result<Ladder> {
        Ladder::of_ms(steps.into_iter().map(crate::whole_ms).collect())
    }

    /// A ladder of delays in the form of a configuration: `1s`, `1h30m`.
    ///
    /// # Errors
    /// Those of [`Ladder::new`], and [`Error::Store`] (`malformed_delay`, `negative_delay`) for a text that is not a
    /// duration.
    pub fn parse<'a>(steps: impl IntoIterator<Item = &'a str>) -> Result<Ladder> {
        let steps: std::result::Result<Vec<u64>, _> = steps.into_iter().map(parse_duration_ms).collect();
        Ladder::of_ms(steps.map_err(dwell_store::Error::from)?)
    }

    fn of_ms(steps_ms: Vec<u64>) -> Result<Ladder> {
        let refuse = |reason: String| Err(Error::InvalidLadder { reason: reason.into() });
        if steps_ms.is_empty() || steps_ms.len() > Ladder::MAX_STEPS {
            return refuse(format!("it has 1 to {} delays, not {}", Ladder::MAX_STEPS, steps_ms.len()));
        }
        if let Some(long) = steps_ms.iter().find(|ms| **ms > Setting::MAX_BACKOFF_MS) {
            return refuse(format!("a delay has at most {} ms, not {long}", Setting::MAX_BACKOFF_MS));
        }
        Ok(Ladder { steps_ms })
    }

    /// The delay after attempt `attempt` (from 1) of this message, in milliseconds.
    pub fn delay_ms(&self, attempt: u32, id: MessageId) -> u64 {
        let parts: [&[u8]; 2] = [&id.as_bits().to_le_bytes(), &attempt.to_le_bytes()];
        jitter::shortened(self.longest_ms(attempt), Ladder::JITTER_PERCENT, &parts)
    }

    /// The delay before jitter.
    pub fn longest_ms(&self, attempt: u32) -> u64 {
        let step = (attempt.max(1) as usize - 1).min(self.steps_ms.len() - 1);
        self.steps_ms[step]
    }
}

#[cfg(test)]
mod tests {
    use dwell_model::Timestamp;

    use super::*;

    fn id(counter: u64) -> MessageId {
        MessageId::new(Timestamp::MIN, 0, 0, counter)
    }

    #[test]
    fn delays_follow_the_ladder_and_the_last_repeats() {
        let ladder = Ladder::parse(["1s", "5s", "1m"]).unwrap();
        for (attempt, step_ms) in
            [(0, 1_000), (1, 1_000), (2, 5_000), (3, 60_000), (4, 60_000), (u32::MAX, 60_000)]
        {
            let delay = ladder.delay_ms(attempt, id(7));
            assert!((step_ms * 8 / 10..=step_ms).contains(&delay), "attempt {attempt}: {delay}");
        }
    }

    #[test]
    fn jitter_is_the_messages_own_and_always_the_same() {
        let ladder = Ladder::parse(["1h"]).unwrap();
        let delays: Vec<u64> = (0..100).map(|n| ladder.delay_ms(1, id(n))).collect();
        let again: Vec<u64> = (0..100).map(|n| ladder.delay_ms(1, id(n))).collect();
        assert_eq!(delays, again);
        let mut apart = delays.clone();
        apart.sort_unstable();
        apart.dedup();
        assert!(apart.len() > 95, "of 100 messages only {} are apart", apart.len());
        assert_ne!(ladder.delay_ms(1, id(1)), ladder.delay_ms(2, id(1)));
    }

    #[test]
    fn what_is_no_ladder_is_refused() {
        assert_eq!(Ladder::parse([]).unwrap_err().code(), "invalid_ladder");
        assert_eq!(Ladder::new(vec![Duration::ZERO; 101]).unwrap_err().code(), "invalid_ladder");
        assert_eq!(Ladder::new([Duration::MAX]).unwrap_err().code(), "invalid_ladder");
        assert_eq!(Ladder::parse(["5"]).unwrap_err().code(), "malformed_delay");
        assert_eq!(Ladder::parse(["-5s"]).unwrap_err().code(), "negative_delay");
        assert!(Ladder::new(vec![Duration::ZERO; 100]).is_ok());
    }
}
