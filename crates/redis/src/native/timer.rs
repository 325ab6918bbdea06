//! The thread that wakes sleepers on the store's clock. There is one per store, whatever the number of sleepers.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::thread;

use dwell_model::Wake;
use dwell_time::{Clock, Notifier, Sleeper};
use tokio::sync::oneshot;

use super::script_call::locked;

/// Instants on the monotonic clock, and the sleepers that wait for them.
pub(super) struct Timer {
    sleepers: Arc<Mutex<Sleepers>>,
    notifier: Arc<dyn Notifier>,
}

#[derive(Default)]
struct Sleepers {
    by_moment: BTreeMap<(u64, u64), oneshot::Sender<()>>,
    next: u64,
    stopped: bool,
}

impl Timer {
    pub(super) fn start(clock: &Arc<dyn Clock>) -> std::io::Result<Timer> {
        let sleeper = clock.sleeper();
        let notifier = sleeper.notifier();
        let sleepers = Arc::<Mutex<Sleepers>>::default();
        let (shared, clock) = (Arc::clone(&sleepers), Arc::clone(clock));
        thread::Builder::new()
            .name("dwell-redis-timer".to_owned())
            .spawn(move || run(&shared, &*clock, sleeper))?;
        Ok(Timer { sleepers, notifier })
    }

    /// Completes when the monotonic clock reads `mono_ms`, or the store is dropped.
    pub(super) fn sleep_until(&self, mono_ms: u64) -> Sleep {
        let (sender, woken) = oneshot::channel();
        let mut sleepers = locked(&self.sleepers);
        let place = (mono_ms, sleepers.next);
        // A sender that is dropped here means that the store was dropped: the sleep ends at once.
        if !sleepers.stopped {
            sleepers.next += 1;
            sleepers.by_moment.insert(place, sender);
            if sleepers.by_moment.first_key_value().is_some_and(|(first, _)| *first == place) {
                self.notifier.notify();
            }
        }
        Sleep { sleepers: Arc::clone(&self.sleepers), place, woken }
    }

    /// The number of current sleepers.
    pub(super) fn sleepers(&self) -> usize {
        locked(&self.sleepers).by_moment.len()
    }

    pub(super) fn stop(&self) {
        let mut sleepers = locked(&self.sleepers);
        sleepers.stopped = true;
        sleepers.by_moment.clear();
        self.notifier.notify();
    }
}

/// A sleep on the store's clock. Dropping it ends the sleep and leaves nothing behind: most sleeps are timeouts that
/// do not expire.
pub(super) struct Sleep {
    sleepers: Arc<Mutex<Sleepers>>,
    place: (u64, u64),
    woken: oneshot::Receiver<()>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // A dropped sender means that the store was dropped.
        Pin::new(&mut self.woken).poll(context).map(drop)
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        locked(&self.sleepers).by_moment.remove(&self.place);
    }
}

fn run(shared: &Mutex<Sleepers>, clock: &dyn Clock, mut sleeper: Box<dyn Sleeper>) {
    loop {
        let mut sleepers = locked(shared);
        if sleepers.stopped {
            return;
        }
        let now_ms = clock.now().mono_ms;
        let mut next = None;
        while let Some(first) = sleepers.by_moment.first_entry() {
            let (moment, _) = *first.key();
            if moment > now_ms {
                next = Some(moment);
                break;
            }
            let _ = first.remove().send(());
        }
        drop(sleepers);
        sleeper.sleep(Wake { wall: None, mono_ms: next });
    }
}

#[cfg(test)]
mod tests {
    use dwell_time::ManualClock;

    use super::*;

    #[tokio::test]
    async fn a_sleep_that_nobody_waits_for_any_more_leaves_nothing() {
        let manual = ManualClock::new(dwell_model::Timestamp::MIN);
        let clock: Arc<dyn Clock> = Arc::new(manual.clone());
        let timer = Timer::start(&clock).unwrap();
        let began_ms = clock.now().mono_ms;
        let woken = timer.sleep_until(began_ms + 1_000);
        for _ in 0..1_000 {
            drop(timer.sleep_until(began_ms + 3_600_000));
        }
        assert_eq!(timer.sleepers(), 1);
        manual.advance(1_000);
        woken.await;
        assert_eq!(timer.sleepers(), 0);
        let asleep = timer.sleep_until(began_ms + 3_600_000);
        timer.stop();
        asleep.await;
        timer.sleep_until(began_ms + 3_600_000).await;
    }
}
