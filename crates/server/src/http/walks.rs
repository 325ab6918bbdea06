//! Answers that need a walk over all queues.
//!
//! Ground rules:
//! 1. A walk starts only on a request, and one runs at a time.
//! 2. Requests during a walk share it; walks run for at most a fifth of the time, at any rate of requests.
//! 3. No request waits for long: the last result is returned, with its instant.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dwell_store::Result;
use dwell_time::Clock;
use tokio::sync::watch;
use tokio::time::timeout;

/// The pause after a walk, as a multiple of its duration.
const REST: u64 = 4;

/// The state of the walks.
#[derive(Debug)]
struct WalksState<K, T> {
    found: HashMap<K, Result<Arc<T>>>,
    /// The walk in progress.
    running: Option<K>,
    /// On the monotonic clock: no walk begins before.
    rests_until_ms: u64,
}

/// Walks, by their key.
#[derive(Debug)]
pub(crate) struct Walks<K, T> {
    state: Arc<Mutex<WalksState<K, T>>>,
    ended: watch::Sender<()>,
}

impl<K, T> Default for Walks<K, T> {
    fn default() -> Walks<K, T> {
        let state = WalksState { found: HashMap::new(), running: None, rests_until_ms: 0 };
        Walks { state: Arc::new(Mutex::new(state)), ended: watch::Sender::new(()) }
    }
}

impl<K, T> Walks<K, T>
where
    K: Copy + Eq + Hash + Send + Sync + 'static,
    T: Send + Sync + 'static,
{
    /// The result of the last walk for `wanted`; `None` if there was none yet, and none ended within `patience`. Begins
    /// `walk` if the pause is over.
    pub(crate) async fn ask<F>(
        &self,
        wanted: K,
        clock: &Arc<dyn Clock>,
        patience: Duration,
        walk: impl Fn() -> F,
    ) -> Option<Result<Arc<T>>>
    where
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let mut ended = self.ended.subscribe();
        let found = async {
            while !self.begin(wanted, clock, &walk) {
                // This struct owns the sender.
                let _ = ended.changed().await;
            }
        };
        let _ = timeout(patience, found).await;
        lock(&self.state).found.get(&wanted).cloned()
    }

    /// Begins a walk if the pause is over and none is in progress; returns whether there is an earlier result.
    fn begin<F>(&self, wanted: K, clock: &Arc<dyn Clock>, walk: &impl Fn() -> F) -> bool
    where
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let began_ms = clock.now().mono_ms;
        let mut state = lock(&self.state);
        let is_known = state.found.contains_key(&wanted);
        let may_begin = !is_known || began_ms >= state.rests_until_ms;
        if state.running.is_some() || !may_begin {
            return is_known;
        }
        state.running = Some(wanted);
        drop(state);
        let (walk, clock) = (walk(), Arc::clone(clock));
        let mut running = Running { state: Arc::clone(&self.state), ended: self.ended.clone() };
        tokio::spawn(async move {
            let found = walk.await;
            let now_ms = clock.now().mono_ms;
            let rest_ms = (now_ms.saturating_sub(began_ms)).saturating_mul(REST);
            running.found(wanted, found, now_ms.saturating_add(rest_ms));
        });
        is_known
    }
}

/// A walk in progress. However it ends, the next one may begin.
struct Running<K, T> {
    state: Arc<Mutex<WalksState<K, T>>>,
    ended: watch::Sender<()>,
}

impl<K: Copy + Eq + Hash, T> Running<K, T> {
    fn found(&mut self, wanted: K, found: Result<T>, rests_until_ms: u64) {
        let mut state = lock(&self.state);
        state.found.insert(wanted, found.map(Arc::new));
        state.rests_until_ms = rests_until_ms;
    }
}

impl<K, T> Drop for Running<K, T> {
    fn drop(&mut self) {
        lock(&self.state).running = None;
        self.ended.send_replace(());
    }
}

fn lock<K, T>(state: &Mutex<WalksState<K, T>>) -> MutexGuard<'_, WalksState<K, T>> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use dwell_model::Timestamp;
    use dwell_store::Error;
    use dwell_time::ManualClock;
    use tokio::sync::oneshot;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    struct Stage {
        walks: Walks<u8, u64>,
        clock: ManualClock,
        begun: Arc<AtomicU64>,
    }

    impl Stage {
        fn new() -> Stage {
            let clock = ManualClock::new(Timestamp::from_ms(1_795_000_000_000).unwrap());
            Stage { walks: Walks::default(), clock, begun: Arc::default() }
        }

        /// Asks; a walk that begins takes this many milliseconds and returns how many have begun.
        async fn ask(&self, wanted: u8, takes_ms: u64) -> u64 {
            let clock: Arc<dyn Clock> = Arc::new(self.clock.clone());
            let walk = || {
                let (clock, begun) = (self.clock.clone(), Arc::clone(&self.begun));
                async move {
                    clock.advance(takes_ms);
                    Ok(begun.fetch_add(1, Ordering::SeqCst) + 1)
                }
            };
            *self.walks.ask(wanted, &clock, PATIENCE, walk).await.unwrap().unwrap()
        }

        /// Waits until no walk is in progress.
        async fn rested(&self) {
            let mut ended = self.walks.ended.subscribe();
            while lock(&self.walks.state).running.is_some() {
                timeout(PATIENCE, ended.changed()).await.unwrap().unwrap();
            }
        }
    }

    #[tokio::test]
    async fn walks_take_a_fifth_of_the_time_at_most() {
        let stage = Stage::new();
        assert_eq!(stage.ask(1, 100).await, 1);
        stage.rested().await;
        for _ in 0..5 {
            assert_eq!(stage.ask(1, 100).await, 1, "what was found");
        }
        stage.clock.advance(399);
        assert_eq!(stage.ask(1, 100).await, 1);
        stage.rested().await;
        assert_eq!(stage.begun.load(Ordering::SeqCst), 1, "it rests");
        stage.clock.advance(1);
        assert_eq!(stage.ask(1, 100).await, 1, "nobody waits where something is known");
        stage.rested().await;
        assert_eq!(stage.ask(1, 100).await, 2);
        // A new key is walked for at once.
        assert_eq!(stage.ask(2, 100).await, 3);
    }

    #[tokio::test]
    async fn those_who_ask_at_once_share_a_walk_and_nobody_waits_for_ever() {
        let stage = Stage::new();
        let clock: Arc<dyn Clock> = Arc::new(stage.clock.clone());
        let (go, gone) = oneshot::channel::<u64>();
        let gone = Mutex::new(Some(gone));
        let slow = || {
            let gone = gone.lock().unwrap().take();
            async move { gone.ok_or(Error::Closed)?.await.map_err(|_| Error::Closed) }
        };
        let first = stage.walks.ask(1, &clock, Duration::ZERO, slow).await;
        assert!(first.is_none(), "there is none yet");
        let never = || async { panic!("one is under way") };
        let second = stage.walks.ask(1, &clock, PATIENCE, never);
        go.send(7).unwrap();
        assert_eq!(*second.await.unwrap().unwrap(), 7);
    }

    #[tokio::test]
    async fn a_walk_that_fails_says_why_and_one_that_panics_ends_nothing() {
        let stage = Stage::new();
        let clock: Arc<dyn Clock> = Arc::new(stage.clock.clone());
        let failed = stage.walks.ask(1, &clock, PATIENCE, || async { Err(Error::Closed) }).await;
        assert!(matches!(failed, Some(Err(Error::Closed))));
        stage.rested().await;
        let panics = || async { panic!("a walk that panics, as it is meant to") };
        assert!(stage.walks.ask(2, &clock, Duration::ZERO, panics).await.is_none());
        stage.rested().await;
        assert_eq!(stage.ask(3, 0).await, 1);
    }
}
