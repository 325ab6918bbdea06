//! Listeners, authentication and timeouts.

use std::net::{Ipv4Addr, SocketAddr};

use crate::security::{Tls, Tokens};

/// A server's configuration.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerConfig {
    /// The HTTP listener.
    pub http: HttpConfig,
    /// The listener for beanstalkd's protocol; `None`, the default, disables it.
    pub beanstalkd: Option<BeanstalkdConfig>,
    /// The maximum number of connections on all listeners together, on top of each listener's own limit. It serves
    /// processes with a low limit on open files.
    pub max_connections: usize,
    /// The maximum size in bytes of all bodies of requests and answers that are held at a time.
    pub memory_bytes: u64,
    /// How long a shutdown waits for requests in progress, in milliseconds; connections that remain are closed.
    pub drain_ms: u64,
}

impl Default for ServerConfig {
    fn default() -> ServerConfig {
        ServerConfig {
            http: HttpConfig::default(),
            beanstalkd: None,
            max_connections: usize::MAX,
            memory_bytes: 512 * 1024 * 1024,
            drain_ms: 10_000,
        }
    }
}

/// The HTTP listener's configuration.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HttpConfig {
    /// Where to listen; port 0 chooses a free one.
    pub listen: SocketAddr,
    /// Host names that are accepted in `Host` and `Origin`, in addition to those of the loopback and the listener:
    /// `dwell.example` (with any port) or `dwell.example:8080`.
    pub hosts: Vec<String>,
    /// The tokens that authenticate callers; without any, all requests are accepted.
    pub tokens: Tokens,
    /// Certificate and key; without them, HTTP is not encrypted.
    pub tls: Option<Tls>,
    /// Whether to listen where other machines can reach it although callers are not authenticated.
    pub insecure: bool,
    /// Whether `/` serves the web page to clients that ask for HTML.
    pub page: bool,
    /// The maximum number of connections; one more receives `503 too_many_connections` and is closed.
    pub max_connections: usize,
    /// The longest `wait` of a take, in milliseconds; a longer one is refused.
    pub max_wait_ms: u64,
    /// The maximum time for a request's head, and for the idle time before it, in milliseconds.
    pub head_ms: u64,
    /// The maximum time without progress while a request's body is read, in milliseconds.
    pub body_ms: u64,
    /// The minimum average rate of a body in bytes per second, enforced after `body_ms`; 0 for no minimum. A stream of
    /// lines has no minimum.
    pub body_rate: u64,
    /// The maximum time that an answer may stay unread before its connection is closed, in milliseconds.
    pub write_ms: u64,
}

impl HttpConfig {
    /// The default port of the HTTP listener.
    pub const DEFAULT_PORT: u16 = 7411;
}

impl Default for HttpConfig {
    fn default() -> HttpConfig {
        HttpConfig {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, HttpConfig::DEFAULT_PORT)),
            hosts: Vec::new(),
            tokens: Tokens::default(),
            tls: None,
            insecure: false,
            page: true,
            max_connections: 16_384,
            max_wait_ms: 60_000,
            head_ms: 75_000,
            body_ms: 60_000,
            body_rate: 1_024,
            write_ms: 60_000,
        }
    }
}

/// The configuration of the listener for beanstalkd's protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BeanstalkdConfig {
    /// Where to listen; port 0 chooses a free one.
    pub listen: SocketAddr,
    /// Whether to listen where other machines can reach it although the protocol has no authentication.
    pub insecure: bool,
    /// The maximum number of connections; one more receives `OUT_OF_MEMORY` and is closed.
    pub max_connections: usize,
    /// The idle timeout in milliseconds, of connections that wait for nothing; `None`, the default as in beanstalkd,
    /// for none. The jobs of a closed connection are ready again.
    pub idle_ms: Option<u64>,
    /// The maximum time without progress while a command or body is read, in milliseconds.
    pub read_ms: u64,
    /// The minimum average rate of a command in bytes per second, enforced after `read_ms`; 0 for no minimum.
    pub read_rate: u64,
    /// The maximum time that replies may stay unread before the connection is closed, in milliseconds.
    pub write_ms: u64,
}

impl BeanstalkdConfig {
    /// The port that beanstalkd's clients expect.
    pub const DEFAULT_PORT: u16 = 11_300;
}

impl Default for BeanstalkdConfig {
    fn default() -> BeanstalkdConfig {
        BeanstalkdConfig {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, BeanstalkdConfig::DEFAULT_PORT)),
            insecure: false,
            max_connections: 16_384,
            idle_ms: None,
            read_ms: 60_000,
            read_rate: 1_024,
            write_ms: 60_000,
        }
    }
}
