//! `redis-scripts`: how long each script of the native store holds Redis up, by the server's own SLOWLOG.
//!
//! A work is one call of the store, which may be several scripts; a sample is the longest of them, in microseconds of
//! the server's. Nothing else is served meanwhile.

use std::cell::RefCell;
use std::time::Duration;

use dwell_model::{Key, Limits, MessageId, Number, PutToken, QueueName, Receipt, StateKind, Timestamp};
use dwell_redis::RedisStore;
use dwell_store::{Action, Put, Selection, Settle, Store as _, Take, Target, When};

use super::Scenario;
use crate::Result;
use crate::ours_redis::{Native, put_at};
use crate::run::Run;
use crate::stopwatch::{pause, wall_us};
use crate::workload::{BATCH, DAY_MS, Item, Items, Tally};

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "redis-scripts",
    what: "how long each of the store's scripts holds Redis up: 1, 64 and 1,000 items, 10 k and 1 M pending",
    run,
};

/// How often each call is made a round.
const TIMES: usize = 5;
/// The directory's scripts are called with this key.
const DIRECTORY: &str = "{dwell}:";
/// A script should not take longer.
const LONG_US: f64 = 1_000.0;

fn run(run: &mut Run) -> Result<()> {
    run.note("one Redis, nothing on disk; 128 random bytes a body; the server's own time a script");
    run.note("longest_us: the longest script of a call; us_an_item: all scripts of a call by its items");
    for pending in [run.scaled(10_000), run.scaled(1_000_000)] {
        let bench = Bench::fill(pending)?;
        let mut scripts = Scripts { run, pending, long: 0, all: 0 };
        scripts.measure_all(&bench)?;
        let (long, all) = (scripts.long, scripts.all);
        run.note(format!("{pending} pending: {long} of {all} scripts took longer than {LONG_US} us"));
    }
    Ok(())
}

/// What is measured, and where it goes.
struct Scripts<'a> {
    run: &'a mut Run,
    pending: u64,
    long: usize,
    all: usize,
}

impl Scripts<'_> {
    fn measure_all(&mut self, bench: &Bench) -> Result<()> {
        for items in [1, 64, 1_000] {
            self.measure(bench, "put", items, || bench.puts(items), |puts| bench.native.put(puts))?;
            let held = || bench.held(items);
            self.measure(bench, "take", items, || bench.due(items), |()| bench.take_and_hold(items))?;
            self.measure(bench, "settle: ack", items, held, |held| bench.settle(held, &Action::Ack))?;
            self.measure(bench, "cancel", items, || bench.put(items), |ids| bench.cancel(ids))?;
        }
        let items = 1_000;
        let named = || bench.named(items);
        self.measure(bench, "put: key, token, priority", items, named, |puts| bench.native.put(puts))?;
        let urgent = || bench.urgent(items);
        self.measure(bench, "take: other priority", items, urgent, |()| bench.take_and_hold(items))?;
        let held = || bench.held(items);
        let later = Action::Retry { after_ms: Some(DAY_MS), error: Some("again".into()), priority: None };
        self.measure(bench, "settle: retry", items, held, |held| bench.settle(held, &later))?;
        self.measure(bench, "settle: extend", items, held, |held| bench.extend(held))?;
        let bury = Action::Bury { reason: Some("enough".into()), priority: None };
        self.measure(bench, "settle: bury", items, held, |held| bench.settle(held, &bury))?;
        self.measure(bench, "leases run out", items, || bench.lapsing(items), |()| bench.stats())?;
        self.measure(bench, "expiries come", items, || bench.expiring(items), |()| bench.stats())?;
        self.measure(bench, "reschedule", items, || bench.put(items), |ids| bench.reschedule(ids))?;
        self.measure(bench, "get", items, || bench.put(items), |ids| bench.get(ids))?;
        for (work, state) in
            [("scheduled", StateKind::Scheduled), ("leased", StateKind::Leased), ("dead", StateKind::Dead)]
        {
            let fill = || match state {
                StateKind::Leased => {
                    bench.due(items)?;
                    bench.take_and_hold(items)
                }
                StateKind::Dead => bench.dead(items),
                _ => bench.put(items).map(drop),
            };
            self.measure(bench, &format!("list: {work}"), items, fill, |()| bench.list(state, items))?;
        }
        self.measure(bench, "revive", items, || bench.dead(items), |()| bench.revive())?;
        self.measure(bench, "discard: oldest", items, || bench.dead(items), |()| bench.discard(items))?;
        self.measure(bench, "stats", 1, || Ok(()), |()| bench.stats())?;
        self.measure(bench, "take_id", 1, || bench.put(1), |ids| bench.take_id(ids[0]))?;
        self.measure(bench, "bound leases are freed", items, || bench.bound(items), |()| bench.open_again())?;
        self.measure_with(DIRECTORY, bench, "locate", items, || Ok(()), |()| bench.locate(items))?;
        self.measure_with(DIRECTORY, bench, "queues", 256, || bench.many(256), |()| bench.list_queues())?;
        // What a purge sets aside is cleared away in steps: the first at once, the others when the store has time.
        self.measure(
            bench,
            "purge, and clearing away",
            items,
            || bench.put(items).map(drop),
            |()| {
                bench.purge()?;
                pause(Duration::from_secs(6));
                bench.stats_or_nothing();
                Ok(())
            },
        )
    }

    fn measure<P>(
        &mut self,
        bench: &Bench,
        work: &str,
        items: usize,
        prepare: impl FnMut() -> Result<P>,
        act: impl FnMut(P) -> Result<()>,
    ) -> Result<()> {
        self.measure_with("", bench, work, items, prepare, act)
    }

    /// Also scripts on keys that are called `and`.
    fn measure_with<P>(
        &mut self,
        and: &str,
        bench: &Bench,
        work: &str,
        items: usize,
        mut prepare: impl FnMut() -> Result<P>,
        mut act: impl FnMut(P) -> Result<()>,
    ) -> Result<()> {
        let named = format!("{work}, {items} items, {} pending", self.pending);
        if !self.run.wants(&named) {
            return Ok(());
        }
        let (mut longest, mut by_item) = (Vec::new(), Vec::new());
        let times = if work.starts_with("purge") { 1 } else { TIMES * self.run.rounds() };
        for _ in 0..times {
            bench.tidy()?;
            let prepared = prepare()?;
            bench.log()?;
            act(prepared)?;
            let took = bench.took(and)?;
            let sum: f64 = took.iter().sum();
            self.all += took.len();
            self.long += took.iter().filter(|took| **took > LONG_US).count();
            longest.push(took.iter().copied().fold(0.0, f64::max));
            by_item.push(sum / items as f64);
        }
        let worst = longest.iter().copied().fold(0.0, f64::max);
        eprintln!("{named}: at most {worst} us");
        self.run.alone(&named, "longest_us", longest);
        self.run.alone(&named, "us_an_item", by_item);
        Ok(())
    }
}

/// A queue with a backlog that is not due while this runs.
struct Bench {
    native: Native,
    queue: QueueName,
    items: RefCell<Items>,
    /// What is held yet.
    held: RefCell<Vec<Receipt>>,
}

/// The process of this name binds leases.
const CLIENT: &str = "bench";

impl Bench {
    fn fill(pending: u64) -> Result<Bench> {
        let items = RefCell::new(Items::new(u64::MAX));
        let bench =
            Bench { native: Native::start()?, queue: "bench".parse()?, items, held: RefCell::default() };
        let mut left = pending as usize;
        while left > 0 {
            let some = left.min(BATCH);
            bench.put(some)?;
            left -= some;
        }
        Ok(bench)
    }

    fn next(&self, count: usize) -> Vec<Item> {
        self.items.borrow_mut().by_ref().take(count).collect()
    }

    /// Due between an hour from now and a day later.
    fn puts(&self, count: usize) -> Result<Vec<Put>> {
        let from_ms = wall_us() / 1_000 + 3_600_000;
        let put = |item: Item| put_at(&self.queue, &item.body, from_ms + item.due_ms as i64);
        self.next(count).into_iter().map(put).collect()
    }

    fn named(&self, count: usize) -> Result<Vec<Put>> {
        let name = |(index, put): (usize, Put)| {
            let name = format!("{}-{index}", wall_us());
            Ok(put.key(Key::new(name.as_str())?).token(PutToken::new(name.as_str())?).priority(7))
        };
        self.puts(count)?.into_iter().enumerate().map(name).collect()
    }

    fn put(&self, count: usize) -> Result<Vec<MessageId>> {
        let answers = self.native.runtime.block_on(self.native.store.put(self.puts(count)?));
        answers.into_iter().map(|answer| Ok(answer?.id)).collect()
    }

    /// Puts so many that are due.
    fn due(&self, count: usize) -> Result<()> {
        self.over(count, |put| put)
    }

    fn urgent(&self, count: usize) -> Result<()> {
        self.over(count, |put| put.priority(7))
    }

    fn over(&self, count: usize, with: impl Fn(Put) -> Put) -> Result<()> {
        let past_ms = wall_us() / 1_000 - 2 * DAY_MS as i64;
        let put = |item: Item| Ok(with(put_at(&self.queue, &item.body, past_ms + item.due_ms as i64)?));
        self.native.put(self.next(count).into_iter().map(put).collect::<Result<Vec<_>>>()?)
    }

    fn expiring(&self, count: usize) -> Result<()> {
        let soon = Timestamp::from_ms(wall_us() / 1_000 + 1_000)?;
        self.over(count, |put| Put { expires: Some(soon), ..put })?;
        pause(Duration::from_millis(1_100));
        Ok(())
    }

    fn take(&self, count: usize) -> Result<Vec<Receipt>> {
        self.take_as(&self.native.store, Take::from(self.queue.clone()).max(count))
    }

    fn take_as(&self, store: &RedisStore, take: Take) -> Result<Vec<Receipt>> {
        let count = take.max;
        let taken = self.native.runtime.block_on(store.take(take))?;
        if taken.len() != count {
            return Err(format!("{} of {count} were handed out", taken.len()).into());
        }
        Ok(taken.into_iter().map(|delivery| delivery.receipt).collect())
    }

    fn held(&self, count: usize) -> Result<Vec<Receipt>> {
        self.due(count)?;
        self.take(count)
    }

    fn take_and_hold(&self, count: usize) -> Result<()> {
        let taken = self.take(count)?;
        self.held.borrow_mut().extend(taken);
        Ok(())
    }

    fn extend(&self, held: Vec<Receipt>) -> Result<()> {
        self.held.borrow_mut().extend(held.iter().cloned());
        self.settle(held, &Action::Extend { lease_ms: None })
    }

    /// Nothing that a work has left meets the next one.
    fn tidy(&self) -> Result<()> {
        self.native.ack(self.held.take())?;
        let mut tally = Tally::default();
        loop {
            let receipts = self.native.take(&self.queue, BATCH, &mut tally)?;
            if receipts.is_empty() {
                break;
            }
            self.native.ack(receipts)?;
        }
        self.discard(usize::MAX)
    }

    fn lapsing(&self, count: usize) -> Result<()> {
        self.due(count)?;
        self.take_as(&self.native.store, Take::from(self.queue.clone()).max(count).lease_ms(1_000))?;
        pause(Duration::from_millis(1_100));
        Ok(())
    }

    fn dead(&self, count: usize) -> Result<()> {
        self.settle(self.held(count)?, &Action::Bury { reason: None, priority: None })
    }

    fn settle(&self, held: Vec<Receipt>, action: &Action) -> Result<()> {
        let settles = held.into_iter().map(|receipt| Settle { receipt, action: action.clone() }).collect();
        for settled in self.native.runtime.block_on(self.native.store.settle(settles)) {
            settled?;
        }
        Ok(())
    }

    fn targets(ids: Vec<MessageId>) -> Vec<Target> {
        ids.into_iter().map(Target::Id).collect()
    }

    fn cancel(&self, ids: Vec<MessageId>) -> Result<()> {
        let call = self.native.store.cancel(self.queue.clone(), Bench::targets(ids));
        all(self.native.runtime.block_on(call))
    }

    fn reschedule(&self, ids: Vec<MessageId>) -> Result<()> {
        let moves = ids.into_iter().map(|id| (Target::Id(id), When::AfterMs(DAY_MS))).collect();
        all(self.native.runtime.block_on(self.native.store.reschedule(self.queue.clone(), moves)))
    }

    fn get(&self, ids: Vec<MessageId>) -> Result<()> {
        all(self.native.runtime.block_on(self.native.store.get(self.queue.clone(), Bench::targets(ids))))
    }

    fn list(&self, state: StateKind, max: usize) -> Result<()> {
        let call = self.native.store.list(self.queue.clone(), state, None, max);
        let page = self.native.runtime.block_on(call)?;
        if page.messages.len() == max { Ok(()) } else { Err("a page is not full".into()) }
    }

    fn revive(&self) -> Result<()> {
        let when = When::AfterMs(2 * DAY_MS);
        self.native.runtime.block_on(self.native.store.revive(self.queue.clone(), Selection::All, when))?;
        Ok(())
    }

    fn discard(&self, count: usize) -> Result<()> {
        let call = self.native.store.discard(self.queue.clone(), Selection::Oldest(count as u64));
        self.native.runtime.block_on(call)?;
        Ok(())
    }

    fn stats(&self) -> Result<()> {
        self.native.runtime.block_on(self.native.store.stats(self.queue.clone()))?;
        Ok(())
    }

    /// Lets what the store does by itself go on.
    fn stats_or_nothing(&self) {
        let asked = self.native.store.stats(self.queue.clone());
        // A queue that was purged may be unknown by now.
        let _ = self.native.runtime.block_on(async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            asked.await
        });
    }

    fn take_id(&self, id: MessageId) -> Result<()> {
        let call = self.native.store.take_id(self.queue.clone(), id, None, false);
        self.held.borrow_mut().push(self.native.runtime.block_on(call)?.receipt);
        Ok(())
    }

    /// A process takes so many, bound to itself, and is gone.
    fn bound(&self, count: usize) -> Result<()> {
        self.due(count)?;
        let address = self.native.server.address().with_client(CLIENT);
        let other = self.native.runtime.block_on(RedisStore::open(address, Limits::default()))?;
        self.take_as(&other, Take::from(self.queue.clone()).max(count).bound())?;
        Ok(())
    }

    /// It comes again, and frees what it had; its messages are taken for good.
    fn open_again(&self) -> Result<()> {
        let address = self.native.server.address().with_client(CLIENT);
        self.native.runtime.block_on(RedisStore::open(address, Limits::default()))?;
        Ok(())
    }

    fn locate(&self, count: usize) -> Result<()> {
        let numbers = (1..=count as u64).map(Number::new).collect::<std::result::Result<_, _>>()?;
        let located = self.native.runtime.block_on(self.native.store.locate(numbers));
        located.into_iter().try_for_each(|place| place.map(drop))?;
        Ok(())
    }

    fn many(&self, count: usize) -> Result<()> {
        for index in 0..count {
            let queue = format!("other-{index}").parse()?;
            self.native.put(vec![put_at(&queue, b"m", wall_us() / 1_000 + DAY_MS as i64)?])?;
        }
        Ok(())
    }

    fn list_queues(&self) -> Result<()> {
        self.native.runtime.block_on(self.native.store.queues(None, 256))?;
        Ok(())
    }

    fn purge(&self) -> Result<()> {
        self.native.runtime.block_on(self.native.store.purge(self.queue.clone()))?;
        Ok(())
    }

    /// Only what comes now is logged, and all of it.
    fn log(&self) -> Result<()> {
        let server = &self.native.server;
        server.command(&["CONFIG", "SET", "slowlog-max-len", "1000000"]);
        server.command(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]);
        server.command(&["SLOWLOG", "RESET"]);
        Ok(())
    }

    /// How long each script has taken since, in microseconds; scripts on the directory only if they are asked for.
    fn took(&self, and: &str) -> Result<Vec<f64>> {
        let log: Vec<redis::Value> =
            redis::from_redis_value(self.native.server.command(&["SLOWLOG", "GET", "-1"]))?;
        self.native.server.command(&["CONFIG", "SET", "slowlog-log-slower-than", "-1"]);
        let mut took = Vec::new();
        for entry in log {
            let redis::Value::Array(fields) = entry else { continue };
            let words: Vec<Vec<u8>> = redis::from_redis_value(fields[3].clone())?;
            let is_script =
                words[0].eq_ignore_ascii_case(b"EVALSHA") || words[0].eq_ignore_ascii_case(b"EVAL");
            if is_script && (words[3] != DIRECTORY.as_bytes() || and == DIRECTORY) {
                took.push(redis::from_redis_value(fields[2].clone())?);
            }
        }
        if took.is_empty() { Err("no script was called".into()) } else { Ok(took) }
    }
}

fn all<T>(answers: Vec<dwell_store::Result<T>>) -> Result<()> {
    for answer in answers {
        answer?;
    }
    Ok(())
}
