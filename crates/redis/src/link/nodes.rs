//! The nodes of a cluster, as they were last seen: a process outlives all those that its URL names.
//!
//! The nodes of the URL come first, since they were configured; the others are tried where none of these answers, and
//! from then on they are tried first. The former address of a node may be another cluster's by now. So a connection
//! that was made through such nodes is used only if some node there has a name that was seen before.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use redis::Value;

use crate::address::Node;

/// How often the nodes are asked for, in ms.
const OFTEN_MS: u64 = 10_000;

/// What is remembered.
#[derive(Debug, Default)]
pub(super) struct Nodes(Mutex<SeenNodes>);

#[derive(Debug, Default)]
struct SeenNodes {
    nodes: Vec<Node>,
    names: HashSet<String>,
    /// When the nodes were last asked for, on the monotonic clock.
    asked_ms: Option<u64>,
    /// The last connection was made through remembered nodes, and none of the URL's answered.
    is_relied_on: bool,
}

/// Nodes to try together, one group after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) nodes: Vec<Node>,
    /// They are remembered, and not the URL's.
    pub(super) is_seen: bool,
}

impl Nodes {
    /// The groups to try, in order.
    pub(super) fn groups(&self, named: &[Node]) -> Vec<Group> {
        let seen = self.seen();
        let others = seen.nodes.iter().filter(|node| !named.contains(node)).cloned().collect::<Vec<_>>();
        let mut groups = vec![Group { nodes: named.to_vec(), is_seen: false }];
        if !others.is_empty() {
            groups.insert(usize::from(!seen.is_relied_on), Group { nodes: others, is_seen: true });
        }
        groups
    }

    /// Whether it is time to ask for the nodes again: a caller that gets `true` does so.
    pub(super) fn is_time(&self, now_ms: u64) -> bool {
        let mut seen = self.seen();
        let is_time = seen.asked_ms.is_none_or(|asked_ms| now_ms.saturating_sub(asked_ms) >= OFTEN_MS);
        if is_time {
            seen.asked_ms = Some(now_ms);
        }
        is_time
    }

    /// Remembers the reply of `CLUSTER SLOTS` over a connection that was made through a group; false if it is another
    /// cluster.
    pub(super) fn note(&self, slots: &Value, through_seen: bool, now_ms: u64) -> bool {
        let told = read(slots);
        let mut seen = self.seen();
        if through_seen && !told.iter().any(|(_, name)| seen.names.contains(name)) {
            return false;
        }
        // A node without slots reveals nothing about the cluster.
        if !told.is_empty() {
            let (mut nodes, mut names) = (Vec::new(), HashSet::new());
            for (node, name) in told {
                if !nodes.contains(&node) {
                    nodes.push(node);
                }
                names.insert(name);
            }
            (seen.nodes, seen.names) = (nodes, names);
        }
        seen.asked_ms = Some(now_ms);
        true
    }

    /// A connection was made through such a group.
    pub(super) fn rely_on(&self, is_seen: bool) {
        self.seen().is_relied_on = is_seen;
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, SeenNodes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Each node of a reply, with its name. One without an address is skipped.
///
/// <https://redis.io/docs/latest/commands/cluster-slots/>
fn read(slots: &Value) -> Vec<(Node, String)> {
    let Value::Array(ranges) = slots else { return Vec::new() };
    let nodes = ranges.iter().filter_map(|range| match range {
        Value::Array(parts) => parts.get(2..),
        _ => None,
    });
    nodes.flatten().filter_map(node).collect()
}

fn node(told: &Value) -> Option<(Node, String)> {
    let Value::Array(parts) = told else { return None };
    let host = text(parts.first()?).filter(|host| !["", "?", "0.0.0.0", "::"].contains(&host.as_str()))?;
    let Value::Int(port) = parts.get(1)? else { return None };
    Some((Node::Tcp(host, u16::try_from(*port).ok()?), text(parts.get(2)?)?))
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
        Value::SimpleString(text) => Some(text.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> Node {
        Node::Tcp("10.0.0.1".into(), port)
    }

    fn slots(nodes: &[(u16, &str)]) -> Value {
        let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let ranges = nodes.iter().map(|(port, name)| {
            let node = Value::Array(vec![bulk("10.0.0.1"), Value::Int((*port).into()), bulk(name)]);
            let unknown = Value::Array(vec![bulk("?"), Value::Int(7), bulk("d")]);
            Value::Array(vec![Value::Int(0), Value::Int(1), node, unknown])
        });
        Value::Array(ranges.collect())
    }

    #[test]
    fn what_the_url_names_is_tried_first_until_it_is_the_other_nodes_that_answer() {
        let nodes = Nodes::default();
        let named = Group { nodes: vec![at(1), at(2)], is_seen: false };
        assert_eq!(nodes.groups(&named.nodes).len(), 1);
        assert!(nodes.note(&slots(&[(2, "b"), (3, "c"), (3, "c")]), false, 0));
        let seen = Group { nodes: vec![at(3)], is_seen: true };
        assert_eq!(nodes.groups(&named.nodes), [named.clone(), seen.clone()]);
        nodes.rely_on(true);
        assert_eq!(nodes.groups(&named.nodes), [seen, named]);
    }

    #[test]
    fn nodes_of_another_cluster_are_not_taken_for_those_that_were_seen() {
        let nodes = Nodes::default();
        assert!(nodes.note(&slots(&[(2, "b"), (3, "c")]), false, 0));
        assert!(!nodes.note(&slots(&[(3, "x"), (4, "y")]), true, 0), "the address is somebody else's now");
        assert!(nodes.note(&slots(&[(4, "c"), (5, "e")]), true, 0), "one of them is there, elsewhere");
        let groups = nodes.groups(&[at(1)]);
        assert_eq!(groups[1].nodes, [at(4), at(5)]);
        assert!(
            nodes.note(&Value::Array(Vec::new()), false, 0),
            "nothing is forgotten for an answer with nothing"
        );
        assert_eq!(nodes.groups(&[at(1)]), groups);
    }

    #[test]
    fn they_are_asked_for_now_and_then() {
        let nodes = Nodes::default();
        assert!(nodes.is_time(5));
        assert!(!nodes.is_time(5 + OFTEN_MS - 1));
        assert!(nodes.is_time(5 + OFTEN_MS));
        assert!(!nodes.is_time(5 + OFTEN_MS));
    }
}
