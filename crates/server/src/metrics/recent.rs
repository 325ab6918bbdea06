//! Recent counts and lateness, in slots of ten seconds for a quarter of an hour, and of ten minutes for a day.
//!
//! Slots are written when something is counted, and read on request: there is no timer, and a slot in which nothing
//! happened still has an older number. `now` is an argument.

use dwell_model::Timestamp;
use dwell_wire::Series;

use super::queues::LATENESS_MS;

/// Ninety slots of ten seconds.
const FINE: (u64, usize) = (10_000, 90);
/// A hundred and forty-four slots of ten minutes.
const COARSE: (u64, usize) = (600_000, 144);

/// One more than there are bounds, for latenesses above the last.
const BUCKETS: usize = LATENESS_MS.len() + 1;

/// The counts of one slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) puts: u32,
    pub(crate) takes: u32,
    pub(crate) acks: u32,
    pub(crate) retries: u32,
    pub(crate) deaths: u32,
    lateness: [u32; BUCKETS],
    most_ms: u32,
}

impl Tally {
    /// Counts a message that was taken with this lateness.
    pub(crate) fn take(&mut self, lateness_ms: u64) {
        self.takes += 1;
        self.lateness[LATENESS_MS.partition_point(|bound| *bound < lateness_ms)] += 1;
        self.most_ms = self.most_ms.max(u32::try_from(lateness_ms).unwrap_or(u32::MAX));
    }

    fn is_empty(&self) -> bool {
        *self == Tally::default()
    }

    fn add(&mut self, more: &Tally) {
        let pairs = [
            (&mut self.puts, more.puts),
            (&mut self.takes, more.takes),
            (&mut self.acks, more.acks),
            (&mut self.retries, more.retries),
            (&mut self.deaths, more.deaths),
        ];
        for (count, more) in pairs.into_iter().chain(self.lateness.iter_mut().zip(more.lateness)) {
            *count = count.saturating_add(more);
        }
        self.most_ms = self.most_ms.max(more.most_ms);
    }

    /// The lateness at this percentile, rounded up to a bound of the histogram; `None` if nothing was taken.
    fn percentile(&self, percent: u64) -> Option<u64> {
        let all: u64 = self.lateness.iter().map(|count| u64::from(*count)).sum();
        let wanted = (all * percent).div_ceil(100);
        let mut seen = 0;
        let at = self.lateness.iter().position(|count| {
            seen += u64::from(*count);
            all > 0 && seen >= wanted
        })?;
        let most = u64::from(self.most_ms);
        Some(LATENESS_MS.get(at).map_or(most, |bound| (*bound).min(most)))
    }
}

/// A slot and its index, counted from the epoch.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    number: u64,
    tally: Tally,
}

/// The slots of one length.
#[derive(Debug)]
struct Ring {
    step_ms: u64,
    slots: Box<[Slot]>,
}

impl Ring {
    fn new((step_ms, len): (u64, usize)) -> Ring {
        Ring { step_ms, slots: vec![Slot::default(); len].into() }
    }

    fn number(&self, now: Timestamp) -> u64 {
        now.as_ms().unsigned_abs() / self.step_ms
    }

    fn add(&mut self, now: Timestamp, more: &Tally) {
        let number = self.number(now);
        let at = (number % self.slots.len() as u64) as usize;
        if let Some(slot) = self.slots.get_mut(at) {
            if slot.number != number {
                *slot = Slot { number, tally: Tally::default() };
            }
            slot.tally.add(more);
        }
    }

    /// Oldest first; the last is the current slot.
    fn tallies(&self, now: Timestamp) -> Vec<Tally> {
        let (last, len) = (self.number(now), self.slots.len() as u64);
        let numbers = (0..len).map(|back| last.checked_sub(len - 1 - back));
        let found = numbers.map(|number| {
            let number = number?;
            let slot = self.slots.get((number % len) as usize)?;
            (slot.number == number).then_some(slot.tally)
        });
        found.map(Option::unwrap_or_default).collect()
    }

    fn series(&self, now: Timestamp) -> Series {
        let tallies = self.tallies(now);
        let counts = |of: fn(&Tally) -> u32| tallies.iter().map(|tally| u64::from(of(tally))).collect();
        let late = |of: &dyn Fn(&Tally) -> Option<u64>| tallies.iter().map(of).collect();
        let end_ms = (self.number(now) + 1) * self.step_ms;
        Series {
            step_ms: self.step_ms,
            end: Timestamp::MIN.saturating_after(end_ms),
            puts: counts(|tally| tally.puts),
            takes: counts(|tally| tally.takes),
            acks: counts(|tally| tally.acks),
            retries: counts(|tally| tally.retries),
            deaths: counts(|tally| tally.deaths),
            lateness_p50_ms: late(&|tally| tally.percentile(50)),
            lateness_p99_ms: late(&|tally| tally.percentile(99)),
            lateness_max_ms: late(&|tally| (tally.takes > 0).then_some(u64::from(tally.most_ms))),
        }
    }
}

/// Recent events of one queue or of all. It allocates nothing until the first event.
#[derive(Debug, Default)]
pub(crate) struct Recent(Option<[Ring; 2]>);

impl Recent {
    /// The bytes that it allocates at the first event.
    #[cfg(test)]
    const BYTES: usize = (FINE.1 + COARSE.1) * size_of::<Slot>();

    pub(crate) fn add(&mut self, now: Timestamp, more: &Tally) {
        if !more.is_empty() {
            let rings = self.0.get_or_insert_with(|| [Ring::new(FINE), Ring::new(COARSE)]);
            rings.iter_mut().for_each(|ring| ring.add(now, more));
        }
    }

    /// Both series, the finer slots first.
    pub(crate) fn series(&self, now: Timestamp) -> Vec<Series> {
        match &self.0 {
            Some(rings) => rings.iter().map(|ring| ring.series(now)).collect(),
            None => [FINE, COARSE].map(|size| Ring::new(size).series(now)).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::queues::OWN_SERIES;
    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_ms(1_795_000_000_000 + ms).unwrap()
    }

    fn puts(count: u32) -> Tally {
        Tally { puts: count, ..Tally::default() }
    }

    #[test]
    fn all_of_it_is_small() {
        // Each queue with a series of its own, the others, and all together.
        const { assert!(Recent::BYTES * (OWN_SERIES + 2) <= 4 * 1024 * 1024) };
    }

    #[test]
    fn slots_lie_at_whole_steps_and_the_last_is_being_counted() {
        let mut recent = Recent::default();
        recent.add(at(0), &puts(1));
        recent.add(at(9_999), &puts(2));
        recent.add(at(10_000), &puts(4));
        let [fine, coarse] = &recent.series(at(12_000))[..] else { panic!("two") };
        assert_eq!((fine.puts.len(), coarse.puts.len()), (90, 144));
        assert_eq!(fine.puts[88..], [3, 4]);
        assert_eq!((fine.end, fine.step_ms), (at(20_000), 10_000));
        assert_eq!(coarse.puts[143], 7);
        assert_eq!(fine.puts.iter().sum::<u64>(), 7);
    }

    #[test]
    fn what_is_older_than_the_slots_is_gone_and_nothing_comes_back_with_a_slot() {
        let mut recent = Recent::default();
        recent.add(at(0), &puts(1));
        assert_eq!(recent.series(at(899_999))[0].puts[0], 1);
        assert_eq!(recent.series(at(900_000))[0].puts.iter().sum::<u64>(), 0, "it has left");
        recent.add(at(900_000), &puts(5));
        let [fine, coarse] = &recent.series(at(900_000))[..] else { panic!("two") };
        assert_eq!((fine.puts[89], fine.puts.iter().sum::<u64>()), (5, 5), "the slot was another's");
        assert_eq!(coarse.puts.iter().sum::<u64>(), 6);
    }

    #[test]
    fn nothing_has_happened_in_a_recent_that_is_new() {
        let recent = Recent::default();
        assert!(recent.series(at(0)).iter().all(|series| series.puts.iter().all(|count| *count == 0)));
        assert!(recent.series(at(0))[0].lateness_p50_ms.iter().all(Option::is_none));
        assert!(recent.0.is_none(), "and it holds nothing");
    }

    #[test]
    fn lateness_is_told_by_the_histogram_s_bounds_and_never_past_the_latest() {
        let mut tally = Tally::default();
        assert_eq!(tally.percentile(50), None);
        (0..98).for_each(|_| tally.take(1));
        tally.take(30);
        tally.take(7_000);
        assert_eq!(tally.percentile(50), Some(1));
        assert_eq!(tally.percentile(99), Some(50));
        assert_eq!(tally.percentile(100), Some(7_000));
        let mut late = Tally::default();
        late.take(10_000_000);
        assert_eq!((late.percentile(50), late.takes), (Some(10_000_000), 1));
    }
}
