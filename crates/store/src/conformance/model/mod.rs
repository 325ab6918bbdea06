//! The model test: a store and the simplest possible model of the contract get the same random calls, under
//! a clock that the test moves, and every answer is compared.

mod drive;
mod meaning;
mod reference;
mod step;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

#[doc(hidden)]
pub use dwell_model::Limits;

use self::drive::drive;
use self::step::{Step, steps};
use super::stage::PATIENCE;
use super::{Factory, Harness};

/// The maximum number of smaller lives tried for a failing one.
const SHRINK_TRIES: u32 = 4_000;

/// Runs `cases` random lives of `commands` calls on average, each on a fresh store; life *n* is drawn from
/// `seed + n`. The environment variables `DWELL_CASES` and `DWELL_SEED` override the arguments.
///
/// # Panics
/// If an answer differs from the model's: with the shortest life found that shows it, and the command that replays
/// it. Also if a life hangs.
pub fn run<H: Harness + 'static>(
    factory: impl Fn(Limits) -> H + Send + Sync + 'static,
    cases: u64,
    commands: usize,
    seed: u64,
) {
    let cases = from_environment("DWELL_CASES").unwrap_or(cases);
    let seed = from_environment("DWELL_SEED").unwrap_or(seed);
    if let Err(failure) = try_run(factory, cases, commands, seed) {
        panic!("{failure}");
    }
}

/// Like [`run`], but ignores the environment.
///
/// # Errors
/// The text that [`run`] panics with.
pub fn try_run<H: Harness + 'static>(
    factory: impl Fn(Limits) -> H + Send + Sync + 'static,
    cases: u64,
    commands: usize,
    seed: u64,
) -> Result<(), String> {
    let factory: Arc<Factory> = Arc::new(move |limits| Box::new(factory(limits)) as Box<dyn Harness>);
    let (beat, beats) = channel();
    let test = thread::current().name().unwrap_or_default().to_owned();
    let name = test.clone();
    // On a separate thread, so that a call that never returns fails the test instead of blocking it.
    let worker = thread::Builder::new()
        .name(test)
        .spawn(move || {
            let strategy = steps(commands);
            for case in 0..cases {
                let case_seed = seed.wrapping_add(case);
                let alive = || {
                    // The receiver is closed only if this thread was given up.
                    let _ = beat.send(case_seed);
                };
                alive();
                if let Some(difference) = one_life(&*factory, &strategy, case_seed, &alive) {
                    return Err(format!("{difference}\n\nTo replay it:\n  {}", replay(&name, case_seed)));
                }
            }
            Ok(())
        })
        .expect("a thread can be started");
    let mut last = seed;
    loop {
        match beats.recv_timeout(PATIENCE) {
            Ok(case_seed) => last = case_seed,
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                let name = thread::current().name().unwrap_or_default().to_owned();
                return Err(format!("a life hangs. To replay it:\n  {}", replay(&name, last)));
            }
        }
    }
    worker.join().unwrap_or_else(|_| Err("the model test itself has panicked".to_owned()))
}

/// Draws a life from `seed` and runs it; returns the shortest failing one found, if it fails.
fn one_life(
    factory: &Factory,
    strategy: &impl Strategy<Value = Vec<Step>>,
    seed: u64,
    alive: &dyn Fn(),
) -> Option<String> {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let mut tree = strategy.new_tree(&mut runner).expect("every draw is a life");
    let mut failing = (tree.current(), live(factory, &tree.current())?);
    let mut moved = tree.simplify();
    for _ in 0..SHRINK_TRIES {
        if !moved {
            break;
        }
        alive();
        let steps = tree.current();
        moved = match live(factory, &steps) {
            Some(difference) => {
                failing = (steps, difference);
                tree.simplify()
            }
            None => tree.complicate(),
        };
    }
    let (steps, difference) = shorten(factory, failing, alive);
    let steps: Vec<_> = steps.iter().enumerate().map(|(n, step)| format!("  {n}: {step:?}")).collect();
    Some(format!("The store differs from the model after\n{}\n{difference}", steps.join("\n")))
}

/// Leaves out steps, in ever smaller runs, for as long as it still fails: proptest tries each step once only.
fn shorten(
    factory: &Factory,
    (mut steps, mut difference): (Vec<Step>, String),
    alive: &dyn Fn(),
) -> (Vec<Step>, String) {
    let mut tries = 0;
    let mut run = steps.len() / 2;
    while run > 0 && tries < SHRINK_TRIES {
        let mut shorter = false;
        let mut from = 0;
        while from < steps.len() && tries < SHRINK_TRIES {
            alive();
            tries += 1;
            let mut fewer = steps.clone();
            fewer.drain(from..(from + run).min(steps.len()));
            match live(factory, &fewer) {
                Some(still) => {
                    (steps, difference) = (fewer, still);
                    shorter = true;
                }
                None => from += run,
            }
        }
        if !shorter {
            run /= 2;
        }
    }
    (steps, difference)
}

/// The difference, if there is one; a panic of the store is a difference too.
fn live(factory: &Factory, steps: &[Step]) -> Option<String> {
    match catch_unwind(AssertUnwindSafe(|| drive(factory, steps))) {
        Ok(lived) => lived.err(),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            Some(format!("it panicked: {}", text.unwrap_or("without a text")))
        }
    }
}

fn replay(test: &str, seed: u64) -> String {
    let package = std::env::var("CARGO_PKG_NAME").unwrap_or_else(|_| "THE_PACKAGE".to_owned());
    format!("DWELL_SEED={seed} DWELL_CASES=1 cargo test -p {package} {test}")
}

fn from_environment(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{variable}={value}: a whole number is expected")))
}
