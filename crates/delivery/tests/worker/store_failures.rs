//! Stores that refuse, are down, or do not answer.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_settlement_that_the_store_cannot_do_now_is_tried_again() {
    let stage = Stage::real();
    let put = stage.put("q", &["x"]).await.remove(0);
    stage.store.failures.store(3, Ordering::Relaxed);
    let (said, mut hears) = heard();
    let worker = stage.worker().handle("q", move |_: Job| {
        said.send(()).unwrap();
        async {}
    });
    let stats = worker.stats().remove(0);
    let running = start(worker);
    hears.next().await;
    running.stop().await;
    assert!(stage.queue("q").get(put.id).await.is_err(), "it is done");
    assert_eq!((stats.done(), stats.lost()), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_settlement_that_is_not_answered_is_made_again_and_holds_up_no_other() {
    let stage = Stage::manual();
    let first = stage.put("a", &["x"]).await.remove(0);
    stage.store.hangs.store(1, Ordering::Relaxed);
    let (said, mut hears) = heard();
    let handler = move |_: Job| {
        said.send(()).unwrap();
        async {}
    };
    let worker = stage.worker().handle("a", handler.clone()).handle("b", handler);
    let stats = worker.stats();
    let running = start(worker);
    hears.next().await;
    eventually(async || stage.store.hangs.load(Ordering::Relaxed) == 0).await;
    let second = stage.put("b", &["y"]).await.remove(0);
    hears.next().await;
    let is_gone = async |queue: &str, put: &PutAnswer| stage.queue(queue).get(put.id).await.is_err();
    // The next call waits a second for the previous one.
    let done = eventually(async || is_gone("b", &second).await);
    within(stepping(&stage.manual, 1_000, done)).await;
    assert!(!is_gone("a", &first).await, "its call is still under way");
    let done = eventually(async || is_gone("a", &first).await);
    // At the first step the call times out, and at the second it is made again.
    within(stepping(&stage.manual, 9_500, done)).await;
    running.stop().await;
    assert_eq!((stats[0].done(), stats[0].lost(), stats[1].done()), (1, 0, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_take_that_is_not_answered_is_made_again_when_its_leases_would_be_over() {
    let stage = Stage::manual();
    stage.put("q", &["x"]).await;
    stage.store.take_hangs.store(1, Ordering::Relaxed);
    let (said, mut hears) = heard();
    let running = start(stage.worker().handle("q", move |_: Job| {
        said.send(()).unwrap();
        async {}
    }));
    eventually(async || stage.store.take_hangs.load(Ordering::Relaxed) == 0).await;
    stage.manual.advance(30_000);
    hears.next().await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_that_is_not_answered_is_made_again() {
    let stage = Stage::manual();
    let put = stage.put("q", &["long"]).await.remove(0);
    let finish = Arc::new(Semaphore::new(0));
    let (said, mut hears) = heard();
    let gate = Arc::clone(&finish);
    let handler = move |job: Job| {
        let (gate, said) = (Arc::clone(&gate), said.clone());
        async move {
            said.send(job.token().fired()).unwrap();
            gate.acquire().await.unwrap().forget();
            said.send(job.token().fired()).unwrap();
        }
    };
    let running = start(stage.worker().handle("q", handler));
    assert_eq!(hears.next().await, None);
    stage.store.hangs.store(1, Ordering::Relaxed);
    stage.manual.advance(10_000);
    eventually(async || stage.store.hangs.load(Ordering::Relaxed) == 0).await;
    stage.manual.advance(5_000);
    stage.extended(1).await;
    // Past the end of the lease as first granted.
    stage.manual.advance(10_000);
    stage.extended(2).await;
    stage.manual.advance(10_000);
    stage.extended(3).await;
    finish.add_permits(1);
    assert_eq!(hears.next().await, None);
    running.stop().await;
    assert!(stage.queue("q").get(put.id).await.is_err(), "it is done");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_down_does_not_hold_up_the_end_for_as_long_as_a_lease() {
    let stage = Stage::manual();
    stage.put("q", &["x"]).await;
    stage.store.failures.store(usize::MAX, Ordering::Relaxed);
    let (said, mut hears) = heard();
    let handler = move |_: Job| {
        said.send(()).unwrap();
        async {}
    };
    let lane = Lane::new("q", handler).lease(Duration::from_secs(6 * 3_600));
    let running = start(stage.worker().lane(lane).drain(Duration::from_secs(1)));
    hears.next().await;
    eventually(async || stage.store.failures.load(Ordering::Relaxed) < usize::MAX).await;
    running.ask_to_stop();
    eventually(async || stage.waiting("q").await == 0).await;
    // The drain ends at the first step, and what is left to the store at the second one.
    within(stepping(&stage.manual, 12_000, running.ended())).await.unwrap();
    assert_eq!(stage.leased("q").await, 1, "its lease ends by itself");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lasting_worker_goes_on_though_it_is_refused_as_if_for_good() {
    let stage = Stage::manual();
    stage.put("q", &["x"]).await;
    *stage.store.refusal.lock().unwrap() = Some(dwell_store::Error::Refused {
        code: "forbidden",
        reason: "a test says so".into(),
        is_retryable: false,
    });
    let (said, mut hears) = heard();
    let handler = move |_: Job| {
        said.send(()).unwrap();
        async {}
    };
    let running = start(stage.worker().handle("q", handler).lasting());
    eventually(async || stage.store.refused.load(Ordering::Relaxed) > 0).await;
    *stage.store.refusal.lock().unwrap() = None;
    within(stepping(&stage.manual, 30_000, hears.next())).await;
    stage.store.inner.close();
    assert_eq!(running.ended().await.unwrap_err().code(), "closed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_that_answers_for_a_server_ends_no_worker() {
    let stage = Stage::real();
    stage.put("q", &["a"]).await;
    let (said, mut hears) = heard();
    let running = start(stage.worker().handle("q", move |_: Job| {
        said.send(()).unwrap();
        async {}
    }));
    hears.next().await;
    eventually(async || stage.waiting("q").await == 1).await;
    let answer = dwell_store::Error::BadAnswer { server: "http://x".into(), reason: "status 503".into() };
    *stage.store.refusal.lock().unwrap() = Some(answer);
    stage.put("q", &["b"]).await;
    hears.next().await;
    eventually(async || stage.store.refused.load(Ordering::Relaxed) > 1).await;
    *stage.store.refusal.lock().unwrap() = None;
    stage.put("q", &["c"]).await;
    hears.next().await;
    running.stop().await;
}
