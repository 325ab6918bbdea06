//! Queues of which some cannot be read now: lists of them, and look-ups of messages that may be in them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use dwell_model::{Limits, MessageId, Number, QueueName};
use dwell_server::{Drained, Server, ServerConfig};
use dwell_store::{Error, MemoryStore, Put, QueueStats, Result, Store, delegate_store};
use dwell_time::SystemClock;
use serde_json::json;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::support::{Connection, soon, tokens};

/// A store that cannot read queues whose names have a certain prefix.
struct Partly(MemoryStore);

fn why(queue: &QueueName) -> Option<Error> {
    let reason = format!("the node of {queue} is away");
    queue.as_str().starts_with("away").then(|| Error::Unavailable { reason: reason.into() })
}

#[async_trait]
impl Store for Partly {
    async fn locate(&self, numbers: Vec<Number>) -> Vec<Result<Option<(QueueName, MessageId)>>> {
        let mut located = self.0.locate(numbers).await;
        for answer in &mut located {
            if let Some(error) =
                answer.as_ref().ok().and_then(Option::as_ref).and_then(|(queue, _)| why(queue))
            {
                *answer = Err(error);
            }
        }
        located
    }
    async fn stats(&self, queue: QueueName) -> Result<QueueStats> {
        match why(&queue) {
            Some(error) => Err(error),
            None => self.0.stats(queue).await,
        }
    }
    async fn queues(&self, after: Option<QueueName>, max: usize) -> Result<Vec<QueueStats>> {
        let mut listed = self.0.queues(after, max).await?;
        listed.iter_mut().for_each(|stats| stats.unread = why(&stats.name));
        Ok(listed)
    }

    delegate_store! {
        self.0;
        own: locate stats queues;
        forward: put take take_id settle expire_lease cancel reschedule get list peek forecast ready;
        forward: configure revive deaths discard purge delete_queue;
    }
}

/// A server on a store whose queues have these names, with a message each, and the sender that stops it.
async fn start(names: &[&str]) -> (SocketAddr, oneshot::Sender<()>, JoinHandle<Drained>) {
    let store = Partly(MemoryStore::new(Limits::default(), Arc::new(SystemClock::new())));
    for name in names {
        store.put(vec![Put::new(QueueName::new(name).unwrap(), "m")]).await.pop().unwrap().unwrap();
    }
    let mut config = ServerConfig::default();
    config.http.listen = "127.0.0.1:0".parse().unwrap();
    config.http.tokens =
        tokens(&[("all", &["manage:*"]), ("some", &["take:away-1", "take:c"]), ("metrics", &["metrics"])]);
    let server = Server::bind(Arc::new(store), config).await.unwrap();
    let address = server.http_addr();
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(server.run(async {
        let _ = stopped.await;
    }));
    (address, stop, running)
}

/// It may be in a queue that the token does not allow.
#[tokio::test]
async fn a_look_up_by_number_that_fails_names_no_queue() {
    let (address, stop, running) = start(&["away-2"]).await;
    let mut connection = Connection::open(address).await;
    connection.request("GET", "/v1/numbers/1", &[("authorization", "Bearer some")], b"").await;
    let answer = connection.answer().await;
    assert_eq!(answer.problem(), (503, "unavailable".to_owned()));
    assert!(!answer.text().contains("away"), "{answer:?}");
    drop(stop);
    soon("it stops", running).await.unwrap();
}

/// In pages of each length, for a caller that may know all queues, and for one that may know some.
#[tokio::test]
async fn queues_that_cannot_be_read_are_named_with_why_and_no_page_ends_early() {
    let all = ["away-1", "away-2", "b", "away-x.y", "c", "d"];
    let (address, stop, running) = start(&all).await;
    let mut connection = Connection::open(address).await;
    for (token, known) in [("all", &all[..]), ("some", &["away-1", "c"])] {
        let authorization = format!("Bearer {token}");
        for max in [1, 2, 3, 6, 100] {
            let (mut seen, mut cursor) = (BTreeMap::new(), String::new());
            for _ in 0..20 {
                let target = format!("/v1/queues?max={max}{cursor}");
                connection.request("GET", &target, &[("authorization", &authorization)], b"").await;
                let page = connection.answer().await;
                assert_eq!(page.status, 200, "{page:?}");
                let page = page.json();
                let none = Vec::new();
                let (queues, unread) =
                    (page["queues"].as_array().unwrap(), page["unread"].as_array().unwrap_or(&none));
                assert_ne!(page["unread"], json!([]), "it is left out where there are none");
                assert!(page["next"].is_null() || queues.len() + unread.len() == max, "{max}: {page}");
                for queue in queues {
                    assert_eq!(queue["counts"]["ready"], 1, "{page}");
                    seen.insert(queue["queue"].as_str().unwrap().to_owned(), true);
                }
                for queue in unread {
                    let (name, error) = (queue["queue"].as_str().unwrap(), &queue["error"]);
                    assert_eq!((&error["code"], &error["retryable"]), (&json!("unavailable"), &json!(true)));
                    assert!(error["detail"].as_str().unwrap().contains(name), "{page}");
                    seen.insert(name.to_owned(), false);
                }
                let Some(next) = page["next"].as_str() else { break };
                assert!(known.contains(&next), "{token} sees {next}");
                cursor = format!("&cursor={next}");
            }
            let expected = known.iter().map(|name| ((*name).to_owned(), !name.starts_with("away")));
            assert_eq!(seen, expected.collect::<BTreeMap<_, _>>(), "as {token}, {max} a page");
        }
    }
    connection.request("GET", "/metrics", &[("authorization", "Bearer metrics")], b"").await;
    let metrics = connection.answer().await.text().to_owned();
    assert!(metrics.contains("\ndwell_queues 6\n"), "{metrics}");
    assert!(metrics.contains("dwell_messages{queue=\"b\",state=\"ready\"} 1\n"), "{metrics}");
    assert!(!metrics.contains("queue=\"away"), "no gauge says that they have nothing: {metrics}");
    drop(stop);
    soon("it stops", running).await.unwrap();
}
