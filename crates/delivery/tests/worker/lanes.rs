//! Lanes: how many messages they take, in which order, and that none waits for another.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_lane_waits_for_another() {
    let stage = Stage::real();
    stage.put("slow", &["1", "2", "3", "4"]).await;
    let bodies: Vec<String> = (0..200).map(|number| number.to_string()).collect();
    stage.put("fast", &bodies.iter().map(String::as_str).collect::<Vec<_>>()).await;
    stage.put("broken", &["x"]).await;
    let (said, mut hears) = heard();
    let worker = stage
        .worker()
        .drain(Duration::ZERO)
        .lane(Lane::new("slow", |_: Job| std::future::pending::<()>()).concurrency(2))
        .lane(Lane::new("broken", |_: Job| async { Err::<(), _>(Failure::refused("down")) }))
        .lane(Lane::new("idle", |_: Job| async {}))
        .handle("fast", move |job: Job| {
            said.send(text(&job)).unwrap();
            async {}
        });
    let running = start(worker);
    let seen: HashSet<String> = hears.take(200).await.into_iter().collect();
    assert_eq!(seen.len(), 200);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lane_runs_as_many_at_a_time_as_it_may_and_takes_no_more() {
    let stage = Stage::real();
    let bodies: Vec<String> = (0..50).map(|number| number.to_string()).collect();
    stage.put("q", &bodies.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let gate = Arc::new(Semaphore::new(0));
    let (at_once, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (said, mut hears) = heard();
    let handler = {
        let (gate, at_once, most) = (Arc::clone(&gate), Arc::clone(&at_once), Arc::clone(&most));
        move |_: Job| {
            let (gate, at_once, most, said) =
                (Arc::clone(&gate), Arc::clone(&at_once), Arc::clone(&most), said.clone());
            async move {
                most.fetch_max(at_once.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                said.send(()).unwrap();
                gate.acquire().await.unwrap().forget();
                at_once.fetch_sub(1, Ordering::SeqCst);
            }
        }
    };
    let running = start(stage.worker().lane(Lane::new("q", handler).concurrency(3)));
    hears.take(3).await;
    let counts = stage.queue("q").stats().await.unwrap().counts;
    assert_eq!((counts.leased, counts.ready), (3, 47));
    gate.add_permits(50);
    hears.take(47).await;
    running.stop().await;
    assert_eq!(most.load(Ordering::SeqCst), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_strict_lane_keeps_the_order_though_a_message_fails() {
    let stage = Stage::real();
    stage.put("q", &["a", "b", "c", "d"]).await;
    let (said, mut hears) = heard();
    let handler = move |job: Job| {
        said.send(format!("{}{}", text(&job), job.attempt())).unwrap();
        async move {
            match (job.text()?, job.attempt()) {
                ("b", 1 | 2) => Err(Failure::retry("not yet").after(Duration::from_millis(30))),
                _ => Ok(()),
            }
        }
    };
    let running = start(stage.worker().lane(Lane::new("q", handler).strict()));
    assert_eq!(hears.take(6).await, ["a1", "b1", "b2", "b3", "c1", "d1"]);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_strict_lane_nothing_overtakes_a_suspect() {
    let stage = Stage::manual();
    stage.put("q", &["b"]).await;
    stage.lapse("q", 2).await;
    // `a` is handled before the suspect, and `c` after it.
    let first = Put { priority: 0, ..Put::new("q".parse().unwrap(), "a") };
    stage.store.put(vec![first]).await.remove(0).unwrap();
    stage.put("q", &["c"]).await;
    let (said, mut hears) = heard();
    let handler = move |job: Job| {
        said.send(text(&job)).unwrap();
        async {}
    };
    let running = start(stage.worker().lane(Lane::new("q", handler).strict()));
    assert_eq!(hears.take(3).await, ["a", "b", "c"]);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_strict_lane_takes_what_it_waits_for_only_when_it_may_be_taken() {
    let stage = Stage::manual();
    let (said, mut hears) = heard();
    let handler = move |job: Job| {
        said.send(format!("{}{}", text(&job), job.attempt())).unwrap();
        async move {
            match job.attempt() {
                1 if text(&job) != "last" => {
                    Err(Failure::retry("not yet").after(Duration::from_millis(10_000)))
                }
                _ => Ok(()),
            }
        }
    };
    let moved = stage.put("q", &["moved"]).await.remove(0);
    let running = start(stage.worker().lane(Lane::new("q", handler).strict()));
    assert_eq!(hears.next().await, "moved1");
    eventually(async || stage.get("q", &moved).await.standing.state == State::Scheduled).await;
    // Moved by a caller, from 10 s to 15 s; and then the queue is paused.
    let later = stage.clock.now().wall.after(15_000).unwrap();
    let target = Target::Id(moved.id);
    let queue: QueueName = "q".parse().unwrap();
    stage.store.reschedule(queue.clone(), vec![(target, When::At(later))]).await.remove(0).unwrap();
    let looked = async |ms: u64| {
        let before = stage.store.looks.load(Ordering::Relaxed);
        stage.manual.advance(ms);
        eventually(async || stage.store.looks.load(Ordering::Relaxed) > before).await;
    };
    looked(10_001).await;
    stage.queue("q").pause().await.unwrap();
    looked(5_000).await;
    looked(1_000).await;
    assert_eq!(stage.get("q", &moved).await.standing.counts.takes, 1, "it waits");
    stage.queue("q").resume().await.unwrap();
    assert_eq!(within(stepping(&stage.manual, 250, hears.next())).await, "moved2");

    // A message that has expired while the lane waited for it is dead, and the lane continues.
    let expires = stage.clock.now().wall.after(5_000).unwrap();
    let expiring = Put { expires: Some(expires), ..Put::new(queue, "expiring") };
    let expiring = stage.store.put(vec![expiring]).await.remove(0).unwrap();
    assert_eq!(hears.next().await, "expiring1");
    eventually(async || stage.get("q", &expiring).await.standing.state == State::Scheduled).await;
    stage.put("q", &["last"]).await;
    assert_eq!(within(stepping(&stage.manual, 10_001, hears.next())).await, "last1");
    running.stop().await;
    let dead = stage.get("q", &expiring).await;
    assert_eq!((death(&dead), dead.standing.counts.takes), (Some(DeathReason::Expired), 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lane_that_may_take_no_more_settles_what_it_has_in_hand() {
    let stage = Stage::real();
    let first = stage.put("q", &["a"]).await.remove(0);
    let gate = Arc::new(Semaphore::new(0));
    let (said, mut hears) = heard();
    let opens = Arc::clone(&gate);
    let handler = move |_: Job| {
        let (said, gate) = (said.clone(), Arc::clone(&opens));
        async move {
            said.send(()).unwrap();
            gate.acquire().await.unwrap().forget();
        }
    };
    let running = start(stage.worker().handle("q", handler));
    hears.next().await;
    eventually(async || stage.waiting("q").await == 1).await;
    *stage.store.refusal.lock().unwrap() = Some(dwell_store::Error::Refused {
        code: "forbidden",
        reason: "the token was withdrawn".into(),
        is_retryable: false,
    });
    // The waiting take returns it; the next one is refused.
    let second = stage.put("q", &["b"]).await.remove(0);
    hears.next().await;
    eventually(async || stage.store.refused.load(Ordering::Relaxed) > 0).await;
    gate.add_permits(2);
    assert_eq!(running.ended().await.unwrap_err().code(), "forbidden");
    for put in [first, second] {
        assert!(stage.queue("q").get(put.id).await.is_err(), "it is done");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_messages_are_handled_once_each() {
    let stage = Stage::real();
    let puts = (0..10_000).map(|number| Put::new("q".parse().unwrap(), number.to_string()));
    stage.store.put(puts.collect()).await;
    let (said, mut hears) = heard();
    let worker = stage.worker().lane(
        Lane::new("q", move |job: Job| {
            said.send(text(&job)).unwrap();
            async {}
        })
        .concurrency(256),
    );
    let stats = worker.stats().remove(0);
    let running = start(worker);
    let seen: HashSet<String> = hears.take(10_000).await.into_iter().collect();
    assert_eq!(seen.len(), 10_000);
    running.stop().await;
    assert_eq!((stats.done(), stats.lost(), stats.retried()), (10_000, 0, 0));
}
