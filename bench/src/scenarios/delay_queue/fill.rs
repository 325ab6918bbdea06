//! Offer, poll, cancel; one item per call, and in batches.

use std::time::Duration;

use super::heap::Heap;
use super::jdk::Jdk;
use super::ours::{Batches, Ours};
#[cfg(feature = "peers")]
use super::tokio_util::TokioUtil;
use super::{Random, SEED, Samples, add_rows};
use crate::Result;
use crate::report::Better;
use crate::run::Run;
use crate::stopwatch::{Stopwatch, pause};

/// A queue as used here. Instants are nanoseconds after the last `start`.
pub(super) trait Queue {
    const NAME: &'static str;

    fn new() -> Self;

    /// Starts a round.
    fn start(&mut self);

    fn offer(&mut self, due_ns: u64, value: u64);

    /// Offers `n` items, due from `lead` to `lead + span`.
    fn fill(&mut self, n: u64, lead: u64, span: u64) {
        offer_all(self, n, lead, span);
    }

    /// Takes up to `n` due items. Returns their number.
    fn drain(&mut self, n: u64) -> u64;

    /// Offers an item, and keeps what its cancel needs.
    fn offer_to_be_cancelled(&mut self, due_ns: u64, value: u64) {
        self.offer(due_ns, value);
    }

    /// Cancels every other item. Returns their number.
    fn cancel_every_other(&mut self) -> u64 {
        0
    }
}

pub(super) fn offer_all<Q: Queue + ?Sized>(queue: &mut Q, n: u64, lead: u64, span: u64) {
    let mut random = Random(SEED);
    for value in 0..n {
        queue.offer(lead + random.below(span), value);
    }
}

/// `n` items, offered and polled `times` times, due from `lead` to `lead + span` nanoseconds after the start.
///
/// The lead is long enough for the slowest side to offer all items before the first is due, if nothing else runs.
#[derive(Clone, Copy)]
struct Work {
    n: u64,
    times: u64,
    lead: u64,
    span: u64,
}

const MS: u64 = 1_000_000;

const WORKS: [Work; 3] = [
    Work { n: 10_000, times: 50, lead: 40 * MS, span: 5 * MS },
    Work { n: 1_000_000, times: 1, lead: 2_500 * MS, span: 500 * MS },
    Work { n: 5_000_000, times: 1, lead: 8_000 * MS, span: 500 * MS },
];

/// Offers and polls per second.
#[derive(Clone, Copy)]
struct Rates {
    offer: f64,
    poll: f64,
    both: f64,
}

impl Rates {
    fn of(work: Work, offer_ns: f64, poll_ns: f64) -> Rates {
        let rate = |ns: f64| (work.n * work.times) as f64 * 1e9 / ns;
        Rates { offer: rate(offer_ns), poll: rate(poll_ns), both: rate(offer_ns + poll_ns) }
    }
}

fn measure<Q: Queue>(work: Work) -> Result<Rates> {
    let mut queue = Q::new();
    let (mut offer_ns, mut poll_ns) = (0.0, 0.0);
    // The first round is a warm-up: after it the memory is allocated, and the JDK's compiler has run.
    for round in 0..=work.times {
        queue.start();
        let watch = Stopwatch::start();
        queue.fill(work.n, work.lead, work.span);
        let offered = watch.elapsed();
        pause(Duration::from_nanos(work.lead + work.span + 2 * MS).saturating_sub(offered));
        let watch = Stopwatch::start();
        let count = queue.drain(work.n);
        if round > 0 {
            poll_ns += watch.elapsed().as_nanos() as f64;
            offer_ns += offered.as_nanos() as f64;
        }
        if count != work.n {
            return Err(format!("{}: {count} of {} items came out", Q::NAME, work.n).into());
        }
    }
    Ok(Rates::of(work, offer_ns, poll_ns))
}

fn measure_jdk(jdk: &Jdk, work: Work) -> Result<Rates> {
    let numbers = jdk.measure("fill", &[work.n, work.times, work.lead, work.span])?;
    let [offer_ns, poll_ns] = numbers[..] else { return Err("the JDK's side prints two numbers".into()) };
    Ok(Rates::of(work, offer_ns, poll_ns))
}

type Side<'a> = (&'static str, Box<dyn Fn(Work) -> Result<Rates> + 'a>);

pub(super) fn compare(run: &mut Run, jdk: Option<&Jdk>) -> Result<()> {
    let mut sides: Vec<Side<'_>> = vec![("ours", Box::new(measure::<Ours>))];
    if let Some(jdk) = jdk {
        sides.push(("jdk", Box::new(|work| measure_jdk(jdk, work))));
    }
    #[cfg(feature = "peers")]
    sides.push(("tokio-util", Box::new(measure::<TokioUtil>)));
    sides.push(("binary-heap", Box::new(measure::<Heap>)));
    for work in WORKS {
        let work = Work { n: if work.n > 10_000 { run.scaled(work.n) } else { work.n }, ..work };
        type Part = fn(&Rates) -> f64;
        let parts: [(&str, Part); 3] = [
            ("offer", |rates| rates.offer),
            ("poll", |rates| rates.poll),
            ("offer + poll", |rates| rates.both),
        ];
        let parts = parts.map(|(part, value)| (format!("{part}, {} pending", work.n), value));
        let in_batches = format!("drain_due 1024 a call, {} pending", work.n);
        if !run.wants(&in_batches) && !parts.iter().any(|(row, _)| run.wants(row)) {
            continue;
        }
        let mut rates = vec![Vec::new(); sides.len()];
        let mut batches = Vec::new();
        for round in 1..=run.rounds() {
            for ((name, measure), rates) in sides.iter().zip(&mut rates) {
                let found = measure(work)?;
                eprintln!(
                    "{} items: {name} round {round}: {:.2} M/s offer, {:.2} M/s poll",
                    work.n,
                    found.offer / 1e6,
                    found.poll / 1e6
                );
                rates.push(found);
            }
            batches.push(measure::<Batches>(work)?);
        }
        for (row, value) in parts {
            let samples = sides.iter().zip(&rates);
            let samples = samples
                .map(|((name, _), rates)| Samples { name, values: rates.iter().map(value).collect() })
                .collect();
            add_rows(run, &row, "per_s", Better::Higher, samples);
        }
        let drained = batches.iter().map(|rates| rates.poll).collect();
        run.alone(&in_batches, "per_s", drained);
    }
    churn(run, jdk)
}

/// Offers n items and cancels every other one. Returns the cancels per second.
fn measure_churn<Q: Queue>(n: u64) -> Result<f64> {
    let mut queue = Q::new();
    queue.start();
    let mut random = Random(SEED);
    for value in 0..n {
        queue.offer_to_be_cancelled(3_600_000 * MS + random.below(1_000 * MS), value);
    }
    let watch = Stopwatch::start();
    let cancelled = queue.cancel_every_other();
    if cancelled != n.div_ceil(2) {
        return Err(format!("{}: {cancelled} of {n} items were cancelled", Q::NAME).into());
    }
    Ok(watch.per_second(cancelled))
}

fn churn(run: &mut Run, jdk: Option<&Jdk>) -> Result<()> {
    for n in [10_000, run.scaled(1_000_000)] {
        let row = format!("cancel half of {n}");
        if !run.wants(&row) {
            continue;
        }
        let (mut ours, mut theirs, mut jdks) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..run.rounds() {
            ours.push(measure_churn::<Ours>(n)?);
            theirs.extend(churn_of_tokio_util(n)?);
            // Java removes an item by a linear search: a million would take half an hour.
            if let Some(jdk) = jdk.filter(|_| n <= 10_000) {
                let ns =
                    jdk.measure("churn", &[n])?.first().copied().ok_or("the JDK's side prints a number")?;
                jdks.push(n.div_ceil(2) as f64 * 1e9 / ns);
            }
        }
        let sides = [("ours", ours), ("jdk", jdks), ("tokio-util", theirs)];
        let sides = sides.into_iter().map(|(name, values)| Samples { name, values }).collect();
        add_rows(run, &row, "per_s", Better::Higher, sides);
    }
    Ok(())
}

#[cfg(feature = "peers")]
fn churn_of_tokio_util(n: u64) -> Result<Option<f64>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let _inside = runtime.enter();
    measure_churn::<TokioUtil>(n).map(Some)
}

#[cfg(not(feature = "peers"))]
fn churn_of_tokio_util(_: u64) -> Result<Option<f64>> {
    Ok(None)
}
