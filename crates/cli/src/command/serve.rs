//! `dwell serve`
//!
//! - `options`: the command line
//! - `store`: opens and closes the store; `engine`: the store in files, and the report of its opening
//! - `movers`: moves Redisson's delayed queues
//! - `control`: the socket for `dwell engine backup`
//! - `logging`: the log; `samples`: the engine's metrics; `background_failures`: its failures
//! - `signals`: the signals that end or reload the server; `reload`: the reload
//! - `notify`: notifies systemd; `descriptors`: the limit on open files

mod background_failures;
pub(crate) mod control;
mod descriptors;
mod engine;
mod logging;
mod movers;
mod notify;
mod options;
mod reload;
mod samples;
pub(super) mod signals;
mod store;

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use dwell_model::format_duration_ms;
use dwell_server::{
    BindError, Durability, Listeners, Loaded, Server, ServerConfig, StoreConfig, StoreKind, apply_queues,
};
use serde::Serialize;
use tokio::sync::oneshot;

use self::engine::Recovered;
use self::notify::NotifyState;
pub(crate) use self::options::ServerOptions;
use self::reload::Reloader;
use self::signals::{Hangups, Signals};
use self::store::OpenedStore;
use super::{Context, Outcome};
use crate::exit::{Exit, Failure, Own};
use crate::human::{BAD, FAINT, GOOD, STRONG, WAITING, pairs};
use crate::output::Output;

/// How long threads that are still busy have once all is answered.
const LEFT_OVER: Duration = Duration::from_secs(1);

/// Run a server
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  dwell serve
  dwell serve --config /etc/dwell/dwell.toml
  dwell serve --listen 0.0.0.0:7411 --host dwell.example --insecure-http
  dwell serve --store redis://10.0.0.5/1
  dwell serve --store postgres://10.0.0.6/shop
  dwell serve --store memory --listen 127.0.0.1:0 --beanstalkd off

The first keeps its data in ./dwell-data, speaks HTTP on 127.0.0.1:7411 and
beanstalkd's protocol on 127.0.0.1:11300. Those on a Redis or a PostgreSQL share
its queues with every server there; a password is better said by DWELL_STORE or
in the file, since others see a command line. The last keeps nothing, on a free
port. `dwell config show` prints what would hold and where it is from; each
option has a key in the file and a variable in the environment, too.

An empty data directory takes 64 MiB of disk, set aside for the first segment of
the journal; see --segment.

SIGHUP reloads queues, sinks, schedules, tokens and certificates. SIGTERM or
SIGINT (Ctrl-C) ends it: it accepts nothing new, answers what is under way, lets
sinks finish what they have in hand, gives waiting takes an empty answer, and
closes the store. A second one ends it at once, which loses nothing that was
answered.
A server that cannot start ends with exit code 6 and says why.")]
pub(crate) struct Serve {
    #[command(flatten)]
    options: ServerOptions,
}

/// The output when the server begins to serve.
#[derive(Serialize)]
struct Serving<'a> {
    event: &'static str,
    version: &'static str,
    http: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    beanstalkd: Option<String>,
    store: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    redis: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    postgres: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    durability: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    recovered: Option<&'a Recovered>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// The output when the server has ended.
#[derive(Serialize)]
struct Stopped {
    event: &'static str,
    signal: &'static str,
    cut_off: usize,
}

impl Serve {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let mut loaded = self.options.load_or_fail(&context.output)?;
        logging::start(loaded.configuration.log);
        let connections = descriptors::raise();
        tell_of_few(connections, &loaded.configuration.server, &context.output);
        loaded.configuration.server.max_connections = connections;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .map_err(|error| cannot_start(Own::Threads.code(), error))?;
        let config = &loaded.configuration;
        // Before the store: an address that cannot be listened on leaves the data directory untouched.
        let mut listeners = runtime.block_on(Listeners::bind(&config.server)).map_err(|error| {
            let hint = hint(&error, &config.server);
            Failure::new(Exit::CannotStart, error.code(), format_args!("{error}{hint}"))
        })?;
        // SIGHUP would end the process while the store opens; so it reloads after that.
        let hangups = runtime
            .block_on(async { Hangups::listen() })
            .map_err(|error| cannot_start(Own::Signals.code(), error))?;
        let (store, limits) = (config.store.clone(), config.limits.clone());
        let handle = runtime.handle().clone();
        let opening = runtime.spawn_blocking(move || store::open(&store, limits, &handle));
        let opened = runtime.block_on(listeners.answer_while(&config.server, opening));
        let opened = opened.map_err(|error| cannot_start("internal", error))??;
        let served = runtime.block_on(async {
            let served = Box::pin(self.serve(context, &opened, listeners, hangups, loaded)).await;
            opened.leave().await;
            served
        });
        // The tasks end here, so that only this function can still call the store when it closes. A thread blocked in
        // the system's resolver may outlive them, and does not call it.
        runtime.shutdown_timeout(LEFT_OVER);
        opened.close()?;
        served
    }

    async fn serve(
        self,
        context: &Context,
        opened: &OpenedStore,
        listeners: Listeners,
        hangups: Hangups,
        mut loaded: Loaded,
    ) -> Outcome {
        let signals = Signals::listen().map_err(|error| cannot_start(Own::Signals.code(), error))?;
        let queues = std::mem::take(&mut loaded.configuration.queues);
        apply_queues(&*opened.store, &[], &queues)
            .await
            .map_err(|refused| cannot_start(refused.error.code(), refused))?;
        let server = Server::new(Arc::clone(&opened.store), listeners, loaded.configuration.server.clone());
        server.control().keep_queues(&queues);
        let redisson = loaded.configuration.redisson.as_ref();
        let movers = movers::start(redisson, context.output).await?;
        let _troubles = opened.engine.clone().map(background_failures::FailureWatch::begin);
        if let Some(engine) = opened.engine.clone() {
            server.show_samples(Arc::new(move || samples::of(&engine)));
        }
        let _door = open_door(context, opened, &loaded);
        let sinks = std::mem::take(&mut loaded.configuration.sinks);
        let schedules = std::mem::take(&mut loaded.configuration.schedules);
        let delivery = server.delivery();
        delivery
            .start(sinks, schedules)
            .await
            .map_err(|refused| cannot_start(refused.error.code(), refused))?;
        announce(&context.output, &server, opened, &loaded);
        let reloader = Reloader {
            options: self.options,
            control: server.control(),
            store: Arc::clone(&opened.store),
            started: loaded,
            queues,
            delivery: delivery.clone(),
            output: &context.output,
        };
        notify::tell(NotifyState::Ready);
        let mut signal = None;
        let (begin, begun) = oneshot::channel();
        let shutdown = async {
            tokio::select! {
                name = signals.first() => signal = Some(name),
                () = reloader.run(hangups) => {}
            }
            notify::tell(NotifyState::Stopping);
            // The receiver waits for it as long as the server runs.
            let _ = begin.send(());
        };
        // Sinks finish their messages while connections do, and not after them.
        let delivering = async {
            let _ = begun.await;
            delivery.stop().await;
        };
        let (drained, ()) = tokio::join!(Box::pin(server.run(shutdown)), delivering);
        if let Some(movers) = movers {
            movers.stop().await?;
        }
        let stopped =
            Stopped { event: "stopped", signal: signal.unwrap_or("none"), cut_off: drained.cut_off };
        // The reader of the output may have closed it, which is not a failure.
        let _ = context.output.show(&stopped, |out| {
            write!(out, "{FAINT}stopped by {}", stopped.signal)?;
            if stopped.cut_off > 0 {
                write!(out, "; {} connections were cut off", stopped.cut_off)?;
            }
            writeln!(out, "{FAINT:#}")
        });
        Ok(Exit::Ok)
    }
}

/// Warns if a listener cannot have as many connections as it is configured for.
fn tell_of_few(connections: usize, server: &ServerConfig, output: &Output) {
    let beanstalkd = server.beanstalkd.as_ref().map_or(0, |beanstalkd| beanstalkd.max_connections);
    if connections < server.http.max_connections.max(beanstalkd) {
        output.remark(&format!(
            "there are {connections} connections at most, on all listeners together: this process may have no more files \
             open beside the store's; its hard limit (`ulimit -Hn`, systemd's LimitNOFILE) is what to raise"
        ));
    }
}

/// Opens the control socket of a data directory. A server without one still serves.
fn open_door(context: &Context, opened: &OpenedStore, loaded: &Loaded) -> Option<control::Door> {
    let data = &loaded.configuration.store.data;
    let opened = control::open(data, opened.engine.clone()?, tokio::runtime::Handle::current());
    let tell = |error| {
        let text = format!("no backup can be made while the server runs: {}: {error}", data.display());
        context.output.remark(&text);
    };
    opened.map_err(tell).ok()
}

fn announce(output: &Output, server: &Server, opened: &OpenedStore, loaded: &Loaded) {
    let config = &loaded.configuration;
    let StoreConfig { kind, data, durability, .. } = &config.store;
    let kept = *kind == StoreKind::Engine;
    let scheme = if config.server.http.tls.is_some() { "https" } else { "http" };
    let serving = Serving {
        event: "serving",
        version: env!("CARGO_PKG_VERSION"),
        http: format!("{scheme}://{}", server.http_addr()),
        beanstalkd: server.beanstalkd_addr().map(|address| address.to_string()),
        store: kind.as_str(),
        redis: matches!(kind, StoreKind::Redis(_)).then(|| kind.shown()),
        postgres: matches!(kind, StoreKind::Postgres(_)).then(|| kind.shown()),
        data: kept.then(|| data.display().to_string()),
        durability: kept.then(|| durability.to_string()),
        recovered: opened.recovered.as_ref(),
        warnings: loaded.warnings.iter().map(ToString::to_string).collect(),
    };
    // A server serves even if its output is not read.
    let _ = output.show(&serving, |out| {
        writeln!(out, "{STRONG}dwell {}{STRONG:#} serves {GOOD}{}{GOOD:#}", serving.version, serving.http)?;
        if let Some(address) = &serving.beanstalkd {
            writeln!(out, "{FAINT}and beanstalkd's protocol on{FAINT:#} {address}")?;
        }
        for warning in &serving.warnings {
            writeln!(out, "{WAITING}warning{WAITING:#} {warning}")?;
        }
        if let Some(shared) = serving.redis.as_ref().or(serving.postgres.as_ref()) {
            return pairs(out, &[("store", shared.clone())]);
        }
        let Some(recovered) = &opened.recovered else {
            return writeln!(out, "{FAINT}in memory: nothing is kept when it ends{FAINT:#}");
        };
        pairs(
            out,
            &[
                ("data", data.display().to_string()),
                ("durability", explained(*durability)),
                ("memory", recovered.memory.to_string()),
                ("recovered", recovered.to_string()),
            ],
        )?;
        recovered.cuts.iter().try_for_each(|cut| writeln!(out, "{BAD}cut{BAD:#} {cut}"))?;
        let forgotten = &recovered.forgotten;
        forgotten
            .iter()
            .try_for_each(|part| writeln!(out, "{BAD}damaged, idempotency keys are lost{BAD:#} {part}"))
    });
}

/// The guarantee of a durability.
fn explained(durability: Durability) -> String {
    match durability {
        Durability::Always => "always: synced before it is answered".to_owned(),
        Durability::Os => "os: a power failure loses what the system had not written".to_owned(),
        Durability::IntervalMs(ms) => {
            format!("{durability}: a power failure loses up to {}", format_duration_ms(ms))
        }
    }
}

/// An additional remedy if it is beanstalkd's address that cannot be listened on.
fn hint(error: &BindError, config: &ServerConfig) -> &'static str {
    if config.beanstalkd.as_ref().is_some_and(|beanstalkd| beanstalkd.listen == error.address()) {
        "; --beanstalkd ADDRESS moves beanstalkd's protocol, --beanstalkd off does without it"
    } else {
        ""
    }
}

/// The failure of a server that cannot start.
fn cannot_start(code: &str, reason: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::CannotStart, code, reason)
}
