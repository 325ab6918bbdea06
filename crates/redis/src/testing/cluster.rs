//! A cluster of three primaries.

use super::{Server, eventually, free_port};
use crate::Address;

/// Three servers with a third of the slots each.
pub struct Cluster {
    nodes: Vec<Server>,
}

const SLOTS: [&str; 3] = ["0-5460", "5461-10922", "10923-16383"];

impl Cluster {
    /// Starts it, and waits until every node says that the cluster is whole.
    pub fn start() -> Cluster {
        let nodes: Vec<_> = (0..3)
            .map(|_| {
                let bus = free_port().to_string();
                Server::start_with(&[
                    "--cluster-enabled",
                    "yes",
                    "--cluster-port",
                    &bus,
                    "--cluster-node-timeout",
                    "2000",
                ])
            })
            .collect();
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

    fn await_whole(&self) {
        for node in &self.nodes {
            eventually("the cluster is whole", || {
                let info = node.try_command(&["CLUSTER", "INFO"]).ok();
                let text: Option<String> = info.and_then(|info| redis::from_redis_value(info).ok());
                text.is_some_and(|text| {
                    text.contains("cluster_state:ok") && text.contains("cluster_known_nodes:3")
                })
            });
        }
    }

    /// Its nodes.
    pub fn nodes(&mut self) -> &mut [Server] {
        &mut self.nodes
    }

    /// The URL that names all of its nodes.
    pub fn url(&self) -> String {
        let nodes: Vec<_> = self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        format!("redis-cluster://{}", nodes.join(","))
    }

    /// Its URL, parsed.
    pub fn address(&self) -> Address {
        self.url().parse().expect("it is a URL")
    }
}

fn bus_port(node: &Server) -> String {
    let reply = node.command(&["CONFIG", "GET", "cluster-port"]);
    let (_, port): (String, String) = redis::from_redis_value(reply).expect("it has such a setting");
    port
}
