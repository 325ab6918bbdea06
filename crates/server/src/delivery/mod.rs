//! Sinks and schedules that the server runs itself, over its own store.
//!
//! Ground rules:
//! 1. They use the store beneath the one that callers have: reserved queues are theirs.
//! 2. A sink that is down does not make the server unready.
//! 3. A reloaded configuration stops and starts what has changed, and nothing else.
//!
//! - [`Delivery`]: starts, replaces and stops all sinks and schedules
//! - [`SinkConfig`]: what a sink is; `sinks`: sinks that run; `definition`: a schedule's definition

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

/// The maximum number of tries to change a schedule that another server holds at that moment. A turn of a runner takes
/// milliseconds; a runner that died in its turn leaves a lease of 30 s behind, and its successor waits for that to end
/// rather than fail to start.
const TRIES: u32 = 350;
/// The interval at which a server without schedules checks whether another one has defined some.
const LOOK: Duration = Duration::from_secs(60);
/// The pause between two tries.
const PAUSE: Duration = Duration::from_millis(100);

/// A sink or schedule that cannot be started or defined.
#[derive(Debug, ThisError)]
#[error("{what} cannot be brought into force: {error}")]
pub struct DeliveryError {
    /// Its name: `sink 'a'`, `schedule 'b'`.
    pub what: String,
    /// The error.
    pub error: Error,
}

/// The sinks and schedules of a server. Clones share them.
#[derive(Clone)]
pub struct Delivery(Arc<Inner>);

struct Inner {
    /// The store without the counting layer, for reads alone: its refusals there are not counted.
    beneath: Arc<dyn Store>,
    sinks: Sinks,
    schedules: Schedules,
    runner: Runner,
    clock: Arc<dyn Clock>,
    /// Notified when a schedule may have been defined.
    defined: Notify,
    /// The runner's task, and what ends it.
    running: Mutex<Option<(watch::Sender<bool>, JoinHandle<()>)>>,
    /// The schedules of the configuration in force. Locked during a change, so that two changes do not interleave.
    configured: tokio::sync::Mutex<Vec<Schedule>>,
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery").field("sinks", &self.0.sinks).finish_non_exhaustive()
    }
}

impl Delivery {
    /// With nothing started, over this store, which counts what is done on the one beneath. A sink that stops has
    /// `drain` to finish its messages.
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

    /// Starts the runner of the store's schedules, defines those of the configuration, and starts its sinks.
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
    /// changed or deleted; one that is unchanged is not touched.
    ///
    /// # Errors
    /// [`DeliveryError`] of the first schedule that the store refuses. Those before it have been changed.
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

    /// Runs these sinks in place of those before. Returns how many were started, stopped, or both; one that is
    /// unchanged keeps running, and one that has changed is drained first.
    ///
    /// # Errors
    /// [`DeliveryError`] of the first sink that cannot be started. Every sink that the configuration accepts can be
    /// built, but a thread may fail to start.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    pub async fn replace_sinks(&self, sinks: Vec<SinkConfig>) -> Result<usize, DeliveryError> {
        self.0.sinks.replace(sinks).await
    }

    /// Stops all sinks and the runner: messages in progress are finished or given back. A second call does nothing.
    pub async fn stop(&self) {
        let running = self.0.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        let runner = async {
            if let Some((stop, task)) = running {
                stop.send_replace(true);
                // A runner that has panicked has been reported, and holds nothing but its leases.
                let _ = task.await;
            }
        };
        tokio::join!(runner, self.0.sinks.stop());
    }

    /// Defines a schedule. Returns whether it has changed.
    async fn define(&self, schedule: &Schedule) -> Result<bool, DeliveryError> {
        let (name, mut tries) = (schedule.name(), TRIES);
        loop {
            match self.0.schedules.define(schedule.clone(), self.0.clock.now().wall).await {
                Ok(defined) => {
                    self.look_again();
                    return Ok(defined != Defined::Unchanged);
                }
                Err(Error::ScheduleBusy { .. }) if tries > 1 => tries -= 1,
                // The expression was valid when it was written, and has had its last instant.
                Err(Error::CronNeverFires { .. }) => {
                    tracing::warn!(schedule = name, "the schedule is over: its last instant has passed");
                    return Ok(false);
                }
                Err(error) => return Err(DeliveryError { what: format!("schedule '{name}'"), error }),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Wakes the runner where it waits for a first schedule.
    pub(crate) fn look_again(&self) {
        self.0.defined.notify_one();
    }

    /// Deletes a schedule. Returns whether it existed.
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

    /// The runner's counts.
    pub(crate) fn runs(&self) -> Runs {
        self.0.runner.runs()
    }

    /// The running sinks, by name.
    pub(crate) fn sinks(&self) -> Vec<Arc<Sink>> {
        self.0.sinks.all()
    }

    /// The sink with this name.
    pub(crate) fn sink(&self, name: &str) -> Option<Arc<Sink>> {
        self.0.sinks.get(name)
    }
}

/// Runs schedules as soon as there are any. A runner waits on their queue; if every server without schedules did so,
/// that queue would always be listed. Schedules that others define over the same store are noticed within [`LOOK`].
async fn run(of: Arc<Inner>, mut stopped: watch::Receiver<bool>) {
    let queue: QueueName = QUEUE.parse().expect("it is a name, and a constant");
    // A store that does not answer is asked again.
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

/// Waits until a stop is requested, or its sender is dropped.
async fn asked(stopped: &mut watch::Receiver<bool>) {
    drop(stopped.wait_for(|stopped| *stopped).await);
}
