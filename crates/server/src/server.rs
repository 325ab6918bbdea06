//! The server's lifecycle: it binds, serves, and drains.

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
use crate::config::{ApplyError, Configured, QueueConfig, ServerConfig};
use crate::delivery::Delivery;
use crate::http::{self, App, Hosts, LastFailure, Walks};
use crate::listener::{Admitted, BindError, Bound, Listeners, check_exposure};
use crate::metrics::{Metered, Metrics, Samples};
use crate::reserved::Guarded;
use crate::returns::Returns;
use crate::security::{Live, Tls, Tokens};

/// The code under which a refused connection is counted, in any protocol.
const TOO_MANY_CONNECTIONS: &str = "too_many_connections";

/// The minimum time for giving back messages that were taken and not delivered, however short the drain is. It only
/// waits for the store.
const GIVE_BACK: Duration = Duration::from_secs(10);

/// How a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// The number of connections that were closed because the time to drain was over.
    pub cut_off: usize,
}

/// An HTTP listener, and what its connections share.
struct Http {
    bound: Bound,
    app: Arc<App>,
    /// Connections that were accepted before there was a server, each with its permit.
    early: Vec<(TcpStream, Admitted)>,
}

/// A listener for beanstalkd's protocol, and what its connections share.
struct Beanstalkd {
    bound: Bound,
    shared: Arc<beanstalkd::BeanstalkdShared>,
}

/// A server with open listeners.
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

/// Changes a running server.
#[derive(Clone, Debug)]
pub struct Control {
    live: Arc<Live>,
    configured: Configured,
    address: SocketAddr,
    /// Whether unauthenticated callers were allowed at the start.
    insecure: bool,
}

impl Control {
    /// Whether the server may use these tokens and certificates. Its addresses, whether it uses TLS, and whether
    /// unauthenticated callers are [allowed](crate::HttpConfig::insecure) stay as at the start, whatever a reloaded
    /// configuration says.
    ///
    /// # Errors
    /// [`BindError::Exposed`]: other machines can reach its address, and callers would not be authenticated.
    pub fn check(&self, tokens: &Tokens, tls: Option<&Tls>) -> Result<(), BindError> {
        let stays = self.live.tls();
        let tls = stays.as_ref().map(|stays| tls.unwrap_or(stays));
        check_exposure(self.address, self.insecure, tokens, tls)
    }

    /// Applies queue settings as [`apply_queues`](crate::apply_queues) does. On success those of `now` are
    /// [kept](Control::keep_queues). A queue that is deleted meanwhile gets these, and not the previous ones.
    ///
    /// # Errors
    /// Those of [`apply_queues`](crate::apply_queues).
    pub async fn apply_queues(
        &self,
        store: &dyn Store,
        before: &[QueueConfig],
        now: &[QueueConfig],
    ) -> Result<usize, ApplyError> {
        self.configured.apply(store, before, now).await
    }

    /// Records the queue settings of the configuration in force, which [`apply_queues`](crate::apply_queues) has
    /// applied to the store. A queue that is deleted over HTTP gets its settings again before that is answered, or,
    /// where the store refuses them then, as soon as the store accepts them.
    pub fn keep_queues(&self, queues: &[QueueConfig]) {
        self.configured.replace(queues);
    }

    /// Puts these names, tokens and certificates in force, for requests and connections from now on. Whether TLS is
    /// used does not change: with `tls` left out the present certificate stays.
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

    /// Serves on listeners that were opened earlier: with the same `config`, but before the store was opened.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    pub fn new(store: Arc<dyn Store>, listeners: Listeners, config: ServerConfig) -> Server {
        Server::new_on(store, listeners, config, Arc::new(SystemClock::new()))
    }

    /// [`Server::bind`] with the clock of a test, which is its store's clock too.
    ///
    /// # Errors
    /// Those of [`Server::bind`].
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
        let metered =
            |store: Arc<dyn Store>| Arc::new(Metered::new(store, Arc::clone(&metrics), Arc::clone(&clock)));
        let drain_limit = Duration::from_millis(config.drain_ms);
        let counted = metered(Arc::clone(&store));
        let delivery = Delivery::new(counted, Arc::clone(&store), Arc::clone(&clock), drain_limit);
        let store: Arc<dyn Store> = metered(Arc::new(Guarded::new(store)));
        let (returns, returned) = Returns::start(Arc::clone(&store));
        let beanstalkd = listeners.beanstalkd.zip(config.beanstalkd).map(|(bound, config)| {
            let (store, returns) = (Arc::clone(&store), returns.clone());
            let (clock, metrics) = (Arc::clone(&clock), Arc::clone(&metrics));
            let memory = Arc::clone(&memory);
            let shared = beanstalkd::BeanstalkdShared::new(
                store,
                config,
                clock,
                returns,
                draining.clone(),
                metrics,
                memory,
            );
            Beanstalkd { bound, shared: Arc::new(shared) }
        });
        let bound = listeners.http;
        let mut config_http = config.http;
        let hosts = Hosts::new(bound.address.port(), &config_http.hosts);
        let tokens = std::mem::take(&mut config_http.tokens);
        let live = Arc::new(Live::new(hosts, tokens, config_http.tls.take()));
        let ailment = LastFailure::default();
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
            delivery,
        };
        let app = Arc::new(app);
        let http = Http { bound, app, early: listeners.early };
        Server { http, beanstalkd, returned, drain, drain_limit }
    }

    /// The address of the HTTP listener, with the port that was chosen if 0 was asked for.
    pub fn http_addr(&self) -> SocketAddr {
        self.http.bound.address
    }

    /// The address of the listener for beanstalkd's protocol, likewise; `None` if there is none.
    pub fn beanstalkd_addr(&self) -> Option<SocketAddr> {
        self.beanstalkd.as_ref().map(|beanstalkd| beanstalkd.bound.address)
    }

    /// A handle that changes the running server.
    pub fn control(&self) -> Control {
        let Http { app, .. } = &self.http;
        Control {
            live: Arc::clone(&app.live),
            configured: app.configured.clone(),
            address: self.http_addr(),
            insecure: app.config.insecure,
        }
    }

    /// The sinks and schedules that the server may run itself. None runs before it is [started](Delivery::start), and a
    /// caller that starts it [stops](Delivery::stop) it before the store is closed.
    pub fn delivery(&self) -> Delivery {
        self.http.app.delivery.clone()
    }

    /// Shows the samples of another component, such as an engine, at `/metrics`. Only the first one is kept.
    pub fn show_samples(&self, samples: Arc<dyn Samples>) {
        self.http.app.metrics.set_source(samples);
    }

    /// Serves until `shutdown` completes. Then no connection is accepted any more, waiting takes are answered with
    /// nothing, requests in progress are answered, and all connections end, at the latest after
    /// [`ServerConfig::drain_ms`]. Messages that were taken and not delivered have been given back when it returns, so
    /// that the caller may close the store.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send) -> Drained {
        let Server { mut http, beanstalkd, returned, drain, drain_limit } = self;
        let router = http::router(Arc::clone(&http.app));
        let mut connections = JoinSet::new();
        for (stream, place) in std::mem::take(&mut http.early) {
            connections.spawn(http::serve(stream, place, router.clone(), Arc::clone(&http.app)));
        }
        accept(&http, beanstalkd.as_ref(), &mut connections, &router, shutdown).await;
        // The listener is closed: no connection enters the operating system's queue any more.
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
        // With the last connection and the application the last senders of receipts are dropped.
        drop((router, app));
        let _ = timeout(drain_limit.max(GIVE_BACK), returned).await;
        Drained { cut_off }
    }
}

impl Http {
    /// Serves a connection, or refuses it where there is no permit.
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

/// Accepts connections until `shutdown` completes.
async fn accept(
    http: &Http,
    beanstalkd: Option<&Beanstalkd>,
    connections: &mut JoinSet<()>,
    router: &Router,
    shutdown: impl Future<Output = ()> + Send,
) {
    let mut shutdown = pin!(shutdown);
    loop {
        // Unbiased: connections of one listener that arrive faster than they are accepted must not starve the other.
        tokio::select! {
            () = &mut shutdown => return,
            // Ended connections are removed from the set, which would grow otherwise.
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

/// The next connection for beanstalkd's protocol; pending for ever if there is no listener.
async fn next_beanstalkd(beanstalkd: Option<&Beanstalkd>) -> (TcpStream, &Beanstalkd) {
    match beanstalkd {
        Some(beanstalkd) => (beanstalkd.bound.next().await, beanstalkd),
        None => std::future::pending().await,
    }
}
