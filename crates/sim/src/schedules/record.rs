//! What happened, and the verdict: no instant is run twice, early or without being one, and one that was not run has an
//! excuse under the policy.
//!
//! | not run | the excuse |
//! |---|---|
//! | `missed = "all"` | none |
//! | `missed = "one"` | an earlier instant was run when this one had come too, or its runner died before it went on |
//! | `missed = "skip"` | no runner came within a minute, or before the next instant |
//! | `overlap = "skip"` | an earlier run was not done |
//! | `overlap = "replace"` | a later run came before this one was taken |

use std::collections::BTreeMap;

use dwell_delivery::schedule::{MISSED_AFTER_MS, Missed, Overlap, RUNS_AT_ONCE, Schedule};
use dwell_model::Timestamp;

/// A run as it was taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) instant: Timestamp,
    pub(super) created: Timestamp,
    pub(super) acked: Timestamp,
}

/// A schedule, and its runs in the order in which they were taken.
#[derive(Debug)]
pub(super) struct Subject {
    schedule: Schedule,
    runs: Vec<Run>,
}

impl Subject {
    pub(super) fn new(schedule: Schedule) -> Subject {
        Subject { schedule, runs: Vec::new() }
    }
}

/// The record; see the [module](self). All lists are in the order of time.
#[derive(Debug)]
pub(super) struct Record {
    missed: Missed,
    overlap: Overlap,
    start: Timestamp,
    subjects: Vec<Subject>,
    /// When a runner has run all that was due.
    pub(super) passes: Vec<Timestamp>,
    /// When a runner has died.
    pub(super) deaths: Vec<Timestamp>,
    /// When all runs were taken, before any pass of the same time.
    pub(super) drains: Vec<Timestamp>,
    /// The last pass.
    pub(super) ended: Option<Timestamp>,
    /// The number of schedules at the end.
    pub(super) left: usize,
    stray: Vec<String>,
}

/// The verdict on a record.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    pub(super) instants: usize,
    pub(super) runs: usize,
    pub(super) violations: Vec<String>,
}

impl Record {
    pub(super) fn new(missed: Missed, overlap: Overlap, start: Timestamp, subjects: Vec<Subject>) -> Record {
        let (passes, deaths, drains, stray) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Record { missed, overlap, start, subjects, passes, deaths, drains, ended: None, left: 0, stray }
    }

    /// Records a run of the schedule with this name.
    pub(super) fn ran(&mut self, name: &str, run: Run) {
        match self.subjects.iter_mut().find(|subject| subject.schedule.name() == name) {
            Some(subject) => subject.runs.push(run),
            None => self.stray.push(format!("a run of '{name}', which was not defined")),
        }
    }

    pub(super) fn verdict(&self) -> Verdict {
        let mut verdict = Verdict { violations: self.stray.clone(), ..Verdict::default() };
        if self.left != self.subjects.len() {
            let text = format!("{} of {} schedules are left at the end", self.left, self.subjects.len());
            verdict.violations.push(text);
        }
        for subject in &self.subjects {
            self.judge(subject, &mut verdict);
        }
        verdict
    }

    fn judge(&self, subject: &Subject, verdict: &mut Verdict) {
        let schedule = &subject.schedule;
        let mut accuse = |instant: Timestamp, what: &str| {
            verdict.violations.push(format!("{} at {instant}: {what}", schedule.name()));
        };
        let mut runs: BTreeMap<Timestamp, Run> = BTreeMap::new();
        for run in &subject.runs {
            if run.created < run.instant {
                accuse(run.instant, "early");
            }
            if runs.insert(run.instant, *run).is_some() {
                accuse(run.instant, "run twice");
            }
        }
        verdict.runs += subject.runs.len();
        // Those that have come with any jitter.
        let end = self.ended.and_then(|end| before(end, schedule.longest_jitter_ms()));
        let Some(end) = end.filter(|end| *end > self.start) else { return };
        let mut instants = Vec::new();
        let mut last = self.start;
        loop {
            let more = schedule.next(last, RUNS_AT_ONCE);
            let count = more.iter().filter(|at| **at <= end).count();
            instants.extend_from_slice(&more[..count]);
            match instants.last() {
                Some(at) if count == more.len() && count > 0 => last = *at,
                _ => break,
            }
        }
        verdict.instants += instants.len();
        for (number, instant) in instants.iter().enumerate() {
            let next = instants.get(number + 1).copied();
            if !runs.contains_key(instant) && !self.is_excused(schedule, &runs, *instant, next) {
                accuse(*instant, "not run, and no policy says so");
            }
        }
        let known: std::collections::BTreeSet<Timestamp> = instants.into_iter().collect();
        for instant in runs.keys().filter(|at| **at <= end && !known.contains(at)) {
            accuse(*instant, "run, and is no instant of it");
        }
    }

    /// Whether the policy lets this instant be without a run.
    fn is_excused(
        &self,
        schedule: &Schedule,
        runs: &BTreeMap<Timestamp, Run>,
        instant: Timestamp,
        next: Option<Timestamp>,
    ) -> bool {
        // The first pass to which it was due, whatever its jitter is.
        let Some(due) = instant.after(schedule.longest_jitter_ms()).ok() else { return false };
        let Some(pass) = first_from(&self.passes, due) else { return false };
        let is_missed = match self.missed {
            Missed::All => false,
            Missed::One => runs.range(..instant).next_back().is_some_and(|(_, run)| {
                run.created >= instant
                    || first_from(&self.deaths, run.created).is_some_and(|death| death <= pass)
            }),
            Missed::Skip => pass.ms_since(instant) > MISSED_AFTER_MS || next.is_some_and(|next| next <= pass),
        };
        let is_left_out = match self.overlap {
            Overlap::Allow => false,
            Overlap::Skip => {
                let mut earlier = runs.range(..instant).rev().take(2 * RUNS_AT_ONCE);
                earlier.any(|(_, run)| run.created <= pass && run.acked > instant)
            }
            // No drain came between its put and the later run's. One of the same time as a pass came before it.
            Overlap::Replace => runs.range(instant..).next().is_some_and(|(_, run)| {
                let after = Timestamp::from_ms(pass.as_ms() + 1).unwrap_or(pass);
                first_from(&self.drains, after).is_none_or(|drain| drain > run.created)
            }),
        };
        is_missed || is_left_out
    }
}

/// The first of these times from `from` on.
fn first_from(times: &[Timestamp], from: Timestamp) -> Option<Timestamp> {
    times.get(times.partition_point(|at| *at < from)).copied()
}

fn before(at: Timestamp, ms: u64) -> Option<Timestamp> {
    Timestamp::from_ms(at.as_ms().checked_sub_unsigned(ms)?).ok()
}

#[cfg(test)]
mod tests {
    use dwell_delivery::schedule::{Every, Times};

    use super::*;

    fn ms(ms: i64) -> Timestamp {
        Timestamp::from_ms(ms).unwrap()
    }

    /// The violations of a schedule of ten seconds from 0 to 50 s: runs as (instant, created, acked), and the times of
    /// passes, deaths and drains, all in seconds.
    fn violations(
        policy: (Missed, Overlap),
        runs: &[(i64, i64, i64)],
        passes: &[i64],
        deaths: &[i64],
        drains: &[i64],
    ) -> Vec<String> {
        let seconds = |times: &[i64]| times.iter().map(|at| ms(at * 1_000)).collect::<Vec<_>>();
        let times = Times::Every(Every::new(10_000).unwrap());
        let subject = Subject::new(Schedule::new("a", "q", times).unwrap());
        let mut record = Record::new(policy.0, policy.1, ms(0), vec![subject]);
        for (instant, created, acked) in runs {
            let [instant, created, acked] = [instant, created, acked].map(|at| ms(at * 1_000));
            record.ran("a", Run { instant, created, acked });
        }
        record.passes = seconds(passes);
        record.deaths = seconds(deaths);
        record.drains = seconds(drains);
        (record.ended, record.left) = (Some(ms(50_000)), 1);
        record.verdict().violations
    }

    const ALL: (Missed, Overlap) = (Missed::All, Overlap::Allow);
    const EACH: [(i64, i64, i64); 5] = [(10, 10, 10), (20, 20, 20), (30, 30, 30), (40, 40, 40), (50, 50, 50)];
    const PASSES: [i64; 5] = [10, 20, 30, 40, 50];

    /// All but those of these instants.
    fn without(instants: &[i64]) -> Vec<(i64, i64, i64)> {
        EACH.into_iter().filter(|run| !instants.contains(&run.0)).collect()
    }

    #[test]
    fn each_once_is_right_under_every_policy() {
        for policy in Missed::ALL.into_iter().flat_map(|missed| Overlap::ALL.map(|overlap| (missed, overlap)))
        {
            assert_eq!(violations(policy, &EACH, &PASSES, &[], &PASSES), [""; 0], "{policy:?}");
        }
    }

    #[test]
    fn twice_early_and_made_up_are_wrong_under_every_policy() {
        for policy in Missed::ALL.into_iter().flat_map(|missed| Overlap::ALL.map(|overlap| (missed, overlap)))
        {
            for (more, said) in
                [((30, 31, 31), "run twice"), ((35, 35, 35), "no instant of it"), ((60, 59, 60), "early")]
            {
                let runs: Vec<_> = EACH.into_iter().chain([more]).collect();
                let found = violations(policy, &runs, &PASSES, &[], &PASSES);
                assert!(found.len() == 1 && found[0].contains(said), "{policy:?}: {found:?}");
            }
        }
    }

    #[test]
    fn one_that_is_not_run_needs_an_excuse() {
        for policy in Missed::ALL.into_iter().flat_map(|missed| Overlap::ALL.map(|overlap| (missed, overlap)))
        {
            let found = violations(policy, &without(&[30]), &PASSES, &[], &PASSES);
            assert!(found.len() == 1 && found[0].contains("not run"), "{policy:?}: {found:?}");
        }
    }

    #[test]
    fn the_excuses_are_those_of_the_policy() {
        // An outage from 20 to 45 s.
        let passes = [10, 20, 45, 50];
        let late = |instant, created| (instant, created, created);
        let first: Vec<_> = without(&[30, 40]).into_iter().chain([late(30, 45)]).collect();
        let last: Vec<_> = without(&[30, 40]).into_iter().chain([late(40, 45)]).collect();
        let none = Overlap::Allow;
        assert_eq!(violations((Missed::One, none), &first, &passes, &[], &[]), [""; 0]);
        assert_eq!(violations((Missed::Skip, none), &last, &passes, &[], &[]), [""; 0]);
        assert_eq!(violations(ALL, &first, &passes, &[], &[]).len(), 1);
        // 40 is in time, so that nothing excuses it.
        assert_eq!(violations((Missed::Skip, none), &first, &passes, &[], &[]).len(), 1);
        // None of them was run.
        assert_eq!(violations((Missed::One, none), &without(&[30, 40]), &passes, &[], &[]).len(), 2);
        // The runner of 20 died before it went on.
        assert_eq!(violations((Missed::One, none), &without(&[30]), &[10, 35, 40, 50], &[20], &[]), [""; 0]);
    }

    #[test]
    fn an_earlier_run_that_is_not_done_excuses_where_runs_do_not_overlap() {
        let long: Vec<_> = without(&[20, 30]).into_iter().chain([(20, 20, 35)]).collect();
        assert_eq!(violations((Missed::All, Overlap::Skip), &long, &PASSES, &[], &[]), [""; 0]);
        assert_eq!(violations(ALL, &long, &PASSES, &[], &[]).len(), 1);
        let replace = (Missed::All, Overlap::Replace);
        assert_eq!(violations(replace, &without(&[30]), &PASSES, &[], &[20, 41, 50]), [""; 0]);
        assert_eq!(violations(replace, &without(&[30]), &PASSES, &[], &[20, 32, 41, 50]).len(), 1);
    }
}
