//! Suspects: messages that may have killed their process run alone.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspect_runs_when_its_worker_holds_nothing_else() {
    let stage = Stage::manual();
    stage.put("a", &["s1", "s2", "s3"]).await;
    stage.lapse("a", 2).await;
    let running_now = Arc::new(AtomicUsize::new(0));
    let gate = Arc::new(Semaphore::new(0));
    let (said, mut hears) = heard();
    let handler = {
        let (running_now, gate) = (Arc::clone(&running_now), Arc::clone(&gate));
        move |job: Job| {
            let (running_now, gate, said) = (Arc::clone(&running_now), Arc::clone(&gate), said.clone());
            async move {
                let others = running_now.fetch_add(1, Ordering::SeqCst);
                said.send((text(&job), others)).unwrap();
                gate.acquire().await.unwrap().forget();
                running_now.fetch_sub(1, Ordering::SeqCst);
            }
        }
    };
    stage.put("b", &["x1", "x2"]).await;
    let running = start(stage.worker().handle("b", handler.clone()).handle("a", handler));
    let mut order = Vec::new();
    for _ in 0..5 {
        let (body, others) = hears.next().await;
        if body.starts_with('s') {
            assert_eq!(others, 0, "{body} runs beside others");
            // Only its lease is held. The other suspects may be on their way back.
            eventually(async || stage.leased("a").await + stage.leased("b").await == 1).await;
        }
        order.push(body);
        gate.add_permits(1);
    }
    running.stop().await;
    order.sort();
    assert_eq!(order, ["s1", "s2", "s3", "x1", "x2"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspect_that_finds_no_silence_goes_back_and_the_lanes_go_on() {
    let stage = Stage::manual();
    let suspect = stage.put("a", &["suspect"]).await.remove(0);
    stage.lapse("a", 2).await;
    stage.put("b", &["long"]).await;
    let gate = Arc::new(Semaphore::new(0));
    let (said, mut hears) = heard();
    let opens = Arc::clone(&gate);
    let (said_a, said_b) = (said.clone(), said);
    let lane_a = Lane::new("a", move |job: Job| {
        said_a.send(text(&job)).unwrap();
        async {}
    });
    let lane_b = Lane::new("b", move |job: Job| {
        let (said, gate) = (said_b.clone(), Arc::clone(&opens));
        async move {
            said.send(text(&job)).unwrap();
            if text(&job) == "long" {
                gate.acquire().await.unwrap().forget();
            }
        }
    });
    // `b` is held before `a` is checked.
    stage.queue("a").pause().await.unwrap();
    let running = start(stage.worker().lane(lane_b).lane(lane_a));
    assert_eq!(hears.next().await, "long");
    stage.queue("a").resume().await.unwrap();
    eventually(async || stage.leased("a").await == 1).await;
    stage.put("b", &["next"]).await;
    let before = stage.clock.now().wall;
    let gone_back = eventually(async || stage.leased("a").await == 0);
    within(stepping(&stage.manual, 10_000, gone_back)).await;
    let standing = stage.get("a", &suspect).await.standing;
    assert_eq!((standing.state, standing.attempts), (State::Scheduled, 2), "no attempt but the two lapses");
    assert!(standing.due.ms_since(before) >= 60_000);
    assert_eq!(hears.next().await, "next", "the lanes go on");
    gate.add_permits(1);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspect_that_exceeds_its_time_and_still_runs_keeps_its_own_slot_alone() {
    let stage = Stage::manual();
    stage.queue("a").set(Setting::MaxAttempts(AttemptLimit::try_from(3).unwrap())).await.unwrap();
    stage.put("a", &["hangs"]).await;
    stage.lapse("a", 2).await;
    let (said, mut hears) = heard();
    let (finish, finished) = std::sync::mpsc::channel::<()>();
    let finished = Mutex::new(finished);
    let said_too = said.clone();
    let hangs = Lane::blocking("a", move |job: Job| {
        said.send(text(&job)).unwrap();
        finished.lock().unwrap().recv_timeout(PATIENCE).unwrap();
    });
    let quick = Lane::new("b", move |job: Job| {
        said_too.send(text(&job)).unwrap();
        async {}
    });
    let hangs = hangs.concurrency(1).timeout(Duration::from_secs(5));
    let running = start(stage.worker().lane(hangs).lane(quick));
    assert_eq!(hears.next().await, "hangs");
    stage.put("b", &["x"]).await;
    assert_eq!(within(stepping(&stage.manual, 5_000, hears.next())).await, "x");
    finish.send(()).unwrap();
    running.stop().await;
}
