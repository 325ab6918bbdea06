//! Where to listen, whom to listen to, how long to wait.

use std::net::{Ipv4Addr, SocketAddr};

use crate::security::{Tls, Tokens};

/// A server's configuration.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerConfig {
    /// The HTTP listener.
    pub http: HttpConfig,
    /// The listener for beanstalkd's protocol; `None`, the default, for none.
    pub beanstalkd: Option<BeanstalkdConfig>,
    /// The most connections at a time on all listeners together, beside what each may have: for a process that may have
    /// no more files open.
    pub max_connections: usize,
    /// How many bytes the bodies of requests and answers may hold, all connections together.
    pub memory_bytes: u64,
    /// How long a shutdown waits for answers under way, in milliseconds; what is left then is cut off.
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
    /// Names, besides the loopback's and the listener's own, that a request's `Host` and `Origin` may have:
    /// `dwell.example` (with any port) or `dwell.example:8080`.
    pub hosts: Vec<String>,
    /// Whom to listen to; without any tokens, to everybody.
    pub tokens: Tokens,
    /// Certificate and key; without them, HTTP is spoken in the clear.
    pub tls: Option<Tls>,
    /// To listen where other machines reach it, although nobody is asked who they are.
    pub insecure: bool,
    /// Whether `/` is the web page, for whom asks for HTML.
    pub page: bool,
    /// The most connections at a time; one more is told `503 too_many_connections` and closed.
    pub max_connections: usize,
    /// The longest `wait` of a take, in milliseconds; a longer one is refused.
    pub max_wait_ms: u64,
    /// How long a connection may take to send a request's head, and stay idle before, in milliseconds.
    pub head_ms: u64,
    /// How long a request's body may stand still, in milliseconds.
    pub body_ms: u64,
    /// How many bytes of a body a client has to send in a second, on average after `body_ms`; 0 for any few.
    /// A stream of lines may take as long as it likes.
    pub body_rate: u64,
    /// How long a client may leave an answer unread before its connection is cut, in milliseconds.
    pub write_ms: u64,
}

impl HttpConfig {
    /// The port that dwell listens on unless told otherwise.
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
    /// To listen where other machines reach it, although the protocol knows no passwords.
    pub insecure: bool,
    /// The most connections at a time; one more is told `OUT_OF_MEMORY` and closed.
    pub max_connections: usize,
    /// How long a connection may do nothing and wait for nothing before it is closed, in milliseconds; `None`,
    /// the default and what beanstalkd does, for as long as it likes. Its jobs are ready again then.
    pub idle_ms: Option<u64>,
    /// How long a command or a body that has begun may stand still, in milliseconds.
    pub read_ms: u64,
    /// How many bytes of a command a client has to send in a second, on average after `read_ms`; 0 for any few.
    pub read_rate: u64,
    /// How long a client may leave replies unread before its connection is cut, in milliseconds.
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
