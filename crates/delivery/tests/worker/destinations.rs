//! Destinations that are down, and messages that break them.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_a_destination_is_down_nothing_is_taken_and_no_attempt_is_spent() {
    let stage = Stage::real();
    let bodies: Vec<String> = (0..100).map(|number| number.to_string()).collect();
    stage.put("q", &bodies.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let is_up = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (probed, mut probes) = heard();
    let (said, mut hears) = heard();
    let (up, up_too) = (Arc::clone(&is_up), Arc::clone(&is_up));
    let lane = Lane::new("q", move |job: Job| {
        let (is_up, said) = (up.load(Ordering::SeqCst), said.clone());
        async move {
            if !is_up {
                return Err(Failure::refused("connection refused"));
            }
            said.send(text(&job)).unwrap();
            Ok(())
        }
    });
    let lane = lane.concurrency(8).probe(move || {
        let is_up = up_too.load(Ordering::SeqCst);
        let _ = probed.send(());
        async move { is_up }
    });
    let worker = stage.worker().lane(lane);
    let stats = worker.stats().remove(0);
    let running = start(worker);
    probes.take(4).await;
    eventually(async || stats.released() == 8).await;
    let counts = stage.queue("q").stats().await.unwrap().counts;
    assert_eq!((counts.leased, counts.ready), (0, 100), "all have gone back");
    assert_eq!((stats.taken(), stats.breaker()), (8, "open"), "one take, before it opened");
    is_up.store(true, Ordering::SeqCst);
    let seen: HashSet<String> = hears.take(100).await.into_iter().collect();
    assert_eq!(seen.len(), 100);
    running.stop().await;
    assert_eq!((stats.retried(), stats.released(), stats.done()), (0, 8, 100));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_breaks_a_destination_that_is_up_has_failed_itself() {
    let stage = Stage::real();
    stage.queue("q").set(Setting::MaxAttempts(AttemptLimit::try_from(1).unwrap())).await.unwrap();
    let poison = stage.put("q", &["poison"]).await.remove(0);
    stage.put("q", &["fine"]).await;
    let (said, mut hears) = heard();
    let breaks = Arc::new(AtomicUsize::new(0));
    let broken = Arc::clone(&breaks);
    let lane = Lane::new("q", move |job: Job| {
        let (said, broken) = (said.clone(), Arc::clone(&broken));
        async move {
            if job.text()? == "poison" {
                broken.fetch_add(1, Ordering::SeqCst);
                return Err(Failure::refused("connection reset"));
            }
            said.send(()).unwrap();
            Ok(())
        }
    });
    let running = start(stage.worker().lane(lane.concurrency(1).probe(|| async { true })));
    hears.next().await;
    running.stop().await;
    let dead = stage.get("q", &poison).await;
    assert_eq!(death(&dead), Some(DeathReason::AttemptsSpent));
    let error = dead.standing.last_error.unwrap();
    assert_eq!(&*error, "it breaks a destination that is up: connection reset");
    assert_eq!(breaks.load(Ordering::SeqCst), 4, "once before it opened, and three times after probes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_breaks_a_destination_without_a_probe_holds_up_no_other() {
    let stage = Stage::real();
    stage.queue("q").set(Setting::MaxAttempts(AttemptLimit::try_from(1).unwrap())).await.unwrap();
    let poison = stage.put("q", &["poison"]).await.remove(0);
    stage.put("q", &["fine"]).await;
    let (said, mut hears) = heard();
    let lane = Lane::new("q", move |job: Job| {
        let said = said.clone();
        async move {
            if job.text()? == "poison" {
                return Err(Failure::refused("connection reset"));
            }
            said.send(()).unwrap();
            Ok(())
        }
    });
    let running = start(stage.worker().lane(lane.concurrency(1)));
    hears.next().await;
    // It repeatedly breaks the connection after others were answered: in the end the failure is its own.
    let standing = async || {
        let message = stage.get("q", &poison).await;
        (message.standing.counts.releases, death(&message).is_some())
    };
    for _ in 0..20 {
        let (releases, is_dead) = standing().await;
        if is_dead {
            break;
        }
        stage.put("q", &["fine"]).await;
        hears.next().await;
        eventually(async || {
            let (now, is_dead) = standing().await;
            now > releases || is_dead
        })
        .await;
    }
    assert!(standing().await.1, "it is dead");
    running.stop().await;
}
