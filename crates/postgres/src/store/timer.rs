//! The thread that wakes what sleeps on the store's clock. One for a store, whatever the number of sleepers.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::thread;

use dwell_model::Wake;
use dwell_time::{Clock, Notifier, Sleeper};
use tokio::sync::oneshot;

use crate::link::locked;

/// Moments on the monotonic clock, and who sleeps until them.
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
            .name("dwell-pg-timer".to_owned())
            .spawn(move || run(&shared, &*clock, sleeper))?;
        Ok(Timer { sleepers, notifier })
    }

    /// Ends when the monotonic clock reads `mono_ms`, or the store is dropped.
    pub(super) fn sleep_until(&self, mono_ms: u64) -> Sleep {
        let (sender, woken) = oneshot::channel();
        let mut sleepers = locked(&self.sleepers);
        let place = (mono_ms, sleepers.next);
        // A sender that is dropped here means that the store is: it ends at once.
        if !sleepers.stopped {
            sleepers.next += 1;
            sleepers.by_moment.insert(place, sender);
            if sleepers.by_moment.first_key_value().is_some_and(|(first, _)| *first == place) {
                self.notifier.notify();
            }
        }
        Sleep { sleepers: Arc::clone(&self.sleepers), place, woken }
    }

    pub(super) fn stop(&self) {
        let mut sleepers = locked(&self.sleepers);
        sleepers.stopped = true;
        sleepers.by_moment.clear();
        self.notifier.notify();
    }
}

/// A sleep on the store's clock. Whoever drops it sleeps no more, and nothing is left of it.
pub(super) struct Sleep {
    sleepers: Arc<Mutex<Sleepers>>,
    place: (u64, u64),
    woken: oneshot::Receiver<()>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // A sender that is gone means that the store is.
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
