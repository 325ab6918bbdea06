//! Listening sockets: opened once, before anything else, with a limit on connections.
//!
//! - `bind`: why a listener could not be opened
//! - `closed`: whether the peer has closed a connection
//! - `gate`: the limit on connections, and the refusal of the others
//! - `stream`: a connection's bytes, plain or under TLS

mod bind;
mod closed;
mod gate;
mod stream;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

pub use bind::BindError;
pub(crate) use gate::{Admitted, ConnectionLimit};
pub(crate) use stream::Stream;

use crate::beanstalkd;
use crate::config::ServerConfig;
use crate::http;
use crate::security::{Tls, Tokens};

/// Whether only programs of this machine can reach the address.
pub(crate) fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// Refuses an address that other machines can reach, unless that is intended or callers are authenticated.
fn exposed(address: SocketAddr, knows_callers: bool) -> Result<(), BindError> {
    match is_loopback(address.ip()) || knows_callers {
        true => Ok(()),
        false => Err(BindError::Exposed { address }),
    }
}

/// The same check for HTTP with these tokens and certificates.
pub(crate) fn check_exposure(
    address: SocketAddr,
    insecure: bool,
    tokens: &Tokens,
    tls: Option<&Tls>,
) -> Result<(), BindError> {
    let is_guarded = tls.is_some_and(Tls::asks_for_certificates);
    exposed(address, insecure || !tokens.is_empty() || is_guarded)
}

/// Open listeners: connections wait there until [`Server::run`](crate::Server::run) takes them.
#[derive(Debug)]
pub struct Listeners {
    pub(crate) http: Bound,
    pub(crate) beanstalkd: Option<Bound>,
    /// HTTP connections that were accepted while the store was being opened and have sent nothing yet, each with its
    /// permit.
    pub(crate) early: Vec<(TcpStream, Admitted)>,
}

/// An open listener, the address it got, and the limit on its connections.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(crate) listener: TcpListener,
    pub(crate) address: SocketAddr,
    pub(crate) gate: ConnectionLimit,
}

impl Listeners {
    /// Opens the listeners that `config` names.
    ///
    /// # Errors
    /// [`BindError`], which names the address and says what to do.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    pub async fn bind(config: &ServerConfig) -> Result<Listeners, BindError> {
        let ServerConfig { http: web, .. } = config;
        check_exposure(web.listen, web.insecure, &web.tokens, web.tls.as_ref())?;
        if let Some(beanstalkd) = &config.beanstalkd {
            exposed(beanstalkd.listen, beanstalkd.insecure)?;
        }
        let all = ConnectionLimit::places(config.max_connections);
        let gate = ConnectionLimit::new(web.max_connections, Arc::clone(&all), http::no_place());
        let http = Bound::new(web.listen, gate).await?;
        let beanstalkd = match &config.beanstalkd {
            Some(config) => {
                let gate = ConnectionLimit::new(config.max_connections, all, beanstalkd::NO_PLACE);
                Some(Bound::new(config.listen, gate).await?)
            }
            None => None,
        };
        Ok(Listeners { http, beanstalkd, early: Vec::new() })
    }

    /// The address of the HTTP listener, with the port that was chosen if 0 was asked for.
    pub fn http_addr(&self) -> SocketAddr {
        self.http.address
    }

    /// The address of the listener for beanstalkd's protocol, likewise; `None` if there is none.
    pub fn beanstalkd_addr(&self) -> Option<SocketAddr> {
        self.beanstalkd.as_ref().map(|bound| bound.address)
    }
}

impl Bound {
    async fn new(wanted: SocketAddr, gate: ConnectionLimit) -> Result<Bound, BindError> {
        let listener = TcpListener::bind(wanted).await.map_err(|error| BindError::new(wanted, error))?;
        let address = listener.local_addr().map_err(|error| BindError::new(wanted, error))?;
        Ok(Bound { listener, address, gate })
    }

    /// Accepts the next connection. Cancel safe.
    pub(crate) async fn next(&self) -> TcpStream {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => return stream,
                Err(error) if is_the_clients(&error) => {}
                // Out of file descriptors or memory: no connection can be accepted before others end, and the listener
                // stays readable meanwhile.
                Err(_) => sleep(Duration::from_millis(100)).await,
            }
        }
    }
}

/// Whether the connection broke before it was accepted, which does not concern the listener.
fn is_the_clients(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
