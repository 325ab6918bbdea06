//! The server's life: it binds, serves, and drains.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use dwell_store::Store;
use dwell_time::{Clock, SystemClock};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use crate::admission::Memory;
use crate::beanstalkd;
use crate::config::{Configured, QueueConfig, ServerConfig};
use crate::http::{self, Ailment, App, Hosts, Walks};
use crate::listener::{Admitted, BindError, Bound, Listeners, check_exposure};
use crate::metrics::{Metered, Metrics, Samples};
use crate::returns::Returns;
use crate::security::{Live, Tls, Tokens};

/// What a connection past the limit is counted as, whatever it speaks.
const TOO_MANY_CONNECTIONS: &str = "too_many_connections";

/// So long, however little time there is to drain, may messages take to go back that were taken and not delivered. None is
/// waited for but the store.
const GIVE_BACK: Duration = Duration::from_secs(10);

/// How a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Connections that were cut off because the time to drain was over.
    pub cut_off: usize,
}

/// A listener for HTTP, and what its connections share.
struct Http {
    bound: Bound,
    app: Arc<App>,
    /// Connections that came before there was a server, each with its place.
    early: Vec<(TcpStream, Admitted)>,
}

/// A listener for beanstalkd's protocol, and what its connections share.
struct Beanstalkd {
    bound: Bound,
    shared: Arc<beanstalkd::Shared>,
}

/// A server that listens.
pub struct Server {
    http: Http,
    beanstalkd: Option<Beanstalkd>,
    returned: JoinHandle<()>,
    drain: watch::Sender<bool>,
    drain_limit: Duration,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("http", &self.http_addr())
            .field("beanstalkd", &self.beanstalkd_addr())
            .finish_non_exhaustive()
    }
}

/// Changes a server while it runs.
#[derive(Clone, Debug)]
pub struct Control {
    live: Arc<Live>,
    configured: Configured,
    address: SocketAddr,
    /// Whether it was said at the start that everybody may call.
    insecure: bool,
}

impl Control {
    /// Whether the server may go on with these: it listens where it has listened from the start, and speaks TLS if it has
    /// from the start, and everybody may call if that was said [at the start](crate::HttpConfig::insecure), whatever a
    /// configuration that is read anew says of that.
    ///
    /// # Errors
    /// [`BindError::Exposed`]: other machines reach its address, and nobody would be asked who they are.
    pub fn check(&self, tokens: &Tokens, tls: Option<&Tls>) -> Result<(), BindError> {
        let stays = self.live.tls();
        let tls = stays.as_ref().map(|stays| tls.unwrap_or(stays));
        check_exposure(self.address, self.insecure, tokens, tls)
    }

    /// The configuration in force has these settings of queues, which [`apply_queues`](crate::apply_queues) has brought into the
    /// store: a queue that is deleted over HTTP gets its own again before that is answered.
    pub fn keep_queues(&self, queues: &[QueueConfig]) {
        self.configured.replace(queues);
    }

    /// Puts these names, tokens and certificates in force, for requests and connections from now on. Whether
    /// TLS is spoken at all does not change: with `tls` left out the certificate in force stays.
    pub fn replace(&self, hosts: &[String], tokens: Tokens, tls: Option<Tls>) {
        self.live.replace(Hosts::new(self.address.port(), hosts), tokens, tls);
    }
}

impl Server {
    /// Opens the listeners; connections wait from then on until [`Server::run`] takes them.
    ///
    /// # Errors
    /// [`BindError`], which names the address and says what to do.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    pub async fn bind(store: Arc<dyn Store>, config: ServerConfig) -> Result<Server, BindError> {
        let listeners = Listeners::bind(&config).await?;
        Ok(Server::new(store, listeners, config))
    }

    /// Serves on listeners that were opened before: with the same `config`, but before the store was.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    pub fn new(store: Arc<dyn Store>, listeners: Listeners, config: ServerConfig) -> Server {
        Server::new_on(store, listeners, config, Arc::new(SystemClock::new()))
    }

    /// The same as [`Server::bind`] on the clock of a test, which is that of its store too.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    #[doc(hidden)]
    pub async fn bind_on(
        store: Arc<dyn Store>,
        config: ServerConfig,
        clock: Arc<dyn Clock>,
    ) -> Result<Server, BindError> {
        let listeners = Listeners::bind(&config).await?;
        Ok(Server::new_on(store, listeners, config, clock))
    }

    fn new_on(
        store: Arc<dyn Store>,
        listeners: Listeners,
        config: ServerConfig,
        clock: Arc<dyn Clock>,
    ) -> Server {
        let (drain, draining) = watch::channel(false);
        let metrics = Arc::new(Metrics::default());
        let memory = Memory::new(config.memory_bytes);
        let store: Arc<dyn Store> = Arc::new(Metered::new(store, Arc::clone(&metrics), Arc::clone(&clock)));
        let (returns, returned) = Returns::start(Arc::clone(&store));
        let beanstalkd = listeners.beanstalkd.zip(config.beanstalkd).map(|(bound, config)| {
            let (store, returns) = (Arc::clone(&store), returns.clone());
            let (clock, metrics) = (Arc::clone(&clock), Arc::clone(&metrics));
            let memory = Arc::clone(&memory);
            let shared =
                beanstalkd::Shared::new(store, config, clock, returns, draining.clone(), metrics, memory);
            Beanstalkd { bound, shared: Arc::new(shared) }
        });
        let bound = listeners.http;
        let mut config_http = config.http;
        let hosts = Hosts::new(bound.address.port(), &config_http.hosts);
        let tokens = std::mem::take(&mut config_http.tokens);
        let live = Arc::new(Live::new(hosts, tokens, config_http.tls.take()));
        let ailment = Ailment::default();
        let app = App {
            store,
            live,
            config: config_http,
            clock,
            returns,
            draining,
            metrics,
            memory,
            ailment,
            forecasts: Walks::default(),
            forecast_turn: Arc::new(Semaphore::new(1)),
            overviews: Walks::default(),
            configured: Configured::default(),
        };
        let app = Arc::new(app);
        let http = Http { bound, app, early: listeners.early };
        Server { http, beanstalkd, returned, drain, drain_limit: Duration::from_millis(config.drain_ms) }
    }

    /// Where HTTP is spoken, with the port that was chosen if 0 was asked for.
    pub fn http_addr(&self) -> SocketAddr {
        self.http.bound.address
    }

    /// Where beanstalkd's protocol is spoken, likewise; `None` if it is not.
    pub fn beanstalkd_addr(&self) -> Option<SocketAddr> {
        self.beanstalkd.as_ref().map(|beanstalkd| beanstalkd.bound.address)
    }

    /// What changes the server while it runs.
    pub fn control(&self) -> Control {
        let Http { app, .. } = &self.http;
        Control {
            live: Arc::clone(&app.live),
            configured: app.configured.clone(),
            address: self.http_addr(),
            insecure: app.config.insecure,
        }
    }

    /// Shows at `/metrics` what somebody else counts, such as an engine. The first one given counts.
    pub fn show_samples(&self, samples: Arc<dyn Samples>) {
        self.http.app.metrics.set_source(samples);
    }

    /// Serves until `shutdown` is ready. Then no connection is accepted any more, waiting takes are answered
    /// with nothing, what is under way is answered, and all connections end; at the latest after
    /// [`ServerConfig::drain_ms`]. Messages that were taken and not delivered have been given back when it
    /// returns, so that the caller may close the store.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send) -> Drained {
        let Server { mut http, beanstalkd, returned, drain, drain_limit } = self;
        let router = http::router(Arc::clone(&http.app));
        let mut connections = JoinSet::new();
        for (stream, place) in std::mem::take(&mut http.early) {
            connections.spawn(http::serve(stream, place, router.clone(), Arc::clone(&http.app)));
        }
        accept(&http, beanstalkd.as_ref(), &mut connections, &router, shutdown).await;
        // Nobody is let in any more, not even into the operating system's queue.
        let Http { bound, app, .. } = http;
        drop((bound, beanstalkd));
        tracing::info!(connections = connections.len(), "stopping: what is under way is answered");
        drain.send_replace(true);

        let all_done = async { while connections.join_next().await.is_some() {} };
        let cut_off = match timeout(drain_limit, all_done).await {
            Ok(()) => 0,
            Err(_) => connections.len(),
        };
        connections.shutdown().await;
        // With the last connection and the application the last of those that give back are gone.
        drop((router, app));
        let _ = timeout(drain_limit.max(GIVE_BACK), returned).await;
        Drained { cut_off }
    }
}

impl Http {
    /// Serves a connection, or tells it that there is no place for it.
    fn admit(&self, stream: TcpStream, connections: &mut JoinSet<()>, router: &Router) {
        match self.bound.gate.admit() {
            Some(place) => {
                connections.spawn(http::serve(stream, place, router.clone(), Arc::clone(&self.app)));
            }
            None => {
                self.app.metrics.refused(TOO_MANY_CONNECTIONS);
                let plainly = self.app.live.tls().is_none();
                connections.spawn(self.bound.gate.clone().refuse(stream, plainly));
            }
        }
    }
}

/// Takes connections until `shutdown` is ready.
async fn accept(
    http: &Http,
    beanstalkd: Option<&Beanstalkd>,
    connections: &mut JoinSet<()>,
    router: &Router,
    shutdown: impl Future<Output = ()> + Send,
) {
    let mut shutdown = pin!(shutdown);
    loop {
        // Without an order: callers of one listener who come faster than they are let in are not to be in the way of the
        // other's.
        tokio::select! {
            () = &mut shutdown => return,
            // Ended connections leave the set, which would grow otherwise.
            Some(_) = connections.join_next() => {}
            stream = http.bound.next() => http.admit(stream, connections, router),
            (stream, listener) = next_beanstalkd(beanstalkd) => match listener.bound.gate.admit() {
                Some(place) => {
                    connections.spawn(beanstalkd::serve(stream, place, Arc::clone(&listener.shared)));
                }
                None => {
                    http.app.metrics.refused(TOO_MANY_CONNECTIONS);
                    connections.spawn(listener.bound.gate.clone().refuse(stream, true));
                }
            }
        }
    }
}

/// The next connection for beanstalkd's protocol; waits for ever if it is not spoken.
async fn next_beanstalkd(beanstalkd: Option<&Beanstalkd>) -> (TcpStream, &Beanstalkd) {
    match beanstalkd {
        Some(beanstalkd) => (beanstalkd.bound.next().await, beanstalkd),
        None => std::future::pending().await,
    }
}
