//! Large payloads, many equal ones, and idle queues: the load on Redis stays small.

use dwell_redisson::{Consumer, Layout, Mover, MoverOptions, When, encode_element};

use crate::watch::{Watch, count};
use crate::{Fixture, HOUR_MS, run, text};

/// The scripts' bound on bytes.
const BYTES: usize = 100_000;

fn big(n: usize, size: usize) -> String {
    format!("{n:06}{}", "x".repeat(size - 6))
}

#[test]
fn a_mover_moves_by_bytes_and_not_only_by_elements() {
    run(async {
        let bed = Fixture::new().await;
        let at = When::At(dwell_model::Timestamp::MIN);
        let sizes = |n: usize| if n % 20 == 19 { 250_000 } else { 30_000 };
        for n in 0..60 {
            let now = dwell_model::Timestamp::from_ms(n as i64).unwrap();
            bed.queue.offer(&big(n, sizes(n)), When::At(now)).await.unwrap();
        }
        let mut mover = bed.mover();
        let mut steps = Vec::new();
        loop {
            let step = mover.step().await.unwrap();
            steps.push((step.moved, step.bytes));
            if !step.more {
                break;
            }
        }
        for (moved, bytes) in &steps {
            assert!(*bytes <= BYTES || *moved == 1, "{steps:?}");
        }
        let ready = bed.ready().await;
        assert!(ready.iter().enumerate().all(|(n, value)| *value == big(n, sizes(n))));
        assert_eq!((ready.len(), steps.iter().any(|(moved, _)| *moved > 1)), (60, true), "{steps:?}");
        // Small ones again: the bound on bytes does not apply then.
        let small: Vec<_> = (0..300).map(|n| (n.to_string(), at)).collect();
        bed.queue.offer_many(&small).await.unwrap();
        let mut most = 0;
        while let step = mover.step().await.unwrap()
            && step.moved > 0
        {
            most = most.max(step.moved);
        }
        assert!(most > 10, "{most}");
    });
}

#[test]
fn a_claim_leases_by_bytes_and_gives_all_the_same() {
    run(async {
        let bed = Fixture::new().await;
        let consumer = Consumer::new(bed.link.clone(), bed.keys.clone());
        for n in 0..50 {
            bed.send(redis::cmd("RPUSH").arg(bed.keys.ready()).arg(big(n, 20_000))).await;
        }
        let watch = Watch::start(&bed.server);
        let claimed = consumer.claim(50, 0, HOUR_MS).await.unwrap();
        assert!(claimed.iter().enumerate().all(|(n, one)| one.payload == big(n, 20_000).as_bytes()));
        assert_eq!(claimed.len(), 50);
        // All leases lapse, and the payloads come back.
        for one in &claimed {
            bed.send(redis::cmd("ZADD").arg(bed.keys.leases()).arg("XX").arg(1).arg(&one.token)).await;
        }
        let mut again = 0;
        while again < 50 {
            let some = consumer.claim(50, 0, HOUR_MS).await.unwrap();
            assert!(some.iter().all(|one| one.attempt == 2));
            again += some.len();
        }
        let leased: Vec<_> = watch
            .scripts(&bed.server)
            .iter()
            .map(|script| (count(script, "HSET"), count(script, "HDEL")))
            .collect();
        // As many came back as were leased before, ahead of what was read.
        let most = BYTES / 20_000;
        assert!(leased.iter().all(|(some, back)| *some <= 2 * most && *back <= most), "{leased:?}");
        assert!(leased.len() >= 50 / most, "{leased:?}");
    });
}

#[test]
fn what_is_mended_is_read_by_bytes_and_once() {
    run(async {
        let bed = Fixture::new().await;
        for n in 0..60 {
            bed.offer(&big(n, 20_000), HOUR_MS).await;
        }
        bed.plant(&encode_element(Layout::Old, *b"oldest!!", b"old"), "4102444800000").await;
        let watch = Watch::start(&bed.server);
        let options = MoverOptions { layout: Some(Layout::New), sweep_ms: 10, ..MoverOptions::default() };
        let mover = Mover::new(bed.link.clone(), bed.keys.clone(), options);
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let (events, mut heard) = tokio::sync::mpsc::unbounded_channel();
        let report = move |event| drop(events.send(event));
        let running = tokio::spawn(mover.run(async { drop(stopped.await) }, report));
        while !matches!(heard.recv().await.unwrap(), dwell_redisson::Event::Mended(_)) {}
        // It checks what it has changed itself, and then makes no further checks, though it sweeps.
        let calls = |command: &str| calls(&bed, command);
        let mut before = (0, 0);
        loop {
            let scripts = calls("evalsha");
            while calls("evalsha") < scripts + 5 {
                tokio::task::yield_now().await;
            }
            let now = (calls("zscore"), calls("lrange"));
            if now == before {
                break;
            }
            before = now;
        }
        let quiet = Watch::start(&bed.server);
        let (scripts, looked) = (calls("evalsha"), calls("zscore"));
        while calls("evalsha") < scripts + 20 {
            tokio::task::yield_now().await;
        }
        assert_eq!(calls("zscore"), looked);
        for script in quiet.scripts(&bed.server) {
            // The first and the last element, from which it knows that nothing has changed.
            assert!(
                count(&script, "LINDEX") <= 1 && count(&script, "ZRANGE") <= 1 && script.len() < 20,
                "{script:?}"
            );
        }
        // New elements are checked.
        bed.plant(&encode_element(Layout::Old, *b"another!", b"old too"), "4102444800000").await;
        while !matches!(heard.recv().await.unwrap(), dwell_redisson::Event::Mended(_)) {}
        stop.send(()).unwrap();
        running.await.unwrap();
        let most = BYTES / 20_000 + 1;
        for script in watch.scripts(&bed.server) {
            assert!(count(&script, "ZSCORE") <= most, "{}", count(&script, "ZSCORE"));
        }
    });
}

/// The number of calls of a command that the server has counted, by clients and scripts.
fn calls(bed: &Fixture, command: &str) -> u64 {
    let all = dwell_testkit::redis::text(bed.server.command(&["INFO", "commandstats"]));
    let line = all.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
    line.and_then(|rest| rest.split(',').next()?.parse().ok()).unwrap_or(0)
}

#[test]
fn a_debounce_of_many_goes_in_small_steps_and_one_is_always_there() {
    run(async {
        let bed = Fixture::new().await;
        let values: Vec<_> = (0..5_000)
            .map(|n| (if n % 10 == 3 { text("same") } else { format!("{n:0100}") }, When::In(HOUR_MS)))
            .collect();
        for some in values.chunks(1_000) {
            bed.queue.offer_many(some).await.unwrap();
        }
        let reader = bed.server.address();
        let timeouts = bed.keys.timeouts();
        let (stop, mut stopped) = tokio::sync::oneshot::channel::<()>();
        // The number of scheduled elements, as one read sees it.
        let looking = std::thread::spawn(move || {
            run_alone(async {
                let link = dwell_redis::Link::open(reader).await.unwrap();
                let code = "local n = 0 for _, e in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
                    if string.sub(e, -4) == 'same' then n = n + 1 end end return n";
                let mut seen = Vec::new();
                while stopped.try_recv() == Err(tokio::sync::oneshot::error::TryRecvError::Empty) {
                    seen.push(
                        link.ask::<u64>(redis::cmd("EVAL").arg(code).arg(1).arg(&timeouts)).await.unwrap(),
                    );
                }
                seen
            })
        });
        let watch = Watch::start(&bed.server);
        let debounced = bed.queue.debounce(&text("same"), When::In(2 * HOUR_MS)).await.unwrap();
        drop(stop);
        let seen = looking.join().unwrap();
        assert_eq!(debounced.taken_out, 500);
        assert!(seen.iter().all(|count| *count >= 1), "{seen:?}");
        let left = bed.queue.read_all().await.unwrap();
        assert_eq!(left.iter().filter(|value| *value == "same").count(), 1);
        assert_eq!(left.len(), 4_501);
        assert_eq!(left.last(), Some(&text("same")));
        let scheduled: usize = bed.link.ask(redis::cmd("ZCARD").arg(bed.keys.timeouts())).await.unwrap();
        assert_eq!(scheduled, 4_501);
        let taken: Vec<_> = watch
            .scripts(&bed.server)
            .iter()
            .map(|script| count(script, "LREM"))
            .filter(|some| *some > 0)
            .collect();
        assert_eq!(taken.iter().sum::<usize>(), 500);
        assert!(taken.iter().all(|some| *some <= 50), "{taken:?}");
        assert_eq!(taken.last(), Some(&1), "one is replaced");
    });
}

/// The element that should stay meanwhile becomes due: then another one stays.
#[test]
fn a_debounce_outlives_what_becomes_due_meanwhile() {
    run(async {
        let bed = Fixture::new().await;
        for _ in 0..200 {
            bed.offer("same", HOUR_MS).await;
        }
        // The last one is the one that would stay.
        let same = text("same");
        bed.queue.offer(&text("same"), When::At(dwell_model::Timestamp::MIN)).await.unwrap();
        let mut mover = bed.mover();
        let (debounced, moved) = tokio::join!(bed.queue.debounce(&same, When::In(HOUR_MS)), mover.pass());
        assert_eq!(bed.queue.read_all().await.unwrap(), ["same"]);
        let moved = moved.unwrap().0;
        assert_eq!((debounced.unwrap().taken_out + moved, bed.ready().await.len()), (201, moved));
    });
}

fn run_alone<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}
