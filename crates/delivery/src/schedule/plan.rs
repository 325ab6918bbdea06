//! What to run when a schedule's message is taken, and the next instant.

use dwell_model::Timestamp;

use super::{Missed, Schedule};

/// How late a run may be taken before its instant counts as missed, in milliseconds.
pub const MISSED_AFTER_MS: u64 = 60_000;
/// The maximum number of instants that are run for one message: those of `missed = "all"`.
pub const RUNS_AT_ONCE: usize = 1_000;

/// The consequences of one message of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// The instants to run, in order.
    pub(super) runs: Vec<Timestamp>,
    /// The next instant; `None` if the schedule is over.
    pub(super) next: Option<Timestamp>,
    /// The number of instants that are not run, counted up to [`RUNS_AT_ONCE`].
    pub(super) missed: u64,
}

impl Schedule {
    /// The plan for a message that is armed for `instant`, and is taken at `taken_at` by the store's clock. Without an
    /// instant it is armed for the next one.
    ///
    /// A runner that repeats a plan after another one died within it runs the same instants under the same names:
    /// `instant` determines them, except for those that have come since.
    pub(super) fn plan(&self, instant: Option<Timestamp>, taken_at: Timestamp) -> Plan {
        let Some(instant) = instant else {
            return Plan { runs: Vec::new(), next: self.first_after(taken_at), missed: 0 };
        };
        if taken_at < self.due(instant) {
            // Taken by its id, before its time.
            return Plan { runs: Vec::new(), next: Some(instant), missed: 0 };
        }
        let mut come: Vec<Timestamp> = std::iter::successors(Some(instant), |at| self.first_after(*at))
            .take_while(|at| self.due(*at) <= taken_at)
            .take(RUNS_AT_ONCE)
            .collect();
        let next = self.next_after_all(instant, taken_at);
        let in_all = come.len() as u64;
        match self.missed {
            Missed::All => {}
            Missed::One => come.truncate(1),
            Missed::Skip => come = self.latest_in_time(instant, taken_at).into_iter().collect(),
        }
        Plan { missed: in_all.saturating_sub(come.len() as u64), runs: come, next }
    }

    /// The first instant after `instant` that is not due at `taken_at`.
    fn next_after_all(&self, instant: Timestamp, taken_at: Timestamp) -> Option<Timestamp> {
        // Earlier ones are due with any jitter.
        let from = before(taken_at, self.jitter_ms.saturating_add(1)).max(instant);
        let mut next = self.first_after(from)?;
        while self.due(next) <= taken_at {
            next = self.first_after(next)?;
        }
        Some(next)
    }

    /// The latest instant that is due at `taken_at`, from `instant` on, if it is not missed.
    fn latest_in_time(&self, instant: Timestamp, taken_at: Timestamp) -> Option<Timestamp> {
        let from = before(taken_at, self.jitter_ms.saturating_add(MISSED_AFTER_MS + 1));
        let first = if from < instant { Some(instant) } else { self.first_after(from) };
        let come = std::iter::successors(first, |at| self.first_after(*at))
            .take_while(|at| self.due(*at) <= taken_at);
        come.last().filter(|at| taken_at.ms_since(self.due(*at)) <= MISSED_AFTER_MS)
    }
}

/// The time `ms` milliseconds before `at`, or the first instant.
fn before(at: Timestamp, ms: u64) -> Timestamp {
    let ms = at.as_ms().saturating_sub_unsigned(ms).max(Timestamp::MIN.as_ms());
    Timestamp::from_ms(ms).unwrap_or(Timestamp::MIN)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Every, Times};
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn ms(ms: i64) -> Timestamp {
        Timestamp::from_ms(ms).unwrap()
    }

    /// Every ten seconds.
    fn schedule(missed: Missed) -> Schedule {
        Schedule::new("a", "q", Times::Every(Every::new(10_000).unwrap())).unwrap().missed(missed)
    }

    #[test]
    fn a_new_schedule_is_armed_and_runs_nothing() {
        let plan = schedule(Missed::All).plan(None, ms(12_345));
        assert_eq!(plan, Plan { runs: vec![], next: Some(ms(20_000)), missed: 0 });
    }

    #[test]
    fn an_instant_in_time_is_run_under_every_policy() {
        for missed in [Missed::One, Missed::Skip, Missed::All] {
            let plan = schedule(missed).plan(Some(ms(20_000)), ms(20_003));
            assert_eq!(
                plan,
                Plan { runs: vec![ms(20_000)], next: Some(ms(30_000)), missed: 0 },
                "{missed:?}"
            );
        }
    }

    #[test]
    fn a_message_that_is_taken_before_its_instant_is_armed_again() {
        let plan = schedule(Missed::One).plan(Some(ms(20_000)), ms(19_999));
        assert_eq!(plan, Plan { runs: vec![], next: Some(ms(20_000)), missed: 0 });
    }

    #[test]
    fn missed_instants_run_once_or_all_or_not_at_all() {
        let plan = |missed| schedule(missed).plan(Some(ms(20_000)), ms(55_000));
        assert_eq!(plan(Missed::One), Plan { runs: vec![ms(20_000)], next: Some(ms(60_000)), missed: 3 });
        let all = [20_000, 30_000, 40_000, 50_000].map(ms).to_vec();
        assert_eq!(plan(Missed::All), Plan { runs: all, next: Some(ms(60_000)), missed: 0 });
        assert_eq!(plan(Missed::Skip), Plan { runs: vec![ms(50_000)], next: Some(ms(60_000)), missed: 3 });
    }

    #[test]
    fn a_rare_instant_is_missed_after_a_minute() {
        let times = || Times::cron("0 9 * * *", None, "UTC").unwrap();
        let skip = Schedule::new("a", "q", times()).unwrap().missed(Missed::Skip);
        let nine = at("2026-11-26T09:00:00Z");
        assert_eq!(skip.plan(Some(nine), at("2026-11-26T09:01:00Z")).runs, [nine]);
        let late = skip.plan(Some(nine), at("2026-11-26T09:01:00.001Z"));
        assert_eq!(late, Plan { runs: vec![], next: Some(at("2026-11-27T09:00:00Z")), missed: 1 });
    }

    #[test]
    fn no_more_than_a_thousand_are_run_and_the_schedule_goes_on_from_now() {
        let long = ms(20_000 + 10_000 * 5_000);
        let plan = schedule(Missed::All).plan(Some(ms(20_000)), long);
        assert_eq!((plan.runs.len(), plan.next), (1_000, Some(long.after(10_000).unwrap())));
        // A year of seconds is not iterated over.
        let seconds = Schedule::new("a", "q", Times::Every(Every::new(1_000).unwrap())).unwrap();
        let year = ms(365 * 86_400_000);
        assert_eq!(seconds.plan(Some(ms(1_000)), year).next, Some(year.after(1_000).unwrap()));
        let skipped = seconds.missed(Missed::Skip).plan(Some(ms(1_000)), year);
        assert_eq!((skipped.runs, skipped.missed), (vec![year], 999));
    }

    #[test]
    fn a_schedule_that_is_over_has_no_next() {
        let times = Times::cron("0 0 0 1 1 ? 2027", None, "UTC").unwrap();
        let once = Schedule::new("a", "q", times).unwrap();
        let new_year = at("2027-01-01T00:00:00Z");
        assert_eq!(once.plan(None, at("2026-01-01T00:00:00Z")).next, Some(new_year));
        assert_eq!(once.plan(Some(new_year), new_year).next, None);
    }

    proptest! {
        /// However late each message is taken: with "all" every instant that falls due is run once, in order, and none
        /// before it is due.
        #[test]
        fn each_instant_is_run_once_and_never_early(
            jitter_ms in 0..10_000_u64,
            lateness in prop::collection::vec(0..100_000_u64, 1..60),
        ) {
            let schedule = schedule(Missed::All).jitter_ms(jitter_ms);
            let mut runs = Vec::new();
            let mut armed = schedule.plan(None, ms(0)).next.unwrap();
            for late in lateness {
                let taken_at = schedule.due(armed).after(late).unwrap();
                let plan = schedule.plan(Some(armed), taken_at);
                prop_assert!(plan.runs.iter().all(|at| schedule.due(*at) <= taken_at));
                prop_assert!(schedule.due(plan.next.unwrap()) > taken_at);
                runs.extend(plan.runs);
                armed = plan.next.unwrap();
            }
            let expected: Vec<Timestamp> = schedule.next(ms(0), runs.len());
            prop_assert_eq!(runs, expected);
        }
    }
}
