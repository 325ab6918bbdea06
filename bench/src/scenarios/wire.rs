//! `wire`: puts over beanstalkd's protocol, each synced before it is answered, compared with beanstalkd that syncs each
//! write, and beanstalkd without persistence; and the same puts over HTTP.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use dwell_client::Client;
use dwell_model::QueueName;
use dwell_store::Put;

use super::Scenario;
use crate::Result;
use crate::beanstalk::{self, Wire};
use crate::peers::beanstalkd::{Beanstalkd, JobStorage};
use crate::report::Better;
use crate::run::{Run, Side};
use crate::server::Server;
use crate::stopwatch::{Stopwatch, pause};
use crate::workload::{Item, Items};

pub(crate) const SCENARIO: Scenario =
    Scenario { name: "wire", what: "puts over beanstalkd's protocol, each synced, beside beanstalkd", run };

/// Connections, and concurrent puts on each.
const SHAPES: [(usize, usize, &str); 3] = [
    (1, 1, "1 connection, 1 put at a time"),
    (1, 64, "1 connection, 64 puts at a time"),
    (64, 64, "64 connections, 64 puts at a time"),
];

fn run(run: &mut Run) -> Result<()> {
    let seconds = run.scaled(5);
    run.note(format!(
        "for {seconds} s: puts of 128 random bytes, delayed at random within a day; a connection sends its next puts \
         when all it sent are answered"
    ));
    run.note("beanstalkd-f0 syncs each write to its log, beanstalkd-mem has none; clients share the machine");
    run.note(
        "HTTP: a request with one message, or a batch of as many as are under way over beanstalkd's protocol; through \
         the client that the command line uses, each message with a token",
    );
    for (connections, pipeline, work) in SHAPES {
        let load = Load { connections, pipeline, time: Duration::from_secs(seconds) };
        let mut sides = [
            Side::new("dwell", |run| {
                let server = Server::start(&run.empty_folder("dwell")?)?;
                load.puts_per_second(server.beanstalkd())
            }),
            Side::new("beanstalkd-f0", |run| {
                let server = Beanstalkd::start(JobStorage::Synced(&run.empty_folder("beanstalkd")?))?;
                load.puts_per_second(server.address())
            }),
            Side::new("beanstalkd-mem", |_| {
                let server = Beanstalkd::start(JobStorage::InMemory)?;
                load.puts_per_second(server.address())
            }),
        ];
        run.contest(work, "per_s", Better::Higher, &mut sides)?;
        let mut over_http = [Side::new("dwell over HTTP", |run| {
            let server = Server::start(&run.empty_folder("dwell")?)?;
            load.puts_per_second_over_http(server.url())
        })];
        run.contest(&format!("HTTP, {work}"), "per_s", Better::Higher, &mut over_http)?;
    }
    Ok(())
}

/// One connection of a load: sends all concurrent puts, and calls its argument for each answer; ends early if that
/// returns that the time is over.
type Putting = Box<dyn FnMut(&mut dyn FnMut() -> bool) -> std::result::Result<(), String> + Send>;

#[derive(Clone, Copy)]
struct Load {
    connections: usize,
    pipeline: usize,
    time: Duration,
}

impl Load {
    /// The puts per second that were answered over beanstalkd's protocol.
    fn puts_per_second(self, address: &str) -> Result<f64> {
        let putting = |items: &[Item]| -> Result<Putting> {
            let (mut wire, count) = (Wire::connect(address)?, items.len());
            let mut commands = Vec::new();
            for item in items {
                beanstalk::put(&mut commands, item.due_ms / 1_000, &item.body);
            }
            Ok(Box::new(move |answered| {
                wire.send(&commands).map_err(|error| error.to_string())?;
                for _ in 0..count {
                    wire.expect("INSERTED").map_err(|error| error.to_string())?;
                    // A server that takes seconds for the remaining puts is not waited for.
                    if !answered() {
                        break;
                    }
                }
                Ok(())
            }))
        };
        let (rate, told) = self.measure(&putting)?;
        let there = Wire::connect(address)?.tube_stat("default", "current-jobs-delayed")?;
        all_there(told, there)?;
        Ok(rate)
    }

    /// The puts per second that were answered over HTTP.
    fn puts_per_second_over_http(self, url: &str) -> Result<f64> {
        let queue: QueueName = "default".parse()?;
        let putting = |items: &[Item]| -> Result<Putting> {
            let client = Client::new(url)?.blocking();
            let put = |item: &Item| {
                Put::new(queue.clone(), Bytes::copy_from_slice(&item.body)).after_ms(item.due_ms)
            };
            let puts: Vec<Put> = items.iter().map(put).collect();
            Ok(Box::new(move |answered| {
                let one = || client.put_one(puts[0].clone());
                let answers = if puts.len() == 1 { vec![one()] } else { client.put(puts.clone()) };
                for answer in answers {
                    answer.map_err(|error| error.to_string())?;
                    answered();
                }
                Ok(())
            }))
        };
        let (rate, told) = self.measure(&putting)?;
        all_there(told, Client::new(url)?.blocking().stats(queue)?.counts.scheduled)?;
        Ok(rate)
    }

    /// Puts on all connections for the load's time. Returns the number answered per second, and in all.
    fn measure(self, putting: &dyn Fn(&[Item]) -> Result<Putting>) -> Result<(f64, u64)> {
        let items: Vec<_> = Items::new((self.connections * self.pipeline) as u64).collect();
        let connections: Vec<Putting> = items.chunks(self.pipeline).map(putting).collect::<Result<_>>()?;
        let (answered, over) = (AtomicU64::new(0), AtomicBool::new(false));
        let (answered, over) = (&answered, &over);
        thread::scope(|scope| {
            let watch = Stopwatch::start();
            let workers: Vec<_> = connections
                .into_iter()
                .map(|mut put| {
                    scope.spawn(move || -> std::result::Result<(), String> {
                        while !over.load(Ordering::Relaxed) {
                            put(&mut || {
                                answered.fetch_add(1, Ordering::Relaxed);
                                !over.load(Ordering::Relaxed)
                            })?;
                        }
                        Ok(())
                    })
                })
                .collect();
            pause(self.time);
            let told = answered.load(Ordering::Relaxed);
            let rate = watch.per_second(told);
            over.store(true, Ordering::Relaxed);
            for worker in workers {
                worker.join().expect("a worker does not panic")?;
            }
            Ok((rate, told))
        })
    }
}

/// Checks that the answered puts are in the store; some per mille of them are due at once.
fn all_there(told: u64, there: u64) -> Result<()> {
    if there + told / 100 < told {
        return Err(format!("{told} puts were answered, and {there} jobs are there").into());
    }
    Ok(())
}
