//! A cluster of three primaries, optionally with replicas.

use std::fmt::Debug;
use std::str::FromStr;

use redis::Value;

use super::Server;
use super::proxy::Proxy;
use crate::{free_port, until, until_async};

/// Three servers with a third of the slots each, followed by their replicas.
pub struct Cluster {
    nodes: Vec<Server>,
}

const SLOTS: [&str; 3] = ["0-5460", "5461-10922", "10923-16383"];

impl Cluster {
    /// Starts it, and waits until every node reports that the cluster is complete.
    pub fn start() -> Cluster {
        let nodes: Vec<_> = (0..3).map(|_| node()).collect();
        for (index, (node, slots)) in nodes.iter().zip(SLOTS).enumerate() {
            node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()]);
            let (first, last) = slots.split_once('-').expect("a range has two ends");
            node.command(&["CLUSTER", "ADDSLOTSRANGE", first, last]);
        }
        let cluster = Cluster { nodes };
        let first = &cluster.nodes[0];
        for other in &cluster.nodes[1..] {
            let bus = bus_port(other);
            first.command(&["CLUSTER", "MEET", "127.0.0.1", &other.port().to_string(), &bus]);
        }
        cluster.await_whole();
        cluster
    }

    /// Adds a replica to a node, and waits until it is in sync. It becomes the last of the nodes.
    pub fn add_replica(&mut self, of: usize) {
        let replica = node();
        let (port, bus) = (replica.port().to_string(), bus_port(&replica));
        self.nodes[0].command(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
        let primary = self.id(of);
        until("the replica knows its primary", || {
            replica.try_command(&["CLUSTER", "REPLICATE", &primary]).is_ok()
        });
        until("the replica is in step", || replica.info("master_link_status").as_deref() == Some("up"));
        self.nodes.push(replica);
        self.await_whole();
    }

    /// Removes a node permanently: a new replica is promoted and takes its index among the nodes, and the others forget
    /// the old node.
    pub fn replace(&mut self, node: usize) {
        self.add_replica(node);
        let (gone, successor) = (self.id(node), self.nodes.pop().expect("it was added just now"));
        self.nodes[node].kill();
        until("the replica takes over", || successor.info("role").as_deref() == Some("master"));
        self.nodes[node] = successor;
        for other in &self.nodes {
            until("the others forget it", || {
                other.try_command(&["CLUSTER", "FORGET", &gone]).is_ok_and(|reply| reply == Value::Okay)
            });
        }
        self.await_whole();
    }

    /// Closes all connections of clients, including those of subscribers.
    pub fn cut(&self) {
        for node in &self.nodes {
            node.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
            node.command(&["CLIENT", "KILL", "TYPE", "normal"]);
        }
    }

    /// The number of connections with a subscription.
    pub fn subscribers(&self) -> usize {
        self.nodes.iter().map(Server::subscribers).sum()
    }

    /// The id of a node in the cluster.
    pub fn id(&self, node: usize) -> String {
        let id = redis::from_redis_value(self.nodes[node].command(&["CLUSTER", "MYID"]));
        id.expect("a node has a name")
    }

    /// The slot of a key, and the index of its node.
    pub fn place(&self, key: &str) -> (u16, usize) {
        let slot = redis::from_redis_value(self.nodes[0].command(&["CLUSTER", "KEYSLOT", key]));
        let slot: u16 = slot.expect("a key has a slot");
        (slot, usize::from(slot > 5460) + usize::from(slot > 10922))
    }

    fn await_whole(&self) {
        for node in &self.nodes {
            until("the cluster is whole", || {
                let info = node.try_command(&["CLUSTER", "INFO"]).ok();
                let text: Option<String> = info.and_then(|info| redis::from_redis_value(info).ok());
                let known = format!("cluster_known_nodes:{}", self.nodes.len());
                text.is_some_and(|text| text.contains("cluster_state:ok") && text.contains(&known))
            });
        }
    }

    /// Its nodes.
    pub fn nodes(&mut self) -> &mut [Server] {
        &mut self.nodes
    }

    /// The URL with all of its nodes.
    pub fn url(&self) -> String {
        url_of(self.nodes.iter().map(Server::port))
    }

    /// Puts a proxy in front of each node, and waits until the nodes announce the proxies' addresses as their own.
    pub async fn behind_proxies(&self) -> Vec<Proxy> {
        let mut proxies = Vec::new();
        for node in &self.nodes {
            let proxy = Proxy::to(node.port()).await;
            node.command(&["CONFIG", "SET", "cluster-announce-port", &proxy.port().to_string()]);
            proxies.push(proxy);
        }
        for node in &self.nodes {
            until_async("the nodes know of the proxies", async || {
                let known: Option<String> = redis::from_redis_value(node.command(&["CLUSTER", "NODES"])).ok();
                let is_known = |proxy: &Proxy| {
                    known.as_ref().is_some_and(|known| known.contains(&format!(":{}@", proxy.port())))
                };
                proxies.iter().all(is_known)
            })
            .await;
        }
        proxies
    }

    /// The URL with the proxies and none of the nodes: a client that has lost a connection tries the addresses of the
    /// URL too, and would bypass the proxies.
    pub fn url_through(proxies: &[Proxy]) -> String {
        url_of(proxies.iter().map(Proxy::port))
    }

    /// Its URL, parsed as the caller's address type.
    pub fn address<A: FromStr<Err: Debug>>(&self) -> A {
        self.url().parse().expect("it is a URL")
    }
}

fn url_of(ports: impl Iterator<Item = u16>) -> String {
    let nodes: Vec<_> = ports.map(|port| format!("127.0.0.1:{port}")).collect();
    format!("redis-cluster://{}", nodes.join(","))
}

fn node() -> Server {
    let bus = free_port().to_string();
    let options = ["--cluster-enabled", "yes", "--cluster-port", &bus, "--cluster-node-timeout", "2000"];
    Server::start_with(&options)
}

fn bus_port(node: &Server) -> String {
    let reply = node.command(&["CONFIG", "GET", "cluster-port"]);
    let (_, port): (String, String) = redis::from_redis_value(reply).expect("it has such a setting");
    port
}
