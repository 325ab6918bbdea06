//! SIGHUP: reloads the configuration, and applies what can change in a running server.
//!
//! Ground rule: a configuration with an error changes nothing. It is loaded completely, and checked together with the
//! values that do not reload, so that no listener is left exposed. Then the queues' settings are written to the store,
//! and then the schedules, both of which only the store can refuse. Then names, tokens and certificates are replaced,
//! and last the sinks: one that has changed is drained, which may take a while.

use std::fmt::Display;
use std::sync::Arc;

use dwell_server::{Control, Delivery, DeliveryError, Loaded, QueueConfig};
use dwell_store::Store;
use serde::Serialize;

use super::notify::{self, State};
use super::options::ServerOptions;
use super::signals::Hangups;
use crate::human::{BAD, FAINT, STRONG};
use crate::output::Output;

/// The output after a reload.
#[derive(Serialize)]
struct Reloaded {
    event: &'static str,
    queues_changed: usize,
    sinks_changed: usize,
    schedules_changed: usize,
    needs_restart: Vec<String>,
}

/// The output when nothing has changed.
#[derive(Serialize)]
struct Refused {
    event: &'static str,
    errors: Vec<Reason>,
}

#[derive(Serialize)]
struct Reason {
    code: String,
    detail: String,
}

/// Reloads at each signal.
pub(crate) struct Reloader<'a> {
    pub(crate) options: ServerOptions,
    pub(crate) control: Control,
    pub(crate) store: Arc<dyn Store>,
    /// The configuration at the start: keys that do not reload keep these values.
    pub(crate) started: Loaded,
    /// The queues of the configuration in force.
    pub(crate) queues: Vec<QueueConfig>,
    pub(crate) delivery: Delivery,
    pub(crate) output: &'a Output,
}

impl Reloader<'_> {
    /// Handles signals for ever.
    pub(crate) async fn run(mut self, mut hangups: Hangups) {
        loop {
            hangups.next().await;
            notify::tell(State::Reloading);
            // The reader of the output may have closed it, which is no reason to stop.
            let _ = match self.reload().await {
                Ok(reloaded) => self.output.show(&reloaded, |out| {
                    let Reloaded { queues_changed, sinks_changed, schedules_changed, .. } = reloaded;
                    write!(out, "{STRONG}reloaded{STRONG:#}; {queues_changed} queues changed")?;
                    writeln!(out, ", {sinks_changed} sinks, {schedules_changed} schedules")?;
                    let waiting = reloaded.needs_restart.iter();
                    waiting
                        .clone()
                        .try_for_each(|key| writeln!(out, "{FAINT}{key} holds from the next start{FAINT:#}"))
                }),
                Err(errors) => {
                    let refused = Refused { event: "reload_refused", errors };
                    self.output.show(&refused, |out| {
                        writeln!(out, "{BAD}not reloaded{BAD:#}; the server goes on as it was")?;
                        let mut errors = refused.errors.iter();
                        errors.try_for_each(|error| {
                            writeln!(out, "{BAD}{}{BAD:#}: {}", error.code, error.detail)
                        })
                    })
                }
            };
            notify::tell(State::Ready);
        }
    }

    async fn reload(&mut self) -> Result<Reloaded, Vec<Reason>> {
        let options = self.options.clone();
        // Files are read on a thread that may block.
        let loaded = tokio::task::spawn_blocking(move || options.load()).await;
        let loaded = loaded.map_err(|error| vec![Reason::new("internal", error)])?;
        let new = loaded.map_err(|errors| {
            errors.iter().map(|error| Reason::new(error.kind.code(), error)).collect::<Vec<Reason>>()
        })?;
        let http = &new.configuration.server.http;
        let stays_guarded = self.control.check(&http.tokens, http.tls.as_ref());
        stays_guarded.map_err(|exposed| vec![Reason::new(exposed.code(), exposed)])?;
        let queues = &new.configuration.queues;
        let applying = self.control.apply_queues(&*self.store, &self.queues, queues);
        let queues_changed =
            applying.await.map_err(|refused| vec![Reason::new(refused.error.code(), refused)])?;
        self.queues.clone_from(queues);
        let refused = |refused: DeliveryError| vec![Reason::new(refused.error.code(), refused)];
        let schedules = new.configuration.schedules.clone();
        let schedules_changed = self.delivery.replace_schedules(schedules).await.map_err(refused)?;
        self.control.replace(&http.hosts, http.tokens.clone(), http.tls.clone());
        let sinks_changed =
            self.delivery.replace_sinks(new.configuration.sinks.clone()).await.map_err(refused)?;
        Ok(Reloaded {
            event: "reloaded",
            queues_changed,
            sinks_changed,
            schedules_changed,
            needs_restart: new.held_back(&self.started),
        })
    }
}

impl Reason {
    fn new(code: &str, detail: impl Display) -> Reason {
        Reason { code: code.to_owned(), detail: detail.to_string() }
    }
}
