//! The minimum rate of incoming bytes: they may pause for a while, and otherwise have to arrive at some rate.
//!
//! A token bucket (see RFC 2697): bytes that arrive faster are credit, up to what the allowed pause is worth. So a
//! client that sends most of something at once cannot take hours over the rest of it.

/// The rate limit of one incoming item.
#[derive(Clone, Debug)]
pub(crate) struct ArrivalRate {
    /// The minimum bytes per second; 0 for none.
    rate: u64,
    /// The maximum credit, and the present one, in bytes times a thousand.
    most: u64,
    left: u64,
    /// When the credit was last updated.
    at_ms: u64,
}

impl ArrivalRate {
    /// From `now_ms` on, `rate` bytes per second have to arrive, with pauses of up to `idle_ms`.
    pub(crate) fn new(idle_ms: u64, rate: u64, now_ms: u64) -> ArrivalRate {
        let most = idle_ms.saturating_mul(rate);
        ArrivalRate { rate, most, left: most, at_ms: now_ms }
    }

    /// Accounts for `bytes` that have arrived since the last update; false if they arrive too slowly.
    pub(crate) fn came(&mut self, bytes: usize, now_ms: u64) -> bool {
        let owed = now_ms.saturating_sub(self.at_ms).saturating_mul(self.rate);
        let paid = self.left.saturating_add((bytes as u64).saturating_mul(1_000));
        self.at_ms = now_ms;
        self.left = paid.saturating_sub(owed).min(self.most);
        owed <= paid
    }

    /// When the credit was last updated.
    pub(crate) fn at_ms(&self) -> u64 {
        self.at_ms
    }

    /// Excludes the time until now, in which the server did not read.
    pub(crate) fn excuse(&mut self, now_ms: u64) {
        self.at_ms = now_ms;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_at_the_rate_may_go_on_for_ever_and_half_as_fast_for_twice_the_time() {
        let mut pace = ArrivalRate::new(60_000, 1_024, 0);
        assert!((1..10_000).all(|second| pace.came(1_024, second * 1_000)));
        let mut pace = ArrivalRate::new(60_000, 1_024, 0);
        let late = (1..10_000).find(|second| !pace.came(512, second * 1_000));
        assert_eq!(late, Some(121));
        // For pieces of any size.
        let mut pace = ArrivalRate::new(60_000, 1_024, 0);
        assert!((1..1_000_000).all(|ms| pace.came(2, ms)));
    }

    #[test]
    fn what_came_at_once_is_worth_no_more_than_the_time_it_may_stand_still() {
        let mut pace = ArrivalRate::new(60_000, 1_024, 0);
        assert!(pace.came(64 << 20, 1));
        let late = (1..10_000).find(|second| !pace.came(1, second * 1_000));
        assert_eq!(late, Some(61));
    }

    #[test]
    fn what_is_excused_is_not_reckoned_and_without_a_rate_nothing_is_too_slow() {
        let mut pace = ArrivalRate::new(1_000, 1_024, 0);
        pace.excuse(1_000_000);
        assert!(pace.came(0, 1_001_000));
        assert!(!pace.came(0, 1_001_001));
        assert!(ArrivalRate::new(1_000, 0, 0).came(0, u64::MAX));
    }
}
