//! A Redis that is cut off, slow or half reachable, by means of a proxy; and what callers see of it. `docs/redis.md`
//! has the table.
//!
//! - `single_faults`: one fault at a time, each with its outcome
//! - `chaos`: random faults, and what must hold whatever happens
//! - `cluster`: slots that move and nodes that die
//! - `node_away`: a node that does not answer, and callers that would wait for it one after the other
//! - `lost`: a directory that has lost its entries
//! - `queues`: changes of a queue that are interrupted, and processes that unregister a queue while others start to
//!   use it
//! - `server`: a server that loads, is a replica, or is blocked by a foreign script

#![expect(clippy::unwrap_used, reason = "tests, where a panic is the answer")]

mod chaos;
mod cluster;
mod lost;
mod node_away;
mod queues;
mod server;
mod single_faults;

use dwell_model::{IdempotencyKey, Limits, QueueName, Receipt};
use dwell_redis::RedisStore;
use dwell_store::{Action, Delivery, Error, Put, PutAnswer, Settle, Settled, Store as _, Take};
use dwell_testkit::within;

fn queue() -> QueueName {
    QueueName::new("orders").unwrap()
}

fn message(body: &str) -> Put {
    Put::new(queue(), body.to_owned())
}

fn idempotency_key(name: &str) -> IdempotencyKey {
    IdempotencyKey::new(name).unwrap()
}

async fn open(url: &str) -> RedisStore {
    RedisStore::open(url.parse().unwrap(), Limits::default()).await.unwrap()
}

async fn put(store: &RedisStore, put: Put) -> Result<PutAnswer, Error> {
    store.put(vec![put]).await.pop().unwrap()
}

async fn take(store: &RedisStore, wait_ms: u64, lease_ms: u64) -> Result<Option<Delivery>, Error> {
    let take = Take::from(queue()).max(1).wait_ms(wait_ms).lease_ms(lease_ms);
    Ok(store.take(take).await?.pop())
}

async fn settle(store: &RedisStore, receipt: Receipt, action: Action) -> Result<Settled, Error> {
    store.settle(vec![Settle { receipt, action }]).await.pop().unwrap()
}

fn is_unknown<T>(answer: &Result<T, Error>) -> bool {
    matches!(answer, Err(error @ Error::OutcomeUnknown { .. }) if error.is_retryable())
}

fn is_unavailable<T>(answer: &Result<T, Error>) -> bool {
    matches!(answer, Err(error @ Error::Unavailable { .. }) if error.is_retryable())
}

/// Every test that the table of faults names exists.
#[test]
fn the_table_of_faults_names_tests_that_there_are() {
    let crate_folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(crate_folder.join("../../docs/redis.md")).unwrap();
    let (_, table) = page.split_once("\n## Faults\n").unwrap();
    let table = table.split("\n## ").next().unwrap();
    let mut named = 0;
    for line in table.lines().filter(|line| line.starts_with("| ")).skip(1) {
        let tests = line.trim_end_matches('|').rsplit('|').next().unwrap();
        let mut file = "";
        for name in tests.split('`').skip(1).step_by(2) {
            // `program test` or `program module::test`; what follows in the same cell is of the same program.
            // `redisson` is the one of dwell-redisson that needs no Java.
            let (program, test) = name.split_once(' ').unwrap_or((file, name));
            file = program;
            let (module, test) = test.split_once("::").unwrap_or(("", test));
            let path = match (program, module) {
                ("redisson", module) => format!("../redisson/tests/redis/{module}.rs"),
                (program, "") => format!("tests/{program}.rs"),
                (program, module) => format!("tests/{program}/{module}.rs"),
            };
            let source = std::fs::read_to_string(crate_folder.join(&path)).unwrap();
            assert!(source.contains(&format!("fn {test}(")), "{path} has no test {test}");
            named += 1;
        }
        assert!(!file.is_empty(), "no test is named: {line}");
    }
    assert!(named > 20, "{named} tests");
}
