//! Leases that are renewed or lost, and handlers that exceed their time.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_renewed_for_as_long_as_the_handler_runs() {
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
    for renewals in 1..=12 {
        stage.manual.advance(10_000);
        stage.extended(renewals).await;
    }
    assert_eq!(stage.get("q", &put).await.standing.attempts, 0);
    finish.add_permits(1);
    assert_eq!(hears.next().await, None);
    running.stop().await;
    assert!(stage.queue("q").get(put.id).await.is_err(), "it is done");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_token_fires_when_the_lease_is_over_and_the_outcome_is_thrown_away() {
    let stage = Stage::manual();
    let put = stage.put("q", &["x"]).await.remove(0);
    let (said, mut hears) = heard();
    let handler = move |job: Job| {
        let said = said.clone();
        async move {
            said.send((job.attempt(), None)).unwrap();
            if job.attempt() == 1 {
                let fired = job.token().wait().await;
                said.send((1, Some(fired))).unwrap();
                return Outcome::Bury { reason: "nobody may see this".into() };
            }
            Outcome::Done
        }
    };
    // With one slot, the take that returns it again begins after the leap.
    let worker = stage.worker().lane(Lane::new("q", handler).concurrency(1));
    let stats = worker.stats().remove(0);
    let running = start(worker);
    assert_eq!(hears.next().await, (1, None));
    // As if the process had been stopped for that long.
    stage.manual.advance(30_000);
    assert_eq!(hears.take(2).await, [(1, Some(Fired::LeaseLost)), (2, None)]);
    running.stop().await;
    assert!(stage.queue("q").get(put.id).await.is_err(), "the second attempt has done it");
    assert_eq!((stats.lost(), stats.buried(), stats.done()), (1, 0, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_exceeds_its_time_is_dropped_and_its_slot_is_free() {
    let stage = Stage::manual();
    let puts = stage.put("q", &["hangs", "fine"]).await;
    let (said, mut hears) = heard();
    let handler = move |job: Job| {
        let said = said.clone();
        async move {
            said.send((text(&job), job.time_left())).unwrap();
            if text(&job) == "hangs" {
                std::future::pending::<()>().await;
            }
        }
    };
    let timeout = Duration::from_secs(5);
    let worker = stage.worker().lane(Lane::new("q", handler).concurrency(1).timeout(timeout));
    let stats = worker.stats().remove(0);
    let running = start(worker);
    assert_eq!(hears.next().await, ("hangs".to_owned(), timeout));
    stage.manual.advance(5_000);
    assert_eq!(hears.next().await, ("fine".to_owned(), timeout));
    running.stop().await;
    let failed = stage.get("q", &puts[0]).await.standing;
    assert_eq!(failed.attempts, 1);
    assert_eq!(failed.last_error.as_deref(), Some("the handler has not returned after 5s"));
    assert_eq!(stats.timed_out(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blocking_handler_that_exceeds_its_time_keeps_its_slot() {
    let stage = Stage::manual();
    let puts = stage.put("q", &["hangs", "fine"]).await;
    let (said, mut hears) = heard();
    let (finish, finished) = std::sync::mpsc::channel::<()>();
    let finished = Mutex::new(finished);
    let handler = move |job: Job| {
        said.send((text(&job), None)).unwrap();
        if text(&job) == "hangs" {
            finished.lock().unwrap().recv_timeout(PATIENCE).unwrap();
            said.send(("hangs".to_owned(), job.token().fired())).unwrap();
        }
    };
    let worker =
        stage.worker().lane(Lane::blocking("q", handler).concurrency(1).timeout(Duration::from_secs(5)));
    let stats = worker.stats().remove(0);
    let running = start(worker);
    assert_eq!(hears.next().await.0, "hangs");
    stage.manual.advance(5_000);
    // Its attempt has failed, and it still runs: the other message waits.
    eventually(async || stage.get("q", &puts[0]).await.standing.attempts == 1).await;
    assert_eq!((stats.stuck(), stats.running()), (1, 1));
    assert_eq!(stage.leased("q").await, 0);
    finish.send(()).unwrap();
    assert_eq!(hears.next().await, ("hangs".to_owned(), Some(Fired::TimedOut)));
    assert_eq!(hears.next().await, ("fine".to_owned(), None));
    running.stop().await;
    assert_eq!(stats.stuck(), 0);
}

#[test]
fn a_blocking_handler_that_has_not_begun_spends_no_attempt() {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).max_blocking_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let stage = Stage::real();
        let puts = stage.put("q", &["a", "b"]).await;
        let (said, mut hears) = heard();
        let (finish, finished) = std::sync::mpsc::channel::<()>();
        let finished = Mutex::new(finished);
        let lane = Lane::blocking("q", move |job: Job| {
            said.send(text(&job)).unwrap();
            finished.lock().unwrap().recv_timeout(PATIENCE).unwrap();
        });
        let running = start(stage.worker().drain(Duration::ZERO).lane(lane.concurrency(2)));
        let begun = hears.next().await;
        eventually(async || stage.leased("q").await == 2).await;
        running.stop().await;
        let other = &puts[usize::from(begun == "a")];
        let standing = stage.get("q", other).await.standing;
        assert_eq!((standing.state, standing.attempts, standing.counts.releases), (State::Ready, 0, 1));
        finish.send(()).unwrap();
    });
}

/// Panics when it is dropped.
struct Touchy;

impl Drop for Touchy {
    fn drop(&mut self) {
        if stage_is_a_test() {
            panic!("dropped");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_panics_when_it_is_dropped_frees_its_slot() {
    let stage = Stage::manual();
    stage.queue("q").set(Setting::MaxAttempts(AttemptLimit::try_from(1).unwrap())).await.unwrap();
    let puts = stage.put("q", &["hangs", "fine"]).await;
    let (said, mut hears) = heard();
    let handler = move |job: Job| {
        said.send(text(&job)).unwrap();
        async move {
            if text(&job) == "hangs" {
                let _touchy = Touchy;
                std::future::pending::<()>().await;
            }
        }
    };
    let timeout = Duration::from_secs(5);
    let running = start(stage.worker().lane(Lane::new("q", handler).concurrency(1).timeout(timeout)));
    assert_eq!(hears.next().await, "hangs");
    assert_eq!(within(stepping(&stage.manual, 5_000, hears.next())).await, "fine");
    running.stop().await;
    assert_eq!(stage.get("q", &puts[0]).await.standing.attempts, 1);
}
