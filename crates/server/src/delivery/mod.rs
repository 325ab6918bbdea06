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
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dwell_delivery::Error;
use dwell_delivery::schedule::{Defined, QUEUE, Runner, Runs, Schedule, Schedules};
use dwell_model::QueueName;
use dwell_store::{Error as StoreError, Store};
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
/// How long a turn of the runner has at a shutdown, however short that is to be: as a rule it takes milliseconds.
const TURN: Duration = Duration::from_secs(1);
/// How long to wait between two tries.
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

impl DeliveryError {
    fn of_schedule(name: &str, error: Error) -> DeliveryError {
        DeliveryError { what: format!("schedule '{name}'"), error }
    }

    /// Whether the store does nothing at all just now, so that there is no use in asking it for the next schedule.
    fn is_of_all(&self) -> bool {
        match &self.error {
            Error::Store(error) => error.needs_reopen() || matches!(error, StoreError::Unavailable { .. }),
            _ => false,
        }
    }
}

/// Schedules that could not be brought into force, while others were.
#[derive(Debug)]
pub struct SchedulesError {
    /// How many schedules were defined, changed or deleted.
    pub changed: usize,
    /// Those that were refused, at least one: they are as they were.
    pub refused: Vec<DeliveryError>,
    /// The names of those that were not tried any more, since the store did nothing: they are as they were.
    pub untried: Vec<String>,
}

impl fmt::Display for SchedulesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let refused: Vec<String> = self.refused.iter().map(ToString::to_string).collect();
        write!(f, "{}; {} schedules have changed", refused.join("; "), self.changed)?;
        match self.untried.is_empty() {
            true => Ok(()),
            false => write!(f, "; not tried: {}", self.untried.join(", ")),
        }
    }
}

impl std::error::Error for SchedulesError {}

/// The sinks and schedules of a server. Clones are the same.
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
    /// How often a schedule of the configuration could not be defined, since this version cannot read the one that stands.
    unreadable: AtomicU64,
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
            unreadable: AtomicU64::new(0),
            running: Mutex::default(),
            configured: tokio::sync::Mutex::default(),
        }))
    }

    /// Starts the runner of the store's schedules, defines those of the configuration, and starts its sinks.
    ///
    /// One that is over, or whose jitter is too long for its next instants, is a warning: that follows from the time, and is no reason
    /// not to serve. So is one in place of a schedule that this version cannot read: a newer server over the same store may have
    /// written that, and runs it.
    ///
    /// # Errors
    /// [`DeliveryError`] of the first schedule that the store refuses, or the first sink that cannot be started.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    pub async fn start(&self, sinks: Vec<SinkConfig>, schedules: Vec<Schedule>) -> Result<(), DeliveryError> {
        if let Err(SchedulesError { refused, .. }) = self.replace_schedules(schedules).await {
            let is_other =
                |refused: &DeliveryError| !matches!(refused.error, Error::UnreadableSchedule { .. });
            if let Some(refused) = refused.into_iter().find(is_other) {
                return Err(refused);
            }
        }
        self.replace_sinks(sinks).await?;
        let mut running = self.0.running.lock().unwrap_or_else(PoisonError::into_inner);
        if running.is_none() {
            let (stop, stopped) = watch::channel(false);
            *running = Some((stop, tokio::spawn(run(Arc::clone(&self.0), stopped))));
        }
        Ok(())
    }

    /// Whether these schedules can come in place of those in force, as far as that can be said without asking the store: before a
    /// configuration changes anything. The jitter of a schedule that has not changed is not looked at again.
    ///
    /// # Errors
    /// [`DeliveryError`] of each that cannot.
    pub async fn check_schedules(&self, schedules: &[Schedule]) -> Result<(), Vec<DeliveryError>> {
        let configured = self.0.configured.lock().await;
        let (limits, now) = (self.0.beneath.limits(), self.0.clock.now().wall);
        let check = |schedule: &Schedule| -> dwell_delivery::Result<()> {
            schedule.check_size(limits)?;
            if configured.contains(schedule) {
                return Ok(());
            }
            match schedule.check(now) {
                // It was right when it was written, and has had its last run.
                Err(Error::CronNeverFires { .. }) => Ok(()),
                checked => checked,
            }
        };
        let refused = |schedule: &Schedule| {
            check(schedule).err().map(|error| DeliveryError::of_schedule(schedule.name(), error))
        };
        let refused: Vec<DeliveryError> = schedules.iter().filter_map(refused).collect();
        if refused.is_empty() { Ok(()) } else { Err(refused) }
    }

    /// Defines these schedules, and deletes those of the configuration before that are not among them. Returns how many were defined,
    /// changed or deleted; one that is unchanged is not touched.
    ///
    /// # Errors
    /// [`SchedulesError`] if the store refuses some. The others have changed, unless the store did nothing at all. What was
    /// defined is deleted by a later configuration that leaves it out.
    pub async fn replace_schedules(&self, schedules: Vec<Schedule>) -> Result<usize, SchedulesError> {
        let mut configured = self.0.configured.lock().await;
        let stays = |name: &str| schedules.iter().any(|schedule| schedule.name() == name);
        let left_out: Vec<Box<str>> = configured.iter().map(|schedule| schedule.name().into()).collect();
        let left_out: Vec<Box<str>> = left_out.into_iter().filter(|name| !stays(name)).collect();
        let mut error = SchedulesError { changed: 0, refused: Vec::new(), untried: Vec::new() };
        // All of them together wait no longer than one that a dead server has in hand.
        let mut tries = TRIES;
        let defined = schedules.iter().map(|schedule| (schedule.name(), Some(schedule)));
        for (name, schedule) in defined.chain(left_out.iter().map(|name| (&**name, None))) {
            if error.refused.last().is_some_and(DeliveryError::is_of_all) {
                error.untried.push(name.to_owned());
                continue;
            }
            let done = match schedule {
                Some(schedule) => self.define(schedule, &mut tries).await,
                None => self.delete(name, &mut tries).await,
            };
            match done {
                Ok(has_changed) => {
                    error.changed += usize::from(has_changed);
                    configured.retain(|known| known.name() != name);
                    configured.extend(schedule.cloned());
                }
                Err(refused) => error.refused.push(DeliveryError::of_schedule(name, refused)),
            }
        }
        if error.refused.is_empty() { Ok(error.changed) } else { Err(error) }
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
    async fn define(&self, schedule: &Schedule, tries: &mut u32) -> Result<bool, Error> {
        let name = schedule.name();
        loop {
            let now = self.0.clock.now().wall;
            match self.0.schedules.define(schedule.clone(), now).await {
                Ok(defined) => {
                    self.look_again();
                    return Ok(defined != Defined::Unchanged);
                }
                Err(Error::ScheduleBusy { .. }) if *tries > 1 => *tries -= 1,
                // It was right when it was written, and has had its last run. What stands under its name says something else.
                Err(Error::CronNeverFires { .. }) => {
                    tracing::warn!(schedule = name, "the schedule is over: its last instant has passed");
                    return self.delete(name, tries).await;
                }
                // The configuration has looked at its first instants; those that come next are closer together.
                Err(error @ Error::InvalidSchedule { .. }) if schedule.check(now).is_err() => {
                    tracing::warn!(schedule = name, code = error.code(), %error, "the schedule is not defined");
                    return Ok(false);
                }
                Err(error @ Error::UnreadableSchedule { .. }) => {
                    self.0.unreadable.fetch_add(1, Ordering::Relaxed);
                    tracing::warn!(schedule = name, code = error.code(), %error, "the schedule is left as it is");
                    return Err(error);
                }
                Err(error) => return Err(error),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Wakes the runner where it waits for a first schedule.
    pub(crate) fn look_again(&self) {
        self.0.defined.notify_one();
    }

    /// Whether there was one.
    async fn delete(&self, name: &str, tries: &mut u32) -> Result<bool, Error> {
        loop {
            match self.0.schedules.delete(name).await {
                Ok(()) => return Ok(true),
                Err(Error::UnknownSchedule { .. }) => return Ok(false),
                Err(Error::ScheduleBusy { .. }) if *tries > 1 => *tries -= 1,
                Err(error) => return Err(error),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// The schedules of the store.
    pub(crate) fn schedules(&self) -> &Schedules {
        &self.0.schedules
    }

    /// The runner's counts, and the unreadable schedules that the configuration has met.
    pub(crate) fn runs(&self) -> Runs {
        let runs = self.0.runner.runs();
        Runs { unreadable: runs.unreadable + self.0.unreadable.load(Ordering::Relaxed), ..runs }
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
    // A store that does not answer now is asked again. So is one that leaves the queue with settings that are not meant for it.
    while !has_schedules(&of, &queue).await {
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

/// Whether there is the queue of schedules, with settings under which they run.
async fn has_schedules(of: &Inner, queue: &QueueName) -> bool {
    if of.beneath.stats(queue.clone()).await.is_err() {
        return false;
    }
    match of.schedules.keep_apart().await {
        Ok(()) => true,
        Err(error) => {
            tracing::warn!(code = error.code(), %error, "schedules wait for the settings of their queue");
            false
        }
    }
}

/// Waits until it is asked to end, or whoever could ask is gone.
async fn asked(stopped: &mut watch::Receiver<bool>) {
    drop(stopped.wait_for(|stopped| *stopped).await);
}
