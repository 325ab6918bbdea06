//! Counts by queue, in a bounded number of series for any number of queues.
//!
//! The busiest queues have series of their own, all others share one. Ground rules:
//! 1. An event is counted once, in one series, at the time it happens. So no series ever falls, and the sum over all
//!    rates is right.
//! 2. The series of a queue that gets one begins at 0; that of a queue that loses it leaves the page. The rates of both
//!    stay right, because Prometheus treats a new series like a reset. If its count were added to another series, that
//!    one's rate would show a burst that never happened.
//! 3. The counts of removed series are kept separately: [`QueueMeters::totals`] has the counts of all time.
//! 4. The store counts deaths and discards. Their increase since the last read is counted as if it happened at this
//!    read: see [`deaths`](super::deaths).
//! 5. The busiest queues are determined when a page is made. Among those without a series, a summary of bounded size
//!    finds them: Misra and Gries, "Finding repeated elements" (1982), which keeps every queue that has more than one
//!    part in [`CANDIDATES`] of the activity.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use dwell_model::{QueueName, Timestamp};
use dwell_wire::Series;

use super::Counter;
use super::histogram::Histogram;
use super::recent::{Recent, Tally};

/// The maximum number of queues with series of their own.
pub(crate) const OWN_SERIES: usize = 100;
/// The number of other queues that are tracked as candidates.
const CANDIDATES: usize = 1_000;
/// The minimum interval between two rankings, in milliseconds.
const RANK_MS: u64 = 10_000;
/// How many times as busy a queue has to be to take another's series, so that two similar queues do not alternate.
const BUSIER: u64 = 2;

/// The label of the series that all other queues share. No queue can have this name.
pub(crate) const OTHER: &str = "~other";

/// Bounds of lateness, in milliseconds.
pub(crate) const LATENESS_MS: [u64; 15] =
    [0, 1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 5_000, 30_000, 300_000, 3_600_000];

/// Reasons of deaths, as the page names them.
pub(crate) const DEATHS: [&str; 4] = ["attempts", "lapse", "expiry", "buried"];
/// Reasons of discards, as the page names them.
pub(crate) const DISCARDS: [&str; 4] = ["dead_ttl", "dead_max", "on_expiry", "asked"];
/// The name that [`QueueMeters::totals`] has for the sum of all [`DEATHS`].
pub(crate) const DEATH: &str = "death";

/// The counts of a queue, or of all queues that share a series.
#[derive(Debug)]
pub(crate) struct Meter {
    pub(crate) puts: Counter,
    pub(crate) takes: Counter,
    pub(crate) acks: Counter,
    pub(crate) retries: Counter,
    pub(crate) releases: Counter,
    pub(crate) buries: Counter,
    pub(crate) extends: Counter,
    pub(crate) cancels: Counter,
    /// By reason, in the order of [`DEATHS`].
    pub(crate) deaths: [Counter; DEATHS.len()],
    /// By reason, in the order of [`DISCARDS`].
    pub(crate) discards: [Counter; DISCARDS.len()],
    pub(crate) lateness: Histogram<{ LATENESS_MS.len() }>,
    recent: Mutex<Recent>,
    /// Recent activity: halved at each ranking.
    activity: Counter,
}

impl Meter {
    fn new() -> Meter {
        Meter {
            puts: Counter::default(),
            takes: Counter::default(),
            acks: Counter::default(),
            retries: Counter::default(),
            releases: Counter::default(),
            buries: Counter::default(),
            extends: Counter::default(),
            cancels: Counter::default(),
            deaths: Default::default(),
            discards: Default::default(),
            lateness: Histogram::new(&LATENESS_MS),
            recent: Mutex::default(),
            activity: Counter::default(),
        }
    }
}

/// An event of messages as the page names it, and its count.
type Event = (&'static str, fn(&Meter) -> u64);

const EVENTS: [Event; 9] = [
    ("put", |meter| meter.puts.get()),
    ("take", |meter| meter.takes.get()),
    ("ack", |meter| meter.acks.get()),
    ("retry", |meter| meter.retries.get()),
    ("release", |meter| meter.releases.get()),
    ("bury", |meter| meter.buries.get()),
    ("extend", |meter| meter.extends.get()),
    ("cancel", |meter| meter.cancels.get()),
    (DEATH, |meter| meter.deaths.iter().map(Counter::get).sum()),
];

/// Series that have left the page.
#[derive(Debug, Default)]
struct Former {
    /// Their counts.
    counts: [u64; EVENTS.len()],
    /// Those that a caller may still be counting in.
    leaving: Vec<Arc<Meter>>,
}

impl Former {
    fn add(&mut self, meter: Arc<Meter>) {
        self.leaving.push(meter);
        let counts = &mut self.counts;
        self.leaving.retain_mut(|meter| {
            let Some(meter) = Arc::get_mut(meter) else { return true };
            for (count, (_, read)) in counts.iter_mut().zip(EVENTS) {
                *count += read(meter);
            }
            false
        });
    }
}

/// All counts by queue.
#[derive(Debug)]
pub(crate) struct QueueMeters {
    own: RwLock<HashMap<QueueName, Arc<Meter>>>,
    former: Mutex<Former>,
    other: Arc<Meter>,
    others: Mutex<Candidates>,
    /// Recent events in all queues together.
    recent: Mutex<Recent>,
}

#[derive(Debug, Default)]
struct Candidates {
    activity: HashMap<QueueName, u64>,
    ranked_ms: u64,
}

impl Candidates {
    fn note(&mut self, queue: &QueueName, events: u64) {
        if let Some(activity) = self.activity.get_mut(queue) {
            *activity += events;
        } else if self.activity.len() < CANDIDATES {
            self.activity.insert(queue.clone(), events);
        } else {
            // Each event decrements all entries at most once for each that was added before: constant time on average.
            let least = self.activity.values().copied().min().unwrap_or_default().min(events);
            self.activity.retain(|_, activity| {
                *activity -= least;
                *activity > 0
            });
            if events > least {
                self.activity.insert(queue.clone(), events - least);
            }
        }
    }
}

impl Default for QueueMeters {
    fn default() -> QueueMeters {
        let other = Arc::new(Meter::new());
        QueueMeters {
            own: RwLock::default(),
            former: Mutex::default(),
            other,
            others: Mutex::default(),
            recent: Mutex::default(),
        }
    }
}

impl QueueMeters {
    /// The meter for `events` of `queue`. It has to be used at once.
    pub(crate) fn of(&self, queue: &QueueName, events: u64) -> Arc<Meter> {
        let own = self.own.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(meter) = own.get(queue) {
            meter.activity.add(events);
            return Arc::clone(meter);
        }
        let is_full = own.len() >= OWN_SERIES;
        drop(own);
        if is_full {
            self.others().note(queue, events);
            return Arc::clone(&self.other);
        }
        let mut own = self.own.write().unwrap_or_else(PoisonError::into_inner);
        if own.len() >= OWN_SERIES && !own.contains_key(queue) {
            return Arc::clone(&self.other);
        }
        let meter = own.entry(queue.clone()).or_insert_with(|| Arc::new(Meter::new()));
        meter.activity.add(events);
        Arc::clone(meter)
    }

    /// The meter of queues that are not known by name.
    pub(super) fn other(&self) -> &Meter {
        &self.other
    }

    /// Records a recent event of a queue, whose counts are in `meter`.
    pub(crate) fn happened(&self, meter: &Meter, now: Timestamp, tally: &Tally) {
        for recent in [&meter.recent, &self.recent] {
            recent.lock().unwrap_or_else(PoisonError::into_inner).add(now, tally);
        }
    }

    /// The recent events of a queue, or of all together; `None` if the queue has no series of its own.
    pub(crate) fn recent(&self, queue: Option<&QueueName>, now: Timestamp) -> Option<Vec<Series>> {
        let read = |recent: &Mutex<Recent>| recent.lock().unwrap_or_else(PoisonError::into_inner).series(now);
        let Some(queue) = queue else { return Some(read(&self.recent)) };
        let own = self.own.read().unwrap_or_else(PoisonError::into_inner);
        own.get(queue).map(|meter| read(&meter.recent))
    }

    fn former(&self) -> std::sync::MutexGuard<'_, Former> {
        self.former.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts of all time, in all queues together.
    pub(crate) fn totals(&self) -> [(&'static str, u64); EVENTS.len()] {
        // No series is removed meanwhile.
        let own = self.own.read().unwrap_or_else(PoisonError::into_inner);
        let former = self.former();
        let mut gone = former.counts.iter();
        EVENTS.map(|(event, read)| {
            let meters = own.values().chain(&former.leaving).chain([&self.other]);
            let here: u64 = meters.map(|meter| read(meter)).sum();
            (event, here + gone.next().copied().unwrap_or_default())
        })
    }

    fn others(&self) -> std::sync::MutexGuard<'_, Candidates> {
        self.others.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the queue has a series of its own.
    pub(crate) fn has_own(&self, queue: &QueueName) -> bool {
        self.own.read().unwrap_or_else(PoisonError::into_inner).contains_key(queue)
    }

    /// Gives the busiest queues series of their own, if the interval has passed.
    pub(crate) fn rank(&self, now_ms: u64) {
        let mut others = self.others();
        if now_ms.saturating_sub(others.ranked_ms) < RANK_MS {
            return;
        }
        others.ranked_ms = now_ms;
        let mut rising: Vec<(u64, QueueName)> =
            others.activity.drain().map(|(queue, activity)| (activity, queue)).collect();
        drop(others);
        rising.sort_unstable_by(|a, b| b.cmp(a));
        let mut own = self.own.write().unwrap_or_else(PoisonError::into_inner);
        let mut falling: Vec<(u64, QueueName)> =
            own.iter().map(|(queue, meter)| (meter.activity.get(), queue.clone())).collect();
        falling.sort_unstable();
        for ((up, risen), (down, fallen)) in rising.into_iter().zip(falling) {
            if up <= down.saturating_mul(BUSIER) {
                break;
            }
            if let Some(gone) = own.remove(&fallen) {
                self.former().add(gone);
            }
            let meter = Meter::new();
            meter.activity.add(up);
            own.insert(risen, Arc::new(meter));
        }
        own.values().for_each(|meter| meter.activity.sub(meter.activity.get() / 2));
    }

    /// All series, by label.
    pub(crate) fn all(&self) -> Vec<(String, Arc<Meter>)> {
        let own = self.own.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> =
            own.iter().map(|(queue, meter)| (queue.as_str().to_owned(), Arc::clone(meter))).collect();
        all.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        all.push((OTHER.to_owned(), Arc::clone(&self.other)));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(at: usize) -> QueueName {
        format!("q{at}").parse().unwrap()
    }

    fn put(meters: &QueueMeters, at: usize, puts: u64) {
        meters.of(&name(at), puts).puts.add(puts);
    }

    fn total(meters: &QueueMeters) -> u64 {
        meters.totals().iter().find(|(event, _)| *event == "put").unwrap().1
    }

    #[test]
    fn the_first_queues_have_their_own_series_and_all_others_one() {
        let meters = QueueMeters::default();
        (0..OWN_SERIES + 50).for_each(|at| put(&meters, at, 1));
        let all = meters.all();
        assert_eq!(all.len(), OWN_SERIES + 1);
        assert_eq!((all[OWN_SERIES].0.as_str(), all[OWN_SERIES].1.puts.get()), (OTHER, 50));
        assert_eq!(total(&meters), OWN_SERIES as u64 + 50);
        assert!(QueueName::new(OTHER).is_err(), "no queue has the name of the others");
    }

    #[test]
    fn a_busier_queue_takes_the_series_of_an_idle_one_and_nothing_is_counted_twice() {
        let meters = QueueMeters::default();
        (0..OWN_SERIES).for_each(|at| put(&meters, at, 10));
        let busy = 100_000;
        // Hidden among far more queues than are tracked.
        for round in 0..20_000 {
            put(&meters, 1_000 + round, 1);
            put(&meters, busy, 1);
        }
        assert!(!meters.has_own(&name(busy)));
        let before = meters.other.puts.get();
        meters.rank(RANK_MS);
        assert!(meters.has_own(&name(busy)));
        put(&meters, busy, 7);
        let all = meters.all();
        assert_eq!(all.len(), OWN_SERIES + 1);
        let busy = all.iter().find(|(label, _)| *label == name(busy).as_str()).unwrap();
        assert_eq!(busy.1.puts.get(), 7, "a new series begins at nothing");
        assert_eq!(meters.other.puts.get(), before, "and takes nothing from the others");
        assert_eq!(total(&meters), OWN_SERIES as u64 * 10 + 2 * 20_000 + 7, "what has left the page is kept");
    }

    #[test]
    fn what_is_counted_in_a_series_that_has_just_left_is_kept_too() {
        let meters = QueueMeters::default();
        (0..OWN_SERIES).for_each(|at| put(&meters, at, 1));
        let late = meters.of(&name(0), 0);
        for round in 1..=3 {
            (0..OWN_SERIES).for_each(|at| put(&meters, 1_000 * round + at, 50 * round as u64));
            meters.rank(RANK_MS * round as u64);
        }
        assert!(!meters.has_own(&name(0)));
        late.puts.add(5);
        assert_eq!(total(&meters), OWN_SERIES as u64 * (1 + 50 + 100 + 150) + 5);
        drop(late);
        (0..OWN_SERIES).for_each(|at| put(&meters, 9_000 + at, 900));
        meters.rank(RANK_MS * 9);
        assert!(meters.former().leaving.is_empty(), "nobody holds them any more");
        assert_eq!(total(&meters), OWN_SERIES as u64 * (1 + 50 + 100 + 150 + 900) + 5);
    }

    #[test]
    fn queues_that_are_alike_keep_their_series() {
        let meters = QueueMeters::default();
        (0..2 * OWN_SERIES).for_each(|at| put(&meters, at, 10));
        meters.rank(RANK_MS);
        assert!((0..OWN_SERIES).all(|at| meters.has_own(&name(at))));
    }

    #[test]
    fn what_is_watched_is_bounded() {
        let meters = QueueMeters::default();
        (0..100_000).for_each(|at| put(&meters, at, 1));
        assert!(meters.others().activity.len() <= CANDIDATES);
        assert_eq!(total(&meters), 100_000);
    }
}
