//! Queue and Job over the memory store: the calls that the builders make, and what happens to jobs.

#![expect(clippy::unwrap_used, reason = "tests, where a panic is the answer")]

use std::borrow::Cow;
use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use dwell_model::{AttemptLimit, DeathReason, Headers, Key, Limits, Setting, State, StateKind, Timestamp};
use dwell_store::{
    Action, Cancelled, Error, Json, MemoryStore, Put, PutOutcome, Queue, Rescheduled, Result, Selection,
    Settle, Settled, Store, Stream as _, When, blocking, delegate_store,
};
use dwell_time::ManualClock;
use pollster::block_on;

const START_MS: i64 = 1_795_000_000_000;
const PATIENCE: Duration = Duration::from_secs(20);

struct Stage {
    clock: ManualClock,
    store: Arc<dyn Store>,
    orders: Queue,
}

fn stage_with(limits: Limits) -> Stage {
    let clock = ManualClock::new(at(0));
    let store: Arc<dyn Store> = Arc::new(MemoryStore::with_seed(limits, Arc::new(clock.clone()), 7));
    let orders = Queue::new(Arc::clone(&store), "orders").unwrap();
    Stage { clock, store, orders }
}

fn stage() -> Stage {
    stage_with(Limits::default())
}

/// A store whose next settles fail, as many as were set.
struct Flaky {
    inner: Arc<dyn Store>,
    failures: AtomicUsize,
}

impl Flaky {
    fn fail_once(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }
}

#[async_trait]
impl Store for Flaky {
    async fn settle(&self, settles: Vec<Settle>) -> Vec<Result<Settled>> {
        let less = |failures: usize| failures.checked_sub(1);
        if self.failures.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok() {
            return settles.iter().map(|_| Err(Error::Unavailable { reason: "away".into() })).collect();
        }
        self.inner.settle(settles).await
    }

    delegate_store! {
        self.inner;
        own: settle;
        forward: put take take_id expire_lease cancel reschedule get locate list peek stats forecast queues;
        forward: ready configure revive deaths discard purge delete_queue;
    }
}

/// An instant this many milliseconds after the start.
fn at(ms: i64) -> Timestamp {
    Timestamp::from_ms(START_MS + ms).unwrap()
}

#[test]
fn a_put_says_what_its_setters_say() {
    let Stage { orders, .. } = stage();
    block_on(async {
        let put = orders
            .put("body")
            .delay(Duration::from_micros(1_500))
            .key("order-7")
            .header("trace", "one")
            .headers([("trace", "two"), ("content-type", "text/plain")])
            .priority(3)
            .lease(Duration::from_secs(5))
            .max_attempts(2)
            .expires(at(60_000))
            .idempotency_key("once")
            .await
            .unwrap();
        assert_eq!(
            (put.due, put.outcome),
            (at(2), PutOutcome::Created),
            "a part of a millisecond is a whole one"
        );

        let message = orders.get(put.id).await.unwrap();
        assert_eq!(message.key, Some(Key::new("order-7").unwrap()));
        assert_eq!(
            message.headers.iter().collect::<Vec<_>>(),
            [("content-type", "text/plain"), ("trace", "two")]
        );
        assert_eq!(message.lease_ms, Some(5_000));
        assert_eq!(message.max_attempts, Some(AttemptLimit::try_from(2_u32).unwrap()));
        assert_eq!((message.standing.priority, message.standing.expires), (3, Some(at(60_000))));
        assert_eq!(orders.get("order-7").await.unwrap().id, put.id, "a text is a key");

        let another = orders.put("another").key("order-7").idempotency_key("once").await;
        assert_eq!(another, Err(Error::IdempotencyMismatch { id: put.id }));
        let repeated = orders.put("body").key("order-7").idempotency_key("once").await.unwrap();
        assert_eq!(repeated.id, put.id);
    });
}

#[test]
fn instants_may_be_the_standard_librarys() {
    let Stage { orders, .. } = stage();
    let due = SystemTime::UNIX_EPOCH + Duration::from_millis(START_MS as u64 + 7);
    let put = orders.put("body").at(due).call().unwrap();
    assert_eq!(put.due, at(7));
    assert_eq!(SystemTime::from(put.due), due);
    let moved = block_on(orders.reschedule(put.id, due + Duration::from_nanos(1))).unwrap();
    assert_eq!(moved, Rescheduled::Moved(put.id, at(8)), "a part of a millisecond is a whole one");
}

#[test]
fn conflicts_of_keys_are_settled_as_asked() {
    let Stage { orders, .. } = stage();
    let first = orders.put("one").key("k").delay(Duration::from_secs(9)).call().unwrap();
    assert_eq!(orders.put("two").key("k").call(), Err(Error::KeyTaken { id: first.id }));
    let kept = orders.put("three").key("k").keep().call().unwrap();
    assert_eq!((kept.id, kept.outcome), (first.id, PutOutcome::Kept));
    let replaced = orders.put("four").key("k").replace().call().unwrap();
    assert_eq!(replaced.outcome, PutOutcome::Replaced(first.id));
}

#[test]
fn a_value_that_no_store_accepts_is_the_answer_and_nothing_is_put() {
    let Stage { orders, .. } = stage();
    let refused = [
        (orders.put("body").key(""), "invalid_key"),
        (orders.put("body").key("").delay(Duration::from_secs(1)), "invalid_key"),
        (orders.put("body").idempotency_key("two words"), "invalid_idempotency_key"),
        (orders.put("body").header("a b", "c"), "invalid_header"),
        (orders.put("body").max_attempts(0), "invalid_setting"),
        (orders.put("body").delay(Duration::MAX), "due_out_of_range"),
        (orders.put("body").at(SystemTime::UNIX_EPOCH - Duration::from_secs(1)), "due_out_of_range"),
    ];
    for (put, code) in refused {
        assert_eq!(put.call().unwrap_err().code(), code);
    }
    assert_eq!(block_on(orders.stats()).unwrap_err().code(), "unknown_queue");
    assert_eq!(Queue::new(Arc::clone(orders.store()), "a b").unwrap_err().code(), "invalid_queue_name");
}

#[test]
fn bodies_may_be_owned_or_borrowed() {
    let Stage { orders, .. } = stage();
    let text = String::from("text");
    let bytes: &[u8] = &[0xff, 0xfe];
    let shared = Bytes::from_static(b"text");
    let puts = [
        orders.put(&text),
        orders.put(text.clone()),
        orders.put(b"text"),
        orders.put(bytes),
        orders.put(vec![1_u8]),
        orders.put(&shared),
        orders.put(shared),
        orders.put(Arc::<str>::from("text")),
        orders.put(Cow::Borrowed("text")),
        orders.put(Cow::<str>::Owned(text.clone())),
        orders.put([1, 2]),
    ];
    assert!(orders.put_many(puts).call().iter().all(Result::is_ok));
    let jobs = block_on(orders.take().max(20).into_future()).unwrap();
    let bodies: Vec<&[u8]> = jobs.iter().map(|job| &job.body()[..]).collect();
    let expected: [&[u8]; 11] =
        [b"text", b"text", b"text", bytes, &[1], b"text", b"text", b"text", b"text", b"text", &[1, 2]];
    assert_eq!(bodies, expected);
    assert_eq!(jobs[3].text().unwrap_err().code(), "malformed_body");
}

#[test]
fn a_content_type_is_one_header_however_it_is_written() {
    let Stage { orders, .. } = stage();
    let more = HashMap::from([("Trace".to_owned(), "a".to_owned()), ("trace".to_owned(), "b".to_owned())]);
    orders.put(Json(1)).header("Content-Type", "text/x-number").headers(&more).call().unwrap();
    let job = orders.take().call().unwrap().unwrap();
    let headers: Vec<_> = job.headers().iter().collect();
    assert_eq!(headers, [("Trace", "a"), ("content-type", "text/x-number"), ("trace", "b")]);
    assert_eq!((job.header("CONTENT-TYPE"), job.header("TRACE")), (Some("text/x-number"), None));

    // Other clients may have put it with their own spelling.
    let put = Put {
        headers: Headers::new([("Content-Type", "text/plain")]).unwrap(),
        ..Put::new(orders.name().clone(), "m")
    };
    orders.put_many([put]).call().all().unwrap();
    let job = orders.take().call().unwrap().unwrap();
    assert_eq!(job.header("content-type"), Some("text/plain"));
}

#[test]
fn a_job_reads_as_its_message() {
    let Stage { orders, store, .. } = stage();
    let put = orders.put("m").key("k").priority(7).expires(at(9)).call().unwrap();
    let mails = Queue::new(store, "mails").unwrap();
    let job = mails.take().also_from(&orders).call().unwrap().unwrap();
    assert_eq!((job.id(), job.created(), job.expires(), job.priority()), (put.id, at(0), Some(at(9)), 7));
    let key = job.key().unwrap();
    assert_eq!(block_on(orders.cancel(key)), Ok(Cancelled::Leased(put.id)));
}

#[test]
fn many_are_put_in_one_call_and_one_bad_item_fails_alone() {
    let Stage { orders, .. } = stage();
    let items = [orders.put("a"), orders.put("b").key(""), orders.put("c").priority(1)];
    let answers = orders.put_many(items).call();
    let codes: Vec<_> = answers.iter().map(|answer| answer.as_ref().err().map(Error::code)).collect();
    assert_eq!(codes, [None, Some("invalid_key"), None]);

    let contract = Put::new("orders".parse().unwrap(), "d").priority(2);
    assert!(orders.put_many([contract]).call()[0].is_ok());
    assert!(orders.put_many(Vec::<String>::new()).call().is_empty());

    let jobs = block_on(orders.take().max(10).into_future()).unwrap();
    let texts: Vec<_> = jobs.iter().map(|job| job.text().unwrap()).collect();
    assert_eq!(texts, ["c", "d", "a"]);
    let answers = block_on(orders.ack_all(jobs).into_future());
    assert_eq!(answers.into_vec(), [Ok(Settled::Gone), Ok(Settled::Gone), Ok(Settled::Gone)]);
    assert_eq!(block_on(orders.stats()).unwrap_err().code(), "unknown_queue", "nothing is left");
}

#[test]
fn all_answers_of_a_batch_are_there_or_the_first_refusal_is() {
    let Stage { orders, .. } = stage();
    let puts = orders.put_many(["a", "b"]).call().all().unwrap();
    assert_eq!(puts.len(), 2);
    let items = [orders.put("c"), orders.put("d").idempotency_key("two words"), orders.put("e").key("")];
    let answers = orders.put_many(items).call();
    assert_eq!(
        answers.errors().map(Error::code).collect::<Vec<_>>(),
        ["invalid_idempotency_key", "invalid_key"]
    );
    assert_eq!((&answers).into_iter().filter(|answer| answer.is_ok()).count(), 1);
    assert_eq!(answers.all().unwrap_err().code(), "invalid_idempotency_key");
    assert_eq!(block_on(orders.stats()).unwrap().counts.ready, 3, "the others were put");
}

#[test]
fn more_than_a_call_may_have_goes_in_several() {
    let Stage { orders, .. } = stage_with(Limits { batch: 2, ..Limits::default() });
    let items = (0..5).map(|n| if n == 3 { orders.put("x").key("") } else { orders.put(format!("{n}")) });
    let answers = orders.put_many(items).call();
    assert_eq!(answers.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, true, true, false, true]);
    let mut jobs = Vec::new();
    while let Some(job) = block_on(orders.take().into_future()).unwrap() {
        jobs.push(job);
    }
    assert_eq!(jobs.iter().map(|job| job.text().unwrap()).collect::<String>(), "0124");
    let answers = block_on(orders.ack_all(jobs).into_future());
    assert_eq!(answers.into_vec(), vec![Ok(Settled::Gone); 4]);
}

#[test]
fn puts_and_jobs_of_another_store_are_mistaken_for_nothing() {
    let (one, another) = (stage(), stage());
    let mails = Queue::new(Arc::clone(&another.store), "mails").unwrap();
    block_on(async {
        // The same store behind another handle looks like another store.
        one.orders.put_many([another.orders.put("a"), mails.put("b")]).await.all().unwrap();
        assert!(another.orders.take().await.unwrap().is_none());
        let from_mails = one.orders.take().also_from("mails").max(2).await.unwrap();
        assert_eq!(
            from_mails.iter().map(|job| job.queue().as_str()).collect::<Vec<_>>(),
            ["orders", "mails"]
        );

        another.orders.put_many(["c", "d"]).await.all().unwrap();
        let mut jobs = another.orders.take().max(2).await.unwrap();
        // In between, so that there are three runs.
        drop(jobs.splice(1..1, from_mails));
        let lost = &jobs[3];
        lost.ack().await.unwrap();
        let answers = one.orders.ack_all(&jobs).await.into_vec();
        assert_eq!(
            answers,
            [Ok(Settled::Gone), Ok(Settled::Gone), Ok(Settled::Gone), Err(Error::LeaseLost)],
            "each where it was taken, in their order"
        );
        for queue in [&one.orders, &another.orders] {
            assert_eq!(queue.stats().await.unwrap_err().code(), "unknown_queue", "nothing is left");
        }
    });
}

#[test]
fn a_job_is_settled_in_each_way() {
    let Stage { clock, orders, .. } = stage();
    block_on(async {
        for body in ["ack", "retry", "release", "bury"] {
            orders.put(body).await.unwrap();
        }
        let mut jobs = orders.take().max(4).await.unwrap().into_iter();
        let mut next = || jobs.next().unwrap();

        next().ack().await.unwrap();
        let retry = next().retry("no answer").after(Duration::from_millis(10)).priority(5);
        assert_eq!(retry.await.unwrap(), Settled::Scheduled(at(10)));
        assert_eq!(next().release().await.unwrap(), Settled::Ready);
        assert_eq!(next().bury("never").await.unwrap(), Settled::Dead(DeathReason::Buried));

        let released = orders.take().await.unwrap().unwrap();
        assert_eq!((released.text().unwrap(), released.attempt()), ("release", 1), "no attempt was spent");
        released.ack().await.unwrap();

        clock.advance(10);
        let retried = orders.take().await.unwrap().unwrap();
        assert_eq!((retried.attempt(), retried.last_error()), (2, Some("no answer")));
        assert_eq!(retried.message.standing.priority, 5);
        retried.ack().await.unwrap();

        let dead = orders.peek(StateKind::Dead).await.unwrap().unwrap();
        assert_eq!(dead.standing.last_error.as_deref(), Some("never"));
        assert_eq!(orders.revive(Selection::All).await.unwrap().done, 1);
        let revived = orders.take_id(dead.id).lease(Duration::from_secs(1)).await.unwrap();
        assert_eq!(revived.lease_until, at(1_010));
        revived.ack().await.unwrap();
    });
}

#[test]
fn who_holds_a_job_is_seen_and_its_lease_can_be_ended() {
    let Stage { orders, .. } = stage();
    block_on(async {
        let put = orders.put("body").key("order-7").await.unwrap();
        let job = orders.take().holder("worker 7").await.unwrap().unwrap();
        let standing = orders.get(put.id).await.unwrap().standing;
        assert_eq!(standing.holder.unwrap().as_str(), "worker 7");
        assert_eq!(
            orders.expire_lease(put.id, standing.counts.takes + 1).await.unwrap_err().code(),
            "lease_changed"
        );
        assert_eq!(orders.expire_lease(put.id, standing.counts.takes).await, Ok(Settled::Ready));
        assert_eq!(job.ack().await, Err(Error::LeaseLost));
        assert_eq!(
            orders.expire_lease(put.id, standing.counts.takes).await,
            Err(Error::NotLeased { id: put.id })
        );

        let too_long = "h".repeat(129);
        assert_eq!(orders.take().holder(too_long.as_str()).await.unwrap_err().code(), "invalid_holder");
        assert_eq!(orders.take_id(put.id).holder("").await.unwrap_err().code(), "invalid_holder");
        let job = orders.take_id(put.id).holder("by hand").await.unwrap();
        assert_eq!(job.message.standing.holder.as_ref().unwrap().as_str(), "by hand");

        job.bury("for good").await.unwrap();
        assert_eq!(orders.get("order-7").await.unwrap_err().code(), "message_not_found");
        assert_eq!(orders.get_dead("order-7").await.unwrap().id, put.id);
        assert_eq!(orders.blocking().get_dead("order-7").unwrap().id, put.id);
        assert_eq!(orders.get_dead("").await.unwrap_err().code(), "invalid_key");
    });
}

#[test]
fn a_settlement_that_fails_leaves_the_job_to_be_settled_again() {
    let Stage { orders, store, .. } = stage();
    let flaky = Arc::new(Flaky { inner: store, failures: AtomicUsize::new(0) });
    let flaky_orders = Queue::new(Arc::clone(&flaky) as Arc<dyn Store>, "orders").unwrap();
    block_on(async {
        for body in ["ack", "retry", "bury"] {
            orders.put(body).await.unwrap();
        }
        let mut jobs = Vec::new();
        while let Some(job) = flaky_orders.take().await.unwrap() {
            jobs.push(job);
        }
        let away = || Error::Unavailable { reason: "away".into() };

        flaky.fail_once();
        assert_eq!(jobs[0].ack().await, Err(away()));
        jobs[0].ack().await.unwrap();
        assert_eq!(jobs[0].ack().await, Err(Error::LeaseLost), "one of them takes effect");

        flaky.fail_once();
        let retry = jobs[1].retry("no answer").after(Duration::from_secs(1));
        assert_eq!(retry.clone().await, Err(away()));
        assert_eq!(retry.await, Ok(Settled::Scheduled(at(1_000))));

        flaky.fail_once();
        assert_eq!(jobs[2].bury("never").await, Err(away()));
        assert_eq!(jobs[2].release().await, Ok(Settled::Ready), "in another way");
    });
}

#[test]
fn dead_messages_come_back_when_they_are_told_to() {
    let Stage { clock, orders, .. } = stage();
    orders.put_many(["a", "b"]).call().all().unwrap();
    block_on(async {
        for job in orders.take().max(2).await.unwrap() {
            job.bury("no").await.unwrap();
        }
        let swept = orders.revive_at(Selection::Oldest(1), Duration::from_millis(5)).await.unwrap();
        assert_eq!(swept.done, 1);
        assert!(orders.take().await.unwrap().is_none());
        clock.advance(5);
        let first = orders.take().await.unwrap().unwrap();
        assert_eq!((first.text().unwrap(), first.due()), ("a", at(5)));
        orders.revive_at(Selection::All, at(9)).await.unwrap();
        assert_eq!(orders.list(StateKind::Scheduled, None, 9).await.unwrap().messages[0].standing.due, at(9));
        let early = SystemTime::UNIX_EPOCH - Duration::from_secs(1);
        assert_eq!(orders.revive_at(Selection::All, early).await.unwrap_err().code(), "due_out_of_range");
    });
    assert_eq!(orders.blocking().revive_at(Selection::All, When::Now).unwrap().done, 0);
}

#[test]
fn instants_may_be_jiffs() {
    let Stage { orders, .. } = stage();
    let later = |ms| jiff::Timestamp::try_from(at(ms)).unwrap();
    let zoned = |ms| later(ms).to_zoned(jiff::tz::TimeZone::fixed(jiff::tz::offset(2)));
    block_on(async {
        let put = orders.put("m").at(zoned(5)).await.unwrap();
        assert_eq!(put.due, at(5));
        for (moved, due) in [
            (orders.reschedule(put.id, later(6)).await, at(6)),
            (orders.reschedule(put.id, &zoned(7)).await, at(7)),
            (orders.reschedule(put.id, zoned(8)).await, at(8)),
        ] {
            assert_eq!(moved, Ok(Rescheduled::Moved(put.id, due)));
        }
        let early = jiff::Timestamp::from_millisecond(-1).unwrap();
        assert_eq!(orders.reschedule(put.id, early).await.unwrap_err().code(), "due_out_of_range");
    });
}

#[test]
fn a_long_error_is_kept_from_its_beginning() {
    let Stage { orders, .. } = stage();
    orders.put("body").call().unwrap();
    let job = block_on(orders.take().into_future()).unwrap().unwrap();
    let id = job.id();
    // The limit is in the middle of a character.
    let error = format!("a{}", "é".repeat(Limits::MAX_ERROR_TEXT_LEN));
    job.bury(&error).call().unwrap();
    let kept = block_on(orders.get(id)).unwrap().standing.last_error.unwrap();
    assert_eq!(kept.len(), Limits::MAX_ERROR_TEXT_LEN - 1);

    // Nor is it refused where many are settled.
    orders.put_many(["retried", "buried"]).call().all().unwrap();
    let jobs = block_on(orders.take().max(2).into_future()).unwrap();
    let retry = Action::Retry { after_ms: None, error: Some(error.as_str().into()), priority: None };
    let bury = Action::Bury { reason: Some(error.as_str().into()), priority: None };
    orders.settle_all(jobs.iter().zip([retry, bury])).call().all().unwrap();
    for job in &jobs {
        let kept = block_on(orders.get(job.id())).unwrap().standing.last_error.unwrap();
        assert_eq!(kept.len(), Limits::MAX_ERROR_TEXT_LEN - 1, "{}", job.text().unwrap());
    }
}

#[test]
fn a_job_that_is_dropped_costs_an_attempt_when_its_lease_ends() {
    let Stage { clock, orders, .. } = stage();
    block_on(async {
        orders.put("body").await.unwrap();
        drop(orders.take().lease(Duration::from_millis(100)).await.unwrap().unwrap());
        clock.advance(99);
        assert!(orders.take().await.unwrap().is_none(), "nobody has it, and nobody is handed it");
        clock.advance(1);
        assert_eq!(orders.take().await.unwrap().unwrap().attempt(), 2);
    });
}

#[test]
fn a_job_is_held_longer_and_a_lost_one_says_so() {
    let Stage { clock, orders, .. } = stage();
    block_on(async {
        orders.put("body").await.unwrap();
        let job = orders.take().lease(Duration::from_millis(100)).await.unwrap().unwrap();
        assert_eq!(job.held_until(), at(100));
        clock.advance(60);
        assert_eq!(job.renew().await.unwrap(), at(160));
        assert_eq!(job.extend(Duration::from_millis(500)).await.unwrap(), at(560));
        assert_eq!(
            (job.lease_until, job.held_until()),
            (at(100), at(560)),
            "as the take had it, and as it is"
        );
        clock.advance(500);
        assert_eq!(job.ack().await, Err(Error::LeaseLost));
        assert_eq!(job.renew().await, Err(Error::LeaseLost));
        assert_eq!(job.into_delivery().lease_until, at(560));
    });
}

#[test]
fn a_job_is_held_longer_beside_its_work() {
    let Stage { clock, orders, .. } = stage();
    orders.put("body").call().unwrap();
    let job = block_on(orders.take().lease(Duration::from_millis(100)).into_future()).unwrap().unwrap();
    let job = Arc::new(job);
    // It borrows the job as the work does.
    let (text, renewing) = (job.text().unwrap(), job.renew());
    assert_eq!((block_on(renewing), text), (Ok(at(100)), "body"));
    let heart = std::thread::spawn({
        let job = Arc::clone(&job);
        move || block_on(job.extend(Duration::from_secs(1)))
    });
    assert_eq!(heart.join().unwrap(), Ok(at(1_000)));
    clock.advance(999);
    assert_eq!(block_on(job.ack()), Ok(()));
}

#[test]
fn jobs_settle_together_each_in_its_way() {
    let Stage { orders, .. } = stage();
    orders.put_many(["a", "b"]).call().all().unwrap();
    let jobs = block_on(orders.take().max(2).into_future()).unwrap();
    let bury = |reason: &str| Action::Bury { reason: Some(reason.into()), priority: None };
    let settled = jobs.into_iter().zip([Action::Ack, bury("no")]);
    let answers = orders.settle_all(settled).call();
    assert_eq!(answers.into_vec(), [Ok(Settled::Gone), Ok(Settled::Dead(DeathReason::Buried))]);
}

#[test]
fn a_session_ends_with_its_process_and_several_queues_are_one_take() {
    let Stage { store, orders, .. } = stage();
    let mails = Queue::new(Arc::clone(&store), "mails").unwrap();
    orders.put("order").call().unwrap();
    mails.put("mail").priority(1).call().unwrap();
    let jobs =
        block_on(orders.take().also_from("mails").session().max(2).max_bytes(100).into_future()).unwrap();
    assert_eq!(jobs.iter().map(|job| job.text().unwrap()).collect::<Vec<_>>(), ["mail", "order"]);
    let State::Leased(lease) = jobs[0].message.standing.state else { panic!("{:?}", jobs[0]) };
    assert!(lease.session);
    assert_eq!(jobs[0].queue(), mails.name());

    let refused = block_on(orders.take().also_from("a b").into_future());
    assert_eq!(refused.unwrap_err().code(), "invalid_queue_name");
}

#[test]
fn a_stream_takes_again_and_again_and_ends_when_it_was_idle_for_long_enough() {
    let Stage { clock, orders, .. } = stage();
    orders.put_many(["a", "b", "c"]).call().all().unwrap();
    let taker = std::thread::spawn({
        let orders = orders.clone();
        move || {
            block_on(async {
                let mut jobs = orders.take().max(2).until_idle(Duration::from_millis(50)).stream();
                let mut texts = Vec::new();
                while let Some(job) = jobs.next().await {
                    let job = job.unwrap();
                    texts.push(job.text().unwrap().to_owned());
                    job.ack().await.unwrap();
                }
                assert!(jobs.next().await.is_none(), "an end is an end");
                texts
            })
        }
    });
    assert!(clock.await_asleep(1, PATIENCE), "it waits for a fourth");
    clock.advance(50);
    assert_eq!(taker.join().unwrap(), ["a", "b", "c"]);
}

#[test]
fn a_stream_waits_for_the_next_job_however_long_a_take_would() {
    let Stage { clock, orders, .. } = stage();
    let taker = std::thread::spawn({
        let orders = orders.clone();
        move || {
            let mut jobs = orders.take().wait(Duration::from_millis(50)).iter();
            let job = jobs.next().unwrap().unwrap();
            job.ack().unwrap();
            job.text().unwrap().to_owned()
        }
    });
    assert!(clock.await_asleep(1, PATIENCE), "it waits");
    clock.advance(60_000);
    orders.put("late").call().unwrap();
    assert_eq!(taker.join().unwrap(), "late");
}

/// Counts how often it was woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_stream_that_always_has_a_job_lets_other_tasks_run() {
    for max in [1, 1_000] {
        let Stage { orders, .. } = stage();
        orders.put_many((0..300).map(|n| n.to_string())).call().all().unwrap();
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut context = Context::from_waker(&waker);
        let mut jobs = pin!(orders.take().max(max).stream());
        let (mut passed, mut in_a_row) = (0, 0);
        while passed < 300 {
            match jobs.as_mut().poll_next(&mut context) {
                Poll::Ready(Some(job)) => {
                    assert_eq!(job.unwrap().text().unwrap(), passed.to_string());
                    (passed, in_a_row) = (passed + 1, in_a_row + 1);
                    assert!(in_a_row <= 100, "{in_a_row} jobs without a pause, {max} at a time");
                }
                Poll::Ready(None) => panic!("it has no end"),
                Poll::Pending => {
                    assert!(woken.0.swap(0, Ordering::Relaxed) > 0, "it is polled again");
                    in_a_row = 0;
                }
            }
        }
    }
}

#[test]
fn a_stream_ends_behind_an_error_that_does_not_pass() {
    let clock = ManualClock::new(at(0));
    let store = Arc::new(MemoryStore::new(Limits::default(), Arc::new(clock)));
    let orders = Queue::new(Arc::clone(&store) as Arc<dyn Store>, "orders").unwrap();
    store.close();
    block_on(async {
        let mut jobs = orders.take().stream();
        assert_eq!(jobs.next().await.unwrap().unwrap_err(), Error::Closed);
        assert!(jobs.next().await.is_none());
        assert!(orders.take().max(0).stream().next().await.is_none(), "a stream of none has none");
    });
}

#[test]
fn what_a_stream_has_not_passed_on_can_be_released() {
    let Stage { orders, .. } = stage();
    orders.put_many(["a", "b", "c"]).call().all().unwrap();
    block_on(async {
        let mut jobs = orders.take().max(3).stream();
        jobs.next().await.unwrap().unwrap().ack().await.unwrap();
        let rest = jobs.into_buffered();
        let release = Action::Release { after_ms: None, priority: None };
        orders.settle_all(rest.into_iter().map(|job| (job, release.clone()))).await.all().unwrap();
        assert_eq!(orders.stats().await.unwrap().counts.ready, 2);
    });
}

#[test]
fn a_stream_that_is_dropped_releases_what_it_has_not_passed_on() {
    let Stage { orders, .. } = stage();
    orders.put_many(["a", "b", "c"]).call().all().unwrap();
    block_on(async {
        let mut jobs = orders.take().max(3).stream();
        jobs.next().await.unwrap().unwrap().ack().await.unwrap();
        assert_eq!(orders.stats().await.unwrap().counts.leased, 2);
        drop(jobs);
        assert_eq!(orders.stats().await.unwrap().counts.ready, 2);
        let again = orders.take().await.unwrap().unwrap();
        assert_eq!((again.text().unwrap(), again.attempt()), ("b", 1), "no attempt was spent");
    });
}

#[test]
fn a_next_job_that_is_not_waited_for_any_more_leaves_no_take_behind() {
    let Stage { orders, .. } = stage();
    let mut jobs = orders.take().stream();
    {
        let mut next = pin!(jobs.next());
        assert!(next.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(block_on(orders.stats()).unwrap().waiting, 1);
    }
    block_on(async {
        orders.put("body").await.unwrap();
        assert_eq!(orders.stats().await.unwrap().counts.ready, 1, "it is for whoever asks");
        let job = jobs.next().await.unwrap().unwrap();
        assert_eq!((job.text().unwrap(), job.attempt()), ("body", 1));
        job.ack().await.unwrap();
    });
}

#[test]
fn a_stream_passes_on_no_job_whose_lease_has_passed_while_it_waited_there() {
    let Stage { clock, orders, .. } = stage();
    orders.put_many(["a", "b", "c"]).call().all().unwrap();
    block_on(async {
        let take = orders.take().max(3).lease(Duration::from_millis(100));
        let mut jobs = take.stream().on_clock(Arc::new(clock.clone()));
        jobs.next().await.unwrap().unwrap().ack().await.unwrap();
        clock.advance(99);
        jobs.next().await.unwrap().unwrap().ack().await.unwrap();
        clock.advance(1);
        let last = jobs.next().await.unwrap().unwrap();
        assert_eq!((last.text().unwrap(), last.attempt()), ("c", 2), "it was taken anew");
        last.ack().await.unwrap();
    });
}

#[test]
fn a_queue_is_looked_at_and_changed() {
    let Stage { clock, orders, .. } = stage();
    block_on(async {
        let put = orders.put("body").key("k").delay(Duration::from_secs(1)).await.unwrap();
        let moved = orders.reschedule("k", Duration::from_millis(5)).await.unwrap();
        assert_eq!(moved, Rescheduled::Moved(put.id, at(5)));
        let moved = orders.reschedule(put.id, When::At(at(7))).await.unwrap();
        assert_eq!(moved, Rescheduled::Moved(put.id, at(7)));
        assert_eq!(orders.list(StateKind::Scheduled, None, 10).await.unwrap().messages.len(), 1);

        orders.set(Setting::LeaseMs(5)).await.unwrap();
        assert_eq!(orders.stats().await.unwrap().settings.lease_ms, 5);
        orders.pause().await.unwrap();
        clock.advance(7);
        assert!(orders.take().await.unwrap().is_none());
        orders.pause_until(at(8)).await.unwrap();
        clock.advance(1);
        assert!(orders.take().await.unwrap().is_some());
        orders.resume().await.unwrap();

        let other = orders.put("other").await.unwrap();
        assert_eq!(orders.cancel(other.id).await.unwrap(), Cancelled::Cancelled(other.id));
        assert_eq!(orders.cancel("nobody").await.unwrap(), Cancelled::NotFound);
        orders.put("third").await.unwrap();
        assert_eq!(orders.purge().await.unwrap(), 1);
        orders.delete().await.unwrap();
    });
}

#[test]
fn the_blocking_twin_has_the_same_names() {
    let Stage { orders, .. } = stage();
    let orders: blocking::Queue = orders.blocking();
    let put = orders.put("body").key("k").call().unwrap();
    let job = orders.take().call().unwrap().unwrap();
    assert_eq!((job.id(), job.text().unwrap()), (put.id, "body"));
    let until = job.extend(Duration::from_secs(60)).unwrap();
    assert_eq!(job.held_until(), until);
    job.retry("once more").after(Duration::ZERO).call().unwrap();
    let job = orders.take_id(put.id).call().unwrap();
    assert_eq!(job.attempt(), 2);
    job.release().call().unwrap();
    let mut jobs = orders.take().iter();
    let job = jobs.next().unwrap().unwrap();
    assert_eq!(orders.ack_all([job]).call().into_vec(), [Ok(Settled::Gone)]);
}

#[cfg(feature = "json")]
#[test]
fn a_body_may_be_json() {
    use dwell_store::Json;

    let Stage { orders, .. } = stage();
    orders.put(Json(vec![1, 2])).call().unwrap();
    orders.put(Json("typed")).header("content-type", "application/x-own").call().unwrap();
    let jobs = block_on(orders.take().max(2).into_future()).unwrap();
    assert_eq!(jobs[0].header("content-type"), Some("application/json"));
    assert_eq!(jobs[0].json::<Vec<u8>>().unwrap(), [1, 2]);
    assert_eq!(jobs[1].header("content-type"), Some("application/x-own"), "the last one stands");
    assert_eq!(jobs[0].json::<String>().unwrap_err().code(), "malformed_body");
    // A map whose keys are not texts cannot be converted to JSON.
    let odd = std::collections::BTreeMap::from([((1, 2), 3)]);
    assert_eq!(orders.put(Json(odd)).call().unwrap_err().code(), "malformed_body");
}
