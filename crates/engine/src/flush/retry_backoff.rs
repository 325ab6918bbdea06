//! The delay before failed work is retried: longer with each failure, and separate for each kind of work, so that
//! nothing else waits for it.

/// The first delay and the maximum one, in ms.
const FIRST_MS: u64 = 1_000;
const LONGEST_MS: u64 = 600_000;

/// The end of the delay of one kind of work.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RetryBackoff {
    /// On the monotonic clock.
    until_ms: u64,
    last_ms: u64,
}

impl RetryBackoff {
    pub(super) fn is_over(&self, mono_ms: u64) -> bool {
        mono_ms >= self.until_ms
    }

    /// Sets the delay after a failure of work that was begun at `begun_ms`. Work that takes longer has a longer delay,
    /// so that failures do not take most of the disk's time.
    pub(super) fn failed(&mut self, begun_ms: u64, mono_ms: u64) {
        let took_ms = mono_ms.saturating_sub(begun_ms);
        let least = FIRST_MS.max(took_ms.saturating_mul(8)).min(LONGEST_MS);
        self.last_ms = self.last_ms.saturating_mul(2).clamp(least, LONGEST_MS);
        self.until_ms = mono_ms.saturating_add(self.last_ms);
    }

    /// Resets the delay after a success.
    pub(super) fn end(&mut self) {
        *self = RetryBackoff::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_longer_each_time_up_to_ten_minutes_and_begins_anew_after_a_success() {
        let mut rest = RetryBackoff::default();
        assert!(rest.is_over(0));
        let mut now = 5_000;
        for wait in [1_000, 2_000, 4_000, 8_000] {
            rest.failed(now, now);
            assert!(!rest.is_over(now + wait - 1) && rest.is_over(now + wait), "{wait}");
            now += wait;
        }
        rest.failed(now - 10_000, now);
        assert!(!rest.is_over(now + 79_999) && rest.is_over(now + 80_000), "it took ten seconds");
        for _ in 0..10 {
            rest.failed(now, now);
        }
        assert!(!rest.is_over(now + 599_999) && rest.is_over(now + 600_000));
        rest.end();
        assert!(rest.is_over(0));
        rest.failed(now, now);
        assert!(rest.is_over(now + 1_000));
    }
}
