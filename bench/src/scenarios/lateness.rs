//! `lateness`: how late messages reach their consumers over HTTP, with a million others pending, 20,000 due a
//! second, and 5,000 synced puts a second.

use dwell_client::Client;
use dwell_model::Receipt;
use dwell_store::{Action, Put, Settle, Take};
use hdrhistogram::Histogram;

use super::Scenario;
use crate::Result;
use crate::run::Run;
use crate::server::Server;
use crate::steady_load::{Caller, SteadyLoad, TAKERS, Taken, Told};

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "lateness",
    what: "lateness over HTTP: 1 M pending, 20,000 due and 5,000 synced puts a second",
    run,
};

const DUE_PER_MS: u64 = 20;
const PUTS_PER_S: u64 = 5_000;

fn run(run: &mut Run) -> Result<()> {
    let (pending, seconds) = (run.scaled(1_000_000), run.scaled(20));
    let count = seconds * 1_000 * DUE_PER_MS;
    let load = SteadyLoad { pending, count, due_per_ms: DUE_PER_MS, puts_per_s: PUTS_PER_S };
    run.note(format!(
        "{pending} pending in another queue, due within a day; {count} messages of 128 bytes due at {} a second to {TAKERS} \
         waiting takes, acked in batches by one more client; {PUTS_PER_S} puts a second in batches of {}, each synced",
        DUE_PER_MS * 1_000,
        load.puts()
    ));
    run.note(
        "lateness: when the answer was read, less due; clients and server share the machine and its clock",
    );
    run.note("the server has its default memory limit: what does not fit is in due files");
    let mut all = Histogram::<u64>::new(3)?;
    let mut put_rates = Vec::new();
    for round in 1..=run.rounds() {
        let server = Server::start(&run.empty_folder("server")?)?;
        let caller = || Ok(Box::new(Http(Client::new(server.url())?)) as Box<dyn Caller>);
        let measured = load.run(&caller, &|| {})?;
        let (late, puts) = (measured.late, measured.puts_per_s);
        eprintln!(
            "lateness: round {round}: p50 {} us, p99 {} us, {puts:.0} puts a second",
            late.value_at_quantile(0.5),
            late.value_at_quantile(0.99)
        );
        all.add(&late)?;
        put_rates.push(puts);
    }
    run.latencies("lateness", &all);
    run.alone("puts meanwhile", "per_s", put_rates);
    Ok(())
}

/// A client with connections of its own.
struct Http(Client);

impl Caller for Http {
    fn put(&self, puts: Vec<Put>) -> Told<()> {
        self.0
            .put(&puts)
            .into_iter()
            .try_for_each(|answer| answer.map(drop))
            .map_err(|error| error.to_string())
    }

    fn take(&self, take: Take) -> Told<Vec<Taken>> {
        let taken = self.0.take(&take).map_err(|error| error.to_string())?;
        let seen =
            taken.into_iter().map(|delivery| Taken { due: delivery.message.due, receipt: delivery.receipt });
        Ok(seen.collect())
    }

    fn ack(&self, receipts: Vec<Receipt>) -> Told<()> {
        let acks = receipts.into_iter().map(|receipt| Settle { receipt, action: Action::Ack });
        let settled = self.0.settle(&acks.collect::<Vec<_>>());
        settled.into_iter().try_for_each(|answer| answer.map(drop)).map_err(|error| error.to_string())
    }
}
