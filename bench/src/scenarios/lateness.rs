//! `lateness`: the lateness of messages over HTTP and over beanstalkd's protocol, with a million others pending, 20,000
//! due per second, 5,000 synced puts per second, and concurrent flushes to tables.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::OnceLock;

use bytes::Bytes;
use dwell_client::Client;
use dwell_model::{Receipt, Timestamp};
use dwell_store::{Action, Blocking, Put, Settle, Take, When};
use hdrhistogram::Histogram;

use super::Scenario;
use crate::Result;
use crate::beanstalk::Wire;
use crate::run::Run;
use crate::server::Server;
use crate::steady_load::{Caller, LoadResult, SteadyLoad, TAKERS, TakenCount};

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "lateness",
    what: "lateness over the wire: 1 M pending, 20,000 due and 5,000 synced puts a second, and flushes",
    run,
};

const DUE_PER_MS: u64 = 20;
const PUTS_PER_S: u64 = 5_000;

/// The server's memory limit for messages: so small that at this rate of puts one flush follows another.
const MEMORY_LIMIT: &str = "32MiB";
const FLUSHES: &str = "dwell_engine_flushes_total";

/// The number of concurrent reserves per connection.
const RESERVES: usize = 256;

fn run(run: &mut Run) -> Result<()> {
    let (pending, seconds) = (run.scaled(1_000_000), run.scaled(20));
    let count = seconds * 1_000 * DUE_PER_MS;
    let load = SteadyLoad { pending, count, due_per_ms: DUE_PER_MS, puts_per_s: PUTS_PER_S };
    run.note(format!(
        "{pending} pending in another queue, due within a day; {count} messages of 128 bytes due at {} a second to {TAKERS} \
         takers, and acked; {PUTS_PER_S} puts a second in batches of {}, each synced",
        DUE_PER_MS * 1_000,
        load.puts()
    ));
    run.note(format!(
        "HTTP: takes of up to 256 that wait, acked in batches by one more client; beanstalkd's protocol: {RESERVES} reserves \
         under way on each connection, deletes go out with new reserves, half of them at a time; puts are made over HTTP, whose instants are exact"
    ));
    run.note(
        "lateness: when the answer was read, less due; clients and server share the machine and its clock",
    );
    run.note(format!(
        "the server's memory limit is {MEMORY_LIMIT}: what does not fit is in tables, and flushes: how many were \
         completed from the first message due to the last taken"
    ));
    over(run, "HTTP", load, &|server| {
        Ok(Box::new(Http(Client::new(server.url())?.blocking())) as Box<dyn Caller>)
    })?;
    over(run, "beanstalkd's protocol", load, &|server| {
        let puts = Http(Client::new(server.url())?.blocking());
        let reserves = RefCell::new(Reserves::new(Wire::connect(server.beanstalkd())?));
        Ok(Box::new(Beanstalkd { puts, reserves }) as Box<dyn Caller>)
    })
}

fn over(
    run: &mut Run,
    protocol: &str,
    load: SteadyLoad,
    connect: &dyn Fn(&Server) -> Result<Box<dyn Caller>>,
) -> Result<()> {
    let work = format!("lateness, {protocol}");
    if !run.wants(&work) {
        return Ok(());
    }
    let mut all = Histogram::<u64>::new(3)?;
    let (mut put_rates, mut flushes) = (Vec::new(), Vec::new());
    for round in 1..=run.rounds() {
        let server = Server::start_with(&run.empty_folder("server")?, &["--memory-limit", MEMORY_LIMIT])?;
        let (metrics, before) = (server.metrics(), OnceLock::new());
        let measured = load.run(&|| connect(&server), &|| {
            // The putter calls it once.
            let _ = before.set(metrics.get(FLUSHES).map_err(|error| error.to_string()));
        })?;
        let before = before.into_inner().ok_or("nothing fell due")??;
        let flushed = metrics.get(FLUSHES)? - before;
        let (late, puts) = (measured.late, measured.puts_per_s);
        eprintln!(
            "{work}: round {round}: p50 {} us, p99 {} us, {puts:.0} puts a second, {flushed} flushes",
            late.value_at_quantile(0.5),
            late.value_at_quantile(0.99)
        );
        if flushed < 1.0 {
            return Err("no flush was under way: that is not what is to be measured".into());
        }
        all.add(&late)?;
        put_rates.push(puts);
        flushes.push(flushed);
    }
    run.latencies(&work, &all);
    run.alone(&format!("{work}: puts meanwhile"), "per_s", put_rates);
    run.alone(&format!("{work}: flushes meanwhile"), "count", flushes);
    Ok(())
}

/// An HTTP client with its own connections.
struct Http(Blocking<Client>);

impl Caller for Http {
    fn put(&self, puts: Vec<Put>) -> LoadResult<()> {
        self.0
            .put(puts)
            .into_iter()
            .try_for_each(|answer| answer.map(drop))
            .map_err(|error| error.to_string())
    }

    fn take(&self, take: Take) -> LoadResult<Vec<TakenCount>> {
        let taken = self.0.take(take).map_err(|error| error.to_string())?;
        let seen = taken.into_iter().map(|delivery| TakenCount {
            due: delivery.message.standing.due,
            receipt: Some(delivery.receipt),
        });
        Ok(seen.collect())
    }

    fn ack(&self, receipts: Vec<Receipt>) -> LoadResult<()> {
        let acks = receipts.into_iter().map(|receipt| Settle { receipt, action: Action::Ack });
        let settled = self.0.settle(acks.collect());
        settled.into_iter().try_for_each(|answer| answer.map(drop)).map_err(|error| error.to_string())
    }
}

/// A connection that reserves and deletes.
///
/// Puts use another one, since beanstalkd's protocol cannot express their instants.
struct Beanstalkd {
    puts: Http,
    reserves: RefCell<Reserves>,
}

impl Caller for Beanstalkd {
    /// Writes the due instant into each body, since a reserved job does not have it.
    fn put(&self, mut puts: Vec<Put>) -> LoadResult<()> {
        for put in &mut puts {
            let When::At(due) = put.when else { return Err("an instant was to be said".to_owned()) };
            let mut body = put.body.to_vec();
            body[..8].copy_from_slice(&due.as_ms().to_be_bytes());
            put.body = Bytes::from(body);
        }
        self.puts.put(puts)
    }

    fn take(&self, take: Take) -> LoadResult<Vec<TakenCount>> {
        let [queue] = take.queues.as_slice() else { return Err("one queue is taken from".to_owned()) };
        self.reserves.borrow_mut().take(queue.as_str()).map_err(|error| error.to_string())
    }

    fn ack(&self, _receipts: Vec<Receipt>) -> LoadResult<()> {
        Err("a job is deleted by the connection that has it".to_owned())
    }
}

/// The command that a reply belongs to.
enum Sent {
    Reserve,
    Delete,
}

/// A connection with a fixed number of concurrent reserves.
///
/// When half of them are answered, their deletes and as many new reserves are sent, each kind in one run. Otherwise the
/// connection would settle into runs of a few commands, which cost a sync each.
struct Reserves {
    wire: Wire,
    unanswered: VecDeque<Sent>,
    /// The jobs reserved since reserves were last sent.
    ids: Vec<u64>,
    /// The number of reserves answered since then.
    answered: usize,
}

impl Reserves {
    fn new(wire: Wire) -> Reserves {
        Reserves { wire, unanswered: VecDeque::new(), ids: Vec::new(), answered: 0 }
    }

    fn begin(&mut self, tube: &str) -> Result<()> {
        self.wire.send(format!("watch {tube}\r\nignore default\r\n").as_bytes())?;
        self.wire.expect("WATCHING")?;
        self.wire.expect("WATCHING")?;
        self.answered = RESERVES;
        self.send()
    }

    /// Deletes the reserved jobs, and sends as many reserves as were answered.
    fn send(&mut self) -> Result<()> {
        let mut commands = String::new();
        for id in self.ids.drain(..) {
            commands.push_str(&format!("delete {id}\r\n"));
            self.unanswered.push_back(Sent::Delete);
        }
        for _ in 0..std::mem::take(&mut self.answered) {
            commands.push_str("reserve-with-timeout 1\r\n");
            self.unanswered.push_back(Sent::Reserve);
        }
        self.wire.send(commands.as_bytes())
    }

    /// The jobs that have arrived, at least one; empty if a reserve timed out.
    fn take(&mut self, tube: &str) -> Result<Vec<TakenCount>> {
        if self.unanswered.is_empty() {
            self.begin(tube)?;
        }
        let mut taken = Vec::new();
        while taken.is_empty() || self.wire.has_more() {
            match self.unanswered.pop_front().ok_or("more replies than commands")? {
                Sent::Delete => self.wire.expect("DELETED")?,
                Sent::Reserve => {
                    self.answered += 1;
                    let Some(job) = self.wire.reserved()? else { break };
                    let due_ms = job.body.first_chunk().ok_or("a job says when it is due")?;
                    let due = Timestamp::from_ms(i64::from_be_bytes(*due_ms))?;
                    taken.push(TakenCount { receipt: None, due });
                    self.ids.push(job.id);
                }
            }
        }
        if self.answered >= RESERVES / 2 {
            self.send()?;
        }
        Ok(taken)
    }
}
