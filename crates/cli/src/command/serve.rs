//! `dwell serve`
//!
//! - `beanstalkd`: where its protocol is spoken, if at all
//! - `durability`: the setting's words
//! - `engine`: the store in files, and what opening it found
//! - `logging`: what it says while it runs; `samples`: what the engine counts
//! - `signals`: what ends the server

mod beanstalkd;
mod durability;
mod engine;
mod logging;
mod samples;
pub(super) mod signals;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use dwell_model::Limits;
use dwell_server::{Listeners, Server, ServerConfig};
use dwell_store::MemoryStore;
use dwell_time::SystemClock;
use serde::Serialize;

use self::beanstalkd::BeanstalkdAt;
use self::durability::Durability;
use self::engine::{Opened, Recovered};
use self::logging::Logging;
use self::signals::Signals;
use super::redisson::ServingArgs;
use super::{Context, Outcome};
use crate::args::{bytes, duration_ms};
use crate::exit::{Exit, Failure, Own};
use crate::human::{BAD, FAINT, GOOD, STRONG, pairs};
use crate::output::Output;

/// Run a server
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  dwell serve
  dwell serve --listen 0.0.0.0:7411 --host dwell.example --insecure-http
  dwell serve --store memory --listen 127.0.0.1:0 --beanstalkd off

The first keeps its data in ./dwell-data, speaks HTTP on 127.0.0.1:7411 and
beanstalkd's protocol on 127.0.0.1:11300. The last keeps nothing, on a free
port.

An empty data directory takes 64 MiB of disk, set aside for the first segment of
the journal; see --segment.

SIGTERM or SIGINT (Ctrl-C) ends it: it accepts nothing new, answers what is
under way, gives waiting takes an empty answer, and closes the store. A second
one ends it at once, which loses nothing that was answered.
A server that can not start ends with exit code 6 and says why.")]
pub(crate) struct Serve {
    /// The data directory; made if it is not there
    #[arg(long, env = "DWELL_DATA", default_value = "dwell-data", value_name = "DIR")]
    data: PathBuf,
    /// Where messages are kept
    #[arg(long, value_enum, default_value_t = StoreKind::Engine)]
    store: StoreKind,
    /// Where HTTP is spoken; port 0 finds a free one
    #[arg(long, env = "DWELL_LISTEN", default_value = "127.0.0.1:7411", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// Where beanstalkd's protocol is spoken; port 0 finds a free one, `off` does without
    #[arg(long, env = "DWELL_BEANSTALKD", default_value = "127.0.0.1:11300", value_name = "ADDRESS")]
    beanstalkd: BeanstalkdAt,
    /// A name, besides the loopback's and the address itself, that callers may use; may be repeated
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,
    /// Listen for HTTP where other machines reach it, although nobody is asked who they are
    #[arg(long)]
    insecure_http: bool,
    /// Speak beanstalkd's protocol where other machines reach it, although it knows no passwords
    #[arg(long)]
    insecure_beanstalkd: bool,
    /// When a change is synced: `always` (before it is answered), `os`, or `interval:100ms`
    #[arg(long, default_value = "always", value_name = "WHEN")]
    durability: Durability,
    /// The longest body: 1MiB by default, 64MiB at most
    #[arg(long, value_parser = bytes, value_name = "SIZE")]
    max_body: Option<u64>,
    /// The most items in one call
    #[arg(long, value_name = "COUNT")]
    max_batch: Option<usize>,
    /// The most messages leased at a time
    #[arg(long, value_name = "COUNT")]
    max_leased: Option<usize>,
    /// The most queues at a time
    #[arg(long, value_name = "COUNT")]
    max_queues: Option<usize>,
    /// How long a segment of the journal gets: 64MiB by default. So much disk is set aside at a time, and a quarter
    /// of it is kept free for acks and cancels
    #[arg(long, value_parser = bytes, value_name = "SIZE")]
    segment: Option<u64>,
    /// How long a shutdown waits for what is under way
    #[arg(long, value_parser = duration_ms, allow_hyphen_values = true, default_value = "10s", value_name = "DURATION")]
    drain: u64,
    #[command(flatten)]
    redisson: ServingArgs,
    #[command(flatten)]
    logging: Logging,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum StoreKind {
    /// In files, durable
    Engine,
    /// In memory: gone when the server ends
    Memory,
}

/// What the server says once it serves.
#[derive(Serialize)]
struct Serving<'a> {
    event: &'static str,
    version: &'static str,
    http: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    beanstalkd: Option<String>,
    store: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    durability: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    recovered: Option<&'a Recovered>,
}

/// What the server says once it has ended.
#[derive(Serialize)]
struct Stopped {
    event: &'static str,
    signal: &'static str,
    cut_off: usize,
}

impl Serve {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        self.logging.start();
        let limits = self.limits()?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .map_err(|error| can_not_start(Own::Threads.code(), error))?;
        // Before the store: an address that can not be had leaves the data directory untouched.
        let config = self.config();
        let listeners = runtime.block_on(Listeners::bind(&config)).map_err(|error| {
            let hint = self.beanstalkd.hint(&error);
            Failure::new(Exit::CanNotStart, error.code(), format_args!("{error}{hint}"))
        })?;
        let opened = match self.store {
            StoreKind::Engine => engine::open(&self.data, limits, self.durability, self.segment)?,
            StoreKind::Memory => Opened::memory(MemoryStore::new(limits, Arc::new(SystemClock::new()))),
        };
        let served = runtime.block_on(self.serve(context, &opened, listeners, config));
        // The store closes when nobody but this function can call it any more.
        drop(runtime);
        opened.close()?;
        served
    }

    fn config(&self) -> ServerConfig {
        let mut config = ServerConfig::default();
        config.http.listen = self.listen;
        config.http.hosts = self.hosts.clone();
        config.http.insecure = self.insecure_http;
        config.beanstalkd = self.beanstalkd.config(self.insecure_beanstalkd);
        config.drain_ms = self.drain;
        config
    }

    async fn serve(
        &self,
        context: &Context,
        opened: &Opened,
        listeners: Listeners,
        config: ServerConfig,
    ) -> Outcome {
        let signals = Signals::listen().map_err(|error| can_not_start(Own::Signals.code(), error))?;
        let server = Server::new(Arc::clone(&opened.store), listeners, config);
        let movers = self.redisson.start(context.output).await?;
        if let Some(engine) = opened.engine.clone() {
            server.show_samples(Arc::new(move || samples::of(&engine)));
        }
        self.announce(&context.output, &server, opened);
        let mut signal = None;
        let drained = server.run(async { signal = Some(signals.first().await) }).await;
        if let Some(movers) = movers {
            movers.stop().await?;
        }
        let stopped =
            Stopped { event: "stopped", signal: signal.unwrap_or("none"), cut_off: drained.cut_off };
        // Whoever read the output may be gone by now, which is no reason to fail.
        let _ = context.output.show(&stopped, |out| {
            write!(out, "{FAINT}stopped by {}", stopped.signal)?;
            if stopped.cut_off > 0 {
                write!(out, "; {} connections were cut off", stopped.cut_off)?;
            }
            writeln!(out, "{FAINT:#}")
        });
        Ok(Exit::Ok)
    }

    fn limits(&self) -> Result<Limits, Failure> {
        let mut limits = Limits::default();
        if let Some(bytes) = self.max_body {
            limits.body_len = usize::try_from(bytes).unwrap_or(usize::MAX);
            if limits.body_len > Limits::MAX_BODY_LEN {
                return Err(Failure::usage(format!("--max-body is at most 64MiB, not {bytes} bytes")));
            }
        }
        limits.batch = self.max_batch.unwrap_or(limits.batch);
        limits.leased = self.max_leased.unwrap_or(limits.leased);
        limits.queues = self.max_queues.unwrap_or(limits.queues);
        Ok(limits)
    }

    fn announce(&self, output: &Output, server: &Server, opened: &Opened) {
        let kept = self.store == StoreKind::Engine;
        let serving = Serving {
            event: "serving",
            version: env!("CARGO_PKG_VERSION"),
            http: format!("http://{}", server.http_addr()),
            beanstalkd: server.beanstalkd_addr().map(|address| address.to_string()),
            store: if kept { "engine" } else { "memory" },
            data: kept.then(|| self.data.display().to_string()),
            durability: kept.then(|| self.durability.to_string()),
            recovered: opened.recovered.as_ref(),
        };
        // As above: a server serves though nobody reads its output.
        let _ = output.show(&serving, |out| {
            writeln!(
                out,
                "{STRONG}dwell {}{STRONG:#} serves {GOOD}{}{GOOD:#}",
                serving.version, serving.http
            )?;
            if let Some(address) = &serving.beanstalkd {
                writeln!(out, "{FAINT}and beanstalkd's protocol on{FAINT:#} {address}")?;
            }
            let Some(recovered) = &opened.recovered else {
                return writeln!(out, "{FAINT}in memory: nothing is kept when it ends{FAINT:#}");
            };
            pairs(
                out,
                &[
                    ("data", self.data.display().to_string()),
                    ("durability", self.durability.explained()),
                    ("recovered", recovered.to_string()),
                ],
            )?;
            recovered.cuts.iter().try_for_each(|cut| writeln!(out, "{BAD}cut{BAD:#} {cut}"))
        });
    }
}

/// The failure of a server that does not come to serve.
fn can_not_start(code: &str, reason: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::CanNotStart, code, reason)
}
