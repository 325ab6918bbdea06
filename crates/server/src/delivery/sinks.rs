//! Running sinks: each has a worker of its own, so that one is stopped and started without the others.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use dwell_delivery::sinks::webhook::{Tried, Webhook};
use dwell_delivery::{Error, Stats, Switch, Worker};
use dwell_model::QueueName;
use dwell_store::Store;
use dwell_wire::SinkQueue;
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{DeliveryError, SinkConfig, SinkKind, asked};

/// The reason of a pause that an operator has requested.
const ASKED: &str = "an operator has asked for it";

/// All running sinks.
pub(super) struct Sinks {
    store: Arc<dyn Store>,
    drain: Duration,
    running: Mutex<BTreeMap<String, Arc<Sink>>>,
    /// Locked during a change, so that two changes do not interleave; a listing does not wait for it.
    changing: tokio::sync::Mutex<()>,
}

/// A running sink.
pub(crate) struct Sink {
    config: SinkConfig,
    webhook: Webhook,
    queues: Vec<(QueueName, Arc<Stats>)>,
    switch: Switch,
    stop: watch::Sender<bool>,
    task: tokio::sync::Mutex<Option<JoinHandle<()>>>,
    /// Why its worker has ended by itself.
    ended: Arc<OnceLock<String>>,
}

impl fmt::Debug for Sinks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.running().keys()).finish()
    }
}

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sink").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Sinks {
    pub(super) fn new(store: Arc<dyn Store>, drain: Duration) -> Sinks {
        Sinks { store, drain, running: Mutex::default(), changing: tokio::sync::Mutex::default() }
    }

    fn running(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Sink>>> {
        // Nothing under the lock can panic.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long what is in hand has when all of it stops.
    pub(super) fn drain(&self) -> Duration {
        self.drain
    }

    pub(super) fn all(&self) -> Vec<Arc<Sink>> {
        self.running().values().cloned().collect()
    }

    pub(super) fn get(&self, name: &str) -> Option<Arc<Sink>> {
        self.running().get(name).cloned()
    }

    /// Stops the sinks that are not in `configs`, all at once, and starts those that are new or have changed. A queue
    /// may move from one sink to another, so all are stopped before any is started. Returns how many were touched.
    pub(super) async fn replace(&self, configs: Vec<SinkConfig>) -> Result<usize, DeliveryError> {
        let _changing = self.changing.lock().await;
        let stays = |sink: &Sink| configs.contains(&sink.config) && sink.ended.get().is_none();
        let old: Vec<Arc<Sink>> = self.all().into_iter().filter(|sink| !stays(sink)).collect();
        join_all(old.iter().map(|sink| sink.stop())).await;
        for sink in &old {
            self.running().remove(&sink.config.name);
        }
        let mut touched =
            old.iter().filter(|sink| !configs.iter().any(|now| now.name == sink.config.name)).count();
        for config in configs {
            if self.get(&config.name).is_some() {
                continue;
            }
            touched += 1;
            // An operator's pause applies to the name, and is kept. A pause because of the destination's answers is
            // not: the destination may be another.
            let before = old.iter().find(|sink| sink.config.name == config.name && sink.was_asked_to_pause());
            let switch = before.map_or_else(Switch::new, |sink| sink.switch.clone());
            let name = config.name.clone();
            let sink = Sink::start(&self.store, self.drain, config, switch)
                .map_err(|error| DeliveryError { what: format!("sink '{name}'"), error })?;
            self.running().insert(name, Arc::new(sink));
        }
        Ok(touched)
    }

    /// Stops all sinks at once. They stay listed with their last state.
    pub(super) async fn stop(&self) {
        let _changing = self.changing.lock().await;
        let all = self.all();
        join_all(all.iter().map(|sink| sink.stop())).await;
    }
}

/// Logs each pause that no operator has requested: those are the destination's.
async fn report_pauses(sink: &str, switch: &Switch) -> Infallible {
    loop {
        let reason = switch.until_paused().await;
        if &*reason != ASKED {
            tracing::warn!(sink, %reason, "the sink has paused: its destination has said that it is gone; it goes on when it is resumed");
        }
        switch.until_resumed().await;
    }
}

impl Sink {
    fn start(
        store: &Arc<dyn Store>,
        drain: Duration,
        config: SinkConfig,
        switch: Switch,
    ) -> Result<Sink, Error> {
        let SinkKind::Webhook(webhook) = &config.kind;
        let webhook = webhook.build(&switch)?;
        let lane = |queue: &QueueName| config.lane.bound(webhook.lane(queue.as_str()));
        let worker = Worker::new(Arc::clone(store)).drain(drain).session_leases().lasting();
        let worker = config.queues.iter().fold(worker, |worker, queue| worker.lane(lane(queue)));
        let queues = config.queues.iter().cloned().zip(worker.stats()).collect();
        let (stop, mut stopped) = watch::channel(false);
        let ended = Arc::new(OnceLock::new());
        let (name, why, watched) = (config.name.clone(), Arc::clone(&ended), switch.clone());
        let task = tokio::spawn(async move {
            // A panic of a handler is caught in the worker. A panic of the worker itself must not leave a sink that
            // looks as if it ran.
            let running = AssertUnwindSafe(worker.run_until(asked(&mut stopped))).catch_unwind();
            let ran = tokio::select! {
                ran = running => ran,
                never = report_pauses(&name, &watched) => match never {},
            };
            let error = match ran {
                Ok(Ok(())) => return,
                Ok(Err(error)) => {
                    tracing::error!(sink = name, code = error.code(), %error, "the sink has ended");
                    error.to_string()
                }
                Err(_) => {
                    tracing::error!(sink = name, "the sink has panicked");
                    "it has panicked; the server's standard error says where".to_owned()
                }
            };
            let _ = why.set(error);
        });
        let task = tokio::sync::Mutex::new(Some(task));
        Ok(Sink { config, webhook, queues, switch, stop, task, ended })
    }

    /// Stops its takes, and waits until its messages are settled or given back.
    async fn stop(&self) {
        self.stop.send_replace(true);
        // The task stays in its place until it has ended: if this future is dropped while it waits, the next caller
        // waits for it.
        let mut task = self.task.lock().await;
        let Some(ending) = task.as_mut() else { return };
        // Panics are caught inside, so this fails only where the runtime ends first; then the leases run out by
        // themselves.
        let _ = ending.await;
        *task = None;
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        &self.config.name
    }

    /// The webhook, with its counts.
    pub(crate) fn webhook(&self) -> &Webhook {
        &self.webhook
    }

    /// Its queues, with their counts.
    pub(crate) fn queues(&self) -> &[(QueueName, Arc<Stats>)] {
        &self.queues
    }

    /// Whether it is paused.
    pub(crate) fn is_paused(&self) -> bool {
        self.switch.paused().is_some()
    }

    /// Whether an operator has paused it, rather than its destination.
    fn was_asked_to_pause(&self) -> bool {
        self.switch.paused().is_some_and(|reason| &*reason == ASKED)
    }

    /// Pauses it until it is resumed or the server is started again. Messages in progress are finished.
    pub(crate) fn pause(&self) {
        // Also where its destination had: from now on it is resumed by hand alone.
        self.switch.pause_anew(ASKED);
    }

    /// Resumes it.
    pub(crate) fn resume(&self) {
        self.switch.resume();
    }

    /// Connects to its destination without sending a message.
    pub(crate) async fn test(&self) -> Tried {
        self.webhook.test().await
    }

    /// Its state as displayed.
    pub(crate) fn shown(&self) -> dwell_wire::Sink {
        let (state, reason) = match (self.ended.get(), self.switch.paused()) {
            (Some(error), _) => ("ended", Some(error.clone())),
            (None, Some(reason)) => ("paused", Some(reason.to_string())),
            (None, None) => ("running", None),
        };
        let queue = |(queue, stats): &(QueueName, Arc<Stats>)| SinkQueue {
            queue: queue.clone(),
            breaker: stats.breaker().into(),
            in_flight: stats.running(),
            taken: stats.taken(),
            acked: stats.done(),
            retried: stats.retried(),
            released: stats.released(),
            buried: stats.buried(),
            lost: stats.lost(),
        };
        let meter = self.webhook.meter();
        dwell_wire::Sink {
            name: self.config.name.clone(),
            kind: self.config.kind.as_str().into(),
            destination: self.webhook.destination(),
            state: state.into(),
            reason,
            delivered: meter.delivered(),
            uncertain: meter.uncertain(),
            failed: meter.failed().into_iter().collect(),
            queues: self.queues.iter().map(queue).collect(),
        }
    }
}
