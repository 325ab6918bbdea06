//! The start and the end of a worker: what it refuses, its drain, and what happens when it is dropped.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_waits_then_fires_tokens_and_releases_what_is_not_done() {
    let stage = Stage::manual();
    let puts = stage.put("q", &["quick", "deaf", "obedient"]).await;
    let gate = Arc::new(Semaphore::new(0));
    let (said, mut hears) = heard();
    let opens = Arc::clone(&gate);
    let handler = move |job: Job| {
        let (said, gate) = (said.clone(), Arc::clone(&opens));
        async move {
            said.send(text(&job)).unwrap();
            match job.text()? {
                "quick" => gate.acquire().await?.forget(),
                "obedient" => {
                    let fired = job.token().wait().await;
                    said.send(format!("{fired:?}")).unwrap();
                }
                _ => std::future::pending().await,
            }
            Ok::<(), Failure>(())
        }
    };
    let running = start(stage.worker().handle("q", handler).drain(Duration::from_secs(5)));
    hears.take(3).await;
    eventually(async || stage.waiting("q").await == 1).await;
    running.ask_to_stop();
    eventually(async || stage.waiting("q").await == 0).await;
    let late = stage.put("q", &["late"]).await.remove(0);
    gate.add_permits(1);
    eventually(async || stage.queue("q").get(puts[0].id).await.is_err()).await;
    // The drain, and its time limit, may have begun a moment after the takes ended.
    let fired = within(stepping(&stage.manual, 5_000, hears.next())).await;
    assert_eq!(fired, "Draining");
    within(stepping(&stage.manual, 1_000, running.ended())).await.unwrap();
    for done in [&puts[0], &puts[2]] {
        assert!(stage.queue("q").get(done.id).await.is_err(), "it is done");
    }
    let dropped = stage.get("q", &puts[1]).await.standing;
    assert_eq!((dropped.attempts, dropped.counts.releases, dropped.state), (0, 1, State::Ready));
    let late = stage.get("q", &late).await.standing;
    assert_eq!(late.counts.takes, 0, "takes end at once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_dropped_stops_its_handlers() {
    let stage = Stage::real();
    stage.put("q", &["x"]).await;
    let (said, mut hears) = heard();
    let handler = move |job: Job| {
        let said = said.clone();
        async move {
            said.send(None).unwrap();
            said.send(Some(job.token().wait().await)).unwrap();
            std::future::pending::<()>().await;
        }
    };
    let running = start(stage.worker().handle("q", handler));
    assert_eq!(hears.next().await, None);
    running.task.abort();
    assert_eq!(hears.next().await, Some(Fired::LeaseLost));
    // Dropped with its sender a moment later.
    assert_eq!(within(hears.0.recv()).await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_ends_when_its_store_is_closed() {
    let stage = Stage::real();
    let running = start(stage.worker().handle("q", |_: Job| async {}));
    eventually(async || stage.waiting("q").await == 1).await;
    stage.store.inner.close();
    assert_eq!(running.ended().await.unwrap_err().code(), "closed");
}

#[tokio::test]
async fn what_no_worker_can_run_is_refused_and_takes_nothing() {
    let stage = Stage::real();
    let lane = || Lane::new("q", |_: Job| async {});
    let none = Rate { messages: 0, per_ms: 1 };
    for (worker, code) in [
        (stage.worker(), "invalid_lane"),
        (stage.worker().lane(lane().concurrency(0)), "invalid_lane"),
        (stage.worker().lane(lane().concurrency(100_001)), "invalid_lane"),
        (stage.worker().lane(lane().rate(none)), "invalid_lane"),
        (stage.worker().lane(lane().timeout(Duration::ZERO)), "invalid_lane"),
        (stage.worker().lane(lane().lease(Duration::from_millis(999))), "invalid_lane"),
        (stage.worker().lane(lane().lease(Duration::MAX)), "invalid_lane"),
        (stage.worker().lane(lane()).lane(lane()), "duplicate_lane"),
        (stage.worker().lane(Lane::new("two words", |_: Job| async {})), "invalid_queue_name"),
    ] {
        assert_eq!(within(worker.run()).await.unwrap_err().code(), code);
    }
    assert_eq!(stage.store.takes.load(Ordering::Relaxed), 0);
}
