//! Connections to a Redis, made when they are needed and made again when they are lost.
//!
//! Ground rules:
//! 1. A connection that failed is dropped by whoever saw it fail, and the next call makes a new one. So a failover or a
//!    restart costs the calls that were under way, and no more.
//! 2. A command that may have been carried out is never sent again from here: only its caller knows whether it may be
//!    done twice. A node of a cluster that refuses one, since the slot is another's or moves, has done nothing: then it is
//!    sent again, to where it belongs.

mod certificates;
mod sentinel;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection, PubSub};
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo,
    RedisConnectionInfo, RedisError, RedisResult, ServerErrorKind, TlsCertificates, Value,
};
use tokio::sync::Mutex;

use crate::address::Node;
use crate::{Address, Kind, OpenError};

/// Connections to one Redis; clones share them.
///
/// Calls need a Tokio runtime with time and I/O.
#[derive(Clone)]
pub struct Link(Arc<Inner>);

struct Inner {
    address: Address,
    /// What TLS needs besides what the system trusts.
    certificates: Option<TlsCertificates>,
    next: AtomicUsize,
    lines: Vec<Mutex<Option<Line>>>,
}

/// A connection that many calls share.
#[derive(Clone)]
enum Line {
    Server(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Link {
    /// Connects, to see that the Redis is there and lets this user in.
    ///
    /// # Errors
    /// [`OpenError::Unreachable`], and [`OpenError::Certificate`] of a file that the address names.
    pub async fn open(address: Address) -> Result<Link, OpenError> {
        let certificates = certificates::read(&address.certificates)?;
        let lines = (0..address.connections).map(|_| Mutex::default()).collect();
        let link = Link(Arc::new(Inner { address, certificates, next: AtomicUsize::new(0), lines }));
        let reached = link.send(&redis::cmd("PING")).await;
        reached.map_err(|error| OpenError::Unreachable {
            at: link.address().to_string(),
            reason: error.to_string(),
        })?;
        Ok(link)
    }

    /// Where it leads.
    pub fn address(&self) -> &Address {
        &self.0.address
    }

    /// Sends a command and awaits its reply; on a cluster it goes to the node of its first key.
    ///
    /// # Errors
    /// Those of the server and of the connection. The command is not repeated, unless a node of a cluster has refused it
    /// because its slot is another's or moves; it may have been carried out if the connection was lost. On a cluster that
    /// holds of every error that is no server's answer, also where no connection is found: another call may have noticed
    /// first that the node is gone.
    pub async fn send(&self, command: &Cmd) -> RedisResult<Value> {
        for pause_ms in PUT_OFF_MS {
            match self.once(command).await {
                Err(error) if self.address().kind == Kind::Cluster && was_put_off(&error) => {
                    if let Some(node) = asked_node(&error) {
                        return self.send_asking(&node, command).await;
                    }
                    tokio::time::sleep(Duration::from_millis(pause_ms)).await;
                }
                reply => return reply,
            }
        }
        self.once(command).await
    }

    /// Sends a command to a node that takes its slot over: it serves what has moved there already to those who ask so.
    async fn send_asking(&self, node: &Node, command: &Cmd) -> RedisResult<Value> {
        let mut connection =
            self.0.client(node)?.get_multiplexed_async_connection_with_config(&self.config()).await?;
        let mut both = redis::pipe();
        both.cmd("ASKING").add_command(command.clone());
        let mut replies = connection.req_packed_commands(&both, 0, 2).await?;
        replies.pop().unwrap_or(Value::Nil).extract_error()
    }

    async fn once(&self, command: &Cmd) -> RedisResult<Value> {
        let lines = &self.0.lines;
        let slot = &lines[self.0.next.fetch_add(1, Ordering::Relaxed) % lines.len()];
        let mut line = self.line(slot).await?;
        let reply = match &mut line {
            Line::Server(connection) => connection.req_packed_command(command).await,
            Line::Cluster(connection) => connection.req_packed_command(command).await,
        };
        // A refusal comes as a value.
        let reply = reply.and_then(Value::extract_error);
        if reply.as_ref().is_err_and(|error| must_reconnect(error, &line)) {
            slot.lock().await.take();
        }
        reply
    }

    /// [`send`](Link::send) with the reply read as a `T`.
    ///
    /// # Errors
    /// Those of `send`, and of a reply of another type.
    pub async fn ask<T: redis::FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        Ok(redis::from_redis_value(self.send(command).await?)?)
    }

    /// A new connection for subscriptions. On a cluster it leads to any node: what is published at one reaches all.
    ///
    /// # Errors
    /// Those of the connection.
    pub async fn subscriber(&self) -> RedisResult<PubSub> {
        let mut last = None;
        for node in self.servers().await? {
            match self.0.client(&node)?.get_async_pubsub().await {
                Ok(subscriber) => return Ok(subscriber),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(nobody))
    }

    /// A new connection of the caller's own to the server that takes writes; not for clusters.
    ///
    /// # Errors
    /// Those of the connection.
    pub async fn connect(&self) -> RedisResult<MultiplexedConnection> {
        let node = self.servers().await?.into_iter().next().ok_or_else(nobody)?;
        let client = self.0.client(&node)?;
        let connection = client.get_multiplexed_async_connection_with_config(&self.config()).await?;
        Ok(connection)
    }

    async fn line(&self, slot: &Mutex<Option<Line>>) -> RedisResult<Line> {
        let mut slot = slot.lock().await;
        if let Some(line) = &*slot {
            return Ok(line.clone());
        }
        let line = match self.address().kind {
            Kind::Single | Kind::Sentinel => Line::Server(self.connect().await?),
            Kind::Cluster => Line::Cluster(self.cluster().await?),
        };
        *slot = Some(line.clone());
        Ok(line)
    }

    async fn cluster(&self) -> RedisResult<ClusterConnection> {
        let address = self.address();
        let timeout = address.timeout();
        let nodes: Vec<_> = address.nodes.iter().map(|node| info(address, node)).collect();
        let mut client = ClusterClient::builder(nodes)
            .connection_timeout(timeout)
            .response_timeout(timeout)
            .overall_response_timeout(Some(timeout * 2))
            // It would send again what may have been carried out.
            .retries(0)
            .tcp_settings(at_once());
        if let Some(certificates) = &self.0.certificates {
            client = client.certs(certificates.clone());
        }
        if let Some(user) = &address.user {
            client = client.username(user);
        }
        if let Some(password) = &address.password {
            client = client.password(password);
        }
        // Its making can hang where no node answers as it should.
        let connection = tokio::time::timeout(timeout * 2, client.build()?.get_async_connection()).await;
        connection.unwrap_or_else(|_| Err(nobody()))
    }

    /// The servers to connect to: the primary, or the nodes of a cluster that are known.
    async fn servers(&self) -> RedisResult<Vec<Node>> {
        match self.address().kind {
            Kind::Single | Kind::Cluster => Ok(self.address().nodes.clone()),
            Kind::Sentinel => Ok(vec![sentinel::primary(&self.0, &self.config()).await?]),
        }
    }

    fn config(&self) -> AsyncConnectionConfig {
        let timeout = Some(self.address().timeout());
        AsyncConnectionConfig::new().set_connection_timeout(timeout).set_response_timeout(timeout)
    }
}

impl Inner {
    /// Whoever connects to a server of the address.
    fn client(&self, node: &Node) -> RedisResult<Client> {
        self.client_with(&self.address, node)
    }

    /// The same with another login.
    fn client_with(&self, login: &Address, node: &Node) -> RedisResult<Client> {
        match &self.certificates {
            Some(certificates) => Client::build_with_tls(info(login, node), certificates.clone()),
            None => Client::open(info(login, node)),
        }
    }
}

/// Whether the line is of no more use. A primary that has become a replica is left for the new one.
fn must_reconnect(error: &RedisError, line: &Line) -> bool {
    match line {
        Line::Server(_) => {
            let demoted = matches!(error.kind(), ErrorKind::Server(redis::ServerErrorKind::ReadOnly));
            error.is_io_error() || error.is_unrecoverable_error() || demoted
        }
        // It repairs itself, but not from having lost all of its connections.
        Line::Cluster(_) => {
            error.is_io_error() || matches!(error.kind(), ErrorKind::ClusterConnectionNotFound)
        }
    }
}

/// How long is waited before a command that a cluster has put off is sent again, each time; beyond that callers decide.
const PUT_OFF_MS: [u64; 4] = [5, 15, 40, 100];

/// Whether a node has refused a command without doing anything, since the cluster changes.
fn was_put_off(error: &RedisError) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Server(
            ServerErrorKind::Moved
                | ServerErrorKind::Ask
                | ServerErrorKind::TryAgain
                | ServerErrorKind::ClusterDown
                | ServerErrorKind::MasterDown
                | ServerErrorKind::ReadOnly
        )
    )
}

/// The node that a command whose key has moved already is to be sent to, while the slot moves.
fn asked_node(error: &RedisError) -> Option<Node> {
    if !matches!(error.kind(), ErrorKind::Server(ServerErrorKind::Ask)) {
        return None;
    }
    let (address, _) = error.redirect_node()?;
    let (host, port) = address.rsplit_once(':')?;
    let host = host.trim_matches(['[', ']']);
    (!host.is_empty()).then_some(Node::Tcp(host.to_owned(), port.parse().ok()?))
}

fn nobody() -> RedisError {
    RedisError::from((ErrorKind::Io, "no node answers"))
}

/// How one server is reached.
fn info(address: &Address, node: &Node) -> ConnectionInfo {
    let to = match node {
        Node::Tcp(host, port) if address.tls => {
            ConnectionAddr::TcpTls { host: host.clone(), port: *port, insecure: false, tls_params: None }
        }
        Node::Tcp(host, port) => ConnectionAddr::Tcp(host.clone(), *port),
        Node::Unix(path) => ConnectionAddr::Unix(path.clone()),
    };
    let mut settings = RedisConnectionInfo::default().set_db(address.db);
    if let Some(user) = &address.user {
        settings = settings.set_username(user);
    }
    if let Some(password) = &address.password {
        settings = settings.set_password(password);
    }
    let info = to.into_connection_info().expect("an address is a connection's");
    info.set_redis_settings(settings).set_tcp_settings(at_once())
}

/// What is written goes out at once: the library's default lets a call wait for the reply to the one before it.
fn at_once() -> TcpSettings {
    TcpSettings::default().set_nodelay(true)
}
