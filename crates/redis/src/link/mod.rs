//! Connections to a Redis, made when they are needed and made again when they are lost.
//!
//! Ground rules:
//! 1. A connection that failed is dropped by the task that saw it fail, and the next call makes a new one. So a
//!    failover or a restart costs the calls that were under way, and no more. A connection to a cluster leads to all
//!    of its nodes, of which one has failed: it is made again in the background, and calls on other nodes use the old
//!    one where that takes long.
//! 2. A command that may have been carried out is never sent again from here: only its caller knows whether it may be
//!    done twice. A node of a cluster that refuses one, since the slot is another's or moves, has done nothing: then
//!    the command is sent again, to the right node.
//!
//! # Layout
//! - `certificates`: files for TLS
//! - `sentinel`: which server takes writes
//! - `nodes`: the nodes of a cluster, as they were last seen
//! - `hints`: the subscription, one for all listeners of a link

mod certificates;
mod hints;
mod nodes;
mod sentinel;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use dwell_time::{Clock as _, SystemClock};
use redis::aio::{ConnectionLike, MultiplexedConnection, PubSub};
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{MultipleNodeRoutingInfo, ResponsePolicy, RoutingInfo};
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo,
    RedisConnectionInfo, RedisError, RedisResult, ServerErrorKind, TlsCertificates, Value,
};
use tokio::sync::{Mutex, watch};

pub use self::hints::Ear;
use self::hints::Hints;
use self::nodes::{Group, Nodes};
use crate::address::Node;
use crate::server_error::Said;
use crate::{Address, AddressKind, OpenError};

/// Connections to one Redis; clones share them.
///
/// Calls need a Tokio runtime with time and I/O.
#[derive(Clone)]
pub struct Link(Arc<Inner>);

struct Inner {
    address: Address,
    /// For TLS, in addition to what the system trusts.
    certificates: Option<TlsCertificates>,
    next: AtomicUsize,
    slots: Vec<Slot>,
    /// The number of lines that were made.
    made: AtomicU64,
    /// Of a cluster.
    nodes: Nodes,
    /// The index of the server with which the next subscription begins.
    first: AtomicUsize,
    /// The index of the Sentinel that is asked first.
    sentinel: AtomicUsize,
    hints: Hints,
    clock: SystemClock,
}

/// The slot of a line.
#[derive(Default)]
struct Slot {
    /// The line and its number, which shows whether it is still the one that failed.
    line: Mutex<Option<(u64, Connection)>>,
    /// Set while another line is being made.
    renewal: std::sync::Mutex<Option<Renewal>>,
}

#[derive(Clone)]
struct Renewal {
    began_ms: u64,
    /// Closed when the renewal has ended.
    over: watch::Receiver<()>,
}

/// Ends a renewal when dropped, also when its runtime ends.
struct Renewing {
    link: Link,
    slot: usize,
    _over: watch::Sender<()>,
}

impl Drop for Renewing {
    fn drop(&mut self) {
        *self.link.0.slots[self.slot].renewal() = None;
    }
}

impl Slot {
    fn renewal(&self) -> std::sync::MutexGuard<'_, Option<Renewal>> {
        // No foreign code runs under the lock.
        self.renewal.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// How long calls wait for a line that is being made again, from the start of that: mostly it is there by then.
const RENEWAL_MS: u64 = 250;

/// A connection that many calls share.
#[derive(Clone)]
enum Connection {
    Server(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Link {
    /// Connects, to check that the Redis is there and accepts this user.
    ///
    /// # Errors
    /// [`OpenError::Unreachable`], and [`OpenError::Certificate`] for a file that the address names.
    pub async fn open(address: Address) -> Result<Link, OpenError> {
        let certificates = certificates::read(&address.certificates)?;
        let slots = (0..address.connections).map(|_| Slot::default()).collect();
        let inner = Inner {
            address,
            certificates,
            next: AtomicUsize::new(0),
            slots,
            made: AtomicU64::new(0),
            nodes: Nodes::default(),
            first: AtomicUsize::new(0),
            sentinel: AtomicUsize::new(0),
            hints: Hints::default(),
            clock: SystemClock::new(),
        };
        let link = Link(Arc::new(inner));
        let reached = link.send(&redis::cmd("PING")).await;
        reached.map_err(|error| OpenError::Unreachable {
            at: link.address().to_string(),
            reason: error.to_string(),
        })?;
        Ok(link)
    }

    /// The address of this link.
    pub fn address(&self) -> &Address {
        &self.0.address
    }

    /// Sends a command and awaits its reply; on a cluster it goes to the node of its first key.
    ///
    /// # Errors
    /// Those of the server and of the connection. The command is not repeated, unless a node of a cluster has refused
    /// it because its slot is another's or moves; it may have been carried out if the connection was lost. On a
    /// cluster the same is true of every error that is not a server's answer, also where no connection is found:
    /// another call may have noticed first that the node is down.
    pub async fn send(&self, command: &Cmd) -> RedisResult<Value> {
        self.send_before(command, u64::MAX).await
    }

    /// The same, but not later than at this instant of [`now_ms`](Link::now_ms): a caller that has to wait longer for
    /// a connection gets an error that says that nothing was sent.
    pub(crate) async fn send_before(&self, command: &Cmd, end_ms: u64) -> RedisResult<Value> {
        for pause_ms in PUT_OFF_MS {
            match self.once(command, end_ms).await {
                Err(error) if self.address().kind == AddressKind::Cluster && was_put_off(&error) => {
                    if let Some(node) = asked_node(&error) {
                        return self.send_asking(&node, command).await;
                    }
                    tokio::time::sleep(Duration::from_millis(pause_ms)).await;
                }
                reply => return reply,
            }
        }
        self.once(command, end_ms).await
    }

    /// Sends a command to a node that takes over its slot: with `ASKING`, it serves the keys that have moved there
    /// already.
    async fn send_asking(&self, node: &Node, command: &Cmd) -> RedisResult<Value> {
        let mut connection =
            self.0.client(node)?.get_multiplexed_async_connection_with_config(&self.config()).await?;
        let mut both = redis::pipe();
        both.cmd("ASKING").add_command(command.clone());
        let mut replies = connection.req_packed_commands(&both, 0, 2).await?;
        replies.pop().unwrap_or(Value::Nil).extract_error()
    }

    async fn once(&self, command: &Cmd, end_ms: u64) -> RedisResult<Value> {
        let slot = self.0.next.fetch_add(1, Ordering::Relaxed) % self.0.slots.len();
        let (number, mut line) = self.line(slot).await?;
        if self.now_ms() > end_ms {
            return Err(not_sent("it is too late to send it again"));
        }
        let reply = match &mut line {
            Connection::Server(connection) => connection.req_packed_command(command).await,
            Connection::Cluster(connection) => {
                if self.0.nodes.is_time(self.now_ms()) {
                    tokio::spawn(ask_for_nodes(self.clone(), connection.clone()));
                }
                connection.req_packed_command(command).await
            }
        };
        // A refusal comes as a value.
        let reply = reply.and_then(Value::extract_error);
        if reply.as_ref().is_err_and(|error| must_reconnect(error, &line)) {
            match line {
                Connection::Server(_) => {
                    self.0.slots[slot].line.lock().await.take_if(|(current, _)| *current == number);
                }
                Connection::Cluster(_) => self.renew(slot, number).await,
            }
        }
        reply
    }

    /// Makes another line to a cluster in the background, to replace this one.
    async fn renew(&self, slot: usize, number: u64) {
        let place = &self.0.slots[slot];
        if place.line.lock().await.as_ref().is_none_or(|(current, _)| *current != number) {
            return;
        }
        let (sender, over) = watch::channel(());
        {
            let mut renewal = place.renewal();
            if renewal.is_some() {
                return;
            }
            *renewal = Some(Renewal { began_ms: self.now_ms(), over });
        }
        let renewing = Renewing { link: self.clone(), slot, _over: sender };
        tokio::spawn(async move {
            let link = &renewing.link;
            // If this fails, the next call connects by itself and returns the error.
            let made = link.cluster().await.ok().map(|line| link.numbered(Connection::Cluster(line)));
            *link.0.slots[slot].line.lock().await = made;
        });
    }

    fn numbered(&self, line: Connection) -> (u64, Connection) {
        (self.0.made.fetch_add(1, Ordering::Relaxed), line)
    }

    /// [`send`](Link::send) with the reply read as a `T`.
    ///
    /// # Errors
    /// Those of `send`, and of a reply of another type.
    pub async fn ask<T: redis::FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        Ok(redis::from_redis_value(self.send(command).await?)?)
    }

    /// Whether some primary of a cluster answers, and reports that the cluster serves.
    pub(crate) async fn cluster_serves(&self) -> bool {
        let Ok((_, Connection::Cluster(mut connection))) = self.line(0).await else { return false };
        let mut asked = redis::cmd("CLUSTER");
        asked.arg("INFO");
        let primaries = MultipleNodeRoutingInfo::AllMasters;
        let first = RoutingInfo::MultiNode((primaries, Some(ResponsePolicy::OneSucceeded)));
        let told = connection.route_command(asked, first).await.and_then(Value::extract_error);
        let told = told.and_then(|told| Ok(redis::from_redis_value::<String>(told)?));
        told.is_ok_and(|told| told.lines().any(|line| line.trim_end() == "cluster_state:ok"))
    }

    /// A new connection for subscriptions. On a cluster it leads to any node: what is published on one reaches all.
    ///
    /// # Errors
    /// Those of the connection.
    pub async fn subscriber(&self) -> RedisResult<PubSub> {
        let mut servers = self.servers().await?;
        let count = servers.len();
        // A server that does not answer does not hold up the others, this time or the next.
        let limit = self.address().timeout() / u32::try_from(count.clamp(1, 4)).unwrap_or(1);
        let first = self.0.first.load(Ordering::Relaxed) % count.max(1);
        servers.rotate_left(first);
        let mut last = None;
        for (index, node) in servers.iter().enumerate() {
            let client = self.0.client(node)?;
            match tokio::time::timeout(limit, client.get_async_pubsub()).await {
                Ok(Ok(subscriber)) => return Ok(subscriber),
                Ok(Err(error)) => last = Some(error),
                Err(_) => last = None,
            }
            self.0.first.store(first + index + 1, Ordering::Relaxed);
        }
        Err(last.unwrap_or_else(nobody))
    }

    /// A new connection for the caller alone, to the server that takes writes; not for clusters.
    ///
    /// # Errors
    /// Those of the connection.
    pub async fn connect(&self) -> RedisResult<MultiplexedConnection> {
        let node = self.servers().await?.into_iter().next().ok_or_else(nobody)?;
        let client = self.0.client(&node)?;
        let connection = client.get_multiplexed_async_connection_with_config(&self.config()).await?;
        Ok(connection)
    }

    async fn line(&self, slot: usize) -> RedisResult<(u64, Connection)> {
        let slot = &self.0.slots[slot];
        let renewal = slot.renewal().clone();
        if let Some(Renewal { began_ms, mut over }) = renewal {
            let left_ms = (began_ms + RENEWAL_MS).saturating_sub(self.now_ms());
            // The channel carries no values; it is closed.
            let _ = tokio::time::timeout(Duration::from_millis(left_ms), over.changed()).await;
        }
        // If it cannot be made, the calls that wait for it do not try one after the other, each for the full time.
        let Ok(mut slot) = tokio::time::timeout(self.address().timeout(), slot.line.lock()).await else {
            return Err(not_sent("others wait for a connection too"));
        };
        if let Some(line) = &*slot {
            return Ok(line.clone());
        }
        let line = match self.address().kind {
            AddressKind::Single | AddressKind::Sentinel => Connection::Server(self.connect().await?),
            AddressKind::Cluster => Connection::Cluster(self.cluster().await?),
        };
        let line = self.numbered(line);
        *slot = Some(line.clone());
        Ok(line)
    }

    /// A connection to all nodes of the cluster, found through those of the URL or those that were last seen.
    async fn cluster(&self) -> RedisResult<ClusterConnection> {
        let groups = self.0.nodes.groups(&self.address().nodes);
        let limit = self.address().timeout() * 2 / u32::try_from(groups.len()).unwrap_or(1);
        // A node that does not answer is tried twice, as one that was named and as one that the others report; then
        // they are asked.
        let connecting = limit / 3;
        let mut last = None;
        for group in groups {
            // Connecting can hang if no node answers as it should.
            let made = tokio::time::timeout(limit, self.cluster_through(&group, connecting)).await;
            match made.unwrap_or_else(|_| Err(nobody())) {
                Ok(connection) => {
                    self.0.nodes.rely_on(group.is_seen);
                    return Ok(connection);
                }
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(nobody))
    }

    async fn cluster_through(&self, group: &Group, connecting: Duration) -> RedisResult<ClusterConnection> {
        let address = self.address();
        let timeout = address.timeout();
        let nodes: Vec<_> = group.nodes.iter().map(|node| info(address, node)).collect();
        let mut client = ClusterClient::builder(nodes)
            .connection_timeout(connecting)
            .response_timeout(timeout)
            .overall_response_timeout(Some(timeout * 2))
            // The library would send again what may have been carried out.
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
        let mut connection = client.build()?.get_async_connection().await?;
        let slots = connection.req_packed_command(redis::cmd("CLUSTER").arg("SLOTS")).await;
        match slots.and_then(Value::extract_error) {
            Ok(slots) if !self.0.nodes.note(&slots, group.is_seen, self.now_ms()) => Err(another_cluster()),
            // Nodes that cannot be identified may be another cluster's.
            Err(error) if group.is_seen => Err(error),
            _ => Ok(connection),
        }
    }

    /// The servers to connect to: the primary, or the known nodes of a cluster.
    async fn servers(&self) -> RedisResult<Vec<Node>> {
        match self.address().kind {
            AddressKind::Single => Ok(self.address().nodes.clone()),
            AddressKind::Cluster => {
                let groups = self.0.nodes.groups(&self.address().nodes);
                Ok(groups.into_iter().flat_map(|group| group.nodes).collect())
            }
            AddressKind::Sentinel => Ok(vec![sentinel::primary(&self.0, &self.config()).await?]),
        }
    }

    /// Monotonic milliseconds.
    pub(crate) fn now_ms(&self) -> u64 {
        self.0.clock.now().mono_ms
    }

    fn config(&self) -> AsyncConnectionConfig {
        let timeout = Some(self.address().timeout());
        AsyncConnectionConfig::new().set_connection_timeout(timeout).set_response_timeout(timeout)
    }
}

impl Inner {
    /// A client for a server of the address.
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

/// Asks for the current nodes. If there is no answer, it is asked again later.
async fn ask_for_nodes(link: Link, mut connection: ClusterConnection) {
    let slots = connection.req_packed_command(redis::cmd("CLUSTER").arg("SLOTS")).await;
    if let Ok(slots) = slots.and_then(Value::extract_error) {
        // The connection is to this cluster, even if all of its nodes have changed.
        link.0.nodes.note(&slots, false, link.now_ms());
    }
}

/// Whether the line is useless. A primary that has become a replica is left for the new one.
fn must_reconnect(error: &RedisError, line: &Connection) -> bool {
    match line {
        Connection::Server(_) => {
            error.is_io_error() || error.is_unrecoverable_error() || is_said(error, &["READONLY"])
        }
        // It repairs itself, but not after it has lost all of its connections.
        Connection::Cluster(_) => {
            error.is_io_error() || matches!(error.kind(), ErrorKind::ClusterConnectionNotFound)
        }
    }
}

/// The pause before each retry of a command that a cluster has put off; after the last one the caller decides.
const PUT_OFF_MS: [u64; 4] = [5, 15, 40, 100];

/// Whether a node has refused a command without doing anything, since the cluster is changing.
fn was_put_off(error: &RedisError) -> bool {
    is_said(error, &["MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "READONLY"])
}

/// Whether a server has answered with one of these codes, directly or from a script's command.
fn is_said(error: &RedisError, codes: &[&str]) -> bool {
    Said::of(error).is_some_and(|said| codes.contains(&said.code))
}

/// The node to which a command is to be sent whose key has moved already, while the slot moves.
fn asked_node(error: &RedisError) -> Option<Node> {
    if !matches!(error.kind(), ErrorKind::Server(ServerErrorKind::Ask)) {
        return None;
    }
    let (address, _) = error.redirect_node()?;
    let (host, port) = address.rsplit_once(':')?;
    let host = host.trim_matches(['[', ']']);
    (!host.is_empty()).then_some(Node::Tcp(host.to_owned(), port.parse().ok()?))
}

fn another_cluster() -> RedisError {
    RedisError::from((ErrorKind::Io, "where nodes of the cluster were seen last there is another one"))
}

/// An error that says that nothing was sent.
fn not_sent(why: &'static str) -> RedisError {
    std::io::Error::new(std::io::ErrorKind::ConnectionRefused, why).into()
}

fn nobody() -> RedisError {
    RedisError::from((ErrorKind::Io, "no node answers"))
}

/// The connection parameters of one server.
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

/// Writes are sent at once: the library's default lets a call wait for the reply to the one before it.
fn at_once() -> TcpSettings {
    TcpSettings::default().set_nodelay(true)
}
