//! How slowly bytes may come: they may stand still for a while, and otherwise have to come at some rate.
//!
//! A token bucket (RFC 2697 has one): what comes faster is credit, up to as much as the time is worth for which they may
//! stand still. So whoever sends most of something at once cannot take hours over the rest of it.

/// The pace of one thing that comes.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    /// Bytes a second; 0 for any few.
    rate: u64,
    /// The most credit there may be, and what is left of it, in bytes times a thousand.
    most: u64,
    left: u64,
    /// Until when it was reckoned.
    at_ms: u64,
}

impl Pace {
    /// From `now_ms` on: `rate` bytes a second have to come, and they may stand still for `idle_ms`.
    pub(crate) fn new(idle_ms: u64, rate: u64, now_ms: u64) -> Pace {
        let most = idle_ms.saturating_mul(rate);
        Pace { rate, most, left: most, at_ms: now_ms }
    }

    /// So many `bytes` have come since it was reckoned last; false if they come too slowly.
    pub(crate) fn came(&mut self, bytes: usize, now_ms: u64) -> bool {
        let owed = now_ms.saturating_sub(self.at_ms).saturating_mul(self.rate);
        let paid = self.left.saturating_add((bytes as u64).saturating_mul(1_000));
        self.at_ms = now_ms;
        self.left = paid.saturating_sub(owed).min(self.most);
        owed <= paid
    }

    /// Until when it was reckoned.
    pub(crate) fn at_ms(&self) -> u64 {
        self.at_ms
    }

    /// The time until now was not the sender's: nothing was read.
    pub(crate) fn excuse(&mut self, now_ms: u64) {
        self.at_ms = now_ms;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_at_the_rate_may_go_on_for_ever_and_half_as_fast_for_twice_the_time() {
        let mut pace = Pace::new(60_000, 1_024, 0);
        assert!((1..10_000).all(|second| pace.came(1_024, second * 1_000)));
        let mut pace = Pace::new(60_000, 1_024, 0);
        let late = (1..10_000).find(|second| !pace.came(512, second * 1_000));
        assert_eq!(late, Some(121));
        // However small the pieces are.
        let mut pace = Pace::new(60_000, 1_024, 0);
        assert!((1..1_000_000).all(|ms| pace.came(2, ms)));
    }

    #[test]
    fn what_came_at_once_is_worth_no_more_than_the_time_it_may_stand_still() {
        let mut pace = Pace::new(60_000, 1_024, 0);
        assert!(pace.came(64 << 20, 1));
        let late = (1..10_000).find(|second| !pace.came(1, second * 1_000));
        assert_eq!(late, Some(61));
    }

    #[test]
    fn what_is_excused_is_not_reckoned_and_without_a_rate_nothing_is_too_slow() {
        let mut pace = Pace::new(1_000, 1_024, 0);
        pace.excuse(1_000_000);
        assert!(pace.came(0, 1_001_000));
        assert!(!pace.came(0, 1_001_001));
        assert!(Pace::new(1_000, 0, 0).came(0, u64::MAX));
    }
}
