//! The definition of a schedule: queue, instants, and what happens to missed and overlapping runs.

use dwell_model::{Headers, Limits, QueueName, Timestamp, format_duration_ms};
use dwell_store::Bytes;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use super::runner::run;
use super::stored::Stored;
use super::{Cron, Dialect, civil};
use crate::error::excerpt;
use crate::{Error, Result, jitter};

/// A schedule. It is checked on creation: one that could never run is refused.
///
/// ```
/// use dwell_delivery::schedule::{Schedule, Times};
/// use dwell_model::Timestamp;
///
/// let times = Times::cron("0 30 9 ? * MON-FRI", None, "Europe/Berlin")?;
/// let report = Schedule::new("report", "reports", times)?.body("daily").jitter_ms(60_000);
/// let friday = Timestamp::from_ms(1_795_773_600_000).unwrap();
/// assert_eq!(report.next(friday, 1)[0].to_string(), "2026-11-30T08:30:00.000Z");
/// # Ok::<(), dwell_delivery::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Its name, unique in the store.
    name: Box<str>,
    /// The queue of its runs.
    pub(super) queue: QueueName,
    pub(super) times: Times,
    pub(super) body: Bytes,
    pub(super) headers: Headers,
    pub(super) missed: Missed,
    pub(super) overlap: Overlap,
    pub(super) jitter_ms: u64,
}

/// When a schedule runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Times {
    /// The civil times of an expression in a zone.
    Cron {
        /// The expression.
        cron: Box<Cron>,
        /// The name of its zone.
        zone_name: Box<str>,
        /// The zone.
        zone: TimeZone,
    },
    /// Even intervals.
    Every(Every),
}

/// Even intervals, counted from 1970-01-01T00:00:00Z: every five minutes is at :00, :05 and so on, on every server and
/// after every restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Every {
    ms: u64,
}

/// What happens to instants at which no runner was active.
///
/// An instant is missed if it is taken more than [`MISSED_AFTER_MS`](super::MISSED_AFTER_MS) after it was due, or after the next one was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Missed {
    /// One run for all of them, for the first. If that run was put already, by a runner that stopped before it put the next message,
    /// none is put.
    #[default]
    One,
    /// None is run.
    Skip,
    /// All are run, the first [`RUNS_AT_ONCE`](super::RUNS_AT_ONCE) of them.
    All,
}

/// What happens to a run while an earlier one is scheduled, ready or leased.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Overlap {
    /// It is skipped. A run's key is the schedule's name.
    #[default]
    Skip,
    /// It is put in addition to the earlier one. A run's key is the schedule's name and the instant.
    Allow,
    /// It replaces the earlier one, unless that is leased. A run's key is the schedule's name.
    Replace,
}

impl Missed {
    /// All variants.
    pub const ALL: [Missed; 3] = [Missed::One, Missed::Skip, Missed::All];

    /// The word that configuration uses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Missed::One => "one",
            Missed::Skip => "skip",
            Missed::All => "all",
        }
    }
}

impl Overlap {
    /// All variants.
    pub const ALL: [Overlap; 3] = [Overlap::Skip, Overlap::Allow, Overlap::Replace];

    /// The word that configuration uses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Overlap::Skip => "skip",
            Overlap::Allow => "allow",
            Overlap::Replace => "replace",
        }
    }
}

impl Times {
    /// The civil times of a cron expression in a zone of the IANA database.
    ///
    /// # Errors
    /// Those of [`Cron::parse`], and [`Error::UnknownZone`].
    pub fn cron(expression: &str, dialect: Option<Dialect>, zone: &str) -> Result<Times> {
        let cron = Cron::parse(expression, dialect)?;
        let Ok(found) = TimeZone::get(zone) else {
            return Err(Error::UnknownZone { zone: excerpt(zone) });
        };
        Ok(Times::Cron { cron: Box::new(cron), zone_name: zone.into(), zone: found })
    }

    /// The first instant after `after`.
    fn next(&self, after: Timestamp) -> Option<Timestamp> {
        match self {
            Times::Cron { cron, zone, .. } => civil::next_instant(cron, zone, after),
            Times::Every(every) => every.next(after),
        }
    }
}

impl Every {
    /// The shortest interval, in milliseconds.
    pub const MIN_MS: u64 = 1_000;
    /// The longest interval, in milliseconds: ten years.
    pub const MAX_MS: u64 = 3_650 * 86_400_000;

    /// An interval of `ms` milliseconds.
    ///
    /// # Errors
    /// [`Error::InvalidSchedule`] below [`Every::MIN_MS`] and above [`Every::MAX_MS`].
    pub fn new(ms: u64) -> Result<Every> {
        if (Every::MIN_MS..=Every::MAX_MS).contains(&ms) {
            return Ok(Every { ms });
        }
        let reason = format!("it runs every 1s to every 3650d, not every {}", format_duration_ms(ms));
        Err(Error::InvalidSchedule { name: "every".into(), reason: reason.into() })
    }

    /// The interval in milliseconds.
    pub fn as_ms(self) -> u64 {
        self.ms
    }

    fn next(self, after: Timestamp) -> Option<Timestamp> {
        let since = after.as_ms().unsigned_abs();
        let next = (since / self.ms + 1) * self.ms;
        i64::try_from(next).ok().and_then(|ms| Timestamp::from_ms(ms).ok())
    }
}

impl Schedule {
    /// The longest jitter, in milliseconds: a day.
    pub const MAX_JITTER_MS: u64 = 86_400_000;
    /// The number of instants that are checked to see that jitter keeps them in order.
    const LOOKED_AT: usize = 100;

    /// A schedule that puts messages with an empty body into `queue`.
    ///
    /// Its name is one that a queue could have: 1 to 200 characters.
    ///
    /// # Errors
    /// [`Error::InvalidSchedule`] for an invalid name; [`Error::Store`] (`invalid_queue_name`) for an invalid queue;
    /// [`Error::ReservedQueue`] for one that is reserved.
    pub fn new(name: &str, queue: &str, times: Times) -> Result<Schedule> {
        if let Err(invalid) = QueueName::new(name) {
            return Err(Error::InvalidSchedule { name: excerpt(name), reason: invalid.to_string().into() });
        }
        let queue = QueueName::new(queue).map_err(dwell_store::Error::from)?;
        if queue.is_reserved() {
            return Err(Error::ReservedQueue { queue });
        }
        Ok(Schedule {
            name: name.into(),
            queue,
            times,
            body: Bytes::new(),
            headers: Headers::default(),
            missed: Missed::default(),
            overlap: Overlap::default(),
            jitter_ms: 0,
        })
    }

    /// Sets the body of its runs.
    #[must_use]
    pub fn body(self, body: impl Into<Bytes>) -> Schedule {
        Schedule { body: body.into(), ..self }
    }

    /// Sets the headers of its runs. [`NAME_HEADER`](super::NAME_HEADER) and [`INSTANT_HEADER`](super::INSTANT_HEADER)
    /// are added to them.
    #[must_use]
    pub fn headers(self, headers: Headers) -> Schedule {
        Schedule { headers, ..self }
    }

    /// Sets what happens to missed instants.
    #[must_use]
    pub fn missed(self, missed: Missed) -> Schedule {
        Schedule { missed, ..self }
    }

    /// Sets what happens to a run while an earlier one is not done.
    #[must_use]
    pub fn overlap(self, overlap: Overlap) -> Schedule {
        Schedule { overlap, ..self }
    }

    /// Delays each run by up to this many milliseconds. The delay is a hash of name and instant, and so is the same
    /// everywhere.
    #[must_use]
    pub fn jitter_ms(self, jitter_ms: u64) -> Schedule {
        Schedule { jitter_ms, ..self }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The queue that its runs are put into.
    pub fn queue(&self) -> &QueueName {
        &self.queue
    }

    /// The body of its runs, empty unless [`body`](Schedule::body) was called.
    pub fn run_body(&self) -> &Bytes {
        &self.body
    }

    /// The headers of its runs, without those that each run is given.
    pub fn run_headers(&self) -> &Headers {
        &self.headers
    }

    /// What happens to missed instants.
    pub fn on_missed(&self) -> Missed {
        self.missed
    }

    /// What happens to a run while an earlier one is not done.
    pub fn on_overlap(&self) -> Overlap {
        self.overlap
    }

    /// The maximum jitter of a run, in milliseconds.
    pub fn longest_jitter_ms(&self) -> u64 {
        self.jitter_ms
    }

    /// When it runs.
    pub fn times(&self) -> &Times {
        &self.times
    }

    /// Its next `count` instants after `after`, before jitter; fewer where there are no more.
    pub fn next(&self, after: Timestamp, count: usize) -> Vec<Timestamp> {
        std::iter::successors(self.first_after(after), |at| self.first_after(*at)).take(count).collect()
    }

    /// Whether it can run after `now`, and in order. That depends on `now`: a schedule that was right may be over, and its next
    /// instants may lie closer together than those before.
    ///
    /// # Errors
    /// [`Error::CronNeverFires`]; [`Error::InvalidSchedule`] if jitter is longer than a day, or not shorter than the
    /// interval between two of its next hundred instants.
    pub fn check(&self, now: Timestamp) -> Result<()> {
        let instants = self.next(now, Schedule::LOOKED_AT);
        if instants.is_empty() {
            let expression = match &self.times {
                Times::Cron { cron, .. } => cron.as_str().into(),
                Times::Every(every) => format_duration_ms(every.ms).into(),
            };
            return Err(Error::CronNeverFires { expression, after: now });
        }
        let shortest = instants.windows(2).map(|two| two[1].ms_since(two[0])).min().unwrap_or(u64::MAX);
        if self.jitter_ms > Schedule::MAX_JITTER_MS || self.jitter_ms >= shortest {
            let most = Schedule::MAX_JITTER_MS.min(shortest.saturating_sub(1));
            let (most, jitter) = (format_duration_ms(most), format_duration_ms(self.jitter_ms));
            let reason = format!("its jitter is at most {most}, so that runs stay in order, not {jitter}");
            return Err(Error::InvalidSchedule { name: excerpt(&self.name), reason: reason.into() });
        }
        Ok(())
    }

    /// Whether a store with these limits can keep it and its runs.
    ///
    /// # Errors
    /// [`Error::Store`]: `body_too_large`; `headers_too_large` where the headers of a run, or the definition that is a header itself,
    /// are too long.
    pub fn check_size(&self, limits: &Limits) -> Result<()> {
        limits.check_body(self.body.len()).map_err(dwell_store::Error::from)?;
        // Its runs, and its message for an instant, have longer headers than the message that is put when it is defined.
        run(self, Timestamp::MAX)?;
        Stored::new(self.clone()).put(Some(Timestamp::MAX)).map(drop)
    }

    /// Its first instant after `after`.
    pub(super) fn first_after(&self, after: Timestamp) -> Option<Timestamp> {
        self.times.next(after)
    }

    /// When the run of this instant is due.
    pub(super) fn due(&self, instant: Timestamp) -> Timestamp {
        let parts: [&[u8]; 2] = [self.name.as_bytes(), &instant.as_ms().to_le_bytes()];
        instant.saturating_after(jitter::up_to(self.jitter_ms, &parts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn every(ms: u64) -> Times {
        Times::Every(Every::new(ms).unwrap())
    }

    #[test]
    fn even_distances_are_counted_from_the_epoch() {
        let schedule = Schedule::new("tick", "ticks", every(300_000)).unwrap();
        let found = schedule.next(at("2026-11-26T10:03:07Z"), 2);
        assert_eq!(found, [at("2026-11-26T10:05:00Z"), at("2026-11-26T10:10:00Z")]);
        assert_eq!(schedule.next(at("2026-11-26T10:05:00Z"), 1), [at("2026-11-26T10:10:00Z")]);
        assert_eq!(schedule.next(Timestamp::MAX, 1), []);
    }

    #[test]
    fn jitter_follows_from_name_and_instant() {
        let one = Schedule::new("one", "q", every(60_000)).unwrap().jitter_ms(10_000);
        let two = Schedule::new("two", "q", every(60_000)).unwrap().jitter_ms(10_000);
        let instants = one.next(at("2026-11-26T10:00:00Z"), 50);
        let offsets = |schedule: &Schedule| -> Vec<u64> {
            instants.iter().map(|at| schedule.due(*at).ms_since(*at)).collect()
        };
        assert_eq!(offsets(&one), offsets(&one.clone()));
        assert_ne!(offsets(&one), offsets(&two));
        assert!(offsets(&one).iter().all(|ms| *ms <= 10_000));
        assert!(offsets(&one).iter().any(|ms| *ms > 5_000) && offsets(&one).iter().any(|ms| *ms < 5_000));
    }

    #[test]
    fn what_could_never_run_is_refused() {
        let now = at("2026-11-26T10:00:00Z");
        let cron = |text: &str| Times::cron(text, None, "UTC").unwrap();
        let code = |result: Result<Schedule>| result.unwrap_err().code();
        assert_eq!(code(Schedule::new("", "q", every(1_000))), "invalid_schedule");
        assert_eq!(code(Schedule::new("two words", "q", every(1_000))), "invalid_schedule");
        assert_eq!(code(Schedule::new("a", "two words", every(1_000))), "invalid_queue_name");
        assert_eq!(code(Schedule::new("a", "dwell:schedules", every(1_000))), "queue_reserved");
        assert_eq!(Every::new(999).unwrap_err().code(), "invalid_schedule");
        assert_eq!(Every::new(u64::MAX).unwrap_err().code(), "invalid_schedule");
        assert_eq!(Times::cron("* * * * *", None, "Mars/Olympus").unwrap_err().code(), "unknown_zone");
        let never = Schedule::new("a", "q", cron("0 0 30 2 *")).unwrap();
        assert_eq!(never.check(now).unwrap_err().code(), "cron_never_fires");
        let over = Schedule::new("a", "q", cron("0 0 0 1 1 ? 2020")).unwrap();
        assert_eq!(over.check(now).unwrap_err().code(), "cron_never_fires");
        let wild = Schedule::new("a", "q", every(1_000)).unwrap();
        assert_eq!(wild.clone().jitter_ms(1_000).check(now).unwrap_err().code(), "invalid_schedule");
        assert_eq!(wild.jitter_ms(999).check(now), Ok(()));
        let rare = Schedule::new("a", "q", cron("0 0 1 1 *")).unwrap();
        assert_eq!(
            rare.jitter_ms(Schedule::MAX_JITTER_MS + 1).check(now).unwrap_err().code(),
            "invalid_schedule"
        );
    }
}
