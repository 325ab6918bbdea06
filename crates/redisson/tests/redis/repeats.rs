//! Every script that changes something, called twice with the same arguments: the second call gets the reply of the
//! first one, and does nothing. A call whose reply was lost is retried.

use dwell_redis::Link;
use dwell_redisson::codec::Text;
use dwell_redisson::testing::repeat_calls;
use dwell_redisson::{
    Consumer, DelayedQueue, Doctor, DoctorOptions, Error, Layout, Mover, MoverOptions, Offered, Settled,
    When, encode_element,
};
use dwell_testkit::redis::proxy::{Options, Proxy};

use crate::{Fixture, HOUR_MS, run, text};

/// Runs a test in which each call is made twice.
fn twice(test: impl AsyncFn(&Fixture)) {
    run(async {
        let bed = Fixture::new().await;
        repeat_calls(true);
        test(&bed).await;
        repeat_calls(false);
    });
}

fn consumer(bed: &Fixture) -> Consumer {
    Consumer::new(bed.link.clone(), bed.keys.clone()).with_max_attempts(3)
}

async fn put(bed: &Fixture, payloads: &[&str]) {
    bed.send(redis::cmd("RPUSH").arg(bed.keys.ready()).arg(payloads)).await;
}

async fn count(bed: &Fixture, command: &str, key: &str) -> usize {
    bed.link.ask(redis::cmd(command).arg(key)).await.unwrap()
}

/// Returns the pending values, and asserts that as many are in the sorted set.
async fn pending(bed: &Fixture) -> Vec<String> {
    let all = bed.queue.read_all().await.unwrap();
    assert_eq!(count(bed, "ZCARD", &bed.keys.timeouts()).await, all.len(), "{all:?}");
    all
}

#[test]
fn an_offer_offers_once() {
    twice(async |bed| {
        bed.queue.offer(&text("a"), When::In(HOUR_MS)).await.unwrap();
        let due = dwell_model::Timestamp::from_ms(4_102_444_800_000).unwrap();
        assert_eq!(bed.queue.offer(&text("at"), When::At(due)).await.unwrap(), due);
        let many = [(text("b"), When::In(HOUR_MS)), (text("c"), When::In(1))];
        assert_eq!(bed.queue.offer_many(&many).await.unwrap().len(), 2);
        assert_eq!(pending(bed).await, ["a", "at", "b", "c"]);
    });
}

#[test]
fn an_offer_under_an_id_is_new_in_its_second_answer_too() {
    twice(async |bed| {
        let offered = bed.queue.offer_as("7", &text("a"), When::In(HOUR_MS)).await.unwrap();
        assert!(matches!(offered, Offered::New { .. }), "{offered:?}");
        let known = bed.queue.offer_as("7", &text("a"), When::In(HOUR_MS)).await.unwrap();
        assert!(matches!(known, Offered::Known { due: Some(_) }), "{known:?}");
        let replaced = bed.queue.replace_as("7", &text("b"), When::In(HOUR_MS)).await.unwrap();
        assert!(matches!(replaced, Offered::Replaced { .. }), "{replaced:?}");
        assert_eq!(pending(bed).await, ["b"]);
        assert!(bed.queue.cancel_as("7").await.unwrap());
        assert!(!bed.queue.cancel_as("7").await.unwrap());
        assert_eq!(pending(bed).await, [""; 0]);
    });
}

#[test]
fn a_debounce_leaves_one_and_counts_what_it_took_out() {
    twice(async |bed| {
        for value in ["x", "y", "x"] {
            bed.offer(value, HOUR_MS).await;
        }
        assert_eq!(bed.queue.debounce(&text("x"), When::In(HOUR_MS)).await.unwrap().taken_out, 2);
        assert_eq!(pending(bed).await, ["y", "x"]);
    });
}

#[test]
fn what_is_taken_out_is_one_a_call() {
    twice(async |bed| {
        for value in ["x", "y", "x", "z", "z"] {
            bed.offer(value, HOUR_MS).await;
        }
        assert!(bed.queue.remove(&text("x")).await.unwrap());
        assert_eq!(pending(bed).await, ["y", "x", "z", "z"]);
        assert_eq!(bed.queue.remove_all(&[text("z")]).await.unwrap(), 2);
        assert_eq!(bed.queue.poll(1).await.unwrap(), ["y"]);
        assert_eq!(pending(bed).await, ["x"]);
        bed.queue.clear().await.unwrap();
        assert_eq!(pending(bed).await, [""; 0]);
    });
}

#[test]
fn a_move_moves_once_and_tells_what_it_moved() {
    twice(async |bed| {
        for (id, payload) in [(b"11111111", "a"), (b"22222222", "b")] {
            bed.plant(&encode_element(Layout::New, *id, payload.as_bytes()), "1000").await;
        }
        bed.plant(b"no element", "1000").await;
        assert_eq!(bed.mover().pass().await.unwrap(), (2, 1));
        assert_eq!(bed.ready().await, ["a", "b"]);
        assert_eq!(pending(bed).await, [""; 0]);
    });
}

#[test]
fn what_is_mended_is_counted_once() {
    twice(async |bed| {
        bed.plant(b"no element", "4102444800000").await;
        bed.plant(&encode_element(Layout::Old, *b"12345678", b"old"), "4102444800000").await;
        bed.plant(&encode_element(Layout::New, *b"fraction", b"half"), "4102444800002.5").await;
        let options = MoverOptions { layout: Some(Layout::New), ..MoverOptions::default() };
        let mended = Mover::new(bed.link.clone(), bed.keys.clone(), options).mend_all().await.unwrap();
        assert_eq!((mended.set_aside, mended.rewritten, mended.rounded), (1, 1, 1));
        assert_eq!(pending(bed).await, ["old", "half"]);
    });
}

#[test]
fn a_claim_leases_once_and_loses_nothing() {
    twice(async |bed| {
        let consumer = consumer(bed);
        put(bed, &["a", "b", "c"]).await;
        let claimed = consumer.claim(2, 0, HOUR_MS).await.unwrap();
        let payloads: Vec<_> = claimed.iter().map(|one| one.payload.as_slice()).collect();
        assert_eq!(payloads, [b"a", b"b"]);
        assert_eq!(bed.ready().await, ["c"]);
        assert_eq!(count(bed, "HLEN", &bed.keys.leased()).await, 2);
        for claimed in claimed {
            assert_eq!(consumer.ack(&claimed.token).await.unwrap(), Settled::Acked);
        }
        // A hundred and one: three scripts.
        let many: Vec<_> = (0..100).map(|n| n.to_string()).collect();
        put(bed, &many.iter().map(String::as_str).collect::<Vec<_>>()).await;
        let claimed = consumer.claim(1_000, 0, HOUR_MS).await.unwrap();
        assert_eq!(claimed.len(), 101);
        assert_eq!(count(bed, "HLEN", &bed.keys.leased()).await, 101);
        assert_eq!(bed.ready().await, [""; 0]);
    });
}

#[test]
fn a_settlement_is_answered_alike_and_done_once() {
    twice(async |bed| {
        let consumer = consumer(bed);
        put(bed, &["a"]).await;
        let claim = async || consumer.claim(1, 0, HOUR_MS).await.unwrap().pop().unwrap();
        let claimed = claim().await;
        assert_eq!(consumer.extend(&claimed.token, HOUR_MS).await.unwrap(), Settled::Extended);
        assert_eq!(consumer.release(&claimed.token).await.unwrap(), Settled::Ready);
        assert_eq!(bed.ready().await, ["a"]);
        assert_eq!(consumer.retry(&claim().await, 0, "why").await.unwrap(), Settled::Ready);
        assert_eq!(bed.ready().await, ["a"]);
        let claimed = claim().await;
        assert_eq!(claimed.attempt, 2, "one attempt was counted, and not two");
        assert_eq!(consumer.retry(&claimed, HOUR_MS, "why").await.unwrap(), Settled::Scheduled);
        assert_eq!(pending(bed).await, ["a"]);
        assert_eq!(bed.queue.poll(1).await.unwrap(), ["a"]);
        put(bed, &["a"]).await;
        assert_eq!(consumer.bury(&claim().await.token, "why").await.unwrap(), Settled::Dead);
        let dead = consumer.dead(0, 10).await.unwrap();
        assert_eq!((dead.len(), dead[0].attempts), (1, 3));
        assert_eq!(consumer.revive(10).await.unwrap(), 1);
        assert_eq!(bed.ready().await, ["a"]);
        assert_eq!(consumer.ack(&claim().await.token).await.unwrap(), Settled::Acked);
        assert_eq!(consumer.ack("no token").await.unwrap(), Settled::LeaseLost);
    });
}

#[test]
fn leases_that_ran_out_are_ended_once() {
    twice(async |bed| {
        let consumer = consumer(bed);
        put(bed, &["a", "b"]).await;
        let claimed = consumer.claim(2, 0, 1).await.unwrap();
        while bed.now_ms().await <= claimed[1].deadline.as_ms() {}
        let doctor = Doctor::new(bed.link.clone(), bed.keys.clone(), DoctorOptions::default());
        let report = doctor.examine().await.unwrap();
        let (lapsed, _) = report.plan().next().unwrap();
        assert_eq!(doctor.fix(lapsed).await.unwrap(), 2);
        assert_eq!(bed.ready().await.len(), 2);
        let again = consumer.claim(2, 0, HOUR_MS).await.unwrap();
        assert_eq!(again.iter().map(|claimed| claimed.attempt).collect::<Vec<_>>(), [2, 2]);
    });
}

#[test]
fn the_doctors_fixes_are_counted_once() {
    twice(async |bed| {
        let element = |id: &[u8; 8]| encode_element(Layout::New, *id, b"x");
        bed.plant(b"no element", "4102444800000").await;
        bed.plant(&element(b"fraction"), "4102444800000.5").await;
        let listed = async |element: &[u8]| {
            bed.send(redis::cmd("RPUSH").arg(bed.keys.pending()).arg(element)).await;
        };
        listed(&element(b"listonly")).await;
        bed.plant(&element(b"twotimes"), "4102444800000").await;
        listed(&element(b"twotimes")).await;
        bed.send(redis::cmd("ZADD").arg(bed.keys.timeouts()).arg("4102444800000").arg(element(b"zsetonly")))
            .await;
        let doctor = Doctor::new(bed.link.clone(), bed.keys.clone(), DoctorOptions::default());
        let report = doctor.examine().await.unwrap();
        assert_eq!(report.plan().count(), 5, "{report:?}");
        for (finding, fix) in report.plan() {
            assert_eq!(doctor.fix(finding).await.unwrap(), 1, "{fix:?} of {finding:?}");
        }
        assert_eq!(pending(bed).await.len(), 3);
    });
}

/// A call that is delayed on its way, and arrives after a later call of its lane was answered, does nothing.
#[test]
fn a_call_that_comes_late_is_refused() {
    run(async {
        let bed = Fixture::new().await;
        let code = [
            include_str!("../../src/lua/common.lua"),
            include_str!("../../src/lua/answer.lua"),
            include_str!("../../src/lua/offer.lua"),
        ]
        .concat();
        let offer = async |number: u64, id: [u8; 8]| {
            let mut command = redis::cmd("EVAL");
            command
                .arg(&code)
                .arg(4)
                .arg(bed.keys.pending())
                .arg(bed.keys.timeouts())
                .arg(bed.keys.channel());
            command.arg(bed.keys.answer("lane")).arg("in").arg(HOUR_MS);
            command.arg(encode_element(Layout::New, id, b"x")).arg(&number.to_be_bytes());
            bed.link.ask::<Vec<String>>(&command).await
        };
        let first = offer(5_000_000_000, *b"11111111").await.unwrap();
        assert_eq!(offer(5_000_000_000, *b"11111111").await.unwrap(), first);
        assert_eq!(offer(4_999_999_999, *b"22222222").await.unwrap_err().code(), Some("DWELLLATE"));
        assert_eq!(bed.queue.size().await.unwrap(), 1);
        offer(5_000_000_001, *b"33333333").await.unwrap();
        assert_eq!(bed.queue.size().await.unwrap(), 2);
        let kept: i64 = bed.link.ask(redis::cmd("PTTL").arg(bed.keys.answer("lane"))).await.unwrap();
        assert!((1..=60_000).contains(&kept), "{kept}");
    });
}

/// An abandoned call may still be in flight. The next call of its lane says so, and its number is stored even if it
/// changes nothing: the late call is refused, and a retry of it does nothing either.
#[test]
fn a_take_that_found_nothing_is_kept_where_another_one_may_come_late() {
    run(async {
        let bed = Fixture::new().await;
        let code = [
            include_str!("../../src/lua/common.lua"),
            include_str!("../../src/lua/answer.lua"),
            include_str!("../../src/lua/take.lua"),
        ]
        .concat();
        let take = async |number: u64, is_doubtful: bool| {
            let mut call = number.to_be_bytes().to_vec();
            call.extend(is_doubtful.then_some(b'!'));
            let mut command = redis::cmd("EVAL");
            command.arg(&code).arg(2).arg(bed.keys.ready()).arg(bed.keys.answer("lane")).arg(call);
            bed.link.ask::<Option<String>>(&command).await
        };
        assert_eq!(take(4, false).await, Ok(None));
        assert_eq!(bed.link.ask::<usize>(&redis::cmd("DBSIZE")).await, Ok(0));
        assert_eq!(take(6, true).await, Ok(None));
        put(&bed, &["m"]).await;
        assert_eq!(take(5, false).await.unwrap_err().code(), Some("DWELLLATE"));
        assert_eq!(take(6, false).await, Ok(None));
        assert_eq!(bed.ready().await, ["m"]);
        assert_eq!(take(7, false).await, Ok(Some(text("m"))));
    });
}

/// The same on a link that hangs: followed by another call, and retried automatically.
#[test]
fn what_was_given_up_and_comes_late_takes_nothing_into_a_closed_connection() {
    run(async {
        let bed = Fixture::new().await;
        let slow = Proxy::to(bed.server.port()).await;
        let address = slow.url("connections=1&timeout_ms=400").parse().unwrap();
        let link = Link::open(address).await.unwrap();
        let queue = DelayedQueue::new(link.clone(), bed.keys.clone(), Text);
        let claims = Consumer::new(link, bed.keys.clone());
        // The server knows the scripts by now.
        assert_eq!(queue.take(0).await.unwrap(), None);
        assert!(claims.claim(1, 0, HOUR_MS).await.unwrap().is_empty());
        for is_claim in [false, true] {
            slow.hold_connections();
            let given_up = match is_claim {
                false => queue.take(0).await.map(drop),
                true => claims.claim(1, 0, HOUR_MS).await.map(drop),
            };
            assert!(matches!(given_up, Err(Error::OutcomeUnknown { .. })), "{given_up:?}");
            match is_claim {
                false => assert_eq!(queue.take(0).await.unwrap(), None),
                true => assert!(claims.claim(1, 0, HOUR_MS).await.unwrap().is_empty()),
            }
            put(&bed, &["m"]).await;
            slow.release().await;
            assert_eq!(bed.ready().await, ["m"], "a claim: {is_claim}");
            assert_eq!(queue.take(0).await.unwrap(), Some(text("m")));
        }
    });
}

/// A call that changes nothing stores nothing.
#[test]
fn a_call_that_changes_nothing_writes_nothing() {
    run(async {
        let bed = Fixture::new().await;
        assert_eq!(bed.mover().pass().await.unwrap(), (0, 0));
        assert!(consumer(&bed).claim(1, 0, HOUR_MS).await.unwrap().is_empty());
        assert_eq!(consumer(&bed).ack("no token").await.unwrap(), Settled::LeaseLost);
        assert!(!bed.queue.cancel_as("7").await.unwrap());
        assert!(!bed.queue.remove(&text("x")).await.unwrap());
        bed.queue.clear().await.unwrap();
        assert!(matches!(bed.queue.offer(&text("x"), When::In(u64::MAX)).await, Err(Error::Invalid(_))));
        let keys: usize = bed.link.ask(&redis::cmd("DBSIZE")).await.unwrap();
        assert_eq!(keys, 0);
    });
}

/// The server has executed the call, and its reply is lost with the connection: the call is retried automatically, and
/// returns the original reply.
#[test]
fn a_call_whose_answer_was_lost_is_answered_all_the_same() {
    run(async {
        let bed = Fixture::new().await;
        let options = Options { watches: |_| true, ..Options::default() };
        let proxy = Proxy::with(bed.server.port(), options).await;
        let link = Link::open(proxy.url("connections=1").parse().unwrap()).await.unwrap();
        let queue = DelayedQueue::new(link.clone(), bed.keys.clone(), Text);
        let consumer = Consumer::new(link.clone(), bed.keys.clone());
        let mut mover = Mover::new(link, bed.keys.clone(), MoverOptions::default());
        // First without a cut, after which the server knows the scripts.
        for is_cut in [false, true] {
            let cut = || {
                if is_cut {
                    proxy.lose_next_reply();
                }
            };
            bed.queue.clear().await.unwrap();
            cut();
            queue.offer(&text("a"), When::In(HOUR_MS)).await.unwrap();
            assert_eq!(pending(&bed).await, ["a"]);
            cut();
            assert_eq!(queue.debounce(&text("a"), When::In(HOUR_MS)).await.unwrap().taken_out, 1);
            assert_eq!(pending(&bed).await, ["a"]);
            cut();
            assert!(queue.remove(&text("a")).await.unwrap());
            bed.plant(&encode_element(Layout::New, *b"due now!", b"due"), "1000").await;
            cut();
            assert_eq!(mover.step().await.unwrap().moved, 1);
            assert_eq!(bed.ready().await, ["due"]);
            cut();
            let claimed = consumer.claim(1, 0, HOUR_MS).await.unwrap();
            assert_eq!(claimed[0].payload, b"due");
            cut();
            assert_eq!(consumer.retry(&claimed[0], 0, "why").await.unwrap(), Settled::Ready);
            let claimed = consumer.claim(1, 0, HOUR_MS).await.unwrap();
            assert_eq!(claimed[0].attempt, 2);
            cut();
            assert_eq!(consumer.ack(&claimed[0].token).await.unwrap(), Settled::Acked);
            assert_eq!(count(&bed, "HLEN", &bed.keys.leased()).await, 0);
            assert_eq!((bed.ready().await.len(), proxy.has_lost()), (0, true));
        }
    });
}
