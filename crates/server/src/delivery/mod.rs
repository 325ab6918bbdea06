//! Sinks and schedules that the server runs itself, over its own store.
//!
//! Ground rules:
//! 1. They are done on the store beneath the one that callers have: reserved queues are theirs.
//! 2. A sink that is down is the sink's trouble: the server is ready all the same.
//! 3. A configuration that is read anew stops and starts what has changed, and nothing else.
//!
//! - [`Delivery`]: starts, replaces and stops all of it
//! - [`SinkConfig`]: what a sink is; `sinks`: sinks that run; `definition`: a schedule as it is put together of what was said

mod definition;
mod described;
mod sinks;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dwell_delivery::Error;
use dwell_delivery::schedule::{Defined, QUEUE, Runner, Runs, Schedule, Schedules};
use dwell_model::QueueName;
use dwell_store::Store;
use dwell_time::Clock;
use thiserror::Error as ThisError;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

pub(crate) use self::definition::{Definition, Undefined, word};
pub(crate) use self::described::without_path;
pub use self::described::{LaneConfig, SinkConfig, SinkKind, WebhookConfig, WebhookGoal};
pub(crate) use self::sinks::Sink;
use self::sinks::Sinks;

/// How often a schedule is tried again that a server has in hand at this moment. A turn of a runner takes milliseconds; one that died in
/// it leaves a lease of 30 s behind, and its successor outwaits that rather than not start.
const TRIES: u32 = 350;
/// How often a server that knows of no schedule looks whether another one has defined some.
const LOOK: Duration = Duration::from_secs(60);
/// How long a turn of the runner has at a shutdown, however short that is to be: as a rule it takes milliseconds.
const TURN: Duration = Duration::from_secs(1);
/// How long to wait between two tries.
const PAUSE: Duration = Duration::from_millis(100);

/// A sink or a schedule that cannot be brought into force.
#[derive(Debug, ThisError)]
#[error("{what} cannot be brought into force: {error}")]
pub struct DeliveryError {
    /// Which: `sink 'a'`, `schedule 'b'`.
    pub what: String,
    /// Why.
    pub error: Error,
}

/// The sinks and schedules of a server. Clones are the same.
#[derive(Clone)]
pub struct Delivery(Arc<Inner>);

struct Inner {
    /// The store as it is, for looking alone: what it refuses there is nobody's refusal.
    beneath: Arc<dyn Store>,
    sinks: Sinks,
    schedules: Schedules,
    runner: Runner,
    clock: Arc<dyn Clock>,
    /// There may be a schedule where there was none.
    defined: Notify,
    /// The runner's task, and what ends it.
    running: Mutex<Option<(watch::Sender<bool>, JoinHandle<()>)>>,
    /// Those that the configuration in force has. Held over a change, so that two do not mix.
    configured: tokio::sync::Mutex<Vec<Schedule>>,
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery").field("sinks", &self.0.sinks).finish_non_exhaustive()
    }
}

impl Delivery {
    /// Over this store, which counts what is done on the one beneath, with nothing that runs. A sink that stops has `drain` for what it has
    /// in hand.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        beneath: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        drain: Duration,
    ) -> Delivery {
        Delivery(Arc::new(Inner {
            beneath,
            sinks: Sinks::new(Arc::clone(&store), drain),
            schedules: Schedules::new(Arc::clone(&store)),
            runner: Runner::new(store, Arc::clone(&clock)),
            clock,
            defined: Notify::new(),
            running: Mutex::default(),
            configured: tokio::sync::Mutex::default(),
        }))
    }

    /// Begins to run the schedules that the store has, defines those of the configuration, and starts its sinks.
    ///
    /// # Errors
    /// [`DeliveryError`] of the first schedule that the store refuses, or the first sink that cannot be started.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    pub async fn start(&self, sinks: Vec<SinkConfig>, schedules: Vec<Schedule>) -> Result<(), DeliveryError> {
        self.replace_schedules(schedules).await?;
        self.replace_sinks(sinks).await?;
        let mut running = self.0.running.lock().unwrap_or_else(PoisonError::into_inner);
        if running.is_none() {
            let (stop, stopped) = watch::channel(false);
            *running = Some((stop, tokio::spawn(run(Arc::clone(&self.0), stopped))));
        }
        Ok(())
    }

    /// Defines these schedules, and deletes those of the configuration before that are not among them. Returns how many were defined,
    /// changed or deleted; one that says the same goes on undisturbed.
    ///
    /// # Errors
    /// [`DeliveryError`] of the first schedule that the store refuses. Those before it have changed.
    pub async fn replace_schedules(&self, schedules: Vec<Schedule>) -> Result<usize, DeliveryError> {
        let mut configured = self.0.configured.lock().await;
        let mut changes = 0;
        for schedule in &schedules {
            changes += usize::from(self.define(schedule).await?);
        }
        let stays = |name: &str| schedules.iter().any(|schedule| schedule.name() == name);
        for left_out in configured.iter().filter(|schedule| !stays(schedule.name())) {
            changes += usize::from(self.delete(left_out.name()).await?);
        }
        *configured = schedules;
        Ok(changes)
    }

    /// Runs these sinks in place of those before. Returns how many were started, stopped, or both; one that has not changed goes on
    /// undisturbed, and one that has is drained first.
    ///
    /// # Errors
    /// [`DeliveryError`] of the first sink that cannot be started. None that the configuration accepts is refused, but threads may be
    /// short.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    pub async fn replace_sinks(&self, sinks: Vec<SinkConfig>) -> Result<usize, DeliveryError> {
        self.0.sinks.replace(sinks).await
    }

    /// Stops all of it: what is in hand is finished or given back. A second call finds nothing.
    ///
    /// It ends though the store does not answer: the runner of schedules has as long as a shutdown may take, sinks have eleven seconds
    /// more. What they hold then is left to its leases.
    pub async fn stop(&self) {
        let running = self.0.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        let runner = async {
            if let Some((stop, mut task)) = running {
                stop.send_replace(true);
                // A turn that has begun is finished, unless the store is stuck. Whoever runs the schedule next puts no run twice.
                let patience = self.0.sinks.drain().max(TURN);
                // A runner that has panicked has said so, and has nothing in hand but its leases.
                if tokio::time::timeout(patience, &mut task).await.is_err() {
                    tracing::warn!(
                        "the store does not answer: the schedules in hand are left to their leases"
                    );
                    task.abort();
                    let _ = task.await;
                }
            }
        };
        tokio::join!(runner, self.0.sinks.stop());
    }

    /// Whether something has changed.
    async fn define(&self, schedule: &Schedule) -> Result<bool, DeliveryError> {
        let (name, mut tries) = (schedule.name(), TRIES);
        loop {
            match self.0.schedules.define(schedule.clone(), self.0.clock.now().wall).await {
                Ok(defined) => {
                    self.look_again();
                    return Ok(defined != Defined::Unchanged);
                }
                Err(Error::ScheduleBusy { .. }) if tries > 1 => tries -= 1,
                // It was right when it was written, and has had its last run.
                Err(Error::CronNeverFires { .. }) => {
                    tracing::warn!(schedule = name, "the schedule is over: its last instant has passed");
                    return Ok(false);
                }
                Err(error) => return Err(DeliveryError { what: format!("schedule '{name}'"), error }),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// There may be a schedule where there was none: the runner begins, if it waits for that.
    pub(crate) fn look_again(&self) {
        self.0.defined.notify_one();
    }

    /// Whether there was one.
    async fn delete(&self, name: &str) -> Result<bool, DeliveryError> {
        let mut tries = TRIES;
        loop {
            match self.0.schedules.delete(name).await {
                Ok(()) => return Ok(true),
                Err(Error::UnknownSchedule { .. }) => return Ok(false),
                Err(Error::ScheduleBusy { .. }) if tries > 1 => tries -= 1,
                Err(error) => return Err(DeliveryError { what: format!("schedule '{name}'"), error }),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// The schedules of the store.
    pub(crate) fn schedules(&self) -> &Schedules {
        &self.0.schedules
    }

    /// What the runner has done.
    pub(crate) fn runs(&self) -> Runs {
        self.0.runner.runs()
    }

    /// The sinks that run, by name.
    pub(crate) fn sinks(&self) -> Vec<Arc<Sink>> {
        self.0.sinks.all()
    }

    /// The sink of this name.
    pub(crate) fn sink(&self, name: &str) -> Option<Arc<Sink>> {
        self.0.sinks.get(name)
    }
}

/// Runs schedules, from when there are any. A runner waits on their queue, which would be listed for ever if each server did so that never
/// had one. What others define, over the same store, is noticed within [`LOOK`].
async fn run(of: Arc<Inner>, mut stopped: watch::Receiver<bool>) {
    let queue: QueueName = QUEUE.parse().expect("it is a name, and a constant");
    // A store that does not answer now is asked again.
    while of.beneath.stats(queue.clone()).await.is_err() {
        tokio::select! {
            () = asked(&mut stopped) => return,
            () = of.defined.notified() => {}
            () = tokio::time::sleep(LOOK) => {}
        }
    }
    if let Err(error) = of.runner.run_until(asked(&mut stopped)).await {
        tracing::error!(code = error.code(), %error, "schedules are run no more");
    }
}

/// Waits until it is asked to end, or whoever could ask is gone.
async fn asked(stopped: &mut watch::Receiver<bool>) {
    drop(stopped.wait_for(|stopped| *stopped).await);
}
