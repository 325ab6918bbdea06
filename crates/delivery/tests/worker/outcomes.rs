//! What the outcome of a handler does with its message.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outcome_decides_what_becomes_of_the_message() {
    let stage = Stage::manual();
    let puts = stage.put("q", &["done", "retry", "error", "release", "bury", "permanent"]).await;
    let (said, mut hears) = heard();
    let handler = move |job: Job| {
        let said = said.clone();
        async move {
            said.send(()).unwrap();
            match job.text()? {
                "done" => Ok(Outcome::Done),
                "retry" => Ok(Outcome::Retry { error: "later".into(), after: Some(Duration::from_secs(7)) }),
                "release" => Ok(Outcome::Release { after: Some(Duration::from_secs(3)) }),
                "bury" => Ok(Outcome::Bury { reason: "no".into() }),
                "permanent" => Err(Failure::permanent("never")),
                _ => Err("x".parse::<u8>().unwrap_err().into()),
            }
        }
    };
    let ladder = Ladder::parse(["10s"]).unwrap();
    let worker = stage.worker().lane(Lane::new("q", handler).retry(ladder));
    let stats = worker.stats().remove(0);
    let running = start(worker);
    hears.take(6).await;
    running.stop().await;

    let now = stage.clock.now().wall;
    assert!(stage.queue("q").get(puts[0].id).await.is_err(), "it is gone");
    let retried = stage.get("q", &puts[1]).await.standing;
    assert_eq!(
        (retried.due, retried.attempts, retried.last_error.as_deref()),
        (now.after(7_000).unwrap(), 1, Some("later"))
    );
    let failed = stage.get("q", &puts[2]).await.standing;
    assert!((8_000..=10_000).contains(&failed.due.ms_since(now)), "the ladder says ten seconds less jitter");
    assert_eq!(failed.last_error.as_deref(), Some("invalid digit found in string"));
    let released = stage.get("q", &puts[3]).await.standing;
    assert_eq!(
        (released.due, released.attempts, released.counts.releases),
        (now.after(3_000).unwrap(), 0, 1)
    );
    for (put, reason) in [(&puts[4], "no"), (&puts[5], "never")] {
        let buried = stage.get("q", put).await;
        assert_eq!(
            (death(&buried), buried.standing.last_error.as_deref()),
            (Some(DeathReason::Buried), Some(reason))
        );
    }
    let counts =
        [stats.taken(), stats.done(), stats.retried(), stats.released(), stats.buried(), stats.running()];
    assert_eq!(counts, [6, 1, 2, 1, 2, 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_json_cannot_read_is_buried() {
    let stage = Stage::real();
    let good = stage.queue("q").put(Json((1, "a"))).await.unwrap();
    let bad = stage.put("q", &["{"]).await.remove(0);
    let (said, mut hears) = heard();
    let handler = move |(job, Json(value)): (Job, Json<(u32, String)>)| {
        said.send((job.id(), value)).unwrap();
        async {}
    };
    let running = start(stage.worker().handle("q", handler));
    assert_eq!(hears.next().await, (good.id, (1, "a".to_owned())));
    // Both were taken together, so that the worker holds both.
    running.stop().await;
    let buried = stage.get("q", &bad).await;
    assert_eq!(death(&buried), Some(DeathReason::Buried));
    assert!(buried.standing.last_error.unwrap().contains("not JSON"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_is_a_failed_attempt_and_harms_nobody_else() {
    let stage = Stage::manual();
    let puts = stage.put("q", &["panic", "fine"]).await;
    let blocking = stage.put("b", &["panic"]).await.remove(0);
    let (said, mut hears) = heard();
    let (said_too, handler_said) = (said.clone(), said.clone());
    let worker = stage
        .worker()
        .handle("q", move |job: Job| {
            let said = handler_said.clone();
            async move {
                said.send(()).unwrap();
                assert_ne!(job.text().unwrap(), "panic", "the handler looked at it");
            }
        })
        .lane(Lane::blocking("b", move |_: Job| {
            said_too.send(()).unwrap();
            if stage_is_a_test() {
                panic!("blocking {}", "too");
            }
        }));
    let stats = worker.stats();
    let running = start(worker);
    hears.take(3).await;
    running.stop().await;
    let failed = stage.get("q", &puts[0]).await.standing;
    assert_eq!(failed.attempts, 1);
    assert!(failed.last_error.unwrap().starts_with("the handler panicked: "));
    assert!(stage.queue("q").get(puts[1].id).await.is_err(), "it is done");
    let error = stage.get("b", &blocking).await.standing.last_error.unwrap();
    assert_eq!(&*error, "the handler panicked: blocking too");
    assert_eq!((stats[0].panicked(), stats[1].panicked()), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_message_that_has_expired_is_not_done_where_its_queue_drops_what_expires() {
    let stage = Stage::manual();
    stage.queue("q").set(Setting::OnExpiry(OnExpiry::Drop)).await.unwrap();
    let expires = Some(stage.manual.now().wall.after(1_000).unwrap());
    let put = Put { expires, ..Put::new("q".parse().unwrap(), "m") };
    let put = stage.store.put(vec![put]).await.pop().unwrap().unwrap();
    let manual = stage.manual.clone();
    let handler = move |_: Job| {
        let manual = manual.clone();
        async move {
            manual.advance(1_000);
            Outcome::Retry { error: "it fails".into(), after: None }
        }
    };
    let worker = stage.worker().lane(Lane::new("q", handler).concurrency(1));
    let stats = worker.stats().remove(0);
    let running = start(worker);
    eventually(async || stats.retried() == 1).await;
    running.stop().await;
    assert!(stage.queue("q").get(put.id).await.is_err(), "it is gone");
    assert_eq!((stats.done(), stats.retried(), stats.lost()), (0, 1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_has_an_outcome_for_each_message() {
    let stage = Stage::manual();
    let puts = stage.put("q", &["a", "b", "c"]).await;
    let (said, mut hears) = heard();
    let lane = Lane::batch("q", move |jobs: Vec<Job>| {
        said.send(jobs.iter().map(text).collect::<Vec<_>>()).unwrap();
        // No outcome for the last one.
        async { vec![Outcome::Done, Outcome::Bury { reason: "b".into() }] }
    });
    let running = start(stage.worker().lane(lane));
    assert_eq!(hears.next().await, ["a", "b", "c"]);
    running.stop().await;
    assert!(stage.queue("q").get(puts[0].id).await.is_err(), "it is done");
    assert_eq!(death(&stage.get("q", &puts[1]).await), Some(DeathReason::Buried));
    let missing = stage.get("q", &puts[2]).await.standing;
    assert_eq!(missing.last_error.as_deref(), Some("the handler gave 2 outcomes for 3 messages"));
}
