//! A foreign value under any key that a call may write: a typed error, and nothing is changed.

use std::collections::BTreeMap;
use std::pin::Pin;

use dwell_redisson::codec::Text;
use dwell_redisson::{
    Claimed, Consumer, DelayedQueue, Doctor, DoctorOptions, Error, Finding, FindingKind, Keys, Layout, Mover,
    MoverOptions, When, encode_element,
};
use redis::Value;

use crate::{Fixture, HOUR_MS, run, text};

/// All keys and their values.
type KeyValues = BTreeMap<Vec<u8>, Vec<u8>>;

const FAR: &str = "4102444800000";

/// A queue with a value under every key, and what calls need to know about it.
struct Stage {
    bed: Fixture,
    queue: DelayedQueue<Text>,
    consumer: Consumer,
    held: Claimed,
    findings: Vec<Finding>,
}

impl Stage {
    async fn set() -> Stage {
        let bed = Fixture::new().await;
        let queue = DelayedQueue::new(bed.link.clone(), bed.keys.clone(), Text);
        let consumer = Consumer::new(bed.link.clone(), bed.keys.clone()).with_max_attempts(5);
        let put = async |key: &str| {
            bed.send(redis::cmd("RPUSH").arg(key).arg("same")).await;
        };
        // The same payload everywhere, which has failed once.
        put(bed.keys.ready()).await;
        let failed = consumer.claim(1, 0, HOUR_MS).await.unwrap();
        consumer.retry(&failed[0], 0, "why").await.unwrap();
        let held = consumer.claim(1, 0, HOUR_MS).await.unwrap().pop().unwrap();
        put(bed.keys.ready()).await;
        let buried = consumer.claim(1, 0, HOUR_MS).await.unwrap();
        consumer.bury(&buried[0].token, "why").await.unwrap();
        // A burial removes the count of failures.
        put(bed.keys.ready()).await;
        let failed = consumer.claim(1, 0, HOUR_MS).await.unwrap();
        consumer.retry(&failed[0], 0, "why").await.unwrap();
        let lapsed = consumer.claim(1, 0, 1).await.unwrap().pop().unwrap();
        while bed.now_ms().await <= lapsed.deadline.as_ms() {}
        put(&bed.keys.inbox()).await;
        put(bed.keys.ready()).await;
        queue.offer_as("7", &text("same"), When::In(HOUR_MS)).await.unwrap();
        bed.plant(&encode_element(Layout::New, *b"due now!", b"same"), "1000").await;
        bed.plant(&encode_element(Layout::Old, *b"oldolold", b"same"), FAR).await;
        bed.plant(&encode_element(Layout::New, *b"fraction", b"same"), "4102444800000.5").await;
        bed.plant(b"no element", FAR).await;
        let one_sided = encode_element(Layout::New, *b"listonly", b"same");
        bed.send(redis::cmd("RPUSH").arg(bed.keys.pending()).arg(one_sided)).await;
        let one_sided = encode_element(Layout::New, *b"zsetonly", b"same");
        bed.send(redis::cmd("ZADD").arg(bed.keys.timeouts()).arg(FAR).arg(one_sided)).await;
        bed.send(redis::cmd("HSET").arg(bed.keys.set_aside()).arg("other").arg("5 undecodable")).await;
        bed.send(redis::cmd("SET").arg(bed.keys.inbox_since()).arg(1_000)).await;
        let doctor = Doctor::new(bed.link.clone(), bed.keys.clone(), DoctorOptions::default());
        let findings = doctor.examine().await.unwrap().findings;
        Stage { bed, queue, consumer, held, findings }
    }

    async fn held(&self) -> KeyValues {
        let keys: Vec<Vec<u8>> = self.bed.link.ask(redis::cmd("KEYS").arg("*")).await.unwrap();
        let mut held = KeyValues::new();
        for key in keys {
            let dump = self.bed.link.ask(redis::cmd("DUMP").arg(&key)).await.unwrap();
            held.insert(key, dump);
        }
        held
    }

    async fn restore(&self, held: &KeyValues) {
        self.bed.send(&redis::cmd("FLUSHALL")).await;
        for (key, dump) in held {
            self.bed.send(redis::cmd("RESTORE").arg(key).arg(0).arg(dump)).await;
        }
    }

    fn mover(&self) -> Mover {
        let options = MoverOptions { layout: Some(Layout::New), ..MoverOptions::default() };
        Mover::new(self.bed.link.clone(), self.bed.keys.clone(), options)
    }

    async fn fix(&self, kind: FindingKind) -> Result<usize, Error> {
        let doctor = Doctor::new(self.bed.link.clone(), self.bed.keys.clone(), DoctorOptions::default());
        doctor.fix(self.findings.iter().find(|finding| finding.kind == kind).unwrap()).await
    }

    async fn fix_all(&self) -> Result<(), Error> {
        let doctor = Doctor::new(self.bed.link.clone(), self.bed.keys.clone(), DoctorOptions::default());
        let mut refused = Ok(());
        for finding in &self.findings {
            refused = doctor.fix(finding).await.map(drop).and(refused);
        }
        refused
    }
}

type Called<'a> = Pin<Box<dyn Future<Output = Result<(), Error>> + 'a>>;
type Operation = (&'static str, for<'a> fn(&'a Stage) -> Called<'a>);

macro_rules! operations {
    ($($name:literal => |$at:ident| $call:expr,)*) => {
        [$(($name, |$at: &Stage| -> Called<'_> { Box::pin(async move { $call.map(drop) }) }),)*]
    };
}

/// All operations that change something. `fix` makes many calls, some of which may succeed.
const OPERATIONS: &[Operation] = &operations! {
    "offer" => |at| at.queue.offer(&text("new"), When::In(1)).await,
    "offer under an id" => |at| at.queue.offer_as("new", &text("new"), When::In(1)).await,
    "offer under a known id" => |at| at.queue.offer_as("7", &text("new"), When::In(1)).await,
    "replace" => |at| at.queue.replace_as("7", &text("new"), When::In(1)).await,
    "cancel" => |at| at.queue.cancel_as("7").await,
    "debounce" => |at| at.queue.debounce(&text("same"), When::In(1)).await,
    "remove" => |at| at.queue.remove(&text("same")).await,
    "poll" => |at| at.queue.poll(1).await,
    "clear" => |at| at.queue.clear().await,
    "take" => |at| at.queue.take(1).await,
    "claim" => |at| at.consumer.claim(5, 0, HOUR_MS).await,
    "ack" => |at| at.consumer.ack(&at.held.token).await,
    "extend" => |at| at.consumer.extend(&at.held.token, HOUR_MS).await,
    "release" => |at| at.consumer.release(&at.held.token).await,
    "retry" => |at| at.consumer.retry(&at.held, 0, "why").await,
    "retry later" => |at| at.consumer.retry(&at.held, HOUR_MS, "why").await,
    "bury" => |at| at.consumer.bury(&at.held.token, "why").await,
    "revive" => |at| at.consumer.revive(5).await,
    "move" => |at| at.mover().step().await,
    "end leases" => |at| at.fix(FindingKind::LapsedLeases).await,
    "mend" => |at| at.mover().mend_all().await,
};

fn wrong(key: &str, looks_alike: bool) -> redis::Cmd {
    let mut command = redis::Cmd::new();
    match looks_alike {
        true => command.arg("SADD").arg(key).arg("mine"),
        false => command.arg("SET").arg(key).arg("mine"),
    };
    command
}

#[test]
fn each_key_spoilt_is_refused_and_nothing_is_changed() {
    run(async {
        let stage = Stage::set().await;
        let whole = stage.held().await;
        // This process may have as many lanes as there are tests, and those of their movers.
        let answer = text_of(&whole, "dwell_redisson_answer");
        let process = &answer[..answer.rfind(':').unwrap() + 17];
        let lanes: Vec<_> = (1..=512).map(|lane| format!("{process}{lane:x}")).collect();
        let keys = &stage.bed.keys;
        // Each key, and the number of operations that need it.
        let spoilt = [
            (keys.ready().to_owned(), 11),
            (keys.pending(), 17),
            (keys.timeouts(), 17),
            (keys.set_aside(), 2),
            (keys.inbox(), 2),
            (keys.leases(), 8),
            (keys.leased(), 8),
            (keys.dead(), 9),
            (text_of(&whole, "dwell_redisson_attempts"), 7),
            (text_of(&whole, "dwell_redisson_offer:"), 3),
            (keys.inbox_since(), 2),
            ("the lanes".to_owned(), 20),
        ];
        for (key, needed) in spoilt {
            for looks_alike in [false, true] {
                let mut refusals = 0;
                for (name, operation) in OPERATIONS {
                    stage.restore(&whole).await;
                    let spoilt =
                        if key == "the lanes" { lanes.as_slice() } else { std::slice::from_ref(&key) };
                    for key in spoilt {
                        stage.bed.send(redis::cmd("DEL").arg(key)).await;
                        stage.bed.send(&wrong(key, looks_alike)).await;
                    }
                    let before = stage.held().await;
                    if let Err(refused) = operation(&stage).await {
                        let after = stage.held().await;
                        assert!(
                            matches!(refused, Error::WrongType { .. }),
                            "{name} while {key} is another's: {refused}"
                        );
                        assert_eq!(changed(&before, &after), [""; 0], "{name} while {key} is another's");
                        refusals += 1;
                    } else {
                        // An operation that does not need the key leaves it alone.
                        let after = stage.held().await;
                        for key in spoilt {
                            let key = key.as_bytes();
                            assert_eq!(after.get(key), before.get(key), "{name} changed it");
                        }
                    }
                }
                assert_eq!(refusals, needed, "refused while {key} is another's");
            }
        }
    });
}

/// The doctor's findings from before: each fix is a separate call.
#[test]
fn fixes_leave_what_is_spoilt_since() {
    run(async {
        let stage = Stage::set().await;
        assert!(stage.findings.len() >= 8, "{:?}", stage.findings);
        let whole = stage.held().await;
        let keys = Keys::new("orders").unwrap();
        for key in [keys.pending(), keys.timeouts(), keys.set_aside()] {
            stage.restore(&whole).await;
            stage.bed.send(redis::cmd("DEL").arg(&key)).await;
            stage.bed.send(&wrong(&key, true)).await;
            let before = stage.held().await;
            assert!(matches!(stage.fix_all().await, Err(Error::WrongType { .. })), "{key}");
            // Due elements are moved where that needs the key, and leases have come back.
            let after = stage.held().await;
            let of_the_queue = |key: &str| key.starts_with("redisson") || key.contains("set_aside");
            let changed: Vec<_> =
                changed(&before, &after).into_iter().filter(|key| of_the_queue(key)).collect();
            assert_eq!(changed, [""; 0], "while {key} is another's");
        }
    });
}

#[test]
fn a_dead_letter_of_somebody_elses_is_left_where_it_is() {
    run(async {
        let stage = Stage::set().await;
        let dead = stage.bed.keys.dead();
        stage.bed.send(redis::cmd("RPUSH").arg(&dead).arg("mine").arg("1\0why\0behind it")).await;
        assert_eq!(stage.consumer.revive(10).await.unwrap(), 1, "the one before it");
        let before = stage.held().await;
        let refused = stage.consumer.revive(10).await;
        assert!(matches!(refused, Err(Error::WrongType { .. })), "{refused:?}");
        assert_eq!(changed(&before, &stage.held().await), [""; 0]);
        stage.bed.send(redis::cmd("LPOP").arg(&dead)).await;
        assert_eq!(stage.consumer.revive(10).await.unwrap(), 1);
        assert!(matches!(stage.bed.send(redis::cmd("EXISTS").arg(dead)).await, Value::Int(0)));
    });
}

fn changed(before: &KeyValues, after: &KeyValues) -> Vec<String> {
    let all: std::collections::BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let changed = all.into_iter().filter(|key| before.get(*key) != after.get(*key));
    changed.map(|key| String::from_utf8_lossy(key).into_owned()).collect()
}

/// The key with this prefix.
fn text_of(held: &KeyValues, prefix: &str) -> String {
    let key =
        held.keys().find(|key| key.starts_with(prefix.as_bytes())).unwrap_or_else(|| panic!("{prefix}"));
    String::from_utf8(key.clone()).unwrap()
}
