//! Tubes named `dwell:…` can be read, and not changed.

use dwell_model::QueueName;
use dwell_store::{Action, LeaseTerms, Put, Settle, Store as _};

use crate::support::start;

#[tokio::test]
async fn a_reserved_tube_is_looked_at_and_not_changed_by_any_command() {
    let server = start().await;
    let queue: QueueName = "dwell:test".parse().unwrap();
    let put = |body: &str| Put::new(queue.clone(), body.to_owned());
    let puts = vec![put("ready"), put("delayed").after_ms(3_600_000), put("buried")];
    let answers: Vec<_> = server.store.put(puts).await.into_iter().map(Result::unwrap).collect();
    let terms = LeaseTerms::of_ms(60_000);
    let held = server.store.take_id(queue.clone(), answers[2].id, terms).await.unwrap();
    let bury = Settle { receipt: held.receipt, action: Action::Bury { reason: None, priority: None } };
    server.store.settle(vec![bury]).await.remove(0).unwrap();
    let numbers: Vec<u64> = answers.iter().map(|answer| answer.number.get()).collect();
    let before = server.store.stats(queue.clone()).await.unwrap();

    let mut client = server.connect().await;
    client.expect("use dwell:test", "USING dwell:test").await;
    for (command, number, body) in [
        ("peek-ready".to_owned(), numbers[0], "ready"),
        ("peek-delayed".to_owned(), numbers[1], "delayed"),
        ("peek-buried".to_owned(), numbers[2], "buried"),
        (format!("peek {}", numbers[0]), numbers[0], "ready"),
    ] {
        assert_eq!(client.job(&command).await, ("FOUND".to_owned(), number, body.to_owned()));
    }
    assert!(client.yaml("stats-tube dwell:test").await.contains("current-jobs-ready: 1"));
    let mut changes = vec![
        "put 0 0 60 1\r\nx".to_owned(),
        "watch dwell:test".into(),
        "kick 9".into(),
        "pause-tube dwell:test 9".into(),
    ];
    for number in &numbers {
        changes.extend(["reserve-job", "delete"].map(|verb| format!("{verb} {number}")));
    }
    changes.extend(numbers[1..].iter().map(|number| format!("kick-job {number}")));
    for change in changes {
        client.expect(&change, "BAD_FORMAT").await;
        assert_eq!(server.store.stats(queue.clone()).await.unwrap(), before, "{change}");
    }
    assert_eq!(client.list("list-tubes-watched").await, ["default"]);
    // The connection goes on.
    client.expect("use default", "USING default").await;
    client.put(0, 0, 60, "y").await;
    server.stop().await;
}
