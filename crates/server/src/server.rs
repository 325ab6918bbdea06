//! The server's life: it binds, serves, and drains.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use dwell_store::Store;
use dwell_time::SystemClock;
use thiserror::Error;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

use crate::beanstalkd;
use crate::config::ServerConfig;
use crate::http::{self, App, Hosts};
use crate::returns::Returns;

/// Why a listener could not be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BindError {
    /// Another process listens there.
    #[error(
        "{address} is in use: another process listens there; stop it, or listen on another port \
         (port 0 finds a free one)"
    )]
    InUse {
        /// Where the server was to listen.
        address: SocketAddr,
    },
    /// The operating system does not allow it.
    #[error("{address} is not permitted for this user; choose a port above 1023")]
    Denied {
        /// Where the server was to listen.
        address: SocketAddr,
    },
    /// This machine does not have the address.
    #[error("{address} is no address of this machine; listen on 127.0.0.1, or on an address it has")]
    NotOurs {
        /// Where the server was to listen.
        address: SocketAddr,
    },
    /// Something else.
    #[error("can not listen on {address}: {source}")]
    Io {
        /// Where the server was to listen.
        address: SocketAddr,
        /// What the operating system said.
        source: io::Error,
    },
}

impl BindError {
    /// The stable code of this kind: a word that programs may match on.
    pub fn code(&self) -> &'static str {
        match self {
            BindError::InUse { .. } => "address_in_use",
            BindError::Denied { .. } => "address_denied",
            BindError::NotOurs { .. } => "address_not_ours",
            BindError::Io { .. } => "address_failed",
        }
    }

    /// Where the server was to listen.
    pub fn address(&self) -> SocketAddr {
        match self {
            BindError::InUse { address }
            | BindError::Denied { address }
            | BindError::NotOurs { address }
            | BindError::Io { address, .. } => *address,
        }
    }

    fn new(address: SocketAddr, source: io::Error) -> BindError {
        match source.kind() {
            io::ErrorKind::AddrInUse => BindError::InUse { address },
            io::ErrorKind::PermissionDenied => BindError::Denied { address },
            io::ErrorKind::AddrNotAvailable => BindError::NotOurs { address },
            _ => BindError::Io { address, source },
        }
    }
}

/// How a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Connections that were cut off because the time to drain was over.
    pub cut_off: usize,
}

/// The listener for beanstalkd's protocol, and what its connections share.
struct Beanstalkd {
    listener: TcpListener,
    address: SocketAddr,
    shared: Arc<beanstalkd::Shared>,
}

/// A server that listens.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    app: Arc<App>,
    beanstalkd: Option<Beanstalkd>,
    returned: JoinHandle<()>,
    drain: watch::Sender<bool>,
    drain_limit: Duration,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("http", &self.address)
            .field("beanstalkd", &self.beanstalkd_addr())
            .finish_non_exhaustive()
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
        let (listener, address) = listen(config.http.listen).await?;
        let beanstalkd = match config.beanstalkd {
            Some(config) => Some((listen(config.listen).await?, config)),
            None => None,
        };
        let (drain, draining) = watch::channel(false);
        let (returns, returned) = Returns::start(Arc::clone(&store));
        let clock = Arc::new(SystemClock::new());
        let beanstalkd = beanstalkd.map(|((listener, address), config)| {
            let (store, returns) = (Arc::clone(&store), returns.clone());
            let shared =
                beanstalkd::Shared::new(store, config, Arc::clone(&clock) as _, returns, draining.clone());
            Beanstalkd { listener, address, shared: Arc::new(shared) }
        });
        let app = App {
            store,
            hosts: Hosts::new(address.port(), &config.http.hosts),
            config: config.http,
            clock,
            returns,
            draining,
        };
        let drain_limit = Duration::from_millis(config.drain_ms);
        Ok(Server { listener, address, app: Arc::new(app), beanstalkd, returned, drain, drain_limit })
    }

    /// Where HTTP is spoken, with the port that was chosen if 0 was asked for.
    pub fn http_addr(&self) -> SocketAddr {
        self.address
    }

    /// Where beanstalkd's protocol is spoken, likewise; `None` if it is not.
    pub fn beanstalkd_addr(&self) -> Option<SocketAddr> {
        self.beanstalkd.as_ref().map(|beanstalkd| beanstalkd.address)
    }

    /// Serves until `shutdown` is ready. Then no connection is accepted any more, waiting takes are answered
    /// with nothing, what is under way is answered, and all connections end; at the latest after
    /// [`ServerConfig::drain_ms`]. Messages that were taken and not delivered have been given back when it
    /// returns, so that the caller may close the store.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send) -> Drained {
        let Server { listener, address: _, app, beanstalkd, returned, drain, drain_limit } = self;
        let router = http::router(Arc::clone(&app));
        let mut connections = JoinSet::new();
        accept(listener, beanstalkd, &mut connections, &router, &app, shutdown).await;
        drain.send_replace(true);

        let all_done = async { while connections.join_next().await.is_some() {} };
        let cut_off = match timeout(drain_limit, all_done).await {
            Ok(()) => 0,
            Err(_) => connections.len(),
        };
        connections.shutdown().await;
        // With the last connection and the application the last of those that give back are gone.
        drop((router, app));
        let _ = timeout(drain_limit, returned).await;
        Drained { cut_off }
    }
}

async fn listen(wanted: SocketAddr) -> Result<(TcpListener, SocketAddr), BindError> {
    let listener = TcpListener::bind(wanted).await.map_err(|error| BindError::new(wanted, error))?;
    let address = listener.local_addr().map_err(|error| BindError::new(wanted, error))?;
    Ok((listener, address))
}

/// Takes connections until `shutdown` is ready.
async fn accept(
    listener: TcpListener,
    beanstalkd: Option<Beanstalkd>,
    connections: &mut JoinSet<()>,
    router: &Router,
    app: &Arc<App>,
    shutdown: impl Future<Output = ()> + Send,
) {
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            biased;
            () = &mut shutdown => return,
            // Ended connections leave the set, which would grow otherwise.
            Some(_) = connections.join_next() => {}
            stream = next(&listener) => {
                connections.spawn(http::serve(stream, router.clone(), Arc::clone(app)));
            }
            (stream, shared) = next_beanstalkd(beanstalkd.as_ref()) => {
                connections.spawn(beanstalkd::serve(stream, shared));
            }
        }
    }
}

/// The next connection for beanstalkd's protocol; waits for ever if it is not spoken.
async fn next_beanstalkd(beanstalkd: Option<&Beanstalkd>) -> (TcpStream, Arc<beanstalkd::Shared>) {
    match beanstalkd {
        Some(beanstalkd) => (next(&beanstalkd.listener).await, Arc::clone(&beanstalkd.shared)),
        None => std::future::pending().await,
    }
}

/// The next connection. May be dropped and called again.
async fn next(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) if is_the_clients(&error) => {}
            // Out of file descriptors or memory: connections have to end before one can come, and the
            // listener is readable all the while.
            Err(_) => sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Whether the connection was broken before it was accepted, which says nothing about the listener.
fn is_the_clients(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
